//! `sheaf monitor`: a collector of samples as one process.

use crate::fail;
use anyhow::Context as _;
use serde_json::json;
use sheaf_alarms::OrderKind;
use sheaf_metrics::Registry;
use sheaf_monitor::{AlarmsHandle, FarmOrders, Monitor, MonitorConfig, MonitorError, Stop};
use sheaf_node::config::FarmConfig;
use sheaf_node::operator::Operator;
use sheaf_node::shutdown::Shutdown;
use sheaf_protocol::EpnId;
use sheaf_protocol::control::Order;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::error;

/// Run a collector: receive samples, process, store, query and show them.
///
/// Prints the addresses as a JSON line when it listens. SIGTERM or SIGINT: the collector takes what is in its sockets,
/// commits it and ends; a second signal ends it at once. SIGHUP: rules and routes of alarms are read again.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf monitor                                     on this machine, with all defaults
  sheaf monitor --config farm.toml                  as the table [monitor] of a farm file says
  sheaf monitor --data /var/lib/sheaf/monitor --udp 127.0.0.1:8089 --http 127.0.0.1:9470
  echo 'load,host=pi1 value=0.7' > /dev/udp/127.0.0.1/8089; sheaf query load")]
pub(crate) struct Args {
    /// Read the table `[monitor]` of this farm file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve pages, queries and writes at this address.
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Receive line protocol over UDP at these addresses.
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    udp: Vec<String>,
    /// Receive line protocol over TCP at these addresses.
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    tcp: Vec<String>,
    /// Receive line protocol as datagrams at these Unix sockets.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    unix: Vec<PathBuf>,
    /// Keep samples in this folder; "" keeps them in memory.
    #[arg(long, value_name = "DIR", value_parser = folder)]
    data: Option<PathBuf>,
    /// Receive datagrams with so many threads.
    #[arg(long, value_name = "N")]
    receivers: Option<u32>,
    /// End when the parent process, which has this id, ends.
    #[arg(long, value_name = "PID", hide = true)]
    parent: Option<i32>,
}

/// Returns a folder as it was given: an empty one means memory, which the parser of paths refuses.
fn folder(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

/// Runs the collector until a signal ends it.
///
/// # Errors
///
/// The reason why it could not begin.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(parent) = args.parent {
        crate::parent::end_with(parent)?;
    }
    let config = configuration(args)?;
    let stop = Stop::default();
    let shutdown = Shutdown::on_signals_of_node().context("cannot handle signals")?;
    let running: Arc<OnceLock<AlarmsHandle>> = Arc::default();
    let (asked, alarms) = (stop.clone(), running.clone());
    let (signals, again) = (shutdown.clone(), args.clone());
    shutdown.set_waker(move || {
        if signals.is_requested() {
            asked.set();
        } else if signals.take_hang_up()
            && let Some(alarms) = alarms.get()
        {
            reload(alarms, &again);
        }
    });
    let farm = farm(args)?;
    let registry = Arc::new(Registry::default());
    let ended = sheaf_monitor::run_with(&config, registry, farm, &stop, |monitor| {
        // The first collector of this process, and the only one.
        let _ = running.set(monitor.alarms());
        announce(monitor);
    });
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ (MonitorError::Config(_) | MonitorError::Processing(_))) => {
            Err(fail::bad_use(error))
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads rules and routes of alarms again. With a mistake in them those of before stay in force.
fn reload(alarms: &AlarmsHandle, args: &Args) {
    let problems = match configuration(args) {
        Ok(config) => match alarms.reload(&config.alarms) {
            Ok(()) => return,
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        },
        Err(error) => vec![error.to_string()],
    };
    for problem in problems {
        error!(problem, "Rules of alarms stay as they were");
    }
}

/// Way of alarms to the farm of the farm file; none without one.
fn farm(args: &Args) -> anyhow::Result<Option<Box<dyn FarmOrders>>> {
    let Some(path) = &args.config else {
        return Ok(None);
    };
    let farm = FarmConfig::load(path).map_err(fail::bad_use)?;
    Ok(Some(Box::new(Farm(farm))))
}

/// The farm of a farm file, ordered by the messages of `sheaf ctl`.
struct Farm(FarmConfig);

/// How long an order of an alarm is tried.
const ORDER_WITHIN: Duration = Duration::from_secs(10);

impl FarmOrders for Farm {
    fn give(&mut self, order: &sheaf_alarms::Order) -> Result<String, String> {
        let order = match order.kind {
            OrderKind::Drain { epn } => Order::Drain { epn: epn_id(epn)? },
            OrderKind::SetWeight { epn, weight_milli } => Order::Set {
                epn: epn_id(epn)?,
                weight_milli: Some(weight_milli),
                enabled: None,
            },
            OrderKind::Stop => Order::Stop,
        };
        // A connection for each: orders are rare, and the leader may be another one.
        let operator = Operator::new(&self.0, 0);
        let answer = operator.and_then(|mut operator| operator.order(order, ORDER_WITHIN));
        match answer {
            Ok(answer) if answer.done => Ok(format!("{}: {}", answer.icn, answer.detail)),
            Ok(answer) => Err(format!("{}: {}", answer.icn, answer.detail)),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn epn_id(epn: u32) -> Result<EpnId, String> {
    let index = u16::try_from(epn).map_err(|_| format!("epn {epn}, expected 0 to 65535"))?;
    Ok(EpnId(index))
}

fn configuration(args: &Args) -> anyhow::Result<MonitorConfig> {
    let mut config = match &args.config {
        None => MonitorConfig::default(),
        Some(path) => {
            let farm = FarmConfig::load(path).map_err(fail::bad_use)?;
            let found = of_farm(&farm, path);
            found
                .map_err(|error| fail::bad_use(format!("{}: [monitor]: {error}", path.display())))?
        }
    };
    if let Some(http) = &args.http {
        config.http.clone_from(http);
    }
    if let Some(data) = &args.data {
        config.data.clone_from(data);
    }
    config.receivers = args.receivers.unwrap_or(config.receivers);
    for (given, key) in [(&args.udp, &mut config.udp), (&args.tcp, &mut config.tcp)] {
        if !given.is_empty() {
            key.clone_from(given);
        }
    }
    if !args.unix.is_empty() {
        config.unix.clone_from(&args.unix);
    }
    Ok(config)
}

/// Returns the `[monitor]` table of the farm file at `path`; the defaults if there is none.
///
/// Files of alarms are relative to the folder of the farm file.
///
/// # Errors
///
/// The key that is wrong, with what was found and expected.
pub(crate) fn of_farm(farm: &FarmConfig, path: &Path) -> Result<MonitorConfig, String> {
    let mut config: MonitorConfig = match &farm.monitor {
        None => MonitorConfig::default(),
        Some(table) => table
            .clone()
            .try_into()
            .map_err(|error: toml::de::Error| error.message().to_owned())?,
    };
    config
        .alarms
        .resolve(path.parent().unwrap_or(Path::new("")));
    Ok(config)
}

/// Prints where the collector listens.
fn announce(monitor: &Monitor) {
    let line = json!({
        "listening": format!("http://{}/", monitor.http()),
        "http": monitor.http(),
        "udp": monitor.udp(),
        "tcp": monitor.tcp(),
    });
    // A reader that is gone does not end the collector.
    let _ = writeln!(std::io::stdout(), "{line}");
    let _ = std::io::stdout().flush();
}
