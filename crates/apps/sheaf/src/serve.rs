//! `sheaf serve`: one address for many storage servers.

mod backend;
mod client;
#[cfg(feature = "lab")]
mod demo;
mod doctor;
mod show;

use crate::json_file::{self, JsonFlag};
use crate::logging::Usual;
use crate::{duration, fail};
use anyhow::{Context as _, bail};
use client::Directors;
use sheaf_gateway::{Agent, AgentConfig, Director, GatewayConfig, GatewayError, Status};
use sheaf_node::shutdown::Shutdown;
use sheaf_serve::{Flow, Order, ServerConfig, ServiceStatus, Step};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tracing::info;

/// File of a director, as its unit of systemd has it.
const CONFIG: &str = "/etc/sheaf/gateway.toml";
/// Pause between two looks whether a server is drained.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Longest time of a question whether a director is ready: keepalived waits for two of them.
const READY_TIMEOUT: Duration = Duration::from_millis(800);

/// Serve files of many servers at one address: run a director, give it orders.
///
/// A director spreads connections to virtual addresses over servers, checks them, and takes servers out without
/// breaking a transfer. An agent on each server lists its connections and measures its load. Commands other than `run`,
/// `agent` and `backend` talk to directors by HTTP; given several directors, to all of them.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve demo                                 all of it on this machine, in half a minute
  sheaf serve run --config gateway.toml            a director, until SIGTERM
  sheaf serve agent --listen 10.80.0.11:7401       on each server
  sheaf serve status                               servers, slots, connections
  sheaf serve drain files/s1 --wait                no new connection; return when its last has ended
  sheaf serve add files/s1                         connections again
  sheaf serve explain files 10.80.1.1:51000        where a client goes, and why
  sheaf serve doctor gateway.toml                  what is set up wrong here
  sheaf serve keepalived gateway.toml              the configuration for a second director
  sheaf serve backend nginx                        what servers of a kind need")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    Run(RunArgs),
    Agent(AgentArgs),
    Status(StatusArgs),
    Drain(DrainArgs),
    Add(AddArgs),
    Weight(WeightArgs),
    Remove(RemoveArgs),
    Explain(ExplainArgs),
    Doctor(doctor::Args),
    Keepalived(KeepalivedArgs),
    Backend(backend::BackendArgs),
    #[cfg(feature = "lab")]
    Demo(demo::DemoArgs),
}

/// Run a director until SIGTERM or SIGINT.
///
/// Unless the file says otherwise, the kernel goes on with the table when the director ends, and the next director
/// takes it over with its connections. Exit status: 0 after a signal, 1 if the plane cannot be used, 2 if the command
/// line or the file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve run --config gateway.toml
  sheaf serve run --config gateway.toml --check    say what is wrong with the file, and end")]
struct RunArgs {
    /// Read services, servers and the director from this file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the file and end.
    #[arg(long)]
    check: bool,
}

/// Run the agent of a server: connections and load, for the directors.
///
/// Directors that cannot ask an agent keep connections in their place until the deadline of drains instead, and
/// weights do not follow the load. Exit status: 0 after SIGTERM or SIGINT, 1 if it cannot begin.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve agent --listen 10.80.0.11:7401
  sheaf serve agent --config gateway.toml          at the address that the file has for this machine
  curl 'http://10.80.0.11:7401/connections?port=80&address=10.80.0.100'")]
struct AgentArgs {
    /// Listen on this address, which directors reach and clients should not.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7401")]
    listen: SocketAddr,
    /// Listen on the address in this file instead that is `agent` of a server here.
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    config: Option<PathBuf>,
}

/// Directors to talk to.
#[derive(Clone, Debug, clap::Args)]
struct Reach {
    /// Talk to these directors; orders go to all of them.
    #[arg(long, value_name = "ADDR", num_args = 1.., default_value = "127.0.0.1:7400")]
    director: Vec<SocketAddr>,
    #[command(flatten)]
    flag: JsonFlag,
}

/// Show servers, slots and connections of the services.
///
/// Exit status: 0 if every director answered and agrees with the others on each table, 1 if not. With --ready it says
/// whether the director on this machine should have the virtual addresses: its kernel follows its tables, and unless
/// it has them already, it knows what its peers know.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve status
  sheaf serve status --ready --director 10.80.0.2:7400 --peer 10.80.0.3:7400
  sheaf serve status --director 10.80.0.2:7400 10.80.0.3:7400
  sheaf serve status --json | jq '.[].services[].servers[] | {name, slots, connections}'")]
struct StatusArgs {
    #[command(flatten)]
    reach: Reach,
    /// Exit with 0 if the director is ready for the virtual addresses, else with 1.
    #[arg(long)]
    ready: bool,
    /// Compare with these directors; one that does not answer counts as away.
    #[arg(long, value_name = "ADDR", num_args = 1.., requires = "ready")]
    peer: Vec<SocketAddr>,
}

/// Server of a service in an order.
#[derive(Clone, Debug, clap::Args)]
struct Target {
    /// Name service and server, such as files/s1.
    #[arg(value_name = "SERVICE/SERVER", value_parser = parse_target)]
    target: (String, String),
    /// Say what would move, and move nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    reach: Reach,
}

/// Take a server out: it gets no new connection, and those that it has go on.
///
/// Exit status: 0 if all directors took the order (with --wait: and the server is drained), 1 if not, 2 if the command
/// line is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve drain files/s1 --wait --timeout 1h
  sheaf serve drain files/s1 --dry-run")]
struct DrainArgs {
    #[command(flatten)]
    target: Target,
    /// Return when its last connection has ended.
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Wait at most so long.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "1h")]
    timeout: Duration,
}

/// Give a server connections, again or for the first time.
///
/// Without addresses the server is one that was drained.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve add files/s1
  sheaf serve add files/s7 --address 10.80.0.17 --agent 10.80.0.17:7401")]
struct AddArgs {
    #[command(flatten)]
    target: Target,
    /// Take a new server in, with these addresses.
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    address: Vec<IpAddr>,
    /// Set the port of a new server.
    #[arg(long, value_name = "PORT", requires = "address")]
    port: Option<u16>,
    /// Set the weight of a new server.
    #[arg(long, value_name = "W", default_value_t = 1.0)]
    weight: f64,
    /// Set the address of the agent of a new server.
    #[arg(long, value_name = "ADDR", requires = "address")]
    agent: Option<SocketAddr>,
}

/// Set the share of a server beside the others.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve weight files/s1 0.5                  half of what others get
  sheaf serve weight files/s1 2 --dry-run")]
struct WeightArgs {
    #[command(flatten)]
    target: Target,
    /// Set this weight; 1 is usual.
    #[arg(value_name = "W")]
    weight: f64,
}

/// Forget a server that is drained or gone.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve drain files/s1 --wait && sheaf serve remove files/s1")]
struct RemoveArgs {
    #[command(flatten)]
    target: Target,
}

/// Say where the connection of a client goes, and why.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve explain files 10.80.1.1:51000
  sheaf serve explain files '[fd00:80::1:1]:51000' --json")]
struct ExplainArgs {
    /// Name of the service.
    #[arg(value_name = "SERVICE")]
    service: String,
    /// Address and port of the client.
    #[arg(value_name = "ADDR:PORT")]
    client: SocketAddr,
    #[command(flatten)]
    reach: Reach,
}

/// Print the configuration of keepalived for a director of `[failover]`.
///
/// Both directors have the same file but for the name in `[director]`. Exit status: 0, or 2 if the file is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf serve keepalived > /etc/keepalived/keepalived.conf
  sheaf serve keepalived gateway.toml --name d2")]
struct KeepalivedArgs {
    /// Read directors and services from this file.
    #[arg(value_name = "CONFIG", default_value = CONFIG)]
    config: PathBuf,
    /// Print that of this director instead of the one of the file.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

fn parse_target(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((service, server)) if !service.is_empty() && !server.is_empty() => {
            Ok((service.to_owned(), server.to_owned()))
        }
        _ => Err("expected SERVICE/SERVER, such as files/s1".to_owned()),
    }
}

impl Args {
    /// Returns how much is logged without a flag.
    pub(crate) fn usual(&self) -> Usual {
        match self.command {
            Command::Run(_) | Command::Agent(_) => Usual::Info,
            _ => Usual::Warn,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// Why it could not begin, or what a director refused.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Run(args) => direct(args),
        Command::Agent(args) => agent(args),
        Command::Status(args) => status(args),
        Command::Drain(args) => drain(args),
        Command::Add(args) => add(args),
        Command::Weight(args) => {
            let (_, server) = args.target.target.clone();
            let weight = args.weight;
            args.target.send(&Order::Weight { server, weight })
        }
        Command::Remove(args) => {
            let (_, server) = args.target.target.clone();
            args.target.send(&Order::Remove { server })
        }
        Command::Explain(args) => explain(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Keepalived(args) => keepalived(args),
        Command::Backend(args) => backend::run(args),
        #[cfg(feature = "lab")]
        Command::Demo(args) => demo::run(args),
    }
}

/// An error of a director or an agent, with the exit status that fits.
fn begun<T>(result: Result<T, GatewayError>) -> anyhow::Result<T> {
    result.map_err(|error| match error {
        GatewayError::Read { .. }
        | GatewayError::Parse { .. }
        | GatewayError::Config(_)
        | GatewayError::Key { .. }
        | GatewayError::Failover { .. }
        | GatewayError::Expect { .. }
        | GatewayError::NoDirector { .. }
        | GatewayError::NoService { .. }
        | GatewayError::NoServerHere
        | GatewayError::NoAgentHere { .. }
        | GatewayError::NoFailover
        | GatewayError::Backend { .. }
        | GatewayError::Unfit { .. }
        | GatewayError::Folder(_)
        | GatewayError::Plane(sheaf_planes::PlaneError::Unknown { .. }) => fail::bad_use(error),
        other => other.into(),
    })
}

/// Parks this thread until a signal comes.
fn wait_for_signal() -> anyhow::Result<Shutdown> {
    let shutdown = Shutdown::on_signals().context("cannot handle signals")?;
    let main = std::thread::current();
    shutdown.set_waker(move || main.unpark());
    Ok(shutdown)
}

fn direct(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let config = begun(GatewayConfig::load(&args.config))?;
    if args.check {
        return Ok(ExitCode::SUCCESS);
    }
    let shutdown = wait_for_signal()?;
    let director = begun(Director::start(&config))?;
    info!(name = config.director.name, plane = config.director.plane, http = %director.address(), "The director runs");
    while !shutdown.is_requested() {
        std::thread::park();
    }
    drop(director);
    info!("The director has ended");
    Ok(ExitCode::SUCCESS)
}

fn agent(args: &AgentArgs) -> anyhow::Result<ExitCode> {
    let listen = match &args.config {
        Some(path) => begun(GatewayConfig::load(path).and_then(|config| config.agent_here()))?,
        None => args.listen,
    };
    let shutdown = wait_for_signal()?;
    let agent = begun(Agent::start(&AgentConfig { listen }))?;
    info!(http = %agent.address(), "The agent runs");
    while !shutdown.is_requested() {
        std::thread::park();
    }
    drop(agent);
    info!("The agent has ended");
    Ok(ExitCode::SUCCESS)
}

fn keepalived(args: &KeepalivedArgs) -> anyhow::Result<ExitCode> {
    let config = begun(GatewayConfig::load(&args.config))?;
    let name = args.name.as_ref().unwrap_or(&config.director.name);
    json_file::print_text(&begun(config.keepalived(name))?)?;
    Ok(ExitCode::SUCCESS)
}

/// Says whether directors are ready for the virtual addresses, and why not.
fn ready(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let all = Directors::within(&args.reach.director, READY_TIMEOUT).status()?;
    let ask = |peer: &SocketAddr| Directors::within(&[*peer], READY_TIMEOUT).status().ok();
    let peers: Vec<_> = args.peer.iter().filter_map(ask).flatten().collect();
    json_file::print_either(args.reach.flag.json, &all, "")?;
    for status in &all {
        if let Some(reason) = unready(status, &peers) {
            bail!("{} is not ready: {reason}", status.director);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns why a director should not have the virtual addresses. One that has them keeps them as long as its kernel
/// follows; another one has to know what those that are there know, or it would break connections.
fn unready(status: &Status, peers: &[Status]) -> Option<String> {
    for service in &status.services {
        let name = &service.name;
        if let Some(error) = &service.plane_error {
            return Some(format!("the plane does not follow for {name}: {error}"));
        }
        if service.servers.iter().all(|server| server.slots == 0) {
            return Some(format!("no server of {name} has been well"));
        }
        // An address that is not of this machine cannot be bound.
        let is_here = |address: &IpAddr| UdpSocket::bind((*address, 0)).is_ok();
        if service.addresses.iter().any(is_here) {
            continue;
        }
        for peer in peers {
            let mut all = peer.services.iter();
            let Some(other) = all.find(|other| other.name == *name) else {
                continue;
            };
            if let Some(difference) = difference(service, other) {
                return Some(format!("{difference} of {name} than {}", peer.director));
            }
        }
    }
    None
}

/// Returns what a director has to know and does not, beside another one.
fn difference(own: &ServiceStatus, other: &ServiceStatus) -> Option<String> {
    // Its kernel does not know which connections began while slots were on the move elsewhere.
    if own.step != Step::Steady && other.step == Step::Steady {
        return Some("slots are on the move here: another state".to_owned());
    }
    if own.table != other.table {
        return Some("another table".to_owned());
    }
    let pins = |service: &ServiceStatus, name: &str| {
        let mut all = service.servers.iter();
        all.find(|server| server.name == *name)
            .map_or(0, |server| server.pins)
    };
    let mut servers = other.servers.iter();
    let fewer = servers.find(|server| server.pins > pins(own, &server.name))?;
    let found = pins(own, &fewer.name);
    let (name, expected) = (&fewer.name, fewer.pins);
    Some(format!(
        "fewer pinned connections to {name} ({found} instead of {expected})"
    ))
}

fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    if args.ready {
        return ready(args);
    }
    let all = Directors::new(&args.reach.director).status()?;
    json_file::print_either(args.reach.flag.json, &all, &show::status(&all))?;
    let agree = all.windows(2).all(|pair| {
        let tables = |status: &Status| -> Vec<String> {
            status
                .services
                .iter()
                .map(|service| service.table.clone())
                .collect()
        };
        tables(&pair[0]) == tables(&pair[1])
    });
    if agree {
        return Ok(ExitCode::SUCCESS);
    }
    bail!(
        "the directors have different tables; they agree when they see the same servers up, drained and weighted"
    )
}

impl Target {
    /// Sends an order for the server to all directors.
    fn send(&self, order: &Order) -> anyhow::Result<ExitCode> {
        let (service, _) = &self.target;
        let trials = Directors::new(&self.reach.director).order(service, order, self.dry_run)?;
        let text = show::trial(&trials[0], self.dry_run);
        json_file::print_either(self.reach.flag.json, &trials, &text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let (service, server) = args.target.target.clone();
    let order = Order::Drain {
        server: server.clone(),
    };
    let sent = args.target.send(&order)?;
    if !args.wait {
        return Ok(sent);
    }
    let directors = Directors::new(&args.target.reach.director);
    let end = Instant::now() + args.timeout;
    loop {
        let all = directors.status()?;
        let servers = all
            .iter()
            .flat_map(|status| &status.services)
            .filter(|one| one.name == service)
            .flat_map(|one| &one.servers)
            .filter(|one| one.name == server);
        let pins: usize = servers.clone().map(|one| one.pins + one.leaving).sum();
        if servers.clone().all(|one| one.is_drained) {
            return Ok(sent);
        }
        if Instant::now() >= end {
            bail!(
                "{service}/{server} still has {pins} connections or slots after {:?}",
                args.timeout
            );
        }
        std::thread::park_timeout(LOOK_AGAIN);
    }
}

fn add(args: &AddArgs) -> anyhow::Result<ExitCode> {
    let (_, name) = args.target.target.clone();
    let order = if args.address.is_empty() {
        Order::Undrain { server: name }
    } else {
        Order::Add {
            server: ServerConfig {
                name,
                addresses: args.address.clone(),
                port: args.port,
                weight: args.weight,
                agent: args.agent,
            },
        }
    };
    args.target.send(&order)
}

fn explain(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let client = Flow {
        address: args.client.ip(),
        port: args.client.port(),
    };
    let explained = Directors::new(&args.reach.director).explain(&args.service, client)?;
    json_file::print_either(
        args.reach.flag.json,
        &explained,
        &show::explained(&explained),
    )?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(table: &str, step: &str, pins: u64) -> ServiceStatus {
        let server = json!({
            "name": "s1", "addresses": ["10.80.0.11"], "is_up": true, "is_held": false, "error": null,
            "is_draining": false, "is_drained": false, "weight": 1.0, "factor": 1.0, "slots": 251, "leaving": 0,
            "pins": pins, "connections": null, "bytes_per_s": null, "used": null,
        });
        let service = json!({
            "name": "files", "addresses": ["192.0.2.1"], "port": 80, "step": step, "slots": 251, "moving": 0,
            "pins": pins, "given_up": 0, "plane_error": null, "table": table, "servers": [server],
        });
        serde_json::from_value(service).expect("it is the state of a service")
    }

    #[test]
    fn a_director_stands_in_if_it_knows_what_the_other_one_knows() {
        let other = service("aa", "steady", 3);
        let check = |own: &ServiceStatus, expected: Option<&str>| {
            assert_eq!(difference(own, &other).as_deref(), expected);
        };
        check(&service("aa", "steady", 3), None);
        check(&service("aa", "steady", 4), None);
        check(&service("bb", "steady", 3), Some("another table"));
        let fewer = "fewer pinned connections to s1 (2 instead of 3)";
        check(&service("aa", "steady", 2), Some(fewer));
        let moving = service("aa", "listing", 3);
        let on_the_move = "slots are on the move here: another state";
        check(&moving, Some(on_the_move));
        assert_eq!(difference(&moving, &moving), None);
    }
}
