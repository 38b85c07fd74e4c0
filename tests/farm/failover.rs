//! Two directors with keepalived in namespaces: the virtual addresses move, and no connection breaks.

use crate::harness::{PROGRAM, site_turn};
use crate::serving::held::{Held, PATIENCE, PORT, serve};
use crate::serving::{CLIENTS, Ending, assert_well, can_run, start};
use serde_json::Value;
use sheaf_testbed::site::{Place, Plan, Site};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait of a client for a new connection before it tries again.
const TRY: Duration = Duration::from_millis(200);
/// Time between two looks and between two steps of a client: directors and keepalived share the processors with them.
const PACE: Duration = Duration::from_millis(2);
/// Servers of the site.
const SERVERS: usize = 3;

/// Whether keepalived is there. Continuous integration must have it: `scripts/setup.sh` installs it.
fn has_keepalived(test: &str) -> bool {
    let found = Command::new("keepalived").arg("--version").output();
    let has = found.is_ok_and(|output| output.status.success());
    assert!(
        has || std::env::var_os("CI").is_none(),
        "{test} must run in CI: keepalived is not installed"
    );
    if !has {
        eprintln!("{test} skipped: keepalived is not installed");
    }
    has
}

/// Two directors with their keepalived, servers with agents.
struct Pair {
    site: Site,
    directors: [Option<Ending>; 2],
    keepalived: [Option<Ending>; 2],
    _agents: Vec<Ending>,
    folder: tempfile::TempDir,
}

impl Pair {
    fn new() -> Self {
        let plan = Plan {
            servers: SERVERS,
            directors: 2,
            virtual_at: None,
            ..Plan::default()
        };
        let site = Site::build(&plan).expect("a site");
        let mut agents = Vec::new();
        for place in site.servers() {
            serve(&site, place, Arc::new(AtomicBool::new(true)));
            let listen = format!("{}:7401", place.v4);
            let words = ["serve", "agent", "--listen", &listen];
            let mut command = site.command(place, PROGRAM);
            agents.push(start(command.args(words), "The agent runs"));
        }
        let mut pair = Self {
            site,
            directors: [None, None],
            keepalived: [None, None],
            _agents: agents,
            folder: tempfile::tempdir().expect("a folder"),
        };
        for index in 0..2 {
            pair.write_config(index);
            pair.start_director(index);
        }
        for index in 0..2 {
            pair.start_keepalived(index);
        }
        pair
    }

    fn config(&self, index: usize) -> String {
        let name = format!("gateway-{}.toml", index + 1);
        self.folder.path().join(name).display().to_string()
    }

    fn write_config(&self, index: usize) {
        let site = &self.site;
        let mut text = format!(
            "[director]\nname = \"d{}\"\nlisten = \"[::]:7400\"\ninterface = \"eth0\"\n\
             [failover]\nrouter_id = 80\nprogram = \"{PROGRAM}\"\n",
            index + 1
        );
        for (place, priority) in [(site.director(0), 150), (site.director(1), 100)] {
            let Place { name, v4, v6, .. } = place;
            text += &format!(
                "[[failover.director]]\nname = \"{name}\"\naddresses = [\"{v4}\", \"{v6}\"]\n\
                 http = \"{v4}:7400\"\npriority = {priority}\n"
            );
        }
        let (v4, v6) = (site.virtual_v4(), site.virtual_v6());
        text += &format!(
            "[[service]]\nname = \"files\"\naddresses = [\"{v4}\", \"{v6}\"]\nport = {PORT}\n"
        );
        for Place { name, v4, v6, .. } in site.servers() {
            text += &format!(
                "[[service.server]]\nname = \"{name}\"\naddresses = [\"{v4}\", \"{v6}\"]\nagent = \"{v4}:7401\"\n"
            );
        }
        std::fs::write(self.config(index), text).expect("the file is written");
    }

    fn start_director(&mut self, index: usize) {
        let config = self.config(index);
        let mut command = self.site.command(self.site.director(index), PROGRAM);
        command.args(["serve", "run", "--config", &config]);
        self.directors[index] = Some(start(&mut command, "The director runs"));
    }

    fn start_keepalived(&mut self, index: usize) {
        let name = format!("d{}", index + 1);
        let text = self.ok(index, &["keepalived", &self.config(index)]);
        let path = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        std::fs::write(path("conf"), text).expect("the file is written");
        let log = std::fs::File::create(path("log")).expect("the file is made");
        let mut command = self.site.command(self.site.director(index), "keepalived");
        command
            .args(["--dont-fork", "--vrrp", "--log-console", "--log-detail"])
            .arg("--use-file")
            .arg(path("conf"))
            .arg("--pid")
            .arg(path("pid"))
            .arg("--vrrp_pid")
            .arg(path("vrrp.pid"))
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        let child = command.spawn().expect("keepalived starts");
        self.keepalived[index] = Some(Ending(child));
    }

    /// Runs `sheaf serve` beside a director.
    fn order(&self, index: usize, words: &[&str]) -> Output {
        let mut command = self.site.command(self.site.director(index), PROGRAM);
        let output = command.arg("serve").args(words).output();
        output.expect("the program runs")
    }

    #[track_caller]
    fn ok(&self, index: usize, words: &[&str]) -> String {
        let output = self.order(index, words);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn http(&self, index: usize) -> String {
        format!("{}:7400", self.site.director(index).v4)
    }

    /// State of the service at a director.
    fn status(&self, index: usize) -> Value {
        let text = self.ok(
            index,
            &["status", "--json", "--director", &self.http(index)],
        );
        let status: Value = serde_json::from_str(&text).expect("the state is JSON");
        status[0]["services"][0].clone()
    }

    /// Says why a director is not ready, as keepalived asks it; `None` if it is.
    fn unready(&self, index: usize) -> Option<String> {
        let (own, peer) = (self.http(index), self.http(1 - index));
        let words = ["status", "--ready", "--director", &own, "--peer", &peer];
        let output = self.order(index, &words);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (!output.status.success()).then_some(error)
    }

    /// Whether a director has both virtual addresses, as its kernel says.
    fn has_addresses(&self, index: usize) -> bool {
        let mut command = self.site.command(self.site.director(index), "ip");
        let output = command.args(["addr", "show", "dev", "eth0"]).output();
        let text = String::from_utf8_lossy(&output.expect("ip runs").stdout).into_owned();
        text.contains(&format!("inet {}/32", self.site.virtual_v4()))
            && text.contains(&format!("inet6 {}/128", self.site.virtual_v6()))
    }

    #[track_caller]
    fn wait(&self, what: &str, is_reached: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_reached() {
            if Instant::now() < end {
                std::thread::park_timeout(10 * PACE);
                continue;
            }
            let log = |name: &str| {
                let text = std::fs::read_to_string(self.folder.path().join(name));
                let text = text.unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                lines[lines.len().saturating_sub(20)..].join("\n")
            };
            let why = [self.unready(0), self.unready(1)];
            let states = [0, 1].map(|index| {
                let output = self.order(index, &["status", "--director", &self.http(index)]);
                String::from_utf8_lossy(&output.stdout).into_owned()
            });
            panic!(
                "not reached in {PATIENCE:?}: {what}; {why:?}\n{}\n{}\n{}\n{}",
                states[0],
                log("d1.log"),
                states[1],
                log("d2.log")
            );
        }
    }

    /// Waits until a director has the addresses.
    #[track_caller]
    fn wait_for_addresses(&self, index: usize) {
        let what = format!("the addresses are at d{}", index + 1);
        self.wait(&what, || self.has_addresses(index));
    }

    fn tables(&self) -> [String; 2] {
        [0, 1].map(|index| self.status(index)["table"].to_string())
    }

    /// Runs work of a client host.
    fn client<T: Send + 'static>(
        &self,
        work: impl FnOnce(Vec<SocketAddr>) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let site = &self.site;
        let addresses: [IpAddr; 2] = [site.virtual_v4().into(), site.virtual_v6().into()];
        let addresses = addresses
            .map(|address| SocketAddr::new(address, PORT))
            .to_vec();
        let thread = site.inside(site.client(0), move || work(addresses));
        let thread = thread.expect("a thread in the place");
        std::thread::spawn(move || thread.join().expect("no panic").expect("the place"))
    }

    fn connect(&self) -> Vec<Held> {
        let open = |addresses: Vec<SocketAddr>| {
            let all = (0..2 * CLIENTS).map(|number| Held::open(addresses[number % 2]));
            all.collect::<std::io::Result<Vec<Held>>>()
        };
        let all = self.client(open).join().expect("no panic");
        all.expect("every connection is taken")
    }
}

/// Longest time between two successes, and their number.
#[derive(Clone, Copy, Debug)]
struct Gap {
    longest: Duration,
    count: u64,
}

/// Clients at work: connections that go on, and new ones, again and again.
struct Load {
    is_over: Arc<AtomicBool>,
    /// New connections so far.
    news: Arc<AtomicU64>,
    kept: JoinHandle<(Vec<Held>, Gap)>,
    fresh: JoinHandle<Gap>,
}

impl Load {
    fn start(pair: &Pair, mut held: Vec<Held>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let news = Arc::new(AtomicU64::new(0));
        let stop = Arc::clone(&is_over);
        let kept = std::thread::spawn(move || {
            let (mut gap, mut last) = (Gap::new(), Instant::now());
            while !stop.load(Ordering::Relaxed) {
                for held in &mut held {
                    assert!(held.is_well(), "a connection to {} broke", held.server);
                    gap.note(&mut last);
                }
                std::thread::park_timeout(PACE);
            }
            (held, gap)
        });
        let (stop, count) = (Arc::clone(&is_over), Arc::clone(&news));
        let fresh = pair.client(move |addresses| {
            let (mut gap, mut last) = (Gap::new(), Instant::now());
            for address in addresses.iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let stream = std::net::TcpStream::connect_timeout(address, TRY);
                if stream.is_ok() {
                    gap.note(&mut last);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::park_timeout(PACE);
            }
            gap
        });
        Self {
            is_over,
            news,
            kept,
            fresh,
        }
    }

    /// Waits until further new connections were made.
    fn wait_for_news(&self, pair: &Pair) {
        let before = self.news.load(Ordering::Relaxed);
        let is_more = || self.news.load(Ordering::Relaxed) > before + 50;
        pair.wait("new connections", is_more);
    }

    /// Ends the clients. Returns the connections that went on, the gap of these and that of new ones.
    fn end(self) -> (Vec<Held>, Gap, Gap) {
        self.is_over.store(true, Ordering::Relaxed);
        let (held, kept) = self.kept.join().expect("no connection broke");
        (held, kept, self.fresh.join().expect("no panic"))
    }
}

impl Gap {
    fn new() -> Self {
        Self {
            longest: Duration::ZERO,
            count: 0,
        }
    }

    fn note(&mut self, last: &mut Instant) {
        self.longest = self.longest.max(last.elapsed());
        self.count += 1;
        *last = Instant::now();
    }
}

fn report(what: &str, kept: Gap, fresh: Gap) {
    println!(
        "{what}: connections paused for {:.2} s at most ({} answers), new ones for {:.2} s ({} made)",
        kept.longest.as_secs_f64(),
        kept.count,
        fresh.longest.as_secs_f64(),
        fresh.count
    );
}

#[test]
fn the_addresses_move_to_the_other_director_and_no_connection_breaks() {
    let test = "the_addresses_move_to_the_other_director_and_no_connection_breaks";
    if !can_run(test) || !has_keepalived(test) {
        return;
    }
    let _turn = site_turn();
    let mut pair = Pair::new();
    pair.wait("both are ready", || {
        pair.unready(0).is_none() && pair.unready(1).is_none()
    });
    pair.wait_for_addresses(0);
    pair.wait("d2 has no address", || !pair.has_addresses(1));
    let [first, second] = pair.tables();
    assert_eq!(first, second);
    println!("tables of both directors: {first}");
    let both = [pair.http(0), pair.http(1)];
    pair.ok(0, &["status", "--director", &both[0], &both[1]]);
    let config = pair.config(0);
    let doctor = |pair: &Pair| {
        let output = pair.order(0, &["doctor", &config, "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let all = report["findings"].as_array().expect("findings").clone();
        let state = |finding: &Value| finding["check"] == "same-table";
        all.into_iter().find(state).expect("it is checked")["state"].clone()
    };
    assert_eq!(doctor(&pair), "ok");

    // The cable of the first director is pulled.
    let load = Load::start(&pair, pair.connect());
    load.wait_for_news(&pair);
    let cable = pair.site.host(pair.site.director(0));
    cable.set_link(false).expect("the cable is pulled");
    pair.wait_for_addresses(1);
    load.wait_for_news(&pair);
    let (mut held, kept, fresh) = load.end();
    report("the cable of the director is pulled", kept, fresh);
    assert_well(&mut held);

    // A director that was away does not know what stays where, and leaves the addresses where they are.
    pair.ok(1, &["drain", "files/s1", "--director", &both[1]]);
    pair.wait("the drain is under way", || {
        let status = pair.status(1);
        status["step"] == "steady" && status["pins"] != 0
    });
    cable.set_link(true).expect("the cable is plugged in");
    let is_up = |status: Value| {
        let servers = status["servers"].as_array().cloned().unwrap_or_default();
        servers.iter().all(|server| server["is_up"] == true) && status["step"] == "steady"
    };
    pair.wait("d1 sees the servers again", || is_up(pair.status(0)));
    let other = "another table of files than d2";
    pair.wait("d1 sees that d2 has another table", || {
        pair.unready(0).is_some_and(|why| why.contains(other))
    });
    assert!(pair.has_addresses(1) && !pair.has_addresses(0));
    let differ = pair.order(0, &["status", "--director", &both[0], &both[1]]);
    assert_eq!(differ.status.code(), Some(1));
    assert_eq!(doctor(&pair), "wrong");
    assert_well(&mut held);
    pair.ok(0, &["drain", "files/s1", "--director", &both[0]]);
    pair.wait("d1 is ready", || pair.unready(0).is_none());
    let [first, second] = pair.tables();
    assert_eq!(first, second);
    let load = Load::start(&pair, held);
    pair.wait_for_addresses(0);
    pair.wait("d2 has no address", || !pair.has_addresses(1));
    load.wait_for_news(&pair);
    let (mut held, kept, fresh) = load.end();
    report("the addresses move back", kept, fresh);
    assert_well(&mut held);

    // The processes of the first director are killed.
    let load = Load::start(&pair, held);
    load.wait_for_news(&pair);
    pair.directors[0] = None;
    pair.keepalived[0] = None;
    pair.wait_for_addresses(1);
    load.wait_for_news(&pair);
    let (mut held, kept, fresh) = load.end();
    report("director and keepalived are killed", kept, fresh);
    assert_well(&mut held);

    // Another director in its place, which has forgotten all: the addresses stay as long as connections are pinned.
    pair.start_director(0);
    pair.start_keepalived(0);
    pair.wait("d1 sees the servers", || is_up(pair.status(0)));
    assert!(pair.has_addresses(1));
    assert_well(&mut held);
}

#[test]
fn a_file_without_a_second_director_renders_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gateway.toml");
    let text = "[director]\ninterface = \"eth0\"\n[[service]]\nname = \"files\"\naddresses = [\"10.80.0.100\"]\nport = 80\n";
    std::fs::write(&path, text).expect("the file is written");
    let mut command = Command::new(PROGRAM);
    let command = command.args(["serve", "keepalived"]).arg(&path);
    let output = command.stdin(Stdio::null()).output();
    let output = output.expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("found no table [failover]"), "{error}");
}
