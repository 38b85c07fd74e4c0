//! `sheaf lab faults`: cell after cell of the matrix, each on a farm of its own.

use crate::cell::Cell;
use crate::farm::{Change, Farm, FarmError, now_ns};
use crate::inject::{self, InjectError};
use crate::judge::{self, CALM, Injection, SETTLE};
use crate::matrix::cells;
use crate::report::Row;
use crate::shape::{Ground, Shape};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_node::config::Threads;
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{self, Interrupted, let_pass};
use sheaf_testbed::interference::Interference;
use sheaf_testbed::machine::{self, Folder};
use sheaf_testbed::tool::Missing;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a node may take to be back after its fault is healed.
const BACK_MAX: Duration = Duration::from_secs(15);
/// Share of the processors from which on others disturb what is timed: a tenth.
const INTERFERENCE_MAX: f64 = 0.1;
/// Runs of a cell that is late.
const RUNS_MAX: u32 = 3;
/// Faults below which their 99th percentile says little.
const FEW: u64 = 10;
/// Faults of a quick cell.
const QUICK_TRIALS: u32 = 3;

/// Reasons why the fault matrix does not run. What a farm does wrong is a result, not an error.
#[derive(Debug, Error)]
pub enum FaultsError {
    /// There is no such cell.
    #[error("cell {found:?} does not exist, expected one of: {known}")]
    Cell {
        /// The name found.
        found: String,
        /// All names.
        known: String,
    },
    /// Cells that must run and cannot.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A signal asked this process to end. What was changed on the machine is undone.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A folder, an event log or a signal handler.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A farm does not start.
    #[error(transparent)]
    Farm(#[from] FarmError),
    /// A fault is not injected, or not undone.
    #[error(transparent)]
    Inject(#[from] InjectError),
}

/// Options of the run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Cells by name; none: see `quick`.
    pub cells: Vec<String>,
    /// Only the quick ones, and fewer faults in each.
    pub quick: bool,
    /// Faults in each cell.
    pub trials: Option<u32>,
    /// Seed of the run.
    pub seed: u64,
    /// Whether event logs and logs stay.
    pub keep: bool,
    /// Threads that move STFs in each node.
    pub threads: Threads,
    /// Whether it is an error if a cell cannot run here.
    pub must_run: bool,
    /// Bounds are taken so many times: other work may share the processors.
    pub slack: f64,
}

/// The cells that `options` name.
///
/// # Errors
///
/// [`FaultsError::Cell`] if there is none of a name.
pub fn select(options: &Options) -> Result<Vec<Cell>, FaultsError> {
    let known = || {
        let names: Vec<&str> = cells().map(|cell| cell.name).collect();
        names.join(" ")
    };
    for name in &options.cells {
        if !cells().any(|cell| cell.name == name) {
            return Err(FaultsError::Cell {
                found: name.clone(),
                known: known(),
            });
        }
    }
    let is_wanted = |cell: &&Cell| {
        if options.cells.is_empty() {
            cell.is_quick || !options.quick
        } else {
            options.cells.iter().any(|name| name == cell.name)
        }
    };
    Ok(cells().filter(is_wanted).copied().collect())
}

/// Runs the cells that `options` name; `tell` is called with each when it is over.
///
/// # Errors
///
/// [`FaultsError::Missing`] if cells cannot run here and must, and what stands in the way of an experiment. What a farm
/// does wrong is in the rows.
pub fn run(options: &Options, mut tell: impl FnMut(&Row)) -> Result<Vec<Row>, FaultsError> {
    let cells = select(options)?;
    clock::end_on_signals()?;
    for name in machine::clean() {
        tracing::info!(name, "Removed what an earlier experiment left");
    }
    let missing: Vec<Option<String>> = cells.iter().map(Cell::missing).collect();
    if options.must_run {
        let skipped = cells
            .iter()
            .zip(&missing)
            .filter_map(|(cell, why)| why.as_ref().map(|why| format!("{} {why}", cell.name)));
        let skipped: Vec<String> = skipped.collect();
        if !skipped.is_empty() {
            return Err(Missing(skipped.join("; ")).into());
        }
    }
    let mut rows = Vec::new();
    for (cell, why) in cells.iter().zip(missing) {
        let row = match why {
            Some(why) => Row {
                skipped: Some(why),
                ..blank(cell)
            },
            None => match run_undisturbed(cell, options) {
                Err(error) => {
                    clock::check_quit()?;
                    // The other cells may still tell something.
                    Row {
                        problems: vec![error.to_string()],
                        ..blank(cell)
                    }
                }
                Ok(row) => row,
            },
        };
        tell(&row);
        rows.push(row);
    }
    Ok(rows)
}

/// The row of a cell that has not run.
fn blank(cell: &Cell) -> Row {
    Row {
        cell: cell.name.to_owned(),
        number: cell.number.to_owned(),
        what: cell.what.to_owned(),
        bound_ms: cell.recover_ms,
        ..Row::default()
    }
}

/// Runs `cell`, and again if its times are above their bounds while others took the processors, or once if its faults
/// are few: their 99th percentile is their maximum. What is lost, doubled or contradicted is a failure at once: no load
/// of a machine excuses it.
fn run_undisturbed(cell: &Cell, options: &Options) -> Result<Row, FaultsError> {
    let mut repeated = 0;
    loop {
        let interference = Interference::begin()?;
        let mut row = run_cell(cell, options)?;
        row.interference = interference.share()?;
        row.repeated = repeated;
        let are_few = repeated == 0 && row.injected < FEW;
        let again = row.is_disturbed(INTERFERENCE_MAX) || row.is_late() && are_few;
        if !again || repeated + 1 == RUNS_MAX {
            return Ok(row);
        }
        tracing::warn!(
            cell = cell.name,
            interference = format!("{:.0} %", 100.0 * row.interference),
            problems = row.problems.join("; "),
            "Times are above their bounds: the cell runs again"
        );
        repeated += 1;
    }
}

/// Starts the farm of `cell`, does its fault to it as often as asked for, ends the farm, and judges it.
///
/// # Errors
///
/// What stands in the way.
pub fn run_cell(cell: &Cell, options: &Options) -> Result<Row, FaultsError> {
    let begin = Instant::now();
    // Each cell has chances of its own, so that one that fails can be run alone.
    let name_hash = cell.name.bytes().fold(0_u64, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(options.seed ^ name_hash);
    let usual = if options.quick {
        QUICK_TRIALS
    } else {
        cell.trials
    };
    let trials = options.trials.unwrap_or(usual);
    let shape = Shape {
        threads: options.threads,
        ..cell.shape
    };
    let mut farm = Farm::start(shape, Folder::make(options.keep)?)?;
    let mut injections = Vec::new();
    for _ in 0..trials {
        // After a cut, TCP waits as long again before it looks whether the way is free: what the last fault left has
        // to be over before the next one is measured.
        let pause_ms = match cell.shape.ground {
            Ground::Namespaces | Ground::KeeperRelays => rng.random_range(700..900),
            Ground::Loopback | Ground::Relays => rng.random_range(100..300),
        };
        let_pass(Duration::from_millis(pause_ms))?;
        injections.push(one_fault(cell, &mut farm, &mut rng)?);
    }
    let_pass(SETTLE + CALM)?;
    farm.end()?;
    let mut row = judge::judge(cell, &farm, &injections, options.slack)?;
    row.seed = options.seed;
    row.wall_s = begin.elapsed().as_secs_f64();
    if options.keep || row.has_failed() {
        farm.folder().keep();
        let path = farm.folder().path().display().to_string();
        row.logs = Some(path.clone());
        if !row.has_failed() {
            tracing::warn!(cell = cell.name, path, "Logs are kept");
        }
    }
    Ok(row)
}

fn one_fault(
    cell: &Cell,
    farm: &mut Farm,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<Injection, FaultsError> {
    let nodes = cell.who.choose(&cell.shape, farm.watch().leader(), rng);
    let hold = cell.hold(rng);
    let before = farm.watch().status();
    let before_ns = now_ns();
    let remedy = inject::inject(farm, cell.fault, &nodes, rng)?;
    // Tools take their time until a fault is there; of a signal nothing happens before it is sent.
    let at_ns = if cell.fault.is_by_tool() {
        now_ns()
    } else {
        before_ns
    };
    let_pass(hold)?;
    remedy(farm)?;
    let healed_ns = now_ns();
    if !farm.await_all_up(BACK_MAX)? {
        let all = farm.all_nodes();
        let down = all.iter().filter(|node| !farm.watch().is_up(**node));
        let names: Vec<String> = down.map(ToString::to_string).collect();
        farm.problems.push(format!(
            "{} not back after {} s",
            names.join(", "),
            BACK_MAX.as_secs()
        ));
    }
    let after = farm.watch().status();
    let changes = farm.watch().changes();
    let is_suspicion = |change: &&Change| change.at_ns >= at_ns && change.state == "silent";
    // What the ICN counts, or what it told, if it is of an earlier build.
    let seen = changes.iter().filter(is_suspicion).count() as u64;
    Ok(Injection {
        nodes,
        at_ns,
        healed_ns,
        suspected: after.suspected.saturating_sub(before.suspected).max(seen),
        reassigned: (after.accounting.reassigned).saturating_sub(before.accounting.reassigned),
    })
}
