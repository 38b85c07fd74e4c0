//! Tests of FLPs that are not heard: waited for as long as the holds of the others last.

use super::*;

/// Returns a farm of two FLPs and one EPN that has data streams of both.
fn streaming() -> Bench {
    let mut bench = farm(2, 1);
    bench.after("epn 0 streams 0 1");
    bench
}

#[test]
fn an_flp_that_is_cut_off_keeps_its_tfs_and_new_ones_go_on_without_it() {
    let mut bench = streaming();
    bench.check(
        "flps have 0-1             => assign 0#1>0 1#1>0
         flp 1 silent; flp 1 expired =>
         flp 0 has 2               => assign 2#1>0
         epn 0 built 2             => 2 complete, commit 2 epn:0
         epn 0 acks 2              =>
         wait 1000                 =>
         epn 0 built 0 without 1   =>
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 acks 0              =>
         flp 1 joins               => start flp:1 at 0
         flps have 3               => assign 3#1>0
         epn 0 built 1             => 1 complete, commit 1 epn:0",
    );
    assert_eq!(bench.scheduler.accounting().dropped_total(), 0);
}

#[test]
fn an_flp_that_is_just_back_may_still_send_what_it_holds() {
    let mut bench = streaming();
    bench.check(
        "flps have 0               => assign 0#1>0
         flp 1 silent              =>
         flp 1 heard               =>
         epn 0 built 0 without 1   =>
         epn 0 built 0             => 0 complete, commit 0 epn:0",
    );
}

#[test]
fn an_flp_without_any_data_stream_has_died() {
    let mut bench = streaming();
    bench.check(
        "flp 0 has 0               =>
         flp 1 silent; flp 1 expired =>
         epn 0 streams 0             => epns: flp:1 gone, 0 dropped source-died
         flp 0 has 1               => assign 1#1>0",
    );
}

#[test]
fn an_flp_whose_streams_closed_before_its_grace_was_over_has_died() {
    let mut bench = streaming();
    bench.check(
        "flp 0 has 0               =>
         epn 0 streams 0; flp 1 silent =>
         flp 1 expired             => epns: flp:1 gone, 0 dropped source-died",
    );
}

#[test]
fn a_later_life_of_an_flp_that_was_cut_off_ends_the_wait() {
    let mut bench = streaming();
    bench.check(
        "flp 0 has 0               =>
         flp 1 silent; flp 1 expired =>
         flp 1.2 joins             => epns: flp:1 gone, 0 dropped source-died, start flp:1 at 1",
    );
}

#[test]
fn the_wait_for_an_flp_that_is_cut_off_ends_with_its_time() {
    let mut bench = farm_with(2, 1, |config| {
        config.source_cut_ms = 300;
        config.announce_deadline_ms = 1000;
    });
    bench.after("epn 0 streams 0 1");
    bench.check(
        "flp 0 has 0               =>
         flp 1 silent; flp 1 expired =>
         wait 200                  =>
         wait 100                  => epns: flp:1 gone, 0 dropped source-cut",
    );
}

#[test]
fn the_wait_ends_when_the_tfs_fill_three_quarters_of_a_hold() {
    let mut bench = streaming();
    bench.check(
        "flp 0 has 0-4             =>
         flp 1 silent; flp 1 expired =>
         wait 40                   =>
         wait 100                  => assign 0#1>0 1#1>0 2#1>0 3#1>0 4#1>0",
    );
    let mut bench = streaming();
    let script = "flp 0 has 0-5; flp 1 silent; flp 1 expired; wait 100";
    let words = bench.after(script);
    assert!(words.contains("5 dropped source-cut"), "{words}");
    assert_eq!(bench.dropped("source-cut"), 6);
}

#[test]
fn an_flp_that_is_merely_silent_is_waited_for_and_then_left_behind() {
    let mut bench = farm_with(2, 1, |config| config.announce_deadline_ms = 10_000);
    bench.check(
        "flp 0 has 0-3             =>
         flp 1 silent              =>
         wait 900                  =>
         flp 0 has 4               =>
         wait 100                  =>
         flp 0 has 5               => assign 5#1>0
         flp 1 heard               =>
         flp 1 has 0-4             => assign 0#1>0 1#1>0 2#1>0 3#1>0 4#1>0
         flp 0 has 6               =>",
    );
    assert_eq!(bench.scheduler.accounting().dropped_total(), 0);
}

#[test]
fn an_flp_that_stays_silent_is_given_up_when_it_fills_a_hold_and_is_taken_back() {
    let mut bench = farm_with(2, 1, |config| config.announce_deadline_ms = 10_000);
    bench.check(
        "flp 0 has 0-5             =>
         flp 1 silent              =>
         wait 900                  =>",
    );
    bench.after("wait 100");
    assert_eq!(bench.dropped("source-cut"), 6);
    bench.check(
        "flp 0 has 6               => assign 6#1>0
         flp 1 heard               =>
         flps have 7               => assign 7#1>0",
    );
}
