//! Following: a member accepts entries, and acknowledges them when its disk has them.

use super::{MajorityLedger, MemberRole, Message};
use crate::entry::Entry;
use crate::storage::Storage;
use sheaf_protocol::{Term, Timestamp, protect};

impl<S: Storage> MajorityLedger<S> {
    #[expect(clippy::too_many_arguments, reason = "the fields of one message")]
    pub(super) fn handle_append(
        &mut self,
        now: Timestamp,
        from: u16,
        term: Term,
        round: u64,
        (previous_index, previous_term): (u64, Term),
        commit: u64,
        mut entries: Vec<Entry>,
    ) {
        // Without the fence the leader of an old term does not even learn that it is deposed.
        let asked = (from, term, round);
        if !self.hear_leader(now, asked, previous_index) {
            return;
        }
        let last = self.storage.last_index();
        let differs = self.storage.term_at(previous_index) != Some(previous_term);
        if previous_index > last || protect!(LogMatching, when differs) {
            // Go on behind the last entry, or before the whole term that the leader has otherwise.
            let hint = if previous_index > last {
                last + 1
            } else {
                self.storage.term_first(previous_index)
            };
            self.answer(asked, Err(hint));
            return;
        }
        let had = self.count_of_those_had(&entries);
        let new = entries.split_off(had);
        if new.first().is_some_and(|entry| entry.index <= self.commit) {
            // Only an ICN that is no leader can want that.
            self.refused += 1;
            return;
        }
        // A queue that only grows would be no help to a disk that fails.
        let is_new = !new.is_empty() && self.trouble.is_none();
        let mut end = previous_index + had as u64;
        if is_new {
            end += new.len() as u64;
            self.take_entries(now, new);
        }
        self.verified = self.verified.max(end);
        self.commit = self.commit.max(commit.min(self.verified));
        self.storage.release(self.commit);
        // New entries are acknowledged when the disk has them.
        if protect!(SyncBeforeAck, requires !is_new) {
            self.answer(asked, Ok(self.verified.min(self.durable())));
        }
        self.acknowledged = asked;
    }

    /// Notes a message of a leader; `false` if it is deposed.
    fn hear_leader(&mut self, now: Timestamp, asked: (u16, Term, u64), hint: u64) -> bool {
        let (from, term, round) = asked;
        if protect!(LogFence, when term < self.state.term) {
            // The answer carries the higher term, and the old leader learns of it.
            self.answer((from, self.state.term, round), Err(hint));
            return false;
        }
        match self.role {
            // There cannot be two leaders of one term.
            MemberRole::Leader(_) => return false,
            MemberRole::PreVote(_) | MemberRole::Candidate(_) => self.role = MemberRole::Follower,
            MemberRole::Follower | MemberRole::Joining(_) => {}
        }
        self.leader = Some(from);
        self.heard_at = now;
        self.is_orphan = false;
        self.be_patient(now);
        true
    }

    /// Replaces the log by the leader's: the entries that this member lacks are removed there, and a checkpoint stands
    /// for them, which comes next. Everything here is older than that checkpoint, which most members have without this
    /// one, so no committed entry depends on it.
    pub(super) fn handle_install(
        &mut self,
        now: Timestamp,
        from: u16,
        term: Term,
        round: u64,
        base: (u64, Term),
    ) {
        let asked = (from, term, round);
        if !self.hear_leader(now, asked, base.0) {
            return;
        }
        let (index, base_term) = base;
        if self.storage.term_at(index) == Some(base_term) {
            // This member has that entry, and with it all before.
            self.verified = self.verified.max(index);
            self.commit = self.commit.max(index);
            self.acknowledged = asked;
            return self.answer(asked, Ok(self.verified.min(self.durable())));
        }
        if index <= self.commit {
            // An old message; or only an ICN that is no leader can want that.
            self.refused += 1;
            return;
        }
        if self.trouble.is_none() {
            self.storage.reset(index, base_term);
            self.storage.sync(now);
            (self.verified, self.commit) = (index, index);
        }
        // Acknowledged when the disk has it.
        self.acknowledged = asked;
    }

    /// Returns how many of `entries`, from the first on, are in the log.
    fn count_of_those_had(&self, entries: &[Entry]) -> usize {
        let is_had = |entry: &&Entry| self.storage.term_at(entry.index) == Some(entry.term);
        entries.iter().take_while(is_had).count()
    }

    /// Puts entries in their place, instead of those of an old term.
    fn take_entries(&mut self, now: Timestamp, entries: Vec<Entry>) {
        let first = entries.first().map_or(u64::MAX, |entry| entry.index);
        if first <= self.storage.last_index() {
            self.verified = self.verified.min(first - 1);
            self.storage.truncate(first);
        }
        self.storage.append(entries);
        self.storage.sync(now);
    }

    fn answer(&mut self, (to, term, round): (u16, Term, u64), outcome: Result<u64, u64>) {
        self.send(
            to,
            &Message::Appended {
                term,
                round,
                outcome,
            },
        );
    }

    /// Acknowledges to the leader the entries that the disk has now.
    pub(super) fn acknowledge(&mut self, now: Timestamp) {
        if let (MemberRole::Follower | MemberRole::Joining(_), Some(leader)) =
            (&self.role, self.leader)
            && self.acknowledged.0 == leader
        {
            let matched = self.verified.min(self.durable());
            self.answer(self.acknowledged, Ok(matched));
        }
        self.look_whether_joined(now);
    }
}
