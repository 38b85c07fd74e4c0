//! OpenTelemetry protocol (OTLP) over HTTP: metrics as protobuf, `ExportMetricsServiceRequest`.
//!
//! Names and labels follow "Prometheus and OpenMetrics Compatibility" of the OpenTelemetry specification: units become
//! suffixes, monotonic sums end in `_total`, `service.namespace/service.name` is `job`, `service.instance.id` is
//! `instance`, other attributes of the resource are labels of `target_info`, those of the scope are `otel_scope_…`. One
//! label more: `host.name` is `host` of every series, since sources are named by it.
//!
//! | kind | becomes |
//! | --- | --- |
//! | gauge, sum | one series |
//! | histogram | classic `_bucket`, `_sum`, `_count` |
//! | exponential histogram | classic buckets at powers of two; a delta of it is `unsupported`: its buckets change |
//! | summary | `quantile` series, `_sum`, `_count` |
//!
//! Points of delta temporality are given out as they are ([`Point::is_delta`]): the receiver adds them up. The JSON
//! form of OTLP is not read; its `Content-Type` tells it apart, and a driver refuses it by name.
//!
//! The messages are written by hand: the crate `opentelemetry-proto` brings the SDK and an executor of futures with it.

mod attributes;
mod decode;
mod encode;
mod names;
mod points;

pub use decode::decode;
pub use encode::{encode, response};

use super::Metadata;
use crate::Labels;

/// Header `Content-Type` of a request.
pub const CONTENT_TYPE: &str = "application/x-protobuf";
/// Path of the requests of a sender.
pub const PATH: &str = "/v1/metrics";

/// Bounds of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Attributes of a point, resource or scope at most.
    pub attributes_max: usize,
    /// Buckets or quantiles of a point at most.
    pub buckets_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            attributes_max: 64,
            buckets_max: 1_000,
        }
    }
}

/// One value of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Labels with the name.
    pub labels: Labels,
    /// Value.
    pub value: f64,
    /// Time in ms since 1970, if the point has one.
    pub at_ms: Option<i64>,
    /// Whether the value is the growth since the point before, to be added up by the receiver.
    pub is_delta: bool,
}

/// One good record of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Value of a series.
    Point(Point),
    /// Description of a metric.
    Metadata(Metadata),
}
