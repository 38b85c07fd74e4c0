//! Formats of lines, packed: as many lines a payload as fit, none of them split.

use super::encoder::{Carry, Encoder};
use crate::batch::Identity;
use crate::derive::{Field, Number, VALUE};
use sheaf_samples::wire::line_protocol::{self, Precision, Value};
use sheaf_samples::wire::{Packer, statsd};
use std::borrow::Cow;

/// Format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// InfluxDB line protocol: one line a point.
    Lines(Precision),
    /// StatsD with tags as DogStatsD has them: one gauge a sample. Totals of counters are gauges, so that a datagram
    /// that is lost costs a sample and not the total.
    Statsd,
}

/// Encoder of lines.
#[derive(Debug)]
pub(crate) struct Packed {
    packer: Packer,
    bytes_max: usize,
    format: Format,
    line: Vec<u8>,
    pending: usize,
}

impl Packed {
    /// Bytes of a line that says what was sent, at most in practice.
    const ACCOUNT_LINE_BYTES: usize = 320;

    /// Returns an encoder of payloads of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize, format: Format) -> Self {
        Self {
            packer: Packer::new(bytes_max),
            bytes_max,
            format,
            line: Vec::new(),
            pending: 0,
        }
    }

    /// Packs the line that stands in `self.line`, with its `samples`. Returns `false` if it is longer than a payload.
    fn pack(&mut self, samples: usize, carry: Carry<'_>) -> bool {
        let pending = self.pending;
        let mut is_handed_on = false;
        let is_taken = self.packer.push(&self.line, |payload, _| {
            is_handed_on = true;
            carry(payload, pending);
        });
        if is_handed_on {
            self.pending = 0;
        }
        if is_taken {
            self.pending += samples;
        }
        is_taken
    }
}

impl Encoder for Packed {
    fn push(&mut self, series: &Identity, at_ms: i64, fields: &[Field], carry: Carry<'_>) -> usize {
        match self.format {
            Format::Lines(precision) => {
                let finite = fields.iter().filter_map(|(name, number)| match number {
                    Number::Int(value) => Some((*name, Value::Int(*value))),
                    Number::Real(value) if value.is_finite() => Some((*name, Value::Float(*value))),
                    Number::Real(_) => None,
                });
                let samples = finite.clone().count();
                let at = Some((at_ms, precision));
                self.line.clear();
                let labels = series.labels();
                let written =
                    line_protocol::write(&mut self.line, &series.name, labels, finite, at);
                if written.is_err() || !self.pack(samples, carry) {
                    return fields.len();
                }
                fields.len() - samples
            }
            Format::Statsd => {
                let mut unfit = 0;
                for (field, number) in fields {
                    let value = statsd::Change::Set(number.value());
                    let name = series.name_of(field);
                    self.line.clear();
                    let written = statsd::write(&mut self.line, &name, value, series.labels());
                    if written.is_err() || !self.pack(1, carry) {
                        unfit += 1;
                    }
                }
                unfit
            }
        }
    }

    fn make_room(&mut self, points: usize, carry: Carry<'_>) {
        if self.packer.bytes() + points * Self::ACCOUNT_LINE_BYTES > self.bytes_max {
            self.flush(carry);
        }
    }

    fn pending(&self) -> usize {
        self.pending
    }

    fn flush(&mut self, carry: Carry<'_>) {
        let pending = std::mem::take(&mut self.pending);
        self.packer.flush(|payload, _| carry(payload, pending));
    }
}

impl Identity {
    /// Returns the name of the series of `field`.
    pub(super) fn name_of(&self, field: &str) -> Cow<'_, str> {
        if field == VALUE {
            Cow::Borrowed(&self.name)
        } else {
            Cow::Owned(format!("{}_{field}", self.name))
        }
    }
}

impl Number {
    /// Returns the number as samples are.
    pub(super) fn value(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Real(value) => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Tags;

    fn series(name: &str) -> Identity {
        Identity::new(name, &[("a".to_owned(), "1".to_owned())], &Tags::new())
    }

    #[test]
    fn points_are_lines_and_samples_are_counted_by_payload() {
        let mut lines = Packed::new(60, Format::Lines(Precision::Ms));
        let mut payloads = Vec::new();
        let mut carry = |payload: &[u8], samples: usize| {
            payloads.push((String::from_utf8(payload.to_vec()).unwrap(), samples));
        };
        let two = [(VALUE, Number::Int(3)), ("rate", Number::Real(0.5))];
        for at_ms in 1..=3 {
            assert_eq!(lines.push(&series("frames"), at_ms, &two, &mut carry), 0);
        }
        assert_eq!(lines.pending(), 2);
        lines.flush(&mut carry);
        lines.flush(&mut carry);
        let line = |at: i64| format!("frames,a=1 value=3i,rate=0.5 {at}\n");
        let expected = [(line(1), 2), (line(2), 2), (line(3), 2)];
        assert_eq!(payloads, expected);
    }

    #[test]
    fn what_the_format_cannot_carry_is_counted_and_costs_nothing_else() {
        let mut lines = Packed::new(60, Format::Lines(Precision::Ms));
        let mut carry = |_: &[u8], _: usize| panic!("nothing is full");
        let nan = ("value", Number::Real(f64::NAN));
        let good = ("rate", Number::Real(1.0));
        assert_eq!(lines.push(&series("a"), 1, &[nan, good], &mut carry), 1);
        assert_eq!(lines.push(&series("a"), 1, &[nan], &mut carry), 1);
        let long = series(&"x".repeat(80));
        assert_eq!(lines.push(&long, 1, &[good, good], &mut carry), 2);
        assert_eq!(lines.pending(), 1);
        let mut sent = 0;
        lines.make_room(1, &mut |_, samples| sent += samples);
        assert_eq!((sent, lines.pending()), (1, 0));
    }

    #[test]
    fn statsd_has_a_gauge_a_sample() {
        let mut lines = Packed::new(200, Format::Statsd);
        let mut carry = |_: &[u8], _: usize| panic!("nothing is full");
        let fields = [
            (VALUE, Number::Int(3)),
            ("min", Number::Real(-0.5)),
            ("max", Number::Real(f64::INFINITY)),
        ];
        assert_eq!(lines.push(&series("depth"), 1, &fields, &mut carry), 1);
        let mut payloads = Vec::new();
        lines.flush(&mut |payload, samples| {
            payloads.push((String::from_utf8(payload.to_vec()).unwrap(), samples));
        });
        let text = "depth:3|g|#a:1\ndepth_min:0|g|#a:1\ndepth_min:-0.5|g|#a:1\n";
        assert_eq!(payloads, [(text.to_owned(), 2)]);
    }
}
