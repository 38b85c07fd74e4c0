//! Tests of a run: begin, end, drain, dismissal of its nodes.

use super::*;

#[test]
fn a_run_begins_when_its_quorum_is_there_in_whatever_order() {
    for order in [
        ["flp 0 joins", "flp 1 joins", "epn 0 joins"],
        ["epn 0 joins", "flp 1 joins", "flp 0 joins"],
        ["flp 1 joins", "epn 0 joins", "flp 0 joins"],
    ] {
        let mut bench = waiting(2, 1, |_| {});
        assert_eq!(bench.after(order[0]), "");
        assert_eq!(bench.after(order[1]), "");
        assert!(!bench.scheduler.has_begun());
        assert_eq!(bench.after(order[2]), "start flp:0 at 0, start flp:1 at 0");
    }
}

#[test]
fn an_flp_that_died_before_the_run_began_does_not_count() {
    waiting(2, 1, |_| {}).check(
        "flp 0 joins; flp 1 joins =>
         flp 1 gone               => epns: flp:1 gone
         epn 0 joins              => epn:0: flp:1 gone
         flp 1.2 joins            => start flp:0 at 0, start flp:1 at 0",
    );
}

#[test]
fn a_run_begins_with_the_highest_tf_that_a_source_begins_with() {
    let mut bench = waiting(3, 1, |_| {});
    bench.check(
        "epn 0 joins; flp 0 joins mute; flp 1 joins mute; flp 2 joins =>
         flp 0 begins 1000000 =>
         flp 1 begins 1000003 => start flp:0 at 1000003, start flp:1 at 1000003, start flp:2 at 1000003
         flps pulse; flps have 1000002 =>
         flps have 1000003    => assign 1000003#1>0",
    );
    let accounting = bench.scheduler.accounting();
    assert_eq!(accounting.announced, 1, "no TF before the first one exists");
    assert_eq!(bench.scheduler.in_flight(), 1);
}

#[test]
fn the_begin_awaits_a_source_without_an_id_for_so_long_only() {
    let mut bench = waiting(2, 1, |_| {});
    bench.check(
        "epn 0 joins; flp 0 joins mute; flp 1 joins mute =>
         wait 60000       =>
         flp 0 begins 500 =>
         wait 9999        =>",
    );
    assert_eq!(bench.scheduler.awaited_for_begin(), [FlpId(1)]);
    bench.check("wait 1 => start flp:0 at 500, start flp:1 at 500");
    assert_eq!(bench.scheduler.awaited_for_begin(), []);
}

#[test]
fn a_first_tf_of_the_plan_awaits_no_source() {
    let mut bench = waiting(1, 1, |_| {});
    bench.scheduler.plan.first_tf = Some(TfId(77));
    bench.check("epn 0 joins; flp 0 joins mute => start flp:0 at 77");
}

#[test]
fn a_run_of_so_many_tfs_ends_so_many_behind_its_first() {
    let mut bench = waiting(1, 1, |_| {});
    bench.scheduler.plan.timeframes = Some(5);
    bench.after("epn 0 joins; flp 0 joins mute; flp 0 begins 100");
    assert_eq!(bench.scheduler.end(), TfId(105));
}

#[test]
fn a_run_follows_its_sources_when_all_have_jumped_ahead() {
    let mut bench = farm(2, 1);
    bench.shown = &["release"];
    bench.check(
        "flps have 0           => assign 0#1>0
         flp 0 ahead 900000    =>
         flp 1 ahead 900002    => flps: release v1 0 1..900002, epns: release v1 0 1..900002
         flps have 1           =>
         epn 0 built 0         => 0 complete, commit 0 epn:0
         flps have 900002      => assign 900002#1>0",
    );
    assert_eq!(bench.scheduler.accounting().announced, 2);
    let passed = Record::Passed {
        first: TfId(1),
        end: TfId(900_002),
    };
    assert!(bench.log.contains(&passed), "{:?}", bench.log);
}

#[test]
fn a_later_leader_knows_the_first_tf_from_the_log_and_from_a_checkpoint() {
    let mut bench = waiting(1, 1, |_| {});
    bench.after("epn 0 joins; flp 0 joins mute; flp 0 begins 300; flps pulse; flps have 300");
    let mut summary = Summary::default();
    bench.log.iter().for_each(|record| summary.take(record));
    let mut of_checkpoint = Summary::default();
    let records = summary.clone().checkpoint(std::iter::empty());
    records.iter().for_each(|record| of_checkpoint.take(record));
    for summary in [summary, of_checkpoint] {
        assert_eq!((summary.first, summary.frontier), (TfId(300), TfId(300)));
        assert!(summary.released.contains(TfId(299)));
        assert!(!summary.released.contains(TfId(300)));
    }
}

#[test]
fn the_start_is_retransmitted_to_flps_that_missed_it() {
    let mut bench = waiting(2, 1, |_| {});
    bench.after("epn 0 joins; flp 0 joins; flp 1 joins");
    bench.check(
        "flp 0 pulse =>
         wait 100    => start flp:1 at 0
         flp 1 pulse =>
         wait 100    =>",
    );
}

#[test]
fn an_flp_that_joins_late_begins_at_the_frontier_and_in_step() {
    let mut bench = farm(1, 1);
    bench.after("flp 0 has 0-6; wait 30");
    let hello = flp_hello(10);
    bench
        .scheduler
        .handle_flp_joined(bench.now, source_of("1"), &hello);
    let position = Control::Position(Position::default());
    bench
        .scheduler
        .handle_flp(bench.now, source_of("1"), position);
    let start =
        std::iter::from_fn(|| bench.scheduler.poll_action()).find_map(|action| match action {
            Action::Send(Recipient::Flp(FlpId(1)), Control::Start(start)) => Some(start),
            _ => None,
        });
    let start = start.expect("the run goes on");
    assert_eq!((start.first, start.elapsed_ns), (TfId(7), 30_000_000));
}

#[test]
fn to_stop_all_pause_and_then_go_on_to_the_furthest() {
    let mut bench = farm(2, 1);
    bench.check(
        "flps have 0        => assign 0#1>0
         flp 1 has 1        =>
         stop               => flps: stop
         flp 0 stopped 1    =>
         wait 100           => flps: stop, assign 1#1>0
         flp 1 stopped 2    => flps stop at 2
         flp 0 has 1        =>
         flps ended 2       =>
         epn 0 built 0      => 0 complete, commit 0 epn:0
         epn 0 built 1      =>
         epn 0 acks 0       => 1 complete, commit 1 epn:0
         epn 0 acks 1       =>",
    );
    assert_eq!(
        bench.after("flps pulse; wait 1"),
        "flps: dismissed, epns: dismissed"
    );
    assert!(bench.scheduler.is_over());
    assert_eq!(bench.after("wait 100"), "flps: dismissed, epns: dismissed");
}

#[test]
fn a_paced_run_stops_at_the_next_heartbeat_that_was_not_called() {
    let mut bench = farm_with(1, 1, |config| config.mode = Mode::Paced);
    bench.check(
        "wait 40   => pace 0 1 2, assign 0#1>0 1#1>0 2#1>0
         stop      => flps stop at 3
         wait 1000 => flps stop at 3",
    );
}

#[test]
fn what_is_not_decided_when_the_drain_ends_is_closed() {
    let mut bench = farm(1, 1);
    bench.check(
        "flp 0 has 0-2   => assign 0#1>0 1#1>0 2#1>0
         epn 0 built 1   => 1 complete, commit 1 epn:0
         epn 0 silent    =>
         stop            => flps: stop
         flp 0 stopped 3 => flps stop at 3
         flp 0 ended 3   =>
         wait 4999       => commit 1 epn:0
         wait 1          => 0 dropped run-ended, 2 dropped run-ended, recall 1 epn:0
         wait 2999       => commit 1 epn:0, recall 1 epn:0
         wait 1          => 1 abandoned, flps: dismissed, epns: dismissed",
    );
    assert_eq!(bench.scheduler.in_flight(), 0);
}

#[test]
fn an_flp_that_does_not_answer_the_stop_does_not_keep_the_farm() {
    let mut bench = farm(2, 1);
    bench.after("stop; flp 0 stopped 0; wait 4999");
    assert_eq!(bench.scheduler.phase_name(), "stopping");
    bench.after("wait 1; wait 5000");
    assert!(bench.scheduler.is_over());
}

#[test]
fn an_flp_that_dies_while_all_stop_is_waited_for_a_moment_only() {
    let mut bench = farm(2, 1);
    bench.check(
        "flp 0 has 0      =>
         stop             => flps: stop
         flp 0 stopped 1  =>
         flp 1 gone       => epns: flp:1 gone, 0 dropped source-died, flps stop at 1
         flp 0 ended 1    =>
         flp 0 pulse; wait 1 =>",
    );
    bench.after("wait 1990; flp 0 pulse");
    assert!(
        !bench.scheduler.is_over(),
        "it may be back with TFs of its own"
    );
    bench.after("wait 20; flp 0 pulse; wait 1");
    assert!(bench.scheduler.is_over());
}

#[test]
fn an_flp_that_was_thought_gone_when_the_farm_drains_stops_where_the_others_did() {
    let mut bench = farm(2, 1);
    bench.after(
        "flp 0 has 0; stop; flp 0 stopped 1; flp 1 gone; flp 0 ended 1; wait 1990; flp 0 pulse",
    );
    bench.after("flp 1 joins; wait 100");
    assert!(!bench.scheduler.is_over());
    bench.after("flp 1 ended 1; flp 1 pulse; wait 1");
    assert!(bench.scheduler.is_over());
}

#[test]
fn a_run_that_never_began_is_over_at_once() {
    let mut bench = waiting(1, 1, |_| {});
    bench.after("flp 0 joins; stop");
    assert!(bench.scheduler.is_over());
}

#[test]
fn when_all_sources_have_ended_the_run_drains_and_is_over() {
    let mut bench = farm(2, 1);
    bench.check(
        "flps have 0                  => assign 0#1>0
         flp 0 has 1                  =>
         flp 1 ended 1                => assign 1#1>0
         flp 0 has 2                  => assign 2#1>0
         flp 0 ended 3                =>
         epn 0 built 0; epn 0 built 1; epn 0 built 2 => 0 complete, commit 0 epn:0
         epn 0 acks 0                 => 1 complete, commit 1 epn:0, 2 complete, commit 2 epn:0
         epn 0 acks 1-2               =>
         flps pulse; wait 1           => flps: dismissed, epns: dismissed",
    );
    assert_eq!(bench.scheduler.accounting().complete, 3);
}

#[test]
fn an_epn_hears_the_shorter_roster_of_a_tf_that_it_has_in_building() {
    let mut bench = farm(2, 1);
    bench.shown = &["roster", "assign"];
    bench.check(
        "flp 0 has 0; wait 50  => epn:0: roster 0 1, epn:0: 0#1>0, assign 0#1>0
         flp 1 ended 0         => epn:0: roster 0, epn:0: 0#1>0, assign 0#1>0
         epn 0 built 0         => 0 complete, commit 0 epn:0",
    );
    assert_eq!(bench.booked(0), (10, 1));
}

#[test]
fn sources_that_end_one_by_one_below_open_tfs_leave_rosters_that_hold_together() {
    let mut bench = farm_with(3, 1, |config| config.incomplete = Incomplete::Allow);
    bench.check(
        "flp 0 has 0-5                     =>
         flp 2 gone                        => epns: flp:2 gone
         flp 2 joins; flp 2 ended 0        => epns: flp:2 back, start flp:2 at 0
         flp 1 ended 2                     => assign 2#1>0 3#1>0 4#1>0 5#1>0
         flp 1 has 0-1                     => assign 0#1>0 1#1>0",
    );
    assert_eq!(
        bench
            .after("epn 0 built 0; epn 0 acks 0; epn 0 built 5")
            .matches("complete")
            .count(),
        2
    );
}

#[test]
fn a_leaving_epn_gets_nothing_new_and_goes_when_it_is_empty() {
    let mut bench = farm(1, 2);
    bench.after("epn 0 pulse; epn 1 pulse");
    bench.check(
        "flp 0 has 0      => assign 0#1>0
         epn 0 leaves     =>
         flp 0 has 1-2    => assign 1#1>1 2#1>1
         epn 0 built 0    => 0 complete, commit 0 epn:0
         epn 0 acks 0     => epn:0: dismissed
         epn 1 leaves     => epn:0: dismissed",
    );
}

#[test]
fn a_leaving_flp_goes_when_it_has_ended_and_holds_nothing() {
    farm(2, 1).check(
        "flp 1 leaves  =>
         flp 1 pulse   =>
         flp 1 ended 0 =>
         flp 1 pulse   => flp:1: dismissed",
    );
}

#[test]
fn a_leaving_epn_stays_until_it_has_heard_of_a_tf_decided_elsewhere() {
    let mut bench = farm(1, 2);
    bench.after("flp 0 has 0; epn 0 silent; epn 0 heard; epn 0 leaves; epn 1 built 0#2");
    bench.check(
        "epn 1 acks 0   =>
         epn 0 pulse 0  =>
         epn 0 pulse 1  =>
         wait 1         => epn:0: dismissed",
    );
}

#[test]
fn books_of_sources_tell_what_became_of_every_stf() {
    let mut bench = farm_with(2, 1, |config| config.incomplete = Incomplete::Allow);
    bench.after(
        "flps have 0-2; epn 0 built 0; epn 0 acks 0; epn 0 built 1 without 1; epn 0 corrupt 2 0",
    );
    let sources = &bench.scheduler.accounting().sources;
    let fates = |flp: u16| {
        let s = sources[&FlpId(flp)];
        (
            s.announced,
            s.built,
            s.unused,
            s.dropped,
            s.outside,
            s.skipped,
        )
    };
    assert_eq!(fates(0), (2, 2, 0, 0, 1, 1));
    assert_eq!(fates(1), (3, 1, 1, 0, 0, 0));
}

#[test]
fn a_source_that_never_made_anything_is_not_waited_for_after_its_first_tfs_are_decided() {
    farm(2, 1).check(
        "flp 0 has 0; wait 50      => assign 0#1>0
         epn 0 built 0 without 1   => 0 dropped source-late
         flp 1 ended 0             =>
         flp 0 has 1               => assign 1#1>0
         epn 0 built 1             => 1 complete, commit 1 epn:0",
    );
}
