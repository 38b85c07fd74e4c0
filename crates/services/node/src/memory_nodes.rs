//! Memory nodes of this machine, and where the memory of a node of the farm lies.

use crate::cpus::CpuList;
use sheaf_transport::{Arena, prefer_memory_nodes};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tracing::{info, warn};

/// Has the memory of this process lie at the memory nodes of the processors `data_cpus`. Without such processors, and
/// on a machine with one memory node, a page lies where the thread runs that touches it first.
pub(crate) fn prefer(data_cpus: &[usize]) {
    let all = below(Path::new("/"));
    let cpus: CpuList = data_cpus.iter().copied().collect();
    let near = all.iter().filter(|(_, of)| !of.within(&cpus).is_empty());
    let near: BTreeSet<u32> = near.map(|(node, _)| *node).collect();
    if all.len() < 2 || near.is_empty() {
        return;
    }
    match prefer_memory_nodes(&near) {
        Ok(()) => {
            info!(memory_nodes = ?near, cpus = %cpus, "Memory lies beside the threads of data");
        }
        Err(error) => warn!(%error, memory_nodes = ?near, "Memory cannot be placed"),
    }
}

/// Logs at which memory nodes an arena lies, if the machine has several.
pub(crate) fn log(arena: &Arena) {
    if below(Path::new("/")).len() > 1 {
        let bytes = arena.bytes_by_memory_node();
        info!(?bytes, "Memory of the arena by memory node");
    }
}

/// Reads the memory nodes with the processors of each, from `/sys` below `root`.
fn below(root: &Path) -> Vec<(u32, CpuList)> {
    let folder = root.join("sys/devices/system/node");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut nodes: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let node = name.strip_prefix("node")?.parse().ok()?;
            let list = fs::read_to_string(entry.path().join("cpulist")).ok()?;
            // A node of memory alone has an empty list.
            Some((node, list.trim().parse().unwrap_or_default()))
        })
        .collect();
    nodes.sort_by_key(|(node, _)| *node);
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_nodes_are_read_with_their_processors() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = folder.path().join("sys/devices/system/node");
        for (name, list) in [("node0", "0-1,4\n"), ("node1", "2-3\n"), ("node10", "\n")] {
            fs::create_dir_all(nodes.join(name)).unwrap();
            fs::write(nodes.join(name).join("cpulist"), list).unwrap();
        }
        fs::write(nodes.join("possible"), "0-10\n").unwrap();
        let list = |text: &str| text.parse::<CpuList>().unwrap();
        assert_eq!(
            below(folder.path()),
            [
                (0, list("0-1,4")),
                (1, list("2-3")),
                (10, CpuList::default())
            ]
        );
    }
}
