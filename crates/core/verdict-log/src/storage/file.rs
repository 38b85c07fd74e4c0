//! Ledger directory of this machine, written by a thread of its own.
//!
//! The thread takes everything that waits as one batch: one write, one `fdatasync`. Requests that come meanwhile are
//! the next batch. A batch that fails is taken back and tried again until it works.

use super::log_files::{LogFiles, Op};
use super::reader::LogReader;
use super::view::View;
use super::{Entries, Findings, HardState, OsDisk, Storage, StorageError, StorageNotice, Ticket};
use crate::entry::Entry;
use sheaf_protocol::{Term, Timestamp};
use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause before a disk that failed is tried again.
pub(super) const RETRY: Duration = Duration::from_millis(50);

/// Wakes the event loop that polls.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// A directory of this machine.
pub struct FileStorage {
    view: View,
    desk: Arc<Desk>,
    reader: LogReader<OsDisk>,
    disk: OsDisk,
    findings: Vec<String>,
    writer: Option<JoinHandle<()>>,
}

/// State shared by the owner and the writer.
#[derive(Default)]
struct Desk {
    state: Mutex<DeskState>,
    work: Condvar,
}

#[derive(Default)]
struct DeskState {
    ops: VecDeque<Op>,
    asked: Ticket,
    done: Ticket,
    notices: VecDeque<StorageNotice>,
    is_closing: bool,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileStorage {
    /// Opens the directory `folder`, made if there is none; `waker` is rung from the writer's thread whenever
    /// [`poll`](Storage::poll) has something new.
    ///
    /// # Errors
    ///
    /// [`StorageError::Locked`] if another process has it, [`StorageError::Corrupt`] if something that was synced
    /// is gone, [`StorageError::Io`] if the system fails.
    pub fn open(folder: &Path, waker: Waker) -> Result<Self, StorageError> {
        let disk = OsDisk::lock(folder).map_err(|source| match source.kind() {
            ErrorKind::WouldBlock => StorageError::Locked {
                folder: folder.to_owned(),
            },
            _ => StorageError::Io {
                action: "open",
                file: folder.to_owned(),
                source,
            },
        })?;
        let (files, found) = LogFiles::open(disk.clone())?;
        let desk = Arc::new(Desk::default());
        let writer = std::thread::Builder::new()
            .name("ledger".to_owned())
            .spawn({
                let desk = Arc::clone(&desk);
                move || write_on(files, &desk, &waker)
            });
        Ok(Self {
            view: View::new(&found),
            reader: LogReader::new(disk.clone()),
            findings: describe(&found),
            writer: Some(writer.map_err(|source| StorageError::Io {
                action: "start the writer of",
                file: PathBuf::from(folder),
                source,
            })?),
            desk,
            disk,
        })
    }

    fn ask(&self, op: Op) {
        self.desk.lock().ops.push_back(op);
    }
}

/// Describes the findings of the recovery, for people.
pub(crate) fn describe(found: &Findings) -> Vec<String> {
    found.torn.iter().map(ToString::to_string).collect()
}

/// Runs the writer's thread: until it is to close and all is done, or the disk fails then.
fn write_on(mut files: LogFiles<OsDisk>, desk: &Desk, waker: &Waker) {
    let mut batch = VecDeque::new();
    let mut is_failing = false;
    loop {
        let asked = {
            let mut state = desk.lock();
            while state.ops.is_empty() && batch.is_empty() && state.asked == state.done {
                if state.is_closing {
                    return;
                }
                state = desk
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_closing && is_failing {
                return;
            }
            batch.append(&mut state.ops);
            state.asked
        };
        match files.write(&mut batch) {
            Ok(()) => {
                let mut state = desk.lock();
                state.done = asked;
                if std::mem::take(&mut is_failing) {
                    state.notices.push_back(StorageNotice::Healed);
                }
                state.notices.push_back(StorageNotice::Synced(asked));
            }
            Err(error) => {
                let mut state = desk.lock();
                if !std::mem::replace(&mut is_failing, true) {
                    state
                        .notices
                        .push_back(StorageNotice::Trouble(error.to_string()));
                }
                drop(state);
                waker();
                let state = desk.lock();
                // A wait that closing ends; new work does not hurry a disk that has just failed.
                let is_open = |state: &mut DeskState| !state.is_closing;
                drop(desk.work.wait_timeout_while(state, RETRY, is_open));
                continue;
            }
        }
        waker();
    }
}

impl Storage for FileStorage {
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
            self.ask(Op::Append(entry));
        }
    }

    fn truncate(&mut self, from: u64) {
        let (reader, durable) = (&mut self.reader, self.view.durable());
        self.view
            .truncate(from, |index| reader.read(index, durable).ok());
        self.reader.forget();
        self.ask(Op::Truncate(from));
    }

    fn release(&mut self, committed: u64) {
        if let Some(below) = self.view.release(committed) {
            self.ask(Op::Release(below));
        }
    }

    fn reset(&mut self, index: u64, term: Term) {
        self.view.reset(index, term);
        self.reader.forget();
        self.ask(Op::Reset(index, term));
    }

    fn save(&mut self, state: HardState) {
        self.view.state = Some(state);
        self.ask(Op::Save(state));
    }

    fn sync(&mut self, _now: Timestamp) -> Ticket {
        let ticket = self.view.give_ticket();
        self.desk.lock().asked = ticket;
        self.desk.work.notify_one();
        ticket
    }

    fn poll(&mut self, _now: Timestamp) -> Option<StorageNotice> {
        let notice = self.desk.lock().notices.pop_front()?;
        if let StorageNotice::Synced(ticket) = notice {
            self.view.complete(ticket);
        }
        Some(notice)
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

impl Drop for FileStorage {
    /// Waits for pending requests, unless the disk fails.
    fn drop(&mut self) {
        self.desk.lock().is_closing = true;
        self.desk.work.notify_one();
        if let Some(writer) = self.writer.take() {
            // It ends without a result; a panic there has been reported by its own thread.
            drop(writer.join());
        }
    }
}

impl fmt::Debug for FileStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStorage")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}
