//! Faults, and the dice that decide their times.

use sheaf_protocol::splitmix::SplitMix64;
use std::time::Duration;

/// Faults of frames on the way. Every probability is for each frame, from 0 (never) to 1 (always).
///
/// The default is a network without faults and without delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Least time that anything is under way.
    pub delay_min: Duration,
    /// Most time that anything is under way; between the two, all delays are equally probable. Frames of one
    /// connection still arrive in order.
    pub delay_max: Duration,
    /// The frame vanishes.
    pub loss: f64,
    /// The frame arrives a second time, by up to [`late_max`](Self::late_max) later.
    pub duplicate: f64,
    /// The frame is late by up to [`late_max`](Self::late_max), and those behind it overtake it.
    pub reorder: f64,
    /// Largest delay of a duplicated or overtaken frame.
    pub late_max: Duration,
    /// The frame and its connection are lost: both ends see a reset.
    pub reset: f64,
    /// A bit of the frame flips. In a body only its digest shows it; in a prefix or head the receiver refuses the
    /// stream, because the digest over these is wrong.
    pub corrupt: f64,
}

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

    /// Uniform in [0, 1): the upper 53 bits, which a double holds exactly.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns whether something of this probability happens.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Uniform between the two.
    pub(crate) fn between(&mut self, min: Duration, max: Duration) -> Duration {
        min + max.saturating_sub(min).mul_f64(self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_and_delays_are_kept() {
        let mut dice = Dice::new(7);
        let happened = (0..10_000).filter(|_| dice.happens(0.25)).count();
        assert!(
            (2_300..2_700).contains(&happened),
            "{happened} of 10000 at a probability of 0.25"
        );
        assert!(!dice.happens(0.0) && dice.happens(1.0));
        let (min, max) = (Duration::from_millis(2), Duration::from_millis(3));
        assert!(
            (0..1000)
                .map(|_| dice.between(min, max))
                .all(|delay| delay >= min && delay <= max)
        );
        assert_eq!(dice.between(max, min), max);
    }
}
