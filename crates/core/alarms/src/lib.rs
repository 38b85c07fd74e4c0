//! Alarms on measured values: when something is wrong, whom to notify, and what to order.
//!
//! This crate answers: *which alerts are on, and what follows from that?* [`RuleFile`] and [`Routing`] are read from
//! files in the formats of Prometheus and Alertmanager; [`Alarms`] takes samples, sources and results of queries and
//! gives transitions, notifications and orders; [`ScenarioFile`] tests rules. Pure: time is an argument, queries,
//! deliveries and orders are carried out by the driver. See `docs/reference/alarms.md`.
//!
//! ```
//! use sheaf_alarms::{Alarms, AlarmsConfig, Routing, RuleFile, SeriesHandle, State};
//! use sheaf_samples::{Labels, Sample};
//! use std::sync::Arc;
//!
//! let text = "groups: [{name: farm, rules: [{alert: Hot, expr: temperature > 60, online: true}]}]";
//! let rules = RuleFile::parse("rules.yml", text).unwrap();
//! let mut alarms = Alarms::new(AlarmsConfig::default(), &[rules], Routing::default());
//! let labels = Arc::new(Labels::new([("__name__", "temperature"), ("epn", "3")]).unwrap());
//! alarms.handle_new_series(SeriesHandle(0), &labels);
//! alarms.handle_samples(1_000, &[(SeriesHandle(0), Sample { at_ms: 1_000, value: 61.0 })]);
//! let transition = alarms.poll_transition().unwrap();
//! assert_eq!((transition.to, transition.labels.get("epn")), (State::Firing, Some("3")));
//! ```

mod alarms;
mod alerts;
mod body;
mod condition;
mod duration;
mod expression;
mod fields;
mod finding;
mod history;
mod notify;
mod online;
mod order;
mod routing;
mod rule;
mod saved;
mod scenario;
mod selection;
mod shipped;
mod silence;
mod source;
mod state;
mod template;
mod yaml;

pub use alarms::{
    AlarmStats, Alarms, AlarmsConfig, AlertView, Evaluated, Evaluation, GroupView, RecordView,
    Recorded, Restored, Row, RuleView, evaluate,
};
pub use body::{Email, SIGNATURE_HEADER, alertmanager, email, log_line, signature, webhook};
pub use duration::rfc3339;
pub use finding::{Finding, Findings};
pub use history::{Entry, History, OrderOutcome, OrderRecord, Transition};
pub use notify::{DeliveryConfig, Notification, NotifiedAlert, NotifyStats, Status};
pub use online::SeriesHandle;
pub use order::{Order, OrderKind};
pub use routing::{Channel, Receiver, Routing};
pub use rule::{
    Action, ActionOrder, AlertRule, Group, NoData, NoDataState, OrderLimit, RecordRule, Rule,
    RuleFile,
};
pub use saved::{RestoreError, fingerprint};
pub use scenario::{Scenario, ScenarioFailure, ScenarioFile, ScenarioOutcome, run_scenario};
pub use selection::SeriesSelection;
pub use shipped::{SHEAF_RULES, sheaf_rules};
pub use silence::{Silence, SilenceError, SilenceRequest};
pub use source::SourceConfig;
pub use state::State;
pub use template::{Template, TemplateError};
