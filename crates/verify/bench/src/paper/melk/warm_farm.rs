//! A farm at full speed whose EPNs are held up for a share of the time.

use super::super::Options;
use crate::farm;
use crate::farm::run::farm_config;
use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use sheaf_farm::{Notice, RunDir, Supervisor};
use sheaf_node::config::{FarmConfig, SourceConfig};
use sheaf_node::output::Line;
use sheaf_node::status::FarmStatus;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

const FLPS: u16 = 1;
const EPNS: u16 = 2;
/// Large, so that the event logs of some minutes are small.
const STF_BYTES: u64 = 1_000_000;
const POOL_BYTES: u64 = 16 << 20;
const HOLD_BYTES: u64 = 16 << 20;
const CAPACITY_BYTES: u64 = 32 << 20;
/// How often the ICN reports the farm, in ms.
const STATUS_MS: u64 = 200;
/// TFs after which the farm is warm.
const WARM_TFS: u64 = 100;
const NOTICES_MAX: usize = 1024;
/// How long the farm may take to begin, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two looks at processes that are about to end.
const REAP: Duration = Duration::from_millis(5);

/// Farm that runs.
pub(super) struct WarmFarm<'a> {
    farm: Supervisor<'a>,
    notices: Receiver<Notice>,
    status: FarmStatus,
    is_ending: bool,
}

impl<'a> WarmFarm<'a> {
    /// Starts a farm in `dir` whose nodes send their metrics to `uri`, and waits until it builds TFs.
    pub(super) fn start(
        dir: &'a RunDir,
        options: &Options,
        uri: &str,
        name: &str,
    ) -> anyhow::Result<Self> {
        let file = dir.file("farm.toml");
        let mut config = config();
        config.metrics.backends = vec![uri.to_owned()];
        config.metrics.interval_ms = options.step_ms();
        config.metrics.farm = name.to_owned();
        // Few nodes and short steps: no step is to be left out.
        config.metrics.cpu_share_max = 0.2;
        std::fs::write(&file, config.to_toml()?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        FarmConfig::load_for(&file, &[Role::Icn, Role::Flp, Role::Epn])?;
        let (sender, notices) = sync_channel(NOTICES_MAX);
        let mut farm = Self {
            farm: Supervisor::new(dir, &file, STATUS_MS, sender)?,
            notices,
            status: FarmStatus::default(),
            is_ending: false,
        };
        farm.farm.start(NodeId::ICN)?;
        let begun = Instant::now();
        while farm.status.accounting.complete < WARM_TFS {
            farm.attend(Instant::now() + REAP)?;
            ensure!(
                begun.elapsed() < PATIENCE,
                "the farm does not begin (phase `{}`)",
                farm.status.phase
            );
        }
        Ok(farm)
    }

    /// Lets `time` go by, for the share `held` of which no EPN gets on.
    pub(super) fn hold_up(&mut self, time: Duration, held: f64) -> anyhow::Result<()> {
        let begun = Instant::now();
        let stop = time.mul_f64(held);
        if !stop.is_zero() {
            self.signal(Signal::STOP);
            let attended = self.attend(begun + stop);
            self.signal(Signal::CONT);
            attended?;
        }
        self.attend(begun + time)
    }

    fn signal(&mut self, signal: Signal) {
        for index in 0..EPNS {
            self.farm.signal(EpnId(index).into(), signal);
        }
    }

    /// Takes what the nodes say until `until`.
    fn attend(&mut self, until: Instant) -> anyhow::Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_over = match self.notices.recv_timeout(left) {
                Ok(notice) => {
                    self.handle(notice)?;
                    false
                }
                Err(RecvTimeoutError::Timeout) => true,
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the thread that reads the nodes has ended")
                }
            };
            for process in self.farm.reap() {
                let life = &self.farm.lives()[process];
                let is_in_order = life.ended().is_some_and(|status| status.success());
                ensure!(
                    is_in_order && self.is_ending,
                    "{} ended by itself: {}",
                    life.node,
                    life.last_words()
                );
            }
            if is_over {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, notice: Notice) -> anyhow::Result<()> {
        match notice {
            Notice::Line { process, line } => match *line {
                Line::Listening { listening, .. } => self.handle_listening(process, listening)?,
                Line::Status(status) => self.status = *status,
                Line::Exit { exit } => self.farm.set_exit(process, exit),
            },
            Notice::Closed { process } => self.farm.set_closed(process),
            Notice::Quit | Notice::Stopping(_) => bail!("asked to end"),
        }
        Ok(())
    }

    /// When the ICN listens all others may come.
    fn handle_listening(&mut self, process: usize, address: String) -> anyhow::Result<()> {
        if self.farm.lives()[process].node == NodeId::ICN {
            self.farm.set_icn_address(address);
            for index in 0..FLPS {
                self.farm.start(FlpId(index).into())?;
            }
            for index in 0..EPNS {
                self.farm.start(EpnId(index).into())?;
            }
        }
        Ok(())
    }

    /// Ends the farm in order: what was lost on the way would be an error of it.
    pub(super) fn end(mut self) -> anyhow::Result<()> {
        self.is_ending = true;
        self.farm.signal(NodeId::ICN, Signal::TERM);
        let begun = Instant::now();
        while !self.farm.living_nodes().is_empty() {
            self.attend(Instant::now() + REAP)?;
            ensure!(begun.elapsed() < PATIENCE, "the farm does not end");
        }
        let accounting = &self.status.accounting;
        ensure!(
            accounting.complete == accounting.announced,
            "{} TFs were announced, {} are complete",
            accounting.announced,
            accounting.complete
        );
        Ok(())
    }
}

/// A farm as fast as it can be, with little memory.
fn config() -> FarmConfig {
    let options = farm::Options {
        hold_bytes: Some(HOLD_BYTES),
        capacity_bytes: Some(CAPACITY_BYTES),
        ..farm::Options::default()
    };
    let shape = farm::Shape {
        flps: FLPS,
        epns: EPNS,
    };
    let mut config = farm_config(&options, shape, STF_BYTES);
    if let SourceConfig::Generator(generator) = &mut config.flp.source {
        generator.pool_bytes = POOL_BYTES;
    }
    config
}
