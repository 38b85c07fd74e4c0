use super::*;
use sheaf_protocol::FlpId;
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
                    Event::Accepted { conn, .. } => self.streams.push(conn),
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
            Event::Connected { conn } => self.uplink.handle_connected(now, conn, node),
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
        let envelope = Envelope {
            run: RUN,
            sender: NodeId::ICN,
            incarnation: Incarnation(1),
            term: Term(term),
            sequence: 0,
        };
        let frame = Frame::without_body(WireKind::Control, control.encode(&envelope).into());
        self.icn.send(stream, frame).unwrap();
        self.pass(5 * MS)
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

const PULSE: Control = Control::IcnPulse { elapsed_ns: 1 };

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
