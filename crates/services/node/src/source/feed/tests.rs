//! Feeds, with real sockets.

use super::super::record::RecordHeader;
pub(in crate::source) use super::payloads::tests::arena;
use super::*;
use sheaf_protocol::PayloadFormat;
use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;

/// Longer than any test.
const IDLE: Duration = Duration::from_secs(600);

/// Where the waker puts its calls, and the test waits for them.
pub(in crate::source) struct Wakes(Receiver<()>);

pub(in crate::source) const PATIENCE: Duration = Duration::from_secs(30);

pub(in crate::source) fn wakes() -> (Wake, Wakes) {
    let (sender, receiver) = sync_channel(1);
    // A wake that is pending already need not be repeated.
    let wake = Box::new(move || {
        let _ = sender.try_send(());
    });
    (wake, Wakes(receiver))
}

impl Wakes {
    pub(in crate::source) fn next(&self, feed: &mut Feed) -> Fed {
        loop {
            match feed.try_next() {
                Fed::Nothing => self
                    .0
                    .recv_timeout(PATIENCE)
                    .expect("the feed wakes its node"),
                Fed::Left(_) => {}
                other => return other,
            }
        }
    }
}

fn record(tf: u64, payload: &[u8]) -> Vec<u8> {
    let format = PayloadFormat::Opaque;
    let header = RecordHeader {
        format,
        tf: TfId(tf),
        payload_bytes: payload.len() as u64,
    };
    [&header.encode(), payload].concat()
}

fn stf(tf: u64, payload: &'static [u8]) -> Fed {
    Fed::Stf(Stf::new(TfId(tf), PayloadFormat::Opaque, payload.into()))
}

fn tcp(feed: &Feed) -> TcpStream {
    TcpStream::connect(feed.address().unwrap()).unwrap()
}

fn memory() -> Arc<Arena> {
    arena(8 << 20)
}

/// Waits until the feed has closed its side.
fn await_end(stream: &mut impl Read) {
    let end = stream.read(&mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "a feed answers nothing");
}

#[test]
fn the_end_of_a_producer_stands_behind_its_stfs() {
    let (wake, wakes) = wakes();
    let mut feed = Feed::tcp("127.0.0.1:0", 100, IDLE, &memory(), wake).unwrap();
    let mut first = tcp(&feed);
    let peer = first.local_addr().unwrap().to_string();
    first.write_all(&record(0, b"a")).unwrap();
    drop(first);
    let mut found = Vec::new();
    while !matches!(found.last(), Some(Fed::Left(_))) {
        match feed.try_next() {
            Fed::Nothing => wakes.0.recv_timeout(PATIENCE).unwrap(),
            fed => found.push(fed),
        }
    }
    assert_eq!(found, [stf(0, b"a"), Fed::Left(peer)]);
}

#[test]
fn payloads_lie_in_the_memory_of_the_node_and_a_full_one_makes_the_producer_wait() {
    const HALF: usize = 1 << 20;
    let memory = arena(2 * HALF);
    let (wake, wakes) = wakes();
    let mut feed = Feed::tcp("127.0.0.1:0", HALF as u64, IDLE, &memory, wake).unwrap();
    let mut stream = tcp(&feed);
    let payloads = (1..6).map(|tf| vec![tf; HALF]);
    let writer = std::thread::spawn(move || {
        for (tf, payload) in (0..).zip(payloads) {
            stream.write_all(&record(tf, &payload)).unwrap();
        }
    });
    // Two are held, and there is no room for a third one.
    let held = [wakes.next(&mut feed), wakes.next(&mut feed)];
    assert_eq!(memory.used_bytes(), memory.capacity_bytes());
    assert_eq!(feed.stats().stfs, 2);
    drop(held);
    for tf in 2..5 {
        match wakes.next(&mut feed) {
            Fed::Stf(stf) => assert_eq!((stf.tf, stf.payload[0]), (TfId(tf), tf as u8 + 1)),
            other => panic!("TF {tf} is missing: {other:?}"),
        }
    }
    writer.join().unwrap();
    drop(feed);
    assert_eq!(memory.used_bytes(), 0);
}

#[test]
fn producers_are_served_one_after_the_other() {
    let (wake, wakes) = wakes();
    let mut feed = Feed::tcp("127.0.0.1:0", 100, IDLE, &memory(), wake).unwrap();
    assert_eq!(feed.try_next(), Fed::Nothing);
    let (mut first, mut second) = (tcp(&feed), tcp(&feed));
    second.write_all(&record(2, b"c")).unwrap();
    first.write_all(&record(0, b"a")).unwrap();
    assert_eq!(wakes.next(&mut feed), stf(0, b"a"));
    first.write_all(&record(1, b"")).unwrap();
    assert_eq!(wakes.next(&mut feed), stf(1, b""));
    drop(first);
    assert_eq!(wakes.next(&mut feed), stf(2, b"c"));
    assert_eq!(
        feed.stats(),
        FeedStats {
            producers: 2,
            stfs: 3,
            refused: 0,
            replaced: 0
        }
    );
}

#[test]
fn a_silent_producer_is_replaced_by_one_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feed");
    let idle_timeout = Duration::from_millis(20);
    let (wake, wakes) = wakes();
    let mut feed = Feed::unix(&path, 100, idle_timeout, &memory(), wake).unwrap();
    // One that has sent nothing, one inside a record, one behind a record.
    let cut = &record(9, b"cut")[..26];
    let whole = record(8, b"whole");
    let mut silent = Vec::new();
    for (number, sent) in (0..).zip([&[][..], cut, &whole]) {
        let mut first = UnixStream::connect(&path).unwrap();
        first.write_all(sent).unwrap();
        if sent.len() == whole.len() {
            assert_eq!(wakes.next(&mut feed), stf(8, b"whole"));
        }
        let mut second = UnixStream::connect(&path).unwrap();
        second.write_all(&record(number, b"next")).unwrap();
        assert_eq!(wakes.next(&mut feed), stf(number, b"next"));
        await_end(&mut first);
        silent.push(second);
    }
    let stats = feed.stats();
    // Every second one was silent behind its record when the next one came.
    assert_eq!((stats.replaced, stats.refused, stats.stfs), (5, 0, 4));
}

#[test]
fn a_silent_producer_stays_while_no_other_one_waits() {
    let (wake, wakes) = wakes();
    let mut feed = Feed::tcp(
        "127.0.0.1:0",
        100,
        Duration::from_millis(1),
        &memory(),
        wake,
    )
    .unwrap();
    let mut silent = tcp(&feed);
    for tf in 0..3 {
        silent.write_all(&record(tf, b"x")).unwrap();
        assert_eq!(wakes.next(&mut feed), stf(tf, b"x"));
        // A check of the port, which ends when the feed has looked at it. There is nothing to serve.
        let mut check = tcp(&feed);
        check.shutdown(Shutdown::Write).unwrap();
        await_end(&mut check);
    }
    assert_eq!((feed.stats().replaced, feed.stats().producers), (0, 1));
}

#[test]
fn without_a_timeout_a_silent_producer_is_not_replaced() {
    let (wake, wakes) = wakes();
    let mut feed = Feed::tcp("127.0.0.1:0", 100, Duration::ZERO, &memory(), wake).unwrap();
    let (mut first, mut second) = (tcp(&feed), tcp(&feed));
    second.write_all(&record(1, b"b")).unwrap();
    first.write_all(&record(0, b"a")).unwrap();
    assert_eq!(wakes.next(&mut feed), stf(0, b"a"));
    drop(first);
    assert_eq!(wakes.next(&mut feed), stf(1, b"b"));
    assert_eq!(feed.stats().replaced, 0);
}

#[test]
fn rubbish_ends_its_connection_and_no_other() {
    let (wake, wakes) = wakes();
    let mut feed = Feed::tcp("127.0.0.1:0", 100, IDLE, &memory(), wake).unwrap();
    let mut cut = record(1, b"cut");
    cut.pop();
    for (refused, rubbish) in [
        b"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n".to_vec(),
        record(1, &[0; 101]),
        cut,
    ]
    .into_iter()
    .enumerate()
    {
        let mut bad = tcp(&feed);
        bad.write_all(&rubbish).unwrap();
        bad.shutdown(Shutdown::Write).unwrap();
        await_end(&mut bad);
        tcp(&feed).write_all(&record(7, b"good")).unwrap();
        assert_eq!(wakes.next(&mut feed), stf(7, b"good"));
        assert_eq!(feed.stats().refused, refused as u64 + 1);
    }
}

#[test]
fn a_producer_that_is_faster_waits_and_loses_nothing() {
    let (wake, wakes) = wakes();
    let mut feed = Feed::tcp("127.0.0.1:0", 1 << 20, IDLE, &memory(), wake).unwrap();
    let mut stream = tcp(&feed);
    let writer = std::thread::spawn(move || {
        for tf in 0..100 {
            stream.write_all(&record(tf, &vec![1; 1 << 18])).unwrap();
        }
    });
    for tf in 0..100 {
        match wakes.next(&mut feed) {
            Fed::Stf(stf) => assert_eq!((stf.tf, stf.bytes()), (TfId(tf), 1 << 18)),
            other => panic!("TF {tf} is missing: {other:?}"),
        }
    }
    writer.join().unwrap();
    let rest = feed.try_next();
    assert!(matches!(rest, Fed::Nothing | Fed::Left(_)), "{rest:?}");
}

#[test]
fn a_feed_ends_whatever_its_thread_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feed");
    let (wake, wakes) = wakes();
    let mut feed = Feed::unix(&path, 100, IDLE, &memory(), wake).unwrap();
    let mut full = UnixStream::connect(&path).unwrap();
    for tf in 0..=QUEUE_STFS as u64 + 1 {
        full.write_all(&record(tf, b"x")).unwrap();
    }
    assert_eq!(wakes.next(&mut feed), stf(0, b"x"));
    drop(feed); // Its thread waits for room in the queue, or is about to.
    assert!(!path.exists());
    await_end(&mut full);
    let feed = Feed::unix(&path, 100, IDLE, &memory(), Box::new(|| {})).unwrap();
    drop(feed); // Its thread waits for a producer.
    let (wake, wakes) = self::wakes();
    let mut feed = Feed::unix(&path, 100, IDLE, &memory(), wake).unwrap();
    let mut idle = UnixStream::connect(&path).unwrap();
    idle.write_all(&record(0, b"x")).unwrap();
    assert_eq!(wakes.next(&mut feed), stf(0, b"x"));
    drop(feed); // Its thread waits for a record.
    await_end(&mut idle);
}

#[test]
fn what_is_read_once_has_an_end() {
    for (rubbish, refused) in [(&b""[..], 0), (b"rubbish", 1)] {
        let (reader, mut writer) = io::pipe().unwrap();
        let (wake, wakes) = wakes();
        let origin = Origin::Once(OwnedFd::from(reader).into());
        let mut feed = Feed::start(origin, 100, IDLE, &memory(), wake).unwrap();
        writer.write_all(&record(5, b"x")).unwrap();
        assert_eq!(wakes.next(&mut feed), stf(5, b"x"));
        writer.write_all(rubbish).unwrap();
        drop(writer);
        assert_eq!(wakes.next(&mut feed), Fed::Ended);
        assert_eq!(
            feed.stats(),
            FeedStats {
                producers: 1,
                stfs: 1,
                refused,
                replaced: 0
            }
        );
    }
}

#[test]
fn an_address_that_is_taken_is_refused() {
    let feed = Feed::tcp("127.0.0.1:0", 100, IDLE, &memory(), Box::new(|| {})).unwrap();
    let address = feed.address().unwrap().to_string();
    let error = Feed::tcp(&address, 100, IDLE, &memory(), Box::new(|| {})).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
