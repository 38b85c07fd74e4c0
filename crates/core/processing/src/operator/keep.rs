//! `keep`: selected series pass, others are discarded.

use super::{Draft, Flow, Operator, Registration};
use crate::selector::Selector;
use sheaf_samples::LabelsError;

pub(super) const OPERATOR: Registration = Registration {
    name: "keep",
    help: "Passes the selected series and discards all others.",
    keys: &[],
    changes_labels: false,
    read: |keys, _| {
        let text = keys.text("select").unwrap_or_default();
        match Selector::parse(&text) {
            Ok(selector) => Some(Box::new(Keep(selector))),
            // Reported where `select` is read for all operators, but for its absence.
            Err(_) => {
                if !keys.has("select") {
                    keys.wrong("select", "no value", "a vector selector");
                }
                None
            }
        }
    },
};

#[derive(Debug)]
struct Keep(Selector);

impl Operator for Keep {
    fn apply(&self, series: &mut Draft) -> Result<Flow, LabelsError> {
        Ok(if self.0.is_match(&series.labels) {
            Flow::Pass
        } else {
            Flow::Discard
        })
    }

    fn sees_all(&self) -> bool {
        true
    }
}
