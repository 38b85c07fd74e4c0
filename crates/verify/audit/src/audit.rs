//! Comparison of the logs with each other, and with the accounting of the ICN.

use super::auditor::Auditor;
use super::evidence::{Counts, Evidence, life_name};
use super::finding::Kind;
use super::proven::{Accounting, Audit, Options};
use super::tables::{Facts, LifeIndex};
use super::tf::Tf;
use sheaf_protocol::{Role, TfId};
use std::collections::{BTreeMap, BTreeSet};

/// Recomputes the accounting from `evidence`.
///
/// Sorts its rows, and so changes it; adding more and asking again is fine.
#[must_use]
pub fn audit(evidence: &mut Evidence, options: &Options) -> Audit {
    evidence.tables.sort();
    let evidence = &*evidence;
    let mut auditor = Auditor {
        audit: Audit {
            consumer_faults: evidence.consumer_faults,
            roster_source: evidence.roster_source,
            is_over: evidence.is_over,
            ..Audit::default()
        },
        evidence,
        listed_max: options.listed_max,
        summed: Counts::default(),
    };
    for found in &evidence.broken {
        auditor.contradict(found.kind, found.tf, found.text.clone());
    }
    auditor.check_runs();
    auditor.check_leaders();
    let mut holes = Holes::default();
    for (id, facts) in evidence.tables.tfs() {
        holes.look(id, &facts, &mut auditor);
        Tf::new(id, facts, evidence).judge(&mut auditor);
    }
    auditor.check_summed();
    for (flp, refused) in &evidence.refused {
        let source = auditor.audit.sources.entry(flp.clone()).or_default();
        source.refused = *refused;
    }
    auditor.check_streams();
    auditor.check_sinks();
    if let Some(accounting) = &options.accounting {
        auditor.settle_unannounced(accounting);
        auditor.compare(accounting);
    }
    auditor.check_sum();
    auditor.audit
}

impl Auditor<'_> {
    fn check_runs(&mut self) {
        let runs = &self.evidence.runs;
        if runs.len() > 1 {
            let runs: Vec<String> = runs
                .iter()
                .map(|(run, by)| format!("{run} by {by}"))
                .collect();
            let text = format!("the logs are of several runs: {}", runs.join(", "));
            self.contradict(Kind::ForeignRun, None, text);
        }
    }

    /// Checks that the event logs agree with the checkpoint that the verdict log begins with.
    fn check_summed(&mut self) {
        let Some(summed) = &self.evidence.summed else {
            return;
        };
        if !self.evidence.has_icns {
            let text = format!(
                "the verdict log begins with a checkpoint at TF {}, and no ICN left an event log: the verdicts before \
                 are known as sums only",
                summed.frontier()
            );
            return self.contradict(Kind::MissingLog, None, text);
        }
        for (what, logs, sum) in self.summed.differ(&summed.counts()) {
            let text = format!(
                "{what}: before the checkpoint that the verdict log begins with the logs say {logs}, the checkpoint {sum}"
            );
            self.contradict(Kind::Ledger, None, text);
        }
    }

    fn check_leaders(&mut self) {
        for (term, icns) in &self.evidence.leaders {
            if icns.len() > 1 {
                let icns: Vec<&str> = icns.iter().map(String::as_str).collect();
                let text = format!("in term {term} led {}", icns.join(" and "));
                self.contradict(Kind::TwoLeaders, None, text);
            }
        }
    }

    /// Settles TFs that only a killed FLP made: the ICN received as many announces as its accounting has more than the
    /// others made. Those are in flight.
    fn settle_unannounced(&mut self, accounting: &Accounting) {
        let audit = &mut self.audit;
        let heard = accounting
            .announced
            .saturating_sub(audit.announced)
            .min(audit.unannounced);
        audit.unannounced -= heard;
        audit.announced += heard;
        audit.in_flight += heard;
    }

    fn compare(&mut self, accounting: &Accounting) {
        let audit = &self.audit;
        let mut pairs = vec![
            ("announced", audit.announced, accounting.announced),
            ("complete", audit.complete, accounting.complete),
            ("incomplete", audit.incomplete, accounting.incomplete),
            ("in flight", audit.in_flight, accounting.in_flight),
            ("abandoned", audit.abandoned, accounting.abandoned),
            ("redelivered", audit.redelivered, accounting.redelivered),
        ];
        if audit.abandoned == 0 {
            pairs.push(("bytes", audit.bytes, accounting.bytes));
        }
        let reasons: BTreeSet<&String> = audit
            .dropped
            .keys()
            .chain(accounting.dropped.keys())
            .collect();
        for reason in reasons {
            let of = |dropped: &BTreeMap<String, u64>| dropped.get(reason).copied().unwrap_or(0);
            pairs.push((reason, of(&audit.dropped), of(&accounting.dropped)));
        }
        let wrong = pairs
            .iter()
            .filter(|(_, logs, accounting)| logs != accounting);
        let texts: Vec<String> = wrong
            .map(|(what, logs, accounting)| {
                format!("{what}: the logs say {logs}, the accounting of the ICN {accounting}")
            })
            .collect();
        for text in texts {
            self.contradict(Kind::Books, None, text);
        }
    }

    /// Checks the sums for the run and for each source.
    fn check_sum(&mut self) {
        let audit = &self.audit;
        let dropped = audit.dropped_total();
        if audit.announced != audit.complete + audit.incomplete + dropped + audit.in_flight {
            let (announced, complete, incomplete) =
                (audit.announced, audit.complete, audit.incomplete);
            let in_flight = audit.in_flight;
            let text = format!(
                "announced {announced} is not complete {complete} + incomplete {incomplete} + dropped {dropped} \
                 + in flight {in_flight}"
            );
            self.contradict(Kind::Books, None, text);
        }
        let sources = self.audit.sources.clone();
        for (flp, accounting) in sources
            .iter()
            .filter(|(_, accounting)| accounting.unaccounted() > 0)
        {
            let (lost, made) = (accounting.unaccounted(), accounting.made);
            let text = format!(
                "{flp}: of {made} STFs made, {lost} are neither delivered nor accounted for"
            );
            self.contradict(Kind::Books, None, text);
        }
    }
}

/// Search for holes. An FLP makes or skips every TF from its first to its last: a hole is a TF that it forgot. It may
/// skip a TF twice, when it repeats the report, and pass over one that was dropped before it came to it.
#[derive(Default)]
struct Holes {
    last: BTreeMap<LifeIndex, u64>,
    /// The TF before, and the last one that was not dropped.
    before: Option<u64>,
    kept: Option<u64>,
}

impl Holes {
    fn look(&mut self, tf: u64, facts: &Facts<'_>, auditor: &mut Auditor<'_>) {
        let made: Vec<LifeIndex> = facts.made.iter().map(|made| made.life).collect();
        let skipped = facts.skipped.iter().map(|skipped| skipped.life);
        let makers: BTreeSet<LifeIndex> = made.iter().copied().chain(skipped).collect();
        let passed = &auditor.evidence.passed;
        let is_hole = |before: u64| passed.missing_in(TfId(before + 1), TfId(tf)) > 0;
        if self.before.is_some_and(is_hole) {
            self.kept = Some(tf - 1);
        }
        for life in makers {
            let maker = auditor.evidence.life(life);
            let node = maker.node;
            if made.iter().filter(|maker| **maker == life).count() > 1 {
                auditor.contradict(Kind::Hole, Some(tf), format!("{node} made TF {tf} twice"));
            }
            let before = self.last.insert(life, tf);
            // All sources were ahead of TFs that the run passed over, and perhaps of some before them.
            let was_ahead = |before: u64| {
                let (first, end) = (TfId(before + 1), TfId(tf));
                first < end && auditor.evidence.passed.missing_in(first, end) < tf - first.0
            };
            let forgot =
                |before: &u64| self.kept.is_some_and(|kept| kept > *before) && !was_ahead(*before);
            if let Some(before) = before.filter(forgot) {
                let (from, to) = (before + 1, tf - 1);
                let who = if maker.node.role == Role::Flp {
                    node.to_string()
                } else {
                    life_name(maker)
                };
                let text = format!("{who} neither made nor skipped TFs {from} to {to}");
                auditor.contradict(Kind::Hole, Some(from), text);
            }
        }
        let tables = &auditor.evidence.tables;
        let mut verdicts = facts.decided.iter();
        let is_dropped = !facts.decided.is_empty()
            && verdicts.all(|decided| tables.verdicts.at(decided.verdict).name == "dropped");
        self.before = Some(tf);
        if !is_dropped {
            self.kept = Some(tf);
        }
    }
}
