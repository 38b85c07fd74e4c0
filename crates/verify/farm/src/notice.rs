//! Notices of a supervisor of processes: their lines, their ends, the signals of the user.

use crate::process::Output;
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

/// Returns the listener of the process with the index `process`, which sends its output as notices.
pub(crate) fn listener(
    process: usize,
    notices: SyncSender<Notice>,
) -> impl FnMut(Output) + Send + 'static {
    move |output| {
        let notice = match output {
            Output::Line(text) => read_line(&text).map(|line| Notice::Line {
                process,
                line: Box::new(line),
            }),
            Output::Closed => Some(Notice::Closed { process }),
        };
        if let Some(notice) = notice {
            // An error means that the supervisor is gone.
            let _ = notices.send(notice);
        }
    }
}

/// Reads a line of the process of a node; `None`, with a warning, if a node writes no such line.
#[must_use]
pub fn read_line(text: &str) -> Option<Line> {
    serde_json::from_str(text)
        .inspect_err(|error| {
            tracing::warn!(line = text, %error, "A node wrote something else than a JSON line");
        })
        .ok()
}

/// Sends [`Notice::Quit`] for each signal to end. A terminal that disconnects is a reason to end, too.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    #[test]
    fn output_becomes_notices_and_what_no_node_writes_is_passed_over() {
        let (sender, notices) = sync_channel(9);
        let mut listener = listener(7, sender);
        listener(Output::Line("hello".to_owned()));
        let line = "{\"listening\":\"127.0.0.1:1\",\"node\":\"icn:0\"}";
        listener(Output::Line(line.to_owned()));
        listener(Output::Closed);
        drop(listener);
        let notices: Vec<Notice> = notices.iter().collect();
        assert!(matches!(
            notices.as_slice(),
            [
                Notice::Line { process: 7, .. },
                Notice::Closed { process: 7 }
            ]
        ));
    }
}
