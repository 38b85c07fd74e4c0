//! Tests of the list that the policy chooses from, which follows the deaths of EPNs, or does not.

use super::*;
use sheaf_placement::{Measured, Reaction, TargetId};

fn reacting(flps: u16, epns: u16, reaction: Reaction) -> Bench {
    farm_with(flps, epns, |config| {
        config.reaction = reaction;
        config.reset_ms = 300;
    })
}

#[test]
fn whitelist_takes_in_who_comes_and_leaves_out_who_goes_at_once() {
    reacting(1, 2, Reaction::Whitelist).check(
        "flp 0 has 0-1             => assign 0#1>0 1#1>1
         epn 0 dead                => assign 0#2>1
         epn 2 joins; flp 0 has 2  => assign 2#1>2
         epn 0.2 joins; flp 0 has 3 => assign 3#1>0.2",
    );
}

#[test]
fn blacklist_skips_the_dead_takes_them_back_at_their_place_and_takes_no_other() {
    reacting(1, 2, Reaction::Blacklist).check(
        "flp 0 has 0-1               => assign 0#1>0 1#1>1
         epn 2 joins; flp 0 has 2-3  => assign 2#1>0 3#1>1
         epn 0 silent                => assign 0#2>1 2#2>1
         epn 0 dead; flp 0 has 4     => assign 4#1>1
         epn 0.2 joins; flp 0 has 5  => assign 5#1>0.2",
    );
}

#[test]
fn reinitialise_pauses_after_a_death_and_never_takes_back_the_dead() {
    reacting(1, 3, Reaction::Reinitialise).check(
        "flp 0 has 0-2               => assign 0#1>0 1#1>1 2#1>2
         epn 0 dead; flp 0 has 3     =>
         wait 299                    =>
         wait 1                      => assign 0#2>1 3#1>2
         epn 0.2 joins; epn 4 joins  =>
         flp 0 has 4-6               => assign 4#1>1 5#1>2 6#1>1
         epn 1 leaves; epn 1 dead    => assign 0#3>2 1#2>2 4#2>2 6#2>2",
    );
}

#[test]
fn under_none_the_dead_go_on_getting_tfs_that_wait_for_their_deadline() {
    let mut bench = reacting(1, 2, Reaction::None);
    bench.check(
        "flp 0 has 0-1              => assign 0#1>0 1#1>1
         epn 1 built 1; epn 1 acks 1 => 1 complete, commit 1 epn:1
         epn 0 silent; epn 0 cut    =>
         epn 0 dead                 =>
         wait 100; flp 0 has 2      => assign 2#1>0
         flp 0 unreachable 0        =>
         wait 299                   =>
         wait 1                     => assign 0#2>1
         wait 100                   => assign 2#2>1
         epn 1 built 0#2; epn 1 acks 0 => 0 complete, commit 0 epn:1
         epn 1 built 2#2; epn 1 acks 2 => 2 complete, commit 2 epn:1",
    );
    assert_eq!(bench.booked(0), (0, 0), "the dead hear of no release");
    bench.check(
        "epn 0.2 joins           =>
         flp 0 has 3-4           => assign 3#1>0.2 4#1>1
         epn 0.2 built 3; epn 0.2 acks 3 => 3 complete, commit 3 epn:0",
    );
}

#[test]
fn under_none_a_committed_tf_of_the_dead_is_abandoned_and_who_leaves_is_gone() {
    let mut bench = reacting(1, 2, Reaction::None);
    bench.check(
        "flp 0 has 0; epn 0 built 0  => assign 0#1>0, 0 complete, commit 0 epn:0
         epn 0 dead                  => 0 abandoned
         epn 1 pulse; epn 1 leaves; epn 1 dead => epn:1: dismissed",
    );
    assert_eq!(bench.booked(0), (0, 0));
    assert_eq!(bench.scheduler.view().len(), 1);
}

#[test]
fn a_fixed_list_outlives_the_leader_who_fixed_it() {
    for (reaction, chosen) in [
        (Reaction::Blacklist, "assign 0#1>0.2 1#1>1 2#1>0.2"),
        (Reaction::Reinitialise, "assign 0#1>1 1#1>1 2#1>1"),
        (Reaction::Whitelist, "assign 0#1>0.2 1#1>1 2#1>2"),
    ] {
        let mut bench = reacting(1, 2, reaction);
        bench.after("epn 0 dead; epn 2 joins");
        bench.take_over();
        bench.after("epn 0.2 joins; epn 1 joins; epn 2 joins; flp 0 joins; flps pulse; settled");
        assert_eq!(bench.after("flp 0 has 0-2"), chosen, "{reaction}");
    }
}

#[test]
fn equal_logs_and_events_make_equal_choices_of_a_new_leader_under_every_policy() {
    let script = "flp 0 joins; epn 0 joins; epn 1 joins; epn 2 joins; flps pulse; settled";
    for name in policy::NAMES {
        let choices = || {
            let mut bench = farm_with(1, 3, |config| (*name).clone_into(&mut config.policy));
            bench.after("flp 0 has 0-8; epn 0 built 0; epn 0 acks 0; epn 1 built 1; epn 1 acks 1");
            bench.take_over();
            bench.after(script);
            bench.after("flp 0 has 2-30")
        };
        let chosen = choices();
        assert_eq!(chosen, choices(), "{name}");
        assert!(chosen.contains("assign"), "{name}: {chosen}");
    }
}

fn measured_of(bench: &Bench, epn: u32) -> Measured {
    let view = bench.scheduler.view();
    *view.measured_of(TargetId(epn)).expect("a member")
}

#[test]
fn the_end_of_processing_is_measured_however_often_it_is_reported() {
    let mut bench = farm_with(1, 2, |config| {
        "earliest-finish".clone_into(&mut config.policy);
    });
    // Both TFs arrive at once; the consumer of EPN 0 takes 10 ms a TF, that of EPN 1 takes 30.
    bench.after("flp 0 has 0-3; epn 0 built 0; epn 0 acks 0 10; epn 1 built 1; epn 1 acks 1 10");
    bench.after("epn 0 frees 10 10; epn 1 frees 10 30");
    // Two more: one report of EPN 0 is lost, and the next one makes up for it.
    bench.after("epn 0 frees 30 30; epn 1 frees 20 60; epn 1 frees 30 90");
    let pace = |epn| measured_of(&bench, epn).processing_ns_per_mib as f64;
    let ratio = pace(1) / pace(0);
    assert!((2.8..3.2).contains(&ratio), "{ratio}");
    assert_eq!(measured_of(&bench, 0).bytes, 30);
}

#[test]
fn a_queued_tf_is_placed_when_a_consumer_has_finished() {
    let mut bench = farm_with(1, 1, |_| {});
    bench.after("flp 0 has 0; epn 0 built 0; epn 0 acks 0 995");
    assert_eq!(bench.after("flp 0 has 1"), "");
    assert_eq!(bench.after("epn 0 frees 995 10 with 0"), "assign 1#1>0");
}

#[test]
fn what_an_epn_finishes_is_measured_for_the_policies_that_learn() {
    let mut bench = farm_with(1, 2, |config| {
        "earliest-finish".clone_into(&mut config.policy);
    });
    // Each TF of EPN 0 arrives within 10 ms, each of EPN 1 takes 30. Both get as many until they are measured.
    let rounds = 16;
    for round in 0..rounds {
        let (first, second, freed) = (2 * round, 2 * round + 1, (round + 1) * STF_BYTES);
        bench.after(&format!(
            "flp 0 has {first}-{second}; wait 10; epn 0 built {first}; epn 0 acks {first}; \
             wait 20; epn 1 built {second}; epn 1 acks {second}"
        ));
        bench.after(&format!("epn 0 frees {freed} 0; epn 1 frees {freed} 0"));
    }
    let measured = |epn| measured_of(&bench, epn);
    assert_eq!(measured(0).jobs, rounds);
    assert_eq!(measured(0).bytes, rounds * STF_BYTES);
    assert!(measured(0).transfer_ns_per_mib * 2 < measured(1).transfer_ns_per_mib);
    assert_eq!(
        bench.after("flp 0 has 32-35"),
        "assign 32#1>0 33#1>0 34#1>0 35#1>1"
    );
}

#[test]
fn a_tf_found_decided_in_the_log_is_no_measure_of_its_epn() {
    let mut bench = farm(1, 1);
    bench.after("flp 0 has 0; epn 0 built 0");
    bench.take_over();
    bench.after("epn 0 joins; epn 0 acks 0");
    let measured = bench.scheduler.view().measured_of(TargetId(0));
    assert_eq!(measured.expect("a member").jobs, 0);
}
