//! Tests of placing: announce, assign, queue, and the fate of a TF that fits nowhere.

use super::*;

#[test]
fn a_tf_is_assigned_when_all_have_announced_it_and_delivered_when_built() {
    farm(2, 2).check(
        "flp 0 has 0      =>
         flp 1 has 0      => assign 0#1>0
         epn 0 built 0    => 0 complete, commit 0 epn:0
         epn 0 acks 0     =>",
    );
}

#[test]
fn announces_of_several_events_leave_in_one_batch() {
    let mut bench = farm(1, 2);
    assert_eq!(bench.after("flp 0 has 0-2"), "assign 0#1>0 1#1>1 2#1>0");
}

#[test]
fn an_epn_hears_the_roster_before_the_first_assignment_that_names_it() {
    let mut bench = farm(2, 1);
    bench.shown = &["roster", "assign"];
    bench.check(
        "flps have 0 => epn:0: roster 0 1, epn:0: 0#1>0, assign 0#1>0
         flps have 1 => epn:0: 1#1>0, assign 1#1>0
         flp 1 gone  => epns: flp:1 gone
         flps have 2 => epn:0: roster 0, epn:0: 2#1>0, assign 2#1>0",
    );
}

#[test]
fn an_epn_that_knows_the_newer_roster_is_sent_the_older_one_too() {
    let mut bench = farm(2, 2);
    bench.shown = &["roster"];
    bench.check(
        "flp 0 has 0-1                  =>
         flp 2 joins                    => start flp:2 at 2
         epn 1 silent                   =>
         flps have 2                    => epn:0: roster 0 1 2, assign 2#1>0
         flp 1 has 0                    => epn:0: roster 0 1, assign 0#1>0
         flp 1 has 1                    => assign 1#1>0",
    );
}

#[test]
fn for_a_missing_announce_the_most_that_its_flp_may_bring_is_reserved() {
    let mut bench = farm(2, 1);
    bench.check(
        "flp 0 has 0 of 10  =>
         wait 49            =>
         wait 1             => assign 0#1>0",
    );
    assert_eq!(bench.booked(0), (10 + STF_BYTES_MAX, 1));
    bench.check("flp 1 has 0 of 5 =>");
    assert_eq!(bench.booked(0), (15, 1));
    bench.check(
        "epn 0 built 0 => 0 complete, commit 0 epn:0
         epn 0 acks 0  =>",
    );
    assert_eq!(bench.booked(0), (0, 0));
}

#[test]
fn a_tf_without_room_waits_and_the_oldest_goes_first() {
    let mut bench = farm(1, 0);
    bench.after("epn 0 joins 25 9");
    bench.check(
        "flp 0 has 0-4   => assign 0#1>0 1#1>0
         wait 1000       => assign 0#2>0 1#2>0
         epn 0 built 0   => 0 complete, commit 0 epn:0
         epn 0 acks 0    => assign 2#1>0
         epn 0 built 1   => 1 complete, commit 1 epn:0
         epn 0 acks 1    => assign 3#1>0
         epn 1 joins     => assign 4#1>1",
    );
    assert_eq!(bench.scheduler.queued(), 0);
}

#[test]
fn what_the_consumer_holds_is_no_room() {
    let mut bench = farm(1, 0);
    bench.check(
        "epn 0 joins 25 9                =>
         flp 0 has 0                     => assign 0#1>0
         epn 0 built 0; epn 0 acks 0 20  => 0 complete, commit 0 epn:0
         flp 0 has 1                     =>
         epn 0 pulse                     => assign 1#1>0",
    );
}

#[test]
fn one_tf_that_fits_nowhere_now_does_not_hold_up_the_others() {
    let mut bench = farm(1, 0);
    bench.after("epn 0 joins 100 9");
    bench.check(
        "flp 0 has 0 of 60  => assign 0#1>0
         flp 0 has 1 of 90  =>
         flp 0 has 2 of 50  =>
         flp 0 has 3 of 20  => assign 3#1>0
         epn 0 built 3      => 3 complete, commit 3 epn:0
         epn 0 acks 3       =>
         epn 0 built 0      => 0 complete, commit 0 epn:0
         epn 0 acks 0       => assign 1#1>0",
    );
    assert_eq!(bench.scheduler.queued(), 1);
}

#[test]
fn when_the_queue_is_full_the_newest_is_shed() {
    let mut bench = farm_with(1, 1, |config| config.queue_tfs_max = 2);
    bench.after("epn 0 silent");
    assert_eq!(
        bench.after("flp 0 has 0-3"),
        "2 dropped shed-overload, 3 dropped shed-overload"
    );
    assert_eq!(bench.after("epn 0 heard"), "assign 0#1>0 1#1>0");
    assert_eq!(bench.dropped("shed-overload"), 2);
}

#[test]
fn a_tf_that_was_assigned_is_not_shed_and_goes_before_those_that_never_were() {
    let mut bench = farm_with(1, 1, |config| config.queue_tfs_max = 5);
    bench.check(
        "flp 0 has 0-2           => assign 0#1>0 1#1>0 2#1>0
         epn 0 silent            =>
         flp 0 has 3-4           =>
         epn 0 dead              =>
         epn 0.2 joins           => assign 0#2>0.2 1#2>0.2 2#2>0.2 3#1>0.2 4#1>0.2",
    );
}

#[test]
fn a_tf_whose_epn_died_is_not_shed_though_the_queue_is_full() {
    let mut bench = farm_with(1, 1, |config| config.queue_tfs_max = 1);
    bench.check(
        "flp 0 has 0-2                => assign 0#1>0 1#1>0 2#1>0
         epn 0 silent; epn 0 dead     =>
         flp 0 has 3                  => 3 dropped shed-overload
         epn 0.2 joins                => assign 0#2>0.2 1#2>0.2 2#2>0.2",
    );
}

#[test]
fn an_stf_above_the_limit_of_the_farm_is_oversize() {
    let mut bench = farm(2, 1);
    bench.check(
        "flp 0 has 0 of 101  =>
         flp 1 has 0         => 0 dropped oversize",
    );
    let mut bench = farm_with(2, 1, |config| config.incomplete = Incomplete::Allow);
    bench.check(
        "flp 0 has 0 of 101      =>
         flp 1 has 0             => epn:0: 0 without 0, assign 0#1>0
         epn 0 built 0 without 0 => 0 incomplete without 0, commit 0 epn:0 without 0",
    );
}

#[test]
fn a_tf_larger_than_every_epn_is_oversize_and_one_without_any_epn_waits() {
    let mut bench = farm(1, 0);
    bench.check(
        "flp 0 has 0          =>
         epn 0 joins 50 1     => assign 0#1>0
         flp 0 has 1 of 51    => 1 dropped oversize",
    );
}

#[test]
fn a_tf_that_may_turn_out_smaller_is_not_oversize_yet() {
    let mut bench = farm(2, 0);
    bench.check(
        "epn 0 joins 35 9         =>
         flp 0 has 0; wait 50     =>
         flp 1 has 0              => assign 0#1>0",
    );
}

#[test]
fn a_pair_that_cannot_meet_is_left_out_until_a_second_has_passed() {
    let mut bench = farm(2, 2);
    bench.check(
        "flps have 0                     => assign 0#1>0
         flp 1 unreachable 0             => assign 0#2>1
         flps have 1-2                   => assign 1#1>1 2#1>1
         epn 0 pulse                     =>
         flp 1 gone                      => epns: flp:1 gone
         flp 0 has 3                     => assign 3#1>0",
    );
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 unreachable 0   =>
         flp 0 has 0           =>
         wait 999              =>
         wait 1                => assign 0#1>0",
    );
}

#[test]
fn an_unreachable_former_life_of_an_epn_does_not_count_for_the_new_one() {
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 unreachable 0        =>
         epn 0 dead; epn 0.2 joins  =>
         flp 0 unreachable 0        =>
         flp 0 has 0                => assign 0#1>0.2",
    );
}

#[test]
fn the_release_names_a_floor_and_what_is_decided_above_it() {
    let mut bench = farm(1, 1);
    bench.shown = &["release"];
    bench.check(
        "flp 0 has 0-4 => assign 0#1>0 1#1>0 2#1>0 3#1>0 4#1>0
         epn 0 built 3 => 3 complete, commit 3 epn:0
         epn 0 acks 3  => flps: release v1 0 3..4, epns: release v1 0 3..4
         epn 0 built 0; epn 0 built 1; epn 0 built 4 => \
            0 complete, commit 0 epn:0, 1 complete, commit 1 epn:0, 4 complete, commit 4 epn:0
         epn 0 acks 0-1  => flps: release v3 2 3..4, epns: release v3 2 3..4
         flp 0 pulse 3   =>
         flp 0 pulse 2   =>
         wait 100        => commit 4 epn:0
         flp 0 pulse 2   => flp:0: release v3 2 3..4
         epn 0 pulse 1   => epn:0: release v3 2 3..4
         epn 0 acks 4    => flps: release v4 2 3..5, epns: release v4 2 3..5
         epn 0 built 2   => 2 complete, commit 2 epn:0
         epn 0 acks 2    => flps: release v5 5, epns: release v5 5",
    );
}

#[test]
fn the_heartbeat_calls_on_absolute_deadlines_and_assigns_at_once() {
    let mut bench = farm_with(2, 2, |config| {
        config.mode = Mode::Paced;
        config.paced_rate_hz = 200.0;
    });
    bench.check(
        "wait 0    => pace 0, assign 0#1>0
         wait 4    =>
         wait 2    => pace 1, assign 1#1>1
         wait 3    =>
         wait 1    => pace 2, assign 2#1>0
         wait 10   => pace 3 4, assign 3#1>1 4#1>0",
    );
    assert_eq!(bench.scheduler.next_pace_at(), Some(Timestamp(25_000_000)));
    assert_eq!(bench.scheduler.stats().pace_late_ns_max, 5_000_000);
}

#[test]
fn the_last_room_of_an_epn_is_for_tfs_that_wait_for_room_only() {
    let mut bench = farm_with(1, 0, |config| config.mode = Mode::Paced);
    bench.after("epn 0 joins 1000 2");
    bench.check(
        "wait 0         => pace 0, assign 0#1>0
         wait 20        => pace 1
         wait 20        => pace 2
         flp 0 has 2    => assign 2#1>0
         flp 0 has 0-1  =>
         epn 0 built 2  => 2 complete, commit 2 epn:0
         epn 0 acks 2   => assign 1#1>0",
    );
    // And bytes as slots: 200 are reserved for what is called for.
    let mut bench = farm_with(1, 0, |config| config.mode = Mode::Paced);
    bench.after("epn 0 joins 399 9");
    bench.check(
        "wait 0         => pace 0, assign 0#1>0
         flp 0 has 0    =>
         wait 20        => pace 1
         flp 0 has 1    => assign 1#1>0",
    );
}

#[test]
fn the_oldest_tf_may_take_the_last_room_though_not_all_have_announced_it() {
    let mut bench = farm(2, 0);
    bench.after("epn 0 joins 1000 1");
    bench.check(
        "flp 0 has 0-1; wait 50   => assign 0#1>0
         epn 0 built 0 without 1  => 0 dropped source-late",
    );
}

#[test]
fn the_queue_is_in_the_order_of_the_tfs() {
    let mut bench = farm(2, 0);
    bench.after("epn 0 joins 100 9");
    bench.check(
        "flps have 0 of 45               => assign 0#1>0
         flp 0 has 2 of 6; wait 50       =>
         flps have 1 of 6                =>
         flp 1 has 2 of 5                =>
         epn 0 built 0; epn 0 acks 0     => 0 complete, commit 0 epn:0, assign 1#1>0 2#1>0",
    );
}

#[test]
fn the_heartbeat_does_not_drift_in_a_million_calls() {
    let mut bench = farm_with(1, 0, |config| {
        config.mode = Mode::Paced;
        config.paced_rate_hz = 351.4;
    });
    bench.scheduler.frontier = TfId(1_000_000);
    let due = bench.scheduler.next_pace_at().expect("the run has begun");
    let exact = 1e6 / 351.4 * 1e9;
    assert!(
        (due.0 as f64 - exact).abs() <= 1.0,
        "{due:?} instead of {exact}"
    );
}

#[test]
fn a_paced_tf_gives_back_what_it_did_not_need() {
    let mut bench = farm_with(2, 1, |config| config.mode = Mode::Paced);
    assert_eq!(bench.after("wait 0"), "pace 0, assign 0#1>0");
    assert_eq!(bench.booked(0), (200, 1));
    bench.after("flp 0 has 0");
    assert_eq!(bench.booked(0), (200, 1));
    bench.after("flp 1 has 0 of 7");
    assert_eq!(bench.booked(0), (17, 1));
}

#[test]
fn in_paced_mode_only_the_heartbeat_calls_a_tf() {
    let mut bench = farm_with(2, 1, |config| config.mode = Mode::Paced);
    bench.check(
        "wait 0                                    => pace 0, assign 0#1>0
         flp 0 has 1-9; flp 1 skips 3 source-late  =>
         wait 20                                   => pace 1, assign 1#1>0",
    );
    assert_eq!(bench.scheduler.accounting().announced, 2);
    assert_eq!(bench.scheduler.accounting().sources[&FlpId(0)].outside, 9);
}

#[test]
fn a_tf_that_fits_nowhere_does_not_hold_up_one_that_its_leaving_epn_may_finish() {
    let mut bench = farm(1, 2);
    bench.check(
        "flp 0 has 0-1             => assign 0#1>0 1#1>1
         epn 1 leaves              =>
         epn 0 dead                =>
         epn 1 silent              =>
         epn 1 heard               => assign 1#2>1
         epn 1 built 1#2           => 1 complete, commit 1 epn:1
         epn 1 acks 1              =>",
    );
}
