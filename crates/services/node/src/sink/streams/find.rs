//! Search for a TF in files of streams: whether it is written already when an EPN hands it over again.

use sheaf_formats::StreamFormat;
use sheaf_formats::stf_file::{NextStf, TfName, next_stf};
use sheaf_formats::tf_file::{NextTf, next_tf};
use sheaf_protocol::{Attempt, RunId, TfId};
use sheaf_stream_files::{Catalogue, FileRow, Wanted};
use sheaf_write::HandoffId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use tracing::warn;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;
/// Files whose content is remembered.
const FILES_MAX: usize = 64;

/// Content of a file, as far as it was read.
#[derive(Debug, Default)]
struct Content {
    offset: u64,
    tfs: BTreeSet<HandoffId>,
}

/// Searcher of TFs in the files of one node. A file is read once; of an open one, what has been added since.
#[derive(Debug, Default)]
pub(super) struct Finder(BTreeMap<PathBuf, Content>);

impl Finder {
    /// Returns whether a file of the stream in one of `folders` has the TF `id`, for the run and the block of `place`.
    /// What cannot be read is as if it were not there: then the TF is written.
    pub(super) fn has(
        &mut self,
        folders: &[&Path],
        place: (u64, &str, u64),
        id: HandoffId,
    ) -> bool {
        let mut has = false;
        for folder in folders {
            has |= self.is_in(folder, place, id).unwrap_or_else(|error| {
                let folder = folder.display();
                warn!(%folder, %error, tf_id = id.tf.0, "Cannot look for a TF that has come again");
                false
            });
        }
        has
    }

    fn is_in(
        &mut self,
        folder: &Path,
        (run, stream, block): (u64, &str, u64),
        id: HandoffId,
    ) -> io::Result<bool> {
        let wanted = Wanted {
            run: Some(run),
            stream: Some(stream.to_owned()),
            ..Wanted::default()
        };
        let mut names = Vec::new();
        let is_of = |row: &FileRow| row.name.block == block;
        let rows = Catalogue::read(folder).and_then(|catalogue| {
            catalogue.each(&wanted, |row, _| {
                if is_of(row) {
                    names.push(row.file.clone());
                }
            })
        });
        rows.map_err(io::Error::other)?;
        for name in names {
            if self.content(folder, &name)?.contains(&key(&name, id)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the TFs of a file, which has its final name or that of an open one.
    fn content(&mut self, folder: &Path, name: &str) -> io::Result<&BTreeSet<HandoffId>> {
        let path = folder.join(name);
        if self.0.len() >= FILES_MAX && !self.0.contains_key(&path) {
            self.0.pop_first();
        }
        let content = self.0.entry(path.clone()).or_default();
        let opened = File::open(&path).or_else(|_| File::open(folder.join(format!("{name}.part"))));
        match opened {
            Ok(file) => read(file, StreamFormat::of_file(name), content)?,
            // It was shipped and removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(&content.tfs)
    }
}

/// Returns the name of a TF in the files of the format that `name` has: those of DataDistribution know no assignments.
fn key(name: &str, id: HandoffId) -> HandoffId {
    match StreamFormat::of_file(name) {
        StreamFormat::Tf | StreamFormat::Raw => id,
        StreamFormat::StfFile => {
            let name = TfName::new(id.run, id.tf, 0);
            stf_key(name.run, name.counter)
        }
    }
}

fn stf_key(run: u32, counter: u32) -> HandoffId {
    HandoffId {
        run: RunId(run.into()),
        tf: TfId(counter.into()),
        attempt: Attempt(0),
    }
}

/// Reads on behind what was read of a file before, up to its end or to what is not whole yet.
fn read(mut file: File, format: StreamFormat, content: &mut Content) -> io::Result<()> {
    file.seek(SeekFrom::Start(content.offset))?;
    let mut reader = BufReader::with_capacity(READ_BYTES, file);
    loop {
        let (id, bytes) = match format {
            StreamFormat::Tf => match next_tf(&mut reader)? {
                NextTf::Whole(tf, bytes) => (HandoffId::of_tf(&tf), bytes),
                NextTf::Broken(_) | NextTf::End => return Ok(()),
            },
            StreamFormat::StfFile => match next_stf(&mut reader)? {
                NextStf::Whole(tf, bytes) => (stf_key(tf.run(), tf.counter()), bytes.len() as u64),
                NextStf::Broken(_) | NextStf::End => return Ok(()),
            },
            // Payloads do not tell their TF; a writer node has no such streams.
            StreamFormat::Raw => return Ok(()),
        };
        content.tfs.insert(id);
        content.offset += bytes;
    }
}

#[cfg(test)]
mod tests;
