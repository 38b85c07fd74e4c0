//! `sheaf lab net` and `sheaf lab ceiling`: networks of namespaces, and what TCP gets of their links.

use super::refuse;
use crate::duration;
use crate::json_file::{self, JsonFlag};
use crate::{fail, progress};
use serde_json::json;
use sheaf_lab::ceiling::{self, Options, Row};
use sheaf_lab::output;
use sheaf_testbed::net::{self, Net, Topology};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Make, remove or show a network of namespaces.
///
/// A topology is a file, or one that comes with Sheaf. Making one needs root; nothing of the machine's own network is
/// touched. `sheaf lab run` and `sheaf lab ceiling` make and remove their networks themselves; one that is made here
/// stays, for experiments by hand.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab net show                           what comes with Sheaf
  sheaf lab net show pi-cluster                nodes, addresses, rates
  sheaf lab net up pi-cluster
  ip netns exec sheaf-net-pi-cluster.pi2 ping 10.100.0.8
  sheaf lab net down pi-cluster
  sheaf lab net down --stale                   what was left by those who were killed")]
pub(super) struct NetArgs {
    #[command(subcommand)]
    order: Order,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Order {
    /// Make a network that stays.
    Up {
        /// Use this topology: a file, or the name of one that comes with Sheaf.
        topology: String,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// Remove a network.
    Down {
        /// Remove this network.
        #[arg(required_unless_present = "stale")]
        topology: Option<String>,
        /// Remove networks that killed experiments left behind.
        #[arg(long)]
        stale: bool,
        #[command(flatten)]
        flag: JsonFlag,
    },
    /// Show a topology, or the names of all that come with Sheaf.
    Show {
        /// Use this topology: a file, or the name of one that comes with Sheaf.
        topology: Option<String>,
        #[command(flatten)]
        flag: JsonFlag,
    },
}

/// Measure the TCP throughput of the links of a topology.
///
/// Traffic comes from a generator of its own, and from iperf3 if it is installed. Needs root. One connection a link;
/// after a warm-up of 0.5 s, windows of equal length.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab ceiling pi-cluster
  sheaf lab ceiling pi-cluster --all --window 1s --json ceiling.json --svg ceiling.svg")]
pub(super) struct CeilingArgs {
    /// Use this topology: a file, or the name of one that comes with Sheaf.
    topology: String,
    /// Measure this many windows of each link.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    samples: u32,
    /// Measure windows of this length.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = duration::parse)]
    window: Duration,
    /// Measure every cable both ways, and not only one link of each kind.
    #[arg(long)]
    all: bool,
    /// Leave iperf3 out.
    #[arg(long)]
    no_iperf3: bool,
    /// Write the result as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a histogram to this file as SVG.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn find(name: &str) -> anyhow::Result<Topology> {
    Topology::find(name).map_err(|error| fail::bad_use(error.to_string()))
}

/// Does what is asked for.
pub(super) fn run_net(args: &NetArgs) -> anyhow::Result<ExitCode> {
    match &args.order {
        Order::Up { topology, flag } => {
            let topology = find(topology)?;
            let _net = Net::up(&topology).map_err(refuse)?;
            json_file::print_either(flag.json, &topology, &net::show(&topology))?;
        }
        Order::Down {
            topology,
            stale,
            flag,
        } => {
            let mut removed = Vec::new();
            if *stale {
                net::needs().map_err(refuse)?;
                removed.extend(net::remove_stale().map_err(refuse)?);
            }
            if let Some(name) = topology {
                let name = Topology::find(name).map_or_else(|_| name.clone(), |known| known.name);
                if !net::down(&name).map_err(refuse)? {
                    return Err(fail::bad_use(format!("network {name:?} is not up")));
                }
                removed.push(name);
            }
            let lines = removed.iter().map(|name| format!("removed {name}\n"));
            let text: String = lines.collect();
            json_file::print_either(flag.json, &json!({ "removed": removed }), &text)?;
        }
        Order::Show {
            topology: None,
            flag,
        } => {
            let names = Topology::built_in();
            let known: Vec<Topology> = names.map(find).collect::<Result<_, _>>()?;
            let lines = known
                .iter()
                .map(|known| format!("{:<18} {}\n", known.name, known.about));
            let text: String = lines.collect();
            json_file::print_either(flag.json, &known, &text)?;
        }
        Order::Show {
            topology: Some(name),
            flag,
        } => {
            let topology = find(name)?;
            json_file::print_either(flag.json, &topology, &net::show(&topology))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures.
pub(super) fn run_ceiling(args: &CeilingArgs) -> anyhow::Result<ExitCode> {
    let topology = find(&args.topology)?;
    let options = Options {
        samples: args.samples,
        window: args.window,
        all: args.all,
        iperf3: !args.no_iperf3,
    };
    let tell = |row: &Row| {
        progress::line(format_args!(
            "{} -> {} ({}): {:.2} Mbit/s",
            row.from, row.to, row.generator, row.mean_mbit_s
        ));
    };
    let ceiling = ceiling::run(&topology, &options, tell).map_err(refuse)?;
    if let Some(path) = &args.svg {
        output::write(path, &ceiling.svg()?)?;
    }
    super::finish(&ceiling.text(), &ceiling, args.json.as_deref(), true)
}
