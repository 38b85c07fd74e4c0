//! Faults around the nodes: ZooKeeper servers, clocks, disks, system calls, limits, hostile peers.

use super::{KEPT, KEPT_APART, LAN, NET, RELAYED, SOURCE_GONE, ZK};
use crate::cell::{Cell, Fault, Servers, Since, Who};
use crate::shape::{Clocks, Consumer, Shape};
use sheaf_testbed::tool::Need;

pub(super) const CELLS: &[Cell] = &[
    Cell {
        shape: KEPT,
        needs: ZK,
        may_log_errors: true,
        trials: 5,
        recover_ms: 1500,
        ..Cell::new(
            "zk-member",
            "F16",
            "a ZooKeeper server that follows is killed",
            Fault::KillServers(Servers::Follower),
            Who::NoNode,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        may_log_errors: true,
        trials: 5,
        recover_ms: 1500,
        ..Cell::new(
            "zk-leader",
            "F17",
            "the ZooKeeper server that leads is killed",
            Fault::KillServers(Servers::Leader),
            Who::NoNode,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        may_log_errors: true,
        trials: 5,
        recover_ms: 3500,
        hold_ms: (3000, 3000),
        ..Cell::new(
            "zk-pause",
            "F18",
            "the ZooKeeper server that leads is stopped for 3 s",
            Fault::PauseServers(Servers::Leader),
            Who::NoNode,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        may_log_errors: true,
        trials: 5,
        recover_ms: 2000,
        since: Since::Heal,
        hold_ms: (500, 2000),
        ..Cell::new(
            "zk-away",
            "F18",
            "all ZooKeeper servers are stopped for a while",
            Fault::PauseServers(Servers::All),
            Who::NoNode,
        )
    },
    Cell {
        shape: KEPT,
        needs: ZK,
        may_log_errors: true,
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
        may_log_errors: true,
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
        shape: KEPT_APART,
        needs: ZK,
        may_log_errors: true,
        trials: 5,
        detect_ms: Some(600),
        recover_ms: 600,
        hold_ms: (1500, 3000),
        ..Cell::new(
            "zk-cut-icn",
            "F20",
            "the ICN that leads is cut off from ZooKeeper only",
            Fault::CutServers,
            Who::Icn,
        )
    },
    Cell {
        shape: KEPT_APART,
        needs: ZK,
        trials: 5,
        recover_ms: 100,
        hold_ms: (1500, 3000),
        ..Cell::new(
            "zk-cut-nodes",
            "F20",
            "FLPs and EPNs are cut off from ZooKeeper only",
            Fault::CutServers,
            Who::AllNodes,
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
        needs: &[Need::Namespaces, Need::SocketStatistics],
        hold_ms: (1, 10),
        recover_ms: 650,
        ..Cell::new(
            "storm",
            "F33",
            "all connections are reset, and all come back",
            Fault::ResetOnce,
            Who::AllNodes,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        hold_ms: (10, 50),
        recover_ms: 1000,
        losses: SOURCE_GONE,
        ..Cell::new(
            "storm-deaf",
            "F33",
            "the ICN sees all streams reset, the others hear nothing",
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
        needs: &[Need::ProcessorGroup],
        // Longer than a run delay is remembered.
        hold_ms: (5000, 6000),
        recover_ms: 2500,
        rate_percent_min: Some(50),
        // Before it has told that it waits.
        suspected_max: Some(1),
        trials: 3,
        is_quick: true,
        ..Cell::new(
            "tenth",
            "F35",
            "every node shares 10 % of a processor with a busy process",
            Fault::Share(10),
            Who::Everyone,
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
