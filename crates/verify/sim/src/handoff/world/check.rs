//! Comparison of the files of all writers with what EPNs were answered.

use super::World;
use crate::invariant::{Broken, Invariant};
use sheaf_write::{Copies, CopyRow, HandoffId};

impl World<'_> {
    /// Returns the rule by which readers know which copies count.
    fn copies(&self) -> Copies {
        let mut copies = Copies::default();
        for (index, writer) in (0..).zip(&self.writers) {
            copies.add(index, writer.disk.rows.clone());
        }
        copies
    }

    /// Compares the files with what EPNs were answered.
    pub(super) fn check(&self) -> Result<(), Broken> {
        let copies = self.copies();
        for id in &self.given {
            let mut counting = Vec::new();
            for (index, writer) in (0..).zip(&self.writers) {
                let Some(counts) = writer.disk.files.get(id) else {
                    continue;
                };
                if counts.iter().any(|count| *count > 1) {
                    let text = format!(
                        "writer {index} has TF {} twice in a stream: {counts:?}",
                        id.tf.0
                    );
                    return Err((Invariant::WrittenOnce, text));
                }
                if copies.counts(index, *id) {
                    counting.push((index, counts.clone()));
                }
            }
            if !self.done.contains(id) {
                continue;
            }
            match counting.as_slice() {
                [] => {
                    let text = format!("TF {}, which was acknowledged, counts nowhere", id.tf.0);
                    return Err((Invariant::WrittenKept, text));
                }
                [(writer, counts)] if counts.contains(&0) => {
                    let text = format!("writer {writer} has TF {} in a part: {counts:?}", id.tf.0);
                    return Err((Invariant::WrittenKept, text));
                }
                [_] => {}
                several => {
                    let text = format!("TF {} counts at several writers: {several:?}", id.tf.0);
                    return Err((Invariant::WrittenOnce, text));
                }
            }
        }
        Ok(())
    }

    /// Whether a TF was stored by a life before the one of now.
    fn is_of_former(&self, row: &CopyRow) -> bool {
        row.held.as_ref().is_some_and(|held| {
            let life = self.lives[usize::from(held.epn.epn.0)];
            held.epn.incarnation.0 < life
        })
    }

    /// As [`check`](Self::check), when all nodes have nothing left to do.
    pub(super) fn check_end(&self) -> Result<(), Broken> {
        self.check()?;
        for (index, writer) in self.writers.iter().enumerate() {
            let is_open = |id: &HandoffId, row: &CopyRow| {
                // What came in after its EPN had died waits for the life after this one.
                let is_late = !self.committed.contains(id) && self.is_of_former(row);
                !row.elsewhere.is_empty() || row.waits() && !is_late
            };
            let open = writer.disk.rows.iter().find(|(id, row)| is_open(id, row));
            if let Some((id, row)) = open {
                let text = format!("writer {index} has not settled TF {}: {row:?}", id.tf.0);
                return Err((Invariant::WritesInTime, text));
            }
        }
        let copies = self.copies();
        for id in &self.given {
            let counts = |writer: &u16| {
                let has = self.writers[usize::from(*writer)]
                    .disk
                    .files
                    .contains_key(id);
                has && copies.counts(*writer, *id)
            };
            let counting: Vec<u16> = (0..self.options.writers).filter(counts).collect();
            if counting.len() > 1 {
                let text = format!("TF {} counts at the writers {counting:?}", id.tf.0);
                return Err((Invariant::WrittenOnce, text));
            }
            if self.revoked.contains(id) && !counting.is_empty() {
                let row = self.writers[usize::from(counting[0])].disk.rows.get(id);
                let tf = id.tf.0;
                let text = format!("TF {tf}, which was revoked, counts at {counting:?}: {row:?}");
                return Err((Invariant::WrittenOnce, text));
            }
        }
        Ok(())
    }
}
