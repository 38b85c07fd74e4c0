//! All alarms of a monitor: what comes in, what goes out.
//!
//! Samples, sources and results of queries enter by `handle_…`, time by `poll`; transitions, notifications, orders and
//! recorded samples leave by `poll_…`. Nothing here waits, and nothing is asked of a clock, so a test or a scenario
//! drives the very same object in virtual time.

mod apply;
mod late;
mod restart;
#[cfg(test)]
mod tests;
mod view;

pub use late::{Evaluated, Evaluation, Recorded, Row, evaluate};
pub use restart::Restored;
pub use view::{AlertView, GroupView, RecordView, RuleView};

use crate::alerts::{AlertId, Alerts};
use crate::condition::Verdict;
use crate::history::{Entry, History, OrderOutcome, OrderRecord, Transition};
use crate::notify::{DeliveryConfig, Notification, Notifier, NotifyStats, Rules};
use crate::online::{Observed, Online, Plan, SeriesHandle};
use crate::order::{Order, Orders};
use crate::routing::Routing;
use crate::rule::{AlertRule, Condition, OrderLimit, Rule, RuleFile};
use crate::selection::SeriesSelection;
use crate::silence::{Silence, SilenceError, SilenceRequest, Silences};
use crate::source::{SourceConfig, Sources, Watch};
use crate::state::Timing;
use late::{GroupState, Item, RecordState};
use serde::{Deserialize, Serialize};
use sheaf_samples::{Labels, Sample};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Time by which another collector has heard a source later than this one, from which on the source is that one's, in
/// ms: more than samples are on their way, and than reports are apart.
const GONE_MS: i64 = 3_000;

/// Bounds and times of alarms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlarmsConfig {
    /// Time between evaluations of a group of late rules that names none, in ms. Default: 60 s.
    pub interval_ms: i64,
    /// How long a value counts in online rules when no further one arrives, in ms. Default: 5 min, as in PromQL.
    pub lookback_ms: i64,
    /// Most series that online rules read. Default: 1,000,000.
    pub series_max: usize,
    /// Most alerts of one rule, series included whose data is watched. Default: 10,000.
    pub alerts_of_rule_max: usize,
    /// Most alerts that receivers are notified of. Default: 20,000.
    pub alerts_notified_max: usize,
    /// Entries of the history that are kept. Default: 10,000.
    pub history_max: usize,
    /// Entries of the history that are saved. Default: 1,000.
    pub history_saved_max: usize,
    /// Most transitions and recorded samples that wait for the driver; the oldest are dropped and counted. Default:
    /// 100,000.
    pub waiting_max: usize,
    /// Makes every order a dry run, whatever its rule says. Default: false.
    pub orders_dry_run: bool,
    /// Most distinct nodes that get orders from all rules together, within `orders_in_ms`. Default: 1.
    pub orders_nodes_max: u32,
    /// Time that `orders_nodes_max` is counted over, in ms. Default: 1 h.
    pub orders_in_ms: i64,
    /// Deliveries of notifications.
    pub delivery: DeliveryConfig,
    /// Alarms that every source has by itself.
    pub sources: SourceConfig,
}

impl Default for AlarmsConfig {
    fn default() -> Self {
        let orders = OrderLimit::default();
        Self {
            interval_ms: 60_000,
            lookback_ms: 300_000,
            series_max: 1_000_000,
            alerts_of_rule_max: 10_000,
            alerts_notified_max: 20_000,
            history_max: 10_000,
            history_saved_max: 1_000,
            waiting_max: 100_000,
            orders_dry_run: false,
            orders_nodes_max: orders.nodes,
            orders_in_ms: orders.in_ms,
            delivery: DeliveryConfig::default(),
            sources: SourceConfig::default(),
        }
    }
}

/// Counts since the process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AlarmStats {
    /// Changes of state.
    pub transitions: u64,
    /// Transitions and recorded samples that the driver did not take in time.
    pub waiting_dropped: u64,
    /// Alerts beyond the bound of their rule.
    pub alerts_refused: u64,
    /// Evaluations of late rules that failed.
    pub evaluations_failed: u64,
    /// Evaluations of groups left out, because the one before was not done or time went on too fast.
    pub evaluations_missed: u64,
    /// Orders given, dry runs left out.
    pub orders: u64,
    /// Orders refused.
    pub orders_refused: u64,
}

/// One alert rule and what is known of it.
#[derive(Debug)]
struct RuleState {
    /// Name of the rule with that of its group, unique; the same after a restart.
    id: String,
    group: String,
    /// Place of its group; the rules of sources come after all groups.
    group_at: usize,
    rule: AlertRule,
    timing: Timing,
    alerts_max: usize,
    /// Why the latest evaluation failed.
    error: Option<String>,
    evaluated_ms: Option<i64>,
}

/// The alarms of a monitor.
#[derive(Debug)]
pub struct Alarms {
    config: AlarmsConfig,
    rules: Vec<RuleState>,
    groups: Vec<GroupState>,
    /// Rule of each online plan.
    plan_rules: Vec<usize>,
    /// Rules of the alarms of sources, in the order of [`Watch::ALL`].
    watch_rules: [usize; 3],
    online: Online,
    alerts: Alerts,
    sources: Sources,
    routing: Routing,
    silences: Silences,
    notifier: Notifier,
    orders: Orders,
    /// Longest time of any limit or cooldown, in ms.
    orders_horizon_ms: i64,
    history: History,
    transitions: VecDeque<Transition>,
    recorded: VecDeque<Recorded>,
    evaluations: BTreeMap<u64, late::Pending>,
    next_evaluation: u64,
    stats: AlarmStats,
    observed: Vec<Observed>,
}

impl Alarms {
    /// Returns alarms by the rules of `files`, and the ones that every source has.
    #[must_use]
    pub fn new(config: AlarmsConfig, files: &[RuleFile], routing: Routing) -> Self {
        let (mut rules, mut groups, mut plans, mut plan_rules) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut horizon_ms = config.orders_in_ms;
        let mut names: BTreeMap<String, u32> = BTreeMap::new();
        let all = files.iter().map(|file| (&file.file, &file.groups));
        for (file, group) in
            all.flat_map(|(file, groups)| groups.iter().map(move |one| (file, one)))
        {
            let mut items = Vec::new();
            for rule in &group.rules {
                let rule = match rule {
                    Rule::Record(record) => {
                        items.push(Item::Record(RecordState {
                            rule: record.clone(),
                            error: None,
                            evaluated_ms: None,
                        }));
                        continue;
                    }
                    Rule::Alert(rule) => AlertRule::clone(rule),
                };
                if let Some(action) = &rule.action {
                    horizon_ms = horizon_ms.max(action.limit.in_ms).max(action.cooldown_ms);
                }
                match &rule.condition {
                    Condition::Online(plan) => {
                        plans.push(Plan::clone(plan));
                        plan_rules.push(rules.len());
                    }
                    _ => items.push(Item::Alert(rules.len())),
                }
                let limit = group
                    .limit
                    .map_or(config.alerts_of_rule_max, |limit| limit as usize);
                rules.push(RuleState::new(
                    (groups.len(), &group.name),
                    rule,
                    &config,
                    limit,
                    &mut names,
                ));
            }
            groups.push(GroupState::new(
                file,
                &group.name,
                group.interval_ms.unwrap_or(config.interval_ms),
                items,
            ));
        }
        let watch_rules = Watch::ALL.map(|watch| {
            let rule = watch.rule(&config.sources);
            rules.push(RuleState::new(
                (groups.len(), "sources"),
                rule,
                &config,
                config.sources.sources_max,
                &mut names,
            ));
            rules.len() - 1
        });
        Self {
            online: Online::new(plans, config.series_max, config.lookback_ms),
            alerts: Alerts::new(rules.len()),
            rules,
            groups,
            plan_rules,
            watch_rules,
            sources: Sources::default(),
            routing,
            silences: Silences::default(),
            notifier: Notifier::default(),
            orders: Orders::default(),
            orders_horizon_ms: horizon_ms,
            history: History::default(),
            transitions: VecDeque::new(),
            recorded: VecDeque::new(),
            evaluations: BTreeMap::new(),
            next_evaluation: 0,
            stats: AlarmStats::default(),
            observed: Vec::new(),
            config,
        }
    }

    /// Takes in a series under a handle of the caller; returns whether an online rule reads it: samples of others may
    /// be left out of [`handle_samples`](Self::handle_samples).
    pub fn handle_new_series(&mut self, handle: SeriesHandle, labels: &Arc<Labels>) -> bool {
        self.online.add_series(handle, labels)
    }

    /// Takes in that a series has ended; its handle may be used again.
    pub fn handle_series_gone(&mut self, now_ms: i64, handle: SeriesHandle) {
        let mut observed = std::mem::take(&mut self.observed);
        self.online.remove_series(now_ms, handle, &mut observed);
        self.take_observed(now_ms, observed);
    }

    /// Takes in samples as they arrive at `now_ms`, those of one series in the order of their times.
    pub fn handle_samples(&mut self, now_ms: i64, samples: &[(SeriesHandle, Sample)]) {
        let mut observed = std::mem::take(&mut self.observed);
        for (handle, sample) in samples {
            self.online
                .handle_sample(now_ms, *handle, *sample, &mut observed);
        }
        self.take_observed(now_ms, observed);
    }

    /// Series that online rules read, for the threads that have the samples.
    #[must_use]
    pub fn selection(&self) -> SeriesSelection {
        SeriesSelection::new(self.online.plans())
    }

    /// Longest time that online rules look back, in ms: what [`handle_past`](Self::handle_past) wants after a restart.
    #[must_use]
    pub fn range_ms(&self) -> i64 {
        self.online.range_ms()
    }

    /// Takes in samples of before a restart, as the store has them: windows are filled, nothing is judged.
    pub fn handle_past(&mut self, samples: &[(SeriesHandle, Sample)]) {
        for (handle, sample) in samples {
            self.online.handle_past(*handle, *sample);
        }
    }

    /// Takes in that something of `source` arrived. Once a source and 100 ms is enough.
    pub fn handle_source_seen(&mut self, now_ms: i64, source: &str) {
        if self
            .sources
            .handle_seen(now_ms, source, &self.config.sources)
        {
            self.watch(now_ms, Watch::Silent, source, Verdict::Clear(0.0));
        }
    }

    /// Takes in how many samples `source` has sent since it started, as it says itself, and how many have arrived.
    pub fn handle_source_counts(&mut self, now_ms: i64, source: &str, sent: u64, received: u64) {
        let config = &self.config.sources;
        if let Some(lost) = self
            .sources
            .handle_counts(now_ms, source, (sent, received), config)
        {
            let is_bad = lost > config.loss_ratio_max;
            self.watch(
                now_ms,
                Watch::Loss,
                source,
                if is_bad {
                    Verdict::Active(lost)
                } else {
                    Verdict::Clear(lost)
                },
            );
        }
    }

    /// Takes in by how much the clock of `source` is ahead of ours, in ms.
    pub fn handle_source_clock(&mut self, now_ms: i64, source: &str, offset_ms: i64) {
        let is_bad = offset_ms.saturating_abs() > self.config.sources.clock_offset_ms_max;
        let seconds = offset_ms as f64 / 1000.0;
        self.watch(
            now_ms,
            Watch::ClockOffset,
            source,
            if is_bad {
                Verdict::Active(seconds)
            } else {
                Verdict::Clear(seconds)
            },
        );
    }

    /// Takes in that another collector has heard `source` at `seen_ms`. One that is heard there and no longer here is
    /// watched there: it is forgotten here.
    pub fn handle_source_elsewhere(&mut self, now_ms: i64, source: &str, seen_ms: i64) {
        let has_gone = |here_ms: i64| seen_ms.saturating_sub(here_ms) >= GONE_MS;
        if self.sources.seen_ms(source).is_some_and(has_gone) {
            self.forget_source(now_ms, source);
        }
    }

    /// Sources that were heard since `from_ms`, and when last.
    pub fn sources_heard(&self, from_ms: i64) -> impl Iterator<Item = (&str, i64)> {
        let all = self.sources.heard();
        all.filter(move |(_, seen_ms)| *seen_ms >= from_ms)
    }

    /// Forgets a source that was taken out of service; its alarms resolve.
    pub fn forget_source(&mut self, now_ms: i64, source: &str) {
        self.sources.forget(source);
        self.end_watches(now_ms, source);
    }

    /// Goes on to `now_ms`: times of alerts, ticks of online rules, groups of notifications.
    pub fn poll(&mut self, now_ms: i64) {
        let mut observed = std::mem::take(&mut self.observed);
        let rows = self.online.tick(now_ms, &mut observed);
        self.take_observed(now_ms, observed);
        for rows in rows {
            self.take_rows(now_ms, rows);
        }
        for id in self.alerts.take_due(now_ms) {
            self.advance(now_ms, id);
        }
        for source in self.sources.take_forgotten(now_ms, &self.config.sources) {
            self.end_watches(now_ms, &source);
        }
        self.orders.forget_before(now_ms - self.orders_horizon_ms);
        let rules = Rules {
            routing: &self.routing,
            silences: &self.silences,
            delivery: &self.config.delivery,
            alerts_max: self.config.alerts_notified_max,
        };
        self.notifier.poll(now_ms, &rules);
    }

    /// When [`poll`](Self::poll) or [`due`](Self::due) has something to do next.
    #[must_use]
    pub fn next_ms(&self) -> Option<i64> {
        let groups = self.groups.iter().filter_map(GroupState::next_ms).min();
        let parts = [
            self.online.next_tick_ms(),
            self.alerts.next_wake_ms(),
            self.notifier.next_ms(),
            groups,
        ];
        parts.into_iter().flatten().min()
    }

    /// Takes the next change of an alert.
    pub fn poll_transition(&mut self) -> Option<Transition> {
        self.transitions.pop_front()
    }

    /// Takes the next notification to deliver; its outcome is expected by [`handle_delivered`](Self::handle_delivered)
    /// or [`handle_failed`](Self::handle_failed).
    pub fn poll_notification(&mut self, now_ms: i64) -> Option<Notification> {
        self.notifier.poll_notification(now_ms, &self.routing)
    }

    /// Takes in that a receiver has taken a notification.
    pub fn handle_delivered(&mut self, id: u64) {
        self.notifier.handle_delivered(id);
    }

    /// Takes in that a delivery failed; it is tried again later.
    pub fn handle_failed(&mut self, now_ms: i64, id: u64) {
        self.notifier
            .handle_failed(now_ms, id, &self.config.delivery);
    }

    /// Takes the next order to the farm. The outcome of one that is no dry run is expected by
    /// [`handle_order`](Self::handle_order).
    pub fn poll_order(&mut self) -> Option<Order> {
        self.orders.poll()
    }

    /// Takes in what became of an order: the farm has taken it, or why not.
    pub fn handle_order(&mut self, now_ms: i64, id: u64, result: Result<(), String>) {
        if let Some(order) = self.orders.finish(id) {
            let outcome = result.map_or_else(OrderOutcome::Failed, |()| OrderOutcome::Done);
            self.record_order(
                now_ms,
                Some(id),
                order.alert,
                order.kind.to_string(),
                outcome,
            );
        }
    }

    /// Silences alerts for a time; returns the number of the silence.
    ///
    /// # Errors
    ///
    /// If it would silence everything, is over, or there are too many.
    pub fn create_silence(
        &mut self,
        now_ms: i64,
        request: SilenceRequest,
    ) -> Result<u64, SilenceError> {
        self.silences.create(now_ms, request)
    }

    /// Ends a silence now.
    ///
    /// # Errors
    ///
    /// If no silence with this number is in force or to come.
    pub fn expire_silence(&mut self, now_ms: i64, id: u64) -> Result<(), SilenceError> {
        self.silences.expire(now_ms, id)
    }

    /// All silences by number, those included that ended in the last five days.
    pub fn silences(&self) -> impl Iterator<Item = &Silence> {
        self.silences.iter()
    }

    /// History: transitions, and orders with their outcome.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Counts since the process started.
    #[must_use]
    pub fn stats(&self) -> AlarmStats {
        self.stats
    }

    /// Counts of notifications.
    #[must_use]
    pub fn notify_stats(&self) -> NotifyStats {
        self.notifier.stats
    }

    /// Notifications without outcome.
    #[must_use]
    pub fn notifications_waiting(&self) -> usize {
        self.notifier.waiting()
    }

    /// Sources that are watched, and reports on sources beyond the bound.
    #[must_use]
    pub fn sources(&self) -> (usize, u64) {
        (self.sources.len(), self.sources.refused)
    }

    /// Samples that online rules dropped, late or beyond the bound of a window, and series beyond the bound.
    #[must_use]
    pub fn online_dropped(&self) -> (u64, u64) {
        (self.online.dropped, self.online.refused)
    }

    fn record_order(
        &mut self,
        at_ms: i64,
        id: Option<u64>,
        alert: String,
        order: String,
        outcome: OrderOutcome,
    ) {
        let record = OrderRecord {
            at_ms,
            id,
            alert,
            order,
            outcome,
        };
        self.history
            .push(Entry::Order(record), self.config.history_max);
    }

    fn all_orders(&self) -> OrderLimit {
        OrderLimit {
            nodes: self.config.orders_nodes_max,
            in_ms: self.config.orders_in_ms,
        }
    }

    fn end_watches(&mut self, now_ms: i64, source: &str) {
        let Ok(key) = Labels::new([("source", source)]) else {
            return;
        };
        let found: Vec<AlertId> = self
            .watch_rules
            .iter()
            .filter_map(|rule| self.alerts.find(*rule, &key))
            .collect();
        for id in found {
            self.end(now_ms, id);
        }
    }

    fn watch(&mut self, now_ms: i64, watch: Watch, source: &str, verdict: Verdict) {
        let at = Watch::ALL.iter().position(|one| *one == watch).unwrap_or(0);
        // A source that is too long for a label is refused by the sender's side already.
        if let Ok(key) = Labels::new([("source", source)]) {
            self.apply(
                now_ms,
                self.watch_rules[at],
                &Arc::new(key),
                now_ms,
                verdict,
            );
        }
    }
}

impl RuleState {
    fn new(
        (group_at, group): (usize, &str),
        rule: AlertRule,
        config: &AlarmsConfig,
        alerts_max: usize,
        names: &mut BTreeMap<String, u32>,
    ) -> Self {
        let name = format!("{group}/{}", rule.name);
        let count = names.entry(name.clone()).or_default();
        *count += 1;
        let timing = Timing {
            for_ms: rule.for_ms,
            keep_firing_ms: rule.keep_firing_ms,
            nodata: rule.nodata,
            lookback_ms: rule.is_online().then_some(config.lookback_ms),
        };
        Self {
            id: format!("{name}#{count}"),
            group: group.to_owned(),
            group_at,
            rule,
            timing,
            alerts_max,
            error: None,
            evaluated_ms: None,
        }
    }
}
