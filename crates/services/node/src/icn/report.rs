//! What the ICN tells about the farm: the status line and its metrics.

use super::IcnNode;
use super::lead::Lead;
use crate::status::{BooksStatus, EpnStatus, FarmStatus, FlpStatus, LedgerStatus};
use sheaf_metrics::Registry;
use sheaf_placement::Refusal;
use sheaf_protocol::{DropReason, EpnId, FlpId, NodeId, Role, Timestamp};
use sheaf_scheduler::{Accounting, Refusal};
use sheaf_transport::Transport;

impl<T: Transport> IcnNode<T> {
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
            // Known to whoever made the transport.
            security: String::new(),
            books: books_status(scheduler.books(), scheduler.in_flight()),
            queued: scheduler.queued() as u64,
            ledger,
            latency_us: lead
                .latencies
                .stages()
                .map(|(stage, quantiles)| (stage.to_owned(), quantiles))
                .collect(),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            flps: self
                .known(Role::Flp)
                .map(|node| flp_status(lead, node))
                .collect(),
            epns: self
                .known(Role::Epn)
                .map(|node| epn_status(lead, node))
                .collect(),
        }
    }

    /// Every node that has ever joined, dead ones too: an operator looks for those first.
    fn known(&self, role: Role) -> impl Iterator<Item = NodeId> + '_ {
        self.hellos
            .keys()
            .copied()
            .filter(move |node| node.role == role)
    }

    /// Brings the metrics of the ICN up to date.
    pub fn export(&self, registry: &Registry) {
        let Some(lead) = &self.lead else {
            return;
        };
        let (books, stats) = (lead.scheduler.books(), lead.scheduler.stats());
        let counter = |name: &str, help: &str, total: u64| {
            registry.counter(name, help, &[]).raise_to(total);
        };
        let gauge = |name: &str, help: &str, value: u64| {
            registry.gauge(name, help, &[]).set_u64(value);
        };
        counter(
            "balance_tf_announced_total",
            "TFs that exist.",
            books.announced,
        );
        counter(
            "balance_tf_complete_total",
            "TFs built with all parts.",
            books.complete,
        );
        counter(
            "balance_tf_incomplete_total",
            "TFs built with parts missing.",
            books.incomplete,
        );
        counter(
            "balance_tf_abandoned_total",
            "Built TFs whose EPN died.",
            books.abandoned,
        );
        counter(
            "balance_tf_reassigned_total",
            "Assignments after the first.",
            books.reassigned,
        );
        counter(
            "balance_tf_bytes_total",
            "Payload bytes of built TFs.",
            books.bytes,
        );
        counter(
            "balance_choices_total",
            "Times a policy was asked.",
            stats.choices,
        );
        counter(
            "balance_commits_repeated_total",
            "Commits said again.",
            stats.commits_repeated,
        );
        gauge(
            "balance_pace_late_ns_max",
            "Longest delay of a heartbeat behind its deadline.",
            stats.pace_late_ns_max,
        );
        counter(
            "node_messages_refused_total",
            "Messages refused.",
            self.refused_messages,
        );
        gauge(
            "balance_tf_in_flight",
            "TFs without a verdict.",
            lead.scheduler.in_flight(),
        );
        gauge(
            "balance_tf_queued",
            "TFs that wait for room.",
            lead.scheduler.queued() as u64,
        );
        for (flp, source) in &books.sources {
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
                let help = "STFs of an FLP by what became of them.";
                registry
                    .gauge("balance_source_stfs", help, &labels)
                    .set_u64(stfs);
            }
        }
        for reason in DropReason::ALL {
            registry
                .counter(
                    "balance_tf_dropped_total",
                    "TFs not built.",
                    &[("reason", reason.name())],
                )
                .raise_to(books.dropped[reason.index()]);
        }
        for refusal in Refusal::ALL {
            registry
                .counter(
                    "balance_refused_total",
                    "Refusals.",
                    &[("reason", refusal.name())],
                )
                .raise_to(stats.refused[refusal.index()]);
        }
    }
}

fn state_name(lead: &Lead, node: NodeId) -> String {
    lead.members
        .state(node)
        .map_or("gone", |state| state.name())
        .to_owned()
}

fn flp_status(lead: &Lead, node: NodeId) -> FlpStatus {
    let flp = FlpId(node.index);
    let pulse = lead.scheduler.flp_pulse(flp).copied().unwrap_or_default();
    let state = state_name(lead, node);
    let has_ended = lead.scheduler.flp_has_ended(flp);
    FlpStatus {
        index: node.index,
        state: if state == "up" && has_ended {
            "ended".to_owned()
        } else {
            state
        },
        incarnation: lead.scheduler.flp_incarnation(flp).map_or(0, |life| life.0),
        held_stfs: pulse.held_stfs,
        held_bytes: pulse.held_bytes,
        made_stfs: pulse.made_stfs,
        sent_bytes: pulse.sent_bytes,
    }
}

fn epn_status(lead: &Lead, node: NodeId) -> EpnStatus {
    let epn = EpnId(node.index);
    let pulse = lead.scheduler.epn_pulse(epn).copied().unwrap_or_default();
    let load = lead.scheduler.epn_load(epn);
    let state = state_name(lead, node);
    let is_disabled = load.is_some_and(|load| !load.enabled);
    EpnStatus {
        index: node.index,
        state: if state == "up" && lead.scheduler.is_leaving(node) {
            "leaving".to_owned()
        } else if state == "up" && is_disabled {
            "disabled".to_owned()
        } else {
            state
        },
        weight_milli: load.map_or(0, |load| load.weight_milli),
        incarnation: lead.scheduler.epn_incarnation(epn).map_or(0, |life| life.0),
        open_tfs: pulse.open_tfs,
        open_bytes: pulse.open_bytes,
        sink_bytes: pulse.sink_bytes,
        booked_bytes: load.map_or(0, |load| load.booked_bytes),
        capacity_bytes: load.map_or(0, |load| load.capacity_bytes),
        delivered_tfs: pulse.delivered_tfs,
        received_bytes: pulse.received_bytes,
        duplicates_refused: pulse.duplicates_refused,
        digest_mismatches: pulse.digest_mismatches,
        latency_us: lead.latencies.of_epn(epn),
    }
}

fn books_status(books: &Accounting, in_flight: u64) -> BooksStatus {
    let dropped = DropReason::ALL.iter().map(|reason| {
        let count = books.dropped[reason.index()];
        (reason.name().to_owned(), count)
    });
    BooksStatus {
        announced: books.announced,
        complete: books.complete,
        incomplete: books.incomplete,
        dropped: dropped.filter(|(_, count)| *count > 0).collect(),
        in_flight,
        abandoned: books.abandoned,
        reassigned: books.reassigned,
        bytes: books.bytes,
        balanced: books.balance(in_flight),
    }
}
