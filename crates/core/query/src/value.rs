//! Results of queries.

use sheaf_samples::{Labels, Sample};
use std::sync::Arc;

/// One series of a vector, at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Labels of the series.
    pub labels: Arc<Labels>,
    /// Value of the series, and the time of the query.
    pub sample: Sample,
}

/// One series of a matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Labels of the series.
    pub labels: Arc<Labels>,
    /// Values of the series, sorted by time; at least one.
    pub samples: Vec<Sample>,
}

/// Value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Scalar(Sample),
    /// A text, and the time of the query in ms.
    String(i64, String),
    /// Series at one time, in the order of the expression (`sort`, `topk`), else by labels.
    Vector(Vec<Point>),
    /// Series over time, sorted by labels.
    Matrix(Vec<Line>),
}

impl Value {
    /// Word of the field `resultType` of the HTTP API.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Scalar(_) => "scalar",
            Self::String(..) => "string",
            Self::Vector(_) => "vector",
            Self::Matrix(_) => "matrix",
        }
    }
}

/// Answer to a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Value of the expression.
    pub value: Value,
    /// Things that the value does not show, one sentence each, sorted: a quantile out of range, buckets without bound.
    pub warnings: Vec<String>,
}
