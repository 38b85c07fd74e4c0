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

/// Time between two drawings of a bar, and until the first one: short work needs none.
const EVERY: Duration = Duration::from_millis(500);
/// Cells of a bar.
const CELLS: u64 = 16;

/// Whether the last line of the terminal is a bar.
static IS_DRAWN: AtomicBool = AtomicBool::new(false);

/// Removes the bar from the terminal, if there is one, so that a line can be printed in its place.
pub(crate) fn hide() {
    if IS_DRAWN.swap(false, Ordering::Relaxed) {
        part("\r\x1b[K");
    }
}

/// Files and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Line that says how far a long work is, drawn again and again; only on a terminal. The default one is never drawn.
#[derive(Debug)]
pub(crate) struct Bar {
    what: &'static str,
    began: Instant,
    drawn_at: Option<Instant>,
    is_wanted: bool,
    all: Amount,
    done: Amount,
}

impl Default for Bar {
    fn default() -> Self {
        Self::new("", false)
    }
}

impl Bar {
    /// Creates a bar of files that are `what`. Without a terminal for both outputs it is never drawn, as a program or
    /// a pager reads them.
    pub(crate) fn new(what: &'static str, is_wanted: bool) -> Self {
        let is_terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        Self {
            what,
            began: Instant::now(),
            drawn_at: None,
            is_wanted: is_wanted && is_terminal,
            all: Amount::default(),
            done: Amount::default(),
        }
    }

    /// Adds work that is to be done.
    pub(crate) fn expect(&mut self, more: Amount) {
        self.all.files += more.files;
        self.all.bytes += more.bytes;
    }

    /// Returns whether it would be drawn now.
    pub(crate) fn is_due(&self) -> bool {
        self.is_wanted && self.drawn_at.unwrap_or(self.began).elapsed() >= EVERY
    }

    /// Shows that of the present file `bytes` bytes are done, if it is time.
    pub(crate) fn within(&mut self, bytes: u64) {
        if self.is_due() {
            let done = Amount {
                bytes: self.done.bytes + bytes,
                ..self.done
            };
            self.draw(done, self.all, done.bytes);
        }
    }

    /// Counts a file of `bytes` bytes that is done.
    pub(crate) fn file(&mut self, bytes: u64) {
        self.done.files += 1;
        self.done.bytes += bytes;
        self.within(0);
    }

    /// Shows that `done` of `all` is done, and that `moved` bytes were moved for it, if it is time.
    pub(crate) fn tell(&mut self, done: Amount, all: Amount, moved: u64) {
        if self.is_due() {
            self.draw(done, all, moved);
        }
    }

    fn draw(&mut self, done: Amount, all: Amount, moved: u64) {
        self.drawn_at = Some(Instant::now());
        let text = line_of(self.what, done, all, moved, self.began.elapsed());
        part(format_args!("\r{text}\x1b[K"));
        IS_DRAWN.store(is_shown(), Ordering::Relaxed);
    }

    /// Removes the bar.
    pub(crate) fn end(&self) {
        hide();
    }
}

/// Returns a bar with its figures, in fewer than 80 columns.
fn line_of(what: &str, done: Amount, all: Amount, moved: u64, passed: Duration) -> String {
    let of_all = |scale: u64| match all.bytes {
        0 => 0,
        bytes => u128::from(done.bytes.min(bytes)) * u128::from(scale) / u128::from(bytes),
    };
    let (cells, percent) = (usize::try_from(of_all(CELLS)).unwrap_or(0), of_all(100));
    let bar = format!("{:-<1$}", "#".repeat(cells), CELLS as usize);
    let rate = moved as f64 / passed.as_secs_f64().max(0.001);
    let left = all.bytes.saturating_sub(done.bytes);
    let left = match left {
        0 => String::new(),
        _ if rate < 1.0 => ", ? left".to_owned(),
        _ => format!(", {} left", time_of(left as f64 / rate)),
    };
    let Amount { files, .. } = done;
    format!(
        "[{bar}] {percent:>3} %  {files} of {} files {what}, {:.0} MB/s{left}",
        all.files,
        rate / 1e6
    )
}

/// Returns a time in seconds as people say it.
fn time_of(seconds: f64) -> String {
    let seconds = Duration::try_from_secs_f64(seconds).map_or(u64::MAX, |it| it.as_secs());
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..360_000 => format!("{} h", seconds / 3600),
        _ => "days".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_says_how_much_is_done_and_how_long_the_rest_takes() {
        let amount = |files, bytes| Amount { files, bytes };
        let all = amount(4, 4_000_000_000);
        for (done, moved, seconds, expected) in [
            (
                amount(0, 0),
                0,
                1,
                "[----------------]   0 %  0 of 4 files read, 0 MB/s, ? left",
            ),
            (
                amount(1, 1_000_000_000),
                1_000_000_000,
                2,
                "[####------------]  25 %  1 of 4 files read, 500 MB/s, 6 s left",
            ),
            (
                amount(2, 3_000_000_000),
                1_000_000,
                1,
                "[############----]  75 %  2 of 4 files read, 1 MB/s, 16 min left",
            ),
            (
                all,
                4_000_000_000,
                4,
                "[################] 100 %  4 of 4 files read, 1000 MB/s",
            ),
        ] {
            let text = line_of("read", done, all, moved, Duration::from_secs(seconds));
            assert_eq!(text, expected);
        }
        let (some, most) = (amount(99_999, 1), amount(99_999, u64::MAX));
        let text = line_of(
            "checked",
            some,
            most,
            10_000_000_000,
            Duration::from_secs(1),
        );
        assert!(text.len() < 80, "{text}");
    }
}
