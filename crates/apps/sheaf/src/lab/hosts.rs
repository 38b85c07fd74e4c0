//! `sheaf lab hosts`: real machines, over `ssh`: checked, furnished, with a farm started, stopped, fetched, removed.

use crate::duration;
use sheaf_lab::LabError;
use sheaf_lab::hosts::{self, Fleet, Inventory};
use sheaf_node::config::FarmConfig;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
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
    },
    /// Copy this program to all hosts that do not have it.
    Push {
        /// Read this inventory file.
        inventory: PathBuf,
    },
    /// Start a farm that goes on by itself, and return when it makes timeframes.
    Start {
        /// Read this inventory file.
        inventory: PathBuf,
        /// Read this farm file; its addresses are replaced, and other files that it names have to be on the hosts.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// End the run of a farm, and return when no process is left.
    Stop {
        /// Read this inventory file.
        inventory: PathBuf,
        /// Give up after this time.
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
        timeout: Duration,
    },
    /// Fetch event logs, logs and farm files of a farm from all hosts.
    Collect {
        /// Read this inventory file.
        inventory: PathBuf,
        /// Write into this folder, which is new or empty.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Kill all processes and remove the folder, on all hosts.
    Purge {
        /// Read this inventory file.
        inventory: PathBuf,
    },
}

/// Does what is asked for.
pub(super) fn run(args: &HostsArgs) -> anyhow::Result<ExitCode> {
    if let Order::Start { inventory, config } = &args.order {
        // What the file names is looked for by the nodes, on their hosts.
        let config = FarmConfig::load_for(config, &[])?;
        return start(inventory, config).map_err(super::refuse);
    }
    carry_out(&args.order).map_err(super::refuse)
}

fn carry_out(order: &Order) -> Result<ExitCode, LabError> {
    match order {
        Order::Check { inventory } => return check(&Inventory::read(inventory)?),
        Order::Start { .. } => {}
        Order::Push { inventory } => {
            open(inventory)?.push(|host, text| println!("{host}: {text}"))?;
        }
        Order::Stop { inventory, timeout } => {
            let ended = open(inventory)?.stop(*timeout)?;
            println!("{ended} processes have ended");
        }
        Order::Collect { inventory, out } => {
            let files = open(inventory)?.collect(out)?;
            println!("{files} files are in {}", out.display());
        }
        Order::Purge { inventory } => {
            for (host, killed) in open(inventory)?.purge()? {
                println!("{host}: removed, {killed} processes killed");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn open(inventory: &Path) -> Result<Fleet, LabError> {
    Fleet::open(&Inventory::read(inventory)?)
}

fn start(inventory: &Path, config: FarmConfig) -> Result<ExitCode, LabError> {
    for started in open(inventory)?.start(config)? {
        let listen = started.listen.unwrap_or_default();
        println!(
            "{:<8} {:<16} {listen}",
            started.node.to_string(),
            started.host
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn check(inventory: &Inventory) -> Result<ExitCode, LabError> {
    let answers = hosts::check(inventory)?;
    for (name, answer) in &answers {
        match answer {
            Ok(facts) => println!(
                "{name:<16} ready: {}, {} MiB free",
                facts.line(),
                facts.free_mib
            ),
            Err(error) => println!("{name:<16} NOT READY: {error}"),
        }
    }
    let is_ready = answers.iter().all(|(_, answer)| answer.is_ok());
    Ok(if is_ready {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
