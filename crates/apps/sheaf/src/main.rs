//! The binary `sheaf`: a farm on one machine, its roles, and what looks at data and configuration.

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
mod manual;
#[cfg(feature = "monitor")]
mod monitor;
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

fn main() -> ExitCode {
    let (words, other) = other_names::translate(std::env::args_os().collect());
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
