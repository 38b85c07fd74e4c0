//! Conditions: a value held against a threshold, with hysteresis.

/// How a value compares with a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
    Equal,
    NotEqual,
}

impl Comparison {
    pub(crate) fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Above => left > right,
            Self::AtLeast => left >= right,
            Self::Below => left < right,
            Self::AtMost => left <= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }

    /// The comparison with its sides exchanged.
    pub(crate) fn flipped(self) -> Self {
        match self {
            Self::Above => Self::Below,
            Self::AtLeast => Self::AtMost,
            Self::Below => Self::Above,
            Self::AtMost => Self::AtLeast,
            Self::Equal | Self::NotEqual => self,
        }
    }
}

/// A threshold, and the one that ends a firing alert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Test {
    pub(crate) comparison: Comparison,
    pub(crate) threshold: f64,
    /// Threshold of a firing alert; the alert ends when the comparison with it does not hold.
    pub(crate) clear: Option<f64>,
}

impl Test {
    /// Verdict on `value` of an alert that fires or does not.
    pub(crate) fn verdict(&self, value: f64, is_firing: bool) -> Verdict {
        let threshold = match self.clear {
            Some(clear) if is_firing => clear,
            _ => self.threshold,
        };
        if self.comparison.holds(value, threshold) {
            Verdict::Active(value)
        } else {
            Verdict::Clear(value)
        }
    }
}

/// Outcome of one evaluation of a condition for one series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The condition holds.
    Active(f64),
    /// The condition does not hold.
    Clear(f64),
    /// There is no data.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firing_alert_ends_at_the_threshold_of_clear() {
        let test = Test {
            comparison: Comparison::Above,
            threshold: 10.0,
            clear: Some(8.0),
        };
        assert_eq!(test.verdict(9.0, false), Verdict::Clear(9.0));
        assert_eq!(test.verdict(9.0, true), Verdict::Active(9.0));
        assert_eq!(test.verdict(8.0, true), Verdict::Clear(8.0));
        assert!(matches!(test.verdict(f64::NAN, true), Verdict::Clear(_)));
    }

    #[test]
    fn a_flipped_comparison_says_the_same() {
        for one in [
            Comparison::Above,
            Comparison::AtLeast,
            Comparison::Below,
            Comparison::AtMost,
            Comparison::Equal,
        ] {
            for (left, right) in [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0)] {
                assert_eq!(one.holds(left, right), one.flipped().holds(right, left));
            }
        }
    }
}
