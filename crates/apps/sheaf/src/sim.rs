//! `sheaf sim`: whole farms in virtual time.

mod kills;
mod run;
mod torture;
mod write;

use std::process::ExitCode;

/// Simulate whole farms in virtual time: performance, or seeded faults.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    subject: Subject,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Subject {
    Run(run::Args),
    Torture(torture::Args),
    Kills(kills::Args),
    Write(write::Args),
}

/// Simulates what is asked for.
///
/// # Errors
///
/// What is wrong with the arguments, or a file that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.subject {
        Subject::Run(args) => run::run(args),
        Subject::Torture(args) => torture::run(args),
        Subject::Kills(args) => kills::run(args),
        Subject::Write(args) => write::run(args),
    }
}
