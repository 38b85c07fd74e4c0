//! GET and HEAD: files, ranges, conditions, connections that go on.

use crate::client::{Site, bytes};
use sheaf_auth::{Authority, Validity};
use sheaf_file_server::{FileServer, FileServerConfig, FileServerError, TlsFiles};
use sheaf_metrics::Registry;
use std::process::Command;
use std::sync::Arc;

#[test]
fn files_come_whole_with_the_name_of_the_server() {
    let site = Site::start(|config| config.name = Some("s3".to_owned()));
    let large = bytes(9_000_001);
    site.write("large.dat", &large);
    site.write("empty", b"");
    let mut client = site.connect();
    let reply = client.ask("GET", "/large.dat", "");
    assert_eq!(reply.status, 200);
    assert!(reply.body == large, "the bytes differ");
    assert_eq!(reply.get("x-served-by"), Some("s3"));
    assert_eq!(reply.get("accept-ranges"), Some("bytes"));
    assert!(reply.get("etag").is_some() && reply.get("last-modified").is_some());
    let head = client.ask("HEAD", "/large.dat", "");
    let without_date = |headers: &[(String, String)]| {
        let mut headers = headers.to_vec();
        headers.retain(|(name, _)| name != "Date");
        headers
    };
    assert_eq!(without_date(&head.headers), without_date(&reply.headers));
    assert_eq!(client.ask("GET", "/empty", "").body, b"");
    assert_eq!(client.ask("GET", "/none", "").status, 404);
    for line in [
        "file_server_requests_total{method=\"GET\",status=\"2xx\"} 2",
        "file_server_requests_total{method=\"HEAD\",status=\"2xx\"} 1",
        "file_server_requests_total{method=\"GET\",status=\"4xx\"} 1",
        "file_server_connections 1",
        "file_server_transfers_active 0",
    ] {
        // The server counts the end of a transfer after the client has its last byte.
        site.await_metric(line);
    }
}

#[test]
fn ranges_are_the_bytes_of_the_file() {
    let site = Site::start(|_| ());
    let all = bytes(300_000);
    site.write("a", &all);
    let mut client = site.connect();
    let mut one = |range: &str| client.ask("GET", "/a", &format!("Range: bytes={range}\r\n"));
    let reply = one("100000-199999");
    assert_eq!(reply.status, 206);
    assert_eq!(
        reply.get("content-range"),
        Some("bytes 100000-199999/300000")
    );
    assert!(reply.body == all[100_000..200_000]);
    assert!(one("-7").body == all[299_993..]);
    assert_eq!(one("300000-").status, 416);
    let reply = one("5-6,250000-299999,0-0");
    assert_eq!(reply.status, 206);
    let kind = reply.get("content-type").expect("a type").to_owned();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .expect(&kind);
    let mut expected = Vec::new();
    for (at, (first, last)) in [(5, 6), (250_000, 299_999), (0, 0)].into_iter().enumerate() {
        let gap = if at == 0 { "" } else { "\r\n" };
        let head = format!(
            "{gap}--{boundary}\r\nContent-Type: application/octet-stream\r\n\
             Content-Range: bytes {first}-{last}/300000\r\n\r\n"
        );
        expected.extend_from_slice(head.as_bytes());
        expected.extend_from_slice(&all[first..=last]);
    }
    expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(reply.body == expected, "{}", reply.text());
}

#[test]
fn requests_in_a_row_are_answered_in_their_order() {
    let site = Site::start(|_| ());
    site.write("a", b"first");
    site.write("b", b"second");
    let mut client = site.connect();
    client.send(
        "GET /a HTTP/1.1\r\nHost: t\r\n\r\nHEAD /a HTTP/1.1\r\nHost: t\r\n\r\n\
         GET /b HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nxyzGET /none HTTP/1.1\r\nHost: t\r\n\r\n\
         GET /b HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(client.reply("GET").text(), "first");
    assert_eq!(client.reply("HEAD").get("content-length"), Some("5"));
    assert_eq!(client.reply("GET").text(), "second");
    assert_eq!(client.reply("GET").status, 404);
    let last = client.reply("GET");
    assert_eq!(
        (last.text().as_str(), last.get("connection")),
        ("second", Some("close"))
    );
    assert!(client.is_closed());
}

#[test]
fn clients_of_http_1_0_keep_a_connection_if_they_ask() {
    let site = Site::start(|_| ());
    site.write("a", b"x");
    let mut client = site.connect();
    client.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.reply("GET").get("connection"), Some("keep-alive"));
    client.send("GET /a HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply("GET").get("connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn a_stop_lets_running_transfers_end() {
    let site = Site::start(|_| ());
    // More than the buffers of a socket hold, so that it runs while the server stops.
    let all = bytes(64 << 20);
    site.write("a", &all);
    let mut idle = site.connect();
    assert_eq!(idle.ask("GET", "/none", "").status, 404);
    let mut running = site.connect();
    running.request("GET", "/a", "", b"");
    let mut begun = [0; 1];
    running.peek(&mut begun);
    let address = site.server.address();
    let stopping = std::thread::spawn(move || site.server.stop());
    assert!(idle.is_closed(), "a connection without a request ends");
    let reply = running.reply("GET");
    assert!(reply.body == all, "the transfer broke");
    stopping.join().expect("stopped");
    assert!(
        std::net::TcpStream::connect(address).is_err(),
        "nothing listens"
    );
}

#[test]
fn curl_gets_files_and_ranges() {
    let site = Site::start(|_| ());
    let all = bytes(200_000);
    site.write("a b.dat", &all);
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "--fail"])
            .args(arguments)
            .output();
        let output = output.expect("curl runs; it is among the packages of scripts/setup.sh");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    let url = site.url("a%20b.dat");
    assert!(curl(&[&url]) == all);
    assert!(curl(&["-r", "1000-1999", &url]) == all[1000..2000]);
    let etag = String::from_utf8(curl(&["-I", &url])).expect("text");
    assert!(etag.starts_with("HTTP/1.1 200 OK\r\n"), "{etag}");
}

#[test]
fn the_page_tells_what_a_director_weighs_a_server_by() {
    let site = Site::start(|config| {
        config.name = Some("s1".to_owned());
        config.status = Some("127.0.0.1:0".parse().expect("an address"));
    });
    site.write("a", &bytes(1000));
    assert_eq!(site.connect().ask("GET", "/a", "").status, 200);
    site.await_metric("file_server_transfers_active 0");
    let mut page = site.page();
    for path in ["/metrics", "/.sheaf/metrics"] {
        let text = page.ask("GET", path, "").text();
        assert!(
            text.contains("file_server_sent_bytes_total 1000\n"),
            "{text}"
        );
    }
    let text = page.ask("GET", "/metrics.json", "").text();
    for field in [
        "\"name\":\"s1\"",
        "\"sent_bytes\":1000",
        "\"transfers_active\":0",
    ] {
        assert!(text.contains(field), "{text}");
    }
    assert_eq!(page.ask("GET", "/a", "").status, 404);
    assert_eq!(site.connect().ask("GET", "/.sheaf/metrics", "").status, 404);
}

#[test]
fn other_machines_are_served_in_tls_unless_a_setting_says_otherwise() {
    let folder = tempfile::tempdir().expect("a folder");
    let address = "0.0.0.0:0".parse().expect("an address");
    let mut config = FileServerConfig::new(folder.path().to_owned(), address);
    let registry = Arc::new(Registry::default());
    let refused = FileServer::start(&config, &registry).expect_err("refused");
    assert!(
        refused.to_string().contains("0.0.0.0:0 without TLS"),
        "{refused}"
    );
    config.is_insecure = true;
    FileServer::start(&config, &registry)
        .expect("started")
        .stop();
    config.listen = "127.0.0.1:0".parse().expect("an address");
    let first = FileServer::start(&config, &registry).expect("started");
    config.listen = first.address();
    let taken = FileServer::start(&config, &registry).expect_err("refused");
    assert!(matches!(taken, FileServerError::Listen { .. }), "{taken}");
    config.folder = folder.path().join("none");
    let none = FileServer::start(&config, &registry).expect_err("refused");
    assert!(none.to_string().contains("none"), "{none}");
}

#[test]
fn curl_gets_and_puts_in_tls() {
    let keys = tempfile::tempdir().expect("a folder");
    let at = |name: &str| keys.path().join(name);
    let authority = Authority::new("test", Validity::of_days(2)).expect("made");
    authority.save(keys.path(), false).expect("saved");
    let pem = authority.issue_host(&["localhost", "127.0.0.1"], Validity::of_days(1));
    let pem = pem.expect("issued");
    std::fs::write(at("host.pem"), &pem.certificate).expect("written");
    std::fs::write(at("host.key"), &pem.key).expect("written");
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(at("host.key"), owner_only).expect("set");
    let site = Site::start(|config| {
        config.is_writable = true;
        config.tls = Some(TlsFiles {
            certificate: at("host.pem"),
            key: at("host.key"),
        });
    });
    let all = bytes(3_000_000);
    site.write("a", &all);
    let ca = at("ca.pem");
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "--fail", "--cacert"])
            .arg(&ca)
            .args(arguments)
            .output();
        let output = output.expect("curl runs; it is among the packages of scripts/setup.sh");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    };
    let url = |name: &str| site.url(name).replace("http:", "https:");
    assert!(curl(&[&url("a")]) == all);
    assert!(curl(&["-r", "5-2000004", &url("a")]) == all[5..2_000_005]);
    let source = site.path("a");
    curl(&["-T", source.to_str().expect("text"), &url("b")]);
    assert!(std::fs::read(site.path("b")).expect("readable") == all);
    // A client that speaks no TLS.
    let mut clear = site.connect();
    clear.send("GET /a HTTP/1.1\r\nHost: t\r\n\r\n");
    site.await_metric("file_server_refused_total{reason=\"tls\"} 1");
}
