//! Farms with programs that speak ZeroMQ at their ends: pyzmq, and libzmq from C. The codec itself is tested against
//! both in `crates/io/zmtp/tests/peers.rs`, whose producers feed the sources here.
//! The packages that this needs, and what a test does without them: `program`.

use crate::harness::{Ended, Running, farm_turn, free_address, write};
use crate::program::{Kind, Peer, SIZES, program};
use bytes::Bytes;
use serde_json::Value;
use sheaf_formats::tf_file::read_tf_file;
use sheaf_node::config::{
    FarmConfig, SourceConfig, ZmqFraming, ZmqIntake, ZmqMethod, ZmqOutlet, ZmqSink, ZmqSource,
};
use sheaf_node::sink::{Outlet, SinkEvent, SinkHandle};
use sheaf_node::source::{self, Fed, Feed, Input};
use sheaf_protocol::{
    Attempt, EpnId, FlpId, Incarnation, PayloadFormat, RunId, Source, TfId, crc32c,
};
use sheaf_protocol::{Part, Tf};
use sheaf_transport::Arena;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const COUNT: u64 = 40;
/// The programs, below the folder of this crate.
const PRODUCER: &str = "../../io/zmtp/tests/peer/peer";
const CONSUMER: &str = "../../../tests/farm/zmq/take";
const O2_BALANCER: &str = "../../../tests/farm/zmq/o2_balancer";

fn method(we_bind: bool) -> ZmqMethod {
    if we_bind {
        ZmqMethod::Bind
    } else {
        ZmqMethod::Connect
    }
}

const ANY: &str = "tcp://127.0.0.1:*";

/// A source, and a program of `pattern` that produces for it.
fn producer(kind: Kind, pattern: &str, we_bind: bool) -> Option<(Feed, Receiver<()>, Peer)> {
    let command = program(kind, PRODUCER)?;
    let sizes: Vec<String> = SIZES.iter().map(ToString::to_string).collect();
    let (count, sizes) = (COUNT.to_string(), sizes.join(","));
    let mut source = ZmqSource {
        endpoint: ANY.to_owned(),
        method: method(we_bind),
        pattern: if pattern == "pub" {
            ZmqIntake::Sub
        } else {
            ZmqIntake::Pull
        },
        framing: ZmqFraming::TfId,
        ..ZmqSource::default()
    };
    let (waker, rings) = sync_channel(1);
    let open = |source: &ZmqSource| {
        let config = FarmConfig::default();
        let memory = Arena::new(64 << 20, config.transport.arena()).unwrap();
        // A wake that is pending already need not be repeated.
        let wake = Box::new(move || {
            let _ = waker.try_send(());
        });
        let opening = source::Opening {
            flp: FlpId(0),
            flps: config.run.flps,
            stf_bytes_max: config.flp.stf_bytes_max,
            memory: &memory,
            pool: config.transport.lent_arena(),
            wake,
            registry: &Arc::default(),
            lend: &mut |_| {},
            program: None,
        };
        match source::open(&SourceConfig::Zmq(source.clone()), opening).unwrap() {
            Input::Fed(feed) => feed,
            Input::Made(_) => panic!("a producer makes its STFs"),
        }
    };
    let start = |method: &str, endpoint: &str| {
        Peer::start(command, &[pattern, method, endpoint, &count, &sizes])
    };
    if we_bind {
        let feed = open(&source);
        let at = format!("tcp://{}", feed.address().unwrap());
        let mut peer = start("connect", &at);
        peer.line();
        return Some((feed, rings, peer));
    }
    let mut peer = start("bind", ANY);
    source.endpoint = peer.line();
    Some((open(&source), rings, peer))
}

fn check_source(kind: Kind, pattern: &str, we_bind: bool) {
    let Some((mut feed, rings, mut peer)) = producer(kind, pattern, we_bind) else {
        return;
    };
    let start = Instant::now();
    let (mut next, mut has_begun) = (0, false);
    while next < COUNT {
        assert!(start.elapsed() < PATIENCE, "TF {next} does not come");
        // A PUB socket cannot know its subscribers: the test starts it once its first message, which is no STF, has
        // arrived.
        if !has_begun && pattern == "pub" && feed.stats().refused > 0 {
            has_begun = true;
            peer.begin();
        }
        match feed.try_next() {
            Fed::Stf(stf) => {
                let size = SIZES[next as usize % SIZES.len()];
                assert_eq!((stf.tf, stf.payload.len()), (TfId(next), size));
                assert!(
                    stf.payload
                        .iter()
                        .all(|byte| u64::from(*byte) == next % 256)
                );
                next += 1;
            }
            Fed::Nothing => drop(rings.recv_timeout(Duration::from_millis(10))),
            other => panic!("{other:?}"),
        }
    }
    peer.end();
}

fn tf(id: u64, payloads: &[Bytes]) -> Tf<Bytes> {
    let part = |(flp, payload): (u16, &Bytes)| Part {
        source: Source {
            flp: FlpId(flp),
            incarnation: Incarnation(1),
        },
        format: PayloadFormat::Opaque,
        digest: crc32c(payload),
        bytes: payload.len() as u64,
        payload: payload.clone(),
    };
    Tf {
        run: RunId(7),
        tf: TfId(id),
        attempt: Attempt(1),
        is_redelivered: false,
        parts: (0..).zip(payloads).map(part).collect(),
        missing: Vec::new(),
    }
}

/// Passes `tf` to the sink and waits until its consumer has it.
fn deliver(sink: &mut SinkHandle, rings: &Receiver<()>, tf: &Tf<Bytes>) {
    sink.offer(tf.clone()).unwrap();
    loop {
        match sink.poll() {
            Some(SinkEvent::Freed { .. }) => return,
            Some(SinkEvent::Delivered { faults, .. }) => assert!(faults.is_empty()),
            Some(_) => {}
            None => rings.recv_timeout(PATIENCE).expect("the TF is taken"),
        }
    }
}

fn check_sink(kind: Kind, pattern: &str, we_bind: bool) {
    let Some(command) = program(kind, CONSUMER) else {
        return;
    };
    let taken = tempfile::tempdir().unwrap();
    let path = taken.path().to_str().unwrap();
    let config = ZmqSink {
        method: method(we_bind),
        pattern: if pattern == "sub" {
            ZmqOutlet::Pub
        } else {
            ZmqOutlet::Push
        },
        stall_ms: 60_000,
        ..ZmqSink::default()
    };
    let open = |at: &str| Outlet::open(&config, at, EpnId(0), &Arc::default()).unwrap();
    let (outlet, mut peer) = if we_bind {
        let outlet = open(ANY);
        let mut peer = Peer::start(
            command,
            &[pattern, "connect", &outlet.endpoint(), path, "0"],
        );
        peer.line();
        (outlet, peer)
    } else {
        let mut peer = Peer::start(command, &[pattern, "bind", ANY, path, "0"]);
        (open(&peer.line()), peer)
    };
    let (waker, rings) = sync_channel(1);
    let wake = Box::new(move || {
        let _ = waker.try_send(());
    });
    let mut sink = SinkHandle::spawn(Box::new(outlet), 4, wake).unwrap();
    let (begun, has_begun) = sync_channel(1);
    let mut warm_up = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let line = peer.line();
            begun.send(line).unwrap();
        });
        // A subscriber is not notified when its subscription takes effect: TF 0 is sent until it reports one.
        while has_begun.try_recv().is_err() {
            deliver(&mut sink, &rings, &tf(0, &[Bytes::new(), Bytes::new()]));
            warm_up += 1;
        }
    });
    for id in 1..COUNT {
        let size = SIZES[id as usize % SIZES.len()];
        let payload = Bytes::from(vec![id as u8; size]);
        deliver(
            &mut sink,
            &rings,
            &tf(id, &[payload.clone(), Bytes::new(), payload]),
        );
    }
    deliver(&mut sink, &rings, &tf(COUNT, &[]));
    peer.end();
    sink.finish();
    let files = std::fs::read_dir(path).unwrap().count() as u64;
    let first = files - COUNT;
    assert!((1..=warm_up).contains(&first), "{first} of {warm_up}");
    for number in 0..files {
        let bytes = std::fs::read(taken.path().join(number.to_string())).unwrap();
        let found = read_tf_file(&bytes).unwrap();
        let expected = (number + 1).saturating_sub(first);
        assert_eq!((found.tf, found.run), (TfId(expected), RunId(7)));
    }
}

#[test]
fn programs_on_pyzmq_stand_at_both_ends() {
    for we_bind in [true, false] {
        check_source(Kind::Pyzmq, "push", we_bind);
        check_sink(Kind::Pyzmq, "pull", we_bind);
    }
    check_source(Kind::Pyzmq, "pub", true);
    check_sink(Kind::Pyzmq, "sub", true);
}

#[test]
fn programs_on_libzmq_stand_at_both_ends() {
    for we_bind in [true, false] {
        check_source(Kind::Libzmq, "push", we_bind);
        check_sink(Kind::Libzmq, "pull", we_bind);
    }
    check_source(Kind::Libzmq, "pub", false);
    check_sink(Kind::Libzmq, "sub", false);
}

/// A farm of real processes that ends by itself: how its ICN ended.
struct Farm {
    icn: Running,
    others: Vec<Running>,
}

impl Farm {
    /// Starts it with `ends`, the tables of its source and sink.
    fn start(folder: &Path, (flps, epns): (u16, u16), timeframes: u64, ends: &str) -> Self {
        let text = format!(
            "[run]\nflps = {flps}\nepns = {epns}\ntimeframes = {timeframes}\n\
             [icn]\naddress = \"{}\"\n\
             [flp]\nhold_bytes = 67108864\nstf_bytes_max = 4194304\n\
             [epn.build]\ncapacity_bytes = 67108864\n{ends}",
            free_address()
        );
        let file = write(folder, "farm.toml", &text);
        let start = |words: &[&str]| {
            Running::start(&[&["run"][..], words, &["--config", &file][..]].concat())
        };
        let icn = start(&["icn", "--status-ms", "100"]);
        icn.await_line("listening");
        let node =
            |role: &'static str, count: u16| (0..count).map(move |index| (role, index.to_string()));
        let others = node("flp", flps).chain(node("epn", epns));
        let others = others.map(|(role, index)| start(&[role, "--index", &index]));
        let others = others.collect();
        Self { icn, others }
    }

    /// Waits for its end; every TF announced is complete.
    fn end(self, complete: u64) {
        let status = |ended: &Ended| assert!(ended.status.success(), "{}", ended.stderr);
        self.others.into_iter().for_each(|node| status(&node.end()));
        let ended = self.icn.end();
        status(&ended);
        let lines = ended.stdout.iter().rev();
        let mut lines = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let last = lines.find(|line| line["books"].is_object()).unwrap();
        let accounting = &last["books"];
        assert_eq!(
            (
                accounting["announced"].as_u64(),
                accounting["complete"].as_u64()
            ),
            (Some(complete), Some(complete)),
            "{accounting:#}"
        );
    }
}

#[test]
fn a_farm_between_pyzmq_and_libzmq_hands_on_every_tf() {
    let _turn = farm_turn();
    let (Some(python), Some(c)) = (
        program(Kind::Pyzmq, PRODUCER),
        program(Kind::Libzmq, CONSUMER),
    ) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let taken = dir.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    let (path, count) = (taken.to_str().unwrap(), COUNT.to_string());
    let mut consumer = Peer::start(c, &["pull", "bind", ANY, path, &count]);
    let (stfs, tfs) = (free_address(), consumer.line());
    let ends = format!(
        "[flp.source]\nkind = \"zmq\"\nendpoint = \"tcp://{stfs}\"\nframing = \"tf-id\"\n\
         [epn.sink]\nkind = \"zmq\"\nendpoint = \"{tfs}\"\nmethod = \"connect\"\n"
    );
    let farm = Farm::start(dir.path(), (1, 1), COUNT, &ends);
    let at = format!("tcp://{stfs}");
    let words = ["push", "connect", &at, &count, "100000,5,0"];
    let producer = Peer::start(python, &words);
    farm.end(COUNT);
    producer.end();
    consumer.end();
    for number in 0..COUNT {
        let bytes = std::fs::read(taken.join(number.to_string())).unwrap();
        assert_eq!(read_tf_file(&bytes).unwrap().tf, TfId(number));
    }
}

#[test]
fn o2_balancer_stands_at_both_ends_of_a_farm_behind_its_bridge() {
    const HEARTBEATS: u64 = 100;
    let _turn = farm_turn();
    let process = || program(Kind::Pyzmq, O2_BALANCER);
    if process().is_none() {
        return;
    }
    let start = |words: &[&str]| Peer::start(process().expect("it was here"), words);
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("ipc://{}/{name}", dir.path().display());
    let iterations = HEARTBEATS.to_string();
    let words = "run bridge o2 --rate 200 --heartbeats ANY --feedback ANY --data ANY --iterations";
    let mut words: Vec<String> = words
        .split(' ')
        .map(|word| word.replace("ANY", ANY))
        .collect();
    words.extend([iterations.clone(), "--flp".to_owned(), at("flp0")]);
    words.extend(["--flp".to_owned(), at("flp1")]);
    let bridge = Running::start(&words);
    let listening: Value = serde_json::from_str(&bridge.await_line("listening")).unwrap();
    let listening = |name: &str| listening["listening"][name].as_str().unwrap().to_owned();
    let feedback = listening("feedback");
    let epns = ["0", "1"].map(|id| {
        let at = at(&format!("epn{id}"));
        let mut epn = start(&["epn", &feedback, id, "2", &at]);
        assert_eq!(epn.line(), at);
        epn
    });
    let ends = format!(
        "[flp.source]\nkind = \"zmq\"\nendpoint = \"{}\"\nframing = \"o2-balancer\"\n\
         [epn.sink]\nkind = \"zmq\"\nendpoint = \"{}\"\nmethod = \"connect\"\n\
         framing = \"o2-balancer\"\n",
        at("flp{flp}"),
        at("epn{epn}")
    );
    let farm = Farm::start(dir.path(), (2, 2), HEARTBEATS, &ends);
    let heartbeats = listening("heartbeats");
    let flps = [20_000, 0].map(|bytes: u32| {
        let words = ["flp", &heartbeats, &iterations, &bytes.to_string()];
        start(&words)
    });
    farm.end(HEARTBEATS);
    flps.into_iter().for_each(|flp| drop(flp.end()));
    let mut acknowledged = 0;
    for epn in epns {
        let said = epn.end();
        let counts: Vec<u64> = said
            .split(' ')
            .map(|count| count.parse().unwrap())
            .collect();
        // Sets whole, sets of different heartbeats, and messages in a set that did not end.
        assert_eq!(counts[1..], [0, 0], "{said}");
        acknowledged += counts[0];
    }
    assert_eq!(acknowledged, HEARTBEATS);
    let report = bridge.await_line("done");
    let report: Value = serde_json::from_str(&report).unwrap();
    let report = &report["done"];
    assert_eq!(report["heartbeats"], HEARTBEATS, "{report:#}");
    assert_eq!(report["stfs"], serde_json::json!([HEARTBEATS, HEARTBEATS]));
    assert_eq!(
        (&report["refused"], &report["registrations"]),
        (&0.into(), &2.into())
    );
    let all = report["acknowledgements"].as_object().unwrap().values();
    assert_eq!(
        all.map(|count| count.as_u64().unwrap()).sum::<u64>(),
        HEARTBEATS
    );
    assert!(bridge.end().status.success());
}
