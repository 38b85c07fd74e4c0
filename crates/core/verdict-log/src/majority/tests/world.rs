//! Members, their disks and the network between them, in virtual time out of one seed.

mod inject;

use crate::majority::{MajorityConfig, MajorityLedger, MemberRole, Message};
use crate::storage::{DiskFaults, SimDisk, SimStorage, Storage};
use crate::{Ledger, Notice, Position};
use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::{Checkpoint, Digest, Record, Term, TfId, Timestamp};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

pub(super) const ICNS: u16 = 3;

pub(super) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Faults of a seed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) seed: u64,
    /// One message in this many is lost, doubled, or late; 0 for none.
    loss_once_in: u32,
    double_once_in: u32,
    late_once_in: u32,
    faults: u32,
    may_wipe: bool,
    may_fail_disks: bool,
}

impl Options {
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eaf);
        let mut odds = |list: &[u32]| list[rng.random_range(0..list.len())];
        Self {
            seed,
            loss_once_in: odds(&[0, 0, 100, 10, 3]),
            double_once_in: odds(&[0, 0, 50, 5]),
            late_once_in: odds(&[0, 0, 50, 10, 3]),
            faults: odds(&[4, 8, 16]),
            may_wipe: odds(&[0, 0, 1]) == 1,
            may_fail_disks: odds(&[0, 1]) == 1,
        }
    }

    /// Returns options without faults.
    pub(super) fn kind(seed: u64) -> Self {
        Self {
            seed,
            loss_once_in: 0,
            double_once_in: 0,
            late_once_in: 0,
            faults: 0,
            may_wipe: false,
            may_fail_disks: false,
        }
    }
}

/// State of a leader: its decisions so far, and what it waits for.
#[derive(Debug)]
struct Lead {
    term: Term,
    /// Records that are durable, as this leader knows.
    records: usize,
    open: VecDeque<(Position, Vec<Record>)>,
}

#[derive(Debug)]
struct Node {
    disk: SimDisk,
    ledger: Option<MajorityLedger<SimStorage>>,
    lead: Option<Lead>,
    paused_until: Timestamp,
    wakes_at: Timestamp,
    /// Whether its disk has all that it may have promised.
    has_joined: bool,
    committed: u64,
    lives: u64,
}

impl Node {
    fn describe(&self) -> String {
        let Some(ledger) = &self.ledger else {
            return "dead".to_owned();
        };
        let status = ledger.status();
        format!(
            "{} {:?}, {} entries, due {:?}, wakes {:?}, streams {:?}, resigned {}, trouble {:?}",
            status.role,
            ledger.state,
            ledger.storage().last_index(),
            ledger.next_due(),
            self.wakes_at,
            ledger
                .peers
                .iter()
                .map(|peer| peer.is_connected)
                .collect::<Vec<_>>(),
            ledger.is_resigned,
            status.trouble
        )
    }
}

#[derive(Debug)]
enum Event {
    Deliver {
        from: u16,
        message: Bytes,
    },
    /// For this life of the member only.
    Peer {
        icn: u16,
        is_connected: bool,
        life: u64,
    },
    Wake,
    Work,
    Start,
    Fault,
    Heal(Sick),
}

/// Fault that ends by itself.
#[derive(Clone, Copy, Debug)]
enum Sick {
    Links,
    Disk,
}

/// The farm of ledgers and all invariants of it.
#[derive(Debug)]
pub(super) struct World {
    options: Options,
    rng: Xoshiro256PlusPlus,
    pub(super) now: Timestamp,
    nodes: Vec<Node>,
    queue: BTreeMap<(Timestamp, u64), (u16, Event)>,
    queued: u64,
    /// Whether no message goes from the first to the second.
    is_cut: [[bool; ICNS as usize]; ICNS as usize],
    is_peace: bool,
    /// Every record that was ever reported as durable or replayed, by place. `None` for one that only a checkpoint
    /// stands for: its leader died before it knew that the record is durable.
    truth: Vec<Option<Record>>,
    /// Term of the leader that reported it first. These only grow.
    truth_terms: Vec<Term>,
    leaders: BTreeMap<Term, u16>,
    /// Term of every entry that a member calls committed.
    committed: BTreeMap<u64, Term>,
    made: u64,
    /// Installs that were carried.
    pub(super) installs: u64,
    /// When each member began to lead.
    pub(super) leads: Vec<(Timestamp, u16, Term)>,
    pub(super) durable: u64,
    trace: Digest,
    pub(super) faults: u64,
}

type Checked = Result<(), String>;

impl World {
    pub(super) fn new(options: Options) -> Self {
        let mut world = Self::empty(options);
        for icn in 0..ICNS {
            let at = world.draw_us(0, 20_000);
            world.schedule(at, icn, Event::Start);
        }
        world
    }

    /// Returns a farm in which no member has started.
    pub(super) fn empty(options: Options) -> Self {
        let node = |icn: u16| Node {
            disk: SimDisk::new(options.seed ^ u64::from(icn + 1) << 40),
            ledger: None,
            lead: None,
            paused_until: Timestamp(0),
            wakes_at: Timestamp(0),
            has_joined: false,
            committed: 0,
            lives: 0,
        };
        Self {
            options,
            rng: Xoshiro256PlusPlus::seed_from_u64(options.seed),
            now: Timestamp(0),
            nodes: (0..ICNS).map(node).collect(),
            queue: BTreeMap::new(),
            queued: 0,
            is_cut: Default::default(),
            is_peace: options.faults == 0,
            truth: Vec::new(),
            truth_terms: Vec::new(),
            leaders: BTreeMap::new(),
            committed: BTreeMap::new(),
            made: 0,
            installs: 0,
            leads: Vec::new(),
            durable: 0,
            trace: Digest::default(),
            faults: 0,
        }
    }

    /// Returns a digest of all that happened: equal seeds give equal ones.
    pub(super) fn trace(&self) -> u32 {
        self.trace.value()
    }

    fn draw_us(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.rng.random_range(low..=high))
    }

    fn once_in(&mut self, of: u32) -> bool {
        of > 0 && self.rng.random_range(0..of) == 0
    }

    fn schedule(&mut self, after: Duration, icn: u16, event: Event) {
        self.queued += 1;
        self.queue
            .insert((self.now + after, self.queued), (icn, event));
    }

    fn node(&mut self, icn: u16) -> &mut Node {
        &mut self.nodes[usize::from(icn)]
    }

    pub(super) fn ledger(&mut self, icn: u16) -> Option<&mut MajorityLedger<SimStorage>> {
        self.node(icn).ledger.as_mut()
    }

    pub(super) fn leader(&self) -> Option<u16> {
        let leads = |node: &Node| node.lead.as_ref().map(|lead| lead.term);
        let best = (0..ICNS).filter(|icn| leads(&self.nodes[usize::from(*icn)]).is_some());
        best.max_by_key(|icn| leads(&self.nodes[usize::from(*icn)]))
    }

    /// Returns whether a member has won an election and has not reported it yet.
    pub(super) fn opens_a_term(&self, icn: u16) -> bool {
        let ledger = self.nodes[usize::from(icn)].ledger.as_ref();
        ledger.is_some_and(
            |ledger| matches!(&ledger.role, MemberRole::Leader(leadership) if !leadership.is_public),
        )
    }

    /// Returns the last entry on the disk of a member, 0 if it is dead.
    pub(super) fn last_on_disk(&self, icn: u16) -> u64 {
        let ledger = self.nodes[usize::from(icn)].ledger.as_ref();
        ledger.map_or(0, |ledger| ledger.storage().durable_index())
    }

    pub(super) fn truth(&self) -> &[Option<Record>] {
        &self.truth
    }

    /// Runs until `until`, or until `is_enough`.
    pub(super) fn run(&mut self, until: Timestamp, is_enough: impl Fn(&Self) -> bool) -> Checked {
        while !is_enough(self) {
            match self.queue.first_key_value() {
                Some(((at, _), _)) if *at <= until => {}
                _ => {
                    self.now = until;
                    break;
                }
            }
            if let Some(((at, _), (icn, event))) = self.queue.pop_first() {
                self.now = at;
                self.happen(icn, event)?;
            }
        }
        Ok(())
    }

    fn happen(&mut self, icn: u16, event: Event) -> Checked {
        self.trace.update(&self.now.0.to_le_bytes());
        self.trace.update(&[icn as u8]);
        let now = self.now;
        match event {
            Event::Fault => {
                self.fault();
                return Ok(());
            }
            Event::Heal(Sick::Links) => {
                self.is_cut = Default::default();
                return Ok(());
            }
            Event::Heal(Sick::Disk) => {
                self.node(icn).disk.set_faults(DiskFaults::default());
                return Ok(());
            }
            Event::Start => return self.start(icn),
            _ => {}
        }
        let node = self.node(icn);
        if now < node.paused_until {
            // It finds everything when it wakes, in the order of arrival.
            let after = node.paused_until.since(now);
            if !matches!(event, Event::Wake) {
                self.schedule(after, icn, event);
            } else if node.wakes_at == now {
                node.wakes_at = now + after;
                self.schedule(after, icn, Event::Wake);
            }
            return Ok(());
        }
        if matches!(event, Event::Wake) && node.wakes_at != now {
            return Ok(());
        }
        if matches!(event, Event::Work) {
            self.work(icn);
            return self.drain(icn);
        }
        let Some(ledger) = &mut node.ledger else {
            return Ok(());
        };
        match event {
            Event::Deliver { from, message } => ledger.handle_message(now, from, &message),
            Event::Peer {
                icn,
                is_connected,
                life,
            } if life == node.lives => {
                ledger.handle_peer(now, icn, is_connected);
            }
            _ => {}
        }
        self.drain(icn)
    }

    fn start(&mut self, icn: u16) -> Checked {
        let (now, seed) = (self.now, self.options.seed);
        let node = self.node(icn);
        if node.ledger.is_some() {
            return Ok(());
        }
        node.lives += 1;
        let lives = node.lives;
        let Ok(storage) = SimStorage::open(&node.disk).map_err(|error| error.to_string()) else {
            // A disk that fails does so at the start too; a corrupt one would never start, and the final calm find out.
            self.schedule(ms(20), icn, Event::Start);
            return Ok(());
        };
        let config = MajorityConfig::new(icn, ICNS, seed ^ lives << 8);
        let ledger = MajorityLedger::new(config, storage).map_err(|error| error.to_string())?;
        node.ledger = Some(ledger);
        node.committed = 0;
        node.paused_until = now;
        for other in (0..ICNS).filter(|other| *other != icn) {
            if self.nodes[usize::from(other)].ledger.is_some() {
                self.connect(icn, other, true);
            }
        }
        self.drain(icn)
    }

    /// Member `at` handles a change of its stream to `icn`.
    fn notify_peer(&mut self, after: Duration, at: u16, icn: u16, is_connected: bool) {
        let life = self.node(at).lives;
        let event = Event::Peer {
            icn,
            is_connected,
            life,
        };
        self.schedule(after, at, event);
    }

    /// Notifies both ends of a stream, one after the other.
    fn connect(&mut self, a: u16, b: u16, is_connected: bool) {
        for (at, icn) in [(a, b), (b, a)] {
            let after = self.draw_us(100, 3000);
            self.notify_peer(after, at, icn, is_connected);
        }
    }

    /// Ends the process; with `is_seen` the others see their streams reset.
    pub(super) fn kill(&mut self, icn: u16, is_seen: bool, with_power: bool) {
        let node = self.node(icn);
        if node.ledger.take().is_none() {
            return;
        }
        node.lead = None;
        if with_power {
            node.disk.fail_power();
        }
        if is_seen {
            for at in (0..ICNS).filter(|other| *other != icn) {
                let after = self.draw_us(100, 3000);
                self.notify_peer(after, at, icn, false);
            }
        }
    }

    pub(super) fn start_soon(&mut self, icn: u16, after: Duration) {
        self.schedule(after, icn, Event::Start);
    }

    pub(super) fn wipe(&mut self, icn: u16) {
        self.kill(icn, true, false);
        let node = self.node(icn);
        node.disk.wipe();
        node.has_joined = false;
    }

    pub(super) fn cut(&mut self, from: u16, to: u16, is_cut: bool) {
        self.is_cut[usize::from(from)][usize::from(to)] = is_cut;
    }

    pub(super) fn set_disk(&mut self, icn: u16, faults: DiskFaults) {
        self.node(icn).disk.set_faults(faults);
    }

    pub(super) fn has_joined(&self, icn: u16) -> bool {
        self.nodes[usize::from(icn)].has_joined
    }

    /// Appends `records` at the leader.
    pub(super) fn append(&mut self, icn: u16, records: Vec<Record>) -> Checked {
        let now = self.now;
        let node = self.node(icn);
        if let (Some(ledger), Some(lead)) = (&mut node.ledger, &mut node.lead) {
            let position = ledger.append(now, records.clone());
            lead.open.push_back((position, records));
        }
        self.drain(icn)
    }

    /// Calls a member, and takes its notices.
    pub(super) fn with(
        &mut self,
        icn: u16,
        what: impl FnOnce(&mut MajorityLedger<SimStorage>, Timestamp),
    ) -> Checked {
        let now = self.now;
        if let Some(ledger) = self.ledger(icn) {
            what(ledger, now);
        }
        self.drain(icn)
    }

    /// Lets a leader decide something.
    fn work(&mut self, icn: u16) {
        if self.once_in(12) {
            self.append_checkpoint(icn);
        }
        let count = self.rng.random_range(1..=3);
        let records: Vec<Record> = (0..count)
            .map(|at| Record::Clock {
                elapsed_ns: self.made + at,
            })
            .collect();
        self.made += count;
        let now = self.now;
        let node = self.node(icn);
        let (Some(ledger), Some(lead)) = (&mut node.ledger, &mut node.lead) else {
            return;
        };
        let position = ledger.append(now, records.clone());
        lead.open.push_back((position, records));
        let after = self.draw_us(500, 12_000);
        self.schedule(after, icn, Event::Work);
    }

    /// Appends a checkpoint of the leader's appends: in these tests, by the number of records.
    pub(super) fn append_checkpoint(&mut self, icn: u16) {
        let now = self.now;
        let is_large = self.once_in(10);
        let node = self.node(icn);
        let (Some(ledger), Some(lead)) = (&mut node.ledger, &mut node.lead) else {
            return;
        };
        let open: usize = lead.open.iter().map(|(_, records)| records.len()).sum();
        let head = Checkpoint {
            frontier: TfId((lead.records + open) as u64),
            ..Checkpoint::default()
        };
        let mut records = vec![Record::Checkpoint(Box::new(head))];
        if is_large {
            // More than fits an entry.
            let ranges = vec![(TfId(1), TfId(2)); Record::RANGES_MAX];
            let released = Record::Released { ranges };
            records.extend([released.clone(), released]);
        }
        let position = ledger.append(now, records.clone());
        lead.open.push_back((position, records));
    }

    /// Takes all notices of a member.
    fn drain(&mut self, icn: u16) -> Checked {
        let now = self.now;
        while let Some(notice) = self.ledger(icn).and_then(|ledger| ledger.poll(now)) {
            self.take(icn, notice)?;
        }
        let node = self.node(icn);
        let Some(ledger) = &node.ledger else {
            return Ok(());
        };
        node.has_joined |= !matches!(ledger.role, MemberRole::Joining(_));
        let due = ledger.next_due();
        self.check_committed(icn)?;
        if let Some(due) = due {
            if due <= now {
                return Err(format!(
                    "{now:?}: ICN {icn} is due at {due:?} after all was polled"
                ));
            }
            let node = self.node(icn);
            if node.wakes_at != due {
                node.wakes_at = due;
                self.schedule(due.since(now), icn, Event::Wake);
            }
        }
        Ok(())
    }

    fn take(&mut self, icn: u16, notice: Notice) -> Checked {
        let now = self.now;
        match notice {
            Notice::Send { to, message } => self.carry(icn, to, &message),
            Notice::Lead { term, replay } => {
                let records: Vec<Record> = replay.collect();
                self.leads.push((now, icn, term));
                if let Some(other) = self.leaders.insert(term, icn) {
                    return Err(format!(
                        "{now:?}: ICNs {other} and {icn} lead in term {}",
                        term.0
                    ));
                }
                // A replay may begin with a checkpoint, which states how much it stands for.
                let at = match records.first() {
                    Some(Record::Checkpoint(head)) => head.frontier.0 as usize,
                    _ => 0,
                };
                self.learn(icn, term, at, &records)?;
                // A leader that learns late of its own election may have successors already. They fence it off, and it
                // does not know their decisions.
                let known = self.truth_terms.partition_point(|of| *of <= term);
                let found = at + records.len();
                if found < known {
                    return Err(format!(
                        "{now:?}: ICN {icn} leads in term {} with {found} records, {known} were durable",
                        term.0
                    ));
                }
                let node = self.node(icn);
                node.lead = Some(Lead {
                    term,
                    records: found,
                    open: VecDeque::new(),
                });
                self.schedule(Duration::from_micros(10), icn, Event::Work);
            }
            Notice::Durable(position) => {
                let lead = self
                    .node(icn)
                    .lead
                    .as_mut()
                    .ok_or("durable without leading")?;
                let mut records = Vec::new();
                while let Some((_, more)) = lead.open.pop_front_if(|(at, _)| *at <= position) {
                    records.extend(more);
                }
                let at = lead.records;
                lead.records += records.len();
                let term = lead.term;
                self.durable += records.len() as u64;
                self.learn(icn, term, at, &records)?;
            }
            Notice::Deposed { .. } => self.node(icn).lead = None,
            Notice::Trouble(_) | Notice::Healed => {}
        }
        Ok(())
    }

    /// Notes that `records` are durable, from place `at` on.
    fn learn(&mut self, icn: u16, term: Term, at: usize, records: &[Record]) -> Checked {
        let now = self.now;
        if at > self.truth.len() {
            self.truth.resize(at, None);
            self.truth_terms.resize(at, term);
        }
        for (place, record) in (at..).zip(records) {
            match self.truth.get_mut(place) {
                Some(Some(known)) if known == record => {}
                Some(unheard @ None) => *unheard = Some(record.clone()),
                Some(known) => {
                    return Err(format!(
                        "{now:?}: ICN {icn} has {record:?} at place {place}, where {known:?} was durable"
                    ));
                }
                None => {
                    self.truth.push(Some(record.clone()));
                    self.truth_terms.push(term);
                }
            }
        }
        Ok(())
    }

    /// Checks that every entry called committed is the same everywhere.
    fn check_committed(&mut self, icn: u16) -> Checked {
        let now = self.now;
        let node = &mut self.nodes[usize::from(icn)];
        let Some(ledger) = &node.ledger else {
            return Ok(());
        };
        // Of removed entries only the last one is still known.
        let known = (node.committed + 1).max(ledger.storage().first_index().saturating_sub(1));
        for index in known.max(1)..=ledger.committed() {
            let term = ledger
                .storage()
                .term_at(index)
                .ok_or("committed and not there")?;
            match self.committed.get(&index) {
                Some(known) if *known == term => {}
                Some(known) => {
                    return Err(format!(
                        "{now:?}: ICN {icn} commits entry {index} of term {}, another of term {}",
                        term.0, known.0
                    ));
                }
                None => drop(self.committed.insert(index, term)),
            }
        }
        node.committed = ledger.committed();
        Ok(())
    }

    fn carry(&mut self, from: u16, to: u16, message: &Bytes) {
        let decoded = Message::decode(message);
        self.installs += u64::from(matches!(decoded, Ok(Message::Install { .. })));
        self.trace.update(message);
        if self.is_cut[usize::from(from)][usize::from(to)] {
            return;
        }
        let options = self.options;
        if !self.is_peace && self.once_in(options.loss_once_in) {
            return;
        }
        let times = if !self.is_peace && self.once_in(options.double_once_in) {
            2
        } else {
            1
        };
        for _ in 0..times {
            let is_late = !self.is_peace && self.once_in(options.late_once_in);
            let after = if is_late {
                self.draw_us(1000, 300_000)
            } else {
                self.draw_us(80, 400)
            };
            self.schedule(
                after,
                to,
                Event::Deliver {
                    from,
                    message: message.clone(),
                },
            );
        }
    }
}
