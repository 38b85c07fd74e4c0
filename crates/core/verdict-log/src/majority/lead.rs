//! Leading: a member sends its log to the others, counts their acknowledgements, and reports entries as durable.

use super::{MajorityLedger, MemberRole, Message};
use crate::entry::Entry;
use crate::records::Records;
use crate::replay::careful_replay;
use crate::storage::{Storage, StorageError};
use crate::{Notice, Position};
use sheaf_protocol::{Record, Timestamp, protect};
use std::collections::VecDeque;

/// Bytes under way to one follower before it acknowledges some.
const WINDOW_BYTES: usize = 2 << 20;

/// Leadership of one term.
#[derive(Debug)]
pub(super) struct Leadership {
    /// Index of the no-op entry that opens the term.
    no_op: u64,
    /// Whether the no-op entry is committed, and the leadership is reported to the outside.
    pub(super) is_public: bool,
    pub(super) pulse_due: Timestamp,
    /// Number of the last message.
    round: u64,
    /// Last entry of each append that is not reported as durable yet.
    open: VecDeque<(u64, Position)>,
}

/// Progress of a follower.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Index of the entry that is sent next.
    next: u64,
    /// Index up to which the follower has the log on its disk.
    matched: u64,
    /// First round whose answers count for `next`.
    round_first: u64,
    /// Last entry and bytes of each message that is not acknowledged.
    under_way: VecDeque<(u64, usize)>,
    is_sent_to: bool,
}

impl Progress {
    fn bytes_under_way(&self) -> usize {
        self.under_way.iter().map(|(_, bytes)| bytes).sum()
    }
}

impl<S: Storage> MajorityLedger<S> {
    pub(super) fn begin_leadership(&mut self, now: Timestamp) {
        let last = self.storage.last_index();
        let no_op = last + 1;
        self.storage
            .append(vec![Entry::no_op(self.state.term, no_op)]);
        self.storage.sync(now);
        self.leader = Some(self.config.me);
        self.is_orphan = false;
        self.appended = Position(0);
        for peer in &mut self.peers {
            peer.heard_at = now;
            peer.progress = Progress {
                next: no_op,
                ..Progress::default()
            };
        }
        self.role = MemberRole::Leader(Leadership {
            no_op,
            is_public: false,
            pulse_due: now,
            round: 0,
            open: VecDeque::new(),
        });
        self.run_leadership(now);
    }

    pub(super) fn append_records(&mut self, now: Timestamp, records: &[Record]) {
        let MemberRole::Leader(leadership) = &mut self.role else {
            return;
        };
        if !leadership.is_public {
            return;
        }
        let entries = Entry::of(self.state.term, self.storage.last_index() + 1, records);
        self.storage.append(entries);
        self.storage.sync(now);
        self.appended.0 += 1;
        leadership
            .open
            .push_back((self.storage.last_index(), self.appended));
    }

    pub(super) fn run_leadership(&mut self, now: Timestamp) {
        if !self.is_heard_by_most(now) {
            self.step_down(now, "it does not hear most of the ICNs");
            return;
        }
        if let Err(error) = self.count().and_then(|()| self.replicate()) {
            // It cannot serve the others, so it should not lead them.
            self.step_down(now, &error.to_string());
            return;
        }
        let MemberRole::Leader(leadership) = &mut self.role else {
            return;
        };
        if now >= leadership.pulse_due {
            leadership.pulse_due = now + self.config.pulse;
            self.pulse();
        }
    }

    /// Returns whether most members were heard lately. A leader that is not heard may have a successor; it could do no
    /// harm, but it should not claim to lead.
    fn is_heard_by_most(&self, now: Timestamp) -> bool {
        let limit = self.config.patience * 10 / 3;
        let heard = self.others().filter(|icn| {
            let peer = &self.peers[usize::from(*icn)];
            now < peer.heard_at + limit
        });
        heard.count() + 1 >= self.config.majority()
    }

    /// Counts the entries that most members have, and commits them.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    fn count(&mut self) -> Result<(), StorageError> {
        let mut matched: Vec<u64> = self
            .others()
            .map(|icn| self.peers[usize::from(icn)].progress.matched)
            .collect();
        matched.push(self.durable());
        matched.sort_unstable_by(|a, b| b.cmp(a));
        let on_majority = matched[self.config.majority() - 1];
        let most = protect!(MajorityCommit, on_majority, else self.durable());
        // An entry of an old term can be on most disks and still be overwritten; those before one of this term cannot.
        let is_own_term = self.storage.term_at(most) == Some(self.state.term);
        if protect!(OwnTermCommit, requires is_own_term) {
            self.commit = self.commit.max(most);
        }
        let durable = self.durable();
        let MemberRole::Leader(leadership) = &mut self.role else {
            return Ok(());
        };
        let is_safe = self.commit >= leadership.no_op && durable >= leadership.no_op;
        if !leadership.is_public && protect!(NoOpBeforeLeading, requires is_safe) {
            match self.storage.replay(leadership.no_op.min(durable)) {
                Ok(entries) => {
                    leadership.is_public = true;
                    self.out.push_back(Notice::Lead {
                        term: self.state.term,
                        replay: careful_replay(Records::new(entries), &self.has_failed),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        let mut done = None;
        while let Some((_, position)) = leadership
            .open
            .pop_front_if(|(index, _)| *index <= self.commit)
        {
            done = Some(position);
        }
        if let Some(position) = done {
            self.out.push_back(Notice::Durable(position));
        }
        self.storage.release(self.commit);
        Ok(())
    }

    /// Sends to each follower the entries that it lacks, as far as the window goes.
    ///
    /// # Errors
    ///
    /// If the log cannot be read.
    fn replicate(&mut self) -> Result<(), StorageError> {
        for icn in self.others() {
            loop {
                let peer = &self.peers[usize::from(icn)];
                let next = peer.progress.next;
                let is_full = peer.progress.bytes_under_way() >= WINDOW_BYTES;
                if !peer.is_connected || next > self.storage.last_index() || is_full {
                    break;
                }
                if next < self.storage.first_index() {
                    self.send_base(icn);
                    continue;
                }
                let page = self.storage.read(next, Message::ENTRIES_BYTES_MAX)?;
                self.send_entries(icn, page);
            }
        }
        Ok(())
    }

    fn pulse(&mut self) {
        for icn in self.others() {
            if !std::mem::take(&mut self.peers[usize::from(icn)].progress.is_sent_to) {
                self.send_entries(icn, Vec::new());
                self.peers[usize::from(icn)].progress.is_sent_to = false;
            }
        }
    }

    fn send_entries(&mut self, to: u16, entries: Vec<Entry>) {
        let MemberRole::Leader(leadership) = &mut self.role else {
            return;
        };
        leadership.round += 1;
        let round = leadership.round;
        let progress = &mut self.peers[usize::from(to)].progress;
        let previous_index = progress.next - 1;
        progress.is_sent_to = true;
        if let Some(last) = entries.last() {
            let bytes = entries.iter().map(|entry| entry.body.len() + 16).sum();
            progress.next = last.index + 1;
            progress.under_way.push_back((last.index, bytes));
        }
        let message = Message::Append {
            term: self.state.term,
            round,
            previous_index,
            previous_term: self.storage.term_at(previous_index).unwrap_or_default(),
            commit: self.commit,
            entries,
        };
        self.send(to, &message);
    }

    /// Sends the base of the log to a follower that it does not reach back to, and then all entries behind.
    fn send_base(&mut self, to: u16) {
        let base_index = self.storage.first_index() - 1;
        let base_term = self.storage.term_at(base_index).unwrap_or_default();
        let term = self.state.term;
        let MemberRole::Leader(leadership) = &mut self.role else {
            return;
        };
        leadership.round += 1;
        let round = leadership.round;
        let progress = &mut self.peers[usize::from(to)].progress;
        progress.is_sent_to = true;
        progress.next = base_index + 1;
        let message = Message::Install {
            term,
            round,
            base_index,
            base_term,
        };
        self.send(to, &message);
    }

    pub(super) fn handle_appended(&mut self, from: u16, round: u64, outcome: Result<u64, u64>) {
        let last = self.storage.last_index();
        let MemberRole::Leader(leadership) = &self.role else {
            return;
        };
        let progress = &mut self.peers[usize::from(from)].progress;
        match outcome {
            Ok(matched) if matched <= last => {
                progress.matched = progress.matched.max(matched);
                progress.next = progress.next.max(progress.matched + 1);
                while progress
                    .under_way
                    .front()
                    .is_some_and(|(index, _)| *index <= matched)
                {
                    progress.under_way.pop_front();
                }
            }
            Err(hint) if round >= progress.round_first => {
                progress.next = hint.clamp(1, progress.next);
                // It had more once if its disk was replaced meanwhile.
                progress.matched = progress.matched.min(progress.next - 1);
                progress.under_way.clear();
                progress.round_first = leadership.round + 1;
            }
            _ => {}
        }
    }

    /// Starts replication on an open stream to another ICN.
    pub(super) fn greet(&mut self, now: Timestamp, icn: u16) {
        match &mut self.role {
            MemberRole::Leader(leadership) => {
                // The other ICN may be in another life; its answer will show what it has.
                self.peers[usize::from(icn)].progress = Progress {
                    next: self.storage.last_index() + 1,
                    round_first: leadership.round + 1,
                    ..Progress::default()
                };
                self.send_entries(icn, Vec::new());
            }
            MemberRole::Joining(join) => join.ask_due = now,
            _ => {}
        }
    }

    /// Asks the follower that has most to campaign, after sending everything that it lacks.
    pub(super) fn hand_over(&mut self) {
        // Entries that cannot be read go with the next leader's own pages.
        drop(self.replicate());
        let connected = self
            .others()
            .filter(|icn| self.peers[usize::from(*icn)].is_connected);
        let best = connected.max_by_key(|icn| self.peers[usize::from(*icn)].progress.matched);
        if let Some(best) = best {
            self.send(
                best,
                &Message::Campaign {
                    term: self.state.term,
                },
            );
        }
    }
}
