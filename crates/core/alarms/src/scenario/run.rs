//! Scenarios in virtual time: the alarms of a monitor, a store in memory, and the queries of late rules.

use super::{ExpectedAlerts, Scenario};
use crate::alarms::{Alarms, AlarmsConfig, evaluate};
use crate::history::{Entry, OrderOutcome, OrderRecord, Transition};
use crate::online::SeriesHandle;
use crate::routing::Routing;
use crate::rule::{Rule, RuleFile};
use crate::state::State;
use sheaf_query::{Memory, Options};
use sheaf_samples::Labels;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Time between ticks of online rules, in ms.
const TICK_MS: i64 = 100;

/// Something that a scenario expected and that was not so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioFailure {
    /// Line of the expectation; 0 for what was not expected at all.
    pub line: usize,
    /// Text found.
    pub found: String,
    /// Text of what was expected.
    pub expected: String,
}

impl fmt::Display for ScenarioFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        write!(f, "{}, expected {}", self.found, self.expected)
    }
}

/// Outcome of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioOutcome {
    /// Everything that was not as expected; empty if the rules passed.
    pub failures: Vec<ScenarioFailure>,
    /// Transitions in their order.
    pub transitions: Vec<Transition>,
    /// Orders and refusals in their order.
    pub orders: Vec<OrderRecord>,
}

/// Runs `scenario` over the rules of `files` from time 0 on; late rules are evaluated every `interval_ms` where their
/// group names no time. Orders are taken by a farm that does all of them.
#[must_use]
pub fn run_scenario(
    scenario: &Scenario,
    files: &[RuleFile],
    interval_ms: i64,
    config: &AlarmsConfig,
) -> ScenarioOutcome {
    let config = AlarmsConfig {
        interval_ms,
        history_max: usize::MAX,
        ..config.clone()
    };
    let mut alarms = Alarms::new(config, files, Routing::default());
    let mut world = World::new(scenario, files, &mut alarms);
    let mut failures = Vec::new();
    let mut transitions = Vec::new();
    while let Some(now_ms) = world
        .times
        .pop_first()
        .filter(|now_ms| *now_ms <= scenario.until_ms)
    {
        world.step(now_ms, &mut alarms);
        transitions.extend(std::iter::from_fn(|| alarms.poll_transition()));
        for expected in scenario.alerts.iter().filter(|one| one.at_ms == now_ms) {
            failures.extend(check_alerts(expected, &alarms));
        }
    }
    let orders = alarms.history().iter().filter_map(|entry| match entry {
        Entry::Order(record) => Some(record.clone()),
        Entry::Transition(_) => None,
    });
    let outcome = ScenarioOutcome {
        failures,
        transitions,
        orders: orders.collect(),
    };
    compare(scenario, outcome)
}

/// Everything outside of the alarms.
struct World<'a> {
    scenario: &'a Scenario,
    memory: Memory,
    options: Options,
    /// Times at which something happens.
    times: BTreeSet<i64>,
    /// Samples by time: series and place in its list.
    samples: BTreeMap<i64, Vec<(usize, usize)>>,
    is_read: Vec<bool>,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, files: &[RuleFile], alarms: &mut Alarms) -> Self {
        let mut times: BTreeSet<i64> = scenario.alerts.iter().map(|one| one.at_ms).collect();
        let mut samples: BTreeMap<i64, Vec<(usize, usize)>> = BTreeMap::new();
        let mut is_read = Vec::new();
        for (series, (labels, values)) in scenario.series.iter().enumerate() {
            let handle = SeriesHandle(u32::try_from(series).unwrap_or(u32::MAX));
            is_read.push(alarms.handle_new_series(handle, labels));
            for (at, sample) in values.iter().enumerate() {
                samples.entry(sample.at_ms).or_default().push((series, at));
            }
        }
        let rules = files
            .iter()
            .flat_map(|file| &file.groups)
            .flat_map(|group| &group.rules);
        let has_online = rules
            .into_iter()
            .any(|rule| matches!(rule, Rule::Alert(rule) if rule.is_online()));
        let step_ms = if has_online || !scenario.sources.is_empty() {
            TICK_MS
        } else {
            1000
        };
        times.extend((0..=scenario.until_ms / step_ms).map(|tick| tick * step_ms));
        times.extend(samples.keys());
        Self {
            scenario,
            memory: Memory::new(),
            options: Options::default(),
            times,
            samples,
            is_read,
        }
    }

    fn step(&mut self, now_ms: i64, alarms: &mut Alarms) {
        let mut batch = Vec::new();
        for (series, at) in self.samples.remove(&now_ms).unwrap_or_default() {
            let (labels, values) = &self.scenario.series[series];
            self.memory.insert(labels, values[at]);
            if self.is_read[series] {
                batch.push((
                    SeriesHandle(u32::try_from(series).unwrap_or(u32::MAX)),
                    values[at],
                ));
            }
        }
        alarms.handle_samples(now_ms, &batch);
        for source in &self.scenario.sources {
            if source
                .seen
                .binary_search_by_key(&now_ms, |one| one.at_ms)
                .is_ok()
            {
                alarms.handle_source_seen(now_ms, &source.source);
            }
            if let Ok(at) = source.counts.binary_search_by_key(&now_ms, |one| one.0) {
                alarms.handle_source_counts(
                    now_ms,
                    &source.source,
                    source.counts[at].1,
                    source.counts[at].2,
                );
            }
            if let Ok(at) = source
                .clock_offset_ms
                .binary_search_by_key(&now_ms, |one| one.at_ms)
            {
                alarms.handle_source_clock(
                    now_ms,
                    &source.source,
                    source.clock_offset_ms[at].value as i64,
                );
            }
        }
        for evaluation in alarms.due(now_ms) {
            let result = evaluate(&self.memory, &evaluation, &self.options);
            alarms.handle_evaluated(now_ms, evaluation.id, result);
            while let Some(recorded) = alarms.poll_recorded() {
                self.memory.insert(&recorded.labels, recorded.sample);
            }
        }
        alarms.poll(now_ms);
        while let Some(notification) = alarms.poll_notification(now_ms) {
            alarms.handle_delivered(notification.id);
        }
        while let Some(order) = alarms.poll_order() {
            if !order.is_dry_run {
                alarms.handle_order(now_ms, order.id, Ok(()));
            }
        }
    }
}

fn check_alerts(expected: &ExpectedAlerts, alarms: &Alarms) -> Option<ScenarioFailure> {
    let sorted = |pairs: &[(String, String)]| {
        let mut pairs = pairs.to_vec();
        pairs.sort();
        pairs
    };
    let firing = alarms
        .alerts(expected.at_ms)
        .filter(|one| one.alert == expected.alert && one.state == State::Firing);
    let own = |labels: &Arc<Labels>| {
        let pairs = labels.iter().filter(|pair| pair.0 != "alertname");
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect::<Vec<_>>()
    };
    let mut found: Vec<_> = firing
        .map(|one| (own(&one.labels), sorted(&one.annotations)))
        .collect();
    found.sort();
    let mut wanted: Vec<_> = expected
        .alerts
        .iter()
        .map(|one| {
            (
                sorted(&one.labels),
                one.annotations.as_ref().map(|one| sorted(one)),
            )
        })
        .collect();
    wanted.sort();
    let is_same = found.len() == wanted.len()
        && found.iter().zip(&wanted).all(|(found, wanted)| {
            found.0 == wanted.0 && wanted.1.as_ref().is_none_or(|wanted| *wanted == found.1)
        });
    (!is_same).then(|| ScenarioFailure {
        line: expected.line,
        found: format!("{} fires as {found:?}", expected.alert),
        expected: format!("{wanted:?}"),
    })
}

/// Word of an outcome in scenario files.
fn outcome_name(outcome: &OrderOutcome) -> &'static str {
    match outcome {
        OrderOutcome::Given => "given",
        OrderOutcome::DryRun => "dry-run",
        OrderOutcome::Refused(_) => "refused",
        OrderOutcome::Done => "done",
        OrderOutcome::Failed(_) => "failed",
    }
}

fn compare(scenario: &Scenario, mut outcome: ScenarioOutcome) -> ScenarioOutcome {
    if let Some(expected) = &scenario.transitions {
        let wanted = expected.iter().map(|one| {
            (
                one.line,
                format!(
                    "{} ms: {} {:?} to {}",
                    one.at_ms, one.alert, one.labels, one.to
                ),
            )
        });
        let found = outcome.transitions.iter().map(|one| {
            format!(
                "{} ms: {} {} from {} to {} with {}",
                one.at_ms, one.alert, one.labels, one.from, one.to, one.value
            )
        });
        let is_same = |at: usize| {
            let (one, found) = (&expected[at], &outcome.transitions[at]);
            let has =
                |(name, value): &(String, String)| found.labels.get(name) == Some(value.as_str());
            one.at_ms == found.at_ms
                && one.alert == found.alert
                && one.to == found.to
                && one.labels.iter().all(has)
        };
        let differences = differences(
            &wanted.collect::<Vec<_>>(),
            &found.collect::<Vec<_>>(),
            is_same,
        );
        outcome.failures.extend(differences);
    }
    if let Some(expected) = &scenario.orders {
        let wanted = expected.iter().map(|one| {
            (
                one.line,
                format!("{} ms: {} {}", one.at_ms, one.order, one.outcome),
            )
        });
        // What the farm of the scenario does is no part of the rules.
        let decided = outcome
            .orders
            .iter()
            .filter(|one| !matches!(one.outcome, OrderOutcome::Done));
        let decided: Vec<OrderRecord> = decided.cloned().collect();
        let found = decided
            .iter()
            .map(|one| format!("{} ms: {} {:?}", one.at_ms, one.order, one.outcome));
        let is_same = |at: usize| {
            let (one, found) = (&expected[at], &decided[at]);
            one.at_ms == found.at_ms
                && one.order == found.order
                && one.outcome == outcome_name(&found.outcome)
        };
        let differences = differences(
            &wanted.collect::<Vec<_>>(),
            &found.collect::<Vec<_>>(),
            is_same,
        );
        outcome.failures.extend(differences);
    }
    outcome
}

/// First difference of two lists, with how many more follow of each.
fn differences(
    wanted: &[(usize, String)],
    found: &[String],
    is_same: impl Fn(usize) -> bool,
) -> Option<ScenarioFailure> {
    let common = wanted.len().min(found.len());
    let at = (0..common)
        .find(|at| !is_same(*at))
        .or((wanted.len() != found.len()).then_some(common))?;
    let (line, expected) = wanted
        .get(at)
        .cloned()
        .unwrap_or((0, "nothing more".to_owned()));
    let mut text = found
        .get(at)
        .cloned()
        .unwrap_or_else(|| "nothing more".to_owned());
    if found.len() > at + 1 {
        text += &format!(" (and {} more)", found.len() - at - 1);
    }
    Some(ScenarioFailure {
        line,
        found: text,
        expected,
    })
}
