use super::*;
use crate::des;
use crate::scenario::{Legacy as Rules, Mode, Reaction, Stalls};

/// Returns one switch as in the report, with the goodput that its FairMQ reached.
fn pi(flps: u32, epns: u32, rate_hz: f64, bytes: u64, cutoff_ms: u64) -> Scenario {
    let mut scenario = Scenario {
        flps,
        epns,
        rate_hz,
        duration_s: 30.0,
        mode: Mode::Legacy,
        legacy: Rules {
            cutoff_ms,
            ..Rules::default()
        },
        ..Scenario::default()
    };
    scenario.size.bytes = bytes;
    scenario.network.flp_mbit_s = 100.0;
    scenario.network.epn_mbit_s = 100.0;
    scenario.network.efficiency = 0.9325;
    scenario
}

fn simulate(scenario: &Scenario) -> Run {
    let run = des::run(scenario, 1, |_| true).expect("a scenario that can be run");
    assert!(run.is_conserved(), "{run:?}");
    run
}

#[test]
fn the_cutoff_at_the_end_of_a_run_loses_what_was_published() {
    // Tables 13, 17 and 18: bytes, EPNs, rate, cut-off, mean of the lost TFs.
    for (bytes, epns, rate_hz, cutoff_ms, published) in [
        (58_000, 1, 200.0, 20, 2.33),
        (58_750, 1, 200.0, 20, 42.13),
        (59_500, 1, 200.0, 20, 119.73),
        (58_000, 6, 200.0, 1000, 0.0),
        (58_750, 6, 200.0, 1000, 0.0),
        (59_500, 6, 200.0, 1000, 0.0),
        (65_000, 6, 200.0, 1000, 441.89),
        (232_000, 6, 50.0, 1000, 0.0),
        (238_000, 6, 50.0, 1000, 0.0),
    ] {
        let scenario = pi(1, epns, rate_hz, bytes, cutoff_ms);
        let run = simulate(&scenario);
        let lost = run.lost() as f64;
        let tolerance = f64::max(10.0, published / 10.0);
        assert!(
            (lost - published).abs() <= tolerance,
            "{bytes}: {lost}, published {published}"
        );
        assert_eq!(
            run.lost_by
                .keys()
                .filter(|cause| *cause != "late-at-run-end")
                .count(),
            0
        );
        // The same wires, Sheaf's rules: late messages are waited for.
        let mut sheaf = scenario;
        sheaf.mode = Mode::Sheaf;
        sheaf.farm.paced = true;
        // The one that is beyond every wire sheds the TFs that its hold of 16 MiB cannot keep, and reports so.
        sheaf.hold_bytes = 16 << 20;
        sheaf.farm.capacity_bytes = 64 << 20;
        sheaf.farm.tf_deadline_ms = 5000;
        let run = simulate(&sheaf);
        let shed = run.lost_by.get("source-overrun").copied().unwrap_or(0);
        assert_eq!(
            (run.lost() - shed, run.out_of_order),
            (0, 0),
            "{bytes}: {run:?}"
        );
        assert_eq!(shed > 0, bytes == 65_000, "{bytes}: {shed}");
    }
}

#[test]
fn a_stalled_stream_costs_a_counting_builder_whole_tfs_and_sheaf_none() {
    let mut scenario = pi(2, 5, 200.0, 29_000, 1000);
    scenario.legacy.start_stalls = Stalls {
        probability: 0.4,
        ms: 200,
        within_s: 5.0,
    };
    let run = simulate(&scenario);
    assert!(
        run.out_of_order > 8,
        "a stall of 200 ms is 8 rounds of 5 EPNs: {run:?}"
    );
    assert_eq!(
        run.lost(),
        run.out_of_order,
        "as published: all that is lost is out of order"
    );
    let mut keyed = scenario.clone();
    keyed.legacy.builder = crate::scenario::Builder::Keyed;
    assert_eq!(simulate(&keyed).lost(), 0);
    let mut sheaf = scenario;
    sheaf.mode = Mode::Sheaf;
    sheaf.farm.paced = true;
    let run = simulate(&sheaf);
    assert_eq!((run.lost(), run.out_of_order), (0, 0), "{run:?}");
}

#[test]
fn tfs_lost_with_a_dead_epn_are_detection_time_over_epns_times_period() {
    for (epns, detection_ms) in [(12, 400), (12, 800), (24, 800)] {
        let mut scenario = pi(2, epns, 50.0, 10_000, 1000);
        scenario.legacy.no_removal = false;
        scenario.legacy.builder = crate::scenario::Builder::Keyed;
        scenario.reaction = Reaction::Blacklist;
        scenario.registry.suspect_ms = detection_ms;
        scenario.faults.push(Fault {
            at_s: 10.0,
            within_s: 0.0,
            kind: FaultKind::Crash,
            flp: None,
            epn: Some(3),
            for_s: None,
            factor: None,
        });
        let lost = simulate(&scenario).lost() as f64;
        let expected = detection_ms as f64 / (f64::from(epns) * 20.0);
        assert!(
            (lost - expected).abs() <= 1.0,
            "{epns} EPNs, {detection_ms} ms: {lost}, {expected}"
        );
        let mut sheaf = scenario.clone();
        sheaf.mode = Mode::Sheaf;
        let run = simulate(&sheaf);
        assert_eq!(run.lost(), 0, "{run:?}");
    }
}

#[test]
fn a_dead_epn_that_keeps_its_turn_loses_its_share_for_ever() {
    let mut scenario = pi(1, 6, 50.0, 10_000, 1000);
    scenario.faults.push(Fault {
        at_s: 15.0,
        within_s: 0.0,
        kind: FaultKind::Crash,
        flp: None,
        epn: Some(2),
        for_s: None,
        factor: None,
    });
    let run = simulate(&scenario);
    assert_eq!(
        run.lost_by.get("dead-epn"),
        Some(&125),
        "a sixth of 15 s: {run:?}"
    );
}

#[test]
fn flps_that_go_their_own_ways_part_when_one_misses_a_heartbeat() {
    let mut scenario = pi(2, 5, 50.0, 10_000, 1000);
    scenario.legacy.private_iterators = true;
    assert_eq!(simulate(&scenario).lost(), 0);
    scenario.faults.push(Fault {
        at_s: 10.0,
        within_s: 0.0,
        kind: FaultKind::Crash,
        flp: Some(1),
        epn: None,
        for_s: Some(0.05),
        factor: None,
    });
    let run = simulate(&scenario);
    assert!(run.lost() > 900, "nearly all behind the restart: {run:?}");
}

#[test]
fn a_session_of_zookeeper_ends_between_two_thirds_and_the_whole_of_it_at_a_whole_tick() {
    let mut scenario = pi(2, 12, 50.0, 10_000, 1000);
    scenario.legacy.no_removal = false;
    scenario.legacy.builder = crate::scenario::Builder::Keyed;
    scenario.legacy.zookeeper_tick_ms = 40;
    scenario.reaction = Reaction::Blacklist;
    scenario.faults.push(Fault {
        at_s: 10.0,
        within_s: 0.96,
        kind: FaultKind::Crash,
        flp: None,
        epn: Some(3),
        for_s: None,
        factor: None,
    });
    let lost: Vec<f64> = (0..60)
        .map(|seed| {
            des::run(&scenario, seed, |_| true)
                .expect("a scenario")
                .lost() as f64
        })
        .collect();
    // 533 to 840 ms, over 12 EPNs in turn at 20 ms; and the TF that was under way.
    assert!(
        lost.iter().all(|lost| (2.0..=4.0).contains(lost)),
        "{lost:?}"
    );
    let mean = lost.iter().sum::<f64>() / lost.len() as f64;
    assert!((2.5..3.2).contains(&mean), "{mean}");
}

#[test]
fn without_an_order_a_stream_that_stops_costs_nothing_but_time() {
    let mut scenario = pi(2, 5, 50.0, 10_000, 1000);
    scenario.legacy.start_stalls = Stalls {
        probability: 1.0,
        ms: 400,
        within_s: 1.0,
    };
    assert!(simulate(&scenario).out_of_order > 0);
    scenario.legacy.order = false;
    let run = simulate(&scenario);
    assert_eq!((run.out_of_order, run.lost()), (0, 0), "{run:?}");
}
