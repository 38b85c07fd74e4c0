//! How each fault is done to a farm, and how it is undone.

use crate::cell::{Fault, Servers, Way, shuffle};
use crate::clock::{let_pass, wait_until};
use crate::error::LabError;
use crate::farm::Farm;
use crate::hostile::Peers;
use crate::machine::{Host, MemoryGroup};
use crate::relay::{Relay, Tamper};
use crate::tool;
use rand::RngExt as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use sheaf_audit::Fate;
use sheaf_protocol::{NodeId, Role};
use sheaf_zookeeper::server::ServerError;
use std::process::{Child, Stdio};
use std::time::Duration;

/// Undoes a fault. What it holds, such as a tracer or a stranger, ends when it is dropped.
pub(crate) type Remedy = Box<dyn FnOnce(&mut Farm) -> Result<(), LabError>>;

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
) -> Result<Remedy, LabError> {
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
        Fault::Cut(way) => set_rules(farm, nodes, |_| cut_rules(way, "")),
        Fault::CutPair => cut_pair(farm, &nodes),
        Fault::Swizzle => swizzle(farm, nodes, rng),
        Fault::Loss(per_mille) => {
            let rule = format!("numgen random mod 1000 < {per_mille} drop");
            set_rules(farm, nodes, |_| {
                chain("input", &format!("tcp dport 1-65535 {rule}"))
            })
        }
        Fault::Duplicate => set_rules(farm, nodes, |_| {
            let chain =
                "type filter hook egress device eth0 priority 0;\n  ip protocol tcp dup to eth0";
            format!("table netdev lab {{\n chain out {{\n  {chain}\n }}\n}}")
        }),
        Fault::Reset => set_rules(farm, nodes, |_| {
            chain("input", "tcp dport 1-65535 reject with tcp reset")
        }),
        Fault::ResetOnce => reset_once(farm, &nodes),
        Fault::LinkDown => {
            for host in nodes.iter().filter_map(|node| farm.host(*node)) {
                host.set_link(false)?;
            }
            nodes.iter().for_each(|node| farm.disturb(*node));
            Ok(Box::new(move |farm| {
                let mut hosts = nodes.iter().filter_map(|node| farm.host(*node));
                hosts.try_for_each(|host| host.set_link(true))
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
                hosts.try_for_each(|host| host.set_address(host.address))
            }))
        }
        Fault::SlowLink(kbit) => {
            for host in nodes.iter().filter_map(|node| farm.host(*node)) {
                host.set_rate(Some(kbit))?;
            }
            Ok(Box::new(move |farm| {
                let mut hosts = nodes.iter().filter_map(|node| farm.host(*node));
                hosts.try_for_each(|host| host.set_rate(None))
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
            Ok(Box::new(|farm| farm.set_wall_clock(0)))
        }
        Fault::DiskFull => {
            if let Some(disk) = &farm.disk {
                disk.fill()?;
            }
            Ok(Box::new(|farm| match &farm.disk {
                Some(disk) => disk.free(),
                None => Ok(()),
            }))
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
        Fault::KillServers(which) => {
            let members = servers(farm, which);
            if let Some(ensemble) = &mut farm.ensemble {
                members.iter().for_each(|member| ensemble.kill(*member));
            }
            Ok(Box::new(move |farm| {
                let Some(ensemble) = &mut farm.ensemble else {
                    return Ok(());
                };
                let bad = |error: ServerError| LabError::Farm(error.to_string());
                for member in members {
                    ensemble.restart(member).map_err(bad)?;
                }
                ensemble.wait_ready().map_err(bad)
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
fn cut_servers(farm: &mut Farm, nodes: Vec<NodeId>) -> Result<Remedy, LabError> {
    for node in &nodes {
        farm.disturb(*node);
        let relays = farm.keeper_relays(*node);
        if relays.is_empty() {
            let text = format!("there is no relay between {node} and ZooKeeper");
            return Err(LabError::Farm(text));
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

fn kill(farm: &mut Farm, nodes: Vec<NodeId>, silent_ms: Option<u64>) -> Result<Remedy, LabError> {
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
fn bring_back(farm: &mut Farm, nodes: &[NodeId]) -> Result<(), LabError> {
    for node in nodes {
        farm.signal(*node, Signal::KILL);
        farm.launch(*node)?;
    }
    Ok(())
}

fn restart(farm: &mut Farm, nodes: &[NodeId]) -> Result<Remedy, LabError> {
    for node in nodes {
        farm.let_end(*node, Fate::Ended);
        farm.signal(*node, Signal::TERM);
        let has_ended = wait_until(RESTART_MAX, || {
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

/// A chain of filter rules at `hook`.
fn chain(hook: &str, rule: &str) -> String {
    format!(
        "table inet lab-{hook} {{\n chain {hook} {{\n  type filter hook {hook} priority 0;\n  {rule}\n }}\n}}"
    )
}

fn cut_rules(way: Way, peer: &str) -> String {
    let (from, to) = if peer.is_empty() {
        (
            "iifname eth0 drop".to_owned(),
            "oifname eth0 drop".to_owned(),
        )
    } else {
        (
            format!("ip saddr {peer} drop"),
            format!("ip daddr {peer} drop"),
        )
    };
    let (input, output) = (chain("input", &from), chain("output", &to));
    match way {
        Way::Both => format!("{input}\n{output}"),
        Way::In => input,
        Way::Out => output,
    }
}

/// Rules at each of `nodes` until healed.
fn set_rules(
    farm: &mut Farm,
    nodes: Vec<NodeId>,
    rules: impl Fn(NodeId) -> String,
) -> Result<Remedy, LabError> {
    for node in &nodes {
        farm.disturb(*node);
        if let Some(host) = farm.host(*node) {
            host.set_rules(&rules(*node))?;
        }
    }
    Ok(Box::new(move |farm| {
        let mut hosts = nodes.iter().filter_map(|node| farm.host(*node));
        hosts.try_for_each(|host| host.set_rules(""))
    }))
}

/// All at the same time, as far as the processors allow: what is reset second must not be back already.
fn reset_once(farm: &mut Farm, nodes: &[NodeId]) -> Result<Remedy, LabError> {
    nodes.iter().for_each(|node| farm.disturb(*node));
    let hosts: Vec<Host> = nodes.iter().filter_map(|node| farm.host(*node)).collect();
    let counts: Vec<Result<usize, LabError>> = std::thread::scope(|scope| {
        let threads = hosts
            .iter()
            .map(|host| scope.spawn(|| host.reset_connections()));
        let threads: Vec<_> = threads.collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
        let counts = threads.into_iter().map(join);
        let died = |_| LabError::Farm("a thread that resets connections has died".to_owned());
        counts.map(|count| count.map_err(died)?).collect()
    });
    let counts = counts.into_iter().collect::<Result<Vec<usize>, _>>()?;
    if counts.iter().sum::<usize>() == 0 {
        farm.problems.push("no connection was reset".to_owned());
    }
    Ok(Box::new(|_| Ok(())))
}

fn cut_pair(farm: &mut Farm, nodes: &[NodeId]) -> Result<Remedy, LabError> {
    let [flp, epn] = nodes else {
        return Err(LabError::Farm("a pair is an FLP and an EPN".to_owned()));
    };
    let peer = farm.host(*flp).map(|host| host.address.to_string());
    let rules = cut_rules(Way::Both, &peer.unwrap_or_default());
    farm.disturb(*flp);
    set_rules(farm, vec![*epn], |_| rules.clone())
}

fn swizzle(
    farm: &mut Farm,
    nodes: Vec<NodeId>,
    rng: &mut Xoshiro256PlusPlus,
) -> Result<Remedy, LabError> {
    for node in &nodes {
        farm.disturb(*node);
        if let Some(host) = farm.host(*node) {
            host.set_rules(&cut_rules(Way::Both, ""))?;
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
) -> Result<Remedy, LabError> {
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

/// strace at a running process. When it is dropped the process goes on untraced.
struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        // An error means that it has ended with the process that it traced.
        let _ = rustix::process::kill_process(Pid::from_child(&self.0), Signal::INT);
        let _ = self.0.wait();
    }
}

fn tracers(farm: &mut Farm, nodes: &[NodeId], what: &str) -> Result<Vec<Tracer>, LabError> {
    let mut tracers = Vec::new();
    for node in nodes {
        farm.disturb(*node);
        let Some(pid) = farm.living(*node).map(|life| life.pid()) else {
            continue;
        };
        let trace = what
            .trim_start_matches("inject=")
            .split(':')
            .next()
            .unwrap_or_default();
        let child = tool::command("strace")
            .args(["-f", "-q", "-o", "/dev/null", "-e"])
            .arg(format!("trace={trace}"))
            .args(["-e", what, "-p"])
            .arg(pid.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(LabError::io("start strace"))?;
        tracers.push(Tracer(child));
        let status = format!("/proc/{pid}/status");
        let is_traced = wait_until(RESTART_MAX, || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let tracer = text
                .lines()
                .find_map(|line| line.strip_prefix("TracerPid:"));
            // No process, no line: the call that kills it may have come already.
            Ok(tracer.is_none_or(|pid| pid.trim() != "0"))
        })?;
        if !is_traced {
            return Err(LabError::Farm(format!("strace does not trace {node}")));
        }
    }
    Ok(tracers)
}

/// Connections of strangers while a node may not open one more file.
const STRANGERS: u32 = 50;

fn few_files(farm: &mut Farm, nodes: Vec<NodeId>) -> Result<Remedy, LabError> {
    let mut before = Vec::new();
    let mut targets = Vec::new();
    for node in nodes {
        let Some(pid) = farm.living(node).map(|life| life.pid()) else {
            continue;
        };
        let open = sheaf_farm::proc::open_files(pid).unwrap_or(64);
        before.push((pid, set_files(pid, open)?));
        targets.push(farm.address(node).to_owned());
    }
    let peers = Peers::slow(&targets, STRANGERS)?;
    Ok(Box::new(move |_| {
        drop(peers);
        for (pid, files) in before {
            set_files(pid, files)?;
        }
        Ok(())
    }))
}

/// Sets how many files the process `pid` may have; gives how many it might have before.
fn set_files(pid: u32, files: u64) -> Result<u64, LabError> {
    let what = || LabError::io("limit the files of a process");
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let old = rustix::process::prlimit(
        pid,
        Resource::Nofile,
        Rlimit {
            current: Some(files),
            maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
        },
    );
    let old = old.map_err(|error| what()(error.into()))?;
    Ok(old.current.unwrap_or(files))
}

fn little_memory(farm: &mut Farm, nodes: Vec<NodeId>) -> Result<Remedy, LabError> {
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

/// A process that is busy until it is dropped, or until this process ends.
struct Burner(Child);

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn starve(farm: &mut Farm, nodes: &[NodeId]) -> Result<Remedy, LabError> {
    let mut before = Vec::new();
    for node in nodes {
        let Some(pid) = farm.living(*node).map(|life| life.pid()) else {
            continue;
        };
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        before.push(pid);
        set_nice(pid, 19)?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let script = format!("while kill -0 {}; do :; done", std::process::id());
    let start = || {
        let mut command = tool::command("sh");
        command.args(["-c", &script]).stderr(Stdio::null());
        command
            .spawn()
            .map(Burner)
            .map_err(LabError::io("start a busy process"))
    };
    let burners = (0..2 * cores)
        .map(|_| start())
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Box::new(move |_| {
        drop(burners);
        before.into_iter().try_for_each(|pid| set_nice(pid, 0))
    }))
}

fn set_nice(pid: Option<Pid>, nice: i32) -> Result<(), LabError> {
    rustix::process::setpriority_process(pid, nice)
        .map_err(|error| LabError::io("set a priority")(error.into()))
}
