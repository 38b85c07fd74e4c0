//! Statistics of few values: their middle, their spread, how evenly they share.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF as _, Gamma, StudentsT};

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

/// Returns the interval that holds the mean of the population with the probability `confidence`, by Student's t: exact
/// for values that are normally distributed, and near it for means of many. `None` of nothing; of one value, that value
/// twice, since it says nothing of the spread.
///
/// A bootstrap takes too narrow an interval from few values: percentiles of three cover 74 % where they say 95.
///
/// # Panics
///
/// If `confidence` is not between 0 and 1.
#[must_use]
pub fn mean_interval(values: &[f64], confidence: f64) -> Option<[f64; 2]> {
    assert!(confidence > 0.0 && confidence < 1.0, "{confidence}");
    let mean = mean(values)?;
    if values.len() < 2 {
        return Some([mean, mean]);
    }
    let count = values.len() as f64;
    let half = t_quantile(count - 1.0, confidence) * standard_deviation(values) / count.sqrt();
    Some([mean - half, mean + half])
}

/// Returns how many standard errors to each side an interval reaches that holds with the probability `confidence`, by
/// Student's t with `freedom` degrees of freedom, above 0.
#[must_use]
pub fn t_quantile(freedom: f64, confidence: f64) -> f64 {
    let t = StudentsT::new(0.0, 1.0, freedom);
    t.map_or(f64::INFINITY, |t| {
        t.inverse_cdf(f64::midpoint(1.0, confidence))
    })
}

/// Returns the [`mean_interval`] of 95 %; `[0, 0]` of nothing.
#[must_use]
pub fn ci95(values: &[f64]) -> [f64; 2] {
    mean_interval(values, 0.95).unwrap_or_default()
}

/// Returns the [`ci95`] of values that cannot be below 0.
#[must_use]
pub fn ci95_from_zero(values: &[f64]) -> [f64; 2] {
    ci95(values).map(|end| end.max(0.0))
}

/// Returns the interval of 95 % of the mean of a count, of which `count` were seen in all of `runs`: exact for events
/// that happen independently of each other (Garwood 1936). Of none seen it is 0 to 3.7 by both sides, in all runs; the
/// rule of three takes one side.
///
/// # Panics
///
/// If there are no runs, or the count is below 0.
#[must_use]
pub fn count_interval(count: f64, runs: f64) -> [f64; 2] {
    assert!(count >= 0.0 && runs > 0.0, "{count} in {runs} runs");
    let quantile =
        |shape: f64, q: f64| Gamma::new(shape, 1.0).map_or(0.0, |gamma| gamma.inverse_cdf(q));
    let low = if count > 0.0 {
        quantile(count, 0.025)
    } else {
        0.0
    };
    [low / runs, quantile(count + 1.0, 0.975) / runs]
}

/// Returns the upper end of the interval of 95 % of the mean of a count of which none was seen in `runs` (the rule of
/// three: −ln 0.05).
#[must_use]
pub fn most_of_none(runs: f64) -> f64 {
    -(0.05_f64.ln()) / runs
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
    use rand::{RngExt as _, SeedableRng as _};
    use rand_xoshiro::Xoshiro256PlusPlus;

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
    fn the_interval_of_a_mean_is_that_of_students_t() {
        assert_eq!(ci95(&[]), [0.0, 0.0]);
        assert_eq!(ci95(&[3.0]), [3.0, 3.0]);
        // Mean 2, standard deviation 1, n = 3: 2 ± 4.303 ÷ √3.
        let [low, high] = ci95(&[1.0, 2.0, 3.0]);
        assert!(
            (low + 0.4844).abs() < 1e-3 && (high - 4.4844).abs() < 1e-3,
            "{low} {high}"
        );
        assert_eq!(ci95_from_zero(&[1.0, 2.0, 3.0])[0], 0.0);
        let [wider_low, wider_high] = mean_interval(&[1.0, 2.0, 3.0], 0.99).unwrap();
        assert!(wider_low < low && high < wider_high);
    }

    #[test]
    fn the_interval_of_a_count_is_that_of_tables() {
        // Garwood's table for 10 events, and for none.
        let [low, high] = count_interval(10.0, 1.0);
        assert!(
            (low - 4.795).abs() < 0.01 && (high - 18.391).abs() < 0.01,
            "{low} {high}"
        );
        let [low, high] = count_interval(0.0, 2.0);
        assert!(low == 0.0 && (high - 1.844).abs() < 0.01, "{low} {high}");
        assert!((most_of_none(3.0) - 0.9986).abs() < 1e-3);
    }

    /// Share of intervals that hold the mean of the population, of 4,000 samples of `count` values.
    fn coverage(count: usize, mean: f64, draw: impl Fn(&mut Xoshiro256PlusPlus) -> f64) -> f64 {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(1);
        let covers = (0..4000).filter(|_| {
            let values: Vec<f64> = (0..count).map(|_| draw(&mut chance)).collect();
            let [low, high] = ci95(&values);
            low <= mean && mean <= high
        });
        covers.count() as f64 / 4000.0
    }

    #[test]
    fn intervals_cover_as_often_as_they_say() {
        // The sum of twelve evenly spread numbers is nearly normal.
        let normal =
            |chance: &mut Xoshiro256PlusPlus| (0..12).map(|_| chance.random::<f64>()).sum::<f64>();
        for count in [3, 5, 10] {
            let covered = coverage(count, 6.0, normal);
            assert!((covered - 0.95).abs() < 0.012, "n = {count}: {covered}");
        }
        // Skewed as waits are: exponentially spread.
        let skewed = |chance: &mut Xoshiro256PlusPlus| -(1.0 - chance.random::<f64>()).ln();
        let covered = coverage(10, 1.0, skewed);
        assert!((0.88..0.96).contains(&covered), "{covered}");
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
