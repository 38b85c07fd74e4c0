//! A node's streams to the ICNs: it says hello to every one, follows the one that leads, and comes back when a
//! stream breaks.
//!
//! An ICN sends a challenge on every stream that it accepts, and the hello repeats the nonce of it.
//!
//! A stream stands to each ICN at all times, so that a change of leaders costs no connection. The node follows the
//! highest term that has welcomed it. What a lower term says is answered with `Fenced` and changes nothing.
//!
//! A leader says something at every pulse. Where it falls silent, the way to it may be cut, or the other end may have
//! lost the stream without this one hearing of it; after a cut TCP waits as long again before it tries. So a second
//! stream is begun beside a silent one, and takes its place when the ICN answers on it. If it is the ICN that
//! hangs, it finds both, and nothing is lost.

mod standing;
mod stream;

use crate::challenge::CHALLENGE_WITHIN;
use crate::health::{Health, Standing};
use crate::reject::{self, Told};
use crate::{log_tail, minor};
use sheaf_membership::RUN_DELAY_MAX;
use sheaf_protocol::control::{Hello, Welcome};
use sheaf_protocol::reject::Code;
use sheaf_protocol::{
    Control, Envelope, Incarnation, NodeId, RunId, Term, TfId, Timestamp, WireKind, protect,
};
use sheaf_transport::{CloseReason, ConnId, Frame, SendError, Transport};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use stream::{Spare, State, Stream};
use tracing::{info, warn};

/// Time that a hello waits for its answer before it is repeated.
const HELLO_AGAIN: Duration = Duration::from_millis(40);
/// The same with an ICN that has said that it does not lead: its welcome comes by itself, unless it is lost.
const HELLO_TO_STANDBY_AGAIN: Duration = Duration::from_millis(400);

/// Refusal of an ICN to take a node in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRefusal {
    /// Value found and value expected.
    pub detail: String,
    /// Lowest incarnation with which the node may join; 0: none.
    pub incarnation_min: u64,
}

impl std::fmt::Display for JoinRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail)
    }
}

/// Message received from an ICN.
#[derive(Debug, PartialEq)]
pub enum Heard {
    /// The node is in this run now, for the first time or again.
    Joined {
        /// The run.
        run: RunId,
        /// On what terms.
        welcome: Welcome,
        /// Another ICN leads than before, or the same in a new term.
        is_new_leader: bool,
    },
    /// A message of the run.
    Control(Control),
    /// The ICN does not want this node. It must end.
    Refused(JoinRefusal),
    /// Nothing for the node.
    Nothing,
}

/// Pulses of the leader that a node misses before it looks for another way to it: as many as make a node a suspect.
const PULSES_MISSED_MAX: u32 = 5;
/// How long a second stream may be without an answer before another one is tried.
const SPARE_MAX: Duration = Duration::from_secs(1);

/// Begin of the line about an ICN that refuses this node, or is none.
fn refusal_text(code: Code) -> &'static str {
    match code {
        Code::Untrusted => "The ICN and this node do not trust each other",
        _ => "What answers is no ICN of this version",
    }
}

/// The seed of a stream's pauses: another one for each node, each life and each stream.
fn seed_of(node: NodeId, incarnation: Incarnation, at: u64) -> u64 {
    incarnation.0 ^ (u64::from(node.index) << 32) ^ ((node.role as u64) << 48) ^ (at << 56)
}

/// The streams, and what this node says of itself on them.
#[derive(Debug)]
pub struct Uplink {
    streams: Vec<Stream>,
    node: NodeId,
    incarnation: Incarnation,
    /// Address and resources; and what is known of the verdicts of `run`.
    hello: Hello,
    run: RunId,
    /// The highest term that has welcomed the node.
    term: Term,
    sequence: u64,
    pulse: Duration,
    pulsed_at: Timestamp,
    fenced: u64,
    log: log_tail::Sending,
    /// Longest time lately for which the leader has waited for a processor.
    leader_run_delay: Duration,
    /// How much longer than usual the leader may be silent.
    patience: Duration,
    /// Refusals in the log, until an ICN takes the node.
    refusals: BTreeMap<Code, Told>,
    /// Where the standing of the node is noted, and the last note.
    health: Option<(Arc<Health>, Standing)>,
}

impl Uplink {
    /// Streams to the ICNs at `addresses`, which will be opened at the first tick.
    #[must_use]
    pub fn new(
        addresses: Vec<String>,
        node: NodeId,
        incarnation: Incarnation,
        hello: Hello,
    ) -> Self {
        Self {
            streams: (0..)
                .zip(addresses)
                .map(|(at, address)| Stream::new(address, seed_of(node, incarnation, at)))
                .collect(),
            node,
            incarnation,
            hello,
            run: RunId(0),
            term: Term(0),
            sequence: 0,
            pulse: Duration::from_millis(20),
            pulsed_at: Timestamp(0),
            fenced: 0,
            log: log_tail::Sending::default(),
            leader_run_delay: Duration::ZERO,
            patience: Duration::ZERO,
            refusals: BTreeMap::new(),
            health: None,
        }
    }

    /// The ICNs are at `addresses` from now on, as a registry says.
    ///
    /// A registry that was away may have forgotten an ICN that lives and leads: a stream that stands is believed more
    /// than the list, and is given up when it closes.
    pub fn set_addresses<T: Transport>(&mut self, addresses: &[String], transport: &mut T) {
        self.streams.retain_mut(|stream| {
            stream.is_named = addresses.contains(&stream.address);
            if let (false, State::Connecting { conn, .. }) = (stream.is_named, &stream.state) {
                transport.close(*conn);
                return false;
            }
            stream.is_named || stream.conn().is_some()
        });
        for address in addresses {
            if !self.streams.iter().any(|stream| stream.address == *address) {
                let seed = seed_of(self.node, self.incarnation, self.streams.len() as u64);
                self.streams.push(Stream::new(address.clone(), seed));
            }
        }
    }

    /// Whether events of `conn` are for the uplink.
    #[must_use]
    pub fn owns(&self, conn: ConnId) -> bool {
        self.streams.iter().any(|stream| stream.has(conn))
    }

    fn stream_mut(&mut self, conn: ConnId) -> Option<&mut Stream> {
        let mut streams = self.streams.iter_mut();
        streams.find(|stream| stream.has(conn))
    }

    /// The stream to the ICN that is followed.
    fn joined(&self) -> Option<ConnId> {
        self.streams.iter().find_map(|stream| match stream.state {
            State::Joined(conn) => Some(conn),
            _ => None,
        })
    }

    /// Whether an ICN has taken the node in, on a stream that is open now.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        self.joined().is_some()
    }

    /// Messages of lower terms that were refused.
    #[must_use]
    pub fn fenced(&self) -> u64 {
        self.fenced
    }

    /// Returns how long the leader has lately had to wait for a processor, by its pulses.
    pub(crate) fn leader_run_delay(&self) -> Duration {
        self.leader_run_delay
    }

    /// Sets how much longer than usual the leader may be silent before another way to it is looked for.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// The term of the ICN that is followed; 0 before the first.
    #[must_use]
    pub fn term(&self) -> Term {
        self.term
    }

    /// Opens streams that are down and whose pause is over, and repeats a hello that was not answered.
    pub fn handle_tick<T: Transport>(&mut self, now: Timestamp, transport: &mut T) {
        let mut to_greet = Vec::new();
        for stream in &mut self.streams {
            match stream.state {
                State::Down { retry_at } if retry_at <= now => {
                    match transport.connect(&stream.address) {
                        Ok(conn) => {
                            stream.state = State::Connecting {
                                conn,
                                stands_since: None,
                            }
                        }
                        Err(error) => {
                            warn!(%error, "Cannot begin a connection to the ICN");
                            stream.go_down(now, false);
                        }
                    }
                }
                State::Connecting {
                    conn,
                    stands_since: Some(since),
                } if protect!(ChallengeDeadline, when now.since(since) >= CHALLENGE_WITHIN + self.patience) =>
                {
                    transport.close(conn);
                    stream.go_down(now, false);
                }
                State::Greeting { conn, said_at } if now.since(said_at) >= HELLO_AGAIN => {
                    to_greet.push(conn);
                }
                State::Standby { conn, said_at }
                    if now.since(said_at) >= HELLO_TO_STANDBY_AGAIN =>
                {
                    to_greet.push(conn);
                }
                _ => {}
            }
        }
        for conn in to_greet {
            self.send_hello(now, transport, conn);
        }
        self.look_for_other_ways(now, transport);
        self.note_standing();
    }

    /// Begins a second stream beside one on which the leader is silent, and gives up one without an answer.
    fn look_for_other_ways<T: Transport>(&mut self, now: Timestamp, transport: &mut T) {
        let silence_max = self.pulse * PULSES_MISSED_MAX + self.patience;
        for stream in &mut self.streams {
            if let Some(spare) = stream.spare
                && now.since(spare.since) >= SPARE_MAX
            {
                transport.close(spare.conn);
                stream.spare = None;
                stream.spare_at = now + stream.pause.pause();
            }
            if !stream.wants_spare(now, silence_max) {
                continue;
            }
            match transport.connect(&stream.address) {
                Ok(conn) => {
                    stream.spare = Some(Spare {
                        conn,
                        since: now,
                        nonce: None,
                    });
                }
                Err(_) => stream.spare_at = now + stream.pause.pause(),
            }
        }
    }

    /// The connection of a stream stands: the challenge of the ICN comes next.
    pub fn handle_connected(&mut self, now: Timestamp, conn: ConnId) {
        let stream = self.stream_mut(conn);
        if let Some(State::Connecting {
            conn: of_stream,
            stands_since,
        }) = stream.map(|stream| &mut stream.state)
            && *of_stream == conn
        {
            *stands_since = Some(now);
        }
    }

    /// Answers the challenge of a stream with a hello. One that comes again is answered already: the hello is repeated
    /// by itself.
    fn handle_challenge<T: Transport>(
        &mut self,
        now: Timestamp,
        transport: &mut T,
        conn: ConnId,
        nonce: u64,
    ) {
        let Some(stream) = self.stream_mut(conn) else {
            return;
        };
        if let Some(spare) = stream.spare.as_mut().filter(|spare| spare.conn == conn) {
            if spare.nonce.replace(nonce).is_none() {
                self.send_hello_with(transport, conn, nonce);
            }
        } else if matches!(stream.state, State::Connecting { .. }) {
            stream.nonce = nonce;
            self.send_hello(now, transport, conn);
        }
    }

    /// The stream is refused, and closes next: it is opened again after longer and longer pauses.
    pub(crate) fn refuse(&mut self, conn: ConnId) {
        if let Some(stream) = self.stream_mut(conn) {
            stream.is_refused = true;
        }
    }

    /// The stream has closed, or could not be opened.
    pub fn handle_closed(&mut self, now: Timestamp, conn: ConnId, reason: &CloseReason) {
        let mut streams = self.streams.iter_mut();
        let Some(stream) = streams.find(|stream| stream.has(conn)) else {
            return;
        };
        let was_refused = std::mem::take(&mut stream.is_refused);
        if stream.spare.is_some_and(|spare| spare.conn == conn) {
            stream.spare = None;
            stream.spare_at = now + stream.pause.pause();
            return;
        }
        if stream.take_spare(now) {
            info!(address = stream.address, %reason, "The stream to the ICN has closed; another one is there");
            return;
        }
        let stood = matches!(stream.state, State::Joined(_) | State::Standby { .. });
        let refusal = reject::refusal_of(reason).filter(|_| !stood);
        let is_refused = was_refused || refusal.is_some();
        if matches!(stream.state, State::Joined(_)) {
            warn!(address = stream.address, %reason, "The stream to the ICN has closed; trying again");
        } else if let Some(code) = refusal {
            let told = self.refusals.entry(code).or_default();
            if let Some(untold) = told.note(now) {
                let address = &stream.address;
                warn!(address, %reason, untold, "{}; trying again", refusal_text(code));
            }
        } else if stream.is_first_failure && !is_refused {
            info!(address = stream.address, %reason, "The ICN does not answer yet; trying again");
            stream.is_first_failure = false;
        }
        stream.go_down(now, is_refused);
        if !stream.is_named {
            self.streams
                .retain(|stream| stream.is_named || stream.conn().is_some());
        }
    }

    fn send_hello<T: Transport>(&mut self, now: Timestamp, transport: &mut T, conn: ConnId) {
        let Some(stream) = self.stream_mut(conn) else {
            return;
        };
        stream.state = match stream.state {
            State::Standby { .. } => State::Standby { conn, said_at: now },
            _ => State::Greeting { conn, said_at: now },
        };
        let nonce = stream.nonce;
        self.send_hello_with(transport, conn, nonce);
    }

    fn send_hello_with<T: Transport>(&mut self, transport: &mut T, conn: ConnId, nonce: u64) {
        let hello = Hello {
            nonce,
            ..self.hello.clone()
        };
        self.send_on(transport, conn, &Control::Hello(hello));
    }

    /// Takes in a frame of one of the streams.
    pub fn handle_frame<T: Transport>(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        frame: &Frame,
        transport: &mut T,
    ) -> Heard {
        let decoded = Control::decode(&frame.head);
        // It says that a process listens, and nothing of the farm.
        if let Ok((_, Control::Challenge { nonce })) = decoded {
            self.handle_challenge(now, transport, conn, nonce);
            return Heard::Nothing;
        }
        if let Some(stream) = self.stream_mut(conn)
            && let Some(useless) = stream.hear(now, conn)
        {
            transport.close(useless);
        }
        let (envelope, control) = match decoded {
            Ok(decoded) if frame.kind == WireKind::Control => decoded,
            Ok(_) => return Heard::Nothing,
            Err(error) => {
                warn!(%error, "The ICN sent something that is no message");
                return Heard::Nothing;
            }
        };
        match control {
            Control::Standby => {
                if let Some(stream) = self.stream_mut(conn) {
                    stream.state = State::Standby { conn, said_at: now };
                    stream.is_taken();
                }
                Heard::Nothing
            }
            Control::Rejected {
                code: Code::RoleDenied,
                detail,
            } if envelope.term >= self.term => Heard::Refused(JoinRefusal {
                detail: format!("{}: {detail}", Code::RoleDenied),
                incarnation_min: 0,
            }),
            Control::Rejected { code, detail } => {
                if let Some(untold) = self.refusals.entry(code).or_default().note(now) {
                    warn!(%code, detail, untold, "An ICN has rejected what this node sent");
                }
                if reject::is_refusal(code) {
                    self.refuse(conn);
                }
                Heard::Nothing
            }
            Control::Refused {
                detail,
                incarnation_min,
            } if envelope.term >= self.term => Heard::Refused(JoinRefusal {
                detail,
                incarnation_min,
            }),
            _ if protect!(TermFence, when envelope.term < self.term) => {
                self.fenced += 1;
                let follows = self.term.0;
                if let Some(stream) = self.stream_mut(conn)
                    && !std::mem::replace(&mut stream.is_fenced_said, true)
                {
                    let (address, term) = (&stream.address, envelope.term.0);
                    warn!(
                        address,
                        term,
                        follows,
                        "Fenced: an ICN of a former term speaks; nothing it says counts"
                    );
                }
                self.send_on(transport, conn, &Control::Fenced);
                Heard::Nothing
            }
            Control::Welcome(welcome) => self.handle_welcome(conn, envelope, welcome),
            // Its welcome was lost: a leader that the node has not joined takes nothing from it.
            _ if envelope.term > self.term => {
                let stream = self.stream_mut(conn);
                if stream.is_some_and(|stream| matches!(stream.state, State::Joined(_))) {
                    self.send_hello(now, transport, conn);
                }
                Heard::Nothing
            }
            _ if envelope.run != self.run
                || protect!(TermFence, when envelope.term != self.term) =>
            {
                Heard::Nothing
            }
            control => {
                self.note_verdicts(&control);
                if let Control::IcnPulse { run_delay_ns, .. } = control {
                    let delay = Duration::from_nanos(run_delay_ns);
                    self.leader_run_delay = delay.min(RUN_DELAY_MAX);
                }
                Heard::Control(control)
            }
        }
    }

    /// Notes which verdicts the node knows of: hellos say it, so that an ICN with an old copy of its log finds out.
    fn note_verdicts(&mut self, control: &Control) {
        let hello = &mut self.hello;
        let committed = match control {
            Control::Release(release) => {
                hello.decided_tfs = hello.decided_tfs.max(release.decided_tfs());
                return;
            }
            Control::Commit(commits) => commits.iter().map(|commit| commit.tf).max(),
            Control::Recover(recovers) => recovers.iter().map(|recover| recover.tf).max(),
            _ => return,
        };
        if let Some(tf) = committed {
            hello.committed_end = hello.committed_end.max(tf.next());
        }
    }

    fn handle_welcome(&mut self, conn: ConnId, envelope: Envelope, welcome: Welcome) -> Heard {
        let is_new_leader = envelope.term > self.term;
        for stream in &mut self.streams {
            match stream.state {
                _ if stream.conn() == Some(conn) => {
                    stream.state = State::Joined(conn);
                    stream.is_taken();
                    stream.is_fenced_said = false;
                }
                // Its leader is deposed, or the leader knows us on another stream.
                State::Joined(other) => {
                    stream.state = State::Standby {
                        conn: other,
                        said_at: self.pulsed_at,
                    };
                }
                _ => {}
            }
        }
        self.term = envelope.term;
        self.log.begin(envelope.minor);
        self.leader_run_delay = Duration::ZERO;
        if self.run != envelope.run {
            self.run = envelope.run;
            (self.hello.decided_tfs, self.hello.committed_end) = (0, TfId(0));
        }
        self.refusals.clear();
        self.pulse = Duration::from_nanos(welcome.pulse_ns);
        // The leader waits for the first pulse: it says that the node has told all.
        self.pulsed_at = Timestamp(0);
        Heard::Joined {
            run: envelope.run,
            welcome,
            is_new_leader,
        }
    }

    /// Sends `control` to the ICN. Without a stream it is not sent: on the next one the state is sent again.
    pub fn send<T: Transport>(&mut self, transport: &mut T, control: &Control) {
        if let Some(conn) = self.joined() {
            self.send_on(transport, conn, control);
        }
    }

    /// Sends the next lines of the log of this process to the leader, if it speaks a version that knows them.
    pub(crate) fn send_log<T: Transport>(&mut self, now: Timestamp, transport: &mut T) {
        if let Some(conn) = self.joined()
            && let Some(log) = self.log.next(now)
        {
            self.send_on(transport, conn, &log);
        }
    }

    fn send_on<T: Transport>(&mut self, transport: &mut T, conn: ConnId, control: &Control) {
        self.sequence += 1;
        let envelope = Envelope {
            minor: minor::ours(),
            run: self.run,
            sender: self.node,
            incarnation: self.incarnation,
            term: self.term,
            sequence: self.sequence,
        };
        let frame = Frame::without_body(WireKind::Control, control.encode(&envelope).into());
        match transport.send(conn, frame) {
            Ok(()) | Err(SendError::Closed) => {}
            // An ICN that does not read for so long is asked again, on a new stream.
            Err(SendError::Full(_)) => transport.close(conn),
            Err(SendError::TooLarge(error)) => warn!(%error, "Message to the ICN not sent"),
        }
    }

    /// When the next heartbeat is due.
    #[must_use]
    pub fn pulse_due(&self) -> Timestamp {
        self.pulsed_at + self.pulse
    }

    /// Whether a heartbeat is due at `now`; then the next one is due a period later.
    pub fn take_pulse(&mut self, now: Timestamp) -> bool {
        let due = self.is_joined() && now >= self.pulse_due();
        if due {
            self.pulsed_at = now;
        }
        due
    }
}

#[cfg(test)]
mod silence_tests;

#[cfg(test)]
mod tests;
