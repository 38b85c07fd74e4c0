//! Recorded KM3NeT records or packets once, one time slice a TF.

use super::deal::Dealt;
use super::files::{bytes_dealt, open_each};
use super::joined::Joined;
use super::{Input, Opening, Place, SourceError, SourceKind, origin};
use serde::{Deserialize, Serialize};
use sheaf_stf_builder::StfSource;
use sheaf_stf_builder::km3net::{Km3netConfig, Km3netFile};
use std::path::PathBuf;

/// The `[flp.source]` table with `kind = "km3net"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Km3netSource {
    /// Files of records or of packets, dealt out over the FLPs in turn: at least one an FLP.
    pub files: Vec<PathBuf>,
    /// The time slice that is TF 0; without it, the lowest of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_slice: Option<u64>,
}

impl SourceKind for Km3netSource {
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

fn open(source: &Km3netSource, opening: &mut Opening<'_>) -> Result<Joined, SourceError> {
    let (flp, flps) = (opening.flp, opening.flps);
    let dealt = Dealt::one_file_a_flp("km3net", source.files.len(), flp, flps)?;
    let first_slice = match source.first_slice {
        None if source.files.len() > 1 => origin::first_slice(&source.files)?,
        given => given,
    };
    let config = Km3netConfig { first_slice };
    open_each(&source.files, &dealt, opening, |input| {
        let (file, findings) = Km3netFile::new(input, &config);
        (
            (file.tfs_with_data() > 0).then(|| Box::new(file) as Box<dyn StfSource>),
            findings,
        )
    })
}
