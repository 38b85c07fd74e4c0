//! Common part of the reports of all benchmarks.

use crate::cpus::Cpus;
use serde::{Deserialize, Serialize};
use sheaf_farm::proc::Machine;
use std::fmt;

/// Version of the schemas.
const SCHEMA: u32 = 1;
/// Above this, others had a part in how a run went. Stricter than the 1.3 of a run alone: a CPU that is shared costs
/// the plain pair more than the farm, and flatters the ratio from 1.2 on (`docs/results/farm.md`).
pub(crate) const BUSY_RATIO_MAX: f64 = 1.1;
/// Fewer pairs than these do not show how far the ratio spreads.
pub(crate) const PAIRS_TRUSTED_MIN: usize = 7;

/// First fields of a report: which program measured where, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    /// Version of the schema.
    pub(crate) schema: u32,
    /// Version of Sheaf.
    pub(crate) version: String,
    /// The command line.
    pub(crate) command: Vec<String>,
    pub(crate) machine: Machine,
    /// CPUs of a sender and of its receiver, if processes are pinned.
    pub(crate) pinned: Option<[usize; 2]>,
    /// Length of a measured window.
    pub(crate) seconds: f64,
    /// Time that a run goes before its window begins.
    pub(crate) warm_up_seconds: f64,
}

impl Head {
    /// Returns the head of a report of this process.
    pub(crate) fn new(cpus: &Cpus, seconds: f64, warm_up_seconds: f64) -> Self {
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args().collect(),
            machine: Machine::this(),
            pinned: cpus.pair(),
            seconds,
            warm_up_seconds,
        }
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        let pins = self.pinned.map_or("not pinned".to_owned(), |[a, b]| {
            format!("pinned to CPUs {a} and {b} in turn")
        });
        write!(
            f,
            "{} x {}, Linux {}, {pins}; windows of {} s",
            machine.cores, machine.cpu, machine.kernel, self.seconds
        )
    }
}

/// Returns `report` as the text that `--json` writes.
pub(crate) fn to_json(report: &impl Serialize) -> String {
    let mut text =
        serde_json::to_string_pretty(report).expect("names and numbers always have a JSON form");
    text.push('\n');
    text
}
