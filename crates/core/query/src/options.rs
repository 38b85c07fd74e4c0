//! Limits of a query, and what Prometheus has flags for.

use crate::error::Error;

/// Limits and settings of an evaluation. The defaults are those of Prometheus where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How far an instant selector looks back for a sample, both ends included. Default: 5 min.
    pub lookback_ms: i64,
    /// Step of a subquery that names none (`[1h:]`); the interval of rules in Prometheus. Default: 1 min.
    pub subquery_step_ms: i64,
    /// Longest text of an expression, in bytes. Default: 64 KiB.
    pub text_bytes_max: usize,
    /// Deepest nesting of operators, calls and brackets. Default: 400, which fits the 2 MiB stack of a thread.
    pub depth_max: usize,
    /// Most steps of a range. Default: 11,000.
    pub steps_max: u64,
    /// Most samples or buckets loaded, steps of subqueries and values of selectors included. Default: 50 million.
    pub samples_max: u64,
    /// Most samples visited by functions over windows, a bound of time. Default: 2 billion, some seconds.
    pub visits_max: u64,
    /// Most series in an answer. Default: 100,000.
    pub series_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lookback_ms: 5 * 60_000,
            subquery_step_ms: 60_000,
            text_bytes_max: 64 << 10,
            depth_max: 400,
            steps_max: 11_000,
            samples_max: 50_000_000,
            visits_max: 2_000_000_000,
            series_max: 100_000,
        }
    }
}

/// Resources that one query has used.
#[derive(Debug)]
pub(crate) struct Budget {
    samples: u64,
    samples_max: u64,
    visits: u64,
    visits_max: u64,
}

impl Budget {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            samples: 0,
            samples_max: options.samples_max,
            visits: 0,
            visits_max: options.visits_max,
        }
    }

    /// Books `count` samples before memory is taken for them.
    pub(crate) fn load(&mut self, count: u64) -> Result<(), Error> {
        self.samples = self.samples.saturating_add(count);
        if self.samples > self.samples_max {
            return Err(Error::TooManySamples {
                limit: self.samples_max,
            });
        }
        Ok(())
    }

    /// Books `count` samples looked at.
    pub(crate) fn visit(&mut self, count: u64) -> Result<(), Error> {
        self.visits = self.visits.saturating_add(count);
        if self.visits > self.visits_max {
            return Err(Error::TooManyVisits {
                limit: self.visits_max,
            });
        }
        Ok(())
    }
}
