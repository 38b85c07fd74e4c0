//! Holds the logs against each other and against the books of the ICN.

use super::evidence::{Delivery, Evidence, Fate, LifeIndex, TfFacts, Verdict};
use sheaf_frame::Role;
use sheaf_node::status::BooksStatus;
use std::collections::{BTreeMap, BTreeSet};

/// Contradictions that are told in words; more are only counted.
const TOLD_MAX: usize = 20;

/// What the logs prove about a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Audit {
    /// TFs that an FLP made or skipped, or that the ICN called for or decided.
    pub(crate) announced: u64,
    /// Verdicts `complete`.
    pub(crate) complete: u64,
    /// Verdicts `incomplete`.
    pub(crate) incomplete: u64,
    /// Verdicts `dropped`, by reason.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// Amendments `abandoned`.
    pub(crate) abandoned: u64,
    /// Announced TFs without a verdict, counted one by one.
    pub(crate) in_flight: u64,
    /// STFs that a killed FLP made and that nobody heard of: no other FLP made that TF, and the ICN did not know.
    pub(crate) unannounced: u64,
    /// Assignments of a TF whose STFs went to more than one EPN.
    pub(crate) mixed_target: u64,
    /// TFs handed on more than once.
    pub(crate) delivered_twice: u64,
    /// STFs handed on that are not what their FLP made.
    pub(crate) digest_mismatch: u64,
    /// Times that a consumer found something wrong with a TF.
    pub(crate) consumer_faults: u64,
    /// Payload bytes of built TFs.
    pub(crate) bytes: u64,
    /// Incomplete TFs by the FLP that is missing, such as `"flp:1"`.
    pub(crate) missing: BTreeMap<String, u64>,
    /// The first contradictions, in words.
    pub(crate) contradictions: Vec<String>,
    /// All contradictions.
    pub(crate) contradictions_total: u64,
}

impl Audit {
    /// TFs dropped for any reason.
    pub(crate) fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether announced = complete + incomplete + dropped + in flight, and nothing contradicts it.
    pub(crate) fn is_balanced(&self) -> bool {
        let fates = self.complete + self.incomplete + self.dropped_total() + self.in_flight;
        self.announced == fates && self.contradictions_total == 0
    }

    fn contradict(&mut self, text: impl Into<String>) {
        self.contradictions_total += 1;
        if self.contradictions.len() < TOLD_MAX {
            self.contradictions.push(text.into());
        }
    }
}

/// Makes up the books from `evidence` and compares them with `books`, those of the ICN.
pub(crate) fn audit(evidence: &Evidence, books: &BooksStatus) -> Audit {
    let mut audit = Audit::default();
    for text in &evidence.broken {
        audit.contradict(text.clone());
    }
    check_runs(evidence, &mut audit);
    for (tf, facts) in &evidence.tfs {
        let tf = Tf {
            id: *tf,
            facts,
            evidence,
        };
        tf.count(&mut audit);
        tf.check_targets(&mut audit);
        tf.check_verdict(&mut audit);
        tf.check_deliveries(&mut audit);
    }
    check_holes(evidence, &mut audit);
    settle_unannounced(books, &mut audit);
    compare(books, &mut audit);
    audit
}

/// One TF and where to look things up.
struct Tf<'a> {
    id: u64,
    facts: &'a TfFacts,
    evidence: &'a Evidence,
}

impl Tf<'_> {
    fn was_killed(&self, life: LifeIndex) -> bool {
        self.evidence.lives[life].fate == Fate::Killed
    }

    /// Whether somebody other than a killed FLP says that the TF exists.
    fn is_announced(&self) -> bool {
        let facts = self.facts;
        let mut makers = facts
            .made
            .iter()
            .map(|made| made.life)
            .chain(facts.skipped.iter().copied());
        facts.called || !facts.verdicts.is_empty() || makers.any(|life| !self.was_killed(life))
    }

    fn count(&self, audit: &mut Audit) {
        let facts = self.facts;
        audit.consumer_faults += facts.consumer_faults;
        audit.abandoned += facts.abandoned;
        for verdict in &facts.verdicts {
            match verdict.name.as_str() {
                "complete" => audit.complete += 1,
                "incomplete" => audit.incomplete += 1,
                "dropped" => {
                    let reason = verdict.reason.clone().unwrap_or_default();
                    *audit.dropped.entry(reason).or_default() += 1;
                }
                other => audit.contradict(format!("TF {}: {other:?} is no verdict", self.id)),
            }
            for flp in &verdict.missing {
                *audit.missing.entry(format!("flp:{flp}")).or_default() += 1;
            }
        }
        if self.is_announced() {
            audit.announced += 1;
            audit.in_flight += u64::from(facts.verdicts.is_empty());
        } else if !facts.made.is_empty() || !facts.skipped.is_empty() {
            audit.unannounced += 1;
        }
        if facts
            .verdicts
            .iter()
            .any(|verdict| verdict.name != "dropped")
        {
            audit.bytes += self.built_bytes();
        }
    }

    /// Bytes handed on; what the FLPs made, if the EPN died before it could write that it handed the TF on.
    fn built_bytes(&self) -> u64 {
        if let Some(delivery) = self.facts.deliveries.first() {
            return delivery.parts.iter().map(|part| part.bytes).sum();
        }
        let missing = self
            .facts
            .verdicts
            .iter()
            .flat_map(|verdict| &verdict.missing);
        let missing: BTreeSet<u16> = missing.copied().collect();
        let mut by_flp = BTreeMap::new();
        for made in &self.facts.made {
            by_flp.insert(self.evidence.lives[made.life].node.index, made.bytes);
        }
        by_flp
            .iter()
            .filter(|(flp, _)| !missing.contains(flp))
            .map(|(_, bytes)| bytes)
            .sum()
    }

    /// All FLPs must have obeyed the same assignment.
    fn check_targets(&self, audit: &mut Audit) {
        let mut targets: BTreeMap<u32, BTreeSet<(u16, u64)>> = BTreeMap::new();
        for sent in &self.facts.sent {
            targets.entry(sent.attempt).or_default().insert(sent.to);
        }
        for (attempt, epns) in targets.iter().filter(|(_, epns)| epns.len() > 1) {
            audit.mixed_target += 1;
            let names: Vec<String> = epns
                .iter()
                .map(|(epn, life)| name("epn", *epn, *life))
                .collect();
            let (tf, names) = (self.id, names.join(" and "));
            audit.contradict(format!("TF {tf}: assignment {attempt} was sent to {names}"));
        }
    }

    /// One verdict, about something that exists, and the delivery that it promises.
    fn check_verdict(&self, audit: &mut Audit) {
        let (tf, facts) = (self.id, self.facts);
        if facts.verdicts.len() > 1 {
            audit.contradict(format!("TF {tf} has {} verdicts", facts.verdicts.len()));
        }
        let built = facts
            .verdicts
            .iter()
            .find(|verdict| verdict.name != "dropped");
        match facts.abandoned {
            0 => {}
            1 if built.is_some() => {}
            1 => audit.contradict(format!("TF {tf} is abandoned and was not built")),
            times => audit.contradict(format!("TF {tf} is abandoned {times} times")),
        }
        if facts.made.is_empty() && facts.skipped.is_empty() && !facts.called {
            audit.contradict(format!("TF {tf}: no FLP says that it made or skipped it"));
        }
        let Some(verdict) = built else { return };
        if facts.deliveries.is_empty() && facts.abandoned == 0 {
            audit.contradict(format!(
                "TF {tf} is {}, and no EPN says that it handed it on",
                verdict.name
            ));
        }
        if (verdict.name == "complete") != verdict.missing.is_empty() {
            let missing = &verdict.missing;
            audit.contradict(format!(
                "TF {tf} is {} with missing FLPs {missing:?}",
                verdict.name
            ));
        }
        self.check_roster(verdict, audit);
    }

    /// Every FLP that was left in peace and made the TF, or left it out, is a member of its roster.
    fn check_roster(&self, verdict: &Verdict, audit: &mut Audit) {
        let (tf, facts) = (self.id, self.facts);
        let has_part = |flp: u16| {
            facts
                .deliveries
                .iter()
                .any(|found| found.parts.iter().any(|part| part.flp == flp))
        };
        for life in facts
            .made
            .iter()
            .map(|made| made.life)
            .chain(facts.skipped.iter().copied())
        {
            let life = &self.evidence.lives[life];
            let flp = life.node.index;
            let is_there = facts.deliveries.is_empty() || has_part(flp);
            if life.fate == Fate::Ended && !is_there && !verdict.missing.contains(&flp) {
                let name = &verdict.name;
                audit.contradict(format!("TF {tf} is {name} without a part of {}", life.node));
            }
        }
    }

    fn check_deliveries(&self, audit: &mut Audit) {
        let (tf, facts) = (self.id, self.facts);
        if facts.deliveries.len() > 1 {
            audit.delivered_twice += 1;
            let by = facts
                .deliveries
                .iter()
                .map(|found| self.life_name(found.life));
            let by: Vec<String> = by.collect();
            audit.contradict(format!("TF {tf} was handed on by {}", by.join(" and by ")));
        }
        for delivery in &facts.deliveries {
            self.check_delivery(delivery, audit);
        }
    }

    fn check_delivery(&self, delivery: &Delivery, audit: &mut Audit) {
        let tf = self.id;
        let epn = &self.evidence.lives[delivery.life];
        let here = Some((epn.node.index, epn.incarnation));
        let by = self.life_name(delivery.life);
        match self.facts.verdicts.first() {
            None => audit.contradict(format!("TF {tf} was handed on by {by} without a verdict")),
            Some(verdict) if verdict.at != here => {
                let name = &verdict.name;
                audit.contradict(format!(
                    "TF {tf} was handed on by {by}, its verdict is {name} elsewhere"
                ));
            }
            Some(verdict) => {
                let said: BTreeSet<u16> = verdict.missing.iter().copied().collect();
                let found: BTreeSet<u16> = delivery.missing.iter().copied().collect();
                if said != found {
                    audit.contradict(format!(
                        "TF {tf} was handed on by {by} without FLPs {found:?}, its verdict says {said:?}"
                    ));
                }
            }
        }
        let mut flps = BTreeSet::new();
        for part in &delivery.parts {
            if !flps.insert(part.flp) || delivery.missing.contains(&part.flp) {
                audit.contradict(format!(
                    "TF {tf}: flp:{} is twice in the list of parts",
                    part.flp
                ));
            }
            let life = self.evidence.life_of(Role::Flp, part.flp, part.incarnation);
            let made = self.facts.made.iter().find(|made| Some(made.life) == life);
            let is_same =
                made.is_some_and(|made| (made.bytes, made.digest) == (part.bytes, part.digest));
            if !is_same {
                audit.digest_mismatch += 1;
                let source = name("flp", part.flp, part.incarnation);
                audit.contradict(match made {
                    Some(_) => format!("TF {tf}: the part of {source} at {by} is not what it made"),
                    None => format!("TF {tf}: {source} did not make the part that {by} has"),
                });
            }
            self.check_sent(life, here, &by, audit);
        }
    }

    /// A part comes from where it was sent. A killed FLP may not have come to writing that down.
    fn check_sent(
        &self,
        life: Option<LifeIndex>,
        to: Option<(u16, u64)>,
        by: &str,
        audit: &mut Audit,
    ) {
        let Some(life) = life.filter(|life| !self.was_killed(*life)) else {
            return;
        };
        let was_sent = self
            .facts
            .sent
            .iter()
            .any(|sent| sent.life == life && Some(sent.to) == to);
        if !was_sent {
            let (tf, flp) = (self.id, self.life_name(life));
            audit.contradict(format!(
                "TF {tf}: {by} has a part that {flp} did not send there"
            ));
        }
    }

    fn life_name(&self, life: LifeIndex) -> String {
        let life = &self.evidence.lives[life];
        name(
            &life.node.role.to_string(),
            life.node.index,
            life.incarnation,
        )
    }
}

fn name(role: &str, index: u16, incarnation: u64) -> String {
    format!("{role}:{index} (incarnation {incarnation})")
}

fn check_runs(evidence: &Evidence, audit: &mut Audit) {
    if evidence.runs.len() > 1 {
        let runs: Vec<String> = evidence
            .runs
            .iter()
            .map(|(run, node)| format!("{run} by {node}"))
            .collect();
        audit.contradict(format!("the logs are of several runs: {}", runs.join(", ")));
    }
}

/// An FLP makes or skips every TF from its first to its last: a hole is a TF that it forgot. It may skip a TF
/// twice, when it says so again.
fn check_holes(evidence: &Evidence, audit: &mut Audit) {
    let mut last: BTreeMap<LifeIndex, u64> = BTreeMap::new();
    for (tf, facts) in &evidence.tfs {
        let made: Vec<LifeIndex> = facts.made.iter().map(|made| made.life).collect();
        let makers: BTreeSet<LifeIndex> = made.iter().chain(&facts.skipped).copied().collect();
        for life in makers {
            let node = evidence.lives[life].node;
            if made.iter().filter(|maker| **maker == life).count() > 1 {
                audit.contradict(format!("{node} made TF {tf} twice"));
            }
            let before = last.insert(life, *tf);
            if let Some(before) = before.filter(|before| before + 1 != *tf) {
                let (from, to) = (before + 1, tf - 1);
                audit.contradict(format!(
                    "{node} neither made nor skipped TFs {from} to {to}"
                ));
            }
        }
    }
}

/// Of the TFs that only a killed FLP made, the ICN heard of as many as its books have more than the others
/// made. Those are in flight.
fn settle_unannounced(books: &BooksStatus, audit: &mut Audit) {
    let heard = books
        .announced
        .saturating_sub(audit.announced)
        .min(audit.unannounced);
    audit.unannounced -= heard;
    audit.announced += heard;
    audit.in_flight += heard;
}

fn compare(books: &BooksStatus, audit: &mut Audit) {
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
    let reasons: BTreeSet<String> = audit
        .dropped
        .keys()
        .chain(books.dropped.keys())
        .cloned()
        .collect();
    for reason in &reasons {
        let of = |dropped: &BTreeMap<String, u64>| dropped.get(reason).copied().unwrap_or(0);
        pairs.push((reason, of(&audit.dropped), of(&books.dropped)));
    }
    let wrong = pairs.iter().filter(|(_, logs, books)| logs != books);
    let texts: Vec<String> = wrong
        .map(|(what, logs, books)| {
            format!("{what}: the logs say {logs}, the books of the ICN {books}")
        })
        .collect();
    for text in texts {
        audit.contradict(text);
    }
}
