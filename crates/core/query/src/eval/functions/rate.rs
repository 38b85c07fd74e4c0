//! Functions of change in one window: rates, slopes, smoothing.

use crate::error::Error;
use crate::eval::{Evaluator, Out};
use crate::plan::{Call, Steps};
use crate::window::{Kahan, Window};

pub(crate) fn rate(window: &Window<'_>) -> Option<f64> {
    let range_s = window.to_ms.saturating_sub(window.from_ms) as f64 / 1000.0;
    extrapolated(window, true, Some(range_s))
}

pub(crate) fn increase(window: &Window<'_>) -> Option<f64> {
    extrapolated(window, true, None)
}

pub(crate) fn delta(window: &Window<'_>) -> Option<f64> {
    extrapolated(window, false, None)
}

/// Returns the change over the whole window, from what lies between its first and last sample.
///
/// As samples seldom lie at the ends of the window, the change is extended to each end that is closer than 1.1 mean
/// distances of samples, and by half a mean distance to one that is further. A counter is not extended below zero.
fn extrapolated(window: &Window<'_>, is_counter: bool, per_s: Option<f64>) -> Option<f64> {
    let samples = window.samples;
    if samples.len() < 2 {
        return None;
    }
    let (first, last) = (window.first(), window.last());
    let mut change = last.value - first.value;
    if is_counter {
        for pair in samples.windows(2) {
            if pair[1].value < pair[0].value {
                change += pair[0].value;
            }
        }
    }
    let seconds = |from_ms: i64, to_ms: i64| to_ms.saturating_sub(from_ms) as f64 / 1000.0;
    let mut to_start = seconds(window.from_ms, first.at_ms);
    let to_end = seconds(last.at_ms, window.to_ms);
    let sampled = seconds(first.at_ms, last.at_ms);
    let mean = sampled / (samples.len() - 1) as f64;
    if is_counter && change > 0.0 && first.value >= 0.0 {
        let to_zero = sampled * (first.value / change);
        if to_zero < to_start {
            to_start = to_zero;
        }
    }
    let threshold = mean * 1.1;
    let mut extended = sampled;
    for distance in [to_start, to_end] {
        extended += if distance < threshold {
            distance
        } else {
            mean / 2.0
        };
    }
    let mut factor = extended / sampled;
    if let Some(range_s) = per_s {
        factor /= range_s;
    }
    Some(change * factor)
}

pub(crate) fn irate(window: &Window<'_>) -> Option<f64> {
    instant(window, true)
}

pub(crate) fn idelta(window: &Window<'_>) -> Option<f64> {
    instant(window, false)
}

fn instant(window: &Window<'_>, is_rate: bool) -> Option<f64> {
    let [.., before, last] = window.samples else {
        return None;
    };
    let mut change = if is_rate && last.value < before.value {
        // A counter that was reset began at zero.
        last.value
    } else {
        last.value - before.value
    };
    if is_rate {
        change /= last.at_ms.saturating_sub(before.at_ms) as f64 / 1000.0;
    }
    Some(change)
}

pub(crate) fn deriv(window: &Window<'_>) -> Option<f64> {
    // Times near zero keep the digits of the sums.
    let (slope, _) = regression(window, window.first().at_ms)?;
    Some(slope)
}

pub(crate) fn predict_linear(window: &Window<'_>) -> Option<f64> {
    let (slope, intercept) = regression(window, window.at_ms)?;
    Some(slope * window.scalars[0] + intercept)
}

/// Returns slope per second and value at `origin_ms` of the line with least squares.
fn regression(window: &Window<'_>, origin_ms: i64) -> Option<(f64, f64)> {
    let samples = window.samples;
    if samples.len() < 2 {
        return None;
    }
    let first = window.first().value;
    let count = samples.len() as f64;
    let mut sums = [Kahan::default(); 4];
    for sample in samples {
        let x = sample.at_ms.saturating_sub(origin_ms) as f64 / 1000.0;
        let y = sample.value;
        for (sum, value) in sums.iter_mut().zip([x, y, x * y, x * x]) {
            sum.add(value);
        }
    }
    if samples.iter().skip(1).all(|sample| sample.value == first) {
        return Some(if first.is_infinite() {
            (f64::NAN, f64::NAN)
        } else {
            (0.0, first)
        });
    }
    let [x, y, xy, xx] = sums.map(|sum| sum.sum + sum.lost);
    let slope = (xy - x * y / count) / (xx - x * x / count);
    Some((slope, y / count - slope * x / count))
}

/// Double exponential smoothing, called `holt_winters` in Prometheus 2.
pub(crate) fn double_exponential_smoothing(
    evaluator: &mut Evaluator<'_>,
    call: &Call,
    steps: &Steps,
) -> Result<Out, Error> {
    let smooth = |window: &Window<'_>| {
        let (smoothing, trend) = (window.scalars[0], window.scalars[1]);
        for (name, factor) in [("smoothing", smoothing), ("trend", trend)] {
            if factor <= 0.0 || factor >= 1.0 {
                let short = &name[..1];
                return Err(Error::Execution(format!(
                    "invalid {name} factor. Expected: 0 < {short}f < 1, got: {factor:.6}"
                )));
            }
        }
        let [first, second, ..] = window.samples else {
            return Ok(None);
        };
        let (mut before, mut level) = (0.0, first.value);
        let mut slope = second.value - first.value;
        for (index, value) in window.values().enumerate().skip(1) {
            if index > 1 {
                slope = trend * (level - before) + (1.0 - trend) * slope;
            }
            let next = smoothing * value + (1.0 - smoothing) * (level + slope);
            (before, level) = (level, next);
        }
        Ok(Some(level))
    };
    evaluator
        .over_windows(call, steps, false, smooth)
        .map(Out::Vector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::Sample;

    fn run(function: fn(&Window<'_>) -> Option<f64>, samples: &[(i64, f64)]) -> Option<f64> {
        let samples: Vec<Sample> = samples
            .iter()
            .map(|&(second, value)| Sample {
                at_ms: second * 1000,
                value,
            })
            .collect();
        function(&Window {
            samples: &samples,
            from_ms: 0,
            to_ms: 60_000,
            at_ms: 60_000,
            scalars: &[30.0],
        })
    }

    #[test]
    fn a_reset_counts_from_zero_and_the_ends_are_extended() {
        let samples = [(10, 10.0), (20, 20.0), (30, 5.0), (40, 15.0), (50, 25.0)];
        // 10 + 5 + 10 + 10 between the samples; 10 s to each end of the window.
        assert_eq!(run(increase, &samples), Some(35.0 * 60.0 / 40.0));
        assert_eq!(run(rate, &samples), Some(35.0 * (60.0 / 40.0 / 60.0)));
        assert_eq!(run(delta, &samples), Some(15.0 * 60.0 / 40.0));
        assert_eq!(run(rate, &samples[..1]), None);
    }

    #[test]
    fn instants_take_the_last_two() {
        let samples = [(10, 1.0), (20, 9.0), (30, 4.0)];
        assert_eq!(
            (run(irate, &samples), run(idelta, &samples)),
            (Some(0.4), Some(-5.0))
        );
    }

    #[test]
    fn lines_have_slope_and_future() {
        let samples = [(10, 10.0), (20, 20.0), (30, 30.0)];
        assert_eq!(run(deriv, &samples), Some(1.0));
        assert_eq!(run(predict_linear, &samples), Some(90.0));
        assert_eq!(run(deriv, &[(0, 5.0), (1, 5.0)]), Some(0.0));
        let infinite = [(0, f64::INFINITY), (1, f64::INFINITY)];
        assert!(run(deriv, &infinite).is_some_and(f64::is_nan));
    }
}
