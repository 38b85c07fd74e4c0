//! Fates of all TFs, counted from the events and not from the accounting of the scheduler.

use super::super::queue::Nanos;
use super::super::tally::Run;
use sheaf_protocol::{DropReason, Record, TfId, Verdict};
use sheaf_scheduler::Accounting;
use std::collections::BTreeSet;

/// TFs by number, a bit each.
#[derive(Debug, Default)]
struct Bits {
    words: Vec<u64>,
    count: u64,
}

impl Bits {
    fn with_room(bits: u64) -> Self {
        Self {
            words: vec![0; (bits / 64 + 1) as usize],
            count: 0,
        }
    }

    fn contains(&self, tf: TfId) -> bool {
        let word = self.words.get((tf.0 / 64) as usize);
        word.is_some_and(|word| word & (1 << (tf.0 % 64)) != 0)
    }

    fn remove(&mut self, tf: TfId) {
        let at = (tf.0 / 64) as usize;
        let bit = 1 << (tf.0 % 64);
        if self.contains(tf) {
            self.words[at] &= !bit;
            self.count -= 1;
        }
    }

    /// Inserts a TF; `false` if it was there.
    fn insert(&mut self, tf: TfId) -> bool {
        let at = (tf.0 / 64) as usize;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let bit = 1 << (tf.0 % 64);
        let is_new = self.words[at] & bit == 0;
        self.words[at] |= bit;
        self.count += u64::from(is_new);
        is_new
    }
}

/// Fates of all TFs.
#[derive(Debug)]
pub(super) struct Fates {
    called: Bits,
    decided: Bits,
    delivered: Bits,
    incomplete: BTreeSet<TfId>,
    complete: u64,
    dropped: [u64; DropReason::ALL.len()],
    abandoned: u64,
    abandoned_incomplete: u64,
    bytes: u64,
    twice: u64,
    /// Verdicts on TFs that no source had called.
    unheard_of: u64,
    first_at: Option<Nanos>,
    last_at: Nanos,
}

impl Fates {
    pub(super) fn new(timeframes: u64) -> Self {
        Self {
            called: Bits::with_room(timeframes),
            decided: Bits::with_room(timeframes),
            delivered: Bits::with_room(timeframes),
            incomplete: BTreeSet::new(),
            complete: 0,
            dropped: [0; DropReason::ALL.len()],
            abandoned: 0,
            abandoned_incomplete: 0,
            bytes: 0,
            twice: 0,
            unheard_of: 0,
            first_at: None,
            last_at: 0,
        }
    }

    /// Notes that a TF is announced, skipped by a source, or called for.
    pub(super) fn call(&mut self, now: Nanos, tf: TfId) {
        if self.called.insert(tf) {
            self.first_at.get_or_insert(now);
        }
    }

    /// Notes a record that is appended to the log.
    pub(super) fn record(&mut self, now: Nanos, record: &Record) {
        match record {
            Record::Verdict {
                tf, verdict, bytes, ..
            } => {
                if !self.decided.insert(*tf) {
                    self.twice += 1;
                }
                self.unheard_of += u64::from(!self.called.contains(*tf));
                self.bytes += bytes;
                match verdict {
                    Verdict::Complete { .. } => {
                        self.complete += 1;
                        self.last_at = now;
                    }
                    Verdict::Incomplete { .. } => {
                        self.incomplete.insert(*tf);
                        self.last_at = now;
                    }
                    Verdict::Dropped { reason } => self.dropped[reason.index()] += 1,
                }
            }
            Record::Undelivered { tf, .. } => {
                if !self.incomplete.remove(tf) {
                    self.complete -= 1;
                }
                self.dropped[DropReason::Undelivered.index()] += 1;
            }
            Record::Abandoned { tf, .. } => {
                self.abandoned += 1;
                self.abandoned_incomplete += u64::from(self.incomplete.contains(tf));
            }
            _ => {}
        }
    }

    /// Notes that a consumer gets a TF.
    pub(super) fn deliver(&mut self, tf: TfId) {
        if !self.delivered.insert(tf) {
            self.twice += 1;
        }
    }

    /// Notes that an EPN has died with a TF that it had not acknowledged: the consumer of another one may get it.
    pub(super) fn die(&mut self, tf: TfId) {
        self.delivered.remove(tf);
    }

    /// Writes the fates of all TFs into `run`, and whether the scheduler's accounting agrees.
    pub(super) fn settle(&self, accounting: &Accounting, in_flight: u64, run: &mut Run) {
        let incomplete = self.incomplete.len() as u64;
        // A TF that a source names, with no roster of which it is a member, is never opened, and has no fate.
        run.announced = self.decided.count + in_flight;
        run.unopened = self.called.count.saturating_sub(run.announced);
        run.incomplete = incomplete - self.abandoned_incomplete;
        run.complete = self.complete - (self.abandoned - self.abandoned_incomplete);
        run.lose("incomplete", run.incomplete);
        run.lose("abandoned", self.abandoned);
        for (reason, count) in DropReason::ALL.iter().zip(self.dropped) {
            run.lose(reason.name(), count);
        }
        run.in_flight = in_flight;
        run.out_of_order = self.twice;
        run.bytes = self.bytes;
        run.span_ns = self.last_at.saturating_sub(self.first_at.unwrap_or(0));
        run.accounting_agrees = accounting.announced == run.announced
            && accounting.complete == self.complete
            && accounting.incomplete == incomplete
            && accounting.dropped == self.dropped
            && accounting.abandoned == self.abandoned
            && self.unheard_of == 0
            && self.called.count >= run.announced;
    }
}
