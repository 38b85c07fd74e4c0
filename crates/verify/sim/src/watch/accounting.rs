//! Records of all TFs, and their sums.

use super::{Found, found};
use crate::invariant::Invariant;
use crate::options::Ack;
use sheaf_node::event::{MemberEvent, PartEvent};
use sheaf_protocol::{NodeId, RunId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// TF ids are dense; a node that names one far beyond has a broken id.
const TF_MAX: u64 = 1 << 20;

/// Fates of the TFs of a farm, recomputed from the logs of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounting {
    /// TFs with a verdict.
    pub decided: u64,
    /// TFs built with all parts of their roster.
    pub complete: u64,
    /// TFs built with parts missing.
    pub incomplete: u64,
    /// TFs not built.
    pub dropped: u64,
    /// Built TFs whose EPN died before it acknowledged.
    pub abandoned: u64,
    /// Built TFs that were committed to another EPN after the death of the first.
    pub redelivered: u64,
    /// Deliveries after the first one of a TF, each with the mark or by the EPN that was to deliver without.
    pub delivered_again: u64,
    /// Built TFs that a later life of their EPN published.
    pub recovered: u64,
    /// Assignments after the first one of a TF.
    pub reassigned: u64,
    /// Dropped TFs by reason.
    pub reasons: BTreeMap<String, u64>,
}

impl Accounting {
    /// Counts an amendment: the TF of a verdict was given back, and is dropped.
    pub(super) fn give_back(&mut self, fate: &LoggedVerdict) {
        if fate.verdict == "complete" {
            self.complete -= 1;
        } else {
            self.incomplete -= 1;
        }
        self.dropped += 1;
        *self.reasons.entry("undelivered".to_owned()).or_default() += 1;
    }

    /// Counts an amendment: the TF of a verdict was built again.
    pub(super) fn change(&mut self, former: &LoggedVerdict, fate: &LoggedVerdict) {
        let counter = |fate: &LoggedVerdict| fate.verdict == "complete";
        for (is_complete, up) in [(counter(former), false), (counter(fate), true)] {
            let count = if is_complete {
                &mut self.complete
            } else {
                &mut self.incomplete
            };
            *count = if up { *count + 1 } else { *count - 1 };
        }
    }

    /// Adds the accounting of another farm.
    pub fn add(&mut self, other: &Self) {
        self.decided += other.decided;
        self.complete += other.complete;
        self.incomplete += other.incomplete;
        self.dropped += other.dropped;
        self.abandoned += other.abandoned;
        self.redelivered += other.redelivered;
        self.delivered_again += other.delivered_again;
        self.recovered += other.recovered;
        self.reassigned += other.reassigned;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoggedVerdict {
    pub(super) verdict: String,
    pub(super) at: Option<(u16, u64)>,
    pub(super) missing: Vec<u16>,
    pub(super) reason: Option<String>,
}

impl fmt::Display for LoggedVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.verdict)?;
        if let Some((epn, life)) = self.at {
            write!(f, " at epn:{epn} in life {life}")?;
        }
        if !self.missing.is_empty() {
            write!(f, " without {:?}", self.missing)?;
        }
        self.reason
            .as_ref()
            .map_or(Ok(()), |reason| write!(f, " for \"{reason}\""))
    }
}

/// One TF.
#[derive(Clone, Debug, Default)]
pub(super) struct TfBook {
    /// When the TF was first made, skipped or called for.
    pub(super) named_at: Option<Timestamp>,
    pub(super) is_called: bool,
    pub(super) made: Vec<PartEvent>,
    pub(super) skipped: Vec<(u16, String)>,
    pub(super) attempts: Vec<((u64, u32), (u16, u64))>,
    /// Verdict that is no amendment.
    pub(super) first: Option<LoggedVerdict>,
    /// Amendments, each of which names another life of an EPN.
    pub(super) amendments: Vec<LoggedVerdict>,
    pub(super) is_abandoned: bool,
    pub(super) is_given_back: bool,
    /// Lives of EPNs that gave the TF back.
    pub(super) given_back_by: BTreeSet<(u16, u64)>,
    /// The EPNs, in their lives, whose consumers have the TF, and whether they were told of the mark.
    pub(super) consumed: Vec<((u16, u64), bool)>,
    /// Whether a consumer that works on TFs has finished with it.
    pub(super) is_finished: bool,
}

impl TfBook {
    /// Returns the verdict in force.
    pub(super) fn fate(&self) -> Option<&LoggedVerdict> {
        self.amendments.last().or(self.first.as_ref())
    }

    /// Returns the verdict that names a life of an EPN, and whether it is an amendment.
    pub(super) fn fate_at(
        &self,
        is_own: impl Fn((u16, u64)) -> bool,
    ) -> Option<(&LoggedVerdict, bool)> {
        let is_there = |fate: &&LoggedVerdict| fate.at.is_some_and(&is_own);
        let amendment = self.amendments.iter().find(is_there);
        let amendment = amendment.map(|fate| (fate, true));
        amendment.or_else(|| Some((self.first.as_ref().filter(is_there)?, false)))
    }

    /// Returns whether a TF was built, and no consumer has it, or with ack level `processed` none has finished with it.
    pub(super) fn is_owed_to_consumer(&self, ack: Ack) -> bool {
        let is_built = self.fate().is_some_and(|fate| fate.at.is_some());
        let is_settled = self.is_abandoned || self.is_given_back;
        let is_there = match ack {
            Ack::Built | Ack::Stored => !self.consumed.is_empty(),
            Ack::Processed => self.is_finished,
        };
        is_built && !is_settled && !is_there
    }

    /// Notes that the heartbeat calls for the TF.
    pub(super) fn call(&mut self, now: Timestamp) {
        self.named_at.get_or_insert(now);
        self.is_called = true;
    }
}

/// One run.
#[derive(Debug)]
pub(super) struct RunBook {
    pub(super) run: RunId,
    tfs: Vec<TfBook>,
    /// TF below which every one has a verdict or was never named.
    floor: usize,
    /// The first TF and the members of each roster. A later one replaces those with the same or a later first TF.
    rosters: BTreeMap<u32, (u64, Vec<MemberEvent>)>,
    pub(super) accounting: Accounting,
}

impl RunBook {
    /// Adds a roster that an ICN has found in the log. An ICN that reads the log later, or wakes up late, writes the
    /// same.
    pub(super) fn add_roster(
        &mut self,
        node: NodeId,
        id: u32,
        first: u64,
        members: &[MemberEvent],
    ) -> Result<(), Found> {
        let said = (first, members.to_vec());
        let known = self.rosters.entry(id).or_insert_with(|| said.clone());
        if *known == said {
            return Ok(());
        }
        found(
            Invariant::TruePieces,
            first,
            format!("roster {id} is {said:?} for {node}, and was {known:?} before"),
        )
    }

    /// Returns the STFs of `tf` that were made.
    pub(super) fn made_of(&self, tf: u64) -> &[PartEvent] {
        self.tfs.get(tf as usize).map_or(&[], |book| &book.made)
    }

    /// Returns the members whose STFs make `tf` whole, by the log.
    pub(super) fn roster_of(&self, tf: u64) -> Option<&[MemberEvent]> {
        let mut latest = self.rosters.values().rev();
        latest
            .find(|(first, _)| *first <= tf)
            .map(|(_, members)| members.as_slice())
    }

    pub(super) fn new(run: RunId) -> Self {
        Self {
            run,
            tfs: Vec::new(),
            floor: 0,
            rosters: BTreeMap::new(),
            accounting: Accounting::default(),
        }
    }

    pub(super) fn tf(&mut self, tf: u64) -> Result<&mut TfBook, Found> {
        if tf >= TF_MAX {
            return found(
                Invariant::Books,
                tf,
                format!("TF {tf} lies far beyond the run"),
            );
        }
        let index = tf as usize;
        if index >= self.tfs.len() {
            self.tfs.resize_with(index + 1, TfBook::default);
        }
        Ok(&mut self.tfs[index])
    }

    pub(super) fn tfs(&self) -> impl Iterator<Item = (u64, &TfBook)> {
        (0..).zip(&self.tfs)
    }

    /// Returns the TFs that were named and have no verdict.
    pub(super) fn undecided_tfs(&self) -> impl Iterator<Item = (u64, &TfBook)> {
        let named = (0..).zip(&self.tfs).skip(self.floor);
        named.filter(|(_, book)| book.fate().is_none() && book.named_at.is_some())
    }

    /// Returns the TFs that have no verdict; with an ack level, and those that were built and are owed to a consumer.
    pub(super) fn unfinished_tfs(
        &self,
        owed_at: Option<Ack>,
    ) -> impl Iterator<Item = (u64, &TfBook)> {
        let owed = self.tfs();
        let owed =
            owed.filter(move |(_, book)| owed_at.is_some_and(|ack| book.is_owed_to_consumer(ack)));
        self.undecided_tfs().chain(owed)
    }

    pub(super) fn undecided(&self) -> u64 {
        self.undecided_tfs().count() as u64
    }

    pub(super) fn count(&mut self, fate: &LoggedVerdict) {
        let accounting = &mut self.accounting;
        accounting.decided += 1;
        match fate.verdict.as_str() {
            "complete" => accounting.complete += 1,
            "incomplete" => accounting.incomplete += 1,
            _ => accounting.dropped += 1,
        }
        if let Some(reason) = &fate.reason {
            *accounting.reasons.entry(reason.clone()).or_default() += 1;
        }
        while self
            .tfs
            .get(self.floor)
            .is_some_and(|book| book.fate().is_some())
        {
            self.floor += 1;
        }
    }
}
