//! Tests of ack level `stored`: committed TFs outlive their EPN, and EPNs with a full disk get nothing.

use super::*;

/// Returns one FLP and two EPNs that have their reported TFs on disk.
fn keeping() -> Bench {
    let mut bench = waiting(1, 2, |_| {});
    for event in [
        "epn 0 joins keeping",
        "epn 1 joins keeping",
        "flp 0 joins",
        "flps pulse",
    ] {
        bench.event(event);
    }
    bench.words.clear();
    bench
}

#[test]
fn a_committed_tf_waits_for_the_next_life_of_its_epn_and_is_not_abandoned() {
    let mut bench = keeping();
    bench.check(
        "flp 0 has 0                => assign 0#1>0
         epn 0 built 0              => 0 complete, commit 0 epn:0
         epn 0 dead                 =>
         wait 1000                  =>
         epn 0.2 joins keeping      => recover 0.1 epn:0
         wait 100                   => recover 0.1 epn:0
         epn 0.2 acks 0             =>
         wait 100                   =>",
    );
    assert_eq!(bench.scheduler.accounting().abandoned, 0);
    assert_eq!(
        (
            bench.scheduler.strays(),
            bench.scheduler.accounting().complete
        ),
        (0, 1)
    );
}

#[test]
fn the_flps_may_forget_a_tf_that_waits_for_its_epn() {
    let mut bench = keeping();
    bench.shown = &["release"];
    bench.check(
        "flp 0 has 0       => assign 0#1>0
         epn 0 built 0     => 0 complete, commit 0 epn:0
         epn 0 dead        => flps: release v1 1, epn:1: release v1 1",
    );
}

#[test]
fn what_a_former_life_stored_of_undecided_tfs_is_discarded_and_built_anew() {
    let mut bench = keeping();
    bench.check(
        "flp 0 has 0-2             => assign 0#1>0 1#1>1 2#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 dead                => assign 2#2>1
         epn 0.2 joins keeping     => recover 0.1 epn:0
         epn 0.2 stored 0          => recover 0.1 epn:0
         epn 0.2 stored 2          => discard 2 epn:0, recover 0.1 epn:0
         epn 0.2 stored 77         => discard 77 epn:0, recover 0.1 epn:0",
    );
}

#[test]
fn an_epn_that_lost_its_disk_abandons_what_was_on_it() {
    let mut bench = keeping();
    bench.check(
        "flp 0 has 0-3             => assign 0#1>0 1#1>1 2#1>0 3#1>1
         epn 0 built 0; epn 0 built 2 => 0 complete, commit 0 epn:0, 2 complete, commit 2 epn:0
         epn 1 built 1             => 1 complete, commit 1 epn:1
         epn 0 dead; epn 1 dead    =>
         epn 0.2 joins keeping     => recover 0.1 epn:0 recover 2.1 epn:0, assign 3#2>0.2
         epn 0.2 lacks 2           => 2 abandoned
         epn 0.2 lacks 1           =>
         epn 1.2 joins             => 1 abandoned",
    );
}

#[test]
fn strays_are_abandoned_at_the_end_of_the_run() {
    let mut bench = keeping();
    bench.check(
        "flp 0 has 0       => assign 0#1>0
         epn 0 built 0     => 0 complete, commit 0 epn:0
         epn 0 dead; stop  => flps: stop
         flp 0 stopped 1   => flps stop at 1
         flp 0 ended 1     =>
         wait 4999         =>
         wait 1            => 0 abandoned, flps: dismissed, epns: dismissed",
    );
}

#[test]
fn an_acknowledgement_of_another_epn_means_nothing() {
    let mut bench = keeping();
    bench.after("flp 0 has 0; epn 0 built 0; epn 0 dead; epn 1 acks 0; epn 1 lacks 0");
    assert_eq!(bench.scheduler.strays(), 1);
}

#[test]
fn an_epn_whose_disk_is_full_gets_nothing_until_there_is_room_again() {
    let mut bench = keeping();
    bench.check(
        "flp 0 has 0-1   => assign 0#1>0 1#1>1
         epn 0 full      => assign 0#2>1
         flp 0 has 2-3   => assign 2#1>1 3#1>1
         epn 0 heard     =>
         flp 0 has 4     => assign 4#1>1
         epn 1 full      =>
         flp 0 has 5     =>
         epn 0 pulse     => assign 0#3>0 1#2>0 2#2>0 3#2>0 4#2>0 5#1>0",
    );
}

#[test]
fn a_tf_for_which_no_storage_is_left_is_shed_for_that_reason() {
    let mut bench = farm_with(1, 2, |config| config.queue_tfs_max = 1);
    bench.check(
        "epn 0 full; epn 1 full          =>
         flp 0 has 0-1                   => 1 dropped shed-storage-full
         flp 0 skips 2 source-overrun    => 2 dropped shed-storage-full
         epn 0 pulse                     => assign 0#1>0
         flp 0 skips 3 source-overrun    => 3 dropped source-overrun",
    );
}

#[test]
fn an_epn_that_was_only_presumed_dead_keeps_the_tfs_committed_to_it() {
    let mut bench = keeping();
    bench.shown = &["release"];
    bench.check(
        "flp 0 has 0-1         => assign 0#1>0 1#1>1
         epn 0 built 0         => 0 complete, commit 0 epn:0
         epn 0 dead            => flps: release v1 1, epn:1: release v1 1
         epn 0 joins keeping   => recover 0.1 epn:0
         epn 1 built 1         => 1 complete, commit 1 epn:1
         epn 1 acks 1          => flps: release v2 2, epn:0: release v2 0 1..2, epn:1: release v2 2
         epn 0 acks 0          => flps: release v3 2, epns: release v3 2",
    );
    assert_eq!(bench.scheduler.accounting().abandoned, 0);
}
