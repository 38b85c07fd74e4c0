//! The brain of an FLP: sources of STFs, cutting, re-stamping, generator, the hold of STFs.
//!
//! All of it is pure: slices and [`Bytes`](bytes::Bytes) in, values out. The node that drives it opens files, paces and
//! sends; `sheaf_formats` reads the bytes of detectors.

mod sliced;
pub mod source;

mod cut;
mod generator;
mod replay;

pub mod km3net;
pub mod stf_file;
pub mod tf_file;
pub mod xtc2;

mod backoff;
pub mod flp;
mod hold;

pub use backoff::Backoff;
pub use cut::{CutConfig, RawFile, Share, ShareError};
pub use generator::{Generator, GeneratorConfig, GeneratorError, SizeModel};
pub use replay::{Replay, ReplayConfig, ReplayError, Template};
pub use source::{HeapSlots, Made, Payload, Slots, StfSource};
