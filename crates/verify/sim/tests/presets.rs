//! Tests of the families of seeds, a few hundred of each, in every `cargo test`.
//!
//! `SHEAF_SEED=N` runs one seed, `SHEAF_SEEDS=N` that many, `SHEAF_FIRST_SEED=N` sets the begin. A failure prints the
//! seed, everything that was drawn from it, and the last that happened to the TF concerned.

use sheaf_sim::torture::{Amount, Config, Report, replay, run};
use sheaf_sim::{Options, SeedFamily};

fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Runs seeds of `kind`, `count` of them unless the environment says otherwise.
#[track_caller]
fn check_seeds(kind: SeedFamily, count: u64) -> Report {
    let (first, count) = match env("SHEAF_SEED") {
        Some(seed) => (seed, 1),
        None => (
            env("SHEAF_FIRST_SEED").unwrap_or(1),
            env("SHEAF_SEEDS").unwrap_or(count),
        ),
    };
    let config = Config {
        kind,
        first,
        amount: Amount::Seeds(count),
        threads: 1,
        until_first: true,
    };
    let report = run(&config, &mut |_| std::ops::ControlFlow::Continue(()));
    if let Some(failure) = report.failures.first() {
        let (_, trace) = replay(kind, failure.seed);
        for line in trace.last_of(failure.violation.tf, 60) {
            println!("{line}");
        }
        let options = Options::draw(kind, failure.seed);
        panic!(
            "SHEAF_SEED={} breaks a promise: {}\n{options:#?}",
            failure.seed, failure.violation
        );
    }
    println!(
        "{}: seeds {first} to {}, {report:?}",
        kind.name(),
        first + count - 1
    );
    report
}

#[test]
fn a_farm_without_faults_builds_every_tf_at_once() {
    let report = check_seeds(SeedFamily::Calm, 40);
    assert_eq!(report.accounting.reassigned, 0);
}

#[test]
fn epns_that_crash_hang_and_come_back_cost_no_tf() {
    let report = check_seeds(SeedFamily::EpnFaults, 120);
    assert!(
        report.accounting.reassigned > 0,
        "the schedule must inject faults"
    );
}

#[test]
fn no_policy_and_no_reaction_to_failures_costs_a_tf() {
    let report = check_seeds(SeedFamily::Reactions, 200);
    assert!(
        report.accounting.reassigned > 0,
        "the schedule must inject faults"
    );
}

#[test]
fn a_network_that_loses_doubles_and_reorders_costs_no_tf() {
    let report = check_seeds(SeedFamily::BadNetwork, 80);
    assert!(report.accounting.complete > 0);
}

#[test]
fn whatever_happens_no_tf_is_built_twice_mixed_or_forgotten() {
    let accounting = check_seeds(SeedFamily::Everything, 150).accounting;
    assert!(
        accounting.incomplete > 0 && accounting.dropped > 0 && accounting.abandoned > 0,
        "it must inject faults"
    );
}

#[test]
fn the_heartbeat_of_the_icn_can_lead_instead_of_the_announces() {
    let report = check_seeds(SeedFamily::Paced, 60);
    assert!(report.timeframes > 0);
}

#[test]
fn a_swarm_of_faults_breaks_no_promise() {
    let report = check_seeds(SeedFamily::Swarm, 250);
    assert!(
        report.state_faults > 10 * report.seeds,
        "the schedule must inject faults"
    );
}

#[test]
fn a_registry_that_is_away_and_disks_that_fail_break_no_promise() {
    let accounting = check_seeds(SeedFamily::Outside, 100).accounting;
    assert!(
        accounting.recovered > 0,
        "EPNs must come back to their disks"
    );
}

#[test]
fn stfs_that_are_offered_and_fetched_break_no_promise() {
    let accounting = check_seeds(SeedFamily::Grants, 100).accounting;
    assert!(accounting.complete > 0);
    let (_, trace) = replay(SeedFamily::Grants, 1);
    let said = |word: &str| {
        trace
            .lines()
            .iter()
            .any(|line| line.to_string().contains(word))
    };
    assert!(said(": Offer(") && said(": Grant("), "nothing was fetched");
}

#[test]
fn frames_of_former_runs_change_no_later_run() {
    let report = check_seeds(SeedFamily::Runs, 60);
    assert!(report.message_faults > 0, "frames must be late");
}

#[test]
fn a_node_has_one_life_at_a_time() {
    let report = check_seeds(SeedFamily::Lives, 120);
    assert!(report.state_faults > 0, "the schedule must inject faults");
}

#[test]
fn an_flp_whose_control_path_is_cut_loses_no_tf() {
    let report = check_seeds(SeedFamily::ControlCut, 100);
    assert_eq!(report.accounting.complete, report.timeframes);
}

#[test]
fn recorded_streams_that_are_sent_again_cost_no_living_node_its_stream() {
    let report = check_seeds(SeedFamily::Replays, 60);
    assert_eq!(report.accounting.complete, report.timeframes);
}

#[test]
fn processors_that_are_late_cost_no_tf() {
    let report = check_seeds(SeedFamily::Starved, 60);
    assert_eq!(report.accounting.complete, report.timeframes);
}
