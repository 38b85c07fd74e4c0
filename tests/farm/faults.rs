//! Nodes that die and hang: what is lost, and what is not.

use crate::harness::{Summary, demo};

/// Runs 3 FLPs and 5 EPNs at 200 TF/s, in turn: each EPN has TFs when a fault hits it, whatever was measured of it.
#[track_caller]
fn demo_at_200(line: &str) -> Summary {
    demo(&format!(
        "--rate 200 --orbits-per-tf 8 --policy round-robin {line}"
    ))
}

#[test]
fn an_epn_killed_at_any_moment_costs_no_tf() {
    for at_ms in [20, 350, 1400] {
        let summary = demo_at_200(&format!("--duration 2s --kill epn:2@{at_ms}ms"));
        summary.assert_nothing_lost();
        assert_eq!(*summary.of_node("epn:2", "exit"), "killed");
        let faults = summary.0["faults"].as_array().unwrap();
        assert_eq!(faults.len(), 1, "{faults:?}");
    }
}

#[test]
fn all_epns_but_one_killed_one_after_the_other_cost_no_tf() {
    let kills = "--kill epn:0@200ms --kill epn:1@500ms --kill epn:2@800ms --kill epn:3@1100ms";
    let summary = demo_at_200(&format!("--duration 2s {kills}"));
    summary.assert_nothing_lost();
}

#[test]
fn an_epn_that_hangs_costs_no_tf_and_none_comes_twice() {
    let summary = demo_at_200("--duration 3s --pause epn:0@500ms+1s");
    summary.assert_nothing_lost();
    assert!(
        summary.count("reassigned") > 0,
        "what it had was moved: {:#}",
        summary.0
    );
}

#[test]
fn an_epn_that_still_hangs_at_the_end_is_let_go_on() {
    let summary = demo_at_200("--duration 1s --pause epn:1@500ms+60s");
    summary.assert_nothing_lost();
    assert_eq!(*summary.of_node("epn:1", "exit"), "dismissed");
}

#[test]
fn a_killed_epn_that_is_started_again_builds_again() {
    let summary = demo_at_200("--duration 3s --kill epn:2@500ms --start epn:2@1s");
    summary.assert_nothing_lost();
    assert_eq!(*summary.of_node("epn:2", "lives"), 2);
    assert_eq!(*summary.of_node("epn:2", "exit"), "dismissed");
}

#[test]
fn tfs_of_a_killed_flp_say_that_it_is_missing_and_no_other() {
    let summary = demo_at_200("--duration 2s --kill flp:1@700ms");
    assert_eq!(summary.counts("dropped").len(), 0, "{:#}", summary.0);
    let (missing, incomplete) = (summary.counts("missing"), summary.count("incomplete"));
    assert!(missing.keys().all(|flp| flp == "flp:1"), "{missing:?}");
    assert_eq!(missing.get("flp:1").copied().unwrap_or(0), incomplete);
    // Those that were on their way; later TFs are whole without it.
    assert!(incomplete < on_their_way_max(&summary), "{:#}", summary.0);
    assert_eq!(
        summary.count("complete") + incomplete,
        summary.count("announced")
    );
}

/// Returns the number of TFs, at 200 Hz, that may be on their way when an FLP dies. The roster without it holds once it
/// is in the log of the ICN, as the verdicts of TFs are: a disk that something else keeps busy delays both.
fn on_their_way_max(summary: &Summary) -> u64 {
    let longest = &summary.0["latency_us"]["last_byte_to_commit"]["max"];
    let commit_s = longest.as_f64().expect("TFs were committed") / 1e6;
    200 + (200.0 * 2.0 * commit_s) as u64
}

#[test]
fn tfs_of_a_killed_flp_are_dropped_with_a_reason_where_none_may_be_incomplete() {
    let summary = demo_at_200("--duration 2s --kill flp:1@700ms --incomplete never");
    assert_eq!(summary.count("incomplete"), 0);
    let dropped = summary.counts("dropped");
    assert!(
        dropped.keys().all(|reason| reason == "source-died"),
        "{dropped:?}"
    );
    let lost: u64 = dropped.values().sum();
    assert_eq!(summary.count("complete") + lost, summary.count("announced"));
    assert!(lost < on_their_way_max(&summary), "{:#}", summary.0);
}

#[test]
fn a_killed_flp_that_is_started_again_falls_into_step() {
    let summary = demo_at_200("--duration 4s --kill flp:0@500ms --start flp:0@2500ms");
    assert_eq!(summary.counts("dropped").len(), 0, "{:#}", summary.0);
    assert_eq!(*summary.of_node("flp:0", "lives"), 2);
    let made = summary.of_node("flp:0", "items").as_u64().unwrap();
    // Of 800 TFs it was away for 400; it joins by an entry of the log of the ICN.
    assert!(
        made + on_their_way_max(&summary) > 390,
        "it made STFs in its second life: {:#}",
        summary.0
    );
    // It makes TFs when the others do, or they would be built without it.
    let incomplete = summary.count("incomplete");
    assert!(incomplete < on_their_way_max(&summary), "{:#}", summary.0);
}

#[test]
fn flp_and_epn_may_die_at_the_same_time() {
    let summary = demo_at_200("--duration 2s --kill flp:2@600ms --kill epn:0@600ms");
    assert_eq!(summary.counts("dropped").len(), 0, "{:#}", summary.0);
    assert!(
        summary.counts("missing").keys().all(|flp| flp == "flp:2"),
        "{:#}",
        summary.0
    );
}

#[test]
fn a_node_that_is_started_again_too_late_to_join_is_sent_home() {
    let summary = demo_at_200("--duration 1s --kill epn:2@200ms --start epn:2@950ms");
    summary.assert_nothing_lost();
    assert_eq!(*summary.of_node("epn:2", "lives"), 2);
}
