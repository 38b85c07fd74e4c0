use super::*;
use crate::des::tally::quantiles;
use crate::des::{self, TfRecord, run_point};
use crate::experiment::{ExperimentFile, POINTS_MAX};
use crate::scenario::{Distribution, Fault, Group, ScenarioError};

pub(super) fn quick() -> Scenario {
    let mut scenario = Scenario {
        flps: 3,
        epns: 4,
        rate_hz: 100.0,
        duration_s: 2.0,
        ..Scenario::default()
    };
    scenario.network.flp_mbit_s = 1000.0;
    scenario.network.epn_mbit_s = 1000.0;
    scenario
}

fn simulate(scenario: &Scenario, seed: u64) -> Run {
    let run = des::run(scenario, seed, |_| true).expect("a scenario that can be run");
    assert!(run.is_conserved(), "{run:?}");
    run
}

#[test]
fn a_healthy_farm_loses_nothing_and_its_books_agree_with_what_happened() {
    let run = simulate(&quick(), 1);
    assert_eq!(
        (run.announced, run.complete, run.lost(), run.in_flight),
        (200, 200, 0, 0),
        "{run:?}"
    );
    assert_eq!((run.stfs, run.unopened), (600, 0));
    assert_eq!(run.latencies_ns.len(), 200);
    assert!(run.fairness() > 0.99, "{run:?}");
}

#[test]
fn equal_seeds_give_equal_runs_and_other_seeds_others() {
    let mut scenario = quick();
    scenario.size.model = SizeModel::Random;
    let (one, same, other) = (
        simulate(&scenario, 1),
        simulate(&scenario, 1),
        simulate(&scenario, 2),
    );
    assert_eq!(one, same);
    assert_ne!(one.trace_hash, other.trace_hash);
}

fn fault(at_s: f64, kind: FaultKind, epn: Option<u32>, for_s: Option<f64>) -> Fault {
    Fault {
        at_s,
        within_s: 0.0,
        kind,
        flp: None,
        epn,
        for_s,
        factor: None,
    }
}

fn with(faults: &[Fault]) -> Scenario {
    let mut scenario = quick();
    scenario.duration_s = 4.0;
    scenario.faults = faults.to_vec();
    scenario
}

/// Returns the losses of a run beside TFs whose EPN died between their commit and its acknowledgement.
fn lost(run: &Run) -> u64 {
    run.lost() - run.lost_by.get("abandoned").copied().unwrap_or(0)
}

#[test]
fn no_tf_is_lost_when_epns_crash_hang_are_cut_off_join_leave_or_slow_down() {
    let one = Some(1);
    let cases = [
        ("crash", fault(1.003, FaultKind::Crash, one, None)),
        ("restart", fault(1.003, FaultKind::Crash, one, Some(0.5))),
        ("hang", fault(1.003, FaultKind::Hang, one, Some(1.0))),
        ("long hang", fault(1.003, FaultKind::Hang, one, Some(2.0))),
        (
            "partition",
            fault(1.003, FaultKind::Partition, one, Some(1.0)),
        ),
        ("join", fault(1.003, FaultKind::Join, None, None)),
        ("leave", fault(1.003, FaultKind::Leave, one, None)),
    ];
    for (name, what) in cases {
        for push in [Push::Eager, Push::Granted] {
            let mut scenario = with(std::slice::from_ref(&what));
            scenario.push = push;
            let run = simulate(&scenario, 1);
            assert_eq!(
                (run.announced, lost(&run), run.out_of_order),
                (400, 0, 0),
                "{name} {push:?}: {run:?}"
            );
            assert_eq!(run.in_flight, 0, "{name} {push:?}");
            let tfs: Vec<u64> = run.tfs_by_epn.iter().map(|(tfs, _)| *tfs).collect();
            match name {
                "crash" | "leave" => assert!(tfs[1] < 40, "{name}: {tfs:?}"),
                "join" => assert!(tfs[4] > 40, "{tfs:?}"),
                _ => assert!(tfs[1] > 30, "{name}: {tfs:?}"),
            }
        }
    }
}

#[test]
fn tfs_move_when_the_path_of_one_pair_is_cut() {
    let mut cut = fault(1.0, FaultKind::Partition, Some(2), Some(2.5));
    cut.flp = Some(1);
    let run = simulate(&with(&[cut]), 1);
    assert_eq!((run.announced, lost(&run)), (400, 0), "{run:?}");
    assert!(run.reassigned > 0, "{run:?}");
}

#[test]
fn what_a_dead_flp_took_with_it_is_counted_and_nothing_else() {
    let mut crash = fault(1.003, FaultKind::Crash, None, Some(0.5));
    crash.flp = Some(1);
    let run = simulate(&with(&[crash]), 1);
    let died = run.lost_by.get("source-died").copied().unwrap_or(0);
    assert_eq!(run.lost(), died, "{run:?}");
    assert!((1..60).contains(&died), "{run:?}");
}

#[test]
fn what_no_epn_has_room_for_is_shed_whole_and_counted() {
    let mut scenario = quick();
    scenario.hold_bytes = 2_000_000;
    scenario.network.epn_mbit_s = 10.0;
    let run = simulate(&scenario, 1);
    assert!(
        run.lost_by
            .get("source-overrun")
            .is_some_and(|shed| *shed > 50),
        "{run:?}"
    );
    assert_eq!(run.out_of_order, 0);
    assert!(run.flp_peak_bytes <= 2_100_000, "{run:?}");
}

#[test]
fn incast_collapses_when_pushed_and_not_when_granted() {
    let goodput = |push| {
        let mut scenario = Scenario {
            flps: 24,
            epns: 1,
            rate_hz: 5.0,
            duration_s: 4.0,
            push,
            ..Scenario::default()
        };
        scenario.size.bytes = 64_000;
        scenario.network.flp_mbit_s = 100.0;
        scenario.network.epn_mbit_s = 100.0;
        scenario.farm.tf_deadline_ms = 10_000;
        scenario.farm.stf_timeout_ms = 20_000;
        let run = simulate(&scenario, 1);
        assert_eq!(run.lost(), 0, "{run:?}");
        (
            run.timeouts,
            crate::des::tally::quantiles(&mut run.latencies_ns.clone()).p50 / 1000.0,
        )
    };
    let (eager, granted) = (goodput(Push::Eager), goodput(Push::Granted));
    assert!(eager.0 > 100, "timeouts: {eager:?}");
    assert_eq!(granted.0, 0);
    // 24 × 64 kB over 94.15 Mbit/s are 131 ms.
    assert!((130.0..150.0).contains(&granted.1), "{granted:?}");
    assert!(eager.1 > 1.3 * granted.1, "{eager:?}, {granted:?}");
}

#[test]
fn latency_is_what_wires_and_words_take() {
    let mut scenario = quick();
    scenario.rate_hz = 10.0;
    scenario.network.efficiency = 1.0;
    let run = simulate(&scenario, 1);
    // Announce to assignment at the FLPs, first byte, three STFs over one port, built, commit, acknowledged.
    let words = 4.0 * 100.0;
    let bytes = 3.0 * 100_080.0 * 8.0 / 1000.0;
    let expected_us = words + 50.0 + bytes;
    let found = crate::des::tally::quantiles(&mut run.latencies_ns.clone());
    assert!(
        (found.p50 - expected_us).abs() < 2.0,
        "{found:?}, expected {expected_us}"
    );
}

#[test]
fn words_on_the_network_of_the_data_take_bytes_from_it() {
    let mut scenario = quick();
    scenario.network.control = Way::Primary;
    let shared = simulate(&scenario, 1);
    scenario.network.control = Way::Auxiliary;
    let own = simulate(&scenario, 1);
    let sum = |run: &Run| run.latencies_ns.iter().sum::<u64>();
    assert!(sum(&shared) > sum(&own));
}

#[test]
fn an_unlucky_farm_keeps_its_books_whatever_happens() {
    for seed in 0..40 {
        let mut dice = crate::dice::Dice::new(seed);
        let mut scenario = quick();
        scenario.duration_s = 1.5;
        scenario.farm.paced = dice.chance(30);
        scenario.farm.icn_batch_us = dice.pick(&[0, 0, 500]);
        scenario.push = dice.pick(&[Push::Eager, Push::Granted]);
        scenario.size.model = dice.pick(&[SizeModel::Random, SizeModel::Tpc, SizeModel::Fixed]);
        scenario.processing.ms = dice.range(0, 60) as f64;
        for _ in 0..dice.range(1, 4) {
            let kind = dice.pick(&[
                FaultKind::Crash,
                FaultKind::Hang,
                FaultKind::Partition,
                FaultKind::Stall,
            ]);
            let mut what = fault(dice.range(1, 1400) as f64 / 1000.0, kind, None, None);
            what.for_s = Some(dice.range(1, 900) as f64 / 1000.0);
            let (flp, epn) = (dice.range(0, 2) as u32, dice.range(0, 3) as u32);
            match dice.range(0, 2) {
                _ if kind == FaultKind::Stall => (what.flp, what.epn) = (Some(flp), Some(epn)),
                0 if kind == FaultKind::Partition => (what.flp, what.epn) = (Some(flp), Some(epn)),
                1 => what.flp = Some(flp),
                _ => what.epn = Some(epn),
            }
            scenario.faults.push(what);
        }
        println!("seed {seed}");
        let (run, again) = (simulate(&scenario, seed), simulate(&scenario, seed));
        assert_eq!(run, again);
        assert_eq!((run.in_flight, run.out_of_order), (0, 0), "{run:?}");
    }
}

/// Returns the points of a file, checked.
fn points_of(path: &std::path::Path) -> Result<Vec<Scenario>, ScenarioError> {
    let file = ExperimentFile::read(path)?;
    let points = file.points(path.parent().unwrap_or(path), POINTS_MAX)?;
    points.iter().try_for_each(Scenario::check)?;
    Ok(points)
}

#[test]
fn every_shipped_scenario_can_be_run() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");
    let mut count = 0;
    for entry in
        std::fs::read_dir(format!("{root}/experiments/scenarios")).expect("the folder is there")
    {
        let path = entry.expect("it can be read").path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let points = points_of(&path);
            let points = points.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(!points.is_empty());
            count += 1;
        }
    }
    assert!(count >= 6, "{count}");
    let small = format!("{root}/experiments/scenarios/small.toml");
    let mut small = points_of(small.as_ref()).expect("a scenario").remove(0);
    small.duration_s = 3.0;
    assert_eq!(lost(&simulate(&small, small.seed)), 0);
}

/// Returns a farm of ten equal EPNs that are 90 % busy, with lognormal times of processing.
fn busy(policy: &str) -> Scenario {
    let mut scenario = Scenario {
        flps: 1,
        epns: 10,
        rate_hz: 9.0,
        duration_s: 100.0,
        policy: policy.to_owned(),
        ..Scenario::default()
    };
    scenario.processing.ms = 1000.0;
    scenario.processing.distribution = Distribution::Lognormal;
    scenario.processing.sigma = 0.5;
    scenario
}

/// The review of the comparison of policies: times to the commit are alike, waits are not.
#[test]
fn the_wait_behind_the_commit_tells_policies_apart() {
    let p99 = |policy: &str| {
        let point = run_point(&busy(policy), |_, _| {}, |_| {})
            .expect("it runs")
            .point;
        let wait = point.wait_us.expect("it is measured");
        (point.latency_us.p99, wait.p99)
    };
    let (blind, seeing) = (p99("round-robin"), p99("least-loaded"));
    assert!(
        (blind.0 - seeing.0).abs() < 0.01 * seeing.0,
        "{blind:?} {seeing:?}"
    );
    assert!(blind.1 > 2.0 * seeing.1, "{blind:?} {seeing:?}");
}

#[test]
fn tfs_that_no_consumer_finishes_are_counted_and_have_waited_until_the_end() {
    let mut scenario = busy("round-robin");
    let mut slow = fault(50.0, FaultKind::Slow, Some(4), None);
    slow.factor = Some(1e6);
    let crash = |epn| fault(50.0, FaultKind::Crash, Some(epn), Some(1.0));
    scenario.faults = vec![crash(1), crash(2), crash(3), slow];
    let mut fates: BTreeMap<&str, u64> = BTreeMap::new();
    let mut longest = 0;
    let point = run_point(
        &scenario,
        |_, _| {},
        |run| {
            for record in &run.records {
                *fates.entry(record.fate.name()).or_default() += 1;
                longest = longest.max(record.wait_ns(run.simulated_ns).unwrap_or(0));
            }
        },
    );
    let point = point.expect("it runs").point;
    assert!(point.died_unprocessed >= 1.0, "{point:?}");
    assert_eq!(fates["died-unprocessed"] as f64, point.died_unprocessed);
    assert_eq!(fates.values().sum::<u64>(), 900, "{fates:?}");
    // An EPN a million times slower keeps what it has got; what waits behind it waits for days.
    assert!(longest > seconds(24.0 * 3600.0), "{longest}");
}

/// Mean and p99 of the wait under a policy, in µs, of a run with the same TFs for every policy.
fn waits(scenario: &Scenario, policy: &str) -> (f64, f64) {
    let scenario = Scenario {
        policy: policy.to_owned(),
        ..scenario.clone()
    };
    let mut waits = simulate(&scenario, 1).waits_ns;
    let mean = waits.iter().sum::<u64>() as f64 / waits.len() as f64 / 1e3;
    (mean, quantiles(&mut waits).p99)
}

#[test]
fn a_policy_that_measures_consumers_waits_less_than_one_that_counts_bytes() {
    let mut scenario = busy("round-robin");
    let group = |speed| Group {
        epns: 1,
        speed,
        nic: 1.0,
        weight: 1.0,
    };
    scenario.groups = vec![group(0.5), group(2.0)];
    scenario.groups_repeat = true;
    scenario.load = Some(0.8);
    scenario.apply_load().expect("consumers take time");
    scenario.duration_s = 400.0;
    let (measured, counted) = (
        waits(&scenario, "earliest-finish"),
        waits(&scenario, "least-loaded"),
    );
    assert!(
        measured.1 < 0.8 * counted.1,
        "earliest-finish {measured:?}, least-loaded {counted:?}"
    );
    let blind = waits(&scenario, "round-robin");
    assert!(counted.1 < blind.1, "{counted:?} {blind:?}");
}

#[test]
fn no_policy_waits_less_than_the_one_with_foresight() {
    let scenario = busy("round-robin");
    let (least, _) = waits(&scenario, ORACLE);
    for policy in sheaf_placement::policy::NAMES {
        let (mean, _) = waits(&scenario, policy);
        assert!(
            least <= mean,
            "{policy} waits {mean} µs, the oracle {least}"
        );
    }
}

#[test]
fn every_policy_has_the_same_tfs() {
    let work = |policy: &str| -> Vec<(u64, Option<u64>)> {
        let records = simulate(&busy(policy), 1).records;
        let of = |record: &TfRecord| {
            let work = record.done_ns.zip(record.processing_ns);
            (record.bytes, work.map(|(done, begin)| done - begin))
        };
        records.iter().map(of).collect()
    };
    let first = work("round-robin");
    assert!(first.iter().any(|tf| tf.1 != first[0].1));
    for policy in ["random", "least-loaded", ORACLE] {
        assert_eq!(work(policy), first, "{policy}");
    }
}

#[test]
fn at_ack_level_processed_an_epn_that_dies_costs_no_tf() {
    let run_of = |ack| {
        let mut scenario = busy("least-loaded");
        scenario.ack = ack;
        let fault = Fault {
            at_s: scenario.duration_s / 2.0,
            within_s: 0.0,
            kind: FaultKind::Crash,
            flp: None,
            epn: Some(0),
            for_s: None,
            factor: None,
        };
        scenario.faults = vec![fault];
        simulate(&scenario, 1)
    };
    let built = run_of(AckLevel::Built);
    assert!(
        built.is_conserved() && built.died_unprocessed > 0,
        "{built:?}"
    );
    let processed = run_of(AckLevel::Processed);
    assert!(processed.is_conserved());
    assert_eq!((processed.died_unprocessed, processed.unprocessed), (0, 0));
    assert_eq!(
        processed.lost() + processed.in_flight,
        0,
        "{:?}",
        processed.lost_by
    );
    let all_are_done = processed.records.iter().all(|tf| tf.done_ns.is_some());
    assert!(all_are_done, "every consumer has finished");
}
