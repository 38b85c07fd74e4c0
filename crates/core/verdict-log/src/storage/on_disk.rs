//! Log in the files of one directory, real or simulated.
//!
//! The owner sees every request at once in the view; a [`Writer`] carries the requests out behind the owner.

use super::log_files::Op;
use super::reader::LogReader;
use super::view::View;
use super::{Disk, Entries, Findings, HardState, Storage, StorageError, StorageNotice, Ticket};
use crate::entry::Entry;
use sheaf_protocol::{Term, Timestamp};

/// Executor of the operations on the files of a log: in order, in batches, behind the owner of the log.
pub trait Writer {
    /// Appends an operation to those that wait.
    fn push(&mut self, op: Op);

    /// Requests that everything pushed so far is made durable, which is reported as [`StorageNotice::Synced`] with
    /// this ticket or a later one.
    fn sync(&mut self, now: Timestamp, ticket: Ticket);

    /// Returns the next event.
    fn poll(&mut self, now: Timestamp) -> Option<StorageNotice>;

    /// Returns when to poll again without an event.
    fn next_due(&self) -> Option<Timestamp> {
        None
    }
}

/// Log on a disk `D`, written by `W`.
#[derive(Debug)]
pub struct DiskStorage<D, W> {
    view: View,
    reader: LogReader<D>,
    disk: D,
    findings: Vec<String>,
    writer: W,
}

impl<D: Disk, W: Writer> DiskStorage<D, W> {
    /// Returns the log that `found` describes, which [`LogFiles::open`](super::LogFiles::open) has found on `disk`.
    pub fn new(disk: D, found: &Findings, writer: W) -> Self {
        Self {
            view: View::new(found),
            reader: LogReader::new(disk.clone()),
            findings: found.torn.iter().map(ToString::to_string).collect(),
            disk,
            writer,
        }
    }
}

impl<D: Disk, W: Writer> Storage for DiskStorage<D, W> {
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
            self.writer.push(Op::Append(entry));
        }
    }

    fn truncate(&mut self, from: u64) {
        let (reader, durable) = (&mut self.reader, self.view.durable());
        self.view
            .truncate(from, |index| reader.read(index, durable).ok());
        self.reader.forget();
        self.writer.push(Op::Truncate(from));
    }

    fn release(&mut self, committed: u64) {
        if let Some(below) = self.view.release(committed) {
            self.writer.push(Op::Release(below));
        }
    }

    fn reset(&mut self, index: u64, term: Term) {
        self.view.reset(index, term);
        self.reader.forget();
        self.writer.push(Op::Reset(index, term));
    }

    fn save(&mut self, state: HardState) {
        self.view.state = Some(state);
        self.writer.push(Op::Save(state));
    }

    fn sync(&mut self, now: Timestamp) -> Ticket {
        let ticket = self.view.give_ticket();
        self.writer.sync(now, ticket);
        ticket
    }

    fn poll(&mut self, now: Timestamp) -> Option<StorageNotice> {
        let notice = self.writer.poll(now)?;
        if let StorageNotice::Synced(ticket) = notice {
            self.view.complete(ticket);
        }
        Some(notice)
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.writer.next_due()
    }

    fn read(&mut self, from: u64, bytes_max: usize) -> Result<Vec<Entry>, StorageError> {
        let (reader, durable) = (&mut self.reader, self.view.durable());
        self.view
            .page(from, bytes_max, |index| reader.read(index, durable))
    }

    fn replay(&self, to: u64) -> Result<Entries, StorageError> {
        let mut reader = LogReader::new(self.disk.clone());
        let from = self.view.replay_from(to)?;
        Ok(Box::new(
            (from..=to).map(move |index| reader.read(index, to)),
        ))
    }

    fn findings(&self) -> Vec<String> {
        self.findings.clone()
    }
}
