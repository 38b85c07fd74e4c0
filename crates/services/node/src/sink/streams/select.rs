//! Selection of the parts of a TF for each stream.

use crate::check::Check;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_formats::stf_file::detector_of;
use sheaf_formats::{StreamFormat, detectors};
use sheaf_protocol::{FlpId, Part, PayloadFormat, Source, Tf, crc32c};
use sheaf_transport::handover::{Answer, are_tags};
use sheaf_write::{StreamId, check_word};

/// Name of the only stream where none is configured.
const MAIN: &str = "main";

/// A `[[epn.sink.stream]]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// Name, in file names and metrics.
    pub name: String,
    /// Format of its files: "tf", "stf-file" or "raw" (payloads of one FLP alone).
    pub format: StreamFormat,
    /// Indexes of the FLPs whose STFs are in the stream; none: all.
    pub flps: Vec<u16>,
    /// Detectors whose STFs are in the stream, such as "TPC"; none: all. Of RDH pages the first page counts, of O2
    /// blocks the first block.
    pub detectors: Vec<String>,
    /// Every so many TFs one is in the stream: those whose id is a multiple.
    pub every: u64,
    /// TFs that a consumer has given back with one of these tags are in the stream; none: all. Of the sink "shm" only.
    pub tags: Vec<String>,
    /// Whether the stream gets what a consumer made of a TF in place of the TF. Of the sink "shm" only.
    pub product: bool,
    /// Class of the stream, with the overload "shed": the lowest is shed first, the highest never.
    pub class: u16,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            name: String::new(),
            format: StreamFormat::default(),
            flps: Vec::new(),
            detectors: Vec::new(),
            every: 1,
            tags: Vec::new(),
            product: false,
            class: 0,
        }
    }
}

impl Selection {
    /// Returns what the stream gets of `tf`, which a consumer has returned with `answer`: all, a part, the product, or
    /// nothing. Payloads are not copied. `origins` are the detectors of the parts, if a stream names detectors.
    fn of(&self, tf: &Tf<Bytes>, origins: &[Option<&str>], answer: &Answer) -> Option<Tf<Bytes>> {
        if !tf.tf.0.is_multiple_of(self.every) {
            return None;
        }
        if !self.tags.is_empty() && !self.tags.iter().any(|tag| answer.has(tag)) {
            return None;
        }
        if self.product {
            let product = answer.product.clone()?;
            // A file of payloads alone has no place for one that is empty.
            let is_some = self.format != StreamFormat::Raw || !product.is_empty();
            return is_some.then(|| product_of(tf, product));
        }
        if self.flps.is_empty() && self.detectors.is_empty() {
            return Some(tf.clone());
        }
        let is_in = |flp: u16| self.flps.is_empty() || self.flps.contains(&flp);
        let is_of = |at: usize| {
            let origin = origins.get(at).copied().flatten();
            self.detectors.is_empty() || self.detectors.iter().any(|it| Some(it.as_str()) == origin)
        };
        let parts = tf.parts.iter().enumerate();
        let parts = parts.filter(|(at, part)| is_in(part.source.flp.0) && is_of(*at));
        let missing = tf.missing.iter().filter(|flp| is_in(flp.0));
        let selected = Tf {
            parts: parts.map(|(_, part)| part.clone()).collect(),
            missing: missing.copied().collect(),
            ..tf.clone()
        };
        let is_some = match self.format {
            // A file of payloads alone has no place for one that is empty.
            StreamFormat::Raw => selected.bytes() > 0,
            // Which detector a missing STF is of is not known.
            StreamFormat::Tf | StreamFormat::StfFile if !self.detectors.is_empty() => {
                !selected.parts.is_empty()
            }
            StreamFormat::Tf | StreamFormat::StfFile => {
                !selected.parts.is_empty() || !selected.missing.is_empty()
            }
        };
        is_some.then_some(selected)
    }

    /// Checks what a stream of products cannot have.
    fn check_product(&self, key: &str, check: &mut Check) {
        let is_good = |is_good: bool| !self.product || is_good;
        check.that(
            is_good(self.flps.is_empty()),
            key,
            format!("flps of {}", self.name),
            "none: a product is of no FLP",
        );
        check.that(
            is_good(self.detectors.is_empty()),
            key,
            format!("detectors of {}", self.name),
            "none: a product is of no detector",
        );
        check.that(
            is_good(self.format != StreamFormat::StfFile),
            key,
            format!("format = \"stf-file\" of {}", self.name),
            "tf or raw: a product is no STF",
        );
    }
}

/// Returns the product of a TF as a TF with one part.
fn product_of(tf: &Tf<Bytes>, product: Bytes) -> Tf<Bytes> {
    let part = Part {
        source: Source {
            flp: FlpId::PRODUCT,
            ..Source::default()
        },
        format: PayloadFormat::Opaque,
        digest: crc32c(&product),
        bytes: product.len() as u64,
        payload: product,
    };
    Tf {
        parts: vec![part],
        missing: Vec::new(),
        ..tf.clone()
    }
}

/// Table of streams.
#[derive(Clone, Debug)]
pub(super) struct StreamTable {
    streams: Vec<Selection>,
    has_detectors: bool,
}

impl StreamTable {
    pub(super) fn new(streams: &[Selection]) -> Self {
        let main = Selection {
            name: MAIN.to_owned(),
            ..Selection::default()
        };
        Self {
            has_detectors: streams.iter().any(|it| !it.detectors.is_empty()),
            streams: if streams.is_empty() {
                vec![main]
            } else {
                streams.to_vec()
            },
        }
    }

    /// Names of the streams, in the order of their ids.
    pub(super) fn names(streams: &[Selection]) -> impl Iterator<Item = String> {
        Self::new(streams).streams.into_iter().map(|it| it.name)
    }

    /// Names of the streams, in the order of their ids.
    pub(super) fn all_names(&self) -> impl Iterator<Item = String> {
        self.streams.iter().map(|stream| stream.name.clone())
    }

    /// Names of the streams with their formats.
    pub(super) fn formats(streams: &[Selection]) -> impl Iterator<Item = (String, StreamFormat)> {
        let streams = Self::new(streams).streams.into_iter();
        streams.map(|it| (it.name, it.format))
    }

    /// Format of a stream of the table, and whether its records are logged: those of the only one of DataDistribution's
    /// format, as the log has a place for one.
    pub(super) fn format(&self, stream: StreamId) -> (StreamFormat, bool) {
        let found = self.streams.get(usize::from(stream.0));
        let format = found.map_or_else(StreamFormat::default, |it| it.format);
        let is_stf = |it: &&Selection| it.format == StreamFormat::StfFile;
        let is_only = self.streams.iter().filter(is_stf).count() == 1;
        (format, format == StreamFormat::StfFile && is_only)
    }

    /// Classes of the streams, in the order of their ids.
    pub(super) fn classes(&self) -> Vec<u16> {
        self.streams.iter().map(|stream| stream.class).collect()
    }

    /// Checks the streams, which stand at `key`. Consumers give TFs back if `has_consumers`.
    pub(super) fn check(streams: &[Selection], key: &str, has_consumers: bool, check: &mut Check) {
        for (at, stream) in streams.iter().enumerate() {
            if let Err(error) = check_word("stream", &stream.name) {
                check.that(false, key, &stream.name, error.to_string());
            }
            let is_first = streams[..at].iter().all(|other| other.name != stream.name);
            check.that(is_first, key, &stream.name, "a name for each stream");
            check.that(
                stream.every >= 1,
                key,
                format!("every = {}", stream.every),
                "every = 1 or more",
            );
            check.that(
                has_consumers || (stream.tags.is_empty() && !stream.product),
                key,
                format!("tags or product of {}", stream.name),
                "neither: only with the sink shm consumers give TFs back",
            );
            for tag in &stream.tags {
                check.that(
                    is_tag(tag),
                    key,
                    tag,
                    "a tag of a-z, 0-9, - and _, of at most 64",
                );
            }
            stream.check_product(key, check);
            check.that(
                stream.format != StreamFormat::Raw || stream.product || stream.flps.len() == 1,
                key,
                format!("format = \"raw\" with {} in flps", stream.flps.len()),
                "one FLP: payloads of several cannot be told apart in a file of payloads alone",
            );
            let is_unknown = |name: &&String| !detectors().any(|known| known == name.as_str());
            if let Some(unknown) = stream.detectors.iter().find(is_unknown) {
                let known: Vec<&str> = detectors().collect();
                check.fail(
                    key,
                    format!("the detector {unknown:?}"),
                    format!("one of {}", known.join(", ")),
                );
            }
        }
        check.that(
            streams.len() <= 1000,
            key,
            streams.len(),
            "at most 1000 streams",
        );
    }

    /// Returns what each stream gets of `tf`, which a consumer has given back with `answer`.
    pub(super) fn select<'a>(
        &'a self,
        tf: &'a Tf<Bytes>,
        answer: &'a Answer,
    ) -> impl Iterator<Item = (StreamId, Tf<Bytes>)> + 'a {
        let origin = |part: &'a Part<Bytes>| detector_of(part.format, &part.payload);
        let origins: Vec<Option<&str>> = match self.has_detectors {
            true => tf.parts.iter().map(origin).collect(),
            false => Vec::new(),
        };
        let streams = (0..).map(StreamId).zip(&self.streams);
        streams.filter_map(move |(id, stream)| Some((id, stream.of(tf, &origins, answer)?)))
    }
}

/// Whether a consumer can give back a TF with the tag `word`.
fn is_tag(word: &str) -> bool {
    !word.is_empty() && !word.contains(',') && are_tags(word)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::tf;
    use super::*;
    use sheaf_formats::sample::hbf;
    use sheaf_protocol::PayloadFormat;

    fn stream(name: &str, flps: &[u16], every: u64) -> Selection {
        Selection {
            name: name.to_owned(),
            flps: flps.to_vec(),
            every,
            ..Selection::default()
        }
    }

    /// The FLPs that each stream gets of TF `id` with the parts 0 and 1 and without 9.
    fn selected(streams: &[Selection], id: u64) -> Vec<(u16, Vec<u16>, usize)> {
        let tf = tf(id, &[b"abc", b"d"]);
        let table = StreamTable::new(streams);
        let answer = Answer::default();
        let selected = table.select(&tf, &answer).map(|(stream, part)| {
            let flps = part.parts.iter().map(|part| part.source.flp.0);
            (stream.0, flps.collect(), part.missing.len())
        });
        selected.collect()
    }

    #[test]
    fn without_streams_all_goes_to_one() {
        assert_eq!(selected(&[], 5), [(0, vec![0, 1], 1)]);
        assert_eq!(StreamTable::names(&[]).collect::<Vec<_>>(), ["main"]);
    }

    #[test]
    fn streams_get_tfs_by_flp_and_every_so_many() {
        let streams = [
            stream("all", &[], 1),
            stream("one", &[1, 9], 1),
            stream("none", &[7], 1),
            stream("tenth", &[0], 10),
        ];
        assert_eq!(selected(&streams, 5), [(0, vec![0, 1], 1), (1, vec![1], 1)]);
        assert_eq!(selected(&streams, 20)[2], (3, vec![0], 0));
    }

    #[test]
    fn streams_get_tfs_by_tag_and_products_in_their_place() {
        let tagged = |name: &str, tags: &[&str], product| Selection {
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            product,
            ..stream(name, &[], 1)
        };
        let table = StreamTable::new(&[
            tagged("all", &[], false),
            tagged("muon", &["muon", "two-muons"], false),
            tagged("made", &[], true),
            tagged("calib", &["calib"], true),
        ]);
        let tf = tf(7, &[b"abc", b"d"]);
        let selected = |answer: &Answer| {
            let selected = table.select(&tf, answer);
            let of = |tf: Tf<Bytes>| tf.parts.iter().map(|it| it.payload.to_vec()).collect();
            let selected = selected.map(|(stream, tf)| (stream.0, of(tf)));
            selected.collect::<Vec<(u16, Vec<Vec<u8>>)>>()
        };
        let whole = || vec![b"abc".to_vec(), b"d".to_vec()];
        assert_eq!(selected(&Answer::default()), [(0, whole())]);
        assert_eq!(
            selected(&Answer::tagged("jet,two-muons,calib")),
            [(0, whole()), (1, whole())]
        );
        let answer = Answer {
            product: Some(Bytes::from_static(b"made")),
            ..Answer::tagged("calib")
        };
        let made = || vec![b"made".to_vec()];
        assert_eq!(selected(&answer), [(0, whole()), (2, made()), (3, made())]);
    }

    #[test]
    fn streams_of_products_are_of_no_flp_and_have_no_stfs() {
        let product = |format, flps: &[u16], detectors: &[&str]| Selection {
            format,
            detectors: detectors.iter().map(|&it| it.to_owned()).collect(),
            product: true,
            ..stream("made", flps, 1)
        };
        for (stream, expected) in [
            (product(StreamFormat::Tf, &[], &[]), None),
            (product(StreamFormat::Raw, &[], &[]), None),
            (product(StreamFormat::Raw, &[1], &[]), Some("of no FLP")),
            (
                product(StreamFormat::Tf, &[], &["TPC"]),
                Some("of no detector"),
            ),
            (
                product(StreamFormat::StfFile, &[], &[]),
                Some("tf or raw: a product is no STF"),
            ),
        ] {
            let mut check = Check::default();
            StreamTable::check(std::slice::from_ref(&stream), "key", true, &mut check);
            let errors: Vec<String> = check.errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), usize::from(expected.is_some()), "{errors:?}");
            let is_told = expected.is_none_or(|text| errors[0].contains(text));
            assert!(is_told, "{stream:?}: {errors:?}");
        }
    }

    #[test]
    fn a_stream_of_raw_data_gets_no_product_without_any() {
        let table = StreamTable::new(&[Selection {
            format: StreamFormat::Raw,
            product: true,
            ..stream("made", &[], 1)
        }]);
        let tf = tf(7, &[b"abc"]);
        for (product, streams) in [(&b"made"[..], 1), (&b""[..], 0)] {
            let answer = Answer {
                product: Some(Bytes::from_static(product)),
                ..Answer::default()
            };
            assert_eq!(table.select(&tf, &answer).count(), streams);
        }
    }

    #[test]
    fn streams_get_the_stfs_of_a_detector() {
        let its = hbf(7, 1);
        let mut tpc = hbf(7, 1);
        tpc[5] = 3;
        let mut tf = tf(5, &[&its, &tpc, b"", &its]);
        for part in &mut tf.parts {
            part.format = PayloadFormat::RdhPages;
        }
        tf.parts[3].format = PayloadFormat::Opaque;
        let of = |name: &str, flps: &[u16], detectors: &[&str]| Selection {
            detectors: detectors.iter().map(|&it| it.to_owned()).collect(),
            ..stream(name, flps, 1)
        };
        let table = StreamTable::new(&[
            of("its", &[], &["ITS"]),
            of("both", &[], &["TPC", "ITS"]),
            of("tpc-of-0", &[0], &["TPC"]),
            of("trd", &[], &["TRD"]),
            of("all", &[], &[]),
        ]);
        let found: Vec<(u16, Vec<u16>, usize)> = table
            .select(&tf, &Answer::default())
            .map(|(id, part)| {
                let flps = part.parts.iter().map(|part| part.source.flp.0);
                (id.0, flps.collect(), part.missing.len())
            })
            .collect();
        let expected = [
            (0, vec![0], 1),
            (1, vec![0, 1], 1),
            (4, vec![0, 1, 2, 3], 1),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_stream_of_raw_data_gets_no_tf_without_any() {
        let raw = |flp| Selection {
            format: StreamFormat::Raw,
            ..stream("raw", &[flp], 1)
        };
        let tf = tf(5, &[b"abc", b""]);
        for (flp, streams) in [(0, 1), (1, 0), (9, 0), (7, 0)] {
            let table = StreamTable::new(&[raw(flp)]);
            let answer = Answer::default();
            assert_eq!(table.select(&tf, &answer).count(), streams, "{flp}");
        }
    }
}
