//! Aggregates of the samples of one group in one interval.

use crate::sketch::Sketch;
use sheaf_samples::{Bucket, Sample};

/// Function over the samples of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// Sum of the values.
    Sum,
    /// Arithmetic mean.
    Avg,
    /// Smallest value.
    Min,
    /// Largest value.
    Max,
    /// Number of samples.
    Count,
    /// Value with the latest time.
    Last,
    /// Increase of all counters of the group a second, resets allowed for.
    Rate,
    /// Value below which this part of the values lies, by a [`Sketch`].
    Quantile(f64),
}

impl Function {
    /// Forms in configuration files.
    pub(crate) const FORMS: &'static str = "sum, avg, min, max, count, last, rate or quantile(Q)";

    /// Reads the form of a configuration file, such as `avg` or `quantile(0.99)`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "sum" => Self::Sum,
            "avg" => Self::Avg,
            "min" => Self::Min,
            "max" => Self::Max,
            "count" => Self::Count,
            "last" => Self::Last,
            "rate" => Self::Rate,
            _ => {
                let q = text.strip_prefix("quantile(")?.strip_suffix(')')?;
                let q = q.trim().parse().ok()?;
                (0.0..=1.0).contains(&q).then_some(Self::Quantile(q))?
            }
        })
    }

    /// Name in the names of output series.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Count => "count",
            Self::Last => "last",
            Self::Rate => "rate",
            Self::Quantile(_) => "quantile",
        }
    }
}

/// Partial aggregate of one group: every function of a window can be computed from it, and two of them can be merged.
///
/// `f64` sums depend on the order of additions in their last bits; counts, peaks, last values and sketches do not.
#[derive(Clone, Debug, PartialEq)]
pub struct Pane {
    /// End of the interval, included, in ms since 1970-01-01 UTC; its begin is excluded.
    pub end_ms: i64,
    /// Count, sum, peaks and last value.
    pub bucket: Bucket,
    /// Increase of the counters of the group.
    pub increase: f64,
    /// Distribution of the values, if a quantile is asked for.
    pub sketch: Option<Box<Sketch>>,
}

impl Pane {
    /// Returns the pane that ends at `end_ms` and holds `sample` alone.
    #[inline]
    pub(crate) fn of(end_ms: i64, sample: Sample, increase: f64, bins_max: Option<usize>) -> Self {
        let sketch = bins_max.map(|bins_max| {
            let mut sketch = Sketch::default();
            sketch.add(sample.value, bins_max);
            Box::new(sketch)
        });
        Self {
            end_ms,
            bucket: Bucket::of(end_ms, sample),
            increase,
            sketch,
        }
    }

    /// Adds a sample.
    #[inline]
    pub(crate) fn add(&mut self, sample: Sample, increase: f64, bins_max: usize) {
        self.bucket.add(sample);
        self.increase += increase;
        if let Some(sketch) = &mut self.sketch {
            sketch.add(sample.value, bins_max);
        }
    }

    /// Adds the samples of `other`.
    pub(crate) fn merge(&mut self, other: &Self, bins_max: usize) {
        self.bucket.merge(&other.bucket);
        self.increase += other.increase;
        if let (Some(sketch), Some(other)) = (&mut self.sketch, &other.sketch) {
            sketch.merge(other, bins_max);
        }
    }

    /// Value of `function` over a window of `length_ms`.
    pub(crate) fn value(&self, function: Function, length_ms: i64) -> f64 {
        let Bucket {
            count,
            sum,
            min,
            max,
            last,
            ..
        } = self.bucket;
        match function {
            Function::Sum => sum,
            Function::Avg => sum / count as f64,
            Function::Min => min,
            Function::Max => max,
            Function::Count => count as f64,
            Function::Last => last.value,
            Function::Rate => self.increase * 1000.0 / length_ms as f64,
            Function::Quantile(q) => {
                let value = self.sketch.as_ref().map_or(f64::NAN, |it| it.quantile(q));
                // `max` and `min` pass over a NaN, which stays one here.
                if value.is_nan() {
                    value
                } else {
                    value.max(min).min(max)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_read_in_the_forms_that_are_listed() {
        assert_eq!(Function::parse("avg"), Some(Function::Avg));
        assert_eq!(
            Function::parse("quantile(0.99)"),
            Some(Function::Quantile(0.99))
        );
        for wrong in ["mean", "quantile(1.5)", "quantile(NaN)", "quantile", ""] {
            assert_eq!(Function::parse(wrong), None, "{wrong}");
        }
        for form in Function::FORMS
            .replace(" or ", ", ")
            .replace("(Q)", "(0.5)")
            .split(", ")
        {
            assert_eq!(
                Function::parse(form).expect(form).name(),
                form.trim_end_matches("(0.5)")
            );
        }
    }

    #[test]
    fn a_pane_answers_every_function() {
        let at = |at_ms, value| Sample { at_ms, value };
        let mut pane = Pane::of(2000, at(1500, 4.0), 0.0, Some(64));
        pane.add(at(2000, 8.0), 4.0, 64);
        let mut other = Pane::of(2000, at(1001, -2.0), 6.0, Some(64));
        other.merge(&pane, 64);
        let value = |function| other.value(function, 2000);
        assert_eq!(value(Function::Sum), 10.0);
        assert_eq!(value(Function::Avg), 10.0 / 3.0);
        assert_eq!((value(Function::Min), value(Function::Max)), (-2.0, 8.0));
        assert_eq!((value(Function::Count), value(Function::Last)), (3.0, 8.0));
        assert_eq!(value(Function::Rate), 5.0);
        assert_eq!(value(Function::Quantile(0.0)), -2.0);
        assert!((value(Function::Quantile(0.5)) - 4.0).abs() <= 4.0 * Sketch::ERROR);
    }
}
