//! Certificates against claims: a node speaks for itself alone, and says only what its role may say.

use bytes::Bytes;
use sheaf_auth::{Authority, Credentials, Moment, Tls, Validity};
use sheaf_membership::LivenessConfig;
use sheaf_metrics::Registry;
use sheaf_node::challenge::Nonces;
use sheaf_node::config::PayloadDigest;
use sheaf_node::epn::{EpnNode, EpnParts};
use sheaf_node::event::EventLog;
use sheaf_node::icn::{IcnNode, IcnParts};
use sheaf_node::sink::{Discard, SinkHandle};
use sheaf_node::uplink::Uplink;
use sheaf_protocol::control::{Assign, Hello};
use sheaf_protocol::reject::Code;
use sheaf_protocol::{
    Attempt, Control, DataHello, Envelope, EpnId, FlpId, Incarnation, NodeId, PayloadFormat,
    RosterId, RunId, Source, StfHeader, StfKey, Target, Term, TfId, Timestamp, WireKind, crc32c,
};
use sheaf_scheduler::{RunPlan, SchedulerConfig};
use sheaf_tf_builder::{BuildConfig, TfBuilder};
use sheaf_transport::{
    Arena, ArenaOptions, Bulk, ConnId, Event, Frame, Security, Tcp, TcpConfig, Transport,
};
use sheaf_verdict_log::memory::MemoryLedger;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long anything may take before it counts as never happening.
const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Option<Duration> = Some(Duration::from_millis(1));
const LIFE: Incarnation = Incarnation(7);

/// Memory that may be lent if it is `shared`.
fn arena(shared: bool) -> Arc<Arena> {
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
        shared,
    };
    Arena::new(16 << 20, options).unwrap()
}

/// A transport with a certificate for `node`.
fn tcp(authority: &Authority, node: NodeId) -> Tcp {
    let arena = arena(false);
    let pem = authority.issue(node, Validity::of_days(1)).unwrap();
    let credentials = Credentials::from_pem(&pem, authority.certificate_pem(), Moment::now());
    let security = Security::Tls {
        tls: Tls::new(&credentials.unwrap()).unwrap(),
        bulk: Bulk::Encrypted,
    };
    Tcp::with_security(TcpConfig::default(), arena, security).unwrap()
}

fn authority() -> Authority {
    Authority::new("north", Validity::of_days(2)).unwrap()
}

fn hello() -> Hello {
    Hello {
        data_address: "127.0.0.1:1".to_owned(),
        capacity_bytes: 1 << 20,
        slots: 4,
        stf_bytes_max: 1 << 10,
        weight_milli: 1000,
        is_durable: false,
        ..Hello::default()
    }
}

/// A peer that sends what a test makes it send.
struct Peer {
    tcp: Tcp,
    conn: ConnId,
    heard: Vec<Control>,
    is_closed: bool,
}

impl Peer {
    fn new(mut tcp: Tcp, address: &str) -> Self {
        let conn = tcp.connect(address).unwrap();
        Self {
            tcp,
            conn,
            heard: Vec::new(),
            is_closed: false,
        }
    }

    fn send(&mut self, sender: NodeId, control: &Control) {
        let envelope = Envelope {
            minor: 0,
            run: RunId(0),
            sender,
            incarnation: LIFE,
            term: Term(0),
            sequence: 1,
        };
        let head = control.encode(&envelope).into();
        let frame = Frame::without_body(WireKind::Control, head);
        self.tcp.send(self.conn, frame).unwrap();
    }

    fn poll(&mut self) {
        let mut events = Vec::new();
        self.tcp.poll(&mut events, TICK).unwrap();
        for event in events {
            match event {
                Event::Received { frame, .. } => {
                    self.heard.push(Control::decode(&frame.head).unwrap().1);
                }
                Event::Closed { .. } => self.is_closed = true,
                _ => {}
            }
        }
    }

    fn is_rejected(&self, with: &str) -> bool {
        let says = |control: &Control| match control {
            Control::Rejected { code, detail } => {
                *code == Code::RoleDenied && detail.contains(with)
            }
            _ => false,
        };
        self.is_closed && self.heard.iter().any(says)
    }
}

/// An ICN and the address where it listens.
struct Scene {
    authority: Authority,
    icn: IcnNode<Tcp>,
    address: String,
    begun: Instant,
}

impl Scene {
    fn new() -> Self {
        let authority = authority();
        let mut transport = tcp(&authority, NodeId::ICN);
        let (_, address) = transport.listen("127.0.0.1:0").unwrap();
        let parts = IcnParts {
            icn: 0,
            peers: Vec::new(),
            ledger: Box::new(MemoryLedger::new()),
            scheduler: SchedulerConfig::default(),
            plan: RunPlan {
                flps: 9,
                epns: 9,
                timeframes: None,
                ..RunPlan::default()
            },
            new_run: RunId(5),
            liveness: LivenessConfig::default(),
            stf_bytes_max: 1 << 20,
            duration: None,
            checkpoint_records: 5000,
            incarnation: LIFE,
            nonces: Nonces::seeded(1),
            log: EventLog::none(),
            registry: Arc::new(Registry::default()),
        };
        Self {
            authority,
            icn: IcnNode::new(transport, parts).unwrap(),
            address,
            begun: Instant::now(),
        }
    }

    fn peer(&self, node: NodeId) -> Peer {
        Peer::new(tcp(&self.authority, node), &self.address)
    }

    /// Has `peer` say hello as `sender`, when the challenge is there.
    fn greet(&mut self, peer: &mut Peer, sender: NodeId, hello: Hello) {
        self.until(&mut [&mut *peer], "the challenge", |peers| {
            nonce_of(peers[0]).is_some()
        });
        let nonce = nonce_of(peer).unwrap();
        peer.send(sender, &Control::Hello(Hello { nonce, ..hello }));
    }

    /// Lets ICN and peers work until `done`.
    fn until(&mut self, peers: &mut [&mut Peer], what: &str, done: impl Fn(&[&mut Peer]) -> bool) {
        let mut events = Vec::new();
        while !done(peers) {
            let elapsed = self.begun.elapsed();
            assert!(elapsed < PATIENCE, "{what} has not happened");
            let now = Timestamp(u64::try_from(elapsed.as_nanos()).unwrap());
            self.icn.turn(now).unwrap();
            self.icn.transport().poll(&mut events, TICK).unwrap();
            for event in events.drain(..) {
                self.icn.handle(now, event);
            }
            peers.iter_mut().for_each(|peer| peer.poll());
        }
    }
}

fn nonce_of(peer: &Peer) -> Option<u64> {
    peer.heard.iter().find_map(|control| match control {
        Control::Challenge { nonce } => Some(*nonce),
        _ => None,
    })
}

fn is_welcome(peer: &Peer) -> bool {
    let welcome = |control: &Control| matches!(control, Control::Welcome(_));
    peer.heard.iter().any(welcome)
}

#[test]
fn flp_3_that_says_it_is_flp_5_is_denied_and_the_real_one_stays() {
    let mut scene = Scene::new();
    let (three, five) = (NodeId::from(FlpId(3)), NodeId::from(FlpId(5)));
    let mut real = scene.peer(five);
    scene.greet(&mut real, five, hello());
    scene.until(&mut [&mut real], "the welcome of the real one", |peers| {
        is_welcome(peers[0])
    });
    let mut liar = scene.peer(three);
    scene.greet(&mut liar, five, hello());
    scene.until(&mut [&mut liar], "the rejection", |peers| {
        peers[0].is_rejected("found the certificate of sheaf://north/flp/3, expected that of flp:5")
    });
    assert!(!is_welcome(&liar));
    assert_eq!(scene.icn.rejected(Code::RoleDenied), 1);
    real.poll();
    assert!(!real.is_closed);
    // With its own name it may come in.
    let mut honest = scene.peer(three);
    scene.greet(&mut honest, three, hello());
    scene.until(&mut [&mut honest], "the welcome", |peers| {
        is_welcome(peers[0])
    });
}

#[test]
fn a_node_that_has_joined_may_not_speak_for_another_later() {
    let mut scene = Scene::new();
    let (three, five) = (NodeId::from(FlpId(3)), NodeId::from(FlpId(5)));
    let mut liar = scene.peer(three);
    scene.greet(&mut liar, three, hello());
    scene.until(&mut [&mut liar], "the welcome", |peers| {
        is_welcome(peers[0])
    });
    liar.send(five, &Control::Leaving);
    scene.until(&mut [&mut liar], "the rejection", |peers| {
        peers[0].is_rejected("flp:3 speaks for flp:5")
    });
    assert_eq!(scene.icn.rejected(Code::RoleDenied), 1);
}

#[test]
fn an_epn_that_assigns_is_denied() {
    let mut scene = Scene::new();
    let epn = NodeId::from(EpnId(1));
    let assign = Control::Assign(vec![Assign {
        tf: TfId(1),
        attempt: Attempt(1),
        target: Target {
            epn: EpnId(1),
            incarnation: LIFE,
        },
        roster: RosterId(1),
    }]);
    for (control, name) in [
        (assign, "assign is not for epn:1 to say"),
        (
            Control::Announce(Vec::new()),
            "announce is not for epn:1 to say",
        ),
        (
            Control::Ledger(Bytes::new()),
            "ledger is not for epn:1 to say",
        ),
    ] {
        let mut rogue = scene.peer(epn);
        scene.greet(&mut rogue, epn, hello());
        scene.until(&mut [&mut rogue], "the welcome", |peers| {
            is_welcome(peers[0])
        });
        rogue.send(epn, &control);
        scene.until(&mut [&mut rogue], "the rejection", |peers| {
            peers[0].is_rejected(name)
        });
    }
    assert_eq!(scene.icn.rejected(Code::RoleDenied), 3);
}

/// An EPN that follows the ICN at `icn`, and where it takes STFs.
fn epn(authority: &Authority, icn: &str) -> (EpnNode<Tcp>, String) {
    epn_in(None, PayloadDigest::default(), authority, icn)
}

/// An EPN that has joined `run`, and computes `digest`.
fn epn_in(
    run: Option<RunId>,
    digest: PayloadDigest,
    authority: &Authority,
    icn: &str,
) -> (EpnNode<Tcp>, String) {
    let target = Target {
        epn: EpnId(0),
        incarnation: LIFE,
    };
    let mut brain = TfBuilder::<Bytes>::new(BuildConfig::default());
    if let Some(run) = run {
        brain.handle_joined(Timestamp(0), run, true);
    }
    let mut transport = tcp(authority, target.epn.into());
    let (_, address) = transport.listen_bulk("127.0.0.1:0").unwrap();
    let parts = EpnParts {
        acks_processed: false,
        digest,
        target,
        brain,
        sink: SinkHandle::inline(Box::new(Discard), 64),
        uplink: Uplink::new(vec![icn.to_owned()], target.epn.into(), LIFE, hello()),
        nonces: Nonces::seeded(2),
        log: EventLog::none(),
    };
    (EpnNode::new(transport, parts), address)
}

/// Lets `epn` and `other` work until `done`.
fn drive(
    epn: &mut EpnNode<Tcp>,
    other: &mut Tcp,
    what: &str,
    mut done: impl FnMut(&EpnNode<Tcp>, &[Event]) -> bool,
) {
    let begun = Instant::now();
    let (mut events, mut at_other) = (Vec::new(), Vec::new());
    while !done(epn, &at_other) {
        assert!(begun.elapsed() < PATIENCE, "{what} has not happened");
        let now = Timestamp(u64::try_from(begun.elapsed().as_nanos()).unwrap());
        epn.turn(now).unwrap();
        epn.transport().poll(&mut events, TICK).unwrap();
        for event in events.drain(..) {
            epn.handle(now, event);
        }
        other.poll(&mut at_other, TICK).unwrap();
    }
}

fn challenge_in(event: &Event) -> Option<u64> {
    let Event::Received { frame, .. } = event else {
        return None;
    };
    match Control::decode(&frame.head).ok()?.1 {
        Control::Challenge { nonce } => Some(nonce),
        _ => None,
    }
}

/// Opens a data stream from `other` to `epn`, and says that it is one of `flp` in run 5.
fn greet_as(flp: FlpId, epn: &mut EpnNode<Tcp>, address: &str, other: &mut Tcp) -> ConnId {
    let conn = other.connect_bulk(address).unwrap();
    let mut nonce = None;
    drive(epn, other, "the challenge", |_, events| {
        nonce = events.iter().find_map(challenge_in).or(nonce);
        nonce.is_some()
    });
    let hello = DataHello {
        run: RunId(5),
        source: Source {
            flp,
            incarnation: LIFE,
        },
        target: Target {
            epn: EpnId(0),
            incarnation: LIFE,
        },
        nonce: nonce.unwrap(),
    };
    let frame = Frame::without_body(WireKind::DataHello, hello.encode().into());
    other.send(conn, frame).unwrap();
    conn
}

#[test]
fn an_epn_compares_lent_payloads_with_their_digest_unless_that_is_turned_off() {
    let authority = authority();
    for (digest, is_refused) in [
        (PayloadDigest::Crc32c, true),
        (PayloadDigest::NoneOnLane, false),
    ] {
        let run = Some(RunId(5));
        let (mut epn, address) = epn_in(run, digest, &authority, "127.0.0.1:1");
        let mut three = tcp(&authority, FlpId(3).into());
        let lent = arena(true);
        three.lend(&lent, 1 << 20);
        let conn = greet_as(FlpId(3), &mut epn, &address, &mut three);
        let begun = Instant::now();
        while three.stats().lanes == 0 {
            assert!(begun.elapsed() < PATIENCE, "there is no lane");
            let mut turns = 0;
            drive(&mut epn, &mut three, "a turn", |_, _| {
                turns += 1;
                turns > 1
            });
        }
        let body = lent.allocate(5000).unwrap().freeze();
        let header = StfHeader {
            key: StfKey {
                run: RunId(5),
                tf: TfId(9),
                source: Source {
                    flp: FlpId(3),
                    incarnation: LIFE,
                },
            },
            attempt: Attempt(1),
            format: PayloadFormat::Opaque,
            digest: !crc32c(&body),
            payload_bytes: 5000,
        };
        let head = Bytes::copy_from_slice(&header.encode());
        let kind = WireKind::Stf;
        three.send(conn, Frame { kind, head, body }).unwrap();
        drive(&mut epn, &mut three, "an answer", |epn, _| {
            epn.rejected(Code::BadDigest) > 0 || epn.brain().stats().accepted_stfs > 0
        });
        assert_eq!(three.stats().lent_frames_out, 1, "{digest}");
        assert_eq!(epn.rejected(Code::BadDigest) > 0, is_refused, "{digest}");
    }
}

#[test]
fn an_epn_takes_no_stfs_of_flp_5_from_flp_3() {
    let authority = authority();
    // No process listens at port 1: this EPN has no ICN, and needs none here.
    let (mut epn, address) = epn(&authority, "127.0.0.1:1");
    let mut three = tcp(&authority, FlpId(3).into());
    for (claim, is_denied) in [(5, true), (3, false)] {
        greet_as(FlpId(claim), &mut epn, &address, &mut three);
        let (mut is_closed, mut rounds) = (false, 0);
        drive(
            &mut epn,
            &mut three,
            "the end of the stream",
            |_, events| {
                let closed = |event: &Event| matches!(event, Event::Closed { .. });
                is_closed |= events.iter().any(closed);
                rounds += 1;
                is_closed || (!is_denied && rounds > 200)
            },
        );
        assert_eq!(is_closed, is_denied, "{claim}");
    }
    assert_eq!(epn.rejected(Code::RoleDenied), 1);
}

#[test]
fn who_answers_as_icn_and_is_none_hears_no_more_than_that() {
    let authority = authority();
    let mut impostor = tcp(&authority, EpnId(9).into());
    let (_, address) = impostor.listen("127.0.0.1:0").unwrap();
    let (mut epn, _) = epn(&authority, &address);
    drive(&mut epn, &mut impostor, "the denial", |epn, events| {
        for event in events {
            if let Event::Received { frame, .. } = event {
                let (_, control) = Control::decode(&frame.head).unwrap();
                assert!(matches!(control, Control::Rejected { .. }), "{control:?}");
            }
        }
        epn.rejected(Code::RoleDenied) >= 2
    });
}
