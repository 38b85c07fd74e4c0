//! Election of the next leader: pre-votes, votes, campaigns.

use super::{MajorityLedger, MemberRole, Message, Wait};
use crate::storage::Storage;
use sheaf_protocol::{Term, Timestamp, protect};
use std::collections::BTreeSet;

impl<S: Storage> MajorityLedger<S> {
    /// Returns term and index of the last entry.
    fn last(&self) -> (Term, u64) {
        let index = self.storage.last_index();
        (self.storage.term_at(index).unwrap_or_default(), index)
    }

    /// Starts a pre-vote when a member that does not lead has waited long enough.
    pub(super) fn run_clock(&mut self, now: Timestamp) {
        if now < self.campaign_due {
            return;
        }
        self.leader = None;
        if self.is_orphan {
            // The others may learn of the leader's death a little later: ask again soon.
            let (low, high) = (self.config.pulse / 2, self.config.pulse * 2);
            self.campaign_due = now + self.draw(low, high);
        } else {
            self.be_patient(now);
        }
        if !self.may_campaign() {
            return;
        }
        // A member that is cut off would only drive its term up, and disturb all others when it is back.
        self.role = MemberRole::PreVote(BTreeSet::from([self.config.me]));
        let (last_term, last_index) = self.last();
        let term = Term(self.state.term.0 + 1);
        let is_pre_vote = true;
        self.send_all(&Message::AskVote {
            term,
            is_pre_vote,
            last_index,
            last_term,
        });
        self.count_votes(now);
    }

    /// Campaigns in the next term: first for itself, on its own disk.
    pub(super) fn campaign(&mut self, now: Timestamp) {
        self.state.term = Term(self.state.term.0 + 1);
        self.state.vote = Some(self.config.me);
        self.storage.save(self.state);
        self.leader = None;
        self.verified = 0;
        self.role = MemberRole::Candidate(BTreeSet::new());
        if self.is_orphan {
            let (low, high) = (self.config.pulse * 3 / 2, self.config.pulse * 3);
            self.campaign_due = now + self.draw(low, high);
        } else {
            self.be_patient(now);
        }
        let ticket = self.storage.sync(now);
        self.waits
            .push_back((ticket, Wait::Campaign(self.state.term)));
    }

    /// Asks the others for votes, after the own vote is durable.
    pub(super) fn ask_for_votes(&mut self, now: Timestamp, term: Term) {
        if term != self.state.term {
            return;
        }
        let MemberRole::Candidate(votes) = &mut self.role else {
            return;
        };
        votes.insert(self.config.me);
        let (last_term, last_index) = self.last();
        let is_pre_vote = false;
        self.send_all(&Message::AskVote {
            term,
            is_pre_vote,
            last_index,
            last_term,
        });
        self.count_votes(now);
    }

    /// Handles another ICN's request for a vote, with the term and index of its last entry.
    pub(super) fn handle_ask(
        &mut self,
        now: Timestamp,
        from: u16,
        term: Term,
        is_pre_vote: bool,
        last: (Term, u64),
    ) {
        let is_new_enough = protect!(UpToDateVote, requires last >= self.last());
        let can_vote = !matches!(self.role, MemberRole::Joining(_)) && is_new_enough;
        if is_pre_vote {
            let hears_leader = matches!(self.role, MemberRole::Leader(_))
                || self.leader.is_some() && now < self.heard_at + self.config.patience;
            let is_granted = can_vote && !hears_leader && term > self.state.term;
            self.send_vote(from, term, true, is_granted);
            return;
        }
        let is_free = self.state.vote.is_none_or(|vote| vote == from);
        if term != self.state.term || !can_vote || !is_free {
            self.send_vote(from, term, false, false);
            return;
        }
        self.state.vote = Some(from);
        self.be_patient(now);
        protect!(DurableVote, else return self.send_vote(from, term, false, true));
        let is_waiting =
            |wait: &Wait| matches!(wait, Wait::Vote(to, of) if (*to, *of) == (from, term));
        if self.waits.iter().any(|(_, wait)| is_waiting(wait)) {
            return;
        }
        self.storage.save(self.state);
        let ticket = self.storage.sync(now);
        self.waits.push_back((ticket, Wait::Vote(from, term)));
    }

    pub(super) fn send_vote(&mut self, to: u16, asked: Term, is_pre_vote: bool, is_granted: bool) {
        let term = self.state.term;
        self.send(
            to,
            &Message::Vote {
                term,
                asked,
                is_pre_vote,
                is_granted,
            },
        );
    }

    pub(super) fn handle_vote(
        &mut self,
        now: Timestamp,
        from: u16,
        asked: Term,
        is_pre_vote: bool,
        is_granted: bool,
    ) {
        let (votes, term) = match &mut self.role {
            MemberRole::PreVote(votes) if is_pre_vote => (votes, Term(self.state.term.0 + 1)),
            MemberRole::Candidate(votes) if !is_pre_vote => (votes, self.state.term),
            _ => return,
        };
        if is_granted && asked == term {
            votes.insert(from);
            self.count_votes(now);
        }
    }

    fn count_votes(&mut self, now: Timestamp) {
        let majority = self.config.majority();
        match &self.role {
            MemberRole::PreVote(votes) if votes.len() >= majority => self.campaign(now),
            MemberRole::Candidate(votes) if votes.len() >= majority => self.begin_leadership(now),
            _ => {}
        }
    }
}
