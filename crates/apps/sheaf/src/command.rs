//! All commands of the program: one row a command, from which help, completions and the reference are derived.

use crate::logging::{self, Usual};
use crate::{
    agent, cert, completions, config, ctl, data, demo, doctor, files, init, logs, manual, new,
    reference, run, serve, ship, status, top,
};
#[cfg(feature = "monitor")]
use crate::{alarms, monitor, query, samples};
#[cfg(feature = "lab")]
use crate::{bench, lab, sim};
use clap::CommandFactory as _;
use std::process::ExitCode;

/// Load-balanced data distribution for streaming data acquisition.
///
/// Many readout nodes (FLPs) each hold a piece of every timeframe; one of many processing nodes (EPNs) must get
/// all pieces of it. The ICN decides which, the bytes go straight, and every timeframe has exactly one fate.
#[derive(Debug, clap::Parser)]
#[command(
    name = "sheaf",
    version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SHEAF_COMMIT"), ")"),
    long_version = crate::program::long_version(),
    propagate_version = true,
    arg_required_else_help = true
)]
#[command(after_help = "\
Examples:
  sheaf demo                                   a whole farm on this machine, live
  sheaf demo --kill epn:2@3s --duration 6s     an EPN dies, and nothing is lost
  sheaf init north                             the files of a new farm, and how to start it
  sheaf new policy nearest                     a policy of your own, with its tests
  sheaf run icn --config farm.toml             one node of a real farm
  sheaf status --config farm.toml              how a running farm is
  sheaf top --config farm.toml                 the same, live on the terminal
  sheaf logs --config farm.toml                the logs of all its nodes in one
  sheaf ctl drain epn:3 --config farm.toml     take an EPN out of service without loss
  sheaf config check farm.toml                 what is wrong with a farm file
  sheaf doctor --config farm.toml              what is wrong with a machine, and the way to the others
  sheaf monitor --config farm.toml             collect, store and show what all nodes report
  sheaf query 'rate(balance_tf_complete_total[10s])'
  sheaf agent --config farm.toml               send how this machine is
  sheaf data inspect run.raw                   what is in a file of raw data
  sheaf data convert --to stf run.raw run.tf   raw data as a TF file of DataDistribution
  sheaf data consume /run/sheaf/epn-0          read timeframes in the memory of an EPN
  sheaf data verify run1                       check a run again from the logs of its nodes
  sheaf files list /data                       files of streams, their sizes and checksums
  sheaf ship /data --to /mnt/store             those files to permanent storage
  sheaf serve run --config gateway.toml        one address for many storage servers")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logging: logging::Args,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Groups of commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Demo(Box<demo::Args>),
    Init(init::Args),
    New(new::Args),
    Run(run::Args),
    Status(status::Args),
    Top(top::Args),
    Logs(logs::Args),
    Ctl(ctl::Args),
    #[cfg(feature = "monitor")]
    Monitor(monitor::Args),
    #[cfg(feature = "monitor")]
    Query(query::Args),
    #[cfg(feature = "monitor")]
    Alarms(alarms::Args),
    #[cfg(feature = "monitor")]
    Samples(samples::Args),
    Agent(agent::Args),
    Data(data::Args),
    Files(files::Args),
    Ship(ship::Args),
    Serve(serve::Args),
    Doctor(doctor::Args),
    Config(config::Args),
    Cert(cert::Args),
    #[cfg(feature = "lab")]
    Sim(sim::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    #[cfg(feature = "lab")]
    Bench(bench::Args),
    Completions(completions::Args),
    Manual(manual::Args),
    #[command(hide = true)]
    Reference(reference::Args),
}

impl Command {
    /// Returns how much is logged without a flag.
    pub(crate) fn usual(&self) -> Usual {
        match self {
            // Simulated nodes report the faults that are injected into them.
            #[cfg(feature = "lab")]
            Self::Sim(_) => Usual::Nothing,
            Self::Run(_) => Usual::Info,
            #[cfg(feature = "monitor")]
            Self::Monitor(_) => Usual::Info,
            Self::Agent(args) => args.usual(),
            Self::Ship(args) => args.usual(),
            Self::Files(args) => args.usual(),
            Self::Serve(args) => args.usual(),
            _ => Usual::Warn,
        }
    }

    /// Returns whether its log goes to a file.
    pub(crate) fn logs_to_file(&self) -> bool {
        matches!(self, Self::Run(args) if args.logs_to_file())
    }

    /// Runs the command.
    ///
    /// # Errors
    ///
    /// The reason why the command failed or could not begin.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Demo(args) => demo::run(args),
            Self::Init(args) => init::run(args),
            Self::New(args) => new::run(args),
            Self::Run(args) => run::run(args),
            Self::Status(args) => status::run(args),
            Self::Top(args) => top::run(args),
            Self::Logs(args) => logs::run(args),
            Self::Ctl(args) => ctl::run(args),
            #[cfg(feature = "monitor")]
            Self::Monitor(args) => monitor::run(args),
            #[cfg(feature = "monitor")]
            Self::Query(args) => query::run(args),
            #[cfg(feature = "monitor")]
            Self::Alarms(args) => alarms::run(args),
            #[cfg(feature = "monitor")]
            Self::Samples(args) => samples::run(args),
            Self::Agent(args) => agent::run(args),
            Self::Data(args) => data::run(args),
            Self::Files(args) => files::run(args),
            Self::Ship(args) => ship::run(args),
            Self::Serve(args) => serve::run(args),
            Self::Doctor(args) => doctor::run(args),
            Self::Config(args) => config::run(args),
            Self::Cert(args) => cert::run(args),
            #[cfg(feature = "lab")]
            Self::Sim(args) => sim::run(args),
            #[cfg(feature = "lab")]
            Self::Lab(args) => lab::run(args),
            #[cfg(feature = "lab")]
            Self::Bench(args) => bench::run(args),
            Self::Completions(args) => completions::run(args, Cli::command()),
            Self::Manual(args) => manual::run(args, Cli::command()),
            Self::Reference(args) => reference::run(args, Cli::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    /// Commands without `--json`: their output is JSON already, a screen, or a text for a shell or a file.
    const WITHOUT_JSON: [&str; 13] = [
        "run icn",
        "run flp",
        "run epn",
        "run writer",
        "run bridge o2",
        "top",
        "monitor",
        "serve run",
        "serve agent",
        "serve keepalived",
        "completions",
        "manual",
        "reference",
    ];

    /// Calls `check` with each command that has no commands in it, and its name.
    fn each_leaf(
        command: &clap::Command,
        name: &str,
        check: &mut impl FnMut(&str, &clap::Command),
    ) {
        let within = command
            .get_subcommands()
            .filter(|command| command.get_name() != "help");
        let within: Vec<_> = within.collect();
        if within.is_empty() {
            check(name, command);
        }
        for command in within.into_iter().filter(|command| is_for_people(command)) {
            let name = format!("{name} {}", command.get_name());
            each_leaf(command, name.trim_start(), check);
        }
    }

    /// Whether people call it; other hidden commands are parts of those that start them.
    fn is_for_people(command: &clap::Command) -> bool {
        !command.is_hide_set() || command.get_name() == "reference"
    }

    #[test]
    fn every_command_has_the_options_of_output() {
        let mut program = Cli::command();
        program.build();
        let (mut lacking, mut without_json) = (Vec::new(), Vec::new());
        each_leaf(&program, "", &mut |name, command| {
            let has = |option| {
                let mut options = command.get_arguments();
                options.any(|argument| argument.get_long() == Some(option))
            };
            for option in ["quiet", "verbose", "color", "log-format"] {
                if !has(option) {
                    lacking.push(format!("{name} --{option}"));
                }
            }
            if !has("json") {
                without_json.push(name.to_owned());
            }
        });
        assert_eq!(lacking, Vec::<String>::new());
        assert_eq!(without_json, WITHOUT_JSON);
    }
}
