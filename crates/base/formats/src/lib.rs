//! Formats of detector data and of Sheaf's own files: read, checked and written, byte by byte.
//!
//! | module | format |
//! | --- | --- |
//! | [`Rdh`], [`Walker`], [`hbfs`] | ALICE raw data: headers, pages, heartbeat frames |
//! | [`km3net`] | KM3NeT: DAQ records and front-end packets |
//! | [`xtc2`] | LCLS-II: datagrams |
//! | [`stf_file`] | TF files as DataDistribution writes them |
//! | [`tf_file`] | TF files of Sheaf, and what a consumer at a socket reads |
//! | [`StreamFormat`] | files of streams: which of these formats one has |
//!
//! All of it is pure: slices in, values out. Damage is reported as [`Findings`] with kind and place, and the good
//! part of an input is kept. The crate depends on `protocol` only, so that a program that is no node can read files.

mod detector;
mod fault;
mod fields;
mod hbf;
mod order;
mod pieces;
mod rdh;
mod stream;
mod verify;
mod view;
mod walk;

pub mod inspect;
pub mod km3net;
pub mod sample;
pub mod stf_file;
pub mod tf_file;
pub mod xtc2;

pub use detector::{detector_name, detectors};
pub use fault::{Fault, FaultKind, Findings, Note, NoteKind};
pub use hbf::{Hbf, earliest, hbfs};
pub use pieces::{bytes_of, join};
pub use rdh::{Link, Rdh, RdhError, Stamp, trigger};
pub use stream::StreamFormat;
pub use verify::{Counts, StfFault, check_stf};
pub use view::{View, digest_of};
pub use walk::{Page, Pages, Walker};
