//! Requests written.

use crate::wire::Metadata;
use crate::{Labels, Sample};
use prost::Message as _;

/// Header `Content-Type` of a request.
pub const CONTENT_TYPE: &str = "application/x-protobuf";
/// Header `Content-Encoding` of a request.
pub const CONTENT_ENCODING: &str = "snappy";
/// Header `X-Prometheus-Remote-Write-Version` of a request.
pub const VERSION: &str = "0.1.0";

#[derive(Clone, PartialEq, prost::Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<WireSample>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct WireSample {
    // `None` is left out, which a receiver reads as 0. Of a plain field prost leaves out -0 as well.
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MetricMetadata {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    metric_family_name: String,
    #[prost(string, tag = "4")]
    help: String,
    #[prost(string, tag = "5")]
    unit: String,
}

/// Returns the body of a request with the samples of `series` and with `metadata`, compressed.
///
/// A receiver expects the samples of a series in the order of their times.
///
/// # Panics
///
/// If the message is longer than 4 GiB, which is more than a Snappy block can be.
#[must_use]
pub fn encode<'a>(
    series: impl IntoIterator<Item = (&'a Labels, &'a [Sample])>,
    metadata: &[Metadata],
) -> Vec<u8> {
    let timeseries = series.into_iter().map(|(labels, samples)| TimeSeries {
        labels: labels
            .iter()
            .map(|(name, value)| Label {
                name: name.to_owned(),
                value: value.to_owned(),
            })
            .collect(),
        samples: samples
            .iter()
            .map(|sample| WireSample {
                value: (sample.value.to_bits() != 0).then_some(sample.value),
                timestamp: sample.at_ms,
            })
            .collect(),
    });
    let metadata = metadata.iter().map(|metadata| MetricMetadata {
        kind: i32::from(metadata.kind as u8),
        metric_family_name: metadata.family.clone(),
        help: metadata.help.clone(),
        unit: metadata.unit.clone(),
    });
    let request = WriteRequest {
        timeseries: timeseries.collect(),
        metadata: metadata.collect(),
    };
    snap::raw::Encoder::new()
        .compress_vec(&request.encode_to_vec())
        .expect("a request is shorter than 4 GiB")
}
