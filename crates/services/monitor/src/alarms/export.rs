//! Metrics of alarms: what is on, what was notified, what was ordered.

use sheaf_alarms::{AlarmStats, NotifyStats, State};
use sheaf_metrics::{Metric, Registry, Row};
use std::collections::BTreeMap;

/// Figures of alarms, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) stats: AlarmStats,
    pub(super) notify: NotifyStats,
    /// Orders that were dry runs, that the farm took, and that it did not take.
    pub(super) orders: [u64; 3],
    pub(super) samples_dropped: u64,
    pub(super) notifications_waiting: u64,
    pub(super) sources: u64,
}

const ALARMS: Metric = Metric::gauge("monitor_alarms", "Alerts by state.")
    .labels(&["state"])
    .advice("`firing`: see `/api/alarms`");
const NOTIFICATIONS: Metric = Metric::counter(
    "monitor_notifications_total",
    "Notifications by outcome: made, delivered, attempts that failed, dropped after the last attempt.",
)
.labels(&["outcome"])
.advice("`failed`: the log has the receiver and the reason; `dropped`: no receiver was notified");
const ORDERS: Metric = Metric::counter(
    "monitor_orders_total",
    "Orders of alarms to the farm by outcome: given, dry-run, refused, done, failed.",
)
.labels(&["outcome"])
.advice(
    "`refused`: by a limit; `failed`: the farm did not take it; each is in `/api/alarms/history`",
);

const FIGURES: &[Row<Figures>] = &[
    Row::counter(
        "monitor_alarm_transitions_total",
        "Changes of state of alerts.",
        "many: a threshold without `for` or `clear`",
        |all| all.stats.transitions,
    ),
    Row::counter(
        "monitor_alarm_samples_dropped_total",
        "Samples that online rules did not see, because the alarms were behind.",
        "rules read too many series",
        |all| all.samples_dropped,
    ),
    Row::counter(
        "monitor_rule_evaluations_failed_total",
        "Evaluations of late rules that failed.",
        "`/api/v1/rules` has the error of the rule",
        |all| all.stats.evaluations_failed,
    ),
    Row::counter(
        "monitor_rule_evaluations_missed_total",
        "Evaluations of groups of rules that were left out, because the one before was not done.",
        "queries are slower than their interval",
        |all| all.stats.evaluations_missed,
    ),
    Row::counter(
        "monitor_alerts_refused_total",
        "Alerts beyond the bound of their rule.",
        "a rule with too many series: aggregate, or raise its `limit`",
        |all| all.stats.alerts_refused,
    ),
    Row::gauge(
        "monitor_notifications_waiting",
        "Notifications without outcome.",
        "growing: a receiver takes nothing",
        |all| all.notifications_waiting,
    ),
    Row::gauge(
        "monitor_alarm_sources",
        "Sources that have alarms of their own.",
        "",
        |all| all.sources,
    ),
];

/// Lists the metrics of alarms.
pub(crate) fn all() -> impl Iterator<Item = Metric> {
    let figures = FIGURES.iter().map(|row| row.metric);
    [ALARMS, NOTIFICATIONS, ORDERS].into_iter().chain(figures)
}

/// Brings the metrics up to date.
pub(super) fn export(registry: &Registry, figures: &Figures, states: &BTreeMap<State, u64>) {
    registry.export(FIGURES, figures);
    for state in [
        State::Firing,
        State::NoData,
        State::Pending,
        State::Resolved,
    ] {
        let count = states.get(&state).copied().unwrap_or(0);
        registry.set(&ALARMS, &[("state", state.name())], count);
    }
    let notify = &figures.notify;
    for (outcome, count) in [
        ("made", notify.made),
        ("delivered", notify.delivered),
        ("failed", notify.failed),
        ("dropped", notify.dropped),
    ] {
        registry.set(&NOTIFICATIONS, &[("outcome", outcome)], count);
    }
    let [dry_runs, done, failed] = figures.orders;
    for (outcome, count) in [
        ("given", figures.stats.orders),
        ("refused", figures.stats.orders_refused),
        ("dry-run", dry_runs),
        ("done", done),
        ("failed", failed),
    ] {
        registry.set(&ORDERS, &[("outcome", outcome)], count);
    }
}
