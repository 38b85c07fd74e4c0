//! The brain of the ICN alone, on one core: TFs led from their announces to their release.
//!
//! No sockets, files and threads: the scheduler with its policy is fed with the messages that the nodes of a farm would
//! send, one announce of each FLP for each TF. Each row is a process of its own, so that its memory is its own.

mod led;

use crate::cpus::Cpus;
pub use crate::farm::Shape;
use crate::report;
use anyhow::{Context as _, bail, ensure};
use led::LedIcn;
use serde::{Deserialize, Serialize};
use sheaf_farm::proc::{self, Machine};
use sheaf_figures::stat::{self, Spread};
use sheaf_protocol::NodeId;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// TFs that are open at once at most.
const OPEN_MAX: u16 = 2048;
/// EPNs of a farm without room at most. With 8,000 of them no TF was found to wait; why was not looked into.
const FULL_EPNS_MAX: u16 = 4000;
/// TFs that wait in a farm without room.
const WAITING: u64 = 100;

/// Farms to measure, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// FLPs and EPNs, in the order in which they are measured.
    pub shapes: Vec<Shape>,
    /// Policies, by name; each with each shape.
    pub policies: Vec<String>,
    /// TFs of a round.
    pub tfs: u64,
    /// Rounds of a row.
    pub rounds: u32,
    /// Whether rows stay on one CPU, if there are two.
    pub pin: bool,
    /// This program, which each row is a process of.
    pub program: PathBuf,
}

/// One policy with one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct RowOptions {
    /// FLPs and EPNs.
    pub shape: Shape,
    /// The policy, by name.
    pub policy: String,
    /// TFs of a round.
    pub tfs: u64,
    /// Rounds.
    pub rounds: u32,
}

/// Figures of one policy with one shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The policy.
    pub policy: String,
    /// FLPs.
    pub flps: u16,
    /// EPNs.
    pub epns: u16,
    /// TFs that are assigned and not finished, all the time.
    pub open_tfs: u64,
    /// TFs of a round.
    pub tfs: u64,
    /// Time of the ICN for a TF, from its announces to its release, in µs: means of the rounds.
    pub tf_us: Spread,
    /// TFs a second, by the median of these.
    pub tfs_per_s: f64,
    /// Announces of STFs a second.
    pub announces_per_s: f64,
    /// From the last announce of a TF until its assignment is there, in µs, over all TFs.
    pub decision_us: Quantiles,
    /// Time of a pulse where every EPN is full and TFs wait, of 4,000 EPNs at most, in ns: means of the rounds.
    pub pulse_ns: Spread,
    /// Growth of the resident memory by the farm, in bytes.
    pub memory_bytes: u64,
    /// Sum over all actions: equal where two runs did the same work.
    pub checksum: String,
}

/// Times of many decisions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50: f64,
    /// The value that 99 of 100 are below.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

/// All rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Version of the schema: 1.
    schema: u32,
    /// Version of Sheaf.
    version: String,
    /// The command line.
    command: Vec<String>,
    machine: Machine,
    /// The CPU that rows stay on.
    cpu: Option<usize>,
    /// The rows.
    pub rows: Vec<Row>,
}

/// Most nodes of a role.
const NODES_MAX: u16 = 20_000;

/// Reads `FLPsxEPNs`, up to 20,000 of each.
///
/// # Errors
///
/// What was found and what was expected.
pub fn parse_shape(text: &str) -> Result<Shape, String> {
    Shape::parse(text, NODES_MAX)
}

/// Measures all rows; `tell` takes each.
///
/// # Errors
///
/// The reason why a row was not measured.
pub fn measure(options: &Options, tell: &mut dyn FnMut(&Row)) -> anyhow::Result<Report> {
    let cpus = Cpus::allowed(options.pin).context("cannot read the CPU affinity")?;
    let mut rows = Vec::new();
    for shape in &options.shapes {
        for policy in &options.policies {
            let mut command = Command::new(&options.program);
            command.args(["bench", "icn-row", "--shape", &shape.to_string()]);
            command.args(["--policy", policy, "--tfs", &options.tfs.to_string()]);
            command.args(["--rounds", &options.rounds.to_string()]);
            let mut output = None;
            cpus.start_on(NodeId::ICN, || {
                output = Some(command.output()?);
                Ok::<(), std::io::Error>(())
            })
            .context("cannot start this program again")?;
            let output = output.context("the row was not started")?;
            if !output.status.success() {
                let told = String::from_utf8_lossy(&output.stderr);
                bail!("{policy} at {shape}: {}", told.trim());
            }
            let row: Row = serde_json::from_slice(&output.stdout)
                .with_context(|| format!("{policy} at {shape}: its row cannot be read"))?;
            tell(&row);
            rows.push(row);
        }
    }
    Ok(Report {
        schema: 1,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: std::env::args().collect(),
        machine: Machine::this(),
        cpu: cpus.of(NodeId::ICN),
        rows,
    })
}

/// Measures one row in this process.
///
/// # Errors
///
/// A policy that is not known, or a TF that was not led to its end.
pub fn row(options: &RowOptions) -> anyhow::Result<Row> {
    let RowOptions {
        shape,
        policy,
        tfs,
        rounds,
    } = options;
    let resident =
        || proc::rss_bytes(std::process::id()).context("cannot read the memory of this process");
    let before = resident()?;
    let open = (shape.epns / 2).clamp(1, OPEN_MAX);
    let mut led = LedIcn::with_room(policy, *shape)?;
    let mut decisions = Vec::new();
    let lead = |led: &mut LedIcn, decisions: &mut Vec<f64>| {
        let took = led.lead_one(open.into());
        let took = took.context("a TF was not assigned in a farm with room")?;
        decisions.push(took.as_secs_f64() * 1e6);
        anyhow::Ok(())
    };
    for _ in 0..open {
        lead(&mut led, &mut decisions)?;
    }
    decisions.clear();
    let mut tf_us = Vec::new();
    for _ in 0..*rounds {
        let begin = Instant::now();
        for _ in 0..*tfs {
            lead(&mut led, &mut decisions)?;
        }
        tf_us.push(begin.elapsed().as_secs_f64() * 1e6 / *tfs as f64);
    }
    let memory_bytes = resident()?.saturating_sub(before);
    let (complete, finished) = (led.complete(), led.finished());
    ensure!(
        complete == finished && finished == tfs * u64::from(*rounds),
        "{complete} TFs are complete in the books, {finished} were finished, expected {}",
        tfs * u64::from(*rounds)
    );
    let quantile = |q| stat::quantile(&decisions, q).unwrap_or(0.0);
    let tf_us = Spread::of(tf_us.into_iter());
    let tfs_per_s = 1e6 / tf_us.median.unwrap_or(f64::INFINITY);
    Ok(Row {
        policy: policy.clone(),
        flps: shape.flps,
        epns: shape.epns,
        open_tfs: open.into(),
        tfs: *tfs,
        tf_us,
        tfs_per_s,
        announces_per_s: tfs_per_s * f64::from(shape.flps),
        decision_us: Quantiles {
            p50: quantile(0.5),
            p99: quantile(0.99),
            max: quantile(1.0),
        },
        pulse_ns: pulses(policy, *shape, *rounds)?,
        memory_bytes,
        checksum: format!("{:016x}", led.checksum),
    })
}

/// Measures pulses of EPNs that are all full, while TFs wait.
fn pulses(policy: &str, shape: Shape, rounds: u32) -> anyhow::Result<Spread> {
    let shape = Shape {
        epns: shape.epns.min(FULL_EPNS_MAX),
        ..shape
    };
    let mut led = LedIcn::new(policy, shape, 1)?;
    led.fill(u64::from(shape.epns) + WAITING);
    let queued = led.queued() as u64;
    // A policy that does not look at all EPNs, such as `fixed`, leaves more of them.
    ensure!(
        queued >= WAITING,
        "{queued} TFs wait in a farm without room"
    );
    let ns = (0..rounds).map(|_| led.pulse_all().as_secs_f64() * 1e9 / f64::from(shape.epns));
    Ok(Spread::of(ns.collect::<Vec<_>>().into_iter()))
}

impl Report {
    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        report::to_json(self)
    }
}

impl Row {
    /// Head of the table of rows.
    pub const HEAD: &'static str = "policy              FLPs  EPNs   us/TF    (min to max)      TFs/s  announces/s  \
        decision p50, p99 us   pulse ns  memory MB";

    /// Returns the row as JSON, in one line.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("names and numbers always have a JSON form")
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |value: Option<f64>| value.unwrap_or(0.0);
        write!(
            f,
            "{:<19} {:>4} {:>5} {:>7.2} ({:>6.2} to {:>7.2}) {:>8.0} {:>12.0} {:>11.2} {:>9.2} {:>10.0} {:>10.1}",
            self.policy,
            self.flps,
            self.epns,
            of(self.tf_us.median),
            of(self.tf_us.min),
            of(self.tf_us.max),
            self.tfs_per_s,
            self.announces_per_s,
            self.decision_us.p50,
            self.decision_us.p99,
            of(self.pulse_ns.median),
            self.memory_bytes as f64 / 1e6
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        let cpu = self
            .cpu
            .map_or("not pinned".to_owned(), |cpu| format!("on CPU {cpu}"));
        let mut text = format!(
            "{} x {}, Linux {}, {cpu}\n{}\n",
            machine.cores,
            machine.cpu,
            machine.kernel,
            Row::HEAD
        );
        for row in &self.rows {
            let _ = writeln!(text, "{row}");
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_placement::policy;

    fn options(policy: &str) -> RowOptions {
        RowOptions {
            shape: Shape { flps: 3, epns: 8 },
            policy: policy.to_owned(),
            tfs: 20,
            rounds: 2,
        }
    }

    #[test]
    fn every_policy_leads_all_tfs_to_their_end_and_equal_rows_do_equal_work() {
        for name in policy::NAMES {
            let rows = [(); 2].map(|()| row(&options(name)).expect(name));
            assert_eq!(rows[0].checksum, rows[1].checksum, "{name}");
            assert!(rows[0].tfs_per_s > 0.0 && rows[0].announces_per_s > rows[0].tfs_per_s);
            let Quantiles { p50, p99, max } = rows[0].decision_us;
            assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{name}");
            let read: Row = serde_json::from_str(&rows[0].to_json()).expect("a row");
            let work = |row: &Row| (row.policy.clone(), row.epns, row.checksum.clone());
            assert_eq!(work(&read), work(&rows[0]));
        }
    }

    #[test]
    fn shapes_are_larger_than_those_of_processes() {
        let shape = parse_shape("1000x10000").expect("a shape");
        assert_eq!((shape.flps, shape.epns), (1000, 10_000));
        let told = parse_shape("250").unwrap_err();
        assert_eq!(
            told,
            "found `250`, expected FLPs x EPNs, 1 to 20000 each, such as 3x5"
        );
    }

    #[test]
    fn a_farm_of_more_epns_than_are_filled_has_a_row() {
        let options = RowOptions {
            shape: Shape {
                flps: 1,
                epns: 8000,
            },
            tfs: 2,
            rounds: 1,
            ..options("round-robin")
        };
        let row = row(&options).expect("a row");
        assert_eq!((row.epns, row.open_tfs), (8000, OPEN_MAX.into()));
    }

    #[test]
    fn an_unknown_policy_is_named() {
        let told = row(&options("best")).unwrap_err().to_string();
        assert!(told.contains("policy `best`, expected one of"), "{told}");
    }
}
