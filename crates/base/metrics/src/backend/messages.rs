//! Formats of messages: samples gathered by series, then encoded as one body.

use super::encoder::{Carry, Encoder};
use crate::batch::Identity;
use crate::derive::{Field, VALUE};
use sheaf_samples::wire::Kind;
use sheaf_samples::wire::{otlp, remote_write};
use sheaf_samples::{Labels, NAME, Sample};
use std::collections::BTreeMap;

/// Samples of a message at most.
const SAMPLES_MAX: usize = 5000;

/// Message that carries samples by series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// Prometheus remote write 1.0.
    RemoteWrite,
    /// OpenTelemetry's request of metrics, as protobuf.
    Otlp,
}

/// Encoder of messages.
#[derive(Debug)]
pub(crate) struct Messages {
    message: Message,
    series: BTreeMap<Labels, (Kind, Vec<Sample>)>,
    pending: usize,
}

impl Messages {
    pub(crate) fn new(message: Message) -> Self {
        Self {
            message,
            series: BTreeMap::new(),
            pending: 0,
        }
    }

    fn body(&self) -> Vec<u8> {
        let series = self.series.iter();
        match self.message {
            Message::RemoteWrite => {
                let series = series.map(|(labels, (_, samples))| (labels, samples.as_slice()));
                remote_write::encode(series, &[])
            }
            Message::Otlp => {
                let series =
                    series.map(|(labels, (kind, samples))| (labels, *kind, samples.as_slice()));
                otlp::encode(&[], series)
            }
        }
    }
}

impl Encoder for Messages {
    fn push(&mut self, series: &Identity, at_ms: i64, fields: &[Field], carry: Carry<'_>) -> usize {
        let mut unfit = 0;
        for (field, number) in fields {
            if self.pending >= SAMPLES_MAX {
                self.flush(carry);
            }
            let name = series.name_of(field);
            let Ok(labels) = Labels::new(series.labels().chain([(NAME, name.as_ref())])) else {
                unfit += 1;
                continue;
            };
            let sample = Sample {
                at_ms,
                value: number.value(),
            };
            let (_, samples) = self
                .series
                .entry(labels)
                .or_insert_with(|| (kind_of(&series.name, field), Vec::new()));
            // A receiver expects the samples of a series in the order of their times.
            let place = samples.partition_point(|other| other.at_ms <= at_ms);
            samples.insert(place, sample);
            self.pending += 1;
        }
        unfit
    }

    fn make_room(&mut self, points: usize, carry: Carry<'_>) {
        if self.pending + points > SAMPLES_MAX {
            self.flush(carry);
        }
    }

    fn pending(&self) -> usize {
        self.pending
    }

    fn flush(&mut self, carry: Carry<'_>) {
        if self.pending > 0 {
            carry(&self.body(), self.pending);
            self.series.clear();
            self.pending = 0;
        }
    }
}

/// Returns whether the series of `field` only grows.
fn kind_of(name: &str, field: &str) -> Kind {
    let is_total = field == VALUE && name.ends_with("_total");
    if is_total || ["count", "sum"].contains(&field) {
        Kind::Counter
    } else {
        Kind::Gauge
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Tags;
    use crate::derive::Number;
    use sheaf_samples::wire::remote_write::{Limits, Record, decode, decompress};

    #[test]
    fn samples_of_a_series_stand_together_in_the_order_of_their_times() {
        let mut messages = Messages::new(Message::RemoteWrite);
        let tags: Tags = vec![("host".to_owned(), "h1".to_owned())];
        let series = Identity::new("frames_total", &[], &tags);
        let mut carry = |_: &[u8], _: usize| panic!("nothing is full");
        for (at_ms, value) in [(5, 2), (3, 1), (9, 4)] {
            let fields = [(VALUE, Number::Int(value)), ("rate", Number::Real(0.5))];
            assert_eq!(messages.push(&series, at_ms, &fields, &mut carry), 0);
        }
        let mut found = Vec::new();
        messages.flush(&mut |body, samples| {
            let message = decompress(body, 1 << 20).unwrap();
            for record in decode(&message, Limits::default()) {
                if let Ok(Record::Series(labels, samples)) = record {
                    let times = samples.iter().map(|sample| sample.at_ms);
                    found.push((labels.to_string(), times.collect::<Vec<_>>()));
                }
            }
            assert_eq!(samples, 6);
        });
        let name = |name: &str| format!("{name}{{host=\"h1\"}}");
        let expected = [
            (name("frames_total"), vec![3, 5, 9]),
            (name("frames_total_rate"), vec![3, 5, 9]),
        ];
        assert_eq!(found, expected);
        assert_eq!(messages.pending(), 0);
    }

    #[test]
    fn a_counter_stays_one_in_opentelemetry() {
        let mut messages = Messages::new(Message::Otlp);
        let tags: Tags = vec![("host".to_owned(), "h1".to_owned())];
        let series = Identity::new("frames_total", &[], &tags);
        let fields = [(VALUE, Number::Int(7)), ("rate", Number::Real(0.5))];
        let mut carry = |_: &[u8], _: usize| panic!("nothing is full");
        messages.push(&series, 1_700_000_000_123, &fields, &mut carry);
        let (mut samples, mut kinds) = (Vec::new(), Vec::new());
        messages.flush(&mut |body, _| {
            let limits = otlp::Limits::default();
            otlp::decode(body, limits, &mut |record| match record.unwrap() {
                otlp::Record::Point(point) => {
                    assert_eq!(
                        (point.at_ms, point.is_delta),
                        (Some(1_700_000_000_123), false)
                    );
                    samples.push((point.labels.to_string(), point.value));
                }
                otlp::Record::Metadata(metadata) => {
                    kinds.push((metadata.family, metadata.kind));
                }
            });
        });
        let expected = [
            ("frames_total{host=\"h1\"}".to_owned(), 7.0),
            ("frames_total_rate{host=\"h1\"}".to_owned(), 0.5),
        ];
        assert_eq!(samples, expected);
        assert!(
            kinds.iter().any(|(_, kind)| *kind == Kind::Counter),
            "{kinds:?}"
        );
    }

    #[test]
    fn a_message_has_a_bound() {
        let mut messages = Messages::new(Message::RemoteWrite);
        let series = Identity::new("a", &[], &Tags::new());
        let mut bodies = Vec::new();
        for at_ms in 0..SAMPLES_MAX as i64 + 1 {
            let field = [(VALUE, Number::Int(1))];
            messages.push(&series, at_ms, &field, &mut |_, samples| {
                bodies.push(samples);
            });
        }
        assert_eq!(bodies, [SAMPLES_MAX]);
        assert_eq!(messages.pending(), 1);
    }
}
