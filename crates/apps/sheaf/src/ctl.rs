//! `sheaf ctl`: the state of a running farm, and orders to it.

use crate::abandoned;
use crate::node_name::parse_epn;
use crate::reach::Reach;
use crate::status;
use anyhow::Context as _;
use serde::Serialize;
use sheaf_node::operator::{Answer, Operator, OperatorError, Told};
use sheaf_node::status::{AccountingStatus, FarmStatus};
use sheaf_protocol::control::Order;
use sheaf_protocol::{EpnId, Term};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Pause between two queries whether an EPN has left.
const QUERY_AGAIN: Duration = Duration::from_millis(100);

/// Control a running farm: drain or weigh EPNs, restart the ICN, end the run.
///
/// Each command connects to the ICNs and talks to the one that leads. Exit status: 0 if the leading ICN carried out
/// the order, 1 if it refused or no ICN answered, 2 if the command line or the farm file is wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Status(status::Args),
    Drain(DrainArgs),
    Restart(RestartArgs),
    Stop(StopArgs),
    Set(SetArgs),
}

/// Drain an EPN: it gets no new timeframes, finishes what it has, and ends.
///
/// No timeframe is lost. Exit status: 0 if the leading ICN has taken the order (with --wait: and the EPN has left), 1
/// if it refused or no ICN answered, 2 if the command line or the farm file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf ctl drain epn:3 --config farm.toml
  sheaf ctl drain epn:3 --config farm.toml --wait --timeout 1m
  sheaf ctl drain epn:3 --icn 10.0.0.1:7000 10.0.0.2:7000 10.0.0.3:7000")]
struct DrainArgs {
    /// Drain this EPN, such as epn:3.
    #[arg(value_name = "EPN", value_parser = parse_epn)]
    epn: EpnId,
    /// Wait until the EPN has left.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Set the weight of an EPN, or enable or disable it, until the run ends.
///
/// The setting holds for later lives of the EPN in the same run. Exit status: 0 if the leading ICN has taken the
/// order, 1 if it refused or no ICN answered, 2 if the command line or the farm file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf ctl set epn:3 --config farm.toml --enabled false     no new timeframes; the EPN stays in the farm
  sheaf ctl set epn:3 --config farm.toml --weight 0.5        half the share of another EPN")]
#[command(group(clap::ArgGroup::new("change").args(["weight", "enabled"]).required(true).multiple(true)))]
struct SetArgs {
    /// Set this EPN, such as epn:3.
    #[arg(value_name = "EPN", value_parser = parse_epn)]
    epn: EpnId,
    /// Set the share relative to other EPNs, for policies that read it (weighted, calendar, maglev); 1 is usual.
    #[arg(long, value_name = "W", value_parser = parse_weight)]
    weight: Option<u32>,
    /// Give the EPN new timeframes, or none.
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    enabled: Option<bool>,
    #[command(flatten)]
    reach: Reach,
}

/// Restart the ICN that leads: its process begins a new life, and the run goes on.
///
/// A lone ICN goes on with its verdict log on disk, and reads its farm file and its program again; nothing is lost. One
/// of several transfers the leadership first. Returns when an ICN leads in a later term. Exit status: 0 then; 1 if the
/// leading ICN refused, no ICN answered or none led again; 2 if the command line or the farm file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf ctl restart --config farm.toml
  sheaf ctl restart --config farm.toml --json | jq .term")]
struct RestartArgs {
    /// Return when the leading ICN has taken the order.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    reach: Reach,
}

/// End the run: stop the sources at a common timeframe, and drain the farm.
///
/// Returns when the run is over, and prints its closing balance. Exit status: 0 then; 3 if timeframes are abandoned: an
/// EPN ended before it acknowledged them, and whether their consumer has them is unknown; 1 if the leading ICN refused
/// the order or no ICN answered; 2 if the command line or the farm file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf ctl stop --config farm.toml
  sheaf ctl stop --config farm.toml --json | jq .accounting
  sheaf ctl stop --config farm.toml --no-wait")]
struct StopArgs {
    /// Return when the leading ICN has taken the order, without the balance.
    #[arg(long)]
    no_wait: bool,
    /// Exit with status 0 although timeframes are abandoned.
    #[arg(long, conflicts_with = "no_wait")]
    allow_abandoned: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Runs the command.
///
/// # Errors
///
/// The reason why there is no answer, or why it is a refusal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Status(args) => status::run(args),
        Command::Drain(args) => drain(args),
        Command::Restart(args) => restart(args),
        Command::Stop(args) => stop(args),
        Command::Set(args) => set(args),
    }
}

/// Outcome of an order, as `--json` writes it.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    /// `drain`, `set`, `restart` or `stop`.
    order: &'static str,
    /// Such as `epn:3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    epn: Option<String>,
    /// Whether the leading ICN took the order.
    done: bool,
    /// With `--wait`: whether the EPN has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<bool>,
    /// Whether the run is over, for a stop that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<bool>,
    /// Closing balance of the run, for a stop that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    accounting: Option<AccountingStatus>,
    /// Address of the ICN that answered.
    icn: Option<String>,
    /// Term of the ICN that answered.
    term: Option<u64>,
    /// The run, as 16 hexadecimal digits.
    run: Option<String>,
    /// Effect of the order, or the reason of a refusal.
    detail: String,
}

/// `sheaf ctl drain`.
fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + args.reach.way.timeout;
    let mut outcome = Outcome {
        order: "drain",
        epn: Some(args.epn.to_string()),
        left: args.wait.then_some(false),
        ..Outcome::default()
    };
    let mut operator = args.reach.way.operator()?;
    let order = Order::Drain { epn: args.epn };
    let answer = operator.order(order, args.reach.way.timeout);
    let is_taken = outcome.take(answer);
    if args.wait && is_taken {
        match wait_until_gone(&mut operator, args.epn, until) {
            Ok(true) => {
                outcome.left = Some(true);
                outcome.detail = format!("{} has left", args.epn);
            }
            Ok(false) => {
                outcome.done = false;
                let waited = args.reach.way.timeout.as_secs_f64();
                outcome.detail = format!("{}, and has not left after {waited} s", outcome.detail);
            }
            Err(error) => {
                outcome.done = false;
                outcome.detail = error.to_string();
            }
        }
    }
    print(&args.reach, &outcome)
}

/// `sheaf ctl set`.
fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let mut outcome = Outcome {
        order: "set",
        epn: Some(args.epn.to_string()),
        ..Outcome::default()
    };
    let order = Order::Set {
        epn: args.epn,
        weight_milli: args.weight,
        enabled: args.enabled,
    };
    outcome.take(
        args.reach
            .way
            .operator()?
            .order(order, args.reach.way.timeout),
    );
    print(&args.reach, &outcome)
}

/// `sheaf ctl restart`.
fn restart(args: &RestartArgs) -> anyhow::Result<ExitCode> {
    let timeout = args.reach.way.timeout;
    let mut outcome = Outcome {
        order: "restart",
        ..Outcome::default()
    };
    let mut operator = args.reach.way.operator()?;
    // The order names the term, so that a later leader does not carry it out again.
    let before = operator.status(timeout);
    let term = before.as_ref().map_or(Term(0), |before| before.term);
    let answer = before.and_then(|_| operator.order(Order::Restart { term }, timeout));
    let is_taken = outcome.take(answer);
    if is_taken && !args.no_wait {
        match wait_until_led(&mut operator, term, timeout) {
            Ok(after) => {
                let is_kept = outcome.run.as_ref() == Some(&after.status.run);
                outcome.done = is_kept;
                outcome.detail = format!(
                    "{} leads in term {}, run {} {}",
                    after.icn,
                    after.term.0,
                    after.status.run,
                    if is_kept { "goes on" } else { "is another one" }
                );
                outcome.icn = Some(after.icn);
                outcome.term = Some(after.term.0);
                outcome.run = Some(after.status.run);
            }
            Err(error) => {
                outcome.done = false;
                outcome.detail = format!("the ICN has taken the order, and then: {error}");
            }
        }
    }
    print(&args.reach, &outcome)
}

/// Queries the status until an ICN leads in a term after `term`, for at most `patience`.
#[expect(
    clippy::disallowed_methods,
    reason = "a status is an answer to a query: the next one is asked for after a while"
)]
fn wait_until_led(
    operator: &mut Operator,
    term: Term,
    patience: Duration,
) -> Result<Told, OperatorError> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let told = operator.status(left)?;
        if told.term > term {
            return Ok(told);
        }
        std::thread::sleep(QUERY_AGAIN);
    }
}

/// `sheaf ctl stop`.
fn stop(args: &StopArgs) -> anyhow::Result<ExitCode> {
    let timeout = args.reach.way.timeout;
    let mut outcome = Outcome {
        order: "stop",
        over: (!args.no_wait).then_some(false),
        ..Outcome::default()
    };
    let mut operator = args.reach.way.operator()?;
    // An ICN ends only when those that have asked for the status know that the run is over.
    let watched = if args.no_wait {
        Ok(())
    } else {
        operator.status(timeout).map(|_| ())
    };
    let answer = watched.and_then(|()| operator.order(Order::Stop, timeout));
    let is_taken = outcome.take(answer);
    if is_taken && !args.no_wait {
        match wait_until_over(&mut operator, timeout) {
            Ok(status) => {
                outcome.over = Some(true);
                outcome.detail = closing(&status);
                outcome.accounting = Some(status.accounting);
            }
            Err(error) => {
                outcome.done = false;
                outcome.detail =
                    format!("the farm drains, and its closing balance is unknown: {error}");
            }
        }
    }
    let code = print(&args.reach, &outcome)?;
    let abandoned = outcome
        .accounting
        .map_or(0, |accounting| accounting.abandoned);
    if abandoned > 0 && !args.allow_abandoned {
        return Ok(ExitCode::from(abandoned::STATUS));
    }
    Ok(code)
}

/// Queries the status until the run is over, each time for at most `patience`.
#[expect(
    clippy::disallowed_methods,
    reason = "a status is an answer to a query: the next one is asked for after a while"
)]
fn wait_until_over(
    operator: &mut Operator,
    patience: Duration,
) -> Result<FarmStatus, OperatorError> {
    loop {
        let status = operator.status(patience)?.status;
        if status.phase == "over" {
            return Ok(status);
        }
        std::thread::sleep(QUERY_AGAIN);
    }
}

/// Returns the closing balance of a run in words.
fn closing(status: &FarmStatus) -> String {
    let accounting = &status.accounting;
    let dropped: u64 = accounting.dropped.values().sum();
    let mut text = format!(
        "run {} is over: announced {} = complete {} + incomplete {} + dropped {dropped}",
        status.run, accounting.announced, accounting.complete, accounting.incomplete
    );
    if dropped > 0 {
        let reasons = accounting.dropped.iter();
        let reasons: Vec<String> = reasons
            .map(|(reason, count)| format!("{reason} {count}"))
            .collect();
        text += &format!(" ({})", reasons.join(", "));
    }
    if accounting.redelivered > 0 {
        text += &format!(
            "\n  redelivered {}: their EPN ended before it acknowledged them, and others delivered them marked",
            accounting.redelivered
        );
    }
    if accounting.abandoned > 0 {
        let warning = abandoned::Warning(accounting.abandoned).to_string();
        text += &format!("\n{}", warning.trim_end());
    }
    if !accounting.balanced {
        text += "\n  warning: the accounting does not balance: keep all logs, it is a bug";
    }
    text
}

/// Queries the ICN until it does not know the EPN twice in a row. Returns `false` if that takes longer than `until`.
///
/// Twice, because an ICN that has just begun to lead may not know the EPN yet.
#[expect(
    clippy::disallowed_methods,
    reason = "the ICN sends no notice when an EPN leaves, so it is queried"
)]
fn wait_until_gone(
    operator: &mut Operator,
    epn: EpnId,
    until: Instant,
) -> Result<bool, OperatorError> {
    let nothing_new = Order::Set {
        epn,
        weight_milli: None,
        enabled: None,
    };
    let mut unknown = 0;
    while unknown < 2 {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let answer = operator.order(nothing_new, left)?;
        unknown = if answer.done { 0 } else { unknown + 1 };
        std::thread::sleep(QUERY_AGAIN.min(left));
    }
    Ok(true)
}

impl Outcome {
    /// Enters the answer of an ICN. Returns whether the ICN took the order.
    fn take(&mut self, answer: Result<Answer, OperatorError>) -> bool {
        match answer {
            Ok(answer) => {
                self.done = answer.done;
                self.icn = Some(answer.icn);
                self.term = Some(answer.term.0);
                self.run = Some(answer.run.to_string());
                self.detail = answer.detail;
            }
            Err(error) => self.detail = error.to_string(),
        }
        self.done
    }
}

/// Prints the outcome for people or machines. Returns the exit status.
fn print(reach: &Reach, outcome: &Outcome) -> anyhow::Result<ExitCode> {
    if reach.json {
        let text =
            serde_json::to_string(outcome).expect("names and numbers always have a JSON form");
        writeln!(std::io::stdout(), "{text}").context("cannot write the outcome")?;
    } else if outcome.done {
        writeln!(std::io::stdout(), "{}", outcome.detail).context("cannot write the outcome")?;
    } else {
        anyhow::bail!("{}", outcome.detail);
    }
    Ok(if outcome.done {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Reads a weight in thousandths.
fn parse_weight(text: &str) -> Result<u32, String> {
    match text.parse::<f64>() {
        Ok(weight) if (0.001..=1000.0).contains(&weight) => Ok((weight * 1000.0).round() as u32),
        _ => Err(format!("found `{text}`, expected 0.001 to 1000")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_balance_names_every_loss() {
        let mut status = FarmStatus {
            run: "00000000000000aa".to_owned(),
            ..FarmStatus::default()
        };
        status.accounting.announced = 10;
        status.accounting.complete = 10;
        status.accounting.balanced = true;
        let expected =
            "run 00000000000000aa is over: announced 10 = complete 10 + incomplete 0 + dropped 0";
        assert_eq!(closing(&status), expected);
        status.accounting.complete = 7;
        status.accounting.dropped = [("source-died".to_owned(), 3)].into();
        status.accounting.abandoned = 2;
        let text = closing(&status);
        for part in [
            "complete 7 + incomplete 0 + dropped 3 (source-died 3)",
            "\n  warning: 2 TFs are abandoned",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_weight_is_read_or_refused() {
        assert_eq!(parse_weight("2"), Ok(2000));
        assert_eq!(parse_weight("0.5"), Ok(500));
        for wrong in ["0", "-1", "much", "NaN", "1001"] {
            assert!(parse_weight(wrong).is_err(), "{wrong}");
        }
    }
}
