//! Interface of queries to a store of samples.

use sheaf_samples::{Bucket, Labels, Matcher, Sample};
use std::sync::Arc;

/// Series and times that a selector of an expression needs.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// Conditions that all have to hold.
    pub matchers: &'a [Matcher],
    /// First time, included, in ms since 1970-01-01 UTC.
    pub from_ms: i64,
    /// Last time, included.
    pub to_ms: i64,
    /// `Some(g)`: buckets of any level that divides `g` answer the question exactly; every window begins and ends at a
    /// multiple of `g`. `None`: only samples do.
    pub bucket_ms: Option<i64>,
}

/// Content of one series within a selection.
#[derive(Clone, Debug)]
pub enum Data {
    /// Every sample from `from_ms` to `to_ms`, staleness markers included, sorted by time, times unique.
    Samples(Vec<Sample>),
    /// Every bucket whose start lies from `from_ms` to `to_ms`, both included, sorted by start. The bucket at `to_ms`
    /// is needed for the value at its start.
    Buckets {
        /// Length of each bucket, a divisor of `bucket_ms`.
        level_ms: i64,
        /// Buckets that hold at least one sample.
        buckets: Vec<Bucket>,
    },
}

/// One selected series.
#[derive(Clone, Debug)]
pub struct Series {
    /// Labels of the series, the name included.
    pub labels: Arc<Labels>,
    /// Samples or buckets of the series.
    pub data: Data,
}

/// Reason why a store does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// More samples, buckets or series than the store loads for one query; the caller asks for less.
    #[error("the selection holds {found} samples, expected {limit} at most")]
    TooMany {
        /// Number found, or the first number above the limit.
        found: u64,
        /// Number allowed.
        limit: u64,
    },
    /// A failure of the store itself.
    #[error("the store failed: {0}")]
    Failed(String),
}

/// A store that expressions are evaluated over.
///
/// # Contract
///
/// - each series comes once; a series without content in the selection may come or be left out;
/// - a [`Selection`] with `bucket_ms: None` is answered by samples;
/// - names and values are sorted, each once; series are in any order.
pub trait Source {
    /// Returns the series that match, with their content.
    ///
    /// # Errors
    ///
    /// If the store fails or the selection is too large.
    fn select(&self, selection: &Selection<'_>) -> Result<Vec<Series>, SourceError>;

    /// Returns the names of all labels of matching series that have a sample from `from_ms` to `to_ms`.
    ///
    /// # Errors
    ///
    /// As of [`select`](Self::select).
    fn label_names(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError>;

    /// Returns the values of the label `name` of matching series that have a sample from `from_ms` to `to_ms`.
    ///
    /// # Errors
    ///
    /// As of [`select`](Self::select).
    fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError>;

    /// Returns the labels of matching series that have a sample from `from_ms` to `to_ms`.
    ///
    /// # Errors
    ///
    /// As of [`select`](Self::select).
    fn series(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Arc<Labels>>, SourceError>;
}
