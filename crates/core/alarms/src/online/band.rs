//! A value held against its own past: exponentially weighted mean and deviation.

use crate::condition::Verdict;
use serde::{Deserialize, Serialize};

/// Settings of a band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Band {
    /// Time after which a sample counts half.
    pub(crate) half_life_ms: i64,
    /// Deviations from the mean that are allowed.
    pub(crate) sigma: f64,
    /// Samples before the first verdict.
    pub(crate) warmup: u32,
}

/// Mean and variance of one series.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Moments {
    count: u32,
    at_ms: i64,
    #[serde(with = "crate::saved::bits")]
    mean: f64,
    #[serde(with = "crate::saved::bits")]
    variance: f64,
}

impl Moments {
    /// Verdict on `value` by what came before it, which then takes `value` in: a value that stays becomes the new mean.
    ///
    /// Older samples than the last, and NaN, change nothing.
    pub(crate) fn verdict(&mut self, band: &Band, at_ms: i64, value: f64) -> Option<Verdict> {
        if !value.is_finite() || (self.count > 0 && at_ms <= self.at_ms) {
            return None;
        }
        let distance = value - self.mean;
        let is_outside =
            self.count >= band.warmup.max(1) && distance.abs() > band.sigma * self.variance.sqrt();
        let old = 0.5_f64.powf((at_ms - self.at_ms) as f64 / band.half_life_ms.max(1) as f64);
        // The first samples weigh equally, else the very first would count half for a whole half-life.
        let weight = (1.0 - old).max(1.0 / (f64::from(self.count) + 1.0));
        if self.count == 0 {
            (self.mean, self.variance) = (value, 0.0);
        } else {
            self.mean += weight * distance;
            self.variance = (1.0 - weight) * (self.variance + weight * distance * distance);
        }
        self.count = self.count.saturating_add(1);
        self.at_ms = at_ms;
        Some(if is_outside {
            Verdict::Active(value)
        } else {
            Verdict::Clear(value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAND: Band = Band {
        half_life_ms: 10_000,
        sigma: 4.0,
        warmup: 10,
    };

    fn verdicts(values: impl IntoIterator<Item = f64>) -> Vec<bool> {
        let mut moments = Moments::default();
        let verdict = |(at, value)| moments.verdict(&BAND, at as i64 * 1000, value);
        let found = values.into_iter().enumerate().filter_map(verdict);
        found.map(|one| matches!(one, Verdict::Active(_))).collect()
    }

    #[test]
    fn a_step_is_outside_until_it_is_the_habit() {
        let noise = |at: u32| f64::from(at % 3);
        let found = verdicts((0..200).map(|at| {
            if at < 100 {
                noise(at)
            } else {
                50.0 + noise(at)
            }
        }));
        assert!(found[..100].iter().all(|is_outside| !is_outside));
        assert!(found[100]);
        assert!(found[120..].iter().all(|is_outside| !is_outside));
    }

    #[test]
    fn nothing_is_outside_before_the_warmup() {
        assert_eq!(verdicts([1.0, 100.0, 1.0]), [false, false, false]);
        assert_eq!(verdicts([f64::NAN, 1.0, f64::INFINITY]), [false]);
    }
}
