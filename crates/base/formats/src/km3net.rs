//! KM3NeT, the second detector: online DAQ records (time slices, summary slices, events) and the raw UDP
//! packets of its front-end boards.
//!
//! Layout: `docs/reference/formats.md`, section "KM3NeT", after the files of km3net-testdata and KM3NeT's Jpp.

mod packet;
mod record;

pub(crate) use packet::PacketWalk;
pub use packet::{Packet, PacketKind, Packets};
pub(crate) use record::next_record;
pub use record::{FrameCounts, Record, RecordKind, Records};
