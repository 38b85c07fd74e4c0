//! Functions over the values of one window.

use crate::window::{Kahan, Summary, Window};

pub(crate) fn sum(window: &Window<'_>) -> Option<f64> {
    let mut sum = Kahan::default();
    window.values().for_each(|value| sum.add(value));
    Some(sum.value())
}

pub(crate) fn sum_of(summary: &Summary) -> f64 {
    summary.sum()
}

/// Returns the mean, kept as a running mean so that large values do not overflow.
pub(crate) fn avg(window: &Window<'_>) -> Option<f64> {
    let mut mean = Kahan::default();
    let mut count = 0.0;
    for value in window.values() {
        count += 1.0;
        if mean.sum.is_infinite() {
            let is_same = value.is_infinite() && (mean.sum > 0.0) == (value > 0.0);
            // Infinities cannot be subtracted; one stays against all but its opposite and NaN.
            if is_same || value.is_finite() {
                continue;
            }
        }
        mean.add(value / count - mean.sum / count);
    }
    Some(mean.value())
}

pub(crate) fn avg_of(summary: &Summary) -> f64 {
    summary.sum() / summary.count as f64
}

pub(crate) fn count(window: &Window<'_>) -> Option<f64> {
    Some(window.samples.len() as f64)
}

pub(crate) fn count_of(summary: &Summary) -> f64 {
    summary.count as f64
}

pub(crate) fn min(window: &Window<'_>) -> Option<f64> {
    window.values().reduce(|min, value| {
        if value < min || min.is_nan() {
            value
        } else {
            min
        }
    })
}

pub(crate) fn min_of(summary: &Summary) -> f64 {
    summary.min
}

pub(crate) fn max(window: &Window<'_>) -> Option<f64> {
    window.values().reduce(|max, value| {
        if value > max || max.is_nan() {
            value
        } else {
            max
        }
    })
}

pub(crate) fn max_of(summary: &Summary) -> f64 {
    summary.max
}

pub(crate) fn first(window: &Window<'_>) -> Option<f64> {
    Some(window.first().value)
}

pub(crate) fn last(window: &Window<'_>) -> Option<f64> {
    Some(window.last().value)
}

pub(crate) fn last_of(summary: &Summary) -> f64 {
    summary.last
}

pub(crate) fn present(_: &Window<'_>) -> Option<f64> {
    Some(1.0)
}

pub(crate) fn present_of(_: &Summary) -> f64 {
    1.0
}

/// Returns the variance of all values (not of a sample of them), by Welford's method.
pub(crate) fn stdvar(window: &Window<'_>) -> Option<f64> {
    let (mut mean, mut squares) = (Kahan::default(), Kahan::default());
    let mut count = 0.0;
    for value in window.values() {
        count += 1.0;
        let delta = value - (mean.sum + mean.lost);
        mean.add(delta / count);
        squares.add(delta * (value - (mean.sum + mean.lost)));
    }
    Some((squares.sum + squares.lost) / count)
}

pub(crate) fn stddev(window: &Window<'_>) -> Option<f64> {
    stdvar(window).map(f64::sqrt)
}

pub(crate) fn quantile_over_time(window: &Window<'_>) -> Option<f64> {
    let mut values: Vec<f64> = window.values().collect();
    Some(quantile(window.scalars[0], &mut values))
}

/// Returns the quantile `q` of `values`, which are sorted on the way; between two values the weighted mean of both.
///
/// NaN sorts below all. The result is NaN without values or for NaN, and an infinity for `q` outside of 0 to 1.
pub(crate) fn quantile(q: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    values.sort_unstable_by(|left, right| match (left.is_nan(), right.is_nan()) {
        (false, false) => left.total_cmp(right),
        (left, right) => right.cmp(&left),
    });
    let rank = q * (values.len() - 1) as f64;
    let lower = rank.floor() as usize;
    let upper = (lower + 1).min(values.len() - 1);
    let weight = rank - rank.floor();
    values[lower] * (1.0 - weight) + values[upper] * weight
}

/// Returns the median distance from the median.
pub(crate) fn mad(window: &Window<'_>) -> Option<f64> {
    let mut values: Vec<f64> = window.values().collect();
    let median = quantile(0.5, &mut values);
    values
        .iter_mut()
        .for_each(|value| *value = (*value - median).abs());
    Some(quantile(0.5, &mut values))
}

pub(crate) fn changes(window: &Window<'_>) -> Option<f64> {
    let is_change = |pair: &[f64]| pair[0] != pair[1] && !(pair[0].is_nan() && pair[1].is_nan());
    Some(pairs(window, is_change))
}

pub(crate) fn resets(window: &Window<'_>) -> Option<f64> {
    Some(pairs(window, |pair| pair[1] < pair[0]))
}

fn pairs(window: &Window<'_>, is_counted: impl Fn(&[f64]) -> bool) -> f64 {
    let pairs = window.samples.windows(2);
    pairs
        .filter(|pair| is_counted(&[pair[0].value, pair[1].value]))
        .count() as f64
}

pub(crate) fn ts_of_first(window: &Window<'_>) -> Option<f64> {
    Some(window.first().at_ms as f64 / 1000.0)
}

pub(crate) fn ts_of_last(window: &Window<'_>) -> Option<f64> {
    Some(window.last().at_ms as f64 / 1000.0)
}

pub(crate) fn ts_of_max(window: &Window<'_>) -> Option<f64> {
    ts_of(window, |value, best| value >= best)
}

pub(crate) fn ts_of_min(window: &Window<'_>) -> Option<f64> {
    ts_of(window, |value, best| value <= best)
}

/// Returns the time of the last sample that is as good as any.
fn ts_of(window: &Window<'_>, is_better: impl Fn(f64, f64) -> bool) -> Option<f64> {
    let best = window.samples.iter().reduce(|best, sample| {
        if is_better(sample.value, best.value) || best.value.is_nan() {
            sample
        } else {
            best
        }
    });
    best.map(|sample| sample.at_ms as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::Sample;

    fn run(function: fn(&Window<'_>) -> Option<f64>, values: &[f64]) -> f64 {
        let samples: Vec<Sample> = (0..)
            .zip(values)
            .map(|(second, value)| Sample {
                at_ms: second * 1000,
                value: *value,
            })
            .collect();
        let window = Window {
            samples: &samples,
            from_ms: 0,
            to_ms: 10_000,
            at_ms: 10_000,
            scalars: &[0.5],
        };
        function(&window).unwrap()
    }

    #[test]
    fn a_mean_survives_large_values_and_infinities() {
        assert_eq!(run(avg, &[f64::MAX, f64::MAX]), f64::MAX);
        assert_eq!(run(avg, &[1.0, f64::INFINITY, 5.0]), f64::INFINITY);
        assert!(run(avg, &[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert!(run(avg, &[f64::INFINITY, f64::NAN]).is_nan());
    }

    #[test]
    fn peaks_pass_over_nan_and_say_when() {
        let values = [f64::NAN, 1.0, 3.0, f64::NAN, 3.0];
        assert_eq!((run(max, &values), run(min, &values)), (3.0, 1.0));
        assert_eq!(
            (run(ts_of_max, &values), run(ts_of_min, &values)),
            (4.0, 1.0)
        );
    }

    #[test]
    fn changes_and_resets_look_at_neighbours() {
        let values = [1.0, 1.0, f64::NAN, f64::NAN, 5.0, 2.0];
        assert_eq!((run(changes, &values), run(resets, &values)), (3.0, 1.0));
    }

    #[test]
    fn spread_of_values() {
        let values = [4.0, 6.0, 2.0, 1.0, 999.0, 1.0, 2.0];
        assert_eq!(run(mad, &values), 1.0);
        assert_eq!(run(stdvar, &[2.0, 4.0]), 1.0);
        assert_eq!(run(quantile_over_time, &[1.0, 2.0, 4.0, 8.0]), 3.0);
    }
}
