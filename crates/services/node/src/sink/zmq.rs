//! Consumers that speak ZeroMQ: PUSH gives each TF to one of them, PUB to all.
//!
//! A TF counts as delivered when its last byte is with the kernel, so that no queue of ours keeps its memory. If a
//! consumer of a PUSH goes before, the same TF goes whole to the next one, and what it had got of it ZeroMQ throws
//! away. What a consumer had in its queues when it died is gone, as at the Unix socket.

use super::handle::SinkHandle;
use super::{DeliverError, Delivery, Opening, Patience, Sink, SinkError, SinkKind, recomputed};
use crate::check::{Check, for_index};
use crate::zmq::o2_balancer::O2Data;
use crate::zmq::{Link, UNHEARD, ZmqMethod, check_endpoint, host_port};
use bytes::Bytes;
use rustix::event::PollFlags;
use serde::{Deserialize, Serialize};
use sheaf_formats::tf_file::tf_file_head;
use sheaf_metrics::Registry;
use sheaf_protocol::Tf;
use sheaf_protocol::{EpnId, NodeId};
use sheaf_zmtp::{HighWater, Limits, Message, SendError, SocketConfig, SocketType};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How long a consumer is waited for before its absence is logged.
const CONSUMER_WAIT: Duration = Duration::from_secs(1);
/// Period at which connections are served while there is no TF.
const IDLE_EVERY: Duration = Duration::from_millis(20);
/// Longest time without a look at the connections while there are TFs.
const BUSY_EVERY: Duration = Duration::from_millis(1);
/// How long consumers have to take what is in the kernel when the node ends.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Sends TFs to programs that speak ZeroMQ.
#[derive(Debug)]
pub struct Outlet {
    link: Link,
    epn: EpnId,
    layout: ZmqLayout,
    pattern: ZmqOutlet,
    /// TFs of a PUB without a subscriber.
    unheard: u64,
    /// Last look at the connections.
    tended: Option<Instant>,
    registry: Arc<Registry>,
}

impl Outlet {
    /// Opens the socket at `endpoint`. What it counts goes to `registry`.
    ///
    /// # Errors
    ///
    /// [`SinkError::Zmq`] if it cannot be had.
    pub fn open(
        config: &ZmqSink,
        endpoint: &str,
        epn: EpnId,
        registry: &Arc<Registry>,
    ) -> Result<Self, SinkError> {
        let socket_type = match config.pattern {
            ZmqOutlet::Push => SocketType::Push,
            ZmqOutlet::Pub => SocketType::Pub,
        };
        let is_split = config.framing == ZmqLayout::O2Balancer && config.pattern == ZmqOutlet::Push;
        let socket = SocketConfig {
            // One TF at a time is with the socket, and it has to be, however large it is.
            limits: Limits {
                frame_bytes_max: u64::MAX,
                message_bytes_max: u64::MAX,
                parts_max: usize::MAX,
            },
            high_water: HighWater {
                messages: usize::MAX,
                bytes: u64::MAX,
            },
            // Messages of one TF must not go to two consumers.
            peers_max: if is_split {
                1
            } else {
                SocketConfig::default().peers_max
            },
            stall: Duration::from_millis(config.stall_ms),
            resends: false,
            ..SocketConfig::default()
        };
        let at = (endpoint, config.method);
        Ok(Self {
            link: Link::open("sink", socket_type, socket, at, registry.clone())?,
            epn,
            layout: config.framing,
            pattern: config.pattern,
            unheard: 0,
            tended: None,
            registry: registry.clone(),
        })
    }

    /// Where it listens, with the actual port, or connects to.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.link.endpoint.to_string()
    }

    /// The messages of a TF. Payloads are not copied.
    fn messages(&self, tf: &Tf<Bytes>) -> Vec<Message> {
        let payloads = tf.parts.iter().map(|part| part.payload.clone());
        match self.layout {
            ZmqLayout::Tf => {
                let head = Bytes::from(tf_file_head(tf));
                vec![Message::new([head].into_iter().chain(payloads).collect())]
            }
            ZmqLayout::O2Balancer => {
                let head = O2Data {
                    heartbeat: tf.tf.0,
                    channel: u64::from(self.epn.0) + 1, // channels count from 1
                    configures: false,
                };
                let head = head.encode();
                let message = |payload| Message::new(vec![head.clone(), payload]);
                payloads.map(message).collect()
            }
        }
    }

    /// Waits until something can be done at the socket, and does it. `false`: nothing could for the time that a
    /// consumer is waited for, or the node ends.
    fn wait(&mut self, patience: &Patience, has_begun: bool) -> io::Result<bool> {
        let due = Instant::now() + CONSUMER_WAIT;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            let timeout = self.link.idle_time().min(left);
            let socket = self.link.socket.as_fd();
            let is_ready = if has_begun {
                patience.wait_once_more(socket, PollFlags::IN, timeout)?
            } else {
                patience.wait(socket, PollFlags::IN, timeout)?
            };
            self.link.socket.drive()?;
            self.link.look();
            if is_ready || left.is_zero() || patience.is_ending() {
                return Ok(is_ready);
            }
        }
    }

    /// Waits for a consumer of a PUSH.
    fn await_consumer(&mut self, patience: &Patience) -> Result<(), DeliverError> {
        let is_due = self.tended.is_none_or(|at| at.elapsed() >= BUSY_EVERY);
        if is_due || self.pattern == ZmqOutlet::Pub {
            self.tend().map_err(|error| self.failed(error))?;
        }
        while self.pattern == ZmqOutlet::Push && self.link.socket.peers() == 0 {
            let is_near = self
                .wait(patience, false)
                .map_err(|error| self.failed(error))?;
            if !is_near {
                return Err(DeliverError::NoConsumer {
                    path: self.endpoint().into(),
                });
            }
        }
        Ok(())
    }

    /// Sends a TF once. `false`: its consumer went before it had all.
    fn send(&mut self, tf: &Tf<Bytes>, patience: &Patience) -> io::Result<bool> {
        let before = self.link.socket.stats().returned_messages;
        let mut is_heard = false;
        for message in self.messages(tf) {
            match self.link.socket.try_send(message) {
                Ok(peers) => is_heard |= peers > 0,
                // Its consumer went while it got the messages before.
                Err(SendError::Full(_)) => return Ok(false),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        if self.pattern == ZmqOutlet::Pub && !is_heard {
            self.unheard += 1;
            self.registry
                .set(&UNHEARD, &[("socket", "sink")], self.unheard);
        }
        while self.link.socket.queued_messages() > 0 {
            if !self.wait(patience, true)? && patience.is_ending() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(self.link.socket.stats().returned_messages == before)
    }

    fn tend(&mut self) -> io::Result<()> {
        self.tended = Some(Instant::now());
        self.link.socket.drive()?;
        self.link.look();
        Ok(())
    }

    fn failed(&self, source: io::Error) -> DeliverError {
        DeliverError::Consumer {
            path: self.endpoint().into(),
            source,
        }
    }
}

/// The `[epn.sink]` table with `kind = "zmq"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ZmqSink {
    /// Where, as ZeroMQ writes it: `tcp://HOST:PORT` or `ipc://PATH`. `{epn}` stands for the index of the EPN.
    pub endpoint: String,
    /// Side that binds the endpoint.
    pub method: ZmqMethod,
    /// Kind of the consumers.
    pub pattern: ZmqOutlet,
    /// How a TF is laid out.
    pub framing: ZmqLayout,
    /// A consumer that takes nothing for so long, in ms, is given up: of `push` if another could, of `pub` always.
    pub stall_ms: u64,
}

impl Default for ZmqSink {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            method: ZmqMethod::Bind,
            pattern: ZmqOutlet::Push,
            framing: ZmqLayout::Tf,
            stall_ms: 5000,
        }
    }
}

/// The socket of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqOutlet {
    /// PUSH, to consumers that PULL: each TF goes to one of them, and waits until there is one.
    #[default]
    Push,
    /// PUB, to consumers that SUB: each TF goes to all of them, and is dropped if there is none.
    Pub,
}

/// How a TF is laid out for consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZmqLayout {
    /// One message: the head of a TF file, then a part for each STF.
    #[default]
    Tf,
    /// As O2-Balancer2 has it: a message for each STF, of a header of 24 bytes and the payload.
    O2Balancer,
}

impl SinkKind for ZmqSink {
    fn check(&self, check: &mut Check) {
        let endpoint = for_index(&self.endpoint, EpnId(0).into());
        check_endpoint(check, "epn.sink.endpoint", &endpoint, self.method);
        check.that(
            self.stall_ms >= 1,
            "epn.sink.stall_ms",
            self.stall_ms,
            "at least 1 ms",
        );
    }

    fn address(&self, node: NodeId) -> Option<String> {
        host_port(&for_index(&self.endpoint, node))
    }

    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        let epn = opening.target.epn;
        let endpoint = for_index(&self.endpoint, epn.into());
        let outlet = Outlet::open(self, &endpoint, epn, &opening.registry)?;
        SinkHandle::spawn(Box::new(outlet), opening.queue_tfs, opening.wake)
    }
}

impl Sink for Outlet {
    fn name(&self) -> &'static str {
        "zmq"
    }

    fn deliver(&mut self, tf: &Tf<Bytes>, patience: &Patience) -> Result<Delivery, DeliverError> {
        loop {
            self.await_consumer(patience)?;
            match self.send(tf, patience) {
                Ok(true) => return Ok(recomputed(tf)),
                Ok(false) => {
                    // Of a TF in several messages some may still be on their way.
                    self.link.socket.discard_queued();
                    warn!(
                        tf_id = tf.tf.0,
                        "The consumer has gone; the next one gets this TF whole"
                    );
                }
                Err(error) => {
                    self.link.socket.discard_queued();
                    return Err(self.failed(error));
                }
            }
        }
    }

    fn idle(&mut self) -> Option<Duration> {
        if let Err(error) = self.tend() {
            // The next TF meets it again, and that is logged.
            info!(%error, "The socket of the sink cannot be polled");
        }
        Some(IDLE_EVERY)
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.link.socket.discard_queued();
        if let Err(error) = self.link.socket.finish(LAST_WAIT) {
            info!(%error, "The end of the sink is not waited for");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Wakes, delivered, tf, wakes};
    use super::super::{SinkEvent, SinkHandle};
    use super::*;
    use sheaf_formats::tf_file::read_tf_file;
    use sheaf_protocol::TfId;
    use sheaf_zmtp::{Command, Endpoint, Greeting, Socket};
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// More than the kernel holds of one connection.
    fn large(id: u64) -> Tf<Bytes> {
        tf(id, &[&vec![7; 40 << 20]])
    }

    struct Test {
        sink: SinkHandle,
        wakes: Wakes,
        at: Endpoint,
        registry: Arc<Registry>,
    }

    fn open(config: &ZmqSink, endpoint: &str, queue_tfs: u32) -> Test {
        let (wake, wakes) = wakes();
        let registry = Arc::default();
        let outlet = Outlet::open(config, endpoint, EpnId(4), &registry).unwrap();
        let at = outlet.link.endpoint.clone();
        let sink = SinkHandle::spawn(Box::new(outlet), queue_tfs, wake).unwrap();
        Test {
            sink,
            wakes,
            at,
            registry,
        }
    }

    fn bound(config: &ZmqSink) -> Test {
        open(config, "tcp://127.0.0.1:*", 8)
    }

    impl Test {
        fn offer(&mut self, tfs: &[Tf<Bytes>]) {
            for tf in tfs {
                self.sink.offer(tf.clone()).unwrap();
            }
        }

        fn await_delivered(&mut self, tfs: &[Tf<Bytes>]) {
            for tf in tfs {
                assert_eq!(self.wakes.next(&mut self.sink), delivered(tf));
                let freed = SinkEvent::freed(tf.bytes());
                assert_eq!(self.wakes.next(&mut self.sink), freed);
            }
        }

        fn metric(&self, line: &str) -> bool {
            let mut text = String::new();
            self.registry.encode(&mut text);
            text.lines().any(|found| found.starts_with(line))
        }
    }

    /// A consumer.
    struct Receiver(Socket);

    impl Receiver {
        fn new(socket_type: SocketType) -> Self {
            let mut socket = Socket::new(socket_type, SocketConfig::default()).unwrap();
            if socket_type == SocketType::Sub {
                socket.subscribe(b"").unwrap();
            }
            Self(socket)
        }

        fn connected(socket_type: SocketType, at: &Endpoint) -> Self {
            let mut receiver = Self::new(socket_type);
            receiver.0.connect(at).unwrap();
            let start = Instant::now();
            while receiver.0.peers() == 0 {
                assert!(start.elapsed() < PATIENCE, "no peer has connected");
                receiver.0.wait(Duration::from_millis(10)).unwrap();
            }
            receiver
        }

        fn next(&mut self) -> Message {
            let start = Instant::now();
            loop {
                if let Some((_, message)) = self.0.try_recv() {
                    return message;
                }
                assert!(start.elapsed() < PATIENCE, "nothing comes");
                self.0.wait(Duration::from_millis(10)).unwrap();
            }
        }

        /// The id of the next TF, which is whole.
        fn next_tf(&mut self) -> u64 {
            read_tf_file(&self.next().joined(0)).unwrap().tf.0
        }
    }

    /// A consumer that stops reading inside the first message it gets.
    struct Stuck(TcpStream);

    impl Stuck {
        fn connected(name: &str, at: &Endpoint) -> Self {
            let mut stream = TcpStream::connect(at.host_port().unwrap()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(&Greeting::OURS.encode()).unwrap();
            stream.write_all(&ready(name)).unwrap();
            if name == "SUB" {
                let all = Command::Subscribe(Bytes::new()).encode();
                stream.write_all(&all).unwrap();
            }
            Self(stream)
        }

        /// Waits until a message has begun to come from a socket of type `name`.
        fn await_begin(&mut self, name: &str) {
            let mut begin = vec![0; Greeting::SIZE + ready(name).len() + 9];
            self.0.read_exact(&mut begin).unwrap();
        }
    }

    fn ready(name: &str) -> Bytes {
        let ready = Command::Ready {
            socket_type: name.to_owned(),
            identity: Bytes::new(),
        };
        ready.encode()
    }

    #[test]
    fn a_message_is_a_tf_file_whoever_binds() {
        let tfs = [
            tf(1, &[b"abc", b""]),
            tf(2, &[]),
            tf(3, &[&[7; 3 << 20], b"x"]),
        ];
        let mut ours = bound(&ZmqSink::default());
        let mut receiver = Receiver::connected(SocketType::Pull, &ours.at);
        let check = |test: &mut Test, receiver: &mut Receiver| {
            test.offer(&tfs);
            for tf in &tfs {
                let message = receiver.next();
                assert_eq!(message.parts().len(), 1 + tf.parts.len());
                let bytes = message.joined(0);
                let found = read_tf_file(&bytes).unwrap();
                assert_eq!((found.tf, found.parts.len()), (tf.tf, tf.parts.len()));
            }
            test.await_delivered(&tfs);
        };
        check(&mut ours, &mut receiver);
        let mut receiver = Receiver::new(SocketType::Pull);
        let at = receiver
            .0
            .bind(&"tcp://127.0.0.1:*".parse().unwrap())
            .unwrap();
        let config = ZmqSink {
            method: ZmqMethod::Connect,
            ..ZmqSink::default()
        };
        let mut theirs = open(&config, &at.to_string(), 8);
        check(&mut theirs, &mut receiver);
    }

    #[test]
    fn a_consumer_that_dies_inside_a_tf_leaves_it_to_the_next() {
        let mut test = bound(&ZmqSink::default());
        let mut first = Stuck::connected("PULL", &test.at);
        let tfs = [large(1), tf(2, &[b"a"])];
        test.offer(&tfs);
        first.await_begin("PUSH");
        drop(first);
        let mut second = Receiver::connected(SocketType::Pull, &test.at);
        assert_eq!((second.next_tf(), second.next_tf()), (1, 2));
        test.await_delivered(&tfs);
    }

    #[test]
    fn a_consumer_that_stops_reading_makes_tfs_wait_in_bounded_memory() {
        let mut test = open(&ZmqSink::default(), "tcp://127.0.0.1:*", 2);
        let mut stuck = Stuck::connected("PULL", &test.at);
        let tfs = [large(1), large(2)];
        test.offer(&tfs);
        stuck.await_begin("PUSH");
        assert!(test.sink.offer(tf(3, &[b"x"])).is_err(), "the queue grows");
        assert_eq!(test.sink.poll(), None, "it waits without a word");
        let rest = std::thread::spawn(move || io::copy(&mut stuck.0, &mut io::sink()));
        test.await_delivered(&tfs);
        drop(test.sink);
        assert!(rest.join().unwrap().unwrap() > tfs[0].bytes() + tfs[1].bytes());
    }

    #[test]
    fn a_consumer_that_stops_reading_is_given_up_for_another() {
        let config = ZmqSink {
            stall_ms: 50,
            ..ZmqSink::default()
        };
        let mut test = bound(&config);
        let mut stuck = Stuck::connected("PULL", &test.at);
        test.offer(&[large(1)]);
        stuck.await_begin("PUSH");
        let mut other = Receiver::connected(SocketType::Pull, &test.at);
        assert_eq!(other.next_tf(), 1);
        test.await_delivered(&[large(1)]);
        drop(test.sink);
        let mut text = String::new();
        test.registry.encode(&mut text);
        assert!(text.contains("reason=\"stalled\""), "{text}");
    }

    #[test]
    fn without_a_consumer_tfs_wait_and_it_is_told() {
        let mut test = bound(&ZmqSink::default());
        test.offer(&[tf(1, &[b"a"])]);
        let error = format!("no consumer is connected at {}", test.at);
        let failed = SinkEvent::Failed {
            tf: TfId(1),
            error,
            is_storage: false,
        };
        assert_eq!(test.wakes.next(&mut test.sink), failed);
        let mut receiver = Receiver::connected(SocketType::Pull, &test.at);
        assert_eq!(receiver.next_tf(), 1);
    }

    #[test]
    fn a_consumer_that_is_away_or_stuck_does_not_keep_the_node() {
        let mut away = bound(&ZmqSink::default());
        away.offer(&[tf(1, &[b"a"])]);
        away.sink.finish();
        assert_eq!(away.sink.poll(), None);
        let mut stuck = bound(&ZmqSink::default());
        let mut receiver = Stuck::connected("PULL", &stuck.at);
        stuck.offer(&[large(1)]);
        receiver.await_begin("PUSH");
        stuck.sink.finish();
        assert_eq!(stuck.sink.poll(), None);
    }

    #[test]
    fn o2_balancer_gets_a_message_for_each_stf() {
        let config = ZmqSink {
            framing: ZmqLayout::O2Balancer,
            ..ZmqSink::default()
        };
        let mut test = bound(&config);
        let tfs = [tf(8, &[b"a", b"bc"]), tf(9, &[b""])];
        let mut receiver = Receiver::connected(SocketType::Pull, &test.at);
        test.offer(&tfs);
        for (heartbeat, payload) in [(8, &b"a"[..]), (8, b"bc"), (9, b"")] {
            let head = O2Data {
                heartbeat,
                channel: 5,
                configures: false,
            };
            let expected = [head.encode(), Bytes::copy_from_slice(payload)];
            assert_eq!(receiver.next().parts(), expected);
        }
        test.await_delivered(&tfs);
        // Half of a TF for each of two would be none for either.
        let mut second = Receiver::new(SocketType::Pull);
        second.0.connect(&test.at).unwrap();
        let start = Instant::now();
        while !test.metric("node_zmq_ended_total{reason=\"crowded\",socket=\"sink\"}") {
            assert!(start.elapsed() < PATIENCE);
            second.0.wait(Duration::from_millis(10)).unwrap();
        }
    }

    #[test]
    fn a_publisher_serves_all_and_gives_up_who_stops_reading() {
        let config = ZmqSink {
            pattern: ZmqOutlet::Pub,
            stall_ms: 1000,
            ..ZmqSink::default()
        };
        let mut test = bound(&config);
        test.offer(&[tf(0, &[b"unheard"])]);
        test.await_delivered(&[tf(0, &[b"unheard"])]);
        assert!(test.metric("node_zmq_unheard_total{socket=\"sink\"} 1"));
        let mut good = Receiver::connected(SocketType::Sub, &test.at);
        let mut stuck = Stuck::connected("SUB", &test.at);
        // A subscriber is not notified when its subscription takes effect: both get something first.
        std::thread::scope(|scope| {
            let begun = scope.spawn(|| stuck.await_begin("PUB"));
            let mut has_good = false;
            let start = Instant::now();
            while !(begun.is_finished() && has_good) {
                assert!(start.elapsed() < PATIENCE);
                test.offer(&[tf(1, &[b"begin"])]);
                test.await_delivered(&[tf(1, &[b"begin"])]);
                good.0.wait(Duration::from_millis(1)).unwrap();
                has_good |= good.0.try_recv().is_some();
            }
        });
        test.offer(&[large(2)]);
        while good.next_tf() != 2 {}
        test.await_delivered(&[large(2)]);
        drop(test.sink);
        let mut text = String::new();
        test.registry.encode(&mut text);
        let expected = "node_zmq_ended_total{reason=\"stalled\",socket=\"sink\"} 1";
        assert!(text.contains(expected), "{text}");
    }
}
