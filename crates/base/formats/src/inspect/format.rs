//! Formats of files, as far as their first bytes show them.

use crate::km3net::{Packets, Records};
use crate::rdh::Rdh;
use crate::stf_file::FileTfs;
use crate::tf_file::is_tf_file;
use crate::xtc2::Datagrams;
use serde::Serialize;
use thiserror::Error;

/// Format of a detector file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileFormat {
    /// ALICE raw data: pages that begin with an RDH.
    Rdh,
    /// KM3NeT DAQ records or front-end packets.
    Km3net,
    /// LCLS-II datagrams.
    Xtc2,
    /// TFs as DataDistribution writes them.
    StfFile,
    /// A TF as Sheaf writes it.
    TfFile,
}

/// Refusal of a file whose first bytes are those of no format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no known format: the file starts with {found:02x?} (\"{}\"), expected {}", found.escape_ascii(), known())]
pub struct UnknownFormat {
    /// The first bytes, at most eight.
    pub found: Vec<u8>,
}

impl UnknownFormat {
    /// Returns the refusal of a file that begins with `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let found = bytes.get(..8).unwrap_or(bytes);
        Self {
            found: found.to_vec(),
        }
    }
}

/// Names all formats, for messages.
fn known() -> String {
    let formats = FileFormat::ALL.map(|format| format!("{} ({})", format.name(), format.about()));
    match formats.as_slice() {
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
        [] => String::new(),
    }
}

impl FileFormat {
    /// All formats.
    pub const ALL: [Self; 5] = [
        Self::Rdh,
        Self::Km3net,
        Self::Xtc2,
        Self::StfFile,
        Self::TfFile,
    ];
    /// First bytes of a file that tell its format.
    pub const START_BYTES: usize = 256;

    /// Detects the format from the first bytes of a file; `None` if they are those of no format that is known.
    #[must_use]
    pub fn detect(bytes: &[u8]) -> Option<Self> {
        let is = |format: &Self| match format {
            Self::Rdh => Rdh::is_at_start_of(bytes),
            Self::Km3net => Records::are_at_start_of(bytes) || Packets::are_at_start_of(bytes),
            Self::Xtc2 => Datagrams::are_at_start_of(bytes),
            Self::StfFile => FileTfs::are_at_start_of(bytes),
            Self::TfFile => is_tf_file(bytes),
        };
        // A file of DataDistribution has letters where a datagram has its service: the letters are the surer sign.
        let order = [
            Self::Rdh,
            Self::Km3net,
            Self::StfFile,
            Self::TfFile,
            Self::Xtc2,
        ];
        order.into_iter().find(is)
    }

    /// Returns what files of the format have.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Rdh => "ALICE raw data, RDH 6 or 7",
            Self::Km3net => "KM3NeT records or packets",
            Self::Xtc2 => "XTC2 datagrams",
            Self::StfFile => "TFs of DataDistribution",
            Self::TfFile => "a TF of Sheaf",
        }
    }

    /// Returns the name in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rdh => "rdh",
            Self::Km3net => "km3net",
            Self::Xtc2 => "xtc2",
            Self::StfFile => "stf-file",
            Self::TfFile => "tf-file",
        }
    }
}
