//! Which copies of TFs count, of those that several writer nodes have.

use crate::handoff::HandoffId;
use crate::receipts::{CopyRow, CopyState};
use std::collections::BTreeMap;

/// Rows of the catalogues of writer nodes.
#[derive(Clone, Debug, Default)]
pub struct Copies(BTreeMap<u16, BTreeMap<HandoffId, CopyRow>>);

impl Copies {
    /// Adds the rows of one writer.
    pub fn add(&mut self, writer: u16, rows: BTreeMap<HandoffId, CopyRow>) {
        self.0.entry(writer).or_default().extend(rows);
    }

    /// Returns whether a TF in the files of a writer counts: it is not void there, not without an acknowledgement, does
    /// not wait for its commit, and no other writer has a later copy that replaces it.
    #[must_use]
    pub fn counts(&self, writer: u16, id: HandoffId) -> bool {
        let of = |writer: u16| self.0.get(&writer).and_then(|rows| rows.get(&id));
        let own = of(writer);
        if own.is_some_and(|row| row.state != CopyState::Written || row.waits()) {
            return false;
        }
        let number = own.map_or(0, |row| row.copy);
        let replaces = |row: &CopyRow| {
            let counts = row.state == CopyState::Written;
            counts && row.copy > number && row.elsewhere.contains(&writer)
        };
        !self.0.keys().filter_map(|other| of(*other)).any(replaces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receipts::HeldRow;
    use sheaf_protocol::{Attempt, EpnId, Incarnation, RunId, Target, TfId};

    #[test]
    fn the_latest_copy_counts_and_void_ones_do_not() {
        let id = HandoffId {
            run: RunId(1),
            tf: TfId(2),
            attempt: Attempt(1),
        };
        let row = |copy, state, elsewhere: &[u16]| CopyRow {
            copy,
            state,
            elsewhere: elsewhere.iter().copied().collect(),
            held: None,
        };
        let mut copies = Copies::default();
        assert!(copies.counts(0, id));
        copies.add(1, [(id, row(1, CopyState::Written, &[0]))].into());
        assert_eq!([0, 1].map(|it| copies.counts(it, id)), [false, true]);
        // It moved on before it was acknowledged.
        copies.add(1, [(id, row(2, CopyState::Void, &[]))].into());
        assert_eq!([0, 1].map(|it| copies.counts(it, id)), [true, false]);
        copies.add(2, [(id, row(2, CopyState::Written, &[0, 1]))].into());
        assert_eq!(
            [0, 1, 2].map(|it| copies.counts(it, id)),
            [false, false, true]
        );
        // What waits for its commit does not count; what is published does.
        for (published, counts) in [(None, false), (Some(3), true)] {
            let held = HeldRow {
                epn: Target {
                    epn: EpnId(1),
                    incarnation: Incarnation(1),
                },
                parts: Vec::new(),
                missing: Vec::new(),
                published,
                streams: Vec::new(),
            };
            let mut copies = Copies::default();
            let held = CopyRow {
                held: Some(held),
                ..row(0, CopyState::Written, &[])
            };
            copies.add(0, [(id, held)].into());
            assert_eq!(copies.counts(0, id), counts);
        }
        // What is settled there is void here.
        copies.add(2, [(id, row(2, CopyState::Written, &[]))].into());
        copies.add(0, [(id, row(2, CopyState::Void, &[]))].into());
        assert_eq!(
            [0, 1, 2].map(|it| copies.counts(it, id)),
            [false, false, true]
        );
    }
}
