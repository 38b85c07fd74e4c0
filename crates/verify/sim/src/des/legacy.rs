//! Rules of the prior systems ([`prior`](crate::prior)) on the same wires, in virtual time.
//!
//! One heartbeat a period goes to all FLPs, each of which sends one message to the EPN whose turn it is. Here is what
//! the rules leave to their driver: wires, faults, and the end of counting, soon after the last heartbeat. An announced
//! TF here is a heartbeat, a lost one a heartbeat without a counted acknowledgement.

use super::draw::{SizeDraw, Stream as Chance, chance, drawn_faults};
use super::network::{FlowId, Network, Seen, Sight};
use super::queue::{MS, Nanos, Queue, seconds};
use super::tally::{Run, TraceHash};
use crate::prior::{self, Choice, EpnList, Icn, Outbox, REINIT_MS, SetBuilder, Turn, Way};
use crate::scenario::{Fault, FaultKind, Scenario};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Bytes of a heartbeat or an acknowledgement on the wire.
const CONTROL_BYTES: u64 = 120;
/// Ticks of a session of ZooKeeper, the most that its servers allow: what the first O2 balancer asked for.
const SESSION_TICKS: u64 = 20;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The coordinator sends a heartbeat.
    Beat,
    /// FLPs receive a heartbeat.
    Heard {
        beat: u64,
        target: u16,
    },
    /// A stream begins to send.
    Start(u32),
    /// A flow may be done, or a port change its rate.
    Network(Sight),
    /// An acknowledgement arrives.
    Ack {
        beat: u64,
        sent_at: Nanos,
    },
    Fault(u16),
    FaultEnd(u16),
    /// A list of EPNs changes.
    Noticed {
        list: u16,
        epn: u16,
        is_back: bool,
    },
}

impl Event {
    fn words(self) -> (u8, u64) {
        match self {
            Self::Beat => (64, 0),
            Self::Heard { beat, target } => (65, beat << 16 | u64::from(target)),
            Self::Start(stream) => (66, u64::from(stream)),
            Self::Network(sight) => (67, sight.word()),
            Self::Ack { beat, .. } => (68, beat),
            Self::Fault(index) => (69, u64::from(index)),
            Self::FaultEnd(index) => (70, u64::from(index)),
            Self::Noticed { list, epn, .. } => (71, u64::from(list) << 16 | u64::from(epn)),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Message {
    beat: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Stream {
    queue: Outbox<Message>,
    flow: Option<FlowId>,
    is_starting: bool,
    stall: Option<(Nanos, Nanos)>,
}

#[derive(Debug)]
struct Flp {
    is_up: bool,
    way: Way,
    held_bytes: u64,
}

#[derive(Debug)]
struct Epn {
    is_up: bool,
    builder: SetBuilder,
}

/// Losses of messages and heartbeats, by cause.
#[derive(Debug, Default)]
struct Losses {
    out_of_order: u64,
    queue_full: u64,
    dead_epn: u64,
    reinitialised: u64,
}

/// Run by the prior systems' rules.
pub(super) struct Legacy {
    scenario: Scenario,
    queue: Queue<Event>,
    network: Network,
    hash: TraceHash,
    run: Run,
    sizes: SizeDraw,
    streams: Vec<Stream>,
    flps: Vec<Flp>,
    epns: Vec<Epn>,
    /// The EPNs in the list of each FLP, or in the one list of the coordinator.
    lists: Vec<EpnList>,
    icn: Icn,
    paused_until: Nanos,
    chance: Xoshiro256PlusPlus,
    losses: Losses,
    bytes: u64,
    last_ack_at: Nanos,
    ends_at: Nanos,
}

impl Legacy {
    /// Returns a run before its first event. The scenario has been checked.
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Self {
        let lists = if scenario.legacy.private_iterators {
            scenario.flps
        } else {
            1
        };
        let rules = &scenario.legacy;
        let flp = |_| Flp {
            is_up: true,
            way: Way::new(rules.private_iterators),
            held_bytes: 0,
        };
        let epn = |_| Epn {
            is_up: true,
            builder: SetBuilder::new(rules.builder, rules.order, scenario.flps),
        };
        let stream = |_| Stream {
            queue: Outbox::new(rules.queue_messages_max as usize),
            flow: None,
            is_starting: false,
            stall: None,
        };
        let made = scenario.timeframes() as f64 / scenario.rate_hz;
        Self {
            queue: Queue::new(),
            network: Network::new(scenario, scenario.epns),
            hash: TraceHash::new(),
            run: Run {
                seed,
                ..Run::default()
            },
            sizes: SizeDraw::new(scenario, seed),
            streams: (0..scenario.flps * scenario.epns).map(stream).collect(),
            flps: (0..scenario.flps).map(flp).collect(),
            epns: (0..scenario.epns).map(epn).collect(),
            lists: vec![EpnList::all(scenario.epns as u16); lists as usize],
            icn: Icn::new(
                choice(&scenario.policy),
                Turn::default(),
                scenario.epns as u16,
            ),
            paused_until: 0,
            chance: chance(seed, Chance::Lists),
            losses: Losses::default(),
            bytes: 0,
            last_ack_at: 0,
            ends_at: seconds(made) + scenario.legacy.cutoff_ms * MS,
            scenario: scenario.clone(),
        }
    }

    /// Runs all events, until the coordinator stops counting.
    pub(super) fn run(mut self, mut progress: impl FnMut(Nanos) -> bool) -> Run {
        self.queue.push(0, Event::Beat);
        for (index, fault) in drawn_faults(&self.scenario, self.run.seed)
            .iter()
            .enumerate()
        {
            self.queue
                .push(seconds(fault.at_s), Event::Fault(index as u16));
        }
        self.draw_stalls();
        while let Some(event) = self.queue.pop() {
            let now = self.queue.now();
            if now > self.ends_at {
                break;
            }
            let (kind, what) = event.words();
            self.hash.add(now, kind, what);
            self.handle(now, event);
            for look in self.network.take_looks() {
                if look.at != Nanos::MAX {
                    self.queue.push(look.at, Event::Network(look.sight));
                }
            }
            if self.queue.popped().is_multiple_of(4096) && !progress(now) {
                break;
            }
        }
        self.end()
    }

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

    fn handle(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Beat => self.beat(now),
            Event::Heard { beat, target } => {
                for flp in 0..self.flps.len() {
                    self.hear(now, flp, beat, target);
                }
            }
            Event::Start(stream) => self.start(now, stream),
            Event::Network(sight) => {
                if let Seen::Done { tag } = self.network.look(now, sight) {
                    self.arrive(now, tag);
                }
            }
            Event::Ack { beat, sent_at } => {
                self.hash.add(now, 72, beat);
                self.run.complete += 1;
                self.run.latencies_ns.push(now - sent_at);
                self.last_ack_at = now;
            }
            Event::Fault(index) => {
                let fault = self.scenario.faults[usize::from(index)].clone();
                if let Some(for_s) = fault.for_s {
                    self.queue
                        .push(now + seconds(for_s), Event::FaultEnd(index));
                }
                self.do_fault(now, &fault, true);
            }
            Event::FaultEnd(index) => {
                let fault = self.scenario.faults[usize::from(index)].clone();
                self.do_fault(now, &fault, false);
            }
            Event::Noticed { list, epn, is_back } => self.notice(now, list, epn, is_back),
        }
    }

    fn beat(&mut self, now: Nanos) {
        let chance = &mut self.chance;
        let draw = |count| chance.random_range(0..count);
        let heartbeat = self.icn.beat(&self.lists[0], draw);
        let (beat, target) = (heartbeat.number, heartbeat.epn);
        self.run.announced += 1;
        let delay = self.scenario.network.control_delay_us * 1000;
        self.queue.push(now + delay, Event::Heard { beat, target });
        let beats = self.icn.heartbeats();
        if beats < self.scenario.timeframes() {
            let next = seconds(beats as f64 / self.scenario.rate_hz);
            self.queue.push(next, Event::Beat);
        }
    }

    fn hear(&mut self, now: Nanos, flp: usize, beat: u64, target: u16) {
        let is_shared = self.scenario.legacy.shared_control_nic;
        if is_shared {
            self.network.charge_flp(flp as u32, CONTROL_BYTES);
        }
        let bytes = self.sizes.bytes(flp as u32, beat);
        let node = &mut self.flps[flp];
        if !node.is_up || now < self.paused_until {
            // One message of the heartbeat is enough to lose it; the first FLP stands for it.
            self.losses.reinitialised += u64::from(flp == 0);
            return;
        }
        // One list is that of the ICN, and then no FLP goes its own way.
        let list = &self.lists[flp % self.lists.len()];
        let target = node.way.target(target, list);
        if flp == 0 && !self.epns[usize::from(target)].is_up {
            self.losses.dead_epn += 1;
        }
        let stream_index = flp * self.epns.len() + usize::from(target);
        let stream = &mut self.streams[stream_index];
        if !stream.queue.offer(Message { beat, bytes }) {
            self.losses.queue_full += 1;
            return;
        }
        node.held_bytes += bytes;
        self.run.flp_peak_bytes = self.run.flp_peak_bytes.max(node.held_bytes);
        self.start_if_idle(now, stream_index as u32);
    }

    fn start_if_idle(&mut self, now: Nanos, stream_index: u32) {
        let (flp, epn) = self.pair(stream_index);
        let stream = &mut self.streams[stream_index as usize];
        let is_idle = stream.flow.is_none() && !stream.is_starting && !stream.queue.is_empty();
        if is_idle && self.epns[epn as usize].is_up {
            stream.is_starting = true;
            let delay = self.network.delay(flp, epn);
            self.queue.push(now + delay, Event::Start(stream_index));
        }
    }

    fn pair(&self, stream: u32) -> (u32, u32) {
        let epns = self.epns.len() as u32;
        (stream / epns, stream % epns)
    }

    fn start(&mut self, now: Nanos, stream_index: u32) {
        let (flp, epn) = self.pair(stream_index);
        let stream = &mut self.streams[stream_index as usize];
        if !stream.is_starting {
            return;
        }
        if let Some((from, until)) = stream.stall
            && (from..until).contains(&now)
        {
            self.queue.push(until, Event::Start(stream_index));
            return;
        }
        stream.is_starting = false;
        if let Some(message) = stream.queue.front() {
            let bytes = message.bytes;
            let flow = self.network.begin(now, flp, epn, bytes, stream_index);
            self.streams[stream_index as usize].flow = Some(flow);
        }
    }

    fn arrive(&mut self, now: Nanos, stream_index: u32) {
        let (flp, epn) = self.pair(stream_index);
        let stream = &mut self.streams[stream_index as usize];
        let (Some(flow), Some(message)) = (stream.flow, stream.queue.pop()) else {
            return;
        };
        self.flps[flp as usize].held_bytes -= message.bytes;
        self.run.stfs += 1;
        let pause = stream
            .stall
            .filter(|(from, until)| (*from..*until).contains(&now));
        match (stream.queue.front().map(|next| next.bytes), pause) {
            (Some(bytes), None) => self.network.go_on(now, flow, bytes),
            (next, pause) => {
                stream.flow = None;
                self.network.end(now, flow);
                if let (Some(_), Some((_, until))) = (next, pause) {
                    self.streams[stream_index as usize].is_starting = true;
                    self.queue.push(until, Event::Start(stream_index));
                }
            }
        }
        let node = &mut self.epns[epn as usize];
        let closed = node.builder.take(message.beat, message.bytes);
        self.run.epn_peak_bytes = self.run.epn_peak_bytes.max(node.builder.open_bytes());
        self.losses.out_of_order += u64::from(closed.is_thrown_away);
        if let Some((beat, bytes)) = closed.whole {
            self.bytes += bytes;
            if self.scenario.legacy.shared_control_nic {
                self.network.charge_epn(epn, CONTROL_BYTES);
            }
            let delay = self.scenario.network.control_delay_us * 1000;
            let sent_at = seconds(beat as f64 / self.scenario.rate_hz);
            self.queue.push(now + delay, Event::Ack { beat, sent_at });
        }
    }

    fn do_fault(&mut self, now: Nanos, fault: &Fault, begins: bool) {
        match (fault.kind, fault.flp, fault.epn) {
            (FaultKind::Crash, Some(flp), _) => {
                let node = &mut self.flps[flp as usize];
                node.is_up = !begins;
                node.way.restart();
            }
            (FaultKind::Crash, None, Some(epn)) => self.crash_epn(now, epn, begins),
            (FaultKind::Hang | FaultKind::Partition, Some(flp), None) => {
                self.network
                    .set_flp_rate(now, flp, if begins { 0.0 } else { 1.0 });
            }
            (FaultKind::Hang | FaultKind::Partition, None, Some(epn)) => {
                self.network
                    .set_epn_rate(now, epn, if begins { 0.0 } else { 1.0 });
            }
            (FaultKind::SlowNic, flp, epn) => {
                let factor = fault
                    .factor
                    .filter(|_| begins)
                    .map_or(1.0, |factor| 1.0 / factor);
                if let Some(flp) = flp {
                    self.network.set_flp_rate(now, flp, factor);
                }
                if let Some(epn) = epn {
                    self.network.set_epn_rate(now, epn, factor);
                }
            }
            (FaultKind::Stall | FaultKind::Partition, Some(flp), Some(epn)) if begins => {
                let until = now + seconds(fault.for_s.unwrap_or(1e6));
                let stream = &mut self.streams[flp as usize * self.epns.len() + epn as usize];
                stream.stall = Some((now, until));
                if let Some(flow) = stream.flow {
                    self.network.stall(now, flow, until);
                }
            }
            _ => {}
        }
    }

    fn crash_epn(&mut self, now: Nanos, epn: u32, begins: bool) {
        self.epns[epn as usize].is_up = !begins;
        if begins {
            self.epns[epn as usize].builder.forget();
        }
        for flp in 0..self.flps.len() {
            let index = flp * self.epns.len() + epn as usize;
            let stream = &mut self.streams[index];
            if begins {
                stream.is_starting = false;
                if let Some(flow) = stream.flow.take() {
                    // Messages under way are lost with the connection; those that wait stay for a restart.
                    if let Some(message) = stream.queue.pop() {
                        self.flps[flp].held_bytes -= message.bytes;
                    }
                    self.network.end(now, flow);
                }
            } else {
                self.start_if_idle(now, index as u32);
            }
        }
        if !prior::takes_notice(&self.scenario.legacy, self.scenario.reaction) {
            return;
        }
        let noticed = if begins {
            self.end_of_session(now)
        } else {
            now
        };
        for list in 0..self.lists.len() {
            // FLPs with lists of their own learn it one by one.
            let later = self.chance.random_range(0..=2 * MS) * u64::from(self.lists.len() > 1);
            let event = Event::Noticed {
                list: list as u16,
                epn: epn as u16,
                is_back: !begins,
            };
            self.queue.push(noticed + later, event);
        }
    }

    /// Returns when it is known that an EPN died at `now`.
    fn end_of_session(&mut self, now: Nanos) -> Nanos {
        let tick = self.scenario.legacy.zookeeper_tick_ms * MS;
        if tick == 0 {
            return now + self.scenario.registry.suspect_ms * MS;
        }
        let session = SESSION_TICKS * tick;
        let since_ping = self.chance.random_range(0..=session / 3);
        (now - since_ping.min(now) + session).next_multiple_of(tick)
    }

    fn notice(&mut self, now: Nanos, list: u16, epn: u16, is_back: bool) {
        let reaction = self.scenario.reaction;
        let list = &mut self.lists[usize::from(list)];
        if is_back {
            list.readmit(epn, reaction);
            return;
        }
        if list.strike_off(epn, reaction) {
            self.paused_until = now + REINIT_MS * MS;
            for (index, stream) in self.streams.iter_mut().enumerate() {
                let flp = index / self.epns.len();
                let waiting: u64 = stream.queue.iter().map(|message| message.bytes).sum();
                self.losses.reinitialised += if flp == 0 {
                    stream.queue.len() as u64
                } else {
                    0
                };
                self.flps[flp].held_bytes -= waiting;
                stream.queue.clear();
                stream.is_starting = false;
                if let Some(flow) = stream.flow.take() {
                    self.network.end(now, flow);
                }
            }
            self.epns.iter_mut().for_each(|epn| epn.builder.forget());
        }
    }

    fn end(self) -> Run {
        let mut run = self.run;
        let lost = run.announced - run.complete;
        let queue_full = self.losses.queue_full.div_ceil(self.flps.len() as u64);
        let causes = [
            ("out-of-order", self.losses.out_of_order),
            ("dead-epn", self.losses.dead_epn),
            ("reinitialising", self.losses.reinitialised),
            ("queue-full", queue_full),
        ];
        // A heartbeat without another cause was still under way when the counting ended.
        run.lost_by = prior::attribute(lost, &causes, "late-at-run-end");
        run.out_of_order = self.losses.out_of_order;
        run.bytes = self.bytes;
        run.span_ns = self.last_ack_at;
        run.tfs_by_epn = self
            .epns
            .iter()
            .map(|epn| (epn.builder.whole(), 1.0))
            .collect();
        run.timeouts = self.network.timeouts();
        run.accounting_agrees = run.latencies_ns.len() as u64 == run.complete;
        run.events = self.queue.popped();
        run.simulated_ns = self.queue.now();
        run.trace_hash = self.hash.value();
        run
    }
}

/// Returns the rule of choice that a policy stands for. All but two take turns, `fixed` among them, which only live
/// farms of more than one EPN know.
fn choice(policy: &str) -> Choice {
    match policy {
        "modulo" => Choice::Modulo,
        "random" => Choice::Random,
        _ => Choice::RoundRobin,
    }
}

#[cfg(test)]
mod tests;
