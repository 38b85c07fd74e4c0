//! One life of one node: its process, its logs, and how it ended.

use crate::proc::Usage;
use crate::process::Process;
use rustix::process::Signal;
use sheaf_audit::Fate;
use sheaf_node::output::Exit;
use sheaf_protocol::NodeId;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Files of one life of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LifeFiles {
    /// Event log.
    pub events: PathBuf,
    /// Standard error of the process.
    pub log: PathBuf,
}

/// One life of one node.
#[derive(Debug)]
pub struct Life {
    /// Which node.
    pub node: NodeId,
    /// Fault of the process.
    pub fate: Fate,
    /// Event log.
    pub events: PathBuf,
    /// Standard error of the process.
    pub log: PathBuf,
    /// Last line of the process.
    pub exit: Option<Exit>,
    /// Whether the supervisor brought the end about, or expects it.
    pub may_end: bool,
    /// The process.
    pub process: Process,
    /// Usage of the process when it was killed.
    sampled: Option<Usage>,
}

impl Life {
    /// Returns whether the process lives, or was not reaped yet.
    #[must_use]
    pub fn is_living(&self) -> bool {
        self.ended().is_none()
    }

    /// Returns how the process ended; `None` while it lives.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process.ended()
    }

    /// Returns the id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends `signal`, and keeps what that means for the fate; `false` if there is no process to send it to.
    pub fn signal(&mut self, signal: Signal) -> bool {
        if signal == Signal::STOP {
            self.fate = self.fate.max(Fate::Paused);
        }
        if signal == Signal::KILL {
            self.fate = Fate::Killed;
            self.may_end = true;
            self.sampled = self.process.usage();
        }
        self.process.signal(signal)
    }

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
            |status: ExitStatus| status.success() || (self.may_end && was_young(status));
        self.ended().is_some_and(is_in_order)
    }

    /// Returns what may be expected of the event log.
    #[must_use]
    pub fn fate_of_log(&self) -> Fate {
        if self.may_end && self.exit.is_none() {
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

/// All lives of the nodes of a farm so far, in the order of their start. No process of them outlives this value.
#[derive(Debug, Default)]
pub struct Lives(Vec<Life>);

impl Lives {
    /// Returns the files in `folder` of the next life of `node`.
    #[must_use]
    pub fn next_files(&self, node: NodeId, folder: &Path) -> LifeFiles {
        let lives = self.iter().filter(|life| life.node == node).count();
        let name = match lives {
            0 => format!("{}-{}", node.role, node.index),
            _ => format!("{}-{}.life-{}", node.role, node.index, lives + 1),
        };
        LifeFiles {
            events: folder.join(format!("{name}.events")),
            log: folder.join(format!("{name}.log")),
        }
    }

    /// Adds a life of `node` that begins with `process`, which writes `files`.
    pub fn begin(&mut self, node: NodeId, files: LifeFiles, process: Process) {
        self.0.push(Life {
            node,
            fate: Fate::Ended,
            events: files.events,
            log: files.log,
            exit: None,
            may_end: false,
            process,
            sampled: None,
        });
    }

    /// Returns the living process of `node`.
    pub fn living(&mut self, node: NodeId) -> Option<&mut Life> {
        self.iter_mut()
            .rfind(|life| life.node == node && life.is_living())
    }

    /// Returns the nodes with a living process.
    #[must_use]
    pub fn living_nodes(&self) -> Vec<NodeId> {
        let living = self.iter().filter(|life| life.is_living());
        living.map(|life| life.node).collect()
    }

    /// Kills and reaps what still lives, and forgets all lives.
    pub fn end(&mut self) {
        self.0.clear();
    }
}

impl Deref for Lives {
    type Target = [Life];

    fn deref(&self) -> &[Life] {
        &self.0
    }
}

impl DerefMut for Lives {
    fn deref_mut(&mut self) -> &mut [Life] {
        &mut self.0
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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

    fn start(lives: &mut Lives, folder: &Path) {
        let node = NodeId::ICN;
        let files = lives.next_files(node, folder);
        let mut command = Command::new("tail");
        command.args(["-f", "/dev/null"]);
        let process = Process::spawn(command, &files.log).unwrap();
        lives.begin(node, files, process);
    }

    #[test]
    fn a_node_has_one_living_process_and_each_life_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut lives = Lives::default();
        start(&mut lives, folder.path());
        let life = lives.living(NodeId::ICN).unwrap();
        assert!(life.signal(Signal::STOP) && life.signal(Signal::KILL));
        assert_eq!((life.fate, life.may_end), (Fate::Killed, true));
        assert!(life.usage().rss_bytes_max > 0, "sampled when it was killed");
        assert!(life.process.wait().is_some());
        assert!(lives.living(NodeId::ICN).is_none());
        start(&mut lives, folder.path());
        assert_eq!(lives.living_nodes(), [NodeId::ICN]);
        let names = lives.iter().map(|life| life.events.file_name().unwrap());
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["icn-0.events", "icn-0.life-2.events"]
        );
    }
}
