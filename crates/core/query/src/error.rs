//! Reasons why an expression has no value.

use crate::source::SourceError;
use std::fmt;

/// Place in the text of an expression, both counted from 1; columns count bytes, as in Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Byte of the line.
    pub column: usize,
}

/// Reason why an expression has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Text that is no PromQL, or whose types do not fit; the sender corrects it.
    #[error("{}parse error: {message}", Prefix(*position))]
    Parse {
        /// Where, if the parser knows.
        position: Option<Position>,
        /// The finding and the expectation.
        message: String,
    },
    /// A part of the language that this evaluator does not have, named.
    #[error("{name} is not supported: {reason}")]
    Unsupported {
        /// Name of the function or construct.
        name: String,
        /// Why not.
        reason: &'static str,
    },
    /// Text longer than `text_bytes_max`.
    #[error("the expression has {found} bytes, expected {limit} at most")]
    TooLong {
        /// Bytes of the text.
        found: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Operators and brackets nested deeper than `depth_max`.
    #[error("the expression is nested {found} levels deep, expected {limit} at most")]
    TooDeep {
        /// Levels of the text.
        found: usize,
        /// Levels allowed.
        limit: usize,
    },
    /// A range that does not end after it begins, a step that is not positive, or a time out of range.
    #[error("{0}")]
    Range(&'static str),
    /// More steps than `steps_max`; the caller asks for a longer step.
    #[error(
        "exceeded maximum resolution of {limit} points per timeseries: the range has {found}. Try decreasing the query resolution (?step=XX)"
    )]
    TooManySteps {
        /// Steps of the range.
        found: u64,
        /// Steps allowed.
        limit: u64,
    },
    /// More samples loaded than `samples_max`.
    #[error(
        "query processing would load too many samples into memory in query execution: more than {limit}"
    )]
    TooManySamples {
        /// Samples allowed.
        limit: u64,
    },
    /// More samples visited than `visits_max`: long windows at short steps.
    #[error(
        "the query visits more than {limit} samples, expected fewer: shorten its windows or lengthen its step"
    )]
    TooManyVisits {
        /// Visits allowed.
        limit: u64,
    },
    /// More series in the answer than `series_max`.
    #[error("the answer has {found} series, expected {limit} at most")]
    TooManySeries {
        /// Series of the answer.
        found: usize,
        /// Series allowed.
        limit: usize,
    },
    /// An operation that has no result for these values: many-to-many matches, equal label sets, wrong parameters.
    #[error("{0}")]
    Execution(String),
    /// The store did not answer.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl Error {
    /// Word of the field `errorType` of the HTTP API.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Parse { .. }
            | Self::Unsupported { .. }
            | Self::TooLong { .. }
            | Self::TooDeep { .. }
            | Self::Range(_)
            | Self::TooManySteps { .. } => "bad_data",
            Self::Source(SourceError::Failed(_)) => "internal",
            _ => "execution",
        }
    }

    pub(crate) fn parse(message: impl Into<String>) -> Self {
        Self::Parse {
            position: None,
            message: message.into(),
        }
    }

    pub(crate) fn same_labels() -> Self {
        Self::Execution("vector cannot contain metrics with the same labelset".to_owned())
    }
}

struct Prefix(Option<Position>);

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Position { line, column }) => write!(f, "{line}:{column}: "),
            None => Ok(()),
        }
    }
}
