//! Files of the sink "streams": TFs whose parts may stand in files of several streams.

use super::{Read, sorted, stored_of};
use anyhow::Context as _;
use bytes::Bytes;
use sheaf_audit::{Evidence, Kind};
use sheaf_formats::tf_file::{NextTf, next_tf};
use sheaf_protocol::{Part, RunId, Tf, TfId};
use sheaf_stream_files::Catalogue;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// TF as the streams of one EPN have it together.
struct Joined {
    place: String,
    streams: BTreeSet<String>,
    tf: Tf<()>,
}

/// Reads all files of one EPN, and takes the TFs of the runs that the logs name. A TF that two streams have counts
/// once, with the STFs of both; one that a stream has twice is there twice.
pub(super) fn read(evidence: &mut Evidence, folder: &Path, read: &mut Read) -> anyhow::Result<()> {
    let rows = Catalogue::read(folder)?.rows(None)?;
    let streams: BTreeMap<&str, &str> = rows
        .iter()
        .map(|row| (row.file.as_str(), row.name.stream.as_str()))
        .collect();
    let runs = evidence.runs();
    let mut joined: BTreeMap<(RunId, TfId), Vec<Joined>> = BTreeMap::new();
    for path in sorted(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // What the sink has beside its files.
        if name.starts_with("catalogue.sqlite") || name.starts_with(".sheaf-") {
            continue;
        }
        let closed = name.strip_suffix(".part");
        let Some(stream) = streams.get(closed.unwrap_or(&name)) else {
            let text = format!("{} is no file that a sink writes", path.display());
            evidence.add_bad_file(Kind::SinkForeign, text);
            continue;
        };
        read_series(evidence, &path, closed.is_some(), read, |place, tf| {
            // A folder keeps the files of all runs.
            if runs.is_empty() || runs.contains(&tf.run.to_string()) {
                add(
                    joined.entry((tf.run, tf.tf)).or_default(),
                    stream,
                    place,
                    tf,
                );
            }
        })?;
    }
    for one in joined.into_values().flatten() {
        evidence.add_stored(one.place, stored_of(&one.tf));
    }
    Ok(())
}

/// Adds what a stream has of a TF to what other streams have of it.
fn add(known: &mut Vec<Joined>, stream: &str, place: String, tf: &Tf<Bytes>) {
    let facts = facts_of(tf);
    let Some(one) = known.iter_mut().find(|one| !one.streams.contains(stream)) else {
        known.push(Joined {
            place,
            streams: [stream.to_owned()].into(),
            tf: facts,
        });
        return;
    };
    one.streams.insert(stream.to_owned());
    for part in facts.parts {
        if !one.tf.parts.contains(&part) {
            one.tf.parts.push(part);
        }
    }
    one.tf.parts.sort_by_key(|part| part.source.flp);
    one.tf.missing.extend(facts.missing);
    one.tf.missing.sort_unstable();
    one.tf.missing.dedup();
}

/// Returns a TF without its payloads.
fn facts_of(tf: &Tf<Bytes>) -> Tf<()> {
    let part = |part: &Part<Bytes>| Part {
        source: part.source,
        format: part.format,
        digest: part.digest,
        bytes: part.bytes,
        payload: (),
    };
    Tf {
        run: tf.run,
        tf: tf.tf,
        attempt: tf.attempt,
        is_redelivered: tf.is_redelivered,
        parts: tf.parts.iter().map(part).collect(),
        missing: tf.missing.clone(),
    }
}

/// Reads one file. Of one that is still open, every TF counts as soon as it is whole, and what follows is on its way.
fn read_series(
    evidence: &mut Evidence,
    path: &Path,
    is_open: bool,
    read: &mut Read,
    mut found: impl FnMut(String, &Tf<Bytes>),
) -> anyhow::Result<()> {
    let place = || path.display().to_string();
    let file = File::open(path).with_context(place)?;
    read.files += 1;
    read.bytes += file.metadata().with_context(place)?.len();
    let mut reader = BufReader::with_capacity(READ_BYTES, file);
    let mut offset = 0;
    loop {
        match next_tf(&mut reader).with_context(place)? {
            NextTf::End => return Ok(()),
            NextTf::Broken(_) if is_open => return Ok(()),
            NextTf::Broken(error) => {
                let text = format!("{}, byte {offset}: {error}", place());
                evidence.add_bad_file(Kind::SinkDamaged, text);
                return Ok(());
            }
            NextTf::Whole(tf, bytes) => {
                read.tfs += 1;
                found(format!("{}, byte {offset}", place()), &tf);
                offset += bytes;
            }
        }
    }
}
