//! TF files of DataDistribution once.

use super::deal::{Dealt, share};
use super::files::{FileMemory, bytes_dealt, bytes_read, log_findings, names, no_data};
use super::{Input, Opening, Place, SourceError, SourceKind, origin};
use serde::{Deserialize, Serialize};
use sheaf_stf_builder::stf_file::{Equipments, Payloads, StfFile};
use std::path::PathBuf;
use tracing::warn;

/// The `[flp.source]` table with `kind = "stf-file"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StfFileSource {
    /// TF files, in any order.
    pub files: Vec<PathBuf>,
    /// Share of an FLP.
    pub share: StfShare,
    /// Content of STFs.
    pub payload: StfPayload,
    /// With `share = "files"`: the TF counter that is TF 0; without it, the lowest of all files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_counter: Option<u32>,
}

/// Share of an FLP in TF files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StfShare {
    /// Every FLP reads all files, which hold whole TFs; their equipment is dealt out over the FLPs.
    #[default]
    Equipment,
    /// Files hold STFs and are dealt out over the FLPs: at least one an FLP.
    Files,
}

/// Content of the STFs of TF files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StfPayload {
    /// O2 blocks: all that is in the file, with its headers.
    #[default]
    Blocks,
    /// RDH pages without headers. Files with blocks that have none are refused.
    Pages,
}

impl From<StfPayload> for Payloads {
    fn from(payload: StfPayload) -> Self {
        match payload {
            StfPayload::Blocks => Self::Blocks,
            StfPayload::Pages => Self::Pages,
        }
    }
}

impl SourceKind for StfFileSource {
    fn files(&self) -> Option<&[PathBuf]> {
        Some(&self.files)
    }

    fn is_one_file_a_flp(&self) -> bool {
        self.share == StfShare::Files
    }

    fn bytes_beside(&self, place: &Place) -> u64 {
        match self.share {
            StfShare::Equipment => bytes_read(self.files.iter()),
            StfShare::Files => bytes_dealt(&self.files, place),
        }
    }

    fn open(&self, mut opening: Opening<'_>) -> Result<Input, SourceError> {
        let source = open(self, &mut opening)?;
        Ok(Input::Made(Box::new(source)))
    }
}

fn open(source: &StfFileSource, opening: &mut Opening<'_>) -> Result<StfFile, SourceError> {
    let (flp, flps) = (opening.flp, opening.flps);
    let (mine, equipments): (Vec<&PathBuf>, _) = match source.share {
        StfShare::Equipment => {
            let equipments = Equipments::Dealt(share(flp, flps)?);
            (source.files.iter().collect(), equipments)
        }
        StfShare::Files => {
            let dealt = Dealt::one_file_a_flp("stf-file", source.files.len(), flp, flps)?;
            let first_counter = match source.first_counter {
                None => origin::first_counter(&source.files)?.unwrap_or(1),
                Some(given) => given,
            };
            let mine = dealt.files.iter().map(|index| &source.files[*index]);
            (mine.collect(), Equipments::All { first_counter })
        }
    };
    let memory = FileMemory::new(mine.iter().copied(), opening)?;
    let inputs = mine.iter().map(|file| memory.read(file));
    let inputs = inputs.collect::<Result<_, _>>()?;
    let (stfs, findings) = StfFile::new(inputs, equipments, source.payload.into());
    for (file, findings) in mine.iter().zip(&findings) {
        log_findings(file, findings);
    }
    if stfs.tfs_repeated() > 0 {
        let tfs = stfs.tfs_repeated();
        warn!(tfs, "TFs that stand a second time in a file are left out");
    }
    if let Some(source) = stfs.refused() {
        let files = names(&mine);
        return Err(SourceError::NotPages { flp, files, source });
    }
    if stfs.tfs_with_data() == 0 {
        let faults = findings.into_iter().flat_map(|findings| findings.faults);
        return Err(no_data(flp, &mine, faults.into_iter().next()));
    }
    Ok(stfs)
}
