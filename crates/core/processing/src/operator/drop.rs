//! `drop`: labels are removed.

use super::{Draft, Flow, Operator, Registration};
use crate::keys::Key;
use sheaf_samples::LabelsError;

pub(super) const OPERATOR: Registration = Registration {
    name: "drop",
    help: "Removes labels. Series that differ in nothing else become one; to sum them up, use `window`.",
    keys: &[Key {
        name: "labels",
        form: "list of texts",
        default: "required",
        help: "Names of the labels.",
    }],
    changes_labels: true,
    read: |keys, _| Some(Box::new(Drop(keys.texts("labels")?))),
};

#[derive(Debug)]
struct Drop(Vec<String>);

impl Operator for Drop {
    fn apply(&self, series: &mut Draft) -> Result<Flow, LabelsError> {
        series.labels = series
            .labels
            .filter(|name| self.0.iter().all(|one| one != name));
        Ok(Flow::Pass)
    }
}

#[cfg(test)]
mod tests {
    use crate::operator::tests::relabelled;

    #[test]
    fn labels_are_removed() {
        let series = [("__name__", "x"), ("pid", "1"), ("host", "a")];
        assert_eq!(
            relabelled("drop", "labels = ['pid', 'tid']", &series),
            r#"x{host="a"}"#
        );
    }
}
