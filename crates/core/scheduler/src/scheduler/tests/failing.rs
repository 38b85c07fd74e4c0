//! Tests with EPNs and FLPs that fall silent, die, come back, report late or twice.

use super::*;
use sheaf_protocol::control::{FlpPulse, digest_of_targets};

fn allowing(flps: u16, epns: u16, quorum_stfs_min: u32) -> Bench {
    farm_with(flps, epns, |config| {
        config.incomplete = Incomplete::Allow;
        config.quorum_stfs_min = quorum_stfs_min;
    })
}

#[test]
fn the_tf_of_a_silent_epn_moves_once_and_the_first_to_build_it_wins() {
    let mut bench = farm(1, 2);
    bench.check(
        "flp 0 has 0                 => assign 0#1>0
         epn 0 silent                => assign 0#2>1
         epn 0 silent; wait 50       =>
         epn 0 built 0               => 0 complete, commit 0 epn:0
         epn 1 built 0#2             =>
         epn 1 acks 0                =>
         epn 0 acks 0                =>
         epn 1 built 0#2; epn 0 built 0 =>",
    );
    assert_eq!(bench.scheduler.accounting().reassigned, 1);
}

#[test]
fn the_log_names_the_assignment_that_was_built() {
    let mut bench = farm(1, 2);
    bench.after("flp 0 has 0; epn 0 silent");
    let built = Built {
        tf: TfId(0),
        attempt: Attempt(1),
        missing: vec![],
        bytes: 10,
        first_byte_age_ns: 0,
        last_byte_age_ns: 0,
    };
    bench
        .scheduler
        .handle_epn(bench.now, target_of("0"), Control::Built(vec![built]));
    let record = bench.scheduler.poll_action();
    assert!(
        matches!(
            &record,
            Some(Action::Append(Record::Verdict {
                attempt: Attempt(1),
                ..
            }))
        ),
        "{record:?}"
    );
}

#[test]
fn room_for_a_tf_decided_elsewhere_returns_when_the_epn_has_heard_of_it() {
    let mut bench = farm(1, 2);
    bench.after("flp 0 has 0; epn 0 silent; epn 1 built 0#2; epn 1 acks 0");
    assert_eq!((bench.booked(0), bench.booked(1)), ((10, 1), (0, 0)));
    bench.after("epn 0 heard; epn 0 pulse 0");
    assert_eq!(bench.booked(0), (10, 1));
    bench.after("epn 0 pulse 1");
    assert_eq!(bench.booked(0), (0, 0));
}

#[test]
fn a_tf_without_another_epn_goes_back_to_the_one_that_is_heard_again() {
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 has 0-2  => assign 0#1>0 1#1>0 2#1>0
         epn 0 silent   =>
         epn 0 heard    => assign 0#2>0 1#2>0 2#2>0
         epn 0 built 0#2 => 0 complete, commit 0 epn:0",
    );
    assert_eq!(
        bench.booked(0),
        (30, 3),
        "one booking a TF, not one an attempt"
    );
}

#[test]
fn an_epn_that_waits_for_its_turn_may_finish_the_tf_that_is_queued() {
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 has 0    => assign 0#1>0
         epn 0 silent   =>
         epn 0 built 0  => 0 complete, commit 0 epn:0
         epn 0 heard    =>
         epn 0 acks 0   =>",
    );
    assert_eq!(bench.scheduler.queued(), 0);
}

#[test]
fn a_late_tf_moves_and_without_another_epn_its_holder_is_asked_again() {
    let mut bench = farm(1, 2);
    bench.check(
        "flp 0 has 0  => assign 0#1>0
         wait 399     =>
         wait 1       => assign 0#2>1
         wait 400     => assign 0#3>1",
    );
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 has 0  => assign 0#1>0
         late 100; wait 499 =>
         wait 1       => assign 0#2>0",
    );
}

#[test]
fn a_tf_and_a_commit_are_late_later_by_the_run_delays_on_their_way() {
    let mut bench = farm(1, 2);
    bench.check(
        "epn 0 waits 300; flp 0 waits 200; waits 50; wait 100 =>
         flp 0 has 0    => assign 0#1>0
         wait 949       =>
         wait 1         => assign 0#2>1
         epn 0 built 0  => 0 complete, commit 0 epn:0
         wait 449       =>
         wait 1         => commit 0 epn:0",
    );
    let delays: Vec<_> = bench.scheduler.run_delays().collect();
    let of = |node: sheaf_protocol::NodeId, ms: u64| (node, ms * 1_000_000);
    assert_eq!(
        delays,
        [
            of(FlpId(0).into(), 200),
            of(EpnId(0).into(), 300),
            of(EpnId(1).into(), 0)
        ]
    );
}

#[test]
fn a_late_tf_stays_while_an_flp_that_has_a_part_of_it_is_not_well() {
    let mut bench = farm(2, 2);
    bench.check(
        "flps have 0   => assign 0#1>0
         flp 1 silent  =>
         wait 5000     =>
         flp 1 heard   =>
         wait 399      =>
         wait 1        => assign 0#2>1",
    );
}

#[test]
fn an_assignment_that_its_epn_may_have_missed_is_retransmitted_with_its_roster() {
    let mut bench = farm(2, 1);
    bench.shown = &["roster", "assign"];
    bench.check(
        "flp 0 has 0; wait 50  => epn:0: roster 0 1, epn:0: 0#1>0, assign 0#1>0
         wait 399              =>
         wait 1                => epn:0: roster 0 1, epn:0: 0#1>0
         wait 400              => epn:0: roster 0 1, epn:0: 0#1>0",
    );
}

#[test]
fn an_epn_has_its_whole_time_after_the_last_announce() {
    let mut bench = farm(2, 2);
    bench.check(
        "flp 0 has 0; wait 50      => assign 0#1>0
         wait 1000                 =>
         flp 1 has 0               =>
         wait 399                  =>
         wait 1                    => assign 0#2>1",
    );
}

#[test]
fn the_tfs_of_a_dead_epn_move_and_its_committed_ones_are_abandoned_once() {
    let mut bench = farm(1, 2);
    bench.check(
        "flp 0 has 0-2                 => assign 0#1>0 1#1>1 2#1>0
         epn 0 built 0                 => 0 complete, commit 0 epn:0
         epn 0 cut                     => assign 2#2>1
         epn 0 dead                    => 0 abandoned
         epn 0 dead; epn 0 built 2; epn 0 acks 0 =>
         epn 1 built 2#2; epn 1 acks 2 => 2 complete, commit 2 epn:1",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!((accounting.complete, accounting.abandoned), (2, 1));
}

#[test]
fn a_commit_is_retransmitted_until_it_is_acknowledged() {
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 has 0    => assign 0#1>0
         epn 0 built 0  => 0 complete, commit 0 epn:0
         wait 99        =>
         wait 1         => commit 0 epn:0
         epn 0 built 0  => commit 0 epn:0
         epn 0 acks 0   =>
         wait 1000      =>
         epn 0 acks 0   =>",
    );
}

#[test]
fn an_epn_that_comes_back_alive_hears_everything_again() {
    let mut bench = farm(1, 1);
    bench.shown = &["assign", "roster"];
    bench.check(
        "flp 0 has 0-1  => epn:0: roster 0, epn:0: 0#1>0 1#1>0, assign 0#1>0 1#1>0
         epn 0 built 0  => 0 complete, commit 0 epn:0
         epn 0 joins    => epn:0: roster 0, epn:0: 0#1>0, commit 0 epn:0, epn:0: 1#1>0, assign 1#1>0",
    );
    assert_eq!(bench.booked(0), (20, 2));
}

#[test]
fn an_epn_in_a_new_life_begins_with_nothing() {
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 has 0-1                       => assign 0#1>0 1#1>0
         epn 0 built 0                       => 0 complete, commit 0 epn:0
         epn 0 cut; epn 0 dead               => 0 abandoned
         epn 0.2 joins                       => assign 1#2>0.2
         epn 0 built 1; epn 0 pulse 9        =>
         epn 0.2 built 1#2                   => 1 complete, commit 1 epn:0",
    );
    assert_eq!(bench.booked(0), (10, 1));
}

#[test]
fn what_is_sent_again_after_mere_silence_is_limited_but_not_after_a_cut() {
    let mut bench = farm_with(1, 0, |config| config.stf_bytes_max = 1 << 30);
    bench.after("epn 0 joins 1000000000 9; epn 1 joins 1000000000 9");
    bench.check(
        "flp 0 has 0 of 200000000    => assign 0#1>0
         epn 1 silent; epn 0 silent  =>
         epn 1 heard                 => assign 0#2>1
         epn 0 heard                 =>",
    );
    let mut bench = farm_with(1, 0, |config| config.stf_bytes_max = 1 << 30);
    bench.after("epn 0 joins 1000000000 9; epn 1 joins 1000000000 9");
    bench.check(
        "flp 0 has 0 of 300000000  => assign 0#1>0
         epn 0 silent              =>
         wait 10                   =>
         epn 0 cut                 => assign 0#2>1",
    );
    assert!(bench.scheduler.stats().moves_put_off > 0);
}

#[test]
fn the_parts_that_a_dead_flp_did_not_send_are_written_off() {
    let mut bench = farm(2, 2);
    bench.check(
        "flps have 0   => assign 0#1>0
         flp 0 has 1   =>
         flp 1 has 2   =>
         flp 1 gone    => epns: flp:1 gone, 1 dropped source-died
         flp 0 has 2   => 2 dropped source-died
         epn 0 built 0 => 0 complete, commit 0 epn:0
         flp 0 has 3   => assign 3#1>1",
    );
    let source = bench.scheduler.accounting().sources[&FlpId(1)];
    assert_eq!((source.built, source.skipped, source.outside), (1, 2, 1));
}

#[test]
fn with_incomplete_tfs_allowed_the_others_are_built_without_the_dead_flp() {
    let mut bench = allowing(3, 1, 2);
    bench.check(
        "flp 0 has 0; flp 1 has 0       =>
         flp 2 gone                     => epns: flp:2 gone, epn:0: 0 without 2, assign 0#1>0
         epn 0 built 0 without 2        => 0 incomplete without 2, commit 0 epn:0 without 2
         flp 0 has 1; flp 1 has 1       => assign 1#1>0",
    );
    assert_eq!(bench.booked(0), (40, 2));
    bench.check("epn 0 acks 0; epn 0 built 1    => 1 complete, commit 1 epn:0");
}

#[test]
fn below_the_quorum_a_tf_is_dropped_with_the_reason_of_the_first_that_lacks() {
    let mut bench = allowing(3, 1, 2);
    bench.check(
        "flp 0 has 0; flp 1 skips 0 source-overrun  =>
         flp 2 skips 0 source-late                  => 0 dropped source-overrun
         flps have 1                                => assign 1#1>0
         epn 0 built 1 without 0 2                  => 1 dropped source-late",
    );
    assert_eq!(bench.scheduler.accounting().sources[&FlpId(0)].dropped, 2);
}

#[test]
fn a_skip_drops_the_tf_or_notifies_the_epn_by_the_quorum_rule() {
    farm(2, 1).check(
        "flp 0 has 0                  =>
         flp 1 skips 0 source-overrun => 0 dropped source-overrun
         flp 0 has 1; wait 50         => assign 1#1>0
         flp 1 skips 1 source-overrun => epn:0: 1 without 1, 1 dropped source-overrun",
    );
    allowing(2, 1, 1).check(
        "flp 0 has 0; wait 50         => assign 0#1>0
         flp 1 skips 0 source-overrun => epn:0: 0 without 1
         epn 0 built 0 without 1      => 0 incomplete without 1, commit 0 epn:0 without 1",
    );
}

#[test]
fn a_tf_is_stale_only_where_it_is_built_now() {
    let mut bench = allowing(2, 2, 1);
    bench.check(
        "flps have 0                => assign 0#1>0
         epn 0 silent               => assign 0#2>1
         epn 0 built 0 without 1    =>
         epn 1 built 0#2 without 1  => 0 incomplete without 1, commit 0 epn:1 without 1",
    );
    let source = bench.scheduler.accounting().sources[&FlpId(1)];
    assert_eq!((source.announced, source.unused), (1, 1));
}

#[test]
fn a_stale_report_of_an_earlier_attempt_does_not_speak_for_the_present_one() {
    farm(2, 1).check(
        "flps have 0                   => assign 0#1>0
         wait 400                      => assign 0#2>0
         epn 0 built 0#1 without 1     =>
         epn 0 built 0#2 without 1     => 0 dropped source-late",
    );
}

#[test]
fn a_tf_waits_no_longer_than_a_stale_one_for_an_flp_that_reaches_no_epn() {
    let mut bench = allowing(2, 1, 1);
    bench.check(
        "flp 1 unreachable 0            =>
         flps have 0                    =>
         wait 900; flp 1 unreachable 0  =>
         wait 900; flp 1 unreachable 0  =>
         wait 199                       =>
         wait 1                         => epn:0: 0 without 1, assign 0#1>0",
    );
}

#[test]
fn an_stf_that_is_corrupt_at_its_source_is_given_up() {
    farm(2, 1).check(
        "flps have 0          => assign 0#1>0
         epn 0 corrupt 0 1    => epn:0: 0 without 1, 0 dropped corrupt-at-source
         epn 0 corrupt 0 1; epn 0 corrupt 7 1; epn 0 corrupt 0 9 =>",
    );
    allowing(2, 1, 1).check(
        "flps have 0              => assign 0#1>0
         epn 0 corrupt 0 1        => epn:0: 0 without 1
         epn 0 built 0 without 1  => 0 incomplete without 1, commit 0 epn:0 without 1",
    );
}

#[test]
fn an_flp_that_restarts_is_waited_for_from_a_boundary_on() {
    let mut bench = farm(2, 1);
    bench.check(
        "flp 0 has 0-1                =>
         flp 1 gone; flp 1.2 joins  => epns: flp:1 gone, 0 dropped source-died, 1 dropped source-died, start flp:1 at 2
         flp 1 has 2; flp 1.2 has 1   =>
         flp 0 has 2                  =>
         flp 1.2 has 2                => assign 2#1>0",
    );
    assert_eq!(
        bench.scheduler.flp_incarnation(FlpId(1)),
        Some(Incarnation(2))
    );
}

#[test]
fn an_flp_that_was_given_up_and_comes_back_alive_is_waited_for_again() {
    let mut bench = farm(2, 1);
    bench.check(
        "flps have 0           => assign 0#1>0
         flp 1 gone            => epns: flp:1 gone
         flp 0 has 1           => assign 1#1>0
         flp 1 joins           => epns: flp:1 back, start flp:1 at 0
         flp 1 has 1           =>
         flp 0 has 2           =>
         flp 1 has 2           => assign 2#1>0",
    );
}

#[test]
fn a_repeated_announce_is_answered_with_the_assignment() {
    let mut bench = farm(2, 1);
    bench.check(
        "flps have 0  => assign 0#1>0
         flp 0 has 0  => flp:0: 0#1>0
         flp 1 joins; flp 1 has 0 => flp:1: 0#1>0",
    );
    assert_eq!(bench.scheduler.accounting().sources[&FlpId(0)].announced, 1);
}

#[test]
fn what_does_not_belong_changes_nothing() {
    let mut bench = farm(2, 2);
    bench.after("flps have 0; epn 0 built 0; epn 0 acks 0; flps have 1; flp 0 has 2");
    let before = (
        bench.scheduler.accounting().clone(),
        bench.scheduler.view().clone(),
    );
    bench.check(
        "flp 9 has 3; flp 0.7 has 3; flp 0 has 65540              =>
         flp 0 has 18446744073709551615                           =>
         epn 9 built 2; epn 0.7 built 2; epn 0 built 9            =>
         epn 0 built 1; epn 0 built 2                             =>
         epn 1 acks 0; epn 0 acks 0-2; epn 1 acks 77              =>
         epn 0 built 0; epn 1 built 0; flp 0 skips 0 source-late  =>
         flp 0.7 gone; epn 0.7 dead; epn 9 cut; epn 0.7 heard     =>
         flp 9 silent; flp 0 unreachable 9; flp 0 unreachable 1.7 =>",
    );
    let mut accounting = bench.scheduler.accounting().clone();
    // All that is noted: two announces that were outside.
    assert_eq!(accounting.source(FlpId(0)).outside, 2);
    accounting.source(FlpId(0)).outside = 0;
    assert_eq!((accounting, bench.scheduler.view().clone()), before);
    assert_eq!(bench.scheduler.stats().unexpected_messages, 6);
}

#[test]
fn a_report_that_lacks_only_who_is_no_member_any_more_is_whole() {
    farm(2, 1).check(
        "flp 0 has 0; wait 50    => assign 0#1>0
         flp 1 ended 0           => assign 0#1>0
         epn 0 built 0 without 1 => 0 complete, commit 0 epn:0",
    );
}

#[test]
fn an_announce_of_who_is_not_in_the_roster_makes_no_tf() {
    let mut bench = farm(2, 1);
    bench.check(
        "flp 1 ended 3   =>
         flp 1 has 3     =>
         flp 1 skips 4 source-late =>
         flp 0 has 3     => assign 3#1>0",
    );
    assert_eq!(bench.scheduler.accounting().announced, 1);
}

#[test]
fn the_list_of_epns_is_retransmitted_only_to_nodes_that_have_another_one() {
    let mut bench = farm(2, 2);
    let digest = digest_of_targets([target_of("0"), target_of("1")]);
    for (flp, epns_digest) in [("0", digest), ("1", digest ^ 1)] {
        let pulse = FlpPulse {
            epns_digest,
            ..FlpPulse::default()
        };
        let pulse = Control::FlpPulse(pulse);
        bench.scheduler.handle_flp(bench.now, source_of(flp), pulse);
    }
    bench.settle();
    let mut told = Vec::new();
    for _ in 0..50 {
        bench.now = bench.now + Duration::from_millis(10);
        bench.scheduler.handle_tick(bench.now);
        while let Some(action) = bench.scheduler.poll_action() {
            if let Action::Send(to, Control::Epns(_)) = action {
                told.push(to);
            }
        }
    }
    assert!(told.len() > 1, "it is repeated");
    assert!(
        told.iter().all(|to| *to == Recipient::Flp(FlpId(1))),
        "{told:?}"
    );
}

#[test]
fn a_tf_whose_only_epn_no_flp_reaches_waits_for_it() {
    let mut bench = farm(2, 1);
    bench.after("flp 0 has 0; flp 1 has 0");
    for _ in 0..5 {
        bench.after("flp 0 unreachable 0; flp 1 unreachable 0; wait 900");
    }
    assert_eq!(bench.scheduler.accounting().dropped_total(), 0);
    assert_eq!(bench.scheduler.in_flight(), 1);
}

#[test]
fn a_tf_is_not_given_up_while_flps_still_notice_one_after_the_other_that_the_only_epn_is_cut_off() {
    let mut bench = farm(2, 1);
    bench.after("flps have 0; wait 3000; flp 0 unreachable 0; wait 20; flp 1 unreachable 0");
    for _ in 0..5 {
        bench.after("wait 900; flp 0 unreachable 0; flp 1 unreachable 0");
    }
    assert_eq!(bench.scheduler.accounting().dropped_total(), 0);
    let mut bench = farm(2, 1);
    bench.after("flps have 0; wait 3000; flp 0 unreachable 0; wait 499");
    assert_eq!(bench.scheduler.accounting().dropped_total(), 0);
    assert_eq!(bench.after("wait 1"), "0 dropped source-late");
}

#[test]
fn a_tf_is_not_given_up_while_reports_that_the_only_epn_is_cut_off_lapse_one_after_the_other() {
    let mut bench = farm(2, 1);
    bench.after("flps have 0; flp 0 unreachable 0; wait 20; flp 1 unreachable 0");
    for _ in 0..4 {
        bench.after("wait 800; flp 0 unreachable 0; wait 150; flp 1 unreachable 0");
    }
    bench.after("wait 850; flp 1 unreachable 0; wait 900; flp 1 unreachable 0; wait 90");
    assert_eq!(bench.scheduler.accounting().dropped_total(), 0);
    // One that goes on reporting, while the other one does not for as long again, is the only one that is cut off.
    assert_eq!(bench.after("wait 10"), "0 dropped source-late");
}

#[test]
fn the_last_word_of_an_flp_that_is_far_beyond_everything_is_not_believed() {
    let mut bench = farm(1, 1);
    bench.after("flp 0 has 0; epn 0 built 0; epn 0 acks 0");
    let next = TfId(u64::MAX);
    let ended = Control::Ended { next };
    bench.scheduler.handle_flp(bench.now, source_of("0"), ended);
    bench.after("flp 0 gone; wait 2000; wait 6000");
    assert!(bench.scheduler.accounting().announced <= 5000);
}
