//! A farm that is started by hand, on hosts of a fleet: started, stopped, its logs fetched. It outlives this process.

use crate::farm::Spot;
use crate::place::{Misfit, Placement};
use sheaf_node::config::FarmConfig;
use sheaf_node::status::FarmStatus;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{Interrupted, let_pass, wait_until};
use sheaf_testbed::hosts::{Facts, Fleet, PushError, Session, SessionError, script};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Folder of a farm that was started by hand, below the host's folder.
const FARM: &str = "farm";
/// How long a farm may take to begin its run.
const START_MAX: Duration = Duration::from_secs(60);
/// How often hosts are asked how far they are.
const LOOK: Duration = Duration::from_millis(200);
/// How often the ICN tells how its nodes do, in ms: what is waited for at the start.
const STATUS_MS: u64 = 500;
/// Time that nodes without an ICN may stay before they are asked to end.
const LEFT_BEHIND: Duration = Duration::from_secs(2);

/// Reasons why a farm does not start. No process of it is left.
#[derive(Debug, Error)]
pub enum StartError {
    /// The hosts have no room for it.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// A farm of several ICNs.
    #[error("icn.addresses: found {found}, expected none: hosts carry one ICN")]
    Icns {
        /// Addresses of ICNs in the farm file.
        found: usize,
    },
    /// The farm file has no TOML form.
    #[error("cannot write a farm file: {0}")]
    FarmFile(String),
    /// A host is not ready.
    #[error(transparent)]
    Push(#[from] PushError),
    /// A host did not do what it was asked.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A node ended.
    #[error("host {host}: {said}")]
    Ended {
        /// Where it was.
        host: String,
        /// The node, and the last line of its log.
        said: String,
    },
    /// No TF came.
    #[error("the run has not begun after {} s", START_MAX.as_secs())]
    NotBegun,
}

/// Reasons why a farm does not stop.
#[derive(Debug, Error)]
pub enum StopError {
    /// A host did not do what it was asked, or has processes at the end.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Reasons why the files of a farm are not fetched.
#[derive(Debug, Error)]
pub enum CollectError {
    /// The folder holds something, or there was nothing to fetch. Nothing in it was changed.
    #[error("{}: {why}", folder.display())]
    Refused {
        /// The folder.
        folder: PathBuf,
        /// Reason of the refusal.
        why: &'static str,
    },
    /// A host did not do what it was asked.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A file of this machine.
    #[error(transparent)]
    Io(#[from] IoError),
}

/// Which node is where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The node.
    pub node: NodeId,
    /// Host.
    pub host: String,
    /// Where it listens, if it does.
    pub listen: Option<String>,
}

/// Starts a farm with the nodes that `config` says, and waits until it makes TFs. Addresses of nodes in `config`
/// are replaced. If it does not begin, no process of it is left.
///
/// # Errors
///
/// All of [`StartError`].
pub fn start(fleet: &Fleet, mut config: FarmConfig) -> Result<Vec<Started>, StartError> {
    let spots = spots(fleet, config.run.flps, config.run.epns)?;
    config.icn.address.clone_from(&spots[&NodeId::ICN].listen);
    if !config.icn.addresses.is_empty() {
        let found = config.icn.addresses.len();
        return Err(StartError::Icns { found });
    }
    let text = config
        .to_toml()
        .map_err(|error| StartError::FarmFile(error.to_string()))?;
    fleet.ready()?;
    let file = format!("{FARM}/farm.toml");
    fleet.on_all(|session| {
        let folder = &session.host().folder;
        session.run("make room for a farm", MAKE_FARM, &[folder, FARM])?;
        session.write(&format!("{folder}/{file}"), &text)
    })?;
    let nodes = nodes(&spots);
    let begun = launch(&nodes).map_err(StartError::from);
    let begun = begun.and_then(|()| await_start(fleet, &nodes));
    if let Err(error) = begun {
        fleet.kill_all()?;
        return Err(error);
    }
    let started = nodes.into_iter().map(|(node, session, listen)| Started {
        node,
        host: session.host().name.clone(),
        listen: (!listen.is_empty()).then(|| listen.to_owned()),
    });
    Ok(started.collect())
}

/// Which node stands where, with so many FLPs and EPNs.
///
/// # Errors
///
/// [`Misfit`] if they have no room.
pub(crate) fn spots(fleet: &Fleet, flps: u32, epns: u32) -> Result<BTreeMap<NodeId, Spot>, Misfit> {
    let placement = Placement::on_hosts(fleet.inventory(), flps, epns)?;
    let slots = fleet.inventory().slots();
    let spot = |node: NodeId, slot: usize| {
        let slot = &slots[slot];
        let session = fleet.sessions()[slot.host].clone();
        let host = session.host();
        // Control goes over the second network if there is one, STFs over the first.
        let listen = match node.role {
            Role::Icn => format!("{}:{}", host.control, slot.port),
            Role::Epn => format!("{}:{}", host.primary, slot.port),
            _ => String::new(),
        };
        let spot = Spot {
            session: Some(session),
            listen,
            ..Spot::default()
        };
        (node, spot)
    };
    let icn = std::iter::once((NodeId::ICN, placement.icn));
    let flps = (0..).map(|index| FlpId(index).into()).zip(placement.flps);
    let epns = (0..).map(|index| EpnId(index).into()).zip(placement.epns);
    let nodes = icn.chain(flps).chain(epns);
    Ok(nodes.map(|(node, slot)| spot(node, slot)).collect())
}

fn await_start(fleet: &Fleet, nodes: &[Node<'_>]) -> Result<(), StartError> {
    let icn = nodes.iter().find(|(node, ..)| *node == NodeId::ICN);
    let (_, icn, _) = icn.expect("every farm has one");
    let has_begun = wait_until::<StartError>(START_MAX, || {
        let words = [icn.host().folder.as_str(), FARM, "icn-0.out"];
        let said = icn.run("tell how the farm is", LAST_LINE, &words)?;
        let status = serde_json::from_str::<FarmStatus>(said.trim());
        if status.is_ok_and(|status| status.accounting.announced > 0) {
            return Ok(true);
        }
        let ended = fleet.on_all(|session| {
            let host = session.host();
            let words = [host.folder.as_str(), FARM];
            let said = session.run("tell who ended", &script(WHO_ENDED), &words)?;
            Ok((host.name.clone(), said.trim().to_owned()))
        })?;
        if let Some((host, said)) = ended.into_iter().find(|(_, said)| !said.is_empty()) {
            return Err(StartError::Ended { host, said });
        }
        let_pass(LOOK)?;
        Ok(false)
    })?;
    if has_begun {
        Ok(())
    } else {
        Err(StartError::NotBegun)
    }
}

/// Ends the run of a farm: the ICN stops it, the farm drains, all nodes exit. Waits until no process is left,
/// for `patience` at most; gives how many there were.
///
/// # Errors
///
/// [`HostError::Busy`](sheaf_testbed::hosts::HostError::Busy) of the first host where something is left then.
pub fn stop(fleet: &Fleet, patience: Duration) -> Result<u64, StopError> {
    let at_first: u64 = running(fleet)?.iter().sum();
    let has_icn = signal(fleet, "TERM", "icn")? > 0;
    if !has_icn {
        signal(fleet, "TERM", "")?;
    }
    let is_idle = || -> Result<bool, StopError> {
        let is_idle = running(fleet)?.iter().all(|running| *running == 0);
        let_pass(LOOK)?;
        Ok(is_idle)
    };
    wait_until::<StopError>(patience, || {
        let is_gone = count(fleet, "icn")? == 0;
        let_pass(LOOK)?;
        Ok(is_gone)
    })?;
    if has_icn && !wait_until(LEFT_BEHIND.min(patience), is_idle)? {
        // These had no stream to the ICN.
        signal(fleet, "TERM", "")?;
    }
    if wait_until(patience, is_idle)? {
        return Ok(at_first);
    }
    fleet.on_all(|session| Ok(Facts::ask(session)?.check_idle(session)?))?;
    Ok(at_first)
}

/// Fetches the files of a farm from all hosts into the folder `out`, which must be new or empty. Gives how many.
///
/// # Errors
///
/// [`CollectError::Refused`] if there is something in `out`, or if there was nothing to fetch.
pub fn collect(fleet: &Fleet, out: &Path) -> Result<u64, CollectError> {
    let refuse = |why| CollectError::Refused {
        folder: out.to_owned(),
        why,
    };
    if std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(refuse(
            "it holds something, expected a new or an empty folder",
        ));
    }
    std::fs::create_dir_all(out).map_err(IoError::of(format!("make {}", out.display())))?;
    let collected = fleet.on_all(|session| {
        let host = session.host();
        let said = session.run("list its files", LIST, &[&host.folder, FARM])?;
        // Names come from elsewhere: none may lead out of the folder.
        let names = said
            .lines()
            .filter(|name| !name.contains('/') && !name.starts_with('.'));
        let mut count = 0;
        for name in names {
            session.copy_from(&format!("{}/{FARM}/{name}", host.folder), &out.join(name))?;
            count += 1;
        }
        let facts = Facts::ask(session)?;
        if facts.running == 0 && count > 0 {
            session.run(
                "mark them as fetched",
                MARK_COLLECTED,
                &[&host.folder, FARM],
            )?;
        }
        Ok((count, host.name.clone(), facts))
    })?;
    let count = collected.iter().map(|(count, ..)| count).sum();
    if count == 0 {
        return Err(refuse("no host has files of a farm"));
    }
    let facts: BTreeMap<&String, &Facts> = collected
        .iter()
        .map(|(_, name, facts)| (name, facts))
        .collect();
    crate::output::write_json(&out.join("hosts.json"), &facts)?;
    Ok(count)
}

/// Processes of each host.
fn running(fleet: &Fleet) -> Result<Vec<u64>, SessionError> {
    fleet.on_all(|session| {
        let said = session.run(
            "tell what runs",
            &script("pids | wc -l"),
            &[&session.host().folder],
        )?;
        Ok(said.trim().parse().unwrap_or(0))
    })
}

/// Processes of `role` on all hosts.
fn count(fleet: &Fleet, role: &str) -> Result<u64, SessionError> {
    signal(fleet, "0", role)
}

/// Sends `signal` to the nodes of `role`, or to all if it is empty; gives how many there were.
fn signal(fleet: &Fleet, signal: &str, role: &str) -> Result<u64, SessionError> {
    let role = if role.is_empty() { "any" } else { role };
    let counts = fleet.on_all(|session| {
        let words = [session.host().folder.as_str(), signal, role];
        let said = session.run("signal its nodes", &script(SIGNAL), &words)?;
        Ok(said.trim().parse::<u64>().unwrap_or(0))
    })?;
    Ok(counts.iter().sum())
}

/// A node, the connection to its host, and where it listens.
type Node<'a> = (NodeId, &'a Session, &'a str);

fn nodes(spots: &BTreeMap<NodeId, Spot>) -> Vec<Node<'_>> {
    let all = spots.iter();
    all.filter_map(|(node, spot)| Some((*node, spot.session.as_deref()?, spot.listen.as_str())))
        .collect()
}

/// Starts processes that go on when this one ends.
fn launch(nodes: &[Node<'_>]) -> Result<(), SessionError> {
    let status_ms = STATUS_MS.to_string();
    for (node, session, listen) in nodes {
        let (role, index) = (node.role.to_string(), node.index.to_string());
        let name = format!("{role}-{index}");
        let folder = session.host().folder.as_str();
        let mut words = vec![folder, FARM, &name, &role, "--index", &index];
        match node.role {
            Role::Icn => words.extend(["--status-ms", &status_ms]),
            Role::Epn => words.extend(["--listen", listen]),
            _ => {}
        }
        session.run(&format!("start {node}"), LAUNCH, &words)?;
    }
    Ok(())
}

/// `$1` is the folder, `$2` that of the farm. What was not fetched stays.
const MAKE_FARM: &str = r#"
set -e
cd "$1"
if [ -n "$(ls "$2" 2>/dev/null)" ] && [ ! -e "$2/.collected" ]; then
  echo "there are files of an earlier farm: \`sheaf lab hosts collect\` fetches them, \`purge\` removes them" >&2
  exit 1
fi
rm -rf "$2"
mkdir "$2"
"#;

/// `$1` is the folder, `$2` that of the farm, `$3` the name of the node; the rest is what it is started with.
const LAUNCH: &str = r#"
cd "$1/$2" || exit 1
name=$3
shift 3
setsid ../sheaf run "$@" --config farm.toml --events "$name.events" >"$name.out" 2>"$name.log" </dev/null &
echo "$!" >"$name.pid"
"#;

/// `$1` is the folder, `$2` that of the farm, `$3` a file.
const LAST_LINE: &str = r#"tail -n 1 "$1/$2/$3" 2>/dev/null || true"#;

/// `$1` is the folder, `$2` that of the farm. Prints what the first node that does not run said last.
const WHO_ENDED: &str = r#"
running=$(pids)
cd "$folder/$2" || exit 1
for file in *.pid; do
  name=${file%.pid}
  echo "$running" | grep -qx "$(cat "$file")" && continue
  echo "$name ended: $(tail -n 1 "$name.log")"
  break
done
"#;

const LIST: &str = r#"ls "$1/$2" 2>/dev/null || true"#;

const MARK_COLLECTED: &str = r#": >"$1/$2/.collected""#;

/// `$1` is the folder, `$2` the signal, `$3` a role or `any`. Prints how many there were.
const SIGNAL: &str = r#"
count=0
for pid in $(pids); do
  role=$(tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | sed -n 3p)
  [ "$3" = any ] || [ "$3" = "$role" ] || continue
  kill -s "$2" "$pid" 2>/dev/null && count=$((count + 1))
done
echo "$count"
"#;
