//! `sheaf bench`: the command lines of the benchmarks, and where their reports go.

mod farm;
mod hostile;
mod icn;
mod monitor;
mod serve;
mod threads;
mod transport;
mod write;

use crate::fail;
use anyhow::Context as _;
use farm::FarmArgs;
use hostile::HostileArgs;
use icn::{IcnArgs, IcnRowArgs};
use monitor::{LoadArgs, MonitorArgs};
use serve::{ServeArgs, ServeLoadArgs};
use sheaf_bench::Missing;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use threads::ThreadsArgs;
use transport::TransportArgs;
use write::{WriteArgs, WriteLoadArgs};

/// Measure a farm, the transport, the ICN, the collector, the writer or servers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Subject {
    Farm(Box<FarmArgs>),
    Transport(Box<TransportArgs>),
    Threads(ThreadsArgs),
    Icn(IcnArgs),
    Monitor(Box<MonitorArgs>),
    Write(WriteArgs),
    Serve(Box<ServeArgs>),
    Hostile(HostileArgs),
    /// Measure one row for `icn`, which starts it.
    #[command(hide = true)]
    IcnRow(IcnRowArgs),
    /// Run clients for `serve`, which starts it.
    #[command(hide = true)]
    ServeLoad(ServeLoadArgs),
    /// Write one load for `write`, which starts it.
    #[command(hide = true)]
    WriteLoad(WriteLoadArgs),
    /// Send points for `monitor`, which starts it.
    #[command(hide = true)]
    MonitorLoad(LoadArgs),
    /// Run one side of `transport`, which starts it.
    #[command(hide = true)]
    TransportPeer(PeerArgs),
}

/// Options of one side.
#[derive(Clone, Debug, clap::Args)]
struct PeerArgs {
    #[command(flatten)]
    common: peer_harness::Args,
    /// Lend bodies to the other side, or borrow them.
    #[arg(long)]
    shared_memory: bool,
    /// Connect over Unix sockets, each of which stands for an address.
    #[arg(long)]
    unix: bool,
    /// Protect the connections by TLS, with certificates in this folder.
    #[arg(long, value_name = "DIR")]
    certificates: Option<PathBuf>,
}

/// Runs the benchmark.
///
/// # Errors
///
/// What is wrong with the arguments, or why a run did not come to its end in order.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let outcome = match &args.subject {
        Subject::Farm(args) => farm::run(args),
        Subject::Transport(args) => transport::run(args),
        Subject::Threads(args) => threads::run(args),
        Subject::Icn(args) => icn::run(args),
        Subject::IcnRow(args) => icn::row(args),
        Subject::Monitor(args) => monitor::run(args),
        Subject::Write(args) => write::run(args),
        Subject::Serve(args) => serve::run(args),
        Subject::Hostile(args) => hostile::run(args),
        Subject::ServeLoad(args) => serve::load(args),
        Subject::WriteLoad(args) => write::load(args),
        Subject::MonitorLoad(args) => monitor::load(args),
        Subject::TransportPeer(args) => transport::peer(args).map(|()| ExitCode::SUCCESS),
    };
    outcome.map_err(|error| match error.downcast::<Missing>() {
        Ok(missing) => fail::bad_use(missing),
        Err(error) => error,
    })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
