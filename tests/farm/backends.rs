//! Real servers of every kind behind a director, with their real clients: transfers through the virtual address, a
//! drain under a running transfer, a server that dies.

mod certificates;

use crate::harness::{PROGRAM, site_turn};
use crate::serving::{Ending, can_run, start};
use serde_json::Value;
use sheaf_testbed::net::Link;
use sheaf_testbed::site::{Place, Plan, Site};
use std::cell::Cell;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the file of a slow transfer, and of a quick one.
const SLOW_BYTES: usize = 14 << 20;
const QUICK_BYTES: usize = 1 << 20;
/// Tries of a client that ends by its own fault, and the signal of that (`SIGABRT`).
const CLIENT_TRIES: u32 = 5;
const ABORTED: i32 = 6;
/// Cable of each server: the slow transfer takes ten seconds, in which a drain begins and ends.
const SERVER_MBIT: f64 = 20.0;
/// Python of Debian, which its tools of gfal2 need where another one comes first.
const PYTHON: &str = "/usr/bin/python3";

/// Service with servers of one kind, and commands of its clients.
///
/// In commands `{vip}` and `{v6}` are the virtual addresses, `{name}` a file, `{out}` where it goes, `{src}` a file
/// to upload, `{up}` its name there, `{data}` the folder of the servers.
struct Case {
    kind: &'static str,
    port: u16,
    has_v6: bool,
    /// Further keys of the service, and of its `data`.
    keys: &'static str,
    data: &'static str,
    tools: &'static [&'static str],
    fetches: &'static [&'static str],
    upload: &'static str,
}

const OWN: Case = Case {
    kind: "own",
    port: 80,
    has_v6: true,
    keys: "",
    data: "",
    tools: &["curl"],
    fetches: &[
        "curl -sf -o {out} http://{vip}/{name}",
        "curl -gsf -o {out} http://[{v6}]/{name}",
    ],
    upload: "curl -sf -T {src} http://{vip}/{up}",
};

const NGINX: Case = Case {
    kind: "nginx",
    tools: &["nginx", "curl"],
    ..OWN
};

const XROOTD: Case = Case {
    kind: "xrootd",
    port: 1094,
    tools: &["xrootd", "xrdcp", "davix-get", "gfal-copy"],
    fetches: &[
        "xrdcp -s -f root://{vip}:1094//{name} {out}",
        "xrdcp -s -f root://[{v6}]:1094//{name} {out}",
        "davix-get http://{vip}:1094/{name} {out}",
        "gfal-copy -f root://{vip}:1094//{name} file://{out}",
    ],
    upload: "xrdcp -s {src} root://{vip}:1094//{up}",
    ..OWN
};

const GRIDFTP: Case = Case {
    kind: "gridftp",
    port: 2811,
    has_v6: false,
    data: "ports = [50000, 50100], ",
    tools: &["globus-gridftp-server", "globus-url-copy", "gfal-copy"],
    fetches: &[
        "globus-url-copy ftp://{vip}:2811{data}/{name} file://{out}",
        "globus-url-copy -p 4 ftp://{vip}:2811{data}/{name} file://{out}",
        "gfal-copy -f ftp://{vip}:2811{data}/{name} file://{out}",
    ],
    upload: "globus-url-copy file://{src} ftp://{vip}:2811{data}/{up}",
    ..OWN
};

/// Returns whether a test can run here; reports what is missing if not.
fn has(test: &str, tools: &[&str]) -> bool {
    if !can_run(test) {
        return false;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin".into(), "/usr/bin".into()]);
    let is_there = |tool: &str| folders.iter().any(|folder| folder.join(tool).is_file());
    let missing: Vec<&str> = tools
        .iter()
        .copied()
        .filter(|tool| !is_there(tool))
        .collect();
    if missing.is_empty() {
        return true;
    }
    let why = format!("{} is missing; see scripts/setup.sh", missing.join(", "));
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    assert!(!is_ci, "{test} must run in CI: {why}");
    eprintln!("{test} skipped: {why}");
    false
}

/// Site with servers of a kind, agents, and a director.
struct Stage {
    case: &'static Case,
    site: Site,
    folder: tempfile::TempDir,
    /// Output of `sheaf serve backend` for each server.
    rendered: Vec<Value>,
    agents: Vec<Ending>,
    servers: Vec<Ending>,
    director: Option<Ending>,
    outputs: Cell<usize>,
}

impl Stage {
    fn new(case: &'static Case) -> Self {
        let link = Link {
            rate_mbit: SERVER_MBIT,
            ..Link::default()
        };
        let plan = Plan {
            servers: 2,
            server_link: Some(link),
            ..Plan::default()
        };
        let site = Site::build(&plan).expect("a site");
        let folder = tempfile::tempdir().expect("a folder");
        let mut stage = Self {
            case,
            site,
            folder,
            rendered: Vec::new(),
            agents: Vec::new(),
            servers: Vec::new(),
            director: None,
            outputs: Cell::new(0),
        };
        stage.write_files();
        stage.rendered = stage.render();
        for index in 0..2 {
            let place = stage.site.server(index).clone();
            let listen = format!("{}:7401", place.v4);
            let mut command = stage.site.command(&place, PROGRAM);
            command.args(["serve", "agent", "--listen", &listen]);
            stage.agents.push(start(&mut command, "The agent runs"));
            stage.start_server(index);
        }
        let mut command = stage.site.command(stage.site.director(0), PROGRAM);
        command
            .args(["serve", "run", "--config"])
            .arg(stage.at("gateway.toml"));
        stage.director = Some(start(&mut command, "The director runs"));
        stage.wait(|service| {
            let is_up = |at: usize| service["servers"][at]["is_up"] == true;
            is_up(0) && is_up(1) && service["step"] == "steady" && service["slots"] != 0
        });
        stage
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_files(&self) {
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
        };
        open(self.folder.path(), 0o755);
        for name in ["data", "s1", "s2"] {
            std::fs::create_dir(self.at(name)).expect("made");
            open(&self.at(name), 0o777);
        }
        for (name, bytes) in [("data/slow", SLOW_BYTES), ("data/quick", QUICK_BYTES)] {
            std::fs::write(self.at(name), content(bytes)).expect("written");
            open(&self.at(name), 0o644);
        }
        let Case {
            kind,
            port,
            keys,
            data,
            ..
        } = self.case;
        let data = data.replace("{folder}", &self.folder.path().display().to_string());
        if data.contains("certificates") {
            certificates::make(&self.at("certs"), self.site.virtual_v4().into());
        }
        let (v4, v6) = (self.site.virtual_v4(), self.site.virtual_v6());
        let addresses = |v4: String, v6: String| match self.case.has_v6 {
            true => format!("[\"{v4}\", \"{v6}\"]"),
            false => format!("[\"{v4}\"]"),
        };
        let mut text = format!(
            "[director]\nplane = \"nft\"\ninterface = \"eth0\"\n[[service]]\nname = \"{kind}\"\naddresses = {}\n\
             port = {port}\nbackend = \"{kind}\"\n{keys}\n\
             data = {{ {data}folder = \"{}\", write = true }}\n",
            addresses(v4.to_string(), v6.to_string()),
            self.at("data").display()
        );
        for Place { name, v4, v6, .. } in self.site.servers() {
            text += &format!(
                "[[service.server]]\nname = \"{name}\"\naddresses = {}\nagent = \"{v4}:7401\"\n",
                addresses(v4.to_string(), v6.to_string())
            );
        }
        std::fs::write(self.at("gateway.toml"), text).expect("written");
    }

    fn render(&self) -> Vec<Value> {
        let mut command = Command::new(PROGRAM);
        command
            .args(["serve", "backend", "--json", "--config"])
            .arg(self.at("gateway.toml"));
        command
            .arg("--write")
            .arg(self.at("etc"))
            .arg("--state")
            .arg(self.at("run"));
        let output = command.output().expect("the program runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Starts the programs of a server as its rendered commands say.
    fn start_server(&mut self, index: usize) {
        let place = self.site.server(index);
        let words = |key: &str| {
            let lines = self.rendered[index][key].as_array().expect("commands");
            let lines = lines
                .iter()
                .map(|line| line.as_str().expect("a text").to_owned());
            lines.collect::<Vec<_>>()
        };
        for line in words("prepare") {
            let done = Command::new("sh").args(["-c", &line]).status();
            assert!(done.expect("sh runs").success(), "{line}");
        }
        // In a cluster each server has files of its own, at the folder that all name.
        let own = match self.case.data.contains("cluster_port") {
            true => format!(
                "mount --bind {} {} && ",
                self.at(&place.name).display(),
                self.at("data").display()
            ),
            false => String::new(),
        };
        for (number, line) in words("commands").into_iter().enumerate() {
            let line = match line.strip_prefix("sheaf ") {
                Some(rest) => format!("{PROGRAM} {rest}"),
                None => line,
            };
            let log = std::fs::File::create(self.at(&format!("{}-{number}.log", place.name)));
            let log = log.expect("a log");
            let mut command = self.site.command(place, "sh");
            command.args(["-c", &format!("{own}exec {line}")]);
            command
                .stdin(Stdio::null())
                .stdout(log.try_clone().expect("a log"))
                .stderr(log);
            self.servers
                .push(Ending(command.spawn().expect("it starts")));
        }
    }

    /// Kills everything of a server but its agent.
    fn kill_server(&self, index: usize) {
        let namespace = &self.site.server(index).namespace;
        let output = Command::new("ip")
            .args(["netns", "pids", namespace])
            .output();
        let output = output.expect("ip runs");
        let agent = self.agents[index].0.id().to_string();
        let pids = String::from_utf8(output.stdout).expect("numbers");
        for pid in pids.lines().map(str::trim).filter(|pid| *pid != agent) {
            // One that has ended meanwhile is not there.
            let _ = Command::new("kill")
                .args(["-9", pid])
                .stderr(Stdio::null())
                .status();
        }
    }

    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let mut command = self.site.command(self.site.director(0), PROGRAM);
        let output = command
            .arg("serve")
            .args(words)
            .output()
            .expect("the program runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn state(&self) -> Value {
        let all: Value = serde_json::from_str(&self.ok(&["status", "--json"])).expect("JSON");
        all[0].clone()
    }

    /// Waits until the service is as `is_reached` says.
    #[track_caller]
    fn wait(&self, is_reached: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let service = self.state()["services"][0].clone();
            if is_reached(&service) {
                return service;
            }
            assert!(
                Instant::now() < end,
                "not reached in {PATIENCE:?}: {service:#}\n{}",
                self.logs()
            );
        }
    }

    /// Ends of the logs of the servers.
    fn logs(&self) -> String {
        let mut text = String::new();
        for place in self.site.servers() {
            for number in 0..4 {
                let name = format!("{}-{number}.log", place.name);
                let log = std::fs::read_to_string(self.at(&name)).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(5).collect();
                text += &format!("{name}: {last:#?}\n");
            }
        }
        text
    }

    /// Starts a client; where its output goes.
    fn begin(&self, words: &str, name: &str) -> (Child, PathBuf) {
        self.outputs.set(self.outputs.get() + 1);
        let out = self.at(&format!("out-{}", self.outputs.get()));
        let words = words
            .replace("{vip}", &self.site.virtual_v4().to_string())
            .replace("{v6}", &self.site.virtual_v6().to_string())
            .replace("{name}", name)
            .replace("{out}", &out.display().to_string())
            .replace("{src}", &self.at("data/quick").display().to_string())
            .replace("{up}", "uploaded")
            .replace("{data}", &self.at("data").display().to_string());
        let mut command = self.site.command(self.site.client(0), "timeout");
        command
            .arg("120")
            .args(words.split_whitespace())
            .env("GFAL_PYTHONBIN", PYTHON);
        if self.case.data.contains("certificates") {
            let certs = self.at("certs");
            command
                .env("X509_CERT_DIR", certs.join("certificates"))
                .env("X509_USER_CERT", certs.join("usercert.pem"))
                .env("X509_USER_KEY", certs.join("userkey.pem"));
        }
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        (command.spawn().expect("a client"), out)
    }

    #[track_caller]
    fn finish(&self, child: Child, words: &str) {
        let output = child.wait_with_output().expect("a client");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{words}: {}: {told}\n{}",
            output.status,
            self.logs()
        );
    }

    #[track_caller]
    fn fetch(&self, words: &str) {
        let mut tries = 1;
        loop {
            let (mut child, out) = self.begin(words, "quick");
            let status = child.wait().expect("a client");
            // Debian's gfal2 frees memory twice at its end now and then; that is no fault of a server.
            let is_aborted = status.signal() == Some(ABORTED) && words.starts_with("gfal-copy");
            if is_aborted && tries < CLIENT_TRIES {
                eprintln!("{words}: {status}, again");
                tries += 1;
                continue;
            }
            self.finish(child, words);
            return assert_content(&out, QUICK_BYTES, words);
        }
    }

    fn server(&self, index: usize) -> String {
        format!("{}/s{}", self.case.kind, index + 1)
    }

    /// Packets that have gone to each server.
    fn packets(&self) -> [u64; 2] {
        let counted = &self.state()["counted"][self.case.kind];
        ["s1", "s2"].map(|name| counted[name]["packets"].as_u64().unwrap_or(0))
    }

    /// Drains the server of a transfer while it goes on. `during` runs when the drain has moved all slots.
    #[track_caller]
    fn drain_under_a_transfer(&self, words: &str, during: impl Fn(&Self, usize)) {
        // Agents tell the connections of a moment before.
        let at = |service: &Value, index: usize| {
            service["servers"][index]["connections"]
                .as_u64()
                .unwrap_or(0)
                > 0
        };
        self.wait(|service| !at(service, 0) && !at(service, 1));
        let (child, out) = self.begin(words, "slow");
        let service = self.wait(|service| at(service, 0) || at(service, 1));
        let index = usize::from(!at(&service, 0));
        self.ok(&["drain", &self.server(index)]);
        let service = self
            .wait(|service| service["servers"][index]["slots"] == 0 && service["step"] == "steady");
        let server = &service["servers"][index];
        assert_ne!(
            server["pins"], 0,
            "{words}: the transfer goes on: {service:#}"
        );
        assert_eq!(server["is_drained"], false, "{words}: {service:#}");
        during(self, index);
        self.finish(child, words);
        assert_content(&out, SLOW_BYTES, words);
        let service = self.wait(|service| service["servers"][index]["is_drained"] == true);
        assert_eq!(service["given_up"], 0, "{service:#}");
        let before = self.packets();
        self.fetch(words);
        let packets = self.packets();
        assert_eq!(
            packets[index], before[index],
            "a drained server gets nothing"
        );
        assert!(
            packets[1 - index] > before[1 - index],
            "the other one gets it"
        );
        self.ok(&["add", &self.server(index)]);
        self.wait(|service| {
            let slots = service["servers"][index]["slots"].as_u64();
            slots > Some(0) && service["step"] == "steady" && service["moving"] == 0
        });
    }

    /// Kills a server: the checks see it, and transfers go on at the other one; then it comes back.
    #[track_caller]
    fn kill_and_restart(&mut self) {
        self.kill_server(0);
        self.wait(|service| {
            service["servers"][0]["is_up"] == false && service["servers"][0]["slots"] == 0
        });
        for _ in 0..3 {
            self.fetch(self.case.fetches[0]);
        }
        self.start_server(0);
        self.wait(|service| {
            let slots = service["servers"][0]["slots"].as_u64();
            slots > Some(0) && service["step"] == "steady"
        });
        self.fetch(self.case.fetches[0]);
    }
}

/// Returns bytes that repeat nowhere near.
fn content(bytes: usize) -> Vec<u8> {
    let word = |number: usize| {
        (number as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .to_le_bytes()
    };
    (0..bytes / 8).flat_map(word).collect()
}

#[track_caller]
fn assert_content(path: &Path, bytes: usize, what: &str) {
    let found = std::fs::read(path).expect("the file is there");
    assert_eq!(found.len(), bytes, "{what}");
    assert!(
        found == content(bytes),
        "{what}: other bytes than those of the file"
    );
}

/// Runs what every kind of servers has to pass.
fn suite(case: &'static Case, more: impl Fn(&Stage)) {
    let _turn = site_turn();
    let mut stage = Stage::new(case);
    for words in case.fetches {
        stage.fetch(words);
    }
    let (child, _) = stage.begin(case.upload, "");
    stage.finish(child, case.upload);
    assert_content(&stage.at("data/uploaded"), QUICK_BYTES, case.upload);
    more(&stage);
    stage.drain_under_a_transfer(case.fetches[0], |_, _| {});
    stage.kill_and_restart();
}

/// Fetches a range, which has a status of its own.
fn range(stage: &Stage) {
    let words = "curl -sf -r 1000-1999 -o {out} http://{vip}/{name}";
    let (child, out) = stage.begin(words, "quick");
    stage.finish(child, words);
    let found = std::fs::read(out).expect("the range is there");
    assert!(
        found == content(QUICK_BYTES)[1000..2000],
        "{} bytes",
        found.len()
    );
}

#[test]
fn own_file_servers_behind_a_director() {
    if has("own_file_servers_behind_a_director", OWN.tools) {
        suite(&OWN, range);
    }
}

#[test]
fn nginx_behind_a_director() {
    if has("nginx_behind_a_director", NGINX.tools) {
        suite(&NGINX, range);
    }
}

#[test]
fn xrootd_behind_a_director() {
    if has("xrootd_behind_a_director", XROOTD.tools) {
        suite(&XROOTD, |_| {});
    }
}

#[test]
fn gridftp_behind_a_director_has_its_data_past_it() {
    if has(
        "gridftp_behind_a_director_has_its_data_past_it",
        GRIDFTP.tools,
    ) {
        suite(&GRIDFTP, |stage| {
            let before: u64 = stage.packets().iter().sum();
            stage.fetch(GRIDFTP.fetches[0]);
            let packets = stage.packets().iter().sum::<u64>() - before;
            // 1 MiB needs 700 segments, and half as many acknowledgements.
            assert!(
                (5..200).contains(&packets),
                "{packets} packets of the control connection"
            );
        });
    }
}

/// Servers to which clients come through the virtual address alone.
const AFFINITY: Case = Case {
    keys: "affinity = \"client\"",
    ..GRIDFTP
};

#[test]
fn gridftp_with_client_affinity_has_its_data_through_the_virtual_address() {
    let test = "gridftp_with_client_affinity_has_its_data_through_the_virtual_address";
    if !has(test, AFFINITY.tools) {
        return;
    }
    suite(&AFFINITY, |stage| {
        let client = format!("{}:1", stage.site.client(0).v4);
        let explained = stage.ok(&["explain", "gridftp", &client, "--json"]);
        let explained: Value = serde_json::from_str(&explained).expect("JSON");
        let index = usize::from(explained["server"] == "s2");
        let before = stage.packets();
        for words in AFFINITY.fetches {
            stage.fetch(words);
        }
        let packets = stage.packets();
        assert_eq!(
            packets[1 - index],
            before[1 - index],
            "all at one server: {explained}"
        );
        assert!(
            packets[index] > before[index] + 300,
            "with the acknowledgements of the data"
        );
        // A client that has a transfer keeps its server during a drain, also with further transfers.
        stage.drain_under_a_transfer(AFFINITY.fetches[0], |stage, index| {
            let before = stage.packets();
            stage.fetch(AFFINITY.fetches[0]);
            assert_eq!(stage.packets()[1 - index], before[1 - index]);
        });
    });
}

/// Servers that ask clients for certificates.
const SECURED: Case = Case {
    data: "ports = [50000, 50100], certificates = \"{folder}/certs\", ",
    tools: &[
        "globus-gridftp-server",
        "globus-url-copy",
        "gfal-copy",
        "openssl",
    ],
    fetches: &[
        "globus-url-copy gsiftp://{vip}{data}/{name} file://{out}",
        "gfal-copy -f gsiftp://{vip}{data}/{name} file://{out}",
    ],
    upload: "globus-url-copy file://{src} gsiftp://{vip}{data}/{up}",
    ..GRIDFTP
};

#[test]
fn gridftp_behind_a_director_takes_certificates() {
    if has(
        "gridftp_behind_a_director_takes_certificates",
        SECURED.tools,
    ) {
        suite(&SECURED, |stage| {
            let words = "globus-url-copy ftp://{vip}:2811{data}/{name} file://{out}";
            let (child, _) = stage.begin(words, "quick");
            let output = child.wait_with_output().expect("a client");
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success(),
                "a client without a certificate is refused"
            );
            assert!(told.contains("530"), "{told}");
        });
    }
}

const CLUSTER: Case = Case {
    data: "cluster_port = 1095, ",
    tools: &["xrootd", "cmsd", "xrdcp", "curl", "mount"],
    ..XROOTD
};

#[test]
fn redirectors_of_xrootd_behind_a_director_send_clients_straight_to_the_file() {
    let test = "redirectors_of_xrootd_behind_a_director_send_clients_straight_to_the_file";
    if !has(test, CLUSTER.tools) {
        return;
    }
    let _turn = site_turn();
    let stage = Stage::new(&CLUSTER);
    for (server, name) in [("s1", "one"), ("s2", "two")] {
        let path = stage.at(&format!("{server}/{name}"));
        std::fs::write(&path, content(QUICK_BYTES)).expect("written");
    }
    let end = Instant::now() + PATIENCE;
    for (name, server) in [("one", 0), ("two", 1)] {
        for words in [
            "xrdcp -s -f root://{vip}:1094//{name} {out}",
            "curl -sfL -o {out} http://{vip}:1094/{name}",
        ] {
            // A redirector that has just begun does not know every data server.
            loop {
                let (child, out) = stage.begin(words, name);
                let output = child.wait_with_output().expect("a client");
                if output.status.success() {
                    assert_content(&out, QUICK_BYTES, words);
                    break;
                }
                let told = String::from_utf8_lossy(&output.stderr);
                assert!(Instant::now() < end, "{words}: {told}\n{}", stage.logs());
            }
        }
        let place = stage.site.server(server);
        let (child, out) = stage.begin("curl -s -I -o {out} http://{vip}:1094/{name}", name);
        stage.finish(child, "curl -I");
        let head = std::fs::read_to_string(out).expect("a head");
        let expected = format!("Location: http://{}:1095/{name}", place.v4);
        assert!(head.contains(&expected), "{expected} in {head}");
    }
}
