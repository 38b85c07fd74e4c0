//! Tests of sending: over streams that come and go.

use super::*;
use sheaf_protocol::control::digest_of_targets;

#[test]
fn an_stf_goes_where_it_is_assigned() {
    running(|_| {}).check(
        "make                => announce 0 1 2
         assign 1#1>1 0#1>0  => send 1#1 to 1, send 0#1 to 0
         assign 1#1>1        =>",
    );
}

#[test]
fn an_assignment_may_come_before_its_stf() {
    running(|_| {}).check(
        "assign 1#1>1; assign 1#2>0; assign 1#1>1  =>
         make                                      => send 1#2 to 0, announce 0 1 2",
    );
}

#[test]
fn a_higher_attempt_sends_again_and_a_lower_one_is_ignored() {
    let mut bench = running(|_| {});
    bench.check(
        "stf 0         => announce 0
         assign 0#2>0  => send 0#2 to 0
         assign 0#1>1  =>
         assign 0#2>1  =>
         assign 0#3>1  => send 0#3 to 1
         assign 0#4>1  => send 0#4 to 1",
    );
    let stats = bench.flp.stats();
    assert_eq!(
        (stats.sent_stfs, stats.sent_bytes, stats.reassigned_stfs),
        (3, 30, 2)
    );
}

#[test]
fn an_assignment_of_what_is_skipped_is_ignored_and_of_what_is_released_answered() {
    running(|config| config.pace = Pace::External).check(
        "stf 1                      => announce 1, skip 0 source-overrun
         assign 0#1>0               =>
         release 1 2; assign 1#1>0  => released 1",
    );
}

#[test]
fn what_is_assigned_to_a_stream_that_is_not_open_goes_when_it_opens() {
    joined(|_| {}).check(
        "start 0; epns 0  => connect 0
         stf 0; stf 1     => announce 0 1
         assign 0#1>0     =>
         assign 1#1>1     =>
         open 0           => send 0#1 to 0
         open 1           =>
         epns 0 1         => connect 1
         open 1           => send 1#1 to 1",
    );
}

#[test]
fn what_a_broken_stream_may_have_lost_is_sent_again_until_it_is_released() {
    running(|_| {}).check(
        "make                => announce 0 1 2
         assign 0#1>0 1#1>0  => send 0#1 to 0, send 1#1 to 0
         close 0             =>
         assign 2#1>0        =>
         release 1 1         =>
         assign 1#2>1        => send 1#2 to 1
         wait 10             => connect 0
         open 0              => send 2#1 to 0",
    );
}

#[test]
fn epns_that_join_are_connected_to_and_those_that_left_are_let_go() {
    let mut bench = running(|_| {});
    bench.check(
        "epns 0 1       =>
         epns 0 2       => disconnect 1, connect 2
         epns 0.2 2     => disconnect 0, connect 0.2
         close 1        =>
         wait 5000      =>
         leaving        =>",
    );
    assert_eq!(bench.flp.stats().unexpected_messages, 1);
}

#[test]
fn a_broken_stream_is_tried_again_within_spans_that_double_up_to_a_second() {
    let mut bench = running(|config| config.unreachable_ms = 1_000_000);
    bench.after("close 0");
    for pause_ms in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
        // Somewhere in the span: not all FLPs come back at the same moment.
        assert_eq!(bench.after(&format!("wait {pause_ms}")), "connect 0");
        assert_eq!(bench.after("wait 5000"), "", "it is connecting");
        bench.after("close 0");
    }
    bench.after("open 0; close 0");
    assert_eq!(bench.after("wait 10"), "connect 0");
}

#[test]
fn the_icn_hears_of_an_epn_out_of_reach_after_a_while_and_again() {
    let mut bench = running(|_| {});
    bench.check(
        "close 0             =>
         wait 10; close 0    => connect 0
         wait 189            => connect 0
         wait 1              => unreachable 0
         wait 199            =>
         wait 1              => unreachable 0
         open 0              =>
         wait 1000           =>
         close 0; wait 199   => connect 0
         wait 1              => unreachable 0
         epns 1              => disconnect 0
         wait 1000           =>",
    );
}

#[test]
fn the_pulse_names_the_known_epns() {
    let mut bench = running(|_| {});
    let mut known = |script: &str| {
        bench.after(script);
        bench.flp.pulse(bench.now).epns_digest
    };
    let both = known("epns 0 1");
    assert_eq!(both, digest_of_targets([target("0"), target("1")]));
    assert_ne!(known("epns 0"), both);
    assert_eq!(known("epns 1 0"), both, "whatever the order of the list");
    assert_eq!(known("epns"), 0);
}

fn granted() -> Bench {
    running(|config| {
        config.push = Push::Granted;
        config.eager_bytes = 5;
    })
}

#[test]
fn what_is_offered_goes_when_the_epn_asks_for_it() {
    let mut bench = granted();
    bench.check(
        "make                => announce 0 1 2
         assign 0#1>0 1#1>0  => offer 0 1 to 0
         grant 0 1           => send 1#1 to 0
         grant 0 1           =>
         grant 1 0           => withdraw 0 to 1
         assign 0#2>1        => offer 0 to 1
         grant 0 0 7         => withdraw 0 7 to 0
         grant 1 0           => send 0#2 to 1",
    );
    let stats = bench.flp.stats();
    assert_eq!((stats.offered_stfs, stats.sent_stfs), (3, 2));
}

#[test]
fn what_is_small_is_pushed_though_large_ones_are_offered() {
    granted().check(
        "stf 0 5; stf 1 6    => announce 0 1
         assign 0#1>0 1#1>0  => send 0#1 to 0, offer 1 to 0",
    );
}

#[test]
fn a_stream_that_opens_again_hears_all_offers_anew_also_of_what_the_old_one_was_granted() {
    granted().check(
        "stf 0; stf 1        => announce 0 1
         assign 0#1>0 1#1>0  => offer 0 1 to 0
         grant 0 0           => send 0#1 to 0
         close 0             =>
         grant 0 1           => withdraw 1 to 0
         open 0              => offer 0 1 to 0
         release 1 1; open 0 => offer 1 to 0",
    );
}

#[test]
fn what_was_sent_for_a_former_leader_goes_again_for_the_second_attempt_of_a_new_one() {
    let mut bench = running(|_| {});
    bench.after("stf 0; stf 1; assign 0#4>0 1#1>0");
    bench.flp.handle_joined(bench.now, RunId(9), true);
    bench.check(
        "assign 0#1>0  => announce 0 1
         assign 0#2>0  => send 0#2 to 0
         assign 1#2>0  => send 1#2 to 0",
    );
}

#[test]
fn what_a_former_leader_had_assigned_is_not_sent_before_the_new_one_assigns_it() {
    let mut bench = granted();
    bench.after("stf 0; assign 0#1>0");
    bench.flp.handle_joined(bench.now, RunId(9), true);
    bench.check(
        "grant 0 0     => withdraw 0 to 0, announce 0
         assign 0#1>0  => offer 0 to 0
         grant 0 0     => send 0#1 to 0",
    );
}
