//! `sheaf run icn`, `sheaf run flp`, `sheaf run epn`, `sheaf run writer`: one node as one process.
//!
//! The standard output carries JSON lines for the process that started it (see `docs/reference/status.md`), the
//! standard error its log.

use super::cpu_list;
use crate::address;
use crate::fail;
use crate::logging;
use crate::program;
use anyhow::Context as _;
use rustix::time::ClockId;
use sheaf_farm::proc;
use sheaf_node::config::{FarmConfig, LedgerBackend};
use sheaf_node::cpus::CpuList;
use sheaf_node::output::{Exit, Line};
use sheaf_node::role::{self, Backend, IcnEnd, Reader, RoleError, RoleOptions};
use sheaf_node::shutdown::Shutdown;
use sheaf_node::status::FarmStatus;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Environment variable with the lowest incarnation that a process may take: set when it replaces itself.
const INCARNATION_MIN: &str = "SHEAF_INCARNATION_MIN";

/// Options of all roles.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// Read this farm file, which is the same for all nodes.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Serve metrics at this address, in place of that of the farm file.
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    metrics: Option<String>,
    /// Send metrics to this back end, in place of those of the farm file; once for each back end.
    #[arg(long, value_name = "URI")]
    metrics_to: Vec<Backend>,
    /// Append events of this node to this file, one JSON object a line (docs/reference/events.md).
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Append log lines to this file in place of the standard error, without colours; SIGHUP opens it again.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Pin all threads to these CPUs, such as 2 or 0-3,8; without it, the kernel schedules them.
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuList>,
    /// Pin each thread of data to one of these CPUs, in turn; with `node.threads` of 2 and more.
    #[arg(long, value_name = "LIST")]
    data_cpus: Option<CpuList>,
    /// Speak at most this minor version of the protocol, as a build of that version does: for tests of upgrades.
    #[arg(long, value_name = "N", hide_short_help = true)]
    protocol_minor: Option<u8>,
    /// End when the parent process, which has this id, ends.
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

impl NodeArgs {
    /// Returns whether the log goes to a file.
    pub(super) fn logs_to_file(&self) -> bool {
        self.log_file.is_some()
    }
}

/// Run an ICN: assign timeframes to EPNs, and keep the accounting.
///
/// Prints its address, and the status of the farm with --status-ms, as JSON lines. SIGTERM or SIGINT to a lone ICN: the
/// sources stop, the farm drains, all nodes end; with --keep-run, SIGTERM ends this process only. One of several ends
/// alone, and another takes over. A second signal ends the process at once.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf run icn --config farm.toml
  sheaf run icn --config farm.toml --keep-run      SIGTERM keeps the run; `sheaf ctl stop` ends it
  sheaf run icn --config farm.toml --status-ms 1000 --metrics 127.0.0.1:9100")]
pub(crate) struct IcnArgs {
    #[command(flatten)]
    pub(super) node: NodeArgs,
    /// Run the ICN with this index, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    index: u16,
    /// Listen at this address, in place of `icn.address` and `icn.addresses` of the farm file.
    #[arg(long, value_name = "ADDR", value_parser = address::parse_node)]
    listen: Option<String>,
    /// Print the status of the farm at this interval, in ms (docs/reference/status.md).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    status_ms: Option<u64>,
    /// Keep the run when SIGTERM ends this process: the next one goes on with it. Needs a verdict log on disk.
    #[arg(long)]
    keep_run: bool,
}

/// Run one FLP: make an STF of every timeframe, and send it to the assigned EPN.
///
/// SIGTERM or SIGINT: the FLP makes no more STFs, and ends when each has a verdict. A second signal ends it at once.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf run flp --config farm.toml --index 2
  sheaf run flp --config farm.toml --index 0 --icn 10.0.0.1:7000")]
pub(crate) struct FlpArgs {
    #[command(flatten)]
    pub(super) node: NodeArgs,
    /// Run the FLP with this index, from 0.
    #[arg(long, value_name = "N")]
    index: u16,
    /// Connect to these ICNs, in place of `icn.address` and `icn.addresses` of the farm file.
    #[arg(long, value_name = "ADDR", value_parser = address::parse_node, num_args = 1..)]
    icn: Vec<String>,
}

/// Run one EPN: build timeframes and deliver them to the consumer.
///
/// Prints its address as a JSON line. SIGTERM or SIGINT: the EPN takes nothing new, and ends when its timeframes are
/// done. A second signal ends it at once.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf run epn --config farm.toml --index 4
  sheaf run epn --config farm.toml --index 0 --listen 10.0.0.7:7100")]
pub(crate) struct EpnArgs {
    #[command(flatten)]
    pub(super) node: NodeArgs,
    /// Run the EPN with this index, from 0.
    #[arg(long, value_name = "N")]
    index: u16,
    /// Connect to these ICNs, in place of `icn.address` and `icn.addresses` of the farm file.
    #[arg(long, value_name = "ADDR", value_parser = address::parse_node, num_args = 1..)]
    icn: Vec<String>,
    /// Listen for STFs at this address, in place of `epn.listen` of the farm file.
    #[arg(long, value_name = "ADDR", value_parser = address::parse_node)]
    listen: Option<String>,
}

/// Run one writer node: write timeframes of EPNs to files of streams.
///
/// Prints its address as a JSON line. SIGTERM or SIGINT: the writer takes nothing new, and ends when what it has is
/// written and acknowledged; EPNs go on with the other writers. A second signal ends it at once.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf run writer --config farm.toml --index 0
  sheaf run writer --config farm.toml --index 1 --metrics 127.0.0.1:9104")]
pub(crate) struct WriterArgs {
    #[command(flatten)]
    pub(super) node: NodeArgs,
    /// Run the writer with this index, from 0.
    #[arg(long, value_name = "N", default_value_t = 0)]
    index: u16,
    /// Listen at this address, in place of that of `writer.addresses` in the farm file.
    #[arg(long, value_name = "ADDR", value_parser = address::parse_node)]
    listen: Option<String>,
}

/// Puts what the command line says into a farm file.
type Adapt = Box<dyn Fn(&mut FarmConfig)>;

fn as_it_is() -> Adapt {
    Box::new(|_| {})
}

/// Connects to `icns` in place of those of the farm file, if there are any.
fn connect_to(icns: &[String]) -> Adapt {
    let icns = icns.to_vec();
    Box::new(move |config| {
        if !icns.is_empty() {
            config.icn.addresses.clone_from(&icns);
        }
    })
}

/// Runs the ICN.
pub(crate) fn run_icn(args: &IcnArgs) -> anyhow::Result<ExitCode> {
    let config = load(&args.node, Role::Icn, &as_it_is())?;
    let node = NodeId {
        role: Role::Icn,
        index: args.index,
    };
    // One that is given its address need not be in the farm file: others find it in a registry.
    if args.listen.is_none() {
        let icns = u32::try_from(config.icn.all_addresses().len()).unwrap_or(u32::MAX);
        check_index(node, icns, "icn.addresses")?;
    }
    if args.keep_run && config.icn.ledger.backend == LedgerBackend::Memory {
        return Err(fail::bad_use(
            "--keep-run: found icn.ledger.backend = \"memory\", which ends with the process; expected `file`",
        ));
    }
    let mut options = options(&args.node, node);
    options.keep_run = args.keep_run;
    options.reader = Some(reader(&args.node, Role::Icn, as_it_is()));
    options.listen.clone_from(&args.listen);
    if let Some(ms) = args.status_ms {
        let tell = |status: &FarmStatus| print(&Line::Status(Box::new(status.clone())));
        options.on_status = Some((Duration::from_millis(ms), Box::new(tell)));
    }
    drive(&args.node, node, false, |shutdown| {
        role::run_icn(&config, args.index, options, shutdown)
    })
}

/// Runs one FLP.
pub(crate) fn run_flp(args: &FlpArgs) -> anyhow::Result<ExitCode> {
    let config = load(&args.node, Role::Flp, &connect_to(&args.icn))?;
    let flp = FlpId(args.index);
    check_index(flp.into(), config.run.flps, "run.flps")?;
    let mut options = options(&args.node, flp.into());
    options.reader = Some(reader(&args.node, Role::Flp, connect_to(&args.icn)));
    // What was read from the standard input would be lost.
    let may_start_again = config.flp.source.kind() != "stdin";
    drive(&args.node, flp.into(), may_start_again, |shutdown| {
        role::run_flp(&config, flp, options, shutdown).map(|()| IcnEnd::Over)
    })
}

/// Runs one EPN.
pub(crate) fn run_epn(args: &EpnArgs) -> anyhow::Result<ExitCode> {
    let adapt = || -> Adapt {
        let (connect, listen) = (connect_to(&args.icn), args.listen.clone());
        Box::new(move |config| {
            connect(config);
            if let Some(listen) = &listen {
                config.epn.listen.clone_from(listen);
            }
        })
    };
    let config = load(&args.node, Role::Epn, &adapt())?;
    let epn = EpnId(args.index);
    let mut options = options(&args.node, epn.into());
    options.reader = Some(reader(&args.node, Role::Epn, adapt()));
    drive(&args.node, epn.into(), true, |shutdown| {
        role::run_epn(&config, epn, options, shutdown).map(|()| IcnEnd::Over)
    })
}

/// Runs one writer node.
pub(crate) fn run_writer(args: &WriterArgs) -> anyhow::Result<ExitCode> {
    let config = load(&args.node, Role::Writer, &as_it_is())?;
    let node = NodeId {
        role: Role::Writer,
        index: args.index,
    };
    // One that is given its address need not be in the farm file.
    if args.listen.is_none() {
        let writers = u32::try_from(config.writer.addresses.len()).unwrap_or(u32::MAX);
        if writers == 0 {
            return Err(fail::bad_use(
                "found no writer.addresses in the farm file, expected one a writer",
            ));
        }
        check_index(node, writers, "writer.addresses")?;
    }
    let mut options = options(&args.node, node);
    options.reader = Some(reader(&args.node, Role::Writer, as_it_is()));
    options.listen.clone_from(&args.listen);
    drive(&args.node, node, true, |shutdown| {
        role::run_writer(&config, args.index, options, shutdown).map(|()| IcnEnd::Over)
    })
}

/// Reads the farm file, with what the command line overrides in it. From here on the log is as both say.
fn load(args: &NodeArgs, role: Role, adapt: &Adapt) -> anyhow::Result<FarmConfig> {
    if let Some(file) = &args.log_file {
        logging::write_to(file)
            .map_err(|error| fail::bad_use(format!("--log-file {}: {error}", file.display())))?;
    }
    let mut config = FarmConfig::load_for(&args.config, &[role])?;
    adapt(&mut config);
    logging::set_level(&config.log.level);
    sheaf_node::log_tail::keep();
    args.protocol_minor
        .into_iter()
        .for_each(sheaf_node::minor::limit);
    Ok(config)
}

/// Returns the way to the same configuration for SIGHUP. An invalid file is refused with all its errors.
fn reader(args: &NodeArgs, role: Role, adapt: Adapt) -> Reader {
    let args = args.clone();
    let mut level = None;
    Box::new(move || {
        if let Err(error) = logging::reopen() {
            tracing::error!(%error, "The log file cannot be opened again; the log goes on in the file that it has");
        }
        match FarmConfig::load_for(&args.config, &[role]) {
            Ok(mut config) => {
                adapt(&mut config);
                if let Some(why) = logging::set_level(&config.log.level)
                    && level
                        .as_ref()
                        .is_some_and(|before| *before != config.log.level)
                {
                    tracing::warn!("log.level has no effect: {why}");
                }
                level = Some(config.log.level.clone());
                Some(config)
            }
            Err(error) => {
                tracing::error!(%error, "The farm file is refused; the configuration before stays in force");
                None
            }
        }
    })
}

/// The data are dealt out over `count` FLPs: one more would repeat those of another. More EPNs than a run needs
/// to begin are welcome.
fn check_index(node: NodeId, count: u32, key: &str) -> anyhow::Result<()> {
    if u32::from(node.index) < count {
        return Ok(());
    }
    let (index, last) = (node.index, count - 1);
    Err(fail::bad_use(format!(
        "--index {index}: the farm file has {count} ({key}), expected 0 to {last}"
    )))
}

fn options(args: &NodeArgs, node: NodeId) -> RoleOptions {
    let tell = move |address: &str| {
        print(&Line::Listening {
            listening: address.to_owned(),
            node: node.to_string(),
        });
    };
    RoleOptions {
        metrics: args.metrics.clone(),
        metrics_to: args.metrics_to.clone(),
        listen: None,
        events: args.events.clone(),
        on_listening: Some(Box::new(tell)),
        on_status: None,
        data_cpus: args
            .data_cpus
            .as_ref()
            .map(CpuList::all)
            .unwrap_or_default(),
        build: program::BUILD,
        incarnation_min: std::env::var(INCARNATION_MIN)
            .ok()
            .and_then(|least| least.parse().ok())
            .unwrap_or_default(),
        reader: None,
        keep_run: false,
        program: None,
    }
}

fn drive(
    args: &NodeArgs,
    node: NodeId,
    may_start_again: bool,
    run: impl FnOnce(&Shutdown) -> Result<IcnEnd, RoleError>,
) -> anyhow::Result<ExitCode> {
    if let Some(parent) = args.parent {
        crate::parent::end_with(parent)?;
    }
    // Before there are threads, and before memory is touched: it then lies near these CPUs.
    if let Some(cpus) = &args.data_cpus {
        cpu_list::allowed(cpus, "--data-cpus")?;
    }
    if let Some(cpus) = &args.cpus {
        cpu_list::stay(cpus)?;
    }
    let shutdown = Shutdown::on_signals_of_node().context("cannot handle signals")?;
    let outcome = run(&shutdown);
    if let Err(error) = &outcome
        && let Some(least) = error.incarnation_min()
        && may_start_again
    {
        tracing::warn!(
            %error,
            least,
            "The clock was set back since an earlier life of this node: starting again with a later incarnation"
        );
        return Err(start_again(least));
    }
    if matches!(outcome, Ok(IcnEnd::Restart)) {
        return Err(start_again(0));
    }
    let outcome = outcome.with_context(|| format!("{node} failed"));
    let reason = match &outcome {
        Err(_) => "failed",
        Ok(_) if shutdown.is_requested() => "shutdown",
        Ok(_) => "dismissed",
    };
    let cpu = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    let used = proc::usage(std::process::id()).unwrap_or_default();
    print(&Line::Exit {
        exit: Exit {
            node: node.to_string(),
            cpu_s: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            rss_bytes_max: used.rss_bytes_max,
            reason: reason.to_owned(),
            error: outcome.as_ref().err().map(fail::message),
        },
    });
    outcome.map(|_| ExitCode::SUCCESS)
}

/// Replaces this process by the same program, whose incarnation is `least` or higher. Returns why that cannot be done.
///
/// The incarnation is part of everything that a node makes, from its event log to its streams.
fn start_again(least: u64) -> anyhow::Error {
    let program = std::env::current_exe();
    let error = program.map_or_else(
        |error| error,
        |program| {
            let mut command = std::process::Command::new(without_mark(program));
            command.args(std::env::args_os().skip(1));
            command.env(INCARNATION_MIN, least.to_string()).exec()
        },
    );
    anyhow::Error::new(error).context("cannot start the program again")
}

/// Returns the path of the program without the mark that the kernel adds when another file has taken its place, as an
/// update does.
fn without_mark(program: PathBuf) -> PathBuf {
    let found = program
        .to_str()
        .and_then(|path| path.strip_suffix(" (deleted)"));
    found.map(PathBuf::from).unwrap_or(program)
}

/// Prints one line for the parent process. A closed output does not stop the node.
fn print(line: &Line) {
    let mut text = serde_json::to_string(line).expect("names and numbers always have a JSON form");
    text.push('\n');
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        tracing::debug!(%error, "The standard output has no reader");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_updated_program_is_found_at_its_path() {
        for found in ["/usr/bin/sheaf", "/usr/bin/sheaf (deleted)"] {
            assert_eq!(without_mark(found.into()), PathBuf::from("/usr/bin/sheaf"));
        }
    }

    #[test]
    fn an_index_beyond_the_farm_is_refused() {
        assert!(check_index(FlpId(2).into(), 3, "run.flps").is_ok());
        let error = check_index(FlpId(3).into(), 3, "run.flps").unwrap_err();
        let expected = "--index 3: the farm file has 3 (run.flps), expected 0 to 2";
        assert_eq!(error.to_string(), expected);
    }
}
