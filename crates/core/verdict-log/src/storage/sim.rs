//! Disk in virtual time, with the faults that disks have.
//!
//! [`SimDisk`] is the disk: it outlives the process. [`SimStorage`] is one process that uses it. Both run the very code
//! that writes and recovers real directories; only the files are simulated, byte for byte.

mod disk;

pub use disk::{DiskFaults, DiskTotals, SimDisk};

use super::file::{RETRY, describe};
use super::log_files::{LogFiles, Op};
use super::reader::LogReader;
use super::view::View;
use super::{Entries, HardState, Storage, StorageError, StorageNotice, Ticket};
use crate::entry::Entry;
use sheaf_protocol::{Term, Timestamp};
use std::collections::VecDeque;

/// Size of a segment here: a simulated run is short, and should come to removing some.
const SEGMENT_BYTES: u64 = 16 << 10;

/// A process that uses a simulated disk. Dropping it kills it: the present batch is done in part.
#[derive(Debug)]
pub struct SimStorage {
    view: View,
    files: LogFiles<SimDisk>,
    reader: LogReader<SimDisk>,
    findings: Vec<String>,
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
    /// As [`FileStorage::open`](super::FileStorage::open).
    pub fn open(disk: &SimDisk) -> Result<Self, StorageError> {
        disk.start_process();
        let (mut files, found) = LogFiles::open(disk.clone())?;
        files.set_segment_bytes(SEGMENT_BYTES);
        Ok(Self {
            view: View::new(&found),
            reader: LogReader::new(disk.clone()),
            findings: describe(&found),
            files,
            ops: VecDeque::new(),
            at_work: None,
            asked: Ticket(0),
            done: Ticket(0),
            is_failing: false,
            notices: VecDeque::new(),
        })
    }

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

impl Storage for SimStorage {
    fn hard_state(&self) -> Option<HardState> {
        self.view.state
    }

    fn last_index(&self) -> u64 {
        self.view.last()
    }

    fn first_index(&self) -> u64 {
        self.view.first()
    }

    fn term_at(&self, index: u64) -> Option<Term> {
        self.view.term_at(index)
    }

    fn term_first(&self, index: u64) -> u64 {
        self.view.term_first(index)
    }

    fn durable_index(&self) -> u64 {
        self.view.durable()
    }

    fn records(&self) -> u64 {
        self.view.records
    }

    fn append(&mut self, entries: Vec<Entry>) {
        for entry in entries {
            self.view.append(entry.clone());
            self.ops.push_back(Op::Append(entry));
        }
    }

    fn truncate(&mut self, from: u64) {
        let (reader, durable) = (&mut self.reader, self.view.durable());
        self.view
            .truncate(from, |index| reader.read(index, durable).ok());
        self.reader.forget();
        self.ops.push_back(Op::Truncate(from));
    }

    fn release(&mut self, committed: u64) {
        if let Some(below) = self.view.release(committed) {
            self.ops.push_back(Op::Release(below));
        }
    }

    fn reset(&mut self, index: u64, term: Term) {
        self.view.reset(index, term);
        self.reader.forget();
        self.ops.push_back(Op::Reset(index, term));
    }

    fn save(&mut self, state: HardState) {
        self.view.state = Some(state);
        self.ops.push_back(Op::Save(state));
    }

    fn sync(&mut self, now: Timestamp) -> Ticket {
        self.asked = self.view.give_ticket();
        self.start(now);
        self.asked
    }

    fn poll(&mut self, now: Timestamp) -> Option<StorageNotice> {
        self.finish(now);
        let notice = self.notices.pop_front()?;
        if let StorageNotice::Synced(ticket) = notice {
            self.view.complete(ticket);
        }
        Some(notice)
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.at_work.as_ref().map(|(due, ..)| *due)
    }

    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Entry>, StorageError> {
        let (reader, durable) = (&mut self.reader, self.view.durable());
        self.view
            .page(from, bytes_max, |index| reader.read(index, durable))
    }

    fn replay(&self, to: u64) -> Result<Entries, StorageError> {
        let mut reader = LogReader::new(self.files.disk().clone());
        let from = self.view.replay_from(to)?;
        Ok(Box::new(
            (from..=to).map(move |index| reader.read(index, to)),
        ))
    }

    fn findings(&self) -> Vec<String> {
        self.findings.clone()
    }
}

impl Drop for SimStorage {
    fn drop(&mut self) {
        if let Some((_, mut batch, _)) = self.at_work.take() {
            self.files.disk().die_soon();
            // The end of the process; there is no owner to notify.
            drop(self.files.write(&mut batch));
        }
        self.files.disk().end_process();
    }
}
