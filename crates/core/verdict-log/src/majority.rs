//! Log of several ICNs, durable when most of them have it: one may be lost at any moment, and another leads.
//!
//! The members are fixed and few. The rules are those of Raft (Ongaro, *Consensus: Bridging Theory and Practice*, 2014;
//! section 9.6 for the pre-vote): a member votes once a term and only for a log not older than its own, entries are
//! accepted only behind one that both logs have, a leader counts only entries of its own term, and no member
//! acknowledges before its disk has synced. A leader begins with a no-op entry; when that is committed everything
//! before is too, and only then does it lead for the world outside. Why not a library:
//! `docs/adr/2026-11-21-own-majority-log.md`; for operators: `docs/how-to/ledger.md`.
//!
//! A blank disk may be a first start or a lost memory. A member with one therefore asks all others first (`join.rs`)
//! and votes only when it knows all that it may have promised.
//!
//! Time is an argument and serves availability alone: no rule of safety has a duration in it.

mod election;
mod follow;
mod join;
mod lead;
pub mod message;

pub use message::{Message, MessageError};

use crate::storage::{HardState, Seat, Storage, StorageError, StorageNotice, Ticket};
use crate::{LedgerStatus, Notice, Position};
use join::Join;
use lead::Leadership;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::{Record, Term, Timestamp, protect};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Members of the majority, and their patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MajorityConfig {
    /// Index of this member, from 0.
    pub me: u16,
    /// Number of members; 3, or another odd number for more failures at once.
    pub icns: u16,
    /// Seed of the times that are drawn so that members do not campaign at the same moment.
    pub seed: u64,
    /// Longest pause of a leader between two messages to a member.
    pub pulse: Duration,
    /// Silence, up to five thirds of it, after which a leader is given up.
    pub patience: Duration,
}

impl MajorityConfig {
    /// Returns member `me` of `icns` with pulses of 20 ms and a patience of 120 to 200 ms.
    #[must_use]
    pub fn new(me: u16, icns: u16, seed: u64) -> Self {
        Self {
            me,
            icns,
            seed,
            pulse: Duration::from_millis(20),
            patience: Duration::from_millis(120),
        }
    }

    /// Returns the number of members that make a majority.
    #[must_use]
    pub fn majority(&self) -> usize {
        usize::from(self.icns) / 2 + 1
    }
}

/// Role of a member in the election.
#[derive(Debug)]
enum MemberRole {
    /// Blank disk at the start; no vote yet.
    Joining(Join),
    Follower,
    /// Asks whether it would get votes, in a pre-vote; the set holds the members that agreed.
    PreVote(BTreeSet<u16>),
    /// Asks for votes; the set holds the members that granted theirs.
    Candidate(BTreeSet<u16>),
    Leader(Leadership),
}

/// Action that waits for the disk.
#[derive(Clone, Copy, Debug)]
enum Wait {
    /// The vote for this ICN in this term is durable and can be sent.
    Vote(u16, Term),
    /// The own vote in this term is durable and the others can be asked.
    Campaign(Term),
    /// The seat is taken.
    Joined,
}

/// State of another member, as this one knows it.
#[derive(Debug, Default)]
struct Peer {
    is_connected: bool,
    heard_at: Timestamp,
    progress: lead::Progress,
}

/// One member of a majority.
#[derive(Debug)]
pub struct MajorityLedger<S> {
    config: MajorityConfig,
    storage: S,
    rng: Xoshiro256PlusPlus,
    state: HardState,
    role: MemberRole,
    leader: Option<u16>,
    /// Time of the last message of the leader.
    heard_at: Timestamp,
    /// Whether the stream to the leader has closed: it is probably dead, and there is no reason to wait.
    is_orphan: bool,
    campaign_due: Timestamp,
    commit: u64,
    /// Index up to which the log is that of the leader of this term.
    verified: u64,
    /// The leader, its term, and its last message.
    acknowledged: (u16, Term, u64),
    peers: Vec<Peer>,
    waits: VecDeque<(Ticket, Wait)>,
    out: VecDeque<Notice>,
    appended: Position,
    trouble: Option<String>,
    has_started: bool,
    is_resigned: bool,
    has_failed: Arc<AtomicBool>,
    refused: u64,
}

impl<S: Storage> MajorityLedger<S> {
    /// Opens the member that `config` names, with its log in `storage`.
    ///
    /// # Errors
    ///
    /// [`StorageError::Seat`] if the directory is that of another member, of another number of members, or of a single
    /// ICN: with it this member would break the promises of the other one.
    ///
    /// # Panics
    ///
    /// If `config.me` is not below `config.icns`: the configuration is checked before.
    pub fn new(config: MajorityConfig, mut storage: S) -> Result<Self, StorageError> {
        assert!(
            config.me < config.icns,
            "ICN {} of {}",
            config.me,
            config.icns
        );
        let (icn, icns) = (config.me, config.icns);
        let fresh = Seat {
            icn,
            icns,
            has_joined: false,
        };
        let state = storage.hard_state().unwrap_or(HardState {
            seat: Some(fresh),
            ..HardState::default()
        });
        let is_ours = state
            .seat
            .is_some_and(|seat| (seat.icn, seat.icns) == (icn, icns));
        if !is_ours {
            return Err(StorageError::Seat {
                found: state.seat.map_or("a single ICN".to_owned(), |seat| {
                    format!("ICN {} of {}", seat.icn, seat.icns)
                }),
                expected: format!("ICN {icn} of {icns}"),
            });
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(config.seed ^ u64::from(icn) << 48);
        let has_joined = state.seat.is_some_and(|seat| seat.has_joined);
        let role = if protect!(JoinBeforeVoting, requires has_joined) {
            MemberRole::Follower
        } else {
            MemberRole::Joining(Join::new(rng.random()))
        };
        storage.save(state);
        // Records before a checkpoint were committed before they were removed.
        let commit = storage.first_index() - 1;
        Ok(Self {
            config,
            storage,
            rng,
            state,
            role,
            leader: None,
            heard_at: Timestamp(0),
            is_orphan: false,
            campaign_due: Timestamp(0),
            commit,
            verified: 0,
            acknowledged: (icn, Term(0), 0),
            peers: (0..icns).map(|_| Peer::default()).collect(),
            waits: VecDeque::new(),
            out: VecDeque::new(),
            appended: Position(0),
            trouble: None,
            has_started: false,
            is_resigned: false,
            has_failed: Arc::default(),
            refused: 0,
        })
    }

    /// Returns the findings of the recovery, for people.
    pub fn findings(&self) -> Vec<String> {
        self.storage.findings()
    }

    /// Returns the number of malformed messages.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns up to which index the log is committed, as far as this member knows. For tests and status views.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.commit
    }

    /// Returns the disk of this member.
    #[must_use]
    pub fn storage(&self) -> &S {
        &self.storage
    }

    fn send(&mut self, to: u16, message: &Message) {
        if self
            .peers
            .get(usize::from(to))
            .is_some_and(|peer| peer.is_connected)
        {
            self.out.push_back(Notice::Send {
                to,
                message: message.encode(),
            });
        }
    }

    fn others(&self) -> impl Iterator<Item = u16> + use<S> {
        let me = self.config.me;
        (0..self.config.icns).filter(move |icn| *icn != me)
    }

    fn send_all(&mut self, message: &Message) {
        for icn in self.others() {
            self.send(icn, message);
        }
    }

    /// Returns up to which index this member may acknowledge the log.
    fn durable(&self) -> u64 {
        protect!(SyncBeforeAck, self.storage.durable_index(), else self.storage.last_index())
    }

    /// Draws a duration from `low` to `high`.
    fn draw(&mut self, low: Duration, high: Duration) -> Duration {
        low + (high - low).mul_f64(self.rng.random_range(0.0..1.0))
    }

    fn may_campaign(&self) -> bool {
        let can = !self.is_resigned && self.trouble.is_none();
        can && !matches!(self.role, MemberRole::Joining(_) | MemberRole::Leader(_))
    }

    /// Enters `term`, which is higher than any before, as a follower that has not voted.
    fn enter_term(&mut self, now: Timestamp, term: Term) {
        self.state.term = term;
        self.state.vote = None;
        self.storage.save(self.state);
        self.leader = None;
        self.verified = 0;
        self.step_down(now, "another ICN has a higher term");
    }

    /// Stops leading or campaigning.
    fn step_down(&mut self, now: Timestamp, why: &str) {
        match std::mem::replace(&mut self.role, MemberRole::Follower) {
            MemberRole::Joining(mut join) => {
                join.forget_goal();
                self.role = MemberRole::Joining(join);
                return;
            }
            MemberRole::Leader(leadership) if leadership.is_public => {
                self.out.push_back(Notice::Deposed {
                    term: self.state.term,
                    why: why.to_owned(),
                });
            }
            _ => {}
        }
        if self.leader == Some(self.config.me) {
            self.leader = None;
        }
        self.be_patient(now);
    }

    /// Draws the time until which a leader has to send.
    fn be_patient(&mut self, now: Timestamp) {
        let patience = self.config.patience;
        self.campaign_due = now + self.draw(patience, patience * 5 / 3);
    }

    fn start(&mut self, now: Timestamp) {
        self.has_started = true;
        // At a first start there is no leader that haste could disturb; the others may be in the middle of a run.
        self.be_patient(now);
        self.heard_at = now;
        for peer in &mut self.peers {
            peer.heard_at = now;
        }
        self.storage.sync(now);
    }

    fn hear_disk(&mut self, now: Timestamp) {
        while let Some(notice) = self.storage.poll(now) {
            match notice {
                StorageNotice::Synced(ticket) => {
                    while let Some((_, wait)) = self.waits.pop_front_if(|(t, _)| *t <= ticket) {
                        self.end_wait(now, wait);
                    }
                    self.acknowledge(now);
                }
                StorageNotice::Trouble(why) => {
                    self.trouble = Some(why.clone());
                    if matches!(self.role, MemberRole::Leader(_)) {
                        self.hand_over();
                    }
                    if !matches!(self.role, MemberRole::Joining(_)) {
                        self.step_down(now, &format!("its disk fails: {why}"));
                    }
                    self.out.push_back(Notice::Trouble(why));
                }
                StorageNotice::Healed => {
                    self.trouble = None;
                    self.out.push_back(Notice::Healed);
                }
            }
        }
    }

    fn end_wait(&mut self, now: Timestamp, wait: Wait) {
        match wait {
            Wait::Vote(to, term) => {
                if (self.state.term, self.state.vote) == (term, Some(to)) {
                    self.send_vote(to, term, false, true);
                }
            }
            Wait::Campaign(term) => self.ask_for_votes(now, term),
            Wait::Joined => self.take_seat(now),
        }
    }

    fn handle(&mut self, now: Timestamp, from: u16, message: Message) {
        if let Some(peer) = self.peers.get_mut(usize::from(from)) {
            peer.heard_at = now;
        }
        if let MemberRole::Joining(join) = &self.role
            && join.is_asking()
        {
            // Its promises in an earlier life are not known yet, so it promises nothing.
            match message {
                Message::State {
                    term,
                    nonce,
                    last_index,
                    ..
                } => {
                    self.take_state(now, from, term, nonce, last_index);
                }
                Message::AskState { nonce, .. } => self.send_state(from, nonce),
                _ => {}
            }
            return;
        }
        // A pre-vote, and a member that joins, leave the terms of others alone.
        let is_question = matches!(
            message,
            Message::AskVote {
                is_pre_vote: true,
                ..
            } | Message::Vote {
                is_pre_vote: true,
                is_granted: true,
                ..
            } | Message::AskState { .. }
        );
        if message.term() > self.state.term && !is_question {
            self.enter_term(now, message.term());
        }
        match message {
            Message::AskVote {
                term,
                is_pre_vote,
                last_index,
                last_term,
            } => {
                self.handle_ask(now, from, term, is_pre_vote, (last_term, last_index));
            }
            Message::Vote {
                asked,
                is_pre_vote,
                is_granted,
                ..
            } => {
                self.handle_vote(now, from, asked, is_pre_vote, is_granted);
            }
            Message::Append {
                term,
                round,
                previous_index,
                previous_term,
                commit,
                entries,
            } => {
                let previous = (previous_index, previous_term);
                self.handle_append(now, from, term, round, previous, commit, entries);
            }
            Message::Appended {
                term,
                round,
                outcome,
            } => {
                if term == self.state.term {
                    self.handle_appended(from, round, outcome);
                }
            }
            Message::Install {
                term,
                round,
                base_index,
                base_term,
            } => self.handle_install(now, from, term, round, (base_index, base_term)),
            Message::Campaign { term } => {
                if term == self.state.term && self.may_campaign() {
                    self.campaign(now);
                }
            }
            Message::AskState { nonce, .. } => self.send_state(from, nonce),
            Message::State {
                term,
                nonce,
                last_index,
                is_leader,
            } => {
                if is_leader && term == self.state.term {
                    self.take_goal(now, nonce, term, last_index);
                }
            }
        }
    }
}

impl<S: Storage> crate::Ledger for MajorityLedger<S> {
    fn append(&mut self, now: Timestamp, records: Vec<Record>) -> Position {
        self.append_records(now, &records);
        self.appended
    }

    fn poll(&mut self, now: Timestamp) -> Option<Notice> {
        if !self.has_started {
            self.start(now);
        }
        if let Some(notice) = self.out.pop_front() {
            return Some(notice);
        }
        self.hear_disk(now);
        if self.has_failed.swap(false, Ordering::Relaxed) {
            self.trouble = Some("the log could not be read to its end".to_owned());
            self.step_down(now, "the log could not be read to its end");
        }
        match self.role {
            MemberRole::Joining(_) => self.run_join(now),
            MemberRole::Leader(_) => self.run_leadership(now),
            _ => self.run_clock(now),
        }
        self.out.pop_front()
    }

    fn next_due(&self) -> Option<Timestamp> {
        let own = match &self.role {
            _ if !self.has_started => return Some(Timestamp(0)),
            MemberRole::Joining(join) => join.ask_due,
            MemberRole::Leader(leadership) => leadership.pulse_due,
            _ => self.campaign_due,
        };
        Some(self.storage.next_due().map_or(own, |disk| disk.min(own)))
    }

    fn handle_message(&mut self, now: Timestamp, from: u16, message: &[u8]) {
        if !self.has_started {
            self.start(now);
        }
        if from == self.config.me || from >= self.config.icns {
            self.refused += 1;
            return;
        }
        match Message::decode(message) {
            Ok(message) => self.handle(now, from, message),
            Err(_) => self.refused += 1,
        }
    }

    fn handle_peer(&mut self, now: Timestamp, icn: u16, is_connected: bool) {
        if !self.has_started {
            self.start(now);
        }
        let Some(peer) = self.peers.get_mut(usize::from(icn)) else {
            return;
        };
        peer.is_connected = is_connected;
        if is_connected {
            self.greet(now, icn);
        } else if self.leader == Some(icn) {
            self.leader = None;
            self.is_orphan = true;
            let haste = self.draw(Duration::ZERO, self.config.pulse * 3 / 2);
            self.campaign_due = self.campaign_due.min(now + haste);
        }
    }

    fn resign(&mut self, now: Timestamp) {
        self.is_resigned = true;
        if matches!(self.role, MemberRole::Leader(_)) {
            self.hand_over();
        }
        if !matches!(self.role, MemberRole::Joining(_)) {
            self.step_down(now, "it resigns");
        }
    }

    fn has_others(&self) -> bool {
        self.config.icns > 1
    }

    fn status(&self) -> LedgerStatus {
        LedgerStatus {
            backend: "majority",
            role: match &self.role {
                MemberRole::Leader(leadership) if leadership.is_public => "leader",
                MemberRole::Leader(_) | MemberRole::PreVote(_) | MemberRole::Candidate(_) => {
                    "candidate"
                }
                MemberRole::Follower | MemberRole::Joining(_) => "standby",
            },
            term: self.state.term,
            leader: self.leader,
            records: self.storage.records(),
            trouble: self.trouble.clone().or_else(|| self.joining_text()),
        }
    }
}

#[cfg(test)]
mod tests;
