//! `sheaf serve demo`: TFs built, written, and fetched at one address while a server is drained and started again.

mod fetch;
mod ground;

use super::client::Directors;
use crate::{duration, fail, json_file, progress};
use anyhow::{Context as _, bail, ensure};
use fetch::{Crowd, Fault, Transfer, Wanted};
use ground::{Ground, Seat};
use serde::Serialize;
use sheaf_farm::{Process, RunDir};
use sheaf_serve::{Order, ServerStatus, ServiceStatus, Step};
use sheaf_stream_files::{Catalogue, FileState};
use sheaf_testbed::clock::{self, Interrupted};
use sheaf_testbed::net;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest time for a part of the demo to begin, and for a drain.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time that a transfer takes, about.
const TRANSFER_S: f64 = 2.0;
/// Server that is drained.
const DRAINED: usize = 1;

/// Show the whole way of TFs: built, written, fetched while a server is drained.
///
/// A farm builds TFs and writes them to files. Servers offer these files at one address, clients fetch them all the
/// time and compare every checksum with that of the writer. Meanwhile one server is drained, stopped, started again and
/// added. As root, servers, director and clients are in network namespaces, and bytes go from servers to clients past
/// the director (plane nft); else all is at loopback (plane userspace). Exit status: 0 if no transfer broke, every
/// checksum was right and the drained server got no new connection, 1 if not, 2 if the command line is wrong.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo sheaf serve demo                            a virtual address in namespaces
  sheaf serve demo                                 the same at loopback
  sheaf serve demo --hold                          go on until Ctrl-C, to try it with curl
  sheaf serve demo --files /data --clients 100 --json result.json")]
pub(super) struct DemoArgs {
    /// Carry connections by this plane; the default needs root for nft, and else takes userspace.
    #[arg(long, value_name = "PLANE", value_parser = ["nft", "userspace"])]
    plane: Option<String>,
    /// Start so many servers.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=20))]
    servers: u8,
    /// Start so many clients.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,
    /// Fetch for so long at least.
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = duration::parse)]
    duration: Duration,
    /// Serve this folder of a writer, with its catalogue, and build no TFs.
    #[arg(long, value_name = "DIR")]
    files: Option<PathBuf>,
    /// Leave servers and director running at the end, until SIGINT or SIGTERM.
    #[arg(long)]
    hold: bool,
    /// Keep files, logs and gateway.toml in this directory, which must be new or empty.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the result as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Result of the demo.
#[derive(Clone, Debug, Serialize)]
struct Outcome {
    plane: &'static str,
    files: usize,
    file_bytes: u64,
    clients: u16,
    transfers: usize,
    bytes: u64,
    /// Transfers that did not come to their end.
    broken: usize,
    /// Transfers whose bytes were not those that were written.
    wrong: usize,
    /// Name of the server that was drained.
    drained: String,
    /// Time from the order to the end of its last connection, in seconds.
    drain_s: f64,
    /// Connections that it got while it was drained.
    strays: usize,
    /// Transfers of each server, by name.
    servers: BTreeMap<String, Share>,
    /// First faults.
    faults: Vec<String>,
}

/// Transfers of one server.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Share {
    transfers: usize,
    bytes: u64,
}

impl Outcome {
    fn is_good(&self) -> bool {
        self.broken == 0 && self.wrong == 0 && self.strays == 0 && self.transfers > 0
    }

    fn text(&self) -> String {
        let mut text = String::from("  SERVER     TRANSFERS           MB\n");
        for (name, Share { transfers, bytes }) in &self.servers {
            let megabytes = *bytes as f64 / 1e6;
            text += &format!("  {name:<9} {transfers:>10} {megabytes:>12.1}\n");
        }
        text += &format!(
            "{} transfers of {} files: {} broken, {} with a wrong checksum; {} drained in {:.1} s, {} stray connections {}\n",
            self.transfers,
            self.files,
            self.broken,
            self.wrong,
            self.drained,
            self.drain_s,
            self.strays,
            if self.is_good() { '✔' } else { '✘' }
        );
        for fault in &self.faults {
            text += &format!("  {fault}\n");
        }
        text
    }
}

/// Runs the demo.
///
/// # Errors
///
/// What is wrong with the arguments, or what did not begin.
pub(super) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    json_file::check(args.json.as_deref())?;
    clock::end_on_signals().context("cannot handle signals")?;
    let has_site = has_site(args)?;
    let files = args.files.as_deref().map(wanted).transpose();
    let files = files.map_err(|error| fail::bad_use(fail::message(&error)))?;
    let mut dir = RunDir::make(args.out.as_deref()).map_err(fail::bad_use)?;
    let result = tell(args, &dir, has_site, files);
    if !result.as_ref().is_ok_and(Outcome::is_good) {
        dir.keep();
    }
    let outcome = result.with_context(|| match dir.kept() {
        Some(kept) => format!("the demo failed (logs in {})", kept.display()),
        None => "the demo failed".to_owned(),
    })?;
    let text = serde_json::to_string_pretty(&outcome).context("cannot write the result as JSON")?;
    json_file::tell(args.json.as_deref(), &outcome.text())?;
    if let Some(path) = &args.json {
        json_file::write(path, &(text + "\n"))?;
    }
    Ok(match outcome.is_good() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Returns whether the demo has namespaces, and says why not.
fn has_site(args: &DemoArgs) -> anyhow::Result<bool> {
    match (args.plane.as_deref(), net::needs()) {
        (Some("userspace"), _) => Ok(false),
        (Some(_), Err(why)) => Err(fail::bad_use(format!("--plane nft: {why}"))),
        (None, Err(why)) => {
            progress::line(format_args!("No namespaces ({why}): all at loopback"));
            Ok(false)
        }
        (_, Ok(())) => Ok(true),
    }
}

fn tell(
    args: &DemoArgs,
    dir: &RunDir,
    has_site: bool,
    files: Option<Vec<Wanted>>,
) -> anyhow::Result<Outcome> {
    let program = sheaf_node::program::path().context("cannot find this program")?;
    let made = dir.file("files");
    let folder = args.files.as_deref().unwrap_or(&made);
    let files = match files {
        Some(files) => files,
        None => {
            build(&program, folder, &dir.file("farm.log"))?;
            wanted(folder)?
        }
    };
    let servers = usize::from(args.servers);
    let ground = match has_site {
        true => Ground::site(servers)?,
        false => Ground::here(servers)?,
    };
    let bytes: u64 = files.iter().map(|file| file.sums.bytes).sum();
    let stage = Stage::begin(ground, &program, folder, dir)?;
    progress::line(format_args!(
        "{} servers offer {} files, {:.1} MB, at {} (plane {})",
        stage.ground.servers.len(),
        files.len(),
        bytes as f64 / 1e6,
        stage.addresses(),
        stage.ground.plane
    ));
    let example = files[0].path.clone();
    let outcome = stage.fetch(args, files)?;
    if args.hold {
        stage.hold(&outcome, &example)?;
    }
    Ok(outcome)
}

/// Runs a farm that writes TFs to files in `folder`.
fn build(program: &Path, folder: &Path, log: &Path) -> anyhow::Result<()> {
    const EPNS: usize = 5;
    progress::line("A farm builds TFs of detector data and writes them to files");
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut command = Command::new(program);
    command.args(["demo", "--no-tui", "--no-monitor", "--epns"]);
    command.arg(EPNS.to_string());
    command.args(["--rate", "20", "--duration", "3s", "--sink"]);
    command.arg(format!("streams:{}", folder.display()));
    let mut farm = Process::spawn(command, log).context("cannot start the farm")?;
    let is_over = clock::wait_until(PATIENCE, || Ok::<_, Interrupted>(farm.reap().is_some()))?;
    ensure!(is_over, "the farm has not ended after {PATIENCE:?}");
    let status = farm.reap().context("the farm was not awaited")?;
    ensure!(
        status.success(),
        "the farm ended with {status}, see {}",
        log.display()
    );
    Ok(())
}

/// Returns the closed files below `folder` by the catalogues of their writers.
fn wanted(folder: &Path) -> anyhow::Result<Vec<Wanted>> {
    let read = || format!("cannot read {}", folder.display());
    let mut folders = vec![(String::new(), folder.to_owned())];
    for entry in std::fs::read_dir(folder).with_context(read)? {
        let entry = entry.with_context(read)?;
        if entry.path().is_dir() {
            let name = entry.file_name().to_string_lossy().into_owned();
            folders.push((name + "/", entry.path()));
        }
    }
    let mut files = Vec::new();
    for (prefix, folder) in folders {
        if !Catalogue::is_in(&folder) {
            continue;
        }
        for row in Catalogue::read(&folder)?.rows(Some(FileState::Closed))? {
            let path = format!("{prefix}{}", row.file);
            files.push(Wanted {
                path,
                sums: row.sums,
            });
        }
    }
    ensure!(
        !files.is_empty(),
        "found no closed file of a catalogue in {} or a folder in it",
        folder.display()
    );
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

/// Servers, agents and a director that run.
struct Stage<'a> {
    program: &'a Path,
    folder: &'a Path,
    dir: &'a RunDir,
    servers: std::cell::RefCell<Vec<Process>>,
    _agents: Vec<Process>,
    _director: Process,
    /// After the processes, so that it goes last.
    ground: Ground,
}

impl<'a> Stage<'a> {
    fn begin(
        ground: Ground,
        program: &'a Path,
        folder: &'a Path,
        dir: &'a RunDir,
    ) -> anyhow::Result<Self> {
        let config = dir.file("gateway.toml");
        std::fs::write(&config, ground.gateway_toml())
            .with_context(|| format!("cannot write {}", config.display()))?;
        let mut agents = Vec::new();
        for (index, server) in ground.servers.iter().enumerate() {
            let mut command = ground.command(Seat::Server(index), program);
            command.args(["serve", "agent", "--listen", &server.agent.to_string()]);
            let log = dir.file(&format!("agent-{}.log", server.name));
            agents.push(Process::spawn(command, &log)?);
        }
        let mut command = ground.command(Seat::Director, program);
        command.args(["serve", "run", "--config"]).arg(&config);
        let director = Process::spawn(command, &dir.file("director.log"))?;
        let stage = Self {
            program,
            folder,
            dir,
            servers: std::cell::RefCell::default(),
            _agents: agents,
            _director: director,
            ground,
        };
        for index in 0..stage.ground.servers.len() {
            let server = stage.server(index)?;
            stage.servers.borrow_mut().push(server);
        }
        stage.wait("every server is up", |service| {
            let are_up = service.servers.iter().all(|server| server.is_up);
            are_up && service.step == Step::Steady && service.slots > 0
        })?;
        Ok(stage)
    }

    /// Starts the program of a server.
    fn server(&self, index: usize) -> anyhow::Result<Process> {
        let server = &self.ground.servers[index];
        let mut command = self.ground.command(Seat::Server(index), self.program);
        command.args(["files", "serve"]).arg(self.folder);
        command.args(["--insecure", "--listen", &server.listen.to_string()]);
        command.args(["--name", &server.name, "--threads", "1"]);
        let log = self.dir.file(&format!("server-{}.log", server.name));
        Ok(Process::spawn(command, &log)?)
    }

    fn addresses(&self) -> String {
        let all = self.ground.service.iter();
        let all: Vec<String> = all.map(|one| format!("http://{one}")).collect();
        all.join(" and ")
    }

    fn order(&self, order: Order) -> anyhow::Result<()> {
        let director = self.ground.director;
        let send = move || Directors::new(&[director]).order("files", &order, false);
        self.ground.inside(Seat::Director, send)?.map(drop)
    }

    fn status(&self) -> anyhow::Result<ServiceStatus> {
        let director = self.ground.director;
        let ask = move || Directors::new(&[director]).status();
        let mut all = self.ground.inside(Seat::Director, ask)??;
        let services = all.pop().map(|status| status.services);
        let service = services.and_then(|services| services.into_iter().next());
        service.context("the director has no service")
    }

    /// Waits until the director tells a state that `is_reached`.
    fn wait(&self, what: &str, is_reached: impl Fn(&ServiceStatus) -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if status.as_ref().is_ok_and(&is_reached) {
                return Ok(());
            }
            if Instant::now() > end {
                let found = status.map(|status| format!("{status:?}"));
                bail!("not reached in {PATIENCE:?}: {what}; found {found:?}");
            }
            clock::let_pass(Duration::from_millis(50))?;
        }
    }

    /// Waits for a state of the server that is drained.
    fn wait_for(&self, what: &str, is_reached: fn(&ServerStatus) -> bool) -> anyhow::Result<()> {
        let name = &self.ground.servers[DRAINED].name;
        self.wait(&format!("{name} {what}"), |service| {
            let server = service.servers.iter().find(|server| server.name == *name);
            service.step == Step::Steady && server.is_some_and(is_reached)
        })
    }

    /// Lets clients fetch while a server is drained, stopped, started and added.
    fn fetch(&self, args: &DemoArgs, files: Vec<Wanted>) -> anyhow::Result<Outcome> {
        let bytes: u64 = files.iter().map(|file| file.sums.bytes).sum();
        let crowd = Arc::new(Crowd {
            pace: (bytes as f64 / files.len() as f64 / TRANSFER_S).max(1.0),
            addresses: self.ground.service.clone(),
            files,
            is_over: false.into(),
            under_way: 0.into(),
            done: Vec::new().into(),
        });
        let clients = usize::from(args.clients);
        let (orders, strays) = std::thread::scope(|scope| {
            let (ground, running) = (&self.ground, crowd.clone());
            let fetching =
                scope.spawn(move || ground.inside(Seat::Client, move || running.run(clients)));
            let told = self.drain(args.duration, &crowd);
            crowd.is_over.store(true, Ordering::Relaxed);
            match fetching.join() {
                Ok(result) => result?,
                Err(_) => bail!("a client has panicked"),
            }
            told
        })?;
        let drained = self.ground.servers[DRAINED].name.clone();
        let mut outcome = Outcome {
            plane: self.ground.plane,
            files: crowd.files.len(),
            file_bytes: bytes,
            clients: args.clients,
            transfers: 0,
            bytes: 0,
            broken: 0,
            wrong: 0,
            drain_s: orders.as_secs_f64(),
            strays: 0,
            servers: BTreeMap::new(),
            faults: Vec::new(),
            drained,
        };
        for transfer in crowd.done() {
            outcome.add(&transfer, strays);
        }
        Ok(outcome)
    }

    /// Drains a server, stops it, starts it again and adds it. Returns how long the drain took, and the time in which
    /// no new connection was to reach the server.
    fn drain(&self, duration: Duration, crowd: &Crowd) -> anyhow::Result<(Duration, [Instant; 2])> {
        let began = Instant::now();
        let server = self.ground.servers[DRAINED].name.clone();
        let say = |text: String| {
            let under_way = crowd.under_way.load(Ordering::Relaxed);
            progress::line(format_args!(
                "{:5.1} s  {text} ({under_way} transfers under way)",
                began.elapsed().as_secs_f64()
            ));
        };
        clock::let_pass(duration / 6)?;
        say(format!("{server} is drained: no new connection"));
        let ordered = Instant::now();
        let name = server.clone();
        self.order(Order::Drain { server: name })?;
        self.wait_for("has no slots", |server| server.slots == 0)?;
        let closed = Instant::now();
        self.wait_for("is drained", |server| server.is_drained)?;
        let drain = ordered.elapsed();
        say(format!("{server} has no connection left, and is stopped"));
        let stopped = self.servers.borrow_mut().remove(DRAINED);
        drop(stopped);
        self.wait_for("is down", |server| !server.is_up)?;
        let again = self.server(DRAINED)?;
        self.servers.borrow_mut().insert(DRAINED, again);
        self.wait_for("is up", |server| server.is_up)?;
        say(format!("{server} is started again and added"));
        let opened = Instant::now();
        let name = server.clone();
        self.order(Order::Undrain { server: name })?;
        clock::let_pass(duration.saturating_sub(began.elapsed()))?;
        say("The last transfers end".to_owned());
        Ok((drain, [closed, opened]))
    }

    /// Waits for a signal, and says meanwhile how to try the service.
    fn hold(&self, outcome: &Outcome, example: &str) -> anyhow::Result<()> {
        progress::line(outcome.text().trim_end());
        let (client, director) = (
            self.ground.prefix(Seat::Client),
            self.ground.prefix(Seat::Director),
        );
        let program = self.program.display();
        progress::line(format_args!(
            "Servers and director run until Ctrl-C. Try:\n  {client}curl -sI http://{}/{example}\n  \
             {director}{program} serve status --director {}\n  \
             {director}{program} serve drain files/s1 --director {}",
            self.ground.service[0], self.ground.director, self.ground.director
        ));
        while clock::let_pass(Duration::from_secs(1)).is_ok() {}
        Ok(())
    }
}

impl Outcome {
    /// Counts a transfer; one to the drained server that began in the time of `closed` is a stray.
    fn add(&mut self, transfer: &Transfer, closed: [Instant; 2]) {
        const FAULTS: usize = 10;
        self.transfers += 1;
        self.bytes += transfer.bytes;
        let name = transfer.server.clone().unwrap_or_else(|| "none".to_owned());
        let is_closed = (closed[0]..closed[1]).contains(&transfer.began);
        self.strays += usize::from(is_closed && name == self.drained);
        let (text, count) = match &transfer.error {
            None => (None, None),
            Some(Fault::Broken(text)) => (Some(text), Some(&mut self.broken)),
            Some(Fault::Differs(text)) => (Some(text), Some(&mut self.wrong)),
        };
        if let Some(count) = count {
            *count += 1;
        }
        if let Some(text) = text.filter(|_| self.faults.len() < FAULTS) {
            self.faults.push(format!("{name}: {text}"));
        }
        let share = self.servers.entry(name).or_default();
        share.transfers += 1;
        share.bytes += transfer.bytes;
    }
}
