//! Thread that writes a ledger directory of this machine.
//!
//! The thread takes everything that waits as one batch: one write, one `fdatasync`. Requests that come meanwhile are
//! the next batch. A batch that fails is taken back and tried again until it works.

use crate::OsDisk;
use sheaf_protocol::Timestamp;
use sheaf_verdict_log::storage::{
    DiskStorage, LogFiles, Op, RETRY, StorageError, StorageNotice, Ticket, Writer,
};
use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Wakes the event loop that polls.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// Log in a directory of this machine.
pub type FileStorage = DiskStorage<OsDisk, ThreadWriter>;

/// Writer with a thread of its own. Dropped, it waits for pending requests, unless the disk fails.
pub struct ThreadWriter {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
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

/// Opens the log in the directory `folder`, made if there is none; `waker` is called from the writer's thread whenever
/// [`poll`](sheaf_verdict_log::storage::Storage::poll) has something new.
///
/// # Errors
///
/// [`StorageError::Locked`] if another process has the directory, [`StorageError::Corrupt`] if something that was
/// synced is gone, [`StorageError::Io`] if the system fails.
pub fn open(folder: &Path, waker: Waker) -> Result<FileStorage, StorageError> {
    let io_error = |action| {
        move |source| StorageError::Io {
            action,
            file: folder.to_owned(),
            source,
        }
    };
    let disk = OsDisk::lock(folder).map_err(|source| match source.kind() {
        ErrorKind::WouldBlock => StorageError::Locked {
            folder: folder.to_owned(),
        },
        _ => io_error("open")(source),
    })?;
    let (files, found) = LogFiles::open(disk.clone())?;
    let desk = Arc::new(Desk::default());
    let thread = std::thread::Builder::new()
        .name("ledger".to_owned())
        .spawn({
            let desk = Arc::clone(&desk);
            move || write_on(files, &desk, &waker)
        })
        .map_err(io_error("start the writer of"))?;
    let writer = ThreadWriter {
        desk,
        thread: Some(thread),
    };
    Ok(DiskStorage::new(disk, &found, writer))
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

impl Writer for ThreadWriter {
    fn push(&mut self, op: Op) {
        self.desk.lock().ops.push_back(op);
    }

    fn sync(&mut self, _now: Timestamp, ticket: Ticket) {
        self.desk.lock().asked = ticket;
        self.desk.work.notify_one();
    }

    fn poll(&mut self, _now: Timestamp) -> Option<StorageNotice> {
        self.desk.lock().notices.pop_front()
    }
}

impl Drop for ThreadWriter {
    fn drop(&mut self) {
        self.desk.lock().is_closing = true;
        self.desk.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // It ends without a result; a panic there has been reported by its own thread.
            drop(thread.join());
        }
    }
}

impl fmt::Debug for ThreadWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadWriter").finish_non_exhaustive()
    }
}
