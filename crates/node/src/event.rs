//! The event logs: what each process itself saw, one JSON object a line, so that the books can be checked
//! without asking the ones that keep them.
//!
//! A node writes the lines of one turn of its loop in one `write` before it sends the messages that follow from
//! them: what a peer knows is in the log, also of a process that was killed.

use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// One line of an event log. Schema: `docs/events.md`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// First line of each life of a process.
    Begin {
        /// `icn:0`, `flp:2`, …
        node: String,
        /// Which life.
        incarnation: u64,
    },
    /// FLP: it makes STFs for this run from now on. ICN: it opened the run.
    Run {
        /// 16 hexadecimal digits.
        run: String,
    },
    /// FLP: an STF was made, its digest taken.
    Made {
        /// The TF.
        tf: u64,
        /// Payload bytes.
        bytes: u64,
        /// CRC-32C at the source.
        digest: u32,
    },
    /// FLP: there will be no STF of this TF.
    Skipped {
        /// The TF.
        tf: u64,
        /// Name of a drop reason.
        reason: String,
    },
    /// FLP: an STF was handed to the stream to an EPN.
    Sent {
        /// The TF.
        tf: u64,
        /// The assignment obeyed.
        attempt: u32,
        /// The EPN.
        epn: u16,
        /// Which life of it.
        incarnation: u64,
    },
    /// EPN: a TF was handed to the consumer.
    Delivered {
        /// The TF.
        tf: u64,
        /// The assignment built.
        attempt: u32,
        /// The STFs in it.
        parts: Vec<PartEvent>,
        /// FLPs without an STF in it.
        missing: Vec<u16>,
    },
    /// EPN: the consumer found something wrong with a TF that it was handed.
    Fault {
        /// The TF.
        tf: u64,
        /// What.
        detail: String,
    },
    /// ICN: a TF exists from now on (paced mode: it was called for).
    Called {
        /// The TF.
        tf: u64,
    },
    /// ICN: the verdict on a TF.
    Verdict {
        /// The TF.
        tf: u64,
        /// `complete`, `incomplete` or `dropped`.
        verdict: String,
        /// The EPN that built it.
        epn: Option<u16>,
        /// Which life of that EPN.
        incarnation: Option<u64>,
        /// FLPs without an STF in it.
        missing: Vec<u16>,
        /// Why it was dropped.
        reason: Option<String>,
    },
    /// ICN: the EPN died before it acknowledged; amends the verdict.
    Abandoned {
        /// The TF.
        tf: u64,
    },
}

/// One STF of a delivered TF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartEvent {
    /// Who made it.
    pub flp: u16,
    /// Which life of it.
    pub incarnation: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// CRC-32C computed from the bytes received.
    pub digest: u32,
}

/// Appends events to a file, or to nothing.
#[derive(Debug)]
pub struct EventLog {
    file: Option<File>,
    lines: Vec<u8>,
}

impl EventLog {
    /// A log that keeps nothing.
    #[must_use]
    pub fn none() -> Self {
        Self { file: None, lines: Vec::new() }
    }

    /// Appends to the file at `path`; it is made if it is not there.
    ///
    /// # Errors
    ///
    /// What opening the file gives.
    pub fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file: Some(file), lines: Vec::with_capacity(64 << 10) })
    }

    /// Whether anything is kept.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.file.is_some()
    }

    /// Adds a line to the next [`flush`](Self::flush).
    pub fn add(&mut self, event: &Event) {
        if self.file.is_some() {
            serde_json::to_writer(&mut self.lines, event).expect("a vector takes every line");
            self.lines.push(b'\n');
        }
    }

    /// Writes the lines added since the last time. Call it before the messages that follow from them go out.
    ///
    /// # Errors
    ///
    /// What writing gives, such as a full disk. The lines are kept for the next time.
    pub fn flush(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file
            && !self.lines.is_empty()
        {
            file.write_all(&self.lines)?;
            self.lines.clear();
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
        let made = Event::Made { tf: 3, bytes: 4, digest: 5 };
        let mut log = EventLog::append_to(&path).unwrap();
        log.add(&made);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
        log.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"event\":\"made\",\"tf\":3,\"bytes\":4,\"digest\":5}\n");
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), made);
    }
}
