//! A server in front of stores: one of ours, XRootD, and a bucket of S3; the same requests and the same answers.

#[expect(
    dead_code,
    reason = "tests of the shipper need more of the store than these"
)]
#[path = "../../../ship/tests/ship/s3/store.rs"]
mod bucket;

use crate::client::{Reply, Site, bytes};
use sheaf_file_server::StoreConfig;
use sheaf_ship::S3Access;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::panic::AssertUnwindSafe;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// User that XRootD runs as when it is started by root, and its number in Debian.
const USER: &str = "daemon";
const USER_ID: u32 = 1;
const BEGUN_WITHIN: Duration = Duration::from_secs(30);
/// Adler-32 of "Wikipedia".
const DIGEST: &str = "Digest: adler32=11e60398\r\n";

fn front_of(store: StoreConfig) -> Site {
    Site::start(|config| {
        config.is_writable = true;
        config.store = Some(store);
    })
}

fn http(url: String) -> StoreConfig {
    let token_file = None;
    StoreConfig::Http { url, token_file }
}

fn put(site: &Site, target: &str, headers: &str, bytes: &[u8]) -> Reply {
    let mut client = site.connect();
    let stated = match bytes.is_empty() {
        true => format!("{headers}Content-Length: 0\r\n"),
        false => headers.to_owned(),
    };
    client.request("PUT", target, &stated, bytes);
    client.reply("PUT")
}

fn get(site: &Site, target: &str, headers: &str) -> Reply {
    site.connect().ask("GET", target, headers)
}

/// Requests that every store carries out behind this server.
fn check(site: &Site, makes_folders: bool, has_digest: bool) {
    let all = bytes(5_000_000);
    let name = "/run3/a%20b";
    if makes_folders {
        let made = site.connect().ask("MKCOL", "/run3", "");
        assert_eq!(made.status, 201, "{}", made.text());
    }
    assert_eq!(get(site, name, "").status, 404);
    let created = put(site, name, "", &all);
    assert_eq!(created.status, 201, "{}", created.text());
    let reply = get(site, name, "");
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert!(reply.body == all, "{} bytes", reply.body.len());
    let reply = get(site, name, "Range: bytes=1000-1999\r\n");
    assert_eq!(reply.status, 206);
    assert_eq!(reply.get("content-range"), Some("bytes 1000-1999/5000000"));
    assert!(reply.body == all[1000..2000]);
    let head = site.connect().ask("HEAD", name, "");
    assert_eq!(head.get("content-length"), Some("5000000"));
    // An upload with a wrong checksum leaves what was there, or nothing.
    let wrong = put(site, name, "Digest: adler32=11e60399\r\n", b"Wikipedia");
    assert_eq!(wrong.status, 422, "{}", wrong.text());
    assert_eq!(
        put(site, "/run3/new", "Digest: adler32=1\r\n", &all).status,
        422
    );
    assert_eq!(get(site, "/run3/new", "").status, 404);
    // A client that breaks off leaves nothing either.
    let mut client = site.connect();
    client.send("PUT /run3/half HTTP/1.1\r\nHost: t\r\nContent-Length: 5000000\r\n\r\n");
    client.send(&all[..1_000_000]);
    client.end();
    assert_eq!(client.reply("PUT").status, 400);
    // A store that still removes it answers with an error of its own.
    let end = Instant::now() + Duration::from_secs(30);
    let left = loop {
        let reply = get(site, "/run3/half", "");
        if reply.status != 502 || Instant::now() > end {
            break reply;
        }
    };
    assert_eq!(left.status, 404, "{}", left.text());
    let only_new = format!("{DIGEST}If-None-Match: *\r\n");
    assert_eq!(put(site, "/run3/c", &only_new, b"Wikipedia").status, 201);
    assert_eq!(put(site, "/run3/c", &only_new, b"Wikipedia").status, 412);
    assert_eq!(put(site, "/run3/c", DIGEST, b"Wikipedia").status, 204);
    let head = site
        .connect()
        .ask("HEAD", "/run3/c", "Want-Digest: adler32\r\n");
    let digest = has_digest.then_some("adler32=11e60398");
    assert_eq!(head.get("digest"), digest);
    let got = get(site, "/run3/c", "Want-Digest: adler32\r\n");
    assert_eq!(got.get("digest"), digest);
    assert_eq!(got.body, b"Wikipedia");
    assert_eq!(put(site, "/run3/empty", "", b"").status, 201);
    assert_eq!(get(site, "/run3/empty", "").body, b"");
    let list = site.connect().ask("PROPFIND", "/run3/", "Depth: 1\r\n");
    assert_eq!(list.status, 207, "{}", list.text());
    let text = list.text();
    for part in ["/run3/c", "5000000"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    // XRootD 5.5 leaves names as they are.
    let has_name = ["/run3/a%20b", "/run3/a b"].map(|name| text.contains(name));
    assert!(has_name.contains(&true), "{text}");
    assert!(!text.contains("/run3/half"), "{text}");
    for (method, target) in [("MOVE", "/run3/c"), ("PROPPATCH", "/run3/c")] {
        let reply = site
            .connect()
            .ask(method, target, "Destination: /run3/d\r\n");
        assert_eq!(reply.status, 501, "{}", reply.text());
        assert!(reply.get("allow").is_some_and(|it| it.contains("PUT")));
    }
    for (target, status) in [("/run3/c", 204), ("/run3/c", 404), ("/.hidden", 403)] {
        let reply = site.connect().ask("DELETE", target, "");
        assert_eq!(reply.status, status, "{target}: {}", reply.text());
    }
    assert_eq!(get(site, "/.hidden", "").status, 404);
    assert_eq!(get(site, "/../secret", "").status, 400);
}

#[test]
fn a_server_of_ours_is_a_store() {
    let behind = Site::start(|config| config.is_writable = true);
    let site = front_of(http(behind.url("")));
    check(&site, true, true);
    assert_eq!(behind.names(), ["run3"]);
    let read_only = Site::start(|config| config.store = Some(http(behind.url(""))));
    let refused = put(&read_only, "/a", "", b"x");
    assert_eq!(refused.status, 405);
    drop(behind);
    let reply = get(&site, "/run3/a%20b", "");
    assert_eq!(reply.status, 502);
    assert!(!reply.text().contains("127.0.0.1"), "{}", reply.text());
}

#[test]
fn of_a_store_with_a_path_lists_are_refused() {
    let behind = Site::start(|_| ());
    std::fs::create_dir(behind.path("data")).expect("made");
    behind.write("data/a", b"Wikipedia");
    let site = front_of(http(behind.url("data/")));
    assert_eq!(get(&site, "/a", "").body, b"Wikipedia");
    let list = site.connect().ask("PROPFIND", "/", "Depth: 1\r\n");
    assert_eq!(list.status, 501, "{}", list.text());
    // The store itself is only read from.
    let refused = put(&site, "/b", "", b"x");
    assert_eq!(refused.status, 405, "{}", refused.text());
}

/// Process that is killed when dropped.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Starts XRootD with HTTP on a port that is free. Returns `None` and says so if it is not installed.
fn xrootd(place: &std::path::Path) -> Option<(Ending, u16)> {
    let Ok(version) = Command::new("xrootd").arg("-v").output() else {
        let why = "xrootd is missing; on Debian: apt-get install xrootd-server";
        assert!(!is_ci(), "this test must run in CI: {why}");
        println!("skipped: {why}");
        return None;
    };
    drop(version);
    let at = |name: &str| place.join(name);
    for folder in ["data", "admin"] {
        std::fs::create_dir(at(folder)).expect("made");
    }
    let free = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    let (root, admin) = (at("data"), at("admin"));
    let text = format!(
        "all.export /\noss.localroot {}\nall.adminpath {admin}\nall.pidpath {admin}\nxrd.port {port}\n\
         xrd.protocol http:{port} libXrdHttp.so\nxrd.network nodnr\nxrootd.chksum adler32\n",
        root.display(),
        admin = admin.display(),
    );
    std::fs::write(at("x.cfg"), text).expect("written");
    let mut command = Command::new("xrootd");
    if rustix::process::geteuid().is_root() {
        for name in ["data", "admin", "x.cfg"] {
            chown(at(name), Some(USER_ID), None).expect("given away");
        }
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place, mode).expect("opened");
        command.args(["-R", USER]);
    }
    command.arg("-c").arg(at("x.cfg"));
    command.arg("-l").arg(at("admin/log"));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = Ending(command.spawn().expect("xrootd runs"));
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = child.0.try_wait().expect("a child");
        assert!(ended.is_none(), "xrootd ended: {ended:?}");
        assert!(begun.elapsed() < BEGUN_WITHIN, "xrootd does not listen");
        std::thread::yield_now();
    }
    Some((child, port))
}

#[test]
fn xrootd_is_a_store() {
    for is_last in [false, true] {
        let place = tempfile::tempdir().expect("a folder");
        let Some((mut xrootd, port)) = xrootd(place.path()) else {
            return;
        };
        let site = front_of(http(format!("http://127.0.0.1:{port}")));
        let checked = std::panic::catch_unwind(AssertUnwindSafe(|| check(&site, true, true)));
        let Err(panic) = checked else {
            return;
        };
        let ended = xrootd.0.try_wait().expect("a child");
        let log = std::fs::read_to_string(place.path().join("admin/log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(20)..].join("\n");
        println!("XRootD ended: {ended:?}; its log ends with\n{last}");
        // A store that ended by itself, or whose threads took one request twice, is no fault of the front: once more
        // with another.
        let is_at_fault = ended.is_some() || has_double_login(&lines);
        if !is_at_fault || is_last {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Whether two threads of XRootD 5.5 have logged in on one connection: the request that they share gets no answer.
fn has_double_login(log: &[&str]) -> bool {
    let logins = log.iter().filter_map(|line| {
        line.split_once("XrootdBridge: ")?
            .1
            .rsplit_once(" login as ")
    });
    let mut seen = std::collections::BTreeSet::new();
    logins
        .into_iter()
        .any(|(connection, _)| !seen.insert(connection))
}

#[test]
fn a_double_login_is_found_in_a_log_of_xrootd() {
    let line = |thread: u32, connection: &str| {
        format!(
            "261130 02:46:41 {thread} XrootdBridge: unknown.{connection}@[::127.0.0.1] login as daemon"
        )
    };
    let ended =
        "261130 02:46:41 24964 XrootdXeq: unknown.45:24@[::127.0.0.1] disc 0:00:00 (send failure)";
    let (first, second, third) = (line(1, "46:24"), line(2, "47:21"), line(3, "47:21"));
    assert!(!has_double_login(&[&first, ended, &second]));
    assert!(has_double_login(&[&first, ended, &second, &third]));
}

#[test]
fn a_bucket_of_s3_is_a_store() {
    let Some(store) = bucket::Store::start() else {
        assert!(!is_ci(), "this test must run in CI: scripts/setup.sh s3");
        return;
    };
    let access = S3Access {
        endpoint: Some(store.endpoint()),
        keys: Some(bucket::keys()),
        ..S3Access::default()
    };
    let config = |access: S3Access| StoreConfig::S3 {
        url: format!("s3://{}/raw", bucket::BUCKET),
        access,
    };
    let site = front_of(config(access.clone()));
    check(&site, false, true);
    let made = site.connect().ask("MKCOL", "/new", "");
    assert_eq!(made.status, 501, "{}", made.text());
    // A store that computes no checksum is compared by length, and what was stated is kept beside the object.
    assert!(put(&site, "/d", DIGEST, b"Wikipedia").status == 201);
    assert_eq!(store.get("raw/d").as_deref(), Some(&b"Wikipedia"[..]));
    let one = site.connect().ask("PROPFIND", "/d", "Depth: 0\r\n");
    assert!(
        one.text().contains("<D:getcontentlength>9<"),
        "{}",
        one.text()
    );
    let root = site.connect().ask("PROPFIND", "/", "Depth: 1\r\n");
    for part in [
        "<D:href>/</D:href>",
        "<D:href>/run3/</D:href>",
        "<D:href>/d</D:href>",
    ] {
        assert!(
            root.text().contains(part),
            "{part} is not in {}",
            root.text()
        );
    }
    let wrong = sheaf_ship::S3Keys {
        secret: "wrong".to_owned(),
        ..bucket::keys()
    };
    let refused = front_of(config(S3Access {
        keys: Some(wrong),
        ..access
    }));
    let reply = get(&refused, "/d", "");
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(
        reply.text().contains("refuses this server"),
        "{}",
        reply.text()
    );
}
