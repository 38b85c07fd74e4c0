//! Mutants: farms with one protection taken out, which the invariants must notice.
//!
//! `crates/verify/sim/seeds/mutants.toml` lists for each mutant the seeds that notice it, or the test that does, or why
//! none has to.

use crate::family::SeedFamily;
use crate::invariant::Violation;
use crate::options::VERSION;
use crate::torture::run_seed;
use serde::{Deserialize, Serialize};
use sheaf_protocol::mutant::{self, Mutant};

/// Killing seeds that are recorded of each mutant.
pub const RECORDED: usize = 3;

/// Register of all mutants.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// The version of the options that the seeds are of.
    pub options_version: u32,
    /// Each mutant.
    pub mutant: Vec<Entry>,
}

/// Register entry of one mutant.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Entry {
    /// Name of the mutant, such as `NoTombstones`.
    pub name: String,
    /// The family of seeds that notices it.
    pub kind: String,
    /// Seeds of the family that notice it, the first ones found.
    pub killed_by: Vec<u64>,
    /// Number of seeds run until that many had been found, from 0 on.
    pub searched: u64,
    /// The invariant that the first of them breaks.
    pub invariant: String,
    /// Test that notices it, if not the swarm.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub elsewhere: String,
    /// Reason why no test has to notice it: another protection covers for it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub redundant: String,
}

impl Entry {
    /// Returns the family of seeds that notices it.
    #[must_use]
    pub fn kind(&self) -> SeedFamily {
        SeedFamily::named(&self.kind).unwrap_or(SeedFamily::Swarm)
    }
}

impl Register {
    /// Returns whether the recorded seeds stand for the same farms as before.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.options_version == VERSION
    }

    /// Returns the entry of `mutant`.
    #[must_use]
    pub fn of(&self, mutant: Mutant) -> Option<&Entry> {
        let name = format!("{mutant:?}");
        self.mutant.iter().find(|entry| entry.name == name)
    }
}

/// Runs a seed with `mutant` taken out. `Err` is the violation that notices it.
///
/// # Errors
///
/// The first [`Violation`].
pub fn run(mutant: Mutant, kind: SeedFamily, seed: u64) -> Result<(), Violation> {
    mutant::set(Some(mutant));
    let result = run_seed(kind, seed);
    mutant::set(None);
    result.map(|_| ())
}

/// Searches for seeds that notice `mutant`, and break no promise without it, from 0 to `seeds_max`, until [`RECORDED`]
/// are found.
#[must_use]
pub fn search(mutant: Mutant, kind: SeedFamily, seeds_max: u64) -> Entry {
    let mut entry = Entry {
        name: format!("{mutant:?}"),
        kind: kind.name().to_owned(),
        ..Entry::default()
    };
    while entry.searched < seeds_max && entry.killed_by.len() < RECORDED {
        let seed = entry.searched;
        entry.searched += 1;
        // A seed that breaks a promise anyway shows nothing.
        if let Err(violation) = run(mutant, kind, seed)
            && run_seed(kind, seed).is_ok()
        {
            if entry.killed_by.is_empty() {
                entry.invariant = violation.invariant.name().to_owned();
            }
            entry.killed_by.push(seed);
        }
    }
    entry
}
