//! An operator's stream to the ICNs: finds the one that leads, gives it an order, and brings back the answer.
//!
//! It blocks, for a command that gives one order and ends. An order may be given twice, for instance when a leader
//! dies before it has answered: every order says what shall be so, and giving it again changes nothing.

use crate::clock::new_incarnation;
use crate::config::FarmConfig;
use crate::icn::LogPage;
use crate::security::{self, SecurityError};
use crate::status::FarmStatus;
use sheaf_protocol::control::{Hello, Order};
use sheaf_protocol::version::MINOR_FIRST;
use sheaf_protocol::{Control, Envelope, Incarnation, NodeId, Prefix, Role, RunId, Term, WireKind};
use sheaf_transport::{
    Arena, ArenaError, ConnId, ConnectError, Event, Frame, Tcp, TcpConfig, Transport,
};
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, Instant};
use thiserror::Error;
use tracing::debug;

/// How often an ICN that does not lead is asked whether it leads now, and one that is away is tried again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Longest wait for the network in one go.
const LOOK: Duration = Duration::from_millis(50);
/// Largest status that is taken: that of a hundred thousand nodes.
const STATUS_BYTES_MAX: usize = 64 << 20;
/// Orders have no bodies; this is the least that an arena takes.
const ARENA_BYTES: usize = 1 << 20;

/// Answer of a leader to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Where the leader listens.
    pub icn: String,
    /// Term.
    pub term: Term,
    /// Run.
    pub run: RunId,
    /// Whether the order is carried out.
    pub done: bool,
    /// Result, or the reason of a refusal.
    pub detail: String,
}

/// Status of a farm, and the leader that told it.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Where the leader listens.
    pub icn: String,
    /// Term.
    pub term: Term,
    /// Status.
    pub status: FarmStatus,
}

/// One ICN as its stream shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcnSeen {
    /// Where it listens.
    pub address: String,
    /// `leads`, `standby`, or `away`.
    pub state: &'static str,
    /// Outcome of the last try, where it is away.
    pub why: String,
}

enum Reply {
    Answer(Answer),
    Told(Box<Told>),
    Log(Term, LogPage),
}

/// Why an order has no answer.
#[derive(Debug, Error)]
pub enum OperatorError {
    /// The operator's certificates are not in order, or are missing where they are needed.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The memory cannot be had.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// An address cannot be found.
    #[error("cannot find the address of {address}: {source}")]
    Resolve {
        /// The name.
        address: String,
        /// Error of the resolver.
        source: io::Error,
    },
    /// Nothing could be begun at an address.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The event loop failed.
    #[error("the event loop failed: {0}")]
    Io(#[from] io::Error),
    /// An ICN does not take orders from this operator; its reason.
    #[error("{icn} takes no orders from here: {detail}")]
    Denied {
        /// Where the ICN listens.
        icn: String,
        /// Answer of the peer.
        detail: String,
    },
    /// No ICN could be reached; what came of it at each.
    #[error("no ICN answers for {} s: {found}", waited.as_secs_f64())]
    Silent {
        /// How long it was tried.
        waited: Duration,
        /// Each address and what came of it.
        found: String,
    },
    /// ICNs answer, and none of them leads.
    #[error("no ICN leads for {} s: {found}", waited.as_secs_f64())]
    NoLeader {
        /// How long it was tried.
        waited: Duration,
        /// Each address and what came of it.
        found: String,
    },
    /// A leader sent a status that cannot be read.
    #[error("{icn} sent a status that cannot be read: {detail}")]
    Status {
        /// Where the leader listens.
        icn: String,
        /// Damage found.
        detail: String,
    },
    /// The leader speaks a version of the protocol that does not know the order.
    #[error(
        "{icn} speaks protocol {}.{found}, expected {}.{needed} or later: upgrade the ICNs",
        Prefix::VERSION,
        Prefix::VERSION
    )]
    Older {
        /// Where the leader listens.
        icn: String,
        /// Minor version of the leader.
        found: u8,
        /// Minor version that brought the order.
        needed: u8,
    },
    /// A leader took the order and did not answer.
    #[error("{icn} leads and does not answer for {} s: the order may be carried out or not", waited.as_secs_f64())]
    Unanswered {
        /// Where the leader listens.
        icn: String,
        /// How long it was tried.
        waited: Duration,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Down,
    Connecting,
    /// Asked whether it leads.
    Greeting,
    Standby,
    Leads(Term, RunId),
}

/// Long answer that an operator waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    Status,
    Log,
}

/// One stream to one ICN.
#[derive(Debug)]
struct Stream {
    address: String,
    conn: Option<ConnId>,
    state: State,
    /// Nonce of the ICN's challenge, which the hello repeats.
    nonce: Option<u64>,
    /// When it is to be asked or tried again.
    ask_at: Instant,
    /// Minor version of the protocol that it speaks.
    minor: u8,
    /// Reason of the last close.
    why: String,
    /// Whether it was tried, and nothing came of it.
    has_failed: bool,
}

/// A client that gives orders.
pub struct Operator {
    transport: Tcp,
    streams: Vec<Stream>,
    node: NodeId,
    incarnation: Incarnation,
    sequence: u64,
    /// Parts of a long answer that have come.
    parts: Vec<u8>,
    /// Meaning of the parts.
    parts_of: Parts,
}

impl Operator {
    /// The operator `index` of the farm in `config`, with streams to all its ICNs that will be opened by the first
    /// order. Which certificates it has, `[security]` says.
    ///
    /// # Errors
    ///
    /// [`OperatorError`] if something it needs cannot be had.
    pub fn new(config: &FarmConfig, index: u16) -> Result<Self, OperatorError> {
        let node = NodeId {
            role: Role::Operator,
            index,
        };
        let security = security::open(config, node, None, None)?;
        let arena = Arena::new(ARENA_BYTES, config.transport.arena())?;
        let transport = Tcp::with_security(TcpConfig::default(), arena, security)?;
        let ask_at = Instant::now();
        let stream = |address: String| {
            let found = sheaf_transport::tcp::resolve(&address);
            let address = found.map_err(|source| OperatorError::Resolve { address, source })?;
            Ok(Stream {
                address: address.to_string(),
                conn: None,
                state: State::Down,
                nonce: None,
                minor: MINOR_FIRST,
                ask_at,
                why: "it was not tried".to_owned(),
                has_failed: false,
            })
        };
        let addresses = config.icn.all_addresses().into_iter();
        Ok(Self {
            transport,
            streams: addresses
                .map(stream)
                .collect::<Result<_, OperatorError>>()?,
            node,
            incarnation: new_incarnation(0),
            sequence: 0,
            parts: Vec::new(),
            parts_of: Parts::Status,
        })
    }

    /// Gives `order` to the ICN that leads and waits for its answer, for at most `patience`.
    ///
    /// # Errors
    ///
    /// [`OperatorError`] if there is no answer. A refusal is an answer.
    pub fn order(&mut self, order: Order, patience: Duration) -> Result<Answer, OperatorError> {
        loop {
            // A status that was asked for before comes late.
            if let Reply::Answer(answer) = self.ask(order, patience)? {
                return Ok(answer);
            }
        }
    }

    /// Asks the ICN that leads for the status of the farm, for at most `patience`.
    ///
    /// # Errors
    ///
    /// [`OperatorError`] if there is no answer.
    pub fn status(&mut self, patience: Duration) -> Result<Told, OperatorError> {
        loop {
            if let Reply::Told(told) = self.ask(Order::Status, patience)? {
                return Ok(*told);
            }
        }
    }

    /// Asks the ICN that leads for lines of the logs of all nodes behind its line `after`, for at most `patience`.
    /// Returns the term of the leader as well: another one begins its lines at 1 again.
    ///
    /// # Errors
    ///
    /// [`OperatorError`] if there is no answer, [`Older`](OperatorError::Older) if the leader knows no such order.
    pub fn log(
        &mut self,
        after: u64,
        patience: Duration,
    ) -> Result<(Term, LogPage), OperatorError> {
        loop {
            if let Reply::Log(term, page) = self.ask(Order::Log { after }, patience)? {
                return Ok((term, page));
            }
        }
    }

    /// Returns all ICNs as their streams show them, in the order of the farm file. Those that have not answered yet
    /// have `patience` to do so.
    pub fn icns(&mut self, patience: Duration) -> Vec<IcnSeen> {
        let began = Instant::now();
        let mut events = Vec::new();
        let is_known = |stream: &Stream| {
            stream.has_failed || matches!(stream.state, State::Leads(..) | State::Standby)
        };
        while !self.streams.iter().all(is_known) {
            let left = patience.saturating_sub(began.elapsed());
            let is_over = left.is_zero() || self.tick().is_err();
            if is_over
                || self
                    .transport
                    .poll(&mut events, Some(left.min(LOOK)))
                    .is_err()
            {
                break;
            }
            for event in events.drain(..) {
                // A stream that says something else than its office is away for this purpose.
                let _ = self.handle(event, None);
            }
        }
        let seen = |stream: &Stream| {
            let (state, why) = match stream.state {
                State::Leads(..) => ("leads", String::new()),
                State::Standby => ("standby", String::new()),
                State::Greeting => ("away", "connected, and it says nothing".to_owned()),
                State::Down | State::Connecting => ("away", stream.why.clone()),
            };
            IcnSeen {
                address: stream.address.clone(),
                state,
                why,
            }
        };
        self.streams.iter().map(seen).collect()
    }

    fn ask(&mut self, order: Order, patience: Duration) -> Result<Reply, OperatorError> {
        let began = Instant::now();
        // The leader that has the order, and its term: a later leader is given it again.
        let mut given: Option<(ConnId, Term)> = None;
        let mut events = Vec::new();
        loop {
            self.tick()?;
            if let Some((conn, term)) = self.leader()
                && given != Some((conn, term))
            {
                self.parts.clear();
                self.parts_of = match order {
                    Order::Log { .. } => Parts::Log,
                    _ => Parts::Status,
                };
                let control = Control::Order(order);
                self.check_minor(conn, control.since())?;
                self.send(conn, &control);
                given = Some((conn, term));
            }
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                let given = given.map(|(conn, _)| conn);
                let error = self.give_up(given, patience);
                // What it answers later must not be taken for the answer to the next order.
                given.into_iter().for_each(|conn| self.close(conn));
                return Err(error);
            }
            self.transport.poll(&mut events, Some(left.min(LOOK)))?;
            for event in events.drain(..) {
                let from = given.map(|(conn, _)| conn);
                if let Some(reply) = self.handle(event, from)? {
                    return Ok(reply);
                }
            }
        }
    }

    /// Opens streams, and asks again where it is time to.
    fn tick(&mut self) -> Result<(), OperatorError> {
        let now = Instant::now();
        let mut to_greet = Vec::new();
        for stream in &mut self.streams {
            if now < stream.ask_at {
                continue;
            }
            stream.ask_at = now + ASK_AGAIN;
            match (stream.state, stream.conn) {
                (State::Down, _) => {
                    stream.conn = Some(self.transport.connect(&stream.address)?);
                    stream.state = State::Connecting;
                    stream.nonce = None;
                    "it does not answer".clone_into(&mut stream.why);
                }
                (State::Standby | State::Greeting, Some(conn)) => to_greet.push(conn),
                _ => {}
            }
        }
        to_greet.into_iter().for_each(|conn| self.greet(conn));
        Ok(())
    }

    /// The ICN with the highest term of those that say that they lead.
    fn leader(&self) -> Option<(ConnId, Term)> {
        let leaders = self.streams.iter().filter_map(|stream| match stream.state {
            State::Leads(term, _) => Some((stream.conn?, term)),
            _ => None,
        });
        leaders.max_by_key(|(_, term)| *term)
    }

    /// Checks that the ICN knows messages of the minor version `needed`.
    fn check_minor(&mut self, conn: ConnId, needed: u8) -> Result<(), OperatorError> {
        match self.stream_mut(conn) {
            Some(stream) if stream.minor < needed => Err(OperatorError::Older {
                icn: stream.address.clone(),
                found: stream.minor,
                needed,
            }),
            _ => Ok(()),
        }
    }

    fn close(&mut self, conn: ConnId) {
        self.transport.close(conn);
        if let Some(stream) = self.stream_mut(conn) {
            stream.conn = None;
            stream.state = State::Down;
        }
    }

    fn stream_mut(&mut self, conn: ConnId) -> Option<&mut Stream> {
        let mut streams = self.streams.iter_mut();
        streams.find(|stream| stream.conn == Some(conn))
    }

    /// Says hello, if the challenge of the ICN is here.
    fn greet(&mut self, conn: ConnId) {
        let Some(nonce) = self.stream_mut(conn).and_then(|stream| stream.nonce) else {
            return;
        };
        let hello = Hello {
            nonce,
            ..Hello::default()
        };
        self.send(conn, &Control::Hello(hello));
    }

    fn send(&mut self, conn: ConnId, control: &Control) {
        self.sequence += 1;
        let envelope = Envelope {
            minor: crate::minor::ours(),
            run: RunId(0),
            sender: self.node,
            incarnation: self.incarnation,
            term: Term(0),
            sequence: self.sequence,
        };
        let frame = Frame::without_body(WireKind::Control, control.encode(&envelope).into());
        if let Err(error) = self.transport.send(conn, frame) {
            debug!(%error, "Not sent; the stream is opened again");
            self.transport.close(conn);
        }
    }

    /// Takes in what the transport reports. Gives the answer of the leader whose stream is `given`.
    fn handle(
        &mut self,
        event: Event,
        given: Option<ConnId>,
    ) -> Result<Option<Reply>, OperatorError> {
        match event {
            Event::Connected { conn } => {
                if let Some(stream) = self.stream_mut(conn) {
                    stream.state = State::Greeting;
                }
            }
            Event::Closed { conn, reason } => {
                if let Some(stream) = self.stream_mut(conn) {
                    stream.conn = None;
                    stream.state = State::Down;
                    stream.has_failed = true;
                    stream.why = reason.to_string();
                }
            }
            Event::Received { conn, frame, .. } => return self.handle_frame(conn, &frame, given),
            Event::Accepted { .. } | Event::Writable { .. } | Event::Woken => {}
        }
        Ok(None)
    }

    fn handle_frame(
        &mut self,
        conn: ConnId,
        frame: &Frame,
        given: Option<ConnId>,
    ) -> Result<Option<Reply>, OperatorError> {
        let decoded = (frame.kind == WireKind::Control).then(|| Control::decode(&frame.head));
        let Some(Ok((envelope, control))) = decoded else {
            self.transport.close(conn);
            return Ok(None);
        };
        let Some(stream) = self.stream_mut(conn) else {
            return Ok(None);
        };
        let icn = stream.address.clone();
        match control {
            Control::Challenge { nonce } if stream.nonce.replace(nonce).is_none() => {
                self.greet(conn);
            }
            Control::Challenge { .. } => {}
            Control::Welcome(_) => {
                stream.state = State::Leads(envelope.term, envelope.run);
                stream.minor = envelope.minor;
                stream.has_failed = false;
            }
            Control::Standby => {
                stream.state = State::Standby;
                stream.has_failed = false;
            }
            Control::Refused { detail, .. } | Control::Rejected { detail, .. } => {
                return Err(OperatorError::Denied { icn, detail });
            }
            Control::Answer { done, detail } if given == Some(conn) => {
                return Ok(Some(Reply::Answer(Answer {
                    icn,
                    term: envelope.term,
                    run: envelope.run,
                    done,
                    detail,
                })));
            }
            Control::Status { left, part } if given == Some(conn) => {
                return self.take_part(icn, envelope.term, left, &part);
            }
            _ => {}
        }
        Ok(None)
    }

    /// Takes a part of a long answer; the last one completes it.
    fn take_part(
        &mut self,
        icn: String,
        term: Term,
        left: u32,
        part: &[u8],
    ) -> Result<Option<Reply>, OperatorError> {
        if self.parts.len() + part.len() > STATUS_BYTES_MAX {
            let detail = format!("it is longer than {STATUS_BYTES_MAX} bytes");
            return Err(OperatorError::Status { icn, detail });
        }
        self.parts.extend_from_slice(part);
        if left > 0 {
            return Ok(None);
        }
        let text = std::mem::take(&mut self.parts);
        let read = match self.parts_of {
            Parts::Status => serde_json::from_slice(&text).map(|status| {
                let icn = icn.clone();
                Reply::Told(Box::new(Told { icn, term, status }))
            }),
            Parts::Log => serde_json::from_slice(&text).map(|page| Reply::Log(term, page)),
        };
        match read {
            Ok(reply) => Ok(Some(reply)),
            Err(error) => {
                let detail = error.to_string();
                Err(OperatorError::Status { icn, detail })
            }
        }
    }

    /// Why there is no answer.
    fn give_up(&self, given: Option<ConnId>, waited: Duration) -> OperatorError {
        let leader = (self.streams.iter())
            .find(|stream| given.is_some() && stream.conn == given)
            .filter(|stream| matches!(stream.state, State::Leads(..)));
        if let Some(leader) = leader {
            let icn = leader.address.clone();
            return OperatorError::Unanswered { icn, waited };
        }
        let mut found = String::new();
        for stream in &self.streams {
            let comma = if found.is_empty() { "" } else { ", " };
            let what = match stream.state {
                State::Down | State::Connecting => stream.why.as_str(),
                State::Greeting => "connected, and it says nothing",
                State::Standby => "standby",
                State::Leads(..) => "leads",
            };
            write!(found, "{comma}{} ({what})", stream.address).expect("a string takes every text");
        }
        let has_answered = |stream: &Stream| matches!(stream.state, State::Standby);
        if self.streams.iter().any(has_answered) {
            OperatorError::NoLeader { waited, found }
        } else {
            OperatorError::Silent { waited, found }
        }
    }
}
