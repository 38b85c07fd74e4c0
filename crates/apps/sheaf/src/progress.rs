//! Progress of a command: lines on the standard error, none with `--quiet`.

use std::fmt;
use std::io::IsTerminal as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether progress is unwanted.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Turns progress off for the rest of the process.
pub(crate) fn silence() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Returns whether progress is shown.
pub(crate) fn is_shown() -> bool {
    !IS_QUIET.load(Ordering::Relaxed)
}

/// Prints a line of progress.
pub(crate) fn line(text: impl fmt::Display) {
    part(format_args!("{text}\n"));
}

/// Prints a part of a line of progress, such as a bar that is drawn again.
pub(crate) fn part(text: impl fmt::Display) {
    if is_shown() {
        // Unlike `eprint!` this does not panic if the standard error is closed.
        let _ = write!(std::io::stderr(), "{text}");
        let _ = std::io::stderr().flush();
    }
}

/// Time between two lines of a bar: on a terminal, where the line is drawn again, and elsewhere.
const EVERY_SCREEN: Duration = Duration::from_millis(500);
const EVERY_LINE: Duration = Duration::from_secs(10);

/// Line that says how far a long work is.
pub(crate) struct Bar {
    what: &'static str,
    began: Instant,
    told_at: Option<Instant>,
    is_terminal: bool,
    is_drawn: bool,
}

impl Bar {
    /// Creates a bar of things that are `what`.
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            began: Instant::now(),
            told_at: None,
            is_terminal: std::io::stderr().is_terminal(),
            is_drawn: false,
        }
    }

    /// Shows that `done` of `all` files are done and `bytes` bytes were moved, if it is time.
    pub(crate) fn tell(&mut self, done: u64, all: u64, bytes: u64) {
        let every = match self.is_terminal {
            true => EVERY_SCREEN,
            false => EVERY_LINE,
        };
        // The first line comes after a while: short work needs none.
        let since = self.told_at.unwrap_or(self.began);
        if since.elapsed() < every {
            return;
        }
        self.told_at = Some(Instant::now());
        let rate = bytes as f64 / 1e6 / self.began.elapsed().as_secs_f64();
        let text = format!("{done} of {all} files {}, {rate:.0} MB/s", self.what);
        if self.is_terminal {
            part(format_args!("\r{text}   "));
            self.is_drawn = true;
        } else {
            line(text);
        }
    }

    /// Ends the line.
    pub(crate) fn end(&self) {
        if self.is_drawn {
            line("");
        }
    }
}
