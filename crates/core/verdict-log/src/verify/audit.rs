//! Comparison of the logs with each other, and with the accounting of the ICN.

use super::evidence::{Counts, Evidence, life_name};
use super::finding::{Contradiction, Kind};
use super::rosters::RosterSource;
use super::tables::{Facts, LifeIndex, Verdict};
use super::tf::Tf;
use serde::{Deserialize, Serialize};
use sheaf_protocol::Role;
use std::collections::{BTreeMap, BTreeSet};

/// Proven counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// TFs that an FLP made or skipped, or that the ICN called for or decided.
    pub announced: u64,
    /// Verdicts `complete`.
    pub complete: u64,
    /// Verdicts `incomplete`.
    pub incomplete: u64,
    /// Verdicts `dropped`, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Amendments `abandoned`.
    pub abandoned: u64,
    /// Announced TFs without a verdict, counted one by one.
    pub in_flight: u64,
    /// STFs that a killed FLP made and never announced: no other FLP made that TF, and the ICN did not know.
    pub unannounced: u64,
    /// TFs delivered, each as often as it was.
    pub delivered: u64,
    /// TFs built and neither delivered nor abandoned, in a run that is not over.
    pub undelivered: u64,
    /// Assignments of a TF whose STFs went to more than one EPN.
    pub mixed_target: u64,
    /// TFs delivered more than once.
    pub delivered_twice: u64,
    /// STFs delivered that differ from those that their FLP made.
    pub digest_mismatch: u64,
    /// Faults that consumers found in TFs.
    pub consumer_faults: u64,
    /// Payload bytes of built TFs.
    pub bytes: u64,
    /// Incomplete TFs by the FLP that is missing, such as `"flp:1"`.
    pub missing: BTreeMap<String, u64>,
    /// Fates of the STFs of each FLP, such as `"flp:1"`.
    pub sources: BTreeMap<String, SourceBooks>,
    /// Origin of the knowledge of the rosters.
    pub roster_source: RosterSource,
    /// Whether a log states that every TF of the run is decided.
    pub is_over: bool,
    /// The first contradictions.
    pub contradictions: Vec<Contradiction>,
    /// All contradictions.
    pub contradictions_total: u64,
}

/// Fates of the STFs of one FLP, over all its lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceBooks {
    /// STFs made.
    pub made: u64,
    /// STFs that were never made, as the FLP reported.
    pub skipped: u64,
    /// STFs made and delivered in a TF.
    pub delivered: u64,
    /// STFs made, whose TF was built without them.
    pub missing: u64,
    /// STFs made, whose TF was dropped.
    pub dropped: u64,
    /// STFs made and built, whose EPN died before it delivered the TF.
    pub abandoned: u64,
    /// STFs made by an FLP outside the roster of the TF.
    pub outside: u64,
    /// STFs made, whose TF has no verdict.
    pub in_flight: u64,
}

impl SourceBooks {
    /// Returns the STFs made and not accounted for: 0, or there is a contradiction.
    #[must_use]
    pub fn unaccounted(&self) -> u64 {
        let fates = self.delivered
            + self.missing
            + self.dropped
            + self.abandoned
            + self.outside
            + self.in_flight;
        self.made.saturating_sub(fates)
    }
}

/// Accounting of an ICN, to be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// TFs that exist.
    pub announced: u64,
    /// TFs built with all parts.
    pub complete: u64,
    /// TFs built with parts missing.
    pub incomplete: u64,
    /// TFs not built, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// TFs without a verdict.
    pub in_flight: u64,
    /// Complete and incomplete TFs whose EPN died before it had acknowledged.
    pub abandoned: u64,
    /// Payload bytes of built TFs.
    pub bytes: u64,
}

/// Options of an audit.
#[derive(Clone, Debug)]
pub struct Options {
    /// Accounting of the ICN, if it is at hand.
    pub books: Option<Books>,
    /// Upper bound of contradictions that are listed; more are only counted.
    pub listed_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            books: None,
            listed_max: 20,
        }
    }
}

impl Audit {
    /// Returns the TFs dropped for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Returns whether announced = complete + incomplete + dropped + in flight, without a contradiction.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let fates = self.complete + self.incomplete + self.dropped_total() + self.in_flight;
        self.announced == fates && self.contradictions_total == 0
    }
}

/// An audit on its way.
pub(super) struct Auditor<'a> {
    pub(super) audit: Audit,
    pub(super) evidence: &'a Evidence,
    listed_max: usize,
    /// Counts of the TFs that a checkpoint sums up, as the other logs tell.
    summed: Counts,
}

impl Auditor<'_> {
    pub(super) fn contradict(&mut self, kind: Kind, tf: Option<u64>, text: String) {
        self.audit.contradictions_total += 1;
        if self.audit.contradictions.len() < self.listed_max {
            self.audit
                .contradictions
                .push(Contradiction { kind, tf, text });
        }
    }
}

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
    if let Some(books) = &options.books {
        auditor.settle_unannounced(books);
        auditor.compare(books);
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

    pub(super) fn count_summed(&mut self, tf: u64, verdicts: &[&Verdict], is_abandoned: bool) {
        let Some(summed) = self
            .evidence
            .summed
            .as_ref()
            .filter(|summed| summed.has(tf))
        else {
            return;
        };
        if let Some(verdict) = verdicts.first() {
            let name = verdict.reason.as_ref().unwrap_or(&verdict.name);
            self.summed.add(name, 1);
        }
        self.summed
            .add("abandoned", u64::from(is_abandoned && summed.is_done(tf)));
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
    fn settle_unannounced(&mut self, books: &Books) {
        let audit = &mut self.audit;
        let heard = books
            .announced
            .saturating_sub(audit.announced)
            .min(audit.unannounced);
        audit.unannounced -= heard;
        audit.announced += heard;
        audit.in_flight += heard;
    }

    fn compare(&mut self, books: &Books) {
        let audit = &self.audit;
        let mut pairs = vec![
            ("announced", audit.announced, books.announced),
            ("complete", audit.complete, books.complete),
            ("incomplete", audit.incomplete, books.incomplete),
            ("in flight", audit.in_flight, books.in_flight),
            ("abandoned", audit.abandoned, books.abandoned),
        ];
        if audit.abandoned == 0 {
            pairs.push(("bytes", audit.bytes, books.bytes));
        }
        let reasons: BTreeSet<&String> = audit.dropped.keys().chain(books.dropped.keys()).collect();
        for reason in reasons {
            let of = |dropped: &BTreeMap<String, u64>| dropped.get(reason).copied().unwrap_or(0);
            pairs.push((reason, of(&audit.dropped), of(&books.dropped)));
        }
        let wrong = pairs.iter().filter(|(_, logs, books)| logs != books);
        let texts: Vec<String> = wrong
            .map(|(what, logs, books)| {
                format!("{what}: the logs say {logs}, the accounting of the ICN {books}")
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
        for (flp, books) in sources.iter().filter(|(_, books)| books.unaccounted() > 0) {
            let (lost, made) = (books.unaccounted(), books.made);
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
        if self.before.is_some_and(|before| before + 1 != tf) {
            self.kept = Some(tf - 1);
        }
        for life in makers {
            let maker = auditor.evidence.life(life);
            let node = maker.node;
            if made.iter().filter(|maker| **maker == life).count() > 1 {
                auditor.contradict(Kind::Hole, Some(tf), format!("{node} made TF {tf} twice"));
            }
            let before = self.last.insert(life, tf);
            let forgot = |before: &u64| self.kept.is_some_and(|kept| kept > *before);
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
