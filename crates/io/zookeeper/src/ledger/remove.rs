//! Removal of segments that no takeover needs any more.

use super::{Purpose, Stage, ZooKeeperLedger};
use crate::keeper::{Answer, Keeper, KeeperError, Request, Step};
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
        // A removal whose answer was lost is repeated as it was: only so does a missing segment prove that all of
        // its segments are gone.
        let last = (self.first_segment + REMOVED_AT_ONCE).min(keep) - 1;
        let last = *self.removing.get_or_insert(last);
        let mut steps = vec![Step::Check { path, version }];
        steps.extend((self.first_segment..=last).map(|number| Step::Delete {
            path: self.paths.segment(number),
            version: None,
        }));
        self.ask(now, Purpose::Remove(last), Request::Multi(steps));
    }

    /// Handles the result of a removal up to segment `last`.
    pub(super) fn handle_removed(&mut self, last: u64, answer: Result<Answer, KeeperError>) {
        self.removing = None;
        match answer {
            Ok(_) => self.first_segment = last + 1,
            // All of them or none: they are gone by a request whose answer was lost.
            Err(error) if *error.root() == KeeperError::NoNode => self.first_segment = last + 1,
            // The rest is found by the next leader.
            Err(_) => self.remove_refused = self.keep_from().unwrap_or(0),
        }
    }
}
