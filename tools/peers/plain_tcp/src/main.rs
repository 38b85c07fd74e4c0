//! The peer of every throughput figure: one plain TCP sender and one plain TCP receiver.
//!
//! It answers one question: *what does a carefully written pair of sockets move on this machine, when
//! nothing but framing stands between the bytes and the kernel?* A figure of Sheaf is shown beside
//! this one, measured in the same minute. Workload, units and conditions: the `README.md` beside this
//! crate.

mod frame;
mod link;
mod pair;
mod peer;
mod pool;
mod process;
mod receive;
mod send;
mod socket;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use pair::{Plan, Report};
use process::Pin;
use std::io::Write;
use std::process::ExitCode;

/// One plain TCP sender and one plain TCP receiver over loopback, measured.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start both sides as two processes, once for each message size, and print what they moved.
    Run(RunArgs),
    /// One side with one or many connections, for `sheaf bench transport`; see the README of `tools/peers`
    Peer(peer_harness::Args),
    /// The sending side; `run` starts it with the connection as standard input.
    #[command(hide = true)]
    Send {
        /// A [`Side`](pair::Side) in JSON.
        side: String,
    },
    /// The receiving side; `run` starts it with the connection as standard input.
    #[command(hide = true)]
    Receive {
        /// A [`Side`](pair::Side) in JSON.
        side: String,
    },
}

#[derive(Args)]
struct RunArgs {
    /// Payload bytes of a message; may be given several times
    #[arg(long, value_delimiter = ',', default_value = "1000000")]
    bytes: Vec<usize>,
    /// Print one JSON object for each size instead of a table
    #[arg(long)]
    json: bool,
    /// CPU of the sender and CPU of the receiver, or `none`
    #[arg(long, default_value = "0,1", value_name = "A,B")]
    pin: Pin,
    #[command(flatten)]
    plan: Plan,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run(&args),
        Command::Peer(args) => peer::run(&args),
        Command::Send { side } => pair::serve(&side, send::send),
        Command::Receive { side } => pair::serve(&side, receive::receive),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plain_tcp: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &RunArgs) -> Result<()> {
    args.plan.check(&args.bytes)?;
    args.pin.check()?;
    let mut out = std::io::stdout().lock();
    if !args.json {
        writeln!(out, "{}", Report::TABLE_HEAD)?;
    }
    for &bytes in &args.bytes {
        let report = pair::run(&args.plan, bytes, args.pin)?;
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&report)?)?;
        } else {
            writeln!(out, "{}", report.table_line())?;
        }
        if let Some(reason) = &report.congestion_refused {
            eprintln!("plain_tcp: {reason}; this run used {}", report.congestion);
        }
    }
    Ok(())
}
