//! `sheaf lab hosts`: real machines, over `ssh`: checked, furnished, with a farm started, stopped, fetched, removed.

use crate::duration;
use crate::json_file::{self, JsonFlag};
use serde_json::{Value, json};
use sheaf_lab::LabError;
use sheaf_lab::hosted;
use sheaf_node::config::FarmConfig;
use sheaf_testbed::hosts::{self, Fleet, Inventory};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Run a farm on real machines over ssh, from an inventory file.
///
/// Nothing but `ssh` and a shell is needed there. All that the lab has on a host lies in one folder; its processes are
/// those that run the program in it. Host keys have to be known, and keys have to open without a question. Exit status
/// 1 if a host does not do what it is asked, 2 if the inventory is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab hosts check stand.toml              which hosts can be used, and why not
  sheaf lab hosts push stand.toml               this program, to all of them
  sheaf lab run experiments/failover.toml --only sheaf --hosts stand.toml
  sheaf lab hosts start stand.toml --config farm.toml
  sheaf lab hosts stop stand.toml               the farm drains and ends
  sheaf lab hosts collect stand.toml --out run1; sheaf data verify run1
  sheaf lab hosts purge stand.toml              no process and no file is left")]
pub(super) struct HostsArgs {
    #[command(subcommand)]
    order: Order,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Order {
    /// Check whether a run could begin on each host; exit status 1 if not on all.
    Check {
        /// Read this inventory file.
        inventory: PathBuf,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// Copy this program to all hosts that do not have it.
    Push {
        /// Read this inventory file.
        inventory: PathBuf,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// Start a farm that goes on by itself, and return when it makes timeframes.
    Start {
        /// Read this inventory file.
        inventory: PathBuf,
        /// Read this farm file; its addresses are replaced, and other files that it names have to be on the hosts.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// End the run of a farm, and return when no process is left.
    Stop {
        /// Read this inventory file.
        inventory: PathBuf,
        /// Give up after this time.
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
        timeout: Duration,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// Fetch event logs, logs and farm files of a farm from all hosts.
    Collect {
        /// Read this inventory file.
        inventory: PathBuf,
        /// Write into this folder, which is new or empty.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// Kill all processes and remove the folder, on all hosts.
    Purge {
        /// Read this inventory file.
        inventory: PathBuf,
        #[command(flatten)]
        flag: JsonFlag,
    },
}

impl Order {
    fn is_json(&self) -> bool {
        let (Self::Check { flag, .. }
        | Self::Push { flag, .. }
        | Self::Start { flag, .. }
        | Self::Stop { flag, .. }
        | Self::Collect { flag, .. }
        | Self::Purge { flag, .. }) = self;
        flag.json
    }
}

/// Does what is asked for.
pub(super) fn run(args: &HostsArgs) -> anyhow::Result<ExitCode> {
    let is_json = args.order.is_json();
    if let Order::Start {
        inventory, config, ..
    } = &args.order
    {
        // What the file names is looked for by the nodes, on their hosts.
        let config = FarmConfig::load_for(config, &[])?;
        let started = start(inventory, config).map_err(super::refuse)?;
        return started.print(is_json);
    }
    let outcome = carry_out(&args.order).map_err(super::refuse)?;
    outcome.print(is_json)
}

/// Result of an order, for machines and for people.
struct Outcome {
    value: Value,
    text: String,
    is_good: bool,
}

impl Outcome {
    fn good(value: Value, text: String) -> Self {
        Self {
            value,
            text,
            is_good: true,
        }
    }

    fn print(&self, is_json: bool) -> anyhow::Result<ExitCode> {
        json_file::print_either(is_json, &self.value, &self.text)?;
        Ok(ExitCode::from(u8::from(!self.is_good)))
    }
}

fn carry_out(order: &Order) -> Result<Outcome, LabError> {
    Ok(match order {
        Order::Check { inventory, .. } => return check(&Inventory::read(inventory)?),
        Order::Start { .. } => Outcome::good(Value::Null, String::new()),
        Order::Push { inventory, flag } => {
            let pushed = Mutex::new(Vec::new());
            open(inventory)?.push(|host, text| {
                if !flag.json {
                    // As soon as a host has it: a copy takes its time.
                    println!("{host}: {text}");
                }
                let row = json!({ "host": host, "outcome": text });
                let mut pushed = pushed.lock().unwrap_or_else(PoisonError::into_inner);
                pushed.push(row);
            })?;
            let pushed = pushed.into_inner().unwrap_or_else(PoisonError::into_inner);
            Outcome::good(pushed.into(), String::new())
        }
        Order::Stop {
            inventory, timeout, ..
        } => {
            let ended = hosted::stop(&open(inventory)?, *timeout)?;
            let text = format!("{ended} processes have ended\n");
            Outcome::good(json!({ "ended": ended }), text)
        }
        Order::Collect { inventory, out, .. } => {
            let files = hosted::collect(&open(inventory)?, out)?;
            let text = format!("{files} files are in {}\n", out.display());
            Outcome::good(json!({ "files": files, "out": out }), text)
        }
        Order::Purge { inventory, .. } => {
            let purged = open(inventory)?.purge()?;
            let lines = purged
                .iter()
                .map(|(host, killed)| format!("{host}: removed, {killed} processes killed\n"));
            let rows = purged
                .iter()
                .map(|(host, killed)| json!({ "host": host, "killed": killed }));
            Outcome::good(rows.collect(), lines.collect())
        }
    })
}

fn open(inventory: &Path) -> Result<Fleet, LabError> {
    Ok(Fleet::open(&Inventory::read(inventory)?)?)
}

fn start(inventory: &Path, config: FarmConfig) -> Result<Outcome, LabError> {
    let (mut rows, mut text) = (Vec::new(), String::new());
    for started in hosted::start(&open(inventory)?, config)? {
        let node = started.node.to_string();
        rows.push(json!({ "node": node, "host": started.host, "listen": started.listen }));
        let listen = started.listen.unwrap_or_default();
        text += &format!("{node:<8} {:<16} {listen}\n", started.host);
    }
    Ok(Outcome::good(rows.into(), text))
}

fn check(inventory: &Inventory) -> Result<Outcome, LabError> {
    let (mut rows, mut text) = (Vec::new(), String::new());
    let answers = hosts::check(inventory)?;
    for (name, answer) in &answers {
        match answer {
            Ok(facts) => {
                let (line, free_mib) = (facts.line(), facts.free_mib);
                text += &format!("{name:<16} ready: {line}, {free_mib} MiB free\n");
                rows.push(json!({ "host": name, "ready": true, "facts": facts }));
            }
            Err(error) => {
                text += &format!("{name:<16} NOT READY: {error}\n");
                let error = error.to_string();
                rows.push(json!({ "host": name, "ready": false, "error": error }));
            }
        }
    }
    Ok(Outcome {
        value: rows.into(),
        text,
        is_good: answers.iter().all(|(_, answer)| answer.is_ok()),
    })
}
