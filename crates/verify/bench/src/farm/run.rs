//! One run of a farm: started, warmed up, measured, drained, and its accounting recomputed.

use super::options::{Options, Security, Shape};
use super::window::{Moment, Window};
use crate::cpus::Cpus;
use anyhow::{Context as _, bail, ensure};
use peer_harness::machine_busy_s;
use rustix::process::Signal;
use sheaf_audit::{self as verify, Evidence};
use sheaf_farm::{Life, Notice, RunDir, Supervisor};
use sheaf_node::config::{
    BulkConfig, DiscardSink, FarmConfig, LedgerBackend, SinkConfig, SourceConfig,
};
use sheaf_node::output::Line;
use sheaf_node::status::{FarmStatus, Quantiles};
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_stf_builder::GeneratorConfig;
use sheaf_transport::{Arena, ArenaOptions, Tcp};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// How often the ICN reports the farm: the grain of a window.
const STATUS_MS: u64 = 50;
/// Bytes of the pool that payloads are slices of, as that of the plain pair: cold in every cache.
const POOL_BYTES: u64 = 256 << 20;
/// STFs that an FLP can hold, and TFs that an EPN can have, at the least.
const ITEMS_MIN: u64 = 4;
/// How long a farm may take to start and to end, beyond the time that it is measured.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time between two looks at the clock.
const LOOK: Duration = Duration::from_millis(100);
/// Pause between two looks at a process that has closed its output and is about to end.
const REAP: Duration = Duration::from_millis(5);

/// Result of one run of the farm.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FarmRun {
    /// TFs with the verdict `complete` in the window, a second.
    pub(crate) tf_per_s: f64,
    /// Payload of these TFs, in 10⁹ bytes a second.
    pub(crate) gb_per_s: f64,
    /// CPU time of all processes in the window, for 10⁹ payload bytes.
    pub(crate) cpu_s_per_gb: f64,
    /// First announce to commit, over the whole run.
    pub(crate) latency_us: Quantiles,
    /// Peak resident memory of all processes together.
    pub(crate) rss_bytes_max: u64,
    /// The same, of the largest process.
    pub(crate) rss_bytes_max_node: u64,
    /// Busy time of the machine ÷ CPU time of the farm, in the window.
    pub(crate) machine_busy_ratio: f64,
}

/// Runs farms of any shape.
pub(crate) struct FarmBench<'a> {
    /// Requested name.
    pub(crate) options: &'a Options,
    /// Where the processes stay.
    pub(crate) cpus: &'a Cpus,
    /// Given to the farms.
    pub(crate) sender: &'a SyncSender<Notice>,
    /// Output of the processes, and a Ctrl-C.
    pub(crate) notices: &'a Receiver<Notice>,
}

impl FarmBench<'_> {
    /// Runs a farm of `shape` with STFs of `stf_bytes`, protected by `security`.
    ///
    /// # Errors
    ///
    /// If a node fails, if the farm does not come to its end in time, if its books do not hold, or on a Ctrl-C.
    pub(crate) fn run(
        &self,
        shape: Shape,
        stf_bytes: u64,
        security: Security,
    ) -> anyhow::Result<FarmRun> {
        let mut dir = RunDir::make(None)?;
        let outcome = self.run_in(&dir, shape, stf_bytes, security);
        outcome.map_err(|error| {
            dir.keep();
            let kept = dir.kept().unwrap_or(Path::new("")).display();
            error.context(format!("the farm failed (logs in {kept})"))
        })
    }

    fn run_in(
        &self,
        dir: &RunDir,
        shape: Shape,
        stf_bytes: u64,
        security: Security,
    ) -> anyhow::Result<FarmRun> {
        let file = dir.file("farm.toml");
        let mut config = farm_config(self.options, shape, stf_bytes);
        if security != Security::Plain {
            let certificates = dir.file("certificates");
            certify(&certificates, shape).context("cannot make the certificates of the farm")?;
            config.security.directory = Some(certificates);
        }
        if security == Security::CrcOnly {
            config.security.bulk = BulkConfig::CrcOnly;
        }
        let text = config.to_toml()?;
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        FarmConfig::load_for(&file, &[Role::Icn, Role::Flp, Role::Epn])?;
        let length_s = self.options.warm_up_seconds + self.options.seconds;
        let mut run = Run {
            farm: Supervisor::new(dir, &file, STATUS_MS, self.sender.clone())?,
            cpus: self.cpus,
            shape,
            window: Window::new(self.options.warm_up_seconds, self.options.seconds),
            status: FarmStatus::default(),
            is_ending: false,
        };
        run.drive(self.notices, PATIENCE + Duration::from_secs_f64(length_s))?;
        run.check_accounting()?;
        run.figures()
    }
}

/// A farm as the farm file has it by default, in which nothing but the machine limits what moves.
pub(crate) fn farm_config(options: &Options, shape: Shape, stf_bytes: u64) -> FarmConfig {
    let mut config = FarmConfig::default();
    config.run.flps = shape.flps.into();
    config.run.epns = shape.epns.into();
    // A disk is not what is measured.
    config.icn.ledger.backend = LedgerBackend::Memory;
    config.transport.congestion.clone_from(&options.congestion);
    config.transport.shared_memory = options.shared_memory;
    config.node.threads = options.threads;
    config.epn.digest = options.digest;
    config.flp.rate_hz = 0.0;
    config.flp.source = SourceConfig::Generator(GeneratorConfig {
        bytes_mean: stf_bytes,
        pool_bytes: POOL_BYTES,
        ..GeneratorConfig::default()
    });
    let tf_bytes = stf_bytes * u64::from(shape.flps);
    config.flp.stf_bytes_max = stf_bytes;
    config.icn.scheduler.stf_bytes_max = stf_bytes;
    config.icn.scheduler.tf_bytes_max = tf_bytes;
    let hold_bytes = options.hold_bytes.unwrap_or(config.flp.hold_bytes);
    config.flp.hold_bytes = hold_bytes.max(ITEMS_MIN * stf_bytes);
    let build = &mut config.epn.build;
    let capacity_bytes = options.capacity_bytes.unwrap_or(build.capacity_bytes);
    build.capacity_bytes = capacity_bytes.max(ITEMS_MIN * tf_bytes);
    config.epn.sink = SinkConfig::Discard(DiscardSink {});
    config
}

/// Makes a CA in `folder` and a certificate of it for each node of a farm of `shape`, as a user does: by `sheaf cert`.
///
/// # Errors
///
/// Failure of the command.
fn certify(folder: &Path, shape: Shape) -> anyhow::Result<()> {
    let flps = (0..shape.flps).map(|index| FlpId(index).into());
    let epns = (0..shape.epns).map(|index| EpnId(index).into());
    let nodes = std::iter::once(NodeId::ICN).chain(flps).chain(epns);
    let nodes: Vec<String> = nodes
        .map(|node: NodeId| format!("{}:{}", node.role, node.index))
        .collect();
    let nodes = nodes.iter().map(String::as_str);
    let init = vec!["init", "--farm", "bench"];
    let issue: Vec<&str> = std::iter::once("issue").chain(nodes).collect();
    for words in [init, issue] {
        let mut command = Command::new(sheaf_node::program::path()?);
        command.arg("cert").args(words).arg("--dir").arg(folder);
        let output = command.output().context("cannot start `sheaf cert`")?;
        let told = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`sheaf cert` failed: {told}");
    }
    Ok(())
}

/// The congestion control that the sockets of a farm get when they ask for `wanted`.
///
/// # Errors
///
/// If the operating system gives no socket.
pub(crate) fn congestion_in_force(wanted: &str) -> anyhow::Result<String> {
    let mut config = FarmConfig::default().transport;
    wanted.clone_into(&mut config.congestion);
    let arena = Arena::new(1, ArenaOptions::default())?;
    let endpoint = Tcp::new(config.tcp(), arena).context("cannot make a socket")?;
    Ok(endpoint.socket_options().congestion_control.clone())
}

/// A farm from its start to its end.
struct Run<'a, 'dir> {
    farm: Supervisor<'dir>,
    cpus: &'a Cpus,
    shape: Shape,
    window: Window,
    /// The latest.
    status: FarmStatus,
    /// The window is closed, and the ICN was asked to end the run.
    is_ending: bool,
}

impl Run<'_, '_> {
    fn drive(&mut self, notices: &Receiver<Notice>, patience: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        self.start(NodeId::ICN)?;
        while !self.farm.living_nodes().is_empty() {
            let wait = if self.farm.has_closed() { REAP } else { LOOK };
            match notices.recv_timeout(wait) {
                Ok(notice) => self.handle(notice)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the thread that reads the nodes has ended")
                }
            }
            for process in self.farm.reap() {
                self.handle_ended(process)?;
            }
            ensure!(
                begun.elapsed() < patience,
                "the farm has not ended after {} s (phase `{}`)",
                patience.as_secs(),
                self.status.phase
            );
        }
        Ok(())
    }

    fn start(&mut self, node: NodeId) -> anyhow::Result<()> {
        self.cpus.start_on(node, || Ok(self.farm.start(node)?))
    }

    fn handle(&mut self, notice: Notice) -> anyhow::Result<()> {
        match notice {
            Notice::Line { process, line } => match *line {
                Line::Listening { listening, .. } => self.handle_listening(process, listening)?,
                Line::Status(status) => self.handle_status(*status)?,
                Line::Exit { exit } => self.farm.set_exit(process, exit),
            },
            Notice::Closed { process } => self.farm.set_closed(process),
            Notice::Quit | Notice::Stopping(_) => {
                bail!("asked to end: the measurement is not complete")
            }
        }
        Ok(())
    }

    /// When the ICN listens all others may come.
    fn handle_listening(&mut self, process: usize, address: String) -> anyhow::Result<()> {
        if self.farm.lives()[process].node == NodeId::ICN {
            self.farm.set_icn_address(address);
            let flps = (0..self.shape.flps).map(|index| FlpId(index).into());
            let epns = (0..self.shape.epns).map(|index| EpnId(index).into());
            for node in flps.chain(epns) {
                self.start(node)?;
            }
        }
        Ok(())
    }

    fn handle_status(&mut self, status: FarmStatus) -> anyhow::Result<()> {
        self.status = status;
        let at_s = self.status.duration_s;
        if self.status.phase == "running" && self.window.wants(at_s) {
            let moment = self.moment(at_s)?;
            self.window.add(moment);
        }
        if self.window.counted().is_some() && !self.is_ending {
            self.is_ending = true;
            self.farm.signal(NodeId::ICN, Signal::TERM);
        }
        Ok(())
    }

    fn moment(&self, at_s: f64) -> anyhow::Result<Moment> {
        let mut cpu_s = 0.0;
        for life in self.farm.lives() {
            let used = life.process.usage();
            cpu_s += used
                .with_context(|| format!("cannot read the CPU time of {}", life.node))?
                .cpu_s;
        }
        Ok(Moment {
            at_s,
            tfs: self.status.accounting.complete,
            bytes: self.status.accounting.bytes,
            cpu_s,
            machine_busy_s: machine_busy_s()?,
        })
    }

    fn handle_ended(&mut self, process: usize) -> anyhow::Result<()> {
        let life = &self.farm.lives()[process];
        let is_in_order = life.ended().is_some_and(|status| status.success());
        if is_in_order && self.is_ending {
            return Ok(());
        }
        let status = life.ended().map(|status| status.to_string());
        bail!(
            "{} ended by itself ({}): {}",
            life.node,
            status.unwrap_or_default(),
            life.last_words()
        )
    }

    /// A figure of a farm that lost something would be worth nothing.
    fn check_accounting(&self) -> anyhow::Result<()> {
        let mut evidence = Evidence::default();
        for life in self.farm.lives() {
            evidence
                .read(&life.events, Some(life.node), life.fate)
                .with_context(|| format!("cannot read {}", life.events.display()))?;
        }
        let accounting = Some(sheaf_farm::accounting_of(&self.status.accounting));
        let found = verify::audit(
            &mut evidence,
            &verify::Options {
                accounting,
                ..verify::Options::default()
            },
        );
        let told: Vec<String> = found
            .contradictions
            .iter()
            .map(ToString::to_string)
            .collect();
        ensure!(
            found.is_balanced() && found.complete == found.announced,
            "announced {} TFs, complete {}; {} contradictions: {}",
            found.announced,
            found.complete,
            found.contradictions_total,
            told.join("; ")
        );
        Ok(())
    }

    fn figures(&self) -> anyhow::Result<FarmRun> {
        let counted = self.window.counted();
        let counted = counted.context("the run ended before its window")?;
        ensure!(
            counted.bytes > 0,
            "no TF was completed in a window of {:.2} s",
            counted.at_s
        );
        let gb = counted.bytes as f64 / 1e9;
        let rss = |life: &Life| life.usage().rss_bytes_max;
        let lives = self.farm.lives();
        Ok(FarmRun {
            tf_per_s: counted.tfs as f64 / counted.at_s,
            gb_per_s: gb / counted.at_s,
            cpu_s_per_gb: counted.cpu_s / gb,
            latency_us: self
                .status
                .latency_us
                .get("total")
                .copied()
                .unwrap_or_default(),
            rss_bytes_max: lives.iter().map(rss).sum(),
            rss_bytes_max_node: lives.iter().map(rss).max().unwrap_or(0),
            machine_busy_ratio: counted.machine_busy_s / counted.cpu_s.max(f64::MIN_POSITIVE),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_and_size_makes_a_farm_file_that_is_right() {
        for (flps, epns, stf_bytes) in [(1, 1, 1), (3, 5, 1_000_000), (64, 64, 64 << 20)] {
            let config = farm_config(&Options::default(), Shape { flps, epns }, stf_bytes);
            let text = config.to_toml().unwrap();
            let read = FarmConfig::parse_for(&text, Path::new("farm.toml"), &[]);
            assert_eq!(read.unwrap_or_else(|errors| panic!("{errors}")), config);
        }
    }

    #[test]
    fn the_congestion_control_is_the_one_that_a_socket_gets() {
        let machines_own = congestion_in_force("").unwrap();
        assert!(!machines_own.is_empty());
        assert_eq!(congestion_in_force("no-such").unwrap(), machines_own);
    }
}
