//! Names of equipment: what the blocks of a file are ordered by.

use super::layout::{ANY, FLP, RAW_DATA, SHEAF};
use crate::detector::detector_name;
use crate::rdh::Rdh;
use sheaf_protocol::{FlpId, PayloadFormat};

/// Origin of data, by which a TF file is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Equipment {
    /// Kind of the data, ASCII, padded with zeros: `RAWDATA` for data of detectors.
    pub description: [u8; 16],
    /// The detector, ASCII, padded with a zero.
    pub origin: [u8; 4],
    /// Link of the detector: CRU id, end point and link id of raw data.
    pub subspec: u32,
}

impl Equipment {
    /// Returns the link of a page: origin by its system id, and `(CRU << 16) | ((link + 1) << (8 if end point 1))`.
    #[must_use]
    pub fn of_page(rdh: &Rdh) -> Self {
        let shift = if rdh.link.dw == 1 { 8 } else { 0 };
        Self {
            description: RAW_DATA,
            origin: origin_of(rdh.system_id),
            subspec: (u32::from(rdh.link.cru) << 16) | ((u32::from(rdh.link.link) + 1) << shift),
        }
    }

    /// Returns the equipment of a whole STF of `flp` that is not made of whole HBFs. A name of ours, which other
    /// readers pass on as it is.
    #[must_use]
    pub fn of_stf(flp: FlpId, format: PayloadFormat) -> Self {
        Self {
            description: SHEAF[usize::from(format.code()) % SHEAF.len()],
            origin: FLP,
            subspec: flp.0.into(),
        }
    }

    /// Returns the format of its payloads, as far as its name tells.
    #[must_use]
    pub fn format(&self) -> PayloadFormat {
        if self.description == RAW_DATA {
            return PayloadFormat::RdhPages;
        }
        let code = SHEAF.iter().position(|name| *name == self.description);
        code.and_then(|code| PayloadFormat::from_code(u8::try_from(code).ok()?))
            .unwrap_or_default()
    }

    /// Returns whether its payloads are RDH pages, as far as its name tells.
    #[must_use]
    pub fn is_pages(&self) -> bool {
        self.format() == PayloadFormat::RdhPages
    }

    /// Returns the FLP that made it, if it is a whole STF.
    #[must_use]
    pub fn flp(&self) -> Option<FlpId> {
        let is_ours = SHEAF.contains(&self.description) && self.origin == FLP;
        is_ours.then(|| u16::try_from(self.subspec).map(FlpId).ok())?
    }
}

impl std::fmt::Display for Equipment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}/{}/{:#x}",
            text(&self.origin),
            text(&self.description),
            self.subspec
        )
    }
}

/// Returns the letters of a padded name; a byte that is no printable ASCII becomes `?`.
#[must_use]
pub fn text(name: &[u8]) -> String {
    let end = name
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    let letter = |byte: &u8| {
        if byte.is_ascii_graphic() {
            char::from(*byte)
        } else {
            '?'
        }
    };
    name[..end].iter().map(letter).collect()
}

/// Returns the detector of a system id, `***` for those that are not known.
fn origin_of(system_id: u8) -> [u8; 4] {
    let mut origin = ANY;
    if let Some(name) = detector_name(system_id) {
        origin = [0; 4];
        origin[..name.len()].copy_from_slice(name.as_bytes());
    }
    origin
}
