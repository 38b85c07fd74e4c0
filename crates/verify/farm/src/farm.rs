//! The processes of a farm on this machine: started, heard, signalled, reaped, and never left behind.

use crate::notice::Notice;
use crate::proc::{self, Usage};
use crate::run_dir::RunDir;
use rustix::process::{Pid, Signal, kill_process};
use sheaf_audit::Fate;
use sheaf_node::output::Exit;
use sheaf_protocol::{NodeId, Role};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;

/// Reasons why a process of a farm does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The path of this program, whose processes the nodes are, cannot be found.
    #[error("cannot find the path of this program")]
    Program(#[source] io::Error),
    /// The log of the process cannot be made.
    #[error("cannot make {}", path.display())]
    Log {
        /// Path of the log.
        path: PathBuf,
        /// Answer of the operating system.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("cannot start {}", program.display())]
    Spawn {
        /// Path of the program.
        program: PathBuf,
        /// Answer of the operating system.
        source: io::Error,
    },
    /// The thread that reads the output of the process cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// One life of one node.
#[derive(Debug)]
pub struct Process {
    /// Which node.
    pub node: NodeId,
    /// Fault of the process.
    pub fate: Fate,
    /// Event log.
    pub events: PathBuf,
    /// Standard error of the process.
    pub log: PathBuf,
    /// How it ended; `None` while it lives.
    pub ended: Option<ExitStatus>,
    /// Last line of the process.
    pub exit: Option<Exit>,
    /// Usage of the process when it was killed.
    sampled: Option<Usage>,
    /// Whether it was asked to end because the run had ended without it.
    is_dismissed: bool,
    is_closed: bool,
    /// The process of the operating system.
    pub child: Child,
}

impl Process {
    /// Returns whether the process was killed by its supervisor.
    #[must_use]
    pub fn was_killed(&self) -> bool {
        self.fate == Fate::Killed
    }

    /// Returns whether the process has ended as a node should. A process that is asked to end may be so young that it
    /// does not yet handle signals.
    #[must_use]
    pub fn has_ended_in_order(&self) -> bool {
        let was_young = |status: ExitStatus| status.signal() == Some(Signal::TERM.as_raw());
        let is_in_order =
            |status: ExitStatus| status.success() || (self.is_dismissed && was_young(status));
        self.ended.is_some_and(is_in_order)
    }

    /// Returns what may be expected of the event log.
    #[must_use]
    pub fn fate_of_log(&self) -> Fate {
        if self.is_dismissed && self.exit.is_none() {
            Fate::Killed
        } else {
            self.fate
        }
    }

    /// Returns what the process has used: as it reported itself or, if it was killed, as the kernel had it.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let said = self.exit.as_ref().map(|exit| Usage {
            cpu_s: exit.cpu_s,
            rss_bytes_max: exit.rss_bytes_max,
        });
        said.or(self.sampled).unwrap_or_default()
    }

    /// Returns how often the process logged a warning, and the first one. `None` without one, or if it was killed.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        if self.was_killed() {
            return None;
        }
        let log = std::fs::read_to_string(&self.log).ok()?;
        let (count, first) = warnings(&log)?;
        let times = if count == 1 { "time" } else { "times" };
        Some(format!(
            "{} warned {count} {times}, at first: {first}",
            self.node
        ))
    }

    /// Returns the error with which the process has ended, as it reported or logged it.
    #[must_use]
    pub fn last_words(&self) -> String {
        let said = self.exit.as_ref().and_then(|exit| exit.error.clone());
        let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
        said.or_else(|| last_complaint(&log()))
            .unwrap_or_else(|| "it left no message".to_owned())
    }
}

/// How many lines of a log are warnings or errors, and what the first of them says: the cause rather than what
/// followed.
fn warnings(log: &str) -> Option<(usize, &str)> {
    let mut found = log.lines().filter_map(|line| {
        // The level stands behind the time.
        let (_, rest) = line.split_once(' ')?;
        let rest = rest.trim_start();
        rest.strip_prefix("WARN ")
            .or_else(|| rest.strip_prefix("ERROR "))
    });
    let first = found.next()?;
    Some((1 + found.count(), first))
}

/// The last line of a log, if it is one with which a process gives up; what it told before, while all was well,
/// explains nothing.
fn last_complaint(log: &str) -> Option<String> {
    let last = log.lines().rfind(|line| !line.trim().is_empty())?.trim();
    let is_complaint = last.starts_with("sheaf: ")
        || last.starts_with("error: ")
        || last.contains("ERROR")
        || log.contains("panicked at");
    is_complaint.then(|| last.trim_start_matches("sheaf: ").to_owned())
}

/// Processes of a farm. None of them outlives this value.
#[derive(Debug)]
pub struct Farm<'a> {
    dir: &'a RunDir,
    program: PathBuf,
    file: PathBuf,
    status_ms: u64,
    icn_address: Option<String>,
    /// The farm file says where the ICNs listen.
    has_fixed_icns: bool,
    notices: SyncSender<Notice>,
    processes: Vec<Process>,
}

impl<'a> Farm<'a> {
    /// Makes a farm without processes; `file` is the farm file in `dir`. What the processes write goes to `notices`.
    ///
    /// # Errors
    ///
    /// If the path of this program cannot be found.
    pub fn new(
        dir: &'a RunDir,
        file: &Path,
        status_ms: u64,
        notices: SyncSender<Notice>,
    ) -> Result<Self, StartError> {
        let program = std::env::current_exe().map_err(StartError::Program)?;
        Ok(Self {
            dir,
            program,
            file: file.to_owned(),
            status_ms,
            icn_address: None,
            has_fixed_icns: false,
            notices,
            processes: Vec::new(),
        })
    }

    /// Returns all lives so far, in the order of their start.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Sets where the ICN listens, for all nodes that are started from now on.
    pub fn set_icn_address(&mut self, address: String) {
        self.icn_address = Some(address);
    }

    /// Starts ICNs, and lets all others look for them, where the farm file says.
    pub fn set_fixed_icns(&mut self) {
        self.has_fixed_icns = true;
    }

    /// Starts a process for `node`.
    ///
    /// # Errors
    ///
    /// [`StartError`], with the answer of the operating system.
    pub fn start(&mut self, node: NodeId) -> Result<(), StartError> {
        let lives = self
            .processes
            .iter()
            .filter(|process| process.node == node)
            .count();
        let name = match lives {
            0 => format!("{}-{}", node.role, node.index),
            _ => format!("{}-{}.life-{}", node.role, node.index, lives + 1),
        };
        let (events, log) = (
            self.dir.file(&format!("{name}.events")),
            self.dir.file(&format!("{name}.log")),
        );
        let stderr = File::create(&log).map_err(|source| StartError::Log {
            path: log.clone(),
            source,
        })?;
        let mut child = self
            .command(node, &events)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(|source| StartError::Spawn {
                program: self.program.clone(),
                source,
            })?;
        let stdout = child.stdout.take().expect("asked for above");
        let index = self.processes.len();
        self.processes.push(Process {
            node,
            fate: Fate::Ended,
            events,
            log,
            ended: None,
            exit: None,
            sampled: None,
            is_dismissed: false,
            is_closed: false,
            child,
        });
        let notices = self.notices.clone();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || hear(stdout, index, &notices))
            .map_err(StartError::Thread)?;
        Ok(())
    }

    fn command(&self, node: NodeId, events: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["run", &node.role.to_string()])
            .arg("--config")
            .arg(&self.file);
        command
            .arg("--events")
            .arg(events)
            .arg("--parent")
            .arg(std::process::id().to_string());
        match node.role {
            Role::Icn | Role::Operator => {
                if self.has_fixed_icns {
                    command.arg("--index").arg(node.index.to_string());
                } else {
                    // Any free port, whatever the farm file says: several farms may run at a time.
                    command.args(["--listen", "127.0.0.1:0"]);
                }
                command.arg("--status-ms").arg(self.status_ms.to_string());
            }
            Role::Flp | Role::Epn => {
                command.arg("--index").arg(node.index.to_string());
                command.args(
                    self.icn_address
                        .iter()
                        .flat_map(|address| ["--icn", address]),
                );
            }
        }
        // A Ctrl-C at the terminal goes to the whole process group: it is for the supervisor alone, which then ends
        // the farm in order.
        command.process_group(0);
        command
    }

    /// The living process of `node`.
    fn living(&mut self, node: NodeId) -> Option<&mut Process> {
        self.processes
            .iter_mut()
            .rfind(|process| process.node == node && process.ended.is_none())
    }

    /// Sends `signal` to the living process of `node`; `false` if there is none.
    pub fn signal(&mut self, node: NodeId, signal: Signal) -> bool {
        let Some(process) = self.living(node) else {
            return false;
        };
        if signal == Signal::STOP {
            process.fate = Fate::Paused;
        }
        if signal == Signal::KILL {
            process.fate = Fate::Killed;
            process.sampled = proc::usage(process.child.id());
        }
        // It is not reaped yet, so the id is still its own.
        kill_process(Pid::from_child(&process.child), signal).is_ok()
    }

    /// Asks all living processes to end, since there is no ICN any more that would. Returns their nodes.
    pub fn dismiss(&mut self) -> Vec<NodeId> {
        let living = self.living_nodes();
        for node in &living {
            if let Some(process) = self.living(*node) {
                process.is_dismissed = true;
            }
            self.signal(*node, Signal::TERM);
        }
        living
    }

    /// Returns how many ICNs live.
    #[must_use]
    pub fn living_icns(&self) -> usize {
        let is_icn = |node: &&NodeId| node.role == Role::Icn;
        self.living_nodes().iter().filter(is_icn).count()
    }

    /// Returns the nodes with a living process.
    #[must_use]
    pub fn living_nodes(&self) -> Vec<NodeId> {
        let living = self
            .processes
            .iter()
            .filter(|process| process.ended.is_none());
        living.map(|process| process.node).collect()
    }

    /// Returns whether `node` was killed and its process has not ended yet.
    #[must_use]
    pub fn is_dying(&self, node: NodeId) -> bool {
        let mut processes = self.processes.iter();
        processes
            .any(|process| process.node == node && process.ended.is_none() && process.was_killed())
    }

    /// Keeps what a process reported when it ended.
    pub fn set_exit(&mut self, process: usize, exit: Exit) {
        self.processes[process].exit = Some(exit);
    }

    /// Keeps that a process has closed its output.
    pub fn set_closed(&mut self, process: usize) {
        self.processes[process].is_closed = true;
    }

    /// Returns whether a process has closed its output and still has to be reaped.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        self.processes
            .iter()
            .any(|process| process.is_closed && process.ended.is_none())
    }

    /// Reaps the processes that have ended and whose output was read to its end. Returns their indices.
    pub fn reap(&mut self) -> Vec<usize> {
        let mut ended = Vec::new();
        for (index, process) in self.processes.iter_mut().enumerate() {
            if process.is_closed
                && process.ended.is_none()
                && let Ok(Some(status)) = process.child.try_wait()
            {
                process.ended = Some(status);
                ended.push(index);
            }
        }
        ended
    }
}

impl Drop for Farm<'_> {
    fn drop(&mut self) {
        for process in &mut self.processes {
            if process.ended.is_none() {
                // Errors mean that it has ended already.
                let _ = process.child.kill();
                let _ = process.child.wait();
            }
        }
    }
}

/// Delivers what a process writes until it ends, or until the supervisor is gone.
fn hear(stdout: ChildStdout, process: usize, notices: &SyncSender<Notice>) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(line) => {
                if notices.send(Notice::Line { process, line }).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(line, %error, "A node wrote something else than a JSON line");
            }
        }
    }
    // An error means that the supervisor is gone.
    let _ = notices.send(Notice::Closed { process });
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2026-11-21T19:14:09.9Z  INFO sheaf_node::role: EPN begins\n\
2026-11-21T19:14:10.9Z  WARN sheaf_node::epn: The disk is full\n\
2026-11-21T19:14:11.9Z ERROR sheaf_node::epn: The disk is gone\n\
2026-11-21T19:14:12.9Z  INFO sheaf_node::epn: No WARN here\n";

    #[test]
    fn warnings_of_a_log_are_counted_and_the_first_is_told() {
        assert_eq!(
            warnings(LOG),
            Some((2, "sheaf_node::epn: The disk is full"))
        );
        assert_eq!(warnings(""), None);
    }

    #[test]
    fn only_a_complaint_explains_an_end() {
        assert_eq!(last_complaint(LOG), None);
        let failed = format!("{LOG}sheaf: epn:0 failed: no memory\n\n");
        let expected = Some("epn:0 failed: no memory".to_owned());
        assert_eq!(last_complaint(&failed), expected);
    }
}
