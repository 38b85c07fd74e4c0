//! The verdict log: who may append to it, what is durable in it, and whether it all adds up.
//!
//! Leadership and the log are one thing here, because only the fenced append is the truth: leases, sessions and
//! clocks are hints about who is likely to succeed with it. An ICN holds one [`Ledger`] and asks it what is new.
//! It decides only while the ledger says that it leads, and acts on a decision only when the ledger says that it
//! is durable. Whoever leads next finds every durable record, and no other can be added behind its back.
//! Why: `docs/adr/2026-11-21-the-fenced-append-is-the-truth.md`.

pub mod entry;
pub mod event;
pub mod file;
pub mod majority;
pub mod memory;
mod replay;
pub mod storage;
pub mod verify;
pub mod zookeeper;

use bytes::Bytes;
use sheaf_protocol::{Record, Term, Timestamp};
use std::fmt;

/// How far a leader has appended: counts up with every [`append`](Ledger::append), from 1 in each term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

/// What is new about the log.
#[derive(Debug)]
pub enum Notice {
    /// This ICN leads from now on. What it appends is fenced by `term`, which nobody has had before.
    Lead {
        /// The term.
        term: Term,
        /// Every record of the log from its last checkpoint on, or from its begin if there is none.
        replay: Replay,
    },
    /// Everything appended in this term up to here is durable: it is in the log for ever.
    Durable(Position),
    /// This ICN leads no longer. What was not durable may be in the log or not; the next leader knows.
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
    /// Send this to another ICN.
    Send {
        /// Its index.
        to: u16,
        /// At most [`LEDGER_BYTES_MAX`](sheaf_protocol::Control::LEDGER_BYTES_MAX) bytes.
        message: Bytes,
    },
}

/// The records of a log, oldest first.
pub struct Replay(Box<dyn Iterator<Item = Record>>);

impl Replay {
    /// The records that `records` yields.
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

/// What a status view says of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerStatus {
    /// `memory`, `file`, `majority` or `zookeeper`.
    pub backend: &'static str,
    /// `leader`, `standby` or `candidate`.
    pub office: &'static str,
    /// The highest term known.
    pub term: Term,
    /// The ICN that leads, as far as is known.
    pub leader: Option<u16>,
    /// Records durable in the log.
    pub records: u64,
    /// The trouble there is, if any.
    pub trouble: Option<String>,
}

/// The verdict log as one ICN sees it.
///
/// Nothing here blocks: what takes time goes on elsewhere, and its end shows in [`poll`](Self::poll).
pub trait Ledger {
    /// Appends records, in order and all or none. Only a leader's append has an effect. A checkpoint is an append of
    /// its own, its head first; what is before it may be removed when it is durable.
    fn append(&mut self, now: Timestamp, records: Vec<Record>) -> Position;

    /// What is new; `None` when nothing is. A driver polls until then, after every event and every
    /// [`next_due`](Self::next_due).
    fn poll(&mut self, now: Timestamp) -> Option<Notice>;

    /// When to poll again although nothing has happened.
    fn next_due(&self) -> Option<Timestamp> {
        None
    }

    /// A message of the log of another ICN has come. It may hold any bytes.
    fn handle_message(&mut self, now: Timestamp, from: u16, message: &[u8]) {
        let _ = (now, from, message);
    }

    /// The stream to another ICN stands, or stands no longer.
    fn handle_peer(&mut self, now: Timestamp, icn: u16, is_connected: bool) {
        let _ = (now, icn, is_connected);
    }

    /// This process is about to end: if it leads and there are others, one of them should lead soon.
    fn resign(&mut self, now: Timestamp) {
        let _ = now;
    }

    /// Whether another ICN can go on when this one ends.
    fn has_others(&self) -> bool {
        false
    }

    /// Whether a takeover would be slow without another checkpoint: one should be appended soon.
    fn wants_checkpoint(&self) -> bool {
        false
    }

    /// For status views.
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

    fn wants_checkpoint(&self) -> bool {
        (**self).wants_checkpoint()
    }

    fn status(&self) -> LedgerStatus {
        (**self).status()
    }
}
