//! TF files of Sheaf once: what the sinks `file` and `streams` wrote.

use super::deal::share;
use super::files::{bytes_read, names, no_data};
use super::{Input, Opening, Place, SourceError, SourceKind};
use serde::{Deserialize, Serialize};
use sheaf_formats::tf_file::{NextTf, next_tf};
use sheaf_stf_builder::tf_file::TfFile;
use sheaf_stream_files::void_tfs;
use sheaf_write::HandoffId;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use tracing::warn;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// The `[flp.source]` table with `kind = "tf-file"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct TfFileSource {
    /// TF files, in any order. Every FLP reads all of them and takes the parts of the FLPs of its number, modulo the
    /// number of FLPs.
    pub files: Vec<PathBuf>,
}

impl SourceKind for TfFileSource {
    fn files(&self) -> Option<&[PathBuf]> {
        Some(&self.files)
    }

    fn bytes_beside(&self, place: &Place) -> u64 {
        // A share of the FLPs that wrote them; how many those were is not known before.
        bytes_read(self.files.iter()) / u64::from(place.flps.max(1))
    }

    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError> {
        let flp = opening.flp;
        let mut source = TfFile::new(share(flp, opening.flps)?);
        for file in &self.files {
            read(file, &opening, &mut source)?;
        }
        let source = source.finish();
        if source.tfs_with_data() == 0 {
            let files: Vec<&PathBuf> = self.files.iter().collect();
            return Err(no_data(flp, &files, None));
        }
        Ok(Input::Made(Box::new(source)))
    }
}

/// Takes the TFs of a file up to the first that is not whole, which is logged.
fn read(file: &Path, opening: &Opening<'_>, source: &mut TfFile) -> Result<(), SourceError> {
    let failed = |source: io::Error| SourceError::Read {
        file: file.to_owned(),
        source,
    };
    let mut reader = BufReader::with_capacity(READ_BYTES, File::open(file).map_err(failed)?);
    let folder = file.parent().unwrap_or(Path::new(""));
    let void = void_tfs(folder).map_err(|error| failed(io::Error::other(error)))?;
    let mut offset = 0;
    loop {
        match next_tf(&mut reader).map_err(failed)? {
            NextTf::End => return Ok(()),
            NextTf::Broken(error) => {
                let file = file.display();
                warn!(%file, offset, %error, "A file has bytes that are no TF; it is read no further");
                return Ok(());
            }
            NextTf::Whole(tf, bytes) => {
                offset += bytes;
                // Of a writer node: another one has it.
                if void.contains(&HandoffId::of_tf(&tf)) {
                    continue;
                }
                source.add(&tf).map_err(|error| SourceError::NoData {
                    flp: opening.flp,
                    files: names(&[file]),
                    reason: error.to_string(),
                })?;
            }
        }
    }
}
