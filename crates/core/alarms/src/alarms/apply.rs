//! From verdicts to states, and from states to all that follows.

use super::{Alarms, RuleState};
use crate::alerts::{Alert, AlertId, Change};
use crate::condition::Verdict;
use crate::history::{Entry, OrderOutcome, Transition};
use crate::notify::{NotifiedAlert, Rules, Status};
use crate::online::{Observed, Outcome, Rows, Shape};
use crate::order::Cause;
use crate::state::{Machine, State};
use sheaf_samples::{Labels, NAME};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Time between renderings of the texts of an alert that goes on, in ms.
const RENDER_MS: i64 = 1000;

impl Alarms {
    /// Takes in what online rules say of single series; the buffer goes back.
    pub(super) fn take_observed(&mut self, now_ms: i64, mut observed: Vec<Observed>) {
        for one in observed.drain(..) {
            let rule = self.plan_rules[one.plan];
            let verdict = match (one.outcome, &self.online.plan(one.plan).shape) {
                (Outcome::Verdict(verdict), _) => verdict,
                (Outcome::Value(value), Shape::Series(test)) => {
                    test.verdict(value, self.is_firing(rule, &one.key))
                }
                // Only tests of single series give values.
                (Outcome::Value(value), _) => Verdict::Clear(value),
            };
            self.apply(now_ms, rule, &one.key, one.data_ms, verdict);
        }
        self.observed = observed;
    }

    /// Takes in the rows of an online rule over many series.
    pub(super) fn take_rows(&mut self, now_ms: i64, rows: Rows) {
        let rule = self.plan_rules[rows.plan];
        let test = match &self.online.plan(rows.plan).shape {
            Shape::Across { test, .. } => *test,
            _ => None,
        };
        self.rules[rule].evaluated_ms = Some(now_ms);
        match rows.rows {
            Ok(rows) => {
                let rows = rows
                    .into_iter()
                    .map(|(labels, value)| (Arc::new(labels.filter(|name| name != NAME)), value));
                self.take_result(
                    now_ms,
                    rule,
                    rows.collect(),
                    |value, is_firing| match test {
                        Some(test) => test.verdict(value, is_firing),
                        None => Verdict::Active(value),
                    },
                );
            }
            Err(error) => self.rules[rule].error = Some(error),
        }
    }

    /// Takes in all rows of one evaluation of a rule, keyed by labels without name; alerts without a row are missing.
    pub(super) fn take_result(
        &mut self,
        now_ms: i64,
        rule: usize,
        rows: Vec<(Arc<Labels>, f64)>,
        verdict: impl Fn(f64, bool) -> Verdict,
    ) {
        let mut seen: BTreeMap<Arc<Labels>, f64> = BTreeMap::new();
        for (key, value) in rows {
            if seen.insert(Arc::clone(&key), value).is_some() {
                self.rules[rule].error = Some(format!("several values for {key}, expected one"));
                return;
            }
        }
        self.rules[rule].error = None;
        self.alerts.begin(rule);
        for (key, value) in &seen {
            let verdict = verdict(*value, self.is_firing(rule, key));
            if let Some(id) = self.apply(now_ms, rule, key, now_ms, verdict) {
                self.alerts.mark(id);
            }
        }
        for id in self.alerts.unseen(rule) {
            let change = self.alerts.observe(
                id,
                (now_ms, now_ms),
                Verdict::Missing,
                &self.rules[rule].timing,
            );
            self.follow(now_ms, id, change, false);
        }
    }

    fn is_firing(&self, rule: usize, key: &Labels) -> bool {
        let alert = self
            .alerts
            .find(rule, key)
            .and_then(|id| self.alerts.get(id));
        alert.is_some_and(|alert| alert.machine.fired_ms().is_some())
    }

    /// Takes in one verdict on one series; returns its alert, if it has one afterwards.
    pub(super) fn apply(
        &mut self,
        now_ms: i64,
        rule: usize,
        key: &Arc<Labels>,
        data_ms: i64,
        verdict: Verdict,
    ) -> Option<AlertId> {
        let state = &mut self.rules[rule];
        let id = match self.alerts.find(rule, key) {
            Some(id) => id,
            None => {
                let is_wanted = match verdict {
                    Verdict::Active(_) => true,
                    Verdict::Clear(_) => state.timing.nodata.is_some(),
                    Verdict::Missing => false,
                };
                if !is_wanted {
                    return None;
                }
                if self.alerts.len_of_rule(rule) >= state.alerts_max {
                    self.stats.alerts_refused += 1;
                    state.error = Some(format!(
                        "more than {} alerts, expected fewer",
                        state.alerts_max
                    ));
                    return None;
                }
                self.alerts
                    .add(rule, Arc::clone(key), Machine::new(now_ms), &state.timing)
            }
        };
        let change = self
            .alerts
            .observe(id, (now_ms, data_ms), verdict, &state.timing);
        self.follow(now_ms, id, change, matches!(verdict, Verdict::Active(_)));
        self.alerts.get(id).is_some().then_some(id)
    }

    /// Lets the time of one alert go on.
    pub(super) fn advance(&mut self, now_ms: i64, id: AlertId) {
        let Some(rule) = self.alerts.get(id).map(|alert| alert.rule) else {
            return;
        };
        let change = self.alerts.advance(id, now_ms, &self.rules[rule].timing);
        self.follow(now_ms, id, change, false);
    }

    /// Ends an alert and forgets it.
    pub(super) fn end(&mut self, now_ms: i64, id: AlertId) {
        let from = self
            .alerts
            .get_mut(id)
            .and_then(|alert| alert.machine.end(now_ms));
        self.follow(now_ms, id, from.map(|from| Change { id, from }), false);
        self.alerts.remove(id);
    }

    /// Does what follows from a change of an alert, and forgets alerts that are over.
    fn follow(&mut self, now_ms: i64, id: AlertId, change: Option<Change>, is_fresh: bool) {
        let Some(alert) = self.alerts.get_mut(id) else {
            return;
        };
        let state = &self.rules[alert.rule];
        let Some(Change { from, .. }) = change else {
            if is_fresh && alert.open_ms.is_some() && now_ms - alert.rendered_ms >= RENDER_MS {
                render(alert, state, now_ms, false);
                let notified = notified(alert, Status::Firing, alert.open_ms, None);
                self.notify(now_ms, notified);
            }
            self.forget_idle(id);
            return;
        };
        let to = alert.machine.state();
        // Labels stay from the moment that an alert fires: they are its name to receivers.
        let is_new = alert.open_ms.is_none();
        render(alert, state, now_ms, is_new);
        let transition = Transition {
            at_ms: now_ms,
            alert: state.rule.name.clone(),
            labels: Arc::clone(&alert.labels),
            from,
            to,
            value: alert.machine.value(),
        };
        let was_open_ms = alert.open_ms;
        alert.open_ms = alert.machine.fired_ms();
        let update = match (was_open_ms, alert.open_ms) {
            (None, None) => None,
            (Some(_), None) => Some(notified(alert, Status::Resolved, was_open_ms, Some(now_ms))),
            (_, Some(_)) => Some(notified(alert, Status::Firing, alert.open_ms, None)),
        };
        let is_opened = was_open_ms.is_none() && alert.open_ms.is_some();
        let is_closed = was_open_ms.is_some() && alert.open_ms.is_none();
        // The end of being shown as resolved is no event.
        if from != State::Resolved || to != State::Inactive {
            self.push_transition(transition);
        }
        if let Some(update) = update {
            self.notify(now_ms, update);
        }
        if is_opened || is_closed {
            self.order(now_ms, id, is_opened);
        }
        self.forget_idle(id);
    }

    fn forget_idle(&mut self, id: AlertId) {
        let is_over = self.alerts.get(id).is_some_and(|alert| {
            alert.machine.is_idle() && self.rules[alert.rule].timing.nodata.is_none()
        });
        if is_over {
            self.alerts.remove(id);
        }
    }

    fn push_transition(&mut self, transition: Transition) {
        self.stats.transitions += 1;
        self.history.push(
            Entry::Transition(transition.clone()),
            self.config.history_max,
        );
        if self.transitions.len() >= self.config.waiting_max.max(1) {
            self.transitions.pop_front();
            self.stats.waiting_dropped += 1;
        }
        self.transitions.push_back(transition);
    }

    pub(super) fn notify(&mut self, now_ms: i64, alert: NotifiedAlert) {
        let rules = Rules {
            routing: &self.routing,
            silences: &self.silences,
            delivery: &self.config.delivery,
            alerts_max: self.config.alerts_notified_max,
        };
        self.notifier.handle_alert(now_ms, alert, &rules);
    }

    /// Gives the order of an alert that opened, or takes back that of one that closed.
    fn order(&mut self, now_ms: i64, id: AlertId, is_opened: bool) {
        let all = self.all_orders();
        let Some(alert) = self.alerts.get(id) else {
            return;
        };
        let state = &self.rules[alert.rule];
        let Some(action) = &state.rule.action else {
            return;
        };
        let cause = Cause {
            rule: &state.id,
            alert: &state.rule.name,
            key: &alert.key,
            labels: &alert.labels,
            value: alert.machine.value(),
        };
        let mut action = action.clone();
        action.is_dry_run |= self.config.orders_dry_run;
        let name = state.rule.name.clone();
        let decided = if is_opened {
            self.orders.decide(now_ms, &action, &cause, all)
        } else {
            match self.orders.undo(now_ms, &cause) {
                Some(order) => Ok(order),
                None => return,
            }
        };
        match decided {
            Ok(order) => {
                self.stats.orders += u64::from(!order.is_dry_run);
                let outcome = if order.is_dry_run {
                    OrderOutcome::DryRun
                } else {
                    OrderOutcome::Given
                };
                self.record_order(
                    now_ms,
                    Some(order.id),
                    name,
                    order.kind.to_string(),
                    outcome,
                );
            }
            Err((order, refusal)) => {
                self.stats.orders_refused += 1;
                self.record_order(
                    now_ms,
                    None,
                    name,
                    order,
                    OrderOutcome::Refused(refusal.to_string()),
                );
            }
        }
    }
}

/// Makes the texts of an alert by its latest value.
fn render(alert: &mut Alert, state: &RuleState, now_ms: i64, is_new: bool) {
    let value = alert.machine.value();
    alert.rendered_ms = now_ms;
    if is_new {
        let mut pairs: BTreeMap<&str, String> = alert
            .key
            .iter()
            .map(|(name, value)| (name, value.to_owned()))
            .collect();
        for (name, template) in &state.rule.labels {
            pairs.insert(name, template.render(&alert.key, value));
        }
        pairs.insert("alertname", state.rule.name.clone());
        // Names are checked when the file is read, texts of templates are bounded.
        if let Ok(labels) = Labels::new(pairs) {
            alert.labels = Arc::new(labels);
        }
    }
    let annotations = state.rule.annotations.iter();
    // Annotations may use labels of the rule as well as those of the series.
    alert.annotations = annotations
        .map(|(name, template)| (name.clone(), template.render(&alert.labels, value)))
        .collect();
}

pub(super) fn notified(
    alert: &Alert,
    status: Status,
    starts_ms: Option<i64>,
    ends_ms: Option<i64>,
) -> NotifiedAlert {
    NotifiedAlert {
        status,
        labels: Arc::clone(&alert.labels),
        annotations: alert.annotations.to_vec(),
        starts_ms: starts_ms.unwrap_or_else(|| alert.machine.since_ms()),
        ends_ms,
        value: alert.machine.value(),
    }
}
