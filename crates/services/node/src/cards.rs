//! Network cards of this machine: their queues, the processors that these interrupt, and the memory node they are at.
//!
//! A flow costs least where its interrupts, its thread and its memory are on one side of the machine, and a thread of
//! data loses the processor to every interrupt of a queue on the same one (`docs/explanation/100-gbit.md`).

use crate::cpus::CpuList;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tracing::{info, warn};

/// A network card with hardware behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Name of the interface, such as `eth0`.
    pub name: String,
    /// Receive queues.
    pub queues: usize,
    /// Processors that its interrupts go to; none if the kernel does not say.
    pub interrupted: CpuList,
    /// Memory node that it is at; `None` on a machine with one.
    pub memory_node: Option<u32>,
    /// Processors of that memory node.
    pub near: CpuList,
}

impl Card {
    /// Reads the cards of this machine that are up, by name.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Self::below(Path::new("/"))
    }

    /// Reads `/sys` and `/proc` below `root`.
    fn below(root: &Path) -> Vec<Self> {
        let mut names: Vec<String> = names_in(&root.join("sys/class/net"));
        names.sort();
        let cards = names.into_iter().map(|name| Self::read(root, name));
        cards.flatten().collect()
    }

    fn read(root: &Path, name: String) -> Option<Self> {
        let interface = root.join("sys/class/net").join(&name);
        // Interfaces of software, such as lo, have no device.
        let device = fs::canonicalize(interface.join("device")).ok()?;
        if word(&interface.join("operstate")).as_deref() == Some("down") {
            return None;
        }
        // The device of a card of virtio is a child of that on the bus, which has the interrupts.
        let places: Vec<PathBuf> = device.ancestors().take(2).map(Path::to_owned).collect();
        let node = places.iter().find_map(|at| word(&at.join("numa_node")));
        // The kernel says -1 where there is one node.
        let memory_node = node.and_then(|node| node.parse::<u32>().ok());
        let near = memory_node.and_then(|node| {
            let of_node = format!("sys/devices/system/node/node{node}/cpulist");
            word(&root.join(of_node))?.parse().ok()
        });
        let mut interrupted = CpuList::default();
        for interrupt in interrupts(&places) {
            let of_interrupt = root.join("proc/irq").join(interrupt);
            let files = ["effective_affinity_list", "smp_affinity_list"];
            let lists = files.map(|file| word(&of_interrupt.join(file)));
            let list = lists.into_iter().flatten().find(|list| !list.is_empty());
            if let Some(Ok(cpus)) = list.map(|list| list.parse::<CpuList>()) {
                interrupted.extend(cpus.all());
            }
        }
        let queues = names_in(&interface.join("queues"));
        Some(Self {
            name,
            queues: queues.iter().filter(|name| name.starts_with("rx-")).count(),
            interrupted,
            memory_node,
            near: near.unwrap_or_default(),
        })
    }
}

/// Returns the interrupts of a device, those of messages or the one of its line.
fn interrupts(places: &[PathBuf]) -> BTreeSet<String> {
    let of_messages = places
        .iter()
        .map(|at| names_in(&at.join("msi_irqs")))
        .find(|names| !names.is_empty());
    let of_line = || {
        let lines = places.iter().filter_map(|at| word(&at.join("irq")));
        lines.filter(|line| line != "0").take(1).collect()
    };
    let all = of_messages.unwrap_or_else(of_line);
    all.into_iter().collect()
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().into_string());
    names.flatten().collect()
}

fn word(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// Logs the cards of this machine, and warns of threads of data, pinned to `data_cpus` or to none, that share a
/// processor with a queue, or are away from the memory of every card.
pub(crate) fn log(data_cpus: &[usize]) {
    let cards = Card::all();
    for card in &cards {
        // What is not known is left out.
        let known = |cpus: &CpuList| (!cpus.is_empty()).then(|| cpus.to_string());
        info!(
            card = card.name,
            queues = card.queues,
            interrupts = known(&card.interrupted),
            memory_node = card.memory_node,
            near = known(&card.near),
            "Network card"
        );
    }
    for complaint in complaints(&cards, &data_cpus.iter().copied().collect()) {
        warn!("{complaint}");
    }
}

/// Returns what stands against threads that are pinned to these processors.
fn complaints(cards: &[Card], pinned: &CpuList) -> Vec<String> {
    let mut found = Vec::new();
    for card in cards {
        let shared = pinned.within(&card.interrupted);
        if !shared.is_empty() {
            found.push(format!(
                "Threads of data at CPUs {shared} share them with interrupts of {}: give them others (--data-cpus), or \
                 move the interrupts (/proc/irq/N/smp_affinity_list)",
                card.name
            ));
        }
    }
    let mut near = CpuList::default();
    cards.iter().for_each(|card| near.extend(card.near.all()));
    let away = pinned.outside(&near);
    if !near.is_empty() && !away.is_empty() {
        found.push(format!(
            "Threads of data at CPUs {away} are at another memory node than the network cards, which have {near}: \
             every byte crosses between them"
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Writes files below a folder, each with its text.
    fn tree(root: &Path, files: &[(&str, &str)]) {
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn cards_are_read_with_their_queues_interrupts_and_memory() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        tree(
            root,
            &[
                ("sys/class/net/lo/operstate", "unknown\n"),
                ("sys/class/net/eth9/operstate", "down\n"),
                ("sys/class/net/eth0/operstate", "up\n"),
                ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0"),
                ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0"),
                ("sys/class/net/eth0/queues/tx-0/xps_cpus", "0"),
                ("sys/class/net/eth1/operstate", "unknown\n"),
                ("sys/class/net/eth1/queues/rx-0/rps_cpus", "0"),
                ("sys/devices/pci/0/numa_node", "1\n"),
                ("sys/devices/pci/0/irq", "11\n"),
                ("sys/devices/pci/0/msi_irqs/40", "msix\n"),
                ("sys/devices/pci/0/msi_irqs/41", "msix\n"),
                ("sys/devices/pci/1/numa_node", "-1\n"),
                ("sys/devices/pci/1/irq", "12\n"),
                ("sys/devices/pci/1/virtio1/features", "0\n"),
                ("sys/devices/system/node/node1/cpulist", "8-15\n"),
                ("proc/irq/40/effective_affinity_list", "8\n"),
                ("proc/irq/40/smp_affinity_list", "0-15\n"),
                ("proc/irq/41/effective_affinity_list", "\n"),
                ("proc/irq/41/smp_affinity_list", "9-10\n"),
                ("proc/irq/12/smp_affinity_list", "0-1\n"),
            ],
        );
        for (card, device) in [
            ("eth0", "pci/0"),
            ("eth1", "pci/1/virtio1"),
            ("eth9", "pci/1"),
        ] {
            let link = root.join("sys/class/net").join(card).join("device");
            symlink(root.join("sys/devices").join(device), link).unwrap();
        }
        let expected = [
            Card {
                name: "eth0".to_owned(),
                queues: 2,
                interrupted: list("8-10"),
                memory_node: Some(1),
                near: list("8-15"),
            },
            Card {
                name: "eth1".to_owned(),
                queues: 1,
                interrupted: list("0-1"),
                ..Card::default()
            },
        ];
        assert_eq!(Card::below(root), expected);
        assert!(Card::below(&root.join("nowhere")).is_empty());
    }

    #[test]
    fn threads_at_interrupts_or_away_from_the_memory_are_named() {
        let card = |near: &str| Card {
            name: "eth0".to_owned(),
            interrupted: list("8-9"),
            near: near.parse().unwrap_or_default(),
            ..Card::default()
        };
        let of = |near: &str, pinned: &str| complaints(&[card(near)], &list(pinned)).join("; ");
        assert_eq!(of("8-15", "10-12"), "");
        assert_eq!(of("", "0-7"), "");
        assert!(of("8-15", "7,10").starts_with("Threads of data at CPUs 7 are at another"));
        let shared = of("", "9-10");
        assert!(
            shared.starts_with("Threads of data at CPUs 9 share them with interrupts of eth0"),
            "{shared}"
        );
        // Threads that may run anywhere are the kernel's.
        assert!(complaints(&[card("8-15")], &CpuList::default()).is_empty());
    }

    #[test]
    fn cards_of_this_machine_are_read() {
        for card in Card::all() {
            assert!(card.queues > 0, "{card:?}");
        }
    }
}
