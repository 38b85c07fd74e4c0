//! Joining: a member with a blank disk.
//!
//! The member may be new, or have forgotten the votes it gave and the entries it acknowledged. If it voted now, two
//! leaders of one term or a leader without a committed entry could follow. So it first asks all others for their terms,
//! and promises nothing below the highest of them: every term that it may have voted in is one that its candidate had
//! saved. Then it follows, without a vote, until it has everything that the leader of that term or a later one had when
//! asked; that leader has all that was ever committed, with its help or without. If all others are as blank as itself,
//! there is nothing to forget, and the farm starts for the first time.

use super::{MajorityLedger, MemberRole, Message, Wait};
use crate::storage::{Seat, Storage};
use sheaf_protocol::{Term, Timestamp};
use std::collections::BTreeMap;

/// Progress of a member that joins.
#[derive(Debug)]
pub(super) struct Join {
    nonce: u64,
    /// Terms and last entries in the answers so far; `None` when all have answered.
    answers: Option<BTreeMap<u16, (Term, u64)>>,
    /// Term and index of the entry that the member needs to have.
    goal: Option<(Term, u64)>,
    pub(super) ask_due: Timestamp,
    /// Whether the member has all entries, and notes so on its disk.
    is_done: bool,
}

impl Join {
    pub(super) fn new(nonce: u64) -> Self {
        Self {
            nonce,
            answers: Some(BTreeMap::new()),
            goal: None,
            ask_due: Timestamp(0),
            is_done: false,
        }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.answers.is_some()
    }

    /// Forgets the goal: the log of a former leader is not enough any more.
    pub(super) fn forget_goal(&mut self) {
        self.goal = None;
    }
}

impl<S: Storage> MajorityLedger<S> {
    pub(super) fn run_join(&mut self, now: Timestamp) {
        let others: Vec<u16> = self.others().collect();
        let MemberRole::Joining(join) = &mut self.role else {
            return;
        };
        if now < join.ask_due {
            return;
        }
        join.ask_due = now + self.config.pulse;
        let (term, nonce) = (self.state.term, join.nonce);
        let asked: Vec<u16> = match &join.answers {
            Some(answers) => {
                let is_silent = |icn: &u16| !answers.contains_key(icn);
                others.into_iter().filter(is_silent).collect()
            }
            None => self.leader.into_iter().collect(),
        };
        for icn in asked {
            self.send(icn, &Message::AskState { term, nonce });
        }
    }

    pub(super) fn send_state(&mut self, to: u16, nonce: u64) {
        let message = Message::State {
            term: self.state.term,
            nonce,
            last_index: self.storage.last_index(),
            is_leader: matches!(self.role, MemberRole::Leader(_)),
        };
        self.send(to, &message);
    }

    /// Takes the state in another ICN's answer to the first question.
    pub(super) fn take_state(
        &mut self,
        now: Timestamp,
        from: u16,
        term: Term,
        nonce: u64,
        last_index: u64,
    ) {
        let MemberRole::Joining(join) = &mut self.role else {
            return;
        };
        let Some(answers) = &mut join.answers else {
            return;
        };
        if nonce != join.nonce {
            return;
        }
        answers.insert(from, (term, last_index));
        if answers.len() + 1 < usize::from(self.config.icns) {
            return;
        }
        let own = (self.state.term, self.storage.last_index());
        let highest = answers
            .values()
            .map(|(term, _)| *term)
            .max()
            .unwrap_or_default();
        let blank = (Term(0), 0);
        let is_first_start = own == blank && answers.values().all(|answer| *answer == blank);
        join.answers = None;
        if is_first_start {
            self.end_join(now);
            return;
        }
        self.state.term = self.state.term.max(highest);
        // Its vote in that term is not known, so it counts as spent.
        self.state.vote = Some(self.config.me);
        self.storage.save(self.state);
        self.storage.sync(now);
    }

    /// Takes the goal in the leader's answer.
    pub(super) fn take_goal(&mut self, now: Timestamp, nonce: u64, term: Term, last_index: u64) {
        if let MemberRole::Joining(join) = &mut self.role
            && !join.is_asking()
            && join.nonce == nonce
            && join.goal.is_none()
        {
            join.goal = Some((term, last_index));
            self.look_whether_joined(now);
        }
    }

    pub(super) fn look_whether_joined(&mut self, now: Timestamp) {
        if let MemberRole::Joining(join) = &self.role
            && let Some((term, last_index)) = join.goal
            && !join.is_done
            && term == self.state.term
            && self.verified.min(self.durable()) >= last_index
        {
            self.end_join(now);
        }
    }

    fn end_join(&mut self, now: Timestamp) {
        self.state.seat = Some(Seat {
            icn: self.config.me,
            icns: self.config.icns,
            has_joined: true,
        });
        self.storage.save(self.state);
        let ticket = self.storage.sync(now);
        self.waits.push_back((ticket, Wait::Joined));
        if let MemberRole::Joining(join) = &mut self.role {
            join.is_done = true;
        }
    }

    /// Takes the seat: the disk knows that this member may vote.
    pub(super) fn take_seat(&mut self, now: Timestamp) {
        if matches!(self.role, MemberRole::Joining(_)) {
            self.role = MemberRole::Follower;
            self.be_patient(now);
        }
    }

    /// Returns why this member does not count yet, for people.
    pub(super) fn joining_text(&self) -> Option<String> {
        let MemberRole::Joining(join) = &self.role else {
            return None;
        };
        let Some(answers) = &join.answers else {
            return Some("its disk was blank: it fetches the log and has no vote yet".to_owned());
        };
        let silent = self.others().filter(|icn| !answers.contains_key(icn));
        let silent: Vec<String> = silent.map(|icn| icn.to_string()).collect();
        Some(format!(
            "its disk is blank: waits for an answer of every other ICN, of {} still",
            silent.join(", ")
        ))
    }
}
