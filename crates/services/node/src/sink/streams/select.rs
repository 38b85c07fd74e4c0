//! Selection of the parts of a TF for each stream.

use crate::check::Check;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_protocol::Tf;
use sheaf_write::{StreamId, check_word};

/// Name of the only stream where none is configured.
const MAIN: &str = "main";

/// A `[[epn.sink.stream]]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Selection {
    /// Name, in file names and metrics.
    pub name: String,
    /// Indexes of the FLPs whose STFs are in the stream; none: all.
    pub flps: Vec<u16>,
    /// Every so many TFs one is in the stream: those whose id is a multiple.
    pub every: u64,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            name: String::new(),
            flps: Vec::new(),
            every: 1,
        }
    }
}

impl Selection {
    /// Returns what the stream gets of `tf`: all, a part, or nothing. Payloads are not copied.
    fn of(&self, tf: &Tf<Bytes>) -> Option<Tf<Bytes>> {
        if !tf.tf.0.is_multiple_of(self.every) {
            return None;
        }
        if self.flps.is_empty() {
            return Some(tf.clone());
        }
        let is_in = |flp: u16| self.flps.contains(&flp);
        let parts = tf.parts.iter().filter(|part| is_in(part.source.flp.0));
        let missing = tf.missing.iter().filter(|flp| is_in(flp.0));
        let selected = Tf {
            parts: parts.cloned().collect(),
            missing: missing.copied().collect(),
            ..tf.clone()
        };
        let is_some = !selected.parts.is_empty() || !selected.missing.is_empty();
        is_some.then_some(selected)
    }
}

/// Table of streams.
#[derive(Clone, Debug)]
pub(super) struct StreamTable {
    streams: Vec<Selection>,
}

impl StreamTable {
    pub(super) fn new(streams: &[Selection]) -> Self {
        let main = Selection {
            name: MAIN.to_owned(),
            ..Selection::default()
        };
        Self {
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

    pub(super) fn check(streams: &[Selection], check: &mut Check) {
        let key = "epn.sink.stream";
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
        }
        check.that(
            streams.len() <= 1000,
            key,
            streams.len(),
            "at most 1000 streams",
        );
    }

    /// Returns what each stream gets of `tf`.
    pub(super) fn select<'a>(
        &'a self,
        tf: &'a Tf<Bytes>,
    ) -> impl Iterator<Item = (StreamId, Tf<Bytes>)> + 'a {
        let streams = (0..).map(StreamId).zip(&self.streams);
        streams.filter_map(move |(id, stream)| Some((id, stream.of(tf)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::tf;
    use super::*;

    fn stream(name: &str, flps: &[u16], every: u64) -> Selection {
        Selection {
            name: name.to_owned(),
            flps: flps.to_vec(),
            every,
        }
    }

    /// The FLPs that each stream gets of TF `id` with the parts 0 and 1 and without 9.
    fn selected(streams: &[Selection], id: u64) -> Vec<(u16, Vec<u16>, usize)> {
        let tf = tf(id, &[b"abc", b"d"]);
        let table = StreamTable::new(streams);
        let selected = table.select(&tf).map(|(stream, part)| {
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
}
