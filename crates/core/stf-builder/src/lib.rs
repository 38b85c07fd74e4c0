//! The brain of an FLP: raw-data walkers, cutting, re-stamping, generator, the hold of STFs.
//!
//! All of it is pure: slices and [`Bytes`](bytes::Bytes) in, values out. The node that drives it opens files, paces and
//! sends.

mod sliced;
pub mod source;

mod fault;
mod fields;
mod order;
mod rdh;
mod walk;

mod cut;
mod generator;
mod replay;

pub mod km3net;
pub mod stf_file;
pub mod xtc2;

pub mod inspect;
mod verify;

pub use backoff::Backoff;
pub use cut::{CutConfig, Hbf, RawFile, Share, ShareError, hbfs};
pub use fault::{Fault, FaultKind, Findings, Note, NoteKind};
pub use generator::{Generator, GeneratorConfig, GeneratorError, SizeModel};
pub use rdh::{Link, Rdh, RdhError, Stamp, trigger};
pub use replay::{Replay, ReplayConfig, ReplayError, Template};
pub use source::{HeapSlots, Made, Slots, StfSource};
pub use verify::{Counts, StfFault, check_stf};
pub use walk::{Page, Pages, Walker};

mod backoff;
pub mod flp;
mod hold;
