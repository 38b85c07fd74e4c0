//! Notifications: which alerts a receiver is notified of together, and when.
//!
//! Alerts with a common route and the same values of its labels are one group. A new group waits a little, so that what
//! breaks together comes together; afterwards a group is looked at once an interval, and a receiver is notified when an
//! alert is new, when one is resolved, or when alerts go on to fire for the repeat interval. Silenced and hidden alerts
//! are left out. A notification that a limit holds back comes later, with the state of then: nothing is lost by limits.

mod delivery;

pub use delivery::DeliveryConfig;

use delivery::Deliveries;

use crate::routing::{Channel, Routing};
use crate::saved::{self, fingerprint};
use crate::silence::Silences;
use serde::{Deserialize, Serialize};
use sheaf_samples::Labels;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Most alerts in one notification; the rest is a number.
const ALERTS_MAX: usize = 500;
/// How long the outcome of resolved alerts is remembered in one group, in ms.
const RESOLVED_KEPT_MS: i64 = 3_600_000;

/// Whether something of a notification fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// At least one alert is on.
    Firing,
    /// All alerts are over.
    Resolved,
}

impl Status {
    /// Word in bodies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        }
    }
}

/// An alert in a notification.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotifiedAlert {
    /// Whether it is on.
    pub status: Status,
    /// Labels, `alertname` included.
    #[serde(with = "saved::labels")]
    pub labels: Arc<Labels>,
    /// Texts, by name.
    pub annotations: Vec<(String, String)>,
    /// Since when it fires, in ms since 1970-01-01 UTC.
    pub starts_ms: i64,
    /// When it ended.
    pub ends_ms: Option<i64>,
    /// Latest value of its expression.
    #[serde(with = "saved::bits")]
    pub value: f64,
}

/// Message to one receiver over one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification {
    /// Number, by which the driver reports what became of it.
    pub id: u64,
    /// Name of the receiver.
    pub receiver: String,
    /// Way to take.
    pub channel: Channel,
    /// Name of the group, the same in all its notifications.
    pub group_key: String,
    /// Labels that the alerts were grouped by.
    pub group_labels: Arc<Labels>,
    /// Whether any alert is on.
    pub status: Status,
    /// The alerts: those that are on first.
    pub alerts: Vec<NotifiedAlert>,
    /// Alerts beyond the bound, which are not listed.
    pub truncated: usize,
    /// When the notification was made, in ms since 1970-01-01 UTC.
    pub at_ms: i64,
    /// Until when the alerts that are on count as such without a further notification.
    pub expires_ms: i64,
}

/// State of an alert as far as receivers are concerned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Known {
    alert: NotifiedAlert,
    groups: Vec<String>,
}

/// Alerts of one route with the same labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Group {
    route: String,
    #[serde(with = "saved::labels")]
    labels: Arc<Labels>,
    members: BTreeSet<u64>,
    /// When it is looked at next.
    next_ms: i64,
    /// Knowledge of the receiver: when it was notified, and of which alerts as firing.
    notified_ms: Option<i64>,
    notified: BTreeSet<u64>,
}

/// Counts of what became of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NotifyStats {
    /// Notifications made.
    pub made: u64,
    /// Notifications that receivers have taken.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Notifications given up after the last attempt.
    pub dropped: u64,
    /// Notifications taken back for a newer one of the same group.
    pub superseded: u64,
    /// Times that a rate limit held a notification back.
    pub limited: u64,
    /// Times that a full queue held a notification back.
    pub deferred: u64,
    /// Alerts that were refused because there were too many.
    pub refused: u64,
}

/// Groups of alerts and their deliveries.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Notifier {
    /// By fingerprint.
    alerts: BTreeMap<u64, Known>,
    groups: BTreeMap<String, Group>,
    /// Times of the notifications of each limited route, by path.
    sent: BTreeMap<String, VecDeque<i64>>,
    deliveries: Deliveries,
    pub(crate) stats: NotifyStats,
}

/// Rules about a notification, beside its group.
pub(crate) struct Rules<'a> {
    pub(crate) routing: &'a Routing,
    pub(crate) silences: &'a Silences,
    pub(crate) delivery: &'a DeliveryConfig,
    pub(crate) alerts_max: usize,
}

impl Notifier {
    /// Takes in the state of an alert, whenever it begins, changes its texts, or ends.
    pub(crate) fn handle_alert(&mut self, now_ms: i64, alert: NotifiedAlert, rules: &Rules<'_>) {
        let key = fingerprint(&alert.labels);
        let is_full = self.alerts.len() >= rules.alerts_max;
        match self.alerts.get_mut(&key) {
            Some(known) => {
                let is_new =
                    known.alert.status == Status::Resolved && alert.status == Status::Firing;
                known.alert = alert;
                if !is_new {
                    return;
                }
            }
            // No receiver knows it.
            None if alert.status == Status::Resolved => return,
            None if is_full => {
                self.stats.refused += 1;
                return;
            }
            None => {
                self.alerts.insert(
                    key,
                    Known {
                        alert,
                        groups: Vec::new(),
                    },
                );
            }
        }
        let Some(known) = self.alerts.get_mut(&key) else {
            return;
        };
        known.groups.clear();
        for at in rules.routing.routes_of(&known.alert.labels) {
            let route = &rules.routing.routes[at];
            let labels = Arc::new(route.group_by.of(&known.alert.labels));
            let name = format!("{}:{labels}", route.path);
            let group = self.groups.entry(name.clone()).or_insert_with(|| Group {
                route: route.path.clone(),
                labels,
                members: BTreeSet::new(),
                next_ms: now_ms + route.group_wait_ms,
                notified_ms: None,
                notified: BTreeSet::new(),
            });
            group.members.insert(key);
            known.groups.push(name);
        }
    }

    /// Makes the notifications of all groups whose time has come.
    pub(crate) fn poll(&mut self, now_ms: i64, rules: &Rules<'_>) {
        let due: Vec<String> = self.due(now_ms).map(str::to_owned).collect();
        if due.is_empty() {
            return;
        }
        let hidden = self.hidden(rules.routing);
        for name in due {
            let Some(mut group) = self.groups.remove(&name) else {
                continue;
            };
            self.flush(now_ms, &name, &mut group, &hidden, rules);
            if !group.members.is_empty() {
                self.groups.insert(name, group);
            }
        }
    }

    fn due(&self, now_ms: i64) -> impl Iterator<Item = &str> {
        self.groups
            .iter()
            .filter(move |one| one.1.next_ms <= now_ms)
            .map(|one| one.0.as_str())
    }

    /// When the next group has to be looked at or delivery be tried again.
    pub(crate) fn next_ms(&self) -> Option<i64> {
        let groups = self.groups.values().map(|group| group.next_ms);
        groups.chain(self.deliveries.next_ms()).min()
    }

    /// Alerts that others hide.
    fn hidden(&self, routing: &Routing) -> BTreeSet<u64> {
        let mut hidden = BTreeSet::new();
        for inhibition in &routing.inhibitions {
            let firing = || {
                self.alerts
                    .values()
                    .filter(|one| one.alert.status == Status::Firing)
            };
            let sources: Vec<&Labels> = firing()
                .map(|one| &*one.alert.labels)
                .filter(|labels| inhibition.is_source(labels))
                .collect();
            if sources.is_empty() {
                continue;
            }
            for (key, known) in &self.alerts {
                if sources
                    .iter()
                    .any(|source| inhibition.hides(source, &known.alert.labels))
                {
                    hidden.insert(*key);
                }
            }
        }
        hidden
    }

    /// Leaves with the driver what `old` had handed out to it.
    pub(crate) fn take_over(&mut self, old: &Self) {
        self.deliveries.take_over(&old.deliveries);
    }

    /// Returns whether a firing alert hides the one with `labels`, by the inhibitions of `routing`.
    pub(crate) fn is_hidden(&self, labels: &Labels, routing: &Routing) -> bool {
        // Most alerts are no target at all: the others are not looked through for them.
        let inhibitions = routing.inhibitions.iter();
        let hiding: Vec<_> = inhibitions.filter(|one| one.is_target(labels)).collect();
        let mut firing = self
            .alerts
            .values()
            .filter(|one| one.alert.status == Status::Firing);
        !hiding.is_empty()
            && firing.any(|source| {
                hiding
                    .iter()
                    .any(|one| one.hides(&source.alert.labels, labels))
            })
    }

    fn flush(
        &mut self,
        now_ms: i64,
        name: &str,
        group: &mut Group,
        hidden: &BTreeSet<u64>,
        rules: &Rules<'_>,
    ) {
        let Some(route) = rules
            .routing
            .routes
            .iter()
            .find(|route| route.path == group.route)
        else {
            // The routes have changed since the state was saved: the alert finds its new group when it changes.
            group.members.clear();
            return;
        };
        group.next_ms = now_ms + route.group_interval_ms;
        let (mut firing, mut resolved) = (Vec::new(), Vec::new());
        let mut is_muted_any = false;
        for key in &group.members {
            let Some(known) = self.alerts.get(key) else {
                continue;
            };
            let is_muted =
                hidden.contains(key) || rules.silences.of(now_ms, &known.alert.labels).is_some();
            is_muted_any |= is_muted;
            match known.alert.status {
                _ if is_muted => {}
                Status::Firing => firing.push(*key),
                Status::Resolved if group.notified.contains(key) => resolved.push(*key),
                Status::Resolved => {}
            }
        }
        let is_new = firing.iter().any(|key| !group.notified.contains(key));
        let is_repeat = group
            .notified_ms
            .is_none_or(|at_ms| now_ms - at_ms >= route.repeat_ms)
            && !firing.is_empty();
        if is_new || is_repeat || !resolved.is_empty() {
            if let Some(free_ms) = self.limited_until(now_ms, route) {
                group.next_ms = free_ms;
                self.stats.limited += 1;
                return;
            }
            let receiver = &rules.routing.receivers[route.receiver];
            if !self
                .deliveries
                .has_room(receiver.channels.len(), rules.delivery)
            {
                self.stats.deferred += 1;
                return;
            }
            let alerts = |keys: &[u64]| {
                keys.iter()
                    .map(|key| self.alerts[key].alert.clone())
                    .collect::<Vec<_>>()
            };
            let mut list = alerts(&firing);
            list.extend(alerts(&resolved));
            let truncated = list.len().saturating_sub(ALERTS_MAX);
            list.truncate(ALERTS_MAX);
            let status = if firing.is_empty() {
                Status::Resolved
            } else {
                Status::Firing
            };
            for (at, channel) in receiver.channels.iter().enumerate() {
                self.stats.made += 1;
                let notification = Notification {
                    id: 0,
                    receiver: receiver.name.clone(),
                    channel: channel.clone(),
                    group_key: name.to_owned(),
                    group_labels: Arc::clone(&group.labels),
                    status,
                    alerts: list.clone(),
                    truncated,
                    at_ms: now_ms,
                    expires_ms: now_ms + route.repeat_ms + 2 * route.group_interval_ms,
                };
                self.stats.superseded += self.deliveries.push(now_ms, notification, at);
            }
            if route.limit.is_some() {
                self.sent
                    .entry(route.path.clone())
                    .or_default()
                    .push_back(now_ms);
            }
            group.notified_ms = Some(now_ms);
            group.notified = firing.into_iter().collect();
        }
        self.drop_resolved(now_ms, name, group, is_muted_any);
    }

    /// When the limit of a route leaves room again; `None`: it does now.
    fn limited_until(&mut self, now_ms: i64, route: &crate::routing::Route) -> Option<i64> {
        let limit = route.limit?;
        let sent = self.sent.entry(route.path.clone()).or_default();
        while sent
            .front()
            .is_some_and(|at_ms| now_ms - at_ms >= limit.in_ms)
        {
            sent.pop_front();
        }
        let is_full = sent.len() >= limit.notifications as usize;
        is_full.then(|| sent.front().map_or(now_ms, |at_ms| at_ms + limit.in_ms))
    }

    /// Forgets resolved alerts of a group that its receiver knows of, or never has to.
    fn drop_resolved(&mut self, now_ms: i64, name: &str, group: &mut Group, is_muted_any: bool) {
        let alerts = &mut self.alerts;
        group.members.retain(|key| {
            let Some(known) = alerts.get_mut(key) else {
                return false;
            };
            let ended_ms = known.alert.ends_ms.unwrap_or(now_ms);
            let is_waiting = is_muted_any
                && group.notified.contains(key)
                && now_ms - ended_ms < RESOLVED_KEPT_MS;
            if known.alert.status == Status::Firing || is_waiting {
                return true;
            }
            known.groups.retain(|one| one != name);
            if known.groups.is_empty() {
                alerts.remove(key);
            }
            false
        });
    }

    /// Takes the next notification that is due.
    pub(crate) fn poll_notification(
        &mut self,
        now_ms: i64,
        routing: &Routing,
    ) -> Option<Notification> {
        self.deliveries.poll(now_ms, routing)
    }

    pub(crate) fn handle_delivered(&mut self, id: u64) {
        if self.deliveries.remove(id).is_some() {
            self.stats.delivered += 1;
        }
    }

    pub(crate) fn handle_failed(&mut self, now_ms: i64, id: u64, config: &DeliveryConfig) {
        self.stats.failed += 1;
        if let Some(group) = self.deliveries.fail(now_ms, id, config) {
            self.stats.dropped += 1;
            // The receiver does not know: the next look at the group tells it again.
            if let Some(group) = self.groups.get_mut(&group) {
                group.notified_ms = None;
                group.notified.clear();
            }
        }
    }

    /// Notifications without outcome.
    pub(crate) fn waiting(&self) -> usize {
        self.deliveries.len()
    }
}
