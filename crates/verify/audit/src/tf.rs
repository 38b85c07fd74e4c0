//! Rules for one timeframe.

mod deliveries;

use super::auditor::Auditor;
use super::chain::Chain;
use super::evidence::{Evidence, Fate, life_name, name};
use super::finding::Kind;
use super::tables::{Decided, Delivery, Facts, LifeIndex, Named, Part, Verdict, as_they_happened};
use sheaf_protocol::{DropReason, Role};
use std::collections::{BTreeMap, BTreeSet};

/// One TF, with the tables for look-ups.
pub(super) struct Tf<'a> {
    id: u64,
    facts: Facts<'a>,
    evidence: &'a Evidence,
    chain: Chain<'a>,
}

impl<'a> Tf<'a> {
    pub(super) fn new(id: u64, facts: Facts<'a>, evidence: &'a Evidence) -> Self {
        let chain = Chain::of(&facts, &evidence.tables);
        Self {
            id,
            facts,
            evidence,
            chain,
        }
    }

    /// Counts the TF, and finds its contradictions.
    pub(super) fn judge(&self, auditor: &mut Auditor<'_>) {
        let verdicts = self.chain.in_force();
        self.count(&verdicts, auditor);
        self.check_targets(auditor);
        self.check_decisions(&verdicts, auditor);
        self.check_amendments(auditor);
        if self.evidence.has_ledger {
            self.check_ledger(auditor);
            let is_abandoned = !self.facts.abandoned.is_empty();
            let summed = self.verdict_in_sum();
            auditor.count_summed(self.id, summed, is_abandoned, self.is_given_back());
        }
        for verdict in self.chain.first.iter().chain(&self.chain.amendments) {
            self.check_verdict(verdict, auditor);
        }
        let built = verdicts
            .iter()
            .find(|verdict| verdict.name != "dropped")
            .copied();
        self.check_built(built, auditor);
        self.check_deliveries(auditor);
        self.count_sources(verdicts.first().copied(), auditor);
    }

    fn contradict(&self, kind: Kind, text: String, auditor: &mut Auditor<'_>) {
        auditor.contradict(kind, Some(self.id), text);
    }

    /// Returns whether the verdict was amended to dropped, since no consumer took the TF.
    fn is_given_back(&self) -> bool {
        !self.facts.undelivered.is_empty()
    }

    /// Returns the roster in force when the TF was decided, if a log holds it.
    fn roster(&self) -> Option<&'a Vec<Named>> {
        let rosters = &self.evidence.tables.rosters;
        let rows = self.facts.decided.iter().chain(self.facts.redelivered);
        let mut known = rows.map(|decided| rosters.at(decided.roster));
        known.find_map(Option::as_ref)
    }

    fn was_killed(&self, life: LifeIndex) -> bool {
        self.evidence.life(life).was_killed()
    }

    /// Returns the lives of FLPs that made or skipped the TF.
    fn makers(&self) -> impl Iterator<Item = LifeIndex> {
        let made = self.facts.made.iter().map(|made| made.life);
        made.chain(self.facts.skipped.iter().map(|skipped| skipped.life))
    }

    /// Returns whether any node but a killed FLP knows that the TF exists.
    fn is_announced(&self) -> bool {
        let facts = &self.facts;
        facts.called
            || !facts.decided.is_empty()
            || !facts.redelivered.is_empty()
            || self.makers().any(|life| !self.was_killed(life))
    }

    fn count(&self, verdicts: &[&Verdict], auditor: &mut Auditor<'_>) {
        let audit = &mut auditor.audit;
        audit.abandoned += u64::from(!self.facts.abandoned.is_empty());
        audit.redelivered += u64::from(!self.facts.redelivered.is_empty());
        audit.delivered += self.deliveries().len() as u64;
        for verdict in verdicts {
            match verdict.name.as_str() {
                "complete" | "incomplete" if self.is_given_back() => {
                    let reason = DropReason::Undelivered.name().to_owned();
                    *audit.dropped.entry(reason).or_default() += 1;
                    continue;
                }
                "complete" => audit.complete += 1,
                "incomplete" => audit.incomplete += 1,
                "dropped" => {
                    let reason = verdict.reason.clone().unwrap_or_default();
                    *audit.dropped.entry(reason).or_default() += 1;
                }
                _ => {}
            }
            for flp in &verdict.missing {
                *audit.missing.entry(format!("flp:{flp}")).or_default() += 1;
            }
        }
        if self.is_announced() {
            audit.announced += 1;
            audit.in_flight += u64::from(verdicts.is_empty());
        } else if self.makers().next().is_some() {
            audit.unannounced += 1;
        }
        if verdicts.iter().any(|verdict| verdict.name != "dropped") && !self.is_given_back() {
            audit.bytes += self.built_bytes(verdicts);
        }
    }

    /// Returns the bytes delivered as the verdict says; those that the FLPs made, if the EPN died before it could write
    /// that it delivered the TF.
    fn built_bytes(&self, verdicts: &[&Verdict]) -> u64 {
        let is_of_verdict = |delivery: &&Delivery| {
            let epn = self.evidence.life(delivery.life);
            let here = Some((epn.node.index, epn.incarnation));
            verdicts.iter().any(|verdict| verdict.at == here)
        };
        if let Some(delivery) = self.facts.deliveries.iter().find(is_of_verdict) {
            return self.parts_of(delivery).map(|part| part.bytes).sum();
        }
        let missing: BTreeSet<u16> = verdicts
            .iter()
            .flat_map(|verdict| &verdict.missing)
            .copied()
            .collect();
        let mut by_flp = BTreeMap::new();
        for made in self.facts.made {
            let life = self.evidence.life(made.life);
            let is_member = self
                .roster()
                .is_none_or(|roster| roster.contains(&(life.node.index, life.incarnation)));
            if is_member {
                by_flp.insert(life.node.index, made.bytes);
            }
        }
        by_flp
            .iter()
            .filter(|(flp, _)| !missing.contains(flp))
            .map(|(_, bytes)| bytes)
            .sum()
    }

    fn parts_of(&self, delivery: &Delivery) -> impl Iterator<Item = &'a Part> {
        let number = delivery.number;
        self.facts
            .parts
            .iter()
            .filter(move |part| part.delivery == number)
    }

    /// Checks that all FLPs obeyed the same assignment. Attempts count from 1 within a term.
    fn check_targets(&self, auditor: &mut Auditor<'_>) {
        let mut targets: BTreeMap<(u64, u32), BTreeSet<Named>> = BTreeMap::new();
        for sent in self.facts.sent {
            let obeyed = self.evidence.tables.assignments.at(sent.assignment);
            targets
                .entry((obeyed.term, obeyed.attempt))
                .or_default()
                .insert(obeyed.to);
        }
        for ((term, attempt), epns) in targets.iter().filter(|(_, epns)| epns.len() > 1) {
            auditor.audit.mixed_target += 1;
            let names: Vec<String> = epns.iter().map(|epn| name(Role::Epn, *epn)).collect();
            let (tf, names) = (self.id, names.join(" and "));
            let term = if *term == 0 {
                String::new()
            } else {
                format!(" of term {term}")
            };
            let text = format!("TF {tf}: assignment {attempt}{term} was sent to {names}");
            self.contradict(Kind::MixedTarget, text, auditor);
        }
    }

    /// Checks that there is one verdict, about an existing TF.
    fn check_decisions(&self, verdicts: &[&Verdict], auditor: &mut Auditor<'_>) {
        let (tf, facts) = (self.id, &self.facts);
        if verdicts.is_empty()
            && self.evidence.is_over
            && self.is_announced()
            && !self.is_known_by_sum()
        {
            let text = format!("TF {tf} has no verdict, and the run is over");
            self.contradict(Kind::NoVerdict, text, auditor);
        }
        let first = &self.chain.first;
        if first.len() > 1 {
            let texts: Vec<String> = first.iter().map(|verdict| self.describe(verdict)).collect();
            let text = format!("TF {tf} has {} verdicts: {}", first.len(), texts.join(", "));
            self.contradict(Kind::TwoVerdicts, text, auditor);
        }
        // An ICN that takes over writes again the content of the log, once in its term.
        for (session, times) in counts(facts.decided.iter().map(|decided| decided.session)) {
            let session = self.evidence.tables.sessions.at(session);
            if times > 1 && (session.term > 0 || session.is_ledger) {
                let text = format!("TF {tf} was decided {times} times by {}", session.by);
                self.contradict(Kind::TwoVerdicts, text, auditor);
            }
        }
        if !verdicts.is_empty() && !facts.called && self.makers().next().is_none() {
            let text = format!("TF {tf}: no FLP reports that it made or skipped it");
            self.contradict(Kind::MadeUp, text, auditor);
        }
        for (session, times) in counts(facts.abandoned.iter().map(|row| row.session)) {
            let session = self.evidence.tables.sessions.at(session);
            if times > 1 && (session.term > 0 || session.is_ledger) {
                let text = format!("TF {tf} is abandoned {times} times by {}", session.by);
                self.contradict(Kind::BadAbandoned, text, auditor);
            }
        }
        let is_built = verdicts.iter().any(|verdict| verdict.name != "dropped");
        if !facts.abandoned.is_empty() && !is_built {
            let text = format!("TF {tf} is abandoned and was not built");
            self.contradict(Kind::BadAbandoned, text, auditor);
        }
        if self.is_given_back() {
            self.check_given_back(verdicts, auditor);
        }
    }

    /// Checks that a TF whose verdict was amended to dropped was built, that its EPN gave it back, and that none
    /// delivered it.
    fn check_given_back(&self, verdicts: &[&Verdict], auditor: &mut Auditor<'_>) {
        let (tf, facts) = (self.id, &self.facts);
        let mut built = verdicts.iter().filter(|verdict| verdict.name != "dropped");
        let Some(at) = built.find_map(|verdict| verdict.at) else {
            let text = format!("TF {tf} is given back and was not built");
            return self.contradict(Kind::BadUndelivered, text, auditor);
        };
        if !facts.redelivered.is_empty() {
            let text = format!("TF {tf} is given back and redelivered");
            self.contradict(Kind::BadUndelivered, text, auditor);
        }
        if !facts.abandoned.is_empty() {
            let text = format!("TF {tf} is given back and abandoned");
            self.contradict(Kind::BadUndelivered, text, auditor);
        }
        if !facts.deliveries.is_empty() {
            let text = format!("TF {tf} is given back and was delivered");
            self.contradict(Kind::BadUndelivered, text, auditor);
        }
        // A killed EPN may have died before it wrote the line.
        let epn = self.evidence.life_of(Role::Epn, at);
        let is_said = facts.returned.iter().any(|row| Some(row.life) == epn);
        if let Some(epn) = epn.filter(|epn| !is_said && !self.was_killed(*epn)) {
            let by = self.life_name(epn);
            let text = format!("TF {tf} is given back, and {by} does not report that it gave it");
            self.contradict(Kind::BadUndelivered, text, auditor);
        }
    }

    /// Returns whether there is a verdict, of which the verdict log has only the sum.
    fn is_known_by_sum(&self) -> bool {
        let summed = self.evidence.summed.as_ref();
        summed.is_some_and(|summed| summed.has(self.id))
    }

    /// Returns a verdict and its first writer, as text.
    fn describe(&self, verdict: &Verdict) -> String {
        let tables = &self.evidence.tables;
        let by = self
            .facts
            .decided
            .iter()
            .find(|decided| tables.verdicts.at(decided.verdict) == verdict);
        let by = by.map_or("", |decided| {
            tables.sessions.at(decided.session).by.as_str()
        });
        let mut text = verdict.name.clone();
        if let Some(reason) = &verdict.reason {
            text = format!("{text} ({reason})");
        }
        if let Some(at) = verdict.at {
            text = format!("{text} at {}", name(Role::Epn, at));
        }
        if !verdict.missing.is_empty() {
            text = format!("{text} without FLPs {:?}", verdict.missing);
        }
        format!("{text} by {by}")
    }

    /// Checks that the verdict log and the event logs of the ICNs agree.
    fn check_ledger(&self, auditor: &mut Auditor<'_>) {
        let tables = &self.evidence.tables;
        let is_of_ledger = |row: &&Decided| tables.sessions.at(row.session).is_ledger;
        let tf = self.id;
        let rows = || self.facts.decided.iter().chain(self.facts.redelivered);
        let in_ledger = rows().any(|row| is_of_ledger(&row));
        let in_events = rows().find(|row| !is_of_ledger(row));
        let summed = self.evidence.summed.as_ref();
        let is_summed = summed.is_some_and(|summed| summed.has(tf));
        let is_dark = is_summed && !in_ledger && in_events.is_none();
        if is_dark && self.evidence.has_icns {
            let text = format!(
                "TF {tf} is decided by the checkpoint that the verdict log begins with, and no event log of an ICN has it"
            );
            self.contradict(Kind::Ledger, text, auditor);
        }
        if let Some(row) = in_events.filter(|_| !in_ledger && !is_summed) {
            let by = &tables.sessions.at(row.session).by;
            let text = format!("TF {tf} has a verdict by {by}, and none in the verdict log");
            self.contradict(Kind::Ledger, text, auditor);
        }
        if in_ledger && in_events.is_none() && self.evidence.has_icns && self.evidence.is_over {
            let text = format!(
                "TF {tf} has a verdict in the verdict log, and no event log of an ICN has it"
            );
            self.contradict(Kind::Ledger, text, auditor);
        }
    }

    /// Checks that a verdict is one of the three, and complete in itself.
    fn check_verdict(&self, verdict: &Verdict, auditor: &mut Auditor<'_>) {
        let (tf, said) = (self.id, &verdict.name);
        let is_built = match said.as_str() {
            "complete" | "incomplete" => true,
            "dropped" => false,
            _ => {
                let text = format!("TF {tf}: {said:?} is no verdict");
                return self.contradict(Kind::BadVerdict, text, auditor);
            }
        };
        if is_built && (said == "complete") != verdict.missing.is_empty() {
            let text = format!("TF {tf} is {said} with missing FLPs {:?}", verdict.missing);
            self.contradict(Kind::BadVerdict, text, auditor);
        }
        if is_built == verdict.at.is_none() {
            let text = format!("TF {tf} is {said}, at EPN {:?}", verdict.at);
            self.contradict(Kind::BadVerdict, text, auditor);
        }
        self.check_reason(verdict, auditor);
    }

    /// Checks that a reason is on the list and, if its cause is always written down before, that it was.
    fn check_reason(&self, verdict: &Verdict, auditor: &mut Auditor<'_>) {
        let (tf, said) = (self.id, &verdict.name);
        let Some(reason) = &verdict.reason else {
            if said == "dropped" {
                let text = format!("TF {tf} is dropped without a reason");
                self.contradict(Kind::BadReason, text, auditor);
            }
            return;
        };
        if said != "dropped" {
            let text = format!("TF {tf} is {said} and has the reason {reason:?} of a dropped one");
            return self.contradict(Kind::BadReason, text, auditor);
        }
        if !DropReason::ALL.iter().any(|known| known.name() == reason) {
            let text = format!("TF {tf} is dropped for {reason:?}, which is no reason");
            return self.contradict(Kind::BadReason, text, auditor);
        }
        // An FLP writes that it skips before it reports so. All other reasons have causes in no log.
        let reasons = &self.evidence.tables.reasons;
        let is_said = self
            .facts
            .skipped
            .iter()
            .any(|skipped| reasons.at(skipped.reason) == reason);
        let is_of_flp = [DropReason::SourceOverrun, DropReason::SourceDisorder];
        if is_of_flp.iter().any(|one| one.name() == reason) && !is_said {
            let text = format!("TF {tf} is dropped for {reason}, and no FLP reports such a skip");
            self.contradict(Kind::BadReason, text, auditor);
        }
    }

    /// Checks that a built TF was delivered or abandoned, with the parts that it needs.
    fn check_built(&self, built: Option<&Verdict>, auditor: &mut Auditor<'_>) {
        let (tf, facts) = (self.id, &self.facts);
        let Some(verdict) = built.filter(|_| !self.is_given_back()) else {
            return;
        };
        if facts.deliveries.is_empty() && facts.abandoned.is_empty() {
            if self.may_be_on_its_way(verdict) {
                auditor.audit.undelivered += 1;
            } else {
                let text = format!(
                    "TF {tf} is {}, and no EPN reports its delivery",
                    verdict.name
                );
                self.contradict(Kind::NotDelivered, text, auditor);
            }
        }
        match self.roster() {
            Some(roster) => self.check_against_roster(verdict, roster, auditor),
            None => self.check_against_makers(verdict, auditor),
        }
    }

    /// Returns whether a run that is not over may have stopped between the verdict and the delivery. Those who watched
    /// it know better.
    fn may_be_on_its_way(&self, verdict: &Verdict) -> bool {
        let epn = verdict
            .at
            .and_then(|at| self.evidence.life_of(Role::Epn, at));
        !self.evidence.is_over
            && epn.is_some_and(|epn| self.evidence.life(epn).fate == Fate::Unknown)
    }

    /// Checks that parts and missing ones are together the roster, each of the life that it names.
    fn check_against_roster(&self, verdict: &Verdict, roster: &[Named], auditor: &mut Auditor<'_>) {
        let (tf, said) = (self.id, &verdict.name);
        let is_member = |flp: u16| roster.iter().any(|member| member.0 == flp);
        if let Some(flp) = verdict.missing.iter().find(|flp| !is_member(**flp)) {
            let text = format!("TF {tf} misses flp:{flp}, which is not in its roster");
            self.contradict(Kind::WrongParts, text, auditor);
        }
        for delivery in self.facts.deliveries {
            let bidden = self
                .verdict_of(delivery)
                .map_or(verdict, |(bidden, _)| bidden);
            let expected: BTreeSet<Named> = roster
                .iter()
                .filter(|member| !bidden.missing.contains(&member.0))
                .copied()
                .collect();
            let found: BTreeSet<Named> = self
                .parts_of(delivery)
                .map(|part| self.source(part))
                .collect();
            for lacking in expected.difference(&found) {
                let text = format!(
                    "TF {tf} is {said} without a part of {}",
                    name(Role::Flp, *lacking)
                );
                self.contradict(Kind::WrongParts, text, auditor);
            }
            for strange in found.difference(&expected) {
                let text = format!(
                    "TF {tf} is {said} with a part of {}, which is not in its roster",
                    name(Role::Flp, *strange)
                );
                self.contradict(Kind::WrongParts, text, auditor);
            }
        }
    }

    /// Checks that every FLP that was left in peace and made the TF, or left it out, is a member of its roster. Of the
    /// others, one that sent to the EPN was a member.
    fn check_against_makers(&self, verdict: &Verdict, auditor: &mut Auditor<'_>) {
        let (tf, said) = (self.id, &verdict.name);
        let Some(delivery) = self.facts.deliveries.first() else {
            return;
        };
        let parts: BTreeSet<u16> = self
            .parts_of(delivery)
            .map(|part| self.source(part).0)
            .collect();
        let tables = &self.evidence.tables;
        let sent_there = |life: LifeIndex| {
            let mut sent = self.facts.sent.iter();
            sent.any(|sent| {
                sent.life == life && Some(tables.assignments.at(sent.assignment).to) == verdict.at
            })
        };
        for index in self.makers() {
            let life = self.evidence.life(index);
            let flp = life.node.index;
            let is_wanted = life.fate == Fate::Ended || sent_there(index);
            if is_wanted && !parts.contains(&flp) && !verdict.missing.contains(&flp) {
                let text = format!("TF {tf} is {said} without a part of {}", life.node);
                self.contradict(Kind::WrongParts, text, auditor);
            }
        }
    }

    fn source(&self, part: &Part) -> Named {
        *self.evidence.tables.sources.at(part.source)
    }

    /// Returns the deliveries as they happened: the report of a later life of an EPN about a former one is no other
    /// delivery.
    fn deliveries(&self) -> Vec<&'a Delivery> {
        as_they_happened(self.facts.deliveries)
    }

    fn check_part(
        &self,
        part: &Part,
        source: Named,
        here: Named,
        by: &str,
        auditor: &mut Auditor<'_>,
    ) {
        let tf = self.id;
        let life = self.evidence.life_of(Role::Flp, source);
        let made = self.facts.made.iter().find(|made| Some(made.life) == life);
        let is_same =
            made.is_some_and(|made| (made.bytes, made.digest) == (part.bytes, part.digest));
        if !is_same {
            auditor.audit.digest_mismatch += 1;
            let source = name(Role::Flp, source);
            let text = match made {
                Some(_) => format!("TF {tf}: the part of {source} at {by} is not what it made"),
                None => format!("TF {tf}: {source} did not make the part that {by} has"),
            };
            self.contradict(Kind::DigestMismatch, text, auditor);
        }
        // A killed FLP may have died before it wrote that it sent.
        let Some(life) = life.filter(|life| !self.was_killed(*life)) else {
            return;
        };
        let assignments = &self.evidence.tables.assignments;
        let mut sent = self.facts.sent.iter();
        if !sent.any(|sent| sent.life == life && assignments.at(sent.assignment).to == here) {
            let flp = self.life_name(life);
            let text = format!("TF {tf}: {by} has a part that {flp} did not send there");
            self.contradict(Kind::NotSent, text, auditor);
        }
    }

    /// Counts the fates of the STF of each FLP.
    fn count_sources(&self, verdict: Option<&Verdict>, auditor: &mut Auditor<'_>) {
        for skipped in self.facts.skipped {
            let flp = self.evidence.life(skipped.life).node;
            auditor
                .audit
                .sources
                .entry(flp.to_string())
                .or_default()
                .skipped += 1;
        }
        let is_undelivered = self.facts.deliveries.is_empty();
        for made in self.facts.made {
            let life = self.evidence.life(made.life);
            let source = (life.node.index, life.incarnation);
            let is_delivered = self
                .facts
                .parts
                .iter()
                .any(|part| self.source(part) == source);
            let is_member = self.roster().is_none_or(|roster| roster.contains(&source));
            let accounting = auditor
                .audit
                .sources
                .entry(life.node.to_string())
                .or_default();
            accounting.made += 1;
            match verdict {
                None => accounting.in_flight += 1,
                Some(verdict) if verdict.name == "dropped" => accounting.dropped += 1,
                Some(_) if self.is_given_back() => accounting.dropped += 1,
                Some(_) if is_delivered => accounting.delivered += 1,
                Some(_) if !is_member => accounting.outside += 1,
                Some(verdict) if verdict.missing.contains(&source.0) => accounting.missing += 1,
                Some(_) if !self.facts.abandoned.is_empty() => accounting.abandoned += 1,
                Some(verdict) if is_undelivered && self.may_be_on_its_way(verdict) => {
                    accounting.in_flight += 1;
                }
                // Without rosters the members are unknown. An FLP that was left in peace was one.
                Some(_)
                    if !is_undelivered && self.roster().is_none() && life.fate != Fate::Ended =>
                {
                    accounting.outside += 1;
                }
                Some(_) => {}
            }
        }
    }

    fn life_name(&self, life: LifeIndex) -> String {
        life_name(self.evidence.life(life))
    }
}

/// Returns how often each place occurs.
fn counts(places: impl Iterator<Item = u32>) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    for place in places {
        *counts.entry(place).or_default() += 1;
    }
    counts
}
