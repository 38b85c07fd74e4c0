//! Many writers behind many EPNs.

use super::{Args, fail, json_file, named, progress};
use anyhow::Context as _;
use serde_json::{Value, json};
use sheaf_sim::writers::{Choice, Fleet, FleetOutcome, Mix, Setup};
use std::fmt::Write as _;
use std::process::ExitCode;

/// Blocks of a run, if the command line does not say it: each has 237,000 timeframes with 20 writers.
const BLOCKS: u64 = 3;

/// Options of fleets.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FleetArgs {
    /// Put so many writers behind the EPNs, in place of one that takes what comes.
    #[arg(long, value_name = "N", conflicts_with = "trace", value_parser = clap::value_parser!(u32).range(1..=1024))]
    writers: Option<u32>,
    /// Let so many EPNs choose among the writers.
    #[arg(long, value_name = "N", default_value_t = 1750, requires = "writers",
        value_parser = clap::value_parser!(u32).range(1..=65_000))]
    epns: u32,
    /// Compare these policies of the EPNs.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        requires = "writers",
        default_value = "round-robin,random,power-of-two,least-loaded"
    )]
    policy: Vec<String>,
    /// Offer this share of what all writers can take, file by file.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.9,
        requires = "writers"
    )]
    load: f64,
    /// Let writers report their load every so many ms.
    #[arg(long, value_name = "MS", default_value_t = 1000, requires = "writers")]
    report_ms: u64,
    /// Let the memory of an EPN hold so many timeframes until they are written.
    #[arg(long, value_name = "N", default_value_t = 8, requires = "writers")]
    epn_tfs: u32,
}

impl FleetArgs {
    pub(super) fn is_asked(&self) -> bool {
        self.writers.is_some()
    }
}

/// Figures of one policy with one assignment.
struct Row {
    fleet: Fleet,
    choice: Choice,
    outcomes: Vec<FleetOutcome>,
}

impl Row {
    fn mean(&self, value: impl Fn(&FleetOutcome) -> f64) -> f64 {
        self.outcomes.iter().map(value).sum::<f64>() / self.outcomes.len() as f64
    }

    fn least(&self, value: impl Fn(&FleetOutcome) -> f64) -> f64 {
        self.outcomes
            .iter()
            .map(value)
            .fold(f64::INFINITY, f64::min)
    }

    fn most(&self, value: impl Fn(&FleetOutcome) -> f64) -> f64 {
        self.outcomes.iter().map(value).fold(0.0, f64::max)
    }

    /// Columns, for the terminal and for the page.
    fn cells(&self) -> [String; 11] {
        let rate = |outcome: &FleetOutcome| outcome.mb_s;
        [
            self.fleet.of_writer.workers.to_string(),
            self.fleet.policy.clone(),
            self.choice.name(),
            format!("{:.0}", self.mean(rate)),
            format!("{:.0} to {:.0}", self.least(rate), self.most(rate)),
            format!("{:.0}", self.mean(|outcome| outcome.offered_mb_s)),
            format!("{:.3}", self.mean(FleetOutcome::loss_percent)),
            format!("{:.3}", self.mean(FleetOutcome::fullest_writer)),
            format!("{:.3}", self.mean(|outcome| outcome.lag_s(0.5))),
            format!("{:.3}", self.mean(|outcome| outcome.lag_s(0.99))),
            format!("{:.3}", self.most(|outcome| outcome.lag_s(1.0))),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "workers": self.fleet.of_writer.workers,
            "policy": self.fleet.policy,
            "assignment": self.choice.name(),
            "mb_per_s": self.mean(|outcome| outcome.mb_s),
            "mb_per_s_min": self.least(|outcome| outcome.mb_s),
            "mb_per_s_max": self.most(|outcome| outcome.mb_s),
            "offered_mb_per_s": self.mean(|outcome| outcome.offered_mb_s),
            "file_bound_mb_per_s": self.mean(|outcome| outcome.file_bound_mb_s),
            "tfs": self.outcomes.iter().map(|outcome| outcome.tfs).sum::<u64>(),
            "tfs_lost": self.outcomes.iter().map(|outcome| outcome.lost).sum::<u64>(),
            "records_lost": self.outcomes.iter().map(|outcome| outcome.lost_by_writers).sum::<u64>(),
            "loss_percent": self.mean(FleetOutcome::loss_percent),
            "fullest_writer": self.mean(FleetOutcome::fullest_writer),
            "lag_s_p50": self.mean(|outcome| outcome.lag_s(0.5)),
            "lag_s_p99": self.mean(|outcome| outcome.lag_s(0.99)),
            "lag_s_max": self.most(|outcome| outcome.lag_s(1.0)),
            "seeds": self.outcomes.len(),
        })
    }
}

const HEAD: [&str; 11] = [
    "threads",
    "policy",
    "assignment",
    "MB/s",
    "least to most",
    "offered",
    "TFs lost %",
    "fullest ÷ mean",
    "lag p50 s",
    "lag p99 s",
    "lag max s",
];

/// Runs every policy with every assignment.
///
/// # Errors
///
/// Numbers or names that make no sense, or a file that cannot be written.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mix = Mix::named(&args.mix, args.drift)?;
    let own = ["open-rate", "striped"].map(str::to_owned);
    let choices = named(match args.assignment.is_empty() {
        true => own.as_slice(),
        false => args.assignment.as_slice(),
    })?;
    let mut rows = Vec::new();
    for &workers in &args.workers {
        for policy in &args.fleet.policy {
            for &choice in &choices {
                rows.push(row(args, &mix, workers, policy, choice)?);
            }
            progress::line(format_args!("{policy} with {workers} threads done"));
        }
    }
    if let Some(path) = &args.json {
        json_file::write(path, &format!("{:#}\n", report(args, &rows)))?;
    }
    if let Some(path) = &args.page {
        std::fs::write(path, page(args, &rows))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    json_file::tell(args.json.as_deref(), &table(args, &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn row(args: &Args, mix: &Mix, workers: u32, policy: &str, choice: Choice) -> anyhow::Result<Row> {
    let fleet = |seed| Fleet {
        writers: args.fleet.writers.unwrap_or(1),
        epns: args.fleet.epns,
        policy: policy.to_owned(),
        load: args.fleet.load,
        report_ms: args.fleet.report_ms,
        epn_tfs_max: args.fleet.epn_tfs,
        blocks: args.blocks.unwrap_or(BLOCKS),
        of_writer: Setup {
            workers,
            worker_mb_s: args.worker_mb_s,
            block_s: args.block_s,
            seed: args.seed.wrapping_add(seed),
            ..Setup::default()
        },
    };
    let first = fleet(0);
    first
        .check()
        .map_err(|error| fail::bad_use(error.to_string()))?;
    let outcomes = (0..args.seeds).map(|seed| fleet(seed).run(mix, choice));
    Ok(Row {
        choice,
        outcomes: outcomes.collect::<Result<_, _>>()?,
        fleet: first,
    })
}

fn table(args: &Args, rows: &[Row]) -> String {
    let mut text = title(args) + "\n";
    for cells in std::iter::once(HEAD.map(str::to_owned)).chain(rows.iter().map(Row::cells)) {
        let [workers, policy, choice, rest @ ..] = cells;
        let _ = write!(text, "{workers:>7}  {policy:<15} {choice:<18}");
        for cell in rest {
            let _ = write!(text, " {cell:>15}");
        }
        text.push('\n');
    }
    text
}

fn title(args: &Args) -> String {
    format!(
        "{}: {} writers behind {} EPNs, threads of {} MB/s, load {}, reports every {} ms",
        super::name_of(args),
        args.fleet.writers.unwrap_or(1),
        args.fleet.epns,
        args.worker_mb_s,
        args.fleet.load,
        args.fleet.report_ms
    )
}

fn report(args: &Args, rows: &[Row]) -> Value {
    json!({
        "schema": "sheaf.sim.write.fleet",
        "version": 1,
        "input": super::name_of(args),
        "writers": args.fleet.writers,
        "epns": args.fleet.epns,
        "worker_mb_per_s": args.worker_mb_s,
        "load": args.fleet.load,
        "report_ms": args.fleet.report_ms,
        "epn_tfs_max": args.fleet.epn_tfs,
        "block_s": args.block_s,
        "blocks": args.blocks.unwrap_or(BLOCKS),
        "seed": args.seed,
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
    })
}

fn page(args: &Args, rows: &[Row]) -> String {
    let mut text = format!("# Writers behind EPNs\n\n{}.\n\n", title(args));
    let _ = writeln!(
        text,
        "Written by `sheaf sim write`: {} blocks of {} s, {} seeds from {}. A timeframe (TF) is lost if the memory of \
         its EPN\nis full of {} others that are not written. Lag: from a TF at its EPN to the return of its write.\n",
        args.blocks.unwrap_or(BLOCKS),
        args.block_s,
        args.seeds,
        args.seed,
        args.fleet.epn_tfs
    );
    let _ = writeln!(
        text,
        "| {} |\n|{}",
        HEAD.join(" | "),
        " --- |".repeat(HEAD.len())
    );
    for row in rows {
        let _ = writeln!(text, "| {} |", row.cells().join(" | "));
    }
    text
}
