//! A farm of real processes: started, heard, signalled, started again, ended, and never left behind.

mod address;
pub(crate) mod consumers;
mod distant;
mod error;
mod watch;

use crate::shape::{CERTIFICATES, Clocks, Consumer, Ground, Shape};
use address::Plan;
pub(crate) use address::Spot;
use consumers::{ConsumerProcess, Work};
use distant::FarEnd;
pub(crate) use error::FarmError;
use rustix::process::Signal;
use sheaf_audit::Fate;
use sheaf_auth::{Authority, CertFiles, Validity};
use sheaf_farm::{Life, Lives, Process};
use sheaf_node::config::{FarmConfig, LedgerBackend};
use sheaf_node::status::AccountingStatus;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_testbed::clock::{self, Interrupted, wait_until};
use sheaf_testbed::hosts;
use sheaf_testbed::machine::{Disk, Folder, Host, Network};
use sheaf_testbed::relay::Relay;
use sheaf_testbed::tool;
use sheaf_zookeeper::server::{Ensemble, Home, ServerOptions};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
pub(crate) use watch::{Change, LEADS, Watch};

/// How long a farm may take to begin its run.
const START_MAX: Duration = Duration::from_secs(60);
/// How often the ICN tells how its nodes do, in ms: the resolution of what is detected.
pub(crate) const STATUS_MS: u64 = 5;
/// Time that the nodes may take to end beyond the drain time.
const FAREWELL_MAX: Duration = Duration::from_secs(10);

/// The event log of one life, and what was done to that.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    pub(crate) node: NodeId,
    pub(crate) fate: Fate,
    pub(crate) path: PathBuf,
}

/// Where a farm stands that makes no network of its own.
#[derive(Debug)]
pub(crate) struct Site {
    /// How many nodes; the rest of it is not asked.
    pub(crate) shape: Shape,
    /// The farm file, but for addresses.
    pub(crate) config: FarmConfig,
    /// Where each node stands.
    pub(crate) spots: BTreeMap<NodeId, Spot>,
    /// How often the ICN tells how its nodes do, in ms.
    pub(crate) status_ms: u64,
    /// Weight of each EPN; 1 of those behind the last.
    pub(crate) weights: Vec<f64>,
    /// Work of the consumers of the EPNs, if these hold TFs.
    pub(crate) work: Option<Work>,
}

/// A farm. When it is dropped no process of it lives on.
#[derive(Debug)]
pub(crate) struct Farm {
    pub(crate) shape: Shape,
    /// All lives so far, in the order of their start.
    pub(crate) lives: Lives,
    /// Problems that no event log shows.
    pub(crate) problems: Vec<String>,
    /// Where TFs of EPN 0 are written, if that disk is small.
    pub(crate) disk: Option<Disk>,
    /// The ZooKeeper servers that keep its verdicts.
    pub(crate) ensemble: Option<Ensemble>,
    watch: Watch,
    status_ms: u64,
    program: PathBuf,
    config: FarmConfig,
    plan: Plan,
    folder: Folder,
    weights: Vec<f64>,
    consumers: Vec<ConsumerProcess>,
    _network: Option<Network>,
}

impl Farm {
    /// Starts a farm and waits until it makes TFs.
    ///
    /// # Errors
    ///
    /// All of [`FarmError`].
    pub(crate) fn start(shape: Shape, folder: Folder) -> Result<Self, FarmError> {
        let mut network = match shape.ground {
            Ground::Namespaces => Some(Network::make()?),
            Ground::Loopback | Ground::Relays | Ground::KeeperRelays => None,
        };
        let mut plan = Plan::make(&shape, network.as_mut())?;
        let mut config = shape.config(folder.path());
        let disk = make_disks(&shape, folder.path())?;
        plan.write_into(&mut config);
        let ensemble = match shape.ledger {
            LedgerBackend::Zookeeper => Some(start_servers()?),
            _ => None,
        };
        config.membership.servers = ensemble
            .as_ref()
            .map(Ensemble::addresses)
            .unwrap_or_default();
        if shape.ground == Ground::KeeperRelays {
            plan.add_keeper_relays(&config.membership.servers)?;
        }
        if shape.clocks == Clocks::Settable {
            write(&folder.file(WALL_CLOCK), "+0")?;
        }
        let mut farm = Self {
            shape,
            lives: Lives::default(),
            problems: Vec::new(),
            disk,
            ensemble,
            watch: Watch::default(),
            status_ms: STATUS_MS,
            program: tool::program()?,
            config,
            plan,
            folder,
            weights: Vec::new(),
            consumers: Vec::new(),
            _network: network,
        };
        let nodes = farm.all_nodes();
        if shape.ground == Ground::Namespaces {
            certify(&farm.folder.file(CERTIFICATES), &nodes)?;
        }
        for node in nodes {
            farm.launch(node)?;
        }
        farm.await_start()?;
        Ok(farm)
    }

    /// Starts a farm of one ICN on a network and with a farm file that are there, and waits until it makes TFs.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub(crate) fn start_at(site: Site, folder: Folder) -> Result<Self, FarmError> {
        let mut config = site.config;
        let plan = Plan::of_spots(site.spots);
        plan.write_into(&mut config);
        let mut farm = Self {
            shape: site.shape,
            lives: Lives::default(),
            problems: Vec::new(),
            disk: None,
            ensemble: None,
            watch: Watch::default(),
            status_ms: site.status_ms,
            program: tool::program()?,
            config,
            plan,
            folder,
            weights: site.weights,
            consumers: Vec::new(),
            _network: None,
        };
        for session in farm.sessions() {
            hosts::begin_run(&session)?;
        }
        if let Some(work) = &site.work {
            farm.start_consumers(work)?;
        }
        for node in farm.all_nodes() {
            farm.launch(node)?;
        }
        farm.await_start()?;
        Ok(farm)
    }

    /// All nodes, ICNs first.
    pub(crate) fn all_nodes(&self) -> Vec<NodeId> {
        let Shape {
            flps, epns, icns, ..
        } = self.shape;
        let icns = (0..icns).map(|index| NodeId {
            role: Role::Icn,
            index,
        });
        let flps = (0..flps).map(|index| FlpId(index).into());
        let epns = (0..epns).map(|index| EpnId(index).into());
        let nodes = icns.chain(flps).chain(epns);
        nodes.chain(self.shape.writers()).collect()
    }

    fn await_start(&mut self) -> Result<(), FarmError> {
        let nodes = self.all_nodes();
        let has_begun = wait_until::<FarmError>(START_MAX, || {
            self.reap();
            if let Some(life) = self.lives.iter().find(|life| !life.is_living()) {
                let (node, words) = (life.node, last_line(&life.log));
                return Err(FarmError::Ended { node, words });
            }
            Ok(self.watch.announced() > 0 && nodes.iter().all(|node| self.watch.is_up(*node)))
        })?;
        if has_begun {
            return Ok(());
        }
        Err(FarmError::NotBegun {
            seconds: START_MAX.as_secs(),
        })
    }

    /// Starts a process for `node`: its first life, or one more.
    ///
    /// # Errors
    ///
    /// What the operating system gives.
    pub(crate) fn launch(&mut self, node: NodeId) -> Result<(), FarmError> {
        let files = self.lives.next_files(node, self.folder.path());
        let session = self.plan.spot(node).session.clone();
        let mut process = match session {
            None => Process::spawn(self.command(node, &files.events)?, &files.log)?,
            Some(session) => {
                let command = self.distant_command(node, &session, &files.events)?;
                Process::spawn_remote(command, &files.log, FarEnd::through)?
            }
        };
        process.listen(self.watch.listener(node))?;
        self.lives.begin(node, files, process);
        Ok(())
    }

    fn command(&self, node: NodeId, events: &Path) -> Result<Command, FarmError> {
        let spot = self.plan.spot(node);
        let file = self.write_farm_file(node, spot)?;
        let mut command = self.wrapped(node, spot);
        command.args(self.words(node, &file.to_string_lossy(), &events.to_string_lossy()));
        command.arg("--parent").arg(std::process::id().to_string());
        // A Ctrl-C at the terminal goes to the whole process group: it is for the experiment alone.
        command.process_group(0);
        command.env_remove("RUST_LOG");
        Ok(command)
    }

    /// Returns the command line that starts `node`.
    fn words(&self, node: NodeId, file: &str, events: &str) -> Vec<String> {
        let (role, index) = (node.role.to_string(), node.index.to_string());
        let listen = &self.plan.spot(node).listen;
        let mut words = vec![
            "run",
            role.as_str(),
            "--config",
            file,
            "--events",
            events,
            "--index",
            &index,
        ];
        let status_ms = self.status_ms.to_string();
        if matches!(node.role, Role::Icn | Role::Epn) {
            words.extend(["--listen", listen]);
        }
        if node.role == Role::Icn {
            words.extend(["--status-ms", &status_ms]);
        }
        words.into_iter().map(str::to_owned).collect()
    }

    /// The program, or what starts it in its namespace or with its clock.
    fn wrapped(&self, node: NodeId, spot: &Spot) -> Command {
        let is_odd = node.role != Role::Icn && node.index == 0;
        if let Some(host) = &spot.host {
            let mut command = tool::command("ip");
            command
                .args(["netns", "exec", &host.namespace])
                .arg(&self.program);
            return command;
        }
        match self.shape.clocks {
            Clocks::Ahead(seconds) if is_odd => {
                let mut command = tool::command("unshare");
                command.args(["-T", "--monotonic"]).arg(seconds.to_string());
                command.arg("--").arg(&self.program);
                command
            }
            Clocks::Settable if is_odd => {
                let mut command = Command::new(&self.program);
                command.env("LD_PRELOAD", tool::faketime_library().unwrap_or_default());
                command.env("FAKETIME_TIMESTAMP_FILE", self.folder.file(WALL_CLOCK));
                command.env("FAKETIME_NO_CACHE", "1");
                command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
                command.env("DONT_FAKE_MONOTONIC", "1");
                command
            }
            _ => Command::new(&self.program),
        }
    }

    /// Each node has its own: they differ in where they find each other.
    fn write_farm_file(&self, node: NodeId, spot: &Spot) -> Result<PathBuf, FarmError> {
        let mut config = self.config.clone();
        if let Some(icn) = &spot.icn {
            config.icn.address.clone_from(icn);
        }
        config.epn.advertise.clone_from(&spot.advertise);
        if node.role == Role::Epn {
            let weight = self.weights.get(usize::from(node.index));
            config.epn.weight = weight.copied().unwrap_or(config.epn.weight);
        }
        let keepers = self.plan.keeper_relays(node);
        if !keepers.is_empty() {
            let addresses = keepers.iter().map(|relay| relay.address().to_owned());
            config.membership.servers = addresses.collect();
        }
        if let (Role::Flp, Some(stfs)) = (node.role, self.shape.hold_stfs) {
            config.flp.hold_stfs_max = stfs;
            // A hold that does not outlast a failure is refused. In an FLP of a paced farm this rate only serves
            // that check: the ICN says what the rate is.
            config.icn.scheduler.paced_rate_hz = 1.0;
        }
        let path = self
            .folder
            .file(&format!("{}-{}.toml", node.role, node.index));
        let text = config
            .to_toml()
            .map_err(|error| FarmError::FarmFile(error.to_string()))?;
        write(&path, &text)?;
        Ok(path)
    }

    /// Puts the wall clock of those who have a settable one `days` ahead.
    ///
    /// # Errors
    ///
    /// What writing a file gives.
    pub(crate) fn set_wall_clock(&self, days: i32) -> Result<(), FarmError> {
        write(&self.folder.file(WALL_CLOCK), &format!("{days:+}d"))
    }

    /// The living process of `node`.
    pub(crate) fn living(&mut self, node: NodeId) -> Option<&mut Life> {
        self.lives.living(node)
    }

    /// Sends `signal` to the living process of `node`; `false` if there is none. One that is killed is reaped.
    pub(crate) fn signal(&mut self, node: NodeId, signal: Signal) -> bool {
        let Some(life) = self.living(node) else {
            return false;
        };
        let is_sent = life.signal(signal);
        if signal == Signal::KILL {
            life.process.wait();
            self.watch.forget(node);
        }
        is_sent
    }

    /// Ends the run as an operator of several ICNs does: with `sheaf ctl stop`.
    fn stop_run(&mut self) {
        let (program, file) = (
            self.program.to_string_lossy(),
            self.folder.file("icn-0.toml"),
        );
        let file = file.to_string_lossy();
        let words = ["ctl", "stop", "--config", &file];
        let outcome = match self.host(NodeId::ICN) {
            None => tool::run(&program, words),
            Some(host) => {
                let inside = ["netns", "exec", &host.namespace, &program];
                tool::run("ip", inside.into_iter().chain(words))
            }
        };
        if let Err(error) = outcome {
            self.problems
                .push(format!("the run could not be stopped: {error}"));
            self.signal_all(Role::Flp, Signal::TERM);
        }
    }

    fn signal_all(&mut self, role: Role, signal: Signal) {
        let nodes = self.all_nodes();
        for node in nodes.into_iter().filter(|node| node.role == role) {
            self.signal(node, signal);
        }
    }

    /// Takes note that `node` cannot do its part for a while.
    pub(crate) fn disturb(&mut self, node: NodeId) {
        if let Some(life) = self.living(node) {
            life.fate = life.fate.max(Fate::Paused);
        }
    }

    /// Where `node` stands, if it has a namespace.
    pub(crate) fn host(&self, node: NodeId) -> Option<Host> {
        self.plan.spot(node).host.clone()
    }

    /// Where `node` listens.
    pub(crate) fn address(&self, node: NodeId) -> &str {
        &self.plan.spot(node).listen
    }

    /// The relay before the data port of an EPN, or between a node and the ICN.
    pub(crate) fn relays(&self) -> &BTreeMap<&'static str, Relay> {
        self.plan.relays()
    }

    /// The relays between `node` and each ZooKeeper server, if there are any.
    pub(crate) fn keeper_relays(&self, node: NodeId) -> &[Relay] {
        self.plan.keeper_relays(node)
    }

    /// Returns the output of the nodes so far.
    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Waits until every node lives and is in good standing with the ICN.
    ///
    /// # Errors
    ///
    /// [`Interrupted`].
    pub(crate) fn await_all_up(&mut self, patience: Duration) -> Result<bool, Interrupted> {
        let nodes = self.all_nodes();
        wait_until(patience, || {
            self.reap();
            let is_up = |node: &NodeId| self.watch.is_up(*node) && self.has_epns(*node);
            Ok(self.watch.leader().is_some() && nodes.iter().all(is_up))
        })
    }

    /// Whether every EPN has found the life of `node` that lives now, if that is a writer node: an EPN tries one that
    /// it cannot reach once a second at last, and no status line tells.
    fn has_epns(&self, node: NodeId) -> bool {
        if node.role != Role::Writer {
            return true;
        }
        let mut lives = self.lives.iter();
        let life = lives.find(|life| life.node == node && life.is_living());
        let log = life.and_then(|life| std::fs::read_to_string(&life.log).ok());
        let hellos = log.map_or(0, |log| log.matches("An EPN hands TFs over").count());
        hellos >= usize::from(self.shape.epns)
    }

    /// The event logs of all lives.
    pub(crate) fn logs(&self) -> Vec<Log> {
        let log = |life: &Life| Log {
            node: life.node,
            fate: life.fate,
            path: life.events.clone(),
        };
        self.lives.iter().map(log).collect()
    }

    /// The last accounting of the ICN, if there is one ICN and it printed it at its end: several may each
    /// have missed what the other one decided.
    pub(crate) fn last_accounting(&self) -> Option<AccountingStatus> {
        (self.shape.icns == 1).then(|| self.watch.status().accounting)
    }

    /// Collects ended processes; one that ended by itself is a problem.
    pub(crate) fn reap(&mut self) {
        for life in self.lives.iter_mut().filter(|life| life.is_living()) {
            let Some(status) = life.process.reap() else {
                continue;
            };
            self.watch.forget(life.node);
            if !life.may_end {
                let (node, words) = (life.node, last_line(&life.log));
                self.problems
                    .push(format!("{node} ended by itself ({status}): {words}"));
            }
        }
    }

    /// The run ends by itself: no end of a process is a problem, as long as it is in order.
    pub(crate) fn let_all_end(&mut self) {
        for life in self.lives.iter_mut() {
            life.may_end = true;
        }
    }

    /// Takes note that `node` may end from now on without that being a problem.
    pub(crate) fn let_end(&mut self, node: NodeId, fate: Fate) {
        if let Some(life) = self.living(node) {
            life.may_end = true;
            life.fate = life.fate.max(fate);
        }
    }

    /// Ends the run as an operator would, and waits until all processes have ended. Those that do not end are
    /// killed, and that is a problem.
    ///
    /// # Errors
    ///
    /// [`Interrupted`].
    pub(crate) fn end(&mut self) -> Result<(), Interrupted> {
        self.reap();
        for life in self.lives.iter_mut().filter(|life| life.is_living()) {
            life.may_end = true;
            life.signal(Signal::CONT);
        }
        if self.shape.icns > 1 {
            // One of several ICNs that gets SIGTERM transfers the leadership.
            self.stop_run();
        } else {
            self.signal_all(Role::Icn, Signal::TERM);
        }
        let drain = Duration::from_millis(self.config.icn.scheduler.drain_ms);
        let have_ended = wait_until::<Interrupted>(2 * drain + FAREWELL_MAX, || {
            self.reap();
            let living = self.lives.living_nodes();
            let is_last = |node: &NodeId| match node.role {
                Role::Icn => self.shape.icns > 1,
                role => role == Role::Writer,
            };
            Ok(living.iter().all(is_last))
        })? && self.lives.living_nodes().is_empty();
        // Of several ICNs, those that stand by do not end with the run; writer nodes end with none.
        self.signal_all(Role::Icn, Signal::TERM);
        self.signal_all(Role::Writer, Signal::TERM);
        let have_ended = have_ended
            || wait_until::<Interrupted>(FAREWELL_MAX, || {
                self.reap();
                Ok(self.lives.living_nodes().is_empty())
            })?;
        if !have_ended {
            for node in self.lives.living_nodes() {
                self.problems
                    .push(format!("{node} did not end and had to be killed"));
                self.signal(node, Signal::KILL);
            }
        }
        for life in self.lives.iter() {
            if let (Some(status), Fate::Ended | Fate::Paused) = (life.ended(), life.fate)
                && !status.success()
                && !self
                    .problems
                    .iter()
                    .any(|text| text.contains(&life.node.to_string()))
            {
                let (node, words) = (life.node, last_line(&life.log));
                self.problems
                    .push(format!("{node} ended with {status}: {words}"));
            }
        }
        for life in self.lives.iter_mut() {
            life.process.finish_output();
        }
        self.end_consumers();
        self.fetch_logs();
        Ok(())
    }

    /// Path of that folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder of its files.
    pub(crate) fn folder(&mut self) -> &mut Folder {
        &mut self.folder
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        self.lives.end();
        for session in self.sessions() {
            if let Err(error) = hosts::end_run(&session) {
                tracing::warn!(%error, "A host may have something left of a run");
            }
        }
    }
}

/// The file from which nodes with a settable clock read it.
const WALL_CLOCK: &str = "wall-clock";

/// Three ZooKeeper servers, with the short times of tests.
fn start_servers() -> Result<Ensemble, FarmError> {
    let home = Home::find()?;
    let options = ServerOptions {
        place: servers_place(),
        ..ServerOptions::ensemble()
    };
    Ok(Ensemble::start(&home, &options)?)
}

/// In memory, unless `TMPDIR` says otherwise. These servers stand for machines with disks of their own: on the one disk
/// of this machine they wait for each other's `fsync`, and for those of the farm.
fn servers_place() -> Option<PathBuf> {
    let memory = Path::new("/dev/shm");
    let is_free = std::env::var_os("TMPDIR").is_none() && memory.is_dir();
    is_free.then(|| memory.to_owned())
}

fn make_disks(shape: &Shape, folder: &Path) -> Result<Option<Disk>, FarmError> {
    if shape.consumer == Consumer::Verify {
        return Ok(None);
    }
    for index in 0..shape.epns {
        for disk in ["epn", "second"] {
            let path = folder.join(format!("{disk}-{index}"));
            std::fs::create_dir_all(&path)
                .map_err(FarmError::io(format!("make {}", path.display())))?;
        }
    }
    match shape.consumer {
        Consumer::SmallDisk(bytes)
        | Consumer::StreamsOnSmallDisk(bytes)
        | Consumer::StreamsOnSmallAndLarge(bytes) => {
            Ok(Some(Disk::mount(&folder.join("epn-0"), bytes)?))
        }
        _ => Ok(None),
    }
}

/// Makes a CA, and a certificate for each of `nodes`, as an operator does with `sheaf cert`.
fn certify(directory: &Path, nodes: &[NodeId]) -> Result<(), FarmError> {
    let validity = Validity::of_days(1);
    let authority = Authority::new("lab", validity)?;
    authority.save(directory, true)?;
    let operator = NodeId {
        role: Role::Operator,
        index: 0,
    };
    for node in nodes.iter().chain([&operator]) {
        let files = CertFiles::in_directory(directory, *node);
        let issued = authority.issue(*node, validity)?;
        issued.save(&files, true)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), FarmError> {
    std::fs::write(path, text).map_err(FarmError::io(format!("write {}", path.display())))
}

/// With what a process gave up, as far as its log tells.
fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    last.unwrap_or("it left no message").to_owned()
}

/// The time now, as event logs have it.
pub(crate) fn now_ns() -> u64 {
    clock::now_ns()
}
