//! Record of every TF of a simulated run: when what happened to it, and where.

use super::queue::Nanos;
use sheaf_protocol::control::Release;
use sheaf_protocol::{DropReason, EpnId, Record, TfId, Verdict};
use std::collections::BTreeSet;

/// Times of one TF in ns of the run, in the order in which they come, and its fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TfRecord {
    /// Id of the TF.
    pub tf: u64,
    /// First announce, or the heartbeat that called for it.
    pub announced_ns: Option<u64>,
    /// First assignment to an EPN.
    pub assigned_ns: Option<u64>,
    /// First byte of an STF at an EPN.
    pub first_byte_ns: Option<u64>,
    /// Last byte of an STF at an EPN.
    pub last_byte_ns: Option<u64>,
    /// Verdict.
    pub committed_ns: Option<u64>,
    /// Begin of the work of its consumer.
    pub processing_ns: Option<u64>,
    /// End of that work.
    pub done_ns: Option<u64>,
    /// Release that lets FLPs free its STFs.
    pub freed_ns: Option<u64>,
    /// EPN of the verdict; before one, that of the last assignment.
    pub epn: Option<u16>,
    /// Assignments.
    pub attempts: u32,
    /// Payload bytes by its verdict.
    pub bytes: u64,
    /// Fate.
    pub fate: Fate,
}

/// Fate of a TF at the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// No verdict.
    #[default]
    InFlight,
    /// Whole, and its consumer has finished.
    Complete,
    /// With STFs missing, and its consumer has finished.
    Incomplete,
    /// Delivered; its consumer has not finished when the run ended.
    Unprocessed,
    /// Delivered; its EPN died before the consumer had finished.
    DiedUnprocessed,
    /// Committed to an EPN that died before the delivery.
    Abandoned,
    /// Not built, for this reason.
    Dropped(DropReason),
}

impl Fate {
    /// Returns the name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InFlight => "in-flight",
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Unprocessed => "unprocessed",
            Self::DiedUnprocessed => "died-unprocessed",
            Self::Abandoned => "abandoned",
            Self::Dropped(reason) => reason.name(),
        }
    }
}

impl TfRecord {
    /// Columns of the CSV form, and of that in Parquet.
    pub const COLUMNS: [&'static str; 13] = [
        "tf",
        "announced_ns",
        "assigned_ns",
        "first_byte_ns",
        "last_byte_ns",
        "committed_ns",
        "processing_ns",
        "done_ns",
        "freed_ns",
        "epn",
        "attempts",
        "bytes",
        "fate",
    ];

    /// Returns the times in the order of [`COLUMNS`](Self::COLUMNS).
    #[must_use]
    pub fn times(&self) -> [Option<u64>; 8] {
        [
            self.announced_ns,
            self.assigned_ns,
            self.first_byte_ns,
            self.last_byte_ns,
            self.committed_ns,
            self.processing_ns,
            self.done_ns,
            self.freed_ns,
        ]
    }

    /// Returns the time from announce to the begin of processing, in ns: in the queue of the ICN, on the way, and
    /// before the consumer. Of a TF that was delivered and still waits at `end`, the time until then, which is less
    /// than it will be.
    #[must_use]
    pub fn wait_ns(&self, end: u64) -> Option<u64> {
        let until = self.processing_ns.or_else(|| self.ends_early(end))?;
        Some(until.saturating_sub(self.announced_ns?))
    }

    /// Returns the time from announce to the end of processing, in ns; of a TF that was delivered and is not done at
    /// `end`, the time until then.
    #[must_use]
    pub fn turnaround_ns(&self, end: u64) -> Option<u64> {
        let until = self.done_ns.or_else(|| self.ends_early(end))?;
        Some(until.saturating_sub(self.announced_ns?))
    }

    fn ends_early(&self, end: u64) -> Option<u64> {
        (self.fate == Fate::Unprocessed).then_some(end)
    }
}

/// Waits of the TFs of a run, simulated or live.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    /// Announce to the begin of processing of every TF with its consumer, if announced after the warm-up, in ns; of
    /// those that still wait, the time until the end.
    pub waits_ns: Vec<u64>,
    /// Announce to the end of processing of the same TFs, in ns.
    pub turnarounds_ns: Vec<u64>,
    /// TFs with consumers that had not finished when the run ended.
    pub unprocessed: u64,
    /// TFs with consumers that died before they had finished.
    pub died_unprocessed: u64,
}

impl Waits {
    /// Returns the waits of a run that lasted until `end`. TFs that were announced before `warm_up` count in no wait;
    /// both are in ns of the run.
    #[must_use]
    pub fn of(records: &[TfRecord], warm_up: u64, end: u64) -> Self {
        let of = |fate: Fate| records.iter().filter(|one| one.fate == fate).count() as u64;
        let counted = || {
            let is_counted = |one: &&TfRecord| one.announced_ns >= Some(warm_up);
            records.iter().filter(is_counted)
        };
        Self {
            waits_ns: counted().filter_map(|one| one.wait_ns(end)).collect(),
            turnarounds_ns: counted().filter_map(|one| one.turnaround_ns(end)).collect(),
            unprocessed: of(Fate::Unprocessed),
            died_unprocessed: of(Fate::DiedUnprocessed),
        }
    }
}

/// Records of all TFs of a run.
#[derive(Debug, Default)]
pub(super) struct Records {
    all: Vec<TfRecord>,
    /// TFs with a verdict that FLPs have not freed.
    unfreed: BTreeSet<TfId>,
    /// TFs whose EPN died before the consumer had finished.
    died: BTreeSet<TfId>,
}

impl Records {
    fn of(&mut self, tf: TfId) -> &mut TfRecord {
        let at = tf.0 as usize;
        while self.all.len() <= at {
            let tf = self.all.len() as u64;
            self.all.push(TfRecord {
                tf,
                ..TfRecord::default()
            });
        }
        &mut self.all[at]
    }

    pub(super) fn call(&mut self, now: Nanos, tf: TfId) {
        self.of(tf).announced_ns.get_or_insert(now);
    }

    pub(super) fn assign(&mut self, now: Nanos, tf: TfId, epn: EpnId) {
        let record = self.of(tf);
        record.assigned_ns.get_or_insert(now);
        record.attempts += 1;
        record.epn = Some(epn.0);
    }

    pub(super) fn arrive(&mut self, began: Nanos, now: Nanos, tf: TfId) {
        let record = self.of(tf);
        if record.committed_ns.is_none() {
            let first = record.first_byte_ns.get_or_insert(began);
            *first = began.min(*first);
            record.last_byte_ns = Some(now);
        }
    }

    /// Notes a record that is appended to the log.
    pub(super) fn record(&mut self, now: Nanos, record: &Record) {
        match record {
            Record::Verdict {
                tf, verdict, bytes, ..
            } => {
                let (fate, target) = match verdict {
                    Verdict::Complete { target } => (Fate::Complete, Some(target)),
                    Verdict::Incomplete { target, .. } => (Fate::Incomplete, Some(target)),
                    Verdict::Dropped { reason } => (Fate::Dropped(*reason), None),
                };
                let known = self.of(*tf);
                known.committed_ns = Some(now);
                known.bytes = *bytes;
                known.fate = fate;
                known.epn = target.map_or(known.epn, |target| Some(target.epn.0));
                self.unfreed.insert(*tf);
            }
            Record::Undelivered { tf, .. } => {
                self.of(*tf).fate = Fate::Dropped(DropReason::Undelivered);
            }
            Record::Abandoned { tf, .. } => self.of(*tf).fate = Fate::Abandoned,
            Record::Redelivered {
                tf,
                verdict: Verdict::Complete { target } | Verdict::Incomplete { target, .. },
                ..
            } => self.of(*tf).epn = Some(target.epn.0),
            _ => {}
        }
    }

    pub(super) fn release(&mut self, now: Nanos, release: &Release) {
        let is_in = |tf: TfId| {
            let at = release.ranges.partition_point(|(first, _)| *first <= tf);
            let range = at.checked_sub(1).and_then(|at| release.ranges.get(at));
            tf < release.floor || range.is_some_and(|(_, end)| tf < *end)
        };
        let freed: Vec<TfId> = self
            .unfreed
            .iter()
            .copied()
            .filter(|tf| is_in(*tf))
            .collect();
        for tf in freed {
            self.unfreed.remove(&tf);
            self.of(tf).freed_ns = Some(now);
        }
    }

    pub(super) fn process(&mut self, now: Nanos, tf: TfId) {
        self.died.remove(&tf);
        self.of(tf).processing_ns = Some(now);
    }

    pub(super) fn done(&mut self, now: Nanos, tf: TfId) {
        // The first time, if it is processed again since the EPN died before its acknowledgement came.
        self.of(tf).done_ns.get_or_insert(now);
    }

    /// Notes that the EPN died before the consumer had finished.
    pub(super) fn die(&mut self, tf: TfId) {
        self.died.insert(tf);
    }

    /// Returns the records, with the fate of TFs whose consumers have not finished.
    pub(super) fn settle(self) -> Vec<TfRecord> {
        let mut all = self.all;
        for record in &mut all {
            let is_delivered = matches!(record.fate, Fate::Complete | Fate::Incomplete);
            if is_delivered && record.done_ns.is_none() {
                record.fate = match self.died.contains(&TfId(record.tf)) {
                    true => Fate::DiedUnprocessed,
                    false => Fate::Unprocessed,
                };
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{Attempt, Incarnation, Target};

    fn verdict(tf: u64) -> Record {
        let target = Target {
            epn: EpnId(3),
            incarnation: Incarnation(1),
        };
        Record::Verdict {
            tf: TfId(tf),
            attempt: Attempt(1),
            verdict: Verdict::Complete { target },
            bytes: 7,
        }
    }

    #[test]
    fn a_tf_that_still_waits_at_the_end_has_waited_until_then() {
        let mut records = Records::default();
        for tf in [TfId(0), TfId(1)] {
            records.call(10, tf);
            records.assign(20, tf, EpnId(3));
            records.arrive(30, 40, tf);
            records.record(50, &verdict(tf.0));
        }
        records.process(60, TfId(0));
        records.done(90, TfId(0));
        let all = records.settle();
        assert_eq!(
            (all[0].wait_ns(1000), all[0].turnaround_ns(1000)),
            (Some(50), Some(80))
        );
        assert_eq!(all[1].fate, Fate::Unprocessed);
        assert_eq!(
            (all[1].wait_ns(1000), all[1].turnaround_ns(1000)),
            (Some(990), Some(990))
        );
        assert_eq!((all[1].epn, all[1].bytes, all[1].attempts), (Some(3), 7, 1));
    }

    #[test]
    fn a_tf_is_freed_by_the_first_release_that_names_it() {
        let mut records = Records::default();
        for tf in 0..5 {
            records.record(50, &verdict(tf));
        }
        let release = |floor, ranges: &[(u64, u64)]| Release {
            version: 1,
            floor: TfId(floor),
            ranges: ranges
                .iter()
                .map(|(first, end)| (TfId(*first), TfId(*end)))
                .collect(),
        };
        records.release(60, &release(1, &[(3, 4)]));
        records.release(70, &release(4, &[]));
        let freed: Vec<_> = records.settle().iter().map(|one| one.freed_ns).collect();
        assert_eq!(freed, [Some(60), Some(70), Some(70), Some(60), None]);
    }
}
