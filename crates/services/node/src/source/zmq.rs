//! STFs of programs that speak ZeroMQ.
//!
//! A message is decoded when the FLP has room for it; what is not asked for stays in the kernel, and its producer
//! waits. Memory is bounded by one message for each producer, the queue of the feed, and one STF between.

mod framing;

pub use framing::{Framing, FramingError, StfFormat, ZmqFraming};

use super::feed::{Fed, Feed, Hands, QUEUE_STFS};
use super::stop::Waited;
use super::{Input, Opening, SourceError, SourceKind, Wake};
use crate::check::{Check, for_index};
use crate::zmq::{Link, ZmqError, ZmqMethod, check_endpoint, host_port};
use serde::{Deserialize, Serialize};
use sheaf_metrics::Registry;
use sheaf_protocol::{FlpId, NodeId};
use sheaf_zmtp::{Limits, SocketConfig, SocketType};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TrySendError;
use std::time::Duration;
use tracing::warn;

/// Messages that are taken before connections are served.
const MESSAGES_A_TURN: usize = 64;
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

    /// A message of each producer that has not come whole, the queue, and one STF between.
    fn bytes_beside(&self, stf_bytes_max: u64) -> u64 {
        let stfs = u64::from(self.peers_max) + QUEUE_STFS as u64 + 1;
        stfs.saturating_mul(stf_bytes_max)
    }

    fn open(&self, opening: Opening<'_>) -> Result<Input, SourceError> {
        let endpoint = for_index(&self.endpoint, opening.flp.into());
        let (bytes_max, wake) = (opening.stf_bytes_max, opening.wake);
        let feed = Feed::zmq(self, &endpoint, bytes_max, wake, opening.registry)?;
        Ok(Input::Fed(feed))
    }
}

impl Feed {
    /// Takes STFs of programs that speak ZeroMQ, at `endpoint`. `wake` is called for each STF.
    ///
    /// # Errors
    ///
    /// [`ZmqError`] if there is no socket, or no thread for it.
    pub fn zmq(
        config: &ZmqSource,
        endpoint: &str,
        stf_bytes_max: u64,
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
        let mut feed = Self::spawn(wake, move |hands| {
            let intake = Intake {
                link,
                framing,
                hands,
                waiting: None,
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
    /// Message that found no room in the queue.
    waiting: Option<Fed>,
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
            let timeout = match self.turn() {
                Turn::Over => return Ok(()),
                Turn::Busy => Duration::ZERO,
                Turn::Idle => self.link.idle_time(),
            };
            self.look();
            let (socket, room) = (self.link.socket.as_fd(), self.hands.room.as_fd());
            if self.hands.stop.wait_for_either(socket, room, timeout)? == Waited::Stopped {
                return Ok(());
            }
            self.hands.room.clear();
            self.link.socket.drive()?;
        }
    }

    fn look(&mut self) {
        self.link.look();
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
            let Some((_, message)) = self.link.socket.try_recv() else {
                return Turn::Idle;
            };
            match self.framing.read(&message) {
                Ok(fed) => self.waiting = Some(fed),
                Err(error) => {
                    self.hands.counts.refused.fetch_add(1, Ordering::Relaxed);
                    self.link.refuse(error.code(), &error);
                }
            }
        }
        Turn::Busy
    }

    /// Puts what waits into the queue.
    fn deliver(&mut self) -> Turn {
        let mut is_told = false;
        while let Some(fed) = self.waiting.take() {
            match self.hands.stfs.try_send(fed) {
                Ok(()) => {
                    self.hands.counts.stfs.fetch_add(1, Ordering::Relaxed);
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
}

#[cfg(test)]
mod tests {
    use super::super::feed::tests::{PATIENCE, Wakes, wakes};
    use super::super::feed::{FeedStats, QUEUE_STFS};
    use super::*;
    use crate::config::{ZmqFraming, ZmqMethod};
    use bytes::Bytes;
    use sheaf_protocol::{PayloadFormat, Stf, TfId};
    use sheaf_zmtp::{Command, Endpoint, Greeting, HighWater, Message, SendError, Socket};
    use std::io::Write as _;
    use std::net::TcpStream;
    use std::time::Instant;

    const STF_BYTES_MAX: u64 = 1 << 20;

    struct Test {
        feed: Feed,
        wakes: Wakes,
        registry: Arc<Registry>,
    }

    fn open(config: &ZmqSource, endpoint: &str) -> Test {
        let (wake, wakes) = wakes();
        let registry = Arc::default();
        let feed = Feed::zmq(config, endpoint, STF_BYTES_MAX, wake, &registry).unwrap();
        Test {
            feed,
            wakes,
            registry,
        }
    }

    fn by_id() -> ZmqSource {
        ZmqSource {
            framing: ZmqFraming::TfId,
            ..ZmqSource::default()
        }
    }

    impl Test {
        fn endpoint(&self) -> Endpoint {
            self.feed.address().unwrap().into()
        }

        fn raw(&self) -> TcpStream {
            TcpStream::connect(self.feed.address().unwrap()).unwrap()
        }

        fn next(&mut self) -> Fed {
            self.wakes.next(&mut self.feed)
        }

        /// Waits until the metric `line` has been counted.
        fn await_metric(&self, line: &str) {
            let start = Instant::now();
            loop {
                let mut text = String::new();
                self.registry.encode(&mut text);
                if text.lines().any(|found| found == line) {
                    return;
                }
                assert!(start.elapsed() < PATIENCE, "no {line} in\n{text}");
                std::thread::yield_now();
            }
        }
    }

    fn message(tf: u64, payload: &[u8]) -> Message {
        let id = Bytes::copy_from_slice(&tf.to_le_bytes());
        Message::new(vec![id, Bytes::copy_from_slice(payload)])
    }

    fn stf(tf: u64, payload: &[u8]) -> Fed {
        let payload = Bytes::copy_from_slice(payload);
        Fed::Stf(Stf::new(TfId(tf), PayloadFormat::Opaque, payload))
    }

    fn push() -> Socket {
        let config = SocketConfig {
            high_water: HighWater {
                messages: 4,
                bytes: 4 << 20,
            },
            ..SocketConfig::default()
        };
        Socket::new(SocketType::Push, config).unwrap()
    }

    /// Sends all of `messages`, however long the other side takes.
    fn send(push: &mut Socket, messages: impl IntoIterator<Item = Message>) {
        let start = Instant::now();
        let wait = |push: &mut Socket| {
            assert!(start.elapsed() < PATIENCE, "no reader takes it");
            push.wait(Duration::from_millis(10)).unwrap();
        };
        for mut message in messages {
            while let Err(SendError::Full(back)) = push.try_send(message) {
                message = back;
                wait(push);
            }
        }
        while push.queued_messages() > 0 {
            wait(push);
        }
    }

    #[test]
    fn messages_become_stfs_whoever_binds() {
        let mut bound = open(&by_id(), "tcp://127.0.0.1:*");
        let mut producer = push();
        producer.connect(&bound.endpoint()).unwrap();
        send(&mut producer, (0..3).map(|tf| message(tf, &[tf as u8; 9])));
        for tf in 0..3 {
            assert_eq!(bound.next(), stf(tf, &[tf as u8; 9]));
        }
        let mut producer = push();
        let at = producer.bind(&"tcp://127.0.0.1:*".parse().unwrap());
        let config = ZmqSource {
            method: ZmqMethod::Connect,
            ..by_id()
        };
        let mut connected = open(&config, &at.unwrap().to_string());
        send(&mut producer, [message(7, b"")]);
        assert_eq!(connected.next(), stf(7, b""));
        connected.await_metric("node_zmq_peers{socket=\"source\"} 1");
        let expected = FeedStats {
            producers: 1,
            stfs: 1,
            ..FeedStats::default()
        };
        assert_eq!(connected.feed.stats(), expected);
    }

    #[test]
    fn a_producer_without_ids_is_counted() {
        let config = ZmqSource {
            framing: ZmqFraming::Count,
            ..ZmqSource::default()
        };
        let mut test = open(&config, "tcp://127.0.0.1:*");
        let mut producer = push();
        producer.connect(&test.endpoint()).unwrap();
        send(&mut producer, [Message::from(&b"payload"[..])]);
        match test.next() {
            Fed::Counted(stf) => assert_eq!(stf.payload, b"payload"[..]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_full_queue_holds_the_producer_back_and_loses_nothing() {
        const MESSAGES: u64 = 200;
        let mut test = open(&by_id(), "tcp://127.0.0.1:*");
        let mut producer = push();
        producer.connect(&test.endpoint()).unwrap();
        let writer = std::thread::spawn(move || {
            send(
                &mut producer,
                (0..MESSAGES).map(|tf| message(tf, &vec![1; 1 << 18])),
            );
            producer
        });
        // Queue and overflow are full, and no reader takes anything: only sockets hold the rest.
        let start = Instant::now();
        while test.feed.stats().stfs < QUEUE_STFS as u64 {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        assert!(!writer.is_finished());
        for tf in 0..MESSAGES {
            assert_eq!(test.next(), stf(tf, &vec![1; 1 << 18]));
        }
        writer.join().unwrap();
    }

    #[test]
    fn what_is_no_stf_is_counted_and_the_next_message_is_taken() {
        let mut test = open(&by_id(), "tcp://127.0.0.1:*");
        let mut producer = push();
        producer.connect(&test.endpoint()).unwrap();
        let bad = [
            Message::from(&b"payload only"[..]),
            Message::new(vec![Bytes::from_static(b"id"), Bytes::new()]),
        ];
        send(&mut producer, bad.into_iter().chain([message(1, b"good")]));
        assert_eq!(test.next(), stf(1, b"good"));
        assert_eq!(test.feed.stats().refused, 2);
        for reason in ["no-payload", "id-bytes"] {
            test.await_metric(&format!(
                "node_zmq_refused_total{{reason=\"{reason}\",socket=\"source\"}} 1"
            ));
        }
    }

    #[test]
    fn a_bad_peer_is_cut_off_by_name_and_the_good_one_stays() {
        let mut test = open(&by_id(), "tcp://127.0.0.1:*");
        let mut producer = push();
        producer.connect(&test.endpoint()).unwrap();
        let ready = |name: &str| Command::Ready {
            socket_type: name.to_owned(),
            identity: Bytes::new(),
        };
        let hello = |name: &str| {
            let greeting = Greeting::OURS.encode();
            [&greeting[..], &ready(name).encode()].concat()
        };
        let old = [b"\xff\0\0\0\0\0\0\0\x01\x7f\x01".as_slice(), &[0; 60]].concat();
        let mut secret = hello("PUSH");
        secret[12..17].copy_from_slice(b"CURVE");
        let too_large = [&hello("PUSH")[..], b"\x02\0\0\0\x01\0\0\0\0"].concat();
        let cut = [&hello("PUSH")[..], b"\x01\x04\0\0\0\0\0\x09half"].concat();
        for (number, (reason, bytes)) in [
            ("protocol", b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n".to_vec()),
            ("version", old),
            ("mechanism", secret),
            ("socket-type", hello("PUB")),
            ("too-large", too_large),
            ("cut", cut),
        ]
        .into_iter()
        .enumerate()
        {
            let mut bad = test.raw();
            bad.write_all(&bytes).unwrap();
            bad.shutdown(std::net::Shutdown::Write).unwrap();
            let number = number as u64;
            send(&mut producer, [message(number, b"good")]);
            assert_eq!(test.next(), stf(number, b"good"));
            test.await_metric(&format!(
                "node_zmq_ended_total{{reason=\"{reason}\",socket=\"source\"}} 1"
            ));
        }
    }

    #[test]
    fn a_producer_that_stops_inside_a_message_stops_no_other() {
        let mut test = open(&by_id(), "tcp://127.0.0.1:*");
        let mut stuck = test.raw();
        let ready = Command::Ready {
            socket_type: "PUSH".to_owned(),
            identity: Bytes::new(),
        };
        let hello = [&Greeting::OURS.encode()[..], &ready.encode()].concat();
        stuck.write_all(&hello).unwrap();
        // Half a million bytes are announced, four come.
        stuck.write_all(b"\x02\0\0\0\0\0\x08\0\0half").unwrap();
        let mut producer = push();
        producer.connect(&test.endpoint()).unwrap();
        send(&mut producer, [message(1, b"good")]);
        assert_eq!(test.next(), stf(1, b"good"));
    }

    #[test]
    fn half_open_peers_keep_no_producer_out() {
        let config = ZmqSource {
            peers_max: 1,
            ..by_id()
        };
        let mut test = open(&config, "tcp://127.0.0.1:*");
        let _half_open: Vec<TcpStream> = (0..100).map(|_| test.raw()).collect();
        let mut producer = push();
        producer.connect(&test.endpoint()).unwrap();
        send(&mut producer, [message(1, b"good")]);
        assert_eq!(test.next(), stf(1, b"good"));
        // Of 101 handshakes 64 were under way at once: it did not wait until the others were too slow.
        test.await_metric("node_zmq_ended_total{reason=\"displaced\",socket=\"source\"} 37");
        // One place more is none for another producer.
        let mut other = push();
        other.connect(&test.endpoint()).unwrap();
        let start = Instant::now();
        while other.stats().ended.is_empty() {
            assert!(start.elapsed() < PATIENCE, "it is not turned away");
            other.wait(Duration::from_millis(10)).unwrap();
        }
        assert_eq!(other.peers(), 0);
    }

    #[test]
    fn a_feed_ends_whatever_its_thread_waits_for() {
        let idle = open(&by_id(), "tcp://127.0.0.1:*");
        drop(idle.feed);
        let full = open(&by_id(), "tcp://127.0.0.1:*");
        let mut producer = push();
        producer.connect(&full.endpoint()).unwrap();
        let more = QUEUE_STFS as u64 + 3;
        send(&mut producer, (0..more).map(|tf| message(tf, b"x")));
        drop(full.feed);
    }

    #[test]
    fn an_endpoint_that_cannot_be_had_is_named() {
        let taken = open(&by_id(), "tcp://127.0.0.1:*");
        let at = taken.endpoint().to_string();
        let (wake, _) = wakes();
        let error = Feed::zmq(&by_id(), &at, 100, wake, &Arc::default()).unwrap_err();
        let expected = format!("cannot use {at}: Address already in use (os error 98)");
        assert_eq!(error.to_string(), expected);
    }
}
