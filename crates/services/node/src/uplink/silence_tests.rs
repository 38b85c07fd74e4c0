use super::*;
use sheaf_protocol::FlpId;
use sheaf_protocol::control::{Commit, Recover, Release};
use sheaf_transport::Event;
use sheaf_transport::memory::{Faults, Memory, Network};

const MS: Duration = Duration::from_millis(1);
const RUN: RunId = RunId(7);

/// An FLP's uplink and an ICN that is played by the test.
struct Scene {
    network: Network,
    node: Memory,
    icn: Memory,
    uplink: Uplink,
    /// Streams that the ICN has accepted and that are open, the oldest first.
    streams: Vec<ConnId>,
    /// Messages that the ICN has received since the last call.
    heard: Vec<Control>,
    now: Timestamp,
}

impl Scene {
    /// A node that has joined in term 3.
    fn joined() -> Self {
        let network = Network::new(1, Faults::default());
        let (node, mut icn) = (network.endpoint("node"), network.endpoint("icn"));
        icn.listen("icn:1").unwrap();
        let hello = Hello {
            data_address: String::new(),
            capacity_bytes: 0,
            slots: 0,
            stf_bytes_max: 1,
            weight_milli: 1000,
            is_durable: false,
            ..Hello::default()
        };
        let addresses = vec!["icn:1".to_owned()];
        let mut scene = Self {
            network,
            node,
            icn,
            uplink: Uplink::new(addresses, FlpId(0).into(), Incarnation(5), hello),
            streams: Vec::new(),
            heard: Vec::new(),
            now: Timestamp(0),
        };
        scene.pass(5 * MS);
        let stream = scene.streams[0];
        assert!(scene.says(stream, 3, &welcome()).contains(&joined()));
        assert!(scene.uplink.is_joined());
        scene.heard.clear();
        scene
    }

    /// Time passes in steps of a tick; both ends take in what comes.
    fn pass(&mut self, time: Duration) -> Vec<Joined> {
        let (until, mut events, mut all) = (self.now + time, Vec::new(), Vec::new());
        while self.now < until {
            self.now = self.now + 5 * MS;
            self.network.advance_to(self.now);
            self.uplink.handle_tick(self.now, &mut self.node);
            self.icn.poll(&mut events, None).unwrap();
            for event in std::mem::take(&mut events) {
                match event {
                    Event::Accepted { conn, .. } => {
                        self.streams.push(conn);
                        let challenge = super::tests::challenge(conn);
                        self.icn.send(conn, challenge).unwrap();
                    }
                    Event::Closed { conn, .. } => self.streams.retain(|stream| *stream != conn),
                    Event::Received { frame, .. } => {
                        self.heard.push(Control::decode(&frame.head).unwrap().1);
                    }
                    _ => {}
                }
            }
            self.node.poll(&mut events, None).unwrap();
            for event in std::mem::take(&mut events) {
                all.extend(self.take_in(event));
            }
        }
        all
    }

    fn take_in(&mut self, event: Event) -> Option<Joined> {
        let (now, node) = (self.now, &mut self.node);
        match event {
            Event::Closed { conn, reason } => self.uplink.handle_closed(now, conn, &reason),
            Event::Received { conn, frame, .. } => {
                let heard = self.uplink.handle_frame(now, conn, &frame, node);
                return matches!(heard, Heard::Joined { .. }).then(joined);
            }
            _ => {}
        }
        None
    }

    /// The ICN says `control` on one of its streams, as of `term`.
    fn says(&mut self, stream: ConnId, term: u64, control: &Control) -> Vec<Joined> {
        self.says_in(RUN, stream, term, control)
    }

    /// As [`says`](Self::says), in another run.
    fn says_in(&mut self, run: RunId, stream: ConnId, term: u64, control: &Control) -> Vec<Joined> {
        let envelope = Envelope {
            minor: 0,
            run,
            sender: NodeId::ICN,
            incarnation: Incarnation(1),
            term: Term(term),
            sequence: 0,
        };
        let frame = Frame::without_body(WireKind::Control, control.encode(&envelope).into());
        self.icn.send(stream, frame).unwrap();
        self.pass(5 * MS)
    }

    /// Returns the decided TFs and the end of the committed ones of the next hello. A silent ICN gets one.
    fn next_hello(&mut self) -> (u64, u64) {
        self.heard.clear();
        self.pass(110 * MS);
        let hello = self.heard.iter().find_map(|control| match control {
            Control::Hello(hello) => Some((hello.decided_tfs, hello.committed_end.0)),
            _ => None,
        });
        hello.expect("a silent ICN gets a second stream")
    }

    fn hellos(&self) -> usize {
        let is_hello = |control: &&Control| matches!(control, Control::Hello(_));
        self.heard.iter().filter(is_hello).count()
    }
}

/// The node has joined, or joined again.
#[derive(Debug, PartialEq)]
struct Joined;

fn joined() -> Joined {
    Joined
}

fn welcome() -> Control {
    Control::Welcome(Welcome {
        pulse_ns: 20_000_000,
        stf_bytes_max: 1,
    })
}

const PULSE: Control = Control::IcnPulse {
    elapsed_ns: 1,
    run_delay_ns: 0,
};

#[test]
fn a_leader_that_is_heard_keeps_its_stream() {
    let mut scene = Scene::joined();
    let stream = scene.streams[0];
    for _ in 0..20 {
        scene.says(stream, 3, &PULSE);
        scene.pass(75 * MS);
    }
    assert_eq!((scene.streams, scene.heard), (vec![stream], vec![]));
}

#[test]
fn a_silent_stream_is_replaced_by_a_second_one_as_soon_as_the_leader_answers_there() {
    let mut scene = Scene::joined();
    let former = scene.streams[0];
    scene.pass(95 * MS);
    assert_eq!(scene.streams, [former], "five pulses may be late");
    scene.pass(15 * MS);
    assert_eq!((scene.streams.len(), scene.hellos()), (2, 1));
    assert!(scene.uplink.is_joined(), "the former one still counts");
    let second = scene.streams[1];
    assert_eq!(scene.says(second, 3, &welcome()), [Joined]);
    scene.pass(5 * MS);
    assert_eq!(
        scene.streams,
        [second],
        "the node has closed the former one"
    );
    assert!(scene.uplink.is_joined());
}

#[test]
fn a_leader_that_only_hung_takes_the_second_stream_and_the_node_is_never_without_one() {
    let mut scene = Scene::joined();
    scene.pass(150 * MS);
    let [former, second] = scene.streams[..] else {
        panic!("{:?}", scene.streams);
    };
    // It goes on, says first what it was about to say, and finds the hello then.
    scene.says(former, 3, &PULSE);
    assert_eq!(scene.streams, [former, second]);
    assert!(scene.uplink.is_joined());
    scene.icn.close(former);
    assert_eq!(scene.says(second, 3, &welcome()), [Joined]);
    assert_eq!(
        (scene.streams.clone(), scene.uplink.is_joined()),
        (vec![second], true)
    );
    assert_eq!(scene.hellos(), 1);
}

#[test]
fn a_second_stream_that_nobody_answers_is_given_up_and_tried_again() {
    let mut scene = Scene::joined();
    scene.network.cut("node", "icn");
    scene.pass(150 * MS);
    assert_eq!(scene.streams.len(), 1);
    scene.network.heal("node", "icn");
    scene.pass(1200 * MS);
    let second = *scene.streams.last().unwrap();
    assert_eq!(scene.says(second, 3, &welcome()), [Joined]);
    scene.pass(5 * MS);
    assert_eq!(scene.streams, [second]);
}

#[test]
fn a_former_leader_is_told_so_each_time_and_changes_nothing() {
    let mut scene = Scene::joined();
    let stream = scene.streams[0];
    for count in 1..4 {
        assert_eq!(scene.says(stream, 2, &welcome()), []);
        scene.pass(5 * MS);
        assert_eq!(
            (scene.uplink.fenced(), scene.uplink.term()),
            (count, Term(3))
        );
    }
    assert_eq!(
        scene.heard,
        [Control::Fenced, Control::Fenced, Control::Fenced]
    );
    assert!(
        scene.uplink.streams[0].is_fenced_said,
        "the log says so once"
    );
}

fn commits(tfs: &[u64]) -> Control {
    let commit = |tf: &u64| Commit {
        tf: TfId(*tf),
        is_redelivered: false,
        missing: Vec::new(),
    };
    Control::Commit(tfs.iter().map(commit).collect())
}

fn recovers(tf: u64) -> Control {
    Control::Recover(vec![Recover {
        tf: TfId(tf),
        incarnation: Incarnation(4),
        missing: Vec::new(),
        parts: Vec::new(),
    }])
}

#[test]
fn hellos_tell_the_verdicts_that_the_node_knows_of() {
    let mut scene = Scene::joined();
    assert_eq!(scene.next_hello(), (0, 0), "nothing is known");

    // Verdicts come in any order, and some of them again.
    let release = |floor: u64, ranges: &[(u64, u64)]| {
        let ranges = ranges.iter().map(|(first, end)| (TfId(*first), TfId(*end)));
        Control::Release(Release {
            version: 1,
            floor: TfId(floor),
            ranges: ranges.collect(),
        })
    };
    let cases = [
        (commits(&[3, 8, 5]), (0, 9)),
        (commits(&[6]), (0, 9)),
        (recovers(11), (0, 12)),
        (release(4, &[(6, 9)]), (7, 12)),
        (release(3, &[]), (7, 12)),
    ];
    for (control, expected) in cases {
        let stream = *scene.streams.last().unwrap();
        scene.says(stream, 3, &welcome());
        scene.says(stream, 3, &control);
        assert_eq!(scene.next_hello(), expected, "{control:?}");
    }
}

#[test]
fn what_a_former_leader_or_another_run_decides_is_no_verdict_of_the_run() {
    let mut scene = Scene::joined();
    let stream = scene.streams[0];
    scene.says(stream, 2, &commits(&[20]));
    scene.says_in(RunId(8), stream, 3, &commits(&[30]));
    scene.says(stream, 3, &commits(&[4]));
    assert_eq!(scene.next_hello(), (0, 5));
    // A new run has its own TFs.
    let stream = *scene.streams.last().unwrap();
    assert_eq!(scene.says_in(RunId(8), stream, 4, &welcome()), [Joined]);
    assert_eq!(scene.next_hello(), (0, 0));
}

#[test]
fn a_leader_that_waits_for_a_processor_may_be_silent_for_longer() {
    let mut scene = Scene::joined();
    let stream = scene.streams[0];
    let pulse = Control::IcnPulse {
        elapsed_ns: 1,
        run_delay_ns: 300_000_000,
    };
    scene.says(stream, 3, &pulse);
    let delay = scene.uplink.leader_run_delay();
    assert_eq!(delay, 300 * MS);
    scene.uplink.set_patience(delay);
    scene.pass(380 * MS);
    assert_eq!(scene.streams.len(), 1);
    scene.pass(40 * MS);
    assert_eq!(scene.streams.len(), 2, "100 ms and 300 ms are over");
}
