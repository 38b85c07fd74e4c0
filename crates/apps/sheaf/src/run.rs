//! `sheaf run`: one node, or one bridge to another system, as one process.

mod bridge;
mod cpu_list;
mod role;

use std::process::ExitCode;

/// Run one node of a farm, or a bridge, as one process.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    process: Process,
}

#[derive(Debug, clap::Subcommand)]
enum Process {
    Icn(role::IcnArgs),
    Flp(role::FlpArgs),
    Epn(role::EpnArgs),
    Writer(role::WriterArgs),
    Bridge(bridge::Args),
}

impl Args {
    /// Returns whether the log of the process goes to a file.
    pub(crate) fn logs_to_file(&self) -> bool {
        match &self.process {
            Process::Icn(args) => args.node.logs_to_file(),
            Process::Flp(args) => args.node.logs_to_file(),
            Process::Epn(args) => args.node.logs_to_file(),
            Process::Writer(args) => args.node.logs_to_file(),
            Process::Bridge(_) => false,
        }
    }
}

/// Runs the process until its end.
///
/// # Errors
///
/// The reason why the process could not begin, or failed.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.process {
        Process::Icn(args) => role::run_icn(args),
        Process::Flp(args) => role::run_flp(args),
        Process::Epn(args) => role::run_epn(args),
        Process::Writer(args) => role::run_writer(args),
        Process::Bridge(args) => bridge::run(args),
    }
}
