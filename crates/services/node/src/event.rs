//! The event logs: what each process itself saw, one JSON object a line, so that the books can be checked
//! without asking the ones that keep them.
//!
//! A node writes the lines of one turn of its loop in one `write` before it sends the messages that follow from
//! them: what a peer knows is in the log, also of a process that was killed.

use rustix::time::ClockId;
use serde::Serialize;
pub use sheaf_verdict_log::event::{Event, FileEvent, MemberEvent, PartEvent};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// An event as it stands in a file: with the time at which it was added.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    event: &'a Event,
    at_ns: u64,
}

/// CLOCK_MONOTONIC: the same for all processes of a machine, and no jump of the wall clock moves it.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Appends events to a file, to memory that a test shares, or to nothing.
#[derive(Debug)]
pub struct EventLog(Target);

#[derive(Debug)]
enum Target {
    Nothing,
    File {
        file: File,
        lines: Vec<u8>,
    },
    Memory {
        shared: Arc<Mutex<Vec<Event>>>,
        added: Vec<Event>,
    },
}

/// Lines that a log which cannot be written keeps for later, in bytes. Beyond it, they are lost and counted.
const KEPT_BYTES_MAX: usize = 16 << 20;

impl EventLog {
    /// A log that keeps nothing.
    #[must_use]
    pub fn none() -> Self {
        Self(Target::Nothing)
    }

    /// Appends to the file at `path`; it is made if it is not there.
    ///
    /// # Errors
    ///
    /// What opening the file gives.
    pub fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(Target::File {
            file,
            lines: Vec::with_capacity(64 << 10),
        }))
    }

    /// Appends to `shared`.
    #[must_use]
    pub fn to_memory(shared: Arc<Mutex<Vec<Event>>>) -> Self {
        Self(Target::Memory {
            shared,
            added: Vec::new(),
        })
    }

    /// Adds a line to the next [`flush`](Self::flush).
    pub fn add(&mut self, event: &Event) {
        match &mut self.0 {
            Target::Nothing => {}
            Target::File { lines, .. } if lines.len() > KEPT_BYTES_MAX => {}
            Target::File { lines, .. } => {
                let at_ns = monotonic_ns();
                let line = Line { event, at_ns };
                serde_json::to_writer(&mut *lines, &line).expect("a vector takes every line");
                lines.push(b'\n');
            }
            Target::Memory { added, .. } => added.push(event.clone()),
        }
    }

    /// Writes the last line of a life that ends in order. Without it, the life counts as killed.
    pub fn end(&mut self) {
        self.add(&Event::End);
        if let Err(error) = self.flush() {
            tracing::error!(%error, "The event log cannot be written; this life will count as killed");
        }
    }

    /// Writes the lines added since the last time. Call it before the messages that follow from them go out.
    ///
    /// # Errors
    ///
    /// What writing gives, such as a full disk. The lines are kept for the next time, up to 16 MiB.
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Target::Nothing => {}
            Target::File { file, lines } => {
                while !lines.is_empty() {
                    let written = file.write(lines)?;
                    lines.drain(..written);
                }
            }
            Target::Memory { shared, added } => {
                shared
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .append(added);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_flushed_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flp-0.events");
        let made = Event::Made {
            tf: 3,
            bytes: 4,
            digest: 5,
        };
        let mut log = EventLog::append_to(&path).unwrap();
        log.add(&made);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        log.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let (fields, at_ns) = text.split_once(",\"at_ns\":").unwrap();
        let expected = "{\"event\":\"made\",\"tf\":3,\"bytes\":4,\"digest\":5";
        assert_eq!(fields, expected);
        let at_ns: u64 = at_ns.trim_end_matches("}\n").parse().unwrap();
        assert!(at_ns > 0 && at_ns <= monotonic_ns(), "{text}");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), made);
    }
}
