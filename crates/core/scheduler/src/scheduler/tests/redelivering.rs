//! Tests of delivery at least once: what a dead EPN had committed is built again and delivered with a mark.

use super::*;
use crate::Delivery;

impl Bench {
    /// Checks that the log alone gives the accounting of the leader.
    pub(super) fn check_summary(&self) {
        let mut summary = Summary::default();
        self.log.iter().for_each(|record| summary.take(record));
        let (found, expected) = (summary.accounting(), self.scheduler.accounting());
        let counts = |it: &crate::Accounting| {
            let built = (it.complete, it.incomplete, it.dropped);
            (it.announced, built, it.abandoned, it.redelivered, it.bytes)
        };
        assert_eq!(counts(found), counts(expected));
        let targets = |it: &crate::Accounting| -> Vec<(EpnId, u64, u64)> {
            let targets = it.targets.iter();
            let targets = targets.map(|(epn, it)| (*epn, it.built, it.delivered));
            targets.filter(|(_, built, _)| *built > 0).collect()
        };
        assert_eq!(targets(found), targets(expected));
    }
}

fn again(flps: u16, epns: u16) -> Bench {
    farm_with(flps, epns, |config| config.delivery = Delivery::AtLeastOnce)
}

#[test]
fn a_committed_tf_of_a_dead_epn_is_built_elsewhere_and_delivered_with_a_mark() {
    let mut bench = again(2, 3);
    bench.shown = &["release"];
    bench.check(
        "flps have 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 silent              =>
         epn 0 cut                 =>
         epn 0 dead                => assign 0#2>1
         epn 0 acks 0              =>
         epn 1 built 0#2           => 0 again, commit 0 epn:1 marked
         wait 100                  => commit 0 epn:1 marked
         epn 1 acks 0              => flps: release v1 1, epns: release v1 1",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.announced, accounting.complete), (1, 1));
    assert_eq!((accounting.redelivered, accounting.abandoned), (1, 0));
    let of = |epn| accounting.targets[&EpnId(epn)];
    assert_eq!((of(0).built, of(1).built, of(1).delivered), (0, 1, 1));
    let source = accounting.sources[&FlpId(0)];
    assert_eq!((source.announced, source.built), (1, 1));
    bench.check_summary();
}

/// The report that a TF is built and the end of the life come in one turn of the ICN.
#[test]
fn a_commit_to_a_life_that_is_over_is_not_left_for_the_next_one() {
    for (is_over, expected) in [(false, 1), (true, 0)] {
        let mut bench = again(1, 2);
        bench.after("flp 0 has 0");
        let (now, target) = (bench.now, target_of("0"));
        let built = Control::Built(vec![Built {
            tf: TfId(0),
            attempt: Attempt(1),
            missing: Vec::new(),
            bytes: STF_BYTES,
            first_byte_age_ns: 2,
            last_byte_age_ns: 1,
        }]);
        bench.scheduler.handle_epn(now, target, built);
        if is_over {
            bench.scheduler.handle_epn_dead(now, target);
        }
        bench.scheduler.flush();
        let actions = std::iter::from_fn(|| bench.scheduler.poll_action());
        let commits = actions.filter(|action| {
            matches!(action, Action::Send(Recipient::Epn(epn), Control::Commit(_)) if *epn == target.epn)
        });
        assert_eq!(commits.count(), expected, "over: {is_over}");
    }
}

#[test]
fn while_it_is_built_again_its_verdict_stands_and_it_is_not_in_flight() {
    let mut bench = again(1, 2);
    bench.after("flp 0 has 0; epn 0 built 0; epn 0 dead");
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.complete, bench.scheduler.in_flight()), (1, 0));
    assert_eq!(bench.scheduler.decided_tfs(), 1);
    assert!(bench.scheduler.is_decided(TfId(0)));
    assert_eq!(bench.booked(1), (STF_BYTES, 1));
}

#[test]
fn a_chain_of_deaths_gives_a_chain_of_amendments_and_counts_once() {
    let mut bench = again(1, 3);
    bench.check(
        "flp 0 has 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 dead                => assign 0#2>1
         epn 1 built 0#2           => 0 again, commit 0 epn:1 marked
         epn 1 dead                => assign 0#3>2
         epn 2 dead                =>
         epn 2.2 joins             => assign 0#4>2.2
         epn 2.2 built 0#4         => 0 again, commit 0 epn:2 marked
         epn 2.2 acks 0            =>",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.redelivered, accounting.complete), (1, 1));
    assert_eq!(accounting.reassigned, 3);
    bench.check_summary();
}

#[test]
fn an_epn_that_comes_back_in_its_life_before_the_amendment_keeps_its_tf() {
    let mut bench = again(1, 2);
    bench.check(
        "flp 0 has 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 dead                => assign 0#2>1
         epn 0 joins               => commit 0 epn:0
         epn 1 built 0#2           =>
         epn 0 acks 0              =>",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.redelivered, accounting.abandoned), (0, 0));
    bench.check_summary();
}

#[test]
fn an_epn_that_comes_back_behind_the_amendment_changes_nothing() {
    let mut bench = again(1, 2);
    bench.check(
        "flp 0 has 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 dead                => assign 0#2>1
         epn 1 built 0#2           => 0 again, commit 0 epn:1 marked
         epn 0 joins; epn 0 acks 0 =>
         epn 1 acks 0              =>",
    );
    assert_eq!(bench.scheduler.accounting().redelivered, 1);
}

#[test]
fn an_epn_of_the_chain_that_is_asked_again_has_delivered_it() {
    let mut bench = again(1, 2);
    bench.check(
        "flp 0 has 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 dead                => assign 0#2>1
         epn 1 built 0#2           => 0 again, commit 0 epn:1 marked
         epn 0 joins               =>
         epn 1 dead                => assign 0#3>0
         epn 0 acks 0              =>",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.redelivered, accounting.abandoned), (1, 0));
    assert!(bench.scheduler.tfs.is_empty());
    bench.check_summary();
}

#[test]
fn a_tf_whose_source_has_died_is_abandoned_and_the_reason_is_told() {
    let mut bench = again(2, 2);
    bench.check(
        "flps have 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         flp 1 gone                => epns: flp:1 gone
         epn 0 dead                => 0 lost source-died, 0 abandoned",
    );
    bench.check(
        "flp 0 has 1               => assign 1#1>1
         epn 1 built 1             => 1 complete, commit 1 epn:1
         epn 1 dead                =>
         flp 0 gone                => epns: flp:0 gone, 1 lost source-died, 1 abandoned",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.complete, accounting.abandoned), (2, 2));
    assert_eq!(accounting.dropped_total(), 0);
    bench.check_summary();
}

#[test]
fn an_flp_that_is_late_is_waited_for_and_nothing_is_abandoned() {
    let mut bench = again(2, 2);
    bench.check(
        "flps have 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 dead                => assign 0#2>1
         epn 1 built 0#2 without 1 => assign 0#3>1
         epn 1 built 0#3           => 0 again, commit 0 epn:1 marked",
    );
}

#[test]
fn where_incomplete_tfs_are_allowed_the_second_delivery_may_lack_what_the_first_had() {
    let mut bench = farm_with(2, 2, |config| {
        config.delivery = Delivery::AtLeastOnce;
        config.incomplete = Incomplete::Allow;
    });
    bench.check(
        "flps have 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         flp 1 gone                => epns: flp:1 gone
         epn 0 dead                => epn:1: 0 without 1, assign 0#2>1
         epn 1 built 0#2 without 1 => 0 again without 1, commit 0 epn:1 marked without 1
         epn 1 acks 0              =>",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.complete, accounting.incomplete), (0, 1));
    let source = accounting.sources[&FlpId(1)];
    assert_eq!((source.announced, source.built, source.skipped), (0, 0, 1));
    bench.check_summary();
}

#[test]
fn a_leader_that_takes_over_builds_again_what_nobody_acknowledged_and_repeats_the_mark() {
    let mut bench = again(1, 3);
    bench.after("flp 0 has 0-1; epn 0 built 0; epn 1 built 1; epn 1 dead");
    bench.after("epn 2 built 1#2");
    bench.take_over();
    bench.check(
        "flp 0 joins; flp 0 has 0-1 =>
         epn 2 joins               => commit 1 epn:2 marked
         settled                   =>
         epn 0 dead                => assign 0#2>2
         epn 2 built 0#2           =>
         epn 2 acks 1              => 0 again, commit 0 epn:2 marked
         epn 2 acks 0              =>",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.redelivered, accounting.complete), (2, 2));
    bench.check_summary();
}

#[test]
fn what_an_flp_has_released_was_acknowledged_to_a_former_leader() {
    let mut bench = again(2, 2);
    bench.after("flps have 0-1; epn 0 built 0; epn 1 built 1");
    // The acknowledgement of TF 0 and its release to FLP 1 are not in the log.
    bench.take_over();
    bench.check(
        "flp 0 joins; flp 0 has 0-1  =>
         flp 1 joins; flp 1 has 1    =>
         epn 1 joins                 => commit 1 epn:1
         settled                     =>
         flp 1 released 1            =>
         epn 0 dead                  => assign 0#2>1
         flp 1 released 0            =>
         epn 1 built 0#2 without 1   =>
         epn 1 acks 1                =>",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.redelivered, accounting.complete), (0, 2));
    let targets = &accounting.targets;
    let delivered = |epn| targets[&EpnId(epn)].delivered;
    assert_eq!((delivered(0), delivered(1)), (1, 1));
    bench.check_summary();
}

#[test]
fn the_next_life_of_an_epn_ends_the_former_one_and_may_build_its_tfs() {
    let mut bench = again(1, 1);
    bench.after("flp 0 has 0; epn 0 built 0");
    bench.take_over();
    bench.check(
        "flp 0 joins; flp 0 has 0   =>
         epn 0.2 joins             =>
         settled                   => assign 0#2>0.2
         epn 0.2 built 0#2         => 0 again, commit 0 epn:0 marked",
    );
}

#[test]
fn the_end_of_the_drain_abandons_what_no_epn_has_built_again() {
    let mut bench = again(1, 2);
    bench.check(
        "flp 0 has 0-1             => assign 0#1>0 1#1>1
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 1 built 1             => 1 complete, commit 1 epn:1
         stop                      => flps: stop
         flp 0 ended 2             => flps stop at 2
         epn 0 dead                => assign 0#2>1
         epn 1 built 0#2           =>
         epn 1 dead                =>
         wait 5000                 => 0 lost run-ended, 0 abandoned, 1 lost run-ended, 1 abandoned, \
                                      flps: dismissed, epns: dismissed",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.complete, accounting.abandoned), (2, 2));
    bench.check_summary();
}

#[test]
fn a_second_delivery_that_no_consumer_took_leaves_the_first_unknown() {
    let mut bench = again(1, 2);
    bench.check(
        "flp 0 has 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 0 dead                => assign 0#2>1
         epn 1 built 0#2           => 0 again, commit 0 epn:1 marked
         stop                      => flps: stop
         flp 0 ended 1             => flps stop at 1
         wait 5000                 => commit 0 epn:1 marked, recall 0 epn:1
         epn 1 returns 0           => 0 abandoned, flps: dismissed, epns: dismissed",
    );
    assert_eq!(bench.dropped("undelivered"), 0);
    bench.check_summary();
}

#[test]
fn a_tf_that_is_built_again_waits_for_room_and_is_not_shed() {
    let mut bench = farm_with(1, 2, |config| {
        config.delivery = Delivery::AtLeastOnce;
        config.queue_tfs_max = 0;
    });
    bench.check(
        "flp 0 has 0               => assign 0#1>0
         epn 0 built 0             => 0 complete, commit 0 epn:0
         epn 1 dead; epn 0 dead    =>
         wait 3000                 =>
         epn 1.2 joins 5 4         =>
         epn 1.3 joins             => assign 0#2>1.3",
    );
}
