//! The fault matrix: every cell, in the order of its number. What each promises stands in `docs/explanation/faults.md`.

mod around;
mod network;
mod nodes;
mod writing;

use crate::cell::Cell;
use crate::shape::{Ground, Shape};
use sheaf_node::config::LedgerBackend;
use sheaf_testbed::tool::Need;

const LAN: Shape = Shape::SMALL.on(Ground::Namespaces);
const RELAYED: Shape = Shape::SMALL.on(Ground::Relays);
/// One ICN that keeps its verdicts in files.
const FILED: Shape = Shape::SMALL.led_by(1, LedgerBackend::File);
/// Three ICNs that agree on every verdict.
const THREE: Shape = Shape::SMALL.led_by(3, LedgerBackend::Majority);
/// Two ICNs whose verdicts three ZooKeeper servers keep.
const KEPT: Shape = Shape::SMALL.led_by(2, LedgerBackend::Zookeeper);
/// The same, with something between every node and every ZooKeeper server that can be closed.
const KEPT_APART: Shape = KEPT.on(Ground::KeeperRelays);
const ZK: &[Need] = &[Need::ZooKeeper];
const NET: &[Need] = &[Need::Namespaces];
const SOURCE_DEAD: &[&str] = &["source-died", "source-late"];
const SOURCE_GONE: &[&str] = &["source-died", "source-late", "source-cut"];

/// All cells.
pub fn cells() -> impl Iterator<Item = &'static Cell> {
    [nodes::CELLS, network::CELLS, around::CELLS, writing::CELLS]
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Since;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_ten_cells_are_quick() {
        let names: BTreeSet<&str> = cells().map(|cell| cell.name).collect();
        assert_eq!(names.len(), cells().count());
        let quick = cells().filter(|cell| cell.is_quick);
        assert_eq!(quick.count(), 10);
    }

    #[test]
    fn a_cell_that_needs_a_namespace_says_so_and_has_one() {
        for cell in cells() {
            let has = cell.shape.ground == Ground::Namespaces;
            assert_eq!(cell.needs.contains(&Need::Namespaces), has, "{}", cell.name);
        }
    }

    #[test]
    fn the_documentation_has_every_cell_with_its_bound() {
        let docs = include_str!("../../../../docs/explanation/faults.md");
        for cell in cells() {
            let found = docs.lines().find(|line| {
                line.strip_prefix("| `")
                    .and_then(|rest| rest.strip_prefix(cell.name))
                    .is_some_and(|rest| rest.starts_with('`'))
            });
            let line = found.unwrap_or_else(|| {
                panic!("docs/explanation/faults.md has no row for {}", cell.name)
            });
            let fields: Vec<&str> = line.split('|').map(str::trim).collect();
            let suffix = if cell.since == Since::Heal { " h" } else { "" };
            let bound = format!("{}{suffix}", cell.recover_ms);
            let detect = cell.detect_ms.map_or(String::new(), |ms| ms.to_string());
            let losses: Vec<String> = cell.losses.iter().map(|why| format!("`{why}`")).collect();
            let expected = [cell.number, cell.what, &detect, &bound, &losses.join(", ")];
            assert_eq!(fields[2..7], expected, "{line}");
            assert_eq!(fields[1].ends_with('Q'), cell.is_quick, "{line}");
        }
    }
}
