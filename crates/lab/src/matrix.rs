//! The fault matrix: every cell, in the order of its number. What each promises stands in `docs/faults.md`.

use crate::cell::{Cell, Fault, Servers, Since, Way, Who};
use crate::shape::{Clocks, Consumer, Ground, Shape};
use crate::tool::Need;
use sheaf_node::config::LedgerBackend;

const LAN: Shape = Shape::SMALL.on(Ground::Namespaces);
const RELAYED: Shape = Shape::SMALL.on(Ground::Relays);
/// One ICN that keeps its verdicts in files.
const FILED: Shape = Shape::SMALL.led_by(1, LedgerBackend::File);
/// Three ICNs that agree on every verdict.
const THREE: Shape = Shape::SMALL.led_by(3, LedgerBackend::Majority);
/// Two ICNs whose verdicts three ZooKeeper servers keep.
const KEPT: Shape = Shape::SMALL.led_by(2, LedgerBackend::Zookeeper);
const ZK: &[Need] = &[Need::ZooKeeper];
const NET: &[Need] = &[Need::Namespaces];
const SOURCE_GONE: &[&str] = &["source-died", "source-late"];

/// All cells.
pub const CELLS: &[Cell] = &[
    Cell {
        detect_ms: Some(20),
        recover_ms: 150,
        is_quick: true,
        ..Cell::new(
            "epn-kill",
            "F1",
            "an EPN is killed, and a new one comes",
            Fault::Kill,
            Who::Epn,
        )
    },
    Cell {
        // Three fsyncs a TF: a rate that a disk which is busy with other things still takes.
        shape: Shape {
            rate_hz: 50.0,
            ..Shape::SMALL.to(Consumer::Stored)
        },
        detect_ms: Some(20),
        recover_ms: 650,
        ..Cell::new(
            "epn-kill-stored",
            "F1",
            "an EPN is killed that reports what is on its disk",
            Fault::Kill,
            Who::Epn,
        )
    },
    Cell {
        detect_ms: Some(100 + 20),
        ..Cell::new(
            "epn-vanish",
            "F1",
            "an EPN falls silent and is gone",
            Fault::Vanish(200),
            Who::Epn,
        )
    },
    Cell {
        detect_ms: Some(20),
        recover_ms: 150,
        ..Cell::new(
            "epn-two",
            "F1",
            "two of three EPNs are killed at once",
            Fault::Kill,
            Who::TwoEpns,
        )
    },
    Cell {
        detect_ms: Some(20),
        recover_ms: 500,
        since: Since::Heal,
        trials: 5,
        ..Cell::new(
            "epn-all",
            "F1",
            "all EPNs are killed at once",
            Fault::Kill,
            Who::AllEpns,
        )
    },
    Cell {
        detect_ms: Some(20),
        recover_ms: 300,
        is_quick: true,
        losses: SOURCE_GONE,
        ..Cell::new(
            "flp-kill",
            "F2",
            "an FLP is killed, and a new one comes",
            Fault::Kill,
            Who::Flp,
        )
    },
    Cell {
        detect_ms: Some(120),
        is_quick: true,
        hold_ms: (50, 1500),
        ..Cell::new(
            "epn-pause",
            "F4",
            "an EPN is stopped and goes on",
            Fault::Pause,
            Who::Epn,
        )
    },
    Cell {
        detect_ms: Some(120),
        hold_ms: (10_000, 10_000),
        trials: 2,
        ..Cell::new(
            "epn-pause-10s",
            "F4",
            "an EPN is stopped for 10 s",
            Fault::Pause,
            Who::Epn,
        )
    },
    Cell {
        detect_ms: Some(120),
        hold_ms: (50, 1500),
        recover_ms: 2500,
        losses: SOURCE_GONE,
        ..Cell::new(
            "flp-pause",
            "F5",
            "an FLP is stopped and goes on",
            Fault::Pause,
            Who::Flp,
        )
    },
    Cell {
        hold_ms: (50, 2000),
        since: Since::Heal,
        recover_ms: 300,
        ..Cell::new(
            "icn-alone-pause",
            "F6",
            "the only ICN is stopped and goes on",
            Fault::Pause,
            Who::Icn,
        )
    },
    Cell {
        shape: FILED,
        since: Since::Heal,
        recover_ms: 1000,
        hold_ms: (50, 400),
        ..Cell::new(
            "icn-restart",
            "F3",
            "the only ICN is killed, and goes on with the run",
            Fault::Kill,
            Who::Icn,
        )
    },
    Cell {
        shape: THREE,
        detect_ms: Some(300),
        recover_ms: 300,
        ..Cell::new(
            "icn-kill",
            "F3",
            "the ICN that leads is killed, two stand by",
            Fault::Kill,
            Who::Icn,
        )
    },
    Cell {
        shape: THREE,
        recover_ms: 100,
        ..Cell::new(
            "icn-standby",
            "F3",
            "an ICN that stands by is killed",
            Fault::Kill,
            Who::Standby,
        )
    },
    Cell {
        shape: THREE,
        since: Since::Heal,
        recover_ms: 2000,
        hold_ms: (100, 500),
        ..Cell::new(
            "icn-all",
            "F3",
            "all three ICNs are killed at once",
            Fault::Kill,
            Who::AllIcns,
        )
    },
    Cell {
        is_quick: true,
        shape: THREE,
        detect_ms: Some(300),
        recover_ms: 300,
        hold_ms: (700, 2000),
        ..Cell::new(
            "icn-pause",
            "F6",
            "the ICN that leads is stopped and goes on",
            Fault::Pause,
            Who::Icn,
        )
    },
    Cell {
        shape: THREE.on(Ground::Namespaces),
        needs: NET,
        detect_ms: Some(300),
        recover_ms: 300,
        hold_ms: (700, 2000),
        ..Cell::new(
            "icn-cut",
            "F7",
            "the ICN that leads is cut off from all",
            Fault::Cut(Way::Both),
            Who::Icn,
        )
    },
    Cell {
        shape: FILED,
        needs: &[Need::Strace],
        recover_ms: 650,
        ..Cell::new(
            "icn-slow-fsync",
            "F25",
            "every fsync of the ICN takes 100 ms",
            Fault::SystemCalls("fsync,fdatasync:delay_enter=100000"),
            Who::Icn,
        )
    },
    Cell {
        detect_ms: Some(120),
        is_quick: true,
        shape: LAN,
        needs: NET,
        ..Cell::new(
            "cut",
            "F7",
            "an EPN is cut off from all",
            Fault::Cut(Way::Both),
            Who::Epn,
        )
    },
    Cell {
        recover_ms: 650,
        shape: LAN,
        needs: NET,
        ..Cell::new(
            "cut-pair",
            "F7",
            "one FLP and one EPN do not reach each other",
            Fault::CutPair,
            Who::FirstPair,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        recover_ms: 650,
        ..Cell::new(
            "cut-in",
            "F8",
            "nothing reaches an EPN, what it says is heard",
            Fault::Cut(Way::In),
            Who::Epn,
        )
    },
    Cell {
        detect_ms: Some(120),
        shape: LAN,
        needs: NET,
        ..Cell::new(
            "cut-out",
            "F8",
            "an EPN hears, and nothing it says arrives",
            Fault::Cut(Way::Out),
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        recover_ms: 2500,
        losses: SOURCE_GONE,
        ..Cell::new(
            "cut-flp",
            "F7",
            "an FLP is cut off from all",
            Fault::Cut(Way::Both),
            Who::Flp,
        )
    },
    Cell {
        is_quick: true,
        shape: LAN,
        needs: NET,
        hold_ms: (500, 1000),
        recover_ms: 2000,
        ..Cell::new(
            "loss-1",
            "F9",
            "1 % of all packets are lost, everywhere",
            Fault::Loss(10),
            Who::AllNodes,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        hold_ms: (500, 1000),
        recover_ms: 3000,
        losses: SOURCE_GONE,
        trials: 5,
        ..Cell::new(
            "loss-10",
            "F9",
            "10 % of all packets are lost, everywhere",
            Fault::Loss(100),
            Who::AllNodes,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        hold_ms: (500, 1000),
        ..Cell::new(
            "duplicate",
            "F10",
            "every packet is sent twice, everywhere",
            Fault::Duplicate,
            Who::AllNodes,
        )
    },
    Cell {
        shape: RELAYED,
        hold_ms: (500, 1000),
        recover_ms: 500,
        ..Cell::new(
            "delay",
            "F11",
            "everything to and from a pair comes up to 20 ms late",
            Fault::Delay(20),
            Who::FirstPair,
        )
    },
    Cell {
        is_quick: true,
        shape: RELAYED,
        recover_ms: 650,
        ..Cell::new(
            "flip-data",
            "F12",
            "a bit of the STFs to an EPN flips",
            Fault::FlipData,
            Who::FirstEpn,
        )
    },
    Cell {
        shape: RELAYED,
        recover_ms: 650,
        losses: SOURCE_GONE,
        ..Cell::new(
            "flip-control",
            "F30",
            "a bit of what nodes say to the ICN flips",
            Fault::FlipControl,
            Who::FirstPair,
        )
    },
    Cell {
        shape: LAN,
        needs: &[Need::Namespaces, Need::TrafficControl],
        hold_ms: (1000, 2000),
        recover_ms: 650,
        ..Cell::new(
            "slow-link",
            "F13",
            "an EPN gets 1 Mbit/s out",
            Fault::SlowLink(1000),
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        hold_ms: (50, 300),
        ..Cell::new(
            "reset",
            "F14",
            "every connection of an EPN is reset",
            Fault::Reset,
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        detect_ms: Some(120),
        ..Cell::new(
            "link-flap",
            "F15",
            "the cable of an EPN is out for a while",
            Fault::LinkDown,
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        detect_ms: Some(120),
        ..Cell::new(
            "address-away",
            "F15",
            "an EPN has another address for a while",
            Fault::AddressAway,
            Who::Epn,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        trials: 5,
        recover_ms: 1500,
        ..Cell::new(
            "zk-member",
            "F16",
            "a ZooKeeper server that follows is killed",
            Fault::KillServers(Servers::Follower),
            Who::Nobody,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        trials: 5,
        recover_ms: 1500,
        ..Cell::new(
            "zk-leader",
            "F17",
            "the ZooKeeper server that leads is killed",
            Fault::KillServers(Servers::Leader),
            Who::Nobody,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        trials: 5,
        recover_ms: 3500,
        hold_ms: (3000, 3000),
        ..Cell::new(
            "zk-pause",
            "F18",
            "the ZooKeeper server that leads is stopped for 3 s",
            Fault::PauseServers(Servers::Leader),
            Who::Nobody,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        trials: 5,
        recover_ms: 2000,
        since: Since::Heal,
        hold_ms: (500, 2000),
        ..Cell::new(
            "zk-away",
            "F18",
            "all ZooKeeper servers are stopped for a while",
            Fault::PauseServers(Servers::All),
            Who::Nobody,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        trials: 5,
        detect_ms: Some(600),
        recover_ms: 600,
        hold_ms: (1500, 2000),
        ..Cell::new(
            "zk-icn-kill",
            "F3",
            "the ICN that leads is killed; ZooKeeper finds the next",
            Fault::Kill,
            Who::Icn,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        trials: 5,
        detect_ms: Some(600),
        recover_ms: 600,
        hold_ms: (1500, 3000),
        ..Cell::new(
            "zk-icn-pause",
            "F19",
            "the ICN that leads is stopped; its session ends",
            Fault::Pause,
            Who::Icn,
        )
    },
    Cell {
        shape: Shape {
            clocks: Clocks::Settable,
            ..Shape::SMALL
        },
        needs: &[Need::Faketime],
        ..Cell::new(
            "wall-ahead",
            "F21",
            "the wall clocks of a pair jump 2 days ahead and back",
            Fault::WallClock(2),
            Who::FirstPair,
        )
    },
    Cell {
        shape: Shape {
            clocks: Clocks::Settable,
            ..Shape::SMALL
        },
        needs: &[Need::Faketime],
        ..Cell::new(
            "wall-back",
            "F21",
            "the wall clocks of a pair jump 2 days back and forth",
            Fault::WallClock(-2),
            Who::FirstPair,
        )
    },
    Cell {
        shape: Shape {
            clocks: Clocks::Ahead(100_000),
            ..Shape::SMALL
        },
        needs: &[Need::TimeNamespace],
        detect_ms: Some(20),
        recover_ms: 150,
        ..Cell::new(
            "clocks-apart",
            "F22",
            "monotonic clocks 28 h apart, and an EPN is killed",
            Fault::Kill,
            Who::FirstEpn,
        )
    },
    Cell {
        is_quick: true,
        shape: Shape::SMALL.to(Consumer::SmallDisk(48 << 20)),
        needs: &[Need::Root],
        hold_ms: (500, 1500),
        may_log_errors: true,
        ..Cell::new(
            "disk-full",
            "F23",
            "the disk of an EPN is full; later there is room",
            Fault::DiskFull,
            Who::FirstEpn,
        )
    },
    Cell {
        shape: Shape::SMALL.to(Consumer::SyncedFiles),
        needs: &[Need::Strace],
        recover_ms: 650,
        may_log_errors: true,
        ..Cell::new(
            "eio",
            "F25",
            "every second fsync of an EPN fails",
            Fault::SystemCalls("fsync,fdatasync:error=EIO:when=1+2"),
            Who::Epn,
        )
    },
    Cell {
        shape: Shape::SMALL.to(Consumer::SyncedFiles),
        needs: &[Need::Strace],
        recover_ms: 650,
        ..Cell::new(
            "slow-fsync",
            "F25",
            "every fsync of an EPN takes 200 ms",
            Fault::SystemCalls("fsync,fdatasync:delay_enter=200000"),
            Who::Epn,
        )
    },
    Cell {
        needs: &[Need::Strace],
        recover_ms: 400,
        ..Cell::new(
            "kill-at-write",
            "F26",
            "an EPN is killed at one of its writes",
            Fault::KillAtCall("write,writev,sendmsg"),
            Who::Epn,
        )
    },
    Cell {
        needs: &[Need::Strace],
        recover_ms: 400,
        ..Cell::new(
            "kill-at-read",
            "F26",
            "an EPN is killed at one of its reads",
            Fault::KillAtCall("read,readv,recvmsg,recvfrom"),
            Who::Epn,
        )
    },
    Cell {
        needs: &[Need::Root],
        ..Cell::new(
            "few-files",
            "F27",
            "an EPN may open no more files, and 50 strangers come",
            Fault::FewFiles,
            Who::Epn,
        )
    },
    Cell {
        needs: &[Need::MemoryGroup],
        trials: 5,
        ..Cell::new(
            "little-memory",
            "F28",
            "an EPN has less memory than it needs",
            Fault::LittleMemory,
            Who::Epn,
        )
    },
    Cell {
        shape: RELAYED,
        recover_ms: 650,
        ..Cell::new(
            "truncate-data",
            "F29",
            "a frame to an EPN is cut and its connection closes",
            Fault::TruncateData,
            Who::FirstEpn,
        )
    },
    Cell {
        shape: RELAYED,
        recover_ms: 650,
        ..Cell::new(
            "oversize-data",
            "F31",
            "a frame to an EPN has a huge length",
            Fault::OversizeData,
            Who::FirstEpn,
        )
    },
    Cell {
        shape: RELAYED,
        recover_ms: 650,
        ..Cell::new(
            "freeze-data",
            "F8",
            "STFs to an EPN get stuck, its pulses do not",
            Fault::FreezeData,
            Who::FirstEpn,
        )
    },
    Cell {
        hold_ms: (500, 1000),
        recover_ms: 100,
        ..Cell::new(
            "lies",
            "F31",
            "strangers say garbage and huge lengths",
            Fault::Lies,
            Who::Epn,
        )
    },
    Cell {
        hold_ms: (3000, 3000),
        trials: 3,
        recover_ms: 250,
        ..Cell::new(
            "slow-loris",
            "F32",
            "2,500 half-open connections at every port",
            Fault::HalfOpen(2500),
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        hold_ms: (10, 50),
        recover_ms: 1000,
        losses: SOURCE_GONE,
        ..Cell::new(
            "storm",
            "F33",
            "all connections are reset, and all come back",
            Fault::Reset,
            Who::AllNodes,
        )
    },
    Cell {
        hold_ms: (1, 10),
        trials: 3,
        ..Cell::new(
            "rolling",
            "F34",
            "every EPN in turn is asked to end, and a new one comes",
            Fault::Restart,
            Who::AllEpns,
        )
    },
    Cell {
        needs: &[Need::Root],
        hold_ms: (1000, 2000),
        recover_ms: 650,
        trials: 5,
        ..Cell::new(
            "starve",
            "F35",
            "an EPN gets the processor last, 4 others are busy",
            Fault::Starve,
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        since: Since::Heal,
        recover_ms: 500,
        hold_ms: (10, 100),
        ..Cell::new(
            "swizzle",
            "F36",
            "EPNs are cut off one by one, healed in another order",
            Fault::Swizzle,
            Who::AllEpns,
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_eight_cells_are_quick() {
        let names: BTreeSet<&str> = CELLS.iter().map(|cell| cell.name).collect();
        assert_eq!(names.len(), CELLS.len());
        let quick = CELLS.iter().filter(|cell| cell.is_quick);
        assert_eq!(quick.count(), 8);
    }

    #[test]
    fn a_cell_that_needs_a_namespace_says_so_and_has_one() {
        for cell in CELLS {
            let has = cell.shape.ground == Ground::Namespaces;
            assert_eq!(cell.needs.contains(&Need::Namespaces), has, "{}", cell.name);
        }
    }

    #[test]
    fn the_documentation_has_every_cell_with_its_bound() {
        let docs = include_str!("../../../docs/faults.md");
        for cell in CELLS {
            let found = docs.lines().find(|line| {
                line.strip_prefix("| `")
                    .and_then(|rest| rest.strip_prefix(cell.name))
                    .is_some_and(|rest| rest.starts_with('`'))
            });
            let line =
                found.unwrap_or_else(|| panic!("docs/faults.md has no row for {}", cell.name));
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
