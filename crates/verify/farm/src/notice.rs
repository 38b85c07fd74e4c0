//! Notices of a supervisor of processes: their lines, their ends, the signals of the user.

use sheaf_node::output::Line;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::sync::mpsc::SyncSender;

/// Notice of a supervisor of processes.
#[derive(Debug)]
pub enum Notice {
    /// A process wrote a line.
    Line {
        /// Index of the process.
        process: usize,
        /// Content of the line.
        line: Box<Line>,
    },
    /// A process has closed its standard output: it has ended, or is about to.
    Closed {
        /// Index of the process.
        process: usize,
    },
    /// The user asked to end.
    Quit,
    /// Answer of the leading ICN to the order to stop, or why none came.
    Stopping(Result<String, String>),
}

/// Sends [`Notice::Quit`] for each signal to end. A terminal that goes away is a reason to end, too.
///
/// # Errors
///
/// If signals cannot be handled, or the thread that waits for them cannot be started.
pub fn quit_on_signals(notices: SyncSender<Notice>) -> io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for _ in signals.forever() {
                if notices.send(Notice::Quit).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}
