//! Seeded chance.

use std::time::Duration;

/// SplitMix64, as the memory transport has it: the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// From `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// From `low` to `high` ms, in steps of 1 µs.
    pub(crate) fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.range(low * 1000, high * 1000))
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.range(1, 100) <= percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.range(0, items.len() as u64 - 1) as usize]
    }

    /// From 0 to `max` thousandths, as a probability.
    pub(crate) fn milli(&mut self, max: u64) -> f64 {
        self.range(0, max) as f64 / 1000.0
    }
}

/// Spreads the bits of a number over all of it.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
