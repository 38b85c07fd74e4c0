//! Files that the sinks of a run have written, as evidence: every digest is computed from their bytes.

mod streams;

use crate::data::file_view::FileView;
use crate::progress::{Amount, Bar};
use anyhow::Context as _;
use sheaf_audit::{Evidence, Kind, Stored};
use sheaf_formats::inspect::FileFormat;
use sheaf_formats::stf_file::tf_places;
use sheaf_formats::tf_file::check_tf_file;
use sheaf_formats::{Findings, View as _, digest_of};
use sheaf_protocol::{Part, Tf};
use sheaf_verdict_log::event::{FileEvent, PartEvent};
use std::path::{Path, PathBuf};

/// Counts of files of sinks that were read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) files: u64,
    pub(super) tfs: u64,
    pub(super) bytes: u64,
    /// TFs among them that could not be compared: in several streams of the format stf-file.
    pub(super) stf_tfs: u64,
    /// Files among them of streams of the format raw.
    pub(super) raw_files: u64,
    bar: Bar,
}

/// Reads all that sinks wrote of the runs of `evidence` into `directories`.
///
/// # Errors
///
/// What cannot be read. What is damaged is a finding.
pub(super) fn read(
    evidence: &mut Evidence,
    directories: &[PathBuf],
    bar: Bar,
) -> anyhow::Result<Read> {
    let mut read = Read {
        bar,
        ..Read::default()
    };
    let mut nodes = streams::Nodes::default();
    evidence.begin_sinks();
    let mut paths = Vec::new();
    for directory in directories {
        for folder in folders_of(evidence, directory)? {
            paths.extend(sorted(&folder)?);
        }
    }
    paths.iter().for_each(|path| expect(&mut read.bar, path));
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_of_node = name.starts_with("epn-") || name.starts_with("writer-");
        if path.is_dir() && is_of_node {
            nodes.add(&path);
        } else {
            read_file(evidence, &path, &mut read)?;
            read.bar.file(length_of(&path));
        }
    }
    nodes.read(evidence, &mut read)?;
    read.bar.end();
    Ok(read)
}

/// Expects a file, or the files of the folder of an EPN. What cannot be looked at fails when it is read.
fn expect(bar: &mut Bar, path: &Path) {
    let paths = match path.is_dir() {
        true => sorted(path).unwrap_or_default(),
        false => vec![path.to_owned()],
    };
    for path in paths {
        let (files, bytes) = (1, length_of(&path));
        bar.expect(Amount { files, bytes });
    }
}

fn length_of(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}

/// The folders of the runs, or the directory itself if it is the folder of a run.
fn folders_of(evidence: &Evidence, directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let runs = evidence.runs();
    let is_of_run = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let run = name.strip_prefix("run-").map(str::to_owned);
        run.map(|run| runs.is_empty() || runs.contains(&run))
    };
    let of_runs: Vec<PathBuf> = sorted(directory)?
        .into_iter()
        .filter(|path| path.is_dir() && is_of_run(path).is_some())
        .collect();
    if of_runs.is_empty() {
        return Ok(vec![directory.to_owned()]);
    }
    let is_mine = |path: &PathBuf| is_of_run(path) == Some(true);
    Ok(of_runs.into_iter().filter(is_mine).collect())
}

fn sorted(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let cannot = || format!("cannot read {}", directory.display());
    let entries = std::fs::read_dir(directory).with_context(cannot)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>().with_context(cannot)?;
    paths.sort();
    Ok(paths)
}

/// Reads one file. What an EPN has not finished (`.part`, `.stored`) is no delivery, but for files of
/// DataDistribution, in which every TF counts as soon as it is written.
fn read_file(evidence: &mut Evidence, path: &Path, read: &mut Read) -> anyhow::Result<()> {
    let place = path.display().to_string();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.ends_with(".part") || name.ends_with(".stored") {
        return Ok(());
    }
    let tf_of_name = name
        .strip_prefix("tf-")
        .and_then(|rest| rest.strip_suffix(".tf"))
        .and_then(|digits| digits.parse().ok());
    let is_empty = path
        .metadata()
        .is_ok_and(|file| file.is_file() && file.len() == 0);
    let start = if is_empty {
        Vec::new()
    } else {
        let mut view = FileView::open(path)?;
        let start = view.at(0, FileFormat::START_BYTES).to_vec();
        view.finish().with_context(|| place.clone())?;
        start
    };
    read.files += 1;
    read.bytes += path.metadata().map_or(0, |file| file.len());
    match (FileFormat::detect(&start), tf_of_name) {
        (Some(FileFormat::StfFile), _) => read_stf_file(evidence, path, &place, read),
        (Some(FileFormat::TfFile), tf) => {
            read.tfs += 1;
            let stored = read_tf_file(path, tf)?;
            evidence.add_stored(place, stored);
            Ok(())
        }
        (_, Some(tf)) => {
            let damage = format!(
                "no TF file: it starts with {:02x?}",
                &start[..start.len().min(8)]
            );
            evidence.add_stored(place, Stored::DamagedTf { tf, damage });
            Ok(())
        }
        (_, None) => {
            // Closed at once by a crash, and cut behind its last whole TF when the EPN starts again.
            if !(is_empty && name.ends_with(".stf-part")) {
                let text = format!("{place} is no file that a sink writes");
                evidence.add_bad_file(Kind::SinkForeign, text);
            }
            Ok(())
        }
    }
}

/// A TF whose bytes were checked: the digests stated are those of the bytes. `streams` are those that have something of
/// it.
fn stored_of<P>(tf: &Tf<P>, streams: Vec<String>) -> Stored {
    let part = |part: &Part<P>| PartEvent {
        flp: part.source.flp.0,
        incarnation: part.source.incarnation.0,
        bytes: part.bytes,
        digest: part.digest,
    };
    Stored::Tf {
        tf: tf.tf.0,
        run: tf.run.to_string(),
        redelivered: tf.is_redelivered,
        parts: tf.parts.iter().map(part).collect(),
        missing: tf.missing.iter().map(|flp| flp.0).collect(),
        streams,
    }
}

/// A TF file of Sheaf, of TF `tf` by its name.
fn read_tf_file(path: &Path, tf: Option<u64>) -> anyhow::Result<Stored> {
    let mut view = FileView::open(path)?;
    let mut damages = Vec::new();
    let checked = check_tf_file(&mut view, |_, error| damages.push(error.to_string()));
    view.finish().with_context(|| path.display().to_string())?;
    let found = match checked {
        Err(error) => {
            let (tf, damage) = (tf.unwrap_or(0), error.to_string());
            return Ok(Stored::DamagedTf { tf, damage });
        }
        Ok(found) => found,
    };
    let stated = found.tf.0;
    if let Some(tf) = tf.filter(|tf| *tf != stated) {
        damages.push(format!(
            "it has TF {stated}, expected TF {tf}, that of its name"
        ));
    }
    if !damages.is_empty() {
        let (tf, damage) = (tf.unwrap_or(stated), damages.join("; "));
        return Ok(Stored::DamagedTf { tf, damage });
    }
    // The digests stated are those of the bytes, or there would be damage.
    Ok(stored_of(&found, Vec::new()))
}

fn read_stf_file(
    evidence: &mut Evidence,
    path: &Path,
    place: &str,
    read: &mut Read,
) -> anyhow::Result<()> {
    let mut view = FileView::open(path)?;
    let mut findings = Findings::default();
    for range in tf_places(&mut view, &mut findings) {
        read.tfs += 1;
        let file = FileEvent {
            bytes: range.len() as u64,
            digest: digest_of(&mut view, range.clone()),
        };
        let at = format!("{place}, byte {}", range.start);
        evidence.add_stored(at, Stored::Image(file));
    }
    view.finish().with_context(|| place.to_owned())?;
    for fault in &findings.faults {
        evidence.add_bad_file(Kind::SinkDamaged, format!("{place}: {fault}"));
    }
    Ok(())
}
