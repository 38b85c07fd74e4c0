//! Files on several servers: clients are sent to the one that has it, and go on at another when one fails.

use crate::client::{Site, bytes};
use sheaf_file_server::{FetchConfig, FetchError, Fetched, fetch};
use sheaf_stream_files::{ShipState, Shipments};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Bytes of a part in these tests.
const PART: usize = 1 << 20;

fn peer_of(peers: &[String]) -> Site {
    Site::start(|config| config.replicas = peers.to_vec())
}

fn base(site: &Site) -> String {
    site.url("").trim_end_matches('/').to_owned()
}

/// Address at which no server listens.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    format!("http://{}", listener.local_addr().expect("an address"))
}

#[test]
fn a_client_is_sent_to_a_server_that_has_the_file() {
    let (first, second) = (Site::start(|_| ()), Site::start(|_| ()));
    let here = peer_of(&[base(&first), base(&second)]);
    first.write("a b", b"one");
    first.write("both", b"x");
    second.write("both", b"x");
    let mut client = here.connect();
    let reply = client.ask("GET", "/a%20b?x=y", "Range: bytes=0-0\r\n");
    assert_eq!(reply.status, 307, "{}", reply.text());
    assert_eq!(reply.get("location"), Some(first.url("a%20b").as_str()));
    assert_eq!(reply.get("link"), None);
    let mut served = std::collections::BTreeSet::new();
    for _ in 0..2 {
        let reply = client.ask("HEAD", "/both", "");
        assert_eq!(reply.status, 307);
        let location = reply.get("location").expect("an address").to_owned();
        let link = reply.get("link").expect("the other copy").to_owned();
        assert!(
            link.contains("rel=duplicate") && !link.contains(&location),
            "{link}"
        );
        served.insert(location);
    }
    assert_eq!(served.len(), 2, "peers take turns: {served:?}");
    assert_eq!(client.ask("GET", "/none", "").status, 404);
    // A peer asks for this folder alone.
    let asked = client.ask("GET", "/both", "X-Sheaf-Local: 1\r\n");
    assert_eq!(asked.status, 404);
    assert_eq!(client.ask("GET", "/.hidden", "").status, 404);
    let metrics = here.metrics();
    for line in [
        "file_server_elsewhere_total{outcome=\"redirected\"} 3",
        "file_server_elsewhere_total{outcome=\"missing\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[test]
fn a_peer_that_does_not_answer_leaves_the_question_open() {
    let other = Site::start(|_| ());
    let here = peer_of(&[nowhere(), base(&other)]);
    other.write("a", b"x");
    let mut client = here.connect();
    let reply = client.ask("GET", "/none", "");
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.get("retry-after"), Some("1"));
    assert!(reply.text().contains("does not answer"), "{}", reply.text());
    assert_eq!(client.ask("GET", "/a", "").status, 307);
}

#[test]
fn equal_copies_are_listed_and_others_are_not() {
    let (equal, other, none) = (
        Site::start(|_| ()),
        Site::start(|_| ()),
        Site::start(|_| ()),
    );
    let here = peer_of(&[base(&equal), base(&other), base(&none)]);
    for site in [&here, &equal] {
        site.write("a&b", b"Wikipedia");
    }
    other.write("a&b", b"wikipedia");
    let mut client = here.connect();
    let reply = client.ask("HEAD", "/a&b", "Want-Digest: adler32\r\n");
    assert_eq!(
        (reply.status, reply.get("digest")),
        (200, Some("adler32=11e60398"))
    );
    let expected = format!("<{}>; rel=duplicate; pri=1", equal.url("a%26b"));
    assert_eq!(reply.get("link"), Some(expected.as_str()));
    assert_eq!(
        client.ask("HEAD", "/a&b", "").get("link"),
        None,
        "it costs a question"
    );
    for (target, headers) in [
        (
            "/a%26b",
            "Accept: text/html;q=0.1, application/metalink4+xml\r\n",
        ),
        ("/a%26b?metalink", ""),
    ] {
        let reply = client.ask("GET", target, headers);
        assert_eq!(reply.status, 200);
        assert_eq!(reply.get("content-type"), Some("application/metalink4+xml"));
        let text = reply.text();
        for part in [
            "<file name=\"a&amp;b\">",
            "<size>9</size>",
            "<hash type=\"adler32\">11e60398</hash>",
            "<url priority=\"1\">http://test/a%26b</url>",
            &format!("<url priority=\"2\">{}</url>", equal.url("a%26b")),
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(
            !text.contains(&base(&other)) && !text.contains(&base(&none)),
            "{text}"
        );
    }
}

#[test]
fn a_shipped_file_is_found_by_the_catalogue() {
    let here = Site::start(|config| config.follows_shipped = true);
    let folder = here.path("");
    here.close_in_catalogue("run.tf", 7);
    let shipments = Shipments::open(&folder).expect("opened");
    let destinations = ["https://store.example.org/raw", "/mnt/store"];
    for destination in destinations {
        assert_eq!(shipments.enqueue(destination, 1).expect("queued"), 1);
    }
    let mut client = here.connect();
    assert_eq!(
        client.ask("GET", "/run.tf", "").status,
        404,
        "it is on its way"
    );
    for destination in destinations {
        let shipment = shipments.take(destination, 2).expect("read").expect("one");
        let set = shipments.set(shipment.id, destination, ShipState::Verified, 3, None);
        set.expect("noted");
    }
    let reply = client.ask("GET", "/run.tf", "");
    assert_eq!(reply.status, 307);
    let expected = "https://store.example.org/raw/run.tf";
    assert_eq!(reply.get("location"), Some(expected));
    assert_eq!(client.ask("GET", "/other.tf", "").status, 404);
}

fn config(urls: &[String], to: &Path) -> FetchConfig {
    FetchConfig {
        part_bytes: PART as u64,
        stall: Duration::from_secs(30),
        ..FetchConfig::new(urls.to_vec(), to.to_owned())
    }
}

fn get(config: &FetchConfig) -> Result<Fetched, FetchError> {
    fetch(config, &AtomicBool::new(false), &|_, _| ())
}

#[test]
fn a_file_comes_in_ranges_from_all_servers_and_is_compared() {
    let (first, second) = (Site::start(|_| ()), Site::start(|_| ()));
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("a");
    let all = bytes(5 * PART + 7);
    for site in [&first, &second] {
        site.write("a", &all);
        site.write("empty", b"");
    }
    let config = config(&[first.url("a"), second.url("a")], &to);
    let fetched = get(&config).expect("fetched");
    assert_eq!(std::fs::read(&to).expect("there"), all);
    assert_eq!(fetched.sums.bytes, all.len() as u64);
    assert_eq!(fetched.compared.len(), 1, "{fetched:?}");
    assert!(
        fetched.sources.iter().all(|source| source.bytes > 0),
        "{fetched:?}"
    );
    assert!(matches!(get(&config), Err(FetchError::Exists(_))));
    let again = FetchConfig {
        may_replace: true,
        checksum: Some("adler32=1".to_owned()),
        ..config.clone()
    };
    let error = get(&again).expect_err("another checksum").to_string();
    assert!(error.contains("expected 00000001"), "{error}");
    assert_eq!(std::fs::read(&to).expect("there"), all, "the old one stays");
    let empty = FetchConfig {
        urls: vec![second.url("empty")],
        to: folder.path().join("empty"),
        ..config
    };
    assert_eq!(get(&empty).expect("fetched").sums.bytes, 0);
    assert_eq!(std::fs::read(&empty.to).expect("there"), b"");
}

/// Server in front of another one, which breaks each connection off after some bytes of its answer.
struct Cutting {
    address: SocketAddr,
    cuts: Arc<AtomicUsize>,
}

impl Cutting {
    /// Cuts the first `cuts` answers to GET off behind `bytes` bytes.
    fn start(to: SocketAddr, bytes: usize, cuts: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        let cuts = Arc::new(AtomicUsize::new(cuts));
        let left = cuts.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let left = left.clone();
                std::thread::spawn(move || relay(&client, to, bytes, &left));
            }
        });
        Self { address, cuts }
    }
}

fn relay(client: &TcpStream, to: SocketAddr, bytes: usize, cuts: &AtomicUsize) {
    let mut lines = BufReader::new(client);
    let server = TcpStream::connect(to).expect("connected");
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if lines.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        (&server).write_all(head.as_bytes()).expect("sent");
        let is_cut = head.starts_with("GET ")
            && cuts
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
        let mut from = BufReader::new(&server);
        let mut answer = String::new();
        let mut length = 0_usize;
        while !answer.ends_with("\r\n\r\n") {
            let before = answer.len();
            from.read_line(&mut answer).expect("an answer");
            let line = answer[before..].to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.trim().parse().expect("a number");
            }
        }
        let _ = (&mut &*client).write_all(answer.as_bytes());
        if head.starts_with("HEAD ") {
            continue;
        }
        let mut body = vec![0; length];
        std::io::Read::read_exact(&mut from, &mut body).expect("a body");
        let sent = if is_cut { length.min(bytes) } else { length };
        let _ = (&mut &*client).write_all(&body[..sent]);
        if is_cut {
            return;
        }
    }
}

#[test]
fn a_range_that_breaks_off_goes_on_at_another_server() {
    let (first, second) = (Site::start(|_| ()), Site::start(|_| ()));
    let all = bytes(4 * PART);
    for site in [&first, &second] {
        site.write("a", &all);
    }
    let cutting = Cutting::start(first.server.address(), PART / 2, usize::MAX);
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("a");
    let bad = format!("http://{}/a", cutting.address);
    let fetched = get(&config(&[bad, second.url("a")], &to)).expect("fetched");
    assert_eq!(std::fs::read(&to).expect("there"), all);
    let [bad, good] = &fetched.sources[..] else {
        panic!("{fetched:?}");
    };
    assert!(
        bad.failures > 0 && bad.bytes > 0 && good.bytes > 0,
        "{fetched:?}"
    );
    assert_eq!(
        bad.bytes + good.bytes,
        all.len() as u64,
        "no byte came twice"
    );
    assert_eq!(fetched.again_bytes, 0);
}

#[test]
fn behind_one_address_a_range_goes_on_by_a_new_connection() {
    let site = Site::start(|_| ());
    let all = bytes(2 * PART);
    site.write("a", &all);
    let cutting = Cutting::start(site.server.address(), 1000, 3);
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("a");
    let url = format!("http://{}/a", cutting.address);
    let fetched = get(&config(&[url], &to)).expect("fetched");
    assert_eq!(std::fs::read(&to).expect("there"), all);
    assert_eq!(fetched.sources[0].failures, 3);
    assert_eq!(cutting.cuts.load(Ordering::SeqCst), 0);
}

#[test]
fn a_half_file_is_taken_up() {
    let site = Site::start(|_| ());
    let all = bytes(3 * PART);
    site.write("a", &all);
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("a");
    let config = FetchConfig {
        streams: 1,
        ..config(&[site.url("a")], &to)
    };
    let (is_ending, came) = (AtomicBool::new(false), Mutex::new(0));
    let ended = fetch(&config, &is_ending, &|bytes, _| {
        let mut came = came.lock().expect("no thread panics");
        *came += bytes;
        if *came > PART as u64 {
            is_ending.store(true, Ordering::SeqCst);
        }
    });
    assert!(matches!(ended, Err(FetchError::Ended)), "{ended:?}");
    assert!(!to.exists());
    let fetched = get(&config).expect("fetched");
    assert_eq!(std::fs::read(&to).expect("there"), all);
    assert_eq!(fetched.kept_bytes, PART as u64);
    let came: u64 = fetched.sources.iter().map(|source| source.bytes).sum();
    assert_eq!(came, 2 * PART as u64);
}

/// Changes a byte of a file so that its server does not see it.
fn damage(site: &Site, name: &str, at: u64) {
    let file = std::fs::File::options().write(true).open(site.path(name));
    let file = file.expect("there");
    let modified = file.metadata().and_then(|it| it.modified());
    file.write_all_at(b"damaged!", at).expect("written");
    file.set_modified(modified.expect("a time"))
        .expect("set back");
}

#[test]
fn wrong_bytes_are_found_out_and_come_from_another_server() {
    let sites = [(); 3].map(|()| Site::start(|config| config.is_writable = true));
    let all = bytes(6 * PART);
    for site in &sites {
        // The checksum that an upload notes is believed as long as size and time of the file are those of then.
        let mut client = site.connect();
        client.request("PUT", "/a", "", &all);
        assert_eq!(client.reply("PUT").status, 201);
    }
    for part in 0..6 {
        damage(&sites[0], "a", part * PART as u64 + 10);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("a");
    let urls = sites.each_ref().map(|site| site.url("a"));
    let fetched = get(&config(&urls, &to)).expect("fetched");
    assert_eq!(std::fs::read(&to).expect("there"), all);
    let bad = fetched.sources[0].set_aside.as_deref().unwrap_or_default();
    assert!(bad.contains("wrong bytes"), "{fetched:?}");
    assert!(fetched.again_bytes > 0);
    for good in &fetched.sources[1..] {
        assert_eq!(good.set_aside, None, "{fetched:?}");
    }
    // With wrong bytes everywhere there is no file, and nothing is kept of it.
    let alone = FetchConfig {
        to: folder.path().join("b"),
        ..config(&urls[..1], &to)
    };
    let error = get(&alone).expect_err("wrong bytes");
    assert!(matches!(error, FetchError::Differs(_)), "{error}");
    assert!(!alone.to.exists());
    let mended = FetchConfig {
        urls: urls[..2].to_vec(),
        ..alone
    };
    assert_eq!(get(&mended).expect("fetched").kept_bytes, 0);
}

#[test]
fn servers_with_another_file_are_set_aside_and_links_are_followed() {
    let (equal, longer, other) = (
        Site::start(|_| ()),
        Site::start(|_| ()),
        Site::start(|_| ()),
    );
    let here = peer_of(&[base(&equal)]);
    let all = bytes(3 * PART);
    for site in [&here, &equal] {
        site.write("a", &all);
    }
    longer.write("a", &bytes(3 * PART + 1));
    other.write("a", &[&all[1..], b"x"].concat());
    let folder = tempfile::tempdir().expect("a folder");
    let to = folder.path().join("a");
    let urls = [
        here.url("a"),
        longer.url("a"),
        other.url("a"),
        nowhere() + "/a",
    ];
    let fetched = get(&config(&urls, &to)).expect("fetched");
    assert_eq!(std::fs::read(&to).expect("there"), all);
    let set_aside: Vec<bool> = fetched
        .sources
        .iter()
        .map(|source| source.set_aside.is_some())
        .collect();
    assert_eq!(set_aside, [false, true, true, true, false], "{fetched:?}");
    assert_eq!(fetched.sources[4].url, equal.url("a"), "named by the first");
    let none = config(
        &[here.url("none"), longer.url("none")],
        &folder.path().join("b"),
    );
    let error = get(&none).expect_err("no such file").to_string();
    assert!(error.contains("404"), "{error}");
    let silent = FetchConfig {
        give_up: Duration::from_millis(100),
        ..config(&[nowhere() + "/a"], &folder.path().join("c"))
    };
    assert!(matches!(get(&silent), Err(FetchError::NoSource(_))));
}
