//! STFs of programs that speak ZeroMQ.
//!
//! A message is decoded when the FLP has room for it; what is not asked for stays in the kernel, and its producer
//! waits. Beside the arena, which payloads are put into before they go on, memory is bounded by one message for each
//! producer, and one STF between.

mod framing;
mod merge;

pub use framing::{Framing, FramingError, StfFormat, ZmqFraming};

use super::feed::{Fed, Feed, Hands, Payloads};
use super::stop::Waited;
use super::{Input, Opening, Place, SourceError, SourceKind, Wake};
use crate::check::{Check, for_index};
use crate::zmq::{Link, ZmqError, ZmqMethod, check_endpoint, host_port};
use merge::{GivenUp, Late, Merge, Merged};
use serde::{Deserialize, Serialize};
use sheaf_metrics::Registry;
use sheaf_protocol::{FlpId, NodeId};
use sheaf_transport::Arena;
use sheaf_zmtp::{Limits, SocketConfig, SocketType};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TrySendError;
use std::time::{Duration, Instant};
use tracing::warn;

/// Messages that are taken before connections are served.
const MESSAGES_A_TURN: usize = 64;
/// Longest window of a source with several producers, in ms: holds of other FLPs keep their STFs meanwhile.
const WINDOW_MS_MAX: u64 = 60_000;
/// How often TFs out of order are logged.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Producers of one FLP at most: each may have one message in memory.
const PEERS_MAX: u32 = 1024;

/// The `[flp.source]` table with `kind = "zmq"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZmqSource {
    /// Where, as ZeroMQ writes it: `tcp://HOST:PORT` or `ipc://PATH`. `{flp}` stands for the index of the FLP.
    pub endpoint: String,
    /// Side that binds the endpoint.
    pub method: ZmqMethod,
    /// Kind of the producers.
    pub pattern: ZmqIntake,
    /// With `pattern = "sub"`: only messages whose first part begins with this.
    pub topic: String,
    /// How a message says which TF it is of.
    pub framing: ZmqFraming,
    /// Format of payloads, where messages do not state it.
    pub format: StfFormat,
    /// The number of its producers that is TF 0.
    pub first_tf: u64,
    /// Producers at once.
    pub peers_max: u32,
    /// With several producers that give TF ids: how long a TF that none of them has given is awaited while one gives a
    /// later one, in ms. Then it is skipped as `source-disorder`.
    pub window_ms: u64,
}

impl Default for ZmqSource {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            method: ZmqMethod::Bind,
            pattern: ZmqIntake::Pull,
            topic: String::new(),
            framing: ZmqFraming::Record,
            format: StfFormat::Opaque,
            first_tf: 0,
            peers_max: 4,
            window_ms: 200,
        }
    }
}

/// The socket of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqIntake {
    /// PULL, of producers that PUSH: they wait when the FLP does.
    #[default]
    Pull,
    /// SUB, of producers that PUB: they throw away what the FLP does not take.
    Sub,
}

impl SourceKind for ZmqSource {
    fn is_fed(&self) -> bool {
        true
    }

    fn check(&self, check: &mut Check) {
        let endpoint = for_index(&self.endpoint, FlpId(0).into());
        check_endpoint(check, "flp.source.endpoint", &endpoint, self.method);
        check.that(
            (1..=PEERS_MAX).contains(&self.peers_max),
            "flp.source.peers_max",
            self.peers_max,
            format!("1 to {PEERS_MAX}"),
        );
        check.that(
            self.window_ms <= WINDOW_MS_MAX,
            "flp.source.window_ms",
            self.window_ms,
            format!("0 to {WINDOW_MS_MAX}"),
        );
        check.both(
            self.topic.is_empty() || self.pattern == ZmqIntake::Sub,
            "flp.source.topic",
            "flp.source.pattern",
            format!("\"{}\"", self.topic),
            "none with pattern = \"pull\"".to_owned(),
        );
    }

    fn address(&self, node: NodeId) -> Option<String> {
        host_port(&for_index(&self.endpoint, node))
    }

    /// A message of each producer that has not come whole or is not its turn, and one STF between.
    fn bytes_beside(&self, place: &Place) -> u64 {
        let stfs = u64::from(self.peers_max) + 1;
        stfs.saturating_mul(place.stf_bytes_max)
    }

    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError> {
        let endpoint = for_index(&self.endpoint, opening.flp.into());
        let (bytes_max, wake) = (opening.stf_bytes_max, opening.wake);
        let memory = opening.memory;
        let feed = Feed::zmq(self, &endpoint, bytes_max, memory, wake, opening.registry)?;
        Ok(Input::Fed(feed))
    }
}

impl Feed {
    /// Takes STFs of programs that speak ZeroMQ, at `endpoint`, and puts their payloads into `memory`. `wake` is called
    /// for each STF.
    ///
    /// # Errors
    ///
    /// [`ZmqError`] if there is no socket, or no thread for it.
    pub fn zmq(
        config: &ZmqSource,
        endpoint: &str,
        stf_bytes_max: u64,
        memory: &Arc<Arena>,
        wake: Wake,
        registry: &Arc<Registry>,
    ) -> Result<Self, ZmqError> {
        let socket_type = match config.pattern {
            ZmqIntake::Pull => SocketType::Pull,
            ZmqIntake::Sub => SocketType::Sub,
        };
        let bytes_max = stf_bytes_max.saturating_add(Framing::HEAD_BYTES_MAX);
        let socket = SocketConfig {
            limits: Limits {
                frame_bytes_max: bytes_max,
                message_bytes_max: bytes_max,
                ..Limits::default()
            },
            peers_max: config.peers_max as usize,
            ..SocketConfig::default()
        };
        let at = (endpoint, config.method);
        let mut link = Link::open("source", socket_type, socket, at, registry.clone())?;
        if socket_type == SocketType::Sub {
            link.socket.subscribe(config.topic.as_bytes())?;
        }
        let address = link.endpoint.host_port();
        let framing = Framing::new(config);
        let merge = Merge::new(Duration::from_millis(config.window_ms));
        let memory = memory.clone();
        let mut feed = Self::spawn(wake, move |hands| {
            let payloads = Payloads::ringing(memory, hands.room.clone());
            let intake = Intake {
                link,
                framing,
                hands,
                merge,
                payloads,
                waiting: None,
                is_settled: false,
                told: Told::default(),
            };
            intake.run();
        })?;
        if config.framing == ZmqFraming::Count {
            feed.set_counted();
        }
        feed.set_address(address.and_then(|address| address.parse().ok()));
        Ok(feed)
    }
}

/// The thread's side.
struct Intake {
    link: Link,
    framing: Framing,
    hands: Hands,
    /// Order of producers that give TF ids.
    merge: Merge,
    /// Message that found no room in the queue.
    waiting: Option<Fed>,
    payloads: Payloads,
    /// The payload of that message lies in the arena.
    is_settled: bool,
    told: Told,
}

/// Counts of producers out of order that the log has not said yet.
#[derive(Default)]
struct Told {
    at: Option<Instant>,
    given_up: u64,
    late: u64,
}

impl Told {
    fn is_due(&mut self) -> bool {
        let is_due = self.at.is_none_or(|at| at.elapsed() >= TELL_EVERY);
        if is_due {
            self.at = Some(Instant::now());
        }
        is_due
    }

    fn give_up(&mut self, up: &GivenUp) {
        self.given_up += up.end.0 - up.first.0;
        if self.is_due() {
            let tfs = std::mem::take(&mut self.given_up);
            let (first, given, by) = (up.first.0, up.end.0, up.ahead.0);
            let (behind, behind_at) = (up.behind.0, up.behind_at.map(|tf| tf.0));
            warn!(
                tfs,
                first,
                given,
                by,
                behind,
                behind_at,
                "TFs given up: one producer gave a later one, and another gave none within flp.source.window_ms"
            );
        }
    }

    fn be_late(&mut self, late: &Late) {
        self.late += 1;
        if late.producers > 1 && self.is_due() {
            let stfs = std::mem::take(&mut self.late);
            let (found, expected, of) = (late.stf.tf.0, late.expected.0, late.of.0);
            let producers = late.producers;
            warn!(
                stfs,
                found,
                expected,
                of,
                producers,
                "STFs refused: a producer gives TFs that another one gave or that were given up. Each STF comes whole \
                 from one producer, and ids of each go up"
            );
        }
    }
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// There is more to do at once.
    Busy,
    /// A peer or the FLP has to do something first.
    Idle,
    /// The FLP has gone.
    Over,
}

impl Intake {
    fn run(mut self) {
        if let Err(error) = self.serve() {
            warn!(%error, "Cannot wait for producers any longer");
        }
        self.hands.end();
    }

    fn serve(&mut self) -> std::io::Result<()> {
        loop {
            self.look();
            let timeout = match self.turn() {
                Turn::Over => return Ok(()),
                Turn::Busy => Duration::ZERO,
                Turn::Idle => self.idle_time(),
            };
            let (socket, room) = (self.link.socket.as_fd(), self.hands.room.as_fd());
            if self.hands.stop.wait_for_either(socket, room, timeout)? == Waited::Stopped {
                return Ok(());
            }
            self.hands.room.clear();
            self.link.socket.drive()?;
        }
    }

    /// How long may be waited for a peer or the FLP.
    fn idle_time(&self) -> Duration {
        let idle = self.link.idle_time();
        let due = self.merge.deadline().filter(|_| self.waiting.is_none());
        due.map_or(idle, |due| {
            idle.min(due.saturating_duration_since(Instant::now()))
        })
    }

    fn look(&mut self) {
        self.link.look();
        self.merge.connect(&self.link.socket.ready());
        let stats = self.link.socket.stats();
        self.hands
            .counts
            .producers
            .store(stats.peers, Ordering::Relaxed);
    }

    /// Forwards messages until there are none, there is no room, or others want something.
    fn turn(&mut self) -> Turn {
        for _ in 0..MESSAGES_A_TURN {
            match self.deliver() {
                Turn::Busy => {}
                other => return other,
            }
            if self.take_merged() {
                continue;
            }
            let merge = &self.merge;
            let received = self.link.socket.try_recv_of(|peer| merge.wants(peer));
            let Some((peer, message)) = received else {
                return Turn::Idle;
            };
            match self.framing.read(&message) {
                Ok(Fed::Stf(stf)) => self.merge.put(peer, stf),
                Ok(fed) => self.waiting = Some(fed),
                Err(error) => {
                    self.hands.counts.refused.fetch_add(1, Ordering::Relaxed);
                    self.link.refuse(error.code(), &error);
                }
            }
        }
        Turn::Busy
    }

    /// Lets the next STF of all producers wait for the queue; `false` if there is none now.
    fn take_merged(&mut self) -> bool {
        let Some(merged) = self.merge.poll(Instant::now()) else {
            return false;
        };
        self.waiting = Some(match merged {
            Merged::Stf(stf) => Fed::Stf(stf),
            Merged::GivenUp(up) => {
                self.told.give_up(&up);
                Fed::GivenUp(up.end)
            }
            Merged::Late(late) => {
                self.told.be_late(&late);
                Fed::Stf(late.stf)
            }
        });
        true
    }

    /// Puts what waits into the queue.
    fn deliver(&mut self) -> Turn {
        let mut is_told = false;
        while let Some(mut fed) = self.waiting.take() {
            if !self.is_settled && !self.settle(&mut fed) {
                self.waiting = Some(fed);
                if is_told {
                    return Turn::Idle;
                }
                // Memory may have come back just now.
                self.payloads.want();
                is_told = true;
                continue;
            }
            self.is_settled = true;
            let is_stf = matches!(fed, Fed::Stf(_) | Fed::Counted(_));
            match self.hands.stfs.try_send(fed) {
                Ok(()) => {
                    self.is_settled = false;
                    let stfs = u64::from(is_stf);
                    self.hands.counts.stfs.fetch_add(stfs, Ordering::Relaxed);
                    (self.hands.wake)();
                }
                Err(TrySendError::Full(fed)) => {
                    self.waiting = Some(fed);
                    if is_told {
                        return Turn::Idle;
                    }
                    // The FLP may have taken one just now: that is looked at once more, after it is asked to ring.
                    self.hands.room.wait_for();
                    is_told = true;
                }
                Err(TrySendError::Disconnected(_)) => return Turn::Over,
            }
        }
        Turn::Busy
    }

    /// Puts a payload into the arena; `false` if there is no room now.
    fn settle(&mut self, fed: &mut Fed) -> bool {
        let (Fed::Stf(stf) | Fed::Counted(stf)) = fed else {
            return true;
        };
        let Some(mut block) = self.payloads.try_take(stf.payload.len()) else {
            return false;
        };
        block.as_mut().copy_from_slice(&stf.payload);
        stf.payload = block.freeze();
        true
    }
}

#[cfg(test)]
mod tests;
