//! TF files as DataDistribution writes them, byte by byte: walk and layout.
//!
//! A file is a row of TFs. Each begins with a header and 24 bytes about it, then an index of its equipment, then
//! blocks: a header of 96 bytes and the data of one heartbeat frame. Layout: `docs/reference/stf-file.md`, after
//! AliceO2Group/DataDistribution `src/common/SubTimeFrameFile.*` and AliceO2 `Headers/DataHeader.h`.

mod detector;
mod equipment;
mod header;
mod layout;
mod next;
mod payload;
mod read;
mod walk;
mod write;

pub use detector::detector_of;
pub use equipment::{Equipment, text};
pub use header::{Block, DataHeader, HeaderError};
pub use next::{NextStf, next_stf};
pub use payload::{Excerpt, NotPages, PayloadError, TfPayload, pages_of};
pub use read::{FileTf, FileTfs};
pub use walk::tf_places;
pub(crate) use walk::{Blocks, TfWalk};
pub use write::{Piece, TfImage, TfName};

#[cfg(test)]
mod tests;
