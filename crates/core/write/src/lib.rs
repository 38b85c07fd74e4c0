//! The brain of a writer: which file a record goes to, at which offset, and which worker writes it.
//!
//! A [`Writer`] takes records of streams and gives [`Action`]s to the driver that has the disks and the threads: open a
//! file, write a record at an offset, close a file. A file has the records of one stream in one block of the run; it is
//! cut in segments, each written by one worker. An [`Assignment`] says how the workers are chosen: one for a whole file
//! by what they have to do, or one for each segment, whichever is free.
//!
//! Of several disks, an [`Intake`] chooses the one of each file by the same assignments, leaves out those that fail,
//! are slow or full, and decides by the name of an [`Overload`] what becomes of records that none takes now.
//!
//! Of several writer nodes, a [`Handoff`] at the end of each EPN chooses the one of each TF, and moves what a writer
//! has not acknowledged; the [`Receipts`] of the writer see to it that a TF that comes again is in the files once.
//!
//! Checksums of segments are combined at the close ([`Sums`]), so a file is byte for byte, and sum for sum, what one
//! worker would have written. The crate is pure: no clock, no file, no thread.
//!
//! The problem is that of ATLAS' data loggers ("Storage balancing", 2017; `docs/explanation/writing.md`).

mod assign;
mod checksum;
mod copies;
mod disk;
mod fates;
mod handoff;
mod id;
mod intake;
mod names;
mod overload;
mod receipts;
mod template;
mod writer;

pub use assign::{Assignment, Unit, UnknownAssignment, assignments};
pub use checksum::{Kinds, Summing, Sums, SumsError, combine_adler32};
pub use copies::Copies;
pub use disk::{DiskLoad, LeftOut, Space};
pub use fates::{Fates, Lost};
pub use handoff::{Handoff, HandoffAction, HandoffConfig, HandoffId, WriterNews};
pub use id::{FileId, Place, StreamId};
pub use intake::{DiskNews, Intake, IntakeConfig, IntakeError, Planned, Want};
pub use names::{SharedName, disk_nodes};
pub use overload::{Overload, ShedReason};
pub use receipts::{CopyRow, CopyState, HeldRow, ReceiptAction, Receipts, Received};
pub use template::{FileName, Template, TemplateError, check_word};
pub use writer::{
    Action, Checkpoint, ClosedFile, Counts, Limits, OpenedFile, Refused, Segment, StreamConfig,
    SyncEvery, Writer, WriterConfig, WriterError,
};
