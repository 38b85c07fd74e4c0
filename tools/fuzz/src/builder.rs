//! The TF builder under any sequence of events that its driver can bring.

use crate::ops::Ops;
use sheaf_protocol::Tf;
use sheaf_protocol::control::{Absent, Assign, Commit, Offered, Release};
use sheaf_protocol::{
    Attempt, Control, EpnId, FlpId, Incarnation, PayloadFormat, RangeSet, RosterId, RunId, Source,
    StfHeader, StfKey, Target, TfId, Timestamp,
};
use sheaf_tf_builder::{Action, BuildConfig, RefusedStf, TfBuilder};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Events of one input at most: what a longer one finds, a shorter one finds faster.
const STEPS_MAX: usize = 400;

const CONFIG: BuildConfig = BuildConfig {
    capacity_bytes: 600,
    tfs_in_building_max: 4,
    stf_timeout_ms: 20,
    grants_max: 2,
    grant_ms: 15,
    repeat_ms: 10,
};

/// The builder and what is true of it from outside.
struct Bench {
    builder: TfBuilder<()>,
    now: Timestamp,
    run: u64,
    /// Parts that were ever offered.
    offered: BTreeSet<(TfId, Source)>,
    /// Data streams that are open.
    streams: BTreeMap<Source, u32>,
    /// Delivered to the consumer, which has yet to say so.
    with_consumer: VecDeque<Tf<()>>,
    /// Taken by the consumer, which has yet to give the memory back.
    not_freed: Vec<u64>,
    /// Delivered to the consumer, and whether it has taken them.
    delivered: BTreeMap<(RunId, TfId), bool>,
    /// TFs that the builder reports as given back.
    given_back: BTreeSet<(RunId, TfId)>,
    /// TFs released in this run: decided and done for the ICN, so a commit of one is acknowledged.
    released: RangeSet,
}

/// A [`TfBuilder`] driven by the sequence of events that `bytes` are read as.
///
/// It never holds more than its capacity, delivers nothing twice, and acknowledges nothing that its consumer
/// has not taken.
pub fn builder(bytes: &[u8]) {
    let mut bench = Bench {
        builder: TfBuilder::new(CONFIG),
        now: Timestamp(0),
        run: 0,
        offered: BTreeSet::new(),
        streams: BTreeMap::new(),
        with_consumer: VecDeque::new(),
        not_freed: Vec::new(),
        delivered: BTreeMap::new(),
        given_back: BTreeSet::new(),
        released: RangeSet::default(),
    };
    let mut ops = Ops::new(bytes);
    for _ in 0..STEPS_MAX {
        let Some(code) = ops.next() else { break };
        bench.step(code, &mut ops);
        bench.check_bytes();
        // The driver may bring several events before it asks what to do.
        if code < 192 {
            bench.take_actions();
            bench.check_sink();
        }
    }
}

impl Bench {
    fn step(&mut self, code: u8, ops: &mut Ops<'_>) {
        match code % 16 {
            0 => {
                // A run never comes back: ids are drawn at random.
                if ops.once_in(3) || self.run == 0 {
                    self.run += 1;
                    self.released = RangeSet::default();
                }
                self.builder.handle_joined(self.now, RunId(self.run), false);
            }
            1..=4 => self.stf(ops),
            5 if ops.once_in(3) => {
                let (source, tfs) = (source(ops), ops.list(4, tf));
                self.builder.handle_withdrawn(self.now, source, &tfs);
            }
            5 if ops.once_in(2) => {
                let (source, tfs) = (source(ops), ops.list(4, tf));
                self.offered.extend(tfs.iter().map(|tf| (*tf, source)));
                let items: Vec<_> = tfs.iter().map(|tf| Offered { tf: *tf, bytes: 1 }).collect();
                self.builder.handle_offer(self.now, source, &items);
            }
            5 => {
                let source = source(ops);
                *self.streams.entry(source).or_default() += 1;
                self.builder.handle_stream_opened(source);
            }
            6 => {
                // The driver closes what it has opened.
                let open = self.streams.keys().copied().nth(ops.below(4).into());
                if let Some(source) = open {
                    let count = self.streams.get_mut(&source).expect("taken from its keys");
                    *count -= 1;
                    if *count == 0 {
                        self.streams.remove(&source);
                    }
                    self.builder.handle_stream_closed(self.now, source);
                }
            }
            7 if ops.once_in(4) => {
                let (source, roster) = (source(ops), RosterId(ops.below(4).into()));
                self.builder.handle_source_back(source, roster);
            }
            7 => {
                let (source, roster) = (source(ops), RosterId(ops.below(4).into()));
                self.builder.handle_source_gone(self.now, source, roster);
            }
            8 => {
                let id = RosterId(ops.below(4).into());
                self.builder.handle_roster(id, &ops.list(5, source));
            }
            9 => self.builder.handle_assign(self.now, &ops.list(4, assign)),
            10 => {
                let items = ops.list(3, |ops| Absent {
                    tf: tf(ops),
                    flps: ops.list(4, flp),
                });
                self.builder.handle_absent(self.now, &items);
            }
            11 => {
                let items = ops.list(4, |ops| Commit {
                    tf: tf(ops),
                    is_redelivered: ops.once_in(2),
                    missing: ops.list(4, flp),
                });
                self.builder.handle_commit(self.now, &items);
            }
            12 => self.release(ops),
            13 if ops.once_in(8) => self.builder.handle_late(Duration::from_nanos(ops.number())),
            13 => {
                self.now = self.now + Duration::from_millis(ops.number());
                self.builder.handle_tick(self.now);
            }
            14 if ops.once_in(4) => {
                self.builder.handle_recall(&ops.list(4, tf));
            }
            14 => self.consumer_takes(),
            _ => {
                if let Some(bytes) = self.not_freed.pop() {
                    self.builder.handle_sink_freed(self.now, bytes);
                }
                let _ = self.builder.pulse(ops.number());
            }
        }
    }

    fn stf(&mut self, ops: &mut Ops<'_>) {
        let run = self.run.saturating_sub(u64::from(ops.once_in(16)));
        let digest = u32::from(ops.below(2));
        let header = StfHeader {
            key: StfKey {
                run: RunId(run),
                tf: tf(ops),
                source: source(ops),
            },
            attempt: Attempt(ops.below(4).into()),
            format: PayloadFormat::Opaque,
            digest,
            payload_bytes: ops.number(),
        };
        let found = digest + u32::from(ops.once_in(16));
        let spent = Duration::from_nanos(ops.number());
        let before = (self.builder.open_tfs(), self.builder.open_bytes());
        let outcome = self.builder.handle_stf(self.now, &header, found, (), spent);
        match outcome {
            Ok(()) => assert_eq!(self.builder.open_bytes(), before.1 + header.payload_bytes),
            Err(reason) => {
                assert_eq!((self.builder.open_tfs(), self.builder.open_bytes()), before);
                assert!(
                    reason != RefusedStf::WrongSize,
                    "that is the driver's to find"
                );
            }
        }
    }

    fn release(&mut self, ops: &mut Ops<'_>) {
        let release = Release {
            version: ops.number(),
            floor: TfId(u64::from(ops.below(8)) * u64::from(ops.below(2))),
            ranges: ops.list(4, |ops| (tf(ops), tf(ops))),
        };
        release.add_to(&mut self.released);
        self.builder.handle_release(&release);
    }

    fn consumer_takes(&mut self) {
        if let Some(tf) = self.with_consumer.pop_front() {
            self.delivered.insert((tf.run, tf.tf), true);
            self.builder
                .handle_delivered(tf.run, tf.tf, tf.bytes(), tf.missing.len());
            self.not_freed.push(tf.bytes());
        }
    }

    fn take_actions(&mut self) {
        while let Some(action) = self.builder.poll_action() {
            match action {
                Action::Deliver(tf) => self.check_delivery(tf),
                Action::SendToFlp { source, control } => {
                    let Control::Grant(tfs) = control else {
                        panic!("an EPN says {} to an FLP", control.name());
                    };
                    let is_offered = |tf: &TfId| self.offered.contains(&(*tf, source));
                    assert!(tfs.iter().all(is_offered), "{tfs:?} of {}", source.flp);
                }
                Action::Send(Control::CommitAck { tfs, .. }) => {
                    for tf in tfs {
                        let taken = self.delivered.get(&(RunId(self.run), tf));
                        let is_done = taken == Some(&true) || self.released.contains(tf);
                        assert!(is_done, "TF {tf} is acknowledged too early");
                    }
                }
                Action::Send(Control::Undelivered(tfs)) => {
                    for tf in tfs {
                        let taken = self.delivered.get(&(RunId(self.run), tf));
                        assert_ne!(taken, Some(&true), "TF {tf} is delivered and given back");
                        self.given_back.insert((RunId(self.run), tf));
                    }
                }
                Action::Recall { run, tfs } => self.take_back(run, &tfs),
                Action::Send(_)
                | Action::Store(_)
                | Action::Unstore { .. }
                | Action::Recover { .. } => {}
            }
        }
    }

    /// Takes TFs back from the queue that the consumer has not taken.
    fn take_back(&mut self, run: RunId, tfs: &[TfId]) {
        let is_back = |tf: &Tf<()>| tf.run == run && tfs.contains(&tf.tf);
        let (back, kept) = std::mem::take(&mut self.with_consumer)
            .into_iter()
            .partition(is_back);
        self.with_consumer = kept;
        let back: VecDeque<Tf<()>> = back;
        for tf in back {
            self.builder.handle_returned(run, tf.tf, tf.bytes());
        }
    }

    fn check_delivery(&mut self, tf: Tf<()>) {
        let is_given_back = self.given_back.contains(&(tf.run, tf.tf));
        assert!(
            !is_given_back,
            "TF {} is delivered, and was given back",
            tf.tf
        );
        assert_eq!(tf.run, RunId(self.run), "a TF of another run is delivered");
        let earlier = self.delivered.insert((tf.run, tf.tf), false);
        assert_eq!(earlier, None, "TF {} is delivered twice", tf.tf);
        assert!(tf.parts.is_sorted_by_key(|part| part.source));
        let sources: BTreeSet<Source> = tf.parts.iter().map(|part| part.source).collect();
        assert_eq!(
            sources.len(),
            tf.parts.len(),
            "an STF is twice in TF {}",
            tf.tf
        );
        assert!(
            !tf.parts
                .iter()
                .any(|part| tf.missing.contains(&part.source.flp))
        );
        self.with_consumer.push_back(tf);
    }

    fn check_bytes(&self) {
        let (open, sink) = (self.builder.open_bytes(), self.builder.sink_bytes());
        assert!(
            open + sink <= CONFIG.capacity_bytes,
            "{open} + {sink} bytes"
        );
        assert!(
            self.builder.open_tfs() > 0 || open == 0,
            "{open} bytes of no TF"
        );
    }

    /// Once all actions are taken, what is with the consumer is what was delivered to it.
    fn check_sink(&self) {
        let handed_on = self.with_consumer.iter().map(Tf::bytes);
        let bytes: u64 = handed_on.chain(self.not_freed.iter().copied()).sum();
        assert_eq!(self.builder.sink_bytes(), bytes, "bytes with the consumer");
    }
}

fn tf(ops: &mut Ops<'_>) -> TfId {
    let number = ops.number();
    // Mostly few TFs, so that events meet.
    TfId(if number < 248 { number % 8 } else { number })
}

fn flp(ops: &mut Ops<'_>) -> FlpId {
    FlpId(ops.below(4))
}

fn source(ops: &mut Ops<'_>) -> Source {
    Source {
        flp: flp(ops),
        incarnation: Incarnation(u64::from(ops.once_in(8))),
    }
}

fn assign(ops: &mut Ops<'_>) -> Assign {
    Assign {
        tf: tf(ops),
        attempt: Attempt(ops.below(4).into()),
        target: Target {
            epn: EpnId(0),
            incarnation: Incarnation(0),
        },
        roster: RosterId(ops.below(4).into()),
    }
}
