//! `sheaf status`: a running farm in a table or as JSON, once or again and again, with an exit status by its health.

mod health;
mod table;

use crate::duration;
use crate::json_file::print_either;
use crate::reach::Reach;
use anyhow::Context as _;
use health::Verdict;
use serde::Serialize;
use sheaf_node::operator::{IcnSeen, OperatorError, Told};
use sheaf_node::status::FarmStatus;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

/// Exit status of a farm that works and lacks something.
const DEGRADED: u8 = 3;
/// Exit status of a farm that does not answer.
const UNREACHABLE: u8 = 1;
/// Time for the ICNs that do not lead to answer, after the leader has.
const OTHERS_WITHIN: Duration = Duration::from_millis(500);

/// Show a running farm: its leader, its accounting, its nodes, and its health.
///
/// Exit status: 0 if the farm is healthy, 3 if it is degraded (the reasons are printed), 1 if no leading ICN answered,
/// 2 if the command line or the farm file is wrong; with --watch, that of the last look.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf status --config farm.toml
  sheaf status --config farm.toml --watch=2s
  sheaf status --icn 10.0.0.1:7000 10.0.0.2:7000 10.0.0.3:7000 --json")]
pub(crate) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Show it again at this interval, until Ctrl-C.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1s", value_parser = duration::parse)]
    watch: Option<Duration>,
}

/// Report, as `--json` writes it.
#[derive(Debug, Serialize)]
struct Report {
    /// Always `status`.
    order: &'static str,
    /// Whether a leading ICN answered.
    done: bool,
    /// `healthy`, `degraded` or `unreachable`.
    health: &'static str,
    /// Reasons why it is not healthy.
    reasons: Vec<String>,
    /// Address of the ICN that answered.
    icn: Option<String>,
    /// Term of the ICN that answered.
    term: Option<u64>,
    /// The run, as 16 hexadecimal digits.
    run: Option<String>,
    /// One line about the run, or the reason why there is no answer.
    detail: String,
    /// All ICNs that were asked.
    icns: Vec<Icn>,
    /// Status of the farm (docs/reference/status.md).
    status: Option<FarmStatus>,
}

/// One ICN of the report.
#[derive(Debug, Serialize)]
struct Icn {
    address: String,
    state: &'static str,
    why: String,
}

/// Runs the command.
///
/// # Errors
///
/// The reason why the command line or the farm file is wrong, or why nothing can be printed.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let reach = &args.reach;
    let mut operator = reach.way.operator()?;
    let flps = match &reach.way.config {
        Some(_) => Some(reach.way.farm()?.run.flps),
        None => None,
    };
    let mut before = None;
    loop {
        let told = operator.status(reach.way.timeout);
        let icns = operator.icns(OTHERS_WITHIN);
        let report = report(&told, &icns, flps);
        let code = match report.health {
            "healthy" => ExitCode::SUCCESS,
            "degraded" => ExitCode::from(DEGRADED),
            _ => ExitCode::from(UNREACHABLE),
        };
        let Some(period) = args.watch else {
            if !report.done && !reach.json {
                anyhow::bail!("{}", report.detail);
            }
            print_either(reach.json, &report, &table::text(&report, None))?;
            return Ok(code);
        };
        if show(&report, reach.json, before.as_ref()).context("cannot write the status")? {
            return Ok(code);
        }
        before = report.status.or(before);
        pause(period);
    }
}

/// Judges an answer, or that there is none.
fn report(told: &Result<Told, OperatorError>, icns: &[IcnSeen], flps: Option<u32>) -> Report {
    let seen = icns.iter().map(|icn| Icn {
        address: icn.address.clone(),
        state: icn.state,
        why: icn.why.clone(),
    });
    let seen = seen.collect();
    match told {
        Ok(told) => {
            let Verdict { health, reasons } = health::judge(&told.status, icns, flps);
            Report {
                order: "status",
                done: true,
                health,
                reasons,
                icn: Some(told.icn.clone()),
                term: Some(told.term.0),
                run: Some(told.status.run.clone()),
                detail: table::detail(&told.status),
                icns: seen,
                status: Some(told.status.clone()),
            }
        }
        Err(error) => Report {
            order: "status",
            done: false,
            health: "unreachable",
            reasons: vec![error.to_string()],
            icn: None,
            term: None,
            run: None,
            detail: error.to_string(),
            icns: seen,
            status: None,
        },
    }
}

/// Shows one look of several. Returns whether the reader has gone.
fn show(report: &Report, is_json: bool, before: Option<&FarmStatus>) -> io::Result<bool> {
    let mut out = io::stdout();
    let text = if is_json {
        let line =
            serde_json::to_string(report).expect("names and numbers always have a JSON form");
        line + "\n"
    } else if out.is_terminal() {
        // Back to the first column of the first line, and nothing of the last look behind this one.
        format!("\x1b[H\x1b[2J{}", table::text(report, before))
    } else {
        table::text(report, before) + "\n"
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(true),
        outcome => outcome.map(|()| false),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the interval between two looks is what was asked for"
)]
fn pause(period: Duration) {
    std::thread::sleep(period);
}
