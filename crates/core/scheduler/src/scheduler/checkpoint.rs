//! Summary of a verdict log, record by record, and the checkpoint that holds it in a few records.
//!
//! A leader that takes over knows of the run what a [`Summary`] of the log holds, and nothing else. The leader keeps
//! one beside its log and adds every record that it appends, so a checkpoint is a function of the log alone: a later
//! leader makes of it, field by field, the same as of all the records that it replaces.

use super::peer::EpnSetting;
use super::phase::RunPhase;
use super::rosters::Rosters;
use crate::accounting::Accounting;
use sheaf_protocol::{
    Attempt, Checkpoint, DropReason, EpnId, FlpId, RangeSet, Record, RunId, SummedSource,
    SummedTarget, TfId, Timestamp, Verdict, protect,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// A TF of the log that has its verdict and may not be with its consumer yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) attempt: Attempt,
    pub(super) verdict: Verdict,
    /// Payload bytes.
    pub(super) bytes: u64,
    /// Whether it is an amendment: the delivery is marked.
    pub(super) is_redelivered: bool,
}

impl Decided {
    /// Returns the record of a checkpoint.
    fn record(&self, tf: TfId) -> Record {
        let (attempt, bytes) = (self.attempt, self.bytes);
        let verdict = self.verdict.clone();
        if self.is_redelivered {
            Record::UndoneRedelivered {
                tf,
                attempt,
                verdict,
                bytes,
            }
        } else {
            Record::Undone {
                tf,
                attempt,
                verdict,
                bytes,
            }
        }
    }
}

/// Content of a verdict log about the last run in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    run: Option<RunId>,
    is_over: bool,
    /// Whether the run is to stop; and at which TF, if that is agreed on.
    stopping: Option<Option<TfId>>,
    pub(super) rosters: Rosters,
    /// The first TF of the run.
    pub(super) first: TfId,
    pub(super) frontier: TfId,
    pub(super) released: RangeSet,
    pub(super) undone: BTreeMap<TfId, Decided>,
    pub(super) accounting: Accounting,
    pub(super) before: Duration,
    pub(super) settings: BTreeMap<EpnId, EpnSetting>,
    pub(super) listed: Option<Vec<EpnId>>,
    /// Records since the last checkpoint or the begin of the run.
    since: u64,
}

impl Summary {
    /// Returns the last run; `None` if the log holds none.
    #[must_use]
    pub fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Returns whether the run is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the number of records since the last checkpoint or the begin of the run, which a takeover has to read
    /// beside it.
    #[must_use]
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Returns the accounting, as far as the log holds it.
    #[must_use]
    pub fn accounting(&self) -> &Accounting {
        &self.accounting
    }

    pub(super) fn phase(&self, now: Timestamp) -> RunPhase {
        match self.stopping {
            _ if self.is_over => RunPhase::Over,
            Some(stop_at) => RunPhase::Stopping {
                since: now,
                stop_at,
            },
            None if self.rosters.is_empty() => RunPhase::Waiting,
            None => RunPhase::Running,
        }
    }

    /// Takes the next record, as [`take`](Self::take) does, for a leader that takes over.
    pub fn replay(&mut self, record: &Record) {
        protect!(LogReplay, else match record {
            Record::Verdict { .. }
            | Record::Undelivered { .. }
            | Record::Redelivered { .. }
            | Record::Undone { .. }
            | Record::UndoneRedelivered { .. }
            | Record::Released { .. } => return,
            Record::Checkpoint(head) => return self.take(&Record::Opened { run: head.run }),
            _ => {}
        });
        self.take(record);
    }

    /// Takes the next record of the log.
    pub fn take(&mut self, record: &Record) {
        self.since += 1;
        match record {
            Record::Opened { run } => {
                *self = Self {
                    run: Some(*run),
                    ..Self::default()
                };
            }
            Record::Over => self.is_over = true,
            Record::Roster { id, first, members } => {
                self.rosters.restore(*id, *first, members.clone());
                self.frontier = self.frontier.max(*first);
                for member in members {
                    self.accounting.source(member.flp);
                }
            }
            Record::Verdict {
                tf,
                attempt,
                verdict,
                bytes,
            } => {
                self.count(*tf, verdict, *bytes);
                if matches!(verdict, Verdict::Dropped { .. }) {
                    self.released.insert(*tf);
                } else {
                    self.accounting.reassigned += u64::from(attempt.0.saturating_sub(1));
                    self.set_undone(*tf, *attempt, verdict, *bytes, false);
                }
            }
            Record::Redelivered {
                tf,
                attempt,
                verdict,
                bytes,
            } => self.take_redelivered(*tf, *attempt, verdict, *bytes),
            Record::Abandoned { tf, .. } => {
                self.accounting.abandoned += 1;
                self.undone.remove(tf);
                self.released.insert(*tf);
            }
            Record::Undelivered { tf, .. } => self.take_undelivered(*tf),
            Record::Done { ranges } => {
                for (first, end) in ranges {
                    if first >= end {
                        continue;
                    }
                    let done: Vec<TfId> =
                        self.undone.range(*first..*end).map(|(tf, _)| *tf).collect();
                    for tf in done {
                        let decided = self.undone.remove(&tf);
                        if let Some(epn) = decided.and_then(|decided| epn_of(&decided.verdict)) {
                            self.accounting.target(epn).delivered += 1;
                        }
                        self.released.insert(tf);
                    }
                }
            }
            Record::Passed { first, end } => {
                self.released.insert_range(*first, *end);
                self.frontier = self.frontier.max(*end);
                if *first == TfId(0) {
                    self.first = *end;
                }
            }
            Record::Clock { elapsed_ns } => self.before = Duration::from_nanos(*elapsed_ns),
            Record::Stopping { stop_at } => self.stopping = Some(*stop_at),
            Record::Set {
                epn,
                weight_milli,
                enabled,
            } => {
                let setting = EpnSetting {
                    weight_milli: *weight_milli,
                    enabled: *enabled,
                };
                self.settings.insert(*epn, setting);
            }
            Record::Listed { epns } => self.listed = Some(epns.clone()),
            Record::Checkpoint(head) => self.begin_at(head),
            Record::Released { ranges } => {
                for (first, end) in ranges {
                    self.released.insert_range(*first, *end);
                }
            }
            Record::Sources { sources } => {
                for SummedSource { flp, built } in sources {
                    let accounting = self.accounting.source(*flp);
                    (accounting.announced, accounting.built) = (*built, *built);
                }
            }
            Record::Targets {
                reassigned,
                targets,
            } => {
                self.accounting.reassigned = *reassigned;
                for target in targets {
                    let accounting = self.accounting.target(target.epn);
                    (accounting.built, accounting.delivered) = (target.built, target.delivered);
                }
            }
            Record::Undone {
                tf,
                attempt,
                verdict,
                bytes,
            } => self.set_undone(*tf, *attempt, verdict, *bytes, false),
            Record::UndoneRedelivered {
                tf,
                attempt,
                verdict,
                bytes,
            } => self.set_undone(*tf, *attempt, verdict, *bytes, true),
            Record::RedeliveredTotal { tfs } => self.accounting.redelivered = *tfs,
            // The accounting in the head includes it.
            Record::Again(_) => {}
        }
        if is_of_checkpoint(record) {
            self.since = 0;
        }
    }

    /// Takes the amendment of a verdict: the TF was built, and is dropped.
    fn take_undelivered(&mut self, tf: TfId) {
        self.released.insert(tf);
        if let Some(decided) = self.undone.remove(&tf) {
            self.accounting.dropped[DropReason::Undelivered.index()] += 1;
            self.uncount_built(tf, &decided);
        }
    }

    /// Takes the amendment of a verdict: the TF was built, and was built again elsewhere.
    fn take_redelivered(&mut self, tf: TfId, attempt: Attempt, verdict: &Verdict, bytes: u64) {
        let Some(former) = self.undone.remove(&tf) else {
            return;
        };
        self.uncount_built(tf, &former);
        self.count_built(tf, verdict, bytes);
        self.accounting.redelivered += u64::from(!former.is_redelivered);
        self.accounting.reassigned += u64::from(attempt.0.saturating_sub(former.attempt.0));
        self.set_undone(tf, attempt, verdict, bytes, true);
    }

    /// Takes a verdict on a built TF out of the accounting.
    fn uncount_built(&mut self, tf: TfId, decided: &Decided) {
        let missing = match &decided.verdict {
            Verdict::Complete { .. } => {
                self.accounting.complete = self.accounting.complete.saturating_sub(1);
                &[][..]
            }
            Verdict::Incomplete { missing, .. } => {
                self.accounting.incomplete = self.accounting.incomplete.saturating_sub(1);
                missing
            }
            Verdict::Dropped { .. } => return,
        };
        self.accounting.bytes = self.accounting.bytes.saturating_sub(decided.bytes);
        if let Some(epn) = epn_of(&decided.verdict) {
            let built = &mut self.accounting.target(epn).built;
            *built = built.saturating_sub(1);
        }
        // As with any dropped TF, the log does not hold which FLPs had announced it.
        let members = self.rosters.of(tf).map(|(_, members)| members);
        for source in members.iter().flat_map(|members| members.iter()) {
            if !missing.contains(&source.flp) {
                let accounting = self.accounting.source(source.flp);
                accounting.announced = accounting.announced.saturating_sub(1);
                accounting.built = accounting.built.saturating_sub(1);
            }
        }
    }

    fn begin_at(&mut self, head: &Checkpoint) {
        *self = Self {
            run: Some(head.run),
            frontier: head.frontier,
            released: RangeSet::below(head.floor),
            accounting: Accounting {
                announced: head.decided(),
                complete: head.complete,
                incomplete: head.incomplete,
                dropped: head.dropped,
                abandoned: head.abandoned,
                bytes: head.bytes,
                ..Accounting::default()
            },
            ..Self::default()
        };
        self.rosters.skip_names(head.last_roster);
    }

    fn set_undone(
        &mut self,
        tf: TfId,
        attempt: Attempt,
        verdict: &Verdict,
        bytes: u64,
        is_redelivered: bool,
    ) {
        let decided = Decided {
            attempt,
            verdict: verdict.clone(),
            bytes,
            is_redelivered,
        };
        self.undone.insert(tf, decided);
    }

    fn count(&mut self, tf: TfId, verdict: &Verdict, bytes: u64) {
        self.frontier = self.frontier.max(tf.next());
        self.accounting.announced += 1;
        self.count_built(tf, verdict, bytes);
    }

    fn count_built(&mut self, tf: TfId, verdict: &Verdict, bytes: u64) {
        self.accounting.bytes += bytes;
        let missing = match verdict {
            Verdict::Complete { .. } => {
                self.accounting.complete += 1;
                &[][..]
            }
            Verdict::Incomplete { missing, .. } => {
                self.accounting.incomplete += 1;
                missing
            }
            Verdict::Dropped { reason } => {
                // The log does not hold which FLPs had announced it; it is in no source's accounting then.
                self.accounting.dropped[reason.index()] += 1;
                return;
            }
        };
        if let Some(epn) = epn_of(verdict) {
            self.accounting.target(epn).built += 1;
        }
        let members = self.rosters.of(tf).map(|(_, members)| members);
        for source in members.iter().flat_map(|members| members.iter()) {
            if !missing.contains(&source.flp) {
                let accounting = self.accounting.source(source.flp);
                accounting.announced += 1;
                accounting.built += 1;
            }
        }
    }

    /// Returns the records of a checkpoint that stands for everything taken so far; none if there is no run. `unheard`
    /// are the records among the last ones that are not known to be durable.
    pub fn checkpoint<'a>(&mut self, unheard: impl Iterator<Item = &'a Record>) -> Vec<Record> {
        let Some(run) = self.run else {
            return Vec::new();
        };
        let again: Vec<Record> = unheard
            .filter(|record| self.is_recorded_nowhere_else(record))
            .cloned()
            .collect();
        let oldest_again = again.iter().filter_map(tf_of).min();
        let floor = self.released.floor();
        let head = Checkpoint {
            run,
            frontier: self.frontier,
            last_roster: self.rosters.last_name(),
            floor: floor.min(self.frontier),
            complete: self.accounting.complete,
            incomplete: self.accounting.incomplete,
            dropped: self.accounting.dropped,
            abandoned: self.accounting.abandoned,
            bytes: self.accounting.bytes,
        };
        let mut records = vec![Record::Checkpoint(Box::new(head))];
        let needed_from = oldest_again.map_or(floor, |tf| tf.min(floor));
        for roster in self.rosters.from(needed_from) {
            records.push(Record::Roster {
                id: roster.id,
                first: roster.first,
                members: roster.members.to_vec(),
            });
        }
        let ranges: Vec<(TfId, TfId)> = self.released.ranges().collect();
        records.extend(ranges.chunks(Record::RANGES_MAX).map(|ranges| {
            let ranges = ranges.to_vec();
            Record::Released { ranges }
        }));
        if self.first > TfId(0) {
            let (first, end) = (TfId(0), self.first);
            records.push(Record::Passed { first, end });
        }
        let source =
            |(flp, accounting): (&FlpId, &crate::accounting::SourceAccounting)| SummedSource {
                flp: *flp,
                built: accounting.built,
            };
        let sources: Vec<SummedSource> = self.accounting.sources.iter().map(source).collect();
        records.extend(sources.chunks(Record::RANGES_MAX).map(|sources| {
            let sources = sources.to_vec();
            Record::Sources { sources }
        }));
        let target =
            |(epn, accounting): (&EpnId, &crate::accounting::TargetAccounting)| SummedTarget {
                epn: *epn,
                built: accounting.built,
                delivered: accounting.delivered,
            };
        let targets: Vec<SummedTarget> = self.accounting.targets.iter().map(target).collect();
        records.extend(
            targets
                .chunks(Record::RANGES_MAX)
                .map(|targets| Record::Targets {
                    reassigned: self.accounting.reassigned,
                    targets: targets.to_vec(),
                }),
        );
        records.extend(self.undone.iter().map(|(tf, decided)| decided.record(*tf)));
        if self.accounting.redelivered > 0 {
            let tfs = self.accounting.redelivered;
            records.push(Record::RedeliveredTotal { tfs });
        }
        records.extend(self.settings.iter().map(|(epn, setting)| Record::Set {
            epn: *epn,
            weight_milli: setting.weight_milli,
            enabled: setting.enabled,
        }));
        if let Some(epns) = self.listed.clone() {
            records.push(Record::Listed { epns });
        }
        if !self.before.is_zero() {
            let elapsed_ns = u64::try_from(self.before.as_nanos()).unwrap_or(u64::MAX);
            records.push(Record::Clock { elapsed_ns });
        }
        if let Some(stop_at) = self.stopping {
            records.push(Record::Stopping { stop_at });
        }
        if self.is_over {
            records.push(Record::Over);
        }
        records.extend(
            again
                .into_iter()
                .map(|record| Record::Again(Box::new(record))),
        );
        self.rosters.forget_below(needed_from);
        self.since = 0;
        records
    }

    /// Returns whether a checkpoint would pass over a verdict or an amendment.
    fn is_recorded_nowhere_else(&self, record: &Record) -> bool {
        let Some(tf) = tf_of(record) else {
            return false;
        };
        let Some(decided) = self.undone.get(&tf) else {
            return true;
        };
        match record {
            Record::Verdict { verdict, .. } => {
                decided.is_redelivered || decided.verdict != *verdict
            }
            Record::Redelivered { verdict, .. } => {
                !decided.is_redelivered || decided.verdict != *verdict
            }
            _ => true,
        }
    }
}

fn epn_of(verdict: &Verdict) -> Option<EpnId> {
    match verdict {
        Verdict::Complete { target } | Verdict::Incomplete { target, .. } => Some(target.epn),
        Verdict::Dropped { .. } => None,
    }
}

fn tf_of(record: &Record) -> Option<TfId> {
    match record {
        Record::Verdict { tf, .. }
        | Record::Redelivered { tf, .. }
        | Record::Abandoned { tf, .. }
        | Record::Undelivered { tf, .. } => Some(*tf),
        _ => None,
    }
}

/// Returns whether a record is of a kind that stands in checkpoints only.
fn is_of_checkpoint(record: &Record) -> bool {
    matches!(
        record,
        Record::Checkpoint(_)
            | Record::Released { .. }
            | Record::Sources { .. }
            | Record::Targets { .. }
            | Record::Undone { .. }
            | Record::UndoneRedelivered { .. }
            | Record::RedeliveredTotal { .. }
            | Record::Again(_)
    )
}

#[cfg(test)]
mod tests;
