//! Data streams: one between each FLP and each EPN, and the permission to send.

use super::super::network::FlowId;
use super::super::queue::Nanos;
use super::node::Condition;
use super::{DesFarm, Event};
use sheaf_protocol::{Prefix, Source, StfHeader, Target};
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes before the payload of an STF on the wire.
const HEAD_BYTES: u64 = (Prefix::SIZE + StfHeader::SIZE) as u64;

/// One stream.
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) is_open: bool,
    /// STFs on their way, first in front.
    pub(super) queue: VecDeque<StfHeader>,
    pub(super) flow: Option<FlowId>,
    /// When the STF in front began to arrive.
    pub(super) began_at: Nanos,
    /// Whether its first bytes are on their way.
    pub(super) is_starting: bool,
    /// Period in which nothing passes.
    pub(super) stall: Option<(Nanos, Nanos)>,
    /// Whether nothing passes until further notice.
    pub(super) is_cut: bool,
}

impl DesFarm {
    pub(super) fn stream_index(&self, flp: u32, epn: u32) -> usize {
        flp as usize * self.epns.len() + epn as usize
    }

    fn pair(&self, stream: u32) -> (u32, u32) {
        let epns = self.epns.len() as u32;
        (stream / epns, stream % epns)
    }

    /// Sends or offers an STF of an FLP.
    pub(super) fn send_stf(&mut self, flp: u32, target: Target, header: StfHeader) {
        let epn = u32::from(target.epn.0);
        let index = self.stream_index(flp, epn);
        let is_current = self.epns[epn as usize].target == target;
        if !self.streams[index].is_open || !is_current {
            return; // As in a node: it goes again when the stream is open again.
        }
        if self.is_granted() {
            self.offering.push((flp as u16, epn as u16, header));
            return;
        }
        self.enqueue_stf(flp, epn, header);
    }

    fn enqueue_stf(&mut self, flp: u32, epn: u32, header: StfHeader) {
        let index = self.stream_index(flp, epn);
        let is_near = self.network.delay(flp, epn) == self.scenario.network.delay_us * 1000;
        let stream = &mut self.streams[index];
        stream.queue.push_back(header);
        if stream.flow.is_none() && !stream.is_starting {
            stream.is_starting = true;
            self.starting[usize::from(!is_near)].push((flp as u16, epn as u16));
        }
    }

    /// Sends everything that was gathered for streams.
    pub(super) fn send_off_streams(&mut self) {
        let now = self.queue.now();
        let delay = self.scenario.network.delay_us * 1000;
        for far in 0..2 {
            let stf_ns = self.scenario.network.stf_us * 1000;
            if stf_ns > 0 {
                self.send_off_one_by_one(far, stf_ns);
            } else if !self.starting[far].is_empty() {
                let at = self.starts.put(std::mem::take(&mut self.starting[far]));
                let after = self.way(far);
                self.queue.push(now + after, Event::Starts(at));
            }
        }
        if !self.offering.is_empty() {
            let at = self.offers.put(std::mem::take(&mut self.offering));
            self.queue.push(now + delay, Event::Offers(at));
        }
        if !self.connecting.is_empty() {
            let at = self.links.put(std::mem::take(&mut self.connecting));
            self.queue.push(now + 2 * delay, Event::Links(at));
        }
    }

    /// Sends what was gathered for streams one after the other, as the processors of one machine do.
    fn send_off_one_by_one(&mut self, far: usize, stf_ns: Nanos) {
        let after = self.way(far);
        for start in std::mem::take(&mut self.starting[far]) {
            self.machine_free_at = self.machine_free_at.max(self.queue.now()) + stf_ns;
            let at = self.starts.put(vec![start]);
            self.queue
                .push(self.machine_free_at + after, Event::Starts(at));
        }
    }

    /// Returns the time from the sender of an STF to the network; a granted STF has to be asked for first.
    fn way(&self, far: usize) -> Nanos {
        let ways = if self.is_granted() { 2 } else { 1 };
        self.scenario.network.delay_us * 1000 * ways * (far as u64 + 1)
    }

    /// Starts flows whose first bytes arrive at the network.
    pub(super) fn start_streams(&mut self, at: u32) {
        let now = self.queue.now();
        for (flp, epn) in self.starts.take(at) {
            let index = self.stream_index(u32::from(flp), u32::from(epn));
            let stream = &mut self.streams[index];
            if !stream.is_starting {
                continue; // It was closed meanwhile.
            }
            if let Some((from, until)) = stream.stall
                && (from..until).contains(&now)
            {
                let again = self.starts.put(vec![(flp, epn)]);
                self.queue.push(until, Event::Starts(again));
                continue;
            }
            stream.is_starting = false;
            let Some(bytes) = stream.queue.front().map(|head| head.payload_bytes) else {
                continue;
            };
            stream.began_at = now;
            let is_cut = stream.is_cut;
            let bytes = bytes + HEAD_BYTES;
            let flow = self
                .network
                .begin(now, flp.into(), epn.into(), bytes, index as u32);
            self.streams[index].flow = Some(flow);
            if is_cut {
                self.network.stall(now, flow, Nanos::MAX);
            }
        }
    }

    /// Handles the end of the STF in front of a stream.
    pub(super) fn arrive(&mut self, stream_index: u32) {
        let now = self.queue.now();
        let (flp, epn) = self.pair(stream_index);
        let stream = &mut self.streams[stream_index as usize];
        let Some(flow) = stream.flow else {
            return;
        };
        let Some(header) = stream.queue.pop_front() else {
            return;
        };
        let spent = Duration::from_nanos(now - stream.began_at);
        let next = stream.queue.front().map(|head| head.payload_bytes);
        let pause = stream
            .stall
            .filter(|(from, until)| (*from..*until).contains(&now));
        match (next, pause) {
            (Some(bytes), None) => {
                stream.began_at = now;
                self.network.go_on(now, flow, bytes + HEAD_BYTES);
            }
            (Some(_), Some((_, until))) => {
                stream.flow = None;
                stream.is_starting = true;
                self.network.end(now, flow);
                let at = self.starts.put(vec![(flp as u16, epn as u16)]);
                self.queue.push(until, Event::Starts(at));
            }
            (None, _) => {
                stream.flow = None;
                self.network.end(now, flow);
            }
        }
        if self.is_granted() {
            self.epns[epn as usize].fetching -= 1;
            self.grant(epn);
        }
        self.arrive_stf(epn, &header, spent);
    }

    /// Delivers offers to EPNs. Of each TF they begin with another source, so that they do not all ask the same one
    /// first.
    pub(super) fn take_offers(&mut self, at: u32) {
        let mut offers = self.offers.take(at);
        offers.sort_by_key(|(_, epn, header)| (*epn, header.key.tf));
        let flps = self.flps.len() as u64;
        let mut touched = Vec::new();
        for tf in offers.chunk_by(|a, b| (a.1, a.2.key.tf) == (b.1, b.2.key.tf)) {
            let (_, epn, header) = tf[0];
            // Coprime to most numbers of FLPs, so that neighbours begin far from each other.
            let first = (header.key.tf.0 * 89 % flps) as u16;
            let split = tf.partition_point(|(flp, ..)| *flp < first);
            let node = &mut self.epns[usize::from(epn)];
            if node.condition == Condition::Down {
                continue;
            }
            let rotated = tf[split..].iter().chain(&tf[..split]);
            node.offered
                .extend(rotated.map(|(flp, _, header)| (*flp, *header)));
            if touched.last() != Some(&epn) {
                touched.push(epn);
            }
        }
        for epn in touched {
            self.grant(u32::from(epn));
        }
    }

    /// Lets an EPN fetch from as many sources as it may.
    pub(super) fn grant(&mut self, epn: u32) {
        while self.epns[epn as usize].fetching < self.scenario.granted_sources {
            let Some((flp, header)) = self.epns[epn as usize].offered.pop_front() else {
                return;
            };
            // STFs of a TF that was decided meanwhile are not fetched.
            let is_decided = header.key.tf < self.epn_release.floor;
            if is_decided || !self.streams[self.stream_index(flp.into(), epn)].is_open {
                continue;
            }
            self.epns[epn as usize].fetching += 1;
            self.enqueue_stf(flp.into(), epn, header);
        }
    }

    /// Drops everything on a stream.
    pub(super) fn reset_stream(&mut self, flp: u32, epn: u32) {
        let now = self.queue.now();
        let index = self.stream_index(flp, epn);
        let is_granted = self.is_granted();
        let stream = &mut self.streams[index];
        let lost = stream.queue.len() as u32;
        stream.queue.clear();
        stream.is_starting = false;
        stream.is_open = false;
        if let Some(flow) = stream.flow.take() {
            self.network.end(now, flow);
        }
        let node = &mut self.epns[epn as usize];
        node.offered.retain(|(from, _)| u32::from(*from) != flp);
        if is_granted {
            node.fetching -= lost;
            self.grant(epn);
        }
    }

    pub(super) fn disconnect(&mut self, flp: u32, target: Target) {
        let epn = u32::from(target.epn.0);
        let is_open = self.streams[self.stream_index(flp, epn)].is_open;
        if self.epns[epn as usize].target == target && is_open {
            self.reset_stream(flp, epn);
            let source = self.flps[flp as usize].source;
            let at = self.closings.put(vec![(epn as u16, source)]);
            let delay = self.network.delay(flp, epn);
            self.queue
                .push(self.queue.now() + delay, Event::SourceClosed(at));
        }
    }

    /// Opens connections, or lets them time out.
    pub(super) fn open_links(&mut self, at: u32) {
        let now = self.now();
        for (flp, target) in self.links.take(at) {
            let (flp, epn) = (u32::from(flp), u32::from(target.epn.0));
            let index = self.stream_index(flp, epn);
            let node = &self.epns[epn as usize];
            let answers = node.target == target
                && matches!(node.condition, Condition::Up | Condition::Hung)
                && !self.streams[index].is_cut;
            let flp_node = &mut self.flps[flp as usize];
            if flp_node.condition == Condition::Down {
                continue;
            }
            if !answers || flp_node.condition == Condition::Cut {
                flp_node.brain.handle_link_closed(now, target);
                continue;
            }
            flp_node.brain.handle_link_opened(target);
            let source = flp_node.source;
            self.streams[index].is_open = true;
            self.epns[epn as usize].brain.handle_stream_opened(source);
            self.touched_flps.push(flp);
        }
        self.act_touched();
    }

    /// Notifies FLPs of streams that an EPN has closed.
    pub(super) fn close_links(&mut self, at: u32) {
        let now = self.now();
        for (flp, target) in self.links.take(at) {
            let node = &mut self.flps[usize::from(flp)];
            if node.condition != Condition::Down {
                node.brain.handle_link_closed(now, target);
            }
        }
    }

    /// Notifies EPNs of a stream that an FLP has closed.
    pub(super) fn close_sources(&mut self, at: u32) {
        let now = self.now();
        for (epn, source) in self.closings.take(at) {
            let epn = u32::from(epn);
            let node = &mut self.epns[epn as usize];
            if node.condition != Condition::Down {
                node.brain.handle_stream_closed(now, source);
                self.touched_epns.push(epn);
            }
        }
        self.act_touched();
    }

    /// Closes all streams of an EPN that has died: its FLPs learn it after the delay.
    pub(super) fn close_streams_of_epn(&mut self, epn: u32) {
        let target = self.epns[epn as usize].target;
        let node = &mut self.epns[epn as usize];
        node.offered.clear();
        let mut closed = Vec::new();
        for flp in 0..self.flps.len() as u32 {
            let index = self.stream_index(flp, epn);
            if self.streams[index].is_open {
                self.reset_stream(flp, epn);
                closed.push((flp as u16, target));
            }
        }
        let at = self.links.put(closed);
        let delay = self.scenario.network.delay_us * 1000;
        self.queue.push(self.queue.now() + delay, Event::Closed(at));
    }

    /// Closes all streams of an FLP that has died: the EPNs learn it after the delay.
    pub(super) fn close_streams_of_flp(&mut self, flp: u32) {
        let source: Source = self.flps[flp as usize].source;
        let mut closed = Vec::new();
        for epn in 0..self.epns.len() as u32 {
            let index = self.stream_index(flp, epn);
            if self.streams[index].is_open {
                self.reset_stream(flp, epn);
                closed.push((epn as u16, source));
            }
        }
        let at = self.closings.put(closed);
        let delay = self.scenario.network.delay_us * 1000;
        self.queue
            .push(self.queue.now() + delay, Event::SourceClosed(at));
    }
}
