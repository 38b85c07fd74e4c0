//! `set`: labels with a constant value.

use super::{Draft, Flow, Operator, Registration};
use crate::keys::Key;
use sheaf_samples::LabelsError;
use std::collections::BTreeMap;

pub(super) const OPERATOR: Registration = Registration {
    name: "set",
    help: "Sets labels to constant values; a label that exists is replaced.",
    keys: &[Key {
        name: "labels",
        form: "table of texts",
        default: "required",
        help: "Labels and their values. An empty value removes the label.",
    }],
    changes_labels: true,
    read: |keys, _| {
        let labels = keys.pairs("labels")?;
        if labels.is_empty() || labels.contains_key("") {
            keys.wrong(
                "labels",
                "no label, or one without a name",
                "names and values",
            );
        }
        Some(Box::new(Set(labels)))
    },
};

#[derive(Debug)]
struct Set(BTreeMap<String, String>);

impl Operator for Set {
    fn apply(&self, series: &mut Draft) -> Result<Flow, LabelsError> {
        for (name, value) in &self.0 {
            series.labels = series.labels.with(name, value)?;
        }
        Ok(Flow::Pass)
    }
}

#[cfg(test)]
mod tests {
    use crate::operator::tests::{read, relabelled};

    #[test]
    fn labels_are_set_and_removed() {
        let text = "labels = { role = 'flp', run = '', host = 'b' }";
        let series = [("__name__", "x"), ("run", "1"), ("host", "a")];
        assert_eq!(
            relabelled("set", text, &series),
            r#"x{host="b", role="flp"}"#
        );
        assert!(read("set", "labels = {}").is_err());
    }
}
