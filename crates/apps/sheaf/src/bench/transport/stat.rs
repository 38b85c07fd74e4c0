//! Statistics of few values.

use serde::Serialize;

/// The middle of some values, and how far they spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The middle value, or the mean of the two in the middle; `null` of nothing.
    pub(crate) median: Option<f64>,
    /// The least.
    pub(crate) min: Option<f64>,
    /// The most.
    pub(crate) max: Option<f64>,
    /// How many.
    pub(crate) n: usize,
}

impl Spread {
    /// Of `values`.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let middle = |index: usize| sorted.get(index).copied();
        let upper = middle(sorted.len() / 2);
        let lower = middle(sorted.len().saturating_sub(1) / 2);
        Self {
            median: lower.zip(upper).map(|(a, b)| f64::midpoint(a, b)),
            min: sorted.first().copied(),
            max: sorted.last().copied(),
            n: sorted.len(),
        }
    }
}

/// Jain's index of fairness: 1 if all have the same, 1/n if one has all (Jain, Chiu, Hawe, DEC-TR-301, 1984).
pub(crate) fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (shares.len() as f64 * squares)
    }
}

/// The least share ÷ the largest; 1 if there is nothing to share.
pub(crate) fn min_max(shares: &[u64]) -> f64 {
    match (shares.iter().min(), shares.iter().max()) {
        (Some(min), Some(max)) if *max > 0 => *min as f64 / *max as f64,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_stands_in_the_middle() {
        for (values, expected) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
            (&[4.0, 1.0, 2.0, 9.0], Some(3.0)),
        ] {
            assert_eq!(Spread::of(values.iter().copied()).median, expected);
        }
        let spread = Spread::of([2.0, 1.0].into_iter());
        assert_eq!(
            (spread.min, spread.max, spread.n),
            (Some(1.0), Some(2.0), 2)
        );
    }

    #[test]
    fn fairness_is_1_for_equals_and_falls_with_the_favourite() {
        assert_eq!((jain(&[5, 5, 5]), min_max(&[5, 5, 5])), (1.0, 1.0));
        assert_eq!((jain(&[4, 0, 0, 0]), min_max(&[4, 0, 0, 0])), (0.25, 0.0));
        assert_eq!((jain(&[]), min_max(&[0, 0])), (1.0, 1.0));
    }
}
