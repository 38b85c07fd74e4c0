//! `sheaf run bridge`: programs of other systems at the ends of a farm.

use crate::address;
use crate::fail;
use crate::program;
use anyhow::Context as _;
use serde::Serialize;
use sheaf_node::bridge::{self, BridgeConfig, BridgeError, BridgeReport, Listening};
use sheaf_node::shutdown::Shutdown;
use std::io::Write as _;
use std::net::SocketAddrV4;
use std::process::ExitCode;

/// Connect programs of another system to the ends of a farm.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    system: System,
}

#[derive(Debug, clap::Subcommand)]
enum System {
    O2(O2Args),
}

/// Replace the ICN of O2-Balancer2, so that its FLPs and EPNs work with a farm.
///
/// FLPs of O2-Balancer2 subscribe to the heartbeats and push their data to the bridge; each of them feeds one FLP of
/// the farm, whose source is `zmq` with `framing = "o2-balancer"`. EPNs of O2-Balancer2 stand behind sinks of the farm,
/// register with the bridge and acknowledge to it. Prints its addresses, and a report at the end, as JSON lines.
/// SIGTERM or SIGINT: the bridge ends without the heartbeats that are left. Details: docs/how-to/zmq.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf run bridge o2 --flp tcp://127.0.0.1:5600 --flp tcp://127.0.0.1:5601 --iterations 1500
  sheaf run bridge o2 --heartbeats 'tcp://*:5005' --feedback 'tcp://*:5000' --data 'tcp://*:5555' \\
      --advertise 10.0.0.1:5555 --flp tcp://10.0.0.11:5600 --rate 200 --insecure")]
struct O2Args {
    /// Send STFs to the FLP of the farm at this endpoint; once for each FLP of O2-Balancer2.
    #[arg(long = "flp", required = true, value_name = "ENDPOINT")]
    flps: Vec<String>,
    /// Publish heartbeats at this endpoint (PUB).
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp://127.0.0.1:5005")]
    heartbeats: String,
    /// Receive registrations and acknowledgements of EPNs at this endpoint (PULL).
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp://127.0.0.1:5000")]
    feedback: String,
    /// Receive the data of FLPs at this endpoint (PULL).
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp://127.0.0.1:5555")]
    data: String,
    /// Advertise this IPv4 address and port to FLPs, if it differs from --data.
    #[arg(long, value_name = "ADDR")]
    advertise: Option<SocketAddrV4>,
    /// Publish this many heartbeats a second.
    #[arg(long, value_name = "HZ", default_value_t = 50.0, value_parser = parse_rate)]
    rate: f64,
    /// Publish this many heartbeats; 0: until a signal.
    #[arg(long, value_name = "N", default_value_t = 0)]
    iterations: u64,
    /// Begin with this heartbeat.
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Publish at most this many heartbeats ahead of the data of the slowest FLP.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    ahead: u64,
    /// Refuse messages of data above this size, in bytes.
    #[arg(long, value_name = "N", default_value_t = 64 << 20)]
    message_bytes_max: u64,
    /// Serve metrics at this address.
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    metrics: Option<String>,
    /// Allow addresses off loopback, without encryption and authentication.
    #[arg(long)]
    insecure: bool,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (1e-3..=1e5).contains(&rate) => Ok(rate),
        _ => Err(format!("found `{text}`, expected 0.001 to 100000")),
    }
}

/// A line on the standard output.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    Listening(&'a Listening),
    Done(&'a BridgeReport),
}

/// Runs the command.
///
/// # Errors
///
/// The reason why the bridge could not begin, or failed.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let System::O2(args) = &args.system;
    let config = BridgeConfig {
        heartbeats: args.heartbeats.clone(),
        feedback: args.feedback.clone(),
        data: args.data.clone(),
        advertise: args.advertise,
        flps: args.flps.clone(),
        rate_hz: args.rate,
        first: args.first,
        iterations: args.iterations,
        ahead_max: args.ahead,
        message_bytes_max: args.message_bytes_max,
        metrics: args.metrics.clone(),
        build: program::BUILD,
        insecure: args.insecure,
    };
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    let outcome = bridge::run_o2(&config, &shutdown, |at| print(&Line::Listening(at)));
    let report = outcome.map_err(|error| match error {
        BridgeError::Outside { .. } | BridgeError::Advertise { .. } => fail::bad_use(error),
        other => other.into(),
    })?;
    print(&Line::Done(&report));
    Ok(ExitCode::SUCCESS)
}

/// Prints one line for the parent process. A closed output does not stop the bridge.
fn print(line: &Line<'_>) {
    let text = serde_json::to_string(line).expect("names and numbers always have a JSON form");
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        tracing::debug!(%error, "The standard output has no reader");
    }
}
