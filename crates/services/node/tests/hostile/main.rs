//! Hostile peers against a running farm: every input that is rejected has a code, which the peer gets, a counter
//! has, and no other peer notices.

mod documents;
mod replays;

use sheaf_auth::{Authority, Validity};
use sheaf_node::config::FarmConfig;
use sheaf_node::role::{RoleOptions, run_epn, run_flp, run_icn};
use sheaf_node::shutdown::Shutdown;
use sheaf_node::status::FarmStatus;
use sheaf_protocol::control::{Announced, EpnPulse, Hello, Offered};
use sheaf_protocol::reject::Code;
use sheaf_protocol::{
    Attempt, Control, DataHello, Envelope, EpnId, FlpId, Incarnation, Limits, NodeId,
    PayloadFormat, Prefix, Role, RunId, Source, StfHeader, StfKey, Target, Term, TfId, WireKind,
    crc32c,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown as End, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// One node in a thread.
struct Node {
    address: String,
    metrics: String,
    events: PathBuf,
    shutdown: Shutdown,
    statuses: Receiver<FarmStatus>,
    thread: JoinHandle<()>,
}

fn start(role: Role, config: &FarmConfig, folder: &Path) -> Node {
    let (listening, address) = sync_channel(1);
    let (says, statuses) = sync_channel(10_000);
    let shutdown = Shutdown::new();
    let metrics = free_address();
    let events = folder.join(format!("{role}.jsonl"));
    let served = (metrics.clone(), events.clone());
    let (config, stop) = (config.clone(), shutdown.clone());
    let thread = std::thread::spawn(move || {
        let options = RoleOptions {
            metrics: Some(served.0),
            events: Some(served.1),
            on_listening: Some(Box::new(move |address: &str| {
                listening.send(address.to_owned()).unwrap();
            })),
            on_status: Some((
                Duration::from_millis(50),
                Box::new(move |status: &FarmStatus| {
                    let _ = says.try_send(status.clone()); // Only the last one counts, and it is read often.
                }),
            )),
            ..RoleOptions::default()
        };
        let ended = match role {
            Role::Icn => run_icn(&config, 0, options, &stop).map(drop),
            Role::Flp => run_flp(&config, FlpId(0), options, &stop),
            _ => run_epn(&config, EpnId(0), options, &stop),
        };
        ended.unwrap();
    });
    let address = match role {
        Role::Flp => String::new(),
        _ => address.recv_timeout(PATIENCE).expect("it listens"),
    };
    Node {
        address,
        metrics,
        events,
        shutdown,
        statuses,
        thread,
    }
}

impl Node {
    /// The totals of rejections by code, over all peers.
    fn rejected(&self) -> BTreeMap<String, u64> {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let mut totals = BTreeMap::new();
        for line in text
            .lines()
            .filter(|line| line.starts_with("node_rejected_total{"))
        {
            let code = line
                .split("code=\"")
                .nth(1)
                .unwrap()
                .split('"')
                .next()
                .unwrap();
            let total: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            *totals.entry(code.to_owned()).or_default() += total;
        }
        totals
    }

    fn await_count(&self, code: Code, least: u64) {
        let start = Instant::now();
        while self.rejected().get(code.name()).copied().unwrap_or(0) < least {
            assert!(
                start.elapsed() < PATIENCE,
                "{code} is not counted: {:?}",
                self.rejected()
            );
            std::thread::yield_now();
        }
    }

    /// A number behind `key` in its event log.
    fn logged(&self, key: &str) -> String {
        let start = Instant::now();
        loop {
            let text = std::fs::read_to_string(&self.events).unwrap_or_default();
            if let Some(rest) = text.split(&format!("\"{key}\":")).nth(1) {
                return rest
                    .split([',', '}'])
                    .next()
                    .unwrap()
                    .trim_matches('"')
                    .to_owned();
            }
            assert!(start.elapsed() < PATIENCE, "{key} is not in {text}");
            std::thread::yield_now();
        }
    }
}

fn frame(kind: WireKind, head: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = Prefix::new(kind, head, body.len() as u64).encode().to_vec();
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(body);
    bytes
}

/// The prefix of a frame of this size, which does not follow.
fn claim(kind: WireKind, head_bytes: usize, body_bytes: u64) -> Vec<u8> {
    Prefix::new(kind, &vec![0; head_bytes], body_bytes)
        .encode()
        .to_vec()
}

/// Bytes of a peer, and their target.
#[derive(Clone, Copy)]
struct Scene {
    run: RunId,
    target: Target,
    /// Nonce in hellos.
    nonce: u64,
}

impl Scene {
    fn with(self, nonce: u64) -> Self {
        Self { nonce, ..self }
    }

    fn control(&self, sender: NodeId, term: u64, run: u64, control: &Control) -> Vec<u8> {
        let envelope = Envelope {
            minor: 0,
            run: RunId(run),
            sender,
            incarnation: Incarnation(5),
            term: Term(term),
            sequence: 1,
        };
        frame(WireKind::Control, &control.encode(&envelope), &[])
    }

    fn said(&self, sender: NodeId, control: &Control) -> Vec<u8> {
        self.control(sender, 1, self.run.0, control)
    }

    /// The hello of an EPN that has room for nothing that there is.
    fn hello(&self, sender: NodeId, slots: u32) -> Vec<u8> {
        let hello = Hello {
            data_address: "127.0.0.1:1".to_owned(),
            capacity_bytes: 1,
            slots,
            stf_bytes_max: 0,
            weight_milli: 1000,
            is_durable: false,
            nonce: self.nonce,
            ..Hello::default()
        };
        // It has followed no ICN yet.
        self.control(sender, 0, 0, &Control::Hello(hello))
    }

    fn data_hello(&self, target: Target) -> Vec<u8> {
        let hello = DataHello {
            run: self.run,
            source: self.source(),
            target,
            nonce: self.nonce,
        };
        frame(WireKind::DataHello, &hello.encode(), &[])
    }

    fn source(&self) -> Source {
        Source {
            flp: FlpId(9),
            incarnation: Incarnation(5),
        }
    }

    fn stf(&self, run: u64, flp: u16, body: &[u8], digest: u32) -> Vec<u8> {
        let header = StfHeader {
            key: StfKey {
                run: RunId(run),
                tf: TfId(1 << 40),
                source: Source {
                    flp: FlpId(flp),
                    ..self.source()
                },
            },
            attempt: Attempt(1),
            format: PayloadFormat::Opaque,
            digest,
            payload_bytes: body.len() as u64,
        };
        frame(WireKind::Stf, &header.encode(), body)
    }

    /// The role of the victim, the code, and what is sent.
    fn rows(&self) -> Vec<(Role, Code, Vec<u8>)> {
        let (icn, epn) = (Role::Icn, Role::Epn);
        let stranger = NodeId {
            role: Role::Epn,
            index: 9,
        };
        let operator = NodeId {
            role: Role::Operator,
            index: 9,
        };
        let announce = Control::Announce(vec![Announced {
            tf: TfId(1),
            bytes: 1,
        }]);
        let pulse = Control::EpnPulse(EpnPulse::default());
        let offer = Control::Offer(vec![Offered {
            tf: TfId(1),
            bytes: 1,
        }]);
        let grant = Control::Grant(vec![TfId(1)]);
        let mut other_version = frame(WireKind::Control, &[0; 8], &[]);
        other_version[4] = 9;
        let mut huge = Prefix::new(WireKind::Stf, &[], u64::from(u32::MAX))
            .encode()
            .to_vec();
        huge.extend_from_slice(&[0; 64]);
        let hello = self.data_hello(self.target);
        let after_hello = |bytes: Vec<u8>| [hello.clone(), bytes].concat();
        let good = crc32c(b"abc");
        let run = self.run.0;
        let joined = self.hello(stranger, 1);
        let recorded = self.with(!self.nonce);
        vec![
            (
                icn,
                Code::BadFrame,
                b"GET / HTTP/1.1\r\nHost: sheaf\r\nAccept: */*\r\n\r\n".to_vec(),
            ),
            (epn, Code::BadFrame, vec![0x16; 200]),
            (icn, Code::OtherVersion, other_version.clone()),
            (epn, Code::OtherVersion, other_version),
            (icn, Code::TooBig, huge.clone()),
            (epn, Code::TooBig, huge),
            (
                icn,
                Code::BadMessage,
                frame(WireKind::Control, &[7; 50], &[]),
            ),
            (
                epn,
                Code::BadMessage,
                frame(WireKind::DataHello, &[7; 9], &[]),
            ),
            (
                epn,
                Code::BadMessage,
                after_hello(frame(WireKind::Stf, &[7; 9], b"abc")),
            ),
            (
                epn,
                Code::BadMessage,
                after_hello(frame(WireKind::Control, &[7; 50], &[])),
            ),
            (icn, Code::BadMessage, frame(WireKind::Lane, &[2], &[])),
            (epn, Code::BadMessage, frame(WireKind::Lane, &[2], &[])),
            (icn, Code::WrongStream, frame(WireKind::Stf, &[7; 64], &[])),
            (epn, Code::WrongStream, self.said(stranger, &pulse)),
            (
                epn,
                Code::WrongStream,
                after_hello(self.said(stranger, &grant)),
            ),
            (icn, Code::NotJoined, self.said(stranger, &pulse)),
            (epn, Code::NotJoined, self.said(stranger, &offer)),
            (epn, Code::NotJoined, self.stf(run, 9, b"", crc32c(b""))),
            (epn, Code::NotJoined, after_hello(hello.clone())),
            (icn, Code::RefusedJoin, self.hello(stranger, 0)),
            (
                icn,
                Code::RoleDenied,
                [self.hello(operator, 1), self.said(operator, &announce)].concat(),
            ),
            (
                icn,
                Code::RoleDenied,
                [joined.clone(), self.said(operator, &pulse)].concat(),
            ),
            (
                epn,
                Code::RoleDenied,
                after_hello(self.stf(run, 8, b"abc", good)),
            ),
            (
                icn,
                Code::Fenced,
                [joined.clone(), self.control(stranger, 0, run, &pulse)].concat(),
            ),
            (
                icn,
                Code::OtherRun,
                [joined, self.control(stranger, 1, run + 1, &pulse)].concat(),
            ),
            (
                epn,
                Code::OtherRun,
                after_hello(self.stf(run + 1, 9, b"abc", good)),
            ),
            (
                epn,
                Code::WrongTarget,
                self.data_hello(Target {
                    incarnation: Incarnation(1),
                    ..self.target
                }),
            ),
            (
                epn,
                Code::BadDigest,
                after_hello(self.stf(run, 9, b"abc", good ^ 1)),
            ),
            (
                epn,
                Code::Conflict,
                after_hello(
                    [
                        self.stf(run, 9, b"abc", good),
                        self.stf(run, 9, b"abd", crc32c(b"abd")),
                    ]
                    .concat(),
                ),
            ),
            (icn, Code::WrongNonce, recorded.hello(stranger, 1)),
            (epn, Code::WrongNonce, recorded.data_hello(self.target)),
            (epn, Code::BeforeHello, self.stf(run, 9, b"abc", good)),
            (epn, Code::BeforeHello, claim(WireKind::Stf, 64, 1 << 20)),
            (icn, Code::BeforeHello, claim(WireKind::Control, 1 << 20, 0)),
            (
                icn,
                Code::TooBig,
                [
                    self.hello(operator, 1),
                    claim(WireKind::Control, 1 << 20, 0),
                ]
                .concat(),
            ),
        ]
    }
}

/// Connects, and takes the nonce of the challenge.
fn challenged(address: &str) -> (TcpStream, u64) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    match next_control(&mut stream) {
        Some(Control::Challenge { nonce }) => (stream, nonce),
        other => panic!("{other:?}"),
    }
}

/// Reads frames until one is a control message.
fn next_control(stream: &mut TcpStream) -> Option<Control> {
    loop {
        let mut prefix = [0; Prefix::SIZE];
        stream.read_exact(&mut prefix).ok()?;
        let prefix = Prefix::decode(&prefix, &Limits::default()).unwrap();
        let mut head = vec![0; prefix.head_bytes as usize];
        stream.read_exact(&mut head).ok()?;
        // An EPN offers memory to any process on its machine.
        if prefix.kind != WireKind::Lane {
            return Some(Control::decode(&head).unwrap().1);
        }
    }
}

/// Reads frames until one tells a code.
fn told(stream: &mut TcpStream) -> Option<Code> {
    rejection(stream).map(|(code, _)| code)
}

/// The same with the words that it has.
fn rejection(stream: &mut TcpStream) -> Option<(Code, String)> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    loop {
        match next_control(stream)? {
            Control::Rejected { code, detail } => return Some((code, detail)),
            Control::Refused { detail, .. } => return Some((Code::RefusedJoin, detail)),
            _ => {}
        }
    }
}

#[test]
fn a_node_of_another_version_is_refused_and_told_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let icn = start(Role::Icn, &farm(folder.path(), ""), folder.path());
    let node: NodeId = EpnId(0).into();
    let scene = Scene {
        run: RunId(0),
        target: Target {
            epn: EpnId(0),
            incarnation: Incarnation(5),
        },
        nonce: 0,
    };
    let mut hello = scene.hello(node, 1);
    hello[4] = Prefix::VERSION + 1;
    let mut stream = TcpStream::connect(&icn.address).unwrap();
    stream.write_all(&hello).unwrap();
    let expected = format!(
        "frame has wire version {}, this node speaks {}",
        Prefix::VERSION + 1,
        Prefix::VERSION
    );
    let (code, detail) = rejection(&mut stream).unwrap();
    assert_eq!(code, Code::OtherVersion);
    assert!(detail.contains(&expected), "{detail}");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest); // In order or by a reset: nothing follows.
    assert!(rest.is_empty(), "the stream is closed behind it");
    icn.await_count(Code::OtherVersion, 1);
    icn.shutdown.request();
    icn.thread.join().unwrap();
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn farm(folder: &Path, more: &str) -> FarmConfig {
    let text = format!(
        "[run]\nflps = 1\nepns = 1\n[icn]\naddress = \"{}\"\n\
         [flp]\nhold_bytes = 67108864\nrate_hz = 100.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n{more}",
        free_address()
    );
    FarmConfig::parse_for(&text, &folder.join("farm.toml"), &[]).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the TFs announced, complete, dropped or incomplete of the last status.
fn accounting(icn: &Node) -> (u64, u64, u64) {
    let mut last = icn.statuses.recv_timeout(PATIENCE).expect("a status");
    while let Ok(status) = icn.statuses.try_recv() {
        last = status;
    }
    let text = serde_json::to_value(&last.accounting).unwrap();
    let count = |name: &str| text[name].as_u64().unwrap();
    let dropped: u64 = match &text["dropped"] {
        serde_json::Value::Object(reasons) => {
            reasons.values().filter_map(serde_json::Value::as_u64).sum()
        }
        other => other.as_u64().unwrap_or(0),
    };
    (
        count("announced"),
        count("complete"),
        dropped + count("incomplete"),
    )
}

#[test]
fn an_flp_takes_the_next_card_of_an_epn_where_it_reaches_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let cards = format!(
        "[epn]\nadvertise = \"{}\"\nlisten_also = [\"127.0.0.2:0\"]\n",
        free_address()
    );
    let config = farm(folder.path(), &cards);
    let icn = start(Role::Icn, &config, folder.path());
    let epn = start(Role::Epn, &config, folder.path());
    let flp = start(Role::Flp, &config, folder.path());
    while accounting(&icn).1 < 20 {}
    for node in [flp, epn, icn] {
        node.shutdown.request();
        node.thread.join().unwrap();
    }
}

#[test]
fn lengths_that_strangers_claim_take_no_memory_of_a_farm() {
    let folder = tempfile::tempdir().unwrap();
    // With lanes the payload memory of the EPN would not be needed.
    let config = farm(folder.path(), "[transport]\nshared_memory = false\n");
    let icn = start(Role::Icn, &config, folder.path());
    let epn = start(Role::Epn, &config, folder.path());
    let flp = start(Role::Flp, &config, folder.path());
    while accounting(&icn).1 < 20 {}
    let scene = Scene {
        run: RunId(7),
        target: Target {
            epn: EpnId(0),
            incarnation: Incarnation(1),
        },
        nonce: 0,
    };
    // The memory of the EPN has room for 20 of these payloads, and the stated memory of the ICN for 32 of these heads.
    let (body, head) = (
        claim(WireKind::Stf, 64, 1 << 20),
        claim(WireKind::Control, 1 << 20, 0),
    );
    let behind_hello = [scene.data_hello(scene.target), body.clone()].concat();
    let mut strangers = Vec::new();
    for _ in 0..40 {
        for (node, bytes, code) in [
            (&epn, &body, Code::BeforeHello),
            (&epn, &behind_hello, Code::WrongTarget),
            (&icn, &head, Code::BeforeHello),
        ] {
            let mut stream = TcpStream::connect(&node.address).unwrap();
            stream.write_all(bytes).unwrap();
            strangers.push((stream, code));
        }
    }
    let (announced, ..) = accounting(&icn);
    while accounting(&icn).1 < announced + 50 {}
    for (mut stream, code) in strangers {
        assert_eq!(told(&mut stream), Some(code));
    }
    assert_eq!(accounting(&icn).2, 0, "nothing is dropped or incomplete");
    epn.await_count(Code::BeforeHello, 40);
    epn.await_count(Code::WrongTarget, 40);
    icn.await_count(Code::BeforeHello, 40);
    for node in [flp, epn, icn] {
        node.shutdown.request();
        node.thread.join().unwrap();
    }
}

#[test]
fn every_code_is_told_counted_and_noticed_by_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let config = farm(
        folder.path(),
        "[transport]\nconnections_per_address_max = 40\n",
    );
    let icn = start(Role::Icn, &config, folder.path());
    let epn = start(Role::Epn, &config, folder.path());
    let flp = start(Role::Flp, &config, folder.path());
    let scene = Scene {
        run: RunId(u64::from_str_radix(&icn.logged("run"), 16).unwrap()),
        target: Target {
            epn: EpnId(0),
            incarnation: Incarnation(epn.logged("incarnation").parse().unwrap()),
        },
        nonce: 0,
    };
    while accounting(&icn).1 < 20 {}
    let victim = |role: Role| if role == Role::Icn { &icn } else { &epn };
    let mut expected: BTreeMap<(Role, Code), u64> = BTreeMap::new();
    // Those that take their time go first: nothing at all, half a frame behind a whole one.
    let mut silent = TcpStream::connect(&epn.address).unwrap();
    let (mut stalled, nonce) = challenged(&epn.address);
    let hello = scene.with(nonce).data_hello(scene.target);
    stalled.write_all(&hello).unwrap();
    stalled
        .write_all(&scene.data_hello(scene.target)[..40])
        .unwrap();
    for (at, (role, ..)) in scene.rows().into_iter().enumerate() {
        let (mut stream, nonce) = challenged(&victim(role).address);
        let (_, code, bytes) = scene.with(nonce).rows().swap_remove(at);
        stream.write_all(&bytes).unwrap();
        assert_eq!(told(&mut stream), Some(code), "{role} {code}");
        let count = expected.entry((role, code)).or_default();
        *count += 1;
        victim(role).await_count(code, *count);
    }
    // A stream that ends inside a frame.
    let mut cut = TcpStream::connect(&epn.address).unwrap();
    cut.write_all(&scene.data_hello(scene.target)[..40])
        .unwrap();
    cut.shutdown(End::Write).unwrap();
    assert_eq!(told(&mut cut), Some(Code::Cut));
    expected.insert((Role::Epn, Code::Cut), 1);
    assert_eq!(told(&mut silent), Some(Code::HandshakeTimeout));
    expected.insert((Role::Epn, Code::HandshakeTimeout), 1);
    assert_eq!(told(&mut stalled), Some(Code::Stalled));
    expected.insert((Role::Epn, Code::Stalled), 1);
    // A length of 4 GiB is refused before anything is allocated for it.
    let before = resident_bytes();
    for _ in 0..50 {
        let (_, code, bytes) = scene.rows().swap_remove(5);
        assert_eq!(code, Code::TooBig);
        let mut stream = TcpStream::connect(&epn.address).unwrap();
        stream.write_all(&bytes).unwrap();
        assert_eq!(told(&mut stream), Some(code));
    }
    let grown = resident_bytes().saturating_sub(before);
    println!("50 frames of 4 GiB: {grown} bytes more");
    // The farm goes on in this process, and its statuses and logs take a little.
    assert!(grown < 8 << 20, "{grown} bytes more");
    // More connections than one address may have.
    let mut many = Vec::new();
    while many.len() < 60 {
        many.push(TcpStream::connect(&epn.address).unwrap());
    }
    let mut last = many.pop().unwrap();
    assert_eq!(told(&mut last), Some(Code::TooManyConnections));
    expected.insert((Role::Epn, Code::TooManyConnections), 1);
    drop(many);
    for ((role, code), count) in &expected {
        victim(*role).await_count(*code, *count);
    }
    // The honest FLP has noticed nothing of all that.
    let (announced, ..) = accounting(&icn);
    while accounting(&icn).1 < announced + 20 {}
    assert_eq!(accounting(&icn).2, 0, "nothing is dropped or incomplete");
    // And what needs certificates.
    let sealed = sealed_victim(folder.path());
    let mut plain = TcpStream::connect(&sealed.address).unwrap();
    plain.write_all(&scene.data_hello(scene.target)).unwrap();
    let _ = plain.read_to_end(&mut Vec::new()); // An alert; without TLS there is no frame.
    sealed.await_count(Code::Untrusted, 1);
    expected.insert((Role::Icn, Code::Untrusted), 1);
    let produced: Vec<Code> = Code::ALL
        .into_iter()
        .filter(|code| expected.keys().any(|(_, seen)| seen == code))
        .collect();
    assert_eq!(produced, Code::ALL, "every code is produced by some input");
    icn.shutdown.request();
    sealed.shutdown.request();
    for node in [icn, epn, flp, sealed] {
        node.thread.join().unwrap();
    }
}

/// An ICN with certificates.
fn sealed_victim(folder: &Path) -> Node {
    let certificates = folder.join("certs");
    std::fs::create_dir(&certificates).unwrap();
    let authority = Authority::new("north", Validity::of_days(10)).unwrap();
    authority.save(&certificates, false).unwrap();
    let files = sheaf_auth::CertFiles::in_directory(&certificates, NodeId::ICN);
    let issued = authority.issue(NodeId::ICN, Validity::of_days(1)).unwrap();
    issued.save(&files, false).unwrap();
    let more = format!("[security]\ndirectory = \"{}\"\n", certificates.display());
    let sealed = folder.join("sealed");
    std::fs::create_dir(&sealed).unwrap();
    start(Role::Icn, &farm(&sealed, &more), &sealed)
}

#[test]
fn a_process_whose_limit_of_descriptors_is_too_low_does_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    let more = "[transport]\nconnections_max = 4000000000\nconnections_per_address_max = 10\n";
    let config = farm(folder.path(), more);
    let error = run_icn(&config, 0, RoleOptions::default(), &Shutdown::new()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("file descriptors"), "{text}");
    assert!(text.contains("lower transport.connections_max"), "{text}");
}
