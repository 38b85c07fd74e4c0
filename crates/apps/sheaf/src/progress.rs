//! Progress of a command: lines on the standard error, none with `--quiet`.

#[cfg(feature = "lab")]
use std::fmt;
#[cfg(feature = "lab")]
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether progress is unwanted.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Turns progress off for the rest of the process.
pub(crate) fn silence() {
    IS_QUIET.store(true, Ordering::Relaxed);
}

/// Returns whether progress is shown.
#[cfg(feature = "lab")]
pub(crate) fn is_shown() -> bool {
    !IS_QUIET.load(Ordering::Relaxed)
}

/// Prints a line of progress.
#[cfg(feature = "lab")]
pub(crate) fn line(text: impl fmt::Display) {
    part(format_args!("{text}\n"));
}

/// Prints a part of a line of progress, such as a bar that is drawn again.
#[cfg(feature = "lab")]
pub(crate) fn part(text: impl fmt::Display) {
    if is_shown() {
        // Unlike `eprint!` this does not panic if the standard error is closed.
        let _ = write!(std::io::stderr(), "{text}");
        let _ = std::io::stderr().flush();
    }
}
