//! One connection without its socket: greeting, READY, then messages, subscriptions and heartbeats.

use crate::command::Command;
use crate::error::PeerError;
use crate::greeting::Greeting;
use crate::input::{Input, Limits, Unit};
use crate::message::Message;
use crate::outbox::{Outbox, Wrote};
use crate::socket_type::SocketType;
use crate::subscriptions::Subscriptions;
use bytes::Bytes;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Limits before the handshake is done, when messages are refused: no memory is taken for one.
const HANDSHAKE_LIMITS: Limits = Limits {
    frame_bytes_max: 1 << 10,
    message_bytes_max: 1 << 10,
    parts_max: 1,
};

/// Options of heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// A peer that was not heard for so long is asked, if it speaks ZMTP 3.1.
    pub interval: Duration,
    /// When it is not heard for so long after that, the connection ends.
    pub timeout: Duration,
}

/// Options of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Socket type of this end.
    pub socket_type: SocketType,
    /// Identity of this end; at most 255 bytes.
    pub identity: Bytes,
    /// Limits of messages of the peer.
    pub limits: Limits,
    /// Longest handshake.
    pub handshake: Duration,
    /// Whether and how the peer is asked.
    pub heartbeat: Option<Heartbeat>,
}

/// Socket type and identity that the peer states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHello {
    /// Socket type, such as `PUSH`.
    pub socket_type: String,
    /// Identity of the peer; often empty.
    pub identity: Bytes,
    /// Minor version that both speak: 0 or 1.
    pub minor: u8,
}

/// Result of decoding the bytes of the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// The handshake is done: messages may go both ways.
    Ready(PeerHello),
    /// A message.
    Message(Message),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The greeting of the peer has not come.
    Greeting,
    /// READY has not come.
    Handshake {
        minor: u8,
    },
    Ready {
        minor: u8,
    },
}

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    phase: Phase,
    input: Input,
    outbox: Outbox,
    /// Subscriptions of the peer; of a PUB only.
    wants: Subscriptions,
    began: Instant,
    heard: Instant,
    asked: Option<Instant>,
    /// Time that the peer waits for a sign of life, by its last PING.
    peer_patience: Option<Duration>,
    /// Since when the peer takes nothing of what waits.
    stalled: Option<Instant>,
}

impl Session {
    /// Creates a connection that begins at `now`. Greeting and READY are queued: with NULL neither end waits for the
    /// other.
    #[must_use]
    pub fn new(config: SessionConfig, now: Instant) -> Self {
        let mut outbox = Outbox::default();
        outbox.push_command(Bytes::copy_from_slice(&Greeting::OURS.encode()));
        let ready = Command::Ready {
            socket_type: config.socket_type.name().to_owned(),
            identity: config.identity.clone(),
        };
        outbox.push_command(ready.encode());
        Self {
            config,
            phase: Phase::Greeting,
            input: Input::default(),
            outbox,
            wants: Subscriptions::default(),
            began: now,
            heard: now,
            asked: None,
            peer_patience: None,
            stalled: None,
        }
    }

    /// Takes in bytes of the peer.
    pub fn push(&mut self, bytes: &[u8], now: Instant) {
        self.input.push(bytes);
        self.hear(now);
    }

    /// Takes in what one read of `source` gives; 0: the peer has ended the stream.
    ///
    /// # Errors
    ///
    /// What the operating system says, such as that nothing is there now.
    pub(crate) fn fill(&mut self, source: impl AsFd, now: Instant) -> io::Result<usize> {
        let bytes = self.input.fill(source)?;
        if bytes > 0 {
            self.hear(now);
        }
        Ok(bytes)
    }

    fn hear(&mut self, now: Instant) {
        self.heard = now;
        self.asked = None;
    }

    /// Returns the next thing that came; `None` when more bytes are needed for it. Commands are carried out on the
    /// way.
    ///
    /// # Errors
    ///
    /// [`PeerError`] if the peer may not be listened to any longer.
    pub fn poll_incoming(&mut self) -> Result<Option<Incoming>, PeerError> {
        loop {
            if self.phase == Phase::Greeting {
                let Some(greeting) = self.input.greeting()? else {
                    return Ok(None);
                };
                // A peer of a higher version comes down to ours.
                let minor = if greeting.major > 3 {
                    1
                } else {
                    greeting.minor.min(1)
                };
                self.phase = Phase::Handshake { minor };
            }
            let limits = if self.is_ready() {
                self.config.limits
            } else {
                HANDSHAKE_LIMITS
            };
            let Some(unit) = self.input.next(&limits)? else {
                return Ok(None);
            };
            let came = match (self.phase, unit) {
                (Phase::Ready { .. }, Unit::Message(message)) => self.message(message)?,
                (Phase::Ready { .. }, Unit::Command(body)) => {
                    self.command(Command::decode(&body)?)?;
                    None
                }
                (Phase::Handshake { minor }, Unit::Command(body)) => {
                    Some(Incoming::Ready(self.ready(Command::decode(&body)?, minor)?))
                }
                (Phase::Greeting | Phase::Handshake { .. }, _) => {
                    let (what, expected) = ("a message before its READY", "READY");
                    return Err(PeerError::Unexpected { what, expected });
                }
            };
            if came.is_some() {
                return Ok(came);
            }
        }
    }

    fn ready(&mut self, command: Command, minor: u8) -> Result<PeerHello, PeerError> {
        let (socket_type, identity) = match command {
            Command::Ready {
                socket_type,
                identity,
            } => (socket_type, identity),
            Command::Error { reason } => return Err(PeerError::Refused { reason }),
            _ => {
                let (what, expected) = ("another command before its READY", "READY");
                return Err(PeerError::Unexpected { what, expected });
            }
        };
        let ours = self.config.socket_type;
        if !ours.peers().contains(&socket_type.as_str()) {
            let reason = format!("{ours} does not talk to {socket_type}");
            self.outbox.push_command(Command::Error { reason }.encode());
            return Err(PeerError::SocketType {
                found: socket_type,
                ours,
            });
        }
        self.phase = Phase::Ready { minor };
        Ok(PeerHello {
            socket_type,
            identity,
            minor,
        })
    }

    fn message(&mut self, message: Message) -> Result<Option<Incoming>, PeerError> {
        match self.config.socket_type {
            SocketType::Pull | SocketType::Sub => return Ok(Some(Incoming::Message(message))),
            SocketType::Push => {
                let (what, expected) = ("a message to a PUSH", "nothing");
                return Err(PeerError::Unexpected { what, expected });
            }
            SocketType::Pub => {}
        }
        // Before ZMTP 3.1 a subscription is a message: 1 or 0, then the topic. An XSUB may send others, which a PUB
        // passes over.
        if let [part] = message.parts() {
            match part.split_first() {
                Some((1, topic)) => self.wants.add(topic)?,
                Some((0, topic)) => self.wants.cancel(topic),
                _ => {}
            }
        }
        Ok(None)
    }

    fn command(&mut self, command: Command) -> Result<(), PeerError> {
        match command {
            Command::Subscribe(topic) if self.config.socket_type == SocketType::Pub => {
                self.wants.add(&topic)?;
            }
            Command::Cancel(topic) if self.config.socket_type == SocketType::Pub => {
                self.wants.cancel(&topic);
            }
            Command::Subscribe(_) | Command::Cancel(_) => {
                let (what, expected) = ("a subscription", "none: this is no PUB");
                return Err(PeerError::Unexpected { what, expected });
            }
            Command::Ping { ttl_ds, context } => {
                let patience = Duration::from_millis(u64::from(ttl_ds) * 100);
                self.peer_patience = (ttl_ds > 0).then_some(patience);
                // A peer that reads no answers gets no more of them.
                self.outbox.push_command(Command::Pong { context }.encode());
            }
            Command::Error { reason } => return Err(PeerError::Refused { reason }),
            Command::Ready { .. } => {
                let (what, expected) = ("READY twice", "messages");
                return Err(PeerError::Unexpected { what, expected });
            }
            Command::Pong { .. } | Command::Unknown { .. } => {}
        }
        Ok(())
    }

    /// Subscribes to what begins with `topic`, or cancels that; of a SUB whose handshake is done.
    pub fn subscribe(&mut self, topic: &Bytes, wanted: bool) {
        let command = match (self.phase, wanted) {
            (Phase::Ready { minor: 1.. }, true) => Command::Subscribe(topic.clone()).encode(),
            (Phase::Ready { minor: 1.. }, false) => Command::Cancel(topic.clone()).encode(),
            _ => {
                let first = Bytes::from_static(if wanted { b"\x01" } else { b"\0" });
                let part = [first, topic.clone()].concat();
                self.outbox.push(Bytes::from(part).into());
                return;
            }
        };
        self.outbox.push_command(command);
    }

    /// Returns when the peer has last sent something, or when the connection began.
    pub(crate) fn heard(&self) -> Instant {
        self.heard
    }

    /// Returns whether the handshake is done.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready { .. })
    }

    /// Returns whether the peer has subscribed to `message`; of a PUB.
    #[must_use]
    pub fn wants(&self, message: &Message) -> bool {
        self.is_ready()
            && message
                .parts()
                .first()
                .is_some_and(|part| self.wants.want(part))
    }

    /// Returns whether the peer has subscribed to anything.
    pub(crate) fn is_subscribed(&self) -> bool {
        !self.wants.is_empty()
    }

    /// Queues a message for the peer. It goes out when the handshake is done.
    pub fn send(&mut self, message: Message) {
        self.outbox.push(message);
    }

    /// Returns what waits to go out.
    pub(crate) fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }

    /// Messages that are not wholly written.
    #[must_use]
    pub fn queued_messages(&self) -> usize {
        self.outbox.messages()
    }

    /// Returns bytes that came and are not given out: at most one buffer and one message.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.input.held_bytes()
    }

    /// Writes what waits, as much as `to` takes.
    ///
    /// # Errors
    ///
    /// What the operating system says; that it takes nothing now is none.
    pub fn write(&mut self, to: &mut impl Write, now: Instant) -> io::Result<u64> {
        let Wrote { bytes, messages } = self
            .outbox
            .write(to, matches!(self.phase, Phase::Ready { .. }))?;
        if bytes > 0 || self.outbox.is_empty() {
            self.stalled = None;
        }
        if !self.outbox.is_empty() && self.stalled.is_none() {
            self.stalled = Some(now);
        }
        Ok(messages)
    }

    /// Returns since when the peer has taken nothing of what waits for it.
    pub(crate) fn stalled_since(&self) -> Option<Instant> {
        self.stalled
    }

    /// Returns how long the peer has taken nothing of what waits for it.
    pub(crate) fn stalled_for(&self, now: Instant) -> Duration {
        self.stalled
            .map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Returns why the stream may not end here, if it may not.
    pub(crate) fn end_of_stream(&self) -> PeerError {
        let part = match self.phase {
            Phase::Ready { .. } if self.input.is_between() => return PeerError::Closed,
            Phase::Ready { .. } => "a message",
            Phase::Greeting | Phase::Handshake { .. } => "the handshake",
        };
        PeerError::Cut { part }
    }

    /// Does what is due at `now`. `is_unread`: bytes of the peer wait to be read, so it is not silent.
    ///
    /// # Errors
    ///
    /// [`PeerError::Slow`] or [`PeerError::Silent`].
    pub fn tick(&mut self, now: Instant, is_unread: bool) -> Result<(), PeerError> {
        if !self.is_ready() {
            let limit = self.config.handshake;
            if now.saturating_duration_since(self.began) >= limit {
                return Err(PeerError::Slow {
                    limit_ms: millis(limit),
                });
            }
            return Ok(());
        }
        let silence = now.saturating_duration_since(self.heard);
        if let Some(patience) = self.peer_patience
            && silence >= patience
            && !is_unread
        {
            return Err(PeerError::Silent {
                limit_ms: millis(patience),
            });
        }
        let (Some(heartbeat), Phase::Ready { minor: 1.. }) = (self.config.heartbeat, self.phase)
        else {
            return Ok(());
        };
        match self.asked {
            Some(asked)
                if now.saturating_duration_since(asked) >= heartbeat.timeout && !is_unread =>
            {
                Err(PeerError::Silent {
                    limit_ms: millis(heartbeat.timeout),
                })
            }
            None if silence >= heartbeat.interval => {
                let ping = Command::Ping {
                    ttl_ds: 0,
                    context: Bytes::new(),
                };
                self.outbox.push_command(ping.encode());
                self.asked = Some(now);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns when [`tick`](Self::tick) has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if !self.is_ready() {
            return self.began.checked_add(self.config.handshake);
        }
        let patience = self
            .peer_patience
            .and_then(|patience| self.heard.checked_add(patience));
        let heartbeat = self
            .config
            .heartbeat
            .filter(|_| matches!(self.phase, Phase::Ready { minor: 1.. }));
        let heartbeat = heartbeat.and_then(|heartbeat| match self.asked {
            Some(asked) => asked.checked_add(heartbeat.timeout),
            None => self.heard.checked_add(heartbeat.interval),
        });
        patience.into_iter().chain(heartbeat).min()
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
