//! Files that sources read: opened, looked through, and what is wrong with them logged.

use super::deal::Dealt;
use super::joined::Joined;
use super::{Opening, Place, SourceError};
use bytes::Bytes;
use sheaf_formats::{Fault, Findings};
use sheaf_protocol::FlpId;
use sheaf_stf_builder::StfSource;
use sheaf_transport::Arena;
use sheaf_transport::arena::UNIT_BYTES;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tracing::warn;

/// Faults of one file that are logged one by one.
const FAULTS_LOGGED_MAX: usize = 10;

/// Memory of a source for the files that it reads whole: STFs are slices of it, which can be lent to EPNs of the
/// machine.
pub(super) struct FileMemory(Arc<Arena>);

impl FileMemory {
    /// Takes memory for `files`.
    pub(super) fn new<'a>(
        files: impl Iterator<Item = &'a PathBuf>,
        opening: &mut Opening<'_>,
    ) -> Result<Self, SourceError> {
        let bytes = usize::try_from(memory_of(files)).unwrap_or(usize::MAX);
        let arena = Arena::new(bytes, opening.pool)?;
        (opening.lend)(&arena);
        Ok(Self(arena))
    }

    /// Reads the whole of `file`. One that is no regular file, or has grown meanwhile, is read into other memory.
    pub(super) fn read(&self, file: &Path) -> Result<Bytes, SourceError> {
        let failed = |source| SourceError::Read {
            file: file.to_owned(),
            source,
        };
        let mut stream = File::open(file).map_err(failed)?;
        let known = stream.metadata().map_err(failed)?.len();
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let Some(mut block) = self.0.allocate(known) else {
            return read(file);
        };
        let mut got = 0;
        while let Some(rest) = block.as_mut().get_mut(got..)
            && !rest.is_empty()
        {
            match stream.read(rest) {
                Ok(0) => break,
                Ok(bytes) => got += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let mut more = Vec::new();
        stream.read_to_end(&mut more).map_err(failed)?;
        if more.is_empty() {
            return Ok(block.freeze().slice(..got));
        }
        more.splice(0..0, block.as_ref()[..got].iter().copied());
        Ok(more.into())
    }
}

/// Returns the bytes of memory that hold `files`; those that are not there have none.
fn memory_of<'a>(files: impl Iterator<Item = &'a PathBuf>) -> u64 {
    let sizes = files.map(|file| std::fs::metadata(file).map_or(0, |found| found.len()));
    let unit = UNIT_BYTES as u64;
    sizes
        .map(|bytes| bytes.div_ceil(unit).saturating_mul(unit))
        .fold(0, u64::saturating_add)
}

/// Returns the bytes that a source takes that has read `files`: their bytes, and the places of STFs in them.
pub(super) fn bytes_read<'a>(files: impl Iterator<Item = &'a PathBuf>) -> u64 {
    let bytes = memory_of(files);
    bytes.saturating_add(bytes / 8)
}

/// Returns the bytes of the files of `place` that are dealt out over the FLPs.
pub(super) fn bytes_dealt(files: &[PathBuf], place: &Place) -> u64 {
    let dealt = Dealt::new(files.len(), place.flp, place.flps);
    dealt.map_or(0, |dealt| {
        bytes_read(dealt.files.iter().filter_map(|index| files.get(*index)))
    })
}

/// Opens the files that were dealt to the FLP, and joins those that have data.
pub(super) fn open_each(
    files: &[PathBuf],
    dealt: &Dealt,
    opening: &mut Opening<'_>,
    mut open: impl FnMut(Bytes) -> (Option<Box<dyn StfSource>>, Findings),
) -> Result<Joined, SourceError> {
    let mut sources = Vec::new();
    let mut first_fault: Option<Fault> = None;
    let flp = opening.flp;
    let mine: Vec<&PathBuf> = dealt.files.iter().map(|index| &files[*index]).collect();
    let memory = FileMemory::new(mine.iter().copied(), opening)?;
    for file in &mine {
        let (source, findings) = open(memory.read(file)?);
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
