//! `sheaf drain`, `sheaf epn set`, `sheaf stop`: orders to a running farm.

use crate::fail;
use crate::role::parse_node_address;
use anyhow::Context as _;
use serde::Serialize;
use sheaf_node::config::FarmConfig;
use sheaf_node::operator::{Answer, Operator, OperatorError};
use sheaf_protocol::control::Order;
use sheaf_protocol::{EpnId, NodeId, Role};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Pause between two looks whether an EPN has left.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How to reach the farm, and how to tell what came of the order.
#[derive(Clone, Debug, clap::Args)]
struct Reach {
    /// The farm file: says where the ICNs are, and with which certificates to come.
    #[arg(long, value_name = "FILE", required_unless_present = "icn")]
    config: Option<PathBuf>,
    /// Where the ICNs are; overrides the farm file. Several: one after the other.
    #[arg(long, value_name = "ADDR", value_parser = parse_node_address, num_args = 1..)]
    icn: Vec<String>,
    /// Give up when no ICN has carried out the order after this time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = crate::demo::parse_duration)]
    timeout: Duration,
    /// Which operator this is, by its certificate.
    #[arg(long, value_name = "N", default_value_t = 0)]
    operator: u16,
    /// Tell the outcome as one JSON object on the standard output.
    #[arg(long)]
    json: bool,
}

/// Sends an EPN home: it gets nothing new, finishes what it has, and ends. No timeframe is lost.
///
/// Exit status: 0 if the leading ICN has taken the order (with --wait: and the EPN has left), 1 if it refused or
/// none answered, 2 if the command line or the farm file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf drain epn:3 --config farm.toml
  sheaf drain epn:3 --config farm.toml --wait --timeout 1m
  sheaf drain epn:3 --icn 10.0.0.1:7000 10.0.0.2:7000 10.0.0.3:7000")]
pub(crate) struct DrainArgs {
    /// The EPN, such as epn:3.
    #[arg(value_name = "EPN", value_parser = parse_epn)]
    epn: EpnId,
    /// Come back when the EPN has left.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Changes what an EPN gets, in this life of it and in later ones, until the run ends.
///
/// Exit status: 0 if the leading ICN has taken the order, 1 if it refused or none answered, 2 if the command line or
/// the farm file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf epn set epn:3 --config farm.toml --enabled false     nothing new for it; it stays in the farm
  sheaf epn set epn:3 --config farm.toml --weight 0.5        half of what another EPN gets")]
#[command(group(clap::ArgGroup::new("change").args(["weight", "enabled"]).required(true).multiple(true)))]
pub(crate) struct SetArgs {
    /// The EPN, such as epn:3.
    #[arg(value_name = "EPN", value_parser = parse_epn)]
    epn: EpnId,
    /// Its share of the work relative to other EPNs, for weighted policies (none of those there
    /// are now); 1 is usual.
    #[arg(long, value_name = "W", value_parser = parse_weight)]
    weight: Option<u32>,
    /// Whether it gets anything new.
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    enabled: Option<bool>,
    #[command(flatten)]
    reach: Reach,
}

/// Ends the run: the sources stop at a common timeframe, the farm drains, all nodes go home.
///
/// Comes back when the leading ICN has taken the order. Exit status: 0 then, 1 if it refused or none answered, 2 if the
/// command line or the farm file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf stop --config farm.toml")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    reach: Reach,
}

/// What `--json` writes.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    /// `drain`, `set` or `stop`.
    order: &'static str,
    /// Such as `epn:3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    epn: Option<String>,
    /// Whether the order was taken.
    done: bool,
    /// With `--wait`: whether the EPN has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<bool>,
    /// Where the ICN that answered listens.
    icn: Option<String>,
    /// Its term.
    term: Option<u64>,
    /// The run, as 16 hexadecimal digits.
    run: Option<String>,
    /// What was done, or why not.
    detail: String,
}

/// `sheaf drain`.
pub(crate) fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + args.reach.timeout;
    let mut outcome = Outcome {
        order: "drain",
        epn: Some(args.epn.to_string()),
        left: args.wait.then_some(false),
        ..Outcome::default()
    };
    let mut operator = operator(&args.reach)?;
    let order = Order::Drain { epn: args.epn };
    let answer = operator.order(order, args.reach.timeout);
    let is_taken = outcome.take(answer);
    if args.wait && is_taken {
        match wait_until_gone(&mut operator, args.epn, until) {
            Ok(true) => {
                outcome.left = Some(true);
                outcome.detail = format!("{} has left", args.epn);
            }
            Ok(false) => {
                outcome.done = false;
                let waited = args.reach.timeout.as_secs_f64();
                outcome.detail = format!("{}, and has not left after {waited} s", outcome.detail);
            }
            Err(error) => {
                outcome.done = false;
                outcome.detail = error.to_string();
            }
        }
    }
    tell(&args.reach, &outcome)
}

/// `sheaf epn set`.
pub(crate) fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
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
    outcome.take(operator(&args.reach)?.order(order, args.reach.timeout));
    tell(&args.reach, &outcome)
}

/// `sheaf stop`.
pub(crate) fn stop(args: &StopArgs) -> anyhow::Result<ExitCode> {
    let mut outcome = Outcome {
        order: "stop",
        ..Outcome::default()
    };
    outcome.take(operator(&args.reach)?.order(Order::Stop, args.reach.timeout));
    tell(&args.reach, &outcome)
}

fn operator(reach: &Reach) -> anyhow::Result<Operator> {
    let mut config = match &reach.config {
        Some(file) => FarmConfig::load_for(file, &[])?,
        None => FarmConfig::default(),
    };
    if !reach.icn.is_empty() {
        config.icn.addresses.clone_from(&reach.icn);
    }
    Operator::new(&config, reach.operator).map_err(|error| match error {
        OperatorError::Security(_) | OperatorError::Resolve { .. } => fail::bad_use(error),
        error => error.into(),
    })
}

/// Asks for the EPN until the ICN does not know it. `false` if that takes longer than `until`.
///
/// Twice, since an ICN that has just begun to lead may not have heard of the EPN yet.
#[expect(
    clippy::disallowed_methods,
    reason = "the ICN says nothing of itself when an EPN leaves: it is asked now and then"
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
        std::thread::sleep(LOOK_AGAIN.min(left));
    }
    Ok(true)
}

impl Outcome {
    /// Takes note of what an ICN answered; gives whether it took the order.
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

/// Tells the outcome to people or machines. Gives the exit status.
fn tell(reach: &Reach, outcome: &Outcome) -> anyhow::Result<ExitCode> {
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

fn parse_epn(text: &str) -> Result<EpnId, String> {
    match crate::demo::parse_node(text) {
        Ok(NodeId {
            role: Role::Epn,
            index,
        }) => Ok(EpnId(index)),
        _ => Err(format!("found `{text}`, expected epn:N, such as epn:3")),
    }
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
    fn an_epn_and_a_weight_are_read_or_named() {
        assert_eq!(parse_epn("epn:3"), Ok(EpnId(3)));
        for wrong in ["flp:3", "epn", "epn:x", "epn:-1", "3", "epn:70000"] {
            let error = parse_epn(wrong).unwrap_err();
            assert!(error.contains("expected epn:N"), "{wrong}: {error}");
        }
        assert_eq!(parse_weight("2"), Ok(2000));
        assert_eq!(parse_weight("0.5"), Ok(500));
        for wrong in ["0", "-1", "much", "NaN", "1001"] {
            assert!(parse_weight(wrong).is_err(), "{wrong}");
        }
    }
}
