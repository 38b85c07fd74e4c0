//! Check of the invariants, event by event.
//!
//! Nothing that is checked is asked for its own opinion: the accounting is recomputed from event logs, deliveries are
//! those that the consumers of the harness received, and a reason is compared with the faults that the harness
//! injected. Only bounds (I9) are read from the nodes.

mod accounting;
mod deliveries;
mod end;
mod injected;
mod lives;
mod parts;

pub use accounting::Accounting;
pub(crate) use injected::Injected;

use crate::invariant::Invariant;
use crate::options::{Ack, Log, Options};
use crate::trace::Hash;
use accounting::{LoggedVerdict, RunBook, TfBook};
use sheaf_node::event::{Event, MemberEvent, PartEvent};
use sheaf_protocol::{NodeId, Role, RunId, Timestamp};
use sheaf_scheduler::{Delivery, Incomplete};
use std::collections::{BTreeMap, BTreeSet};

/// Violation, before its time is known.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) invariant: Invariant,
    pub(crate) tf: Option<u64>,
    pub(crate) detail: String,
}

pub(crate) fn found<T>(
    invariant: Invariant,
    tf: impl Into<Option<u64>>,
    detail: String,
) -> Result<T, Found> {
    let tf = tf.into();
    Err(Found {
        invariant,
        tf,
        detail,
    })
}

/// One life of a node, by its log.
#[derive(Clone, Debug)]
struct Life {
    incarnation: u64,
    /// Index of its run.
    run: Option<usize>,
    /// Whether the run is over; the next line of another one may come before its name is durable.
    is_over: bool,
    /// TFs called for before the run was durable.
    called: Vec<u64>,
    /// The latest life of the node that had joined when this one began.
    joined_before: u64,
}

/// Everything that is known of a farm from outside.
pub(crate) struct Watch<'a> {
    options: &'a Options,
    lives: BTreeMap<NodeId, Life>,
    /// Lives of second processes of a node.
    twins: BTreeMap<NodeId, Life>,
    /// The latest life of each node that has joined.
    joined: BTreeMap<NodeId, u64>,
    runs: Vec<RunBook>,
    /// Terms, and their leaders.
    leaders: Vec<(u64, NodeId)>,
    /// TFs called for by lives that ended before their run was durable: their logs do not name the run.
    called_in_vain: BTreeSet<u64>,
    pub(crate) injected: Injected,
    pub(crate) hash: Hash,
    settled_at: Timestamp,
    stop_at: Timestamp,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(options: &'a Options) -> Self {
        Self {
            options,
            lives: BTreeMap::new(),
            twins: BTreeMap::new(),
            joined: BTreeMap::new(),
            runs: Vec::new(),
            leaders: Vec::new(),
            called_in_vain: BTreeSet::new(),
            injected: Injected::new(options),
            hash: Hash::new(),
            settled_at: Timestamp(0) + options.calm_at + options.settle,
            stop_at: Timestamp(0) + options.stop_at,
        }
    }

    /// Handles a line of the event log of `node`.
    pub(crate) fn handle(
        &mut self,
        now: Timestamp,
        node: NodeId,
        event: &Event,
    ) -> Result<(), Found> {
        self.hash
            .add(now.0 ^ (u64::from(node.index) << 56) ^ ((node.role as u64) << 48));
        match event {
            Event::Begin { incarnation, .. } => {
                self.hash.add(*incarnation);
                let life = Life {
                    incarnation: *incarnation,
                    run: None,
                    is_over: false,
                    called: Vec::new(),
                    joined_before: self.joined_before(node),
                };
                if let Some(former) = self.lives.insert(node, life) {
                    self.called_in_vain.extend(former.called);
                }
                Ok(())
            }
            Event::Run { run } => {
                let run = u64::from_str_radix(run, 16).unwrap_or_default();
                self.hash.add(run);
                let index = self.run_index(RunId(run));
                let Some(life) = self.lives.get_mut(&node) else {
                    return Ok(());
                };
                life.run = Some(index);
                life.is_over = false;
                for tf in std::mem::take(&mut life.called) {
                    self.runs[index].tf(tf)?.call(now);
                }
                self.check_joined(node)
            }
            Event::Made { tf, bytes, digest } => self.handle_made(now, node, *tf, *bytes, *digest),
            Event::Skipped { tf, reason } => {
                self.hash.add(*tf);
                let (_, book) = self.tf_of(node, *tf)?;
                book.named_at.get_or_insert(now);
                book.skipped.push((node.index, reason.clone()));
                Ok(())
            }
            Event::Called { tf } => {
                self.hash.add(*tf);
                match self.lives.get_mut(&node) {
                    Some(life) if life.run.is_none() || life.is_over => life.called.push(*tf),
                    _ => self.tf_of(node, *tf)?.1.call(now),
                }
                Ok(())
            }
            Event::Sent {
                tf,
                term,
                attempt,
                epn,
                incarnation,
            } => self.handle_sent(node, *tf, (*term, *attempt), (*epn, *incarnation)),
            Event::Verdict {
                tf,
                verdict,
                epn,
                incarnation,
                missing,
                reason,
            } => {
                let fate = LoggedVerdict {
                    verdict: verdict.clone(),
                    at: epn.zip(*incarnation),
                    missing: missing.clone(),
                    reason: reason.clone(),
                };
                self.handle_verdict(now, node, *tf, &fate)
            }
            Event::Redelivered {
                tf,
                verdict,
                epn,
                incarnation,
                missing,
            } => {
                let fate = LoggedVerdict {
                    verdict: verdict.clone(),
                    at: Some((*epn, *incarnation)),
                    missing: missing.clone(),
                    reason: None,
                };
                self.handle_redelivered(now, node, *tf, &fate)
            }
            Event::Abandoned { tf } => self.handle_abandoned(now, node, *tf),
            Event::Undelivered { tf } => self.handle_undelivered(node, *tf),
            Event::Delivered {
                tf, redelivered, ..
            } => self.handle_delivered(node, *tf, *redelivered),
            Event::Freed { tf } => {
                self.hash.add(*tf ^ 0xf4ee);
                self.tf_of(node, *tf)?.1.is_finished = true;
                Ok(())
            }
            Event::Fault { tf, detail } => found(
                Invariant::TruePieces,
                *tf,
                format!("the consumer of {node} finds TF {tf} damaged: {detail}"),
            ),
            Event::Leads { term } => self.handle_leads(node, *term),
            Event::Roster {
                roster,
                first,
                members,
            } => self.handle_roster(node, *roster, *first, members),
            Event::Deposed { term, .. } => {
                self.hash.add(*term);
                Ok(())
            }
            Event::Recovered {
                tf, incarnation, ..
            } => self.handle_recovered(node, *tf, *incarnation),
            Event::Over => {
                if let Some(life) = self.lives.get_mut(&node) {
                    life.is_over = true;
                }
                Ok(())
            }
            // No fate of a TF.
            Event::Refused { tf, .. } | Event::Passed { first: tf, .. } => {
                self.hash.add(*tf);
                Ok(())
            }
            // The consumer of the harness dies with its EPN alone.
            Event::End
            | Event::Continued { .. }
            | Event::Rotated { .. }
            | Event::TakenAgain { .. } => Ok(()),
        }
    }

    /// Notes a TF that is called for somewhere in the lines that come.
    pub(crate) fn call_early(
        &mut self,
        now: Timestamp,
        node: NodeId,
        tf: u64,
    ) -> Result<(), Found> {
        let life = self.lives.get(&node).filter(|life| !life.is_over);
        if let Some(run) = life.and_then(|life| life.run) {
            self.runs[run].tf(tf)?.call(now);
        }
        Ok(())
    }

    fn handle_leads(&mut self, node: NodeId, term: u64) -> Result<(), Found> {
        self.hash.add(term);
        if self.options.log == Log::Memory {
            // Every life of its ICN begins another run, in the first term.
            self.leaders.clear();
        }
        if let Some((_, other)) = self.leaders.iter().find(|(known, _)| *known == term) {
            return found(
                Invariant::Fenced,
                None,
                format!("{node} and {other} lead in term {term}"),
            );
        }
        self.leaders.push((term, node));
        Ok(())
    }

    /// Returns whether no ICN leads in a later term than this one.
    pub(crate) fn is_latest_leader(&self, icn: NodeId) -> bool {
        let latest = self.leaders.iter().max_by_key(|(term, _)| *term);
        latest.is_some_and(|(_, leader)| *leader == icn)
    }

    fn handle_roster(
        &mut self,
        node: NodeId,
        id: u32,
        first: u64,
        members: &[MemberEvent],
    ) -> Result<(), Found> {
        self.hash.add(first ^ (u64::from(id) << 40));
        let Some(run) = self.lives.get(&node).and_then(|life| life.run) else {
            return found(
                Invariant::Books,
                None,
                format!("{node} names a roster before it is in a run"),
            );
        };
        self.runs[run].add_roster(node, id, first, members)
    }

    fn run_index(&mut self, run: RunId) -> usize {
        if let Some(index) = self.runs.iter().position(|book| book.run == run) {
            return index;
        }
        self.runs.push(RunBook::new(run));
        self.runs.len() - 1
    }

    /// Returns the life of `node`, and the record of `tf` in its run.
    fn tf_of(&mut self, node: NodeId, tf: u64) -> Result<(u64, &mut TfBook), Found> {
        let life = self.lives.get(&node);
        let Some((incarnation, run)) = life.and_then(|life| Some((life.incarnation, life.run?)))
        else {
            return found(
                Invariant::Books,
                tf,
                format!("{node} writes of TF {tf} before it is in a run"),
            );
        };
        Ok((incarnation, self.runs[run].tf(tf)?))
    }

    fn handle_made(
        &mut self,
        now: Timestamp,
        node: NodeId,
        tf: u64,
        bytes: u64,
        digest: u32,
    ) -> Result<(), Found> {
        self.hash.add(tf ^ (u64::from(digest) << 32));
        let (incarnation, book) = self.tf_of(node, tf)?;
        book.named_at.get_or_insert(now);
        if book
            .made
            .iter()
            .any(|part| (part.flp, part.incarnation) == (node.index, incarnation))
        {
            return found(
                Invariant::TruePieces,
                tf,
                format!("{node} made its STF of TF {tf} twice"),
            );
        }
        book.made.push(PartEvent {
            flp: node.index,
            incarnation,
            bytes,
            digest,
        });
        Ok(())
    }

    fn handle_sent(
        &mut self,
        node: NodeId,
        tf: u64,
        attempt: (u64, u32),
        target: (u16, u64),
    ) -> Result<(), Found> {
        self.hash
            .add(tf ^ (u64::from(attempt.1) << 40) ^ (target.1 << 20));
        let (_, book) = self.tf_of(node, tf)?;
        // Without a number an FLP goes on with the roster of the leader of an earlier term.
        if attempt.1 == 0 {
            return Ok(());
        }
        // An attempt counts within a term, and goes to one EPN.
        let known = book.attempts.iter().find(|(known, _)| *known == attempt);
        match known {
            Some((_, at)) if *at != target => {
                let detail = format!(
                    "attempt {} of TF {tf} in term {} goes to epn:{} and epn:{}",
                    attempt.1, attempt.0, at.0, target.0
                );
                return found(Invariant::OneVerdict, tf, detail);
            }
            Some(_) => {}
            None => {
                book.attempts.push((attempt, target));
                let reassigned = u64::from(book.attempts.len() > 1);
                let run = self.lives[&node].run.expect("tf_of found it");
                self.runs[run].accounting.reassigned += reassigned;
            }
        }
        Ok(())
    }

    fn handle_verdict(
        &mut self,
        now: Timestamp,
        node: NodeId,
        tf: u64,
        fate: &LoggedVerdict,
    ) -> Result<(), Found> {
        self.hash
            .add(tf ^ (fate.at.map_or(0, |at| at.1) << 32) ^ fate.verdict.len() as u64);
        let (allow, settled_at, stop_at) = (self.options.incomplete, self.settled_at, self.stop_at);
        let may_lose = self.options.sends_and_forgets;
        let kind = self.options.kind;
        let is_called = self.called_in_vain.contains(&tf)
            || self.lives.values().any(|life| life.called.contains(&tf));
        let (_, book) = self.tf_of(node, tf)?;
        if book.named_at.is_none() && is_called {
            book.call(now);
        }
        if let Some(known) = &book.first {
            if known == fate {
                return Ok(());
            }
            return found(
                Invariant::OneVerdict,
                tf,
                format!("TF {tf} has the verdicts {known} and {fate}"),
            );
        }
        if !book.amendments.is_empty() {
            // The log has it behind a checkpoint that has the amendment.
            book.first = Some(fate.clone());
            return Ok(());
        }
        let Some(named_at) = book.named_at else {
            return found(
                Invariant::Books,
                tf,
                format!("TF {tf} is {fate}, and no FLP made it"),
            );
        };
        if fate.verdict == "incomplete" && allow == Incomplete::Never {
            return found(
                Invariant::TrueReason,
                tf,
                format!("TF {tf} is {fate}, against the rule of this farm"),
            );
        }
        if fate.verdict != "complete" && kind.loses_nothing() {
            return found(
                Invariant::Live,
                tf,
                format!("TF {tf} is {fate}, and no fault hit an FLP"),
            );
        }
        if fate.verdict != "complete" && named_at >= settled_at && now < stop_at && !may_lose {
            let detail = format!(
                "TF {tf} is {fate}, and was made {:?} after the faults had ended and {:?} were over",
                named_at.since(settled_at),
                self.options.settle
            );
            return found(Invariant::Live, tf, detail);
        }
        book.first = Some(fate.clone());
        if fate.verdict == "complete" && named_at >= settled_at {
            self.check_all_take_part(node, tf)?;
        }
        if let Some(reason) = &fate.reason {
            self.check_reason(now, node, tf, reason)?;
            self.check_died(node, tf, reason)?;
        }
        let run = self.lives[&node].run.expect("tf_of found it");
        self.runs[run].count(fate);
        Ok(())
    }

    /// Checks that a reason is true: the harness knows its faults.
    fn check_reason(
        &mut self,
        now: Timestamp,
        icn: NodeId,
        tf: u64,
        reason: &str,
    ) -> Result<(), Found> {
        if self.options.sends_and_forgets {
            return Ok(());
        }
        let is_stopping = now >= self.stop_at || self.injected.has_source_ended;
        let queue_max = u64::from(self.options.queue_tfs_max);
        let run = self.lives[&icn].run.expect("the caller looked");
        let undecided = self.runs[run].undecided();
        let corrupted = self.injected.corrupted(tf);
        let stores = self.options.ack == Ack::Stored;
        let is_storage_full = self.injected.was_storage_full;
        let members = self.runs[run].roster_of(tf).unwrap_or_default();
        let mut flps = members.iter().map(|member| member.flp);
        let may_seem_dead = flps.any(|flp| self.injected.may_seem_dead(flp));
        let book = self.runs[run].tf(tf)?;
        let is_true = match reason {
            "source-late" | "source-cut" => self.injected.may_lose_stfs(),
            "source-died" => may_seem_dead,
            "source-overrun" | "source-disorder" => {
                book.skipped.iter().any(|(_, why)| why == reason)
            }
            "corrupt-at-source" => corrupted >= 2,
            "shed-overload" => undecided >= queue_max,
            "shed-storage-full" => stores && is_storage_full,
            "run-ended" | "undelivered" => is_stopping,
            _ => false,
        };
        if is_true {
            return Ok(());
        }
        found(
            Invariant::TrueReason,
            tf,
            format!("TF {tf} is dropped for \"{reason}\", and nothing of the kind happened"),
        )
    }

    /// Handles a line about a TF that no consumer took: of an EPN that it gave it back, of an ICN that the verdict is
    /// amended.
    fn handle_undelivered(&mut self, node: NodeId, tf: u64) -> Result<(), Found> {
        self.hash.add(tf ^ 0x0bac);
        let (incarnation, book) = self.tf_of(node, tf)?;
        if node.role == Role::Epn {
            book.given_back_by.insert((node.index, incarnation));
            return Ok(());
        }
        let Some(fate) = book.fate().cloned().filter(|fate| fate.at.is_some()) else {
            return found(
                Invariant::OneVerdict,
                tf,
                format!("TF {tf} is given back, and was not built"),
            );
        };
        if book.is_abandoned || !book.consumed.is_empty() || !book.amendments.is_empty() {
            return found(
                Invariant::OneVerdict,
                tf,
                format!("TF {tf} is {fate}, and given back"),
            );
        }
        if fate.at.is_some_and(|at| !book.given_back_by.contains(&at)) {
            return found(
                Invariant::TrueReason,
                tf,
                format!("TF {tf} is {fate}, and that EPN did not give it back"),
            );
        }
        if !book.is_given_back {
            book.is_given_back = true;
            let run = self.lives[&node].run.expect("tf_of found it");
            self.runs[run].accounting.give_back(&fate);
        }
        Ok(())
    }

    /// Returns the STFs of this life of an FLP that it must hold: of TFs without a verdict, and, where TFs are
    /// delivered at least once, of those that no consumer has.
    pub(crate) fn undecided_of(&self, node: NodeId) -> impl Iterator<Item = u64> + '_ {
        let life = self.lives.get(&node);
        let run = life.and_then(|life| Some((life.incarnation, &self.runs[life.run?])));
        run.into_iter().flat_map(move |(incarnation, run)| {
            let is_own =
                move |part: &PartEvent| part.flp == node.index && part.incarnation == incarnation;
            let is_again = self.options.delivery == Delivery::AtLeastOnce;
            let ack = Some(self.options.ack).filter(|ack| is_again && *ack != Ack::Stored);
            run.unfinished_tfs(ack)
                .filter(move |(_, book)| book.made.iter().any(is_own))
                .map(|(tf, _)| tf)
        })
    }

    /// Returns the recomputed accounting of the run that `icn` has.
    pub(crate) fn accounting_of(&self, icn: NodeId, run: RunId) -> Option<&Accounting> {
        let book = &self.runs[self.lives.get(&icn)?.run?];
        (book.run == run).then_some(&book.accounting)
    }

    /// Returns the accounting of all runs together.
    pub(crate) fn accounting(&self) -> Accounting {
        let mut sum = Accounting::default();
        for run in &self.runs {
            sum.add(&run.accounting);
        }
        sum
    }
}
