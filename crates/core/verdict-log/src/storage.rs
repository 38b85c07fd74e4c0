//! The disk of one ICN: what a ledger asks of it, and what it gets.
//!
//! A [`Storage`] keeps the entries of a log and the state of its member (term and vote). Nothing waits: what is
//! appended, cut or saved is seen by every question at once and goes to the disk behind; [`Storage::sync`] gives a
//! ticket, and [`Storage::poll`] says when everything before it is durable. What is asked while the disk works goes
//! with the next batch, so a slow disk makes larger batches, not a longer queue.

mod checkpoints;
pub mod disk;
mod file;
mod layout;
mod log_files;
mod reader;
mod scan;
mod sim;
mod view;

pub use disk::{Disk, OsDisk};
pub use file::{FileStorage, Waker};
pub use scan::{Findings, Torn};
pub use sim::{DiskFaults, DiskTotals, SimDisk, SimStorage};

pub(crate) use reader::LogReader;
pub(crate) use scan::scan;

use crate::entry::{BodyError, Entry};
use sheaf_protocol::{Term, Timestamp};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// What a member must never forget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The highest term it has taken part in.
    pub term: Term,
    /// Whom it has voted for in that term.
    pub vote: Option<u16>,
    /// Which member of which majority it is; `None` for the log of a single ICN.
    pub seat: Option<Seat>,
}

/// The place of a member in a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its index.
    pub icn: u16,
    /// How many members there are.
    pub icns: u16,
    /// Whether it may vote: since its disk was blank it has learnt everything that it may have known before.
    pub has_joined: bool,
}

/// The name of a request to make everything before it durable. They count up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What a disk has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageNotice {
    /// Everything asked for before this ticket was given is durable.
    Synced(Ticket),
    /// The disk fails. What it did not take leaves no bytes that count; it is tried again until it works.
    Trouble(String),
    /// It works again.
    Healed,
}

/// Why a ledger directory cannot be used.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The system failed. Worth another try.
    #[error("cannot {action} {}: {source}", file.display())]
    Io {
        /// Such as `write`.
        action: &'static str,
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What was synced once is not there any more or is different. This member can neither lead nor vote: its word
    /// may stand for verdicts that it has forgotten. `docs/ledger.md` says how to replace it.
    #[error("{} is corrupt at byte {offset}: {why}, in what was synced", file.display())]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// Where the first thing that is wrong begins.
        offset: u64,
        /// What is wrong.
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
        /// The index.
        index: u64,
        /// What is wrong.
        source: BodyError,
    },
    /// The begin of the log was removed and no checkpoint stands for it: this member was being brought up to date when
    /// it ended, and cannot lead before it is.
    #[error("the log begins at entry {first} and holds no checkpoint up to entry {to}")]
    NoCheckpoint {
        /// The first entry.
        first: u64,
        /// How far it was looked for.
        to: u64,
    },
    /// The directory belongs to another log.
    #[error("the ledger directory is that of {found}, expected that of {expected}")]
    Seat {
        /// Whose it is.
        found: String,
        /// Whose it should be.
        expected: String,
    },
}

/// Entries in order, until the first that cannot be read.
pub type Entries = Box<dyn Iterator<Item = Result<Entry, StorageError>> + Send>;

/// The disk of one ICN.
///
/// # Contract
///
/// - [`poll`](Self::poll) never says `Synced` of something that a crash can take away;
/// - batches are all or nothing only as far as the order goes: what is durable is always a prefix of what was asked;
/// - a failed write is tried again from the last durable point, with everything since then;
/// - equal calls of a simulated disk with equal seeds give equal answers.
pub trait Storage {
    /// Term and vote, as last saved, durable or not; `None` if none was ever saved.
    fn hard_state(&self) -> Option<HardState>;

    /// The last entry; the one before [`first_index`](Self::first_index) if there is none.
    fn last_index(&self) -> u64;

    /// The first entry that the log still has, or will have; what is before it a checkpoint stands for.
    fn first_index(&self) -> u64;

    /// The term of an entry, 0 at index 0, `None` behind the last one and before the one that the first follows.
    fn term_at(&self, index: u64) -> Option<Term>;

    /// The first entry of the term of the entry at `index`, for leaders that look for the place where logs part.
    fn term_first(&self, index: u64) -> u64;

    /// Up to here everything is durable.
    fn durable_index(&self) -> u64;

    /// Records in the log.
    fn records(&self) -> u64;

    /// Appends entries. The first follows [`last_index`](Self::last_index), the others each other; anything else is
    /// a bug of the caller and panics.
    fn append(&mut self, entries: Vec<Entry>);

    /// Cuts off `from` and everything behind it.
    fn truncate(&mut self, from: u64);

    /// Everything up to `committed` stays for ever: what lies before the last checkpoint but one in it may be removed.
    fn release(&mut self, committed: u64);

    /// Throws all entries away and goes on behind entry `index` of `term`, which others have in a checkpoint.
    fn reset(&mut self, index: u64, term: Term);

    /// Saves term and vote.
    fn save(&mut self, state: HardState);

    /// Asks for everything so far to be made durable.
    fn sync(&mut self, now: Timestamp) -> Ticket;

    /// What is new.
    fn poll(&mut self, now: Timestamp) -> Option<StorageNotice>;

    /// When to poll again although nothing has happened.
    fn next_due(&self) -> Option<Timestamp> {
        None
    }

    /// Entries from `from` on, as many as `bytes_max` bytes of bodies allow, but one if there is one.
    ///
    /// # Errors
    ///
    /// If they have to be read from the disk and cannot be.
    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Entry>, StorageError>;

    /// All entries from the last checkpoint that ends at `to` or before, up to `to`, which are durable, read while
    /// they are asked for. From the first one if there is no checkpoint.
    ///
    /// # Errors
    ///
    /// If the disk cannot be read at all; [`StorageError::NoCheckpoint`].
    fn replay(&self, to: u64) -> Result<Entries, StorageError>;

    /// What recovery found, for people.
    fn findings(&self) -> Vec<String>;
}
