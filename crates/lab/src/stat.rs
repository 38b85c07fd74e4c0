//! The little statistics that results need.

/// The smallest value that at least 99 of 100 do not exceed; the largest one when they are fewer than 100.
/// `None` of nothing.
#[must_use]
pub fn p99(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * 99).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// The middle one. `None` of nothing.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_values_the_largest_counts_and_of_many_one_in_a_hundred_does_not() {
        assert_eq!(p99(&[]), None);
        assert_eq!(p99(&[3.0, 1.0, 2.0]), Some(3.0));
        let many: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(p99(&many), Some(198.0));
        assert_eq!(median(&many), Some(101.0));
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
}
