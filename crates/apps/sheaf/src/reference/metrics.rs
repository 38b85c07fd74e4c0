//! Tables of metrics, one a role.

use super::marked::{Table, markdown};
use sheaf_metrics::Metric;

/// Returns a table for each group of metrics.
pub(super) fn tables() -> Vec<Table> {
    let head = ["metric", "kind", "labels", "what it is", "when it moves"];
    let groups = sheaf_node::metrics::groups().into_iter();
    let table = |(name, metrics): (&'static str, Vec<Metric>)| {
        let rows = metrics.into_iter().map(|metric| {
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
        Table { name, text }
    };
    let groups = groups.map(|group| (group.name, group.metrics));
    #[cfg(feature = "monitor")]
    let groups = groups.chain([("collector", sheaf_monitor::metrics().collect())]);
    let groups = groups.chain([("agent", sheaf_agent::metrics().collect())]);
    let groups = groups.chain([("file-server", sheaf_file_server::metrics().collect())]);
    let groups = groups.chain([("serve", sheaf_gateway::metrics().collect())]);
    groups.map(table).collect()
}
