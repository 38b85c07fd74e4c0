//! Rules: what is watched, when it is an alarm, and what follows.
//!
//! The format is that of Prometheus' rule files, with keys of our own: see `docs/reference/alarms.md`.

mod keys;
mod read;
mod templates;

use crate::condition::Test;
use crate::online::Plan;
use crate::template::Template;

/// Rules of one file.
#[derive(Clone, Debug)]
pub struct RuleFile {
    /// File, as the caller named it.
    pub file: String,
    /// Groups in the order of the file.
    pub groups: Vec<Group>,
}

/// Rules that are evaluated together, one after the other.
#[derive(Clone, Debug)]
pub struct Group {
    /// Name, once a file.
    pub name: String,
    /// Time between evaluations of its late rules, in ms; `None`: that of the configuration.
    pub interval_ms: Option<i64>,
    /// Most alerts of one of its rules; `None`: that of the configuration.
    pub limit: Option<u32>,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Raises alerts.
    Alert(Box<AlertRule>),
    /// Makes a series from an expression.
    Record(RecordRule),
}

/// Rule that makes a series from an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordRule {
    /// Name of the series.
    pub name: String,
    /// Expression in PromQL.
    pub expr: String,
    /// Labels that are set on the series.
    pub labels: Vec<(String, String)>,
    /// Line of the rule in its file.
    pub line: usize,
}

/// Rule that raises alerts, one for each series of its expression.
#[derive(Clone, Debug)]
pub struct AlertRule {
    /// Name of its alerts, their label `alertname`.
    pub name: String,
    /// Expression in PromQL, as in the file.
    pub expr: String,
    /// How long the condition has to hold before the alert fires, in ms.
    pub for_ms: i64,
    /// How long an alert goes on to fire after its condition has ended, in ms.
    pub keep_firing_ms: i64,
    /// Labels that are set on alerts.
    pub labels: Vec<(String, Template)>,
    /// Texts of alerts.
    pub annotations: Vec<(String, Template)>,
    /// Fate of a series without data.
    pub nodata: Option<NoData>,
    /// Order to the farm when an alert fires.
    pub action: Option<Action>,
    /// Line of the rule in its file.
    pub line: usize,
    pub(crate) condition: Condition,
}

impl AlertRule {
    /// Returns whether the rule is evaluated as samples arrive, not by queries.
    #[must_use]
    pub fn is_online(&self) -> bool {
        matches!(self.condition, Condition::Online(_))
    }
}

/// How the condition of a rule is evaluated.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    /// As samples arrive.
    Online(Plan),
    /// By queries.
    Late {
        /// Query whose rows are alerts, or are tested by `test`.
        query: String,
        /// Present if `query` gives values to test rather than alerts.
        test: Option<Test>,
        /// Query that has to give a row for a firing alert to end.
        clear: Option<String>,
    },
    /// By the crate itself: sources.
    BuiltIn,
}

/// Fate of a series without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoData {
    /// How long data has to be absent, and how long it has to be back before the alert may end, in ms.
    pub for_ms: i64,
    /// State that follows.
    pub state: NoDataState,
}

/// State of an alert whose series has no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDataState {
    /// Shown as without data. Notifies nothing; an alert that fired is kept open.
    NoData,
    /// Fires.
    Firing,
    /// Counts as a condition that does not hold.
    Ok,
    /// Stays as it is.
    Keep,
}

/// Order to the farm when an alert fires.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// Order to give.
    pub order: ActionOrder,
    /// Node, as `epn 3`; of `stop`, nothing.
    pub target: Option<Template>,
    /// Whether the order is only written down.
    pub is_dry_run: bool,
    /// Most distinct nodes that get orders within a time.
    pub limit: OrderLimit,
    /// Time before one node gets another order, in ms.
    pub cooldown_ms: i64,
}

/// Order of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionOrder {
    /// Drain an EPN.
    Drain,
    /// Change the share of an EPN.
    SetWeight {
        /// Share in thousandths.
        weight_milli: u32,
        /// Share that is set when the alert resolves, in thousandths.
        undo_milli: Option<u32>,
    },
    /// End the run.
    Stop,
}

/// Bound on orders: at most `nodes` distinct nodes within `in_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderLimit {
    /// Distinct nodes.
    pub nodes: u32,
    /// Time, in ms.
    pub in_ms: i64,
}

impl Default for OrderLimit {
    fn default() -> Self {
        Self {
            nodes: 1,
            in_ms: 3_600_000,
        }
    }
}
