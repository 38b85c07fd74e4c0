//! Tests of commits: few that are not acknowledged, and recalled at the end of a run without a consumer.

use super::*;

#[test]
fn an_epn_gets_one_commit_until_its_first_acknowledgement_and_then_few() {
    let mut bench = farm_with(1, 1, |config| config.commits_max = 2);
    bench.check(
        "flp 0 has 0-4             => assign 0#1>0 1#1>0 2#1>0 3#1>0 4#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 built 2             =>
         epn 0 built 1             =>
         epn 0 built 3             =>
         epn 0 acks 0              => 1 complete, commit 1 epn:0, 2 complete, commit 2 epn:0
         epn 0 acks 2              => 3 complete, commit 3 epn:0
         epn 0 acks 1; epn 0 acks 3 =>
         epn 0 built 4             => 4 complete, commit 4 epn:0",
    );
}

#[test]
fn an_epn_that_acknowledges_many_at_once_gets_as_many_while_it_does() {
    let mut bench = farm_with(1, 1, |config| {
        (config.commits_max, config.commits_ms) = (2, 50);
    });
    bench.check(
        "flp 0 has 0-9             => assign 0#1>0 1#1>0 2#1>0 3#1>0 4#1>0 5#1>0 6#1>0 7#1>0 8#1>0 9#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 acks 0              =>
         epn 0 built 1             => 1 complete, commit 1 epn:0
         epn 0 acks 1              =>
         epn 0 built 2             => 2 complete, commit 2 epn:0
         epn 0 acks 2              =>
         epn 0 built 3             => 3 complete, commit 3 epn:0
         epn 0 built 4             => 4 complete, commit 4 epn:0
         epn 0 built 5             => 5 complete, commit 5 epn:0
         epn 0 built 6             =>",
    );
    assert_eq!(bench.scheduler.commits_open(), 3);
    // The consumer pauses: two are all that may be committed then.
    bench.check(
        "wait 200                  => commit 3 epn:0, commit 4 epn:0, commit 5 epn:0
         epn 0 acks 3              =>
         epn 0 acks 4              => 6 complete, commit 6 epn:0
         epn 0 built 7             =>",
    );
    assert_eq!(bench.scheduler.commits_open(), 2);
}

#[test]
fn an_epn_gets_no_more_than_sixteen_times_as_many_commits() {
    let config = |commits_ms| SchedulerConfig {
        commits_max: 3,
        commits_ms,
        ..SchedulerConfig::default()
    };
    assert_eq!(config(1).commits_most(), 48);
    assert_eq!(config(0).commits_most(), 3);
}

#[test]
fn a_tf_that_waits_for_its_commit_moves_when_its_epn_dies_and_is_not_abandoned() {
    let mut bench = farm(1, 2);
    bench.check(
        "flp 0 has 0-3             => assign 0#1>0 1#1>1 2#1>0 3#1>1
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 built 2             =>
         epn 0 dead                => 0 abandoned, assign 2#2>1",
    );
    assert_eq!(bench.scheduler.accounting().abandoned, 1);
}

#[test]
fn a_tf_that_waits_for_its_commit_does_not_move_while_its_epn_lives() {
    let mut bench = farm_with(1, 2, |config| config.tf_deadline_ms = 50);
    bench.check(
        "flp 0 has 0-2             => assign 0#1>0 1#1>1 2#1>0
         epn 1 built 1             => 1 complete, commit 1 epn:1
         epn 1 acks 1              =>
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 built 2             =>
         wait 60                   =>
         wait 60                   => commit 0 epn:0
         epn 0 acks 0              => 2 complete, commit 2 epn:0",
    );
}

#[test]
fn a_report_that_waits_is_forgotten_with_the_silence_of_its_epn() {
    let mut bench = farm(1, 2);
    bench.check(
        "flp 0 has 0-2             => assign 0#1>0 1#1>1 2#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 built 2             =>
         epn 0 silent              => assign 2#2>1
         epn 0 heard; epn 0 acks 0 =>
         epn 0 built 2             => 2 complete, commit 2 epn:0",
    );
}

#[test]
fn what_is_on_the_disk_of_an_epn_is_committed_at_once() {
    let mut bench = waiting(1, 1, |_| {});
    bench.check(
        "epn 0 joins keeping; flp 0 joins; flps pulse => start flp:0 at 0
         flp 0 has 0-1             => assign 0#1>0 1#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 built 1             => 1 complete, commit 1 epn:0",
    );
}

#[test]
fn tfs_without_a_consumer_are_recalled_and_dropped_as_undelivered() {
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 has 0-1             => assign 0#1>0 1#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 built 1             =>
         stop                      => flps: stop
         flp 0 ended 2             => flps stop at 2
         wait 4000                 => commit 0 epn:0
         wait 1000                 => commit 0 epn:0, 1 dropped undelivered, recall 0 epn:0
         wait 100                  => commit 0 epn:0, recall 0 epn:0
         epn 0 returns 0           => 0 undelivered, flps: dismissed, epns: dismissed",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.complete, accounting.abandoned), (0, 0));
    assert_eq!((bench.dropped("undelivered"), accounting.bytes), (2, 0));
    assert_eq!(accounting.targets[&EpnId(0)].built, 0);
    let source = accounting.sources[&FlpId(0)];
    assert_eq!((source.announced, source.built, source.dropped), (2, 0, 2));
}

#[test]
fn a_tf_that_is_not_given_back_in_time_is_abandoned() {
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 has 0-0             => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         stop                      => flps: stop
         flp 0 ended 1             => flps stop at 1
         wait 5000                 => commit 0 epn:0, recall 0 epn:0
         epn 0 returns 7           =>
         wait 2900                 => commit 0 epn:0, recall 0 epn:0
         wait 100                  => commit 0 epn:0, 0 abandoned, flps: dismissed, epns: dismissed",
    );
    assert_eq!(bench.scheduler.accounting().complete, 1);
}

#[test]
fn a_tf_that_is_acknowledged_while_it_is_recalled_is_delivered() {
    let mut bench = farm(1, 1);
    bench.after("flp 0 has 0-0; epn 0 built 0; stop; flp 0 ended 1; wait 5000");
    let over = "flps: dismissed, epns: dismissed";
    assert_eq!(bench.after("epn 0 acks 0; epn 0 returns 0"), over);
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.complete, accounting.dropped_total()), (1, 0));
    assert_eq!(accounting.targets[&EpnId(0)].delivered, 1);
}

#[test]
fn a_leader_that_takes_over_counts_what_was_given_back_as_the_one_before() {
    let mut bench = farm_with(2, 1, |config| {
        config.incomplete = Incomplete::Allow;
        config.announce_deadline_ms = 10;
    });
    bench.after("flp 0 has 0-1; flp 1 has 1-1; flp 1 skips 0 source-overrun");
    bench.after("epn 0 built 0 without 1; epn 0 acks 0; epn 0 built 1");
    bench.after("stop; flp 0 ended 2; flp 1 ended 2; wait 5000; epn 0 returns 1");
    let mut summary = Summary::default();
    bench.log.iter().for_each(|record| summary.take(record));
    let (found, expected) = (summary.accounting(), bench.scheduler.accounting());
    assert_eq!(bench.dropped("undelivered"), 1);
    assert_eq!(found.announced, expected.announced);
    assert_eq!(
        (found.complete, found.incomplete, found.dropped, found.bytes),
        (
            expected.complete,
            expected.incomplete,
            expected.dropped,
            expected.bytes
        )
    );
    assert_eq!(found.targets, expected.targets);
}
