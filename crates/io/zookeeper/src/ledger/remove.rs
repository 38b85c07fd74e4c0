//! Removal of segments that no takeover needs any more.

use super::{Purpose, Stage, ZooKeeperLedger};
use crate::keeper::{Keeper, Request, Step};
use sheaf_protocol::Timestamp;

/// Segments that are removed with one request.
const REMOVED_AT_ONCE: u64 = 64;

impl<K: Keeper> ZooKeeperLedger<K> {
    /// Returns the first segment that is not to be removed.
    pub(super) fn keep_from(&self) -> Option<u64> {
        let former_run = self.opened.len().checked_sub(2).map(|at| self.opened[at]);
        let former_checkpoint = match self.checkpoints.len() {
            0 | 1 => None,
            _ => self.checkpoints.front().copied(),
        };
        former_run.max(former_checkpoint)
    }

    /// Removes segments before the last checkpoint but one, and those before the last finished run, oldest first.
    pub(super) fn remove_old(&mut self, now: Timestamp) {
        let Stage::Leading(writer) = &self.stage else {
            return;
        };
        let Some(keep) = self.keep_from() else {
            return;
        };
        let is_removing = |asked: &Purpose| matches!(asked, Purpose::Remove(_));
        let is_done = self.first_segment >= keep || self.remove_refused >= keep;
        if is_done || self.asked.values().any(is_removing) {
            return;
        }
        let version = Some(writer.version);
        let path = self.paths.term.clone();
        let last = (self.first_segment + REMOVED_AT_ONCE).min(keep) - 1;
        let mut steps = vec![Step::Check { path, version }];
        steps.extend((self.first_segment..=last).map(|number| Step::Delete {
            path: self.paths.segment(number),
            version: None,
        }));
        self.ask(now, Purpose::Remove(last), Request::Multi(steps));
    }
}
