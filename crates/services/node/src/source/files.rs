//! Files that sources read: opened, looked through, and what is wrong with them logged.

use super::SourceError;
use super::deal::Dealt;
use super::joined::Joined;
use bytes::Bytes;
use sheaf_formats::{Fault, Findings};
use sheaf_protocol::FlpId;
use sheaf_stf_builder::StfSource;
use std::path::{Path, PathBuf};
use tracing::warn;

/// Faults of one file that are logged one by one.
const FAULTS_LOGGED_MAX: usize = 10;

/// Opens the files that were dealt to `flp`, and joins those that have data.
pub(super) fn open_each(
    files: &[PathBuf],
    dealt: &Dealt,
    flp: FlpId,
    mut open: impl FnMut(Bytes) -> (Option<Box<dyn StfSource>>, Findings),
) -> Result<Joined, SourceError> {
    let mut sources = Vec::new();
    let mut first_fault: Option<Fault> = None;
    let mine: Vec<&PathBuf> = dealt.files.iter().map(|index| &files[*index]).collect();
    for file in &mine {
        let (source, findings) = open(read(file)?);
        log_findings(file, &findings);
        first_fault = first_fault.or_else(|| findings.faults.into_iter().next());
        match source {
            Some(source) => sources.push(source),
            None => warn!(file = %file.display(), %flp, "A file has no data of this FLP"),
        }
    }
    if sources.is_empty() {
        return Err(no_data(flp, &mine, first_fault));
    }
    Ok(Joined::new(sources))
}

/// Error of an FLP without data, with the first fault of its files.
pub(super) fn no_data(flp: FlpId, files: &[&PathBuf], first_fault: Option<Fault>) -> SourceError {
    let reason = first_fault.map_or_else(
        || "nothing in them is its share".to_owned(),
        |fault| fault.to_string(),
    );
    SourceError::NoData {
        flp,
        files: names(files),
        reason,
    }
}

/// Reads the whole of `file`.
pub(super) fn read(file: &Path) -> Result<Bytes, SourceError> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(bytes.into()),
        Err(source) => Err(SourceError::Read {
            file: file.to_owned(),
            source,
        }),
    }
}

/// Names of `files`, for messages.
pub(super) fn names(files: &[impl AsRef<Path>]) -> String {
    let names: Vec<String> = files
        .iter()
        .map(|file| file.as_ref().display().to_string())
        .collect();
    names.join(", ")
}

/// Logs what is wrong with `file`.
pub(super) fn log_findings(file: &Path, findings: &Findings) {
    let file = file.display();
    for fault in findings.faults.iter().take(FAULTS_LOGGED_MAX) {
        let (kind, detail) = (fault.kind.name(), &fault.detail);
        warn!(%file, offset = fault.offset, kind, detail, "Fault in the data; the good part is kept");
    }
    let more =
        (findings.faults.len() as u64 + findings.left_out).saturating_sub(FAULTS_LOGGED_MAX as u64);
    if more > 0 {
        warn!(%file, more, "More faults in the data");
    }
}
