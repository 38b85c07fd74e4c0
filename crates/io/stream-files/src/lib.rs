//! Streams written to files of this machine.
//!
//! An [`Engine`] drives the brain of `sheaf-write` with threads, files and a clock: records go in, each comes back when
//! it is written. A file has the name `NAME.part` until it is closed: written, synced, renamed, its folder synced, and
//! its row in the [`Catalogue`] committed, in this order, so a file with its final name is whole, whatever happens.
//! [`Engine::open`] brings a folder that a crash has left into that state.
//!
//! Records are acknowledged in the order of their file: the beginning of a file up to the last one that was
//! acknowledged has no gap, also if several workers write it.

mod buffer;
mod catalogue;
mod compare;
mod durability;
mod engine;
mod file;
mod folder;
mod local;
mod lock;
mod recovery;
mod ship_state;
mod shipments;
mod worker;

pub use catalogue::{Catalogue, CatalogueError, CatalogueLock, FileRow, FileState, Wanted};
pub use compare::compare_file;
pub use durability::Durability;
pub use engine::{Engine, EngineConfig, EngineError, EngineEvent};
pub use folder::{Folder, StoredFile};
pub use local::{IoMode, free_bytes, probe};
pub use lock::lock_file;
pub use recovery::{Found, RecoverError, SummingReader, Walk};
pub use ship_state::ShipState;
pub use shipments::{ShipTotal, Shipment, Shipments};
pub use worker::Record;
