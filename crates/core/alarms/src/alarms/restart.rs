//! State over a restart: nothing pages again, and what had begun goes on.
//!
//! Saved are alerts, groups of notifications and what is on its way, silences, orders, sources and the end of the
//! history. Not saved are samples: the store has them, and gives them back by
//! [`handle_past`](super::Alarms::handle_past).

use super::{Alarms, AlarmsConfig};
use crate::history::{Entry, History};
use crate::notify::{Notifier, Status};
use crate::online::Moments;
use crate::order::Orders;
use crate::routing::Routing;
use crate::rule::RuleFile;
use crate::saved::{self, RestoreError};
use crate::silence::{SavedSilences, Silences};
use crate::source::Sources;
use crate::state::Machine;
use serde::{Deserialize, Serialize};
use sheaf_samples::Labels;
use std::collections::BTreeMap;
use std::sync::Arc;

/// State as it is saved.
#[derive(Serialize, Deserialize)]
struct Saved {
    at_ms: i64,
    /// Alerts by rule.
    alerts: BTreeMap<String, Vec<SavedAlert>>,
    /// Series whose data is watched, by rule, with time and value of the latest data.
    idle: BTreeMap<String, Vec<SavedIdle>>,
    groups: BTreeMap<String, i64>,
    moments: Vec<SavedMoments>,
    /// Arrivals of absent series, by rule.
    seen_ms: BTreeMap<String, i64>,
    clocks: [Option<i64>; 2],
    sources: Sources,
    notifier: Notifier,
    silences: SavedSilences,
    orders: Orders,
    history: Vec<Entry>,
    history_left_out: u64,
}

#[derive(Serialize, Deserialize)]
struct SavedAlert {
    #[serde(with = "saved::labels")]
    key: Arc<Labels>,
    #[serde(with = "saved::labels")]
    labels: Arc<Labels>,
    annotations: Vec<(String, String)>,
    machine: Machine,
    open_ms: Option<i64>,
    rendered_ms: i64,
}

#[derive(Serialize, Deserialize)]
struct SavedIdle(
    #[serde(with = "saved::labels")] Arc<Labels>,
    i64,
    #[serde(with = "saved::bits")] f64,
);

#[derive(Serialize, Deserialize)]
struct SavedMoments {
    rule: String,
    #[serde(with = "saved::labels")]
    labels: Arc<Labels>,
    moments: Moments,
}

/// Outcome of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Alerts that go on.
    pub alerts: usize,
    /// Alerts of rules that are no longer there; those that fired are resolved.
    pub alerts_without_rule: usize,
    /// Time between the save and now, in ms: it is not held against series and sources.
    pub pause_ms: i64,
}

impl Alarms {
    /// Returns the state at `now_ms`, after everything of before was polled. Transitions that wait are not in it.
    #[must_use]
    pub fn save(&self, now_ms: i64) -> Vec<u8> {
        let mut alerts: BTreeMap<String, Vec<SavedAlert>> = BTreeMap::new();
        let mut idle: BTreeMap<String, Vec<SavedIdle>> = BTreeMap::new();
        for (_, alert) in self.alerts.iter() {
            let rule = &self.rules[alert.rule].id;
            if let Some(data_ms) = alert.machine.idle_data_ms() {
                let saved = SavedIdle(Arc::clone(&alert.key), data_ms, alert.machine.value());
                idle.entry(rule.clone()).or_default().push(saved);
                continue;
            }
            alerts.entry(rule.clone()).or_default().push(SavedAlert {
                key: Arc::clone(&alert.key),
                labels: Arc::clone(&alert.labels),
                annotations: alert.annotations.to_vec(),
                machine: alert.machine,
                open_ms: alert.open_ms,
                rendered_ms: alert.rendered_ms,
            });
        }
        let id = |plan: usize| self.rules[self.plan_rules[plan]].id.clone();
        let moments = self
            .online
            .saved_moments()
            .map(|(plan, labels, moments)| SavedMoments {
                rule: id(plan),
                labels: Arc::clone(labels),
                moments: *moments,
            });
        let seen = (0..self.plan_rules.len())
            .filter_map(|plan| Some((id(plan), self.online.seen_ms(plan)?)));
        let groups = self
            .groups
            .iter()
            .filter_map(|group| Some((group.name.clone(), group.next_ms?)));
        let skipped = self
            .history
            .iter()
            .len()
            .saturating_sub(self.config.history_saved_max);
        saved::frame(&Saved {
            at_ms: now_ms,
            alerts,
            idle,
            groups: groups.collect(),
            moments: moments.collect(),
            seen_ms: seen.collect(),
            clocks: self.online.clocks(),
            sources: self.sources.clone(),
            notifier: self.notifier.clone(),
            silences: self.silences.save(),
            orders: self.orders.clone(),
            history: self.history.iter().skip(skipped).cloned().collect(),
            history_left_out: self.history.left_out + skipped as u64,
        })
    }

    /// Takes in what an earlier process saved. Call it once, before anything else is taken in.
    ///
    /// # Errors
    ///
    /// If the bytes are damaged or of another version; nothing has changed then.
    pub fn restore(&mut self, now_ms: i64, bytes: &[u8]) -> Result<Restored, RestoreError> {
        let saved: Saved = saved::unframe(bytes)?;
        let silences = Silences::restore(saved.silences)
            .map_err(|error| RestoreError::Content(error.to_string()))?;
        let pause_ms = (now_ms - saved.at_ms).max(0);
        self.silences = silences;
        self.notifier = saved.notifier;
        self.orders = saved.orders;
        self.sources = saved.sources;
        self.sources.resume(pause_ms);
        self.history = History::default();
        for entry in saved.history {
            self.history.push(entry, self.config.history_max);
        }
        self.history.left_out = saved.history_left_out;
        for group in &mut self.groups {
            group.next_ms = saved.groups.get(&group.name).copied().or(group.next_ms);
        }
        self.online.restore_clocks(saved.clocks);
        let plans: BTreeMap<String, usize> = (0..self.plan_rules.len())
            .map(|plan| (self.rules[self.plan_rules[plan]].id.clone(), plan))
            .collect();
        for (rule, seen_ms) in saved.seen_ms {
            if let Some(plan) = plans.get(&rule) {
                self.online.restore_seen(*plan, seen_ms + pause_ms);
            }
        }
        for one in saved.moments {
            if let Some(plan) = plans.get(&one.rule) {
                self.online.restore_moments(*plan, one.labels, one.moments);
            }
        }
        let mut restored = Restored {
            alerts: 0,
            alerts_without_rule: 0,
            pause_ms,
        };
        for (id, alerts) in saved.alerts {
            let rule = self.rules.iter().position(|rule| rule.id == id);
            for alert in alerts {
                match rule {
                    Some(rule) => {
                        restored.alerts += usize::from(self.restore_alert(pause_ms, rule, alert));
                    }
                    None => {
                        restored.alerts_without_rule += 1;
                        self.resolve_orphan(now_ms, &alert);
                    }
                }
            }
        }
        for (id, idle) in saved.idle {
            let Some(rule) = self.rules.iter().position(|rule| rule.id == id) else {
                continue;
            };
            let timing = self.rules[rule].timing;
            for SavedIdle(key, data_ms, value) in idle {
                let has_room = self.alerts.len_of_rule(rule) < self.rules[rule].alerts_max;
                if has_room && timing.nodata.is_some() && self.alerts.find(rule, &key).is_none() {
                    let mut machine = Machine::idle(data_ms, value);
                    machine.resume(pause_ms);
                    self.alerts.add(rule, key, machine, &timing);
                    restored.alerts += 1;
                }
            }
        }
        Ok(restored)
    }

    /// Takes other rules and routes in place of the present ones; alerts, silences, notifications and orders go on.
    ///
    /// Series have to be taken in again, as after a restart, with [`handle_past`](Self::handle_past) for windows. What
    /// the driver works on at the moment goes on as well: outcomes of notifications and orders are taken, results of
    /// evaluations are not, so the driver drops those of before.
    ///
    /// # Errors
    ///
    /// If there is more state than can be handed over; nothing has changed then.
    pub fn reload(
        &mut self,
        now_ms: i64,
        config: AlarmsConfig,
        files: &[RuleFile],
        routing: Routing,
    ) -> Result<Restored, RestoreError> {
        let saved_max = std::mem::replace(&mut self.config.history_saved_max, usize::MAX);
        let saved = self.save(now_ms);
        self.config.history_saved_max = saved_max;
        let mut next = Self::new(config, files, routing);
        let restored = next.restore(now_ms, &saved)?;
        next.notifier.take_over(&self.notifier);
        next.orders.take_over(&self.orders);
        next.stats = self.stats;
        next.next_evaluation = self.next_evaluation;
        next.transitions = std::mem::take(&mut self.transitions);
        next.recorded = std::mem::take(&mut self.recorded);
        *self = next;
        Ok(restored)
    }

    fn restore_alert(&mut self, pause_ms: i64, rule: usize, saved: SavedAlert) -> bool {
        let state = &self.rules[rule];
        if self.alerts.find(rule, &saved.key).is_some()
            || self.alerts.len_of_rule(rule) >= state.alerts_max
        {
            return false;
        }
        let mut machine = saved.machine;
        machine.resume(pause_ms);
        let id = self.alerts.add(rule, saved.key, machine, &state.timing);
        if let Some(alert) = self.alerts.get_mut(id) {
            alert.labels = saved.labels;
            alert.annotations = saved.annotations.into();
            alert.open_ms = saved.open_ms;
            alert.rendered_ms = saved.rendered_ms;
        }
        true
    }

    /// An alert whose rule was taken away: receivers that know it learn that it is over.
    fn resolve_orphan(&mut self, now_ms: i64, saved: &SavedAlert) {
        if saved.open_ms.is_some() {
            let notified = crate::notify::NotifiedAlert {
                status: Status::Resolved,
                labels: Arc::clone(&saved.labels),
                annotations: saved.annotations.clone(),
                starts_ms: saved.open_ms.unwrap_or(now_ms),
                ends_ms: Some(now_ms),
                value: saved.machine.value(),
            };
            self.notify(now_ms, notified);
        }
    }
}
