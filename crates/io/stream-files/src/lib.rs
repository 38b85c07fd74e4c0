//! Streams written to files of this machine.
//!
//! An [`Engine`] drives the brain of `sheaf-write` with threads, files and a clock: records go in, each comes back when
//! it is written. A file has the name `NAME.part` until it is closed: written, synced, renamed, its folder synced, and
//! its row in the [`Catalogue`] committed, in this order, so a file with its final name is whole, whatever happens.
//! [`Engine::open`] brings a folder that a crash has left into that state.
//!
//! Of several disks, each has an engine and a folder of its own ([`Disks`]): one that fails or hangs keeps no other
//! from writing.
//!
//! Records are acknowledged in the order of their file: the beginning of a file up to the last one that was
//! acknowledged has no gap, also if several workers write it. Records whose bytes do not tell where they end
//! ([`Record::tells_its_end`]) have entries in a list beside their file until it is closed.

mod buffer;
mod catalogue;
mod compare;
mod copies;
mod disks;
mod durability;
mod engine;
mod file;
mod folder;
mod label;
mod local;
mod lock;
mod record_list;
mod recovery;
mod ring;
mod ship_state;
mod shipments;
mod worker;

pub use catalogue::{Catalogue, CatalogueError, CatalogueLock, FileRow, FileState, Wanted};
pub use compare::{compare_file, compare_sums};
pub use copies::{CopyTable, void_tfs};
pub use disks::{Disks, DisksEvent};
pub use durability::Durability;
pub use engine::{Engine, EngineConfig, EngineError, EngineEvent};
pub use folder::{Folder, StoredFile};
pub use label::{Label, Labels, side_car};
pub use local::{IoMode, free_bytes, probe};
pub use lock::{FileLock, lock_file};
pub use recovery::{Found, RecoverError, SummingReader, Walk};
pub use ship_state::ShipState;
pub use shipments::{Place, ShipTotal, Shipment, Shipments};
pub use worker::Record;
