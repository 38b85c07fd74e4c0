//! A recorded KM3NeT file as the source of one FLP: one time slice a TF.

use crate::sliced::Sliced;
use crate::source::{Made, Slots, StfSource};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_formats::Findings;
use sheaf_formats::km3net::{Packets, Records};
use sheaf_protocol::{PayloadFormat, TfId};
use std::ops::Range;

/// Configuration of the cut of KM3NeT files into TFs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Km3netConfig {
    /// The slice that is TF 0: a frame index for records, a count of 100 ms since the origin of the clock for packets.
    /// By default the lowest of the file. FLPs with different files of a run need the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_slice: Option<u64>,
}

/// STFs of a KM3NeT file: TF n has all that belongs to time slice n since the first, in the order of the file.
///
/// Slices may stand in any order in the file. A slice that the file does not have is an empty STF.
#[derive(Clone, Debug)]
pub struct Km3netFile {
    sliced: Sliced,
}

impl Km3netFile {
    /// Cuts `input`, the bytes of a file of records or of packets. Slices before the first are left out.
    #[must_use]
    pub fn new(input: Bytes, config: &Km3netConfig) -> (Self, Findings) {
        let mut findings = Findings::default();
        let pieces = pieces(&input, &mut findings);
        let lowest = pieces.iter().map(|(slice, _)| *slice).min().unwrap_or(0);
        let first = config.first_slice.unwrap_or(lowest);
        let pieces = pieces
            .into_iter()
            .filter_map(|(slice, piece)| Some((slice.checked_sub(first)?, piece)));
        let sliced = Sliced::new(input, pieces);
        (Self { sliced }, findings)
    }

    /// Returns the number of TFs, empty ones included.
    #[must_use]
    pub fn tfs(&self) -> u64 {
        self.sliced.tfs()
    }

    /// Returns the number of TFs that have data.
    #[must_use]
    pub fn tfs_with_data(&self) -> usize {
        self.sliced.tfs_with_data()
    }
}

/// Returns the slice and the place of every record or packet of the input.
fn pieces(input: &[u8], findings: &mut Findings) -> Vec<(u64, Range<usize>)> {
    let range = |offset: usize, bytes: &[u8]| offset..offset + bytes.len();
    let mut pieces = Vec::new();
    if Packets::are_at_start_of(input) {
        let mut packets = Packets::new(input);
        while let Some(packet) = packets.next_good(findings) {
            pieces.push((packet.slice(), range(packet.offset, packet.bytes)));
        }
    } else {
        let mut records = Records::new(input);
        while let Some(record) = records.next_good(findings) {
            // A frame index counts from the start of the run: a negative one is damage, and in no slice.
            if let Ok(slice) = u64::try_from(record.frame_index) {
                pieces.push((slice, range(record.offset, record.bytes)));
            }
        }
    }
    pieces
}

impl StfSource for Km3netFile {
    fn format(&self) -> PayloadFormat {
        PayloadFormat::Km3netRecords
    }

    fn bytes_max(&self) -> u64 {
        self.sliced.bytes_max()
    }

    fn make(&mut self, tf: TfId, slots: &mut dyn Slots) -> Made {
        self.sliced.make(tf, slots)
    }
}
