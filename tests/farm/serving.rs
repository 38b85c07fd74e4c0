//! Directors, servers and clients in namespaces: no connection breaks by a drain, a director that dies, a server that
//! comes back.

mod bpf;
mod by_client;
pub(crate) mod held;

use crate::guest;
use crate::harness::{PROGRAM, farm_turn};
use held::{Held, PATIENCE, PORT, serve, transfer};
use serde_json::Value;
use sheaf_testbed::net;
use sheaf_testbed::site::{Place, Plan, Site};
use sheaf_testbed::tool;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Connections of a test by family.
pub(crate) const CLIENTS: usize = 60;
/// Command of the plane `haproxy`, and its package of Debian.
const HAPROXY: (&str, &str) = ("haproxy", "haproxy");

/// Returns whether namespaces can be made here; reports it if not, and fails where skipping is not allowed.
pub(crate) fn can_run(test: &str) -> bool {
    can_run_with(test, &[])
}

/// Whether a test can run that needs `tools`: commands with their packages of Debian.
fn can_run_with(test: &str, tools: &[(&str, &str)]) -> bool {
    let mut lacking = tools.iter().filter(|(tool, _)| tool::find(tool).is_none());
    let lacking = lacking.next().map(|(tool, package)| {
        format!("{tool} is not there; on Debian: apt-get install {package}")
    });
    let needs = net::needs().map_err(|why| why.to_string());
    match needs.and(lacking.map_or(Ok(()), Err)) {
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
        let mut stage = Self::build(servers, plane, has_agents);
        stage.start_director();
        stage
    }

    /// Builds all but the director.
    fn build(servers: usize, plane: &str, has_agents: bool) -> Self {
        Self::build_with((servers, 1), plane, "", has_agents)
    }

    /// Builds all but the director: servers and client hosts, and a service with further `keys`.
    fn build_with(
        (servers, clients): (usize, usize),
        plane: &str,
        keys: &str,
        has_agents: bool,
    ) -> Self {
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
        stage
    }

    fn write_config(&self, plane: &str, keys: &str, has_agents: bool) {
        // A plane with places of its own has that behind a slash.
        let (plane, mode) = plane.split_once('/').unwrap_or((plane, "tc"));
        let mut text = format!(
            "[director]\nplane = \"{plane}\"\nbpf = {{ mode = \"{mode}\" }}\ninterface = \"eth0\"\nstate = \"{}\"\nfolder = \"{}\"\non_stop = \"undo\"\n[[service]]\nname = \"files\"\n\
             addresses = [\"{}\", \"{}\"]\nport = {PORT}\n{keys}\n",
            self.folder.path().join("state.json").display(),
            self.folder.path().join("run").display(),
            self.site.virtual_v4(),
            self.site.virtual_v6()
        );
        if guest::is_here() {
            // An emulated guest is slow.
            text += "health = { every_ms = 1000, timeout_ms = 5000 }\n";
        }
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

    fn director_command(&self) -> Command {
        let config = self.folder.path().join("gateway.toml");
        let mut command = self.site.command(self.site.director(0), PROGRAM);
        command.args(["serve", "run", "--config"]).arg(config);
        command
    }

    fn start_director(&mut self) {
        self.director = Some(start(&mut self.director_command(), "The director runs"));
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

    /// Packets or connections to each server, and bytes.
    fn counted(&self) -> BTreeMap<String, (u64, u64)> {
        let text = self.ok(&["status", "--json"]);
        let status: Value = serde_json::from_str(&text).expect("the state is JSON");
        let counted = status[0]["counted"]["files"].as_object();
        let counted = counted.expect("counters").iter();
        let number = |value: &Value| value.as_u64().expect("a number");
        counted
            .map(|(name, one)| {
                let pair = (number(&one["packets"]), number(&one["bytes"]));
                (name.clone(), pair)
            })
            .collect()
    }

    /// Stops the director with a signal, and waits for its end.
    fn stop_director(&mut self) {
        let mut director = self.director.take().expect("a director");
        let pid = rustix::process::Pid::from_child(&director.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let status = director.0.wait().expect("it is waited for");
        assert!(status.success(), "{status}");
    }

    /// Whether connections are taken, by address.
    fn connect_now(&self) -> [bool; 2] {
        let addresses: [IpAddr; 2] = [self.site.virtual_v4().into(), self.site.virtual_v6().into()];
        let open = move || {
            addresses.map(|address| {
                let address = SocketAddr::new(address, PORT);
                TcpStream::connect_timeout(&address, Duration::from_secs(5)).is_ok()
            })
        };
        let thread = self
            .site
            .inside(self.site.client(0), open)
            .expect("a thread in the place");
        thread.join().expect("no panic").expect("the place")
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

pub(crate) fn by_server(all: &[Held]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for held in all {
        *counts.entry(held.server.clone()).or_insert(0) += 1;
    }
    counts
}

#[track_caller]
pub(crate) fn assert_well(all: &mut [Held]) {
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
fn contract(plane: &str, is_explained: bool, has_agents: bool) {
    let _turn = farm_turn();
    let mut stage = Stage::new(3, plane, has_agents);
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
    let mut transfers = Vec::new();
    for server in ["s1", "s2", "s3"] {
        let at = held.iter().position(|held| held.server == server);
        let mut held = held.swap_remove(at.expect("each server has connections"));
        held.begin_transfer().expect("it begins");
        transfers.push(held);
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
    for mut held in transfers {
        let rest = held.end_transfer().expect("a drain breaks no transfer");
        assert!(transfer().ends_with(&rest), "{}", held.server);
    }
    let counted = stage.counted();
    assert_eq!(counted.len(), 3, "{counted:?}");
    let packets: u64 = counted.values().map(|(packets, _)| packets).sum();
    assert!(packets >= held.len() as u64, "{counted:?}");
    assert!(counted.values().all(|(_, bytes)| *bytes > 0), "{counted:?}");
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
    // A director that stops removes what its plane has made.
    stage.stop_director();
    // HAProxy is asked to close its listeners, and does it when it has a processor.
    let deadline = Instant::now() + Duration::from_secs(10);
    while stage.connect_now() != [false, false] {
        assert!(Instant::now() < deadline, "connections are still taken");
    }
}

#[test]
fn the_plane_of_nftables_breaks_no_connection() {
    if can_run("the_plane_of_nftables_breaks_no_connection") {
        contract("nft", true, true);
    }
}

#[test]
fn the_plane_of_nftables_with_nat_breaks_no_connection() {
    if can_run("the_plane_of_nftables_with_nat_breaks_no_connection") {
        contract("nft-nat", true, true);
    }
}

/// Runs in the guest of `the_plane_of_ipvs_breaks_no_connection_in_a_guest`, and on any machine that has IPVS.
#[test]
#[ignore = "needs a kernel with ip_vs (modprobe ip_vs)"]
fn the_plane_of_ipvs_breaks_no_connection() {
    if can_run("the_plane_of_ipvs_breaks_no_connection") {
        contract("ipvs", true, true);
        outlives_its_director("ipvs", true);
    }
}

#[test]
fn the_plane_of_ipvs_breaks_no_connection_in_a_guest() {
    let test = "the_plane_of_ipvs_breaks_no_connection_in_a_guest";
    let inside = "serving::the_plane_of_ipvs_breaks_no_connection";
    guest::Guest::run_or_skip(&guest::RELEASE, test, inside);
}

#[test]
fn a_kernel_without_ipvs_is_named() {
    let test = "a_kernel_without_ipvs_is_named";
    if !can_run(test) || std::path::Path::new("/proc/net/ip_vs").exists() {
        eprintln!("{test} skipped: it needs namespaces, and a kernel without ip_vs");
        return;
    }
    let _turn = farm_turn();
    let stage = Stage::build(1, "ipvs", false);
    let mut director = stage.director_command();
    let output = director.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut director = Ending(output.spawn().expect("the program starts"));
    let log = BufReader::new(director.0.stderr.take().expect("it is piped"));
    let named = log
        .lines()
        .map_while(Result::ok)
        .any(|line| line.contains("this kernel has no ip_vs (modprobe ip_vs)"));
    assert!(named);
}

#[test]
fn the_plane_of_haproxy_breaks_no_connection() {
    if can_run_with("the_plane_of_haproxy_breaks_no_connection", &[HAPROXY]) {
        contract("haproxy", true, true);
    }
}

#[test]
fn the_plane_in_user_space_breaks_no_connection() {
    if can_run("the_plane_in_user_space_breaks_no_connection") {
        contract("userspace", true, false);
    }
}

/// Kills a director, and starts the next one.
fn outlives_its_director(plane: &str, has_agents: bool) {
    let _turn = farm_turn();
    let mut stage = Stage::new(3, plane, has_agents);
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
    assert_eq!(after["servers"][1]["is_drained"], false, "{after:#}");
    held.extend(stage.connect(CLIENTS));
    assert_well(&mut held);
    stage.ok(&["add", "files/s2"]);
    stage.wait(|status| status["step"] == "steady" && status["moving"] == 0);
    assert_well(&mut held);
}

#[test]
fn connections_outlive_their_director_and_the_next_one_takes_them_over() {
    if can_run("connections_outlive_their_director_and_the_next_one_takes_them_over") {
        outlives_its_director("nft", true);
    }
}

#[test]
fn connections_under_nat_outlive_their_director_as_well() {
    if can_run("connections_under_nat_outlive_their_director_as_well") {
        outlives_its_director("nft-nat", false);
    }
}

#[test]
fn an_haproxy_outlives_its_director_and_the_next_one_goes_on_with_it() {
    let test = "an_haproxy_outlives_its_director_and_the_next_one_goes_on_with_it";
    if can_run_with(test, &[HAPROXY]) {
        outlives_its_director("haproxy", false);
    }
}

#[test]
fn a_server_that_lost_the_virtual_address_is_down() {
    if !can_run("a_server_that_lost_the_virtual_address_is_down") {
        return;
    }
    let _turn = farm_turn();
    let mut stage = Stage::build_with((2, 1), "nft", "health = { at = \"virtual\" }", true);
    stage.start_director();
    let change = |verb: &str| {
        let place = stage.site.server(0);
        let address = format!("{}/32", stage.site.virtual_v4());
        let mut command = stage.site.command(place, "ip");
        let done = command.args(["addr", verb, &address, "dev", "lo"]).status();
        assert!(done.expect("ip runs").success(), "{verb} {address}");
    };
    change("del");
    let state = stage.wait(|status| status["servers"][0]["is_up"] == false);
    let fault = state["servers"][0]["error"].as_str().expect("a fault");
    assert!(fault.contains("has no address"), "{fault}");
    assert_eq!(state["servers"][1]["is_up"], true, "{state:#}");
    change("add");
    stage.wait(|status| status["servers"][0]["is_up"] == true);
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
fn behind_nat_clients_of_a_server_that_died_are_reset() {
    if !can_run("behind_nat_clients_of_a_server_that_died_are_reset") {
        return;
    }
    let _turn = farm_turn();
    let stage = Stage::new(3, "nft-nat", false);
    let mut held = stage.connect(CLIENTS);
    let dead = &stage.site.server(0).namespace;
    let words = ["-n", dead, "link", "set", "eth0", "down"];
    tool::run("ip", words).expect("the link goes down");
    let is_gone = |server: &Value| server["is_up"] == false && server["pins"] == 0;
    stage.wait(|status| is_gone(&status["servers"][0]) && status["step"] == "steady");
    let end = Instant::now() + PATIENCE;
    for held in held.iter_mut().filter(|held| held.server == "s1") {
        held.stream
            .write_all(b"x")
            .expect("the client knows nothing");
        let error = held.name().expect_err("the server is dead");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert!(Instant::now() < end, "a client waited");
    }
    held.retain(|held| held.server != "s1");
    assert_well(&mut held);
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
                "[director]\nplane = \"nft-nat\"\ninterface = \"eth0\"\n{service}affinity = \"client\"\n"
            ),
            "found affinity = \"client\"",
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
