//! The command line of `sheaf bench monitor`, and of its generator.

use crate::{json_file, progress};
use anyhow::Context as _;
use sheaf_bench::monitor::{self, LoadOptions, Options, Shape, Target};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure the collector beside VictoriaMetrics, InfluxDB and Prometheus.
///
/// Starts each server by itself in a new folder and sends it points from a process of its own: datagrams of line
/// protocol, requests over HTTP, series that are new, an hour of history that is measured on disk and asked, and
/// single points whose way to a query is timed. A server that is not installed is skipped by name.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf bench monitor --json monitor.json
  sheaf bench monitor --server sheaf --step udp --udp 10@600000
  sheaf bench monitor --server sheaf victoriametrics --step http --connections 4")]
pub(super) struct MonitorArgs {
    /// Measure these servers alone.
    #[arg(long, value_name = "NAME", num_args = 1..,
        value_parser = clap::builder::PossibleValuesParser::new(monitor::servers()))]
    server: Vec<String>,
    /// Take these steps alone.
    #[arg(long, value_name = "STEP", num_args = 1..,
        value_parser = clap::builder::PossibleValuesParser::new(monitor::steps()))]
    step: Vec<String>,
    /// Write so many series.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(100..=10_000_000)
    )]
    series: u32,
    /// Send a load for so long, in s.
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Send datagrams of P points at R points a second; may be repeated.
    #[arg(long, value_name = "P@R", num_args = 1.., value_parser = case,
        default_values = ["10@600000", "50@1500000", "1@150000"])]
    udp: Vec<(u32, u64)>,
    /// Send requests on so many connections.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,
    /// Time so many single points.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    probes: u32,
    /// Receive datagrams with so many threads of Sheaf.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    receivers: u32,
    /// Make the folders of the servers in this one.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write the report as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Options of the generator.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct LoadArgs {
    #[arg(long)]
    to: Target,
    #[arg(long)]
    series: u32,
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    names: u32,
    #[arg(long)]
    points: u32,
    #[arg(long, default_value_t = 0)]
    points_per_s: u64,
    #[arg(long, default_value_t = 0)]
    points_max: u64,
    #[arg(long)]
    seconds: f64,
    #[arg(long, default_value_t = 1)]
    connections: u32,
    #[arg(long, default_value_t = 0)]
    history_s: u32,
    #[arg(long, default_value = "mix")]
    shape: Shape,
}

fn case(text: &str) -> Result<(u32, u64), String> {
    let read = |text: &str| {
        let (points, rate) = text.split_once('@')?;
        let case: (u32, u64) = (points.parse().ok()?, rate.parse().ok()?);
        (case.0 > 0 && case.1 > 0).then_some(case)
    };
    read(text).ok_or_else(|| {
        format!("found `{text}`, expected points a datagram @ points a second, such as 10@600000")
    })
}

/// Runs the benchmark.
///
/// # Errors
///
/// What is wrong with the arguments, or why a run did not come to its end in order.
pub(super) fn run(args: &MonitorArgs) -> anyhow::Result<ExitCode> {
    json_file::check(args.json.as_deref())?;
    let options = Options {
        program: sheaf_node::program::path().context("cannot find this program")?,
        servers: args.server.clone(),
        steps: args.step.clone(),
        series: args.series,
        seconds: args.seconds,
        udp: args.udp.clone(),
        connections: args.connections,
        probes: args.probes,
        receivers: args.receivers,
        folder: args.folder.clone(),
    };
    let report = monitor::measure(&options, &mut |line| progress::line(line))?;
    if let Some(path) = &args.json {
        json_file::write(path, &report.to_json())?;
    }
    json_file::tell(args.json.as_deref(), &report.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the generator.
///
/// # Errors
///
/// If the server cannot be reached, or refuses a request for good.
pub(super) fn load(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    let sent = monitor::generate(&LoadOptions {
        to: args.to.clone(),
        series: args.series,
        names: args.names,
        points: args.points,
        points_per_s: args.points_per_s,
        points_max: args.points_max,
        seconds: args.seconds,
        connections: args.connections,
        history_s: args.history_s,
        shape: args.shape,
    })?;
    json_file::print_either(true, &sent, "")?;
    Ok(ExitCode::SUCCESS)
}
