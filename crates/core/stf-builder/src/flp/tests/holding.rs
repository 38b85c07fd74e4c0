//! Tests of the hold: which STFs are kept, for how long, and what happens when there is no room.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn a_source_that_can_wait_waits_for_room() {
    let mut bench = running(|config| config.pace = Pace::RateHz(100.0));
    bench.check(
        "wait 100; make  => announce 0 1 2
         wait 10; make   =>",
    );
    assert_eq!(bench.demand(), "nothing");
    bench.check("release 1 1; make => announce 3");
    assert_eq!(bench.flp.stats().skipped_stfs, 0);
}

#[test]
fn a_source_that_cannot_wait_skips_what_is_due_and_only_that() {
    let mut bench = running(|config| {
        config.pace = Pace::RateHz(100.0);
        config.when_full = WhenFull::DropNewest;
    });
    bench.check(
        "wait 20; make              => announce 0 1 2
         wait 25; make              => skip 3 source-overrun 4 source-overrun
         release 1 1; wait 5; make  => announce 5",
    );
    assert_eq!(bench.flp.stats().skipped_stfs, 2);
}

#[test]
fn as_fast_as_possible_waits_whatever_is_configured() {
    let mut bench = running(|config| config.when_full = WhenFull::DropNewest);
    assert_eq!(bench.after("make"), "announce 0 1 2");
    assert_eq!(bench.demand(), "nothing");
}

#[test]
fn the_hold_is_bounded_by_bytes_for_the_largest_that_may_come() {
    let mut bench = running(|config| config.hold_bytes = 35);
    assert_eq!(bench.after("make"), "announce 0 1");
    assert_eq!(bench.held(), (2, 20));
}

#[test]
fn a_hold_smaller_than_one_stf_takes_one() {
    let mut bench = running(|config| config.hold_bytes = 5);
    bench.check(
        "make              => announce 0
         release 1 1; make => announce 1",
    );
}

#[test]
fn a_release_frees_what_it_names_and_an_older_one_nothing() {
    let mut bench = running(|_| {});
    bench.after("make");
    bench.after("release 5 0 1..2");
    assert_eq!(bench.held(), (2, 20));
    bench.after("release 4 9");
    assert_eq!(bench.held(), (2, 20));
    bench.after("release 6 1 2..9");
    assert_eq!(bench.held(), (0, 0));
    assert_eq!(bench.flp.pulse(Timestamp(0)).released_version, 6);
    assert_eq!(bench.flp.stats().released_stfs, 3);
}

#[test]
fn an_stf_that_comes_after_the_decision_is_announced_and_not_kept() {
    let mut bench = running(|_| {});
    bench.check(
        "release 1 0 1..2; assign 1#1>0  => released 1
         make                            => announce 0 1 2 3",
    );
    assert_eq!((bench.held().0, bench.flp.stats().late_stfs), (3, 1));
}

#[test]
fn an_announce_without_an_answer_is_retransmitted() {
    let mut bench = running(|_| {});
    bench.check(
        "stf 0; stf 1      => announce 0 1
         wait 50; stf 2    => announce 2
         wait 49           =>
         assign 0#1>0      => send 0#1 to 0
         wait 1            => announce 1
         wait 50           => announce 2
         wait 150          => announce 0 1 2
         release 1 3       =>
         wait 1000         =>",
    );
    assert_eq!(bench.flp.stats().repeated_announces, 5);
}

#[test]
fn an_answer_is_awaited_longer_by_the_run_delay() {
    let mut bench = running(|_| {});
    bench.flp.handle_run_delay(Duration::from_millis(250));
    bench.check(
        "stf 0             => announce 0
         wait 349          =>
         wait 1            => announce 0",
    );
}

#[test]
fn a_skip_is_retransmitted_until_the_fate_of_its_tf_is_known() {
    let mut bench = running(|config| config.pace = Pace::External);
    bench.check(
        "stf 1            => announce 1, skip 0 source-overrun
         assign 1#1>0     => send 1#1 to 0
         wait 99          =>
         wait 1           => skip 0 source-overrun
         release 1 1      =>
         wait 100         =>",
    );
}

#[test]
fn in_the_same_run_all_that_is_held_is_announced_again() {
    let mut bench = running(|_| {});
    bench.check(
        "make                       => announce 0 1 2
         assign 1#1>0; release 1 1  => send 1#1 to 0
         joins 9                    => announce 1 2
         wait 99                    =>
         wait 1                     => announce 2",
    );
}

proptest! {
    #[test]
    fn for_any_input_the_hold_keeps_its_bounds_and_every_tf_is_reported_once(
        drops in any::<bool>(),
        steps in prop::collection::vec((0..9_u8, 0..12_u64, 0..3_u16), 0..120),
    ) {
        let mut bench = running(|config| {
            config.pace = Pace::RateHz(100.0);
            config.when_full = if drops { WhenFull::DropNewest } else { WhenFull::Block };
            config.hold_bytes = 70;
            config.hold_stfs_max = 6;
        });
        let (mut version, mut announced) = (0, 0);
        let mut skipped = BTreeSet::new();
        for (step, near, epn) in steps {
            let tf = (bench.flp.next.0 + 3).saturating_sub(near);
            let script = match step {
                0..=2 => "make".to_owned(),
                3 => format!("assign {tf}#{}>{epn}", near % 4 + 1),
                4 => format!("open {epn}"),
                5 => format!("close {epn}"),
                6 => {
                    version += 1;
                    format!("release {version} {}", tf.saturating_sub(2))
                }
                7 if bench.flp.has_room(STF_BYTES as u64) => format!("stf {tf}"),
                _ => format!("wait {}", near * 3),
            };
            let repeated = bench.flp.stats().repeated_announces;
            let said = bench.after(&script);
            let of_kind = |kind: &str| -> Vec<String> {
                let words = said.split(", ").filter_map(|word| word.strip_prefix(kind));
                words.flat_map(|word| word.split(' ').map(str::to_owned)).collect()
            };
            let repeats = bench.flp.stats().repeated_announces - repeated;
            announced += of_kind("announce ").len() as u64 - repeats;
            // Each TF with its reason; repeated until its fate is known.
            skipped.extend(of_kind("skip ").iter().step_by(2).cloned());
            prop_assert!(of_kind("announce ").iter().all(|tf| !skipped.contains(tf)));
            let stats = bench.flp.stats();
            prop_assert!(bench.flp.held_stfs() <= 6 && bench.flp.held_bytes() <= 70);
            prop_assert_eq!(stats.made_stfs, announced);
            // A TF that is decided before it is skipped needs no report.
            prop_assert!(skipped.len() as u64 <= stats.skipped_stfs);
            prop_assert_eq!(stats.made_stfs, stats.released_stfs + stats.late_stfs + bench.flp.held_stfs() as u64);
        }
    }
}
