//! Files of streams that a farm has left, held against what its nodes logged.

use crate::shape::{Consumer, Shape};
use crate::trace::{Outcome, Trace};
use sheaf_formats::tf_file::{NextTf, next_tf};
use sheaf_protocol::NodeId;
use sheaf_stream_files::{Catalogue, FileRow, FileState, compare_file};
use sheaf_write::{Copies, HandoffId};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// TFs that a problem names.
const NAMED_MAX: usize = 5;

/// Folders with the files of an EPN in the folder of its farm, one for each of its disks.
pub(crate) fn folders_of(farm: &Path, consumer: Consumer, epn: u16) -> Vec<PathBuf> {
    let of_disk = |disk: String| farm.join(disk).join(format!("epn-{epn}"));
    let second = consumer.has_two_disks().then(|| format!("second-{epn}"));
    let disks = std::iter::once(format!("epn-{epn}")).chain(second);
    disks.map(of_disk).collect()
}

/// Returns what is wrong with the files of all EPNs, or of all writer nodes: files that are open or not as their
/// catalogue says, TFs that are there twice, TFs that were delivered and are not there, and TFs that no verdict gave to
/// an EPN.
pub(crate) fn problems(farm: &Path, shape: &Shape, trace: &Trace) -> Vec<String> {
    let mut problems = Vec::new();
    let mut found: BTreeMap<u64, u32> = BTreeMap::new();
    let mut copies = Copies::default();
    for writer in shape.writers() {
        let rows = Catalogue::read(&folder_of(farm, writer)).and_then(|it| it.copies());
        match rows {
            Err(error) => problems.push(error.to_string()),
            Ok(rows) => copies.add(writer.index, rows),
        }
    }
    let of_writers = shape.writers().map(|it| (folder_of(farm, it), Some(it)));
    let epns = match shape.writers().count() {
        0 => shape.epns,
        _ => 0,
    };
    let of_epns = (0..epns).flat_map(|epn| folders_of(farm, shape.consumer, epn));
    let folders = of_epns.map(|folder| (folder, None)).chain(of_writers);
    for (folder, writer) in folders {
        let counts = |id| writer.is_none_or(|writer: NodeId| copies.counts(writer.index, id));
        let rows = Catalogue::read(&folder).and_then(|catalogue| catalogue.rows(None));
        match rows {
            Err(error) => problems.push(error.to_string()),
            Ok(rows) => {
                for row in rows {
                    let read = read(&folder, &row, &counts, &mut found);
                    problems.extend(read.err().map(|error| format!("{}: {error}", row.file)));
                }
            }
        }
    }
    let mut tell = |what: &str, tfs: Vec<u64>| {
        if !tfs.is_empty() {
            let some = &tfs[..tfs.len().min(NAMED_MAX)];
            problems.push(format!("{} TFs {what}, such as {some:?}", tfs.len()));
        }
    };
    let twice = found.iter().filter(|(_, count)| **count > 1);
    tell("are in files twice", twice.map(|(tf, _)| *tf).collect());
    let delivered = trace.tfs.iter().filter(|(_, tf)| tf.delivered_ns.is_some());
    let absent = delivered.filter(|(tf, _)| !found.contains_key(tf));
    tell(
        "were delivered and are in no file",
        absent.map(|(tf, _)| *tf).collect(),
    );
    let is_built = |tf: &u64| {
        let outcome = trace.tfs.get(tf).map(|tf| &tf.outcome);
        matches!(outcome, Some(Outcome::Complete | Outcome::Incomplete))
    };
    let strange = found.keys().filter(|tf| !is_built(tf));
    tell(
        "are in files and were not built",
        strange.copied().collect(),
    );
    problems
}

/// Folder with the files of a writer node in the folder of its farm.
fn folder_of(farm: &Path, writer: NodeId) -> PathBuf {
    farm.join(format!("writer-{}", writer.index))
}

/// Counts the TFs of a file that count. The file has to be as its row says.
fn read(
    folder: &Path,
    row: &FileRow,
    counts: &impl Fn(HandoffId) -> bool,
    found: &mut BTreeMap<u64, u32>,
) -> Result<(), String> {
    if row.state == FileState::Open {
        return Err("is still open".to_owned());
    }
    compare_file(folder, row, |reader| match next_tf(reader)? {
        NextTf::End => Ok(false),
        NextTf::Broken(error) => Err(io::Error::new(ErrorKind::InvalidData, error)),
        NextTf::Whole(tf, _) => {
            if counts(HandoffId::of_tf(&tf)) {
                *found.entry(tf.tf.0).or_default() += 1;
            }
            Ok(true)
        }
    })
}
