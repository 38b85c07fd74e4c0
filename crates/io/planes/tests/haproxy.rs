//! Plane `haproxy` on the loopback device, without rights: what the suite of all planes does not reach.

use sheaf_planes::{Plane, PlaneConfig, named};
use sheaf_serve::{Flow, ServerId, ServerPlace, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

fn can_run(test: &str) -> bool {
    let found = Command::new("haproxy").arg("-v").output();
    let Err(error) = found else { return true };
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let why = format!("haproxy cannot be started ({error}); on Debian: apt-get install haproxy");
    assert!(!is_ci, "{test} must run in CI: {why}");
    eprintln!("{test} skipped: {why}");
    false
}

/// Starts a server that sends its name, and again for each byte.
fn server(name: &'static str) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.write_all(name.as_bytes()).is_ok()
                    && stream.read(&mut byte).is_ok_and(|found| found > 0)
                {}
            });
        }
    });
    port
}

/// Takes a port that is free in both families and below those that the kernel gives out itself.
///
/// A port that the kernel chose may be given to another test between its release and the start of the process.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 10_000).expect("below 10,000");
    let is_free = |port: &u16| {
        ADDRESSES
            .iter()
            .all(|one| TcpListener::bind((*one, *port)).is_ok())
    };
    let mut tried = (0..1_000).map(|_| {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        20_000 + (first + step) % 10_000
    });
    tried.find(is_free).expect("one of 1,000 ports is free")
}

struct Held(TcpStream, String);

impl Held {
    fn name(&mut self) -> String {
        let mut name = [0; 2];
        self.0.read_exact(&mut name).expect("the name of a server");
        String::from_utf8_lossy(&name).into_owned()
    }

    fn flow(&self) -> Flow {
        let own = self.0.local_addr().expect("an address");
        Flow {
            address: own.ip(),
            port: own.port(),
        }
    }

    #[track_caller]
    fn assert_well(&mut self) {
        self.0.write_all(b"x").expect("the connection goes on");
        let name = self.name();
        assert_eq!(name, self.1);
    }
}

fn open(address: IpAddr, port: u16) -> Held {
    let stream = TcpStream::connect(SocketAddr::new(address, port)).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut held = Held(stream, String::new());
    held.1 = held.name();
    held
}

const ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// Service with a server for each name; slots go to them in turn.
fn wanted(servers: &[(&str, u16)], slots: u32) -> Wanted {
    let place = |(name, port): &(&str, u16)| ServerPlace {
        name: (*name).to_owned(),
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        port: *port,
    };
    let count = u32::try_from(servers.len()).expect("a few");
    Wanted {
        service: "files".to_owned(),
        addresses: ADDRESSES.to_vec(),
        port: free_port(),
        servers: (0..).map(ServerId).zip(servers.iter().map(place)).collect(),
        slots: (0..slots).map(|slot| ServerId(slot % count)).collect(),
        moving: BTreeMap::new(),
        former: BTreeSet::new(),
        pins: BTreeMap::new(),
        held: BTreeSet::new(),
        affinity: sheaf_serve::Affinity::Connection,
        further_ports: None,
    }
}

fn plane(folder: &Path) -> Box<dyn Plane> {
    let config = PlaneConfig {
        folder: folder.to_owned(),
        fresh_s: 60,
        ..PlaneConfig::default()
    };
    named("haproxy", &config).expect("there is a plane of this name")
}

/// Id of the process that was started last.
fn pid(folder: &Path) -> String {
    let path = folder.join("haproxy-files/haproxy.pid");
    let text = std::fs::read_to_string(path).expect("the file of the process");
    text.trim().to_owned()
}

fn kill(pid: &str) {
    let killed = Command::new("kill").args(["-9", pid]).status();
    assert!(killed.expect("kill").success());
}

/// Whether the process runs; one that has ended and is not waited for does not.
fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, behind)| behind.trim_start());
    state.is_some_and(|state| !state.is_empty() && !state.starts_with('Z'))
}

#[track_caller]
fn wait(what: &str, mut is_reached: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_reached() {
        assert!(Instant::now() < end, "not in {PATIENCE:?}: {what}");
        std::thread::yield_now();
    }
}

/// Ends the process that a test leaves, also when it fails.
struct Ending<'a>(&'a Path);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let _ = plane(self.0).undo("files");
    }
}

#[test]
fn connections_follow_the_table_and_stay_where_they_began() {
    if !can_run("connections_follow_the_table_and_stay_where_they_began") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let _ending = Ending(folder.path());
    let ports = [server("s0"), server("s1"), server("s2")];
    let mut wanted = wanted(&[("s0", ports[0]), ("s1", ports[1])], 251);
    let mut plane = plane(folder.path());
    assert_eq!(plane.read_back("files").expect("it is read"), None);
    plane.apply(&wanted).expect("it is carried out");
    let mut held: Vec<Held> = (0..40)
        .map(|number| open(ADDRESSES[number % 2], wanted.port))
        .collect();
    for held in &held {
        let slot = sheaf_serve::Affinity::Connection.slot_of(held.flow(), 251) as usize;
        let expected = &wanted.servers[&wanted.slots[slot]].name;
        assert_eq!(&held.1, expected, "slot {slot}");
    }
    let listed = plane.connections("files").expect("they are listed");
    let expected: BTreeMap<Flow, String> =
        held.iter().map(|one| (one.flow(), one.1.clone())).collect();
    assert_eq!(listed, expected);
    // A server that is new gets the slots of the first; connections stay.
    let place = ServerPlace {
        name: "s2".to_owned(),
        port: ports[2],
        ..wanted.servers[&ServerId(0)].clone()
    };
    wanted.servers.insert(ServerId(2), place);
    for slot in (0..251).step_by(2) {
        wanted.moving.insert(slot, ServerId(2));
    }
    plane.apply(&wanted).expect("it is carried out");
    held.iter_mut().for_each(Held::assert_well);
    let fresh: Vec<Held> = (0..40)
        .map(|number| open(ADDRESSES[number % 2], wanted.port))
        .collect();
    let names: BTreeSet<&str> = fresh.iter().map(|held| held.1.as_str()).collect();
    assert_eq!(names, ["s1", "s2"].into());
    let installed = plane.read_back("files").expect("it is read");
    let installed = installed.expect("there is a table");
    let name = |id: &ServerId| wanted.servers[id].name.clone();
    assert_eq!(
        installed.slots,
        wanted.slots.iter().map(name).collect::<Vec<_>>()
    );
    assert_eq!(
        installed.moving,
        wanted
            .moving
            .iter()
            .map(|(at, id)| (*at, name(id)))
            .collect()
    );
    let counted = plane.counters("files").expect("they are counted");
    let connections: u64 = counted.values().map(|one| one.packets).sum();
    assert_eq!(connections, 80, "{counted:?}");
    // A server that leaves keeps its connections too.
    for slot in std::mem::take(&mut wanted.moving).into_keys() {
        wanted.slots[slot as usize] = ServerId(2);
    }
    wanted.servers.remove(&ServerId(0));
    plane.apply(&wanted).expect("it is carried out");
    held.iter_mut().for_each(Held::assert_well);
}

#[test]
fn a_process_that_is_killed_is_found_and_started_again() {
    if !can_run("a_process_that_is_killed_is_found_and_started_again") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let _ending = Ending(folder.path());
    let wanted = wanted(&[("s0", server("s0"))], 4093);
    let mut plane = plane(folder.path());
    plane.apply(&wanted).expect("it is carried out");
    assert!(!plane.is_out_of_date("files").expect("it is looked at"));
    let first = pid(folder.path());
    kill(&first);
    wait("the end of the process", || !runs(&first));
    assert!(plane.is_out_of_date("files").expect("it is looked at"));
    plane.apply(&wanted).expect("it is carried out");
    assert!(!plane.is_out_of_date("files").expect("it is looked at"));
    assert_eq!(open(ADDRESSES[1], wanted.port).1, "s0");
}

#[test]
fn the_next_director_goes_on_with_the_process() {
    if !can_run("the_next_director_goes_on_with_the_process") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let _ending = Ending(folder.path());
    let ports = [server("s0"), server("s1")];
    let mut wanted = wanted(&[("s0", ports[0])], 65_537);
    plane(folder.path())
        .apply(&wanted)
        .expect("it is carried out");
    let mut held = open(ADDRESSES[0], wanted.port);
    let first = pid(folder.path());
    let mut next = plane(folder.path());
    let installed = next.read_back("files").expect("it is read");
    let installed = installed.expect("there is a table");
    assert_eq!(installed.slots.len(), 65_537);
    assert_eq!(installed.flows, [(held.flow(), "s0".to_owned())].into());
    // The server has moved to another port.
    wanted.servers.get_mut(&ServerId(0)).expect("s0").port = ports[1];
    next.apply(&wanted).expect("it is carried out");
    assert_eq!(pid(folder.path()), first);
    assert_eq!(open(ADDRESSES[0], wanted.port).1, "s1");
    held.assert_well();
    // Another port of the service is another process; the first one serves its connection to the end.
    wanted.port = free_port();
    next.apply(&wanted).expect("it is carried out");
    assert_ne!(pid(folder.path()), first);
    assert_eq!(open(ADDRESSES[1], wanted.port).1, "s1");
    held.assert_well();
    drop(held);
    wait("the end of the first process", || !runs(&first));
    next.undo("files").expect("it is undone");
    assert_eq!(next.read_back("files").expect("it is read"), None);
    let last = TcpStream::connect(SocketAddr::new(ADDRESSES[0], wanted.port));
    assert!(last.is_err(), "the listener is closed");
}

#[test]
fn a_port_that_is_taken_is_named() {
    if !can_run("a_port_that_is_taken_is_named") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut wanted = wanted(&[("s0", 9)], 251);
    wanted.port = server("s0");
    let error = plane(folder.path())
        .apply(&wanted)
        .expect_err("it is taken");
    let text = error.to_string();
    assert!(
        text.starts_with("haproxy refused:") && text.contains(&wanted.port.to_string()),
        "{text}"
    );
}
