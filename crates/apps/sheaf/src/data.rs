//! `sheaf data`: files of detector data, timeframes of an EPN, and the logs of a run.

mod consume;
mod convert;
mod file_view;
mod inspect;
#[cfg(feature = "lab")]
mod records;
mod verify;

use std::process::ExitCode;

/// Inspect, convert, consume and verify data.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Inspect(inspect::Args),
    Convert(convert::Args),
    Consume(consume::Args),
    Verify(verify::Args),
    #[cfg(feature = "lab")]
    Records(records::Args),
}

/// Runs the command.
///
/// # Errors
///
/// Input that cannot be read, or a result that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Inspect(args) => inspect::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Consume(args) => consume::run(args),
        Command::Verify(args) => verify::run(args),
        #[cfg(feature = "lab")]
        Command::Records(args) => records::run(args),
    }
}
