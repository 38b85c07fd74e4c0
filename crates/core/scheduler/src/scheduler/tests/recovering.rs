//! Tests of a leader that takes over: what it knows from the log, and what it waits for.

use super::*;

impl Bench {
    /// Replaces the leader by another one that has nothing but the log.
    pub(super) fn take_over(&mut self) {
        self.take_over_with(None);
    }

    fn take_over_with(&mut self, next_run: Option<RunId>) {
        let (config, plan) = (self.scheduler.config.clone(), self.scheduler.plan);
        let log = self.log.clone().into_iter();
        self.scheduler = Scheduler::recover(self.now, config, plan, next_run, RUN, log)
            .expect("a policy that exists");
        self.told.clear();
        self.settle();
        self.words.clear();
    }
}

fn lives(bench: &Bench) -> Vec<String> {
    let expected = bench.scheduler.expected();
    expected.iter().map(|(node, _)| node.to_string()).collect()
}

#[test]
fn the_books_are_those_of_the_log_and_every_verdict_stands() {
    let mut bench = farm(2, 2);
    bench.after(
        "flps have 0-3; epn 0 built 0; epn 0 acks 0; epn 1 built 1; flp 0 skips 4 source-overrun; flp 1 has 4",
    );
    let before = bench.scheduler.accounting().clone();
    bench.take_over();
    let after = bench.scheduler.accounting();
    assert_eq!(
        (after.complete, after.dropped_total(), after.bytes),
        (2, 1, before.bytes)
    );
    assert_eq!((after.announced, bench.scheduler.in_flight()), (3, 0));
    assert_eq!(lives(&bench), ["flp:0", "flp:1", "epn:1"]);
    // A report of a decided TF decides nothing.
    bench.after("epn 0 joins; epn 1 joins; flps pulse; settled");
    assert_eq!(bench.after("epn 0 built 1"), "");
}

#[test]
fn a_commit_without_acknowledgement_is_retransmitted() {
    let mut bench = farm(1, 1);
    bench.after("flp 0 has 0; epn 0 built 0");
    bench.take_over();
    assert_eq!(bench.after("epn 0 joins"), "commit 0 epn:0");
    bench.after("epn 0 acks 0");
    assert!(bench.scheduler.release().floor == TfId(1));
}

#[test]
fn nothing_is_placed_before_the_nodes_have_spoken_and_what_is_half_built_stays_where_it_is() {
    let mut bench = farm(2, 3);
    bench.after("flps have 0-1");
    bench.take_over();
    bench.after("flp 0 joins; flp 1 joins; epn 0 joins; epn 1 joins; epn 2 joins");
    assert_eq!(bench.after("flps have 0-1"), "");
    assert_eq!(bench.after("epn 2 has 0"), "assign 0#1>2");
    assert_eq!(bench.after("settled"), "assign 1#1>0");
    assert_eq!(bench.after("epn 2 built 0"), "0 complete, commit 0 epn:2");
}

#[test]
fn a_leaving_epn_stays_until_it_has_reported_what_it_holds() {
    let mut bench = farm(1, 2);
    bench.after("flp 0 has 0");
    bench.take_over();
    bench.check(
        "flp 0 joins; epn 0 joins; epn 0 leaves; wait 1 =>
         epn 0 has 0; epn 0 pulse; wait 1 => assign 0#1>0
         epn 0 built 0#0 => 0 complete, commit 0 epn:0
         epn 0 acks 0 => epn:0: dismissed",
    );
}

#[test]
fn a_second_epn_that_has_parts_may_still_win() {
    let mut bench = farm(1, 2);
    bench.after("flp 0 has 0");
    bench.take_over();
    bench.after(
        "flp 0 joins; epn 0 joins; epn 1 joins; flp 0 has 0; epn 0 has 0; epn 1 has 0; settled",
    );
    assert_eq!(bench.after("epn 1 built 0#0"), "0 complete, commit 0 epn:1");
}

#[test]
fn flps_retransmit_once_what_an_adopted_tf_lacks_though_a_dead_flp_never_announces_its_part() {
    let mut bench = farm(3, 2);
    bench.after("flps have 0");
    bench.take_over();
    bench.after("flp 0 joins; flp 1 joins; flp 2 gone; epn 0 joins; epn 1 joins; epn 0 has 0");
    bench.check(
        "flp 0 has 0; settled =>
         epn 0 built 0 without 0 1 => flp:0: 0#2>0
         epn 0 built 0 without 0 1 =>
         flp 1 has 0 =>
         epn 0 built 0#2 without 1 => flp:1: 0#3>0
         epn 0 built 0#3 => 0 complete, commit 0 epn:0",
    );
    assert_eq!(bench.scheduler.accounting().reassigned, 2);
}

#[test]
fn an_epn_that_lacks_an_stf_of_a_dead_flp_does_not_wait_for_it_a_second_time() {
    let mut bench = farm(3, 2);
    bench.after("flps have 0");
    bench.take_over();
    bench.after("flp 0 joins; flp 1 joins; epn 0 joins; epn 1 joins; epn 0 has 0; flp 2 gone");
    bench.check(
        "flp 0 has 0; flp 1 has 0; settled =>
         epn 0 built 0 without 1 2 => epn:0: 0 without 2, flp:1: 0#2>0
         epn 0 built 0#2 without 2 => 0 dropped source-died",
    );
}

#[test]
fn an_epn_tells_of_a_tf_whose_only_flp_is_gone() {
    let mut bench = farm(1, 1);
    bench.after("flp 0 has 0");
    bench.take_over();
    bench.after("epn 0 joins; epn 0 has 0; settled");
    bench.after("flp 0 gone");
    assert_eq!(bench.after("epn 0 built 0#0"), "0 complete, commit 0 epn:0");
}

/// Returns a farm whose FLP died with the leader. The log tells the next one of TF 3 only, and EPN 0, which has parts
/// of others, was cut off while it settled.
fn with_a_late_epn() -> Bench {
    let mut bench = farm(1, 2);
    bench.after("flp 0 has 0-3; epn 1 built 3");
    bench.take_over();
    bench.after("epn 1 joins; epn 1 acks 3; flp 0 gone; flp 0.2 joins; settled; epn 0 joins");
    bench
}

#[test]
fn an_epn_that_reports_late_names_tfs_that_no_other_node_knows() {
    let mut bench = with_a_late_epn();
    bench.check(
        "epn 0 has 0 => epn:0: 0 without 0, assign 0#1>0
        epn 0 built 0 => 0 complete, commit 0 epn:0
        epn 0 has 2 => epn:0: 2 without 0, assign 2#1>0
        epn 0 built 2 without 0 => 2 dropped source-died",
    );
}

#[test]
fn what_an_epn_holds_that_speaks_late_counts_in_its_credits() {
    let mut bench = with_a_late_epn();
    let free = |bench: &Bench| bench.scheduler.epn_load(EpnId(0)).unwrap().free_bytes();
    assert_eq!(free(&bench), CAPACITY.0);
    bench.after("epn 0 has 0 600; epn 0 has 2 390");
    assert_eq!(free(&bench), 10);
    // Repeated, it counts once.
    bench.after("epn 0 has 0 600");
    assert_eq!(free(&bench), 10);
    assert_eq!(bench.after("epn 1 silent; flp 0.2 has 4 of 20"), "");
    bench.after("epn 0 built 0 without 0; epn 0 built 2 without 0");
    assert_eq!(
        free(&bench),
        10,
        "it may hold them until it has the release"
    );
    let version = bench.scheduler.release().version;
    let said = bench.after(&format!("epn 0 pulse {version}"));
    assert_eq!((said.as_str(), free(&bench)), ("assign 4#1>0", 980));
}

#[test]
fn what_an_epn_holds_ahead_of_all_sources_waits_for_them() {
    let mut bench = with_a_late_epn();
    assert_eq!(bench.after("epn 0 has 9"), "");
    assert_eq!(bench.after("flp 0.2 has 4"), "assign 4#1>0");
}

#[test]
fn an_flp_that_does_not_come_back_is_gone_with_what_it_held() {
    let mut bench = farm(2, 1);
    bench.after("flps have 0");
    bench.take_over();
    bench.after("flp 0 joins; epn 0 joins; flp 0 has 0; settled");
    let said = bench.after("flp 1 gone");
    assert!(said.contains("0 dropped source-died"), "{said}");
}

#[test]
fn who_is_new_begins_behind_everything_that_was_made() {
    let mut bench = farm(1, 1);
    bench.after("flp 0 has 0-9");
    bench.take_over();
    let said = bench.after("flp 1 joins; epn 0 joins; flp 0 joins; flp 0 has 0-12");
    assert!(!said.contains("start"), "{said}");
    let said = bench.after("settled");
    assert!(said.contains("start flp:1 at 13"), "{said}");
}

#[test]
fn the_time_of_the_run_goes_on_and_the_heartbeat_with_it() {
    let mut bench = farm_with(1, 1, |config| {
        config.mode = Mode::Paced;
        config.paced_rate_hz = 100.0;
    });
    bench.after("wait 1000; wait 1000");
    bench.now = Timestamp(0);
    bench.take_over();
    bench.after("epn 0 joins; flp 0 joins; flp 0 pulse 0 2505000000; flp 0 have 190-230");
    assert_eq!(bench.scheduler.elapsed_ns(bench.now), 2_505_000_000);
    bench.after("settled");
    let due = bench.scheduler.next_pace_at().expect("the run goes on");
    assert_eq!(due, Timestamp(0), "TFs up to 250 are overdue");
    bench.after("wait 0");
    let due = bench.scheduler.next_pace_at().expect("the run goes on");
    assert_eq!(due, Timestamp(5_000_000), "TF 251 is due at 2.51 s");
}

#[test]
fn an_flp_that_was_stopped_while_the_leader_settled_tells_it_the_time_later() {
    let mut bench = farm(3, 1);
    bench.after("flps have 0; wait 50");
    bench.take_over();
    bench.after("flp 0 joins; epn 0 joins; flp 0 has 0-9; flp 0 pulse 0 60000000; settled");
    let elapsed = |bench: &Bench| bench.scheduler.elapsed_ns(bench.now) / 1_000_000;
    assert_eq!(elapsed(&bench), 60);
    bench.after("flp 1 joins; flp 1 pulse 0 159000000");
    assert_eq!(elapsed(&bench), 60, "so much a clock may be ahead");
    bench.after("flp 1 pulse 0 61000000000");
    assert_eq!(
        elapsed(&bench),
        60,
        "more than a minute is missed by no change of leaders"
    );
    bench.after("flp 1 pulse 0 2060000000");
    assert_eq!(elapsed(&bench), 2060);
    bench.after("flp 0 pulse 0 70000000");
    assert_eq!(elapsed(&bench), 2060, "the time never goes back");
}

#[test]
fn a_run_that_is_over_is_not_opened_again() {
    let mut bench = farm(1, 1);
    bench.after("flp 0 has 0; epn 0 built 0; epn 0 acks 0; stop; flp 0 stopped 1; flp 0 ended 1; flp 0 pulse; wait 1");
    assert!(bench.scheduler.is_over());
    bench.take_over();
    assert!(bench.scheduler.is_over());
    assert!(bench.after("wait 100").contains("dismissed"));
    bench.take_over_with(Some(RunId(77)));
    assert_eq!(
        (bench.scheduler.run(), bench.scheduler.has_begun()),
        (RunId(77), false)
    );
}

#[test]
fn a_run_does_not_end_under_a_new_leader_before_flps_that_were_cut_off_had_their_time() {
    let mut bench = farm(2, 1);
    bench.after("flps have 0; epn 0 built 0; epn 0 acks 0; flp 0 gone");
    bench.after("flp 1 has 1; epn 0 built 1; epn 0 acks 1; wait 100");
    bench.take_over();
    assert_eq!(
        lives(&bench),
        ["flp:1"],
        "the log does not name FLP 0 any more"
    );
    bench.after("flp 1 joins; epn 0 joins; epn 0 pulse; flp 1 pulse; settled");
    bench.after("flp 1 ended 2; flp 1 pulse; wait 1900");
    assert!(!bench.scheduler.is_over());
    bench.after("flp 0 joins; flp 0 has 1-2; epn 0 built 2; epn 0 acks 2; flp 0 pulse; wait 200");
    assert!(!bench.scheduler.is_over(), "FLP 0 goes on");
    bench.after("flp 0 ended 3; flp 0 pulse; wait 1");
    assert!(bench.scheduler.is_over());
    assert_eq!(bench.scheduler.accounting().complete, 3);
}

#[test]
fn a_stop_survives_the_leader_that_was_asked() {
    let mut bench = farm(1, 1);
    bench.after("flp 0 has 0-3; stop; flp 0 stopped 4");
    bench.take_over();
    bench.after("flp 0 joins; epn 0 joins; flp 0 pulse; settled");
    assert!(bench.after("wait 100").contains("flps stop at 4"));
}

#[test]
fn what_an_operator_set_survives_the_leader_and_the_epn() {
    let mut bench = farm(1, 2);
    bench
        .scheduler
        .handle_set(EpnId(1), Some(2500), Some(false))
        .unwrap();
    bench.settle();
    bench.take_over();
    bench.after("epn 1.2 joins");
    let load = bench.scheduler.epn_load(EpnId(1)).unwrap();
    assert_eq!((load.weight_milli, load.enabled), (2500, false));
}
