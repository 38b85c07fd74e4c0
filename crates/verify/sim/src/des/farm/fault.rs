//! Faults of nodes and paths, as the scenario lists them.

use super::super::queue::{Nanos, seconds};
use super::node::{Condition, EpnNode, FlpNode};
use super::{DesFarm, Event, Said, Word, epn_brain, flp_brain};
use crate::scenario::{AckLevel, Fault, FaultKind};
use sheaf_protocol::{Control, Incarnation};

/// How long a path may be dead before TCP gives up a stream on it, in s: the transport's `unacknowledged_ms`.
const GIVEN_UP_AFTER_S: f64 = 2.0;

/// Begin or end of a fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    Begin,
    End,
}

impl DesFarm {
    pub(super) fn begin_fault(&mut self, index: u16) {
        let fault = self.scenario.faults[usize::from(index)].clone();
        if let Some(for_s) = fault.for_s {
            let at = self.queue.now() + seconds(for_s);
            self.queue.push(at, Event::FaultEnd(index));
        }
        self.do_fault(&fault, Edge::Begin);
    }

    pub(super) fn end_fault(&mut self, index: u16) {
        let fault = self.scenario.faults[usize::from(index)].clone();
        self.do_fault(&fault, Edge::End);
    }

    fn do_fault(&mut self, fault: &Fault, edge: Edge) {
        let begins = edge == Edge::Begin;
        match (fault.kind, fault.flp, fault.epn) {
            (FaultKind::Crash, Some(flp), _) if begins => self.crash_flp(flp),
            (FaultKind::Crash, Some(flp), _) => self.restart_flp(flp),
            (FaultKind::Crash, None, Some(epn)) if begins => self.crash_epn(epn),
            (FaultKind::Crash, None, Some(epn)) => self.restart_epn(epn),
            (FaultKind::Hang, flp, epn) => self.stop_node(flp, epn, Condition::Hung, begins),
            (FaultKind::Partition, Some(flp), Some(epn)) => self.cut_pair(flp, epn, begins),
            (FaultKind::Partition, flp, epn) => {
                self.stop_node(flp, epn, Condition::Cut, begins);
            }
            (FaultKind::Slow, _, Some(epn)) => {
                let factor = fault.factor.filter(|_| begins).unwrap_or(1.0);
                self.epns[epn as usize].slowness = factor;
            }
            (FaultKind::SlowNic, flp, epn) => {
                let factor = fault.factor.filter(|_| begins).unwrap_or(1.0);
                self.set_nic(flp, epn, 1.0 / factor);
            }
            (FaultKind::Stall, Some(flp), Some(epn)) if begins => {
                let for_ns = seconds(fault.for_s.unwrap_or(0.0));
                self.stall_stream(flp, epn, self.queue.now() + for_ns);
            }
            (FaultKind::Join, ..) if begins => {
                let epn = self.joined;
                self.joined += 1;
                self.send_hello_epn(epn);
            }
            (FaultKind::Leave, _, Some(epn)) if begins => {
                self.send_from_epn(epn, Word::Control(Control::Leaving));
            }
            _ => {}
        }
    }

    fn set_nic(&mut self, flp: Option<u32>, epn: Option<u32>, factor: f64) {
        let now = self.queue.now();
        if let Some(flp) = flp {
            self.network.set_flp_rate(now, flp, factor);
        }
        if let Some(epn) = epn {
            let nic = self.scenario.group_of(epn).map_or(1.0, |group| group.nic);
            self.network.set_epn_rate(now, epn, factor * nic);
        }
    }

    fn crash_epn(&mut self, epn: u32) {
        let node = &mut self.epns[epn as usize];
        if node.condition == Condition::Down {
            return;
        }
        node.condition = Condition::Down;
        node.is_connected = false;
        let waiting = node.waiting.drain(..).map(|(tf, ..)| tf);
        for tf in waiting.chain(std::mem::take(&mut node.working)) {
            self.records.die(tf);
            if self.scenario.ack == AckLevel::Processed {
                self.fates.die(tf);
            }
        }
        self.saying.push(Said {
            node: node.target.epn.into(),
            incarnation: node.target.incarnation,
            word: Word::Closed,
        });
        self.close_streams_of_epn(epn);
    }

    fn restart_epn(&mut self, epn: u32) {
        let node = &self.epns[epn as usize];
        if node.condition != Condition::Down {
            return;
        }
        let mut target = node.target;
        target.incarnation = Incarnation(target.incarnation.0 + 1);
        let mut fresh = EpnNode::new(epn_brain(&self.scenario), target, node.speed);
        fresh.delivered = node.delivered;
        self.epns[epn as usize] = fresh;
        self.send_hello_epn(epn);
    }

    fn crash_flp(&mut self, flp: u32) {
        let node = &mut self.flps[flp as usize];
        if node.condition == Condition::Down {
            return;
        }
        node.condition = Condition::Down;
        node.is_connected = false;
        self.saying.push(Said {
            node: node.source.flp.into(),
            incarnation: node.source.incarnation,
            word: Word::Closed,
        });
        self.close_streams_of_flp(flp);
    }

    fn restart_flp(&mut self, flp: u32) {
        let node = &self.flps[flp as usize];
        if node.condition != Condition::Down {
            return;
        }
        let mut source = node.source;
        source.incarnation = Incarnation(source.incarnation.0 + 1);
        let bytes_max = self.sizes.bytes_max(flp);
        let brain = flp_brain(&self.scenario, source, bytes_max);
        self.flps[flp as usize] = FlpNode::new(brain, source);
        self.send_hello_flp(flp);
    }

    /// Stops a node or cuts it off, or brings it back.
    fn stop_node(&mut self, flp: Option<u32>, epn: Option<u32>, as_what: Condition, begins: bool) {
        self.set_nic(flp, epn, if begins { 0.0 } else { 1.0 });
        if let Some(flp) = flp {
            let node = &mut self.flps[flp as usize];
            match (node.condition, begins) {
                (Condition::Up, true) => node.condition = as_what,
                (condition, false) if condition == as_what => {
                    node.condition = Condition::Up;
                    self.wake_flp(flp);
                }
                _ => {}
            }
        }
        if let Some(epn) = epn {
            let node = &mut self.epns[epn as usize];
            match (node.condition, begins) {
                (Condition::Up, true) => node.condition = as_what,
                (condition, false) if condition == as_what => {
                    node.condition = Condition::Up;
                    self.wake_epn(epn);
                }
                _ => {}
            }
        }
    }

    fn wake_flp(&mut self, flp: u32) {
        let node = &mut self.flps[flp as usize];
        if !node.is_connected {
            return self.send_hello_flp(flp);
        }
        let held = std::mem::take(&mut node.held);
        for word in std::mem::take(&mut node.unsaid) {
            self.send_from_flp(flp, word);
        }
        for control in held {
            self.hear_flp(flp, control);
        }
        self.touched_flps.push(flp);
        self.act_touched();
    }

    fn wake_epn(&mut self, epn: u32) {
        let node = &mut self.epns[epn as usize];
        if !node.is_connected {
            return self.send_hello_epn(epn);
        }
        let held = std::mem::take(&mut node.held);
        for word in std::mem::take(&mut node.unsaid) {
            self.send_from_epn(epn, word);
        }
        for control in held {
            self.hear_epn(epn, control);
        }
        self.touched_epns.push(epn);
        self.act_touched();
        self.process(epn);
    }

    fn stall_stream(&mut self, flp: u32, epn: u32, until: Nanos) {
        let now = self.queue.now();
        let index = self.stream_index(flp, epn);
        let stream = &mut self.streams[index];
        stream.stall = Some((now, until));
        if let Some(flow) = stream.flow {
            self.network.stall(now, flow, until);
        }
    }

    /// Cuts the path between two nodes, or restores it. TCP gives the stream up after a while.
    fn cut_pair(&mut self, flp: u32, epn: u32, begins: bool) {
        let now = self.queue.now();
        let index = self.stream_index(flp, epn);
        let stream = &mut self.streams[index];
        stream.is_cut = begins;
        if let Some(flow) = stream.flow {
            if begins {
                self.network.stall(now, flow, Nanos::MAX);
            } else {
                self.network.resume(now, flow);
            }
        }
        if begins {
            let target = self.epns[epn as usize].target;
            let at = self.given_up.put((flp as u16, target));
            self.queue
                .push(now + seconds(GIVEN_UP_AFTER_S), Event::GiveUp(at));
        }
    }

    /// Gives up a stream on a dead path on both sides, if the path is still dead.
    pub(super) fn give_up(&mut self, at: u32) {
        let now = self.now();
        let (flp, target) = self.given_up.take(at);
        let (flp, epn) = (u32::from(flp), u32::from(target.epn.0));
        let stream = &self.streams[self.stream_index(flp, epn)];
        if !stream.is_cut || !stream.is_open || self.epns[epn as usize].target != target {
            return;
        }
        self.reset_stream(flp, epn);
        let source = self.flps[flp as usize].source;
        let flp_brain = &mut self.flps[flp as usize].brain;
        flp_brain.handle_link_closed(now, target);
        let epn_brain = &mut self.epns[epn as usize].brain;
        epn_brain.handle_stream_closed(now, source);
    }
}
