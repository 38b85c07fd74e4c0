//! Functions over the latest samples of one series, as PromQL defines them.

use sheaf_samples::{Sample, is_stale};
use std::collections::VecDeque;

/// Most samples of a window; beyond, the oldest are dropped and counted.
const SAMPLES_MAX: usize = 4096;

/// A function of PromQL over a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Rate,
    Increase,
    Delta,
    InstantRate,
    InstantDelta,
    Changes,
    Resets,
    Average,
    Min,
    Max,
    Sum,
    Count,
    Last,
}

impl Function {
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "rate" => Self::Rate,
            "increase" => Self::Increase,
            "delta" => Self::Delta,
            "irate" => Self::InstantRate,
            "idelta" => Self::InstantDelta,
            "changes" => Self::Changes,
            "resets" => Self::Resets,
            "avg_over_time" => Self::Average,
            "min_over_time" => Self::Min,
            "max_over_time" => Self::Max,
            "sum_over_time" => Self::Sum,
            "count_over_time" => Self::Count,
            "last_over_time" => Self::Last,
            _ => return None,
        })
    }
}

/// Samples of the last `range_ms`, sorted by time.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    samples: VecDeque<Sample>,
    range_ms: i64,
}

impl Samples {
    pub(crate) fn new(range_ms: i64) -> Self {
        Self {
            samples: VecDeque::new(),
            range_ms,
        }
    }

    /// Adds a sample; returns how many samples were dropped: out of order, or beyond the bound.
    pub(crate) fn push(&mut self, sample: Sample) -> u64 {
        let is_late = self
            .samples
            .back()
            .is_some_and(|last| last.at_ms >= sample.at_ms);
        if is_late || is_stale(sample.value) {
            return u64::from(is_late);
        }
        let from_ms = sample.at_ms - self.range_ms;
        while self
            .samples
            .front()
            .is_some_and(|first| first.at_ms < from_ms)
        {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
            return 1;
        }
        0
    }

    /// Value of `function` over the window that ends at `now_ms`, both ends included; `None` if too few samples are in
    /// it.
    pub(crate) fn value(&mut self, function: Function, now_ms: i64) -> Option<f64> {
        let from_ms = now_ms - self.range_ms;
        while self
            .samples
            .front()
            .is_some_and(|first| first.at_ms < from_ms)
        {
            self.samples.pop_front();
        }
        let (first, last) = (*self.samples.front()?, *self.samples.back()?);
        let values = || self.samples.iter().map(|sample| sample.value);
        let count = self.samples.len() as f64;
        Some(match function {
            Function::Rate => self.extrapolated(now_ms, true)? / (self.range_ms as f64 / 1000.0),
            Function::Increase => self.extrapolated(now_ms, true)?,
            Function::Delta => self.extrapolated(now_ms, false)?,
            Function::InstantRate | Function::InstantDelta => {
                let before = *self.samples.get(self.samples.len().checked_sub(2)?)?;
                let is_reset = last.value < before.value && function == Function::InstantRate;
                let change = if is_reset {
                    last.value
                } else {
                    last.value - before.value
                };
                let seconds = (last.at_ms - before.at_ms) as f64 / 1000.0;
                if function == Function::InstantRate {
                    change / seconds
                } else {
                    change
                }
            }
            Function::Changes => {
                self.pairs(|left, right| left != right && !(left.is_nan() && right.is_nan()))
            }
            Function::Resets => self.pairs(|left, right| right < left),
            Function::Average => values().sum::<f64>() / count,
            Function::Sum => values().sum(),
            Function::Count => count,
            // Any number wins over a NaN, as in Prometheus.
            Function::Min => values().fold(first.value, f64::min),
            Function::Max => values().fold(first.value, f64::max),
            Function::Last => last.value,
        })
    }

    fn pairs(&self, is_counted: impl Fn(f64, f64) -> bool) -> f64 {
        let after = self.samples.iter().skip(1);
        self.samples
            .iter()
            .zip(after)
            .filter(|(left, right)| is_counted(left.value, right.value))
            .count() as f64
    }

    /// Change over the whole window, estimated from the samples in it by the rule of Prometheus: the change between
    /// first and last sample goes on to the ends of the window where these are near, else by half an interval; a
    /// counter is not carried below zero.
    fn extrapolated(&self, now_ms: i64, is_counter: bool) -> Option<f64> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        if self.samples.len() < 2 {
            return None;
        }
        let mut change = last.value - first.value;
        if is_counter {
            let mut before = first.value;
            for sample in &self.samples {
                if sample.value < before {
                    change += before;
                }
                before = sample.value;
            }
        }
        let seconds = |ms: i64| ms as f64 / 1000.0;
        let sampled = seconds(last.at_ms - first.at_ms);
        let interval = sampled / (self.samples.len() - 1) as f64;
        let mut to_start = seconds(first.at_ms - (now_ms - self.range_ms));
        let to_end = seconds((now_ms - last.at_ms).max(0));
        if is_counter && change > 0.0 && first.value >= 0.0 {
            to_start = to_start.min(sampled * (first.value / change));
        }
        let reach = |gap: f64| {
            if gap < interval * 1.1 {
                gap
            } else {
                interval / 2.0
            }
        };
        Some(change * ((sampled + reach(to_start) + reach(to_end)) / sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value over the last 10 s at 10 s of samples at every second from `values`, from 1 s on.
    fn value(function: Function, values: &[f64]) -> Option<f64> {
        let mut samples = Samples::new(10_000);
        for (index, value) in values.iter().enumerate() {
            samples.push(Sample {
                at_ms: 1000 * (index as i64 + 1),
                value: *value,
            });
        }
        samples.value(function, 10_000)
    }

    #[test]
    fn rates_are_extrapolated_and_survive_resets() {
        let steady: Vec<f64> = (1..=10).map(|at| f64::from(at) * 5.0).collect();
        assert_eq!(value(Function::Rate, &steady), Some(5.0));
        assert_eq!(value(Function::Increase, &steady), Some(50.0));
        let reset = [10.0, 20.0, 5.0, 15.0];
        // 10 + 5 + 10 between the samples (3 s), half an interval at the far end, all of the near one.
        assert_eq!(
            value(Function::Increase, &reset),
            Some(25.0 * ((3.0 + 1.0 + 0.5) / 3.0))
        );
        assert_eq!(value(Function::Rate, &[1.0]), None);
        assert_eq!(value(Function::Rate, &[]), None);
    }

    #[test]
    fn simple_functions_are_those_of_promql() {
        let values = [4.0, 4.0, 2.0, f64::NAN, f64::NAN, 6.0];
        let cases = [
            (Function::Changes, 3.0),
            (Function::Resets, 1.0),
            (Function::Min, 2.0),
            (Function::Max, 6.0),
            (Function::Count, 6.0),
            (Function::Last, 6.0),
        ];
        for (function, expected) in cases {
            assert_eq!(value(function, &values), Some(expected), "{function:?}");
        }
        assert_eq!(value(Function::InstantRate, &[8.0, 2.0]), Some(2.0));
        assert_eq!(value(Function::InstantDelta, &[8.0, 2.0]), Some(-6.0));
        assert_eq!(value(Function::Average, &[1.0, 2.0]), Some(1.5));
    }

    #[test]
    fn windows_are_bounded_and_in_order() {
        let mut samples = Samples::new(1_000_000);
        for at_ms in 0..5000 {
            samples.push(Sample { at_ms, value: 1.0 });
        }
        assert_eq!(samples.value(Function::Count, 5000), Some(4096.0));
        assert_eq!(
            samples.push(Sample {
                at_ms: 3,
                value: 1.0
            }),
            1
        );
        assert_eq!(samples.value(Function::Count, 1_004_000), Some(1000.0));
        assert_eq!(samples.value(Function::Count, 2_000_000), None);
    }
}
