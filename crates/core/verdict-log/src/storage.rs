//! Disk of one ICN: the interface between a ledger and its files.
//!
//! A [`Storage`] keeps the entries of a log and the state of its member (term and vote). Nothing waits: appends, cuts
//! and saves are visible to every query at once and go to the disk behind; [`Storage::sync`] returns a ticket, and
//! [`Storage::poll`] reports when everything before it is durable. Requests that come while the disk works go with the
//! next batch, so a slow disk makes larger batches, not a longer queue.

mod checkpoints;
mod disk;
mod layout;
mod log_files;
mod on_disk;
mod reader;
mod scan;
mod sim;
mod view;

pub use disk::Disk;
pub use log_files::{LogFiles, Op};
pub use on_disk::{DiskStorage, Writer};
pub use scan::{Findings, Torn};
pub use sim::{DiskFaults, DiskTotals, SimDisk, SimStorage, SimWriter};

pub(crate) use reader::LogReader;
pub(crate) use scan::scan;

use crate::entry::{BodyError, Entry};
use sheaf_protocol::{Term, Timestamp};
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Pause before a disk that failed is tried again.
pub const RETRY: Duration = Duration::from_millis(50);

/// State that a member must never forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The highest term that the member has taken part in.
    pub term: Term,
    /// The member's vote in that term.
    pub vote: Option<u16>,
    /// The seat in a majority; `None` for the log of a single ICN.
    pub seat: Option<Seat>,
}

/// The place of a member in a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Index of the member.
    pub icn: u16,
    /// Number of members.
    pub icns: u16,
    /// Whether the member may vote: since its disk was blank it has learnt everything that it may have known before.
    pub has_joined: bool,
}

/// Number of a request to make everything before it durable. Counts up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Event of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageNotice {
    /// Every request before this ticket is durable.
    Synced(Ticket),
    /// The disk fails. Failed writes leave no bytes that count; they are tried again until the disk works.
    Trouble(String),
    /// The disk works again.
    Healed,
}

/// Reason why a ledger directory cannot be used.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The system failed. Worth another try.
    #[error("cannot {action} {}: {source}", file.display())]
    Io {
        /// The action, such as `write`.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Synced data are missing or different. This member can neither lead nor vote: its word may stand for verdicts
    /// that it has forgotten. `docs/how-to/ledger.md` says how to replace it.
    #[error("{} is corrupt at byte {offset}: {why}, in what was synced", file.display())]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Offset of the first fault.
        offset: u64,
        /// The fault.
        why: String,
    },
    /// Another process has the directory.
    #[error("{} is in use by another process", folder.display())]
    Locked {
        /// The directory.
        folder: PathBuf,
    },
    /// An entry with a good checksum holds no records: another version or a bug wrote it.
    #[error("entry {index} cannot be read: {source}")]
    Body {
        /// Index of the entry.
        index: u64,
        /// Fault of the entry.
        source: BodyError,
    },
    /// The begin of the log was removed and no checkpoint stands for it: this member was being brought up to date when
    /// it ended, and cannot lead before it is.
    #[error("the log begins at entry {first} and holds no checkpoint up to entry {to}")]
    NoCheckpoint {
        /// The first entry.
        first: u64,
        /// Last entry of the search.
        to: u64,
    },
    /// The directory belongs to another log.
    #[error("the ledger directory is that of {found}, expected that of {expected}")]
    Seat {
        /// Owner of the directory.
        found: String,
        /// Expected owner.
        expected: String,
    },
}

/// Entries in order, until the first that cannot be read.
pub type Entries = Box<dyn Iterator<Item = Result<Entry, StorageError>> + Send>;

/// Disk of one ICN.
///
/// # Contract
///
/// - [`poll`](Self::poll) never says `Synced` of something that a crash can take away;
/// - batches are all or nothing only as far as the order goes: what is durable is always a prefix of what was asked;
/// - a failed write is tried again from the last durable point, with everything since then;
/// - equal calls of a simulated disk with equal seeds give equal answers.
pub trait Storage {
    /// Returns term and vote, as last saved, durable or not; `None` if none was ever saved.
    fn hard_state(&self) -> Option<HardState>;

    /// Returns the last entry; the one before [`first_index`](Self::first_index) if there is none.
    fn last_index(&self) -> u64;

    /// Returns the first entry that the log still has, or will have; a checkpoint stands for those before it.
    fn first_index(&self) -> u64;

    /// Returns the term of an entry, 0 at index 0, `None` behind the last one and before the one that the first
    /// follows.
    fn term_at(&self, index: u64) -> Option<Term>;

    /// Returns the first entry of the term of the entry at `index`, for leaders that look for the place where logs
    /// part.
    fn term_first(&self, index: u64) -> u64;

    /// Returns up to which index everything is durable.
    fn durable_index(&self) -> u64;

    /// Returns the number of records in the log.
    fn records(&self) -> u64;

    /// Appends entries. The first follows [`last_index`](Self::last_index), the others each other; anything else is
    /// a bug of the caller and panics.
    fn append(&mut self, entries: Vec<Entry>);

    /// Cuts off `from` and everything behind it.
    fn truncate(&mut self, from: u64);

    /// Releases entries: everything up to `committed` is final, so entries before the last checkpoint but one in it may
    /// be removed.
    fn release(&mut self, committed: u64);

    /// Discards all entries and goes on behind entry `index` of `term`, which others have in a checkpoint.
    fn reset(&mut self, index: u64, term: Term);

    /// Saves term and vote.
    fn save(&mut self, state: HardState);

    /// Requests that everything so far is made durable.
    fn sync(&mut self, now: Timestamp) -> Ticket;

    /// Returns the next event.
    fn poll(&mut self, now: Timestamp) -> Option<StorageNotice>;

    /// Returns when to poll again without an event.
    fn next_due(&self) -> Option<Timestamp> {
        None
    }

    /// Returns entries from `from` on, as many as `bytes_max` bytes of bodies allow, but one if there is one.
    ///
    /// # Errors
    ///
    /// If entries have to be read from the disk and cannot be.
    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Entry>, StorageError>;

    /// Returns all entries from the last checkpoint that ends at `to` or before, up to `to`, which are durable; the
    /// disk is read as they are consumed. From the first one if there is no checkpoint.
    ///
    /// # Errors
    ///
    /// If the disk cannot be read at all; [`StorageError::NoCheckpoint`].
    fn replay(&self, to: u64) -> Result<Entries, StorageError>;

    /// Returns the findings of the recovery, for people.
    fn findings(&self) -> Vec<String>;
}
