//! Directors, servers and clients in namespaces: no connection breaks by a drain, a director that dies, a server that
//! comes back.

use crate::harness::{PROGRAM, farm_turn};
use serde_json::Value;
use sheaf_testbed::net;
use sheaf_testbed::site::{Place, Plan, Site};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Connections of a test by family.
const CLIENTS: usize = 60;
/// Port of the service.
const PORT: u16 = 8080;

/// Returns whether namespaces can be made here; reports it if not, and fails where skipping is not allowed.
pub(crate) fn can_run(test: &str) -> bool {
    match net::needs() {
        Ok(()) => true,
        Err(why) => {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
            assert!(!is_ci, "{test} must run in CI: {why}");
            eprintln!("{test} skipped: {why}");
            false
        }
    }
}

/// Process in a place; killed when dropped.
pub(crate) struct Ending(pub(crate) Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Connection of a client: server that it is at.
struct Held {
    stream: TcpStream,
    server: String,
}

impl Held {
    /// Opens a connection and reads the name of its server.
    fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut held = Self {
            stream,
            server: String::new(),
        };
        held.server = held.name()?;
        Ok(held)
    }

    fn name(&mut self) -> std::io::Result<String> {
        let mut name = [0; 3];
        self.stream.read_exact(&mut name)?;
        Ok(String::from_utf8_lossy(&name).trim().to_owned())
    }

    /// Whether the connection still reaches its server.
    fn is_well(&mut self) -> bool {
        self.stream.write_all(b"x").is_ok() && self.name().is_ok_and(|name| name == self.server)
    }
}

/// Serves in a place: each connection gets the name of the server, and again for each byte.
fn serve(site: &Site, place: &Place, is_open: Arc<AtomicBool>) {
    let name = format!("{:<3}", place.name);
    let bind = move || TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT));
    let listener = site.inside(place, bind).expect("a thread in the place");
    let listener = listener
        .join()
        .expect("no panic")
        .expect("the place")
        .expect("a port");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            if !is_open.load(Ordering::Relaxed) {
                return; // The listener is closed: connections are refused.
            }
            let name = name.clone();
            std::thread::spawn(move || {
                let mut byte = [0];
                let _ = stream.write_all(name.as_bytes());
                while stream.read(&mut byte).is_ok_and(|found| found > 0) {
                    if stream.write_all(name.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// Site with servers that serve, agents, and a director.
struct Stage {
    site: Site,
    _agents: Vec<Ending>,
    director: Option<Ending>,
    open: Vec<Arc<AtomicBool>>,
    folder: tempfile::TempDir,
}

impl Stage {
    fn new(servers: usize, plane: &str, has_agents: bool) -> Self {
        Self::with(servers, 1, plane, "", has_agents)
    }

    /// Builds a site with so many client hosts, and a service with further `keys`.
    fn with(servers: usize, clients: usize, plane: &str, keys: &str, has_agents: bool) -> Self {
        let plan = Plan {
            servers,
            clients,
            ..Plan::default()
        };
        let site = Site::build(&plan).expect("a site");
        let folder = tempfile::tempdir().expect("a folder");
        let mut stage = Self {
            _agents: Vec::new(),
            director: None,
            open: Vec::new(),
            folder,
            site,
        };
        stage.write_config(plane, keys, has_agents);
        for index in 0..servers {
            let place = stage.site.server(index);
            let is_open = Arc::new(AtomicBool::new(true));
            serve(&stage.site, place, Arc::clone(&is_open));
            stage.open.push(is_open);
            if has_agents {
                let listen = format!("{}:7401", place.v4);
                let agent = ["serve", "agent", "--listen", &listen];
                let agent = start(
                    stage.site.command(place, PROGRAM).args(agent),
                    "The agent runs",
                );
                stage._agents.push(agent);
            }
        }
        stage.start_director();
        stage
    }

    fn write_config(&self, plane: &str, keys: &str, has_agents: bool) {
        let mut text = format!(
            "[director]\nplane = \"{plane}\"\ninterface = \"eth0\"\nstate = \"{}\"\n[[service]]\nname = \"files\"\n\
             addresses = [\"{}\", \"{}\"]\nport = {PORT}\n{keys}\n",
            self.folder.path().join("state.json").display(),
            self.site.virtual_v4(),
            self.site.virtual_v6()
        );
        for place in self.site.servers() {
            let Place { name, v4, v6, .. } = place;
            text += &format!(
                "[[service.server]]\nname = \"{name}\"\naddresses = [\"{v4}\", \"{v6}\"]\n"
            );
            if has_agents {
                text += &format!("agent = \"{v4}:7401\"\n");
            }
        }
        std::fs::write(self.folder.path().join("gateway.toml"), text).expect("the file is written");
    }

    fn start_director(&mut self) {
        let config = self.folder.path().join("gateway.toml");
        let mut command = self.site.command(self.site.director(0), PROGRAM);
        command.args(["serve", "run", "--config"]).arg(config);
        self.director = Some(start(&mut command, "The director runs"));
        let servers = self.site.servers().len();
        self.wait(|status| {
            let all = status["servers"].as_array().expect("servers");
            let up = all.iter().filter(|server| server["is_up"] == true);
            up.count() == servers && status["step"] == "steady" && status["slots"] != 0
        });
    }

    /// Runs `sheaf serve` beside the director.
    fn order(&self, words: &[&str]) -> Output {
        let mut command = self.site.command(self.site.director(0), PROGRAM);
        command
            .arg("serve")
            .args(words)
            .output()
            .expect("the program runs")
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.order(words);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{words:?}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    fn status(&self) -> Value {
        let text = self.ok(&["status", "--json"]);
        let status: Value = serde_json::from_str(&text).expect("the state is JSON");
        status[0]["services"][0].clone()
    }

    /// Metrics of the director, by series.
    fn metrics(&self) -> BTreeMap<String, String> {
        let read = || {
            let mut stream = TcpStream::connect("127.0.0.1:7400")?;
            let mut text = String::new();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n")?;
            stream.read_to_string(&mut text).map(|_| text)
        };
        let thread = self.site.inside(self.site.director(0), read);
        let thread = thread.expect("a thread in the place").join();
        let text = thread
            .expect("no panic")
            .expect("the place")
            .expect("a page");
        let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        lines
            .map(|(series, value)| (series.to_owned(), value.to_owned()))
            .collect()
    }

    /// Waits until the state is as `is_reached` says.
    #[track_caller]
    fn wait(&self, is_reached: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if is_reached(&status) {
                return status;
            }
            assert!(
                Instant::now() < end,
                "not reached in {PATIENCE:?}: {status:#}"
            );
        }
    }

    /// Opens connections from the first client host, half of them over IPv6.
    fn connect(&self, count: usize) -> Vec<Held> {
        self.connect_from(0, count)
    }

    fn connect_from(&self, host: usize, count: usize) -> Vec<Held> {
        let addresses: [IpAddr; 2] = [self.site.virtual_v4().into(), self.site.virtual_v6().into()];
        let open = move || {
            let open = |number: usize| Held::open(SocketAddr::new(addresses[number % 2], PORT));
            (0..count).map(open).collect::<std::io::Result<Vec<Held>>>()
        };
        let thread = self
            .site
            .inside(self.site.client(host), open)
            .expect("a thread in the place");
        thread
            .join()
            .expect("no panic")
            .expect("the place")
            .expect("every connection is taken")
    }
}

/// Starts a program and waits until it has logged `line`.
pub(crate) fn start(command: &mut Command, line: &str) -> Ending {
    let child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
    let mut ending = Ending(child.expect("the program starts"));
    let mut log = BufReader::new(ending.0.stderr.take().expect("it is piped"));
    let mut text = String::new();
    while !text.contains(line) {
        let read = log.read_line(&mut text).expect("the log is read");
        assert!(read > 0, "ended before {line:?}: {text}");
    }
    // What follows is read, so that the program never waits for it.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    ending
}

fn by_server(all: &[Held]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for held in all {
        *counts.entry(held.server.clone()).or_insert(0) += 1;
    }
    counts
}

#[track_caller]
fn assert_well(all: &mut [Held]) {
    let broken = all
        .iter_mut()
        .filter_map(|held| (!held.is_well()).then(|| held.server.clone()));
    assert_eq!(
        broken.collect::<Vec<_>>(),
        Vec::<String>::new(),
        "servers of broken connections"
    );
}

/// Runs the suite that every plane has to pass.
fn contract(plane: &str, is_explained: bool) {
    let _turn = farm_turn();
    let stage = Stage::new(3, plane, true);
    let mut held = stage.connect(2 * CLIENTS);
    assert_eq!(by_server(&held).len(), 3, "{:?}", by_server(&held));
    if is_explained {
        for held in held.iter().step_by(5) {
            let client = held.stream.local_addr().expect("an address").to_string();
            let text = stage.ok(&["explain", "files", &client, "--json"]);
            let explained: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(explained["server"], held.server.as_str(), "{text}");
        }
    }
    // Two drains at once, while connections are opened and used.
    let dry = stage.ok(&["drain", "files/s1", "--dry-run"]);
    assert!(dry.contains("would move"), "{dry}");
    assert_eq!(stage.status()["servers"][0]["is_draining"], false);
    stage.ok(&["drain", "files/s1"]);
    held.extend(stage.connect(CLIENTS));
    stage.ok(&["drain", "files/s2"]);
    held.extend(stage.connect(CLIENTS));
    assert_well(&mut held);
    stage.wait(|status| status["step"] == "steady" && status["moving"] == 0);
    assert_well(&mut held);
    let fresh = stage.connect(CLIENTS);
    assert_eq!(by_server(&fresh).keys().collect::<Vec<_>>(), ["s3"]);
    let refused = stage.order(&["drain", "files/s3"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(1) && text.contains("last"),
        "{text}"
    );
    // A drain ends with the last connection.
    held.retain(|held| held.server != "s1");
    stage.ok(&["drain", "files/s1", "--wait", "--timeout", "30s"]);
    let status = stage.status();
    assert_eq!(status["servers"][0]["is_drained"], true, "{status:#}");
    assert_eq!(status["servers"][1]["is_drained"], false, "{status:#}");
    stage.ok(&["add", "files/s1"]);
    stage.ok(&["weight", "files/s1", "3"]);
    held.extend(stage.connect(CLIENTS));
    stage.wait(|status| status["step"] == "steady" && status["moving"] == 0);
    let counts = by_server(&stage.connect(2 * CLIENTS));
    assert!(counts["s1"] > counts["s3"], "{counts:?}");
    // A server whose listener is closed gets no connection any more; its connections go on.
    stage.open[0].store(false, Ordering::Relaxed);
    stage.wait(|status| status["servers"][0]["is_up"] == false && status["step"] == "steady");
    let counts = by_server(&stage.connect(CLIENTS));
    assert!(!counts.contains_key("s1"), "{counts:?}");
    assert_well(&mut held);
    assert_eq!(stage.status()["given_up"], 0);
    let metrics = stage.metrics();
    for (series, value) in [
        ("serve_server_up{server=\"s1\",service=\"files\"}", "0"),
        ("serve_server_up{server=\"s3\",service=\"files\"}", "1"),
        ("serve_given_up_total{service=\"files\"}", "0"),
        ("serve_orders_total{order=\"drain\"}", "3"),
        ("serve_apply_failed_total{service=\"files\"}", "0"),
    ] {
        assert_eq!(
            metrics.get(series).map(String::as_str),
            Some(value),
            "{series}"
        );
    }
    let forwarded = "serve_forwarded_packets_total{server=\"s3\",service=\"files\"}";
    assert_ne!(metrics[forwarded], "0");
}

#[test]
fn the_plane_of_nftables_breaks_no_connection() {
    if can_run("the_plane_of_nftables_breaks_no_connection") {
        contract("nft", true);
    }
}

#[test]
fn the_plane_in_user_space_breaks_no_connection() {
    if can_run("the_plane_in_user_space_breaks_no_connection") {
        contract("userspace", false);
    }
}

/// Client hosts of a test by client, each two clients: one of each family.
const HOSTS: usize = 12;

/// Checks that each client is at one server, and returns where the clients are.
#[track_caller]
fn clients_of(held: &[Held]) -> BTreeMap<IpAddr, String> {
    let mut clients = BTreeMap::new();
    for held in held {
        let address = held.stream.local_addr().expect("an address").ip();
        let at = clients
            .entry(address)
            .or_insert_with(|| held.server.clone());
        assert_eq!(
            *at, held.server,
            "connections of {address} are at two servers"
        );
    }
    clients
}

/// Runs the suite of planes where all connections of a client go to one server.
fn contract_by_client(plane: &str, is_explained: bool) {
    let _turn = farm_turn();
    let stage = Stage::with(3, HOSTS, plane, "affinity = \"client\"", true);
    let connect = |each: usize| -> Vec<Held> {
        let all = (0..HOSTS).flat_map(|host| stage.connect_from(host, each));
        all.collect()
    };
    let mut held = connect(4);
    let before = clients_of(&held);
    assert_eq!(before.len(), 2 * HOSTS);
    let mut servers: Vec<&str> = before.values().map(String::as_str).collect();
    servers.sort_unstable();
    servers.dedup();
    assert!(servers.len() > 1, "{before:?}");
    if is_explained {
        for (client, server) in &before {
            let client = SocketAddr::new(*client, 1).to_string();
            let text = stage.ok(&["explain", "files", &client, "--json"]);
            let explained: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(explained["server"], server.as_str(), "{text}");
        }
    }
    // Clients with connections stay during a drain, with their new ones, and nothing breaks.
    let drained = before.values().next().expect("there are clients").clone();
    stage.ok(&["drain", &format!("files/{drained}")]);
    held.extend(connect(2));
    stage.wait(|status| status["step"] == "steady" && status["moving"] == 0);
    held.extend(connect(2));
    assert_well(&mut held);
    assert_eq!(clients_of(&held), before);
    // Without connections they go elsewhere.
    held.retain(|held| held.server != drained);
    stage.ok(&[
        "drain",
        &format!("files/{drained}"),
        "--wait",
        "--timeout",
        "60s",
    ]);
    held.extend(connect(2));
    let after = clients_of(&held);
    assert!(after.values().all(|server| *server != drained), "{after:?}");
    for (client, server) in before.iter().filter(|(_, server)| **server != drained) {
        assert_eq!(after[client], *server, "{client} had no reason to move");
    }
    assert_well(&mut held);
    assert_eq!(stage.status()["given_up"], 0);
}

#[test]
fn the_plane_of_nftables_keeps_the_connections_of_a_client_together() {
    if can_run("the_plane_of_nftables_keeps_the_connections_of_a_client_together") {
        contract_by_client("nft", true);
    }
}

#[test]
fn the_plane_in_user_space_keeps_the_connections_of_a_client_together() {
    if can_run("the_plane_in_user_space_keeps_the_connections_of_a_client_together") {
        contract_by_client("userspace", true);
    }
}

#[test]
fn connections_outlive_their_director_and_the_next_one_takes_them_over() {
    if !can_run("connections_outlive_their_director_and_the_next_one_takes_them_over") {
        return;
    }
    let _turn = farm_turn();
    let mut stage = Stage::new(3, "nft", true);
    let mut held = stage.connect(2 * CLIENTS);
    stage.ok(&["drain", "files/s2"]);
    let before = stage.wait(|status| status["step"] == "steady" && status["moving"] == 0);
    stage.director = None; // SIGKILL.
    assert_well(&mut held);
    held.extend(stage.connect(CLIENTS));
    stage.start_director();
    let after = stage.status();
    assert_eq!(
        after["table"], before["table"],
        "the drain is in the state file"
    );
    assert_eq!(after["servers"][1]["is_draining"], true);
    held.extend(stage.connect(CLIENTS));
    assert_well(&mut held);
    stage.ok(&["add", "files/s2"]);
    stage.wait(|status| status["step"] == "steady" && status["moving"] == 0);
    assert_well(&mut held);
}

#[test]
fn without_agents_connections_stay_as_well() {
    if !can_run("without_agents_connections_stay_as_well") {
        return;
    }
    let _turn = farm_turn();
    let stage = Stage::new(2, "nft", false);
    let mut held = stage.connect(CLIENTS);
    stage.ok(&["drain", "files/s1"]);
    stage.wait(|status| status["step"] == "listing");
    held.extend(stage.connect(CLIENTS));
    assert_well(&mut held);
    let counts = by_server(&stage.connect(20));
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["s2"]);
}

#[test]
fn a_file_of_a_director_with_a_fault_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gateway.toml");
    let service = "[[service]]\nname = \"files\"\naddresses = [\"10.80.0.100\"]\nport = 80\n";
    for (text, expected) in [
        (String::new(), "found no [[service]]"),
        (
            format!("[director]\nplane = \"ipv\"\n{service}"),
            "found plane \"ipv\", expected one of nft",
        ),
        (service.to_owned(), "found interface = \"\""),
        (format!("{service}slots = 4096\n"), "found slots = 4096"),
        (format!("{service}prot = 80\n"), "unknown field `prot`"),
        (
            format!("[director]\nplane = \"userspace\"\n{service}backend = \"apache\"\n"),
            "found backend \"apache\", expected one of own, nginx, xrootd, gridftp",
        ),
        (
            format!(
                "[director]\nplane = \"userspace\"\n{service}backend = \"gridftp\"\naffinity = \"client\"\n"
            ),
            "found data.ports = none",
        ),
    ] {
        std::fs::write(&path, text).expect("the file is written");
        let mut command = Command::new(PROGRAM);
        let output = command
            .args(["serve", "run", "--check", "--config"])
            .arg(&path)
            .output();
        let output = output.expect("the program runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

/// Runs `sheaf serve demo` and returns its result.
fn demo(words: &[&str]) -> Value {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "demo", "--duration", "3s", "--json", "-"]);
    let output = command.args(words).output().expect("the program runs");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {log}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {log}"))
}

#[test]
fn the_demo_builds_writes_and_fetches_while_a_server_is_drained() {
    if !can_run("the_demo_builds_writes_and_fetches_while_a_server_is_drained") {
        return;
    }
    let _turn = farm_turn();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").display().to_string();
    let found = demo(&["--plane", "nft", "--out", &out]);
    let here = demo(&["--plane", "userspace", "--files", &format!("{out}/files")]);
    for (result, plane) in [(found, "nft"), (here, "userspace")] {
        assert_eq!(result["plane"], plane);
        assert_eq!(result["drained"], "s2");
        for count in ["broken", "wrong", "strays"] {
            assert_eq!(result[count], 0, "{result:#}");
        }
        let servers = result["servers"].as_object().expect("servers");
        assert_eq!(servers.len(), 3, "{result:#}");
    }
}
