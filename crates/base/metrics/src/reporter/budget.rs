//! Processor time that reporting may take: beyond its share, the interval is stretched.

use std::time::Duration;

/// Stretches the interval while reporting takes more than its share of a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Budget {
    /// Share of a core, 0 to 1.
    share_max: f64,
    /// Factor of the interval, a power of two, so that stretched times still line up.
    stretch: u32,
    /// Intervals in a row that were beyond the share.
    beyond: u32,
}

impl Budget {
    /// Largest factor.
    const STRETCH_MAX: u32 = 64;
    /// Intervals in a row before the interval is stretched: one may be a burst, as at the start.
    const PATIENCE: u32 = 2;

    pub(super) fn new(share_max: f64) -> Self {
        Self {
            share_max,
            stretch: 1,
            beyond: 0,
        }
    }

    /// Factor of the interval.
    pub(super) fn stretch(self) -> u32 {
        self.stretch
    }

    /// Notes that reporting took `cpu` of a core during `time`.
    pub(super) fn note(&mut self, cpu: Duration, time: Duration) {
        if time.is_zero() {
            return;
        }
        let share = cpu.as_secs_f64() / time.as_secs_f64();
        if share > self.share_max {
            self.beyond += 1;
            if self.beyond >= Self::PATIENCE {
                self.stretch = (self.stretch * 2).min(Self::STRETCH_MAX);
                self.beyond = 0;
            }
            return;
        }
        self.beyond = 0;
        // Half of the interval takes twice the share; a fifth is left, so that it does not swing.
        if self.stretch > 1 && share * 2.0 < self.share_max * 0.8 {
            self.stretch /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Reports `cost` at each interval of 1 s, and returns the factors.
    fn stretches(share_max: f64, costs: &[Duration]) -> Vec<u32> {
        let mut budget = Budget::new(share_max);
        let note = |cost: &Duration| {
            budget.note(*cost, Duration::from_secs(1) * budget.stretch());
            budget.stretch()
        };
        costs.iter().map(note).collect()
    }

    #[test]
    fn the_interval_stretches_until_the_share_is_kept() {
        let found = stretches(0.01, &[35 * MS; 8]);
        assert_eq!(found, [1, 2, 2, 4, 4, 4, 4, 4]);
    }

    #[test]
    fn one_burst_stretches_nothing() {
        assert_eq!(stretches(0.01, &[500 * MS, MS, 500 * MS, MS]), [1; 4]);
    }

    #[test]
    fn the_interval_returns_when_reporting_is_cheap_again() {
        let mut costs = vec![100 * MS; 12];
        costs.extend([MS; 5]);
        let found = stretches(0.01, &costs);
        assert_eq!(found[11], 16);
        assert_eq!(found[12..], [8, 4, 2, 1, 1]);
    }

    #[test]
    fn the_factor_has_a_bound() {
        assert_eq!(stretches(0.0, &[MS; 40])[39], Budget::STRETCH_MAX);
    }
}
