//! Views for pages and the HTTP API: rules and alerts as they are now.

use super::late::Item;
use super::{Alarms, RuleState};
use crate::alerts::Alert;
use crate::rule::{AlertRule, RecordRule};
use crate::state::State;
use sheaf_samples::Labels;
use std::sync::Arc;

/// A group of rules as it is now.
#[derive(Clone, Debug)]
pub struct GroupView<'a> {
    /// Name of the group.
    pub name: &'a str,
    /// File that it stands in; empty for the alarms of sources.
    pub file: &'a str,
    /// Time between evaluations of its late rules, in ms.
    pub interval_ms: i64,
    /// Alert rules of the group.
    pub alerts: Vec<RuleView<'a>>,
    /// Recording rules of the group.
    pub records: Vec<RecordView<'a>>,
}

/// A recording rule as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordView<'a> {
    /// The rule.
    pub rule: &'a RecordRule,
    /// Why the latest evaluation failed.
    pub error: Option<&'a str>,
    /// When it was evaluated last.
    pub evaluated_ms: Option<i64>,
}

/// A rule as it is now.
#[derive(Clone, Debug)]
pub struct RuleView<'a> {
    /// Name of its group.
    pub group: &'a str,
    /// Name of the rule.
    pub name: &'a str,
    /// Expression; empty for alarms of sources.
    pub expr: &'a str,
    /// Whether the rule is evaluated as samples arrive.
    pub is_online: bool,
    /// Why the latest evaluation failed.
    pub error: Option<&'a str>,
    /// When a query or an expression over many series was evaluated last.
    pub evaluated_ms: Option<i64>,
    /// Worst state of its alerts.
    pub state: State,
    /// Alerts, series included whose data is watched.
    pub alerts: usize,
    /// The rule as it stands in its file.
    pub rule: &'a AlertRule,
    at: usize,
}

/// An alert as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertView {
    /// Name of its rule.
    pub alert: String,
    /// Labels of the alert.
    pub labels: Arc<Labels>,
    /// Texts of the alert.
    pub annotations: Arc<[(String, String)]>,
    /// State.
    pub state: State,
    /// Since when.
    pub since_ms: i64,
    /// Since when its condition holds.
    pub active_ms: Option<i64>,
    /// Latest value.
    pub value: f64,
    /// Silence that covers it.
    pub silence: Option<u64>,
    /// Whether another alert hides it.
    pub is_hidden: bool,
}

impl Alarms {
    /// All alert rules, those of sources last.
    pub fn rules(&self) -> impl Iterator<Item = RuleView<'_>> {
        let rules = self.rules.iter().enumerate();
        rules.map(|(at, rule)| self.rule_view(at, rule))
    }

    /// All groups in the order of their files, the one of sources last.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupView<'_>> {
        let group = |name, file, interval_ms| GroupView {
            name,
            file,
            interval_ms,
            alerts: Vec::new(),
            records: Vec::new(),
        };
        let mut found: Vec<GroupView<'_>> = Vec::with_capacity(self.groups.len() + 1);
        for one in &self.groups {
            let mut view = group(&one.name, &one.file, one.interval_ms);
            let records = one.items.iter().filter_map(|item| match item {
                Item::Record(record) => Some(RecordView {
                    rule: &record.rule,
                    error: record.error.as_deref(),
                    evaluated_ms: record.evaluated_ms,
                }),
                Item::Alert(_) => None,
            });
            view.records.extend(records);
            found.push(view);
        }
        found.push(group("sources", "", self.config.interval_ms));
        for (at, rule) in self.rules.iter().enumerate() {
            let view = self.rule_view(at, rule);
            found[rule.group_at].alerts.push(view);
        }
        found
    }

    fn rule_view<'a>(&'a self, at: usize, rule: &'a RuleState) -> RuleView<'a> {
        let rank = |state: &State| match state {
            State::Inactive => 0,
            State::Resolved => 1,
            State::Pending => 2,
            State::NoData => 3,
            State::Firing => 4,
        };
        let alerts = self.alerts.of_rule(at);
        let states = alerts.filter_map(|id| Some(self.alerts.get(id)?.machine.state()));
        RuleView {
            group: &rule.group,
            name: &rule.rule.name,
            expr: &rule.rule.expr,
            is_online: rule.rule.is_online(),
            error: rule.error.as_deref(),
            evaluated_ms: rule.evaluated_ms,
            state: states.max_by_key(rank).unwrap_or(State::Inactive),
            alerts: self.alerts.len_of_rule(at),
            rule: &rule.rule,
            at,
        }
    }

    /// All alerts that are not inactive.
    pub fn alerts(&self, now_ms: i64) -> impl Iterator<Item = AlertView> {
        let alerts = self.alerts.iter().map(|(_, alert)| alert);
        let shown = alerts.filter(|one| one.machine.state() != State::Inactive);
        shown.map(move |alert| self.alert_view(now_ms, alert))
    }

    /// Alerts of one rule that are not inactive.
    pub fn alerts_of<'a>(
        &'a self,
        now_ms: i64,
        rule: &RuleView<'_>,
    ) -> impl Iterator<Item = AlertView> + use<'a> {
        let ids = self.alerts.of_rule(rule.at);
        let alerts = ids.filter_map(|id| self.alerts.get(id));
        let shown = alerts.filter(|one| one.machine.state() != State::Inactive);
        shown.map(move |alert| self.alert_view(now_ms, alert))
    }

    fn alert_view(&self, now_ms: i64, alert: &Alert) -> AlertView {
        AlertView {
            alert: self.rules[alert.rule].rule.name.clone(),
            labels: Arc::clone(&alert.labels),
            annotations: Arc::clone(&alert.annotations),
            state: alert.machine.state(),
            since_ms: alert.machine.since_ms(),
            active_ms: alert.machine.active_ms(),
            value: alert.machine.value(),
            silence: self.silences.of(now_ms, &alert.labels),
            is_hidden: self.notifier.is_hidden(&alert.labels, &self.routing),
        }
    }
}
