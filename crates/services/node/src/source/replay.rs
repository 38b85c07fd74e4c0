//! Recorded pages as an endless stream.

use super::deal::share;
use super::files::{bytes_read, log_findings, names, read};
use super::{Input, Opening, Place, SourceError, SourceKind};
use serde::{Deserialize, Serialize};
use sheaf_protocol::FlpId;
use sheaf_stf_builder::{Replay, ReplayConfig, Template};
use std::num::NonZeroU32;
use std::path::PathBuf;

/// The `[flp.source]` table with `kind = "replay"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplaySource {
    /// Files of RDH pages. Every FLP reads all of them; their links are dealt out over the FLPs.
    pub files: Vec<PathBuf>,
    /// LHC orbits of one TF, 88.9 µs each.
    pub orbits_per_tf: NonZeroU32,
    /// The orbit that TF 0 begins with.
    pub first_orbit: u32,
}

impl Default for ReplaySource {
    fn default() -> Self {
        let stamps = ReplayConfig::default();
        Self {
            files: vec!["testdata/alice-its-rdh7/12_links_2hbf.raw".into()],
            orbits_per_tf: stamps.orbits_per_tf,
            first_orbit: stamps.first_orbit,
        }
    }
}

impl SourceKind for ReplaySource {
    fn files(&self) -> Option<&[PathBuf]> {
        Some(&self.files)
    }

    /// The recorded pages, and the image that STFs are made of.
    fn bytes_beside(&self, _place: &Place) -> u64 {
        bytes_read(self.files.iter()).saturating_mul(2)
    }

    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError> {
        let source = open(self, opening.flp, opening.flps)?;
        Ok(Input::Made(Box::new(source)))
    }
}

fn open(source: &ReplaySource, flp: FlpId, flps: u32) -> Result<Replay, SourceError> {
    let share = share(flp, flps)?;
    let inputs = source
        .files
        .iter()
        .map(|file| read(file))
        .collect::<Result<Vec<_>, _>>()?;
    let error = |source_error| SourceError::Replay {
        files: names(&source.files),
        source: source_error,
    };
    let slices: Vec<&[u8]> = inputs.iter().map(AsRef::as_ref).collect();
    let (template, findings) = Template::from_pages(&slices).map_err(error)?;
    for (file, findings) in source.files.iter().zip(&findings) {
        log_findings(file, findings);
    }
    let config = ReplayConfig {
        orbits_per_tf: source.orbits_per_tf,
        first_orbit: source.first_orbit,
    };
    Replay::new(&template, config, share).map_err(error)
}
