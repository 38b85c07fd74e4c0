//! One farm on a memory network: lets time pass, turns its nodes, injects the planned faults, and has everything
//! watched.

mod consumer;
mod forget;
mod inject;
mod lives;
mod make;
mod outside;
mod pieces;
mod planned;
mod recorder;
mod refusal;
mod replay;
mod seat;
mod steady;
mod store;

use crate::invariant::{Invariant, Violation};
use crate::options::{Fault, Log, Options};
use crate::quiet;
use crate::trace::{Line, Trace};
use crate::watch::{Accounting, Found, Watch, found};
use bytes::Bytes;
use lives::Lives;
use planned::PlannedStep;
use replay::Stranger;
use seat::{Node, Seat};
use sheaf_node::event::Event;
use sheaf_node::flp::Turn;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role, Timestamp};
use sheaf_transport::memory::{Death, EndpointId, Network, Settings, Totals};
use sheaf_zookeeper::keeper::model::Model;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// How long a farm may take to come to rest after it was asked to stop. It is far beyond all deadlines, so a farm that
/// needs it is stuck.
const REST_WITHIN: Duration = Duration::from_secs(20);
/// How long a connection is tried: a kernel has repeated its first packet once by then.
const CONNECT_LIMIT: Duration = Duration::from_millis(500);
/// Turns of the ICN between two checks of its accounting.
const BOOKS_EVERY: u64 = 32;

/// Outcome of a farm.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The recomputed accounting.
    pub accounting: Accounting,
    /// Samples of monitoring by fate, copies of the network included; or records of a writer.
    pub fates: BTreeMap<&'static str, u64>,
    /// Faults of nodes, disks, clocks and links that happened.
    pub state_faults: u64,
    /// Frames lost, doubled, overtaken, damaged or reset.
    pub message_faults: u64,
    /// Virtual time that the farm took.
    pub simulated: Duration,
    /// Hash of everything that happened, in order.
    pub trace_hash: u64,
}

/// One farm in torture.
pub struct TortureFarm<'a> {
    options: &'a Options,
    network: Network,
    seats: Vec<Seat>,
    /// Seat of each endpoint.
    endpoints: Vec<usize>,
    steps: BinaryHeap<Reverse<(Timestamp, u64)>>,
    step_of: Vec<Option<PlannedStep>>,
    lives: Lives,
    /// Incarnations of clocks that were set back, the lowest of each node.
    lowest: BTreeMap<NodeId, u64>,
    strangers: Vec<Stranger>,
    strangers_made: u64,
    is_calm: bool,
    is_stopping: bool,
    /// Whether an ICN has ended in order: it does so when the run is over.
    is_run_over: bool,
    is_settled: bool,
    storms: u32,
    /// The registry outside the farm, and how many outages it is in.
    zookeeper: Option<Model>,
    outages: u32,
    state_faults: u64,
    icn_turns: u64,
    watch: Watch<'a>,
    trace: Trace,
    pool: Bytes,
}

impl<'a> TortureFarm<'a> {
    /// Returns the farm of `options`, with no process started yet.
    #[must_use]
    pub fn new(options: &'a Options) -> Self {
        Self::with_trace(options, Trace::default())
    }

    /// Returns the same; `trace` decides whether events are written down.
    #[must_use]
    pub fn with_trace(options: &'a Options, trace: Trace) -> Self {
        let settings = Settings {
            connect_limit: CONNECT_LIMIT,
            ..Settings::default()
        };
        let mut farm = Self {
            options,
            network: Network::with_settings(options.seed, options.network, settings),
            seats: Vec::new(),
            endpoints: Vec::new(),
            steps: BinaryHeap::new(),
            step_of: Vec::new(),
            lives: Lives::new(options.kind),
            lowest: BTreeMap::new(),
            strangers: Vec::new(),
            strangers_made: 0,
            is_calm: false,
            is_stopping: false,
            is_run_over: false,
            is_settled: false,
            storms: 0,
            zookeeper: outside::model(options),
            outages: 0,
            state_faults: 0,
            icn_turns: 0,
            watch: Watch::new(options),
            trace,
            pool: pieces::pool(options.seed),
        };
        let icns = (0..options.log.icns()).map(|index| NodeId {
            role: Role::Icn,
            index,
        });
        let flps = (0..options.flps).map(|flp| NodeId::from(FlpId(flp)));
        let epns = (0..options.epns).map(|epn| NodeId::from(EpnId(epn)));
        for node in icns.chain(flps).chain(epns) {
            farm.seats.push(Seat::new(node, options, &farm.network));
        }
        farm.seats.extend(lives::twins(options, &farm.network));
        for (at, fault) in &options.faults {
            farm.plan(Timestamp(0) + *at, PlannedStep::Inject(fault.clone()));
        }
        farm.plan(Timestamp(0) + options.calm_at, PlannedStep::Calm);
        farm.plan(
            Timestamp(0) + options.calm_at + options.settle,
            PlannedStep::Settled,
        );
        farm.plan(Timestamp(0) + options.stop_at, PlannedStep::Stop);
        farm
    }

    /// Runs the farm to its end.
    ///
    /// # Errors
    ///
    /// The first [`Violation`].
    pub fn run(self) -> Result<Outcome, Violation> {
        self.run_traced().0
    }

    /// Runs the farm to its end, and returns the trace.
    pub fn run_traced(mut self) -> (Result<Outcome, Violation>, Trace) {
        let outcome = quiet::catch(|| self.live());
        let outcome = outcome.unwrap_or_else(|text| {
            found(Invariant::NoPanic, None, format!("a node panicked: {text}"))
        });
        let at = self.network.now();
        let trace = std::mem::take(&mut self.trace);
        let outcome = outcome.map(|()| self.outcome()).map_err(|found| Violation {
            invariant: found.invariant,
            tf: found.tf,
            at,
            detail: found.detail,
        });
        (outcome, trace)
    }

    fn outcome(&mut self) -> Outcome {
        let totals = self.network.totals();
        self.watch.hash.add(totals.sent ^ (totals.delivered << 32));
        Outcome {
            accounting: self.watch.accounting(),
            fates: BTreeMap::new(),
            state_faults: self.state_faults,
            message_faults: message_faults(&totals),
            simulated: self.network.now().since(Timestamp(0)),
            trace_hash: self.watch.hash.value(),
        }
    }

    fn live(&mut self) -> Result<(), Found> {
        // Any order of starting is right; the seed picks one.
        let count = self.seats.len();
        for turn in 0..count {
            let index = (turn + self.options.seed as usize) % count;
            if !self.seats[index].is_twin {
                self.start(index)?;
            }
        }
        let end = Timestamp(0) + self.options.stop_at + REST_WITHIN;
        let mut news = Vec::new();
        loop {
            let now = self.network.now();
            self.take_steps(now)?;
            self.turn_strangers();
            self.network.news(&mut news);
            let wake = self.turn_all(now, &news)?;
            if self.is_stopping && self.seats.iter().all(|seat| seat.process.is_none()) {
                return self.check_end();
            }
            if now >= end {
                return self.stuck();
            }
            let step = self.steps.peek().map(|Reverse((at, _))| *at);
            let next = [Some(wake), self.network.next_due(), step]
                .into_iter()
                .flatten()
                .min();
            let next = next.unwrap_or(end).max(Timestamp(now.0 + 1));
            self.network.advance_to(next.min(end));
        }
    }

    /// Asks all that do not lead to leave when the run is over.
    fn send_home(&mut self, now: Timestamp) {
        let leads = |seat: &Seat| matches!(&seat.process, Some(Node::Icn(icn)) if icn.leads());
        for index in 0..self.seats.len() {
            if !leads(&self.seats[index]) {
                self.ask_to_leave(now, index);
            }
        }
    }

    fn stuck(&self) -> Result<(), Found> {
        let left: Vec<&str> = self
            .seats
            .iter()
            .filter(|seat| seat.process.is_some())
            .map(|seat| seat.name.as_str())
            .collect();
        found(
            Invariant::Clean,
            None,
            format!(
                "the farm does not come to rest {REST_WITHIN:?} after it was asked to stop; left are {left:?}"
            ),
        )
    }

    fn check_end(&self) -> Result<(), Found> {
        let open = self.network.open_connections();
        if open > 0 {
            return found(
                Invariant::Clean,
                None,
                format!("{open} connections are open when all nodes have ended"),
            );
        }
        let ended_in_order = |node: NodeId, life: u64| {
            self.seats
                .iter()
                .any(|seat| seat.node == node && seat.left_in_order == Some(life))
        };
        self.watch.check_end(ended_in_order)
    }

    /// Turns every process that has something to do; returns when the next one has.
    fn turn_all(&mut self, now: Timestamp, news: &[EndpointId]) -> Result<Timestamp, Found> {
        for id in news {
            let seat = &mut self.seats[self.endpoints[id.index()]];
            if seat.endpoint == Some(*id) {
                seat.has_news = true;
            }
        }
        let mut next = Timestamp(u64::MAX);
        for index in 0..self.seats.len() {
            let seat = &mut self.seats[index];
            if seat.process.is_none() || seat.is_frozen {
                // A process that is stopped is in no run queue.
                seat.ready_since = None;
                continue;
            }
            let ready_at = if seat.has_news { now } else { seat.wake_at };
            let due = ready_at.max(seat.not_before);
            if due > now && ready_at <= now {
                seat.ready_since.get_or_insert(ready_at);
            }
            if due > now {
                next = next.min(due);
                continue;
            }
            seat.has_news = false;
            let turn = self.turn(now, index)?;
            let seat = &mut self.seats[index];
            match turn {
                Turn::WaitUntil(at) => {
                    seat.wake_at = at;
                    next = next.min(at.max(seat.not_before));
                }
                Turn::Done if self.seats[index].refused.is_some() => {
                    self.end_refused(now, index)?;
                }
                Turn::Done => self.end_in_order(now, index)?,
            }
            self.die_between_frames(now, index);
        }
        Ok(next)
    }

    /// Turns one process, and checks everything that can be checked at once.
    fn turn(&mut self, now: Timestamp, index: usize) -> Result<Turn, Found> {
        let (node, is_twin) = (self.seats[index].node, self.seats[index].is_twin);
        if is_twin {
            self.watch.swap_twin(node);
        }
        let turn = self.turn_one(now, index);
        if is_twin {
            self.watch.swap_twin(node);
        }
        turn
    }

    fn turn_one(&mut self, now: Timestamp, index: usize) -> Result<Turn, Found> {
        let seat = &mut self.seats[index];
        let turn = seat.turn(now, self.is_stopping, &mut self.trace)?;
        self.read_logs(now, index)?;
        let seat = &mut self.seats[index];
        seat.check_bounds(self.options)?;
        match &seat.process {
            Some(Node::Flp(flp)) => {
                let held = flp.brain().held_stfs();
                if held < seat.held_stfs && !self.options.sends_and_forgets {
                    for tf in self.watch.undecided_of(seat.node) {
                        if !flp.brain().holds(sheaf_protocol::TfId(tf)) {
                            let detail = format!(
                                "{} let its STF of TF {tf} go, which has no verdict, or no consumer",
                                seat.name
                            );
                            return found(Invariant::Held, tf, detail);
                        }
                    }
                }
                seat.held_stfs = held;
            }
            Some(Node::Icn(_)) => {
                self.icn_turns += 1;
                if self.icn_turns.is_multiple_of(BOOKS_EVERY) {
                    self.check_accounting(index, false)?;
                }
            }
            _ => {}
        }
        Ok(turn)
    }

    fn check_accounting(&self, index: usize, is_last: bool) -> Result<(), Found> {
        let seat = &self.seats[index];
        let Some(Node::Icn(icn)) = &seat.process else {
            return Ok(());
        };
        let Some(brain) = icn.scheduler() else {
            return Ok(());
        };
        let Some(counted) = self.watch.accounting_of(seat.node, brain.run()) else {
            return Ok(());
        };
        let (said, open) = (brain.accounting(), brain.in_flight());
        // A decision that is not durable yet is in no event log. An ICN that was deposed and does not know it knows
        // less than its successor.
        let is_current = self.watch.is_latest_leader(seat.node);
        let may_be_ahead = self.options.log != Log::Memory && !is_last;
        // An amendment that is not durable yet has moved a TF from those built to those dropped.
        let sums = [
            (said.decided(), counted.decided),
            (said.dropped_total(), counted.dropped),
            (said.abandoned, counted.abandoned),
            (said.redelivered, counted.redelivered),
        ];
        let kinds = [
            (said.complete, counted.complete),
            (said.incomplete, counted.incomplete),
        ];
        let is_equal = |pairs: &[(u64, u64)]| pairs.iter().all(|(said, counted)| said == counted);
        let is_ahead = may_be_ahead && sums.iter().all(|(said, counted)| said >= counted);
        let same = is_ahead || is_equal(&sums) && is_equal(&kinds);
        if (same || !is_current) && said.balance(open) {
            return Ok(());
        }
        found(
            Invariant::Books,
            None,
            format!("the ICN counts {said:?} and {open} in flight, what happened is {counted:?}"),
        )
    }

    /// Takes the new lines of a process and the TFs delivered to its consumer.
    fn read_logs(&mut self, now: Timestamp, index: usize) -> Result<(), Found> {
        let seat = &mut self.seats[index];
        for taken in seat.take_taken() {
            let node = seat.node;
            self.trace.add(|| {
                Line::new(
                    now,
                    &seat.name,
                    vec![taken.tf.0],
                    format!("consumer takes {taken:?}"),
                )
            });
            self.watch.handle_taken(node, &taken)?;
        }
        let mut events = std::mem::take(&mut seat.events);
        seat.take_events(&mut events);
        // A heartbeat that finds no FLP is called and dropped in one turn, and the verdict may be written first.
        for event in &events {
            if let Event::Called { tf } = event {
                self.watch.call_early(now, seat.node, *tf)?;
            }
        }
        seat.forget_sent(now, &events);
        for event in events.drain(..) {
            self.trace
                .add(|| Line::new(now, &seat.name, tfs_of(&event), format!("{event:?}")));
            self.watch.handle(now, seat.node, &event)?;
        }
        seat.events = events;
        if self.options.network.corrupt > 0.0 {
            for head in self.network.take_corrupted() {
                self.watch.injected.add_corrupted(&head);
            }
        }
        Ok(())
    }

    /// Notes that a process has ended in order: dismissed, or the run is over.
    fn end_in_order(&mut self, now: Timestamp, index: usize) -> Result<(), Found> {
        let seat = &mut self.seats[index];
        if seat.node.role == Role::Icn {
            self.check_accounting(index, true)?;
        }
        let seat = &mut self.seats[index];
        seat.left_in_order = Some(seat.life);
        self.trace
            .add(|| Line::new(now, &seat.name, vec![], "ends".to_owned()));
        let name = seat.name.clone();
        let here = seat.here(now);
        if let Some(process) = &mut seat.process {
            process.deregister(here);
        }
        seat.process = None;
        self.end_sessions(now, index);
        self.network.kill(&name, Death::Seen);
        let is_icn = |seat: &Seat| seat.node.role == Role::Icn;
        if is_icn(&self.seats[index]) {
            // The run is over, by itself or by request.
            self.is_run_over = true;
            self.is_stopping = true;
        }
        if self.is_run_over {
            self.send_home(now);
        } else if !self.is_stopping {
            self.plan(now + Duration::from_millis(20), PlannedStep::Start(index));
        }
        Ok(())
    }

    fn plan(&mut self, at: Timestamp, step: PlannedStep) {
        self.steps.push(Reverse((at, self.step_of.len() as u64)));
        self.step_of.push(Some(step));
    }

    fn fault_line(&mut self, now: Timestamp, text: impl FnOnce() -> String) {
        self.trace.add(|| Line::new(now, "farm", vec![], text()));
    }

    fn seat_of(&self, node: NodeId) -> usize {
        self.seats
            .iter()
            .position(|seat| seat.node == node)
            .expect("faults name nodes of the farm")
    }

    fn count_fault(&mut self, now: Timestamp, fault: &Fault) {
        self.state_faults += 1;
        self.watch.injected.add(fault);
        self.watch.hash.add(now.0 ^ 0xfa17);
    }
}

impl std::fmt::Debug for TortureFarm<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TortureFarm")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn message_faults(totals: &Totals) -> u64 {
    totals.vanished + totals.duplicated + totals.reordered + totals.resets + totals.corrupted
}

/// Returns the TFs that an event is about.
fn tfs_of(event: &Event) -> Vec<u64> {
    match event {
        Event::Made { tf, .. }
        | Event::Skipped { tf, .. }
        | Event::Sent { tf, .. }
        | Event::Delivered { tf, .. }
        | Event::Freed { tf }
        | Event::Fault { tf, .. }
        | Event::Called { tf }
        | Event::Verdict { tf, .. }
        | Event::Recovered { tf, .. }
        | Event::Abandoned { tf } => vec![*tf],
        _ => Vec::new(),
    }
}
