//! Requests read.

use crate::wire::protobuf::{Fields, Span};
use crate::wire::{Code, Fault, Kind, Metadata};
use crate::{Labels, Sample};

/// Bounds of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the message at most, after decompression.
    pub message_bytes_max: usize,
    /// Labels of a series at most.
    pub labels_max: usize,
    /// Samples of a series in one request at most.
    pub samples_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 32 << 20,
            labels_max: 64,
            samples_max: 100_000,
        }
    }
}

/// One good record of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// Samples of one series, in the order of the request.
    Series(Labels, Vec<Sample>),
    /// Description of a metric.
    Metadata(Metadata),
}

/// Decompresses the body of a request.
///
/// # Errors
///
/// [`Code::TooBig`] if the block states more than `bytes_max` bytes, [`Code::BadCompression`] if it is no Snappy block,
/// or states more than a block of its size can hold. Nothing is allocated in either case.
pub fn decompress(body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Fault> {
    let fault = |code| Fault { code, offset: 0 };
    let stated = snap::raw::decompress_len(body).map_err(|_| fault(Code::BadCompression))?;
    // The densest element repeats 64 bytes with 3.
    if stated > body.len().saturating_mul(22) {
        return Err(fault(Code::BadCompression));
    }
    if stated > bytes_max {
        return Err(fault(Code::TooBig));
    }
    let message = snap::raw::Decoder::new().decompress_vec(body);
    message.map_err(|_| fault(Code::BadCompression))
}

/// Returns the records of `message`, a decompressed request. A bad record does not end the others, a message whose
/// lengths are wrong does.
#[must_use]
pub fn decode(message: &[u8], limits: Limits) -> Records<'_> {
    Records {
        fields: Span::of(message).fields(),
        limits,
        pending: None,
    }
}

/// Iterator over the records of a request.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    fields: Fields<'a>,
    limits: Limits,
    /// Fault of the record that was given out last.
    pending: Option<Fault>,
}

impl Iterator for Records<'_> {
    type Item = Result<Record, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(fault) = self.pending.take() {
            return Some(Err(fault));
        }
        loop {
            let field = match self.fields.next()? {
                Ok(field) => field,
                Err(fault) => return Some(Err(fault)),
            };
            // A field of another wire type is none of these.
            let span = field.1.bytes();
            match (field.0, span) {
                (1, Some(span)) => return Some(self.series(span)),
                (3, Some(span)) => return Some(metadata(span).map(Record::Metadata)),
                (1 | 3, None) => return Some(Err(self.fields.fault(Code::BadMessage))),
                // Fields of later versions.
                _ => {}
            }
        }
    }
}

impl Records<'_> {
    fn series(&mut self, series: Span<'_>) -> Result<Record, Fault> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        let mut samples = Vec::new();
        let mut has_histograms = false;
        for field in series.fields() {
            let (number, wire) = field?;
            let bad = || series.fault(Code::BadMessage);
            match number {
                1 => {
                    if pairs.len() == self.limits.labels_max {
                        return Err(series.fault(Code::TooBig));
                    }
                    pairs.push(label(wire.bytes().ok_or_else(bad)?)?);
                }
                2 => {
                    if samples.len() == self.limits.samples_max {
                        return Err(series.fault(Code::TooBig));
                    }
                    samples.push(sample(wire.bytes().ok_or_else(bad)?)?);
                }
                4 => has_histograms = true,
                _ => {}
            }
        }
        let labels = Labels::new(pairs).map_err(|_| series.fault(Code::BadLabels))?;
        let unsupported = series.fault(Code::Unsupported);
        match has_histograms {
            true if samples.is_empty() => return Err(unsupported),
            true => self.pending = Some(unsupported),
            false => {}
        }
        Ok(Record::Series(labels, samples))
    }
}

fn label(label: Span<'_>) -> Result<(&str, &str), Fault> {
    let (mut name, mut value) = ("", "");
    for field in label.fields() {
        let (number, wire) = field?;
        let text = || {
            let span = wire.bytes();
            span.ok_or_else(|| label.fault(Code::BadMessage))?.text()
        };
        match number {
            1 => name = text()?,
            2 => value = text()?,
            _ => {}
        }
    }
    Ok((name, value))
}

fn sample(span: Span<'_>) -> Result<Sample, Fault> {
    // Fields that are left out are zero.
    let mut sample = Sample {
        at_ms: 0,
        value: 0.0,
    };
    for field in span.fields() {
        let (number, wire) = field?;
        let bad = || span.fault(Code::BadMessage);
        match number {
            1 => sample.value = wire.double().ok_or_else(bad)?,
            2 => sample.at_ms = wire.varint().ok_or_else(bad)?.cast_signed(),
            _ => {}
        }
    }
    Ok(sample)
}

fn metadata(span: Span<'_>) -> Result<Metadata, Fault> {
    let mut metadata = Metadata::default();
    for field in span.fields() {
        let (number, wire) = field?;
        let bad = || span.fault(Code::BadMessage);
        let text = || Ok(wire.bytes().ok_or_else(bad)?.text()?.to_owned());
        match number {
            1 => {
                let number = wire.varint().ok_or_else(bad)?;
                let kind = usize::try_from(number)
                    .ok()
                    .and_then(|at| Kind::ALL.get(at));
                metadata.kind = kind.copied().unwrap_or_default();
            }
            2 => metadata.family = text()?,
            4 => metadata.help = text()?,
            5 => metadata.unit = text()?,
            _ => {}
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;
    use crate::STALE;
    use proptest::prelude::*;

    fn all(message: &[u8]) -> Vec<Result<Record, Code>> {
        let limits = Limits {
            labels_max: 3,
            samples_max: 2,
            ..Limits::default()
        };
        let records = decode(message, limits);
        records
            .map(|record| record.map_err(|fault| fault.code))
            .collect()
    }

    /// A field of bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        [&[number << 3 | 2, length], content].concat()
    }

    fn label_of(name: &[u8], value: &[u8]) -> Vec<u8> {
        field(1, &[field(1, name), field(2, value)].concat())
    }

    #[test]
    fn a_bad_series_does_not_end_the_others() {
        let sample = field(2, &[16, 5]);
        let good = field(1, &[label_of(b"__name__", b"up"), sample.clone()].concat());
        let labels = Labels::new([("__name__", "up")]).unwrap();
        let zero = Sample {
            at_ms: 5,
            value: 0.0,
        };
        let good_record = Ok(Record::Series(labels, vec![zero]));
        let histogram = field(4, &[]);
        for (bad, code) in [
            (label_of(b"a", b"\xff"), Code::NotUtf8),
            (label_of(b"", b"1"), Code::BadLabels),
            (
                [label_of(b"a", b"1"), label_of(b"a", b"2")].concat(),
                Code::BadLabels,
            ),
            (label_of(b"a", b"").repeat(4), Code::TooBig),
            (sample.repeat(3), Code::TooBig),
            (vec![8, 1], Code::BadMessage),
            (vec![18, 9], Code::Truncated),
            (
                [label_of(b"a", b"1"), histogram.clone()].concat(),
                Code::Unsupported,
            ),
        ] {
            let message = [good.clone(), field(1, &bad), good.clone()].concat();
            let expected = [good_record.clone(), Err(code), good_record.clone()];
            assert_eq!(all(&message), expected, "{bad:?}");
        }
        let both = field(
            1,
            &[label_of(b"__name__", b"up"), sample, histogram].concat(),
        );
        assert_eq!(all(&both), [good_record, Err(Code::Unsupported)]);
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let code = |body: &[u8], max| decompress(body, max).map_err(|fault| fault.code);
        let zeros = snap::raw::Encoder::new()
            .compress_vec(&[0; 100_000])
            .unwrap();
        assert_eq!(code(&zeros, 99_999), Err(Code::TooBig));
        assert_eq!(code(&zeros, 100_000), Ok(vec![0; 100_000]));
        // States 2^32 - 1 bytes and has none.
        assert_eq!(
            code(&[255, 255, 255, 255, 15], usize::MAX),
            Err(Code::BadCompression)
        );
        assert_eq!(code(b"", 10), Err(Code::BadCompression));
        assert_eq!(
            code(&zeros[..zeros.len() - 1], 100_000),
            Err(Code::BadCompression)
        );
    }

    #[test]
    fn staleness_and_metadata_come_back() {
        let labels = Labels::new([("__name__", "up")]).unwrap();
        let sample = Sample {
            at_ms: -7,
            value: STALE,
        };
        let metadata = Metadata {
            family: "up".to_owned(),
            kind: Kind::Gauge,
            help: "Whether.".to_owned(),
            unit: "s".to_owned(),
        };
        let body = encode([(&labels, &[sample][..])], std::slice::from_ref(&metadata));
        let message = decompress(&body, 1 << 20).unwrap();
        let records = all(&message);
        let Ok(Record::Series(_, samples)) = &records[0] else {
            panic!("{records:?}")
        };
        assert_eq!(samples[0].value.to_bits(), STALE.to_bits());
        assert_eq!(records[1], Ok(Record::Metadata(metadata)));
    }

    fn series() -> impl Strategy<Value = (Labels, Vec<Sample>)> {
        let labels = proptest::collection::btree_map("[a-z_]{1,8}", ".{1,12}", 0..6);
        let value = prop_oneof![-1e12..1e12, Just(0.0), Just(-0.0), Just(f64::INFINITY)];
        let samples = (any::<i64>(), value).prop_map(|(at_ms, value)| Sample { at_ms, value });
        let samples = proptest::collection::vec(samples, 0..5);
        (
            labels.prop_map(|labels| Labels::new(labels).unwrap()),
            samples,
        )
    }

    proptest! {
        #[test]
        fn series_come_back(series in proptest::collection::vec(series(), 0..8)) {
            let pairs = series.iter().map(|(labels, samples)| (labels, &samples[..]));
            let message = decompress(&encode(pairs, &[]), 1 << 20).unwrap();
            let records: Result<Vec<_>, _> = decode(&message, Limits::default()).collect();
            let expected = series.into_iter().map(|(labels, samples)| Record::Series(labels, samples));
            // As text, for -0 equals 0.
            let expected: Result<Vec<_>, Fault> = Ok(expected.collect());
            prop_assert_eq!(format!("{records:?}"), format!("{expected:?}"));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let records = decode(&bytes, Limits::default());
            for fault in records.filter_map(Result::err) {
                prop_assert!(fault.offset <= bytes.len());
            }
            let _ = decompress(&bytes, 1000);
        }
    }
}
