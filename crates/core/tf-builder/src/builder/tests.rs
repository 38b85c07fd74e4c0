//! Tests of the builder, event by event. Input and expectation are text; [`Bench`] knows the API.

use super::*;
use proptest::prelude::*;
use sheaf_protocol::control::Commit;
use sheaf_protocol::{Attempt, EpnId, FlpId, Incarnation, PayloadFormat, StfKey, Target};
use std::collections::BTreeSet;

pub(super) const RUN: RunId = RunId(9);

pub(super) struct Bench {
    pub(super) builder: TfBuilder<u64>,
    pub(super) now: Timestamp,
}

pub(super) fn source(flp: u16) -> Source {
    Source {
        flp: FlpId(flp),
        incarnation: Incarnation(1),
    }
}

fn target() -> Target {
    Target {
        epn: EpnId(0),
        incarnation: Incarnation(1),
    }
}

fn header(tf: u64, flp: u16, bytes: u64) -> StfHeader {
    StfHeader {
        key: StfKey {
            run: RUN,
            tf: TfId(tf),
            source: source(flp),
        },
        attempt: Attempt(1),
        format: PayloadFormat::Opaque,
        digest: u32::from(flp),
        payload_bytes: bytes,
    }
}

impl Bench {
    pub(super) fn new(config: BuildConfig) -> Self {
        let mut builder = TfBuilder::new(config);
        builder.handle_joined(Timestamp(0), RUN, false);
        builder.handle_roster(RosterId(1), &[source(2), source(0), source(1)]);
        Self {
            builder,
            now: Timestamp(0),
        }
    }

    pub(super) fn stf(&mut self, tf: u64, flp: u16) -> Result<(), RefusedStf> {
        self.send(&header(tf, flp, 10))
    }

    fn send(&mut self, header: &StfHeader) -> Result<(), RefusedStf> {
        self.builder
            .handle_stf(self.now, header, header.digest, 0, Duration::ZERO)
    }

    pub(super) fn assign(&mut self, tf: u64, attempt: u32) {
        let (tf, attempt) = (TfId(tf), Attempt(attempt));
        let assign = Assign {
            tf,
            attempt,
            target: target(),
            roster: RosterId(1),
        };
        self.builder.handle_assign(self.now, &[assign]);
    }

    pub(super) fn commit(&mut self, tf: u64, missing: &[u16]) {
        let missing = missing.iter().copied().map(FlpId).collect();
        self.builder.handle_commit(
            self.now,
            &[Commit {
                tf: TfId(tf),
                is_redelivered: false,
                missing,
            }],
        );
    }

    pub(super) fn pass_ms(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.builder.handle_tick(self.now);
    }

    /// Returns the pending actions as text; deliveries are acknowledged at once.
    pub(super) fn said(&mut self) -> String {
        let mut words = Vec::new();
        while let Some(action) = self.builder.poll_action() {
            match action {
                Action::Deliver(tf) => {
                    words.push(format!("deliver {} without {:?}", tf.tf, flps(&tf.missing)));
                    self.builder
                        .handle_delivered(tf.run, tf.tf, tf.bytes(), tf.missing.len());
                    self.builder.handle_sink_freed(self.now, tf.bytes());
                }
                Action::Send(Control::Built(items)) => {
                    for item in items {
                        words.push(format!(
                            "built {} without {:?}",
                            item.tf,
                            flps(&item.missing)
                        ));
                    }
                }
                Action::Send(Control::CommitAck { tfs, .. }) => {
                    words.extend(tfs.iter().map(|tf| format!("ack {tf}")));
                }
                Action::Store(tf) => {
                    words.push(format!("store {} without {:?}", tf.tf, flps(&tf.missing)));
                }
                Action::Unstore { tf, by_former, .. } => words.push(match by_former {
                    true => format!("unstore {tf} of a former life"),
                    false => format!("unstore {tf}"),
                }),
                Action::Recover { item, .. } => words.push(format!("recover {}", item.tf)),
                Action::Send(Control::Stored(tfs)) => {
                    words.extend(tfs.iter().map(|tf| format!("stored {tf}")));
                }
                Action::Recall { tfs, .. } => words.push(format!("recall {:?}", ids(&tfs))),
                Action::Send(Control::Undelivered(tfs)) => {
                    words.extend(tfs.iter().map(|tf| format!("undelivered {tf}")));
                }
                Action::Send(Control::Slots(items)) => {
                    let tfs = items.iter().map(|item| format!(" {}", item.tf));
                    words.push(format!("slots{}", tfs.collect::<String>()));
                }
                // Every builder names its streams when it joins; a test of its own reads the list.
                Action::Send(Control::Sources(_)) => {}
                Action::Send(Control::NotStored(tfs)) => {
                    words.extend(tfs.iter().map(|tf| format!("not stored {tf}")));
                }
                Action::SendToFlp { source, control } => words.push(match control {
                    Control::Grant(tfs) => format!("grant {:?} of {}", ids(&tfs), source.flp.0),
                    other => other.name().to_owned(),
                }),
                Action::Send(other) => words.push(other.name().to_owned()),
            }
        }
        words.join(", ")
    }
}

fn ids(tfs: &[TfId]) -> Vec<u64> {
    tfs.iter().map(|tf| tf.0).collect()
}

fn flps(flps: &[FlpId]) -> Vec<u16> {
    flps.iter().map(|flp| flp.0).collect()
}

fn bench() -> Bench {
    Bench::new(BuildConfig::default())
}

#[test]
fn a_tf_is_reported_when_whole_and_delivered_when_committed() {
    let mut bench = bench();
    bench.assign(5, 1);
    for flp in [2, 0, 1] {
        assert_eq!(bench.said(), "");
        bench.stf(5, flp).unwrap();
    }
    assert_eq!(bench.said(), "built 5 without []");
    bench.commit(5, &[]);
    assert_eq!(bench.said(), "deliver 5 without [], ack 5");
    assert_eq!(
        (bench.builder.open_tfs(), bench.builder.open_bytes()),
        (0, 0)
    );
}

#[test]
fn the_assignment_may_come_after_the_stfs() {
    let mut bench = bench();
    for flp in 0..3 {
        bench.stf(5, flp).unwrap();
    }
    assert_eq!(bench.said(), "");
    bench.assign(5, 1);
    assert_eq!(bench.said(), "built 5 without []");
}

#[test]
fn no_tf_is_delivered_twice_however_often_it_is_committed() {
    let mut bench = bench();
    bench.assign(5, 1);
    (0..3).for_each(|flp| bench.stf(5, flp).unwrap());
    bench.commit(5, &[]);
    bench.commit(5, &[]);
    // Both commits before the delivery: one delivery, one acknowledgement.
    assert_eq!(
        bench.said(),
        "deliver 5 without [], built 5 without [], ack 5"
    );
    bench.commit(5, &[]);
    assert_eq!(bench.said(), "ack 5");
    assert_eq!(bench.stf(5, 0), Err(RefusedStf::Decided));
    bench.assign(5, 2);
    assert_eq!(bench.said(), "ack 5");
}

#[test]
fn what_does_not_belong_is_refused_and_counted() {
    let mut bench = bench();
    bench.assign(5, 1);
    bench.stf(5, 0).unwrap();
    assert_eq!(bench.stf(5, 0), Err(RefusedStf::Duplicate));
    let other_bytes = StfHeader {
        digest: 77,
        ..header(5, 0, 10)
    };
    assert_eq!(bench.send(&other_bytes), Err(RefusedStf::Conflict));
    assert_eq!(bench.stf(5, 9), Err(RefusedStf::OtherRoster));
    let mut other_run = header(5, 1, 10);
    other_run.key.run = RunId(1);
    assert_eq!(bench.send(&other_run), Err(RefusedStf::OtherRun));
    let damaged = bench
        .builder
        .handle_stf(bench.now, &header(5, 1, 10), 0, 0, Duration::ZERO);
    assert_eq!(damaged, Err(RefusedStf::BadDigest));
    for reason in [
        RefusedStf::Duplicate,
        RefusedStf::Conflict,
        RefusedStf::OtherRoster,
        RefusedStf::OtherRun,
        RefusedStf::BadDigest,
    ] {
        assert_eq!(
            bench.builder.stats().refused(reason),
            1,
            "{}",
            reason.name()
        );
    }
    assert_eq!(bench.builder.open_bytes(), 10);
}

#[test]
fn the_same_wrong_digest_twice_is_reported_and_different_ones_are_the_fault_of_the_path() {
    let mut bench = bench();
    for (found, expected) in [(7, ""), (8, ""), (9, ""), (9, "corrupt"), (9, "corrupt")] {
        let header = header(5, 1, 10);
        let _ = bench
            .builder
            .handle_stf(bench.now, &header, found, 0, Duration::ZERO);
        assert_eq!(bench.said(), expected);
    }
}

#[test]
fn an_stf_of_a_former_life_of_an_flp_is_put_out_when_the_roster_is_known() {
    let mut bench = bench();
    let mut former = header(5, 1, 10);
    former.key.source.incarnation = Incarnation(0);
    bench.send(&former).unwrap();
    (0..3).for_each(|flp| bench.stf(5, flp).unwrap());
    bench.assign(5, 1);
    assert_eq!(bench.said(), "built 5 without []");
    assert_eq!(bench.builder.stats().refused(RefusedStf::OtherRoster), 1);
    assert_eq!(bench.builder.open_bytes(), 30);
}

#[test]
fn a_stale_tf_is_reported_as_it_is_and_again_until_there_is_an_answer() {
    let mut bench = bench();
    bench.assign(5, 1);
    bench.stf(5, 1).unwrap();
    bench.pass_ms(1999);
    assert_eq!(bench.said(), "");
    bench.pass_ms(1);
    assert_eq!(bench.said(), "built 5 without [0, 2]");
    bench.pass_ms(100);
    assert_eq!(bench.said(), "built 5 without [0, 2]");
    bench.commit(5, &[0, 2]);
    assert_eq!(bench.said(), "deliver 5 without [0, 2], ack 5");
}

#[test]
fn an_answer_to_a_report_is_awaited_longer_by_the_run_delay() {
    let mut bench = bench();
    bench.builder.handle_run_delay(Duration::from_millis(250));
    bench.assign(5, 1);
    bench.stf(5, 1).unwrap();
    bench.pass_ms(2000);
    assert_eq!(bench.said(), "built 5 without [0, 2]");
    bench.pass_ms(349);
    assert_eq!(bench.said(), "");
    bench.pass_ms(1);
    assert_eq!(bench.said(), "built 5 without [0, 2]");
}

#[test]
fn a_part_that_comes_after_the_verdict_is_left_out() {
    let mut bench = bench();
    bench.assign(5, 1);
    bench.stf(5, 0).unwrap();
    bench.stf(5, 1).unwrap();
    bench.pass_ms(2000);
    assert_eq!(bench.said(), "built 5 without [2]");
    bench.stf(5, 2).unwrap();
    assert_eq!(bench.said(), "built 5 without []");
    bench.commit(5, &[2]);
    assert_eq!(bench.said(), "deliver 5 without [2], ack 5");
}

#[test]
fn a_commit_of_a_tf_that_is_not_here_delivers_nothing() {
    let mut bench = bench();
    bench.assign(5, 1);
    bench.stf(5, 0).unwrap();
    bench.commit(5, &[]);
    bench.commit(6, &[]);
    assert_eq!(bench.said(), "");
    assert_eq!(bench.builder.stats().impossible_commits, 2);
}

#[test]
fn a_dead_source_is_waited_for_until_its_stream_is_empty() {
    let mut bench = bench();
    bench.builder.handle_stream_opened(source(2));
    bench.assign(5, 1);
    bench.stf(5, 0).unwrap();
    bench.stf(5, 1).unwrap();
    bench
        .builder
        .handle_source_gone(bench.now, source(2), RosterId(1));
    assert_eq!(bench.said(), "");
    bench.builder.handle_stream_closed(bench.now, source(2));
    assert_eq!(bench.said(), "built 5 without [2]");
}

/// Found by the torture test (`--kind grants --one 4700000230`): the notice of the end overtook, or outlived, the one
/// of the return.
#[test]
fn a_source_that_a_later_roster_names_is_not_gone_whatever_notice_comes_late_or_not_at_all() {
    let later = |bench: &mut Bench| {
        let members = [0, 1, 2].map(source);
        bench.builder.handle_roster(RosterId(3), &members);
    };
    // The notice of the return is lost.
    let mut bench = bench();
    bench
        .builder
        .handle_source_gone(bench.now, source(2), RosterId(2));
    later(&mut bench);
    bench.assign(5, 1);
    bench.stf(5, 0).unwrap();
    bench.stf(5, 1).unwrap();
    assert_eq!(bench.said(), "");
    // That of the end comes once more.
    bench
        .builder
        .handle_source_gone(bench.now, source(2), RosterId(2));
    assert_eq!(bench.said(), "");
    // A second end is no late notice of the first, and its return none of the first return.
    bench
        .builder
        .handle_source_gone(bench.now, source(2), RosterId(4));
    assert_eq!(bench.said(), "built 5 without [2]");
    bench.builder.handle_source_back(source(2), RosterId(3));
    bench.assign(6, 1);
    bench.stf(6, 0).unwrap();
    bench.stf(6, 1).unwrap();
    assert_eq!(bench.said(), "built 6 without [2]");
    bench.builder.handle_source_back(source(2), RosterId(5));
    bench.assign(7, 1);
    bench.stf(7, 0).unwrap();
    bench.stf(7, 1).unwrap();
    assert_eq!(bench.said(), "");
}

/// Found by the torture test (`--kind grants --one 45`): a machine that loses its power closes no stream.
#[test]
fn a_dead_source_whose_stream_stays_open_is_waited_for_once_and_not_for_every_tf() {
    let mut bench = bench();
    bench.builder.handle_stream_opened(source(2));
    bench
        .builder
        .handle_source_gone(bench.now, source(2), RosterId(1));
    let limit = u64::try_from(bench.builder.config.stf_timeout().as_millis()).unwrap();
    bench.pass_ms(limit - 1);
    bench.assign(5, 1);
    bench.stf(5, 0).unwrap();
    bench.stf(5, 1).unwrap();
    assert_eq!(bench.said(), "");
    bench.pass_ms(1);
    assert_eq!(bench.said(), "built 5 without [2]");
}

#[test]
fn the_icn_learns_which_sources_have_data_streams() {
    let mut bench = bench();
    let sources = |bench: &mut Bench| {
        let mut lists = Vec::new();
        while let Some(action) = bench.builder.poll_action() {
            if let Action::Send(Control::Sources(sources)) = action {
                lists.push(sources.iter().map(|it| it.flp.0).collect::<Vec<_>>());
            }
        }
        lists
    };
    assert_eq!(sources(&mut bench), [Vec::<u16>::new()]);
    bench.builder.handle_stream_opened(source(1));
    bench.builder.handle_stream_opened(source(1));
    bench.builder.handle_stream_opened(source(2));
    assert_eq!(sources(&mut bench), [[1, 2]]);
    bench.builder.handle_stream_closed(bench.now, source(1));
    assert_eq!(sources(&mut bench), Vec::<Vec<u16>>::new());
    bench.builder.handle_stream_closed(bench.now, source(1));
    assert_eq!(sources(&mut bench), [[2]]);
    // The next leader knows nothing yet.
    bench.builder.handle_joined(bench.now, RUN, true);
    assert_eq!(sources(&mut bench), [[2]]);
}

#[test]
fn an_absent_flp_is_not_waited_for() {
    let mut bench = bench();
    bench.assign(5, 1);
    bench.stf(5, 0).unwrap();
    bench.stf(5, 1).unwrap();
    let absent = Absent {
        tf: TfId(5),
        flps: vec![FlpId(2)],
    };
    bench.builder.handle_absent(bench.now, &[absent]);
    assert_eq!(bench.said(), "built 5 without [2]");
}

#[test]
fn released_tfs_leave_and_cannot_come_back() {
    let mut bench = bench();
    bench.assign(5, 1);
    bench.stf(5, 0).unwrap();
    bench.stf(7, 0).unwrap();
    let release = Release {
        version: 4,
        floor: TfId(5),
        ranges: vec![(TfId(5), TfId(6))],
    };
    bench.builder.handle_release(&release);
    assert_eq!(bench.builder.open_tfs(), 1);
    assert_eq!(bench.stf(5, 1), Err(RefusedStf::Decided));
    assert_eq!(bench.stf(4, 1), Err(RefusedStf::Decided));
    bench.stf(6, 1).unwrap();
    assert_eq!(bench.builder.pulse(0).released_version, 4);
    let older = Release {
        version: 3,
        floor: TfId(100),
        ranges: vec![],
    };
    bench.builder.handle_release(&older);
    bench.stf(8, 1).unwrap();
}

#[test]
fn memory_is_bounded_by_bytes_and_by_slots() {
    let config = BuildConfig {
        capacity_bytes: 35,
        tfs_in_building_max: 1,
        ..BuildConfig::default()
    };
    let mut bench = Bench::new(config);
    bench.stf(1, 0).unwrap();
    bench.stf(2, 0).unwrap();
    assert_eq!(
        bench.stf(3, 0),
        Err(RefusedStf::NoRoom),
        "two slots: one, and one left over"
    );
    bench.stf(1, 1).unwrap();
    assert_eq!(bench.stf(2, 1), Err(RefusedStf::NoRoom), "35 bytes");
    assert_eq!(bench.builder.open_bytes(), 30);
}

#[test]
fn another_run_begins_empty_and_the_same_run_is_reported_again() {
    let mut bench = bench();
    bench.assign(5, 1);
    (0..3).for_each(|flp| bench.stf(5, flp).unwrap());
    assert_eq!(bench.said(), "built 5 without []");
    bench.builder.handle_joined(bench.now, RUN, false);
    assert_eq!(bench.said(), "slots 5, built 5 without []");
    bench.builder.handle_joined(bench.now, RunId(10), false);
    assert_eq!(
        (bench.builder.open_tfs(), bench.builder.open_bytes()),
        (0, 0)
    );
    assert_eq!(bench.stf(5, 0), Err(RefusedStf::OtherRun));
}

#[test]
fn a_size_that_no_memory_has_is_refused() {
    let mut bench = bench();
    bench.stf(5, 0).unwrap();
    assert_eq!(bench.send(&header(5, 1, u64::MAX)), Err(RefusedStf::NoRoom));
}

#[test]
fn what_a_former_run_left_with_the_consumer_is_not_taken_for_its_namesake() {
    let mut bench = bench();
    let deliver = |bench: &mut Bench, run: RunId| {
        bench.builder.handle_joined(bench.now, run, false);
        bench.builder.handle_roster(RosterId(1), &[source(0)]);
        bench.assign(5, 1);
        let mut header = header(5, 0, 10);
        header.key.run = run;
        bench.send(&header).unwrap();
        bench.commit(5, &[]);
        let delivered = bench.builder.poll_action();
        assert!(matches!(delivered, Some(Action::Deliver(tf)) if tf.run == run));
        assert_eq!(bench.said(), "built 5 without []");
    };
    let next = RunId(RUN.0 + 1);
    deliver(&mut bench, RUN);
    deliver(&mut bench, next);
    bench.builder.handle_delivered(RUN, TfId(5), 10, 0);
    assert_eq!(bench.said(), "");
    bench.builder.handle_delivered(next, TfId(5), 10, 0);
    assert_eq!(bench.said(), "ack 5");
    // The other way round: one consumer has stopped with the former TF, another accepts the latter.
    let after = RunId(RUN.0 + 2);
    deliver(&mut bench, after);
    deliver(&mut bench, RunId(RUN.0 + 3));
    bench
        .builder
        .handle_delivered(RunId(RUN.0 + 3), TfId(5), 10, 0);
    assert_eq!(bench.said(), "ack 5");
    bench.builder.handle_delivered(after, TfId(5), 10, 0);
    assert_eq!(bench.said(), "");
}

#[test]
fn a_tf_that_was_committed_and_not_asked_for_gives_its_bytes_back_with_its_run() {
    let mut bench = bench();
    bench.assign(5, 1);
    for flp in 0..3 {
        bench.stf(5, flp).unwrap();
    }
    bench.commit(5, &[]);
    assert_eq!(bench.builder.sink_bytes(), 30);
    bench
        .builder
        .handle_joined(bench.now, RunId(RUN.0 + 1), false);
    assert_eq!((bench.said().as_str(), bench.builder.sink_bytes()), ("", 0));
}

/// Takes the next TF for the consumer, and keeps it waiting.
fn waiting(bench: &mut Bench, tf: u64) -> Tf<u64> {
    bench.assign(tf, 1);
    for flp in 0..3 {
        bench.stf(tf, flp).unwrap();
    }
    bench.commit(tf, &[]);
    match bench.builder.poll_action() {
        Some(Action::Deliver(tf)) => tf,
        other => panic!("expected a delivery, found {other:?}"),
    }
}

#[test]
fn a_recalled_tf_that_no_consumer_has_is_given_back_and_never_delivered() {
    let mut bench = bench();
    let tf = waiting(&mut bench, 5);
    bench.builder.handle_recall(&[TfId(5)]);
    assert_eq!(bench.said(), "recall [5], built 5 without []");
    bench.builder.handle_returned(RUN, TfId(5), tf.bytes());
    assert_eq!(bench.said(), "undelivered 5");
    assert_eq!(bench.builder.sink_bytes(), 0);
    bench.commit(5, &[]);
    assert_eq!(bench.said(), "undelivered 5");
    bench.assign(5, 2);
    assert_eq!(bench.said(), "undelivered 5");
    assert_eq!(bench.stf(5, 0), Err(RefusedStf::Decided));
}

#[test]
fn a_recalled_tf_that_the_consumer_has_is_acknowledged() {
    let mut bench = bench();
    waiting(&mut bench, 5);
    bench.said();
    bench.builder.handle_delivered(RUN, TfId(5), 30, 0);
    bench.builder.handle_recall(&[TfId(5)]);
    assert_eq!(bench.said(), "ack 5, ack 5");
}

#[test]
fn a_recall_that_overtakes_its_commit_gives_the_tf_back() {
    let mut bench = bench();
    bench.assign(5, 1);
    for flp in 0..3 {
        bench.stf(5, flp).unwrap();
    }
    assert_eq!(bench.said(), "built 5 without []");
    assert_eq!(bench.builder.handle_recall(&[TfId(5)]), [TfId(5)]);
    assert_eq!(bench.said(), "undelivered 5");
    assert_eq!(bench.builder.open_bytes(), 0);
    bench.commit(5, &[]);
    assert_eq!(bench.said(), "undelivered 5");
}

proptest! {
    #[test]
    fn in_any_order_of_events_bytes_add_up_and_no_tf_is_delivered_twice(
        steps in prop::collection::vec((0..8_u8, 0..6_u64, 0..4_u16), 0..120)
    ) {
        let config = BuildConfig { capacity_bytes: 120, tfs_in_building_max: 4, ..BuildConfig::default() };
        let mut bench = Bench::new(config);
        let mut delivered = BTreeSet::new();
        for (step, tf, flp) in steps {
            match step {
                0..=3 => drop(bench.stf(tf, flp)),
                4 => bench.assign(tf, 1),
                5 => bench.commit(tf, &[]),
                6 => bench.commit(tf, &[flp]),
                _ => bench.pass_ms(700),
            }
            for word in bench.said().split(", ").filter(|word| word.starts_with("deliver")) {
                let tf = word.split(' ').nth(1).unwrap().to_owned();
                prop_assert!(delivered.insert(tf), "delivered twice: {}", word);
            }
            let bytes: u64 = bench.builder.slots.values().map(Slot::bytes).sum();
            prop_assert_eq!(bench.builder.open_bytes(), bytes);
            prop_assert!(bytes <= 120);
        }
    }
}

#[test]
fn a_tf_that_its_consumer_works_on_is_acknowledged_when_it_has_finished() {
    let mut bench = bench();
    let deliver = |bench: &mut Bench, id: u64| {
        bench.assign(id, 1);
        (0..3).for_each(|flp| bench.stf(id, flp).unwrap());
        bench.commit(id, &[]);
        let delivered = bench.builder.poll_action();
        assert!(matches!(delivered, Some(Action::Deliver(tf)) if tf.tf == TfId(id)));
        bench.builder.handle_held(RUN, TfId(id), 30, 0);
    };
    deliver(&mut bench, 5);
    assert_eq!(bench.said(), "built 5 without []");
    // The ICN asks again, and the consumer still works.
    bench.commit(5, &[]);
    assert_eq!(bench.said(), "");
    bench.builder.handle_processed(RunId(RUN.0 + 1), TfId(5));
    assert_eq!(bench.said(), "", "that is the TF of another run");
    bench.builder.handle_processed(RUN, TfId(5));
    assert_eq!(bench.said(), "ack 5");
    bench.builder.handle_processed(RUN, TfId(5));
    assert_eq!(bench.said(), "", "once is enough");
    // The time of the drain is over.
    deliver(&mut bench, 6);
    assert_eq!(bench.said(), "built 6 without []");
    assert_eq!(bench.builder.handle_recall(&[TfId(6)]), []);
    assert_eq!(bench.said(), "ack 6");
    bench.builder.handle_processed(RUN, TfId(6));
    assert_eq!(bench.said(), "");
}
