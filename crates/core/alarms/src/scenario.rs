//! Scenario files: series over time, and what the rules have to make of them.
//!
//! The format is that of the unit tests of Prometheus' rules, with `transitions`, `orders` and `sources` added, so that
//! a file without these is a test for `promtool` too.

mod notation;
mod read;
mod run;

pub use run::{ScenarioFailure, ScenarioOutcome, run_scenario};

use crate::state::State;
use sheaf_samples::{Labels, Sample};
use std::sync::Arc;

/// A file of scenarios.
#[derive(Clone, Debug)]
pub struct ScenarioFile {
    /// File, as the caller named it.
    pub file: String,
    /// Rule files, by paths from the folder of this file; the caller reads them.
    pub rule_files: Vec<String>,
    /// Time between evaluations of late rules, in ms.
    pub interval_ms: i64,
    /// The scenarios.
    pub scenarios: Vec<Scenario>,
}

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name, or place in the file.
    pub name: String,
    series: Vec<(Arc<Labels>, Vec<Sample>)>,
    sources: Vec<SourceEvents>,
    until_ms: i64,
    /// Every transition that there has to be, in order; `None`: not compared.
    transitions: Option<Vec<ExpectedTransition>>,
    orders: Option<Vec<ExpectedOrder>>,
    alerts: Vec<ExpectedAlerts>,
}

/// Behaviour of a source over time.
#[derive(Clone, Debug)]
struct SourceEvents {
    source: String,
    seen: Vec<Sample>,
    /// Counts of the same times: sent and received.
    counts: Vec<(i64, u64, u64)>,
    clock_offset_ms: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct ExpectedTransition {
    line: usize,
    at_ms: i64,
    alert: String,
    labels: Vec<(String, String)>,
    to: State,
}

#[derive(Clone, Debug)]
struct ExpectedOrder {
    line: usize,
    at_ms: i64,
    order: String,
    outcome: String,
}

/// Alerts of one rule that fire at one time: labels without `alertname`, and annotations, where these are compared.
#[derive(Clone, Debug)]
struct ExpectedAlerts {
    line: usize,
    at_ms: i64,
    alert: String,
    alerts: Vec<ExpectedAlert>,
}

#[derive(Clone, Debug)]
struct ExpectedAlert {
    labels: Vec<(String, String)>,
    annotations: Option<Vec<(String, String)>>,
}
