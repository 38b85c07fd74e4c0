//! Stage of a load test: a site of namespaces with servers that have objects.

use super::case::Sample;
use super::drains::{Drains, Running};
use super::{Options, Placement};
use crate::monitor::server::pause;
use anyhow::{Context as _, bail, ensure};
use sheaf_farm::Process;
use sheaf_load::{Crew, Load, Mark, Target, Tls, probe};
use sheaf_protocol::splitmix;
use sheaf_testbed::interference::busy_s;
use sheaf_testbed::machine::Folder;
use sheaf_testbed::net::{Framing, Link};
use sheaf_testbed::site::{Place, Plan, Site};
use sheaf_testbed::tool;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest time for a server or a plane to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Period of requests until one is answered.
const STEP: Duration = Duration::from_millis(20);
/// Burst of a cable after a pause: a segment, and no more of the rate than it has to be.
const CABLE_BURST_BYTES: u32 = 64 << 10;
/// Port of the agents of servers.
pub(super) const AGENT_PORT: u16 = 7401;
/// Port of all servers.
pub(super) const PORT: u16 = 80;

/// Name of the servers that take uploads.
pub const UPLOAD_ENGINE: &str = "sheaf";

/// Kind of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// nginx of the system: one worker, `sendfile`.
    Nginx,
    /// `sheaf files serve`.
    Sheaf,
}

impl Engine {
    pub(super) const ALL: [Self; 2] = [Self::Nginx, Self::Sheaf];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Sheaf => UPLOAD_ENGINE,
        }
    }

    /// Returns why it is not there, or not of use.
    pub(super) fn missing(self, options: &Options) -> Option<String> {
        match self {
            Self::Nginx if options.is_upload => {
                Some(format!("takes no uploads, as {UPLOAD_ENGINE} does"))
            }
            Self::Nginx => missing_tool("nginx", "nginx-light"),
            Self::Sheaf => missing_command(&options.program, &["files", "serve"]),
        }
    }

    /// Returns the command of the server at `place`, with its files in `folder`.
    fn command(
        self,
        site: &Site,
        place: &Place,
        options: &Options,
        objects: &Path,
        folder: &Path,
    ) -> anyhow::Result<Command> {
        let name = &place.name;
        match self {
            Self::Nginx => {
                let config = folder.join(format!("{name}.conf"));
                fs::write(&config, nginx_config(name, objects, folder))?;
                let program = tool::find("nginx").context("nginx was found before")?;
                let mut command = site.command(place, program);
                command.arg("-c").arg(config).arg("-e").arg("stderr");
                Ok(command)
            }
            Self::Sheaf => {
                let any = if options.is_ipv6 { "[::]" } else { "0.0.0.0" };
                let mut command = site.command(place, &options.program);
                command.args(["files", "serve"]).arg(objects);
                command.args(["--listen", &format!("{any}:{PORT}"), "--name", name]);
                // As many as nginx has.
                command.args(["--threads", "1", "--insecure"]);
                if options.is_upload {
                    // The disk below is that of all servers.
                    command.args(["--write", "--no-sync"]);
                }
                Ok(command)
            }
        }
    }
}

fn nginx_config(name: &str, objects: &Path, folder: &Path) -> String {
    let (objects, folder) = (objects.display(), folder.display());
    let mut text = format!(
        "user root;\ndaemon off;\nmaster_process off;\n\
         pid {folder}/{name}.pid;\nerror_log stderr error;\n\
         events {{ worker_connections 16000; }}\n\
         http {{\n access_log off;\n sendfile on;\n keepalive_requests 1000000000;\n \
         open_file_cache max=100;\n default_type application/octet-stream;\n"
    );
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, " {kind}_temp_path {folder}/{name}-{kind};");
    }
    let _ = write!(
        text,
        " server {{\n  listen {PORT} backlog=65535;\n  listen [::]:{PORT} backlog=65535;\n  \
         root {objects};\n  add_header X-Served-By {name} always;\n }}\n}}\n"
    );
    text
}

/// Returns why the tool `name` is not there.
pub(super) fn missing_tool(name: &str, package: &str) -> Option<String> {
    let lacks = tool::find(name).is_none();
    lacks.then(|| format!("needs `{name}` (Debian package {package})"))
}

/// Returns why `program` lacks the command `words`.
pub(super) fn missing_command(program: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.args(words).arg("--help").output();
    let has = output.is_ok_and(|output| output.status.success());
    let words = words.join(" ");
    (!has).then(|| format!("`{} {words}` is no command", program.display()))
}

/// Files that all servers serve.
#[derive(Debug)]
pub(super) struct Objects {
    folder: Folder,
}

impl Objects {
    /// Makes an object for each of `sizes`, in bytes.
    pub(super) fn make(sizes: &[u64]) -> anyhow::Result<Self> {
        let folder = Folder::make(false)?;
        for bytes in sizes {
            let mut file = File::create(folder.file(&bytes.to_string()))?;
            std::io::copy(&mut std::io::repeat(b'x').take(*bytes), &mut file)?;
        }
        Ok(Self { folder })
    }
}

/// A site whose servers answer.
pub(super) struct Stage {
    pub(super) director: Option<Process>,
    /// One for each server of the site, in its order.
    pub(super) servers: Vec<Process>,
    /// Held until they are to end.
    _agents: Vec<Process>,
    pub(super) site: Site,
    folder: Folder,
}

impl Stage {
    /// Builds the site, starts its servers and waits until each answers.
    pub(super) fn build(
        options: &Options,
        engine: Engine,
        client_mbit: Option<f64>,
        objects: &Objects,
    ) -> anyhow::Result<Self> {
        let site = Site::build(&Plan {
            servers: options.servers,
            clients: options.client_hosts,
            server_link: options.server_mbit.map(link),
            client_link: client_mbit.map(link),
            ..Plan::default()
        })?;
        let folder = Folder::make(false)?;
        let (mut servers, mut agents) = (Vec::new(), Vec::new());
        for place in site.servers() {
            let objects = objects.folder.path();
            let command = engine.command(&site, place, options, objects, folder.path())?;
            let log = folder.file(&format!("{}.log", place.name));
            let mut process = Process::spawn(command, &log)?;
            process.listen(|_| {})?;
            servers.push(process);
            // As on a site that is set up well: a server that is only slow keeps its connections.
            agents.push(start_agent(&site, place, options, &folder)?);
        }
        let stage = Self {
            director: None,
            servers,
            _agents: agents,
            site,
            folder,
        };
        let targets = stage.direct_targets(options, options.object_bytes);
        for (target, place) in targets.iter().zip(stage.site.servers()) {
            let name = &place.name;
            let ready = stage.await_answer(target);
            ready.with_context(|| format!("{name}: {}", stage.log(&format!("{name}.log"))))?;
        }
        Ok(stage)
    }

    /// Starts a plane at the director by `command` and waits until an object is there at the virtual address.
    pub(super) fn start_director(
        &mut self,
        options: &Options,
        command: Command,
        object_bytes: u64,
    ) -> anyhow::Result<Vec<Target>> {
        const LOG: &str = "director.log";
        let mut process = Process::spawn(command, &self.folder.file(LOG))?;
        process.listen(|_| {})?;
        self.director = Some(process);
        let address: IpAddr = if options.is_ipv6 {
            self.site.virtual_v6().into()
        } else {
            self.site.virtual_v4().into()
        };
        let target = target(address, object_bytes);
        let ready = self.await_answer(&target);
        ready.with_context(|| format!("the plane does not start: {}", self.log(LOG)))?;
        Ok(vec![target])
    }

    /// Returns the objects at the servers' own addresses.
    pub(super) fn direct_targets(&self, options: &Options, object_bytes: u64) -> Vec<Target> {
        let servers = self.site.servers().iter();
        let addresses = servers.map(|place| address(options, place));
        addresses
            .map(|address| target(address, object_bytes))
            .collect()
    }

    /// Returns objects of another size at the addresses of `targets`.
    pub(super) fn targets_of(targets: &[Target], object_bytes: u64) -> Vec<Target> {
        let path = object_path(object_bytes);
        let targets = targets.iter().cloned();
        targets
            .map(|target| Target {
                path: path.clone(),
                ..target
            })
            .collect()
    }

    /// Starts `load` on all client hosts.
    pub(super) fn crew(
        &self,
        options: &Options,
        load: &Load,
        placement: Placement,
    ) -> anyhow::Result<Crew> {
        let hosts = self.site.clients();
        let placed = match placement {
            Placement::Even => {
                let each = Crew::parts(load.clients.div_ceil(hosts.len() as u32));
                let parts = load.split(each * hosts.len() as u32);
                parts.into_iter().zip(hosts.iter().cycle()).collect()
            }
            Placement::Random => by_lot(load, hosts),
        };
        let parts = placed.into_iter().map(|(part, host)| {
            let mut command = self.site.command(host, &options.program);
            command.args(["bench", "serve-load"]);
            (command, part)
        });
        Ok(Crew::start(parts.collect())?)
    }

    /// Runs `load` on all client hosts. `on_open` is called when the window opens.
    ///
    /// `takes_orders`: servers are drained and added again meanwhile, as often as the options say.
    pub(super) fn load(
        &self,
        options: &Options,
        load: &Load,
        placement: Placement,
        takes_orders: bool,
        on_open: &mut dyn FnMut(),
    ) -> anyhow::Result<Sample> {
        let crew = self.crew(options, load, placement)?;
        let drains = Some(options.drains).filter(|count| takes_orders && *count > 0);
        let mut drains =
            drains.map(|count| Drains::new(&self.site, &options.program, count, options.window));
        let mut running = None;
        let mut sample = watch(crew, &mut || {
            running = drains.take().map(Drains::start);
            on_open();
        })?;
        sample.drains = running.map_or(Ok(0), Running::finish)?;
        Ok(sample)
    }

    /// Refuses a plane whose program has ended.
    pub(super) fn check_director(&mut self) -> anyhow::Result<()> {
        if let Some(director) = &mut self.director
            && let Some(status) = director.reap()
        {
            bail!(
                "the plane ended with {status}: {}",
                self.log("director.log")
            );
        }
        Ok(())
    }

    /// A file for a configuration of the director.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    fn log(&self, name: &str) -> String {
        let text = fs::read_to_string(self.folder.file(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<&str>>().join("; ")
    }

    /// Waits until a client gets the head of `target`.
    fn await_answer(&self, target: &Target) -> anyhow::Result<()> {
        let target = target.clone();
        let ask = move || -> anyhow::Result<()> {
            let deadline = Instant::now() + PATIENCE;
            loop {
                match ask_once(&target) {
                    Ok(()) => return Ok(()),
                    Err(error) if Instant::now() >= deadline => return Err(error),
                    Err(_) => pause(STEP),
                }
            }
        };
        let thread = self.site.inside(self.site.client(0), ask)?;
        thread.join().expect("asking does not panic")?
    }
}

/// Places each client on a host by lot: those of one host are a part of their own, or several if they are too many.
fn by_lot<'a>(load: &Load, hosts: &'a [Place]) -> Vec<(Load, &'a Place)> {
    let mut counts = vec![0; hosts.len()];
    for client in 0..load.clients {
        let lot = splitmix::hash(load.seed ^ splitmix::hash(client.into()));
        counts[(lot % hosts.len() as u64) as usize] += 1;
    }
    let (mut parts, mut places) = (Vec::new(), Vec::new());
    for (&count, host) in counts.iter().zip(hosts).filter(|(count, _)| **count > 0) {
        let each = Crew::parts(count);
        for part in 0..each {
            parts.push(count / each + u32::from(part < count % each));
            places.push(host);
        }
    }
    load.split_by(&parts).into_iter().zip(places).collect()
}

/// A cable of `rate_mbit`. Whole segments are charged: frame by frame the processors would be the bound.
fn link(rate_mbit: f64) -> Link {
    Link {
        rate_mbit,
        framing: Framing::Bulk,
        burst_bytes: CABLE_BURST_BYTES,
        ..Link::default()
    }
}

/// Starts the agent of the server at `place` and waits until it listens.
fn start_agent(
    site: &Site,
    place: &Place,
    options: &Options,
    folder: &Folder,
) -> anyhow::Result<Process> {
    let listen = SocketAddr::new(place.v4.into(), AGENT_PORT);
    let mut command = site.command(place, &options.program);
    command.args(["serve", "agent", "--listen", &listen.to_string()]);
    let log = folder.file(&format!("{}-agent.log", place.name));
    let mut process = Process::spawn(command, &log)?;
    process.listen(|_| {})?;
    let ask = move || {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(listen).is_err() && Instant::now() < deadline {
            pause(STEP);
        }
        TcpStream::connect(listen).map(drop)
    };
    let thread = site.inside(site.director(0), ask)?;
    let ready = thread.join().expect("asking does not panic")?;
    ready.with_context(|| format!("the agent of {} does not start", place.name))?;
    Ok(process)
}

/// Awaits the outcome of `crew`, and the CPU time of the machine in its window. `on_open` is called when that opens.
pub(super) fn watch(crew: Crew, on_open: &mut dyn FnMut()) -> anyhow::Result<Sample> {
    let mut busy = [Ok(0.0), Ok(0.0)];
    let outcome = crew.finish(&mut |mark| match mark {
        Mark::Opened => {
            busy[0] = busy_s();
            on_open();
        }
        Mark::Closed => busy[1] = busy_s(),
    })?;
    ensure!(outcome.adds_up(), "transfers do not add up: {outcome:?}");
    let [opened, closed] = busy;
    Ok(Sample {
        outcome,
        cpu_s: closed? - opened?,
        drains: 0,
        others_share: 0.0,
    })
}

fn ask_once(target: &Target) -> anyhow::Result<()> {
    let found = probe(target, &[], &Tls::Any, Duration::from_secs(1))?;
    let (status, address) = (found.status, target.address);
    ensure!(
        status == 200,
        "found the answer {status} of {address}, expected 200"
    );
    Ok(())
}

fn address(options: &Options, place: &Place) -> IpAddr {
    if options.is_ipv6 {
        place.v6.into()
    } else {
        place.v4.into()
    }
}

fn target(address: IpAddr, object_bytes: u64) -> Target {
    Target {
        address: SocketAddr::new(address, PORT),
        host: "store".to_owned(),
        path: object_path(object_bytes),
        is_tls: false,
    }
}

fn object_path(bytes: u64) -> String {
    format!("/{bytes}")
}
