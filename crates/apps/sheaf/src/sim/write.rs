//! `sheaf sim write`: how fast streams are written, by the assignment of files to workers.

mod fleet;

use crate::{fail, json_file, progress};
use anyhow::Context as _;
use serde_json::{Value, json};
use sheaf_sim::writers::{Choice, Input, MIXES, Mix, Outcome, Setup, Trace, run as simulate};
use sheaf_write::{Assignment, assignments};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compare assignments of files to writing threads in virtual time.
///
/// The brain is that of the product, the threads write at a stated rate.
/// The mixes are those of ATLAS' data loggers in 2015 and 2016, whose minor streams are not published and are equal
/// here, and a flat one. A trace is a file of lines `SECONDS,STREAM,BYTES`, in the order of time, as a log of a run
/// gives them. Each figure is the mean of several seeds, with the least and the most of them. With --writers, many
/// writers stand behind many EPNs, each of which chooses the writer of a timeframe by a policy and what writers report.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf sim write                                    ATLAS' mix of 2016 with 2, 4 and 8 threads
  sheaf sim write --mix flat --drift 0.25            streams of like size that change from block to block
  sheaf sim write --trace run.csv --workers 4 --worker-mb-s 300
  sheaf sim write --writers 20 --epns 1750 --workers 4 --seeds 3")]
pub(crate) struct Args {
    /// Draw records from this mix.
    #[arg(long, value_name = "NAME", default_value = "sfo-2016", conflicts_with = "trace",
        value_parser = clap::builder::PossibleValuesParser::new(MIXES.map(|(name, ..)| name)))]
    mix: String,
    /// Vary the shares of streams from block to block by this sigma of a lognormal factor.
    #[arg(
        long,
        value_name = "SIGMA",
        default_value_t = 0.0,
        conflicts_with = "trace"
    )]
    drift: f64,
    /// Take the records of this file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Compare these numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8",
        value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: Vec<u32>,
    /// Compare these assignments, or joint-1 to joint-3; without it all, with --writers open-rate and striped.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    assignment: Vec<String>,
    #[command(flatten)]
    fleet: fleet::FleetArgs,
    /// Let a thread write so many MB/s: 615 fits the figures of the slides.
    #[arg(long, value_name = "MB/s", default_value_t = 615.0)]
    worker_mb_s: f64,
    /// Simulate so many blocks of a mix; 50 without it, 3 with --writers.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    blocks: Option<u64>,
    /// Begin new files after so many seconds.
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    block_s: f64,
    /// Take so many seeds.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Begin with this seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the figures as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results page to this file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
}

/// Figures of one assignment with one number of workers.
struct Row {
    choice: Choice,
    workers: u32,
    outcomes: Vec<Outcome>,
}

impl Row {
    fn rates(&self) -> (f64, f64, f64) {
        let rates = || self.outcomes.iter().map(|outcome| outcome.mb_s);
        let mean = rates().sum::<f64>() / self.outcomes.len() as f64;
        (
            mean,
            rates().fold(f64::INFINITY, f64::min),
            rates().fold(0.0, f64::max),
        )
    }

    /// Mean of the bound of whole files.
    fn bound(&self) -> f64 {
        let bounds = self.outcomes.iter().map(|outcome| outcome.file_bound_mb_s);
        bounds.sum::<f64>() / self.outcomes.len() as f64
    }

    /// Loss against the bound of whole files, in per cent; below 0 where segments go beyond it.
    fn loss_percent(&self) -> f64 {
        100.0 * (1.0 - self.rates().0 / self.bound())
    }
}

/// Name of the mix; nothing of a trace.
fn mix_of(args: &Args) -> &str {
    match args.trace {
        Some(_) => "",
        None => &args.mix,
    }
}

/// Runs all comparisons.
///
/// # Errors
///
/// A trace that cannot be read, arguments that make no sense, or a file that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let is_positive = |number: f64| number.is_finite() && number > 0.0;
    if !is_positive(args.worker_mb_s)
        || !is_positive(args.block_s)
        || !(0.0..=3.0).contains(&args.drift)
    {
        return Err(fail::bad_use(format!(
            "found --worker-mb-s {}, --block-s {}, --drift {}, expected rates and times above 0 and a drift of 0 to 3",
            args.worker_mb_s, args.block_s, args.drift
        )));
    }
    json_file::check(args.json.as_deref())?;
    if args.fleet.is_asked() {
        return fleet::run(args);
    }
    let input = input(args)?;
    let choices = choices(args)?;
    let mut rows = Vec::new();
    for &workers in &args.workers {
        for &choice in &choices {
            rows.push(Row {
                choice,
                workers,
                outcomes: outcomes(args, &input, choice, workers)?,
            });
        }
        progress::line(format_args!("{workers} workers done"));
    }
    let report = report(args, &rows);
    if let Some(path) = &args.json {
        json_file::write(path, &format!("{report:#}\n"))?;
    }
    if let Some(path) = &args.page {
        std::fs::write(path, page(args, &rows))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    json_file::tell(args.json.as_deref(), &table(args, &rows))?;
    Ok(ExitCode::SUCCESS)
}

/// Choices that are compared: those asked for, or all that the input has.
fn choices(args: &Args) -> anyhow::Result<Vec<Choice>> {
    if !args.assignment.is_empty() {
        return named(&args.assignment);
    }
    let joint = [1, 2, 3].map(Choice::Joint);
    let own = assignments().iter().map(Choice::Of);
    // Conditions of the slides are conditions of that mix.
    let is_of_slides = args.trace.is_none() && args.mix.starts_with("sfo");
    let joint = joint.into_iter().filter(|_| is_of_slides);
    Ok(joint.chain(own).collect())
}

fn named(names: &[String]) -> anyhow::Result<Vec<Choice>> {
    let choices = names.iter().map(|name| Choice::named(name));
    choices
        .collect::<Result<_, _>>()
        .map_err(|error| fail::bad_use(format!("--assignment: {error}")))
}

fn input(args: &Args) -> anyhow::Result<Input> {
    if let Some(path) = &args.trace {
        return read_trace(path);
    }
    Ok(Input::Mix {
        mix: Mix::named(&args.mix, args.drift)?,
        blocks: blocks(args),
    })
}

fn outcomes(
    args: &Args,
    input: &Input,
    choice: Choice,
    workers: u32,
) -> anyhow::Result<Vec<Outcome>> {
    // A trace is the same for every seed, and so is what draws no lots.
    let is_fixed =
        matches!(input, Input::Trace(_)) && choice != Choice::Of(Assignment::named("random")?);
    let seeds = if is_fixed { 1 } else { args.seeds };
    let setups = (0..seeds).map(|seed| Setup {
        workers,
        worker_mb_s: args.worker_mb_s,
        block_s: args.block_s,
        seed: args.seed.wrapping_add(seed),
        ..Setup::default()
    });
    let outcomes = setups.map(|setup| simulate(input, choice, setup));
    Ok(outcomes.collect::<Result<_, _>>()?)
}

/// Blocks of a run of one writer.
fn blocks(args: &Args) -> u64 {
    args.blocks.unwrap_or(50)
}

fn read_trace(path: &Path) -> anyhow::Result<Input> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let trace = Trace::parse(&text)
        .map_err(|error| fail::bad_use(format!("{}: {error}", path.display())))?;
    Ok(Input::Trace(trace))
}

fn name_of(args: &Args) -> String {
    match &args.trace {
        Some(path) => path.display().to_string(),
        None if args.drift > 0.0 => format!("{}, drift {}", args.mix, args.drift),
        None => args.mix.clone(),
    }
}

fn table(args: &Args, rows: &[Row]) -> String {
    let mut text = format!("{}: threads of {} MB/s\n", name_of(args), args.worker_mb_s);
    let _ = writeln!(
        text,
        "{:>7}  {:<18} {:>9} {:>15} {:>11} {:>8} {:>8} {:>9}",
        "THREADS",
        "ASSIGNMENT",
        "MB/s",
        "least to most",
        "FILE BOUND",
        "LOSS %",
        "FULLEST",
        "PUBLISHED"
    );
    for row in rows {
        let [
            workers,
            choice,
            mean,
            range,
            bound,
            loss,
            fullest,
            published,
        ] = cells(args, row);
        let _ = writeln!(
            text,
            "{workers:>7}  {choice:<18} {mean:>9} {range:>15} {bound:>11} {loss:>8} {fullest:>8} {published:>9}"
        );
    }
    text
}

/// Columns of a row, for the terminal and for the page.
fn cells(args: &Args, row: &Row) -> [String; 8] {
    let (mean, least, most) = row.rates();
    let choice = row.choice.name();
    let published = row.choice.published(mix_of(args));
    [
        row.workers.to_string(),
        choice,
        format!("{mean:.0}"),
        format!("{least:.0} to {most:.0}"),
        format!("{:.0}", row.bound()),
        format!("{:.1}", row.loss_percent()),
        format!("{:.2}", fullest(row)),
        published.map_or("–".to_owned(), |mb_s| mb_s.to_string()),
    ]
}

/// Mean share of the fullest worker.
fn fullest(row: &Row) -> f64 {
    let shares = row.outcomes.iter().map(|outcome| outcome.fullest_share);
    shares.sum::<f64>() / row.outcomes.len() as f64
}

fn report(args: &Args, rows: &[Row]) -> Value {
    let rows = rows.iter().map(|row| {
        let (mean, least, most) = row.rates();
        let choice = row.choice.name();
        json!({
            "policy": choice,
            "workers": row.workers,
            "mb_per_s": mean,
            "mb_per_s_min": least,
            "mb_per_s_max": most,
            "file_bound_mb_per_s": row.bound(),
            "loss_percent": row.loss_percent(),
            "fullest_share": fullest(row),
            "seeds": row.outcomes.len(),
            "records_lost": row.outcomes.iter().map(|outcome| outcome.lost).sum::<u64>(),
            "published_mb_per_s": row.choice.published(mix_of(args)),
        })
    });
    json!({
        "schema": "sheaf.sim.write",
        "version": 1,
        "input": name_of(args),
        "worker_mb_per_s": args.worker_mb_s,
        "block_s": args.block_s,
        "blocks": blocks(args),
        "seed": args.seed,
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn page(args: &Args, rows: &[Row]) -> String {
    let mut text = format!(
        "# Assignment of files to writing threads: {}\n\n",
        name_of(args)
    );
    let _ = writeln!(
        text,
        "Written by `sheaf sim write`: the brain of the writer in virtual time, with threads of {} MB/s, {} blocks of \
         {} s,\n{} seeds from {}. Loss is against one thread ÷ the share of the fullest stream, the bound of whole \
         files: below 0\nwhere segments go beyond it, or where a file begins at another thread while the one before \
         it is still written.\nPublished: ATLAS, 2017; the slides do not say with how many threads.\n",
        args.worker_mb_s,
        blocks(args),
        args.block_s,
        args.seeds,
        args.seed
    );
    text += "| threads | assignment | MB/s | least to most | bound of whole files | loss % | fullest | published |\n";
    text += "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for row in rows {
        let _ = writeln!(text, "| {} |", cells(args, row).join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_none_is_named_with_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.csv");
        std::fs::write(&path, "0,a,10\n1,a\n").expect("it is written");
        let error = read_trace(&path).expect_err("no trace").to_string();
        let end =
            "trace.csv: line 2: found `1,a`, expected SECONDS,STREAM,BYTES in the order of time";
        assert!(error.ends_with(end), "{error}");
    }

    #[test]
    fn an_unknown_assignment_is_answered_with_the_known_ones() {
        let error = named(&["joint-1".to_owned(), "fast".to_owned()]).unwrap_err();
        let text = error.to_string();
        let head = "--assignment: assignment `fast`, expected one of joint-1,";
        assert!(text.starts_with(head), "{text}");
    }
}
