//! Tests of the pace: when STFs are made, and when no more.

use super::*;

#[test]
fn nothing_is_made_before_the_run_begins() {
    let mut bench = joined(|_| {});
    assert_eq!(bench.demand(), "nothing");
    assert_eq!(bench.after("stf 0"), "");
    assert_eq!(bench.flp.refused_stfs(), 1);
    assert!(!bench.flp.pulse(Timestamp(0)).started);
    bench.after("start 0");
    assert_eq!(bench.demand(), "make 0");
    assert!(bench.flp.pulse(Timestamp(0)).started);
}

#[test]
fn due_times_come_from_the_id_and_are_exact_after_a_million_tfs() {
    // The rate of ALICE: one TF in 32 orbits of 88.924 µs.
    let rate_hz = 351.4;
    let mut bench = running(|config| config.pace = Pace::RateHz(rate_hz));
    for tf in (0..=1_000_000).step_by(977).chain([1_000_000]) {
        bench.flp.next = TfId(tf);
        // 10 tf / 3514 s in whole ns, rounded: integers, so that the expectation has no error of its own.
        let due_ns = (u128::from(tf) * 10_000_000_000 + 1757) / 3514;
        bench.now = Timestamp(due_ns as u64 - u64::from(tf > 0) * 2);
        let expected = match tf {
            0 => "make 0".to_owned(),
            _ => format!("wait until {due_ns}"),
        };
        assert_eq!(bench.demand(), expected);
        bench.now = Timestamp(due_ns as u64);
        assert_eq!(bench.demand(), format!("make {tf}"));
    }
}

#[test]
fn an_flp_that_joins_late_falls_into_step() {
    let mut bench = joined(|config| config.pace = Pace::RateHz(100.0));
    bench.now = Timestamp(7_000_000_000);
    // TF 0 was due 93 ms ago: TF 9 was due 3 ms ago, TF 10 is in 7 ms.
    bench.after("start 9 1000 93000000");
    assert_eq!(bench.demand(), "make 9");
    assert_eq!(bench.after("make"), "announce 9");
    assert_eq!(bench.demand(), "wait until 7007000000");
}

#[test]
fn what_is_late_is_made_at_once() {
    let mut bench = running(|config| config.pace = Pace::RateHz(100.0));
    assert_eq!(bench.after("wait 25; make"), "announce 0 1 2");
}

#[test]
fn with_the_heartbeat_a_tf_is_made_when_it_is_called() {
    let mut bench = running(|config| config.pace = Pace::Icn);
    assert_eq!(bench.demand(), "nothing");
    bench.check(
        "pace 0 1; make                 => announce 0 1
         pace 1; pace 0; make           =>
         assign 2#1>0; pace 2; make     => send 2#1 to 0, announce 2",
    );
}

#[test]
fn a_call_that_was_lost_is_made_up_with_the_next_one() {
    let mut bench = running(|config| {
        config.pace = Pace::Icn;
        config.hold_stfs_max = 9;
    });
    bench.check(
        "pace 0; make      => announce 0
         pace 3; make      => announce 1 2 3
         stop-at 5; make   => announce 4, ended 5",
    );
}

#[test]
fn a_call_for_the_last_tf_that_can_be_named_is_survived() {
    let mut bench = running(|config| config.pace = Pace::Icn);
    bench.after("pace 18446744073709551615; pace 18446744073709551615");
    assert_eq!(bench.demand(), "make 0");
}

#[test]
fn a_source_of_its_own_pace_is_not_asked() {
    let mut bench = running(|config| config.pace = Pace::External);
    assert_eq!(bench.demand(), "nothing");
    assert!(bench.flp.is_running() && bench.flp.has_room(STF_BYTES_MAX));
    bench.check("stf 0; stf 1 => announce 0 1");
}

#[test]
fn what_a_source_leaves_out_is_skipped_and_what_comes_twice_is_refused() {
    let mut bench = running(|config| config.pace = Pace::External);
    bench.check(
        "stf 2        => announce 2, skip 0 source-overrun 1 source-overrun
         stf 2; stf 1 =>
         stf 3        => announce 3
         stf 65541    =>
         stf 18446744073709551615 =>",
    );
    let stats = bench.flp.stats();
    assert_eq!(
        (
            stats.made_stfs,
            stats.skipped_stfs,
            bench.flp.refused_stfs()
        ),
        (2, 2, 4)
    );
}

#[test]
fn tfs_that_a_source_gives_up_are_skipped_by_its_reason() {
    let mut bench = running(|config| config.pace = Pace::External);
    bench.check(
        "give-up 2; stf 3   => announce 3, skip 0 source-disorder 1 source-disorder 2 source-overrun
         give-up 3          =>
         give-up 4          =>
         give-up 65541      =>
         give-up 18446744073709551615 =>
         stf 4              => announce 4",
    );
    assert_eq!(bench.flp.refused_stfs(), 0);
}

#[test]
fn an_external_source_begins_with_the_first_tf_of_the_run() {
    let mut bench = joined(|config| config.pace = Pace::External);
    bench.check(
        "wait 100       =>
         offer 1000000  => position 1000000 in-step refused 0
         wait 99        =>
         wait 1         => position 1000000 in-step refused 0
         start 1000002 18446744073709551615 0 1000002; stf 1000000; stf 1000001 =>
         stf 1000002    => announce 1000002
         wait 100       => announce 1000002, position 0 in-step refused 2
         wait 50        =>",
    );
    let refused = bench.flp.refused(StfRefusal::BeforeFirst);
    assert_eq!(
        (refused.stfs, refused.found, refused.expected),
        (2, TfId(1_000_001), TfId(1_000_002))
    );
    assert_eq!(bench.flp.stats().skipped_stfs, 0, "no TF was lost");
}

#[test]
fn a_paced_source_counts_its_time_from_the_first_tf_of_the_run() {
    let mut bench = joined(|config| config.pace = Pace::RateHz(1000.0));
    bench.after("start 1000001 2000000 0 1000000");
    assert_eq!(bench.demand(), "wait until 1000000");
}

#[test]
fn a_counter_that_jumps_is_reported_and_taken_when_the_run_has_passed_over_the_gap() {
    let mut bench = running(|config| config.pace = Pace::External);
    bench.check(
        "stf 0; release 1 1         => announce 0
         stf 70000; wait 100        => position 70001 ahead refused 1
         stf 70001                  =>
         wait 100                   => position 70002 ahead refused 2
         release 2 1 1..3           =>
         stf 70002; wait 100        => position 70003 ahead refused 3
         release 3 70003            =>
         stf 70003; release 4 70004 => announce 70003
         wait 100                   => position 0 in-step refused 3",
    );
    assert_eq!(bench.flp.stats().skipped_stfs, 0);
}

#[test]
fn a_counter_that_goes_back_is_reported_and_taken_when_it_has_come_up_again() {
    let mut bench = running(|config| config.pace = Pace::External);
    bench.check(
        "stf 0; stf 1; release 1 2 => announce 0 1
         stf 0; wait 100  => position 0 behind refused 1
         stf 1            =>
         stf 2; release 2 3 => announce 2
         wait 100         => position 0 in-step refused 2",
    );
}

#[test]
fn a_source_that_jumps_over_the_end_skips_up_to_it_and_no_further() {
    let mut bench = running(|config| config.pace = Pace::External);
    bench.check(
        "stf 0                => announce 0
         stop                 => stopped 1
         stop-at 3            =>
         stf 7                => skip 1 source-overrun 2 source-overrun, ended 3
         stf 8; wait 99       =>
         wait 1               => announce 0, position 0 in-step refused 2, skip 1 source-overrun 2 source-overrun, \
                                 ended 3
         release 1 3          =>
         wait 100             => ended 3",
    );
    assert!(bench.flp.is_drained());
    assert_eq!(bench.flp.refused_stfs(), 2);
}

#[test]
fn an_stf_that_is_larger_than_promised_is_skipped_as_oversize() {
    let mut bench = running(|_| {});
    bench.check(
        "stf 0 21 => skip 0 oversize
         stf 1 20 => announce 1",
    );
    assert_eq!(bench.held(), (1, 20));
}

#[test]
fn a_plan_with_an_end_ends_there() {
    let mut bench = joined(|_| {});
    assert_eq!(bench.after("start 0 2; make"), "announce 0 1, ended 2");
    assert_eq!(bench.demand(), "nothing");
    assert_eq!(joined(|_| {}).after("start 4 4"), "ended 4");
}

#[test]
fn to_stop_it_pauses_then_goes_on_to_the_common_end() {
    let mut bench = running(|_| {});
    bench.check(
        "stf 0        => announce 0
         stop         => stopped 1
         make         =>
         stop         => stopped 1
         stop-at 3    =>
         make         => announce 1 2, ended 3
         stop-at 3    => ended 3
         stop         => ended 3
         wait 99      =>
         wait 1       => announce 0 1 2, ended 3",
    );
    assert!(!bench.flp.is_drained());
    bench.after("release 1 3");
    assert!(bench.flp.is_drained());
    bench.check("wait 100; dismissed => ended 3");
    assert!(bench.flp.is_dismissed());
    bench.check("wait 1000; make =>");
}

#[test]
fn when_the_source_is_over_all_made_is_announced_before_the_end() {
    let mut bench = running(|_| {});
    bench.check(
        "stf 0; stf 1; source-ends   => announce 0 1, ended 2
         source-ends; stf 2; make    =>",
    );
}

#[test]
fn a_run_that_stops_before_it_began_for_an_flp_can_do_without_it() {
    joined(|_| {}).check("stop => ended 0");
    // It comes back into a run that ends.
    joined(|_| {}).check(
        "stop-at 0  => ended 0
         stop-at 0  => ended 0",
    );
}

#[test]
fn a_source_that_is_over_before_the_run_is_reported() {
    joined(|_| {}).check(
        "source-ends  => ended 0
         start 0      =>
         make         =>",
    );
}

#[test]
fn a_new_run_knows_nothing_of_the_former_one() {
    let mut bench = running(|_| {});
    bench.check(
        "make                     => announce 0 1 2
         assign 1#1>0 7#1>0       => send 1#1 to 0
         joins 10                 =>
         assign 1#2>0             =>
         stop                     => ended 0",
    );
    assert_eq!(
        (bench.held(), bench.flp.stats().run_ended_stfs),
        ((0, 0), 3)
    );
    let mut bench = running(|_| {});
    bench.check(
        "make; release 7 2        => announce 0 1 2
         joins 10; start 0; make  => announce 0 1 2",
    );
    assert_eq!(bench.flp.pulse(Timestamp(0)).released_version, 0);
}
