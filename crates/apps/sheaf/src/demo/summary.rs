//! The summary of a demo: for machines (`docs/reference/demo.md` describes every field) and for people.

use super::args::Args;
use super::faults::FaultKind;
use super::history::{History, Leader};
use super::watch::Watch;
use crate::abandoned;
use serde::{Deserialize, Serialize};
use sheaf_audit::{Audit, Evidence};
use sheaf_farm::Supervisor;
use sheaf_farm::proc::Machine;
use sheaf_node::status::Quantiles;
use sheaf_protocol::{NodeId, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

/// Version of the schema.
const SCHEMA: u32 = 1;

/// Summary that `--json` writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Version of this schema.
    pub(crate) schema: u32,
    /// Version of Sheaf.
    pub(crate) version: String,
    /// The run, as 16 hexadecimal digits.
    pub(crate) run: String,
    /// The command line.
    pub(crate) command: Vec<String>,
    /// Where it ran.
    pub(crate) machine: Machine,
    /// Why it ended: `duration`, `timeframes`, `source`, `user`, `failed`.
    pub(crate) ended_by: String,
    /// TFs that exist.
    pub(crate) announced: u64,
    /// TFs built with all parts.
    pub(crate) complete: u64,
    /// Of complete and incomplete: the EPN died before it had acknowledged.
    pub(crate) abandoned: u64,
    /// Of those delivered: the consumer had not finished when the EPN died.
    #[serde(default)]
    pub(crate) died_unprocessed: u64,
    /// As before, when the EPN ended in order.
    #[serde(default)]
    pub(crate) unprocessed: u64,
    /// Of complete and incomplete: built again by another EPN, and delivered with a mark.
    #[serde(default)]
    pub(crate) redelivered: u64,
    /// TFs built with parts missing.
    pub(crate) incomplete: u64,
    /// Incomplete TFs by the FLP that is missing.
    pub(crate) missing: BTreeMap<String, u64>,
    /// How the connections were guarded: `tls`, `crc-only`, `loopback` or `insecure`.
    #[serde(default)]
    pub(crate) security: String,
    /// TFs not built, by reason.
    pub(crate) dropped: BTreeMap<String, u64>,
    /// TFs without a verdict, counted one by one.
    pub(crate) in_flight: u64,
    /// Whether the sum holds and the event logs contradict neither each other nor the books of the ICN.
    pub(crate) ledger_balanced: bool,
    /// The first contradictions, in words.
    pub(crate) contradictions: Vec<String>,
    /// All contradictions.
    pub(crate) contradictions_total: u64,
    /// STFs that died with a killed FLP before any node had received their TF.
    pub(crate) unannounced: u64,
    /// Assignments whose STFs went to more than one EPN.
    pub(crate) mixed_target: u64,
    /// TFs delivered more than once.
    pub(crate) delivered_twice: u64,
    /// STFs delivered that differ from what their FLP made.
    pub(crate) digest_mismatch: u64,
    /// Times that a consumer found something wrong with a TF.
    pub(crate) consumer_faults: u64,
    /// STFs refused because they were there already.
    pub(crate) duplicates_refused: u64,
    /// Assignments after the first one of a TF.
    pub(crate) reassigned: u64,
    /// Payload bytes of built TFs.
    pub(crate) bytes: u64,
    /// From the first announce to the stop of the sources.
    pub(crate) duration_s: f64,
    /// `complete` ÷ `duration_s`.
    pub(crate) tf_per_s: f64,
    /// `bytes` ÷ `duration_s`, in 10⁹ bytes.
    pub(crate) gb_per_s: f64,
    /// CPU time of all nodes.
    pub(crate) cpu_s: f64,
    /// CPU time for 10⁹ payload bytes; `null` if there were none.
    pub(crate) cpu_s_per_gb: Option<f64>,
    /// Largest resident memory of one node.
    pub(crate) rss_bytes_max: u64,
    /// The same, of all nodes together.
    pub(crate) rss_bytes_sum: u64,
    /// Latency by stage.
    pub(crate) latency_us: BTreeMap<String, Quantiles>,
    /// Refusals of the policy, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Injected faults.
    pub(crate) faults: Vec<FaultDone>,
    /// Other problems, such as a node that ended by itself.
    pub(crate) problems: Vec<String>,
    /// Warnings of nodes that were not killed: text, count, and first time.
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
    /// ICNs.
    #[serde(default)]
    pub(crate) icns: u16,
    /// Membership back end: `embedded`, `zookeeper`.
    #[serde(default)]
    pub(crate) membership: String,
    /// The ICNs that led, one after the other.
    #[serde(default)]
    pub(crate) leaders: Vec<Leader>,
    /// Longest time in which no STF was sent, in ms; `null` with one life of one ICN.
    #[serde(default)]
    pub(crate) assignment_gap_ms_max: Option<f64>,
    /// ICNs, FLPs, EPNs.
    pub(crate) nodes: Vec<NodeSummary>,
}

/// One fault that was injected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FaultDone {
    /// Seconds since the first announce.
    pub(crate) at_s: f64,
    /// Such as `epn:2`.
    pub(crate) node: String,
    /// Kind of the fault.
    pub(crate) kind: FaultKind,
}

/// One node over all its lives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeSummary {
    /// Such as `flp:1`.
    pub(crate) node: String,
    /// Processes that took its place, one after the other.
    pub(crate) lives: u64,
    /// How the last of them ended: `dismissed`, `shutdown`, `failed` or `killed`.
    pub(crate) exit: String,
    /// STFs made (FLP), TFs delivered (EPN), verdicts (ICN).
    pub(crate) items: u64,
    /// Payload bytes of them.
    pub(crate) bytes: u64,
    /// `items` ÷ duration.
    pub(crate) items_per_s: f64,
    /// CPU time of all threads.
    pub(crate) cpu_s: f64,
    /// Largest resident memory.
    pub(crate) rss_bytes_max: u64,
    /// EPN: STFs refused because they were there already.
    pub(crate) duplicates_refused: u64,
    /// EPN: first announce to commit of the TFs built there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) latency_us: Option<Quantiles>,
}

/// Input of a summary.
pub(crate) struct Outcome<'a> {
    pub(crate) args: &'a Args,
    pub(crate) history: History,
    pub(crate) farm: &'a Supervisor<'a>,
    pub(crate) watch: &'a Watch,
    pub(crate) evidence: &'a Evidence,
    pub(crate) audit: Audit,
    pub(crate) faults: Vec<FaultDone>,
    pub(crate) problems: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) ended_by: String,
}

impl Summary {
    /// Puts everything together.
    pub(crate) fn new(outcome: Outcome<'_>) -> Self {
        let Outcome {
            args,
            history,
            farm,
            watch,
            evidence,
            audit,
            faults,
            problems,
            warnings,
            ended_by,
        } = outcome;
        let status = watch.status();
        let duration_s = status.duration_s;
        let per_s = |count: f64| {
            if duration_s > 0.0 {
                count / duration_s
            } else {
                0.0
            }
        };
        let ids: BTreeSet<NodeId> = farm.lives().iter().map(|life| life.node).collect();
        let nodes: Vec<NodeSummary> = ids
            .into_iter()
            .map(|node| {
                let mut found = node_summary(node, farm, watch, evidence);
                if node.role == Role::Icn {
                    found.items = history.decided.get(&node).copied().unwrap_or(0);
                }
                found.items_per_s = per_s(found.items as f64);
                found
            })
            .collect();
        let cpu_s: f64 = nodes.iter().map(|node| node.cpu_s).sum();
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            run: status.run,
            command: std::env::args().collect(),
            machine: Machine::this(),
            ended_by,
            security: status.security,
            ledger_balanced: audit.is_balanced(),
            announced: audit.announced,
            complete: audit.complete,
            abandoned: audit.abandoned,
            died_unprocessed: audit.died_unprocessed,
            unprocessed: audit.unprocessed,
            redelivered: audit.redelivered,
            incomplete: audit.incomplete,
            missing: audit.missing,
            dropped: audit.dropped,
            in_flight: audit.in_flight,
            contradictions: audit
                .contradictions
                .iter()
                .map(ToString::to_string)
                .collect(),
            contradictions_total: audit.contradictions_total,
            unannounced: audit.unannounced,
            mixed_target: audit.mixed_target,
            delivered_twice: audit.delivered_twice,
            digest_mismatch: audit.digest_mismatch,
            consumer_faults: audit.consumer_faults,
            duplicates_refused: watch.duplicates_refused(),
            reassigned: watch.reassigned(),
            bytes: audit.bytes,
            duration_s,
            tf_per_s: per_s(audit.complete as f64),
            gb_per_s: per_s(audit.bytes as f64 / 1e9),
            cpu_s,
            cpu_s_per_gb: (audit.bytes > 0).then(|| cpu_s / (audit.bytes as f64 / 1e9)),
            rss_bytes_max: nodes
                .iter()
                .map(|node| node.rss_bytes_max)
                .max()
                .unwrap_or(0),
            rss_bytes_sum: nodes.iter().map(|node| node.rss_bytes_max).sum(),
            latency_us: status.latency_us,
            refused: watch.refused(),
            faults,
            problems,
            warnings,
            icns: args.icns(),
            membership: args.membership.name().to_owned(),
            leaders: history.leaders,
            assignment_gap_ms_max: history.assignment_gap_ms_max,
            nodes,
        }
    }

    /// Whether everything is in order: then the exit status is 0.
    pub(crate) fn is_good(&self) -> bool {
        self.ledger_balanced
            && self.in_flight == 0
            && self.consumer_faults == 0
            && self.problems.is_empty()
    }

    /// For machines.
    pub(crate) fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("names and numbers always have a JSON form");
        text.push('\n');
        text
    }
}

fn node_summary(
    node: NodeId,
    farm: &Supervisor<'_>,
    watch: &Watch,
    evidence: &Evidence,
) -> NodeSummary {
    let lives = || farm.lives().iter().filter(|life| life.node == node);
    let (items, bytes) = evidence.work_of(node);
    let exit = lives().next_back().map(|life| match &life.exit {
        Some(exit) => exit.reason.as_str(),
        None if life.was_killed() => "killed",
        None => "failed",
    });
    let status = watch.status();
    let epn = status
        .epns
        .iter()
        .find(|epn| node.role == Role::Epn && epn.index == node.index);
    NodeSummary {
        node: node.to_string(),
        lives: lives().count() as u64,
        exit: exit.unwrap_or_default().to_owned(),
        items,
        bytes,
        items_per_s: 0.0,
        cpu_s: lives().map(|life| life.usage().cpu_s).sum(),
        rss_bytes_max: lives()
            .map(|life| life.usage().rss_bytes_max)
            .max()
            .unwrap_or(0),
        duplicates_refused: epn.map_or(0, |epn| watch.duplicates_refused_by(epn.index)),
        latency_us: epn.map(|epn| epn.latency_us),
    }
}

impl fmt::Display for Summary {
    /// For people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dropped: u64 = self.dropped.values().sum();
        let mark = if self.ledger_balanced { "✔" } else { "✘" };
        writeln!(
            f,
            "run {} ended by {} after {:.1} s",
            self.run, self.ended_by, self.duration_s
        )?;
        writeln!(
            f,
            "  announced {} = complete {} + incomplete {} + dropped {dropped} + in flight {} {mark}",
            self.announced, self.complete, self.incomplete, self.in_flight
        )?;
        if !self.dropped.is_empty() {
            writeln!(f, "  dropped: {}", counts(&self.dropped))?;
        }
        if !self.missing.is_empty() {
            writeln!(f, "  missing in incomplete TFs: {}", counts(&self.missing))?;
        }
        writeln!(
            f,
            "  mixed {}, delivered twice {}, digest mismatches {}, abandoned {}, reassigned {}, duplicates refused {}",
            self.mixed_target,
            self.delivered_twice,
            self.digest_mismatch,
            self.abandoned,
            self.reassigned,
            self.duplicates_refused
        )?;
        if self.redelivered > 0 {
            writeln!(f, "  redelivered {}", self.redelivered)?;
        }
        let cpu = self
            .cpu_s_per_gb
            .map_or("-".to_owned(), |cpu| format!("{cpu:.2}"));
        writeln!(
            f,
            "  {:.1} TF/s, {:.3} GB/s, {cpu} CPU s/GB, largest node {:.0} MB",
            self.tf_per_s,
            self.gb_per_s,
            self.rss_bytes_max as f64 / 1e6
        )?;
        for stage in STAGES {
            if let Some(found) = self.latency_us.get(stage) {
                let ms = |us: f64| us / 1000.0;
                let (p50, p99, max) = (ms(found.p50), ms(found.p99), ms(found.max));
                writeln!(
                    f,
                    "  {stage:<22} p50 {p50:8.2} ms  p99 {p99:8.2} ms  max {max:8.2} ms"
                )?;
            }
        }
        if self.leaders.len() > 1 {
            let leaders = self.leaders.iter();
            let told = leaders
                .map(|led| format!("{} from {:.2} s (term {})", led.icn, led.at_s, led.term));
            let told = told.collect::<Vec<_>>().join(", ");
            let gap = self.assignment_gap_ms_max.map_or_else(String::new, |gap| {
                format!("; at most {gap:.0} ms without an STF sent")
            });
            writeln!(f, "  led by {told}{gap}")?;
        }
        for fault in &self.faults {
            writeln!(f, "  {:.1} s: {} {}", fault.at_s, fault.node, fault.kind)?;
        }
        write!(f, "{}", abandoned::Warning(self.abandoned))?;
        if self.died_unprocessed > 0 {
            let tfs = self.died_unprocessed;
            writeln!(
                f,
                "  {tfs} TFs died with their EPN before its consumer had finished"
            )?;
        }
        // They are part of every fault that was asked for; worth a line if something was lost.
        if !self.is_good() || dropped > 0 || self.abandoned > 0 {
            for warning in &self.warnings {
                writeln!(f, "  {warning}")?;
            }
        }
        for problem in &self.problems {
            writeln!(f, "  PROBLEM: {problem}")?;
        }
        for text in &self.contradictions {
            writeln!(f, "  CONTRADICTION: {text}")?;
        }
        let more = self
            .contradictions_total
            .saturating_sub(self.contradictions.len() as u64);
        if more > 0 {
            writeln!(f, "  … and {more} more contradictions")?;
        }
        if self.consumer_faults > 0 {
            writeln!(
                f,
                "  PROBLEM: consumers found {} faults in TFs",
                self.consumer_faults
            )?;
        }
        Ok(())
    }
}

/// In the order of the life of a TF.
const STAGES: [&str; 5] = [
    "announce_to_assign",
    "assign_to_first_byte",
    "first_to_last_byte",
    "last_byte_to_commit",
    "total",
];

fn counts(counts: &BTreeMap<String, u64>) -> String {
    let mut text = String::new();
    for (index, (name, count)) in counts.iter().enumerate() {
        let comma = if index > 0 { ", " } else { "" };
        write!(text, "{comma}{name} {count}").expect("a string takes every text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Summary {
        Summary {
            schema: SCHEMA,
            run: "00000000000000aa".to_owned(),
            ended_by: "duration".to_owned(),
            announced: 100,
            complete: 97,
            incomplete: 3,
            missing: BTreeMap::from([("flp:1".to_owned(), 3)]),
            ledger_balanced: true,
            bytes: 2_000_000_000,
            duration_s: 1.0,
            tf_per_s: 97.0,
            gb_per_s: 2.0,
            cpu_s_per_gb: Some(0.5),
            latency_us: BTreeMap::from([(
                "total".to_owned(),
                Quantiles {
                    p50: 1000.0,
                    p99: 2500.0,
                    max: 4000.0,
                },
            )]),
            faults: vec![FaultDone {
                at_s: 3.0,
                node: "flp:1".to_owned(),
                kind: FaultKind::Kill,
            }],
            ..Summary::default()
        }
    }

    #[test]
    fn machines_read_back_what_was_written() {
        let text = good().to_json();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), good());
    }

    #[test]
    fn every_documented_field_is_there() {
        let value: serde_json::Value = serde_json::from_str(&good().to_json()).unwrap();
        let page = include_str!("../../../../../docs/reference/demo.md");
        let documented: Vec<&str> = page
            .lines()
            .filter_map(|line| {
                line.strip_prefix("| `")?
                    .split_once('`')
                    .map(|(name, _)| name)
            })
            .filter(|name| !name.starts_with('-') && !name.contains(['.', '@']))
            .collect();
        for name in &documented {
            assert!(
                value.get(name).is_some(),
                "`{name}` is described and not written"
            );
        }
        for name in value.as_object().unwrap().keys() {
            assert!(
                documented.contains(&name.as_str()),
                "`{name}` is written and not described"
            );
        }
    }

    #[test]
    fn people_see_the_sum_and_what_is_missing() {
        let text = good().to_string();
        for expected in [
            "run 00000000000000aa ended by duration after 1.0 s",
            "announced 100 = complete 97 + incomplete 3 + dropped 0 + in flight 0 ✔",
            "missing in incomplete TFs: flp:1 3",
            "97.0 TF/s, 2.000 GB/s, 0.50 CPU s/GB",
            "total                  p50     1.00 ms  p99     2.50 ms  max     4.00 ms",
            "3.0 s: flp:1 killed",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
    }

    #[test]
    fn whatever_is_wrong_spoils_the_exit_status() {
        assert!(good().is_good());
        let spoils: [fn(&mut Summary); 4] = [
            |summary| summary.ledger_balanced = false,
            |summary| summary.in_flight = 1,
            |summary| summary.consumer_faults = 1,
            |summary| summary.problems.push("epn:1 ended by itself".to_owned()),
        ];
        for spoil in spoils {
            let mut summary = good();
            spoil(&mut summary);
            assert!(!summary.is_good());
        }
    }
}
