//! `sheaf serve doctor`: what is set up wrong on a director or a server.

use super::begun;
use crate::json_file::{self, JsonFlag};
use sheaf_gateway::{CHECKS, Finding, GatewayConfig, Report, Role, Verdict, examine};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// File that keeps settings of the kernel.
const SYSCTL_FILE: &str = "/etc/sysctl.d/90-sheaf.conf";

/// Check what direct return depends on here, and set it right with --fix.
///
/// A server is checked by itself; a director is checked with all servers, by what their agents tell. Run it on each
/// machine with the file of the director. Changes are made on this machine alone, are printed as commands, and are
/// gone with the next boot unless they are kept as printed. Exit status: 0 if nothing is wrong, 1 if something is, 2
/// if the command line or the file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve doctor                               with /etc/sheaf/gateway.toml
  sheaf serve doctor gateway.toml --fix            set right what can be, as root
  sheaf serve doctor gateway.toml --json | jq '.findings[] | select(.state == \"wrong\")'
  sheaf serve doctor --list                        every check: what it reads, expects, and why")]
pub(super) struct Args {
    /// Read directors, services and servers from this file.
    #[arg(value_name = "CONFIG", default_value = super::CONFIG)]
    config: PathBuf,
    /// Change settings of the kernel and addresses that are wrong.
    #[arg(long)]
    fix: bool,
    /// Check this machine as what it is; found by its addresses otherwise.
    #[arg(long, value_enum, value_name = "ROLE")]
    role: Option<Part>,
    /// Check for this service alone.
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// List the checks, and check nothing.
    #[arg(long, conflicts_with_all = ["fix", "role", "service"])]
    list: bool,
    #[command(flatten)]
    flag: JsonFlag,
}

/// Part of this machine.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    /// Takes the packets of clients.
    Director,
    /// Stores files.
    Server,
}

/// Row of `--list`.
#[derive(serde::Serialize)]
struct Row {
    name: &'static str,
    role: Role,
    reads: &'static str,
    expects: &'static str,
    why: &'static str,
}

fn word(role: Role) -> &'static str {
    match role {
        Role::Director => "director",
        Role::Server => "server",
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.list {
        return list(args.flag.json);
    }
    let config = begun(GatewayConfig::load(&args.config))?;
    let role = args.role.map(|part| match part {
        Part::Director => Role::Director,
        Part::Server => Role::Server,
    });
    let report = begun(examine(&config, role, args.service.as_deref(), args.fix))?;
    json_file::print_either(args.flag.json, &report, &text(&report, args.fix))?;
    Ok(match report.is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn list(is_json: bool) -> anyhow::Result<ExitCode> {
    let rows: Vec<Row> = CHECKS
        .iter()
        .map(|check| Row {
            name: check.name,
            role: check.role(),
            reads: check.reads,
            expects: check.expects,
            why: check.why,
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<9} {:<16} {}\n{:26} reads: {}\n{:26} else: {}",
            word(row.role),
            row.name,
            row.expects,
            "",
            row.reads,
            "",
            row.why
        );
    }
    json_file::print_either(is_json, &rows, &text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a table of the verdicts, and what was changed.
fn text(report: &Report, is_fixing: bool) -> String {
    let mut text = format!("this machine is a {}\n", word(report.role));
    for finding in &report.findings {
        row(&mut text, finding, is_fixing);
    }
    let sections = [("changed:", &report.done), ("not changed:", &report.failed)];
    for (title, lines) in sections {
        block(&mut text, title, lines);
    }
    let title = format!("to keep the settings, in {SYSCTL_FILE}:");
    block(&mut text, &title, &report.sysctl);
    let title = "to keep the rest, in the configuration of the network:";
    block(&mut text, title, &report.network);
    text
}

fn block(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "{title}");
    for line in lines {
        let _ = writeln!(text, "  {line}");
    }
}

fn row(text: &mut String, finding: &Finding, is_fixing: bool) {
    let (state, found) = match &finding.verdict {
        Verdict::Ok { found } => ("ok", found),
        Verdict::Wrong { found, .. } => ("WRONG", found),
        Verdict::NotChecked { reason } => ("not checked", reason),
    };
    let Finding { check, machine, .. } = finding;
    let _ = writeln!(text, "{machine:<14} {check:<16} {state:<12} {found}");
    let Verdict::Wrong {
        expected,
        repairs,
        by_hand,
        ..
    } = &finding.verdict
    else {
        return;
    };
    let mut line = |what: &str, words: &str| {
        let _ = writeln!(text, "{:31} {what}: {words}", "");
    };
    line("expected", expected);
    if let Some(why) = finding.why {
        line("why", why);
    }
    if let Some(by_hand) = by_hand {
        line("by hand", by_hand);
    }
    let what = match (finding.is_here, is_fixing) {
        (true, false) => "--fix",
        (true, true) => "tried",
        (false, _) => "--fix there",
    };
    for repair in repairs {
        line(what, &repair.to_string());
    }
}
