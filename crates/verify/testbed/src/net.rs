//! Networks of namespaces: every node of a topology in one, all switches as bridges in one more, every port shaped.
//!
//! A network of an experiment has the id of the process in its name and is removed with it, also when that is killed: a
//! shell that waits for the end of a pipe removes it. A network that is asked for by `sheaf lab net up` stays until
//! `net down`; until it is whole it is marked as in the making, so that [`remove_stale`] knows half of one.

mod plan;
pub mod topology;

use crate::IoError;
use crate::clock::Interrupted;
use crate::machine::{self, Host};
use crate::namespace;
use crate::tool::{self, Missing, Need, ToolError};
pub use plan::Place;
use plan::Plan;
pub(crate) use plan::{Step, shape};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::JoinHandle;
use thiserror::Error;
pub use topology::{Can, Framing, Link, Node, Topology, TopologyError};

/// Where `ip netns` keeps names.
const NAMESPACES: &str = "/run/netns";
/// Where it is written down which networks are meant to stay.
const STATE: &str = "/run/sheaf-lab";
/// How names of networks begin that are meant to stay.
const KEPT: &str = "sheaf-net-";

/// Reasons why there is no network. Nothing is left of it.
#[derive(Debug, Error)]
pub enum NetError {
    /// Something that networks need.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A file or a process.
    #[error(transparent)]
    Io(#[from] IoError),
    /// `ip` or `tc` did not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// Networks that earlier experiments left cannot be removed.
    #[error(transparent)]
    Remove(#[from] RemoveError),
    /// The network stands already.
    #[error("network {name:?} is up already: `sheaf lab net down {name}` removes it")]
    Up {
        /// Name of the topology.
        name: String,
    },
}

/// Reasons why a network cannot be removed.
#[derive(Debug, Error)]
pub enum RemoveError {
    /// Something that networks need.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A file.
    #[error(transparent)]
    Io(#[from] IoError),
    /// `ip` did not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

/// Record of a network, as `sheaf lab net up` writes it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Mark {
    /// Process that makes the network.
    pid: u32,
    /// Whether it is whole.
    is_up: bool,
}

/// A network that stands; gone when dropped, unless it is meant to stay.
#[derive(Debug)]
pub struct Net {
    topology: Topology,
    plan: Plan,
    is_kept: bool,
    guard: Option<Child>,
}

impl Net {
    /// Makes the network of `topology` for an experiment.
    ///
    /// # Errors
    ///
    /// [`NetError::Missing`] without root or a tool, and what `ip` and `tc` say. Nothing is left of it then.
    pub fn make(topology: &Topology) -> Result<Self, NetError> {
        needs()?;
        let prefix = crate::names::unique();
        let guard = guard(&prefix)?;
        Self::build(topology, &prefix, Some(guard))
    }

    /// Makes one that stays when this process ends.
    ///
    /// # Errors
    ///
    /// As [`make`](Self::make), and [`NetError::Up`] if it stands already.
    pub fn up(topology: &Topology) -> Result<Self, NetError> {
        needs()?;
        for name in remove_stale()? {
            tracing::info!(name, "Removed what an earlier experiment left");
        }
        if is_up(&topology.name) {
            let name = topology.name.clone();
            return Err(NetError::Up { name });
        }
        write_mark(&topology.name, false)?;
        let made = Self::build(topology, &kept_prefix(&topology.name), None);
        match made {
            Ok(mut net) => {
                net.is_kept = true;
                write_mark(&topology.name, true)?;
                Ok(net)
            }
            Err(error) => {
                // The namespaces are gone with what was dropped.
                let _ = fs::remove_file(mark_file(&topology.name));
                Err(error)
            }
        }
    }

    fn build(topology: &Topology, prefix: &str, guard: Option<Child>) -> Result<Self, NetError> {
        let net = Self {
            topology: topology.clone(),
            plan: Plan::of(topology, prefix),
            is_kept: false,
            guard,
        };
        // Dropped if it fails: what is there of it is removed again.
        for (tool, inside, lines) in net.plan.steps() {
            crate::clock::check_quit()?;
            let mut words = Vec::new();
            if let Some(namespace) = &inside {
                words.extend(["-n", namespace.as_str()]);
            }
            words.extend(["-batch", "-"]);
            tool::run_with_input(tool, words, &lines)?;
        }
        Ok(net)
    }

    /// Topology of the network.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Nodes, in the order of the file.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.plan.places
    }

    /// Makes the cable of the data of the node in `namespace` `factor` times slower than the topology has it.
    ///
    /// # Errors
    ///
    /// What `tc` says.
    pub fn slow_down(&self, namespace: &str, factor: f64) -> Result<(), ToolError> {
        for (inside, line) in self.plan.slower(&self.topology, namespace, factor) {
            tool::run_with_input("tc", ["-n", &inside, "-batch", "-"], &line)?;
        }
        Ok(())
    }

    /// Returns the node at `place` as a host that can be disturbed.
    #[must_use]
    pub fn host(&self, place: &Place) -> Host {
        Host::at(
            &place.namespace,
            place.primary,
            &self.plan.switches,
            &place.port,
        )
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = remove(&self.plan.prefix)
        {
            tracing::warn!(%error, "Cannot remove a network");
        }
        if let Some(mut guard) = self.guard.take() {
            // It ends when its input does, and finds nothing to do.
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

/// An error that says what this machine lacks to have networks.
///
/// # Errors
///
/// [`Missing`].
pub fn needs() -> Result<(), Missing> {
    let missing = [Need::Root, Need::TrafficControl, Need::Namespaces];
    match missing.into_iter().find_map(Need::missing) {
        None => Ok(()),
        Some(why) => Err(Missing(why)),
    }
}

/// Whether `net up` made the network of `topology`, and it stands.
#[must_use]
pub fn is_up(topology: &str) -> bool {
    read_mark(topology).is_some_and(|mark| mark.is_up)
}

/// Removes the network of `topology` that `net up` made. Whether there was one.
///
/// # Errors
///
/// [`RemoveError::Missing`] without root, and what `ip` says.
pub fn down(topology: &str) -> Result<bool, RemoveError> {
    needs()?;
    let removed = remove(&kept_prefix(topology))?;
    let was_marked = fs::remove_file(mark_file(topology)).is_ok();
    Ok(removed > 0 || was_marked)
}

/// Removes halves of networks whose makers do not live any more, and networks of experiments that were killed.
/// Gives the names of what was removed.
///
/// # Errors
///
/// What `ip` says.
pub fn remove_stale() -> Result<Vec<String>, RemoveError> {
    let mut removed = machine::clean();
    for entry in fs::read_dir(STATE).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
            continue;
        };
        let Some(mark) = read_mark(name) else {
            continue;
        };
        // A mark outlives a reboot of a container, its namespaces do not.
        let is_gone = namespaces(&kept_prefix(name)).is_empty();
        let maker_lives = Path::new(&format!("/proc/{}", mark.pid)).exists();
        let is_stale = if mark.is_up { is_gone } else { !maker_lives };
        if is_stale {
            remove(&kept_prefix(name))?;
            fs::remove_file(&path).map_err(IoError::of(format!("remove {}", path.display())))?;
            removed.push(format!("{KEPT}{name}"));
        }
    }
    Ok(removed)
}

/// Runs `work` in a thread of its own that stands in the namespace `name`: sockets that it makes are of that node.
///
/// # Errors
///
/// What the operating system gives for the namespace. The result of `work` is that of the thread.
pub fn inside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<Result<T, IoError>>, IoError> {
    let path = Path::new(NAMESPACES).join(name);
    let file = File::open(&path).map_err(IoError::of(format!("open {}", path.display())))?;
    let what = format!("enter the network namespace {name}");
    let thread = std::thread::Builder::new().name(name.chars().take(15).collect());
    thread
        .spawn(move || {
            namespace::enter(&file).map_err(IoError::of(what))?;
            Ok(work())
        })
        .map_err(IoError::of("start a thread"))
}

fn kept_prefix(topology: &str) -> String {
    format!("{KEPT}{topology}")
}

fn mark_file(topology: &str) -> PathBuf {
    Path::new(STATE).join(format!("{topology}.json"))
}

fn read_mark(topology: &str) -> Option<Mark> {
    let text = fs::read_to_string(mark_file(topology)).ok()?;
    serde_json::from_str(&text).ok()
}

fn write_mark(topology: &str, is_up: bool) -> Result<(), IoError> {
    fs::create_dir_all(STATE).map_err(IoError::of(format!("make {STATE}")))?;
    let mark = Mark {
        pid: std::process::id(),
        is_up,
    };
    let text = serde_json::to_string(&mark).expect("a number and a flag have a JSON form");
    let path = mark_file(topology);
    fs::write(&path, text).map_err(IoError::of(format!("write {}", path.display())))
}

/// Names of the namespaces of the network `prefix`.
fn namespaces(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(NAMESPACES).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let start = format!("{prefix}{}", plan::SEPARATOR);
    names.filter(|name| name.starts_with(&start)).collect()
}

/// Removes all namespaces of the network `prefix`; how many there were.
pub(crate) fn remove(prefix: &str) -> Result<usize, ToolError> {
    let names = namespaces(prefix);
    if names.is_empty() {
        return Ok(0);
    }
    let lines: String = names
        .iter()
        .map(|name| format!("netns del {name}\n"))
        .collect();
    tool::run_with_input("ip", ["-force", "-batch", "-"], &lines)?;
    Ok(names.len())
}

/// Removes the network `prefix` when this process has ended, however it does: a shell waits for the end of a pipe that
/// only this process can write to.
pub(crate) fn guard(prefix: &str) -> Result<Child, IoError> {
    let start = format!("{prefix}{}", plan::SEPARATOR);
    let script = "\
trap '' HUP INT TERM
read -r _
for path in \"$1\"/\"$2\"*; do
  [ -e \"$path\" ] || continue
  name=${path##*/}
  ip netns pids \"$name\" 2>/dev/null | while read -r pid; do kill -9 \"$pid\"; done
  ip netns del \"$name\" 2>/dev/null
done";
    let mut command = tool::command("sh");
    command.args(["-c", script, "sheaf-lab-guard", NAMESPACES, &start]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // A Ctrl-C at the terminal is not for it.
    command.process_group(0);
    let mut child = command.spawn().map_err(IoError::of("start `sh`"))?;
    if let Some(stdin) = &mut child.stdin {
        // Nothing is ever written; a flush shows that the pipe is there.
        stdin.flush().map_err(IoError::of("keep a pipe open"))?;
    }
    Ok(child)
}

/// The table of a topology: which node stands where, with which addresses and rates.
#[must_use]
pub fn show(topology: &Topology) -> String {
    use std::fmt::Write as _;
    let plan = Plan::of(topology, &kept_prefix(&topology.name));
    let state = if is_up(&topology.name) { "up" } else { "down" };
    let mut text = format!("{} ({state}): {}\n", topology.name, topology.about);
    let _ = writeln!(
        text,
        "{:<8} {:<11} {:<12} {:<14} {:<14} {:>10} {:>12}  namespace",
        "node", "switch", "can be", "primary", "auxiliary", "Mbit/s", "TCP Mbit/s"
    );
    for (node, place) in topology.nodes().iter().zip(&plan.places) {
        let can: Vec<&str> = node.can.iter().map(|can| can.name()).collect();
        let auxiliary = place.auxiliary.map_or("-".to_owned(), |ip| ip.to_string());
        let _ = writeln!(
            text,
            "{:<8} {:<11} {:<12} {:<14} {:<14} {:>10} {:>12.2}  {}",
            node.name,
            node.switch,
            can.join(","),
            place.primary.to_string(),
            auxiliary,
            node.link.rate_mbit,
            node.link.goodput_mbit(),
            place.namespace
        );
    }
    for up in &topology.uplink {
        let rate = up.rate_mbit.unwrap_or(topology.link.rate_mbit);
        let _ = writeln!(
            text,
            "uplink {} - {}: {rate} Mbit/s",
            up.between[0], up.between[1]
        );
    }
    if let Some(auxiliary) = &topology.auxiliary {
        let _ = writeln!(
            text,
            "auxiliary network: one switch, {} Mbit/s",
            auxiliary.rate_mbit
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether networks can be made here; reports it if not.
    fn can_run(test: &str) -> bool {
        match needs() {
            Ok(()) => true,
            Err(why) => {
                eprintln!("{test} skipped: {why}");
                false
            }
        }
    }

    const TINY: &str = "
        name = 'tiny-test'
        [auxiliary]
        rate_mbit = 100.0
        [[switch]]
        name = 'a'
        ports = 3
        [[node]]
        name = 'n'
        count = 2
        switch = 'a'
        ";

    #[test]
    fn a_network_stands_while_it_is_held_and_nothing_is_left_of_it() {
        if !can_run("a_network_stands_while_it_is_held_and_nothing_is_left_of_it") {
            return;
        }
        let topology = Topology::parse(TINY, "tiny").unwrap();
        let net = Net::make(&topology).unwrap();
        let prefix = net.plan.prefix.clone();
        assert_eq!(namespaces(&prefix).len(), 3, "two nodes and their switches");
        let [from, to] = [&net.places()[0], &net.places()[1]];
        for address in [to.primary.to_string(), to.auxiliary.unwrap().to_string()] {
            let words = [
                "netns",
                "exec",
                &from.namespace,
                "ping",
                "-c1",
                "-W2",
                &address,
            ];
            if tool::find("ping").is_some() {
                tool::run("ip", words).unwrap();
            }
        }
        drop(net);
        assert!(namespaces(&prefix).is_empty());
    }

    #[test]
    fn a_guard_removes_the_network_of_a_process_that_was_killed() {
        if !can_run("a_guard_removes_the_network_of_a_process_that_was_killed") {
            return;
        }
        let prefix = crate::names::unique();
        let name = format!("{prefix}.x");
        let mut guard = guard(&prefix).unwrap();
        tool::run("ip", ["netns", "add", &name]).unwrap();
        // The end of the pipe is all that a guard sees of a death.
        drop(guard.stdin.take());
        guard.wait().unwrap();
        assert!(namespaces(&prefix).is_empty());
    }

    #[test]
    fn a_network_that_was_asked_for_stays_until_it_is_taken_down() {
        if !can_run("a_network_that_was_asked_for_stays_until_it_is_taken_down") {
            return;
        }
        let topology = Topology::parse(TINY, "tiny").unwrap();
        drop(Net::up(&topology).unwrap());
        assert!(is_up("tiny-test"));
        assert!(show(&topology).starts_with("tiny-test (up)"));
        let again = Net::up(&topology).unwrap_err().to_string();
        assert!(again.contains("is up already"), "{again}");
        assert!(down("tiny-test").unwrap());
        assert!(!is_up("tiny-test") && !down("tiny-test").unwrap());
    }

    #[test]
    fn half_a_network_of_a_dead_maker_is_stale() {
        if !can_run("half_a_network_of_a_dead_maker_is_stale") {
            return;
        }
        let name = "half-test";
        tool::run("ip", ["netns", "add", &format!("{}.n1", kept_prefix(name))]).unwrap();
        fs::create_dir_all(STATE).unwrap();
        // No process has this id.
        fs::write(mark_file(name), r#"{"pid":4294967295,"is_up":false}"#).unwrap();
        let removed = remove_stale().unwrap();
        assert!(removed.contains(&format!("{KEPT}{name}")), "{removed:?}");
        assert!(namespaces(&kept_prefix(name)).is_empty() && !mark_file(name).exists());
    }
}
