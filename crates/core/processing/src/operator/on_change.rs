//! `on_change`: values that have not changed are suppressed.

use super::{Draft, Flow, Operator, Registration, Work};
use crate::keys::Key;
use crate::stats::Fate;
use sheaf_protect::protect;
use sheaf_samples::{LabelsError, Sample, is_stale};

/// Default of `refresh_ms`, that of the monitoring library of ALICE.
const REFRESH_MS: i64 = 300_000;
/// Ten years: longer than any refresh has a use.
const REFRESH_MS_MAX: i64 = 315_360_000_000;

pub(super) const OPERATOR: Registration = Registration {
    name: "on_change",
    help: "Suppresses values that have not changed since the last one that passed.",
    keys: &[
        Key {
            name: "refresh_ms",
            form: "ms",
            default: "300000",
            help: "Time after which an unchanged value passes all the same (elsewhere called heartbeat), by the times of the samples.",
        },
        Key {
            name: "deadband",
            form: "number",
            default: "0",
            help: "Difference that counts as no change.",
        },
        Key {
            name: "deadband_percent",
            form: "number",
            default: "0",
            help: "The same in percent of the last value that passed; the larger of the two counts.",
        },
    ],
    changes_labels: false,
    read: |keys, _| {
        let refresh_ms = keys.integer("refresh_ms", 1..=REFRESH_MS_MAX);
        let deadband = keys.number("deadband", true);
        let percent = keys.number("deadband_percent", true);
        Some(Box::new(OnChange {
            refresh_ms: refresh_ms.unwrap_or(REFRESH_MS),
            deadband: deadband.unwrap_or(0.0),
            part: percent.unwrap_or(0.0) / 100.0,
        }))
    },
};

#[derive(Clone, Copy, Debug)]
struct OnChange {
    refresh_ms: i64,
    deadband: f64,
    /// Relative deadband, 0.01 for 1 %.
    part: f64,
}

impl Operator for OnChange {
    fn apply(&self, _: &mut Draft) -> Result<Flow, LabelsError> {
        let operator = *self;
        let last = None;
        Ok(Flow::Work(Work::OnChange(Suppression { operator, last })))
    }
}

/// Suppression of one series.
#[derive(Clone, Debug)]
pub(crate) struct Suppression {
    operator: OnChange,
    /// Last sample that passed.
    last: Option<Sample>,
}

impl Suppression {
    #[inline]
    pub(super) fn take(&mut self, sample: Sample) -> Result<Sample, Fate> {
        let Some(last) = self.last else {
            self.last = (!is_stale(sample.value)).then_some(sample);
            return Ok(sample);
        };
        if is_stale(sample.value) {
            self.last = None;
            return Ok(sample);
        }
        // A clock that stepped back by more than the refresh begins again, or the series would be silent for that time.
        let age_ms = sample.at_ms.saturating_sub(last.at_ms);
        let refresh_ms = self.operator.refresh_ms;
        let is_due =
            protect!(SuppressionRefresh, when age_ms >= refresh_ms || age_ms <= -refresh_ms);
        if !is_due && self.is_same(last.value, sample.value) {
            return Err(Fate::Suppressed);
        }
        // A sample that was overtaken on its way passes, and the newer one stays what the next is compared with.
        if age_ms >= 0 || is_due {
            self.last = Some(sample);
        }
        Ok(sample)
    }

    fn is_same(&self, last: f64, value: f64) -> bool {
        if last == value || (last.is_nan() && value.is_nan()) {
            return true;
        }
        let band = self.operator.deadband.max(self.operator.part * last.abs());
        // False for a NaN on one side; no band reaches an infinity.
        last.is_finite() && (value - last).abs() <= band
    }

    pub(super) fn resume(&mut self, old: &Self) {
        self.last = protect!(StateThroughReload, old.last, else None);
    }
}

#[cfg(test)]
mod tests {
    use crate::operator::tests::{read, worked};
    use sheaf_samples::STALE;

    fn check(text: &str, samples: &[(i64, f64)], expected: &str) {
        let found = worked("on_change", text, samples).join(" ");
        assert_eq!(found.replace("suppressed", "-"), expected);
    }

    #[test]
    fn unchanged_values_are_suppressed_until_the_refresh() {
        let samples = [
            (0, 1.0),
            (10, 1.0),
            (20, 2.0),
            (29, 2.0),
            (30, 2.0),
            (39, 2.0),
        ];
        check("refresh_ms = 10", &samples, "1 1 2 - 2 -");
        check("", &samples, "1 - 2 - - -");
    }

    #[test]
    fn the_larger_deadband_counts() {
        let samples = [
            (0, 100.0),
            (1, 100.9),
            (2, 101.0),
            (3, 101.1),
            (4, 99.0),
            (5, 0.0),
            (6, 0.5),
        ];
        check("deadband = 1", &samples, "100 - - 101.1 99 0 -");
        check("deadband_percent = 1", &samples, "100 - - 101.1 99 0 0.5");
        check(
            "deadband = 0.5\ndeadband_percent = 2",
            &samples,
            "100 - - - - 0 -",
        );
    }

    #[test]
    fn nan_and_infinity_are_values() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        check(
            "deadband = 9",
            &[(0, nan), (1, nan), (2, 1.0), (3, inf), (4, inf), (5, nan)],
            "NaN - 1 inf - NaN",
        );
    }

    #[test]
    fn a_marker_of_staleness_passes_and_begins_again() {
        check("", &[(0, 1.0), (1, STALE), (2, 1.0), (3, 1.0)], "1 NaN 1 -");
    }

    #[test]
    fn overtaken_samples_do_not_become_the_reference() {
        check("", &[(10, 1.0), (5, 2.0), (11, 1.0), (10, 1.0)], "1 2 - -");
    }

    #[test]
    fn a_clock_that_stepped_back_does_not_silence_the_series() {
        check(
            "refresh_ms = 100",
            &[(1000, 1.0), (950, 1.0), (900, 1.0), (910, 1.0)],
            "1 - 1 -",
        );
    }

    #[test]
    fn wrong_numbers_are_refused() {
        assert!(read("on_change", "deadband = -1").is_err());
        assert!(read("on_change", "deadband_percent = nan").is_err());
        assert_eq!(
            read("on_change", "refresh_ms = 0\ndeadband = 'x'")
                .unwrap_err()
                .len(),
            2
        );
    }
}
