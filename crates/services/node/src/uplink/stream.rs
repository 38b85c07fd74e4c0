//! One stream to one ICN: its state, the pauses before it is opened again, and the second stream beside a silent one.

use sheaf_protocol::Timestamp;
use sheaf_stf_builder::Backoff;
use sheaf_transport::ConnId;
use std::time::Duration;

/// First pause before a stream is opened again; it doubles up to [`PAUSE_MAX`].
const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// Nothing is decided until the nodes are back with an ICN that was started again: 2,000 of them that are refused
/// twenty times a second each cost its machine little, a second without them costs the farm every TF of it.
const PAUSE_MAX: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Down {
        retry_at: Timestamp,
    },
    /// The hello waits for the challenge of the ICN, and that for the connection, which stands since `stands_since`.
    Connecting {
        conn: ConnId,
        stands_since: Option<Timestamp>,
    },
    Greeting {
        conn: ConnId,
        said_at: Timestamp,
    },
    Standby {
        conn: ConnId,
        said_at: Timestamp,
    },
    Joined(ConnId),
}

/// A second stream beside one on which nothing comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    pub(super) conn: ConnId,
    pub(super) since: Timestamp,
    /// Nonce of the ICN's challenge. With it the hello is said: the ICN takes the stream for that of this node.
    pub(super) nonce: Option<u64>,
}

impl Spare {
    /// State of the stream whose place it takes.
    fn state(self, now: Timestamp) -> State {
        match self.nonce {
            Some(_) => State::Greeting {
                conn: self.conn,
                said_at: now,
            },
            None => State::Connecting {
                conn: self.conn,
                stands_since: Some(now),
            },
        }
    }
}

/// One stream to one ICN.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) address: String,
    pub(super) state: State,
    /// Nonce of the ICN's challenge on this stream.
    pub(super) nonce: u64,
    pub(super) pause: Backoff,
    /// Pauses while the ICN refuses this node, or is none.
    pub(super) refused_pause: Backoff,
    /// Whether the present stream was refused by a message, from either end.
    pub(super) is_refused: bool,
    pub(super) is_first_failure: bool,
    /// Whether a registry still says that an ICN is there. Of one that is not, a stream that stands stays.
    pub(super) is_named: bool,
    /// When something came last.
    pub(super) heard_at: Timestamp,
    pub(super) spare: Option<Spare>,
    /// No second stream is begun before.
    pub(super) spare_at: Timestamp,
    /// Whether the log says already that a former leader speaks here.
    pub(super) is_fenced_said: bool,
}

impl Stream {
    pub(super) fn new(address: String, seed: u64) -> Self {
        Self {
            address,
            state: State::Down {
                retry_at: Timestamp(0),
            },
            nonce: 0,
            pause: Backoff::new(PAUSE_FIRST, PAUSE_MAX, seed),
            refused_pause: Backoff::after_refusals(seed),
            is_refused: false,
            is_first_failure: true,
            is_named: true,
            heard_at: Timestamp(0),
            spare: None,
            spare_at: Timestamp(0),
            is_fenced_said: false,
        }
    }

    pub(super) fn conn(&self) -> Option<ConnId> {
        match self.state {
            State::Down { .. } => None,
            State::Connecting { conn, .. }
            | State::Greeting { conn, .. }
            | State::Standby { conn, .. }
            | State::Joined(conn) => Some(conn),
        }
    }

    /// Whether `conn` is the stream, or the one beside it.
    pub(super) fn has(&self, conn: ConnId) -> bool {
        self.conn() == Some(conn) || self.spare.is_some_and(|spare| spare.conn == conn)
    }

    /// Whether a second stream is to be begun.
    pub(super) fn wants_spare(&self, now: Timestamp, silence_max: Duration) -> bool {
        matches!(self.state, State::Joined(_))
            && self.spare.is_none()
            && now >= self.spare_at
            && now.since(self.heard_at) >= silence_max
    }

    /// Something has come on `conn`. Returns the stream that is of no use any more.
    pub(super) fn hear(&mut self, now: Timestamp, conn: ConnId) -> Option<ConnId> {
        self.heard_at = now;
        let spare = self.spare?;
        if spare.conn == conn {
            self.spare = None;
            let former = self.conn();
            self.promote(now, spare);
            return former;
        }
        // After its hello the ICN closes the former stream by itself.
        if spare.nonce.is_some() {
            return None;
        }
        self.spare = None;
        Some(spare.conn)
    }

    /// The stream is gone. One beside it takes its place; `false` if there is none.
    pub(super) fn take_spare(&mut self, now: Timestamp) -> bool {
        let spare = self.spare.take();
        if let Some(spare) = spare {
            self.promote(now, spare);
        }
        spare.is_some()
    }

    /// A second stream is the stream from now on.
    fn promote(&mut self, now: Timestamp, spare: Spare) {
        self.state = spare.state(now);
        self.nonce = spare.nonce.unwrap_or(0);
    }

    pub(super) fn go_down(&mut self, now: Timestamp, is_refused: bool) {
        self.is_fenced_said = false;
        let pause = if is_refused {
            self.refused_pause.pause()
        } else {
            self.pause.pause()
        };
        self.state = State::Down {
            retry_at: now + pause,
        };
    }

    /// The ICN has taken the hello.
    pub(super) fn is_taken(&mut self) {
        self.pause.reset();
        self.refused_pause.reset();
        self.is_first_failure = true;
    }
}
