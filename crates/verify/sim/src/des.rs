//! Simulator of performance: scenarios in virtual time, by the million events a second.
//!
//! The torture harness holds whole nodes against their contract step by step; this simulator answers "how much, how
//! fast, how fair" for farms of any size: same brains, modelled wires ([`Scenario`] has the choices). Equal scenarios
//! and seeds give equal runs, to the byte ([`Run::trace_hash`]). `docs/explanation/simulator.md` has the model, its
//! limits and how well it agrees with live farms.

mod draw;
mod farm;
mod legacy;
mod network;
mod oracle;
mod point;
mod queue;
mod record;
mod stale;
mod tally;

pub use draw::{TimeDraw, drawn_faults};
pub use point::{PointRun, run_point, run_point_with};
pub use record::{Fate, TfRecord, Waits};
pub use tally::Run;

use crate::scenario::{Mode, Scenario, ScenarioError};
use sheaf_placement::Policy;

/// Progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time simulated, in s.
    pub simulated_s: f64,
    /// Time that TFs are made for, in s.
    pub duration_s: f64,
}

/// Simulates one run. `progress` is called now and then; if it returns `false`, the run is broken off there, and open
/// TFs count as in flight.
///
/// # Errors
///
/// A [`ScenarioError`] if the scenario cannot be run.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    progress: impl FnMut(Progress) -> bool,
) -> Result<Run, ScenarioError> {
    run_with(scenario, seed, None, progress)
}

/// As [`run`], with `policy` in place of that of the scenario if there is one.
fn run_with(
    scenario: &Scenario,
    seed: u64,
    policy: Option<Box<dyn Policy>>,
    mut progress: impl FnMut(Progress) -> bool,
) -> Result<Run, ScenarioError> {
    scenario.check()?;
    let duration_s = scenario.duration_s;
    let tell = |now: u64| {
        progress(Progress {
            simulated_s: now as f64 / 1e9,
            duration_s,
        })
    };
    Ok(match scenario.mode {
        Mode::Sheaf => farm::DesFarm::new(scenario, seed, policy).run(tell),
        Mode::Legacy => legacy::Legacy::new(scenario, seed).run(tell),
    })
}
