//! Data streams: their addresses, and EPNs that send nothing.

use super::*;
use sheaf_protocol::control::{EpnAddress, Hello};
use sheaf_protocol::{Envelope, EpnId, FlpId, Incarnation, PayloadFormat};
use sheaf_stf_builder::flp::FlpConfig;
use sheaf_stf_builder::{HeapSlots, StfSource};
use sheaf_transport::Event as Net;
use sheaf_transport::memory::{Faults, Memory, Network};

const RUN: RunId = RunId(7);

/// A source that has nothing.
struct Empty;

impl StfSource for Empty {
    fn format(&self) -> PayloadFormat {
        PayloadFormat::Opaque
    }

    fn bytes_max(&self) -> u64 {
        0
    }

    fn make(&mut self, _: TfId, _: &mut dyn Slots) -> Made {
        Made::End
    }
}

/// An FLP in a run, and an EPN that is played by the test.
struct Scene {
    network: Network,
    node: FlpNode<Memory>,
    epn: Memory,
    /// Whether the EPN sends a challenge on streams that it accepts.
    has_challenge: bool,
    accepted: usize,
    closed: usize,
    hellos: usize,
}

impl Scene {
    fn new() -> Self {
        let network = Network::new(1, Faults::default());
        let mut epn = network.endpoint("epn");
        epn.listen("epn:1").expect("the address is free");
        let source = Source {
            flp: FlpId(0),
            incarnation: Incarnation(1),
        };
        let id = source.flp.into();
        let parts = FlpParts {
            source,
            brain: Flp::new(FlpConfig::default(), source, 1),
            input: Input::Made(Box::new(Empty)),
            slots: Box::new(HeapSlots),
            uplink: Uplink::new(Vec::new(), id, source.incarnation, Hello::default()),
            log: EventLog::none(),
        };
        let mut node = FlpNode::new(network.endpoint("flp"), parts);
        let target = Target {
            epn: EpnId(0),
            incarnation: Incarnation(1),
        };
        let address = "epn:1".to_owned();
        node.brain.handle_joined(Timestamp(0), RUN, true);
        let epns = Control::Epns(vec![EpnAddress { target, address }]);
        node.brain.handle_control(Timestamp(0), epns);
        Self {
            network,
            node,
            epn,
            has_challenge: false,
            accepted: 0,
            closed: 0,
            hellos: 0,
        }
    }

    /// Time passes in steps of a tick. Gives how many streams the EPN has accepted, and how many it saw closed.
    fn pass(&mut self, until_ms: u64) -> (usize, usize) {
        let mut events = Vec::new();
        while self.network.now() < Timestamp(until_ms * 1_000_000) {
            let now = self.network.now() + TICK;
            self.network.advance_to(now);
            let polled = self.node.transport().poll(&mut events, None);
            polled.expect("memory does not fail");
            for event in events.drain(..) {
                self.node.handle(now, event);
            }
            self.node.turn(now).expect("no ICN refuses it");
            self.epn
                .poll(&mut events, None)
                .expect("memory does not fail");
            for event in events.drain(..) {
                match event {
                    Net::Accepted { conn, .. } => {
                        self.accepted += 1;
                        if self.has_challenge {
                            self.epn.send(conn, challenge()).unwrap();
                        }
                    }
                    Net::Closed { .. } => self.closed += 1,
                    Net::Received { frame, .. } => {
                        self.hellos += usize::from(frame.kind == WireKind::DataHello);
                    }
                    _ => {}
                }
            }
        }
        (self.accepted, self.closed)
    }
}

fn challenge() -> Frame {
    let envelope = Envelope {
        minor: 0,
        run: RUN,
        sender: EpnId(0).into(),
        incarnation: Incarnation(1),
        term: Term(0),
        sequence: 0,
    };
    let challenge = Control::Challenge { nonce: 5 };
    Frame::without_body(WireKind::Control, challenge.encode(&envelope).into())
}

#[test]
fn a_data_stream_on_which_no_challenge_comes_is_closed_and_opened_again() {
    let mut scene = Scene::new();
    assert_eq!(scene.pass(1000), (1, 0), "a challenge may take a second");
    assert_eq!(scene.pass(1400), (2, 1), "another stream takes its place");
    scene.has_challenge = true;
    assert_eq!(
        scene.pass(5000),
        (3, 2),
        "the third one has a challenge and stays"
    );
    assert_eq!(scene.hellos, 1);
}

#[test]
fn pairs_share_out_the_cards_and_every_card_is_tried() {
    let card = |flp, epn, tried| {
        let incarnation = Incarnation(1);
        let source = Source {
            flp: FlpId(flp),
            incarnation,
        };
        let target = Target {
            epn: EpnId(epn),
            incarnation,
        };
        card_for("a:1,b:1,c:1", source, target, tried)
    };
    let of_one_flp: Vec<&str> = (0..6).map(|epn| card(2, epn, 0)).collect();
    assert_eq!(of_one_flp, ["c:1", "a:1", "b:1", "c:1", "a:1", "b:1"]);
    let of_one_epn: Vec<&str> = (0..3).map(|flp| card(flp, 1, 0)).collect();
    assert_eq!(of_one_epn, ["b:1", "c:1", "a:1"]);
    let tried: Vec<&str> = (0..3).map(|tried| card(0, 0, tried)).collect();
    assert_eq!(tried, ["a:1", "b:1", "c:1"]);
}
