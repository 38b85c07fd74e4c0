//! Faults under load: what is killed or cut off, and when.

use super::stage::Stage;
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use sheaf_farm::Process;
use sheaf_testbed::machine::Host;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Fault that is injected once in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The program of a server is killed: its kernel refuses connections.
    ServerKilled,
    /// The cable of a server is cut: packets to it vanish.
    ServerCut,
    /// The program of the director is killed.
    DirectorKilled,
}

impl Fault {
    /// All.
    pub const ALL: [Self; 3] = [Self::ServerKilled, Self::ServerCut, Self::DirectorKilled];

    /// Name in options and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerKilled => "server-killed",
            Self::ServerCut => "server-cut",
            Self::DirectorKilled => "director-killed",
        }
    }

    pub(super) fn takes_a_server(self) -> bool {
        matches!(self, Self::ServerKilled | Self::ServerCut)
    }
}

/// Command that starts the director again some time after its death, and its log.
pub(super) struct Again {
    pub(super) after: Duration,
    pub(super) command: Command,
    pub(super) log: PathBuf,
}

/// Everything that is needed to inject a fault from another thread.
pub(super) struct Injection {
    fault: Fault,
    /// Time from the opening of the window to the fault.
    before: Duration,
    /// Process of the server that fails.
    server: Pid,
    host: Host,
    director: Option<Pid>,
    again: Option<Again>,
}

impl Injection {
    /// Prepares `fault` for the first server of `stage`, or for its director.
    pub(super) fn new(
        stage: &Stage,
        fault: Fault,
        before: Duration,
        again: Option<Again>,
    ) -> anyhow::Result<Self> {
        let pid = |process: &Process| Pid::from_raw(process.pid().cast_signed());
        let victim = stage.site.server(0);
        Ok(Self {
            fault,
            before,
            server: pid(&stage.servers[0]).context("a server has no process")?,
            host: stage.site.host(victim),
            director: stage.director.as_ref().and_then(pid),
            again,
        })
    }

    /// Injects the fault when its time has come. Returns when that was, and the director that was started again.
    pub(super) fn run(self) -> anyhow::Result<(Instant, Option<Process>)> {
        pace(self.before);
        let at = Instant::now();
        match self.fault {
            Fault::ServerKilled => kill_process(self.server, Signal::KILL)?,
            Fault::ServerCut => self.host.set_link(false)?,
            Fault::DirectorKilled => {
                let director = self.director.context("the plane has no process")?;
                kill_process(director, Signal::KILL)?;
            }
        }
        let again = self.again.filter(|_| self.fault == Fault::DirectorKilled);
        let Some(again) = again else {
            return Ok((at, None));
        };
        pace(again.after);
        let mut process = Process::spawn(again.command, &again.log)?;
        process.listen(|_| {})?;
        Ok((at, Some(process)))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a pacer: faults are injected at times of a window"
)]
pub(super) fn pace(time: Duration) {
    std::thread::sleep(time);
}
