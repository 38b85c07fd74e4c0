//! Faults of processes: kill, stop, request to end.

use super::{FILED, NET, SOURCE_DEAD, SOURCE_GONE, THREE};
use crate::cell::{Cell, Fault, Since, Who};
use crate::shape::{Consumer, Ground, Shape};
use sheaf_testbed::rules::Way;
use sheaf_testbed::tool::Need;

pub(super) const CELLS: &[Cell] = &[
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
        losses: SOURCE_DEAD,
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
];
