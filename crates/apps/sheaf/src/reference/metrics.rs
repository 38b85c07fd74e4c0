//! Tables of metrics, one a role.

use super::marked::{Table, markdown};

/// Returns a table for each group of metrics.
pub(super) fn tables() -> Vec<Table> {
    let head = ["metric", "kind", "labels", "what it is", "when it moves"];
    let groups = sheaf_node::metrics::groups().into_iter();
    let table = |group: sheaf_node::metrics::Group| {
        let rows = group.metrics.into_iter().map(|metric| {
            let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
            [
                format!("`{}`", metric.name),
                metric.kind.word().to_owned(),
                labels.join(", "),
                metric.help.trim_end_matches('.').to_owned(),
                metric.advice.to_owned(),
            ]
        });
        let text = markdown(head, rows);
        Table {
            name: group.name,
            text,
        }
    };
    groups.map(table).collect()
}
