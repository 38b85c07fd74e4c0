//! The prior systems' rules ([`sheaf_sim::prior`]) on real sockets: what O2-Balancer2 did, in the same namespaces and
//! on the same wires.
//!
//! The ICN publishes a heartbeat of 24 bytes with the EPN it chose; every FLP pushes a header and its payload there
//! without waiting, up to 1,000 messages deep, and throws away what comes then; an EPN counts messages, and
//! acknowledges a set if all of them name the newest heartbeat; the ICN counts acknowledgements until 20 ms or 1 s
//! after the last heartbeat. Whatever it has not heard by then it calls lost. Sources: `docs/how-to/lab.md`, section
//! "Legacy mode".
//!
//! Plain TCP stands for ZeroMQ, with the bytes of its frames: a queue a connection, bounded in messages, a thread that
//! writes, one that reads, and a reader's turn at each connection. What is different, on purpose: nodes are awaited and
//! not slept for, acknowledgements name their heartbeat so that latency is known (no rule looks at that), and the
//! ICN goes on counting after the end, so that what is late can be distinguished from what is gone.

mod epn;
mod flp;
mod icn;
mod limiter;
mod queue;
mod wire;

use super::Trial;
use super::live::{Cast, Turn, outside};
use super::result::RunResult;
use crate::place::Misfit;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use sheaf_farm::{Lines, Process};
use sheaf_figures::stat;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_sim::scenario::{Fault, FaultKind, Legacy};
use sheaf_sim::{des, prior};
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{Interrupted, now_ns, wait_until};
use sheaf_testbed::machine::Folder;
use sheaf_testbed::net::{Net, Place};
use sheaf_testbed::tool;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Where nodes listen: the ICN of the prior system at 5000 and 5005, an EPN at 5555.
const CONTROL_PORT: u16 = 5000;
const DATA_PORT: u16 = 5555;
/// How long a run may take beyond its generation: what is late is awaited.
const LATE_MAX: Duration = Duration::from_secs(60);
/// How long the report of a node that has ended may take to be read.
const REPORT_MAX: Duration = Duration::from_secs(10);

/// Arguments of one process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// `icn`, `flp` or `epn`.
    pub role: String,
    /// Which one, from 0.
    pub index: u16,
    /// FLPs of the run.
    pub flps: u16,
    /// EPNs of the run.
    pub epns: u16,
    /// Where the ICN listens.
    pub control: SocketAddr,
    /// Where this EPN listens.
    pub data: Option<SocketAddr>,
    /// Heartbeats a second.
    pub rate_hz: f64,
    /// Heartbeats of the run.
    pub heartbeats: u64,
    /// Payload of a message.
    pub bytes: u64,
    /// Always the first EPN, instead of all in turn.
    pub is_fixed: bool,
    /// Whether the rate limiter with its dead band sets the pace, instead of absolute deadlines.
    pub has_dead_band: bool,
    /// The rules.
    pub rules: Legacy,
    /// Seed of the stalls of streams.
    pub seed: u64,
}

/// Report of one process.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeReport {
    /// ICN: heartbeats published.
    pub heartbeats: u64,
    /// ICN: from the first to the last heartbeat, in ns.
    pub generation_ns: u64,
    /// ICN: from the first heartbeat to the last acknowledgement that counted, in ns.
    pub span_ns: u64,
    /// ICN: acknowledgements that counted.
    pub acks: u64,
    /// ICN: those that came later.
    pub late: u64,
    /// ICN: from heartbeat to acknowledgement of those that counted, in µs.
    pub latencies_us: Vec<f64>,
    /// ICN: acknowledgements that counted, by EPN.
    pub acks_by_epn: Vec<u64>,
    /// EPN: sets that were thrown away.
    pub out_of_order: u64,
    /// EPN: messages.
    pub messages: u64,
    /// EPN: messages in sets that never closed.
    pub open_messages: u64,
    /// FLP: heartbeats whose message found a full queue.
    pub queue_full: u64,
    /// FLP: messages to an EPN that was not there.
    pub unsent: u64,
    /// FLP: most bytes that waited.
    pub peak_bytes: u64,
    /// FLP with an iterator of its own: to which EPN it sent each heartbeat, as a checksum for the others to compare.
    pub targets: Vec<u16>,
}

/// Runs one process to its end; what it found.
///
/// # Errors
///
/// What sockets give.
pub fn run_node(config: &NodeConfig) -> std::io::Result<NodeReport> {
    // The parent process may be killed.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    match config.role.as_str() {
        "icn" => icn::run(config),
        "flp" => flp::run(config),
        "epn" => epn::run(config),
        other => {
            let text = format!("role: found {other:?}, expected icn, flp or epn");
            Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text))
        }
    }
}

/// Reasons why a legacy run is not made.
#[derive(Debug, Error)]
pub enum LegacyError {
    /// A process does not start.
    #[error(transparent)]
    Start(#[from] sheaf_farm::StartError),
    /// The network has no room for the farm.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A file or a process.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The run goes on.
    #[error("the ICN had not ended after {seconds:.0} s")]
    NotEnded {
        /// Time that it had.
        seconds: f64,
    },
    /// A node ended without a report.
    #[error("legacy {node} made no report: {last}")]
    NoReport {
        /// The node.
        node: NodeId,
        /// The last line of its log.
        last: String,
    },
}

/// Runs `trial` on `net` once.
///
/// # Errors
///
/// All of [`LegacyError`].
pub(crate) fn run(
    trial: &Trial,
    net: &Net,
    turn: &Turn,
    folder: &Folder,
) -> Result<RunResult, LegacyError> {
    let begin = Instant::now();
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut troupe = Troupe::new(trial, net, turn, folder.path())?;
    troupe.start_all()?;
    let scenario = &trial.scenario;
    let mut faults = des::drawn_faults(scenario, turn.seed);
    faults.sort_by(|a, b| b.at_s.total_cmp(&a.at_s));
    let mut undone: Vec<(u64, Fault)> = Vec::new();
    let mut done = 0;
    let begin_ns = now_ns();
    let patience = Duration::from_secs_f64(scenario.duration_s * 1.1) + LATE_MAX;
    let is_over = wait_until::<LegacyError>(patience, || {
        let now = now_ns();
        let at_ns = |seconds: f64| begin_ns.saturating_add((seconds * 1e9) as u64);
        if faults.last().is_some_and(|fault| at_ns(fault.at_s) <= now)
            && let Some(fault) = faults.pop()
        {
            troupe.inject(&fault);
            done += 1;
            if let Some(for_s) = fault.for_s {
                undone.push((at_ns(fault.at_s + for_s), fault));
            }
        }
        while let Some(at) = undone.iter().position(|(at, _)| *at <= now) {
            let (_, fault) = undone.remove(at);
            troupe.heal(&fault)?;
        }
        Ok(troupe.has_ended(NodeId::ICN))
    })?;
    if !is_over {
        return Err(LegacyError::NotEnded {
            seconds: patience.as_secs_f64(),
        });
    }
    let reports = troupe.finish()?;
    let mut result = judge(trial, &reports, done);
    result.iteration = turn.iteration;
    result.attempt = turn.attempt;
    result.seed = turn.seed;
    result.began_unix_s = since.map_or(0, |since| since.as_secs());
    result.wall_s = begin.elapsed().as_secs_f64();
    Ok(result)
}

/// The processes of a run.
struct Troupe<'a> {
    trial: &'a Trial,
    program: PathBuf,
    folder: &'a Path,
    /// Place and arguments of each node.
    parts: BTreeMap<NodeId, (Place, NodeConfig)>,
    members: Vec<Member>,
}

/// One process of a run, which writes its report when it ends.
struct Member {
    node: NodeId,
    process: Process,
    report: Lines,
    /// Standard error of the process.
    log: PathBuf,
}

impl<'a> Troupe<'a> {
    fn new(
        trial: &'a Trial,
        net: &Net,
        turn: &Turn,
        folder: &'a Path,
    ) -> Result<Self, LegacyError> {
        let cast = Cast::of(trial, net)?;
        let scenario = &trial.scenario;
        let rules = &scenario.legacy;
        let control = if rules.shared_control_nic {
            cast.icn.primary
        } else {
            cast.icn.control()
        };
        let count = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
        let config = |node: NodeId, data| NodeConfig {
            role: node.role.to_string(),
            index: node.index,
            flps: count(cast.flps.len()),
            epns: count(cast.epns.len()),
            control: (control, CONTROL_PORT).into(),
            data,
            rate_hz: scenario.rate_hz,
            heartbeats: scenario.timeframes(),
            bytes: scenario.size.bytes,
            is_fixed: scenario.policy == "fixed",
            has_dead_band: trial.live.legacy_dead_band,
            rules: rules.clone(),
            seed: turn.seed,
        };
        let mut parts = BTreeMap::new();
        parts.insert(NodeId::ICN, (cast.icn.clone(), config(NodeId::ICN, None)));
        for (index, place) in (0..).zip(&cast.flps) {
            let node = FlpId(index).into();
            parts.insert(node, ((*place).clone(), config(node, None)));
        }
        for (index, place) in (0..).zip(&cast.epns) {
            let node = EpnId(index).into();
            let data = SocketAddr::from((place.primary, DATA_PORT));
            parts.insert(node, ((*place).clone(), config(node, Some(data))));
        }
        Ok(Self {
            trial,
            program: tool::program()?,
            folder,
            parts,
            members: Vec::new(),
        })
    }

    fn start_all(&mut self) -> Result<(), LegacyError> {
        let nodes: Vec<NodeId> = self.parts.keys().copied().collect();
        nodes.into_iter().try_for_each(|node| self.start(node))
    }

    fn start(&mut self, node: NodeId) -> Result<(), LegacyError> {
        let (place, config) = &self.parts[&node];
        let life = self.members.len();
        let log = self
            .folder
            .join(format!("{}-{}.{life}.log", node.role, node.index));
        let json = serde_json::to_string(config).expect("addresses and numbers have a JSON form");
        let mut command = tool::command("ip");
        command
            .args(["netns", "exec", &place.namespace])
            .arg(&self.program);
        // A Ctrl-C at the terminal is for the experiment alone.
        command.args(["lab", "legacy-node", &json]).process_group(0);
        let mut process = Process::spawn(command, &log)?;
        self.members.push(Member {
            node,
            report: process.lines()?,
            process,
            log,
        });
        Ok(())
    }

    fn living(&mut self, node: NodeId) -> Option<&mut Process> {
        let of_node = self.members.iter_mut().filter(|member| member.node == node);
        of_node
            .map(|member| &mut member.process)
            .find_map(|process| process.reap().is_none().then_some(process))
    }

    fn has_ended(&mut self, node: NodeId) -> bool {
        self.living(node).is_none()
    }

    fn target(fault: &Fault) -> Option<NodeId> {
        let number = |index: u32| u16::try_from(index).unwrap_or(u16::MAX);
        match (fault.flp, fault.epn) {
            (Some(flp), _) => Some(FlpId(number(flp)).into()),
            (None, Some(epn)) => Some(EpnId(number(epn)).into()),
            (None, None) => None,
        }
    }

    fn signal(&mut self, fault: &Fault, signal: Signal) {
        if let Some(process) = Self::target(fault).and_then(|node| self.living(node)) {
            process.signal(signal);
            if signal == Signal::KILL {
                process.wait();
            }
        }
    }

    fn inject(&mut self, fault: &Fault) {
        match fault.kind {
            FaultKind::Hang => self.signal(fault, Signal::STOP),
            // Others were refused when the experiment was read.
            _ => self.signal(fault, Signal::KILL),
        }
    }

    fn heal(&mut self, fault: &Fault) -> Result<(), LegacyError> {
        match (fault.kind, Self::target(fault)) {
            (FaultKind::Hang, _) => self.signal(fault, Signal::CONT),
            (_, Some(node)) => self.start(node)?,
            (_, None) => {}
        }
        Ok(())
    }

    /// Waits until all have ended; what they found.
    fn finish(&mut self) -> Result<Vec<(NodeId, NodeReport)>, LegacyError> {
        let was_hurt = !self.trial.scenario.faults.is_empty();
        wait_until::<Interrupted>(Duration::from_secs(5), || {
            let mut members = self.members.iter_mut();
            Ok(members.all(|member| member.process.reap().is_some()))
        })?;
        let mut reports = Vec::new();
        for member in &mut self.members {
            let node = member.node;
            member.process.signal(Signal::KILL);
            member.process.wait();
            let text = member.report.rest(REPORT_MAX).join("\n");
            match serde_json::from_str(&text) {
                Ok(report) => reports.push((node, report)),
                // A killed node leaves no report, and a returned one finds a farm that does not expect it.
                Err(_) if was_hurt && node.role != Role::Icn => {}
                Err(_) => {
                    let log = std::fs::read_to_string(&member.log).unwrap_or_default();
                    let last = log.lines().last().unwrap_or("it left no message");
                    return Err(LegacyError::NoReport {
                        node,
                        last: last.to_owned(),
                    });
                }
            }
        }
        Ok(reports)
    }
}

/// Fate of each heartbeat, as far as the reports tell.
fn judge(trial: &Trial, reports: &[(NodeId, NodeReport)], faults: u64) -> RunResult {
    let none = NodeReport::default();
    let icn = reports
        .iter()
        .find(|(node, _)| node.role == Role::Icn)
        .map_or(&none, |(_, report)| report);
    let of = |role: Role| {
        reports
            .iter()
            .filter(move |(node, _)| node.role == role)
            .map(|(_, report)| report)
    };
    let out_of_order: u64 = of(Role::Epn).map(|report| report.out_of_order).sum();
    let lost = icn.heartbeats.saturating_sub(icn.acks);
    let most = |of_flp: fn(&NodeReport) -> u64| of(Role::Flp).map(of_flp).max().unwrap_or(0);
    let dead = match faults {
        0 => most(|report| report.unsent),
        _ => u64::MAX,
    };
    // The first three are counted one by one. A heartbeat that none of them explains was sent by some FLP, and never
    // made a set: its messages stand in one that did not close, or moved every set behind them.
    let causes = [
        ("late-at-run-end", icn.late),
        ("out-of-order", out_of_order),
        ("queue-full", most(|report| report.queue_full)),
        ("dead-epn", dead),
    ];
    let lost_by = prior::attribute(lost, &causes, "misaligned");
    let targets: Vec<&Vec<u16>> = of(Role::Flp).map(|report| &report.targets).collect();
    let bytes = u64::from(trial.scenario.flps) * trial.scenario.size.bytes * icn.acks;
    let span_s = icn.span_ns as f64 / 1e9;
    let generation_s = super::live::generation_s(
        0,
        icn.generation_ns,
        usize::try_from(icn.heartbeats).unwrap_or(0),
    );
    let mut result = RunResult {
        trial: trial.id.clone(),
        rejected: outside(trial, generation_s, icn.heartbeats),
        generation_s,
        announced: icn.heartbeats,
        lost,
        lost_by,
        out_of_order,
        mixed_target: mixed(&targets),
        offered_mbit_s: trial.offered_mbit_s(),
        goodput_mbit_s: if span_s > 0.0 {
            bytes as f64 * 8.0 / 1e6 / span_s
        } else {
            0.0
        },
        span_s,
        fairness: stat::jain(&icn.acks_by_epn),
        tfs_by_epn: icn.acks_by_epn.clone(),
        flp_peak_bytes: most(|report| report.peak_bytes),
        faults,
        ..RunResult::default()
    };
    result.set_latencies(icn.latencies_us.clone());
    result
}

/// Heartbeats that not all FLPs sent to the same EPN.
fn mixed(targets: &[&Vec<u16>]) -> u64 {
    let Some((first, others)) = targets.split_first() else {
        return 0;
    };
    let differs = |at: &usize| others.iter().any(|other| other.get(*at) != first.get(*at));
    (0..first.len()).filter(differs).count() as u64
}

#[cfg(test)]
mod tests;
