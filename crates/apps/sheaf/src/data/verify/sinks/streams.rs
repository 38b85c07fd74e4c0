//! Files of the sink "streams": TFs whose parts may stand in files of several streams.

use super::{Read, length_of, sorted, stored_of};
use anyhow::Context as _;
use bytes::Bytes;
use sheaf_audit::{Evidence, Kind, Stored};
use sheaf_formats::StreamFormat;
use sheaf_formats::stf_file::{NextStf, next_stf};
use sheaf_formats::tf_file::{NextTf, next_tf};
use sheaf_protocol::{Part, RunId, Tf, TfId, crc32c};
use sheaf_stream_files::{Catalogue, FileRow, FileState, SummingReader};
use sheaf_verdict_log::event::FileEvent;
use sheaf_write::{Copies, HandoffId, Kinds};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// TF as the streams of one node have it together.
struct Joined {
    place: String,
    streams: BTreeSet<String>,
    /// Whether streams have what consumers made of it alone.
    is_product: bool,
    tf: Tf<()>,
}

/// Folders of the disks of all EPNs and writer nodes. Those of one node have one name, and each may have a part of a
/// TF.
#[derive(Default)]
pub(super) struct Nodes(BTreeMap<String, Vec<PathBuf>>);

/// Returns the index of a writer node by the name of its folder; `None` of an EPN.
fn writer_of(node: &str) -> Option<u16> {
    node.strip_prefix("writer-")?.parse().ok()
}

impl Nodes {
    /// Adds the folder of one disk of a node.
    pub(super) fn add(&mut self, folder: &Path) {
        let node = folder.file_name().unwrap_or_default().to_string_lossy();
        self.0
            .entry(node.into_owned())
            .or_default()
            .push(folder.to_owned());
    }

    /// Reads all files, and takes the TFs of the runs that the logs name. A TF that two streams of a node have counts
    /// once, with the STFs of both; one that a stream has twice is there twice. Of a TF that was moved between writer
    /// nodes the last copy counts, as their catalogues say. Of the only stream of the format
    /// stf-file the EPN has logged what it wrote; of several, and of those of the format raw, the log says nothing.
    pub(super) fn read(self, evidence: &mut Evidence, read: &mut Read) -> anyhow::Result<()> {
        let mut copies = Copies::default();
        let mut nodes = Vec::new();
        for (node, folders) in self.0 {
            let writer = writer_of(&node);
            let mut disks = Vec::new();
            for folder in folders {
                let catalogue = Catalogue::read(&folder)?;
                if let Some(writer) = writer {
                    copies.add(writer, catalogue.copies()?);
                }
                let rows = catalogue.rows(None)?;
                disks.push((folder, rows));
            }
            nodes.push((writer, disks));
        }
        for (writer, disks) in nodes {
            let counts = |tf: &Tf<Bytes>| {
                writer.is_none_or(|writer| copies.counts(writer, HandoffId::of_tf(tf)))
            };
            read_node(evidence, &disks, writer.is_some(), &counts, read)?;
        }
        Ok(())
    }
}

/// Reads all disks of one node, with the rows of their catalogues, and takes the TFs that count.
fn read_node(
    evidence: &mut Evidence,
    disks: &[(PathBuf, Vec<FileRow>)],
    is_writer: bool,
    counts: &dyn Fn(&Tf<Bytes>) -> bool,
    read: &mut Read,
) -> anyhow::Result<()> {
    let rows = || disks.iter().flat_map(|(_, rows)| rows);
    let of_format = |format| {
        let rows = rows().filter(|row| StreamFormat::of_file(&row.file) == format);
        let streams = rows.map(|row| row.name.stream.as_str());
        streams.collect::<BTreeSet<&str>>().len()
    };
    let stf_streams = of_format(StreamFormat::StfFile);
    // STFs that the TFs lack may stand in files that do not tell them.
    let is_partial = stf_streams + of_format(StreamFormat::Raw) > 0;
    let mut node = Node {
        runs: evidence.runs(),
        // EPNs do not log what writer nodes have made of their TFs.
        has_one_stf_stream: stf_streams == 1 && !is_writer,
        joined: AllJoined::new(),
        counts,
    };
    for row in rows().filter(|row| StreamFormat::of_file(&row.file) != StreamFormat::Tf) {
        if is_of_run(row, &node.runs) {
            evidence.add_untold_stream(&row.name.stream);
        }
    }
    for (folder, rows) in disks {
        node.read(evidence, folder, rows, read)?;
    }
    for one in node.joined.into_values().flatten() {
        let streams = one.streams.into_iter().collect();
        let stored = match stored_of(&one.tf, streams) {
            Stored::Tf {
                tf,
                run,
                parts,
                streams,
                ..
            } if is_partial || one.is_product => Stored::Partial {
                tf,
                run,
                parts,
                streams,
            },
            stored => stored,
        };
        evidence.add_stored(one.place, stored);
    }
    Ok(())
}

/// TFs by run and id.
type AllJoined = BTreeMap<(RunId, TfId), Vec<Joined>>;

/// A node whose disks are read one after the other.
struct Node<'a> {
    runs: Vec<String>,
    has_one_stf_stream: bool,
    joined: AllJoined,
    counts: &'a dyn Fn(&Tf<Bytes>) -> bool,
}

impl Node<'_> {
    /// Reads all files of one disk.
    fn read(
        &mut self,
        evidence: &mut Evidence,
        folder: &Path,
        rows: &[FileRow],
        read: &mut Read,
    ) -> anyhow::Result<()> {
        let rows = rows.iter().map(|row| (row.file.as_str(), row));
        let rows: BTreeMap<&str, &FileRow> = rows.collect();
        for path in sorted(folder)? {
            self.read_file(evidence, &path, &rows, read)?;
            read.bar.file(length_of(&path));
        }
        Ok(())
    }

    fn read_file(
        &mut self,
        evidence: &mut Evidence,
        path: &Path,
        rows: &BTreeMap<&str, &FileRow>,
        read: &mut Read,
    ) -> anyhow::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let closed = name.strip_suffix(".part");
        let file = closed.unwrap_or(&name);
        let beside = [file.strip_suffix(".json"), name.strip_suffix(".records")];
        let mut beside = beside.into_iter().flatten();
        // What the sink has beside its files.
        if name.starts_with("catalogue.sqlite")
            || name.starts_with(".sheaf-")
            || beside.any(|file| rows.contains_key(file))
        {
            return Ok(());
        }
        let Some(row) = rows.get(file) else {
            let text = format!("{} is no file that a sink writes", path.display());
            evidence.add_bad_file(Kind::SinkForeign, text);
            return Ok(());
        };
        read.files += 1;
        let is_open = closed.is_some();
        match StreamFormat::of_file(file) {
            StreamFormat::Tf => read_series(evidence, path, is_open, read, |place, tf| {
                // A folder keeps the files of all runs.
                let is_of_run = self.runs.is_empty() || self.runs.contains(&tf.run.to_string());
                if is_of_run && (self.counts)(tf) {
                    add(&mut self.joined, row, place, tf);
                }
            }),
            StreamFormat::StfFile => {
                let is_logged = self.has_one_stf_stream && is_of_run(row, &self.runs);
                read_stfs(evidence, path, row, is_logged, read)
            }
            StreamFormat::Raw => read_raw(evidence, path, row, read),
        }
    }
}

/// Adds what the stream of `row` has of a TF to what other streams have of it. What a consumer made of a TF is not a
/// part of it.
fn add(joined: &mut AllJoined, row: &FileRow, place: String, tf: &Tf<Bytes>) {
    let stream = &row.name.stream;
    let is_product = tf.is_product();
    let mut tf = facts_of(tf);
    if is_product {
        tf.parts.clear();
    }
    let known = joined.entry((tf.run, tf.tf)).or_default();
    let Some(one) = known.iter_mut().find(|one| !one.streams.contains(stream)) else {
        known.push(Joined {
            place,
            streams: [stream.to_owned()].into(),
            is_product,
            tf,
        });
        return;
    };
    one.streams.insert(stream.to_owned());
    one.is_product &= is_product;
    for part in tf.parts {
        if !one.tf.parts.contains(&part) {
            one.tf.parts.push(part);
        }
    }
    one.tf.parts.sort_by_key(|part| part.source.flp);
    one.tf.missing.extend(tf.missing);
    one.tf.missing.sort_unstable();
    one.tf.missing.dedup();
}

/// Returns whether a file is of one of `runs`, as far as the low half of its number tells; of any if there are none.
fn is_of_run(row: &FileRow, runs: &[String]) -> bool {
    let is_it = |run: &String| {
        let id = u64::from_str_radix(run, 16);
        id.is_ok_and(|id| id & u64::from(u32::MAX) == row.name.run)
    };
    runs.is_empty() || runs.iter().any(is_it)
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
                read.bar.within(offset);
            }
        }
    }
}

/// Opens a file of a format without checksums, to be read with those of its row.
fn open(path: &Path, row: &FileRow, read: &mut Read) -> anyhow::Result<SummingReader> {
    let place = || path.display().to_string();
    let file = File::open(path).with_context(place)?;
    read.bytes += file.metadata().with_context(place)?.len();
    let kinds = Kinds {
        crc32c: row.sums.crc32c.is_some(),
        xxh3: row.sums.xxh3.is_some(),
    };
    Ok(SummingReader::new(file, kinds))
}

/// Compares a file that was read to its end with its row, if it is closed.
fn compare(evidence: &mut Evidence, path: &Path, row: &FileRow, reader: &SummingReader) {
    if row.state == FileState::Open {
        return;
    }
    if let Err(error) = row.sums.compare(&reader.sums()) {
        let text = format!("{}: {error}", path.display());
        evidence.add_bad_file(Kind::SinkDamaged, text);
    }
}

/// Reads one file of TFs as DataDistribution writes them, as [`read_series`] does.
fn read_stfs(
    evidence: &mut Evidence,
    path: &Path,
    row: &FileRow,
    is_logged: bool,
    read: &mut Read,
) -> anyhow::Result<()> {
    let place = || path.display().to_string();
    let mut reader = open(path, row, read)?;
    let mut offset = 0;
    loop {
        match next_stf(&mut reader).with_context(place)? {
            NextStf::End => break,
            NextStf::Broken(_) if row.state == FileState::Open => break,
            NextStf::Broken(fault) => {
                let text = format!("{}, TF at byte {offset}: {fault}", place());
                evidence.add_bad_file(Kind::SinkDamaged, text);
                return Ok(());
            }
            NextStf::Whole(_, bytes) => {
                read.tfs += 1;
                if is_logged {
                    let file = FileEvent {
                        bytes: bytes.len() as u64,
                        digest: crc32c(&bytes),
                    };
                    let at = format!("{}, byte {offset}", place());
                    evidence.add_stored(at, Stored::Image(file));
                } else {
                    read.stf_tfs += 1;
                }
                offset += bytes.len();
                read.bar.within(offset as u64);
            }
        }
    }
    compare(evidence, path, row, &reader);
    Ok(())
}

/// Reads one file of payloads alone.
fn read_raw(
    evidence: &mut Evidence,
    path: &Path,
    row: &FileRow,
    read: &mut Read,
) -> anyhow::Result<()> {
    let mut reader = open(path, row, read)?;
    io::copy(&mut reader, &mut io::sink()).with_context(|| path.display().to_string())?;
    read.raw_files += 1;
    compare(evidence, path, row, &reader);
    Ok(())
}
