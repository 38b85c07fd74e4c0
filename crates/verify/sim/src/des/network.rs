//! Network of flows: their rates, and their retransmission timeouts.
//!
//! A [`Flow`] carries bytes over the ports of its path: the sender's NIC, the rack's uplink and downlink if there are
//! racks, and the switch's port towards the receiver. Nothing is simulated per packet. Rates are the max-min fair
//! share, which TCP flows of equal round trips come to: each port divides its rate among its flows, and what a flow
//! cannot use because it is narrower elsewhere goes to the others. The shares are found as routers would
//! (A. Charny, D. Clark, R. Jain, "Congestion control with explicit rate indication", ICC 1995): each port computes
//! its share from the limits that its flows have elsewhere, and passes on what changed.
//!
//! A port of a switch keeps only so many bytes. A sender that begins puts a window of 10 segments under way before it
//! receives anything; if the windows of all flows of a port exceed its buffer and the bytes on the wire, the newcomer
//! loses them all without notice. A probe finds that out (RFC 8985), and the sender goes on among the others; where the
//! windows are more than twice what the port keeps, probes are lost, too, and it sends again only after the
//! retransmission timeout, which doubles each time: the incast collapse (A. Phanishayee et al., "Measurement and
//! analysis of TCP throughput collapse in cluster-based storage systems", FAST 2008; the servers that a buffer supports
//! there are proportional to it, 64 for 1 MiB, which this rule gives with 16 KiB a sender and no probes).
//!
//! Ports of a lab are shaped by token buckets, which let a burst through at the speed of the machine after a pause
//! ([`Bucket`]), and its nodes share the processors of that machine: one more port that all flows pass.

mod bucket;
mod flow;
mod sight;

use super::queue::{MS, Nanos};
use crate::scenario::{Network as Wires, Scenario};
use bucket::Bucket;
use flow::{Flow, State};
pub(super) use sight::{FlowId, Look, Seen, Sight};

/// Windows of a port ÷ what it keeps up to which a lost window is found by a probe: beyond that, probes are lost, too.
const PROBED_FILL_MAX: f64 = 2.0;
/// Ports that a flow passes at most: NIC, port, uplink, downlink, machine.
const PATH_MAX: usize = 5;
/// Timeouts do not double for ever.
const RTO_DOUBLED_MAX: u32 = 6;
/// Longest line of updates after one change; shares that still move then are left as they are.
const UPDATES_MAX: usize = 100_000;
/// Updates after one change if shares may be a little off.
const UPDATES_MAX_ROUGH: usize = 48;

#[derive(Debug)]
struct Port {
    /// Rate in bytes a ns.
    rate: f64,
    /// Token bucket: the bytes that may pass at once after a pause.
    bucket: Option<Bucket>,
    /// Bytes that a switch keeps for the port, with those that the wire holds; none for the queue of a host.
    buffer: Option<u64>,
    /// Windows of its flows, in bytes, and those that it has lost and that probes are about to find.
    windows: u64,
    lost: u64,
    /// Largest rate of a flow here; infinite while all of its flows are narrower elsewhere.
    share: f64,
    flows: Vec<u32>,
    is_queued: bool,
    /// Bytes of small messages that passed without taking time: the next flow carries them.
    debt: u64,
}

/// All ports and flows.
#[derive(Debug)]
pub(super) struct Network {
    ports: Vec<Port>,
    flows: Vec<Flow>,
    free: Vec<u32>,
    /// Rack of each FLP and EPN.
    flp_racks: Vec<u32>,
    epn_racks: Vec<u32>,
    racks: u32,
    wires: Wires,
    looks: Vec<Look>,
    worklist: Vec<u32>,
    touched: Vec<u32>,
    limits: Vec<f64>,
    /// Ports with buckets whose draw has changed.
    drawn: Vec<u32>,
    /// The port that stands for the machine, if all nodes share one.
    machine: Option<u32>,
    timeouts: u64,
}

impl Network {
    pub(super) fn new(scenario: &Scenario, epns_in_all: u32) -> Self {
        let wires = scenario.network.clone();
        let racks = wires.racks.len() as u32 + 1;
        let mut network = Self {
            ports: Vec::new(),
            flows: Vec::new(),
            free: Vec::new(),
            flp_racks: racks_of(scenario.flps, wires.racks.iter().map(|rack| rack.flps)),
            epn_racks: racks_of(epns_in_all, wires.racks.iter().map(|rack| rack.epns)),
            racks,
            wires,
            looks: Vec::new(),
            worklist: Vec::new(),
            touched: Vec::new(),
            limits: Vec::new(),
            drawn: Vec::new(),
            machine: None,
            timeouts: 0,
        };
        let flp_rate = network.bytes_a_ns(network.wires.flp_mbit_s);
        for _ in 0..scenario.flps {
            network.add_port(flp_rate, false);
        }
        let epn_rate = network.bytes_a_ns(network.wires.epn_mbit_s);
        for epn in 0..epns_in_all {
            let factor = scenario.group_of(epn).map_or(1.0, |group| group.nic);
            network.add_port(epn_rate * factor, true);
        }
        for rack in 0..network.racks as usize {
            let line = network.wires.racks.get(rack).map(|rack| rack.uplink_mbit_s);
            let rate = line.map_or(f64::INFINITY, |line| network.bytes_a_ns(line));
            network.add_port(rate, true);
            network.add_port(rate, true);
        }
        if let Some(mbit_s) = network.wires.machine_mbit_s {
            network.machine = Some(network.ports.len() as u32);
            network.add_machine(mbit_s / 8000.0);
        }
        network
    }

    fn bytes_a_ns(&self, mbit_s: f64) -> f64 {
        mbit_s * self.wires.efficiency / 8000.0
    }

    fn add_port(&mut self, rate: f64, is_switch: bool) {
        let wire = rate * (2 * self.wires.delay_us * 1000) as f64;
        let is_bounded = is_switch && rate.is_finite();
        let burst = self.wires.burst_bytes as f64 * self.wires.efficiency;
        self.ports.push(Port {
            rate,
            bucket: (burst > 0.0 && rate.is_finite()).then(|| Bucket::new(rate, burst)),
            buffer: is_bounded.then(|| self.wires.port_buffer_bytes + wire as u64),
            windows: 0,
            lost: 0,
            share: f64::INFINITY,
            flows: Vec::new(),
            is_queued: false,
            debt: 0,
        });
    }

    /// Adds a port for the processors of one machine, which all nodes share.
    fn add_machine(&mut self, rate: f64) {
        self.add_port(rate, false);
        if let Some(port) = self.ports.last_mut() {
            port.bucket = None;
        }
    }

    fn flp_port(flp: u32) -> u32 {
        flp
    }

    fn epn_port(&self, epn: u32) -> u32 {
        self.flp_racks.len() as u32 + epn
    }

    fn uplink(&self, rack: u32) -> u32 {
        (self.flp_racks.len() + self.epn_racks.len()) as u32 + 2 * rack
    }

    /// Returns the delay from one node to another, in ns.
    pub(super) fn delay(&self, flp: u32, epn: u32) -> Nanos {
        let is_far = self.flp_racks[flp as usize] != self.epn_racks[epn as usize];
        self.wires.delay_us * 1000 * if is_far { 2 } else { 1 }
    }

    /// Charges a small message to an FLP's NIC.
    pub(super) fn charge_flp(&mut self, flp: u32, bytes: u64) {
        self.ports[Self::flp_port(flp) as usize].debt += bytes;
    }

    /// Charges a small message to an EPN's port.
    pub(super) fn charge_epn(&mut self, epn: u32, bytes: u64) {
        let port = self.epn_port(epn);
        self.ports[port as usize].debt += bytes;
    }

    /// Takes the bytes that the flow carries beside its own: the messages that went over its narrowest port. Those of
    /// wider ones have passed in the spare rate there.
    fn take_debts(&mut self, index: u32) -> u64 {
        let flow = self.flows[index as usize];
        let ports = &flow.ports[..usize::from(flow.count)];
        let share = |port: &u32| self.ports[*port as usize].share;
        let narrowest = ports.iter().min_by(|a, b| share(a).total_cmp(&share(b)));
        let debt = narrowest.map_or(0, |port| self.ports[*port as usize].debt);
        for port in ports {
            self.ports[*port as usize].debt = 0;
        }
        debt
    }

    /// Returns the number of retransmission timeouts so far.
    pub(super) fn timeouts(&self) -> u64 {
        self.timeouts
    }

    /// Returns the bytes that pass the narrowest port of the path in a ns.
    #[cfg(test)]
    pub(super) fn path_rate(&self, flp: u32, epn: u32) -> f64 {
        let ports = [Self::flp_port(flp), self.epn_port(epn)];
        ports
            .map(|port| self.ports[port as usize].rate)
            .into_iter()
            .fold(f64::INFINITY, f64::min)
    }

    /// Begins a flow of `bytes` from `flp` to `epn`. `tag` comes back when it is done.
    pub(super) fn begin(&mut self, now: Nanos, flp: u32, epn: u32, bytes: u64, tag: u32) -> FlowId {
        let (from, to) = (self.flp_racks[flp as usize], self.epn_racks[epn as usize]);
        let mut ports = [Self::flp_port(flp), self.epn_port(epn), 0, 0, 0];
        let mut count = 2;
        if from != to {
            ports[2] = self.uplink(from);
            ports[3] = self.uplink(to) + 1;
            count = 4;
        }
        if let Some(machine) = self.machine {
            ports[count] = machine;
            count += 1;
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.flows.push(Flow {
                life: 0,
                tag: 0,
                ports: [0; PATH_MAX],
                places: [0; PATH_MAX],
                count: 0,
                state: State::Free,
                timeouts: 0,
                is_probed: false,
                is_probing: false,
                left: 0.0,
                since: 0,
                rate: 0.0,
                window: 0,
                due: Nanos::MAX,
            });
            self.flows.len() as u32 - 1
        });
        let flow = &mut self.flows[index as usize];
        *flow = Flow {
            life: flow.life + 1,
            tag,
            ports,
            places: [0; PATH_MAX],
            count: count as u8,
            state: State::Stalled,
            timeouts: 0,
            is_probed: false,
            is_probing: false,
            left: bytes as f64,
            since: now,
            rate: 0.0,
            window: bytes.min(self.wires.window_bytes),
            due: Nanos::MAX,
        };
        let life = flow.life;
        self.flows[index as usize].left += self.take_debts(index) as f64;
        self.try_send(now, index);
        FlowId { index, life }
    }

    /// Adds `bytes` to the stream of a flow that is done, without a pause.
    pub(super) fn go_on(&mut self, now: Nanos, id: FlowId, bytes: u64) {
        let Some(flow) = self.flow_mut(id) else {
            return;
        };
        flow.left = bytes as f64;
        flow.since = now;
        flow.due = Nanos::MAX;
        self.flows[id.index as usize].left += self.take_debts(id.index) as f64;
        self.look_after(now, id.index);
    }

    /// Ends the flow, done or not.
    pub(super) fn end(&mut self, now: Nanos, id: FlowId) {
        if self.flow_mut(id).is_none() {
            return;
        }
        self.leave_ports(now, id.index);
        let flow = &mut self.flows[id.index as usize];
        flow.state = State::Free;
        self.free.push(id.index);
    }

    /// Stops the flow until `until`, or for ever if that is never.
    pub(super) fn stall(&mut self, now: Nanos, id: FlowId, until: Nanos) {
        if self.flow_mut(id).is_none() {
            return;
        }
        self.leave_ports(now, id.index);
        let flow = &mut self.flows[id.index as usize];
        flow.state = State::Stalled;
        flow.due = until;
        self.looks.push(Look {
            sight: Sight::Flow(id),
            at: until,
        });
    }

    /// Resumes a flow that was stopped for ever.
    pub(super) fn resume(&mut self, now: Nanos, id: FlowId) {
        if self
            .flow_mut(id)
            .is_some_and(|flow| flow.state == State::Stalled)
        {
            self.try_send(now, id.index);
        }
    }

    /// Looks at something when [`Look`] asked for it.
    pub(super) fn look(&mut self, now: Nanos, sight: Sight) -> Seen {
        match sight {
            Sight::Flow(id) => self.look_at_flow(now, id),
            Sight::Port(port) => {
                self.look_at_port(now, port);
                Seen::Nothing
            }
        }
    }

    /// Checks a bucket: an empty one lets through the rate of the line.
    fn look_at_port(&mut self, now: Nanos, port: u32) {
        let bucket = self.ports[port as usize].bucket.as_mut();
        if bucket.is_some_and(|bucket| bucket.look(now)) {
            self.enqueue(port);
            self.share_out(now);
        }
    }

    fn look_at_flow(&mut self, now: Nanos, id: FlowId) -> Seen {
        let Some(flow) = self.flow_mut(id) else {
            return Seen::Nothing;
        };
        if flow.due != now {
            return Seen::Nothing; // Another look is to come, or none.
        }
        match flow.state {
            State::Free => Seen::Nothing,
            State::Stalled => {
                self.try_send(now, id.index);
                Seen::Nothing
            }
            State::Active => {
                let (end, tag) = (flow.ends_at(), flow.tag);
                if end <= now {
                    flow.left = 0.0;
                    flow.since = now;
                    return Seen::Done { tag };
                }
                flow.due = Nanos::MAX;
                self.look_after(now, id.index);
                Seen::Nothing
            }
        }
    }

    /// Takes the requests to look at something, since the last call.
    pub(super) fn take_looks(&mut self) -> impl Iterator<Item = Look> + '_ {
        self.looks.drain(..)
    }

    /// Sets the NIC of an FLP to `factor` of its rate; 0 if nothing passes.
    pub(super) fn set_flp_rate(&mut self, now: Nanos, flp: u32, factor: f64) {
        let rate = self.bytes_a_ns(self.wires.flp_mbit_s) * factor;
        self.set_rate(now, Self::flp_port(flp), rate);
    }

    /// Sets the NIC of an EPN to `rate_factor` of the ordinary rate; 0 if nothing passes.
    pub(super) fn set_epn_rate(&mut self, now: Nanos, epn: u32, rate_factor: f64) {
        let rate = self.bytes_a_ns(self.wires.epn_mbit_s) * rate_factor;
        self.set_rate(now, self.epn_port(epn), rate);
    }

    fn set_rate(&mut self, now: Nanos, port: u32, rate: f64) {
        let shaped = &mut self.ports[port as usize];
        shaped.rate = rate;
        if let Some(bucket) = &mut shaped.bucket {
            bucket.set_line(now, rate);
        }
        self.enqueue(port);
        self.share_out(now);
    }

    fn flow_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        let flow = self.flows.get_mut(id.index as usize)?;
        (flow.life == id.life && flow.state != State::Free).then_some(flow)
    }

    /// Sends if every buffer on the way has room for the window, else waits for a probe or the timeout.
    fn try_send(&mut self, now: Nanos, index: u32) {
        self.stop_probing(index);
        let flow = self.flows[index as usize];
        let count = usize::from(flow.count);
        // Windows of a port ÷ what it keeps; the first sender always gets through: its window is acknowledged at the
        // rate of the port.
        let fill = |port: &u32| {
            let port = &self.ports[*port as usize];
            let buffer = port.buffer.filter(|_| port.windows > 0)?;
            Some((port.windows + port.lost + flow.window) as f64 / buffer as f64)
        };
        let fullest = flow.ports[..count].iter().filter_map(fill);
        let fullest = fullest.fold(0.0, f64::max);
        let can_probe = self.wires.probe_ms > 0 && fullest <= PROBED_FILL_MAX;
        if fullest > 1.0 && !(can_probe && flow.is_probed) {
            let flow = &mut self.flows[index as usize];
            let at = if can_probe {
                (flow.is_probed, flow.is_probing) = (true, true);
                for port in &flow.ports[..count] {
                    self.ports[*port as usize].lost += flow.window;
                }
                now + self.wires.probe_ms * MS
            } else {
                self.timeouts += 1;
                let doubled = u32::from(flow.timeouts).min(RTO_DOUBLED_MAX);
                flow.timeouts = flow.timeouts.saturating_add(1);
                now + ((self.wires.rto_ms * MS) << doubled)
            };
            flow.state = State::Stalled;
            flow.due = at;
            let life = flow.life;
            self.looks.push(Look {
                sight: Sight::Flow(FlowId { index, life }),
                at,
            });
            return;
        }
        for (place, port) in flow.ports[..count].iter().enumerate() {
            let port = &mut self.ports[*port as usize];
            self.flows[index as usize].places[place] = port.flows.len() as u32;
            port.flows.push(index);
            port.windows += flow.window;
        }
        let flow = &mut self.flows[index as usize];
        flow.state = State::Active;
        flow.timeouts = 0;
        flow.since = now;
        flow.rate = 0.0;
        flow.due = Nanos::MAX;
        let ports = flow.ports;
        self.touched.push(index);
        for port in &ports[..count] {
            self.enqueue(*port);
        }
        self.share_out(now);
    }

    /// Takes the lost window of a flow that waits for its probe from its ports.
    fn stop_probing(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        if std::mem::take(&mut flow.is_probing) {
            for port in &flow.ports[..usize::from(flow.count)] {
                self.ports[*port as usize].lost -= flow.window;
            }
        }
    }

    fn leave_ports(&mut self, now: Nanos, index: u32) {
        self.stop_probing(index);
        let flow = self.flows[index as usize];
        if flow.state != State::Active {
            return;
        }
        let count = usize::from(flow.count);
        for place in 0..count {
            let port_index = flow.ports[place];
            let port = &mut self.ports[port_index as usize];
            let at = self.flows[index as usize].places[place] as usize;
            port.windows -= flow.window;
            port.flows.swap_remove(at);
            if let Some(moved) = port.flows.get(at).copied() {
                let moved = &mut self.flows[moved as usize];
                let ports = &moved.ports[..usize::from(moved.count)];
                let place = ports.iter().position(|port| *port == port_index);
                moved.places[place.expect("it stands in this port's list")] = at as u32;
            }
            self.enqueue(port_index);
        }
        self.draw(now, index, 0.0);
        let flow = &mut self.flows[index as usize];
        flow.advance(now);
        flow.rate = 0.0;
        flow.state = State::Stalled;
        flow.due = Nanos::MAX;
        self.share_out(now);
    }

    fn enqueue(&mut self, port: u32) {
        let queued = &mut self.ports[port as usize].is_queued;
        if !std::mem::replace(queued, true) {
            self.worklist.push(port);
        }
    }

    /// Recomputes shares and rates after a change.
    fn share_out(&mut self, now: Nanos) {
        let tolerance = self.wires.tolerance;
        let most = if tolerance > 0.0 {
            UPDATES_MAX_ROUGH
        } else {
            UPDATES_MAX
        };
        let mut done = 0;
        let mut at = 0;
        while at < self.worklist.len() {
            let port = self.worklist[at];
            at += 1;
            self.ports[port as usize].is_queued = false;
            if done < most {
                done += 1;
                self.update(now, port, tolerance);
            }
        }
        self.worklist.clear();
        for at in 0..self.touched.len() {
            let index = self.touched[at];
            self.set_flow_rate(now, index, tolerance);
        }
        self.touched.clear();
        for at in 0..self.drawn.len() {
            let port = self.drawn[at];
            let bucket = self.ports[port as usize].bucket.as_mut();
            if let Some(at) = bucket.and_then(Bucket::next_look) {
                let sight = Sight::Port(port);
                self.looks.push(Look { sight, at });
            }
        }
        self.drawn.clear();
    }

    /// Draws `rate` from the ports of the flow from now on.
    fn draw(&mut self, now: Nanos, index: u32, rate: f64) {
        if self.wires.burst_bytes == 0 {
            return;
        }
        let flow = self.flows[index as usize];
        for port_index in &flow.ports[..usize::from(flow.count)] {
            let port = &mut self.ports[*port_index as usize];
            let Some(bucket) = &mut port.bucket else {
                continue;
            };
            bucket.draw(now, rate - flow.rate);
            if port.flows.is_empty() {
                bucket.rest();
            }
            self.drawn.push(*port_index);
        }
    }

    /// Recomputes the share of a port, and notifies the ports concerned.
    fn update(&mut self, now: Nanos, index: u32, tolerance: f64) {
        let old = self.ports[index as usize].share;
        let mut limits = std::mem::take(&mut self.limits);
        limits.clear();
        for flow in &self.ports[index as usize].flows {
            limits.push(self.limit_elsewhere(&self.flows[*flow as usize], index));
        }
        let port = &mut self.ports[index as usize];
        let bucket = port.bucket.as_mut();
        let rate = bucket.map_or(port.rate, |bucket| bucket.rate(now));
        let new = fair_share(rate, &mut limits);
        self.limits = limits;
        if !differs(old, new, tolerance) {
            return; // The old one stands, so that small changes add up to one that is passed on.
        }
        self.ports[index as usize].share = new;
        for at in 0..self.ports[index as usize].flows.len() {
            let flow_index = self.ports[index as usize].flows[at];
            self.touched.push(flow_index);
            let flow = self.flows[flow_index as usize];
            for other in &flow.ports[..usize::from(flow.count)] {
                // A limit above the share there changes nothing there.
                let share = self.ports[*other as usize].share;
                if *other != index && (old < share || new < share || share.is_infinite()) {
                    self.enqueue(*other);
                }
            }
        }
    }

    fn limit_elsewhere(&self, flow: &Flow, port: u32) -> f64 {
        flow.ports[..usize::from(flow.count)]
            .iter()
            .filter(|other| **other != port)
            .map(|other| self.ports[*other as usize].share)
            .fold(f64::INFINITY, f64::min)
    }

    fn set_flow_rate(&mut self, now: Nanos, index: u32, tolerance: f64) {
        let flow = self.flows[index as usize];
        if flow.state != State::Active {
            return;
        }
        let rate = self.limit_elsewhere(&flow, u32::MAX);
        if !differs(flow.rate, rate, tolerance / 2.0) && flow.due != Nanos::MAX {
            return;
        }
        self.draw(now, index, rate);
        let flow = &mut self.flows[index as usize];
        flow.advance(now);
        flow.rate = rate;
        self.look_after(now, index);
    }

    /// Plans a look at the flow when it is done. A look that comes too early is repeated then.
    fn look_after(&mut self, now: Nanos, index: u32) {
        let flow = &mut self.flows[index as usize];
        let end = flow.ends_at().max(now);
        if end < flow.due {
            flow.due = end;
            let life = flow.life;
            self.looks.push(Look {
                sight: Sight::Flow(FlowId { index, life }),
                at: end,
            });
        }
    }
}

fn differs(old: f64, new: f64, tolerance: f64) -> bool {
    if old == new {
        return false;
    }
    (old - new).abs() > tolerance * old.min(new) || old.is_infinite() || new.is_infinite()
}

/// Returns the share that a flow without a limit of its own gets of `rate`, beside flows with `limits`.
fn fair_share(rate: f64, limits: &mut [f64]) -> f64 {
    if limits.is_empty() {
        return f64::INFINITY;
    }
    let even = rate / limits.len() as f64;
    if limits.iter().all(|limit| *limit >= even) {
        // No flow is narrower elsewhere than here.
        return even;
    }
    limits.sort_unstable_by(f64::total_cmp);
    let mut left = rate;
    for (at, limit) in limits.iter().enumerate() {
        let even = left / (limits.len() - at) as f64;
        if *limit >= even {
            return even;
        }
        left -= limit;
    }
    f64::INFINITY
}

fn racks_of(nodes: u32, counts: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut racks = Vec::with_capacity(nodes as usize);
    let mut rack = 0;
    for count in counts {
        for _ in 0..count {
            racks.push(rack);
        }
        rack += 1;
    }
    racks.resize(nodes as usize, rack);
    racks
}

#[cfg(test)]
mod tests;
