//! Sources of ZeroMQ, with real sockets.

use super::*;
use crate::config::{ZmqFraming, ZmqMethod};
use crate::source::feed::tests::{PATIENCE, Wakes, arena, wakes};
use crate::source::feed::{FeedStats, QUEUE_STFS};
use bytes::Bytes;
use sheaf_protocol::{PayloadFormat, Stf, TfId};
use sheaf_zmtp::{Command, Endpoint, Greeting, HighWater, Message, SendError, Socket};
use std::io::Write as _;
use std::net::TcpStream;

const STF_BYTES_MAX: u64 = 1 << 20;
const MEMORY_BYTES: usize = 4 << 20;

struct Test {
    feed: Feed,
    wakes: Wakes,
    memory: Arc<Arena>,
    registry: Arc<Registry>,
}

fn open(config: &ZmqSource, endpoint: &str) -> Test {
    let (wake, wakes) = wakes();
    let (registry, memory) = (Arc::default(), arena(MEMORY_BYTES));
    let feed = Feed::zmq(config, endpoint, STF_BYTES_MAX, &memory, wake, &registry).unwrap();
    Test {
        feed,
        wakes,
        memory,
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
fn messages_become_stfs_whichever_end_binds() {
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
fn two_producers_of_every_second_tf_lose_none() {
    const TFS: u64 = 400;
    let config = ZmqSource {
        window_ms: WINDOW_MS_MAX,
        ..by_id()
    };
    let mut test = open(&config, "tcp://127.0.0.1:*");
    let start = Instant::now();
    let producers = [(); 2].map(|()| {
        let mut producer = push();
        producer.connect(&test.endpoint()).unwrap();
        let known = test.feed.stats().producers;
        while test.feed.stats().producers == known {
            assert!(start.elapsed() < PATIENCE, "no producer is there");
            producer.wait(Duration::from_millis(1)).unwrap();
        }
        producer
    });
    let [mut even, mut odd] = producers;
    // The second one is done before the first one begins: what is not taken of it waits in the kernel.
    let tfs = (0..TFS).filter(|tf| tf % 2 == 1);
    send(&mut odd, tfs.map(|tf| message(tf, b"b")));
    let thread = std::thread::spawn(move || {
        let tfs = (0..TFS).filter(|tf| tf % 2 == 0);
        send(&mut even, tfs.map(|tf| message(tf, &[0; 100_000])));
        even
    });
    for tf in 0..TFS {
        match test.next() {
            Fed::Stf(stf) => assert_eq!(stf.tf, TfId(tf)),
            other => panic!("TF {tf} is missing: {other:?}"),
        }
    }
    thread.join().unwrap();
}

#[test]
fn tfs_of_a_silent_producer_are_given_up_by_name() {
    let config = ZmqSource {
        window_ms: 1,
        ..by_id()
    };
    let mut test = open(&config, "tcp://127.0.0.1:*");
    let (mut first, mut second) = (push(), push());
    first.connect(&test.endpoint()).unwrap();
    second.connect(&test.endpoint()).unwrap();
    send(&mut first, [message(0, b"a")]);
    assert_eq!(test.next(), stf(0, b"a"));
    send(&mut second, [message(1, b"b")]);
    assert_eq!(test.next(), stf(1, b"b"));
    send(&mut first, [message(3, b"d")]);
    assert_eq!(test.next(), Fed::GivenUp(TfId(3)));
    assert_eq!(test.next(), stf(3, b"d"));
    // The FLP refuses it, and says so.
    send(&mut second, [message(2, b"c")]);
    assert_eq!(test.next(), stf(2, b"c"));
}

#[test]
fn payloads_lie_in_the_memory_of_the_node_and_a_full_one_makes_producers_wait() {
    let mut test = open(&by_id(), "tcp://127.0.0.1:*");
    let mut producer = push();
    producer.connect(&test.endpoint()).unwrap();
    let writer = std::thread::spawn(move || {
        let messages = (0..12).map(|tf| message(tf, &vec![tf as u8; 1 << 20]));
        send(&mut producer, messages);
        producer
    });
    let mut held: Vec<Fed> = (0..4).map(|_| test.next()).collect();
    assert_eq!(test.memory.used_bytes(), MEMORY_BYTES as u64);
    assert_eq!(test.feed.stats().stfs, 4);
    for tf in 4..12 {
        held.remove(0);
        held.push(test.next());
        assert_eq!(held.last(), Some(&stf(tf, &vec![tf as u8; 1 << 20])));
    }
    writer.join().unwrap();
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
    let error = Feed::zmq(&by_id(), &at, 100, &arena(1), wake, &Arc::default()).unwrap_err();
    let expected = format!("cannot use {at}: Address already in use (os error 98)");
    assert_eq!(error.to_string(), expected);
}
