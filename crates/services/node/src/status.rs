//! Status of the farm by the ICN, as one JSON line for status views.
//!
//! Counts are totals since the process began; a view makes rates of two lines.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One line of `sheaf run icn --status-ms N` on stdout. Schema: `docs/reference/status.md`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FarmStatus {
    /// Version of this schema: 1.
    pub version: u32,
    /// The run, as 16 hexadecimal digits.
    pub run: String,
    /// `waiting`, `running`, `stopping`, `draining` or `over`; `standby` at an ICN that does not lead.
    pub phase: String,
    /// Policy in force.
    pub policy: String,
    /// Seconds since the ICN began.
    pub uptime_s: f64,
    /// Seconds from the first announce to now, or to the stop of the sources.
    pub duration_s: f64,
    /// The first TF of the run; 0 before the run has begun.
    #[serde(default)]
    pub first_tf: u64,
    /// FLPs of which the begin of the run awaits the id of the first STF.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited_flps: Vec<u16>,
    /// How connections are guarded: `tls`, `crc-only` (STFs in the clear), `loopback` (plain, on this machine only) or
    /// `insecure` (plain, anywhere). Empty where the process is unknown.
    #[serde(default)]
    pub security: String,
    /// The books.
    #[serde(rename = "books")]
    pub accounting: AccountingStatus,
    /// Longest time of the last seconds for which the ICN was ready to run and had no processor.
    #[serde(default)]
    pub run_delay_s: f64,
    /// Times that this leader has found a node silent.
    #[serde(default)]
    pub suspected: u64,
    /// TFs that wait for room.
    pub queued: u64,
    /// The verdict log, and who leads.
    #[serde(default)]
    pub ledger: LedgerStatus,
    /// Latency by stage, in µs: `announce_to_assign`, `assign_to_first_byte`, `first_to_last_byte`,
    /// `last_byte_to_commit`, `total`.
    pub latency_us: BTreeMap<String, Quantiles>,
    /// Refusals of the policy, by reason.
    pub refused: BTreeMap<String, u64>,
    /// By index.
    pub flps: Vec<FlpStatus>,
    /// By index.
    pub epns: Vec<EpnStatus>,
}

/// The verdict log as the ICN sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LedgerStatus {
    /// Index of the ICN that tells.
    pub icn: u16,
    /// `leader` or `standby`.
    pub office: String,
    /// The term, counted up with every change of leaders.
    pub term: u64,
    /// The ICN that leads, as far as is known.
    pub leader: Option<u16>,
    /// `memory`, `file`, `majority` or `zookeeper`.
    pub backend: String,
    /// Records durable in the log.
    pub records: u64,
    /// The trouble there is.
    pub trouble: Option<String>,
}

/// The fates of TFs so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccountingStatus {
    /// TFs that exist.
    pub announced: u64,
    /// Built with all parts.
    pub complete: u64,
    /// Built with parts missing.
    pub incomplete: u64,
    /// Not built, by reason; reasons that never occurred are left out.
    pub dropped: BTreeMap<String, u64>,
    /// Counted in the table.
    pub in_flight: u64,
    /// Of complete and incomplete: the EPN died before it had acknowledged.
    pub abandoned: u64,
    /// Of complete and incomplete: built again by another EPN, and delivered with a mark.
    #[serde(default)]
    pub redelivered: u64,
    /// Assignments after the first one of a TF.
    pub reassigned: u64,
    /// Payload bytes of built TFs.
    pub bytes: u64,
    /// Whether announced = complete + incomplete + dropped + in flight.
    pub balanced: bool,
}

/// A distribution in three figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of all are at or below.
    pub p50: f64,
    /// 99 of 100 are at or below.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// One FLP as its last heartbeat says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlpStatus {
    /// Which FLP.
    pub index: u16,
    /// `up`, `silent`, `cut`, `ended`, `left` or `gone`.
    pub state: String,
    /// Incarnation.
    pub incarnation: u64,
    /// STFs held.
    pub held_stfs: u64,
    /// Bytes held.
    pub held_bytes: u64,
    /// STFs made.
    pub made_stfs: u64,
    /// Payload bytes sent, repeats included.
    pub sent_bytes: u64,
    /// Counter of TF ids of the source: `in-step`, `behind` or `ahead` of the run; `unknown` until its first STF.
    #[serde(default)]
    pub counter: String,
    /// STFs of the source that the FLP refused.
    #[serde(default)]
    pub refused_stfs: u64,
    /// TFs of the run that it has neither announced nor skipped: to come, or made while it was away.
    #[serde(default)]
    pub lag_tfs: u64,
    /// Longest time of the last seconds for which it was ready to run and had no processor.
    #[serde(default)]
    pub run_delay_s: f64,
}

/// One EPN as its last heartbeat says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpnStatus {
    /// Which EPN.
    pub index: u16,
    /// `up`, `silent`, `cut`, `leaving`, `disabled` (by an operator), `left` or `gone`.
    pub state: String,
    /// Share of the work relative to other EPNs, in thousandths, for weighted policies.
    #[serde(default)]
    pub weight_milli: u32,
    /// Incarnation.
    pub incarnation: u64,
    /// TFs in building.
    pub open_tfs: u64,
    /// Bytes of them.
    pub open_bytes: u64,
    /// Bytes with the consumer.
    pub sink_bytes: u64,
    /// Bytes reserved by the scheduler.
    pub booked_bytes: u64,
    /// Bytes that it can hold.
    pub capacity_bytes: u64,
    /// TFs delivered.
    pub delivered_tfs: u64,
    /// Payload bytes received, refused ones included.
    pub received_bytes: u64,
    /// STFs refused because they were there already.
    pub duplicates_refused: u64,
    /// STFs with a wrong digest.
    pub digest_mismatches: u64,
    /// Longest time of the last seconds for which it was ready to run and had no processor.
    #[serde(default)]
    pub run_delay_s: f64,
    /// First announce to commit of the TFs built here, in µs.
    pub latency_us: Quantiles,
}
