//! Farm in virtual time: the shipped scheduler, members, holds and builders, with modelled wires between them.
//!
//! No decision of a node is modelled: [`Scheduler`], [`Members`], [`Flp`] and [`TfBuilder`] are those that `sheaf-node`
//! drives, with the same calls. The carriers of messages and bytes are modelled: a message takes the control delay, an
//! STF is a flow of the [`Network`], a TF occupies its consumer for a drawn time. Payloads have a length and no bytes.
//! Messages that are sent in one moment travel as one event, and so do broadcasts, which keeps the events at about two
//! an STF.

mod fate;
mod fault;
mod icn;
mod node;
mod wire;

use super::draw::{SizeDraw, Stream as Chance, TimeDraw, chance, drawn_faults};
use super::network::{Network, Seen, Sight};
use super::oracle::Oracle;
use super::queue::{MS, Nanos, Queue, Shelf, seconds};
use super::record::Records;
use super::stale::Stale;
use super::tally::{Run, TraceHash};
use crate::scenario::{AckLevel, Control as Way, FaultKind, ORACLE, Push, Scenario, SizeModel};
use crate::systems;
use bytes::Bytes;
use fate::Fates;
use node::{EpnNode, FlpNode};
use rand::RngExt;
use sheaf_membership::Members;
use sheaf_placement::{Policy, policy};
use sheaf_protocol::control::{EpnAddress, Hello, Release};
use sheaf_protocol::{
    Control, EpnId, FlpId, Incarnation, NodeId, RunId, Source, StfHeader, Target, TfId, Timestamp,
};
use sheaf_scheduler::{Delivery, Incomplete, Mode, Recipient, RunPlan, Scheduler, SchedulerConfig};
use sheaf_stf_builder::flp::{Flp, FlpConfig, Pace, WhenFull};
use sheaf_tf_builder::{BuildConfig, TfBuilder};
use std::collections::BTreeMap;
use wire::Stream;

/// Returns the policy of a run: `own` if there is one, or a registered one, that with foresight, or the rule of a prior
/// system.
fn policy_of(
    scenario: &Scenario,
    seed: u64,
    epns: u32,
    own: Option<Box<dyn Policy>>,
) -> Box<dyn Policy> {
    let name = &scenario.policy;
    let of_scenario = || -> Box<dyn Policy> {
        match systems::named(name) {
            _ if name == ORACLE => Box::new(Oracle::new(scenario, seed, epns)),
            Some(system) => system.policy(seed),
            None => policy::by_name(name, seed).expect("the name was checked"),
        }
    };
    let policy = own.unwrap_or_else(of_scenario);
    match scenario.farm.report_ms {
        0 => policy,
        period => Box::new(Stale::new(policy, period * MS)),
    }
}

/// After the end of generation and the drain, a run that is not over is broken off.
const PATIENCE_S: f64 = 10.0;

/// Event of the simulation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// STFs are due at FLPs.
    Make,
    /// The heartbeat of the ICN is due.
    Pace,
    /// Messages arrive at the ICN.
    ToIcn(u32),
    /// The ICN acts on what has arrived.
    IcnTurn,
    /// Messages arrive at nodes.
    FromIcn(u32),
    /// EPNs learn which STFs they can fetch.
    Offers(u32),
    /// First bytes of streams arrive at the network.
    Starts(u32),
    /// A flow may be done, or a port change its rate.
    Network(Sight),
    /// Streams are open, or are refused.
    Links(u32),
    /// FLPs find streams closed.
    Closed(u32),
    /// EPNs find streams closed.
    SourceClosed(u32),
    /// A consumer is done with a TF.
    Processed {
        epn: u16,
        life: u16,
        tf: TfId,
        bytes: u64,
    },
    /// Nodes look at their deadlines.
    Tick,
    /// Nodes send their pulses.
    Pulse,
    /// TCP gives up a stream on a dead path.
    GiveUp(u32),
    /// A fault of the scenario begins.
    Fault(u16),
    /// A fault of the scenario ends.
    FaultEnd(u16),
}

impl Event {
    /// Returns the kind of the event and its subject, for the trace.
    fn words(self) -> (u8, u64) {
        match self {
            Self::Make => (1, 0),
            Self::Pace => (2, 0),
            Self::ToIcn(_) => (3, 0),
            Self::IcnTurn => (4, 0),
            Self::FromIcn(_) => (5, 0),
            Self::Offers(_) => (6, 0),
            Self::Starts(_) => (7, 0),
            Self::Network(sight) => (8, sight.word()),
            Self::Links(_) => (9, 0),
            Self::Closed(_) => (10, 0),
            Self::SourceClosed(_) => (11, 0),
            Self::Processed { epn, bytes, .. } => (12, u64::from(epn) << 48 ^ bytes),
            Self::Tick => (13, 0),
            Self::Pulse => (14, 0),
            Self::Fault(index) => (15, u64::from(index)),
            Self::FaultEnd(index) => (16, u64::from(index)),
            Self::GiveUp(_) => (17, 0),
        }
    }
}

/// Message of a node to the ICN.
#[derive(Debug)]
enum Word {
    Hello(Hello),
    Control(Control),
    /// The stream of the node is closed.
    Closed,
}

/// A message with its sender, and the life of that.
#[derive(Debug)]
struct Said {
    node: NodeId,
    incarnation: Incarnation,
    word: Word,
}

/// A farm in simulation.
pub(super) struct DesFarm {
    scenario: Scenario,
    queue: Queue<Event>,
    network: Network,
    hash: TraceHash,
    fates: Fates,
    records: Records,
    run: Run,
    sizes: SizeDraw,
    times: TimeDraw,
    /// As long as the longest STF; never read, so that the system gives it no memory.
    void: Bytes,
    run_id: RunId,
    scheduler: Scheduler,
    members: Members,
    hellos: BTreeMap<NodeId, Hello>,
    inbox: Vec<Said>,
    is_turn_due: bool,
    /// Addresses of EPNs that all FLPs were sent last.
    epns_said: Vec<EpnAddress>,
    /// The newest release that has come to FLPs and to EPNs: one is a state, so each node takes the newest when it
    /// does something next.
    flp_release: Release,
    epn_release: Release,
    flps: Vec<FlpNode>,
    epns: Vec<EpnNode>,
    /// Streams by FLP and EPN.
    streams: Vec<Stream>,
    make_at: Nanos,
    /// When the processors of the machine that all nodes share have done what was begun.
    machine_free_at: Nanos,
    pace_at: Nanos,
    joined: u32,
    // Gathered during one event, sent at its end.
    saying: Vec<Said>,
    telling: Vec<(Recipient, Control)>,
    starting: [Vec<(u16, u16)>; 2],
    offering: Vec<(u16, u16, StfHeader)>,
    connecting: Vec<(u16, Target)>,
    touched_flps: Vec<u32>,
    touched_epns: Vec<u32>,
    // On the way.
    said: Shelf<Vec<Said>>,
    told: Shelf<Vec<(Recipient, Control)>>,
    starts: Shelf<Vec<(u16, u16)>>,
    offers: Shelf<Vec<(u16, u16, StfHeader)>>,
    links: Shelf<Vec<(u16, Target)>>,
    closings: Shelf<Vec<(u16, Source)>>,
    given_up: Shelf<(u16, Target)>,
}

impl DesFarm {
    /// Returns a farm before its first event. The scenario has been checked.
    pub(super) fn new(scenario: &Scenario, seed: u64, policy: Option<Box<dyn Policy>>) -> Self {
        let joins = scenario
            .faults
            .iter()
            .filter(|fault| fault.kind == FaultKind::Join);
        let epns_in_all = scenario.epns + joins.count() as u32;
        let sizes = SizeDraw::new(scenario, seed);
        let bytes_max = |flp| sizes.bytes_max(flp);
        let longest = (0..scenario.flps).map(bytes_max).max().unwrap_or(1);
        let tf_bytes_max: u64 = (0..scenario.flps).map(bytes_max).sum();
        let farm = &scenario.farm;
        let config = SchedulerConfig {
            policy: scenario.policy.clone(),
            seed,
            reaction: scenario.reaction,
            mode: if farm.paced {
                Mode::Paced
            } else {
                Mode::DataDriven
            },
            paced_rate_hz: scenario.rate_hz,
            incomplete: Incomplete::Never,
            announce_deadline_ms: farm.announce_deadline_ms,
            tf_deadline_ms: farm.tf_deadline_ms,
            unreachable_timeout_ms: farm.stf_timeout_ms,
            repeat_ms: farm.repeat_ms,
            drain_ms: farm.drain_ms,
            stf_bytes_max: longest,
            tf_bytes_max,
            delivery: match scenario.ack {
                AckLevel::Built => Delivery::AtMostOnce,
                AckLevel::Processed => Delivery::AtLeastOnce,
            },
            queue_tfs_max: systems::named(&scenario.policy)
                .map_or(farm.queue_tfs_max, |_| systems::QUEUE_TFS_MAX),
            ..SchedulerConfig::default()
        };
        let plan = RunPlan {
            flps: scenario.flps,
            epns: scenario.epns,
            timeframes: Some(scenario.timeframes()),
            ..RunPlan::default()
        };
        let run_id = RunId(seed);
        let policy = policy_of(scenario, seed, epns_in_all, policy);
        let scheduler = Scheduler::with_policy(config, plan, run_id, policy);
        let mut flps = Vec::new();
        for flp in 0..scenario.flps {
            let source = Source {
                flp: FlpId(flp as u16),
                incarnation: Incarnation(1),
            };
            flps.push(FlpNode::new(
                flp_brain(scenario, source, bytes_max(flp)),
                source,
            ));
        }
        let mut epns = Vec::new();
        for epn in 0..epns_in_all {
            let target = Target {
                epn: EpnId(epn as u16),
                incarnation: Incarnation(1),
            };
            let speed = scenario.group_of(epn).map_or(1.0, |group| group.speed);
            epns.push(EpnNode::new(epn_brain(scenario), target, speed));
        }
        let streams = (0..scenario.flps * epns_in_all)
            .map(|_| Stream::default())
            .collect();
        Self {
            queue: Queue::new(),
            network: Network::new(scenario, epns_in_all),
            hash: TraceHash::new(),
            fates: Fates::new(scenario.timeframes()),
            records: Records::default(),
            run: Run {
                seed,
                ..Run::default()
            },
            times: TimeDraw::of(scenario, seed),
            void: Bytes::from(vec![0; longest as usize]),
            run_id,
            scheduler,
            members: Members::new(scenario.registry),
            hellos: BTreeMap::new(),
            inbox: Vec::new(),
            is_turn_due: false,
            epns_said: Vec::new(),
            flp_release: Release::default(),
            epn_release: Release::default(),
            flps,
            epns,
            streams,
            make_at: Nanos::MAX,
            machine_free_at: 0,
            pace_at: Nanos::MAX,
            joined: 0,
            saying: Vec::new(),
            telling: Vec::new(),
            starting: [Vec::new(), Vec::new()],
            offering: Vec::new(),
            connecting: Vec::new(),
            touched_flps: Vec::new(),
            touched_epns: Vec::new(),
            said: Shelf::new(),
            told: Shelf::new(),
            starts: Shelf::new(),
            offers: Shelf::new(),
            links: Shelf::new(),
            closings: Shelf::new(),
            given_up: Shelf::new(),
            sizes,
            scenario: scenario.clone(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.queue.now())
    }

    /// Runs all events. `progress` is called now and then with the time in ns, and may end the run.
    pub(super) fn run(mut self, mut progress: impl FnMut(Nanos) -> bool) -> Run {
        self.begin();
        let patience = self.scenario.farm.drain_ms as f64 / 1000.0 + PATIENCE_S;
        let last = seconds(self.scenario.duration_s + patience);
        while let Some(event) = self.queue.pop() {
            let now = self.queue.now();
            if now > last || self.scheduler.is_over() {
                break;
            }
            let (kind, what) = event.words();
            self.hash.add(now, kind, what);
            self.handle(event);
            self.send_off();
            if self.queue.popped().is_multiple_of(4096) && !progress(now) {
                break;
            }
        }
        self.end()
    }

    fn begin(&mut self) {
        for flp in 0..self.scenario.flps {
            self.send_hello_flp(flp);
        }
        for epn in 0..self.scenario.epns {
            self.send_hello_epn(epn);
        }
        self.joined = self.scenario.epns;
        self.queue.push(0, Event::Pulse);
        self.queue
            .push(self.scenario.farm.tick_ms * MS, Event::Tick);
        for (index, fault) in drawn_faults(&self.scenario, self.run.seed)
            .iter()
            .enumerate()
        {
            self.queue
                .push(seconds(fault.at_s), Event::Fault(index as u16));
        }
        self.draw_stalls();
        self.send_off();
    }

    /// Draws streams that stop once at the beginning of the run.
    fn draw_stalls(&mut self) {
        let stalls = self.scenario.legacy.start_stalls;
        if stalls.probability <= 0.0 {
            return;
        }
        let mut chance = chance(self.run.seed, Chance::Stalls);
        for stream in &mut self.streams {
            let (is_hit, part): (f64, f64) = (chance.random(), chance.random());
            if is_hit < stalls.probability {
                let at = seconds(part * stalls.within_s);
                stream.stall = Some((at, at + stalls.ms * MS));
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Make => self.make_all(),
            Event::Pace => {
                self.pace_at = Nanos::MAX;
                self.scheduler.handle_tick(self.now());
                self.drain_scheduler();
            }
            Event::ToIcn(at) => self.hear(at),
            Event::IcnTurn => {
                self.is_turn_due = false;
                self.icn_turn();
            }
            Event::FromIcn(at) => self.arrive_words(at),
            Event::Offers(at) => self.take_offers(at),
            Event::Starts(at) => self.start_streams(at),
            Event::Network(sight) => {
                if let Seen::Done { tag } = self.network.look(self.queue.now(), sight) {
                    self.arrive(tag);
                }
            }
            Event::Links(at) => self.open_links(at),
            Event::Closed(at) => self.close_links(at),
            Event::SourceClosed(at) => self.close_sources(at),
            Event::Processed {
                epn,
                life,
                tf,
                bytes,
            } => self.processed(epn, life, tf, bytes),
            Event::Tick => self.tick(),
            Event::Pulse => self.pulse(),
            Event::GiveUp(at) => self.give_up(at),
            Event::Fault(index) => self.begin_fault(index),
            Event::FaultEnd(index) => self.end_fault(index),
        }
    }

    /// Sends everything that has been gathered during one event.
    fn send_off(&mut self) {
        let now = self.queue.now();
        let control = now + self.scenario.network.control_delay_us * 1000;
        if !self.saying.is_empty() {
            let said = std::mem::take(&mut self.saying);
            self.charge_from_nodes(&said);
            let at = self.said.put(said);
            self.queue.push(control, Event::ToIcn(at));
        }
        if !self.telling.is_empty() {
            let told = std::mem::take(&mut self.telling);
            self.charge_from_icn(&told);
            let at = self.told.put(told);
            self.queue.push(control, Event::FromIcn(at));
        }
        self.send_off_streams();
        for look in self.network.take_looks() {
            if look.at != Nanos::MAX {
                self.queue.push(look.at, Event::Network(look.sight));
            }
        }
        if let Some(due) = self.scheduler.next_pace_at()
            && due.0 < self.pace_at
        {
            self.pace_at = due.0;
            self.queue.push(due.0, Event::Pace);
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        for event in self.members.handle_tick(now) {
            self.apply_member(event);
        }
        self.scheduler.handle_tick(now);
        self.drain_scheduler();
        for flp in 0..self.flps.len() as u32 {
            if self.flps[flp as usize].is_acting() {
                self.take_flp_release(flp);
                self.flps[flp as usize].brain.handle_tick(now);
                self.act_flp(flp);
            }
        }
        for epn in 0..self.epns.len() as u32 {
            if self.epns[epn as usize].is_acting() {
                self.take_epn_release(epn);
                self.epns[epn as usize].brain.handle_tick(now);
                self.act_epn(epn);
            }
        }
        let next = self.queue.now() + self.scenario.farm.tick_ms * MS;
        self.queue.push(next, Event::Tick);
    }

    fn pulse(&mut self) {
        let now = self.now();
        for flp in 0..self.flps.len() as u32 {
            if self.flps[flp as usize].is_acting() {
                self.take_flp_release(flp);
                let pulse = self.flps[flp as usize].brain.pulse(now);
                self.send_from_flp(flp, Word::Control(Control::FlpPulse(pulse)));
            }
        }
        for epn in 0..self.epns.len() as u32 {
            if self.epns[epn as usize].is_acting() {
                self.take_epn_release(epn);
                let node = &self.epns[epn as usize];
                let pulse = node.brain.pulse(node.received_bytes);
                self.send_from_epn(epn, Word::Control(Control::EpnPulse(pulse)));
            }
        }
        let next = self.queue.now() + self.scenario.registry.pulse_ms * MS;
        self.queue.push(next, Event::Pulse);
    }

    /// Lets consumers finish what they have when the run is over, so that no wait is cut short. That is no part of the
    /// trace.
    fn finish_processing(&mut self) {
        while let Some(event) = self.queue.pop() {
            if matches!(event, Event::Processed { .. }) {
                self.handle(event);
            }
        }
    }

    fn end(mut self) -> Run {
        let accounting = self.scheduler.accounting().clone();
        let mut run = std::mem::take(&mut self.run);
        run.events = self.queue.popped();
        run.simulated_ns = self.queue.now();
        run.trace_hash = self.hash.value();
        self.finish_processing();
        let warm_up = seconds(self.scenario.warm_up_s());
        run.set_records(self.records.settle(), warm_up, self.queue.now());
        run.timeouts = self.network.timeouts();
        run.reassigned = accounting.reassigned;
        run.tfs_by_epn = self
            .epns
            .iter()
            .map(|epn| (epn.delivered, epn.speed))
            .collect();
        self.fates
            .settle(&accounting, self.scheduler.in_flight(), &mut run);
        run
    }

    /// Returns a payload of `bytes`. Memory does not depend on the sizes: an STF is a part of the void.
    fn payload(&self, bytes: u64) -> Bytes {
        debug_assert!(
            bytes <= self.void.len() as u64 || self.scenario.size.model == SizeModel::Tpc
        );
        self.void.slice(..(bytes as usize).min(self.void.len()))
    }

    fn is_granted(&self) -> bool {
        self.scenario.push == Push::Granted
    }

    fn is_primary(&self) -> bool {
        self.scenario.network.control == Way::Primary
    }
}

fn flp_brain(scenario: &Scenario, source: Source, bytes_max: u64) -> Flp {
    let config = FlpConfig {
        pace: if scenario.farm.paced {
            Pace::Icn
        } else {
            Pace::RateHz(scenario.rate_hz)
        },
        when_full: WhenFull::DropNewest,
        hold_bytes: scenario.hold_bytes,
        hold_stfs_max: 1 << 20,
        repeat_ms: scenario.farm.repeat_ms,
        ..FlpConfig::default()
    };
    Flp::new(config, source, bytes_max)
}

fn epn_brain(scenario: &Scenario) -> TfBuilder<()> {
    TfBuilder::new(BuildConfig {
        capacity_bytes: scenario.farm.capacity_bytes,
        tfs_in_building_max: scenario.farm.tfs_in_building_max,
        stf_timeout_ms: scenario.farm.stf_timeout_ms,
        repeat_ms: scenario.farm.repeat_ms,
        ..BuildConfig::default()
    })
}

#[cfg(test)]
mod tests;
