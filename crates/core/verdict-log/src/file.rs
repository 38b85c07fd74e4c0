//! Log of one ICN on its own disk: a restart goes on with the run in the next term.
//!
//! There is no other voter, so the ICN that has the directory leads. Durability depends on this one disk; an ICN that
//! must not end with its machine needs the majority log.

use crate::entry::Entry;
use crate::records::Records;
use crate::replay::careful_replay;
use crate::storage::{HardState, Storage, StorageError, StorageNotice, Ticket};
use crate::{Ledger, LedgerStatus, Notice, Position};
use sheaf_protocol::{Record, Term, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Log of one ICN on its own disk.
#[derive(Debug)]
pub struct FileLedger<S> {
    storage: S,
    term: Term,
    phase: Phase,
    appended: Position,
    /// Position that each open ticket makes durable.
    tickets: VecDeque<(Ticket, Position)>,
    trouble: Option<String>,
    /// Whether a replay could not be read to its end.
    has_failed: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The term is being saved; before the first poll there is no ticket yet.
    Opening(Option<Ticket>),
    Leads,
    Over,
}

impl<S: Storage> FileLedger<S> {
    /// Opens the log in `storage`, which leads in the next term as soon as that is durable.
    ///
    /// # Errors
    ///
    /// [`StorageError::Seat`] if the directory is that of a member of a majority, whose log is not its own.
    pub fn open(mut storage: S) -> Result<Self, StorageError> {
        let state = storage.hard_state().unwrap_or_default();
        if let Some(seat) = state.seat {
            return Err(StorageError::Seat {
                found: format!("ICN {} of {}", seat.icn, seat.icns),
                expected: "a single ICN".to_owned(),
            });
        }
        let term = Term(state.term.0 + 1);
        storage.save(HardState {
            term,
            ..HardState::default()
        });
        Ok(Self {
            storage,
            term,
            phase: Phase::Opening(None),
            appended: Position(0),
            tickets: VecDeque::new(),
            trouble: None,
            has_failed: Arc::default(),
        })
    }

    /// Returns the findings of the recovery, for people.
    pub fn findings(&self) -> Vec<String> {
        self.storage.findings()
    }

    fn lead(&mut self) -> Notice {
        let replay = self.storage.replay(self.storage.last_index());
        match replay {
            Ok(entries) => {
                self.phase = Phase::Leads;
                Notice::Lead {
                    term: self.term,
                    replay: careful_replay(Records::new(entries), &self.has_failed),
                }
            }
            Err(error) => self.give_up(error.to_string()),
        }
    }

    fn give_up(&mut self, why: String) -> Notice {
        self.phase = Phase::Over;
        self.trouble = Some(why.clone());
        Notice::Deposed {
            term: self.term,
            why,
        }
    }
}

impl<S: Storage> Ledger for FileLedger<S> {
    fn append(&mut self, now: Timestamp, records: Vec<Record>) -> Position {
        if self.phase == Phase::Leads {
            let entries = Entry::of(self.term, self.storage.last_index() + 1, &records);
            self.storage.append(entries);
            self.appended.0 += 1;
            self.tickets
                .push_back((self.storage.sync(now), self.appended));
        }
        self.appended
    }

    fn poll(&mut self, now: Timestamp) -> Option<Notice> {
        if self.phase == Phase::Opening(None) {
            self.phase = Phase::Opening(Some(self.storage.sync(now)));
        }
        if self.phase == Phase::Leads && self.has_failed.load(Ordering::Relaxed) {
            return Some(self.give_up("the log could not be read to its end".to_owned()));
        }
        while let Some(notice) = self.storage.poll(now) {
            match notice {
                StorageNotice::Trouble(why) => {
                    self.trouble = Some(why.clone());
                    return Some(Notice::Trouble(why));
                }
                StorageNotice::Healed => {
                    self.trouble = None;
                    return Some(Notice::Healed);
                }
                StorageNotice::Synced(ticket) => match self.phase {
                    Phase::Opening(Some(wanted)) if wanted <= ticket => return Some(self.lead()),
                    Phase::Leads => {
                        let mut durable = None;
                        while let Some((_, position)) =
                            self.tickets.pop_front_if(|(open, _)| *open <= ticket)
                        {
                            durable = Some(position);
                        }
                        self.storage.release(self.storage.durable_index());
                        if let Some(position) = durable {
                            return Some(Notice::Durable(position));
                        }
                    }
                    _ => {}
                },
            }
        }
        None
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.storage.next_due()
    }

    fn status(&self) -> LedgerStatus {
        let leads = self.phase == Phase::Leads;
        LedgerStatus {
            backend: "file",
            role: if leads { "leader" } else { "candidate" },
            term: self.term,
            leader: leads.then_some(0),
            records: self.storage.records(),
            trouble: self.trouble.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
