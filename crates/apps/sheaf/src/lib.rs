//! The program `sheaf`: a farm on one machine, its roles, and what looks at data and configuration.
//!
//! It is a library for programs that bring a policy along. They are the whole of `sheaf`, with one policy more:
//!
//! ```no_run
//! # use sheaf_placement::policy::{self, round_robin::RoundRobin};
//! fn main() -> std::process::ExitCode {
//!     let registered = policy::register("mine", |_seed| Box::new(RoundRobin::default()));
//!     registered.expect("a name of its own");
//!     sheaf::main()
//! }
//! ```
//!
//! `sheaf new policy NAME` writes such a program with its tests; `docs/how-to/extend.md` tells the rest.

mod abandoned;
mod address;
mod agent;
#[cfg(feature = "monitor")]
mod alarms;
#[cfg(feature = "lab")]
mod bench;
mod cert;
mod command;
mod completions;
mod config;
mod ctl;
mod data;
mod demo;
mod doctor;
mod duration;
mod fail;
mod files;
mod init;
mod json_file;
#[cfg(feature = "lab")]
mod lab;
mod logging;
mod logs;
mod manual;
#[cfg(feature = "monitor")]
mod monitor;
mod new;
mod node_name;
mod other_names;
mod parent;
mod program;
mod progress;
#[cfg(feature = "monitor")]
mod query;
mod reach;
mod reference;
mod run;
mod s3_access;
#[cfg(feature = "monitor")]
mod samples;
mod serve;
mod ship;
mod short_names;
#[cfg(feature = "lab")]
mod sim;
mod status;
mod top;

use clap::{CommandFactory as _, FromArgMatches as _};
use command::Cli;
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

/// Runs the command line of this process, and returns its exit status.
#[must_use]
pub fn main() -> ExitCode {
    run_words(std::env::args_os().collect())
}

/// Runs a command line, as `["sheaf", "status"]`, and returns its exit status. The first word is the name of the program.
///
/// To be called once in a process, from its first thread: it installs handlers of signals and the log. Ends the process
/// for `--help`, `--version` and a command line that is none.
#[must_use]
pub fn run_words(words: Vec<OsString>) -> ExitCode {
    let (words, other) = other_names::translate(words);
    let cli = parse(words).unwrap_or_else(|error| {
        if let Some(other) = other {
            let _ = writeln!(std::io::stderr(), "sheaf: {other}");
        }
        error.exit()
    });
    cli.logging
        .begin(cli.command.usual(), cli.command.logs_to_file());
    if let Some(other) = other.filter(other_names::Other::is_old) {
        cli.logging.warn(&other.to_string());
    }
    cli.command
        .run()
        .unwrap_or_else(|error| fail::report(&error))
}

/// Parses the command line; help and errors have colours as `--color` says.
fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = Cli::command().color(logging::help_color(&words));
    let matches = command.try_get_matches_from_mut(words)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}
