//! Whole farms in one process, in virtual time, under seeded faults.
//!
//! The nodes are the shipped ones; only sockets and the clock are replaced. Every seed draws the shape of a
//! farm and a schedule of crashes, restarts, pauses, cuts, lost, doubled and overtaken messages; then the faults
//! end, the farm must come to rest, and the books are checked from the event logs of the nodes.
//!
//! `SHEAF_SEED=N` runs one seed, `SHEAF_SEEDS=N` so many, `SHEAF_FIRST_SEED=N` says where to begin. A failure prints
//! the seed and everything that was drawn from it.

mod check;
mod farm;
mod plan;

use check::Books;
use farm::Farm;
use plan::{Kind, Plan};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn env(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

/// Runs seeds of `kind`, `count` of them unless the environment says otherwise, and adds their books up.
fn check_seeds(kind: Kind, count: u64) -> Books {
    let (first, count) = match env("SHEAF_SEED") {
        Some(seed) => (seed, 1),
        None => (
            env("SHEAF_FIRST_SEED").unwrap_or(1),
            env("SHEAF_SEEDS").unwrap_or(count),
        ),
    };
    let mut sum = Books::default();
    for seed in first..first + count {
        let plan = Plan::draw(kind, seed);
        let run = catch_unwind(AssertUnwindSafe(|| Farm::new(&plan).run()));
        match run {
            Ok(books) => sum.add(&books),
            Err(_) => panic!("SHEAF_SEED={seed} replays this failure of {plan:#?}"),
        }
    }
    println!("{kind:?}: seeds {first} to {}, {sum:?}", first + count - 1);
    sum
}

#[test]
fn a_farm_without_faults_builds_every_tf_at_once() {
    let books = check_seeds(Kind::Calm, 100);
    assert_eq!(books.reassigned, 0);
}

#[test]
fn epns_that_crash_hang_and_come_back_cost_no_tf() {
    let books = check_seeds(Kind::EpnFaults, 1000);
    assert!(books.reassigned > 0, "the schedule must hurt");
}

#[test]
fn a_network_that_loses_doubles_and_reorders_costs_no_tf() {
    let books = check_seeds(Kind::BadNetwork, 500);
    assert!(books.complete > 0);
}

#[test]
fn whatever_happens_no_tf_is_built_twice_mixed_or_forgotten() {
    let books = check_seeds(Kind::Everything, 1500);
    assert!(
        books.incomplete > 0 && books.dropped > 0 && books.abandoned > 0,
        "it must hurt"
    );
}

#[test]
fn the_heartbeat_of_the_icn_can_lead_instead_of_the_announces() {
    let books = check_seeds(Kind::Paced, 300);
    assert!(books.announced > 0);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1..=20 {
        let plan = Plan::draw(Kind::Everything, seed);
        let (first, second) = (Farm::new(&plan).run(), Farm::new(&plan).run());
        assert_eq!(first, second, "seed {seed}");
    }
}
