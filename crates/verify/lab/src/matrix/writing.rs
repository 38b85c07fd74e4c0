//! Faults of a disk below files of streams, and deaths of the EPNs and writer nodes that write them. After each run the
//! files are read.

use crate::cell::{Cell, Fault, Who};
use crate::shape::{Consumer, Shape};
use sheaf_testbed::tool::Need;

const WRITTEN: Shape = Shape::SMALL.to(Consumer::Streams);
const HANDED_OVER: Shape = Shape::SMALL.to(Consumer::Writers);
const STRACE: &[Need] = &[Need::Strace];

/// A cell of system calls that go wrong; what fails is logged and tried again.
const fn calls(name: &'static str, what: &'static str, calls: &'static str) -> Cell {
    Cell {
        shape: WRITTEN,
        needs: STRACE,
        recover_ms: 650,
        may_log_errors: true,
        ..Cell::new(name, "F25", what, Fault::SystemCalls(calls), Who::Epn)
    }
}

pub(super) const CELLS: &[Cell] = &[
    Cell {
        is_quick: true,
        shape: WRITTEN,
        detect_ms: Some(20),
        recover_ms: 400,
        ..Cell::new(
            "write-kill",
            "F26",
            "an EPN is killed that writes files of streams",
            Fault::Kill,
            Who::Epn,
        )
    },
    Cell {
        shape: WRITTEN,
        detect_ms: Some(120),
        recover_ms: 400,
        ..Cell::new(
            "write-pause",
            "F4",
            "an EPN is stopped that writes files of streams",
            Fault::Pause,
            Who::Epn,
        )
    },
    Cell {
        shape: WRITTEN,
        needs: STRACE,
        recover_ms: 400,
        ..Cell::new(
            "write-kill-at-write",
            "F26",
            "an EPN is killed at one of its writes to a file",
            Fault::KillAtCall("pwrite64"),
            Who::Epn,
        )
    },
    Cell {
        shape: WRITTEN,
        needs: STRACE,
        recover_ms: 400,
        ..Cell::new(
            "write-kill-at-close",
            "F26",
            "an EPN is killed as it syncs or renames a file",
            Fault::KillAtCall("fsync,fdatasync,renameat2"),
            Who::Epn,
        )
    },
    Cell {
        shape: Shape::SMALL.to(Consumer::StreamsOnSmallDisk(48 << 20)),
        needs: &[Need::Root],
        hold_ms: (500, 1500),
        recover_ms: 650,
        may_log_errors: true,
        ..Cell::new(
            "write-disk-full",
            "F23",
            "the disk below files of streams is full, then has room",
            Fault::DiskFull,
            Who::FirstEpn,
        )
    },
    calls(
        "write-eio",
        "every third write to a file fails",
        "pwrite64:error=EIO:when=1+3",
    ),
    calls(
        "write-sync-eio",
        "every second sync of a file or of the catalogue fails",
        "fsync,fdatasync:error=EIO:when=1+2",
    ),
    calls(
        "write-read-only",
        "the disk takes nothing: it is read-only",
        "pwrite64,fdatasync,renameat2:error=EROFS",
    ),
    calls(
        "write-gone",
        "the disk is gone",
        "pwrite64,fsync,fdatasync,renameat2:error=ENODEV",
    ),
    calls(
        "write-slow",
        "every write to a file takes 20 ms",
        "pwrite64:delay_enter=20000",
    ),
    calls(
        "write-slow-sync",
        "every sync takes 200 ms",
        "fsync,fdatasync:delay_enter=200000",
    ),
    Cell {
        shape: WRITTEN,
        recover_ms: 650,
        hold_ms: (500, 1500),
        may_log_errors: true,
        ..Cell::new(
            "write-locked",
            "F25",
            "another program keeps the catalogue locked",
            Fault::LockCatalogue,
            Who::Epn,
        )
    },
    Cell {
        shape: Shape::SMALL.to(Consumer::StreamsOnTwoDisks),
        recover_ms: 650,
        hold_ms: (500, 1500),
        rate_percent_min: Some(90),
        may_log_errors: true,
        must_log: Some("gets no new files"),
        ..Cell::new(
            "write-one-of-two-fails",
            "F25",
            "one disk of two takes no files: another program keeps its catalogue locked",
            Fault::LockCatalogue,
            Who::Epn,
        )
    },
    Cell {
        shape: Shape::SMALL.to(Consumer::StreamsOnSmallAndLarge(48 << 20)),
        needs: &[Need::Root],
        hold_ms: (500, 1500),
        recover_ms: 650,
        rate_percent_min: Some(90),
        may_log_errors: true,
        must_log: Some("gets no new files"),
        ..Cell::new(
            "write-one-of-two-full",
            "F23",
            "one disk of two is full, then has room",
            Fault::DiskFull,
            Who::FirstEpn,
        )
    },
    Cell {
        shape: HANDED_OVER,
        recover_ms: 400,
        ..Cell::new(
            "writer-kill",
            "F26",
            "a writer node is killed",
            Fault::Kill,
            Who::Writer,
        )
    },
    Cell {
        shape: HANDED_OVER,
        recover_ms: 400,
        must_log: Some("A writer is silent"),
        ..Cell::new(
            "writer-pause",
            "F4",
            "a writer node is stopped",
            Fault::Pause,
            Who::Writer,
        )
    },
    Cell {
        shape: HANDED_OVER,
        recover_ms: 400,
        ..Cell::new(
            "writer-restart",
            "F34",
            "a writer node is asked to end, and a new one comes",
            Fault::Restart,
            Who::Writer,
        )
    },
];
