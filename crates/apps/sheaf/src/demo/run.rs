//! The life of a demo: starts the farm, does to it what was asked for, ends it, waits for it.

use super::args::Args;
use super::farm_file;
use super::faults::{Agenda, Fault, FaultKind};
use super::screen::{Audience, Screen};
use super::summary::FaultDone;
use super::watch::{Voice, Watch};
use anyhow::{Context as _, bail};
use rustix::process::Signal;
use sheaf_farm::{Notice, Supervisor};
use sheaf_node::config::FarmConfig;
use sheaf_node::operator::{Operator, OperatorError};
use sheaf_node::output::Line;
use sheaf_node::status::FarmStatus;
use sheaf_protocol::control::Order;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

/// How long the ICN may take to listen, and then the farm to begin its run.
const START_MAX: Duration = Duration::from_secs(60);
/// Time that the nodes may take to end beyond the drain time of the farm.
const FAREWELL_MAX: Duration = Duration::from_secs(10);
/// How long nodes may take to end after their ICN. One that had not joined waits for an ICN for ever.
const LATECOMERS: Duration = Duration::from_secs(1);
/// How long processes may take to end after they were killed.
const KILL_MAX: Duration = Duration::from_secs(10);
/// How long the order to stop may take to find an ICN that leads.
const ORDER_MAX: Duration = Duration::from_secs(20);
/// Longest time between two looks at clocks and processes.
const LOOK: Duration = Duration::from_millis(100);
/// Pause between two looks at a process that has closed its output and is about to end.
const REAP: Duration = Duration::from_millis(5);

/// How a demo went.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Faults injected.
    pub(crate) faults: Vec<FaultDone>,
    /// Problems.
    pub(crate) problems: Vec<String>,
    /// Why it ended.
    pub(crate) ended_by: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The ICN does not listen yet, or the run has not begun.
    Starting { since: Instant },
    /// TFs are made; the first was announced at `origin`.
    Running { origin: Instant },
    /// The sources stop, the farm drains, the nodes end.
    Ending {
        origin: Option<Instant>,
        until: Instant,
    },
    /// Nodes that did not end were killed.
    Killed {
        origin: Option<Instant>,
        until: Instant,
    },
}

/// How the farm is asked to end.
pub(crate) enum Ender {
    /// By a signal to its one ICN.
    Signal,
    /// By an order to whichever ICN leads; the answer comes back as a notice.
    Order {
        /// Says where the ICNs are.
        config: Box<FarmConfig>,
        /// Takes the answer.
        notices: SyncSender<Notice>,
    },
}

/// A farm from its start to its end.
pub(crate) struct Run<'a, 'dir> {
    args: &'a Args,
    farm: &'a mut Supervisor<'dir>,
    watch: &'a mut Watch,
    screen: &'a mut Screen,
    agenda: Agenda,
    /// Faults that are due and wait: for an ICN that leads, has died or hangs, or for a killed process to be gone.
    pending: Vec<Fault>,
    /// ICNs that hang, and those that are dead, the oldest first.
    hanging: Vec<NodeId>,
    dead: Vec<NodeId>,
    /// How long the farm may take to drain.
    drain: Duration,
    ender: Ender,
    stage: Stage,
    /// ICNs that have said where they listen.
    listening: BTreeSet<NodeId>,
    /// Whether the user has asked to end.
    is_quitting: bool,
    /// Whether the ICN was asked to end the run.
    is_end_ordered: bool,
    /// Time at which nodes that did not join before the ICN ended are asked to end.
    latecomers_at: Option<Instant>,
    are_writers_dismissed: bool,
    record: Record,
}

/// Writes where the one ICN listens into the farm file: commands that read it find the farm.
fn name_icn(file: &Path, address: &str) -> anyhow::Result<()> {
    let mut config = FarmConfig::load_for(file, &[])?;
    address.clone_into(&mut config.icn.address);
    farm_file::write(&config, file)
}

impl<'a, 'dir> Run<'a, 'dir> {
    /// The run of a farm of which nothing is started.
    pub(crate) fn new(
        args: &'a Args,
        farm: &'a mut Supervisor<'dir>,
        watch: &'a mut Watch,
        screen: &'a mut Screen,
        drain: Duration,
        ender: Ender,
    ) -> Self {
        Self {
            agenda: Agenda::new(&args.kill, &args.pause, &args.start),
            args,
            farm,
            watch,
            screen,
            pending: Vec::new(),
            hanging: Vec::new(),
            dead: Vec::new(),
            drain,
            ender,
            stage: Stage::Starting {
                since: Instant::now(),
            },
            listening: BTreeSet::new(),
            is_quitting: false,
            is_end_ordered: false,
            latecomers_at: None,
            are_writers_dismissed: false,
            record: Record::default(),
        }
    }

    /// Starts everything and comes back when every process has ended.
    ///
    /// # Errors
    ///
    /// If the farm does not come to a run, if the screen fails, or if the user asks a second time to end.
    pub(crate) fn run(mut self, notices: &Receiver<Notice>) -> anyhow::Result<Record> {
        for index in 0..self.args.icns() {
            let role = Role::Icn;
            self.farm.start(NodeId { role, index })?;
        }
        while !self.farm.living_nodes().is_empty() {
            match notices.recv_timeout(self.patience()) {
                Ok(notice) => self.handle(notice)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the thread that reads the nodes has ended")
                }
            }
            for process in self.farm.reap() {
                self.handle_ended(process)?;
            }
            self.dismiss_writers();
            self.inject_due()?;
            self.handle_time()?;
            if self.screen.show(self.watch)? == Audience::Gone && !self.is_quitting {
                self.handle(Notice::Quit)?;
            }
        }
        let undone = self.pending.iter().chain(self.agenda.iter());
        for fault in undone.filter(|fault| fault.kind != FaultKind::Resume) {
            let (node, kind, at_s) = (fault.node, fault.kind, fault.at.as_secs_f64());
            self.record.problems.push(format!(
                "the run ended before {node} could be {kind} ({at_s} s)"
            ));
        }
        Ok(self.record)
    }

    /// Asks the writers to end when the run is over and no EPN is left: they know no ICN.
    fn dismiss_writers(&mut self) {
        let is_over = matches!(self.stage, Stage::Ending { .. } | Stage::Killed { .. });
        let is_writer = |node: &NodeId| node.role == Role::Writer;
        if is_over && !self.are_writers_dismissed && self.farm.living_nodes().iter().all(is_writer)
        {
            self.are_writers_dismissed = true;
            self.farm.dismiss();
        }
    }

    /// How long to wait for a notice at most.
    fn patience(&self) -> Duration {
        if self.farm.has_closed() {
            return REAP;
        }
        match (self.stage, self.agenda.next_at()) {
            (Stage::Running { origin }, Some(at)) => at.saturating_sub(origin.elapsed()).min(LOOK),
            _ => LOOK,
        }
    }

    fn handle(&mut self, notice: Notice) -> anyhow::Result<()> {
        match notice {
            Notice::Line { process, line } => match *line {
                Line::Listening { listening, .. } => self.handle_listening(process, listening)?,
                Line::Status(status) => self.handle_status(*status)?,
                Line::Exit { exit } => self.farm.set_exit(process, exit),
            },
            Notice::Closed { process } => self.farm.set_closed(process),
            Notice::Quit if self.is_quitting => {
                bail!(
                    "asked to end a second time: all nodes were killed, the books are not checked"
                )
            }
            Notice::Quit => {
                self.is_quitting = true;
                self.watch.tell(self.now_s(), "asked to end");
                self.end_if_asked()?;
            }
            Notice::Stopping(Ok(detail)) => {
                self.watch.tell(self.now_s(), detail);
                self.await_end("user");
            }
            Notice::Stopping(Err(error)) => {
                let text = format!("the order to stop was not taken: {error}");
                self.watch.tell(self.now_s(), text.clone());
                self.record.problems.push(text);
                self.fail("the nodes are killed, as no ICN ends their run");
            }
        }
        Ok(())
    }

    /// When all ICNs listen for the first time all others may come.
    fn handle_listening(&mut self, process: usize, address: String) -> anyhow::Result<()> {
        let node = self.farm.lives()[process].node;
        if node.role != Role::Icn || !self.listening.insert(node) {
            return Ok(());
        }
        if self.listening.len() == usize::from(self.args.icns()) {
            if !self.args.has_lasting_icns() {
                name_icn(self.farm.file(), &address)?;
                self.farm.set_icn_address(address);
            }
            let flps = (0..self.args.flps).map(|index| FlpId(index).into());
            let epns = (0..self.args.epns).map(|index| EpnId(index).into());
            let role = Role::Writer;
            let writers = (0..self.args.writers).map(|index| NodeId { role, index });
            for node in writers.chain(flps).chain(epns) {
                self.farm.start(node)?;
            }
        }
        Ok(())
    }

    fn handle_status(&mut self, status: FarmStatus) -> anyhow::Result<()> {
        let has_announced = status.accounting.announced > 0;
        let is_ending = !matches!(status.phase.as_str(), "waiting" | "running");
        let since_first = Duration::try_from_secs_f64(status.duration_s).unwrap_or_default();
        if self.watch.add(status) == Voice::Other {
            return Ok(());
        }
        if let Stage::Starting { .. } = self.stage
            && has_announced
        {
            let now = Instant::now();
            self.stage = Stage::Running {
                origin: now.checked_sub(since_first).unwrap_or(now),
            };
        }
        if is_ending && matches!(self.stage, Stage::Starting { .. } | Stage::Running { .. }) {
            let reason = if self.is_end_ordered {
                "user"
            } else if self.is_time_over() {
                "duration"
            } else if self.args.timeframes.is_some() {
                "timeframes"
            } else {
                "source"
            };
            self.await_end(reason);
        }
        self.end_if_asked()
    }

    fn is_time_over(&self) -> bool {
        let now_s = self.watch.status().duration_s;
        self.args
            .duration
            .is_some_and(|duration| now_s >= duration.as_secs_f64())
    }

    /// Seconds since the first announce.
    fn now_s(&self) -> f64 {
        let origin = match self.stage {
            Stage::Starting { .. } => None,
            Stage::Running { origin } => Some(origin),
            Stage::Ending { origin, .. } | Stage::Killed { origin, .. } => origin,
        };
        origin.map_or(0.0, |origin| origin.elapsed().as_secs_f64())
    }

    fn origin(&self) -> Option<Instant> {
        match self.stage {
            Stage::Running { origin } => Some(origin),
            Stage::Starting { .. } | Stage::Ending { .. } | Stage::Killed { .. } => None,
        }
    }

    /// Orders the ICN to end the run: it stops the sources, drains, and dismisses the nodes. A farm that is still
    /// starting is waited for: a node that does not yet handle signals would not end in order.
    fn end_if_asked(&mut self) -> anyhow::Result<()> {
        if !self.is_quitting || self.is_end_ordered || !matches!(self.stage, Stage::Running { .. })
        {
            return Ok(());
        }
        self.is_end_ordered = true;
        match &self.ender {
            Ender::Signal => {
                self.farm.signal(NodeId::ICN, Signal::TERM);
                self.await_end("user");
            }
            Ender::Order { config, notices } => {
                let (config, notices) = (config.clone(), notices.clone());
                std::thread::Builder::new()
                    .name("order".to_owned())
                    .spawn(move || {
                        let outcome = order_stop(&config).map_err(|error| error.to_string());
                        // An error means that the receiver is gone.
                        let _ = notices.send(Notice::Stopping(outcome));
                    })
                    .context("cannot start a thread")?;
            }
        }
        Ok(())
    }

    /// Paused nodes are resumed: a farm cannot drain around them in order.
    fn await_end(&mut self, reason: &str) {
        if !matches!(self.stage, Stage::Starting { .. } | Stage::Running { .. }) {
            return;
        }
        reason.clone_into(&mut self.record.ended_by);
        for node in self.farm.living_nodes() {
            self.farm.signal(node, Signal::CONT);
        }
        // Stopping and draining may each take the drain time.
        let until = Instant::now() + 2 * self.drain + FAREWELL_MAX;
        self.stage = Stage::Ending {
            origin: self.origin(),
            until,
        };
    }

    fn handle_ended(&mut self, process: usize) -> anyhow::Result<()> {
        let life = &self.farm.lives()[process];
        let node = life.node;
        // The status of the ICN that says so may be on its way.
        let is_dismissed = life
            .exit
            .as_ref()
            .is_some_and(|exit| exit.reason == "dismissed");
        let is_ending = is_dismissed || matches!(self.stage, Stage::Ending { .. });
        let is_icn = node.role == Role::Icn;
        if life.was_killed() || (life.has_ended_in_order() && is_ending) {
            let is_last = self.farm.living_icns() == 0;
            if is_icn && is_ending && (is_last || self.watch.last_leader() == Some(node)) {
                self.latecomers_at = Some(Instant::now() + LATECOMERS);
            }
            if !life.was_killed() {
                self.watch.mark(node, Some("left"));
            }
            return Ok(());
        }
        let status = life
            .ended()
            .map_or_else(String::new, |status| status.to_string());
        let words = life.last_words();
        if matches!(self.stage, Stage::Starting { .. }) {
            bail!("{node} ended before the run began ({status}): {words}");
        }
        let text = format!("{node} ended by itself ({status}): {words}");
        self.watch.tell(self.now_s(), text.clone());
        self.record.problems.push(text);
        self.watch.mark(node, Some("failed"));
        if is_icn && self.farm.living_icns() < usize::from(self.args.icns_needed()) {
            self.fail("the other nodes are killed, as a farm without an ICN decides nothing");
        }
        Ok(())
    }

    /// Nothing more can come of this farm.
    fn fail(&mut self, why: &str) {
        self.watch.tell(self.now_s(), why);
        self.kill_rest();
        "failed".clone_into(&mut self.record.ended_by);
    }

    fn inject_due(&mut self) -> anyhow::Result<()> {
        let Some(origin) = self.origin() else {
            return Ok(());
        };
        while let Some(fault) = self.agenda.take_due(origin.elapsed()) {
            self.pending.push(fault);
        }
        for fault in std::mem::take(&mut self.pending) {
            let node = match fault.node.role {
                Role::Icn => self.icn_for(fault.kind),
                _ if self.must_wait(&fault) => None,
                _ => Some(fault.node),
            };
            match node {
                Some(node) => self.inject(node, fault.kind)?,
                None => self.pending.push(fault),
            }
        }
        Ok(())
    }

    /// A killed process that is within a system call, such as an `fsync`, ends after it: the next life comes then, and
    /// what is to be done to that life after it.
    fn must_wait(&self, fault: &Fault) -> bool {
        let comes_later = self.pending.iter().any(|waits| waits.node == fault.node);
        comes_later || (fault.kind == FaultKind::Start && self.farm.is_dying(fault.node))
    }

    /// The ICN that a fault is for: the one that leads, the one that hangs, the one that is dead. `None` as long as
    /// there is none.
    fn icn_for(&mut self, kind: FaultKind) -> Option<NodeId> {
        let first_of = |icns: &mut Vec<NodeId>| (!icns.is_empty()).then(|| icns.remove(0));
        let is_dying = |icn: &NodeId| self.farm.is_dying(*icn);
        match kind {
            FaultKind::Resume => first_of(&mut self.hanging),
            FaultKind::Start if self.dead.first().is_some_and(is_dying) => None,
            FaultKind::Start => first_of(&mut self.dead),
            FaultKind::Kill => {
                let leader = self.watch.leader()?;
                self.dead.push(leader);
                Some(leader)
            }
            FaultKind::Pause => {
                let leader = self.watch.leader()?;
                self.hanging.push(leader);
                Some(leader)
            }
        }
    }

    fn inject(&mut self, node: NodeId, kind: FaultKind) -> anyhow::Result<()> {
        let is_done = match kind {
            FaultKind::Kill => self.farm.signal(node, Signal::KILL),
            FaultKind::Pause => self.farm.signal(node, Signal::STOP),
            FaultKind::Resume => self.farm.signal(node, Signal::CONT),
            FaultKind::Start if self.farm.living_nodes().contains(&node) => false,
            FaultKind::Start => {
                self.farm
                    .start(node)
                    .with_context(|| format!("cannot start {node} again"))?;
                true
            }
        };
        let at_s = self.now_s();
        if !is_done {
            let text = format!("{node} could not be {kind}: it is {}", self.state_of(node));
            self.watch.tell(at_s, text.clone());
            self.record.problems.push(text);
            return Ok(());
        }
        self.watch.tell(at_s, format!("{node} {kind}"));
        let mark = match kind {
            FaultKind::Kill => Some("killed"),
            FaultKind::Pause => Some("paused"),
            FaultKind::Resume | FaultKind::Start => None,
        };
        self.watch.mark(node, mark);
        self.record.faults.push(FaultDone {
            at_s,
            node: node.to_string(),
            kind,
        });
        Ok(())
    }

    fn state_of(&self, node: NodeId) -> &'static str {
        if self.farm.living_nodes().contains(&node) {
            "running"
        } else {
            "dead"
        }
    }

    /// Looks whether something takes too long.
    fn handle_time(&mut self) -> anyhow::Result<()> {
        match self.stage {
            Stage::Starting { since } if since.elapsed() > START_MAX => {
                let status = self.watch.status();
                bail!(
                    "the run has not begun after {} s: {} of {} FLPs and {} of {} EPNs have joined",
                    START_MAX.as_secs(),
                    status.flps.len(),
                    self.args.flps,
                    status.epns.len(),
                    self.args.epns
                )
            }
            Stage::Ending { until, .. } if Instant::now() > until => {
                let rest = names(&self.farm.living_nodes());
                let text = format!("{rest} did not end in time and had to be killed");
                self.watch.tell(self.now_s(), text.clone());
                self.record.problems.push(text);
                self.kill_rest();
            }
            Stage::Ending { .. } if self.latecomers_at.is_some_and(|at| Instant::now() > at) => {
                self.latecomers_at = None;
                let late = self.farm.dismiss();
                if !late.is_empty() {
                    let text = format!("the run ended without {}", names(&late));
                    self.watch.tell(self.now_s(), text);
                }
            }
            Stage::Killed { until, .. } if Instant::now() > until => {
                bail!(
                    "killed nodes do not end: {}",
                    names(&self.farm.living_nodes())
                )
            }
            _ => {}
        }
        Ok(())
    }

    fn kill_rest(&mut self) {
        for node in self.farm.living_nodes() {
            self.farm.signal(node, Signal::KILL);
        }
        let origin = match self.stage {
            Stage::Ending { origin, .. } | Stage::Killed { origin, .. } => origin,
            Stage::Starting { .. } | Stage::Running { .. } => self.origin(),
        };
        self.stage = Stage::Killed {
            origin,
            until: Instant::now() + KILL_MAX,
        };
    }
}

/// Orders the ICN that leads to end the run. Gives its words.
fn order_stop(config: &FarmConfig) -> Result<String, OperatorError> {
    let answer = Operator::new(config, 0)?.order(Order::Stop, ORDER_MAX)?;
    Ok(answer.detail)
}

fn names(nodes: &[NodeId]) -> String {
    let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    names.join(", ")
}
