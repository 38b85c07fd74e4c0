//! `sheaf files serve` and `sheaf files get` as programs: what curl gets, what a signal ends and what it does not, and
//! servers that are lost or have wrong bytes in the middle of a file.

use crate::harness::{Running, free_address, sheaf, site_turn, write};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a file that takes several ranges.
const FILE_BYTES: usize = 24 << 20;

/// Whether the client is there that these tests are about; continuous integration must have it.
fn has_curl(test: &str) -> bool {
    let is_there = Command::new("curl").arg("--version").output().is_ok();
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    let why = "curl is missing; on Debian: apt-get install curl";
    assert!(is_there || !is_ci, "{test} must run in CI: {why}");
    if !is_there {
        eprintln!("{test} skipped: {why}");
    }
    is_there
}

/// Starts a server of `folder`. Returns it with its address.
fn serve(folder: &Path, more: &[&str]) -> (Running, String) {
    let folder = folder.to_str().expect("UTF-8");
    let words = ["files", "serve", folder, "--json"];
    let words: Vec<&str> = words.iter().chain(more).copied().collect();
    let has_address = more.contains(&"--listen");
    let listen = ["--listen", "127.0.0.1:0"];
    let listen = listen.iter().filter(|_| !has_address).copied();
    let running = Running::start(&words.into_iter().chain(listen).collect::<Vec<_>>());
    let line = running.await_line("\"address\"");
    let line: Value = serde_json::from_str(&line).expect("JSON");
    let address = line["address"].as_str().expect("an address").to_owned();
    (running, address)
}

/// Runs curl. Returns the status of the answer and what was printed beside it.
fn curl(words: &[&str]) -> (String, Vec<u8>) {
    let output = Command::new("curl")
        .args(["-s", "-m", "60", "-w", "%{stderr}%{http_code}"])
        .args(words)
        .output()
        .expect("it is installed");
    let status = String::from_utf8_lossy(&output.stderr).into_owned();
    (status, output.stdout)
}

/// Bytes that differ everywhere, the same in each run.
fn bytes(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let words = (0..length.div_ceil(8)).flat_map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state ^ state >> 29).to_le_bytes()
    });
    words.take(length).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("readable");
    let mut names: Vec<String> = entries
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.to_string_lossy().into_owned()
        })
        .collect();
    names.sort();
    names
}

#[test]
fn curl_gets_and_puts_files_of_the_program() {
    if !has_curl("curl_gets_and_puts_files_of_the_program") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("a"), b"Wikipedia").unwrap();
    let (server, address) = serve(folder, &["--write", "--name", "s1"]);
    let url = |name: &str| format!("http://{address}/{name}");
    assert_eq!(
        curl(&[&url("a")]),
        ("200".to_owned(), b"Wikipedia".to_vec())
    );
    let ranged = curl(&["-r", "4-7", &url("a")]);
    assert_eq!(ranged, ("206".to_owned(), b"pedi".to_vec()));
    let (_, head) = curl(&["-I", "-H", "Want-Digest: adler32", &url("a")]);
    let head = String::from_utf8_lossy(&head).into_owned();
    assert!(head.contains("Digest: adler32=11e60398\r\n"), "{head}");
    assert!(head.contains("X-Served-By: s1\r\n"), "{head}");
    let source = write(folder, ".source", "Wikipedia");
    let put = |name: &str, digest: &str| curl(&["-T", &source, "-H", digest, &url(name)]);
    let (status, why) = put("b", "Digest: adler32=11e60399");
    assert_eq!(status, "422");
    let why = String::from_utf8_lossy(&why).into_owned();
    assert!(
        why.contains("adler32 of what came is 11e60398, expected 11e60399"),
        "{why}"
    );
    assert_eq!(names(folder), [".source", "a"], "nothing is left of it");
    assert_eq!(put("b", "Digest: adler32=11e60398").0, "201");
    assert_eq!(std::fs::read(folder.join("b")).unwrap(), b"Wikipedia");
    assert_eq!(curl(&[&url("none")]).0, "404");
    assert_eq!(curl(&["--path-as-is", &url("../secret")]).0, "400");
    server.signal(Signal::INT);
    let ended = server.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(!ended.stderr.contains(" ERROR "), "{}", ended.stderr);
}

/// Begins to get a file, and reads the head of the answer.
fn begin(address: &str, name: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let text = format!("GET /{name} HTTP/1.1\r\nHost: t\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("sent");
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(
            reader.read_line(&mut head).expect("an answer") > 0,
            "{head}"
        );
    }
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    reader
}

/// Waits until no connection is taken at an address any more.
fn await_closed(address: &str) {
    let begun = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "{address} is still open");
        std::thread::yield_now();
    }
}

#[test]
fn a_signal_ends_the_server_behind_the_transfer_under_way() {
    let folder = tempfile::tempdir().unwrap();
    // More than the buffers of both sockets hold.
    let length = 256 << 20;
    let file = std::fs::File::create(folder.path().join("a")).unwrap();
    file.set_len(length).unwrap();
    let (server, address) = serve(folder.path(), &[]);
    let mut reader = begin(&address, "a");
    server.signal(Signal::TERM);
    await_closed(&address);
    let got = std::io::copy(&mut reader, &mut std::io::sink()).expect("all of it");
    assert_eq!(got, length);
    let ended = server.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(
        !ended.stderr.contains("Ended with requests that run"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_client_that_takes_nothing_holds_the_end_up_for_the_time_of_the_drain_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("a")).unwrap();
    file.set_len(256 << 20).unwrap();
    let (server, address) = serve(folder.path(), &["--drain", "1s"]);
    let mut reader = begin(&address, "a");
    server.signal(Signal::TERM);
    let ended = server.end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("Ended with requests that run"),
        "{}",
        ended.stderr
    );
    let mut room = Vec::new();
    // The rest does not come: an end of the connection, or a reset.
    let _ = reader.read_to_end(&mut room);
    assert!(room.len() < 256 << 20);
}

#[test]
fn wrong_calls_of_the_server_and_the_client_end_with_status_2() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let file = write(folder.path(), "a", "text");
    let cases: [(&[&str], i32, &str); 18] = [
        (
            &["serve", "/no/such/folder"],
            2,
            "cannot serve /no/such/folder: No such file",
        ),
        (&["serve", &file], 2, "cannot serve"),
        (
            &["serve", "--store", "ftp://h/"],
            2,
            "cannot serve the store: found `ftp://h/`",
        ),
        (
            &["serve", "--store", "http://192.0.2.1/"],
            2,
            "expected a URL with https",
        ),
        (
            &["serve", "--store", "s3://x"],
            2,
            "expected s3://BUCKET/PREFIX",
        ),
        (
            &["serve", dir, "--store", "https://h"],
            2,
            "cannot be used with",
        ),
        (&["serve"], 2, "<DIR>"),
        (
            &["serve", dir, "--frobnicate"],
            2,
            "unexpected argument '--frobnicate'",
        ),
        (
            &["serve", dir, "--listen", "nowhere"],
            2,
            "invalid socket address",
        ),
        (&["serve", dir, "--listen", &taken], 2, "cannot listen at"),
        (
            &["serve", dir, "--listen", "0.0.0.0:0"],
            2,
            "expected a certificate",
        ),
        (&["serve", dir, "--no-sync"], 2, "--write"),
        (&["serve", dir, "--tls-cert", &file], 2, "--tls-key"),
        (
            &["serve", dir, "--peer", "s2"],
            2,
            "cannot send clients to a peer: found `s2`",
        ),
        (
            &["get", "ftp://h/a"],
            2,
            "found `ftp://h/a`, expected http://HOST/PATH",
        ),
        (&["get", "http://h/"], 2, "expected --to FILE"),
        (
            &["get", "http://127.0.0.1:1/a", "--to", &file],
            2,
            "expected no such file",
        ),
        (
            &[
                "get",
                "http://127.0.0.1:1/a",
                "--to",
                "/tmp",
                "--checksum",
                "md5=1",
            ],
            2,
            "found the checksum `md5=1`, expected one such as adler32=",
        ),
    ];
    for (words, status, text) in cases {
        let words: Vec<&str> = ["files"].iter().chain(words).copied().collect();
        let ended = sheaf(&words);
        let shown = format!("{words:?}: {}", ended.stderr);
        assert_eq!(ended.status.code(), Some(status), "{shown}");
        assert!(ended.stderr.contains(text), "{shown}");
    }
}

/// Relay in front of a server, which holds an answer when it has passed on some bytes of it.
struct Holding {
    address: String,
    /// Notified when an answer is held.
    held: Receiver<()>,
}

impl Holding {
    /// Passes on `bytes` bytes of each answer with more of them, and then waits until the server ends.
    fn start(server: &str, bytes: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address").to_string();
        let (tell, held) = sync_channel(64);
        let server = server.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (tell, server) = (tell.clone(), server.clone());
                std::thread::spawn(move || hold(&client, &server, bytes, &tell));
            }
        });
        Self { address, held }
    }
}

fn hold(client: &TcpStream, server: &str, bytes: u64, tell: &SyncSender<()>) {
    let Ok(server) = TcpStream::connect(server) else {
        // The server is gone: so is the connection.
        return;
    };
    let (mut up_from, mut up_to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    std::thread::spawn(move || {
        // Either side may end first.
        let _ = std::io::copy(&mut up_from, &mut up_to);
        let _ = up_to.shutdown(Shutdown::Write);
    });
    let mut down = (&server).take(bytes);
    let passed = std::io::copy(&mut down, &mut &*client).unwrap_or(0);
    if passed == bytes {
        // The first one is awaited; further ones need not fit.
        let _ = tell.try_send(());
        // Nothing more is read, so nothing more is sent, until the server is killed.
        let mut room = [0; 1];
        while server.peek(&mut room).is_ok_and(|got| got > 0) {
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// Starts a server of a folder with one file, behind a relay that holds.
fn held(all: &[u8], name: &str) -> (tempfile::TempDir, Running, Holding) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.tf"), all).unwrap();
    let (server, address) = serve(folder.path(), &["--name", name]);
    let holding = Holding::start(&address, 256 << 10);
    (folder, server, holding)
}

fn get(urls: &[String], to: &Path) -> Running {
    let fixed = [
        "files",
        "get",
        "--json",
        "--to",
        to.to_str().expect("UTF-8"),
    ];
    let words = fixed.iter().copied().chain(urls.iter().map(String::as_str));
    Running::start(&words.collect::<Vec<_>>())
}

fn report(running: Running) -> Value {
    let ended = running.end();
    let text = ended.ok(&["files", "get"]);
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_server_killed_in_the_middle_of_a_range_is_replaced_by_its_replica() {
    let all = bytes(FILE_BYTES);
    let (_first, server, holding) = held(&all, "s1");
    let second = tempfile::tempdir().unwrap();
    std::fs::write(second.path().join("a.tf"), &all).unwrap();
    let (_server, good) = serve(second.path(), &["--name", "s2"]);
    let to = second.path().join("got");
    let urls = [&holding.address, &good].map(|address| format!("http://{address}/a.tf"));
    let fetching = get(&urls, &to);
    let is_held = holding.held.recv_timeout(PATIENCE);
    is_held.expect("a range of the first server is under way");
    server.signal(Signal::KILL);
    server.end();
    let report = report(fetching);
    assert!(std::fs::read(&to).unwrap() == all, "{report}");
    let sources = &report["sources"];
    assert!(sources[0]["bytes"].as_u64() > Some(0), "{report}");
    assert!(sources[0]["failures"].as_u64() > Some(0), "{report}");
    assert!(sources[1]["bytes"].as_u64() > Some(0), "{report}");
    let came = sources[0]["bytes"]
        .as_u64()
        .zip(sources[1]["bytes"].as_u64());
    let came = came.map(|(first, second)| first + second);
    assert_eq!(
        came,
        Some(FILE_BYTES as u64),
        "no byte came twice: {report}"
    );
    assert_eq!(
        report["compared"].as_array().map(Vec::len),
        Some(1),
        "{report}"
    );
    assert_eq!(names(second.path()), ["a.tf", "got"]);
}

#[test]
fn behind_a_virtual_address_a_lost_server_costs_no_byte_of_the_file() {
    let _turn = site_turn();
    let all = bytes(FILE_BYTES);
    let (_first, server, holding) = held(&all, "s1");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.tf"), &all).unwrap();
    let (_server, good) = serve(folder.path(), &["--name", "s2"]);
    let front = free_address();
    let port = |address: &str| address.rsplit_once(':').unwrap().1.to_owned();
    let mut config = format!(
        "[director]\nplane = \"userspace\"\nlisten = \"{}\"\n\n[[service]]\nname = \"files\"\n\
         addresses = [\"127.0.0.1\"]\nport = {}\n",
        free_address(),
        port(&front)
    );
    for (name, address) in [("s1", &holding.address), ("s2", &good)] {
        config += &format!(
            "\n[[service.server]]\nname = \"{name}\"\naddresses = [\"127.0.0.1\"]\nport = {}\n",
            port(address)
        );
    }
    let config = write(folder.path(), "gateway.toml", &config);
    let _director = Running::start(&["serve", "run", "--config", &config]);
    let begun = Instant::now();
    while TcpStream::connect(&front).is_err() {
        assert!(begun.elapsed() < PATIENCE, "no director at {front}");
        std::thread::yield_now();
    }
    let to = folder.path().join("got");
    // So many connections that some are the first server's.
    let url = format!("http://{front}/a.tf");
    let words = [
        "files",
        "get",
        &url,
        "--json",
        "--streams",
        "16",
        "--part-mib",
        "1",
        "--to",
    ];
    let words = words.into_iter().chain([to.to_str().unwrap()]);
    let fetching = Running::start(&words.collect::<Vec<_>>());
    let is_held = holding.held.recv_timeout(PATIENCE);
    is_held.expect("a range of the first server is under way");
    server.signal(Signal::KILL);
    server.end();
    let report = report(fetching);
    assert!(std::fs::read(&to).unwrap() == all, "{report}");
    assert!(
        report["sources"][0]["failures"].as_u64() > Some(0),
        "{report}"
    );
    assert_eq!(report["sources"][0]["bytes"], FILE_BYTES, "{report}");
}

#[test]
fn wrong_bytes_of_a_replica_are_refused_and_come_from_another() {
    if !has_curl("wrong_bytes_of_a_replica_are_refused_and_come_from_another") {
        return;
    }
    let all = bytes(FILE_BYTES);
    let source = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(source.path(), &all).unwrap();
    let source = source.path().to_str().unwrap();
    let sites = [(), ()].map(|()| {
        let folder = tempfile::tempdir().unwrap();
        let (server, address) = serve(folder.path(), &["--write"]);
        let url = format!("http://{address}/a.tf");
        // An upload notes its checksum, which the server states without reading the file again.
        assert_eq!(curl(&["-T", source, &url]).0, "201");
        (folder, server, url)
    });
    let damaged = std::fs::File::options()
        .write(true)
        .open(sites[0].0.path().join("a.tf"));
    let damaged = damaged.unwrap();
    let modified = damaged.metadata().unwrap().modified().unwrap();
    for part in 0..3 {
        damaged.write_all_at(b"damaged!", part * (8 << 20)).unwrap();
    }
    damaged.set_modified(modified).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("got");
    let urls = sites.each_ref().map(|(_, _, url)| url.clone());
    let report = report(get(&urls, &to));
    assert!(std::fs::read(&to).unwrap() == all, "{report}");
    let why = report["sources"][0]["set_aside"]
        .as_str()
        .unwrap_or_default();
    assert!(why.contains("wrong bytes"), "{report}");
    assert_eq!(report["sources"][1]["set_aside"], Value::Null, "{report}");
    let alone = get(&urls[..1], &folder.path().join("other")).end();
    assert_eq!(alone.status.code(), Some(1), "{}", alone.stderr);
    assert!(
        alone
            .stderr
            .contains("no server has the bytes of the checksum"),
        "{}",
        alone.stderr
    );
}

#[test]
fn a_server_sends_clients_to_the_peer_that_has_the_file() {
    if !has_curl("a_server_sends_clients_to_the_peer_that_has_the_file") {
        return;
    }
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let all = bytes(1 << 20);
    std::fs::write(second.path().join("a.tf"), &all).unwrap();
    let (_second, there) = serve(second.path(), &["--name", "s2"]);
    let peer = format!("http://{there}");
    let (_first, here) = serve(first.path(), &["--peer", &peer]);
    let url = format!("http://{here}/a.tf");
    assert_eq!(curl(&["-o", "/dev/null", &url]).0, "307");
    let (status, got) = curl(&["-L", &url]);
    assert!(status == "200" && got == all, "{status}");
    // The client follows as well, and needs but the one address.
    let to = first.path().join("got");
    let report = report(get(&[url], &to));
    assert!(std::fs::read(&to).unwrap() == all, "{report}");
}

#[test]
fn hostile_clients_harm_no_honest_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (json, page) = (at("hostile.json"), at("hostile.md"));
    let size = [
        "--idle",
        "100",
        "--slow",
        "50",
        "--honest",
        "2",
        "--duration",
        "2s",
    ];
    let words = ["bench", "hostile", "--json", &json, "--markdown", &page];
    let words: Vec<&str> = words.into_iter().chain(size).collect();
    sheaf(&words).ok(&words);
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().expect("rows");
    let row = |attack: &str| {
        let found = rows.iter().find(|row| row["attack"] == attack);
        found.unwrap_or_else(|| panic!("{attack} is not in {report:#}"))
    };
    for attack in [
        "none",
        "slow-heads",
        "idle",
        "smuggled",
        "ranges",
        "slow-readers",
    ] {
        let honest = &row(attack)["honest"];
        assert_eq!(honest["failed"], 0, "{report:#}");
        assert!(honest["finished"].as_u64() > Some(0), "{report:#}");
        assert!(
            row(attack)["memory_max_mb"].as_f64() > Some(1.0),
            "{report:#}"
        );
    }
    assert!(
        row("idle")["connections_max"].as_u64() >= Some(100),
        "{report:#}"
    );
    let smuggled = &row("smuggled")["hostile"];
    assert_eq!(smuggled["smuggled"], 0);
    let statuses = smuggled["statuses"].as_object().expect("statuses");
    // 200: a GET whose body is no chunks; its connection is closed behind the answer.
    let is_expected = |status: &String| ["200", "400", "501"].contains(&status.as_str());
    assert!(
        statuses.keys().all(is_expected) && statuses.len() == 3,
        "{statuses:?}"
    );
    let ranges = &row("ranges")["hostile"]["statuses"];
    for status in ["200", "206", "416", "431"] {
        assert!(ranges[status].as_u64() > Some(0), "{status}: {ranges}");
    }
    assert!(
        std::fs::read_to_string(&page)
            .unwrap()
            .contains("All promises were kept")
    );
}
