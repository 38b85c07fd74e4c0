//! Recorded pages once, cut by orbit.

use super::deal::Dealt;
use super::files::{bytes_dealt, open_each};
use super::joined::Joined;
use super::{Input, Opening, Place, SourceError, SourceKind, origin};
use serde::{Deserialize, Serialize};
use sheaf_stf_builder::{CutConfig, RawFile, StfSource};
use std::num::NonZeroU32;
use std::path::PathBuf;
use tracing::info;

/// The `[flp.source]` table with `kind = "file"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileSource {
    /// Files of RDH pages, dealt out over the FLPs in turn; FLPs that get the same file share its links.
    pub files: Vec<PathBuf>,
    /// LHC orbits of one TF, 88.9 µs each.
    pub orbits_per_tf: NonZeroU32,
    /// The orbit that TF 0 begins with; without it, the earliest of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_orbit: Option<u32>,
}

impl Default for FileSource {
    fn default() -> Self {
        let cut = CutConfig::default();
        Self {
            files: Vec::new(),
            orbits_per_tf: cut.orbits_per_tf,
            first_orbit: cut.first_orbit,
        }
    }
}

impl SourceKind for FileSource {
    fn files(&self) -> Option<&[PathBuf]> {
        Some(&self.files)
    }

    fn bytes_beside(&self, place: &Place) -> u64 {
        bytes_dealt(&self.files, place)
    }

    fn open(&self, mut opening: Opening<'_>) -> Result<Input, SourceError> {
        let source = open(self, &mut opening)?;
        Ok(Input::Made(Box::new(source)))
    }
}

fn open(source: &FileSource, opening: &mut Opening<'_>) -> Result<Joined, SourceError> {
    let (flp, flps) = (opening.flp, opening.flps);
    let dealt = Dealt::new(source.files.len(), flp, flps)?;
    let first_orbit = match source.first_orbit {
        None if source.files.len() > 1 => origin::first_orbit(&source.files)?,
        given => given,
    };
    let config = CutConfig {
        orbits_per_tf: source.orbits_per_tf,
        first_orbit,
    };
    open_each(&source.files, &dealt, opening, |input| {
        let (file, findings) = RawFile::new(input, &config, dealt.share);
        if file.hbfs_before_first() > 0 {
            info!(
                hbfs = file.hbfs_before_first(),
                "HBFs before the first orbit are left out"
            );
        }
        (
            (file.tfs() > 0).then(|| Box::new(file) as Box<dyn StfSource>),
            findings,
        )
    })
}
