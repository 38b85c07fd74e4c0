//! The processes of a demo: started, heard, signalled, reaped, and never left behind.

use super::run_dir::RunDir;
use crate::proc::{self, Usage};
use crate::role::{Exit, Line};
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use sheaf_protocol::{NodeId, Role};
use sheaf_verdict_log::verify::Fate;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::SyncSender;

/// What the supervisor hears.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A process wrote a line.
    Line {
        /// Its index.
        process: usize,
        /// What it says.
        line: Box<Line>,
    },
    /// A process has closed its standard output: it has ended, or is about to.
    Closed {
        /// Its index.
        process: usize,
    },
    /// Somebody wants the demo to end.
    Quit,
    /// What the leading ICN answered to the order to stop, or why none did.
    Stopping(Result<String, String>),
}

/// One life of one node.
#[derive(Debug)]
pub(crate) struct Process {
    /// Which node.
    pub(crate) node: NodeId,
    /// What was done to it.
    pub(crate) fate: Fate,
    /// Its event log.
    pub(crate) events: PathBuf,
    /// What it wrote to its standard error.
    pub(crate) log: PathBuf,
    /// How it ended; `None` while it lives.
    pub(crate) ended: Option<ExitStatus>,
    /// What it said when it ended.
    pub(crate) exit: Option<Exit>,
    /// What it had used when it was killed.
    sampled: Option<Usage>,
    /// Whether it was asked to end because the run had ended without it.
    is_sent_home: bool,
    is_closed: bool,
    /// The process of the operating system.
    pub(crate) child: Child,
}

impl Process {
    /// Whether the demo killed it.
    pub(crate) fn was_killed(&self) -> bool {
        self.fate == Fate::Killed
    }

    /// Whether it has ended as a node should. One that is sent home may be so young that it does not yet handle
    /// signals.
    pub(crate) fn has_ended_in_order(&self) -> bool {
        let was_young = |status: ExitStatus| status.signal() == Some(Signal::TERM.as_raw());
        let is_in_order =
            |status: ExitStatus| status.success() || (self.is_sent_home && was_young(status));
        self.ended.is_some_and(is_in_order)
    }

    /// What may be expected of its event log.
    pub(crate) fn fate_of_log(&self) -> Fate {
        if self.is_sent_home && self.exit.is_none() {
            Fate::Killed
        } else {
            self.fate
        }
    }

    /// What it has used, by its own words or, if it was killed, by those of the kernel.
    pub(crate) fn usage(&self) -> Usage {
        let said = self.exit.as_ref().map(|exit| Usage {
            cpu_s: exit.cpu_s,
            rss_bytes_max: exit.rss_bytes_max,
        });
        said.or(self.sampled).unwrap_or_default()
    }

    /// What it warned of: how often, and at first in its own words. `None` if it did not, or was killed.
    pub(crate) fn warning(&self) -> Option<String> {
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

    /// Why it has ended, in its own words.
    pub(crate) fn last_words(&self) -> String {
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

/// All processes of a demo. When it is dropped, none of them lives on.
#[derive(Debug)]
pub(crate) struct Farm<'a> {
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
    /// A farm without processes; `file` is its farm file in `dir`. What the processes say goes to `notices`.
    ///
    /// # Errors
    ///
    /// If the path of this program cannot be found.
    pub(crate) fn new(
        dir: &'a RunDir,
        file: &Path,
        status_ms: u64,
        notices: SyncSender<Notice>,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
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

    /// All lives so far, in the order of their start.
    pub(crate) fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Where the ICN listens: everyone who is started from now on is told.
    pub(crate) fn set_icn_address(&mut self, address: String) {
        self.icn_address = Some(address);
    }

    /// The farm file says where the ICNs listen: there they are started, and there all others look for them.
    pub(crate) fn set_fixed_icns(&mut self) {
        self.has_fixed_icns = true;
    }

    /// Starts a process for `node`.
    ///
    /// # Errors
    ///
    /// What the operating system gives.
    pub(crate) fn start(&mut self, node: NodeId) -> anyhow::Result<()> {
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
        let stderr =
            File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let mut child = self
            .command(node, &events)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
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
            is_sent_home: false,
            is_closed: false,
            child,
        });
        let notices = self.notices.clone();
        std::thread::Builder::new()
            .name(name)
            .spawn(move || hear(stdout, index, &notices))
            .context("cannot start a thread")?;
        Ok(())
    }

    fn command(&self, node: NodeId, events: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(node.role.to_string())
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
                    // Any free port, whatever the farm file says: several demos may run at a time.
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
        // A Ctrl-C at the terminal goes to the whole process group: it is for the demo alone, which then ends
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
    pub(crate) fn signal(&mut self, node: NodeId, signal: Signal) -> bool {
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

    /// Asks all living processes to end, since there is no ICN any more that would. Gives their nodes.
    pub(crate) fn send_home(&mut self) -> Vec<NodeId> {
        let living = self.living_nodes();
        for node in &living {
            if let Some(process) = self.living(*node) {
                process.is_sent_home = true;
            }
            self.signal(*node, Signal::TERM);
        }
        living
    }

    /// How many ICNs live.
    pub(crate) fn living_icns(&self) -> usize {
        let is_icn = |node: &&NodeId| node.role == Role::Icn;
        self.living_nodes().iter().filter(is_icn).count()
    }

    /// Nodes with a living process.
    pub(crate) fn living_nodes(&self) -> Vec<NodeId> {
        let living = self
            .processes
            .iter()
            .filter(|process| process.ended.is_none());
        living.map(|process| process.node).collect()
    }

    /// Whether `node` was killed and its process has not ended yet.
    pub(crate) fn is_dying(&self, node: NodeId) -> bool {
        let mut processes = self.processes.iter();
        processes
            .any(|process| process.node == node && process.ended.is_none() && process.was_killed())
    }

    /// Takes note of what a process said when it ended.
    pub(crate) fn set_exit(&mut self, process: usize, exit: Exit) {
        self.processes[process].exit = Some(exit);
    }

    /// Takes note that a process says nothing more.
    pub(crate) fn set_closed(&mut self, process: usize) {
        self.processes[process].is_closed = true;
    }

    /// Whether a process says nothing more and still has to be reaped.
    pub(crate) fn has_closed(&self) -> bool {
        self.processes
            .iter()
            .any(|process| process.is_closed && process.ended.is_none())
    }

    /// Reaps the processes that have ended. All that they said has been heard before. Gives their indices.
    pub(crate) fn reap(&mut self) -> Vec<usize> {
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

/// Passes on what a process says until it ends. When nobody listens any more the demo is over.
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
    // An error means that nobody wants to know.
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
