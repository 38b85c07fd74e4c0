//! FLPs and EPNs: the brains, driven as `sheaf-node` drives them.

use super::super::queue::Nanos;
use super::{DesFarm, Event, Said, Word};
use crate::scenario::AckLevel;
use sheaf_protocol::control::Hello;
use sheaf_protocol::{
    Control, PayloadFormat, RunId, Source, Stf, StfHeader, Target, TfId, Timestamp, splitmix,
};
use sheaf_stf_builder::flp::{Action as FlpAction, Demand, Flp, Given};
use sheaf_tf_builder::{Action as EpnAction, TfBuilder};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Condition of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Not there.
    Down,
    /// Works.
    Up,
    /// Stopped: its kernel answers, the node does not.
    Hung,
    /// Works, and nothing passes between it and others.
    Cut,
}

/// One FLP.
pub(super) struct FlpNode {
    pub(super) brain: Flp,
    pub(super) source: Source,
    pub(super) condition: Condition,
    /// Whether the ICN takes its stream for open.
    pub(super) is_connected: bool,
    /// Messages that have come and wait until the node can handle them.
    pub(super) held: Vec<Control>,
    /// Messages of the node that cannot be delivered.
    pub(super) unsaid: Vec<Word>,
    pub(super) release_version: u64,
}

/// One EPN.
pub(super) struct EpnNode {
    pub(super) brain: TfBuilder<()>,
    pub(super) target: Target,
    pub(super) condition: Condition,
    pub(super) is_connected: bool,
    pub(super) held: Vec<Control>,
    pub(super) unsaid: Vec<Word>,
    pub(super) release_version: u64,
    /// Speed of its consumer.
    pub(super) speed: f64,
    /// Present slowness of the consumer, as a factor.
    pub(super) slowness: f64,
    /// TFs with the consumer, and those that wait for it, with their bytes and the time at which they can be taken.
    pub(super) busy: u32,
    pub(super) waiting: VecDeque<(TfId, u64, Nanos)>,
    /// TFs in processing.
    pub(super) working: BTreeSet<TfId>,
    pub(super) received_bytes: u64,
    pub(super) delivered: u64,
    /// STFs that can be fetched, in the order in which they will be.
    pub(super) offered: VecDeque<(u16, StfHeader)>,
    /// Number of sources that send now.
    pub(super) fetching: u32,
}

impl FlpNode {
    pub(super) fn new(brain: Flp, source: Source) -> Self {
        Self {
            brain,
            source,
            condition: Condition::Down,
            is_connected: false,
            held: Vec::new(),
            unsaid: Vec::new(),
            release_version: 0,
        }
    }

    pub(super) fn is_acting(&self) -> bool {
        matches!(self.condition, Condition::Up | Condition::Cut)
    }
}

impl EpnNode {
    pub(super) fn new(brain: TfBuilder<()>, target: Target, speed: f64) -> Self {
        Self {
            brain,
            target,
            condition: Condition::Down,
            is_connected: false,
            held: Vec::new(),
            unsaid: Vec::new(),
            release_version: 0,
            speed,
            slowness: 1.0,
            busy: 0,
            waiting: VecDeque::new(),
            working: BTreeSet::new(),
            received_bytes: 0,
            delivered: 0,
            offered: VecDeque::new(),
            fetching: 0,
        }
    }

    pub(super) fn is_acting(&self) -> bool {
        matches!(self.condition, Condition::Up | Condition::Cut)
    }

    /// Lets the consumer give a TF back that it has finished with.
    fn finish(&mut self, now: Timestamp, run: RunId, tf: TfId, bytes: u64) {
        // Of a TF that was acknowledged when it was delivered nothing follows.
        self.brain.handle_processed(run, tf);
        self.brain.handle_sink_freed(now, bytes);
    }

    fn held_bytes(&self) -> u64 {
        self.brain.open_bytes() + self.brain.sink_bytes()
    }
}

impl DesFarm {
    pub(super) fn send_from_flp(&mut self, flp: u32, word: Word) {
        let node = &mut self.flps[flp as usize];
        match node.condition {
            Condition::Up => self.saying.push(Said {
                node: node.source.flp.into(),
                incarnation: node.source.incarnation,
                word,
            }),
            Condition::Cut => node.unsaid.push(word),
            Condition::Down | Condition::Hung => {}
        }
    }

    pub(super) fn send_from_epn(&mut self, epn: u32, word: Word) {
        let node = &mut self.epns[epn as usize];
        match node.condition {
            Condition::Up => self.saying.push(Said {
                node: node.target.epn.into(),
                incarnation: node.target.incarnation,
                word,
            }),
            Condition::Cut => node.unsaid.push(word),
            Condition::Down | Condition::Hung => {}
        }
    }

    /// Joins an FLP, for the first time or again.
    pub(super) fn send_hello_flp(&mut self, flp: u32) {
        let hello = Hello {
            data_address: String::new(),
            capacity_bytes: self.scenario.hold_bytes,
            slots: 0,
            stf_bytes_max: self.sizes.bytes_max(flp),
            weight_milli: 1000,
            is_durable: false,
            ..Hello::default()
        };
        let node = &mut self.flps[flp as usize];
        node.condition = Condition::Up;
        node.is_connected = true;
        self.send_from_flp(flp, Word::Hello(hello));
    }

    /// Joins an EPN, for the first time or again.
    pub(super) fn send_hello_epn(&mut self, epn: u32) {
        let weight = self
            .scenario
            .group_of(epn)
            .map_or(1.0, |group| group.weight);
        let hello = Hello {
            data_address: String::new(),
            capacity_bytes: self.scenario.farm.capacity_bytes,
            slots: self.scenario.farm.tfs_in_building_max,
            stf_bytes_max: 0,
            weight_milli: ((weight * 1000.0) as u32).max(1),
            is_durable: false,
            ..Hello::default()
        };
        let node = &mut self.epns[epn as usize];
        node.condition = Condition::Up;
        node.is_connected = true;
        self.send_from_epn(epn, Word::Hello(hello));
    }

    pub(super) fn hear_flp(&mut self, flp: u32, control: Control) {
        let now = self.now();
        let node = &mut self.flps[flp as usize];
        match node.condition {
            Condition::Down => return,
            Condition::Hung | Condition::Cut => return node.held.push(control),
            Condition::Up => {}
        }
        self.take_flp_release(flp);
        let node = &mut self.flps[flp as usize];
        match control {
            Control::Welcome(_) => node.brain.handle_joined(now, self.run_id, false),
            control => node.brain.handle_control(now, control),
        }
        if node.brain.is_dismissed() {
            node.condition = Condition::Down;
        }
        self.touched_flps.push(flp);
    }

    pub(super) fn hear_epn(&mut self, epn: u32, control: Control) {
        let now = self.now();
        let node = &mut self.epns[epn as usize];
        match node.condition {
            Condition::Down => return,
            Condition::Hung | Condition::Cut => return node.held.push(control),
            Condition::Up => {}
        }
        self.take_epn_release(epn);
        let run_id = self.run_id;
        let node = &mut self.epns[epn as usize];
        let brain = &mut node.brain;
        match control {
            Control::Welcome(_) => brain.handle_joined(now, run_id, false),
            Control::Roster { id, members } => brain.handle_roster(id, &members),
            Control::Assign(items) => brain.handle_assign(now, &items),
            Control::Absent(items) => brain.handle_absent(now, &items),
            Control::SourceGone { source, roster } => brain.handle_source_gone(now, source, roster),
            Control::SourceBack { source, roster } => brain.handle_source_back(source, roster),
            Control::Commit(items) => brain.handle_commit(now, &items),
            Control::Recall(tfs) => {
                brain.handle_recall(&tfs);
            }
            Control::Release(release) => brain.handle_release(&release),
            Control::Dismissed => return self.send_home(epn),
            _ => {}
        }
        self.touched_epns.push(epn);
    }

    fn send_home(&mut self, epn: u32) {
        let node = &mut self.epns[epn as usize];
        node.condition = Condition::Down;
        if std::mem::replace(&mut node.is_connected, false) {
            self.saying.push(Said {
                node: node.target.epn.into(),
                incarnation: node.target.incarnation,
                word: Word::Closed,
            });
        }
    }

    /// Applies the newest release that has come to all FLPs.
    pub(super) fn take_flp_release(&mut self, flp: u32) {
        let node = &mut self.flps[flp as usize];
        let is_new = self.flp_release.version > node.release_version;
        if is_new && node.condition == Condition::Up {
            node.release_version = self.flp_release.version;
            let release = Control::Release(self.flp_release.clone());
            node.brain
                .handle_control(Timestamp(self.queue.now()), release);
        }
    }

    /// Applies the newest release that has come to all EPNs.
    pub(super) fn take_epn_release(&mut self, epn: u32) {
        let node = &mut self.epns[epn as usize];
        let is_new = self.epn_release.version > node.release_version;
        if is_new && node.condition == Condition::Up {
            node.release_version = self.epn_release.version;
            node.brain.handle_release(&self.epn_release);
        }
    }

    /// Makes the STFs that are due at all FLPs.
    pub(super) fn make_all(&mut self) {
        self.make_at = Nanos::MAX;
        for flp in 0..self.flps.len() as u32 {
            if self.flps[flp as usize].is_acting() {
                self.take_flp_release(flp);
                self.act_flp(flp);
            }
        }
    }

    fn make(&mut self, flp: u32) {
        let now = self.now();
        loop {
            match self.flps[flp as usize].brain.demand(now) {
                Demand::Make(tf) => self.make_one(now, flp, tf),
                Demand::WaitUntil(due) => {
                    if due.0 < self.make_at {
                        self.make_at = due.0;
                        self.queue.push(due.0, Event::Make);
                    }
                    return;
                }
                Demand::Nothing => return,
            }
        }
    }

    fn make_one(&mut self, now: Timestamp, flp: u32, tf: TfId) {
        let bytes = self.sizes.bytes(flp, tf.0);
        let stf = Stf {
            tf,
            format: PayloadFormat::Opaque,
            // Stands for bytes that were never made: the same for the same STF, another for another.
            digest: splitmix::mix(tf.0 << 16 | u64::from(flp)) as u32,
            payload: self.payload(bytes),
        };
        let brain = &mut self.flps[flp as usize].brain;
        let given = brain.handle_stf(now, stf);
        debug_assert!(
            !matches!(given, Given::Refused(_)),
            "a source that counts by itself"
        );
        self.run.flp_peak_bytes = self.run.flp_peak_bytes.max(brain.held_bytes());
    }

    /// Carries out all actions of an FLP.
    pub(super) fn act_flp(&mut self, flp: u32) {
        if self.flps[flp as usize].condition != Condition::Down {
            self.make(flp);
        }
        while let Some(action) = self.flps[flp as usize].brain.poll_action() {
            match action {
                FlpAction::Send(control) => self.send_from_flp(flp, Word::Control(control)),
                FlpAction::SendStf { target, header, .. } => self.send_stf(flp, target, header),
                FlpAction::Connect { target, .. } => self.connecting.push((flp as u16, target)),
                FlpAction::Disconnect { target } => self.disconnect(flp, target),
                // The network model fetches by itself: its FLPs push.
                FlpAction::SendToEpn { .. } => {}
            }
        }
    }

    /// Delivers a whole STF to an EPN.
    pub(super) fn arrive_stf(&mut self, epn: u32, header: &StfHeader, spent: Duration) {
        let now = self.now();
        self.run.stfs += 1;
        let began = now.0.saturating_sub(spent.as_nanos() as u64);
        self.records.arrive(began, now.0, header.key.tf);
        self.take_epn_release(epn);
        let node = &mut self.epns[epn as usize];
        node.received_bytes += header.payload_bytes;
        // The EPN counts its refusals itself.
        let _ = node.brain.handle_stf(now, header, header.digest, (), spent);
        self.run.epn_peak_bytes = self.run.epn_peak_bytes.max(node.held_bytes());
        self.act_epn(epn);
    }

    /// Carries out all actions of an EPN.
    pub(super) fn act_epn(&mut self, epn: u32) {
        while let Some(action) = self.epns[epn as usize].brain.poll_action() {
            match action {
                EpnAction::Send(control) => self.send_from_epn(epn, Word::Control(control)),
                EpnAction::Deliver(tf) => {
                    self.fates.deliver(tf.tf);
                    let bytes = tf.bytes();
                    let at = self.queue.now() + self.scenario.processing.take_us * 1000;
                    let node = &mut self.epns[epn as usize];
                    node.delivered += 1;
                    node.waiting.push_back((tf.tf, bytes, at));
                    let missing = tf.missing.len();
                    match self.scenario.ack {
                        AckLevel::Built => {
                            node.brain.handle_delivered(tf.run, tf.tf, bytes, missing);
                        }
                        AckLevel::Processed => {
                            node.brain.handle_held(tf.run, tf.tf, bytes, missing);
                        }
                    }
                    self.process(epn);
                }
                // A consumer takes every TF at once, and no TF is stored.
                EpnAction::SendToFlp { .. }
                | EpnAction::Recall { .. }
                | EpnAction::Store(_)
                | EpnAction::Unstore { .. }
                | EpnAction::Recover { .. } => {}
            }
        }
    }

    /// Lets the consumer begin with TFs that wait for it.
    pub(super) fn process(&mut self, epn: u32) {
        let now = self.queue.now();
        loop {
            let node = &mut self.epns[epn as usize];
            if node.busy >= self.scenario.processing.parallel || !node.is_acting() {
                return;
            }
            let Some((tf, bytes, at)) = node.waiting.pop_front() else {
                return;
            };
            let begin = at.max(now);
            self.records.process(begin, tf);
            let overhead = self.scenario.processing.overhead_us * 1000;
            let ns = self.times.ns(tf.0, node.speed / node.slowness, bytes) + overhead;
            if ns == 0 && begin == now {
                node.finish(Timestamp(now), self.run_id, tf, bytes);
                self.records.done(now, tf);
                continue;
            }
            node.busy += 1;
            node.working.insert(tf);
            let event = Event::Processed {
                epn: epn as u16,
                life: node.target.incarnation.0 as u16,
                tf,
                bytes,
            };
            self.queue.push(begin + ns, event);
        }
    }

    pub(super) fn processed(&mut self, epn: u16, life: u16, tf: TfId, bytes: u64) {
        let node = &mut self.epns[usize::from(epn)];
        if node.target.incarnation.0 != u64::from(life) || node.condition == Condition::Down {
            return; // It died with the node.
        }
        node.busy -= 1;
        node.working.remove(&tf);
        let now = self.queue.now();
        node.finish(Timestamp(now), self.run_id, tf, bytes);
        self.records.done(now, tf);
        self.process(u32::from(epn));
        self.act_epn(u32::from(epn));
    }
}
