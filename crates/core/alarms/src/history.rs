//! History: changes of alerts, and orders with their outcome. Bounded; the oldest go first.

use crate::saved;
use crate::state::State;
use serde::{Deserialize, Serialize};
use sheaf_samples::Labels;
use std::collections::VecDeque;
use std::sync::Arc;

/// A change of an alert's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    /// When, in ms since 1970-01-01 UTC.
    pub at_ms: i64,
    /// Name of the rule.
    pub alert: String,
    /// Labels of the alert, `alertname` included.
    #[serde(with = "saved::labels")]
    pub labels: Arc<Labels>,
    /// State before.
    pub from: State,
    /// State after.
    pub to: State,
    /// Latest value of the expression.
    #[serde(with = "saved::bits")]
    pub value: f64,
}

/// An order, or why there is none: the accounting of what alarms did to the farm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderRecord {
    /// When, in ms since 1970-01-01 UTC.
    pub at_ms: i64,
    /// Number of the order; `None`: refused.
    pub id: Option<u64>,
    /// Name of the rule.
    pub alert: String,
    /// Order that was given or refused, such as `drain epn 3`.
    pub order: String,
    /// Outcome of the order.
    pub outcome: OrderOutcome,
}

/// Outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderOutcome {
    /// Given to the driver.
    Given,
    /// Written down only.
    DryRun,
    /// Not given, with the reason.
    Refused(String),
    /// The farm has taken it.
    Done,
    /// The farm has not taken it, with the reason.
    Failed(String),
}

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A change of an alert's state.
    Transition(Transition),
    /// An order, or its refusal.
    Order(OrderRecord),
}

/// The latest entries, oldest first, and how many were left out.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct History {
    entries: VecDeque<Entry>,
    /// Entries that gave way to later ones.
    pub left_out: u64,
}

impl History {
    pub(crate) fn push(&mut self, entry: Entry, entries_max: usize) {
        while self.entries.len() >= entries_max.max(1) {
            self.entries.pop_front();
            self.left_out += 1;
        }
        self.entries.push_back(entry);
    }

    /// Entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_entries_give_way() {
        let mut history = History::default();
        for at_ms in 0..5 {
            let record = OrderRecord {
                at_ms,
                id: None,
                alert: "A".to_owned(),
                order: "stop".to_owned(),
                outcome: OrderOutcome::DryRun,
            };
            history.push(Entry::Order(record), 3);
        }
        let times = history.iter().map(|entry| match entry {
            Entry::Order(record) => record.at_ms,
            Entry::Transition(transition) => transition.at_ms,
        });
        assert_eq!(
            (times.collect::<Vec<_>>(), history.left_out),
            (vec![2, 3, 4], 2)
        );
    }
}
