//! Report of the ICN about the farm: the status line and its metrics.

use super::IcnNode;
use super::lead::Lead;
use super::node_states::NodeState;
use crate::status::{AccountingStatus, EpnStatus, FarmStatus, FlpStatus, LedgerStatus};
use sheaf_membership::MemberState;
use sheaf_metrics::{Metric, Registry, Row};
use sheaf_placement::Refusal;
use sheaf_protocol::{DropReason, EpnId, FlpId, NodeId, Role, Timestamp};
use sheaf_scheduler::Accounting;
use sheaf_transport::Transport;
use std::collections::BTreeSet;
use std::time::Duration;

/// Metrics of a leading ICN.
const OF_LEAD: &[Row<Lead>] = &[
    Row::counter(
        "balance_tf_announced_total",
        "TFs announced, skipped or called for.",
        "its rate is the rate of the farm. Zero: the run waits for its quorum, or all holds are full",
        |lead| lead.scheduler.accounting().announced,
    ),
    Row::counter(
        "balance_tf_complete_total",
        "TFs built with all STFs.",
        "healthy: as fast as announced",
        |lead| lead.scheduler.accounting().complete,
    ),
    Row::counter(
        "balance_tf_incomplete_total",
        "TFs built with STFs missing.",
        "an FLP lags or is gone: look for the one whose `acquire_stf_made_total` stands still",
        |lead| lead.scheduler.accounting().incomplete,
    ),
    Row::counters(
        "balance_tf_dropped_total",
        "TFs dropped, by reason.",
        "any but `run-ended` at a stop is an alarm; [the table](../how-to/operate.md#drop-reasons) says which",
        &["reason"],
        |lead| {
            let dropped = &lead.scheduler.accounting().dropped;
            DropReason::ALL
                .iter()
                .map(|reason| (reason.name(), dropped[reason.index()]))
                .collect()
        },
    ),
    Row::counter(
        "balance_tf_abandoned_total",
        "Built TFs whose EPN died before it acknowledged their delivery.",
        "counted in complete or incomplete as well. An EPN died: find out why. Whether its consumer has these \
         TFs is unknown",
        |lead| lead.scheduler.accounting().abandoned,
    ),
    Row::counter(
        "balance_tf_redelivered_total",
        "TFs built again because their EPN died before it acknowledged, and delivered with a mark.",
        "counted in complete or incomplete as well; `icn.delivery = \"at-least-once\"` only. An EPN died: find out why. \
         Consumers may have these TFs twice",
        |lead| lead.scheduler.accounting().redelivered,
    ),
    Row::counter(
        "balance_tf_reassigned_total",
        "Assignments of TFs after their first one.",
        "healthy: 0. Steady growth: an EPN is too slow for `tf_deadline_ms`, or a path is broken",
        |lead| lead.scheduler.accounting().reassigned,
    ),
    Row::counter(
        "balance_tf_bytes_total",
        "Payload bytes of built TFs.",
        "its rate is the goodput",
        |lead| lead.scheduler.accounting().bytes,
    ),
    Row::counter(
        "balance_choices_total",
        "Times that the policy was asked for an EPN.",
        "healthy: as fast as announced",
        |lead| lead.scheduler.stats().choices,
    ),
    Row::counters(
        "balance_refused_total",
        "Times that no EPN could be chosen, by reason.",
        "`no_target`: no EPN has joined. `none_available`: all are silent or leave. `none_allowed`: an FLP \
         cannot reach the others. `no_slot`: raise `tfs_in_building_max`. `no_memory`: more EPNs, more \
         `capacity_bytes` or a faster consumer. `too_large`: a larger `capacity_bytes`",
        &["reason"],
        |lead| {
            let refused = &lead.scheduler.stats().refused;
            Refusal::ALL
                .iter()
                .map(|refusal| (refusal.name(), refused[refusal.index()]))
                .collect()
        },
    ),
    Row::counter(
        "balance_commits_repeated_total",
        "Commits retransmitted to an EPN for want of an acknowledgement.",
        "after 100 ms without an acknowledgement. A consumer is slow, or an EPN hangs",
        |lead| lead.scheduler.stats().commits_repeated,
    ),
    Row::counter(
        "balance_nodes_suspected_total",
        "Times that a node was found silent.",
        "healthy: 0. Steady growth: a node hangs again and again, or is short of processor time \
         (`balance_run_delay_seconds`)",
        |lead| lead.suspected,
    ),
    Row::counter(
        "balance_releases_repeated_total",
        "Releases retransmitted to nodes that had not applied them in time.",
        "one for each node that joins. Steady growth: a node does not read its control stream",
        |lead| lead.scheduler.stats().releases_repeated,
    ),
    Row::gauge(
        "balance_pace_late_seconds_max",
        "Longest delay of a heartbeat behind its deadline, in seconds.",
        "paced mode only. Above a tenth of the period: the ICN does not get its processor",
        |lead| lead.scheduler.stats().pace_late_ns_max,
    ),
    Row::gauge(
        "balance_tf_in_flight",
        "TFs without a verdict.",
        "healthy: about rate × latency. Growing: EPNs or consumers are too slow. 0 after a drain",
        |lead| lead.scheduler.in_flight(),
    ),
    Row::gauge(
        "balance_tf_queued",
        "TFs that wait for room at an EPN.",
        "healthy: 0. Growing: look at `balance_refused_total` for the reason",
        |lead| lead.scheduler.queued() as u64,
    ),
];
const RUN_DELAY: Metric = Metric::gauge(
    "balance_run_delay_seconds",
    "Longest time lately for which a node has waited for a processor, by its pulses, in seconds.",
)
.labels(&["node"])
.advice(
    "as `node_run_delay_seconds`, for every node in one place. So much longer a node may be silent before it counts \
     as such",
);
const MESSAGES_REFUSED: Metric = Metric::counter(
    "node_messages_refused_total",
    "Messages to the ICN refused because of their run or their sender.",
)
.advice(
    "some after an ICN restart are right; a steady rate is a foreign or wrong node: see the log",
);
const SOURCE_STFS: Metric = Metric::gauge("balance_source_stfs", "STFs of an FLP, by fate.")
    .labels(&["flp", "fate"])
    .advice("`announced` = `built` + `dropped` + `unused` + in flight; beside them `outside` the roster or too \
         late, and `skipped`. `unused` and `skipped` of one FLP grow: look at that FLP and its paths");

/// Lists the metrics of an ICN.
pub(crate) fn metrics() -> impl Iterator<Item = Metric> {
    let rows = OF_LEAD.iter().map(|row| row.metric);
    rows.chain([
        MESSAGES_REFUSED,
        RUN_DELAY,
        SOURCE_STFS,
        super::latency::LATENCY,
    ])
    .chain(super::node_states::metrics())
}

impl<T: Transport> IcnNode<T> {
    /// Sets the name of the level of security in force, for the status.
    pub fn set_security(&mut self, level: &'static str) {
        self.terms.level = level;
    }

    /// The farm as the ICN knows it at `now`.
    #[must_use]
    pub fn status(&self, now: Timestamp) -> FarmStatus {
        let ledger = self.ledger.status();
        let ledger = LedgerStatus {
            icn: self.terms.me.index,
            office: if self.lead.is_some() {
                "leader"
            } else {
                "standby"
            }
            .to_owned(),
            term: self.term().0,
            leader: ledger.leader,
            backend: ledger.backend.to_owned(),
            records: ledger.records,
            trouble: ledger.trouble,
        };
        let Some(lead) = &self.lead else {
            return FarmStatus {
                version: 1,
                phase: "standby".to_owned(),
                policy: self.terms.scheduler.policy.clone(),
                uptime_s: now.0 as f64 / 1e9,
                security: self.terms.level.to_owned(),
                ledger,
                ..FarmStatus::default()
            };
        };
        let scheduler = &lead.scheduler;
        let refused = Refusal::ALL.iter().map(|refusal| {
            let count = scheduler.stats().refused[refusal.index()];
            (refusal.name().to_owned(), count)
        });
        FarmStatus {
            version: 1,
            run: scheduler.run().to_string(),
            phase: scheduler.phase_name().to_owned(),
            policy: scheduler.policy_name().to_owned(),
            uptime_s: now.0 as f64 / 1e9,
            duration_s: scheduler.duration(now).as_secs_f64(),
            first_tf: scheduler.first_tf().0,
            awaited_flps: scheduler
                .awaited_for_begin()
                .iter()
                .map(|flp| flp.0)
                .collect(),
            security: self.terms.level.to_owned(),
            run_delay_s: self.run_delay(now).as_secs_f64(),
            accounting: accounting_status(scheduler.accounting(), scheduler.in_flight()),
            suspected: lead.suspected,
            queued: scheduler.queued() as u64,
            ledger,
            latency_us: lead
                .latencies
                .stages()
                .map(|(stage, quantiles)| (stage.to_owned(), quantiles))
                .collect(),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            flps: self
                .known(scheduler.accounting().sources.keys(), Role::Flp)
                .into_iter()
                .map(|node| flp_status(lead, node))
                .collect(),
            epns: self
                .known(scheduler.accounting().targets.keys(), Role::Epn)
                .into_iter()
                .map(|node| epn_status(lead, node))
                .collect(),
        }
    }

    /// Returns every node that has joined this ICN, dead ones too, and those `in_log`, which former leaders knew: an
    /// operator looks for those first.
    fn known<'a, N: Into<NodeId> + Copy + 'a>(
        &self,
        in_log: impl Iterator<Item = &'a N>,
        role: Role,
    ) -> BTreeSet<NodeId> {
        let joined = self.hellos.keys().copied();
        let joined = joined.filter(move |node| node.role == role);
        joined.chain(in_log.map(|node| (*node).into())).collect()
    }

    /// Returns the states of all nodes that are known.
    fn states(&self, lead: &Lead) -> Vec<NodeState> {
        let accounting = lead.scheduler.accounting();
        let flps = self.known(accounting.sources.keys(), Role::Flp).into_iter();
        let epns = self.known(accounting.targets.keys(), Role::Epn).into_iter();
        let state = |node, name| NodeState {
            node,
            name,
            is_up: lead.members.state(node) == Some(MemberState::Up),
        };
        let flps = flps.map(|node| state(node, flp_state(lead, node)));
        flps.chain(epns.map(|node| state(node, epn_state(lead, node))))
            .collect()
    }

    /// Brings the metrics of the ICN up to date.
    pub fn export(&mut self, registry: &Registry) {
        let states = self.lead.as_ref().map(|lead| self.states(lead));
        let icn = self.terms.me.index;
        self.node_states
            .export(registry, icn, states.unwrap_or_default());
        let Some(lead) = &self.lead else {
            return;
        };
        registry.export(OF_LEAD, lead);
        registry.set(&MESSAGES_REFUSED, &[], self.refused_messages);
        for (node, run_delay_ns) in lead.scheduler.run_delays() {
            registry.set(&RUN_DELAY, &[("node", &*node.to_string())], run_delay_ns);
        }
        let accounting = lead.scheduler.accounting();
        for (flp, source) in &accounting.sources {
            // Gauges: an announced STF is counted elsewhere when its FLP dies before any EPN has it.
            for (fate, stfs) in [
                ("announced", source.announced),
                ("built", source.built),
                ("dropped", source.dropped),
                ("unused", source.unused),
                ("outside", source.outside),
                ("skipped", source.skipped),
            ] {
                let labels = [("flp", &*flp.0.to_string()), ("fate", fate)];
                registry.set(&SOURCE_STFS, &labels, stfs);
            }
        }
    }
}

fn state_name(lead: &Lead, node: NodeId) -> String {
    let state = lead.members.state(node);
    let state = state.map_or("gone", |state| state.name());
    if matches!(state, "gone" | "cut") && lead.left.contains(&node) {
        return "left".to_owned();
    }
    state.to_owned()
}

fn flp_state(lead: &Lead, node: NodeId) -> String {
    let state = state_name(lead, node);
    if state == "up" && lead.scheduler.flp_has_ended(FlpId(node.index)) {
        return "ended".to_owned();
    }
    state
}

fn epn_state(lead: &Lead, node: NodeId) -> String {
    let state = state_name(lead, node);
    let load = lead.scheduler.epn_load(EpnId(node.index));
    if state != "up" {
        state
    } else if lead.scheduler.is_leaving(node) {
        "leaving".to_owned()
    } else if load.is_some_and(|load| !load.enabled) {
        "disabled".to_owned()
    } else {
        state
    }
}

fn flp_status(lead: &Lead, node: NodeId) -> FlpStatus {
    let flp = FlpId(node.index);
    let pulse = lead.scheduler.flp_pulse(flp).copied().unwrap_or_default();
    let position = lead.scheduler.flp_position(flp);
    FlpStatus {
        index: node.index,
        state: flp_state(lead, node),
        incarnation: lead.scheduler.flp_incarnation(flp).map_or(0, |life| life.0),
        held_stfs: pulse.held_stfs,
        held_bytes: pulse.held_bytes,
        made_stfs: pulse.made_stfs,
        sent_bytes: pulse.sent_bytes,
        counter: position
            .map_or("unknown", |position| position.counter.name())
            .to_owned(),
        refused_stfs: position.map_or(0, |position| position.refused_stfs),
        run_delay_s: Duration::from_nanos(pulse.run_delay_ns).as_secs_f64(),
        lag_tfs: lag_tfs(lead.scheduler.accounting(), flp),
    }
}

/// Returns the TFs of the run that the FLP has neither announced nor skipped.
fn lag_tfs(accounting: &Accounting, flp: FlpId) -> u64 {
    let source = accounting.sources.get(&flp).copied().unwrap_or_default();
    let said = source.announced + source.outside + source.skipped;
    accounting.announced.saturating_sub(said)
}

fn epn_status(lead: &Lead, node: NodeId) -> EpnStatus {
    let epn = EpnId(node.index);
    let pulse = lead.scheduler.epn_pulse(epn).copied().unwrap_or_default();
    let load = lead.scheduler.epn_load(epn);
    let former = lead.scheduler.former_epn(epn);
    let targets = &lead.scheduler.accounting().targets;
    let target = targets.get(&epn).copied().unwrap_or_default();
    EpnStatus {
        index: node.index,
        state: epn_state(lead, node),
        weight_milli: load.map_or(former.weight_milli, |load| load.weight_milli),
        incarnation: lead.scheduler.epn_incarnation(epn).map_or(0, |life| life.0),
        open_tfs: pulse.open_tfs,
        open_bytes: pulse.open_bytes,
        sink_bytes: pulse.consumed.sink_bytes,
        booked_bytes: load.map_or(0, |load| load.booked_bytes),
        capacity_bytes: load.map_or(0, |load| load.capacity_bytes),
        delivered_tfs: target.delivered,
        received_bytes: former.received_bytes + pulse.received_bytes,
        duplicates_refused: former.duplicates_refused + pulse.duplicates_refused,
        digest_mismatches: former.digest_mismatches + pulse.digest_mismatches,
        run_delay_s: Duration::from_nanos(pulse.run_delay_ns).as_secs_f64(),
        latency_us: lead.latencies.of_epn(epn),
    }
}

fn accounting_status(accounting: &Accounting, in_flight: u64) -> AccountingStatus {
    let dropped = DropReason::ALL.iter().map(|reason| {
        let count = accounting.dropped[reason.index()];
        (reason.name().to_owned(), count)
    });
    AccountingStatus {
        announced: accounting.announced,
        complete: accounting.complete,
        incomplete: accounting.incomplete,
        dropped: dropped.filter(|(_, count)| *count > 0).collect(),
        in_flight,
        abandoned: accounting.abandoned,
        redelivered: accounting.redelivered,
        reassigned: accounting.reassigned,
        bytes: accounting.bytes,
        balanced: accounting.balance(in_flight),
    }
}
