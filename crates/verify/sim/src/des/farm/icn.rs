//! The ICN: members and scheduler, driven as `sheaf-node` drives them.

use super::node::Condition;
use super::{DesFarm, Event, Said, Word};
use sheaf_membership::{Change, MemberEvent};
use sheaf_protocol::control::Welcome;
use sheaf_protocol::{Control, EpnId, FlpId, Incarnation, NodeId, Role, Source, Target, TfId};
use sheaf_scheduler::{Action, Recipient};

/// Headers of a segment on the wire: Ethernet with checksum and gap, IP, TCP with time stamps. As much is an
/// acknowledgement by itself, and messages to one node in one moment have them once.
const HEADERS_BYTES: u64 = 90;
/// Bytes of a control message beside its items: prefix, envelope.
const WORD_BYTES: u64 = 60;
/// Bytes of an item.
const ITEM_BYTES: u64 = 24;

impl DesFarm {
    /// Delivers messages to the ICN.
    pub(super) fn hear(&mut self, at: u32) {
        let said = self.said.take(at);
        self.inbox.extend(said);
        let batch = self.scenario.farm.icn_batch_us * 1000;
        if batch == 0 {
            return self.icn_turn();
        }
        if !std::mem::replace(&mut self.is_turn_due, true) {
            let next = (self.queue.now() / batch + 1) * batch;
            self.queue.push(next, Event::IcnTurn);
        }
    }

    /// Lets the ICN handle all that has arrived, and does what follows.
    pub(super) fn icn_turn(&mut self) {
        let now = self.now();
        let mut inbox = std::mem::take(&mut self.inbox);
        for Said {
            node,
            incarnation,
            word,
        } in inbox.drain(..)
        {
            match word {
                Word::Control(control) => self.hear_control(node, incarnation, control),
                Word::Closed => {
                    let event = if self.scheduler.is_leaving(node) {
                        self.members.handle_left(node, incarnation)
                    } else {
                        self.members.handle_closed(now, node, incarnation)
                    };
                    if let Some(event) = event {
                        self.apply_member(event);
                    }
                }
                Word::Hello(hello) => {
                    // No index is given twice here, and later lives have higher incarnations.
                    let Ok(events) = self.members.handle_hello(now, node, incarnation) else {
                        continue;
                    };
                    self.hellos.insert(node, hello);
                    let welcome = Control::Welcome(Welcome {
                        pulse_ns: self.scenario.registry.pulse_ms * 1_000_000,
                        stf_bytes_max: self.void.len() as u64,
                    });
                    self.telling.push((recipient(node), welcome));
                    for event in events {
                        self.apply_member(event);
                        // Each join sends all FLPs the list of EPNs: the last of them is enough.
                        self.drain_scheduler_actions();
                    }
                }
            }
        }
        self.inbox = inbox;
        self.drain_scheduler();
    }

    fn hear_control(&mut self, node: NodeId, incarnation: Incarnation, control: Control) {
        let now = self.now();
        if let Some(event) = self.members.handle_heard(now, node, incarnation) {
            self.apply_member(event);
        }
        match &control {
            Control::Announce(items) => {
                for item in items {
                    self.call(now.0, item.tf);
                }
            }
            Control::Skipped(items) => {
                for item in items {
                    self.call(now.0, item.tf);
                }
            }
            _ => {}
        }
        match node.role {
            Role::Flp => self
                .scheduler
                .handle_flp(now, source_of(node, incarnation), control),
            Role::Epn => self
                .scheduler
                .handle_epn(now, target_of(node, incarnation), control),
            Role::Icn | Role::Operator | Role::Writer => {}
        }
    }

    /// Notes that a TF is announced, skipped by a source, or called for.
    fn call(&mut self, now: u64, tf: TfId) {
        self.fates.call(now, tf);
        self.records.call(now, tf);
    }

    /// Applies a change of the membership to the scheduler.
    pub(super) fn apply_member(&mut self, event: MemberEvent) {
        let now = self.now();
        let MemberEvent {
            node,
            incarnation,
            change,
        } = event;
        match node.role {
            Role::Flp => {
                let source = source_of(node, incarnation);
                match change {
                    Change::Joined => {
                        if let Some(hello) = self.hellos.get(&node) {
                            self.scheduler.handle_flp_joined(now, source, hello);
                        }
                    }
                    Change::Silent | Change::Cut => self.scheduler.handle_flp_silent(now, source),
                    Change::Heard => self.scheduler.handle_flp_heard(now, source),
                    Change::Dead => self.scheduler.handle_flp_gone(now, source),
                    Change::Expired => {
                        self.scheduler.handle_flp_expired(now, source);
                    }
                    Change::Hopeless => self.close_from_icn(node, incarnation),
                }
            }
            Role::Epn => {
                let target = target_of(node, incarnation);
                match change {
                    Change::Joined => {
                        if let Some(hello) = self.hellos.get(&node) {
                            self.scheduler.handle_epn_joined(now, target, hello);
                        }
                    }
                    Change::Silent => self.scheduler.handle_epn_silent(now, target),
                    Change::Heard => self.scheduler.handle_epn_heard(now, target),
                    Change::Cut => self.scheduler.handle_epn_cut(now, target),
                    Change::Dead | Change::Expired => self.scheduler.handle_epn_dead(now, target),
                    Change::Hopeless => self.close_from_icn(node, incarnation),
                }
            }
            Role::Icn | Role::Operator | Role::Writer => {}
        }
    }

    /// Closes the stream of a node that is silent for too long; the node finds it closed when it can.
    fn close_from_icn(&mut self, node: NodeId, incarnation: Incarnation) {
        let (is_connected, held) = match node.role {
            Role::Flp => {
                let flp = &mut self.flps[usize::from(node.index)];
                flp.unsaid.clear();
                (&mut flp.is_connected, &mut flp.held)
            }
            _ => {
                let epn = &mut self.epns[usize::from(node.index)];
                epn.unsaid.clear();
                (&mut epn.is_connected, &mut epn.held)
            }
        };
        *is_connected = false;
        held.clear();
        let word = Word::Closed;
        self.saying.push(Said {
            node,
            incarnation,
            word,
        });
    }

    /// Carries out all actions of the scheduler.
    pub(super) fn drain_scheduler(&mut self) {
        self.scheduler.flush();
        self.drain_scheduler_actions();
    }

    fn drain_scheduler_actions(&mut self) {
        let now = self.queue.now();
        while let Some(action) = self.scheduler.poll_action() {
            match action {
                Action::Append(record) => {
                    if let sheaf_protocol::Record::Verdict { tf, attempt, .. } = &record {
                        self.hash.add(now, 32, tf.0 << 8 ^ u64::from(attempt.0));
                    }
                    self.fates.record(now, &record);
                    self.records.record(now, &record);
                }
                Action::Done { trace, .. } => self.run.latencies_ns.push(trace.total_ns),
                Action::NotRedelivered { .. } => {}
                Action::Send(to, control) => self.send(to, control),
            }
        }
    }

    fn send(&mut self, to: Recipient, control: Control) {
        if let (Recipient::AllFlps, Control::Epns(epns)) = (to, &control) {
            // A state that all have received need not be sent again, and of two the later is enough.
            if self.epns_said == *epns {
                return;
            }
            self.epns_said.clone_from(epns);
            self.telling.retain(|(to, told)| {
                *to != Recipient::AllFlps || !matches!(told, Control::Epns(_))
            });
        }
        if let Control::Pace(tfs) = &control {
            let now = self.queue.now();
            for tf in tfs {
                self.call(now, *tf);
            }
        }
        if let (Recipient::AllFlps, Control::Assign(items)) = (to, &control) {
            let now = self.queue.now();
            for item in items {
                self.records.assign(now, item.tf, item.target.epn);
            }
        }
        self.telling.push((to, control));
    }

    /// Delivers messages of the ICN to nodes.
    pub(super) fn arrive_words(&mut self, at: u32) {
        let told = self.told.take(at);
        for (to, control) in told {
            match (to, control) {
                (Recipient::Flp(flp), control) => self.hear_flp(u32::from(flp.0), control),
                (Recipient::Epn(epn), control) => self.hear_epn(u32::from(epn.0), control),
                (Recipient::AllFlps, Control::Release(release)) => {
                    if release.version > self.flp_release.version {
                        self.records.release(self.queue.now(), &release);
                        self.flp_release = release;
                    }
                }
                (Recipient::AllEpns, Control::Release(release)) => {
                    if release.version > self.epn_release.version {
                        self.epn_release = release;
                    }
                }
                (Recipient::AllFlps, control) => {
                    for flp in 0..self.flps.len() as u32 {
                        if self.flps[flp as usize].condition != Condition::Down {
                            self.hear_flp(flp, control.clone());
                        }
                    }
                }
                (Recipient::AllEpns, control) => {
                    for epn in 0..self.epns.len() as u32 {
                        if self.epns[epn as usize].condition != Condition::Down {
                            self.hear_epn(epn, control.clone());
                        }
                    }
                }
            }
        }
        self.act_touched();
    }

    /// Lets every node that has received a message act.
    pub(super) fn act_touched(&mut self) {
        let mut flps = std::mem::take(&mut self.touched_flps);
        flps.sort_unstable();
        flps.dedup();
        for flp in flps.drain(..) {
            self.act_flp(flp);
        }
        self.touched_flps = flps;
        let mut epns = std::mem::take(&mut self.touched_epns);
        epns.sort_unstable();
        epns.dedup();
        for epn in epns.drain(..) {
            self.act_epn(epn);
        }
        self.touched_epns = epns;
    }

    /// Charges messages of nodes to the network of the data: on the way there, and their acknowledgements on the way
    /// back.
    pub(super) fn charge_from_nodes(&mut self, said: &[Said]) {
        if !self.is_primary() {
            return;
        }
        // Messages of one node in one moment stand together.
        for words in said.chunk_by(|a, b| a.node == b.node) {
            let index = u32::from(words[0].node.index);
            if words[0].node.role == Role::Flp {
                let items: u64 = words.iter().map(items_of).sum();
                let bytes = HEADERS_BYTES + WORD_BYTES * words.len() as u64 + ITEM_BYTES * items;
                self.network.charge_flp(index, bytes);
            } else {
                self.network.charge_epn(index, HEADERS_BYTES);
            }
        }
    }

    /// Charges messages of the ICN, as [`charge_from_nodes`](Self::charge_from_nodes) does those of nodes.
    pub(super) fn charge_from_icn(&mut self, told: &[(Recipient, Control)]) {
        if !self.is_primary() {
            return;
        }
        let (mut to_epn, mut to_flp) = (vec![0; self.epns.len()], vec![0; self.flps.len()]);
        let (mut to_epns, mut to_flps) = (0, 0);
        for (to, _) in told {
            match to {
                Recipient::Epn(epn) => to_epn[usize::from(epn.0)] += 1,
                Recipient::Flp(flp) => to_flp[usize::from(flp.0)] += 1,
                Recipient::AllEpns => to_epns += 1,
                Recipient::AllFlps => to_flps += 1,
            }
        }
        for (epn, words) in (0..).zip(to_epn) {
            let words: u64 = to_epns + words;
            if words > 0 {
                let bytes = HEADERS_BYTES + (WORD_BYTES + ITEM_BYTES) * words;
                self.network.charge_epn(epn, bytes);
            }
        }
        // The way into an FLP is not the way of the data, that of its acknowledgements is.
        for (flp, words) in (0..).zip(to_flp) {
            if to_flps + words > 0 {
                self.network.charge_flp(flp, HEADERS_BYTES);
            }
        }
    }
}

fn items_of(said: &Said) -> u64 {
    match &said.word {
        Word::Control(Control::Announce(items)) => items.len() as u64,
        _ => 1,
    }
}

fn recipient(node: NodeId) -> Recipient {
    match node.role {
        Role::Flp => Recipient::Flp(FlpId(node.index)),
        _ => Recipient::Epn(EpnId(node.index)),
    }
}

fn source_of(node: NodeId, incarnation: Incarnation) -> Source {
    Source {
        flp: FlpId(node.index),
        incarnation,
    }
}

fn target_of(node: NodeId, incarnation: Incarnation) -> Target {
    Target {
        epn: EpnId(node.index),
        incarnation,
    }
}
