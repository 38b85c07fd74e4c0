//! A node's stream to the ICN: it joins, keeps its place, and comes back when the stream breaks.

use sheaf_frame::control::{Hello, Welcome};
use sheaf_frame::{Control, Envelope, Incarnation, NodeId, RunId, Term, Timestamp, WireKind};
use sheaf_transport::{CloseReason, ConnId, Frame, SendError, Transport};
use std::time::Duration;
use tracing::{info, warn};

/// First pause before the stream is opened again; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long a hello waits for its answer before it is said again.
const HELLO_AGAIN: Duration = Duration::from_millis(40);

/// What came in from the ICN.
#[derive(Debug, PartialEq)]
pub enum Heard {
    /// The node is in this run now, for the first time or again.
    Joined(RunId, Welcome),
    /// A message of the run.
    Control(Control),
    /// The ICN does not want this node. It must end.
    Refused(String),
    /// Nothing for the node.
    Nothing,
}

#[derive(Debug)]
enum State {
    Down { retry_at: Timestamp },
    Connecting(ConnId),
    Greeting { conn: ConnId, said_at: Timestamp },
    Joined(ConnId),
}

/// The stream, and what this node says of itself on it.
#[derive(Debug)]
pub struct Uplink {
    address: String,
    node: NodeId,
    incarnation: Incarnation,
    hello: Hello,
    state: State,
    pause: Duration,
    run: RunId,
    term: Term,
    sequence: u64,
    pulse: Duration,
    pulsed_at: Timestamp,
    is_first_failure: bool,
}

impl Uplink {
    /// A stream that will be opened at the first tick.
    #[must_use]
    pub fn new(address: String, node: NodeId, incarnation: Incarnation, hello: Hello) -> Self {
        Self {
            address,
            node,
            incarnation,
            hello,
            state: State::Down {
                retry_at: Timestamp(0),
            },
            pause: PAUSE_FIRST,
            run: RunId(0),
            term: Term(0),
            sequence: 0,
            pulse: Duration::from_millis(20),
            pulsed_at: Timestamp(0),
            is_first_failure: true,
        }
    }

    /// Whether events of `conn` are for the uplink.
    #[must_use]
    pub fn owns(&self, conn: ConnId) -> bool {
        self.conn() == Some(conn)
    }

    fn conn(&self) -> Option<ConnId> {
        match self.state {
            State::Down { .. } => None,
            State::Connecting(conn) | State::Greeting { conn, .. } | State::Joined(conn) => {
                Some(conn)
            }
        }
    }

    /// Whether the ICN has taken the node in, on the stream that is open now.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        matches!(self.state, State::Joined(_))
    }

    /// Whether nothing waits to be sent.
    #[must_use]
    pub fn is_flushed<T: Transport>(&self, transport: &T) -> bool {
        self.conn()
            .is_none_or(|conn| transport.queued_bytes(conn) == 0)
    }

    /// Opens the stream if it is down and its pause is over, and repeats a hello that was not answered.
    pub fn handle_tick<T: Transport>(&mut self, now: Timestamp, transport: &mut T) {
        match self.state {
            State::Down { retry_at } if retry_at <= now => match transport.connect(&self.address) {
                Ok(conn) => self.state = State::Connecting(conn),
                Err(error) => {
                    warn!(%error, "Cannot begin a connection to the ICN");
                    self.go_down(now);
                }
            },
            State::Greeting { conn, said_at } if now.since(said_at) >= HELLO_AGAIN => {
                self.say_hello(now, transport, conn);
            }
            _ => {}
        }
    }

    /// The stream that [`handle_tick`](Self::handle_tick) began stands.
    pub fn handle_connected<T: Transport>(&mut self, now: Timestamp, transport: &mut T) {
        if let State::Connecting(conn) = self.state {
            self.say_hello(now, transport, conn);
        }
    }

    /// The stream has closed, or could not be opened.
    pub fn handle_closed(&mut self, now: Timestamp, reason: &CloseReason) {
        if self.is_joined() {
            warn!(%reason, "The stream to the ICN has closed; trying again");
        } else if self.is_first_failure {
            info!(address = self.address, %reason, "The ICN does not answer yet; trying again");
            self.is_first_failure = false;
        }
        self.go_down(now);
    }

    fn go_down(&mut self, now: Timestamp) {
        self.state = State::Down {
            retry_at: now + self.pause,
        };
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    fn say_hello<T: Transport>(&mut self, now: Timestamp, transport: &mut T, conn: ConnId) {
        self.state = State::Greeting { conn, said_at: now };
        let hello = Control::Hello(self.hello.clone());
        self.send_on(transport, conn, &hello);
    }

    /// Takes in a frame of the stream.
    pub fn handle_frame(&mut self, frame: &Frame) -> Heard {
        let conn = self.conn();
        let (envelope, control) = match Control::decode(&frame.head) {
            Ok(decoded) if frame.kind == WireKind::Control => decoded,
            Ok(_) => return Heard::Nothing,
            Err(error) => {
                warn!(%error, "The ICN sent something that is no message");
                return Heard::Nothing;
            }
        };
        if envelope.term < self.term {
            return Heard::Nothing;
        }
        self.term = envelope.term;
        match control {
            Control::Welcome(welcome) => {
                if let Some(conn) = conn {
                    self.state = State::Joined(conn);
                }
                self.pause = PAUSE_FIRST;
                self.is_first_failure = true;
                self.run = envelope.run;
                self.pulse = Duration::from_nanos(welcome.pulse_ns);
                Heard::Joined(envelope.run, welcome)
            }
            Control::Refused { detail } => Heard::Refused(detail),
            _ if envelope.run != self.run => Heard::Nothing,
            control => Heard::Control(control),
        }
    }

    /// Says `control` to the ICN. Without a stream it is not said: on the next one the state is told anew.
    pub fn send<T: Transport>(&mut self, transport: &mut T, control: &Control) {
        if let State::Joined(conn) = self.state {
            self.send_on(transport, conn, control);
        }
    }

    fn send_on<T: Transport>(&mut self, transport: &mut T, conn: ConnId, control: &Control) {
        self.sequence += 1;
        let envelope = Envelope {
            run: self.run,
            sender: self.node,
            incarnation: self.incarnation,
            term: self.term,
            sequence: self.sequence,
        };
        let frame = Frame::without_body(WireKind::Control, control.encode(&envelope).into());
        match transport.send(conn, frame) {
            Ok(()) | Err(SendError::Closed) => {}
            // An ICN that does not read for so long is asked anew, on a new stream.
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
