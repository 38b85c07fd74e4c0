//! The last lines of the log of this process, for the ICN that leads: `sheaf logs` shows them.
//!
//! A process keeps lines only after [`keep`], which `sheaf run` calls. So simulations and programs with an FLP of their
//! own send none.

use crate::minor;
use sheaf_protocol::control::{LogLevel, LogLine};
use sheaf_protocol::{Control, Timestamp, version};
use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Lines that a process keeps. Earlier ones are in its own log only.
const LINES_MAX: usize = 512;
/// Lines in one message, and lines that are sent again to an ICN that takes over: thousands of nodes send theirs at the
/// same moment.
const LINES_SENT_MAX: usize = 64;
/// Least time between two messages.
const SENT_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
struct Tail {
    lines: VecDeque<LogLine>,
    sequence: u64,
}

static TAIL: OnceLock<Mutex<Tail>> = OnceLock::new();

/// Keeps the last lines of the log of this process from now on.
pub fn keep() {
    TAIL.get_or_init(Mutex::default);
}

/// Returns whether the process keeps lines.
pub fn is_kept() -> bool {
    TAIL.get().is_some()
}

/// Adds a line, if the process keeps them. Control characters become spaces, and what does not fit is cut.
pub fn add(level: LogLevel, text: &str) {
    let Some(tail) = TAIL.get() else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let at_unix_ns = now.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    });
    let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    tail.add(level, at_unix_ns, text);
}

/// Lines of this process on their way to one ICN, or to the one that leads.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Minor version of the protocol that the ICN speaks.
    minor: u8,
    /// Number of the last line that was sent, and when that was.
    sent: u64,
    sent_at: Timestamp,
}

impl Sending {
    /// Begins a new stream, to an ICN that speaks `minor`. The last lines go again: a message may be lost, and another
    /// ICN has none.
    pub(crate) fn begin(&mut self, minor: u8) {
        self.minor = minor;
        let tail = TAIL.get();
        let tail = tail.map(|tail| tail.lock().unwrap_or_else(PoisonError::into_inner));
        self.sent = tail.map_or(0, |tail| tail.rewound(self.sent));
    }

    /// Returns the next message, if it is time for one, there are new lines, and the ICN knows it.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<Control> {
        let is_known = minor::common(self.minor) >= version::LOG;
        if !is_known || now.since(self.sent_at) < SENT_EVERY {
            return None;
        }
        self.sent_at = now;
        let lines = after(self.sent);
        self.sent = lines.last()?.sequence;
        Some(Control::Log(lines))
    }
}

/// Returns the first lines behind the one with the number `sequence`, as many as one message takes.
pub(crate) fn after(sequence: u64) -> Vec<LogLine> {
    let Some(tail) = TAIL.get() else {
        return Vec::new();
    };
    let tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
    tail.after(sequence)
}

impl Tail {
    fn add(&mut self, level: LogLevel, at_unix_ns: u64, text: &str) {
        self.sequence += 1;
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(LogLine {
            sequence: self.sequence,
            at_unix_ns,
            level,
            text: fitting(text),
        });
    }

    fn rewound(&self, sent: u64) -> u64 {
        sent.min(self.sequence.saturating_sub(LINES_SENT_MAX as u64))
    }

    fn after(&self, sequence: u64) -> Vec<LogLine> {
        let known = self.lines.partition_point(|line| line.sequence <= sequence);
        let new = self.lines.iter().skip(known);
        new.take(LINES_SENT_MAX).cloned().collect()
    }
}

/// Returns `text` as the protocol takes it.
fn fitting(text: &str) -> String {
    let mut fitting = String::with_capacity(text.len().min(Control::TEXT_BYTES_MAX));
    for char in text.chars() {
        let char = if char.is_control() { ' ' } else { char };
        if fitting.len() + char.len_utf8() > Control::TEXT_BYTES_MAX {
            break;
        }
        fitting.push(char);
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_the_last_ones_stay() {
        let mut tail = Tail::default();
        for number in 1..=LINES_MAX as u64 + 10 {
            tail.add(LogLevel::Info, 7, &format!("line {number}"));
        }
        let first = tail.after(0);
        assert_eq!((first.len(), first[0].sequence), (LINES_SENT_MAX, 11));
        assert_eq!(first[0].text, "line 11");
        let last = tail.after(LINES_MAX as u64 + 8);
        let sequences: Vec<u64> = last.iter().map(|line| line.sequence).collect();
        assert_eq!(sequences, [521, 522]);
        assert_eq!(tail.after(522), []);
        // An ICN that takes over gets the last ones, and those that none has been sent.
        assert_eq!(
            (tail.rewound(522), tail.rewound(12), tail.rewound(0)),
            (458, 12, 0)
        );
    }

    #[test]
    fn text_is_made_to_fit_the_protocol() {
        assert_eq!(
            fitting("two\nlines\tand a bell \u{7}"),
            "two lines and a bell  "
        );
        let long = fitting(&"é".repeat(Control::TEXT_BYTES_MAX));
        assert_eq!(long.len(), Control::TEXT_BYTES_MAX);
        let odd = fitting(&format!("x{}", "é".repeat(Control::TEXT_BYTES_MAX)));
        assert_eq!(odd.len(), Control::TEXT_BYTES_MAX - 1);
    }
}
