//! `sheaf bench`: what this machine moves, measured.
//!
//! `farm` measures a whole farm and, in turn with it, a plain pair of TCP sockets: `args` says what is wanted,
//! `cpus` where each process stays, `plain` runs the pair, `farm` the farm and `window` cuts the measured time
//! out of its life; `report` makes rows of the pairs, and `table` shows them.
//!
//! `transport` measures the transport alone beside plain TCP and other libraries, with `transport_peer` as one side.

mod args;
mod cpus;
mod farm;
mod plain;
mod report;
mod table;
mod transport;
mod transport_peer;
mod window;

use crate::demo::{farm::Notice, quit_on_signals};
use crate::fail;
use anyhow::{Context as _, bail};
use args::{FarmArgs, Shape};
use cpus::Cpus;
use farm::FarmBench;
use plain::Peer;
use report::{Congestion, Pair, Report, Row};
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};

/// Notices that may wait; a node that writes more waits.
const NOTICES_MAX: usize = 1024;

/// Measures what this machine moves.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Subject {
    Farm(Box<FarmArgs>),
    Transport(Box<transport::args::TransportArgs>),
    /// One side of `transport`, which starts it.
    #[command(hide = true)]
    TransportPeer(transport_peer::PeerArgs),
}

/// Runs the benchmark.
///
/// # Errors
///
/// What is wrong with the arguments, or why a run did not come to its end in order.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let args = match &args.subject {
        Subject::Farm(args) => args,
        Subject::Transport(args) => return transport::run(args),
        Subject::TransportPeer(args) => return transport_peer::run(args),
    };
    let report = measure(args)?;
    // To machines first: a reader of the table may have gone.
    if let Some(path) = &args.json {
        std::fs::write(path, report.to_json())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    std::io::stdout()
        .write_all(report.to_string().as_bytes())
        .context("cannot write the table")?;
    Ok(ExitCode::SUCCESS)
}

fn measure(args: &FarmArgs) -> anyhow::Result<Report> {
    let peer = Peer::find(args.peer.as_deref())?;
    let cpus = Cpus::allowed(args.pin.unwrap_or(true)).context("cannot read the CPU affinity")?;
    let (sender, notices) = sync_channel(NOTICES_MAX);
    quit_on_signals(sender.clone())?;
    let congestion = farm::congestion_in_force(&args.congestion)?;
    let bench = FarmBench {
        args,
        cpus: &cpus,
        sender: &sender,
        notices: &notices,
    };
    let mut rows = Vec::new();
    for shape in args.shapes() {
        for &stf_bytes in &args.stf_bytes {
            rows.push(measure_row(&bench, &peer, shape, stf_bytes, &congestion)?);
        }
    }
    Ok(Report::new(args, &cpus, rows))
}

/// Takes pairs until enough of them are undisturbed, or twice as many were taken.
fn measure_row(
    bench: &FarmBench<'_>,
    peer: &Peer,
    shape: Shape,
    stf_bytes: u64,
    congestion: &str,
) -> anyhow::Result<Row> {
    let wanted = bench.args.pairs as usize;
    let (mut pairs, mut plain_congestion) = (Vec::new(), String::new());
    let kept = |pairs: &[Pair]| pairs.iter().filter(|pair| pair.is_kept()).count();
    while kept(&pairs) < wanted && pairs.len() < 2 * wanted {
        let plain = peer.run(bench.args, bench.cpus, stf_bytes);
        quit_if_asked(bench.notices)?;
        let plain = plain?;
        let farm = bench.run(shape, stf_bytes)?;
        plain_congestion.clone_from(&plain.congestion);
        let pair = Pair { farm, plain };
        let told = pair.to_string();
        pairs.push(pair);
        let (taken, kept) = (pairs.len(), kept(&pairs));
        eprintln!("{shape}, {stf_bytes} bytes, pair {taken} ({kept} of {wanted} kept): {told}");
    }
    let congestion = Congestion {
        farm: congestion.to_owned(),
        plain: plain_congestion,
    };
    Ok(Row::new(shape, stf_bytes, congestion, &pairs))
}

/// A Ctrl-C during a run of the pair, when nobody else listens.
fn quit_if_asked(notices: &Receiver<Notice>) -> anyhow::Result<()> {
    if notices
        .try_iter()
        .any(|notice| matches!(notice, Notice::Quit))
    {
        bail!("asked to end: the measurement is not complete");
    }
    Ok(())
}

/// The peer cannot be had: nothing was started.
fn no_peer(text: impl std::fmt::Display) -> anyhow::Error {
    fail::bad_use(text)
}
