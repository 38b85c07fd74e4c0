//! The processes of a farm on this machine: started, heard, signalled, reaped, and never left behind.

use crate::life::{Life, Lives};
use crate::notice::{Notice, listener};
use crate::process::{Process, StartError};
use crate::run_dir::RunDir;
use rustix::process::Signal;
use sheaf_node::output::Exit;
use sheaf_node::program;
use sheaf_protocol::{NodeId, Role};
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::SyncSender;

/// Supervisor of the processes of a farm, which are this program. None of them outlives this value.
#[derive(Debug)]
pub struct Supervisor<'a> {
    dir: &'a RunDir,
    program: PathBuf,
    file: PathBuf,
    status_ms: u64,
    icn_address: Option<String>,
    /// The farm file says where the ICNs listen.
    has_fixed_icns: bool,
    notices: SyncSender<Notice>,
    lives: Lives,
    /// Indices of the lives whose output was read to its end.
    closed: BTreeSet<usize>,
}

impl<'a> Supervisor<'a> {
    /// Makes a supervisor of a farm without processes; `file` is the farm file in `dir`. What the processes write goes
    /// to `notices`.
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
        let program = program::path().map_err(StartError::Program)?;
        Ok(Self {
            dir,
            program,
            file: file.to_owned(),
            status_ms,
            icn_address: None,
            has_fixed_icns: false,
            notices,
            lives: Lives::default(),
            closed: BTreeSet::new(),
        })
    }

    /// Returns all lives so far, in the order of their start.
    #[must_use]
    pub fn lives(&self) -> &[Life] {
        &self.lives
    }

    /// Returns the farm file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
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
        let files = self.lives.next_files(node, self.dir.path());
        let mut process = Process::spawn(self.command(node, &files.events), &files.log)?;
        process.listen(listener(self.lives.len(), self.notices.clone()))?;
        self.lives.begin(node, files, process);
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
            Role::Writer => {
                command.arg("--index").arg(node.index.to_string());
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

    /// Sends `signal` to the living process of `node`; `false` if there is none.
    pub fn signal(&mut self, node: NodeId, signal: Signal) -> bool {
        let living = self.lives.living(node);
        living.is_some_and(|life| life.signal(signal))
    }

    /// Asks all living processes to end, since there is no ICN any more that would. Returns their nodes.
    pub fn dismiss(&mut self) -> Vec<NodeId> {
        for life in self.lives.iter_mut().filter(|life| life.is_living()) {
            life.may_end = true;
            life.signal(Signal::TERM);
        }
        self.living_nodes()
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
        self.lives.living_nodes()
    }

    /// Returns whether `node` was killed and its process has not ended yet.
    #[must_use]
    pub fn is_dying(&self, node: NodeId) -> bool {
        let mut lives = self.lives.iter();
        lives.any(|life| life.node == node && life.is_living() && life.was_killed())
    }

    /// Keeps what a process reported when it ended.
    pub fn set_exit(&mut self, process: usize, exit: Exit) {
        self.lives[process].exit = Some(exit);
    }

    /// Keeps that a process has closed its output.
    pub fn set_closed(&mut self, process: usize) {
        self.closed.insert(process);
    }

    /// Returns whether a process has closed its output and still has to be reaped.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        let mut closed = self.closed.iter();
        closed.any(|index| self.lives[*index].is_living())
    }

    /// Reaps the processes that have ended and whose output was read to its end. Returns their indices.
    pub fn reap(&mut self) -> Vec<usize> {
        let mut ended = Vec::new();
        for index in &self.closed {
            let life = &mut self.lives[*index];
            if life.is_living() && life.process.reap().is_some() {
                ended.push(*index);
            }
        }
        ended
    }
}
