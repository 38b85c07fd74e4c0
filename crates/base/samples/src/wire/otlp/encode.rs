//! Requests written.

use crate::wire::Kind;
use crate::{Labels, NAME, Sample};
use prost::Message as _;

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(oneof = "Data", tags = "5, 7")]
    data: Option<Data>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct NumberDataPoint {
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(double, optional, tag = "4")]
    as_double: Option<f64>,
    #[prost(uint32, tag = "8")]
    flags: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
}

/// Returns a request with the samples of `series`, not compressed.
///
/// A counter is a cumulative monotonic sum, all else a gauge: buckets and quantiles are series of their own already. A
/// name that ends in `_total` keeps it; a receiver adds the suffix once. `resource` has attributes of the sender, such
/// as `service.name`. A time before 1970 is left out.
#[must_use]
pub fn encode<'a>(
    resource: &[(&str, &str)],
    series: impl IntoIterator<Item = (&'a Labels, Kind, &'a [Sample])>,
) -> Vec<u8> {
    let metrics = series.into_iter().map(|(labels, kind, samples)| {
        let data_points = samples
            .iter()
            .map(|sample| point(labels, *sample))
            .collect();
        let data = match kind {
            Kind::Counter => Data::Sum(Sum {
                data_points,
                aggregation_temporality: 2,
                is_monotonic: true,
            }),
            _ => Data::Gauge(Gauge { data_points }),
        };
        Metric {
            name: labels.name().unwrap_or_default().to_owned(),
            data: Some(data),
        }
    });
    let scope_metrics = vec![ScopeMetrics {
        metrics: metrics.collect(),
    }];
    let attributes = resource.iter().map(|(key, value)| key_value(key, value));
    let request = Request {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: attributes.collect(),
            }),
            scope_metrics,
        }],
    };
    request.encode_to_vec()
}

#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_data_points: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Returns the answer to a request of which `rejected` points were not taken, for the reason `message`.
#[must_use]
pub fn response(rejected: u64, message: &str) -> Vec<u8> {
    let partial_success = (rejected > 0).then(|| PartialSuccess {
        rejected_data_points: i64::try_from(rejected).unwrap_or(i64::MAX),
        error_message: message.to_owned(),
    });
    Response { partial_success }.encode_to_vec()
}

fn point(labels: &Labels, sample: Sample) -> NumberDataPoint {
    let attributes = labels.iter().filter(|pair| pair.0 != NAME);
    let time_ns = u64::try_from(sample.at_ms)
        .unwrap_or(0)
        .saturating_mul(1_000_000);
    let is_stale = crate::is_stale(sample.value);
    NumberDataPoint {
        attributes: attributes
            .map(|(key, value)| key_value(key, value))
            .collect(),
        time_unix_nano: time_ns,
        as_double: (!is_stale).then_some(sample.value),
        flags: u32::from(is_stale),
    }
}

fn key_value(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            text: Some(value.to_owned()),
        }),
    }
}
