//! The binary `sheaf`: a farm on one machine, its roles, and what looks at data and configuration.

mod bench;
mod cert;
mod config;
mod consume;
mod convert;
mod cpu_list;
mod demo;
mod fail;
mod gateway;
mod inspect;
mod lab;
mod logging;
mod order;
mod role;
mod sim;
mod verify;

use clap::Parser;
use logging::Usual;
use std::process::ExitCode;

/// Load-balanced data distribution for streaming data acquisition.
///
/// Many readout nodes (FLPs) each hold a piece of every timeframe; one of many processing nodes (EPNs) must get
/// all pieces of it. The ICN decides which, the bytes go straight, and every timeframe has exactly one fate.
#[derive(Debug, Parser)]
#[command(
    name = "sheaf",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "\
Examples:
  sheaf demo                                   a whole farm on this machine, live
  sheaf demo --kill epn:2@3s --duration 6s     an EPN dies, and nothing is lost
  sheaf verify run1                            re-check a run from the logs of its nodes
  sheaf config check farm.toml                 what is wrong with a farm file
  sheaf icn --config farm.toml                 one node of a real farm
  sheaf drain epn:3 --config farm.toml         send an EPN home; nothing is lost
  sheaf consume /run/sheaf/epn-0               look at timeframes in the memory of an EPN
  sheaf inspect run.raw                        what is in a file of raw data
  sheaf convert --to stf run.raw run.tf        raw data as a TF file of DataDistribution")]
struct Cli {
    #[command(flatten)]
    logging: logging::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Demo(Box<demo::Args>),
    Icn(role::IcnArgs),
    Flp(role::FlpArgs),
    Epn(role::EpnCommand),
    Drain(order::DrainArgs),
    Stop(order::StopArgs),
    Config(config::Args),
    Cert(cert::Args),
    Inspect(inspect::Args),
    Convert(convert::Args),
    Verify(verify::Args),
    Consume(consume::Args),
    Gateway(gateway::Args),
    Bench(bench::Args),
    Sim(sim::Args),
    Lab(lab::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_role = match &cli.command {
        Command::Icn(_) | Command::Flp(_) | Command::Gateway(_) => true,
        Command::Epn(command) => command.is_role(),
        _ => false,
    };
    cli.logging.begin(match cli.command {
        // What simulated nodes say of themselves is what they are meant to suffer.
        Command::Sim(_) => Usual::Nothing,
        _ if is_role => Usual::Info,
        _ => Usual::Warn,
    });
    let outcome = match &cli.command {
        Command::Demo(args) => demo::run(args),
        Command::Icn(args) => role::run_icn(args),
        Command::Flp(args) => role::run_flp(args),
        Command::Epn(command) => command.run(),
        Command::Drain(args) => order::drain(args),
        Command::Stop(args) => order::stop(args),
        Command::Config(args) => config::run(args),
        Command::Cert(args) => cert::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Consume(args) => consume::run(args),
        Command::Gateway(args) => gateway::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Lab(args) => lab::run(args),
    };
    outcome.unwrap_or_else(|error| fail::report(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
