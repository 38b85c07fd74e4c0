//! Statistics of few values: their middle, their spread, how evenly they share.

use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

/// The smallest value that at least 99 of 100 do not exceed; the largest one when they are fewer than 100.
/// `None` of nothing.
#[must_use]
pub fn p99(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * 99).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// The middle value, or the larger of the two in the middle. `None` of nothing.
#[must_use]
pub fn median_high(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// The mean. `None` of nothing.
#[must_use]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The standard deviation of the population that `values` are a sample of (n − 1); 0 of fewer than two.
#[must_use]
pub fn standard_deviation(values: &[f64]) -> f64 {
    let (Some(mean), count) = (mean(values), values.len()) else {
        return 0.0;
    };
    if count < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1) as f64).sqrt()
}

/// The value below which the share `q` of `values` lies, between neighbours in a straight line (the seventh rule of
/// Hyndman and Fan 1996, the usual one). `None` of nothing.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let at = q.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let (low, high) = (sorted[below], sorted[(below + 1).min(last)]);
    Some(low + (high - low) * (at - below as f64))
}

/// Samples that a bootstrap draws.
const RESAMPLES: usize = 2000;

/// An interval that holds the mean in 95 of 100 cases, by bootstrap (percentiles of 2,000 resamples with replacement;
/// Efron 1979). The same for the same values and seed. `None` of nothing; of one value, that value twice.
#[must_use]
pub fn bootstrap_ci95(values: &[f64], seed: u64) -> Option<[f64; 2]> {
    if values.is_empty() {
        return None;
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let resample = |_| {
        let drawn = (0..values.len()).map(|_| values[rng.random_range(0..values.len())]);
        drawn.sum::<f64>() / values.len() as f64
    };
    let means: Vec<f64> = (0..RESAMPLES).map(resample).collect();
    Some([quantile(&means, 0.025)?, quantile(&means, 0.975)?])
}

/// Slope of the straight line that fits the points `(x, y)` best (least squares), in y per x; 0 for fewer than two.
#[must_use]
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    if points.len() < 2 {
        return 0.0;
    }
    let x_mean = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let y_mean = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = points
        .iter()
        .map(|(x, y)| (x - x_mean) * (y - y_mean))
        .sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - x_mean).powi(2)).sum();
    if variance > 0.0 {
        covariance / variance
    } else {
        0.0
    }
}

/// Coefficients `[a, b, c]` of the parabola `a + b x + c x²` that fits the points `(x, y)` best (least squares). `None`
/// for fewer than three different x.
#[must_use]
pub fn parabola(points: &[(f64, f64)]) -> Option<[f64; 3]> {
    let count = points.len() as f64;
    let mean = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let scale = points
        .iter()
        .map(|(x, _)| (x - mean).abs())
        .fold(0.0, f64::max);
    if points.len() < 3 || scale == 0.0 {
        return None;
    }
    // Normal equations in u = (x - mean) / scale, where they are well conditioned.
    let mut rows = [[0.0; 4]; 3];
    for (x, y) in points {
        let u = (x - mean) / scale;
        let powers = [1.0, u, u * u];
        for (row, power) in rows.iter_mut().zip(powers) {
            for (cell, other) in row.iter_mut().zip(powers.into_iter().chain([*y])) {
                *cell += power * other;
            }
        }
    }
    let [p, q, r] = solve(rows)?;
    Some([
        p - q * mean / scale + r * mean * mean / (scale * scale),
        q / scale - 2.0 * r * mean / (scale * scale),
        r / (scale * scale),
    ])
}

/// Solves three linear equations, each a row with its right side behind it. `None` if they have no single solution.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    for column in 0..3 {
        let pivot = (column..3).max_by(|a, b| {
            let [a, b] = [a, b].map(|row| rows[*row][column].abs());
            a.total_cmp(&b)
        })?;
        rows.swap(column, pivot);
        let own = rows[column];
        if own[column].abs() < 1e-9 {
            return None;
        }
        for (index, row) in rows.iter_mut().enumerate() {
            if index != column {
                let factor = row[column] / own[column];
                for (cell, of_own) in row.iter_mut().zip(own) {
                    *cell -= factor * of_own;
                }
            }
        }
    }
    Some([0, 1, 2].map(|row| rows[row][3] / rows[row][row]))
}

/// Median and range of some values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle value, or the mean of the two in the middle; `null` of nothing.
    pub median: Option<f64>,
    /// The least value.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
    /// How many values.
    pub n: usize,
}

impl Spread {
    /// Returns median and range of `values`.
    #[must_use]
    pub fn of(values: impl Iterator<Item = f64>) -> Self {
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
#[must_use]
pub fn jain(shares: &[u64]) -> f64 {
    let sum: f64 = shares.iter().map(|share| *share as f64).sum();
    let squares: f64 = shares.iter().map(|share| (*share as f64).powi(2)).sum();
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (shares.len() as f64 * squares)
    }
}

/// The least share ÷ the largest; 1 if there is nothing to share.
#[must_use]
pub fn min_max(shares: &[u64]) -> f64 {
    match (shares.iter().min(), shares.iter().max()) {
        (Some(min), Some(max)) if *max > 0 => *min as f64 / *max as f64,
        _ => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_values_the_largest_counts_and_of_many_one_in_a_hundred_does_not() {
        assert_eq!(p99(&[]), None);
        assert_eq!(p99(&[3.0, 1.0, 2.0]), Some(3.0));
        let many: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(p99(&many), Some(198.0));
        assert_eq!(median_high(&many), Some(101.0));
    }

    #[test]
    fn a_line_has_its_slope_and_a_flat_one_none() {
        let line: Vec<(f64, f64)> = (0..10)
            .map(|x| (f64::from(x), 5.0 + 2.0 * f64::from(x)))
            .collect();
        assert!((slope(&line) - 2.0).abs() < 1e-9);
        assert_eq!(slope(&[(1.0, 7.0), (2.0, 7.0)]), 0.0);
        assert_eq!(slope(&[(1.0, 7.0)]), 0.0);
    }

    #[test]
    fn mean_spread_and_quantiles_of_a_known_sample() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        assert_eq!(mean(&values), Some(5.0));
        assert!((standard_deviation(&values) - 2.138).abs() < 1e-3);
        assert_eq!(quantile(&values, 0.5), Some(4.5));
        assert_eq!(quantile(&values, 1.0), Some(9.0));
        assert_eq!((mean(&[]), quantile(&[], 0.5)), (None, None));
        assert_eq!(standard_deviation(&[3.0]), 0.0);
    }

    #[test]
    fn a_bootstrap_interval_holds_the_mean_is_repeatable_and_narrows_with_more_values() {
        let few: Vec<f64> = (0..10).map(|x| f64::from(x % 5)).collect();
        let many: Vec<f64> = (0..1000).map(|x| f64::from(x % 5)).collect();
        let [low, high] = bootstrap_ci95(&few, 1).unwrap();
        assert!(low < 2.0 && 2.0 < high, "{low} {high}");
        assert_eq!(bootstrap_ci95(&few, 1), Some([low, high]));
        let [narrow_low, narrow_high] = bootstrap_ci95(&many, 1).unwrap();
        assert!(narrow_high - narrow_low < (high - low) / 5.0);
        // The normal approximation of the same: 1.96 × 1.414 ÷ √1000.
        assert!((narrow_high - narrow_low - 2.0 * 0.0877).abs() < 0.02);
        assert_eq!(bootstrap_ci95(&[7.0], 1), Some([7.0, 7.0]));
        assert_eq!(bootstrap_ci95(&[], 1), None);
    }

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

    #[test]
    fn a_parabola_is_found_again_and_too_few_points_have_none() {
        let value = |x: f64| 5.0 + 0.01 * x - 1e-6 * x * x;
        let points: Vec<(f64, f64)> = [1000.0, 2000.0, 3000.0, 5000.0]
            .map(|x| (x, value(x)))
            .into();
        let [a, b, c] = parabola(&points).expect("four points");
        assert!((a - 5.0).abs() < 1e-6 && (b - 0.01).abs() < 1e-9 && (c + 1e-6).abs() < 1e-12);
        assert_eq!(parabola(&points[..2]), None);
        assert_eq!(parabola(&[(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)]), None);
    }
}
