//! Seat of the farm: the process that lives there now, its log, its consumer, its clock.

use super::consumer::Consumer;
use super::forget::Forgetting;
use super::recorder::Recorder;
use super::{refusal, store::StoreDisk};
use crate::family::SeedFamily;
use crate::invariant::Invariant;
use crate::options::{Ack, Log, Options};
use crate::taken::Taken;
use crate::trace::{Line, Trace};
use crate::watch::{Found, found};
use sheaf_node::clock::FairClock;
use sheaf_node::epn::EpnNode;
use sheaf_node::event::Event;
use sheaf_node::flp::{FlpNode, Turn};
use sheaf_node::icn::IcnNode;
use sheaf_protocol::splitmix::mix;
use sheaf_protocol::{Control, NodeId, Role, Term, Timestamp, WireKind};
use sheaf_scheduler::Scheduler;
use sheaf_transport::memory::{Death, EndpointId, Memory, Network};
use sheaf_transport::{Event as Net, Transport};
use sheaf_verdict_log::storage::SimDisk;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Commits to one EPN that it has not acknowledged, at most: few, so that the bound is met often.
pub(super) const COMMITS_MAX: u32 = 2;

/// Returns the time in which an EPN may acknowledge more than that and then have as many, in ms: in every second farm.
pub(super) fn commits_ms(seed: u64) -> u64 {
    seed % 2
}

pub(super) enum Node {
    Icn(Box<IcnNode<Memory>>),
    Flp(Box<FlpNode<Memory>>),
    Epn(Box<EpnNode<Memory>>),
}

impl Node {
    fn handle_run_delay(&mut self, here: Timestamp, delay: Duration) {
        match self {
            Self::Icn(icn) => icn.handle_run_delay(here, delay),
            Self::Flp(flp) => flp.handle_run_delay(here, delay),
            Self::Epn(epn) => epn.handle_run_delay(here, delay),
        }
    }

    fn handle(&mut self, here: Timestamp, event: Net) {
        match self {
            Self::Icn(icn) => icn.handle(here, event),
            Self::Flp(flp) => flp.handle(here, event),
            Self::Epn(epn) => epn.handle(here, event),
        }
    }

    /// Returns all state of its brain, to see whether a message has changed it.
    fn state(&self) -> String {
        match self {
            Self::Icn(_) => String::new(),
            Self::Flp(flp) => format!("{:?}", flp.brain()),
            Self::Epn(epn) => format!("{:?}", epn.brain()),
        }
    }
}

/// Returns whether an FLP or EPN gets a message of a lower term than one that has welcomed it. Notes welcomes.
fn is_stale(welcomed_by: &mut Term, event: &Net) -> bool {
    let Net::Received { frame, .. } = event else {
        return false;
    };
    if frame.kind != WireKind::Control {
        return false;
    }
    let Ok((envelope, control)) = Control::decode(&frame.head) else {
        return false;
    };
    if envelope.sender.role != Role::Icn {
        return false;
    }
    if matches!(control, Control::Welcome(_)) {
        *welcomed_by = envelope.term.max(*welcomed_by);
    }
    envelope.term < *welcomed_by
}

/// Seat of a process, over all its lives.
pub(super) struct Seat {
    pub(super) node: NodeId,
    pub(super) name: String,
    pub(super) process: Option<Node>,
    pub(super) life: u64,
    pub(super) endpoint: Option<EndpointId>,
    pub(super) is_frozen: bool,
    pub(super) has_news: bool,
    pub(super) wake_at: Timestamp,
    /// Time before which a slow node is not turned.
    pub(super) not_before: Timestamp,
    pub(super) turn_every: Duration,
    /// Since when a slow node has had something to do.
    pub(super) ready_since: Option<Timestamp>,
    /// Lead of its clock over the time of the farm.
    pub(super) clock_ahead: Duration,
    pub(super) fair: FairClock,
    /// Death when its frames are used up, in that way, and the time of the restart.
    pub(super) dying: Option<(Death, Option<Duration>)>,
    /// The last life that came to its end in order.
    pub(super) left_in_order: Option<u64>,
    pub(super) is_leaving: bool,
    /// Whether it is the seat of a second process of its node.
    pub(super) is_twin: bool,
    /// Whether an ICN may refuse its process.
    pub(super) may_be_refused: bool,
    /// The lowest incarnation of the next life, if the process was refused; 0: it has none.
    pub(super) refused: Option<u64>,
    /// Processes that began in this seat.
    lives_begun: u64,
    /// Whether nothing may close a stream of a later process.
    keeps_streams: bool,
    /// Frames that the process has received, if a stranger is to send it again.
    pub(super) recorder: Option<Recorder>,
    pub(super) held_stfs: usize,
    pub(super) consumer: Consumer,
    /// State of send and forget, if the farm plays it.
    forgetting: Option<Forgetting>,
    /// The disk of an ICN; it outlives its processes.
    pub(super) disk: SimDisk,
    /// The disk of an EPN that stores TFs.
    pub(super) store: Option<StoreDisk>,
    /// The sessions of the process in the registry.
    pub(super) keepers: Vec<usize>,
    pub(super) cuts_from_registry: u32,
    /// The highest term that has welcomed the process.
    welcomed_by: Term,
    /// Whether more than one term can speak.
    has_terms: bool,
    pub(super) log: Arc<Mutex<Vec<Event>>>,
    /// Kept for its memory.
    pub(super) events: Vec<Event>,
    arrived: Vec<Net>,
}

impl Seat {
    pub(super) fn new(node: NodeId, options: &Options, network: &Network) -> Self {
        let spread = options.clock_spread.as_nanos() as u64;
        let place = mix(options.seed ^ (node.role as u64) << 32 ^ u64::from(node.index) << 40);
        let ahead = place.checked_rem(spread).unwrap_or(0);
        let stores = options.ack == Ack::Stored && node.role == Role::Epn;
        Self {
            node,
            name: node.to_string(),
            process: None,
            life: 0,
            endpoint: None,
            is_frozen: false,
            has_news: false,
            wake_at: Timestamp(0),
            not_before: Timestamp(0),
            turn_every: Duration::ZERO,
            ready_since: None,
            clock_ahead: Duration::from_nanos(ahead),
            fair: FairClock::default(),
            dying: None,
            left_in_order: None,
            is_leaving: false,
            is_twin: false,
            may_be_refused: options.kind == SeedFamily::Lives,
            refused: None,
            lives_begun: 0,
            keeps_streams: node.role == Role::Flp && refusal::keeps_streams(options),
            recorder: (options.kind == SeedFamily::Replays).then(Recorder::default),
            held_stfs: 0,
            consumer: Consumer::default(),
            forgetting: (options.sends_and_forgets && node.role == Role::Flp)
                .then(Forgetting::default),
            disk: SimDisk::new(place),
            store: stores.then(|| StoreDisk::new(place, network.clone(), node.to_string())),
            keepers: Vec::new(),
            cuts_from_registry: 0,
            welcomed_by: Term(0),
            has_terms: options.log != Log::Memory,
            log: Arc::default(),
            events: Vec::new(),
            arrived: Vec::new(),
        }
    }

    /// Begins a process in this seat.
    pub(super) fn begin(&mut self, now: Timestamp, process: Node, life: u64, endpoint: EndpointId) {
        self.process = Some(process);
        self.lives_begun += 1;
        self.life = life;
        self.endpoint = Some(endpoint);
        self.is_frozen = false;
        self.has_news = false;
        self.wake_at = now;
        self.not_before = now;
        self.ready_since = None;
        self.fair = FairClock::default();
        self.dying = None;
        self.is_leaving = false;
        self.held_stfs = 0;
        self.welcomed_by = Term(0);
    }

    /// Returns the time of the farm as the clock of this node shows it.
    pub(super) fn here(&self, now: Timestamp) -> Timestamp {
        now + self.clock_ahead
    }

    /// Sets whether the consumer accepts TFs; an EPN that stores has a full disk while it does not.
    pub(super) fn set_down(&self, is_down: bool) {
        match &self.store {
            Some(store) => store.set_full(is_down),
            None => self.consumer.set_down(is_down),
        }
    }

    /// Takes the TFs delivered since the last call.
    pub(super) fn take_taken(&self) -> Vec<Taken> {
        match &self.store {
            Some(store) => store.take(),
            None => self.consumer.take(),
        }
    }

    /// Takes the log since the last call, into `events`.
    pub(super) fn take_events(&self, events: &mut Vec<Event>) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *log, events);
    }

    /// Turns the process as the driver of the shipped binary does: poll, handle, turn.
    ///
    /// `is_quiet`: streams may close, as the run is about to end.
    pub(super) fn turn(
        &mut self,
        now: Timestamp,
        is_quiet: bool,
        trace: &mut Trace,
    ) -> Result<Turn, Found> {
        let here = self.here(now);
        self.not_before = now + self.turn_every;
        self.consumer.set_now(now);
        let Some(process) = &mut self.process else {
            return Ok(Turn::Done);
        };
        let mut arrived = std::mem::take(&mut self.arrived);
        let transport = match process {
            Node::Icn(icn) => icn.transport(),
            Node::Flp(flp) => flp.transport(),
            Node::Epn(epn) => epn.transport(),
        };
        transport
            .poll(&mut arrived, Some(Duration::ZERO))
            .expect("memory does not fail");
        match process {
            Node::Icn(icn) => icn.handle_wake(here),
            Node::Flp(_) => {}
            Node::Epn(epn) => {
                let late = self.fair.wake(here);
                if !late.is_zero() {
                    epn.handle_late(late);
                }
            }
        }
        let ready_since = self.ready_since.take();
        let delay = ready_since.map_or(Duration::ZERO, |since| now.since(since));
        process.handle_run_delay(here, delay);
        for event in arrived.drain(..) {
            trace.add(|| arrived_line(now, &self.name, &event));
            if let Some(recorder) = &mut self.recorder {
                recorder.note(&event);
            }
            let keeps = self.recorder.is_some() || self.keeps_streams && self.lives_begun > 1;
            let recorder = self.recorder.as_ref();
            if keeps && !is_quiet && is_evicted(process, recorder, &event) {
                let detail = format!("{} lives and loses a stream", self.name);
                return found(Invariant::OneLife, None, detail);
            }
            let is_stale = self.has_terms && is_stale(&mut self.welcomed_by, &event);
            let event = match &mut self.forgetting {
                Some(forgetting) => forgetting.replace(event),
                None => event,
            };
            let before = is_stale.then(|| process.state());
            process.handle(here, event);
            if before.is_some_and(|before| before != process.state()) {
                let detail = format!(
                    "{} obeys a message of a term below {}",
                    self.name, self.welcomed_by.0
                );
                return found(Invariant::Fenced, None, detail);
            }
        }
        self.arrived = arrived;
        let turn = match process {
            Node::Icn(icn) => icn.turn(here).map_err(|error| (None, error.to_string())),
            Node::Flp(flp) => {
                let told = |error| (Some(refusal::flp_refusal(&error)), error.to_string());
                flp.turn(here).map_err(told)
            }
            Node::Epn(epn) => {
                let told = |error| (refusal::epn_refusal(&error), error.to_string());
                epn.turn(here).map_err(told)
            }
        };
        let turn = match turn {
            Ok(turn) => turn,
            Err((refusal, _)) if self.note_refusal(refusal) => return Ok(Turn::Done),
            Err((_, error)) => {
                return found(
                    Invariant::NoPanic,
                    None,
                    format!("{} ends: {error}", self.name),
                );
            }
        };
        let Turn::WaitUntil(until) = turn else {
            return Ok(Turn::Done);
        };
        match process {
            Node::Icn(icn) => icn.handle_sleep(until),
            Node::Flp(_) => {}
            Node::Epn(_) => self.fair.sleep_until(until),
        }
        Ok(Turn::WaitUntil(now + until.since(here)))
    }

    /// Plays send and forget with the lines that the process has just written.
    pub(super) fn forget_sent(&mut self, now: Timestamp, events: &[Event]) {
        let here = self.here(now);
        if let (Some(forgetting), Some(process)) = (&mut self.forgetting, &mut self.process)
            && let Some(release) = forgetting.forget(events)
        {
            process.handle(here, release);
        }
    }

    /// Checks the bounds (I9), the one property that is read from the nodes.
    pub(super) fn check_bounds(&self, options: &Options) -> Result<(), Found> {
        let name = &self.name;
        let over = |what: &str, found: u64, max: u64| {
            let detail = format!("{name} has {found} {what}, at most {max} are allowed");
            crate::watch::found(Invariant::Bounds, None, detail)
        };
        match &self.process {
            Some(Node::Flp(flp)) => {
                let (stfs, bytes) = (flp.brain().held_stfs() as u64, flp.brain().held_bytes());
                if stfs > u64::from(options.hold_stfs) {
                    return over("STFs in its hold", stfs, options.hold_stfs.into());
                }
                if bytes > options.hold_bytes() {
                    return over("bytes in its hold", bytes, options.hold_bytes());
                }
            }
            Some(Node::Epn(epn)) => {
                let brain = epn.brain();
                let (tfs, bytes) = (
                    brain.open_tfs() as u64,
                    brain.open_bytes() + brain.sink_bytes(),
                );
                // Assigned by one leader and by the next, and twice as many that came unasked.
                if tfs > 4 * u64::from(options.slots) {
                    return over("TFs in building", tfs, 4 * u64::from(options.slots));
                }
                if bytes > options.capacity_bytes() {
                    return over("bytes in its memory", bytes, options.capacity_bytes());
                }
            }
            Some(Node::Icn(icn)) => {
                // The next life of an EPN that stores publishes what is committed to it.
                let commits = icn.scheduler().map_or(0, Scheduler::commits_open);
                let times = if commits_ms(options.seed) == 0 { 1 } else { 16 };
                let commits_most = times * COMMITS_MAX;
                if commits > commits_most as usize && options.ack != Ack::Stored {
                    return over("commits to one EPN", commits as u64, commits_most.into());
                }
                // An EPN that is back keeps its TFs, whatever was assigned elsewhere meanwhile: they are booked on top.
                // It reports all that it holds, four times its slots at most (above), and what was assigned to it
                // before that comes on top.
                let (times, slots_times) = if options.kind == SeedFamily::Calm {
                    (1, 1)
                } else {
                    (3, 4 + 1)
                };
                let slots_max = slots_times * u64::from(options.slots);
                // A new leader books a TF that an EPN holds at its largest size, until its FLPs have announced it.
                let has_adopted = icn
                    .scheduler()
                    .is_some_and(|brain| brain.stats().adopted > 0);
                let tf_bytes_max = u64::from(options.flps) * options.stf_bytes_max();
                let unknown_max = u64::from(options.slots) * tf_bytes_max * u64::from(has_adopted);
                let bytes_max = times * options.capacity_bytes() + unknown_max;
                for target in icn
                    .scheduler()
                    .iter()
                    .flat_map(|brain| brain.view().targets())
                {
                    if u64::from(target.booked_slots) > slots_max {
                        return over(
                            "slots booked at one EPN",
                            target.booked_slots.into(),
                            slots_max,
                        );
                    }
                    if target.booked_bytes > bytes_max {
                        return over("bytes booked at one EPN", target.booked_bytes, bytes_max);
                    }
                }
            }
            None => {}
        }
        Ok(())
    }
}

/// Returns the line of an arriving event, for readers of a trace.
fn arrived_line(now: Timestamp, name: &str, event: &Net) -> Line {
    let Net::Received { conn, frame, .. } = event else {
        return Line::new(now, name, vec![], format!("{event:?}"));
    };
    let text = match frame.kind {
        WireKind::Control => match Control::decode(&frame.head) {
            Ok((envelope, control)) => {
                let text = format!(
                    "from {} term {}: {control:?}",
                    envelope.sender, envelope.term.0
                );
                return Line::new(now, name, tfs_in(&control), text);
            }
            Err(error) => format!("{conn:?} no message: {error}"),
        },
        WireKind::Lane => format!("{conn:?} a word of transports"),
        WireKind::Stf => {
            let header = sheaf_protocol::StfHeader::decode(&frame.head, frame.body.len() as u64);
            if let Ok(header) = header {
                return Line::new(
                    now,
                    name,
                    vec![header.key.tf.0],
                    format!("{conn:?} {header:?}"),
                );
            }
            format!("{conn:?} {header:?}")
        }
        WireKind::DataHello => {
            format!(
                "{conn:?} {:?}",
                sheaf_protocol::DataHello::decode(&frame.head)
            )
        }
    };
    Line::new(now, name, vec![], text)
}

/// Returns the TFs that a message is about.
fn tfs_in(control: &Control) -> Vec<u64> {
    match control {
        Control::Announce(items) => items.iter().map(|item| item.tf.0).collect(),
        Control::Skipped(items) => items.iter().map(|item| item.tf.0).collect(),
        Control::Built(items) => items.iter().map(|item| item.tf.0).collect(),
        Control::CommitAck { tfs, .. } => tfs.iter().map(|tf| tf.0).collect(),
        Control::Corrupt { tf, .. } => vec![tf.0],
        Control::Pace(tfs) | Control::Grant(tfs) | Control::Withdrawn(tfs) => {
            tfs.iter().map(|tf| tf.0).collect()
        }
        Control::Offer(items) => items.iter().map(|item| item.tf.0).collect(),
        Control::Commit(items) => items.iter().map(|item| item.tf.0).collect(),
        Control::Absent(items) => items.iter().map(|item| item.tf.0).collect(),
        Control::Assign(items) => items.iter().map(|item| item.tf.0).collect(),
        _ => Vec::new(),
    }
}

/// Returns whether a living FLP or EPN has lost a stream to a node.
fn is_evicted(process: &Node, recorder: Option<&Recorder>, event: &Net) -> bool {
    let Net::Closed { conn, .. } = event else {
        return false;
    };
    let is_strange = recorder.is_some_and(|recorder| recorder.is_strange(*conn));
    !matches!(process, Node::Icn(_)) && !is_strange
}
