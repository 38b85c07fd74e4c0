//! Exhaustive search of every interleaving of the decision at small size.
//!
//! Two ICNs, two EPNs, two FLPs, a verdict log, and at most two faults: an EPN dies, a leader dies, a leader is
//! replaced while it goes on. Messages are never lost for good, may come in any order, any number of times, and as late
//! as can be: every message sent once may arrive at every later moment. The model says in a page what
//! `docs/explanation/reliability.md` promises; the simulator runs the code itself, but only some of the interleavings.
//!
//! Each rule of the protocol can be taken out. Then the search must find the failure that the rule prevents: a model
//! that finds nothing whatever is broken would prove nothing.

mod farm;

use farm::{ModelFarm, Rules};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Duration;

/// Time limit of a search; on a quiet machine of two cores, all of them together take ten seconds.
const PATIENCE: Duration = Duration::from_secs(400);

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the search of a test has a time limit"
)]
fn search(farm: ModelFarm, until: HasDiscoveries) -> impl Checker<ModelFarm> {
    let begun = std::time::Instant::now();
    let checker = farm
        .checker()
        .threads(2)
        .timeout(PATIENCE)
        .finish_when(until)
        .spawn_bfs()
        .join();
    println!(
        "{farm:?}: {} states, {} of them different, depth {}, {:.1} s",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth(),
        begun.elapsed().as_secs_f64()
    );
    let is_finished = begun.elapsed() < PATIENCE;
    assert!(is_finished, "the search was not finished in {PATIENCE:?}");
    checker
}

/// Checks that all states are reached, no promise is broken, and every wanted outcome is possible.
#[track_caller]
fn check_sound(farm: ModelFarm) {
    search(farm, HasDiscoveries::AnyFailures).assert_properties();
}

/// Checks that, with a rule taken out, each of these promises is broken, and that the search reports how.
#[track_caller]
fn check_broken(rules: Rules, promises: &[&'static str]) {
    let farm = ModelFarm {
        tfs: 1,
        faults: 2,
        is_whole: true,
        rules,
    };
    let checker = search(
        farm,
        HasDiscoveries::AllOf(promises.iter().copied().collect()),
    );
    for promise in promises {
        let path = checker.discovery(promise);
        let path = path.unwrap_or_else(|| panic!("{rules:?}: {promise:?} was not broken"));
        println!("{promise}: {:?}", path.into_actions());
    }
}

#[test]
fn one_timeframe_keeps_every_promise_in_all_interleavings_of_two_faults() {
    check_sound(ModelFarm {
        tfs: 1,
        faults: 2,
        is_whole: true,
        rules: Rules::ALL,
    });
}

#[test]
fn two_timeframes_keep_every_promise_in_all_interleavings_of_two_faults() {
    check_sound(ModelFarm {
        tfs: 2,
        faults: 2,
        is_whole: false,
        rules: Rules::ALL,
    });
}

#[test]
fn without_the_fence_a_timeframe_is_delivered_twice_and_another_lost_and_delivered() {
    let rules = Rules {
        is_fenced: false,
        ..Rules::ALL
    };
    check_broken(
        rules,
        &["one verdict", "one delivery", "never lost and delivered"],
    );
}

#[test]
fn a_leader_that_reads_the_log_before_it_fences_the_old_one_decides_again() {
    let rules = Rules {
        fences_first: false,
        ..Rules::ALL
    };
    check_broken(
        rules,
        &["one verdict", "one delivery", "never lost and delivered"],
    );
}

#[test]
fn a_leader_that_does_not_read_the_log_decides_again() {
    let rules = Rules {
        replays: false,
        ..Rules::ALL
    };
    check_broken(
        rules,
        &["one verdict", "one delivery", "never lost and delivered"],
    );
}

#[test]
fn a_commit_before_the_log_is_durable_hands_on_without_a_verdict() {
    let rules = Rules {
        waits_for_log: false,
        ..Rules::ALL
    };
    let expected = [
        "a delivery has its verdict",
        "one delivery",
        "never lost and delivered",
    ];
    check_broken(rules, &expected);
}

#[test]
fn without_tombstones_a_late_duplicate_is_delivered_again() {
    let rules = Rules {
        buries: false,
        ..Rules::ALL
    };
    check_broken(rules, &["one delivery"]);
}

#[test]
fn an_epn_that_answers_for_its_former_life_hands_on_what_is_not_its_own() {
    let rules = Rules {
        knows_lives: false,
        ..Rules::ALL
    };
    check_broken(rules, &["a delivery has its verdict", "one delivery"]);
}
