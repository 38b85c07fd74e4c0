//! The event logs: what each process itself saw, one JSON object a line, so that the books can be checked
//! without asking the ones that keep them.
//!
//! A node writes the lines of one turn of its loop in one `write` before it sends the messages that follow from
//! them: what a peer knows is in the log, also of a process that was killed.

use crate::config::Rotation;
use rustix::time::ClockId;
pub use sheaf_verdict_log::event::{Event, FileEvent, MemberEvent, PartEvent, StreamEvent};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

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
    File(Box<Series>),
    Memory {
        shared: Arc<Mutex<Vec<Event>>>,
        added: Vec<Event>,
    },
}

/// Files of one event log: the one that is written, and those before it, whose names end with their number.
#[derive(Debug)]
struct Series {
    path: PathBuf,
    file: File,
    /// Number of the file, from 1.
    part: u64,
    /// Bytes in the file.
    bytes: u64,
    begun: Instant,
    rotation: Rotation,
    /// Lines that are not written yet.
    lines: Vec<u8>,
}

/// Lines that a log which cannot be written keeps for later, in bytes. Beyond it, they are lost and counted.
const KEPT_BYTES_MAX: usize = 16 << 20;

impl EventLog {
    /// A log that keeps nothing.
    #[must_use]
    pub fn none() -> Self {
        Self(Target::Nothing)
    }

    /// Appends to the file at `path`; it is made if it is not there. Behind a limit of `rotation` it is renamed, and
    /// the log goes on in a new file of the same path.
    ///
    /// # Errors
    ///
    /// The error of opening the file.
    pub fn append_to(path: &Path, rotation: Rotation) -> io::Result<Self> {
        Ok(Self(Target::File(Box::new(Series::open(path, rotation)?))))
    }

    /// Changes the limits of a file.
    pub fn set_rotation(&mut self, rotation: Rotation) {
        if let Target::File(series) = &mut self.0 {
            series.rotation = rotation;
        }
    }

    /// Opens the path of the log again: the log goes on in another file if that was renamed, or removed.
    ///
    /// # Errors
    ///
    /// The error of opening or writing. The log goes on in the file that it has.
    pub fn reopen(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Target::File(series) => series.reopen(),
            Target::Nothing | Target::Memory { .. } => Ok(()),
        }
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
            Target::File(series) if series.lines.len() > KEPT_BYTES_MAX => {}
            Target::File(series) => series.add(event),
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
            Target::File(series) => {
                series.write()?;
                series.rotate_if_due();
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

impl Series {
    fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        let mut series = Self {
            path: path.to_owned(),
            file,
            part: last_part(path) + 1,
            bytes,
            begun: Instant::now(),
            rotation,
            lines: Vec::with_capacity(64 << 10),
        };
        series.add_continued();
        Ok(series)
    }

    /// Adds a line: the object of the event, with the time at which it was added as its last field.
    fn add(&mut self, event: &Event) {
        let at_ns = monotonic_ns();
        serde_json::to_writer(&mut self.lines, event).expect("a vector takes every line");
        let end = self.lines.pop();
        debug_assert_eq!(end, Some(b'}'), "an event is an object");
        writeln!(self.lines, ",\"at_ns\":{at_ns}}}").expect("a vector takes every line");
    }

    /// Begins a new file of the series.
    fn add_continued(&mut self) {
        if self.bytes == 0 && self.part > 1 {
            let part = self.part;
            self.add(&Event::Continued { part });
        }
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.lines.is_empty() {
            let written = self.file.write(&self.lines)?;
            self.lines.drain(..written);
            self.bytes += written as u64;
        }
        Ok(())
    }

    fn rotate_if_due(&mut self) {
        let Rotation { bytes_max, age_max } = self.rotation;
        let is_large = bytes_max.is_some_and(|limit| self.bytes >= limit);
        let is_old = age_max.is_some_and(|limit| self.bytes > 0 && self.begun.elapsed() >= limit);
        if !is_large && !is_old {
            return;
        }
        if let Err(error) = self.rotate() {
            tracing::error!(%error, "The event log cannot go on in a new file; this one grows");
            // Another try comes behind the same limit.
            (self.bytes, self.begun) = (0, Instant::now());
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let former = self.path.with_file_name(format!("{name}.{:06}", self.part));
        let part = self.part;
        self.add(&Event::Rotated { part });
        self.write()?;
        std::fs::rename(&self.path, former)?;
        let file = self.open_path()?;
        self.go_on_in(file)
    }

    fn reopen(&mut self) -> io::Result<()> {
        let file = self.open_path()?;
        let (old, new) = (self.file.metadata()?, file.metadata()?);
        if (old.dev(), old.ino()) == (new.dev(), new.ino()) {
            return Ok(());
        }
        let part = self.part;
        self.add(&Event::Rotated { part });
        self.write()?;
        self.go_on_in(file)
    }

    fn open_path(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.create(true).append(true).open(&self.path)
    }

    fn go_on_in(&mut self, file: File) -> io::Result<()> {
        self.bytes = file.metadata()?.len();
        (self.file, self.begun) = (file, Instant::now());
        self.part += 1;
        self.add_continued();
        self.write()
    }
}

/// Returns the highest number of the files before the one at `path`; 0 if there are none.
fn last_part(path: &Path) -> u64 {
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let Ok(entries) = std::fs::read_dir(folder.unwrap_or(Path::new("."))) else {
        return 0;
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let numbers = entries.filter_map(|entry| {
        let found = entry.ok()?.file_name().into_string().ok()?;
        found.strip_prefix(&*name)?.strip_prefix('.')?.parse().ok()
    });
    numbers.max().unwrap_or(0)
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
        let mut log = EventLog::append_to(&path, Rotation::default()).unwrap();
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

    fn made(tf: u64) -> Event {
        Event::Made {
            tf,
            bytes: 4,
            digest: 5,
        }
    }

    fn read(path: &Path) -> Vec<Event> {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn a_log_goes_on_in_a_new_file_behind_its_limit_and_in_the_next_life() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flp-0.events");
        let rotation = Rotation {
            bytes_max: Some(1),
            age_max: None,
        };
        let mut log = EventLog::append_to(&path, rotation).unwrap();
        for tf in 1..=2 {
            log.add(&made(tf));
            log.flush().unwrap();
        }
        drop(log);
        let mut log = EventLog::append_to(&path, Rotation::default()).unwrap();
        log.add(&made(3));
        log.flush().unwrap();
        let (continued, rotated) = (
            |part| Event::Continued { part },
            |part| Event::Rotated { part },
        );
        let part = |number: u64| read(&folder.path().join(format!("flp-0.events.{number:06}")));
        assert_eq!(part(1), [made(1), rotated(1)]);
        assert_eq!(part(2), [continued(2), made(2), rotated(2)]);
        assert_eq!(read(&path), [continued(3), made(3)]);
    }

    #[test]
    fn a_file_that_is_old_is_closed_and_an_empty_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flp-0.events");
        let rotation = Rotation {
            bytes_max: None,
            age_max: Some(std::time::Duration::ZERO),
        };
        let mut log = EventLog::append_to(&path, rotation).unwrap();
        log.flush().unwrap();
        assert_eq!(last_part(&path), 0);
        log.add(&made(1));
        log.flush().unwrap();
        assert_eq!(last_part(&path), 1);
    }

    #[test]
    fn a_log_that_was_renamed_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flp-0.events");
        let mut log = EventLog::append_to(&path, Rotation::default()).unwrap();
        log.add(&made(1));
        log.reopen().unwrap();
        log.flush().unwrap();
        assert_eq!(read(&path), [made(1)], "the file is still the same");
        let former = folder.path().join("flp-0.events.1");
        std::fs::rename(&path, &former).unwrap();
        log.add(&made(2));
        log.reopen().unwrap();
        log.add(&made(3));
        log.flush().unwrap();
        let rotated = Event::Rotated { part: 1 };
        assert_eq!(read(&former), [made(1), made(2), rotated]);
        assert_eq!(read(&path), [Event::Continued { part: 2 }, made(3)]);
    }
}
