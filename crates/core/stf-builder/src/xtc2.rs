//! A recorded segment of LCLS-II as the source of one FLP: XTC2 datagrams by timestamp.
//!
//! A run is several files that are joined by time: segments of different rates, so that many time windows have
//! data in some of them only.

use crate::sliced::Sliced;
use crate::source::{Made, Slots, StfSource};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_formats::Findings;
use sheaf_formats::xtc2::{Datagrams, Service};
use sheaf_protocol::{PayloadFormat, TfId};
use std::num::NonZeroU64;

/// Configuration of the cut of XTC2 files into TFs. All segments of a run have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Xtc2Config {
    /// Length of a TF in ns of event time.
    pub window_ns: NonZeroU64,
    /// When TF 0 begins, in ns since the origin of the event clock; without it, at the first event of the file.
    /// Segments of a run need the same: their first events differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ns: Option<u64>,
}

impl Default for Xtc2Config {
    fn default() -> Self {
        // One event of the 120 Hz of the first LCLS.
        Self {
            window_ns: NonZeroU64::new(8_333_333).expect("not 0"),
            first_ns: None,
        }
    }
}

/// STFs of one segment: TF n has the events of time window n, in the order of the file.
///
/// Only events are data of a TF; the other datagrams tell of the run. A window without an event is an empty STF.
#[derive(Clone, Debug)]
pub struct Xtc2File {
    sliced: Sliced,
}

impl Xtc2File {
    /// Cuts `input`, the bytes of a segment's file. Events before the first window are left out.
    #[must_use]
    pub fn new(input: Bytes, config: &Xtc2Config) -> (Self, Findings) {
        let mut findings = Findings::default();
        let mut datagrams = Datagrams::new(&input);
        let mut events = Vec::new();
        while let Some(datagram) = datagrams.next_good(&mut findings) {
            if datagram.service == Service::L1Accept {
                let end = datagram.offset + datagram.bytes.len();
                events.push((datagram.time.as_ns(), datagram.offset..end));
            }
        }
        let earliest = events.iter().map(|(ns, _)| *ns).min().unwrap_or(0);
        let first = config.first_ns.unwrap_or(earliest);
        let pieces = events.into_iter().filter_map(|(ns, piece)| {
            let since = ns.checked_sub(first)?;
            Some((since / config.window_ns, piece))
        });
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

impl StfSource for Xtc2File {
    fn format(&self) -> PayloadFormat {
        PayloadFormat::Xtc2Datagrams
    }

    fn bytes_max(&self) -> u64 {
        self.sliced.bytes_max()
    }

    fn make(&mut self, tf: TfId, slots: &mut dyn Slots) -> Made {
        self.sliced.make(tf, slots)
    }
}
