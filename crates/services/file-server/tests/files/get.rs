//! GET and HEAD: files, ranges, conditions, connections that go on.

use crate::client::{Site, bytes};
use std::process::Command;

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
    let metrics = site.metrics();
    for line in [
        "file_server_requests_total{method=\"GET\",status=\"2xx\"} 2",
        "file_server_requests_total{method=\"HEAD\",status=\"2xx\"} 1",
        "file_server_requests_total{method=\"GET\",status=\"4xx\"} 1",
        "file_server_connections 1",
        "file_server_transfers_active 0",
    ] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
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
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let url = site.url("a%20b.dat");
    assert!(curl(&[&url]) == all);
    assert!(curl(&["-r", "1000-1999", &url]) == all[1000..2000]);
    let etag = String::from_utf8(curl(&["-I", &url])).expect("text");
    assert!(etag.starts_with("HTTP/1.1 200 OK\r\n"), "{etag}");
}
