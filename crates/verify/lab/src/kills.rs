//! `sheaf lab kills`: EPNs die one after the other in a paced farm of six. What is lost, and what would be lost if
//! sources kept less, or nothing at all.

use crate::accounting;
use crate::cell::{Fault, Who};
use crate::farm::{Farm, FarmError};
use crate::inject::{self, InjectError};
use crate::judge;
use crate::shape::{Consumer, Shape};
use crate::trace::Trace;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{self, Interrupted, let_pass};
use sheaf_testbed::machine::{self, Folder};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long a dying EPN is silent before its process is gone: longer than it takes to suspect it.
const SILENT_MS: u64 = 200;
/// How long it may take until a new EPN is in good standing.
const BACK_MAX: Duration = Duration::from_secs(15);

/// Reasons why kills are not counted. What a farm does wrong is a result, not an error.
#[derive(Debug, Error)]
pub enum KillsError {
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
#[derive(Clone, Debug)]
pub struct Options {
    /// EPNs killed with each hold.
    pub kills: u32,
    /// Holds to compare with the default one, in ms.
    pub hold_ms: Vec<u64>,
    /// Seed of the run.
    pub seed: u64,
    /// Whether event logs and logs stay.
    pub keep: bool,
}

/// Result for one length of the hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KillRow {
    /// How EPNs die: `kill` (the process is gone, its sockets say so) or `vanish` (it falls silent first, as a
    /// machine does that loses its power).
    pub how: String,
    /// When a TF counts as built: `built` (in memory) or `stored` (on the disk).
    pub ack: String,
    /// How long an FLP keeps STFs, in ms; `null` for the default.
    pub hold_ms: Option<u64>,
    /// The same in STFs.
    pub hold_stfs: u64,
    /// EPNs killed.
    pub kills: u64,
    /// TFs called for.
    pub timeframes: u64,
    /// TFs dropped or incomplete.
    pub lost: u64,
    /// These, by reason.
    pub lost_by_reason: BTreeMap<String, u64>,
    /// TFs that were built and whose delivery is unknown, since the EPN died meanwhile.
    pub abandoned: u64,
    /// TFs that a source which frees what it has sent would have lost: something of them had gone to the EPN that
    /// died, and it had not delivered them. Counted from the event logs of this same run.
    pub send_and_forget_lost: u64,
    /// TFs delivered more than once.
    pub delivered_twice: u64,
    /// Whether the accounting is right, and with the default hold nothing is lost.
    pub ok: bool,
    /// Why not.
    pub problems: Vec<String>,
    /// Seed of the run.
    pub seed: u64,
    /// How long it took, in s.
    pub wall_s: f64,
}

impl KillRow {
    fn per_kill(&self, count: u64) -> f64 {
        count as f64 / (self.kills.max(1)) as f64
    }
}

/// Runs a farm for each hold and each way to die; `tell` is called with each when it is over.
///
/// # Errors
///
/// What stands in the way of an experiment. What a farm does wrong is in the rows.
pub fn run(options: &Options, mut tell: impl FnMut(&KillRow)) -> Result<Vec<KillRow>, KillsError> {
    clock::end_on_signals()?;
    for name in machine::clean() {
        tracing::info!(name, "Removed what an earlier experiment left");
    }
    let mut rows = Vec::new();
    let held = |hold_ms: &u64| shape(Some(*hold_ms));
    let shapes = [shape(None), shape(None).to(Consumer::Stored)]
        .into_iter()
        .chain(options.hold_ms.iter().map(held));
    let shapes: Vec<Shape> = shapes.collect();
    for (how, fault) in [("kill", Fault::Kill), ("vanish", Fault::Vanish(SILENT_MS))] {
        for shape in &shapes {
            let row = run_shape(options, how, fault, shape)?;
            tell(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Six EPNs, two FLPs, 200 TFs a second. The hold of an FLP is counted in STFs: in a paced farm that is a time.
fn shape(hold_ms: Option<u64>) -> Shape {
    let rate_hz = 200.0;
    let hold_stfs = hold_ms.map(|ms| (rate_hz * ms as f64 / 1000.0).ceil().max(1.0) as u32);
    Shape {
        epns: 6,
        rate_hz,
        hold_stfs,
        ..Shape::SMALL
    }
}

fn run_shape(
    options: &Options,
    how: &str,
    fault: Fault,
    shape: &Shape,
) -> Result<KillRow, KillsError> {
    let begin = Instant::now();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(options.seed);
    let hold_ms = shape
        .hold_stfs
        .map(|stfs| (f64::from(stfs) * 1000.0 / shape.rate_hz) as u64);
    let is_stored = shape.consumer == Consumer::Stored;
    let mut farm = Farm::start(*shape, Folder::make(options.keep)?)?;
    for _ in 0..options.kills {
        let nodes = Who::Epn.choose(shape, farm.watch().leader(), &mut rng);
        let_pass(Duration::from_millis(rng.random_range(20..120)))?;
        let remedy = inject::inject(&mut farm, fault, &nodes, &mut rng)?;
        let_pass(Duration::from_millis(rng.random_range(50..150)))?;
        remedy(&mut farm)?;
        if !farm.await_all_up(BACK_MAX)? {
            farm.problems.push("an EPN did not come back".to_owned());
        }
    }
    let_pass(judge::SETTLE)?;
    farm.end()?;
    let trace = Trace::read(&farm.logs(), |_| 0)?;
    let accounting = accounting::recompute(&farm.logs(), farm.last_accounting().as_ref())?;
    let lost_by_reason = trace.lost();
    let lost = lost_by_reason.values().sum();
    let mut problems = farm.problems.clone();
    problems.extend(farm.lives.iter().filter_map(judge::error_line));
    problems.extend(accounting.contradictions.iter().cloned());
    if accounting.in_flight > 0 {
        problems.push(format!("{} TFs have no verdict", accounting.in_flight));
    }
    if hold_ms.is_none() && lost > 0 {
        problems.push(format!("{lost} TFs lost with the default hold"));
    }
    let abandoned = trace.abandoned();
    if is_stored && abandoned > 0 {
        problems.push(format!("{abandoned} stored TFs abandoned"));
    }
    if accounting.delivered_twice > 0 {
        problems.push(format!(
            "{} TFs delivered twice",
            accounting.delivered_twice
        ));
    }
    let ok = problems.is_empty();
    if !ok || options.keep {
        farm.folder().keep();
        let path = farm.folder().path().display().to_string();
        problems.push(format!("logs are in {path}"));
    }
    Ok(KillRow {
        how: how.to_owned(),
        ack: if is_stored { "stored" } else { "built" }.to_owned(),
        hold_ms,
        hold_stfs: shape.hold_stfs.unwrap_or(shape.default_hold_stfs()).into(),
        kills: options.kills.into(),
        timeframes: trace.tfs.len() as u64,
        lost,
        lost_by_reason,
        abandoned,
        send_and_forget_lost: trace.gone_with_a_killed_epn(),
        delivered_twice: accounting.delivered_twice,
        ok,
        problems,
        seed: options.seed,
        wall_s: begin.elapsed().as_secs_f64(),
    })
}

/// The rows as a table.
#[must_use]
pub fn table(rows: &[KillRow]) -> String {
    let mut text = format!(
        "{:<7} {:<7} {:>9} {:>5} {:>6} {:>5} {:>10} {:>14} {:>22}  ok\n",
        "how",
        "ack",
        "hold",
        "kills",
        "TFs",
        "lost",
        "lost/kill",
        "abandoned/kill",
        "send-and-forget/kill"
    );
    for row in rows {
        let hold = row
            .hold_ms
            .map_or("default".to_owned(), |ms| format!("{ms} ms"));
        let _ = writeln!(
            text,
            "{:<7} {:<7} {hold:>9} {:>5} {:>6} {:>5} {:>10.2} {:>14.2} {:>22.2}  {}",
            row.how,
            row.ack,
            row.kills,
            row.timeframes,
            row.lost,
            row.per_kill(row.lost),
            row.per_kill(row.abandoned),
            row.per_kill(row.send_and_forget_lost),
            if row.ok { "yes" } else { "NO" },
        );
    }
    for row in rows.iter().filter(|row| !row.ok) {
        for problem in &row.problems {
            let _ = writeln!(text, "{} {:?}: {problem}", row.how, row.hold_ms);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_in_time_is_a_hold_in_stfs_at_the_rate_of_the_farm() {
        for (ms, stfs) in [(250, 50), (100, 20), (50, 10), (1, 1)] {
            assert_eq!(shape(Some(ms)).hold_stfs, Some(stfs));
        }
        assert_eq!(shape(None).hold_stfs, None);
    }

    #[test]
    fn the_table_tells_losses_for_each_kill() {
        let row = KillRow {
            how: "vanish".to_owned(),
            ack: "built".to_owned(),
            hold_ms: Some(50),
            kills: 50,
            timeframes: 9000,
            lost: 25,
            send_and_forget_lost: 150,
            ok: true,
            ..KillRow::default()
        };
        let text = table(&[row]);
        let line = text.lines().nth(1).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected = [
            "vanish", "built", "50", "ms", "50", "9000", "25", "0.50", "0.00", "3.00", "yes",
        ];
        assert_eq!(words, expected);
    }
}
