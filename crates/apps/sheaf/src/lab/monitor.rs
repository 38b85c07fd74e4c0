//! The command line of `sheaf lab monitor`.

use crate::{duration, fail, json_file, progress};
use anyhow::Context as _;
use sheaf_bench::monitor;
use sheaf_bench::paper::{self, Options, Report, Scenario};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Measure again what the monitoring paper and MELK measured, beside peers.
///
/// Parts: `scenarios` (pass-through, edit, suppress, average over 1 s), `sources` (600 kHz from 100,000), `storage`
/// (by streams), `latency` (to a query, an alarm, a frame), `melk` (cost and losses of the agent beside a busy farm,
/// and dips in throughput that a query relates to a temperature). A server that is not installed is skipped by name.
/// Exit status 1 if something did not do what it should.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab monitor --quick                             everything once, in half a minute
  sheaf lab monitor --json paper.json --page paper.md   everything, in half an hour
  sheaf lab monitor --read paper.json --page paper.md   the page again
  sheaf lab monitor --part scenarios --server sheaf --processing suppress=farm.toml")]
pub(super) struct MonitorArgs {
    /// Take each case once and short, of Sheaf if no --server is given: figures mean nothing.
    #[arg(long)]
    quick: bool,
    /// Take these parts alone.
    #[arg(long, value_name = "PART", num_args = 1..,
        value_parser = clap::builder::PossibleValuesParser::new(paper::parts()))]
    part: Vec<String>,
    /// Measure these servers alone.
    #[arg(long, value_name = "NAME", num_args = 1..,
        value_parser = clap::builder::PossibleValuesParser::new(monitor::servers()))]
    server: Vec<String>,
    /// Repeat each case so often: 3, or 1 with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Send each load for this time: 3 s, or 500 ms with --quick.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    load: Option<Duration>,
    /// Swing the temperature with this period: 20 s, or 5 s with --quick.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    period: Option<Duration>,
    /// Use the operators of this file in place of those of a scenario; may be repeated.
    #[arg(long, value_name = "SCENARIO=FILE", value_parser = processing)]
    processing: Vec<(Scenario, PathBuf)>,
    /// Make the folders of the servers in this one.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results page, which names the file of --json or --read, to this file.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// Measure nothing: read the report from this file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "part", "server", "json"])]
    read: Option<PathBuf>,
}

fn processing(text: &str) -> Result<(Scenario, PathBuf), String> {
    let pair = text.split_once('=').filter(|(_, path)| !path.is_empty());
    let (scenario, path) = pair.ok_or_else(|| format!("found `{text}`, expected SCENARIO=FILE"))?;
    Ok((scenario.parse()?, PathBuf::from(path)))
}

/// Runs the experiments, or shows their report again.
///
/// # Errors
///
/// What is wrong with the arguments, or why a part did not come to its end in order.
pub(super) fn run(args: &MonitorArgs) -> anyhow::Result<ExitCode> {
    let report = match &args.read {
        Some(path) => read(path)?,
        None => {
            json_file::check(args.json.as_deref())?;
            paper::measure(&options(args)?, &mut |line| progress::line(line))?
        }
    };
    if let Some(path) = &args.json {
        json_file::write(path, &report.to_json())?;
    }
    if let Some(path) = &args.page {
        let source = args.read.as_ref().or(args.json.as_ref());
        let name = source.and_then(|path| path.file_name());
        let name = name.map_or("report.json".into(), |name| name.to_string_lossy());
        std::fs::write(path, report.page(&name))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    json_file::tell(args.json.as_deref(), &report.to_string())?;
    Ok(if report.is_sound() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn read(path: &Path) -> anyhow::Result<Report> {
    let bad = |error: String| fail::bad_use(format!("cannot read {}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    Report::parse(&text).map_err(|error| bad(error.to_string()))
}

fn options(args: &MonitorArgs) -> anyhow::Result<Options> {
    let quick = args.quick;
    let or = |given: Option<Duration>, short: f64, long: f64| {
        given.map_or(if quick { short } else { long }, |time| time.as_secs_f64())
    };
    let mut processing = BTreeMap::new();
    for (scenario, path) in &args.processing {
        let text = std::fs::read_to_string(path)
            .map_err(|error| fail::bad_use(format!("cannot read {}: {error}", path.display())))?;
        processing.insert(*scenario, text);
    }
    let mut servers = args.server.clone();
    if quick && servers.is_empty() {
        servers.push("sheaf".to_owned());
    }
    let bench = monitor::Options {
        program: sheaf_node::program::path().context("cannot find this program")?,
        servers,
        steps: Vec::new(),
        series: if quick { 2_000 } else { 100_000 },
        seconds: or(args.load, 0.5, 3.0),
        udp: Vec::new(),
        connections: 1,
        probes: if quick { 3 } else { 50 },
        receivers: 1,
        folder: args.folder.clone(),
    };
    Ok(Options {
        bench,
        parts: args.part.clone(),
        runs: args.runs.unwrap_or(if quick { 1 } else { 3 }),
        periods: if quick { 1 } else { 3 },
        period_s: or(args.period, 5.0, 20.0),
        is_quick: quick,
        processing,
        day: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(),
        commit: env!("SHEAF_COMMIT").to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processing_names_a_scenario_and_a_file() {
        let expected = (Scenario::Suppress, PathBuf::from("a=b.toml"));
        assert_eq!(processing("suppress=a=b.toml"), Ok(expected));
        for (text, error) in [
            ("suppress", "expected SCENARIO=FILE"),
            ("suppress=", "expected SCENARIO=FILE"),
            (
                "filter=x",
                "found `filter`, expected one of: pass-through, edit, suppress, average",
            ),
        ] {
            assert!(processing(text).unwrap_err().contains(error), "{text}");
        }
    }
}
