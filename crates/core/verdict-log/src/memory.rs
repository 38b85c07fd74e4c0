//! Log of one ICN that keeps nothing: it leads at once, and every append is durable as long as it lives.
//!
//! For a farm whose runs may end with their ICN, for tests and benches.

use crate::{Ledger, LedgerStatus, Notice, Position, Replay};
use sheaf_protocol::{Record, Term, Timestamp};

/// Log of one ICN in its own memory.
#[derive(Debug)]
pub struct MemoryLedger {
    term: Term,
    has_begun: bool,
    appended: Position,
    reported: Position,
    records: u64,
}

impl MemoryLedger {
    /// Returns a log that makes its ICN the leader in term 1.
    #[must_use]
    pub fn new() -> Self {
        Self {
            term: Term(1),
            has_begun: false,
            appended: Position(0),
            reported: Position(0),
            records: 0,
        }
    }
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger for MemoryLedger {
    fn append(&mut self, _now: Timestamp, records: Vec<Record>) -> Position {
        self.records += records.len() as u64;
        self.appended.0 += 1;
        self.appended
    }

    fn poll(&mut self, _now: Timestamp) -> Option<Notice> {
        if !self.has_begun {
            self.has_begun = true;
            return Some(Notice::Lead {
                term: self.term,
                replay: Replay::new(std::iter::empty()),
            });
        }
        (self.reported < self.appended).then(|| {
            self.reported = self.appended;
            Notice::Durable(self.reported)
        })
    }

    fn outlives_process(&self) -> bool {
        false
    }

    fn status(&self) -> LedgerStatus {
        LedgerStatus {
            backend: "memory",
            role: "leader",
            term: self.term,
            leader: Some(0),
            records: self.records,
            trouble: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_leads_at_once_and_what_is_appended_is_durable() {
        let (mut ledger, now) = (MemoryLedger::new(), Timestamp(0));
        assert!(matches!(
            ledger.poll(now),
            Some(Notice::Lead { term: Term(1), .. })
        ));
        assert!(ledger.poll(now).is_none());
        assert!(!ledger.outlives_process());
        let position = ledger.append(now, vec![Record::Over]);
        assert!(matches!(ledger.poll(now), Some(Notice::Durable(at)) if at == position));
        assert!(ledger.poll(now).is_none());
    }
}
