//! One seed: EPNs, writers and the streams between them, and what the files have to hold.

mod check;

use super::net::{Net, ToEpn, ToWriter};
use super::options::{HandoffFault, HandoffOptions};
use super::writer::Writer;
use crate::dice::Dice;
use crate::farm::Outcome;
use crate::invariant::{Broken, Invariant};
use crate::trace::{Hash, Line, Trace};
use crate::watch::Accounting;
use sheaf_protocol::control::{HeldTf, Move, Record, TfCopy};
use sheaf_protocol::{Attempt, RunId, TfId, Timestamp};
use sheaf_write::{Handoff, HandoffAction, HandoffConfig, HandoffId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Length of a step, in ms.
const STEP_MS: u64 = 5;
/// Time within which all has to be done when there are no more faults, in ms.
const DRAIN_MS: u64 = 60_000;
/// Time between two looks at all files, in steps.
const LOOK_EVERY: u64 = 20;
/// Longest time of an acknowledgement on its way to the ICN, in ms.
const ACK_MS: u64 = 60;
/// Bytes of a TF.
const TF_BYTES: u64 = 10;

/// A TF that is stored and waits for its commit, or to be published.
#[derive(Debug)]
struct Stored {
    writer: u16,
    /// Writers that it was sent to.
    tried: Vec<u16>,
    copy: TfCopy,
    /// When its fate is decided, in ms; `None` once it is to be published.
    decided_at: Option<u64>,
    /// Stream on which the writer was asked to publish it.
    asked_on: Option<u64>,
    /// Of a former life.
    is_former: bool,
}

/// Life of an EPN.
#[derive(Debug)]
struct Epn {
    handoff: Handoff,
    /// Stream to each writer, and whether it is welcome there.
    conns: Vec<Option<(u64, bool)>>,
    /// TFs that are sent before they are committed.
    held: BTreeSet<HandoffId>,
    stored: BTreeMap<HandoffId, Stored>,
    /// Lists of the writers that have said what they hold of former lives.
    former: BTreeMap<u16, Vec<HeldTf>>,
    said: BTreeSet<u16>,
    /// Whether it has decided about these: it takes TFs from then on.
    has_joined: bool,
    /// Acknowledgements on their way to the ICN, with the ms at which they arrive.
    acks: Vec<(u64, HandoffId)>,
}

/// Everything of one seed.
pub(super) struct World<'a> {
    options: &'a HandoffOptions,
    dice: Dice,
    now_ms: u64,
    net: Net,
    writers: Vec<Writer>,
    epns: Vec<Option<Epn>>,
    dead_until: Vec<u64>,
    /// Lives that each EPN has had.
    lives: Vec<u64>,
    next_tf: Vec<u64>,
    /// TFs with a verdict.
    committed: BTreeSet<HandoffId>,
    /// TFs of which the ICN knows that they count.
    acknowledged: BTreeSet<HandoffId>,
    /// TFs that EPNs were answered for: they count from then on.
    done: BTreeSet<HandoffId>,
    /// TFs that are not committed, and whose copies are to be void.
    revoked: BTreeSet<HandoffId>,
    /// All that was ever given to an EPN.
    given: BTreeSet<HandoffId>,
    faults: u64,
    moved: u64,
    hash: Hash,
    pub(super) trace: Trace,
}

impl<'a> World<'a> {
    pub(super) fn new(options: &'a HandoffOptions, trace: Trace) -> Self {
        let writer = |index| Writer::new(index, options.streams, options.window_tfs);
        let epns = usize::from(options.epns);
        Self {
            dice: Dice::new(options.seed),
            now_ms: 0,
            net: Net::default(),
            writers: (0..options.writers).map(writer).collect(),
            epns: (0..epns).map(|_| None).collect(),
            dead_until: vec![0; epns],
            lives: vec![0; epns],
            next_tf: vec![0; epns],
            committed: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            done: BTreeSet::new(),
            revoked: BTreeSet::new(),
            given: BTreeSet::new(),
            faults: 0,
            moved: 0,
            hash: Hash::new(),
            trace,
            options,
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp(self.now_ms * 1_000_000)
    }

    pub(super) fn outcome(&self) -> Outcome {
        let mut hash = self.hash;
        hash.add(self.done.len() as u64);
        let fates = [
            ("given", self.given.len() as u64),
            ("written", self.done.len() as u64),
            ("revoked", self.revoked.len() as u64),
            ("moved", self.moved),
        ];
        Outcome {
            accounting: Accounting::default(),
            fates: fates.into(),
            state_faults: self.faults,
            message_faults: 0,
            simulated: Duration::from_millis(self.now_ms),
            trace_hash: hash.value(),
        }
    }

    fn tell(&mut self, node: &str, tfs: Vec<u64>, text: impl FnOnce() -> String) {
        let at = self.now();
        self.trace.add(|| Line::new(at, node, tfs, text()));
    }

    /// Runs until all is done.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let calm_ms = self.options.calm_ms();
        let mut faults = self.options.faults.clone().into_iter().peekable();
        let mut steps: u64 = 0;
        loop {
            while let Some((_, fault)) = faults.next_if(|(at, _)| *at <= self.now_ms) {
                self.inject(fault);
            }
            for epn in 0..self.options.epns {
                self.turn_epn(epn)?;
            }
            for writer in 0..self.options.writers {
                self.turn_writer(writer);
            }
            steps += 1;
            if steps.is_multiple_of(LOOK_EVERY) {
                self.check()?;
            }
            let is_calm = self.now_ms >= calm_ms && faults.peek().is_none();
            if is_calm && self.is_over() {
                return self.check_end();
            }
            if self.now_ms > calm_ms + DRAIN_MS {
                let left: Vec<String> = self.left();
                let text = format!(
                    "not done {DRAIN_MS} ms after the last fault: {}",
                    left.join(", ")
                );
                return Err((Invariant::WritesInTime, text));
            }
            self.now_ms += STEP_MS;
        }
    }

    fn inject(&mut self, fault: HandoffFault) {
        self.faults += 1;
        self.tell("farm", Vec::new(), || format!("{fault:?}"));
        let now = self.now_ms;
        match fault {
            HandoffFault::WriterDies(writer, ms) => self.kill_writer(writer, ms),
            HandoffFault::WriterDiesWriting(writer, ms) => {
                self.writers[usize::from(writer)].dies_writing = Some(ms);
            }
            HandoffFault::WriterHangs(writer, ms) => {
                self.writers[usize::from(writer)].hangs_until = now + ms;
            }
            HandoffFault::WriterFull(writer, ms) => {
                self.writers[usize::from(writer)].full_until = now + ms;
            }
            HandoffFault::CatalogueFails(writer, ms) => {
                self.writers[usize::from(writer)].fails_until = now + ms;
            }
            HandoffFault::EpnDies(epn, ms) => {
                self.epns[usize::from(epn)] = None;
                self.dead_until[usize::from(epn)] = now + ms;
                self.net.close(|conn| conn.epn == epn);
            }
            HandoffFault::Cut(epn, writer) => {
                self.close(|conn| conn.epn == epn && conn.writer == writer);
            }
        }
    }

    fn kill_writer(&mut self, writer: u16, ms: u64) {
        let until = self.now_ms + ms;
        self.writers[usize::from(writer)].die(until);
        self.close(|conn| conn.writer == writer);
    }

    /// Closes streams, and tells their EPNs.
    fn close(&mut self, is_over: impl Fn(&super::net::Conn) -> bool) {
        for (id, conn) in self.net.close(is_over) {
            let Some(epn) = &mut self.epns[usize::from(conn.epn)] else {
                continue;
            };
            let slot = &mut epn.conns[usize::from(conn.writer)];
            if slot.is_some_and(|(known, _)| known == id) {
                *slot = None;
                epn.said.remove(&conn.writer);
                epn.handoff.handle_closed(conn.writer);
                let text = format!("stream of epn {} to {} closed", conn.epn, conn.writer);
                let at = Timestamp(self.now_ms * 1_000_000);
                self.trace.add(|| Line::new(at, "farm", Vec::new(), text));
            }
        }
    }

    fn turn_writer(&mut self, writer: u16) {
        let delays = (self.options.delay_ms, self.options.write_ms);
        let Self {
            writers, net, dice, ..
        } = self;
        let died = writers[usize::from(writer)].turn(self.now_ms, net, dice, delays);
        if let Some(ms) = died {
            self.tell("farm", Vec::new(), || {
                format!("writer {writer} dies in a TF")
            });
            self.kill_writer(writer, ms);
        }
    }

    fn turn_epn(&mut self, index: u16) -> Result<(), Broken> {
        let at = usize::from(index);
        if self.now_ms < self.dead_until[at] {
            return Ok(());
        }
        if self.epns[at].is_none() {
            let config = HandoffConfig {
                writers: self.options.writers,
                policy: self.options.policy.to_owned(),
                window_tfs: self.options.window_tfs,
                silence: Duration::from_millis(self.options.silence_ms),
                seed: self.options.seed + u64::from(index),
            };
            self.lives[at] += 1;
            self.epns[at] = Some(Epn {
                handoff: Handoff::new(config)
                    .map_err(|error| (Invariant::NoPanic, error.to_string()))?,
                conns: vec![None; usize::from(self.options.writers)],
                held: BTreeSet::new(),
                stored: BTreeMap::new(),
                former: BTreeMap::new(),
                said: BTreeSet::new(),
                has_joined: !self.options.stores,
                acks: Vec::new(),
            });
        }
        self.connect(index);
        for writer in 0..self.options.writers {
            self.hear(index, writer)?;
        }
        self.join(index)?;
        self.give(index);
        self.deliver_acks(index);
        self.decide(index);
        let now = self.now();
        let epn = self.epns[at].as_mut().expect("it lives");
        epn.handoff.handle_tick(now);
        while epn.handoff.poll_news().is_some() {}
        let actions: Vec<HandoffAction> = std::iter::from_fn(|| epn.handoff.poll()).collect();
        self.hash.add(actions.len() as u64);
        for action in actions {
            self.act(index, action);
        }
        Ok(())
    }

    /// Opens streams to writers that live. One that hangs accepts, as its kernel does.
    fn connect(&mut self, index: u16) {
        let life = self.lives[usize::from(index)];
        let epn = self.epns[usize::from(index)].as_mut().expect("it lives");
        for (writer, slot) in (0..).zip(&mut epn.conns) {
            if slot.is_none()
                && self.writers[usize::from(writer)].is_alive()
                && self.dice.chance(30)
            {
                let conn = self.net.open(index, life, writer);
                *slot = Some((conn, false));
                let at = self.now_ms + self.dice.range(0, self.options.delay_ms);
                self.net.carry_to_writer(conn, at, ToWriter::Hello);
            }
        }
    }

    /// Gives an EPN the TFs that are due.
    fn give(&mut self, index: u16) {
        let at = usize::from(index);
        let has_joined = self.epns[at].as_ref().is_some_and(|epn| epn.has_joined);
        while has_joined
            && self.next_tf[at] < self.options.tfs
            && self.next_tf[at] * self.options.every_ms <= self.now_ms
        {
            let id = HandoffId {
                run: RunId(1),
                tf: TfId(self.next_tf[at] * 100 + u64::from(index)),
                attempt: Attempt(1),
            };
            self.next_tf[at] += 1;
            self.given.insert(id);
            let epn = self.epns[at].as_mut().expect("it lives");
            if self.options.stores {
                epn.held.insert(id);
            }
            epn.handoff.offer(id, TF_BYTES);
        }
    }

    fn hear(&mut self, index: u16, writer: u16) -> Result<(), Broken> {
        let at = usize::from(index);
        let epn = self.epns[at].as_mut().expect("it lives");
        let Some((conn, _)) = epn.conns[usize::from(writer)] else {
            return Ok(());
        };
        let now = Timestamp(self.now_ms * 1_000_000);
        for message in self.net.answers(conn, self.now_ms) {
            let epn = self.epns[at].as_mut().expect("it lives");
            match message {
                ToEpn::Welcome(welcome) => {
                    epn.conns[usize::from(writer)] = Some((conn, true));
                    epn.handoff.handle_welcome(now, writer, welcome);
                    let text = format!("writer {writer} welcomes epn {index}");
                    self.trace.add(|| Line::new(now, "farm", Vec::new(), text));
                }
                ToEpn::Pulse(pulse) => epn.handoff.handle_pulse(now, writer, &pulse),
                ToEpn::Voided(copy) => epn.handoff.handle_voided(writer, &[copy]),
                ToEpn::Moves(moves) => {
                    for Move { copy, .. } in &moves {
                        let stored = epn.stored.get_mut(&HandoffId::of(copy));
                        let is_earlier = |it: &Stored| it.is_former && it.copy.copy < copy.copy;
                        if let Some(stored) = stored.filter(|it| is_earlier(it)) {
                            (stored.writer, stored.copy) = (writer, *copy);
                            stored.asked_on = None;
                        }
                    }
                    epn.handoff.handle_moves(writer, &moves);
                }
                ToEpn::Published(copy) => self.handle_published(index, &copy)?,
                ToEpn::Held(tfs, are_all) => {
                    let former = epn.former.entry(writer).or_default();
                    former.extend(tfs);
                    if are_all {
                        epn.said.insert(writer);
                    }
                }
                ToEpn::Written(written) => {
                    let tried = epn.handoff.handle_written(now, writer, &written.copy);
                    let Some(tried) = tried else {
                        continue;
                    };
                    let id = HandoffId::of(&written.copy);
                    if !epn.held.remove(&id) {
                        self.finish(index, id, &format!("written by {writer}"))?;
                        continue;
                    }
                    let decided_at = Some(self.now_ms + self.dice.range(0, 200));
                    let stored = Stored {
                        writer,
                        tried,
                        copy: written.copy,
                        decided_at,
                        asked_on: None,
                        is_former: false,
                    };
                    epn.stored.insert(id, stored);
                }
            }
        }
        Ok(())
    }

    /// An EPN was answered: the TF counts now and for ever.
    fn finish(&mut self, index: u16, id: HandoffId, text: &str) -> Result<(), Broken> {
        self.tell(&format!("epn {index}"), vec![id.tf.0], || {
            format!("TF {} {text}", id.tf.0)
        });
        if !self.done.insert(id) {
            let text = format!("TF {} was acknowledged twice to its EPN", id.tf.0);
            return Err((Invariant::WriterBooks, text));
        }
        self.acknowledge(index, id);
        Ok(())
    }

    /// Sends the ICN an acknowledgement, which is lost if the EPN dies meanwhile.
    fn acknowledge(&mut self, index: u16, id: HandoffId) {
        let at = self.now_ms + self.dice.range(0, ACK_MS);
        let epn = self.epns[usize::from(index)].as_mut().expect("it lives");
        epn.acks.push((at, id));
    }

    fn deliver_acks(&mut self, index: u16) {
        let epn = self.epns[usize::from(index)].as_mut().expect("it lives");
        let now = self.now_ms;
        let due = epn.acks.extract_if(.., |(at, _)| *at <= now);
        self.acknowledged.extend(due.map(|(_, id)| id));
    }

    /// Decides about TFs of former lives, when all writers have said which they hold: the committed ones of which the
    /// ICN has no acknowledgement are published, all that are not committed are revoked.
    fn join(&mut self, index: u16) -> Result<(), Broken> {
        let epn = self.epns[usize::from(index)].as_mut().expect("it lives");
        if epn.has_joined || epn.said.len() < usize::from(self.options.writers) {
            return Ok(());
        }
        epn.has_joined = true;
        let mut copies: BTreeMap<HandoffId, Vec<(u16, HeldTf)>> = BTreeMap::new();
        for (writer, tfs) in &epn.former {
            for held in tfs {
                let of_tf = copies.entry(HandoffId::of(&held.copy)).or_default();
                // What a writer says last is so.
                of_tf.retain(|(of, _)| of != writer);
                of_tf.push((*writer, held.clone()));
            }
        }
        let is_due =
            |id: &&HandoffId| id.tf.0 % 100 == u64::from(index) && !self.acknowledged.contains(*id);
        for id in self.committed.iter().filter(is_due) {
            let mut found = copies.remove(id).unwrap_or_default();
            found.sort_by_key(|(_, held)| held.copy.copy);
            let Some((writer, held)) = found.pop() else {
                let text = format!(
                    "TF {}, which was stored and committed, is at no writer",
                    id.tf.0
                );
                return Err((Invariant::TrueReason, text));
            };
            for (writer, _) in found {
                epn.handoff.revoke(writer, *id);
            }
            let stored = Stored {
                writer,
                tried: vec![writer],
                copy: held.copy,
                decided_at: None,
                asked_on: None,
                is_former: true,
            };
            epn.stored.insert(*id, stored);
        }
        for (id, of_tf) in copies {
            for (writer, _) in of_tf.iter().filter(|(_, held)| !held.is_published) {
                epn.handoff.revoke(*writer, id);
            }
            if !self.committed.contains(&id) {
                self.revoked.insert(id);
            }
        }
        Ok(())
    }

    fn handle_published(&mut self, index: u16, copy: &TfCopy) -> Result<(), Broken> {
        let id = HandoffId::of(copy);
        let epn = self.epns[usize::from(index)].as_mut().expect("it lives");
        let is_it = |stored: &Stored| stored.copy == *copy && stored.decided_at.is_none();
        if !epn.stored.get(&id).is_some_and(is_it) {
            return Ok(());
        }
        let stored = epn.stored.remove(&id).expect("it is there");
        if stored.is_former && self.done.contains(&id) {
            // The former life was answered, and the ICN was not.
            self.acknowledge(index, id);
            return Ok(());
        }
        self.finish(index, id, "published")
    }

    /// Decides the fate of stored TFs, and asks writers to publish those that are committed.
    fn decide(&mut self, index: u16) {
        let epn = self.epns[usize::from(index)].as_mut().expect("it lives");
        let ids: Vec<HandoffId> = epn.stored.keys().copied().collect();
        for id in ids {
            let stored = epn.stored.get_mut(&id).expect("it is there");
            let writer = stored.writer;
            if let Some(at) = stored.decided_at {
                if at > self.now_ms {
                    continue;
                }
                if !self.dice.chance(self.options.committed_percent) {
                    epn.stored.remove(&id);
                    epn.handoff.revoke(writer, id);
                    self.revoked.insert(id);
                    continue;
                }
                stored.decided_at = None;
                self.committed.insert(id);
            }
            let is_former = stored.is_former;
            let Some((conn, true)) = epn.conns[usize::from(writer)] else {
                if is_former {
                    // No other writer has it.
                    continue;
                }
                // Its writer is gone: another one gets the TF.
                let copy = stored.copy;
                let tried = epn.stored.remove(&id).map(|stored| stored.tried);
                let tried = tried.unwrap_or_default();
                epn.handoff.offer_moved(id, TF_BYTES, copy.copy, tried);
                continue;
            };
            if stored.asked_on != Some(conn) {
                stored.asked_on = Some(conn);
                let at = self.now_ms + self.dice.range(0, self.options.delay_ms);
                self.net
                    .carry_to_writer(conn, at, ToWriter::Publish(stored.copy));
            }
        }
    }

    fn act(&mut self, index: u16, action: HandoffAction) {
        let epn = self.epns[usize::from(index)].as_mut().expect("it lives");
        let at = self.now_ms + self.dice.range(0, self.options.delay_ms);
        let (to, message) = match action {
            HandoffAction::Send {
                writer,
                copy,
                may_be_here,
                elsewhere,
                is_committed,
            } => {
                self.moved += u64::from(!elsewhere.is_empty());
                let record = Record {
                    copy,
                    is_redelivered: false,
                    is_held: epn.held.contains(&HandoffId::of(&copy)),
                    is_committed,
                    may_be_here,
                    parts: 0,
                    bytes: TF_BYTES,
                    missing: Vec::new(),
                    elsewhere,
                };
                (writer, ToWriter::Record(record))
            }
            HandoffAction::Void { writer, copies } => (writer, ToWriter::Void(copies)),
            HandoffAction::Settled { writer, moves } => (writer, ToWriter::Settled(moves)),
            HandoffAction::Close { writer } => {
                return self.close(|conn| conn.epn == index && conn.writer == writer);
            }
        };
        let conn = epn.conns[usize::from(to)];
        let node = format!("epn {index}");
        self.tell(&node, Vec::new(), || format!("to {to}: {message:?}"));
        if let Some((conn, _)) = conn {
            self.net.carry_to_writer(conn, at, message);
        }
    }

    /// Whether all nodes live and have nothing left to do.
    fn is_over(&self) -> bool {
        let is_done = |epn: &Option<Epn>| {
            epn.as_ref().is_some_and(|epn| {
                let is_welcome = |conn: &Option<(u64, bool)>| conn.is_some_and(|(_, is)| is);
                let handoff = &epn.handoff;
                epn.conns.iter().all(is_welcome)
                    && handoff.pending() == 0
                    && handoff.to_void() == 0
                    && epn.stored.is_empty()
                    && epn.acks.is_empty()
                    && epn.has_joined
            })
        };
        let is_given = self.next_tf.iter().all(|next| *next == self.options.tfs);
        let is_quiet = |conn: &super::net::Conn| {
            let is_pulse = |(_, message): &(u64, ToEpn)| matches!(message, ToEpn::Pulse(_));
            conn.to_writer.is_empty() && conn.to_epn.iter().all(is_pulse)
        };
        is_given
            && self.epns.iter().all(is_done)
            && self.writers.iter().all(Writer::is_idle)
            && self.net.conns.values().all(is_quiet)
    }

    fn left(&self) -> Vec<String> {
        let epns = (0..)
            .zip(&self.epns)
            .map(|(index, epn): (u16, _)| match epn {
                None => format!("epn {index} is dead"),
                Some(epn) => format!(
                    "epn {index}: {} pending, {} stored, {} to void",
                    epn.handoff.pending(),
                    epn.stored.len(),
                    epn.handoff.to_void()
                ),
            });
        let writers = (0..)
            .zip(&self.writers)
            .filter(|(_, writer)| !writer.is_idle());
        let writers = writers.map(|(index, _): (u16, _)| format!("writer {index} is busy"));
        epns.chain(writers).collect()
    }
}
