use super::links::LinksEvent;
use super::*;
use crate::writer::WriterNode;
use crate::writer::tests::{Disk, writer_on};
use bytes::Bytes;
use sheaf_protocol::control::Recover;
use sheaf_protocol::{
    Attempt, EpnId, FlpId, Incarnation, Part, PayloadFormat, RunId, Source, Target, Tf, TfId,
    Timestamp, crc32c,
};
use sheaf_transport::Transport as _;
use sheaf_transport::memory::{Death, Faults, Memory, Network};

const RUN: RunId = RunId(1);

/// Writer nodes, and the links of one EPN to them.
struct Bench {
    network: Network,
    disks: Vec<Disk>,
    writers: Vec<Option<WriterNode<Memory>>>,
    links: Links<Memory>,
    now_ms: u64,
    /// Events, as `done 7`.
    events: Vec<String>,
}

fn links(network: &Network, writers: u16, life: u64) -> Links<Memory> {
    let config = HandoffConfig {
        writers,
        policy: "least-loaded".to_owned(),
        window_tfs: 4,
        silence: Duration::from_millis(200),
        seed: 1,
    };
    let target = Target {
        epn: EpnId(0),
        incarnation: Incarnation(life),
    };
    let addresses = (0..writers).map(|writer| format!("writer-{writer}"));
    let handoff = Handoff::new(config).expect("the policy is known");
    let transport = network.endpoint("epn-0");
    Links::new(transport, target, addresses.collect(), handoff)
}

fn tf(number: u64) -> Tf<Bytes> {
    let payload = Bytes::from_static(b"0123456789");
    let part = Part {
        source: Source {
            flp: FlpId(0),
            incarnation: Incarnation(1),
        },
        format: PayloadFormat::Opaque,
        digest: crc32c(&payload),
        bytes: 10,
        payload,
    };
    Tf {
        run: RUN,
        tf: TfId(number),
        attempt: Attempt(1),
        is_redelivered: false,
        parts: vec![part],
        missing: Vec::new(),
    }
}

fn words(event: &LinksEvent) -> String {
    match event {
        LinksEvent::Done(done) => {
            let streams: Vec<&str> = done.streams.iter().map(|it| it.stream.as_str()).collect();
            assert_eq!(streams, ["main"], "the fates of a writer come with it");
            format!("done {}", done.tf.tf.0)
        }
        LinksEvent::Stored(_, tf) => format!("stored {}", tf.0),
        LinksEvent::Recovered { tf, found, .. } => match found {
            Some(_) => format!("recovered {}", tf.0),
            None => format!("not found {}", tf.0),
        },
        LinksEvent::Stuck(why) => format!("stuck: {why}"),
        LinksEvent::Resumed => "resumed".to_owned(),
    }
}

impl Bench {
    /// An EPN with streams to all writers.
    fn new(writers: u16) -> Self {
        let network = Network::new(1, Faults::default());
        let mut bench = Self {
            links: links(&network, writers, 1),
            disks: (0..writers).map(|_| Disk::default()).collect(),
            writers: (0..writers).map(|_| None).collect(),
            network,
            now_ms: 0,
            events: Vec::new(),
        };
        for writer in 0..writers {
            bench.start(writer, 1);
        }
        assert!(bench.pass(20).is_empty());
        bench
    }

    fn start(&mut self, writer: u16, life: u64) {
        let at = usize::from(writer);
        let node = writer_on(&self.network, writer, life, &self.disks[at]);
        self.writers[at] = Some(node);
    }

    fn kill(&mut self, writer: u16) {
        self.writers[usize::from(writer)] = None;
        self.network.kill(&format!("writer-{writer}"), Death::Seen);
    }

    /// Lets so many ms pass; returns what the EPN was told.
    fn pass(&mut self, ms: u64) -> Vec<String> {
        let mut events = Vec::new();
        for _ in 0..ms {
            self.now_ms += 1;
            let now = Timestamp(self.now_ms * 1_000_000);
            self.network.advance_to(now);
            for writer in self.writers.iter_mut().flatten() {
                writer.step(now);
            }
            self.network.advance_to(now);
            self.links
                .transport()
                .poll(&mut events, None)
                .expect("it never fails");
            for event in events.drain(..) {
                self.links.handle(now, event);
            }
            self.links.handle_tick(now);
            while let Some(event) = self.links.poll_event() {
                self.events.push(words(&event));
            }
        }
        std::mem::take(&mut self.events)
    }

    /// TFs in the files of each writer.
    fn written(&self) -> Vec<Vec<u64>> {
        self.disks.iter().map(Disk::written).collect()
    }

    /// Rows of each writer, as `written 1 (0)`.
    fn rows(&self) -> Vec<Vec<String>> {
        self.disks.iter().map(Disk::kept).collect()
    }
}

#[test]
fn a_tf_goes_to_a_writer_and_is_done() {
    let mut bench = Bench::new(1);
    bench.links.offer(tf(7));
    assert_eq!(bench.links.tfs(), 1);
    assert_eq!(bench.pass(5), ["done 7"]);
    assert_eq!((bench.links.tfs(), bench.written()), (0, vec![vec![7]]));
}

#[test]
fn a_tf_whose_stream_closes_goes_again_and_is_written_once() {
    let mut bench = Bench::new(1);
    // It waits at the writer.
    bench.disks[0].set_full(true);
    bench.links.offer(tf(7));
    bench.pass(5);
    bench.network.reset("epn-0", "writer-0");
    assert!(bench.pass(200).is_empty());
    bench.disks[0].set_full(false);
    assert_eq!(bench.pass(20), ["done 7"]);
    assert_eq!(bench.written(), [[7]]);
    // It was written, and the answer got lost.
    bench.network.cut_one_way("writer-0", "epn-0");
    bench.links.offer(tf(8));
    assert!(bench.pass(5).is_empty());
    assert_eq!(bench.written(), [[7, 8]]);
    bench.network.heal("epn-0", "writer-0");
    bench.network.reset("epn-0", "writer-0");
    assert_eq!(bench.pass(200), ["done 8"]);
    assert_eq!(bench.written(), [[7, 8]]);
}

#[test]
fn a_tf_of_a_writer_that_dies_counts_at_another_one_alone() {
    let mut bench = Bench::new(2);
    // Written at the first one, which dies before it can say so.
    bench.network.cut_one_way("writer-0", "epn-0");
    bench.links.offer(tf(7));
    bench.pass(5);
    bench.network.heal("epn-0", "writer-0");
    bench.kill(0);
    assert_eq!(bench.pass(20), ["done 7"]);
    assert_eq!(bench.written(), [[7], [7]]);
    let none: &[&str] = &[];
    assert_eq!(bench.rows(), [none, &["written 1 (0)"]]);
    // Once it is back its copy is void, and the other one knows.
    bench.start(0, 2);
    assert!(bench.pass(2000).is_empty());
    assert_eq!(bench.rows(), [["void 1"], ["written 1"]]);
    assert_eq!(bench.links.handoff().to_void(), 0);
}

#[test]
fn a_writer_that_hangs_is_left_and_taken_back() {
    let mut bench = Bench::new(2);
    let hung = bench.writers[0].take();
    bench.links.offer(tf(7));
    assert!(bench.pass(100).is_empty());
    // After 200 ms of silence.
    assert_eq!(bench.pass(150), ["done 7"]);
    bench.writers[0] = hung;
    bench.pass(2000);
    // What came before it hung is written there, and void.
    assert_eq!(bench.rows(), [["void 1"], ["written 1"]]);
    bench.links.offer(tf(8));
    assert_eq!(bench.pass(5), ["done 8"]);
}

#[test]
fn a_writer_with_a_full_disk_is_left() {
    let mut bench = Bench::new(2);
    bench.disks[0].set_full(true);
    for number in [1, 2, 3] {
        bench.links.offer(tf(number));
    }
    let mut done = bench.pass(200);
    done.sort_unstable();
    assert_eq!(done, ["done 1", "done 2", "done 3"]);
    bench.disks[0].set_full(false);
    bench.pass(100);
    assert!(bench.written()[0].is_empty(), "they were taken back");
}

#[test]
fn an_epn_without_a_writer_says_so_until_there_is_one() {
    let mut bench = Bench::new(1);
    bench.kill(0);
    assert!(bench.pass(600).is_empty(), "it has no TF");
    bench.links.offer(tf(7));
    let told = bench.pass(100);
    assert_eq!(told, ["stuck: no writer takes TFs, of those at writer-0"]);
    bench.start(0, 2);
    assert_eq!(bench.pass(1500), ["resumed", "done 7"]);
}

#[test]
fn a_tf_that_no_writer_was_sent_is_recalled() {
    let mut bench = Bench::new(1);
    bench.disks[0].set_full(true);
    bench.links.offer(tf(7));
    bench.pass(1);
    bench.kill(0);
    bench.pass(5);
    bench.links.offer(tf(8));
    let tfs = [7, 8].map(TfId).into();
    let recalled = bench.links.recall(RUN, &tfs);
    assert_eq!(recalled, [tf(8)]);
    assert_eq!(bench.links.tfs(), 1);
}

#[test]
fn a_tf_is_stored_and_counts_when_it_is_committed() {
    let mut bench = Bench::new(1);
    bench.links.store(tf(7));
    bench.links.store(tf(8));
    assert_eq!(bench.pass(5), ["stored 7", "stored 8"]);
    assert_eq!(bench.rows(), [["written 0 held", "written 0 held"]]);
    bench.links.offer(tf(7));
    bench.links.unstore(RUN, TfId(8), false);
    assert_eq!(bench.pass(5), ["done 7"]);
    let void = format!("void {}", u32::MAX);
    assert_eq!(bench.rows(), [["written 0 published", &void]]);
    assert_eq!(bench.links.tfs(), 0);
}

#[test]
fn a_stored_tf_of_a_writer_that_dies_is_published_by_another_one() {
    let mut bench = Bench::new(2);
    bench.links.store(tf(7));
    assert_eq!(bench.pass(5), ["stored 7"]);
    bench.kill(0);
    bench.pass(5);
    bench.links.offer(tf(7));
    assert_eq!(bench.pass(20), ["done 7"]);
    bench.start(0, 2);
    bench.pass(2000);
    assert_eq!(bench.rows(), [["void 1"], ["written 1 published"]]);
}

#[test]
fn a_tf_that_a_former_life_published_is_found_and_not_revoked() {
    let mut bench = Bench::new(1);
    for number in [7, 8] {
        bench.links.store(tf(number));
    }
    assert_eq!(bench.pass(5), ["stored 7", "stored 8"]);
    bench.links.offer(tf(7));
    bench.links.offer(tf(8));
    assert_eq!(bench.pass(5), ["done 7", "done 8"]);
    // The EPN dies before the ICN has the acknowledgement of TF 7.
    bench.network.kill("epn-0", Death::Seen);
    bench.links = links(&bench.network, 1, 2);
    bench.pass(20);
    assert!(bench.links.have_said_held());
    assert_eq!(bench.links.former(), [], "no order of the ICN is awaited");
    let item = Recover {
        tf: TfId(7),
        incarnation: Incarnation(1),
        missing: Vec::new(),
        parts: vec![FlpId(0)],
    };
    bench.links.recover(RUN, &item);
    bench.links.unstore(RUN, TfId(8), true);
    assert_eq!(bench.pass(5), ["recovered 7"]);
    let published = "written 0 published";
    assert_eq!(bench.rows(), [[published, published]]);
}

#[test]
fn tfs_that_a_former_life_stored_are_published_or_revoked() {
    let mut bench = Bench::new(1);
    for number in [7, 8, 9] {
        bench.links.store(tf(number));
    }
    assert_eq!(bench.pass(5), ["stored 7", "stored 8", "stored 9"]);
    bench.network.kill("epn-0", Death::Seen);
    bench.links = links(&bench.network, 1, 2);
    bench.pass(20);
    assert!(bench.links.have_said_held());
    let former = [7, 8, 9].map(|number| (RUN, TfId(number)));
    assert_eq!(bench.links.former(), former);
    let item = |number, parts: &[u16]| Recover {
        tf: TfId(number),
        incarnation: Incarnation(1),
        missing: Vec::new(),
        parts: parts.iter().copied().map(FlpId).collect(),
    };
    bench.links.recover(RUN, &item(7, &[0]));
    // The verdict names an STF that is not in it.
    bench.links.recover(RUN, &item(8, &[0, 1]));
    bench.links.unstore(RUN, TfId(9), true);
    assert_eq!(bench.pass(5), ["not found 8", "recovered 7"]);
    let void = format!("void {}", u32::MAX);
    assert_eq!(bench.rows(), [["written 0 published", &void, &void]]);
}
