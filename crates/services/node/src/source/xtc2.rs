//! Recorded LCLS-II datagrams once, cut by event time.

use super::deal::Dealt;
use super::files::{bytes_dealt, open_each};
use super::joined::Joined;
use super::{Input, Opening, Place, SourceError, SourceKind, origin};
use serde::{Deserialize, Serialize};
use sheaf_stf_builder::StfSource;
use sheaf_stf_builder::xtc2::{Xtc2Config, Xtc2File};
use std::num::NonZeroU64;
use std::path::PathBuf;

/// The `[flp.source]` table with `kind = "xtc2"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Xtc2Source {
    /// Files of DAQ segments, dealt out over the FLPs in turn: at least one an FLP.
    pub files: Vec<PathBuf>,
    /// Length of a TF in ns of event time.
    pub window_ns: NonZeroU64,
    /// When TF 0 begins, in ns of event time; without it, at the first event of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<u64>,
}

impl Default for Xtc2Source {
    fn default() -> Self {
        let windows = Xtc2Config::default();
        Self {
            files: Vec::new(),
            window_ns: windows.window_ns,
            first_ns: windows.first_ns,
        }
    }
}

impl SourceKind for Xtc2Source {
    fn files(&self) -> Option<&[PathBuf]> {
        Some(&self.files)
    }

    fn is_one_file_a_flp(&self) -> bool {
        true
    }

    fn bytes_beside(&self, place: &Place) -> u64 {
        bytes_dealt(&self.files, place)
    }

    fn open(&self, mut opening: Opening<'_>) -> Result<Input, SourceError> {
        let source = open(self, &mut opening)?;
        Ok(Input::Made(Box::new(source)))
    }
}

fn open(source: &Xtc2Source, opening: &mut Opening<'_>) -> Result<Joined, SourceError> {
    let (flp, flps) = (opening.flp, opening.flps);
    let dealt = Dealt::one_file_a_flp("xtc2", source.files.len(), flp, flps)?;
    let first_ns = match source.first_ns {
        None if source.files.len() > 1 => origin::first_ns(&source.files)?,
        given => given,
    };
    let config = Xtc2Config {
        window_ns: source.window_ns,
        first_ns,
    };
    open_each(&source.files, &dealt, opening, |input| {
        let (file, findings) = Xtc2File::new(input, &config);
        (
            (file.tfs_with_data() > 0).then(|| Box::new(file) as Box<dyn StfSource>),
            findings,
        )
    })
}
