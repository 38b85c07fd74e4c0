//! The books, recomputed from what the nodes wrote down, and everything that must never be.

use crate::plan::{Fault, Plan};
use sheaf_balance::Incomplete;
use sheaf_node::event::{Event, PartEvent};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    pub(crate) announced: u64,
    pub(crate) complete: u64,
    pub(crate) incomplete: u64,
    pub(crate) dropped: u64,
    pub(crate) abandoned: u64,
    pub(crate) reassigned: u64,
    /// Dropped TFs by reason.
    pub(crate) reasons: BTreeMap<String, u64>,
}

impl Books {
    pub(crate) fn add(&mut self, other: &Self) {
        self.announced += other.announced;
        self.complete += other.complete;
        self.incomplete += other.incomplete;
        self.dropped += other.dropped;
        self.abandoned += other.abandoned;
        self.reassigned += other.reassigned;
        for (reason, count) in &other.reasons {
            *self.reasons.entry(reason.clone()).or_default() += count;
        }
    }
}

#[derive(Debug, PartialEq)]
struct Fate {
    verdict: String,
    at: Option<(u16, u64)>,
    missing: Vec<u16>,
    reason: Option<String>,
}

/// STFs made, by TF and FLP and its life: bytes and digest.
type Made = BTreeMap<(u64, u16, u64), (u64, u32)>;

/// FLPs that made or skipped a TF, by TF.
type Named = BTreeMap<u64, BTreeSet<u16>>;

/// Fails with a sentence if the logs contradict each other or a promise.
pub(crate) fn check(plan: &Plan, logs: &BTreeMap<String, Vec<Event>>) -> Books {
    let (made, named) = made_by_flps(logs);
    let mut announced: BTreeSet<u64> = named.keys().copied().collect();
    let (fates, abandoned, called) = fates(&logs["icn:0"]);
    announced.extend(called);
    let mut books = Books {
        announced: announced.len() as u64,
        ..Books::default()
    };
    books.abandoned = abandoned.len() as u64;
    books.reassigned = highest_attempts(logs);
    for (tf, fate) in &fates {
        assert!(
            announced.contains(tf),
            "TF {tf} has the verdict {fate:?} and nobody made it"
        );
        match fate.verdict.as_str() {
            "complete" => books.complete += 1,
            "incomplete" => books.incomplete += 1,
            _ => {
                books.dropped += 1;
                let reason = fate.reason.clone().expect("every drop has a reason");
                check_reason(plan, *tf, &reason);
                *books.reasons.entry(reason).or_default() += 1;
            }
        }
        assert!(
            fate.verdict == "complete" || !plan.kind.loses_nothing(),
            "TF {tf} is {fate:?}, and no FLP was hurt"
        );
        assert!(
            fate.verdict != "incomplete" || plan.incomplete == Incomplete::Allow,
            "TF {tf} is incomplete against the rule"
        );
    }
    for tf in &announced {
        // An FLP that died may have made what it could not announce any more.
        assert!(
            fates.contains_key(tf) || may_have_died_unheard(plan, &named[tf]),
            "TF {tf} was made and has no verdict"
        );
    }
    books.announced = fates.len() as u64;
    let delivered = deliveries(logs, &made, &fates);
    for (tf, fate) in &fates {
        let is_built = fate.verdict != "dropped";
        assert!(
            !is_built || abandoned.contains(tf) || delivered.contains(tf),
            "TF {tf} is {fate:?} and no EPN handed it on"
        );
    }
    books
}

fn made_by_flps(logs: &BTreeMap<String, Vec<Event>>) -> (Made, Named) {
    let (mut made, mut named) = (Made::new(), Named::new());
    for (name, log) in logs.iter().filter(|(name, _)| name.starts_with("flp")) {
        let flp: u16 = name[4..].parse().unwrap();
        let mut life = 0;
        for event in log {
            match event {
                Event::Begin { incarnation, .. } => life = *incarnation,
                Event::Made { tf, bytes, digest } => {
                    named.entry(*tf).or_default().insert(flp);
                    let earlier = made.insert((*tf, flp, life), (*bytes, *digest));
                    assert_eq!(earlier, None, "{name} made the STF of TF {tf} twice");
                }
                Event::Skipped { tf, .. } => {
                    named.entry(*tf).or_default().insert(flp);
                }
                _ => {}
            }
        }
    }
    (made, named)
}

fn fates(log: &[Event]) -> (BTreeMap<u64, Fate>, BTreeSet<u64>, BTreeSet<u64>) {
    let (mut fates, mut abandoned) = (BTreeMap::new(), BTreeSet::new());
    let mut called = BTreeSet::new();
    for event in log {
        match event {
            Event::Verdict {
                tf,
                verdict,
                epn,
                incarnation,
                missing,
                reason,
            } => {
                let at = epn.zip(*incarnation);
                let (verdict, missing) = (verdict.clone(), missing.clone());
                let fate = Fate {
                    verdict,
                    at,
                    missing,
                    reason: reason.clone(),
                };
                let earlier = fates.insert(*tf, fate);
                assert_eq!(earlier, None, "TF {tf} has two verdicts");
            }
            Event::Abandoned { tf } => {
                assert!(abandoned.insert(*tf), "TF {tf} is abandoned twice");
            }
            Event::Called { tf } => {
                assert!(called.insert(*tf), "TF {tf} is called twice");
            }
            _ => {}
        }
    }
    (fates, abandoned, called)
}

fn highest_attempts(logs: &BTreeMap<String, Vec<Event>>) -> u64 {
    let mut attempts: BTreeMap<u64, u32> = BTreeMap::new();
    let mut targets: BTreeMap<(u64, u32), (u16, u64)> = BTreeMap::new();
    for event in logs.values().flatten() {
        if let Event::Sent {
            tf,
            attempt,
            epn,
            incarnation,
            ..
        } = event
        {
            let highest = attempts.entry(*tf).or_default();
            *highest = (*highest).max(*attempt);
            let target = (*epn, *incarnation);
            let known = *targets.entry((*tf, *attempt)).or_insert(target);
            assert_eq!(
                known, target,
                "attempt {attempt} of TF {tf} went to two EPNs"
            );
        }
    }
    attempts
        .values()
        .map(|highest| u64::from(highest - 1))
        .sum()
}

/// Whether something may have kept every one of these FLPs from telling the ICN.
fn may_have_died_unheard(plan: &Plan, namers: &BTreeSet<u16>) -> bool {
    namers.iter().all(|flp| is_hurt(plan, *flp))
}

/// Whether an FLP died, left, was stopped or cut off, or its streams may have broken.
fn is_hurt(plan: &Plan, flp: u16) -> bool {
    let name = format!("flp:{flp}");
    plan.network.reset > 0.0
        || plan.network.loss > 0.0
        || plan.faults.iter().any(|(_, fault)| match fault {
            Fault::Crash { node, .. } | Fault::Leave { node, .. } | Fault::Pause { node, .. } => {
                *node == name
            }
            Fault::Cut { a, b, .. } => *a == name || *b == name,
        })
}

/// A reason must be true: the test knows whom it hurt.
fn check_reason(plan: &Plan, tf: u64, reason: &str) {
    let anyone_hurt = (0..plan.flps).any(|flp| is_hurt(plan, flp));
    let is_true = match reason {
        "source-died" | "source-late" => anyone_hurt,
        _ => false,
    };
    assert!(
        is_true,
        "TF {tf} is dropped for \"{reason}\", and nothing of the kind happened"
    );
}

/// Which TFs were handed on; each once, as its verdict says, with the bytes of its sources.
fn deliveries(
    logs: &BTreeMap<String, Vec<Event>>,
    made: &Made,
    fates: &BTreeMap<u64, Fate>,
) -> BTreeSet<u64> {
    let mut delivered = BTreeSet::new();
    for (name, log) in logs.iter().filter(|(name, _)| name.starts_with("epn")) {
        let epn: u16 = name[4..].parse().unwrap();
        let mut life = 0;
        for event in log {
            match event {
                Event::Begin { incarnation, .. } => life = *incarnation,
                Event::Delivered {
                    tf, parts, missing, ..
                } => {
                    assert!(delivered.insert(*tf), "TF {tf} is handed on twice");
                    let fate = &fates[tf];
                    assert_eq!(
                        fate.at,
                        Some((epn, life)),
                        "TF {tf} handed on against {fate:?}"
                    );
                    assert_eq!(
                        &fate.missing, missing,
                        "TF {tf} lacks other STFs than {fate:?}"
                    );
                    check_parts(*tf, parts, missing, made);
                }
                Event::Fault { tf, detail } => panic!("TF {tf} is damaged: {detail}"),
                _ => {}
            }
        }
    }
    delivered
}

fn check_parts(tf: u64, parts: &[PartEvent], missing: &[u16], made: &Made) {
    let flps: BTreeSet<u16> = parts.iter().map(|part| part.flp).collect();
    assert_eq!(flps.len(), parts.len(), "TF {tf} has two STFs of one FLP");
    assert!(
        missing.iter().all(|flp| !flps.contains(flp)),
        "TF {tf} has what it lacks"
    );
    for part in parts {
        let source = made.get(&(tf, part.flp, part.incarnation));
        let found = Some(&(part.bytes, part.digest));
        assert_eq!(
            source, found,
            "TF {tf} has other bytes than flp:{} made",
            part.flp
        );
    }
}
