//! Planes: how requests of clients come to servers. A row of [`Plane::ALL`] each.

use super::stage::{AGENT_PORT, PORT, Stage, missing_command, missing_tool};
use super::{Options, report};
use sheaf_load::Target;
use sheaf_testbed::tool;
use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

/// Connections of `HAProxy`, each of which has two descriptors of at most 20,000 in a usual container.
const HAPROXY_CONNECTIONS: u32 = 9_500;

/// One plane.
pub(super) struct Plane {
    /// Name in options and reports.
    pub(super) name: &'static str,
    /// Why it cannot be measured here.
    pub(super) missing: fn(&Options) -> Option<String>,
    /// Whether servers are drained by orders to it.
    pub(super) takes_orders: bool,
    /// Whether bytes pass the program at the director, so that they end with it.
    pub(super) carries_bytes: bool,
    /// Command of the program at the director; `None`: clients go to the servers in turn.
    command: Option<fn(&Stage, &Options) -> anyhow::Result<Command>>,
}

impl Plane {
    pub(super) const ALL: [Self; 8] = [
        Self {
            name: report::DIRECT,
            missing: |_| None,
            takes_orders: false,
            carries_bytes: false,
            command: None,
        },
        Self {
            name: "haproxy",
            missing: |_| missing_tool("haproxy", "haproxy"),
            takes_orders: false,
            carries_bytes: true,
            command: Some(haproxy),
        },
        Self {
            name: "nft",
            missing: |options| missing_command(&options.program, &["serve", "run"]),
            takes_orders: true,
            carries_bytes: false,
            command: Some(|stage, options| sheaf(stage, options, "nft")),
        },
        Self {
            name: "nft-nat",
            missing: |options| missing_command(&options.program, &["serve", "run"]),
            takes_orders: true,
            carries_bytes: false,
            command: Some(|stage, options| sheaf(stage, options, "nft-nat")),
        },
        Self {
            name: "ipvs",
            missing: |options| {
                missing_ipvs().or_else(|| missing_command(&options.program, &["serve", "run"]))
            },
            takes_orders: true,
            carries_bytes: false,
            command: Some(|stage, options| sheaf(stage, options, "ipvs")),
        },
        Self {
            // The peer, as people set it up, has the plain name.
            name: "sheaf-haproxy",
            missing: |options| {
                missing_tool("haproxy", "haproxy")
                    .or_else(|| missing_command(&options.program, &["serve", "run"]))
            },
            takes_orders: true,
            carries_bytes: false,
            command: Some(|stage, options| sheaf(stage, options, "haproxy")),
        },
        Self {
            name: "tc",
            missing: |options| {
                missing_command(&options.program, &["serve", "run"])
                    .or_else(|| missing_program(&options.program))
            },
            takes_orders: true,
            carries_bytes: false,
            command: Some(|stage, options| sheaf(stage, options, "tc")),
        },
        Self {
            name: "userspace",
            missing: |options| missing_command(&options.program, &["serve", "run"]),
            takes_orders: true,
            carries_bytes: true,
            command: Some(|stage, options| sheaf(stage, options, "userspace")),
        },
    ];

    /// Whether clients come by a director.
    pub(super) fn has_director(&self) -> bool {
        self.command.is_some()
    }

    /// Returns the command of the program at the director, if there is one.
    pub(super) fn command(
        &self,
        stage: &Stage,
        options: &Options,
    ) -> Option<anyhow::Result<Command>> {
        self.command.map(|command| command(stage, options))
    }

    /// Starts it and waits until it serves; returns what clients ask for.
    pub(super) fn start(
        &self,
        stage: &mut Stage,
        options: &Options,
        object_bytes: u64,
    ) -> anyhow::Result<Vec<Target>> {
        let Some(command) = self.command else {
            return Ok(stage.direct_targets(options, object_bytes));
        };
        let command = command(stage, options)?;
        stage.start_director(options, command, object_bytes)
    }
}

/// Returns why the plane `tc` cannot be measured: its program is where a director looks for it, or it is named.
fn missing_program(program: &Path) -> Option<String> {
    let folder = program.parent()?;
    let file = "sheaf-direct.bpf.o";
    let places = [
        folder.join(file),
        folder.join("../bpf").join(file),
        Path::new("/usr/lib/sheaf").join(file),
    ];
    let is_there = places.iter().any(|place| place.is_file());
    (!is_there).then(|| format!("needs {file} beside {} (make bpf)", program.display()))
}

/// Returns why the kernel has no IPVS with Maglev tables.
fn missing_ipvs() -> Option<String> {
    let has = || Path::new("/proc/net/ip_vs").exists();
    if !has() {
        // The kernel may have modules that are not loaded; who may not load them is without.
        let _ = tool::run("modprobe", ["-a", "ip_vs", "ip_vs_mh"]);
    }
    (!has()).then(|| "needs a kernel with ip_vs (modprobe ip_vs)".to_owned())
}

/// The peer: TCP connections by least connections, a thread on each CPU.
fn haproxy(stage: &Stage, options: &Options) -> anyhow::Result<Command> {
    let site = &stage.site;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let [v4, v6]: [IpAddr; 2] = [site.virtual_v4().into(), site.virtual_v6().into()];
    let mut text = format!(
        "global\n maxconn {HAPROXY_CONNECTIONS}\n nbthread {threads}\n tune.bufsize 65536\n\
         defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
         listen files\n bind {v4}:{PORT}\n bind [{v6}]:{PORT}\n balance leastconn\n"
    );
    for server in site.servers() {
        let name = &server.name;
        // Checked as often as by a director of Sheaf, if servers fail.
        let checks = match options.injects_faults {
            true => " check inter 250ms fall 2 rise 2",
            false => "",
        };
        let _ = if options.is_ipv6 {
            writeln!(text, " server {name} [{}]:{PORT}{checks}", server.v6)
        } else {
            writeln!(text, " server {name} {}:{PORT}{checks}", server.v4)
        };
    }
    let config = stage.file("haproxy.cfg");
    fs::write(&config, text)?;
    let program = tool::find("haproxy").unwrap_or_else(|| "haproxy".into());
    let mut command = site.command(site.director(0), program);
    command.arg("-db").arg("-f").arg(config);
    Ok(command)
}

/// A plane of Sheaf.
fn sheaf(stage: &Stage, options: &Options, plane: &str) -> anyhow::Result<Command> {
    let site = &stage.site;
    let director = site.director(0);
    let mut text = format!(
        "[director]\nname = \"{}\"\nplane = \"{plane}\"\ninterface = \"eth0\"\n\
         listen = \"{}:7400\"\nfolder = {:?}\n\n[[service]]\nname = \"files\"\naddresses = [\"{}\", \"{}\"]\n\
         port = {PORT}\nhealth = {{ kind = \"tcp\" }}\n",
        director.name,
        director.v4,
        stage.file("run"),
        site.virtual_v4(),
        site.virtual_v6()
    );
    for server in site.servers() {
        let (name, v4, v6) = (&server.name, server.v4, server.v6);
        let _ = write!(
            text,
            "\n[[service.server]]\nname = \"{name}\"\naddresses = [\"{v4}\", \"{v6}\"]\nweight = 1.0\n\
             agent = \"{v4}:{AGENT_PORT}\"\n"
        );
    }
    let config = stage.file("director.toml");
    fs::write(&config, text)?;
    let mut command = site.command(director, &options.program);
    command.args(["serve", "run", "--config"]).arg(config);
    Ok(command)
}
