//! One seed: clients, network and collector, turn by turn.

mod inject;
mod judge;

use super::check::{self, broken};
use super::client::{Client, Item, Parcel};
use super::collector::{Collector, Kept};
use super::disk::SimDisk;
use super::model::Model;
use super::model::store::DAY_MS;
use super::names::Metric;
use super::options::{BEGIN_MS, Death, MonitorOptions, Operators, TURN_MS, Way};
use crate::dice::Dice;
use crate::invariant::{Broken, Invariant};
use crate::trace::{Hash, Line, Trace};
use sheaf_protocol::Timestamp;
use sheaf_sample_store::Disk;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

/// Turns without faults at the end.
const SETTLE_TURNS: u64 = 200;
/// Turns between two looks at everything.
const LOOK_EVERY: u64 = 50;
/// Datagrams that the collector takes in a turn.
const RECEIVED_MAX: usize = 64;

/// Fate of a datagram, for the loss of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Journey {
    Away,
    Taken(u64),
}

/// Datagram in the order in which its client sent it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    samples: u64,
    /// Whether a line is whole: bad lines alone belong to the address of their sender, and the client has lost them.
    has_sample: bool,
    has_count: bool,
    journey: Journey,
}

/// Everything of one seed.
pub(super) struct World<'a> {
    options: &'a MonitorOptions,
    dice: Dice,
    dir: PathBuf,
    disk: SimDisk,
    clients: Vec<Client>,
    collector: Option<Collector>,
    /// How far the clock of the collector is ahead, in ms.
    ahead_ms: i64,
    operators: Operators,
    model: Model,
    turn: u64,
    now_ms: i64,
    /// Datagrams on their way, by time of arrival and number.
    arrivals: BTreeMap<(i64, u64), (Parcel, usize)>,
    next_number: u64,
    sent: Vec<Vec<Sent>>,
    /// A death that waits for a step of the disk.
    death: Option<Death>,
    start_at: u64,
    full_until: u64,
    slow_until: u64,
    life: u64,
    /// Since then the disk has been well and nothing has stood still.
    well_since_ms: i64,
    /// Samples given to the queue so far, and when.
    pushed: u64,
    waiting: VecDeque<(i64, u64)>,
    kernel_drops: u64,
    pub(super) state_faults: u64,
    pub(super) message_faults: u64,
    pub(super) trace: Trace,
    pub(super) hash: Hash,
}

impl<'a> World<'a> {
    pub(super) fn new(options: &'a MonitorOptions, dir: &Path, trace: Trace) -> Self {
        let clients = options.clients.iter().zip(0..);
        let clients = clients.map(|(one, number)| Client::new(number, *one));
        Self {
            options,
            dice: Dice::new(options.seed),
            dir: dir.join("store"),
            disk: SimDisk::default(),
            clients: clients.collect(),
            collector: None,
            ahead_ms: 0,
            operators: options.operators,
            model: Model::new(options),
            turn: 0,
            now_ms: 0,
            arrivals: BTreeMap::new(),
            next_number: 0,
            sent: vec![Vec::new(); options.clients.len()],
            death: None,
            start_at: 0,
            full_until: 0,
            slow_until: 0,
            life: 0,
            well_since_ms: 0,
            pushed: 0,
            waiting: VecDeque::new(),
            kernel_drops: 0,
            state_faults: 0,
            message_faults: 0,
            trace,
            hash: Hash::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp(self.now_ms.unsigned_abs() * 1_000_000)
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    fn wall_ms(&self) -> i64 {
        BEGIN_MS + self.now_ms
    }

    fn collector_ms(&self) -> i64 {
        self.wall_ms() + self.ahead_ms
    }

    fn say(&mut self, node: &str, text: impl FnOnce() -> String) {
        let at = self.now();
        self.trace.add(|| Line::new(at, node, Vec::new(), text()));
    }

    /// Lets everything happen.
    pub(super) fn run(&mut self) -> Result<(), Broken> {
        let mut faults = self.options.faults.iter().copied().peekable();
        while self.turn < self.options.turns {
            while let Some((_, fault)) = faults.next_if(|fault| fault.0 <= self.turn) {
                self.inject(fault)?;
            }
            self.step(true)?;
        }
        self.settle()
    }

    /// Ends all faults, and then everything else.
    fn settle(&mut self) -> Result<(), Broken> {
        self.say("farm", || "all faults end".to_owned());
        self.full_until = self.turn;
        self.slow_until = self.turn;
        self.disk.lock().syncs_refused = 0;
        self.start_at = self.start_at.min(self.turn);
        if self.death.take().is_some() {
            self.disk.lock().dies_after = None;
        }
        let last = self.turn + SETTLE_TURNS;
        while self.turn < last {
            self.step(false)?;
        }
        if !self.arrivals.is_empty() || self.collector.is_none() {
            return broken(Invariant::InTime, "the end is not quiet");
        }
        let (now_ms, wall_ms) = (self.now_ms, self.collector_ms());
        if let Some(collector) = &mut self.collector {
            let kept = collector.end(now_ms, wall_ms, &self.disk);
            self.follow(&kept)?;
        }
        if !self.model.queue.is_empty() || self.model.store.uncommitted() > 0 {
            return broken(
                Invariant::InTime,
                format!(
                    "an orderly end leaves {} samples in the queue and {} without a commit",
                    self.model.queue.len(),
                    self.model.store.uncommitted()
                ),
            );
        }
        self.look()?;
        self.die(true, 0)?;
        self.start()?;
        self.look()?;
        self.sum()
    }

    /// One turn.
    fn step(&mut self, is_sending: bool) -> Result<(), Broken> {
        self.turn += 1;
        self.now_ms += TURN_MS;
        if self.full_until == self.turn || self.slow_until == self.turn {
            self.well_since_ms = self.now_ms;
        }
        {
            let mut disk = self.disk.lock();
            disk.is_full = self.full_until > self.turn;
            if self.slow_until <= self.turn {
                disk.step_ms = 0;
            }
        }
        if self.collector.is_none() && self.start_at <= self.turn {
            self.start()?;
        }
        if is_sending {
            self.send();
        }
        self.request()?;
        self.arrive();
        self.receive()?;
        self.keep()?;
        if self.disk.lock().is_dead {
            let death = self.death.take().unwrap_or(Death {
                is_cut: true,
                after_steps: 0,
                down: 1,
            });
            self.die(death.is_cut, death.down)?;
        }
        if self.turn.is_multiple_of(LOOK_EVERY) {
            self.look()?;
        }
        Ok(())
    }

    /// Starts the collector, and looks at what the former one left.
    fn start(&mut self) -> Result<(), Broken> {
        if self.life > 0 && self.dice.chance(50) && self.dir.exists() {
            let copied = self.dir.with_file_name("copied");
            let _ = std::fs::remove_dir_all(&copied);
            copy(&self.dir, &copied).map_err(|error| (Invariant::Fsck, error.to_string()))?;
            let store = Disk::open(&copied, self.options.store.clone());
            let store = store.map_err(|error| (Invariant::Fsck, error.to_string()))?;
            check::fsck(&store)?;
        }
        if self.life > 0 && self.start_at > 0 && self.dice.chance(10) {
            self.disk.lock().dies_after = Some(self.dice.range(0, 2));
        }
        let refusing = self.disk.lock().syncs_refused;
        let (options, now_ms) = (self.options, self.now_ms);
        let started = Collector::start(&self.dir, &self.disk, options, &self.operators, now_ms);
        let is_dead = {
            let mut disk = self.disk.lock();
            disk.dies_after = None;
            std::mem::take(&mut disk.is_dead)
        };
        let collector = match started {
            Ok(collector) => collector,
            Err(_) if is_dead => {
                self.say("farm", || "the collector dies while it starts".to_owned());
                self.state_faults += 1;
                self.lose_power()?;
                self.start_at = 0;
                return self.start();
            }
            Err(_) if self.disk.lock().syncs_refused < refusing => {
                self.say("farm", || "the disk lets no store open".to_owned());
                return Ok(());
            }
            Err(error) => {
                return broken(
                    Invariant::Durable,
                    format!("the store does not open: {error}"),
                );
            }
        };
        self.life += 1;
        let life = self.life;
        self.say("collector", || format!("starts its life {life}"));
        let found = check::found(&collector.store, &self.model.store)?;
        let adopted = self.model.store.adopt(&found, &mut self.model.books);
        adopted.map_err(|detail| (Invariant::Durable, detail))?;
        check::content(&collector.store, &self.model.store)?;
        if self.dice.chance(50) && !self.disk.lock().is_full {
            check::fsck(&collector.store)?;
            check::content(&collector.store, &self.model.store)?;
        }
        self.collector = Some(collector);
        self.model.start(self.operators);
        self.well_since_ms = self.now_ms;
        Ok(())
    }

    fn lose_power(&mut self) -> Result<(), Broken> {
        let lost = self.disk.lose_power(&mut self.dice);
        lost.map_err(|error| (Invariant::NoPanic, format!("the simulated disk: {error}")))
    }

    /// The collector dies. Its page is read in the last instant.
    fn die(&mut self, is_cut: bool, down: u64) -> Result<(), Broken> {
        let Some(collector) = self.collector.take() else {
            return Ok(());
        };
        self.say("farm", || {
            format!(
                "the collector dies{}",
                if is_cut { ", the power is gone" } else { "" }
            )
        });
        self.state_faults += 1;
        self.audit(&collector)?;
        for (parcel, _) in &collector.kernel {
            let count = parcel.items.len() as u64;
            self.model
                .books
                .of(parcel.client)
                .add("lost in the kernel", count);
        }
        drop(collector);
        {
            let mut disk = self.disk.lock();
            disk.is_dead = false;
            disk.dies_after = None;
        }
        if is_cut {
            self.lose_power()?;
        }
        self.model.die();
        self.waiting.clear();
        self.kernel_drops = 0;
        self.death = None;
        self.start_at = self.turn + down;
        Ok(())
    }

    /// Clients flush.
    fn send(&mut self) {
        let wall_ms = self.wall_ms();
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            if !(self.turn + at as u64).is_multiple_of(client.options.every) {
                continue;
            }
            let parcels = client.flush(wall_ms, &mut self.dice);
            if client.options.way == Way::Datagrams {
                parcels.into_iter().for_each(|parcel| self.launch(parcel));
            } else {
                parcels.into_iter().for_each(|parcel| client.keep(parcel));
            }
        }
    }

    /// Gives a datagram to the network.
    fn launch(&mut self, mut parcel: Parcel) {
        let network = &self.options.network;
        let dice = &mut self.dice;
        let at = usize::from(parcel.client);
        let mut draw = |thousandths| dice.range(1, 1000) <= thousandths;
        let (is_lost, is_twice, is_cut) =
            (draw(network.lost), draw(network.twice), draw(network.cut));
        let number = self.sent[at].len();
        if is_cut && !is_lost {
            parcel.cut(&mut self.dice);
            self.message_faults += 1;
        }
        let is_count = |item: &Item| matches!(item, Item::Sample { series, .. } if series.metric == Metric::Sent);
        let count = parcel.items.len() as u64;
        self.sent[at].push(Sent {
            samples: count,
            has_sample: parcel.items.iter().any(|item| *item != Item::Bad),
            has_count: parcel.items.last().is_some_and(is_count),
            journey: Journey::Away,
        });
        let copies = if is_twice && !is_lost { 2 } else { 1 };
        self.clients[at].copies += count * copies;
        if is_lost {
            self.message_faults += 1;
            self.model
                .books
                .of(parcel.client)
                .add("lost in the network", count);
            return;
        }
        self.message_faults += copies - 1;
        for _ in 0..copies {
            let mut delay_ms = network.delay_ms;
            if self.dice.range(1, 1000) <= network.late {
                delay_ms += self.dice.range(1, network.late_ms);
                self.message_faults += 1;
            }
            let at_ms = self.now_ms + i64::try_from(delay_ms).expect("a short time");
            self.next_number += 1;
            let key = (at_ms, self.next_number);
            self.arrivals.insert(key, (parcel.clone(), number));
        }
    }

    /// Requests are sent, each until it is answered.
    fn request(&mut self) -> Result<(), Broken> {
        let wall_ms = self.collector_ms();
        for at in 0..self.clients.len() {
            let Some(collector) = &mut self.collector else {
                break;
            };
            if !collector.takes_requests() {
                break;
            }
            let Some(request) = self.clients[at].backlog.front().cloned() else {
                continue;
            };
            self.clients[at].copies += request.items.len() as u64;
            self.take(wall_ms, &request)?;
            if let Some(collector) = &mut self.collector {
                collector.shard.flush(&mut collector.ears);
            }
            if self.dice.range(1, 1000) > self.options.network.answers_lost {
                self.clients[at].backlog.pop_front();
            } else {
                self.message_faults += 1;
            }
        }
        Ok(())
    }

    /// Datagrams reach the machine of the collector.
    fn arrive(&mut self) {
        let later = self.arrivals.split_off(&(self.now_ms + 1, 0));
        let due = std::mem::replace(&mut self.arrivals, later);
        for (parcel, number) in due.into_values() {
            let count = parcel.items.len() as u64;
            let books = self.model.books.of(parcel.client);
            match &mut self.collector {
                None => books.add("lost, no collector", count),
                Some(collector) if collector.kernel.len() >= self.options.kernel_max => {
                    books.add("lost in the kernel", count);
                    collector.kernel_drops += 1;
                    self.kernel_drops += 1;
                }
                Some(collector) => collector.kernel.push_back((parcel, number)),
            }
        }
    }

    /// The thread of datagrams has its turn.
    fn receive(&mut self) -> Result<(), Broken> {
        let wall_ms = self.collector_ms();
        let Some(collector) = &mut self.collector else {
            return Ok(());
        };
        let waiting = collector.queue.samples();
        let mut received = 0;
        if collector.queue.has_room() {
            let count = collector.kernel.len().min(RECEIVED_MAX);
            let due: Vec<(Parcel, usize)> = collector.kernel.drain(..count).collect();
            for (parcel, number) in due {
                received += parcel.items.len();
                self.sent[usize::from(parcel.client)][number].journey = Journey::Taken(self.life);
                self.take(wall_ms, &parcel)?;
            }
        }
        if waiting >= self.options.queue_max && received > 0 {
            return broken(
                Invariant::SourceBounds,
                format!("received while {waiting} samples wait in the queue"),
            );
        }
        let Some(collector) = &mut self.collector else {
            return Ok(());
        };
        collector.shard.flush(&mut collector.ears);
        let drops = std::mem::take(&mut collector.kernel_drops);
        collector.shard.intake_mut().handle_kernel_drops(drops);
        self.following(|world| {
            if let Some(collector) = &mut world.collector {
                collector.shard.tick(wall_ms, &mut collector.ears);
            }
            world.model.tick(wall_ms);
        })
    }

    /// Takes a datagram or request, and compares the fates of its samples.
    fn take(&mut self, wall_ms: i64, parcel: &Parcel) -> Result<(), Broken> {
        let mut outcome = None;
        let mut expected = None;
        self.following(|world| {
            let collector = world.collector.as_mut();
            outcome = collector.map(|collector| collector.take(wall_ms, parcel));
            expected = Some(world.model.take(wall_ms, parcel));
        })?;
        let (Some(outcome), Some(expected)) = (outcome, expected) else {
            return Ok(());
        };
        let client = parcel.client;
        self.say("collector", || {
            format!(
                "takes {} bytes of c{client}: {expected:?}",
                parcel.bytes.len()
            )
        });
        let found = super::model::Expected {
            taken: outcome.taken,
            bad: outcome.bad,
            refused: outcome.refused,
        };
        if found != expected {
            return broken(
                Invariant::Accounting,
                format!("a datagram of c{client}: found {found:?}, expected {expected:?}"),
            );
        }
        Ok(())
    }

    /// Does `work` with the collector and the model; both have to give the queue as many samples.
    fn following(&mut self, work: impl FnOnce(&mut Self)) -> Result<(), Broken> {
        let heard = |world: &Self| world.collector.as_ref().map_or(0, |one| one.ears.samples);
        let (before, queued) = (heard(self), self.model.queue.len());
        work(self);
        let found = heard(self) - before;
        let expected = (self.model.queue.len() - queued) as u64;
        self.pushed += expected;
        if expected > 0 {
            self.waiting.push_back((self.now_ms, self.pushed));
        }
        if found != expected {
            return broken(
                Invariant::Accounting,
                format!("{found} samples leave the operators, expected {expected}"),
            );
        }
        Ok(())
    }

    /// The thread of the store has its turn.
    fn keep(&mut self) -> Result<(), Broken> {
        let (now_ms, wall_ms) = (self.now_ms, self.collector_ms());
        let Some(collector) = &mut self.collector else {
            return Ok(());
        };
        let is_refusing = self.disk.lock().syncs_refused > 0;
        let kept = collector.keep(now_ms, wall_ms, &self.disk);
        let busy_until_ms = collector.busy_until_ms();
        self.follow(&kept)?;
        let is_slow = self.slow_until > self.turn || busy_until_ms > now_ms;
        if is_refusing || is_slow || self.full_until > self.turn || self.death.is_some() {
            self.well_since_ms = now_ms.max(busy_until_ms);
        }
        let most_ms = i64::try_from(self.options.commit_ms).expect("short") + 4 * TURN_MS;
        if let Some((since_ms, _)) = self.waiting.front()
            && now_ms - since_ms.max(&self.well_since_ms) > most_ms
        {
            return broken(
                Invariant::InTime,
                format!(
                    "a sample taken at {since_ms} ms has no commit, expected within {most_ms} ms"
                ),
            );
        }
        Ok(())
    }

    /// Lets the model follow what the keeper did.
    fn follow(&mut self, kept: &[Kept]) -> Result<(), Broken> {
        for event in kept {
            self.say("keeper", || format!("{event:?}"));
            match *event {
                Kept::Appended(found) => {
                    let expected = self.model.append(&found);
                    if found != expected {
                        return broken(
                            Invariant::Accounting,
                            format!("the store counts {found:?}, expected {expected:?}"),
                        );
                    }
                }
                Kept::Refused(reason, count) => {
                    if !self.model.refuse(reason, count) {
                        return broken(
                            Invariant::Accounting,
                            format!("{count} samples are refused as {reason}, fewer were sent"),
                        );
                    }
                }
                Kept::Committed => {
                    self.model.store.commit();
                    let committed = self.pushed - self.model.queue.len() as u64;
                    while self
                        .waiting
                        .pop_front_if(|one| one.1 <= committed)
                        .is_some()
                    {}
                }
                Kept::Maintained(at_ms) => self.model.store.clock_ms = Some(at_ms),
                Kept::DroppedDay(day_ms) => {
                    let store = &mut self.model.store;
                    store.dropped_to_ms = store.dropped_to_ms.max(day_ms + DAY_MS);
                }
                Kept::NotDropped => {
                    self.model.store.maybe_dropped_to_ms = self.model.store.oldest_day_end_ms();
                }
            }
        }
        Ok(())
    }
}

/// Copies a folder as the disk has it.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let into = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &into)?;
        } else {
            std::fs::copy(entry.path(), into)?;
        }
    }
    Ok(())
}
