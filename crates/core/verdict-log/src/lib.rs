//! The verdict log: the right to append to it, and the durability of its records.
//!
//! Leadership and the log are one thing here, because only the fenced append is the truth: leases, sessions and clocks
//! are hints about which ICN is likely to succeed with it. An ICN holds one [`Ledger`] and polls it. It decides only
//! while the ledger says that it leads, and acts on a decision only when the ledger says that it is durable. The next
//! leader finds every durable record, and no other can be added without its knowledge. Why:
//! `docs/adr/2026-11-21-the-fenced-append-is-the-truth.md`.

mod content;
pub mod entry;
pub mod event;
pub mod file;
pub mod majority;
pub mod memory;
pub mod records;
mod replay;
pub mod storage;

pub use content::LogContent;

use bytes::Bytes;
use sheaf_protocol::{Record, Term, Timestamp};
use std::fmt;

/// Position of a leader in its log: counts up with every [`append`](Ledger::append), from 1 in each term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// Event of the log.
#[derive(Debug)]
pub enum Notice {
    /// This ICN leads from now on. Its appends are fenced by `term`, which no ICN has had before.
    Lead {
        /// The term.
        term: Term,
        /// Every record of the log from its last checkpoint on, or from its begin if there is none.
        replay: Replay,
    },
    /// Everything appended in this term up to here is durable: it is in the log for ever.
    Durable(Position),
    /// This ICN leads no longer. Appends that were not durable may be in the log or not; the next leader knows.
    Deposed {
        /// The highest term known.
        term: Term,
        /// For the event log and for people.
        why: String,
    },
    /// The log cannot be written or read now. Nothing is lost: it is tried again until [`Healed`](Self::Healed).
    Trouble(String),
    /// The log can be written again.
    Healed,
    /// Send a message to another ICN.
    Send {
        /// Index of the ICN.
        to: u16,
        /// The message, at most [`LEDGER_BYTES_MAX`](sheaf_protocol::Control::LEDGER_BYTES_MAX) bytes.
        message: Bytes,
    },
}

/// Records of a log, oldest first.
pub struct Replay(Box<dyn Iterator<Item = Record>>);

impl Replay {
    /// Returns a replay of the records that `records` yields.
    pub fn new(records: impl Iterator<Item = Record> + 'static) -> Self {
        Self(Box::new(records))
    }
}

impl Iterator for Replay {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        self.0.next()
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Replay")
    }
}

/// State of the log, for status views.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerStatus {
    /// `memory`, `file`, `majority` or `zookeeper`.
    pub backend: &'static str,
    /// `leader`, `standby` or `candidate`.
    pub role: &'static str,
    /// Highest term known.
    pub term: Term,
    /// The ICN that leads, as far as is known.
    pub leader: Option<u16>,
    /// Records durable in the log.
    pub records: u64,
    /// The trouble, if there is any.
    pub trouble: Option<String>,
}

/// Verdict log as one ICN sees it.
///
/// Nothing here blocks: slow work goes on elsewhere, and its end shows in [`poll`](Self::poll).
pub trait Ledger {
    /// Appends records, in order and all or none. Only a leader's append has an effect. A checkpoint is an append of
    /// its own, its head first; records before it may be removed when it is durable.
    fn append(&mut self, now: Timestamp, records: Vec<Record>) -> Position;

    /// Returns the next notice; `None` when there is none. A driver polls until then, after every event and every
    /// [`next_due`](Self::next_due).
    fn poll(&mut self, now: Timestamp) -> Option<Notice>;

    /// Returns when to poll again without an event.
    fn next_due(&self) -> Option<Timestamp> {
        None
    }

    /// Handles a message of the log of another ICN. It may hold any bytes.
    fn handle_message(&mut self, now: Timestamp, from: u16, message: &[u8]) {
        let _ = (now, from, message);
    }

    /// Notes whether the stream to another ICN is open.
    fn handle_peer(&mut self, now: Timestamp, icn: u16, is_connected: bool) {
        let _ = (now, icn, is_connected);
    }

    /// Announces that this process is about to end: if it leads and there are others, one of them should lead soon.
    fn resign(&mut self, now: Timestamp) {
        let _ = now;
    }

    /// Returns whether another ICN can go on when this one ends.
    fn has_others(&self) -> bool {
        false
    }

    /// Returns whether another ICN may lead in a later term without a word of it here: it may have begun just now, or
    /// while this process was stopped.
    fn may_be_succeeded(&self) -> bool {
        self.has_others()
    }

    /// Returns whether the log outlives this process: another one can go on with the run.
    fn outlives_process(&self) -> bool {
        true
    }

    /// Returns whether a takeover would be slow without another checkpoint: one should be appended soon.
    fn wants_checkpoint(&self) -> bool {
        false
    }

    /// Returns the state, for status views.
    fn status(&self) -> LedgerStatus;
}

impl<L: Ledger + ?Sized> Ledger for Box<L> {
    fn append(&mut self, now: Timestamp, records: Vec<Record>) -> Position {
        (**self).append(now, records)
    }

    fn poll(&mut self, now: Timestamp) -> Option<Notice> {
        (**self).poll(now)
    }

    fn next_due(&self) -> Option<Timestamp> {
        (**self).next_due()
    }

    fn handle_message(&mut self, now: Timestamp, from: u16, message: &[u8]) {
        (**self).handle_message(now, from, message);
    }

    fn handle_peer(&mut self, now: Timestamp, icn: u16, is_connected: bool) {
        (**self).handle_peer(now, icn, is_connected);
    }

    fn resign(&mut self, now: Timestamp) {
        (**self).resign(now);
    }

    fn has_others(&self) -> bool {
        (**self).has_others()
    }

    fn may_be_succeeded(&self) -> bool {
        (**self).may_be_succeeded()
    }

    fn outlives_process(&self) -> bool {
        (**self).outlives_process()
    }

    fn wants_checkpoint(&self) -> bool {
        (**self).wants_checkpoint()
    }

    fn status(&self) -> LedgerStatus {
        (**self).status()
    }
}
