//! Work of EPNs on TFs, and its distribution.

use super::lines::one_a_line;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Work of EPNs on a TF: its consumer holds the memory for the time.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Processing {
    /// Mean time for a TF of mean size, in ms; 0 for none.
    pub ms: f64,
    /// Distribution of the time.
    pub distribution: Distribution,
    /// Standard deviation of the logarithm, if lognormal.
    pub sigma: f64,
    /// Shape, if of Pareto, above 1: the smaller, the heavier the tail; up to 2 the variance is without bound.
    pub alpha: f64,
    /// A file with one time a line, of distribution `trace`, in any unit: times are scaled so that their mean is `ms`.
    /// TFs take them in their order, from a line of the seed on, and behind the end it goes on at the beginning, so
    /// that what followed on each other still does. Relative to the scenario file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trace: String,
    /// The times of the trace, in means; read with the file.
    #[serde(skip)]
    pub trace_times: Arc<[f64]>,
    /// Whether a TF of twice the size takes twice the time.
    pub by_size: bool,
    /// TFs in processing at once at one EPN.
    pub parallel: u32,
    /// Time from the delivery of a TF until a consumer that is idle begins with it, in µs: hand-over, waking.
    pub take_us: u64,
    /// Time that a consumer takes for each TF beside its work, in µs: waking behind it, giving it back.
    pub overhead_us: u64,
}

impl Default for Processing {
    fn default() -> Self {
        Self {
            ms: 0.0,
            distribution: Distribution::Fixed,
            sigma: 0.3,
            alpha: 2.1,
            trace: String::new(),
            trace_times: Arc::default(),
            by_size: false,
            parallel: 1,
            take_us: 0,
            overhead_us: 0,
        }
    }
}

impl Processing {
    /// Returns the distribution with its parameter, such as `lognormal:0.5`.
    #[must_use]
    pub fn spread(&self) -> String {
        match self.distribution {
            Distribution::Fixed => "fixed".to_owned(),
            Distribution::Exponential => "exponential".to_owned(),
            Distribution::Lognormal => format!("lognormal:{}", self.sigma),
            Distribution::Pareto => format!("pareto:{}", self.alpha),
            Distribution::Trace => format!("trace:{}", self.trace),
        }
    }

    /// Takes the times of a trace: a number above 0 a line, beside empty lines and those that begin with `#`.
    ///
    /// # Errors
    ///
    /// What was found, a line that is no such number or none at all, and what was expected.
    pub fn set_trace(&mut self, text: &str) -> Result<(), (String, &'static str)> {
        let expected = "one time above 0 a line";
        let time = |line: &str| {
            let time = line.parse::<f64>().ok()?;
            (time > 0.0 && time.is_finite()).then_some(time)
        };
        let times = one_a_line(text, time).map_err(|found| (found, expected))?;
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        self.trace_times = times.iter().map(|time| time / mean).collect();
        Ok(())
    }

    /// Returns it with the distribution of `spread`, in the form that [`spread`](Self::spread) gives. A trace is read.
    ///
    /// # Errors
    ///
    /// The expected form, if `spread` has another one; the fault of a trace.
    pub fn with_spread(self, spread: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "found `{spread}`, expected fixed, exponential, lognormal:SIGMA with 0 to 3, pareto:ALPHA with more \
                 than 1, at most 100, or trace:FILE"
            )
        };
        if let Some(path) = spread.strip_prefix("trace:") {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
            let mut processing = Self {
                distribution: Distribution::Trace,
                trace: path.to_owned(),
                ..self
            };
            let read = processing.set_trace(&text);
            return read.map(|()| processing).map_err(|(found, expected)| {
                format!("{path}: found {found}, expected {expected}")
            });
        }
        let (name, parameter) = match spread.split_once(':') {
            Some((name, text)) => (name, Some(text.parse::<f64>().map_err(|_| expected())?)),
            None => (spread, None),
        };
        match (name, parameter) {
            ("fixed", None) => Ok(Self {
                distribution: Distribution::Fixed,
                ..self
            }),
            ("exponential", None) => Ok(Self {
                distribution: Distribution::Exponential,
                ..self
            }),
            ("lognormal", Some(sigma)) if (0.0..=3.0).contains(&sigma) => Ok(Self {
                distribution: Distribution::Lognormal,
                sigma,
                ..self
            }),
            ("pareto", Some(alpha)) if alpha > 1.0 && alpha <= 100.0 => Ok(Self {
                distribution: Distribution::Pareto,
                alpha,
                ..self
            }),
            _ => Err(expected()),
        }
    }
}

/// Distribution of a time around its mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Not at all.
    #[default]
    Fixed,
    /// Exponentially.
    Exponential,
    /// Lognormally, with `sigma`.
    Lognormal,
    /// By the distribution of Pareto with `alpha`: a heavy tail, cut at 1000 means.
    Pareto,
    /// As it was recorded, in a file.
    Trace,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_read_as_it_is_written() {
        for spread in ["fixed", "exponential", "lognormal:0.5", "pareto:2.1"] {
            let read = Processing::default().with_spread(spread).expect(spread);
            assert_eq!(read.spread(), spread);
        }
        for wrong in [
            "",
            "normal",
            "lognormal",
            "lognormal:4",
            "pareto:1",
            "pareto:x",
            "fixed:1",
        ] {
            let error = Processing::default().with_spread(wrong).expect_err(wrong);
            assert!(
                error.contains(&format!("found `{wrong}`, expected fixed")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_trace_is_scaled_to_its_mean_and_names_the_line_that_is_none() {
        let mut processing = Processing::default();
        processing
            .set_trace("# µs\n100\n\n 300 \n200\n")
            .expect("a trace");
        assert_eq!(processing.trace_times[..], [0.5, 1.5, 1.0]);
        for (text, expected) in [
            ("1\n2,3\n", "`2,3` in line 2"),
            ("0\n", "`0` in line 1"),
            ("inf\n", "`inf` in line 1"),
            ("# none\n", "no line"),
        ] {
            let (found, _) = processing.set_trace(text).expect_err(text);
            assert_eq!(found, expected);
        }
        let missing = Processing::default().with_spread("trace:/no/such/file");
        let error = missing.expect_err("there is no such file");
        assert!(error.starts_with("/no/such/file: No such file"), "{error}");
    }
}
