//! Samples of monitoring, kept: durable within a commit, compressed, summed up in levels, found by labels.
//!
//! This crate answers: *where do samples stay, and what comes back?* Read [`Store`] for what every store promises, and
//! `docs/reference/sample-store.md` for the layout on disk. [`Disk`] is the store of a collector: a log and memory for
//! what is new (`log.rs`, `head.rs`), chunks and buckets in tables for what is older (`seal.rs`, `tables.rs`), bounded
//! upkeep in the calls of a driver (`disk/upkeep.rs`), answers from all of them (`query.rs`). [`Memory`] keeps nothing
//! beyond its life. No thread, no clock and no socket of its own; fjall has one thread that merges tables.
//!
//! ```
//! use sheaf_sample_store::{Config, Disk, Store as _};
//! use sheaf_samples::{Labels, Sample};
//!
//! let dir = tempfile::tempdir().unwrap();
//! let store = Disk::open(dir.path(), Config::default()).unwrap();
//! let series = store.intern(&Labels::new([("__name__", "tf_rate_hz")]).unwrap()).unwrap();
//! store.append(&[(series, Sample { at_ms: 1_790_000_000_000, value: 50.0 })]).unwrap();
//! store.commit().unwrap(); // survives a kill and a loss of power from here on
//! store.maintain(1_790_000_000_100).unwrap();
//! ```

mod chunk;
mod column;
mod config;
pub mod contract;
mod disk;
mod export;
mod fsck;
mod head;
mod index;
mod layers;
mod level;
mod log;
mod memory;
mod query;
mod record;
mod seal;
mod snapshot;
mod space;
mod store;
mod tables;

pub use config::Config;
pub use disk::Disk;
pub use export::ExportError;
pub use fsck::FsckReport;
pub use level::Kind;
pub use memory::Memory;
pub use space::{FileSystem, Space, Step};
pub use store::{Appended, SeriesId, Stats, Store, StoreError};
pub use tables::OpenError;
