use super::*;
use crate::des;

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
    assert_eq!(run.stfs, 600);
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
