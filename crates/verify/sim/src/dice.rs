//! Seeded random numbers.

use sheaf_protocol::splitmix::SplitMix64;
use std::time::Duration;

/// Seeded random numbers, the same on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Dice(SplitMix64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// Draws from `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// Draws from `low` to `high` ms, in steps of 1 µs.
    pub(crate) fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.range(low * 1000, high * 1000))
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.range(1, 100) <= percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.range(0, items.len() as u64 - 1) as usize]
    }

    /// Draws from 0 to `max` thousandths, as a probability.
    pub(crate) fn milli(&mut self, max: u64) -> f64 {
        self.range(0, max) as f64 / 1000.0
    }
}
