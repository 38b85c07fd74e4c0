//! How each fault is done to a farm, and how it is undone.

use crate::cell::{Fault, Servers, shuffle};
use crate::farm::{Farm, FarmError};
use crate::written;
use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::Signal;
use sheaf_audit::Fate;
use sheaf_protocol::{NodeId, Role};
use sheaf_stream_files::{CatalogueError, CatalogueLock};
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{Interrupted, let_pass, wait_until};
use sheaf_testbed::machine::{Host, MemoryGroup};
use sheaf_testbed::peers::{AddressError, Peers};
use sheaf_testbed::process::{self, Burner, TraceError, Tracer};
use sheaf_testbed::processor::ProcessorGroup;
use sheaf_testbed::relay::{Relay, Tamper};
use sheaf_testbed::rules::{self, Way};
use sheaf_testbed::tool::ToolError;
use sheaf_zookeeper::server::ServerError;
use std::time::Duration;
use thiserror::Error;

/// Reasons why a fault is not injected, or not undone.
#[derive(Debug, Error)]
pub enum InjectError {
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A process, a file or a limit.
    #[error(transparent)]
    Io(#[from] IoError),
    /// A tool of the system did not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A process is not traced.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The catalogue of an EPN cannot be locked.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A node listens nowhere that peers could connect to.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A node does not start again.
    #[error(transparent)]
    Farm(#[from] FarmError),
    /// ZooKeeper servers do not start again.
    #[error(transparent)]
    Servers(#[from] ServerError),
    /// The ground of the cell has no relays before ZooKeeper.
    #[error("there is no relay between {node} and ZooKeeper")]
    NoRelay {
        /// The node.
        node: NodeId,
    },
    /// The cell chooses others.
    #[error("a pair is an FLP and an EPN")]
    NoPair,
    /// A bug of the reset.
    #[error("a thread that resets connections has died")]
    Died,
}

/// Undoes a fault. What it holds, such as a tracer or a stranger, ends when it is dropped.
pub(crate) type Remedy = Box<dyn FnOnce(&mut Farm) -> Result<(), InjectError>>;

/// How long a process may take to end that was asked to.
const RESTART_MAX: Duration = Duration::from_secs(10);
/// Time between two nodes of a swizzle.
const SWIZZLE_STEP: Duration = Duration::from_millis(60);

/// Does `fault` to `nodes`.
///
/// # Errors
///
/// What the tools and the operating system say.
pub(crate) fn inject(
    farm: &mut Farm,
    fault: Fault,
    nodes: &[NodeId],
    rng: &mut Xoshiro256PlusPlus,
) -> Result<Remedy, InjectError> {
    let nodes = nodes.to_vec();
    match fault {
        Fault::Kill => kill(farm, nodes, None),
        Fault::Vanish(ms) => kill(farm, nodes, Some(ms)),
        Fault::Pause => {
            for node in &nodes {
                farm.disturb(*node);
                farm.signal(*node, Signal::STOP);
            }
            Ok(Box::new(move |farm| {
                for node in nodes {
                    farm.signal(node, Signal::CONT);
                }
                Ok(())
            }))
        }
        Fault::Restart => restart(farm, &nodes),
        Fault::Cut(way) => set_rules(farm, nodes, &rules::cut(way, None)),
        Fault::CutPair => cut_pair(farm, &nodes),
        Fault::Swizzle => swizzle(farm, nodes, rng),
        Fault::Loss(per_mille) => set_rules(farm, nodes, &rules::lose(per_mille)),
        Fault::Duplicate => set_rules(farm, nodes, &rules::duplicate()),
        Fault::Reset => set_rules(farm, nodes, &rules::reset()),
        Fault::ResetOnce => reset_once(farm, &nodes),
        Fault::LinkDown => {
            for host in nodes.iter().filter_map(|node| farm.host(*node)) {
                host.set_link(false)?;
            }
            nodes.iter().for_each(|node| farm.disturb(*node));
            Ok(Box::new(move |farm| {
                let mut hosts = nodes.iter().filter_map(|node| farm.host(*node));
                Ok(hosts.try_for_each(|host| host.set_link(true))?)
            }))
        }
        Fault::AddressAway => {
            for host in nodes.iter().filter_map(|node| farm.host(*node)) {
                let [a, b, c, d] = host.address.octets();
                host.set_address([a, b, c, d + 100].into())?;
            }
            nodes.iter().for_each(|node| farm.disturb(*node));
            Ok(Box::new(move |farm| {
                let mut hosts = nodes.iter().filter_map(|node| farm.host(*node));
                Ok(hosts.try_for_each(|host| host.set_address(host.address))?)
            }))
        }
        Fault::SlowLink(kbit) => {
            for host in nodes.iter().filter_map(|node| farm.host(*node)) {
                host.set_rate(Some(kbit))?;
            }
            Ok(Box::new(move |farm| {
                let mut hosts = nodes.iter().filter_map(|node| farm.host(*node));
                Ok(hosts.try_for_each(|host| host.set_rate(None))?)
            }))
        }
        Fault::FlipData => tamper(farm, &nodes, &["data"], Tamper::FlipBit, rng),
        Fault::FlipControl => tamper(farm, &nodes, &["flp-icn", "epn-icn"], Tamper::FlipBit, rng),
        Fault::TruncateData => tamper(farm, &nodes, &["data"], Tamper::Truncate, rng),
        Fault::OversizeData => tamper(farm, &nodes, &["data"], Tamper::Oversize, rng),
        Fault::FreezeData => tamper(farm, &nodes, &["data"], Tamper::Freeze, rng),
        Fault::Delay(ms) => {
            let how = Tamper::Delay(ms);
            tamper(farm, &nodes, &["data", "flp-icn", "epn-icn"], how, rng)
        }
        Fault::Lies => {
            let peers = Peers::lying(&ports(farm), rng.random())?;
            Ok(until_healed(peers))
        }
        Fault::HalfOpen(count) => {
            let peers = Peers::slow(&ports(farm), count)?;
            Ok(until_healed(peers))
        }
        Fault::WallClock(days) => {
            farm.set_wall_clock(days)?;
            Ok(Box::new(|farm| Ok(farm.set_wall_clock(0)?)))
        }
        Fault::DiskFull => {
            if let Some(disk) = &farm.disk {
                disk.fill()?;
            }
            Ok(Box::new(|farm| match &farm.disk {
                Some(disk) => Ok(disk.free()?),
                None => Ok(()),
            }))
        }
        Fault::LockCatalogue => {
            let epns = nodes.iter().filter(|node| node.role == Role::Epn);
            let consumer = farm.shape.consumer;
            // Of two disks, the first one.
            let folders = epns.filter_map(|epn| {
                let folders = written::folders_of(farm.path(), consumer, epn.index);
                folders.into_iter().next()
            });
            let locks = folders.map(|folder| CatalogueLock::take(&folder));
            let locks = locks.collect::<Result<Vec<_>, _>>()?;
            Ok(until_healed(locks))
        }
        Fault::SystemCalls(what) => {
            let tracers = tracers(farm, &nodes, &format!("inject={what}"))?;
            Ok(until_healed(tracers))
        }
        Fault::KillAtCall(call) => {
            let when = rng.random_range(1..200_u32);
            for node in &nodes {
                farm.let_end(*node, Fate::Killed);
            }
            let what = format!("inject={call}:signal=KILL:when={when}");
            let tracers = tracers(farm, &nodes, &what)?;
            Ok(Box::new(move |farm| {
                drop(tracers);
                bring_back(farm, &nodes)
            }))
        }
        Fault::FewFiles => few_files(farm, nodes),
        Fault::LittleMemory => little_memory(farm, nodes),
        Fault::Starve => starve(farm, &nodes),
        Fault::Share(percent) => share(farm, &nodes, percent),
        Fault::KillServers(which) => {
            let members = servers(farm, which);
            if let Some(ensemble) = &mut farm.ensemble {
                members.iter().for_each(|member| ensemble.kill(*member));
            }
            Ok(Box::new(move |farm| {
                let Some(ensemble) = &mut farm.ensemble else {
                    return Ok(());
                };
                for member in members {
                    ensemble.restart(member)?;
                }
                Ok(ensemble.wait_ready()?)
            }))
        }
        Fault::CutServers => cut_servers(farm, nodes),
        Fault::PauseServers(which) => {
            let members = servers(farm, which);
            if let Some(ensemble) = &mut farm.ensemble {
                members.iter().for_each(|member| ensemble.pause(*member));
            }
            Ok(Box::new(move |farm| {
                if let Some(ensemble) = &mut farm.ensemble {
                    members.iter().for_each(|member| ensemble.resume(*member));
                }
                Ok(())
            }))
        }
    }
}

/// The members of the ensemble that are meant.
fn servers(farm: &Farm, which: Servers) -> Vec<usize> {
    let Some(ensemble) = &farm.ensemble else {
        return Vec::new();
    };
    let (all, leader) = (0..ensemble.len(), ensemble.leader());
    match which {
        Servers::All => all.collect(),
        Servers::Leader => leader.into_iter().collect(),
        Servers::Follower => all
            .filter(|member| Some(*member) != leader)
            .take(1)
            .collect(),
    }
}

/// Freezes what lies between `nodes` and the ZooKeeper servers. What was under way arrives when it is healed, late
/// and perhaps of a session that is over.
fn cut_servers(farm: &mut Farm, nodes: Vec<NodeId>) -> Result<Remedy, InjectError> {
    for node in &nodes {
        farm.disturb(*node);
        let relays = farm.keeper_relays(*node);
        if relays.is_empty() {
            return Err(InjectError::NoRelay { node: *node });
        }
        relays.iter().for_each(|relay| relay.set(Tamper::Freeze, 0));
    }
    Ok(Box::new(move |farm| {
        let relays = nodes.iter().flat_map(|node| farm.keeper_relays(*node));
        relays.for_each(|relay| relay.set(Tamper::Nothing, 0));
        Ok(())
    }))
}

fn until_healed<T: 'static>(held: T) -> Remedy {
    Box::new(move |_| {
        drop(held);
        Ok(())
    })
}

fn kill(
    farm: &mut Farm,
    nodes: Vec<NodeId>,
    silent_ms: Option<u64>,
) -> Result<Remedy, InjectError> {
    if let Some(ms) = silent_ms {
        for node in &nodes {
            farm.signal(*node, Signal::STOP);
        }
        let_pass(Duration::from_millis(ms))?;
    }
    for node in &nodes {
        farm.signal(*node, Signal::KILL);
    }
    Ok(Box::new(move |farm| bring_back(farm, &nodes)))
}

/// Starts those that have no living process, and kills those first that ought to have none.
fn bring_back(farm: &mut Farm, nodes: &[NodeId]) -> Result<(), InjectError> {
    for node in nodes {
        farm.signal(*node, Signal::KILL);
        farm.launch(*node)?;
    }
    Ok(())
}

fn restart(farm: &mut Farm, nodes: &[NodeId]) -> Result<Remedy, InjectError> {
    for node in nodes {
        farm.let_end(*node, Fate::Ended);
        farm.signal(*node, Signal::TERM);
        let has_ended = wait_until::<InjectError>(RESTART_MAX, || {
            farm.reap();
            Ok(farm.living(*node).is_none())
        })?;
        if !has_ended {
            farm.problems
                .push(format!("{node} did not end when it was asked to"));
        }
        farm.launch(*node)?;
        farm.await_all_up(RESTART_MAX)?;
    }
    Ok(Box::new(|_| Ok(())))
}

/// Rules at each of `nodes` until healed.
fn set_rules(farm: &mut Farm, nodes: Vec<NodeId>, rules: &str) -> Result<Remedy, InjectError> {
    for node in &nodes {
        farm.disturb(*node);
        if let Some(host) = farm.host(*node) {
            host.set_rules(rules)?;
        }
    }
    Ok(Box::new(move |farm| {
        let mut hosts = nodes.iter().filter_map(|node| farm.host(*node));
        Ok(hosts.try_for_each(|host| host.set_rules(""))?)
    }))
}

/// All at the same time, as far as the processors allow: what is reset second must not be back already.
fn reset_once(farm: &mut Farm, nodes: &[NodeId]) -> Result<Remedy, InjectError> {
    nodes.iter().for_each(|node| farm.disturb(*node));
    let hosts: Vec<Host> = nodes.iter().filter_map(|node| farm.host(*node)).collect();
    let counts: Vec<Result<usize, InjectError>> = std::thread::scope(|scope| {
        let threads = hosts
            .iter()
            .map(|host| scope.spawn(|| host.reset_connections()));
        let threads: Vec<_> = threads.collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
        let counts = threads.into_iter().map(join);
        let died = |_| InjectError::Died;
        counts.map(|count| Ok(count.map_err(died)??)).collect()
    });
    let counts = counts.into_iter().collect::<Result<Vec<usize>, _>>()?;
    if counts.iter().sum::<usize>() == 0 {
        farm.problems.push("no connection was reset".to_owned());
    }
    Ok(Box::new(|_| Ok(())))
}

fn cut_pair(farm: &mut Farm, nodes: &[NodeId]) -> Result<Remedy, InjectError> {
    let [flp, epn] = nodes else {
        return Err(InjectError::NoPair);
    };
    let peer = farm.host(*flp).map(|host| host.address.to_string());
    let rules = rules::cut(Way::Both, peer.as_deref());
    farm.disturb(*flp);
    set_rules(farm, vec![*epn], &rules)
}

fn swizzle(
    farm: &mut Farm,
    nodes: Vec<NodeId>,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<Remedy, InjectError> {
    for node in &nodes {
        farm.disturb(*node);
        if let Some(host) = farm.host(*node) {
            host.set_rules(&rules::cut(Way::Both, None))?;
        }
        let_pass(SWIZZLE_STEP)?;
    }
    let mut order = nodes;
    shuffle(&mut order, rng);
    Ok(Box::new(move |farm| {
        for node in order {
            if let Some(host) = farm.host(node) {
                host.set_rules("")?;
            }
            let_pass(SWIZZLE_STEP)?;
        }
        Ok(())
    }))
}

fn tamper(
    farm: &mut Farm,
    nodes: &[NodeId],
    names: &'static [&'static str],
    tamper: Tamper,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<Remedy, InjectError> {
    nodes.iter().for_each(|node| farm.disturb(*node));
    let relays = || names.iter().filter_map(|name| farm.relays().get(name));
    let before: Vec<u64> = relays().map(Relay::done).collect();
    for relay in relays() {
        relay.set(tamper, rng.random());
    }
    let must_show = matches!(
        tamper,
        Tamper::FlipBit | Tamper::Truncate | Tamper::Oversize
    );
    Ok(Box::new(move |farm| {
        let relays = || names.iter().filter_map(|name| farm.relays().get(name));
        for relay in relays() {
            relay.set(Tamper::Nothing, 0);
        }
        let after: Vec<u64> = relays().map(Relay::done).collect();
        if must_show && after == before {
            let text = format!("nothing passed the relays {names:?} to be tampered with");
            farm.problems.push(text);
        }
        Ok(())
    }))
}

/// Where nodes listen.
fn ports(farm: &Farm) -> Vec<String> {
    let nodes = farm.all_nodes();
    let listening = nodes.iter().filter(|node| node.role != Role::Flp);
    listening
        .map(|node| farm.address(*node).to_owned())
        .collect()
}

fn tracers(farm: &mut Farm, nodes: &[NodeId], what: &str) -> Result<Vec<Tracer>, InjectError> {
    let mut tracers = Vec::new();
    for node in nodes {
        farm.disturb(*node);
        let Some(pid) = farm.living(*node).map(|life| life.pid()) else {
            continue;
        };
        tracers.push(Tracer::attach(pid, what, &node.to_string())?);
    }
    Ok(tracers)
}

/// Connections of strangers while a node may not open one more file.
const STRANGERS: u32 = 50;

fn few_files(farm: &mut Farm, nodes: Vec<NodeId>) -> Result<Remedy, InjectError> {
    let mut before = Vec::new();
    let mut targets = Vec::new();
    for node in nodes {
        let Some(pid) = farm.living(node).map(|life| life.pid()) else {
            continue;
        };
        let open = sheaf_farm::proc::open_files(pid).unwrap_or(64);
        before.push((pid, process::set_files(pid, open)?));
        targets.push(farm.address(node).to_owned());
    }
    let peers = Peers::slow(&targets, STRANGERS)?;
    Ok(Box::new(move |_| {
        drop(peers);
        for (pid, files) in before {
            process::set_files(pid, files)?;
        }
        Ok(())
    }))
}

fn little_memory(farm: &mut Farm, nodes: Vec<NodeId>) -> Result<Remedy, InjectError> {
    let mut groups = Vec::new();
    for node in &nodes {
        farm.let_end(*node, Fate::Killed);
        if let Some(pid) = farm.living(*node).map(|life| life.pid()) {
            let bytes = sheaf_farm::proc::rss_bytes(pid).unwrap_or(1 << 20);
            groups.push(MemoryGroup::limit(pid, bytes / 4)?);
        }
    }
    Ok(Box::new(move |farm| {
        bring_back(farm, &nodes)?;
        drop(groups);
        Ok(())
    }))
}

fn starve(farm: &mut Farm, nodes: &[NodeId]) -> Result<Remedy, InjectError> {
    let mut before = Vec::new();
    for node in nodes {
        let Some(pid) = farm.living(*node).map(|life| life.pid()) else {
            continue;
        };
        before.push(pid);
        process::set_nice(pid, 19)?;
    }
    let burners = Burner::start_all()?;
    Ok(Box::new(move |_| {
        drop(burners);
        for pid in before {
            process::set_nice(pid, 0)?;
        }
        Ok(())
    }))
}

fn share(farm: &mut Farm, nodes: &[NodeId], percent: u64) -> Result<Remedy, InjectError> {
    let mut groups = Vec::new();
    for node in nodes {
        farm.disturb(*node);
        if let Some(pid) = farm.living(*node).map(|life| life.pid()) {
            let mut group = ProcessorGroup::of_percent(percent)?;
            group.add_busy()?;
            group.add(pid)?;
            groups.push(group);
        }
    }
    Ok(until_healed(groups))
}
