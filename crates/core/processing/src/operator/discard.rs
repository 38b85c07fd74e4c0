//! `discard`: selected series end here.

use super::{Draft, Flow, Operator, Registration};
use sheaf_samples::LabelsError;

pub(super) const OPERATOR: Registration = Registration {
    name: "discard",
    help: "Discards the selected series.",
    keys: &[],
    changes_labels: false,
    read: |keys, _| {
        if !keys.has("select") {
            keys.wrong("select", "no value", "a vector selector");
        }
        Some(Box::new(Discard))
    },
};

#[derive(Debug)]
struct Discard;

impl Operator for Discard {
    fn apply(&self, _: &mut Draft) -> Result<Flow, LabelsError> {
        Ok(Flow::Discard)
    }
}
