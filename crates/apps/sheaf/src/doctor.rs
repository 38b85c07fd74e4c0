//! `sheaf doctor`: what stands against a farm on this machine, and between this machine and others.

use crate::duration;
use crate::json_file::{self, JsonFlag};
use serde::Serialize;
use sheaf_doctor::{CHECKS, Finding, Question, Report, State, examine};
use sheaf_node::config::FarmConfig;
use sheaf_protocol::Role;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Check this machine and the way to others, and say what mends what is wrong.
///
/// Limits, memory, settings of the kernel, network cards, clock, certificates, disks, names, ports, the registry,
/// versions. Nothing is changed; folders of the farm file are written to and left as they were, unless --no-disk is
/// given. Exit status: 0 if nothing is wrong, though there may be advice; 1 if something is wrong, so that a node does
/// not start or the farm does not work; 2 if the command line or the farm file is wrong.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf doctor                                     this machine, before there is a farm file
  sheaf doctor --config farm.toml                  this machine for every role, and the whole farm
  sheaf doctor --config farm.toml --role epn       a machine that has EPNs alone
  sheaf doctor --config farm.toml --here           without the other machines
  sheaf doctor --config farm.toml --json | jq '.findings[] | select(.state == \"wrong\")'
  sheaf doctor --list                              every check: what it reads, expects, and why")]
pub(crate) struct Args {
    /// Check for this farm file, and ask the machines in it.
    #[arg(long, visible_alias = "farm", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check this machine for this role; may be repeated.
    #[arg(long = "role", value_name = "ROLE", value_enum, default_values = ["icn", "flp", "epn"])]
    roles: Vec<Part>,
    /// Ask no other machine.
    #[arg(long)]
    here: bool,
    /// Write nothing to the folders of the farm file.
    #[arg(long)]
    no_disk: bool,
    /// Wait for at most this long for each answer of another machine.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration::parse)]
    timeout: Duration,
    /// Print findings that are well, too.
    #[arg(long)]
    all: bool,
    /// List the checks, and check nothing.
    #[arg(long, conflicts_with_all = ["config", "here", "no_disk", "all"])]
    list: bool,
    #[command(flatten)]
    flag: JsonFlag,
}

/// Role of this machine.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    Icn,
    Flp,
    Epn,
    Writer,
}

impl Part {
    fn role(self) -> Role {
        match self {
            Self::Icn => Role::Icn,
            Self::Flp => Role::Flp,
            Self::Epn => Role::Epn,
            Self::Writer => Role::Writer,
        }
    }
}

/// Report for programs.
#[derive(Serialize)]
struct Summary<'a> {
    schema: u32,
    version: &'static str,
    /// Whether nothing is wrong.
    is_well: bool,
    wrong: usize,
    advice: usize,
    #[serde(flatten)]
    report: &'a Report,
}

/// Runs the command.
///
/// # Errors
///
/// What is wrong with the farm file, or that the report cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list {
        return list(args.flag.json);
    }
    let farm = match &args.config {
        Some(file) => Some(FarmConfig::load_for(file, &[])?),
        None => None,
    };
    let question = Question {
        farm: farm.as_ref(),
        roles: args.roles.iter().map(|part| part.role()).collect(),
        is_wide: !args.here,
        has_disk: !args.no_disk,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        patience: args.timeout,
    };
    let report = examine(&question);
    let summary = Summary {
        schema: 1,
        version: env!("CARGO_PKG_VERSION"),
        is_well: report.is_well(),
        wrong: report.count(State::Wrong),
        advice: report.count(State::Advice),
        report: &report,
    };
    json_file::print_either(args.flag.json, &summary, &text(&report, args.all))?;
    Ok(match report.is_well() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn list(is_json: bool) -> anyhow::Result<ExitCode> {
    let mut text = String::new();
    for row in CHECKS {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<19} {}\n{:20}reads: {}\n{:20}else: {}",
            row.name, row.expects, "", row.reads, "", row.why
        );
    }
    json_file::print_either(is_json, &CHECKS, &text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the report for people: what is not well, or everything, and how many there are of each kind.
fn text(report: &Report, has_all: bool) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        if has_all || matches!(finding.state, State::Wrong | State::Advice) {
            row(&mut text, finding);
        }
    }
    let counts = [State::Wrong, State::Advice, State::Ok, State::NotChecked];
    let counts =
        counts.map(|state| format!("{} {}", report.count(state), state.word().to_lowercase()));
    let more = match has_all {
        true => "",
        false => "; all of them with --all",
    };
    let _ = writeln!(text, "{}{more}", counts.join(", "));
    text
}

fn row(text: &mut String, finding: &Finding) {
    let Finding { check, place, .. } = finding;
    let _ = writeln!(
        text,
        "{:<12} {check:<19} {place:<14} {}",
        finding.state.word(),
        finding.found
    );
    let mut line = |what: &str, words: Option<&str>| {
        if let Some(words) = words {
            let _ = writeln!(text, "{:47} {what}: {words}", "");
        }
    };
    line("expected", finding.expected.as_deref());
    line("why", finding.why);
    line("costs", finding.cost);
    line("mend", finding.mend.as_deref());
}
