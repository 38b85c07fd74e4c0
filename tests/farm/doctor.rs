//! `sheaf serve doctor` in namespaces: each setting is broken in turn, named, repaired, and a client comes through.

use crate::harness::{PROGRAM, site_turn};
use crate::serving::held::{Held, PATIENCE, PORT, serve};
use crate::serving::{Ending, can_run, start};
use serde_json::Value;
use sheaf_testbed::site::{Place, Plan, Site};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Port of the service that speaks FTP.
const FTP_PORT: u16 = 2811;

/// Serves FTP as far as the reply to `PASV`: with the own address of the server, or another one.
fn serve_ftp(site: &Site, place: &Place, is_virtual: Arc<AtomicBool>) {
    let own = place.v4.to_string().replace('.', ",");
    let other = site.virtual_v4().to_string().replace('.', ",");
    let bind = move || TcpListener::bind((Ipv6Addr::UNSPECIFIED, FTP_PORT));
    let listener = site.inside(place, bind).expect("a thread in the place");
    let listener = listener.join().expect("no panic").expect("the place");
    let listener = listener.expect("a port");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            let address = match is_virtual.load(Ordering::Relaxed) {
                true => &other,
                false => &own,
            };
            // A client that goes away in the middle is none of the server's business.
            let _ = talk_ftp(stream, address);
        }
    });
}

fn talk_ftp(mut stream: TcpStream, address: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"220 ready\r\n")?;
    let lines = BufReader::new(stream.try_clone()?).lines();
    for line in lines {
        let reply = match line?.split(' ').next() {
            Some("USER") => "331 any password\r\n".to_owned(),
            Some("PASS") => "230 go on\r\n".to_owned(),
            Some("PASV") => format!("227 Entering Passive Mode ({address},195,80)\r\n"),
            _ => "221 bye\r\n".to_owned(),
        };
        stream.write_all(reply.as_bytes())?;
        if reply.starts_with("221") {
            break;
        }
    }
    Ok(())
}

/// A director and two servers that are set up as they have to be.
struct Ward {
    site: Site,
    agents: Vec<Option<Ending>>,
    _director: Option<Ending>,
    open: Vec<Arc<AtomicBool>>,
    is_virtual: Arc<AtomicBool>,
    folder: tempfile::TempDir,
}

impl Ward {
    fn new() -> Self {
        let plan = Plan {
            servers: 2,
            ..Plan::default()
        };
        let mut ward = Self {
            site: Site::build(&plan).expect("a site"),
            agents: Vec::new(),
            _director: None,
            open: Vec::new(),
            is_virtual: Arc::new(AtomicBool::new(false)),
            folder: tempfile::tempdir().expect("a folder"),
        };
        ward.write_config();
        for index in 0..2 {
            let place = ward.site.server(index);
            let is_open = Arc::new(AtomicBool::new(true));
            serve(&ward.site, place, Arc::clone(&is_open));
            serve_ftp(&ward.site, place, Arc::clone(&ward.is_virtual));
            ward.open.push(is_open);
            ward.agents.push(None);
            ward.start_agent(index);
        }
        let mut command = ward.site.command(ward.site.director(0), PROGRAM);
        command.args(["serve", "run", "--config", &ward.config()]);
        ward._director = Some(start(&mut command, "The director runs"));
        ward
    }

    fn config(&self) -> String {
        let path = self.folder.path().join("gateway.toml");
        path.display().to_string()
    }

    fn write_config(&self) {
        let mut text = "[director]\nname = \"d1\"\ninterface = \"eth0\"\n\
                        [expect.grid]\ndata_ports = [50000, 50100]\n"
            .to_owned();
        let (v4, v6) = (self.site.virtual_v4(), self.site.virtual_v6());
        for (name, port, health) in [("files", PORT, "tcp"), ("grid", FTP_PORT, "gridftp")] {
            text += &format!(
                "[[service]]\nname = \"{name}\"\naddresses = [\"{v4}\", \"{v6}\"]\nport = {port}\n\
                 health = {{ kind = \"{health}\" }}\n"
            );
            for Place { name, v4, v6, .. } in self.site.servers() {
                text += &format!(
                    "[[service.server]]\nname = \"{name}\"\naddresses = [\"{v4}\", \"{v6}\"]\nagent = \"{v4}:7401\"\n"
                );
            }
        }
        std::fs::write(self.config(), text).expect("the file is written");
    }

    fn start_agent(&mut self, index: usize) {
        let place = self.site.server(index);
        let listen = format!("{}:7401", place.v4);
        let mut command = self.site.command(place, PROGRAM);
        command.args(["serve", "agent", "--listen", &listen]);
        self.agents[index] = Some(start(&mut command, "The agent runs"));
    }

    /// Runs the doctor in a place. Returns its report, and whether it is content.
    fn doctor(&self, place: &Place, words: &[&str]) -> (Value, bool) {
        let mut command = self.site.command(place, PROGRAM);
        command.args(["serve", "doctor", &self.config(), "--json"]);
        let output = command.args(words).output().expect("the program runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = serde_json::from_slice(&output.stdout);
        let report: Value = report.unwrap_or_else(|_| panic!("no report: {error}"));
        let is_well = output.status.success();
        assert_eq!(report["is_well"], is_well, "{report:#}");
        (report, is_well)
    }

    /// Runs a program in a place; `+` stands for a space within a word.
    #[track_caller]
    fn run(&self, place: &Place, words: &str) {
        let mut words = words.split(' ');
        let mut command = self.site.command(place, words.next().expect("a program"));
        let words: Vec<String> = words.map(|word| word.replace('+', " ")).collect();
        let output = command.args(&words).output().expect("the program runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {error}");
    }

    /// Opens connections over both families until every server has answered each.
    #[track_caller]
    fn transfer(&self, what: &str) {
        // What the client has learned of hardware addresses while they were wrong is asked for again.
        self.run(self.site.client(0), "ip neigh flush all");
        let addresses: [IpAddr; 2] = [self.site.virtual_v4().into(), self.site.virtual_v6().into()];
        let work = move || {
            let end = Instant::now() + PATIENCE;
            let mut seen = BTreeSet::new();
            let mut failed = Vec::new();
            while seen.len() < 4 && Instant::now() < end {
                for address in addresses {
                    let target = SocketAddr::new(address, PORT);
                    match Held::open_within(target, Duration::from_secs(1)) {
                        Ok(mut held) => match held.is_well() {
                            true => drop(seen.insert((address, held.server.clone()))),
                            false => failed.push("it broke".to_owned()),
                        },
                        Err(error) => failed.push(error.to_string()),
                    }
                }
            }
            (seen, failed)
        };
        let client = self.site.inside(self.site.client(0), work);
        let thread = client.expect("a thread in the place");
        let (seen, failed) = thread.join().expect("no panic").expect("the place");
        assert_eq!(seen.len(), 4, "{what}: {seen:?}, {failed:?}");
    }
}

/// Checks that are wrong, with where: `here` or `there`.
fn wrong(report: &Value) -> BTreeSet<(String, bool)> {
    let all = report["findings"].as_array().expect("findings");
    let wrong = all.iter().filter(|finding| finding["state"] == "wrong");
    let name = |finding: &Value| {
        let name = finding["check"].as_str().expect("a name").to_owned();
        (name, finding["is_here"] == true)
    };
    wrong.map(name).collect()
}

fn names(report: &Value, is_here: bool) -> Vec<String> {
    let all = wrong(report).into_iter();
    let all = all.filter(|(_, here)| *here == is_here);
    all.map(|(name, _)| name).collect()
}

/// Settings that are broken: the place, how, and the checks that name it.
const BROKEN: [(&str, &str, &[&str]); 11] = [
    (
        "s1",
        "ip addr del 10.80.0.100/32 dev lo",
        &["virtual-address"],
    ),
    (
        "s1",
        "ip addr del fd00:80::100/128 dev lo",
        &["virtual-address"],
    ),
    (
        "s1",
        "ip addr add 10.80.0.100/32 dev eth0",
        &["virtual-address"],
    ),
    (
        "s1",
        "ip addr add fd00:80::100/128 dev eth0",
        &["virtual-address"],
    ),
    (
        "s1",
        "sysctl -qw net.ipv4.conf.all.arp_ignore=0",
        &["arp-ignore"],
    ),
    (
        "s1",
        "sysctl -qw net.ipv4.conf.all.arp_announce=0",
        &["arp-announce"],
    ),
    (
        "s1",
        "sysctl -qw net.ipv4.conf.eth0.rp_filter=1",
        &["reverse-path"],
    ),
    (
        "s1",
        "sysctl -qw net.ipv4.ip_local_port_range=1024+65535",
        &["port-range"],
    ),
    (
        "s1",
        "sysctl -qw net.ipv6.conf.lo.disable_ipv6=1",
        &["ipv6", "virtual-address"],
    ),
    (
        "d1",
        "ip addr del 10.80.0.100/32 dev eth0",
        &["virtual-address"],
    ),
    (
        "d1",
        "ip addr change fd00:80::100/128 dev eth0 preferred_lft forever",
        &["source-address"],
    ),
];

#[test]
fn every_setting_that_is_broken_is_named_and_repaired() {
    if !can_run("every_setting_that_is_broken_is_named_and_repaired") {
        return;
    }
    let _turn = site_turn();
    let ward = Ward::new();
    let (server, director) = (ward.site.server(0), ward.site.director(0));
    // The site has all but the ports of data, which nothing but GridFTP needs.
    for place in ward.site.servers() {
        let (report, _) = ward.doctor(place, &[]);
        assert_eq!(names(&report, true), ["port-range"], "{report:#}");
        let (report, is_well) = ward.doctor(place, &["--fix"]);
        assert!(is_well, "{report:#}");
        assert_eq!(
            report["sysctl"][0], "net.ipv4.ip_local_reserved_ports = 50000-50100",
            "{report:#}"
        );
    }
    let (report, is_well) = ward.doctor(director, &["--fix"]);
    assert!(
        is_well && report["done"] == Value::Array(Vec::new()),
        "{report:#}"
    );
    ward.transfer("nothing is broken");
    for (name, damage, expected) in BROKEN {
        let (place, role) = match name {
            "s1" => (server, "server"),
            _ => (director, "director"),
        };
        ward.run(place, damage);
        let (report, is_well) = ward.doctor(place, &[]);
        assert!(!is_well, "{damage}");
        assert_eq!(report["role"], role);
        assert_eq!(names(&report, true), expected, "{damage}: {report:#}");
        if role == "server" {
            let (report, _) = ward.doctor(director, &[]);
            assert_eq!(names(&report, false), expected, "{damage}: {report:#}");
        }
        let (report, is_well) = ward.doctor(place, &["--fix"]);
        assert!(is_well, "{damage}: {report:#}");
        let done = report["done"].as_array().expect("a list");
        assert!(!done.is_empty(), "{damage}: {report:#}");
        let done: Vec<&str> = done.iter().filter_map(Value::as_str).collect();
        println!("{damage}: {}", done.join("; "));
        let (report, is_well) = ward.doctor(place, &["--fix"]);
        assert!(
            is_well && report["done"] == Value::Array(Vec::new()),
            "{damage}: {report:#}"
        );
        ward.transfer(damage);
    }
}

#[test]
fn faults_of_services_are_named_and_left_to_people() {
    if !can_run("faults_of_services_are_named_and_left_to_people") {
        return;
    }
    let _turn = site_turn();
    let mut ward = Ward::new();
    let (first, director) = (ward.site.server(0).clone(), ward.site.director(0).clone());
    for index in 0..2 {
        assert!(ward.doctor(ward.site.server(index), &["--fix"]).1);
    }
    assert!(ward.doctor(&director, &[]).1);

    ward.is_virtual.store(true, Ordering::Relaxed);
    for place in [&first, &director] {
        let (report, _) = ward.doctor(place, &["--fix"]);
        assert_eq!(
            names(&report, place == &first),
            ["data-address"],
            "{report:#}"
        );
        assert_eq!(report["done"], Value::Array(Vec::new()));
        let (_, is_well) = ward.doctor(place, &["--service", "files"]);
        assert!(is_well, "the other service is well");
    }
    ward.is_virtual.store(false, Ordering::Relaxed);

    ward.run(&director, "ip link set eth0 mtu 1400");
    let (report, _) = ward.doctor(&director, &["--fix"]);
    assert_eq!(names(&report, true), ["mtu"], "{report:#}");
    ward.run(&director, "ip link set eth0 mtu 1500");

    ward.agents[1] = None;
    let (report, _) = ward.doctor(&director, &[]);
    assert_eq!(names(&report, false), ["agent"], "{report:#}");
    ward.start_agent(1);

    ward.open[0].store(false, Ordering::Relaxed);
    // The listener ends with the next connection.
    let end = Instant::now() + PATIENCE;
    loop {
        let (report, _) = ward.doctor(&first, &[]);
        if names(&report, true) == ["accepts"] {
            break;
        }
        assert!(Instant::now() < end, "{report:#}");
    }
    assert!(ward.doctor(&director, &[]).1, "seen from the server alone");
    let mut command = ward.site.command(&director, PROGRAM);
    let output = command
        .args(["serve", "doctor", &ward.config(), "--role", "server"])
        .output()
        .expect("the program runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("no address of a server"), "{error}");
}
