//! Questions of one store to another, and their answers, as protobuf: how collectors side by side answer as one.
//!
//! What a [`Source`] is asked crosses the network as it is, buckets included, so that a long range costs a peer as
//! little as it costs the store itself. Both ends are of one build or of builds that know the same fields.

use crate::source::{Data, Selection, Series, Source, SourceError};
use prost::Message;
use sheaf_samples::{Bucket, Labels, Matcher, Matches, Sample};
use std::sync::Arc;

/// Question that a [`Source`] answers.
#[derive(Clone, Copy, Debug)]
pub enum Question<'a> {
    /// As of [`Source::select`].
    Select(Selection<'a>),
    /// As of [`Source::label_names`].
    LabelNames(About<'a>),
    /// As of [`Source::label_values`], with the name of the label.
    LabelValues(&'a str, About<'a>),
    /// As of [`Source::series`].
    Series(About<'a>),
}

/// Series and times of a question about names.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Conditions that all have to hold.
    pub matchers: &'a [Matcher],
    /// First time, included, in ms.
    pub from_ms: i64,
    /// Last time, included.
    pub to_ms: i64,
}

/// Answer of a [`Source`].
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Series of [`Question::Select`]; of [`Question::Series`] with their labels alone.
    pub series: Vec<Series>,
    /// Names or values of labels.
    pub words: Vec<String>,
}

/// Reason why bytes are no question or no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// The bytes are no protobuf of this kind.
    #[error("found bytes that are no message of a collector: {0}")]
    Message(String),
    /// A field has a value that it cannot have.
    #[error("field {field}: found {found}, expected {expected}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: String,
        /// Value expected.
        expected: &'static str,
    },
}

impl Question<'_> {
    /// Returns the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, name, about, bucket_ms) = match *self {
            Self::Select(selection) => {
                let Selection {
                    matchers,
                    from_ms,
                    to_ms,
                    bucket_ms,
                } = selection;
                let about = About {
                    matchers,
                    from_ms,
                    to_ms,
                };
                (SELECT, "", about, bucket_ms)
            }
            Self::LabelNames(about) => (LABEL_NAMES, "", about, None),
            Self::LabelValues(name, about) => (LABEL_VALUES, name, about, None),
            Self::Series(about) => (SERIES, "", about, None),
        };
        let matcher = |matcher: &Matcher| WireMatcher {
            name: matcher.name().to_owned(),
            matches: MATCHES
                .iter()
                .position(|one| *one == matcher.matches())
                .map_or(0, |at| at as u32),
            value: matcher.value().to_owned(),
        };
        let question = WireQuestion {
            kind,
            matchers: about.matchers.iter().map(matcher).collect(),
            from_ms: about.from_ms,
            to_ms: about.to_ms,
            bucket_ms,
            name: name.to_owned(),
        };
        question.encode_to_vec()
    }

    /// Asks `source`.
    ///
    /// # Errors
    ///
    /// As of the source.
    pub fn ask(&self, source: &dyn Source) -> Result<Found, SourceError> {
        let mut found = Found::default();
        match self {
            Self::Select(selection) => found.series = source.select(selection)?,
            Self::LabelNames(about) => {
                found.words = source.label_names(about.matchers, about.from_ms, about.to_ms)?;
            }
            Self::LabelValues(name, about) => {
                let About {
                    matchers,
                    from_ms,
                    to_ms,
                } = *about;
                found.words = source.label_values(name, matchers, from_ms, to_ms)?;
            }
            Self::Series(about) => {
                let all = source.series(about.matchers, about.from_ms, about.to_ms)?;
                let named = all.into_iter().map(|labels| Series {
                    labels,
                    data: Data::Samples(Vec::new()),
                });
                found.series = named.collect();
            }
        }
        Ok(found)
    }
}

/// Answers the question in `message` out of `source`.
///
/// # Errors
///
/// [`ExchangeError`] if the bytes are no question; inside, what the source says.
pub fn answer(
    source: &dyn Source,
    message: &[u8],
) -> Result<Result<Vec<u8>, SourceError>, ExchangeError> {
    let question =
        WireQuestion::decode(message).map_err(|error| ExchangeError::Message(error.to_string()))?;
    let matchers: Result<Vec<Matcher>, _> = question.matchers.iter().map(read_matcher).collect();
    let matchers = matchers?;
    let WireQuestion {
        from_ms,
        to_ms,
        bucket_ms,
        ..
    } = question;
    if bucket_ms.is_some_and(|bucket_ms| bucket_ms <= 0) {
        return Err(wrong("bucket_ms", bucket_ms.unwrap_or(0), "more than 0"));
    }
    let about = About {
        matchers: &matchers,
        from_ms,
        to_ms,
    };
    let asked = match question.kind {
        SELECT => Question::Select(Selection {
            matchers: &matchers,
            from_ms,
            to_ms,
            bucket_ms,
        }),
        LABEL_NAMES => Question::LabelNames(about),
        LABEL_VALUES => Question::LabelValues(&question.name, about),
        SERIES => Question::Series(about),
        other => return Err(wrong("kind", other, "1 to 4")),
    };
    Ok(asked.ask(source).map(|found| encode_found(&found)))
}

/// Reads an answer.
///
/// # Errors
///
/// [`ExchangeError`] if the bytes are none.
pub fn decode_found(message: &[u8]) -> Result<Found, ExchangeError> {
    let answer =
        WireAnswer::decode(message).map_err(|error| ExchangeError::Message(error.to_string()))?;
    let series: Result<Vec<Series>, _> = answer.series.iter().map(read_series).collect();
    Ok(Found {
        series: series?,
        words: answer.words,
    })
}

const SELECT: u32 = 1;
const LABEL_NAMES: u32 = 2;
const LABEL_VALUES: u32 = 3;
const SERIES: u32 = 4;
/// Kinds of matchers, by their numbers.
const MATCHES: [Matches; 4] = [
    Matches::Equal,
    Matches::NotEqual,
    Matches::Regex,
    Matches::NotRegex,
];

#[derive(Clone, PartialEq, prost::Message)]
struct WireQuestion {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(message, repeated, tag = "2")]
    matchers: Vec<WireMatcher>,
    #[prost(sint64, tag = "3")]
    from_ms: i64,
    #[prost(sint64, tag = "4")]
    to_ms: i64,
    #[prost(sint64, optional, tag = "5")]
    bucket_ms: Option<i64>,
    #[prost(string, tag = "6")]
    name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireMatcher {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(uint32, tag = "2")]
    matches: u32,
    #[prost(string, tag = "3")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireAnswer {
    #[prost(message, repeated, tag = "1")]
    series: Vec<WireSeries>,
    #[prost(string, repeated, tag = "2")]
    words: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireSeries {
    #[prost(bytes = "vec", tag = "1")]
    labels: Vec<u8>,
    /// Differences of the times of samples, the first to 0.
    #[prost(sint64, repeated, tag = "2")]
    steps_ms: Vec<i64>,
    #[prost(double, repeated, tag = "3")]
    values: Vec<f64>,
    /// Length of the buckets; 0 for samples.
    #[prost(sint64, tag = "4")]
    level_ms: i64,
    #[prost(message, repeated, tag = "5")]
    buckets: Vec<WireBucket>,
}

/// Values are bits: a plain field would leave out the sign of -0.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct WireBucket {
    #[prost(sint64, tag = "1")]
    start_ms: i64,
    #[prost(uint64, tag = "2")]
    count: u64,
    #[prost(fixed64, tag = "3")]
    sum: u64,
    #[prost(fixed64, tag = "4")]
    min: u64,
    #[prost(fixed64, tag = "5")]
    max: u64,
    #[prost(sint64, tag = "6")]
    last_ms: i64,
    #[prost(fixed64, tag = "7")]
    last: u64,
    #[prost(fixed64, optional, tag = "8")]
    at_start: Option<u64>,
}

fn wrong(
    field: &'static str,
    found: impl std::fmt::Display,
    expected: &'static str,
) -> ExchangeError {
    ExchangeError::Field {
        field,
        found: found.to_string(),
        expected,
    }
}

fn read_matcher(matcher: &WireMatcher) -> Result<Matcher, ExchangeError> {
    let matches = MATCHES.get(matcher.matches as usize);
    let matches = *matches.ok_or_else(|| wrong("matches", matcher.matches, "0 to 3"))?;
    let made = Matcher::new(&*matcher.name, matches, &*matcher.value);
    made.map_err(|error| wrong("value", error, "a regular expression"))
}

fn encode_found(found: &Found) -> Vec<u8> {
    let series = found.series.iter().map(|one| {
        let mut wire = WireSeries {
            labels: one.labels.as_bytes().to_vec(),
            ..WireSeries::default()
        };
        match &one.data {
            Data::Samples(samples) => {
                let mut before_ms = 0_i64;
                for sample in samples {
                    wire.steps_ms.push(sample.at_ms.wrapping_sub(before_ms));
                    wire.values.push(sample.value);
                    before_ms = sample.at_ms;
                }
            }
            Data::Buckets { level_ms, buckets } => {
                wire.level_ms = *level_ms;
                wire.buckets = buckets.iter().map(write_bucket).collect();
            }
        }
        wire
    });
    let answer = WireAnswer {
        series: series.collect(),
        words: found.words.clone(),
    };
    answer.encode_to_vec()
}

fn write_bucket(bucket: &Bucket) -> WireBucket {
    WireBucket {
        start_ms: bucket.start_ms,
        count: bucket.count,
        sum: bucket.sum.to_bits(),
        min: bucket.min.to_bits(),
        max: bucket.max.to_bits(),
        last_ms: bucket.last.at_ms,
        last: bucket.last.value.to_bits(),
        at_start: bucket.at_start.map(f64::to_bits),
    }
}

fn read_bucket(bucket: &WireBucket) -> Bucket {
    Bucket {
        start_ms: bucket.start_ms,
        count: bucket.count,
        sum: f64::from_bits(bucket.sum),
        min: f64::from_bits(bucket.min),
        max: f64::from_bits(bucket.max),
        last: Sample {
            at_ms: bucket.last_ms,
            value: f64::from_bits(bucket.last),
        },
        at_start: bucket.at_start.map(f64::from_bits),
    }
}

fn read_series(series: &WireSeries) -> Result<Series, ExchangeError> {
    let labels = Labels::from_bytes(&series.labels);
    let labels = labels.map_err(|error| wrong("labels", error, "labels of a series"))?;
    let data = if series.level_ms > 0 {
        let starts = series.buckets.iter().map(|bucket| bucket.start_ms);
        if !starts.is_sorted_by(|one, next| one < next) {
            return Err(wrong("buckets", "no order", "buckets sorted by start"));
        }
        Data::Buckets {
            level_ms: series.level_ms,
            buckets: series.buckets.iter().map(read_bucket).collect(),
        }
    } else {
        if series.steps_ms.len() != series.values.len() {
            let found = format!(
                "{} times of {} values",
                series.steps_ms.len(),
                series.values.len()
            );
            return Err(wrong("steps_ms", found, "as many as values"));
        }
        let mut at_ms = 0_i64;
        let samples = series.steps_ms.iter().zip(&series.values);
        let samples: Vec<Sample> = samples
            .map(|(step_ms, value)| {
                at_ms = at_ms.wrapping_add(*step_ms);
                Sample {
                    at_ms,
                    value: *value,
                }
            })
            .collect();
        if !samples.is_sorted_by(|one, next| one.at_ms < next.at_ms) {
            return Err(wrong("steps_ms", "no order", "samples sorted by time"));
        }
        Data::Samples(samples)
    };
    Ok(Series {
        labels: Arc::new(labels),
        data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use proptest::prelude::*;

    fn memory() -> Memory {
        let mut memory = Memory::new();
        for (host, value) in [("a", 1.0), ("b", -0.0), ("c", f64::NAN)] {
            let labels = Arc::new(Labels::new([("__name__", "load"), ("host", host)]).unwrap());
            for at_ms in [-5, 0, 1_700_000_000_000] {
                memory.insert(&labels, Sample { at_ms, value });
            }
        }
        memory
    }

    fn asked(question: Question<'_>) -> Found {
        let message = answer(&memory(), &question.encode()).unwrap().unwrap();
        decode_found(&message).unwrap()
    }

    #[test]
    fn a_store_answers_over_the_network_as_it_does_itself() {
        let matchers = [
            Matcher::new("__name__", Matches::Equal, "load").unwrap(),
            Matcher::new("host", Matches::NotRegex, "c|x.*").unwrap(),
        ];
        let selection = Selection {
            matchers: &matchers,
            from_ms: -5,
            to_ms: i64::MAX,
            bucket_ms: None,
        };
        let expected = memory().select(&selection).unwrap();
        let found = asked(Question::Select(selection)).series;
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        assert_eq!(found.len(), 2);

        let about = About {
            matchers: &matchers[..1],
            from_ms: 0,
            to_ms: 0,
        };
        assert_eq!(
            asked(Question::LabelNames(about)).words,
            ["__name__", "host"]
        );
        let hosts = asked(Question::LabelValues("host", about)).words;
        assert_eq!(hosts, ["a", "b", "c"]);
        let series = asked(Question::Series(about)).series;
        let hosts = series.iter().map(|one| one.labels.get("host").unwrap());
        assert!(hosts.eq(["a", "b", "c"]));
    }

    #[test]
    fn a_wrong_question_is_refused_by_its_field() {
        let refused = |question: WireQuestion, field: &str| {
            let error = answer(&memory(), &question.encode_to_vec()).unwrap_err();
            assert!(error.to_string().contains(field), "{error}");
        };
        refused(WireQuestion::default(), "kind");
        let with = |matches, value: &str| WireQuestion {
            kind: SELECT,
            matchers: vec![WireMatcher {
                name: "a".to_owned(),
                matches,
                value: value.to_owned(),
            }],
            ..WireQuestion::default()
        };
        refused(with(4, ""), "matches");
        refused(with(2, "("), "value");
        let bucket = WireQuestion {
            bucket_ms: Some(0),
            ..with(0, "")
        };
        refused(bucket, "bucket_ms");
        assert!(answer(&memory(), &[255]).is_err());
    }

    fn bucket() -> impl Strategy<Value = Bucket> {
        let at_start = proptest::option::of(any::<f64>());
        (any::<[f64; 4]>(), any::<(i64, u64)>(), at_start).prop_map(
            |([sum, min, max, value], (at_ms, count), at_start)| Bucket {
                start_ms: 0,
                count,
                sum,
                min,
                max,
                last: Sample { at_ms, value },
                at_start,
            },
        )
    }

    proptest! {
        #[test]
        fn series_come_back(
            samples in proptest::collection::btree_map(any::<i64>(), any::<f64>(), 0..20),
            buckets in proptest::collection::vec(bucket(), 0..10),
        ) {
            let of = |data| Series {
                labels: Arc::new(Labels::new([("__name__", "x")]).unwrap()),
                data,
            };
            let samples = samples.into_iter().map(|(at_ms, value)| Sample { at_ms, value });
            let buckets = (0..).zip(buckets).map(|(at, bucket)| Bucket {
                start_ms: at * 10_000,
                ..bucket
            });
            let found = Found {
                series: vec![
                    of(Data::Samples(samples.collect())),
                    of(Data::Buckets { level_ms: 10_000, buckets: buckets.collect() }),
                ],
                words: vec!["a".to_owned()],
            };
            let again = decode_found(&encode_found(&found)).unwrap();
            prop_assert_eq!(format!("{:?}", again), format!("{:?}", found));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode_found(&bytes);
            let _ = answer(&memory(), &bytes);
        }
    }
}
