//! Bodies of requests to engines.

use super::records;
use crate::config::ForwardKind;
use sheaf_samples::wire::line_protocol::{self, Precision};
use sheaf_samples::wire::{Kind, otlp, remote_write};
use sheaf_samples::{Labels, Sample};
use std::collections::BTreeMap;

/// Returns the headers of requests.
pub(super) fn headers(kind: ForwardKind) -> &'static [(&'static str, &'static str)] {
    match kind {
        ForwardKind::RemoteWrite => &[
            ("content-type", remote_write::CONTENT_TYPE),
            ("content-encoding", remote_write::CONTENT_ENCODING),
            ("x-prometheus-remote-write-version", remote_write::VERSION),
        ],
        ForwardKind::Influxdb => &[("content-type", "text/plain; charset=utf-8")],
        ForwardKind::Otlp => &[("content-type", "application/x-protobuf")],
        // A protocol of its own.
        ForwardKind::Kafka => &[],
    }
}

/// Returns the URL of requests: lines have times in ms, which InfluxDB has to be told.
pub(super) fn url(kind: ForwardKind, url: &str) -> String {
    if kind != ForwardKind::Influxdb || url.contains("precision=") {
        return url.to_owned();
    }
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}precision=ms")
}

/// Returns the body with `samples`, by series and in the order of their times, and how many of them the format cannot
/// carry, which are left out.
pub(super) fn encode(kind: ForwardKind, samples: &[(&Labels, Sample)]) -> (Vec<u8>, u64) {
    let mut series: BTreeMap<&Labels, Vec<Sample>> = BTreeMap::new();
    for (labels, sample) in samples {
        series.entry(labels).or_default().push(*sample);
    }
    for samples in series.values_mut() {
        samples.sort_by_key(|sample| sample.at_ms);
    }
    match kind {
        ForwardKind::RemoteWrite => {
            let series = series
                .iter()
                .map(|(labels, samples)| (*labels, &samples[..]));
            (remote_write::encode(series, &[]), 0)
        }
        ForwardKind::Otlp => {
            let series = series.iter().map(|(labels, samples)| {
                let is_counter = labels.name().is_some_and(|name| name.ends_with("_total"));
                let kind = if is_counter {
                    Kind::Counter
                } else {
                    Kind::Gauge
                };
                (*labels, kind, &samples[..])
            });
            (otlp::encode(&[], series), 0)
        }
        ForwardKind::Kafka => {
            let mut body = Vec::new();
            for (labels, samples) in series {
                records::write(&mut body, labels, &samples);
            }
            (body, 0)
        }
        ForwardKind::Influxdb => {
            let (mut body, mut unfit) = (Vec::new(), 0);
            for (labels, samples) in series {
                for sample in samples {
                    let written =
                        line_protocol::write_sample(&mut body, labels, sample, Precision::Ms);
                    unfit += u64::from(written.is_err());
                }
            }
            (body, unfit)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::NAME;

    #[test]
    fn samples_stand_by_series_and_time_and_unfit_ones_are_counted() {
        let labels = |host| Labels::new([(NAME, "load"), ("host", host)]).unwrap();
        let (a, b) = (labels("a"), labels("b"));
        let at = |at_ms, value| Sample { at_ms, value };
        let samples = [(&b, at(2, 2.0)), (&a, at(3, f64::NAN)), (&b, at(1, 1.0))];
        let (body, unfit) = encode(ForwardKind::Influxdb, &samples);
        let text = String::from_utf8(body).unwrap();
        assert_eq!(text, "load,host=b value=1 1\nload,host=b value=2 2\n");
        assert_eq!(unfit, 1);
        assert_eq!(
            url(ForwardKind::Influxdb, "http://a/write?db=x"),
            "http://a/write?db=x&precision=ms"
        );
        assert_eq!(
            url(ForwardKind::Otlp, "http://a/v1/metrics"),
            "http://a/v1/metrics"
        );
    }
}
