//! Disk in virtual time, with the faults that disks have.
//!
//! [`SimDisk`] is the disk, which outlives the process. [`SimStorage`] is one process that uses the disk. Both run the
//! very code that writes and recovers real directories; only the files are simulated, byte for byte.

mod disk;

pub use disk::{DiskFaults, DiskTotals, SimDisk};

use super::log_files::{LogFiles, Op};
use super::on_disk::{DiskStorage, Writer};
use super::{RETRY, StorageError, StorageNotice, Ticket};
use sheaf_protocol::Timestamp;
use std::collections::VecDeque;

/// Size of a segment here: a simulated run is short, and should come to removing some.
const SEGMENT_BYTES: u64 = 16 << 10;

/// Process that uses a simulated disk.
pub type SimStorage = DiskStorage<SimDisk, SimWriter>;

/// Writer in virtual time. Dropping it kills its process: the present batch is done in part.
#[derive(Debug)]
pub struct SimWriter {
    files: LogFiles<SimDisk>,
    ops: VecDeque<Op>,
    /// The present batch, with its end and the last ticket in it.
    at_work: Option<(Timestamp, VecDeque<Op>, Ticket)>,
    asked: Ticket,
    done: Ticket,
    is_failing: bool,
    notices: VecDeque<StorageNotice>,
}

impl SimStorage {
    /// Starts a process that uses `disk`.
    ///
    /// # Errors
    ///
    /// [`StorageError::Corrupt`] if something that was synced is gone, [`StorageError::Io`] if the disk fails.
    pub fn open(disk: &SimDisk) -> Result<Self, StorageError> {
        disk.start_process();
        let (mut files, found) = LogFiles::open(disk.clone())?;
        files.set_segment_bytes(SEGMENT_BYTES);
        let writer = SimWriter {
            files,
            ops: VecDeque::new(),
            at_work: None,
            asked: Ticket(0),
            done: Ticket(0),
            is_failing: false,
            notices: VecDeque::new(),
        };
        Ok(Self::new(disk.clone(), &found, writer))
    }
}

impl SimWriter {
    fn start(&mut self, now: Timestamp) {
        if self.at_work.is_none() && (self.done < self.asked || !self.ops.is_empty()) {
            let mut takes = self.files.disk().latency();
            if self.is_failing {
                takes += RETRY;
            }
            let batch = std::mem::take(&mut self.ops);
            self.at_work = Some((now + takes, batch, self.asked));
        }
    }

    fn finish(&mut self, now: Timestamp) {
        let Some((due, _, _)) = &self.at_work else {
            return;
        };
        if *due > now {
            return;
        }
        let Some((_, mut batch, ticket)) = self.at_work.take() else {
            return;
        };
        match self.files.write(&mut batch) {
            Ok(()) => {
                self.done = ticket;
                if std::mem::take(&mut self.is_failing) {
                    self.notices.push_back(StorageNotice::Healed);
                }
                self.notices.push_back(StorageNotice::Synced(ticket));
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_failing, true) {
                    self.notices
                        .push_back(StorageNotice::Trouble(error.to_string()));
                }
                batch.append(&mut self.ops);
                self.ops = batch;
            }
        }
        self.start(now);
    }
}

impl Writer for SimWriter {
    fn push(&mut self, op: Op) {
        self.ops.push_back(op);
    }

    fn sync(&mut self, now: Timestamp, ticket: Ticket) {
        self.asked = ticket;
        self.start(now);
    }

    fn poll(&mut self, now: Timestamp) -> Option<StorageNotice> {
        self.finish(now);
        self.notices.pop_front()
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.at_work.as_ref().map(|(due, ..)| *due)
    }
}

impl Drop for SimWriter {
    fn drop(&mut self) {
        if let Some((_, mut batch, _)) = self.at_work.take() {
            self.files.disk().die_soon();
            // The end of the process; there is no owner to notify.
            drop(self.files.write(&mut batch));
        }
        self.files.disk().end_process();
    }
}
