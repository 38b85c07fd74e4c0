//! Loads over processes: each holds as many clients as it may have descriptors.

use crate::engine::{Mark, RunError, run};
use crate::outcome::Outcome;
use crate::plan::Load;
use rustix::process::{Resource, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use thiserror::Error;

/// Descriptors of a process that are no clients.
const DESCRIPTORS_KEPT: u64 = 64;
/// Printed by a process when its window opens.
const OPENED: &str = "opened";
/// Printed by a process when its window closes.
const CLOSED: &str = "closed";

/// Reasons why the processes of a load have no outcome.
#[derive(Debug, Error)]
pub enum CrewError {
    /// The words of a load are none.
    #[error("found words that are no load: {0}")]
    Words(serde_json::Error),
    /// A process cannot be started, or its output not be read.
    #[error("cannot {what}: {source}")]
    Io {
        /// Action that failed.
        what: &'static str,
        /// Answer of the operating system.
        source: io::Error,
    },
    /// The load cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A process ended without its outcome.
    #[error("a process of clients ended with {status}, expected an outcome and not {found:?}")]
    Ended {
        /// How it ended.
        status: String,
        /// Last line that it printed.
        found: String,
    },
}

fn io(what: &'static str) -> impl FnOnce(io::Error) -> CrewError {
    move |source| CrewError::Io { what, source }
}

/// Processes that run parts of one load at once. Those that have not ended are killed when dropped.
#[derive(Debug)]
pub struct Crew {
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Member {
    fn drop(&mut self) {
        // Errors mean that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Crew {
    /// Number of processes for `clients` at once: each has as many as this process may have descriptors.
    #[must_use]
    pub fn parts(clients: u32) -> u32 {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20);
        let each = u32::try_from(most.saturating_sub(DESCRIPTORS_KEPT)).unwrap_or(u32::MAX);
        clients.div_ceil(each.max(1)).max(1)
    }

    /// Starts a process for each part of a load. The command gets the words of its part as its last argument and calls
    /// [`run_words`] with them.
    ///
    /// # Errors
    ///
    /// [`CrewError::Io`]; none of the processes lives then.
    pub fn start(parts: Vec<(Command, Load)>) -> Result<Self, CrewError> {
        let start = |(mut command, load): (Command, Load)| {
            let words = serde_json::to_string(&load).expect("a load has a JSON form");
            command.arg(words).stdin(Stdio::null());
            let child = command.stdout(Stdio::piped()).spawn();
            let mut child = child.map_err(io("start a process of clients"))?;
            let output = child.stdout.take().expect("asked for above");
            Ok(Member {
                child,
                output: BufReader::new(output),
            })
        };
        let members = parts.into_iter().map(start);
        Ok(Self {
            members: members.collect::<Result<_, CrewError>>()?,
        })
    }

    /// Waits for all processes and adds their outcomes. `on_mark` is called when the window of the first one opens and
    /// closes.
    ///
    /// # Errors
    ///
    /// [`CrewError::Ended`] if one has no outcome, and what reading gives.
    pub fn finish(mut self, on_mark: &mut dyn FnMut(Mark)) -> Result<Outcome, CrewError> {
        let mut sum = Outcome::default();
        for (index, member) in self.members.iter_mut().enumerate() {
            let outcome = member.finish(&mut |mark| {
                if index == 0 {
                    on_mark(mark);
                }
            })?;
            sum.merge(&outcome);
        }
        Ok(sum)
    }
}

impl Member {
    fn finish(&mut self, on_mark: &mut dyn FnMut(Mark)) -> Result<Outcome, CrewError> {
        let mut found = String::new();
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line);
            if read.map_err(io("read the output of a process of clients"))? == 0 {
                break;
            }
            match line.trim_end() {
                OPENED => on_mark(Mark::Opened),
                CLOSED => on_mark(Mark::Closed),
                other => found = other.to_owned(),
            }
        }
        let status = self.child.wait().map_err(io("reap a process of clients"))?;
        match serde_json::from_str(&found) {
            Ok(outcome) if status.success() => Ok(outcome),
            _ => Err(CrewError::Ended {
                status: status.to_string(),
                found: found.chars().take(200).collect(),
            }),
        }
    }
}

/// Reads a part of a load from its words, runs it and prints the outcome: what a process of a [`Crew`] does.
///
/// # Errors
///
/// Words that are none, and why the load cannot be run.
pub fn run_words(words: &str) -> Result<(), CrewError> {
    // Its maker may be killed.
    let linked = set_parent_process_death_signal(Some(Signal::KILL));
    linked.map_err(|error| io("end with the maker")(error.into()))?;
    let load: Load = serde_json::from_str(words).map_err(CrewError::Words)?;
    raise_descriptor_limit().map_err(io("raise the limit of descriptors"))?;
    let print = |line: &str| {
        let mut output = io::stdout().lock();
        // A maker that is gone reads nothing.
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    };
    let outcome = run(&load, &mut |mark| {
        print(match mark {
            Mark::Opened => OPENED,
            Mark::Closed => CLOSED,
        });
    })?;
    print(&serde_json::to_string(&outcome).expect("an outcome has a JSON form"));
    Ok(())
}

/// Lets this process, and those that it starts, have as many descriptors as they may.
///
/// # Errors
///
/// Answer of the operating system.
pub fn raise_descriptor_limit() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn outcome(script: &str) -> Result<Outcome, CrewError> {
        Crew::start(vec![(command(script), Load::default())])?.finish(&mut |_| {})
    }

    #[test]
    fn outcomes_of_all_processes_are_added() {
        let part = serde_json::to_string(&Outcome {
            clients: 3,
            started: 5,
            finished: 5,
            ..Outcome::default()
        })
        .unwrap();
        let script = format!("echo opened; echo closed; echo '{part}'");
        let parts = [&script, &script].map(|script| (command(script), Load::default()));
        let mut marks = Vec::new();
        let crew = Crew::start(parts.into()).unwrap();
        let sum = crew.finish(&mut |mark| marks.push(mark)).unwrap();
        assert_eq!((sum.clients, sum.finished), (6, 10));
        assert_eq!(marks, [Mark::Opened, Mark::Closed]);
    }

    #[test]
    fn a_process_without_an_outcome_is_named() {
        for script in ["echo nonsense", "exit 3"] {
            let error = outcome(script).unwrap_err();
            assert!(matches!(error, CrewError::Ended { .. }), "{error}");
        }
        let error = outcome("echo nonsense").unwrap_err().to_string();
        assert!(error.contains("\"nonsense\""), "{error}");
    }

    #[test]
    fn few_clients_need_one_process() {
        assert_eq!(Crew::parts(0), 1);
        assert_eq!(Crew::parts(10), 1);
        assert!(Crew::parts(u32::MAX) > 1);
    }
}
