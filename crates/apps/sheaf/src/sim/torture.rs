//! `sheaf sim torture`: farms by the thousand, and what to do when one of them breaks a promise.

use crate::{fail, json_file, progress};
use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use serde_json::json;
use sheaf_node::shutdown::Shutdown;
use sheaf_sim::torture::{
    Amount, Config, Failure, Report, describe, replay, run as run_seeds, run_seed,
};
use sheaf_sim::{OPTIONS_VERSION, SeedFamily};
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// Default number of seeds: that of CI.
const SEEDS_DEFAULT: u64 = 20_000;
/// Lines of a TF that a failure shows.
const LINES_SHOWN: usize = 60;
/// Failures shown in full.
const FAILURES_SHOWN: usize = 3;

/// Inject faults into simulated farms and check every invariant at every step.
///
/// Each seed draws a farm and what happens to it: crashes, pauses, cuts, a network that loses, doubles and reorders.
/// Then the faults end, and everything must be decided in time. A seed that breaks an invariant is printed with all
/// that was drawn from it, and the status is 1. Ctrl-C ends it with the report so far. Three families have no farm:
/// `monitor`, with clients, a network, and the collector of monitoring with its store on a disk that fails;
/// `writers`, with an engine that writes files on such a disk; and `handoff`, with EPNs that hand TFs to writer nodes.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf sim torture                            20,000 seeds, from the commit id
  sheaf sim torture --faults 1e9               until so many faults have happened
  sheaf sim torture --one 1357 --trace         what happens in one seed, line by line
  sheaf sim torture --kind monitor --seeds 300 the collector of monitoring and its store
  sheaf sim torture --kind writers             writers of files, killed and without power")]
pub(crate) struct Args {
    /// Run this many seeds.
    #[arg(long, value_parser = number, conflicts_with = "faults")]
    seeds: Option<u64>,
    /// Run seeds until this many faults of nodes and messages are injected, such as 1e9.
    #[arg(long, value_parser = number)]
    faults: Option<u64>,
    /// Begin with this seed; without it, with one from the commit id.
    #[arg(long)]
    seed: Option<u64>,
    /// Run this seed alone, and print all that was drawn from it.
    #[arg(long, conflicts_with_all = ["seeds", "faults", "seed"])]
    one: Option<u64>,
    /// Run the seeds of this file of past failures alone: `family seed version` a line.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seeds", "faults", "seed", "one"])]
    past: Option<PathBuf>,
    /// With --one: print every event.
    #[arg(long, requires = "one")]
    trace: bool,
    /// Draw from this family.
    #[arg(
        long,
        value_name = "FAMILY",
        value_parser = PossibleValuesParser::new(SeedFamily::ALL.map(SeedFamily::name)).map(|name| family(&name)),
        default_value = "swarm"
    )]
    kind: SeedFamily,
    /// Use this many threads; without it, one for each processor.
    #[arg(long)]
    threads: Option<usize>,
    /// Stop at the first seed that breaks an invariant.
    #[arg(long)]
    until_first: bool,
    /// Write the figures as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn number(text: &str) -> Result<u64, String> {
    let refused = || format!("found \"{text}\", expected a whole number such as 20000 or 1e9");
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let number: f64 = text.parse().map_err(|_| refused())?;
    let is_whole = (0.0..=1e18).contains(&number) && number.fract() == 0.0;
    if is_whole {
        Ok(number as u64)
    } else {
        Err(refused())
    }
}

/// Returns the family of a name that the command line has accepted.
fn family(name: &str) -> SeedFamily {
    SeedFamily::named(name).expect("the parser accepts the names of families alone")
}

/// Runs the seeds.
///
/// # Errors
///
/// A file that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(seed) = args.one {
        return run_one(args, seed);
    }
    if let Some(path) = &args.past {
        return run_past(path);
    }
    let (first, why) = match args.seed {
        Some(seed) => (seed, "as asked".to_owned()),
        None => seed_of_commit(),
    };
    let threads = args
        .threads
        .or_else(|| std::thread::available_parallelism().ok().map(Into::into));
    let config = Config {
        kind: args.kind,
        first,
        amount: match (args.seeds, args.faults) {
            (_, Some(faults)) => Amount::Faults(faults),
            (seeds, None) => Amount::Seeds(seeds.unwrap_or(SEEDS_DEFAULT)),
        },
        threads: threads.unwrap_or(1),
        until_first: args.until_first,
    };
    if config.threads == 0 {
        return Err(fail::bad_use("found --threads 0, expected at least 1"));
    }
    progress::line(format_args!(
        "seeds of the family {} from {first} ({why}), on {} threads",
        args.kind.name(),
        config.threads
    ));
    let began = Instant::now();
    let mut progress = Progress::new(&config, began);
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let report = run_seeds(&config, &mut |report| {
        progress.tell(report);
        match shutdown.is_requested() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    progress.end();
    let wall = began.elapsed();
    if let Some(path) = &args.json {
        let text = format!("{:#}\n", to_json(&config, &report, wall));
        json_file::write(path, &text)?;
    }
    let mut text = table(args.kind, &report, wall);
    for failure in report.failures.iter().take(FAILURES_SHOWN) {
        text += &told(args.kind, failure);
    }
    for failure in report.failures.iter().skip(FAILURES_SHOWN) {
        let _ = writeln!(text, "seed {}: {}", failure.seed, failure.violation);
    }
    json_file::tell(args.json.as_deref(), &text)?;
    Ok(ExitCode::from(u8::from(report.failed > 0)))
}

/// Runs the seeds of a file that still mean what they meant.
fn run_past(path: &std::path::Path) -> anyhow::Result<ExitCode> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (mut ran, mut old, mut failed) = (0_u64, 0_u64, 0_u64);
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
    {
        let mut words = line.split_whitespace();
        let parsed = (|| {
            Some((
                SeedFamily::named(words.next()?)?,
                words.next()?.parse::<u64>().ok()?,
                words.next()?.parse::<u32>().ok()?,
            ))
        })();
        let Some((kind, seed, version)) = parsed else {
            return Err(fail::bad_use(format!(
                "{}: found \"{line}\", expected family, seed, version",
                path.display()
            )));
        };
        if version != OPTIONS_VERSION {
            old += 1;
            continue;
        }
        ran += 1;
        if let Err(violation) = run_seed(kind, seed) {
            failed += 1;
            println!("{}", told(kind, &Failure { seed, violation }));
        }
    }
    println!(
        "past failures: {ran} seeds run, {failed} failed, {old} of another version of the options"
    );
    Ok(ExitCode::from(u8::from(failed > 0)))
}

fn run_one(args: &Args, seed: u64) -> anyhow::Result<ExitCode> {
    let (result, trace) = replay(args.kind, seed);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", describe(args.kind, seed))?;
    if args.trace {
        for line in trace.lines() {
            writeln!(out, "{line}")?;
        }
    }
    Ok(match result {
        Ok(outcome) => {
            writeln!(out, "{outcome:#?}\nseed {seed} holds")?;
            ExitCode::SUCCESS
        }
        Err(violation) => {
            if !args.trace {
                for line in trace.last_of(violation.tf, LINES_SHOWN) {
                    writeln!(out, "{line}")?;
                }
            }
            writeln!(out, "seed {seed}: {violation}")?;
            ExitCode::FAILURE
        }
    })
}

/// The first seed of this commit: each commit looks at others, and every machine at the same.
fn seed_of_commit() -> (u64, String) {
    let output = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .output()
        .ok();
    let id = output.filter(|output| output.status.success());
    let id = id.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    // 40 bits: seeds that follow do not overflow, and a person can read the number.
    let seed = id
        .as_deref()
        .and_then(|id| u64::from_str_radix(id.get(..10)?, 16).ok());
    match (seed, id) {
        (Some(seed), Some(id)) => (seed, format!("from commit {}", &id[..10])),
        _ => (1, "no commit is known here".to_owned()),
    }
}

/// Tells how far it is, once a second.
struct Progress {
    config: Config,
    began: Instant,
    told_at: Instant,
    is_terminal: bool,
    failures_told: usize,
}

impl Progress {
    fn new(config: &Config, began: Instant) -> Self {
        Self {
            config: *config,
            began,
            told_at: began,
            is_terminal: std::io::stderr().is_terminal(),
            failures_told: 0,
        }
    }

    fn tell(&mut self, report: &Report) {
        for failure in report.failures.iter().skip(self.failures_told) {
            self.end();
            progress::line(format_args!("seed {}: {}", failure.seed, failure.violation));
        }
        self.failures_told = report.failures.len();
        let every = Duration::from_secs(if self.is_terminal { 1 } else { 10 });
        if self.told_at.elapsed() < every {
            return;
        }
        self.told_at = Instant::now();
        let took = self.began.elapsed().as_secs_f64();
        let (done, all) = match self.config.amount {
            Amount::Seeds(seeds) => (report.seeds, seeds),
            Amount::Faults(faults) => (report.faults(), faults),
        };
        let left_s = took * all.saturating_sub(done) as f64 / done.max(1) as f64;
        let line = format!(
            "{} seeds, {} faults, {:.0} seeds/s, {} failed, {} left",
            report.seeds,
            report.faults(),
            report.seeds as f64 / took,
            report.failed,
            duration_text(left_s),
        );
        if self.is_terminal {
            progress::part(format_args!("\r{line}   "));
        } else {
            progress::line(line);
        }
    }

    fn end(&self) {
        if self.is_terminal {
            progress::line("");
        }
    }
}

fn duration_text(seconds: f64) -> String {
    if seconds < 90.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.1} min", seconds / 60.0)
    }
}

fn table(kind: SeedFamily, report: &Report, wall: Duration) -> String {
    let (accounting, wall_s) = (&report.accounting, wall.as_secs_f64());
    let hours = report.simulated.as_secs_f64() / 3600.0;
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<20}{value:>12}");
    };
    row("seeds", report.seeds.to_string());
    row("run twice", report.twice.to_string());
    row("state faults", report.state_faults.to_string());
    row("message faults", report.message_faults.to_string());
    if kind == SeedFamily::Monitor {
        let sent: u64 = report.fates.values().sum();
        row("samples sent", sent.to_string());
        for (fate, count) in &report.fates {
            row(&format!("  {fate}"), count.to_string());
        }
    } else if kind == SeedFamily::Writers {
        for (fate, count) in &report.fates {
            row(&format!("records {fate}"), count.to_string());
        }
    } else if kind == SeedFamily::Handoff {
        for (fate, count) in &report.fates {
            row(&format!("TFs {fate}"), count.to_string());
        }
    } else {
        row("timeframes", report.timeframes.to_string());
        row("  complete", accounting.complete.to_string());
        row("  incomplete", accounting.incomplete.to_string());
        row("  dropped", accounting.dropped.to_string());
        row("  abandoned", accounting.abandoned.to_string());
        row("  redelivered", accounting.redelivered.to_string());
        row("  twice, marked", accounting.delivered_again.to_string());
        row("moved", accounting.reassigned.to_string());
    }
    row("simulated hours", format!("{hours:.2}"));
    row("seconds", format!("{wall_s:.1}"));
    row(
        "seeds a second",
        format!("{:.0}", report.seeds as f64 / wall_s),
    );
    row("violations", report.failed.to_string());
    let _ = writeln!(text, "trace {:016x}", report.trace_hash);
    text
}

/// A failure as a person needs it: what, in which farm, what happened to the TF, and how to see it again.
fn told(kind: SeedFamily, failure: &Failure) -> String {
    let Failure { seed, violation } = failure;
    let (_, trace) = replay(kind, *seed);
    let mut text = format!(
        "\nseed {seed} breaks a promise: {violation}\n{}\n",
        describe(kind, *seed)
    );
    for line in trace.last_of(violation.tf, LINES_SHOWN) {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "seed {seed}: {violation}");
    let _ = writeln!(
        text,
        "again: sheaf sim torture --kind {} --one {seed} --trace",
        kind.name()
    );
    text
}

fn to_json(config: &Config, report: &Report, wall: Duration) -> serde_json::Value {
    let violations: Vec<_> = report
        .failures
        .iter()
        .map(|Failure { seed, violation }| {
            json!({
                "seed": seed,
                "invariant": violation.invariant.name(),
                "tf": violation.tf,
                "at_s": violation.at.0 as f64 / 1e9,
                "detail": violation.detail,
            })
        })
        .collect();
    let accounting = &report.accounting;
    json!({
        "kind": config.kind.name(),
        "options_version": OPTIONS_VERSION,
        "first_seed": config.first,
        "threads": config.threads,
        "seeds": report.seeds,
        "run_twice": report.twice,
        "state_faults": report.state_faults,
        "message_faults": report.message_faults,
        "timeframes": report.timeframes,
        "complete": accounting.complete,
        "incomplete": accounting.incomplete,
        "dropped": accounting.dropped,
        "abandoned": accounting.abandoned,
        "redelivered": accounting.redelivered,
        "delivered_again": accounting.delivered_again,
        "reassigned": accounting.reassigned,
        "reasons": accounting.reasons,
        "fates": report.fates,
        "simulated_hours": report.simulated.as_secs_f64() / 3600.0,
        "seeds_per_s": report.seeds as f64 / wall.as_secs_f64(),
        "wall_s": wall.as_secs_f64(),
        "failed": report.failed,
        "violations": violations,
        "trace_hash": format!("{:016x}", report.trace_hash),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_may_be_written_with_an_exponent() {
        assert_eq!(number("20000"), Ok(20_000));
        assert_eq!(number("1e9"), Ok(1_000_000_000));
        assert_eq!(number("2.5e3"), Ok(2500));
        for text in ["-1", "1.5", "many", "1e30", "NaN"] {
            let refused = format!("found \"{text}\", expected a whole number such as 20000 or 1e9");
            assert_eq!(number(text), Err(refused));
        }
    }
}
