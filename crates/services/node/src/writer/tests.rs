use super::*;
use crate::sink::{DeliverError, Delivery, Patience, Sink};
use sheaf_protocol::control::{Record, TfCopy};
use sheaf_protocol::{
    Attempt, EpnId, FlpId, PayloadFormat, RunId, Source, StfHeader, StfKey, Target, TfId, crc32c,
};
use sheaf_transport::memory::{Faults, Memory, Network};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Payload of every STF.
const PAYLOAD: &[u8] = b"0123456789";

/// Disk and catalogue of a writer, which fail when a test says so.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    tfs: Arc<Mutex<Vec<Tf<Bytes>>>>,
    rows: Arc<Mutex<BTreeMap<HandoffId, CopyRow>>>,
    is_full: Arc<AtomicBool>,
    is_locked: Arc<AtomicBool>,
}

impl Disk {
    /// Numbers of the TFs that were written, in that order.
    pub(crate) fn written(&self) -> Vec<u64> {
        let tfs = self.tfs.lock().unwrap();
        tfs.iter().map(|tf| tf.tf.0).collect()
    }

    /// Lets writing fail from now on, or work again.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    fn set_locked(&self, is_locked: bool) {
        self.is_locked.store(is_locked, Ordering::Relaxed);
    }

    /// Rows, as `written 1 (0) held`: of copy 1, with another copy at writer 0, and held.
    pub(crate) fn kept(&self) -> Vec<String> {
        let rows = self.rows.lock().unwrap();
        rows.values().map(words).collect()
    }
}

fn words(row: &CopyRow) -> String {
    let mut words = format!("{} {}", row.state.name(), row.copy);
    if !row.elsewhere.is_empty() {
        let others: Vec<String> = row.elsewhere.iter().map(u16::to_string).collect();
        words += &format!(" ({})", others.join(" "));
    }
    match &row.held {
        Some(held) if held.published.is_some() => words += " published",
        Some(_) => words += " held",
        None => {}
    }
    words
}

impl Sink for Disk {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn deliver(&mut self, tf: &Tf<Bytes>, _: &Patience) -> Result<Delivery, DeliverError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(DeliverError::Write {
                path: "disk".into(),
                source: std::io::ErrorKind::StorageFull.into(),
            });
        }
        self.tfs.lock().unwrap().push(tf.clone());
        let main = StreamEvent {
            stream: "main".to_owned(),
            shed: None,
            refused: None,
        };
        Ok(Delivery {
            streams: vec![main],
            ..Delivery::default()
        })
    }
}

impl CopyKeeper for Disk {
    fn keep(&mut self, rows: &BTreeMap<HandoffId, Option<CopyRow>>) -> Result<(), CatalogueError> {
        if self.is_locked.load(Ordering::Relaxed) {
            return Err(CatalogueError::Foreign {
                path: "catalogue".into(),
                found: "a lock".to_owned(),
            });
        }
        let mut kept = self.rows.lock().unwrap();
        for (id, row) in rows {
            match row {
                Some(row) => kept.insert(*id, row.clone()),
                None => kept.remove(id),
            };
        }
        Ok(())
    }
}

/// A writer that listens at `writer-INDEX` and whose disk is `disk`. It has room for 100 bytes of each of 2 EPNs.
pub(crate) fn writer_on(
    network: &Network,
    index: u16,
    life: u64,
    disk: &Disk,
) -> WriterNode<Memory> {
    let name = format!("writer-{index}");
    let mut transport = network.endpoint(&name);
    transport.listen_bulk(&name).expect("the address is free");
    let rows = disk.rows.lock().unwrap().clone();
    let parts = WriterParts {
        index,
        incarnation: Incarnation(life),
        sink: SinkHandle::inline(Box::new(disk.clone()), 16),
        rows: rows.into_iter().collect(),
        published_max: 2,
        keeper: Box::new(disk.clone()),
        capacity_bytes: 200,
        window_bytes: 100,
        window_tfs: 4,
        pulse: Duration::from_millis(50),
        nonces: Nonces::seeded(100 * u64::from(index) + life),
        log: EventLog::none(),
    };
    WriterNode::new(transport, parts)
}

impl WriterNode<Memory> {
    /// Takes in what has come by `now`, and does what is due.
    pub(crate) fn step(&mut self, now: Timestamp) -> Turn {
        let mut events = Vec::new();
        self.transport
            .poll(&mut events, None)
            .expect("it never fails");
        for event in events {
            self.handle(now, event);
        }
        self.turn(now)
    }
}

/// A writer and an EPN whose messages a test makes itself.
struct Bench {
    network: Network,
    writer: WriterNode<Memory>,
    disk: Disk,
    epn: Memory,
    conn: ConnId,
    now_ms: u64,
    heard: Vec<Control>,
    is_closed: bool,
}

fn epn() -> Target {
    Target {
        epn: EpnId(0),
        incarnation: Incarnation(1),
    }
}

fn copy(tf: u64, copy: u32) -> TfCopy {
    TfCopy {
        run: RunId(1),
        tf: TfId(tf),
        attempt: Attempt(1),
        copy,
    }
}

/// The record of a TF of `parts` STFs.
fn record(tf: u64, parts: u32) -> Record {
    Record {
        copy: copy(tf, 0),
        is_redelivered: false,
        is_held: false,
        is_committed: false,
        may_be_here: false,
        parts,
        bytes: u64::from(parts) * PAYLOAD.len() as u64,
        missing: Vec::new(),
        elsewhere: Vec::new(),
    }
}

/// The record of copy 1 of a TF of one STF: its row has to be kept.
fn moved(tf: u64) -> Record {
    Record {
        copy: copy(tf, 1),
        elsewhere: vec![3],
        ..record(tf, 1)
    }
}

/// An STF of a TF, from an FLP, that states `digest`.
fn stf_of(tf: u64, flp: u16, digest: u32) -> Frame {
    let source = Source {
        flp: FlpId(flp),
        incarnation: Incarnation(1),
    };
    let header = StfHeader {
        key: StfKey {
            run: RunId(1),
            tf: TfId(tf),
            source,
        },
        attempt: Attempt(1),
        format: PayloadFormat::Opaque,
        digest,
        payload_bytes: PAYLOAD.len() as u64,
    };
    Frame {
        kind: WireKind::Stf,
        head: Bytes::copy_from_slice(&header.encode()),
        body: Bytes::from_static(PAYLOAD),
    }
}

fn stf(tf: u64, flp: u16) -> Frame {
    stf_of(tf, flp, crc32c(PAYLOAD))
}

fn said(control: &Control) -> Frame {
    reject::on_data_stream(epn().epn.into(), control)
}

impl Bench {
    /// An EPN that has connected and said nothing.
    fn new() -> Self {
        let network = Network::new(1, Faults::default());
        let disk = Disk::default();
        let writer = writer_on(&network, 2, 1, &disk);
        let mut epn = network.endpoint("epn-0");
        let conn = epn.connect_bulk("writer-2").expect("memory connects");
        Self {
            network,
            writer,
            disk,
            epn,
            conn,
            now_ms: 0,
            heard: Vec::new(),
            is_closed: false,
        }
    }

    /// An EPN that was welcomed.
    fn welcomed() -> Self {
        let mut bench = Self::new();
        let nonce = bench.nonce();
        bench.send(said(&hello(2, nonce)));
        let heard = bench.pass(1);
        let kinds: Vec<&str> = heard.iter().map(Control::name).collect();
        let expected = ["writer-welcome", "held", "writer-pulse"];
        assert!(
            kinds.len() == 3 && matches!(heard[0], Control::WriterWelcome(_)),
            "{kinds:?}, expected {expected:?}"
        );
        bench
    }

    fn nonce(&mut self) -> u64 {
        let heard = self.pass(1);
        let [Control::Challenge { nonce }] = heard[..] else {
            panic!("{heard:?}, expected a challenge");
        };
        nonce
    }

    fn send(&mut self, frame: Frame) {
        self.epn.send(self.conn, frame).expect("it has room");
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.now_ms * 1_000_000)
    }

    /// Lets so many ms pass; returns what the EPN has heard.
    fn pass(&mut self, ms: u64) -> Vec<Control> {
        for _ in 0..ms {
            self.step();
        }
        std::mem::take(&mut self.heard)
    }

    fn step(&mut self) -> Turn {
        self.now_ms += 1;
        let now = self.now();
        self.network.advance_to(now);
        let turn = self.writer.step(now);
        self.network.advance_to(now);
        let mut events = Vec::new();
        self.epn.poll(&mut events, None).expect("it never fails");
        for event in events {
            match event {
                Net::Received { frame, .. } => {
                    let (_, control) = Control::decode(&frame.head).expect("a writer says it");
                    self.heard.push(control);
                }
                Net::Closed { .. } => self.is_closed = true,
                _ => {}
            }
        }
        turn
    }

    /// The writer refuses what was sent, with a code and a part of its text, and ends the stream.
    #[track_caller]
    fn assert_refused(mut self, code: Code, part: &str) {
        let heard = self.pass(250);
        let is_it = |control: &Control| match control {
            Control::Rejected {
                code: found,
                detail,
            } => *found == code && detail.contains(part),
            _ => false,
        };
        assert!(
            heard.iter().any(is_it),
            "{heard:?}, expected {code}: {part}"
        );
        assert!(self.is_closed, "the stream goes on");
        assert!(self.disk.written().is_empty());
    }
}

fn hello(writer: u16, nonce: u64) -> Control {
    Control::WriterHello(WriterHello {
        writer,
        epn: epn(),
        nonce,
    })
}

/// Copies that were acknowledged.
fn written_of(heard: &[Control]) -> Vec<TfCopy> {
    let tfs = heard.iter().flat_map(|control| match control {
        Control::Written(tfs) => tfs.clone(),
        _ => Vec::new(),
    });
    tfs.map(|tf| tf.copy).collect()
}

fn last_pulse(heard: &[Control]) -> WriterPulse {
    let mut pulses = heard.iter().rev().filter_map(|control| match control {
        Control::WriterPulse(pulse) => Some(*pulse),
        _ => None,
    });
    pulses.next().expect("a pulse every 50 ms")
}

#[test]
fn a_hello_for_another_writer_is_refused() {
    let mut bench = Bench::new();
    let nonce = bench.nonce();
    bench.send(said(&hello(3, nonce)));
    bench.assert_refused(
        Code::WrongTarget,
        "found a hello for writer:3, this is writer:2",
    );
}

#[test]
fn a_hello_with_the_nonce_of_another_stream_is_refused() {
    let mut bench = Bench::new();
    let nonce = bench.nonce();
    bench.send(said(&hello(2, nonce ^ 1)));
    bench.assert_refused(Code::WrongNonce, "that of the stream is");
}

#[test]
fn a_record_or_an_stf_before_the_hello_is_refused() {
    let mut bench = Bench::new();
    bench.send(said(&Control::Record(record(7, 1))));
    bench.assert_refused(Code::NotJoined, "before hello");
    let mut bench = Bench::new();
    bench.send(stf(7, 0));
    bench.assert_refused(Code::NotJoined, "an STF without a record");
}

#[test]
fn an_stf_that_is_not_of_its_record_is_refused() {
    let mut bench = Bench::welcomed();
    bench.send(stf(7, 0));
    bench.assert_refused(Code::NotJoined, "an STF without a record");
    let mut bench = Bench::welcomed();
    bench.send(said(&Control::Record(record(7, 1))));
    bench.send(stf(8, 0));
    bench.assert_refused(Code::WrongStream, "an STF of TF 8 in the record of TF 7");
    let mut bench = Bench::welcomed();
    bench.send(said(&Control::Record(record(7, 1))));
    bench.send(stf_of(7, 0, 1));
    bench.assert_refused(Code::BadDigest, "stated is 00000001");
}

#[test]
fn a_record_that_does_not_fit_is_refused() {
    let mut bench = Bench::welcomed();
    bench.send(said(&Control::Record(record(7, 11))));
    bench.assert_refused(Code::TooBig, "found a TF of 110 bytes, the window has 100");
    let mut bench = Bench::welcomed();
    let lying = Record {
        bytes: 9,
        ..record(7, 1)
    };
    bench.send(said(&Control::Record(lying)));
    bench.send(stf(7, 0));
    bench.assert_refused(Code::BadMessage, "STFs of 10 bytes, their record says 9");
    // With the first byte too much: a record cannot make the writer keep more than it says.
    let mut bench = Bench::welcomed();
    let lying = Record {
        parts: 1000,
        ..record(7, 1)
    };
    bench.send(said(&Control::Record(lying)));
    bench.send(stf(7, 0));
    bench.send(stf(7, 1));
    bench.assert_refused(Code::BadMessage, "STFs of 20 bytes, their record says 10");
    let mut bench = Bench::welcomed();
    let lying = Record {
        bytes: 11,
        ..record(7, 1)
    };
    bench.send(said(&Control::Record(lying)));
    bench.send(stf(7, 0));
    bench.assert_refused(Code::BadMessage, "a TF of 10 bytes, its record says 11");
}

#[test]
fn a_message_between_the_stfs_of_a_tf_is_refused() {
    let mut bench = Bench::welcomed();
    bench.send(said(&Control::Record(record(7, 2))));
    bench.send(stf(7, 0));
    bench.send(said(&Control::Void(vec![copy(6, 1)])));
    bench.assert_refused(Code::WrongStream, "between the STFs of a TF");
}

#[test]
fn a_whole_tf_is_written_and_acknowledged_with_its_fates() {
    let mut bench = Bench::welcomed();
    bench.send(said(&Control::Record(record(7, 2))));
    bench.send(stf(7, 0));
    assert!(written_of(&bench.pass(10)).is_empty(), "an STF is missing");
    bench.send(stf(7, 1));
    let heard = bench.pass(2);
    let [Control::Written(tfs)] = &heard[..] else {
        panic!("{heard:?}, expected an acknowledgement");
    };
    let main = StreamFate {
        stream: "main".to_owned(),
        ..StreamFate::default()
    };
    let expected = WrittenTf {
        copy: copy(7, 0),
        streams: vec![main],
    };
    assert_eq!(tfs[..], [expected]);
    let tfs = bench.disk.tfs.lock().unwrap().clone();
    assert_eq!(tfs.len(), 1);
    let flps: Vec<u16> = tfs[0].parts.iter().map(|part| part.source.flp.0).collect();
    assert_eq!(flps, [0, 1]);
    assert!(tfs[0].parts.iter().all(|part| part.payload == PAYLOAD));
    assert!(bench.disk.kept().is_empty(), "it needs no row");
    assert_eq!(last_pulse(&bench.pass(60)).queued_bytes, 0);
}

#[test]
fn a_tf_that_comes_again_is_acknowledged_and_not_written_again() {
    let mut bench = Bench::welcomed();
    for _ in 0..2 {
        bench.send(said(&Control::Record(record(7, 1))));
        bench.send(stf(7, 0));
        assert_eq!(written_of(&bench.pass(2)), [copy(7, 0)]);
    }
    assert_eq!(bench.disk.written(), [7]);
}

#[test]
fn a_tf_without_stfs_is_whole_with_its_record() {
    let mut bench = Bench::welcomed();
    bench.send(said(&Control::Record(record(7, 0))));
    assert_eq!(written_of(&bench.pass(2)), [copy(7, 0)]);
}

#[test]
fn a_catalogue_that_cannot_be_written_delays_the_answer_and_counts_as_full() {
    let mut bench = Bench::welcomed();
    bench.disk.set_locked(true);
    bench.send(said(&Control::Record(moved(7))));
    bench.send(stf(7, 0));
    let heard = bench.pass(200);
    assert!(written_of(&heard).is_empty());
    assert!(last_pulse(&heard).is_full, "others take TFs in its place");
    assert!(bench.disk.written().is_empty(), "not before its row");
    bench.disk.set_locked(false);
    let heard = bench.pass(200);
    assert_eq!(written_of(&heard), [copy(7, 1)]);
    assert!(!last_pulse(&heard).is_full);
    assert_eq!(bench.disk.kept(), ["written 1 (3)"]);
}

#[test]
fn a_void_that_overtakes_the_files_takes_the_tf_back() {
    let mut bench = Bench::welcomed();
    bench.disk.set_locked(true);
    bench.send(said(&Control::Record(moved(7))));
    bench.send(stf(7, 0));
    bench.pass(10);
    bench.send(said(&Control::Void(vec![copy(7, 2)])));
    bench.pass(10);
    bench.disk.set_locked(false);
    let heard = bench.pass(200);
    assert!(
        heard.contains(&Control::Voided(vec![copy(7, 2)])),
        "{heard:?}"
    );
    assert!(written_of(&heard).is_empty());
    assert!(bench.disk.written().is_empty());
    assert_eq!(bench.disk.kept(), ["void 2"]);
}

#[test]
fn a_writer_that_is_asked_to_end_says_so_and_writes_what_it_has() {
    let mut bench = Bench::welcomed();
    bench.disk.set_full(true);
    bench.send(said(&Control::Record(record(7, 1))));
    bench.send(stf(7, 0));
    assert!(last_pulse(&bench.pass(60)).is_full);
    bench.writer.handle_shutdown(bench.now());
    for _ in 0..1000 {
        assert_ne!(bench.step(), Turn::Done, "a TF is not written");
    }
    let heard = std::mem::take(&mut bench.heard);
    assert!(last_pulse(&heard).is_leaving);
    bench.disk.set_full(false);
    let turns: Vec<Turn> = (0..10).map(|_| bench.step()).collect();
    assert!(turns.contains(&Turn::Done), "{turns:?}");
    assert_eq!(written_of(&bench.heard), [copy(7, 0)]);
    assert_eq!(bench.disk.written(), [7]);
}

#[test]
fn a_writer_that_is_idle_ends_when_epns_know_that_it_leaves() {
    let mut bench = Bench::welcomed();
    bench.writer.handle_shutdown(bench.now());
    let steps = (1..1000).find(|_| bench.step() == Turn::Done);
    // Two pulses.
    assert!((100..=101).contains(&steps.expect("it ends")), "{steps:?}");
    assert!(last_pulse(&bench.heard).is_leaving);
}

#[test]
fn a_writer_that_cannot_write_ends_all_the_same() {
    let mut bench = Bench::welcomed();
    bench.disk.set_full(true);
    bench.send(said(&Control::Record(record(7, 1))));
    bench.send(stf(7, 0));
    bench.pass(10);
    bench.writer.handle_shutdown(bench.now());
    let limit = LEAVE_WITHIN.as_millis() as usize;
    let steps = (1..2 * limit).find(|_| bench.step() == Turn::Done);
    assert!(
        steps.is_some_and(|steps| steps.abs_diff(limit) < 2),
        "{steps:?}"
    );
    assert!(written_of(&bench.heard).is_empty());
}

#[test]
fn moves_of_a_former_life_are_told_until_they_are_settled() {
    let mut bench = Bench::welcomed();
    bench.send(said(&Control::Record(moved(7))));
    bench.send(stf(7, 0));
    let moves = |heard: &[Control]| {
        heard
            .iter()
            .filter(|it| matches!(it, Control::Moves(_)))
            .count()
    };
    assert_eq!(moves(&bench.pass(2200)), 2, "every second");
    let settled = sheaf_protocol::control::Move {
        copy: copy(7, 1),
        from: 3,
    };
    bench.send(said(&Control::Settled(vec![settled])));
    assert_eq!(moves(&bench.pass(2200)), 0);
}
