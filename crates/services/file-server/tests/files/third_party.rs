//! Copies between servers: pulled, pushed, followed by markers, verified.

use crate::client::{Reply, Site, bytes};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};

fn site() -> Site {
    Site::start(|config| {
        config.is_writable = true;
        config.has_third_party = true;
    })
}

fn copy(site: &Site, target: &str, headers: &str) -> Reply {
    let mut client = site.connect();
    client.ask("COPY", target, headers)
}

/// Last line of the body of an answer.
fn outcome(reply: &Reply) -> String {
    assert_eq!(reply.status, 202, "{}", reply.text());
    let text = reply.text();
    assert!(text.starts_with("Perf Marker\nTimestamp: "), "{text}");
    assert!(text.contains("\nStripe Bytes Transferred: "), "{text}");
    text.lines().last().unwrap_or_default().to_owned()
}

/// Server that answers each connection with fixed bytes, and tells what it was asked.
fn fixed(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (tell, told) = sync_channel(100);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            let text = head(&stream);
            let answer = answer(&text);
            let _ = tell.send(text);
            let _ = (&stream).write_all(&answer);
        }
    });
    (url, told)
}

fn head(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream);
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        if lines.read_line(&mut text).expect("readable") == 0 {
            break;
        }
    }
    text
}

#[test]
fn files_are_pulled_and_pushed_between_two_servers() {
    let (here, there) = (site(), site());
    let all = bytes(5_000_000);
    there.write("source", &all);
    let pull = copy(
        &here,
        "/pulled",
        &format!("Source: {}\r\n", there.url("source")),
    );
    assert_eq!(outcome(&pull), "success: Created");
    assert!(std::fs::read(here.path("pulled")).expect("readable") == all);
    let must = "RequireChecksumVerification: true\r\n";
    let push = copy(
        &here,
        "/pulled",
        &format!("Destination: {}\r\n{must}", there.url("pushed")),
    );
    assert_eq!(outcome(&push), "success: Created");
    assert!(std::fs::read(there.path("pushed")).expect("readable") == all);
    assert_eq!(
        (here.names(), there.names()),
        (
            vec!["pulled".to_owned()],
            vec!["pushed".to_owned(), "source".to_owned()]
        )
    );
    here.await_metric("file_server_received_bytes_total 5000000\n");
    here.await_metric("file_server_transfers_active 0\n");
}

#[test]
fn what_fails_is_told_and_leaves_nothing() {
    let here = site();
    let there = site();
    here.write("old", b"old");
    let failed = |headers: &str| {
        let reply = copy(&here, "/new", headers);
        let outcome = outcome(&reply);
        assert!(outcome.starts_with("failure: "), "{outcome}");
        assert_eq!(here.names(), ["old"], "{headers}");
        outcome
    };
    let text = failed(&format!("Source: {}\r\n", there.url("none")));
    assert!(text.contains("status 404"), "{text}");
    let with = |headers: &'static str, body: &'static str| {
        let (url, _) =
            fixed(move |_| format!("HTTP/1.1 200 OK\r\n{headers}\r\n{body}").into_bytes());
        format!("Source: {url}/a\r\n")
    };
    let wrong = with(
        "Content-Length: 9\r\nDigest: adler32=11e60399\r\n",
        "Wikipedia",
    );
    let text = failed(&wrong);
    assert!(
        text.contains("adler32 is 11e60398 here and 11e60399 there"),
        "{text}"
    );
    failed(&with("Content-Length: 10\r\n", "Wikipedia"));
    let untold = with("Content-Length: 9\r\n", "Wikipedia");
    let text = failed(&format!("{untold}RequireChecksumVerification: true\r\n"));
    assert!(text.contains("tells no checksum"), "{text}");
    let (url, _) =
        fixed(|_| b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n".to_vec());
    let text = failed(&format!("Source: {url}/a\r\n"));
    assert!(text.contains("more than 5 redirections"), "{text}");
    let free = TcpListener::bind("127.0.0.1:0")
        .expect("bound")
        .local_addr()
        .expect("an address");
    failed(&format!("Source: http://{free}/a\r\n"));
}

#[test]
fn copies_that_cannot_be_are_refused_at_once() {
    let here = site();
    here.write("old", b"old");
    std::fs::create_dir(here.path("folder")).expect("made");
    let (url, _) = fixed(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".to_vec());
    let source = format!("Source: {url}/a\r\n");
    for (target, headers, status) in [
        ("/old", format!("{source}Overwrite: F\r\n"), 412),
        ("/none/new", source.clone(), 409),
        ("/folder", source.clone(), 405),
        ("/.new", source.clone(), 403),
        (
            "/new",
            "Source: http://elsewhere.example/a\r\n".to_owned(),
            400,
        ),
        ("/new", "Source: https://test/a\r\n".to_owned(), 400),
        ("/new", "Source: file:///etc/passwd\r\n".to_owned(), 400),
        ("/new", "Source: https://user@host/a\r\n".to_owned(), 400),
        ("/none", format!("Destination: {url}/a\r\n"), 404),
        ("/folder", format!("Destination: {url}/a\r\n"), 403),
    ] {
        let reply = copy(&here, target, &headers);
        assert_eq!(reply.status, status, "{target} {headers}: {}", reply.text());
    }
    let without = Site::start(|config| config.is_writable = true);
    assert_eq!(copy(&without, "/new", &source).status, 501);
    assert_eq!(here.names(), ["folder", "old"]);
    // A server that is only read from pushes, and does not pull.
    let reading = Site::start(|config| config.has_third_party = true);
    reading.write("a", b"x");
    assert_eq!(copy(&reading, "/new", &source).status, 405);
    let there = site();
    let push = copy(
        &reading,
        "/a",
        &format!("Destination: {}\r\n", there.url("a")),
    );
    assert_eq!(outcome(&push), "success: Created");
}

#[test]
fn the_other_server_sees_the_headers_that_are_meant_for_it() {
    let here = site();
    let (second, told_second) =
        fixed(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx".to_vec());
    let (first, told_first) = fixed(move |_| {
        let location = format!("{second}/there?authz=1");
        format!(
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
        )
        .into_bytes()
    });
    let headers = format!(
        "Source: {first}/a%20b\r\nTransferHeaderAuthorization: Bearer x\r\nAuthorization: Bearer own\r\n"
    );
    assert_eq!(outcome(&copy(&here, "/new", &headers)), "success: Created");
    let (first, second) = (
        told_first.recv().expect("asked"),
        told_second.recv().expect("asked"),
    );
    assert!(first.starts_with("GET /a%20b HTTP/1.1\r\n"), "{first}");
    assert!(
        second.starts_with("GET /there?authz=1 HTTP/1.1\r\n"),
        "{second}"
    );
    for text in [first, second] {
        // In this spelling, as some servers know no other.
        assert!(text.contains("Authorization: Bearer x\r\n"), "{text}");
        assert!(text.contains("Want-Digest: adler32\r\n"), "{text}");
        assert!(!text.contains("own"), "{text}");
    }
}

#[test]
fn a_copy_ends_with_its_client() {
    let here = site();
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let mut client = here.connect();
    client.request("COPY", "/new", &format!("Source: {url}/a\r\n"), b"");
    let (mut stream, _) = listener.accept().expect("a connection");
    head(&stream);
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf")
        .expect("sent");
    let mut marker = [0; 1];
    client.peek(&mut marker);
    here.await_metric("file_server_received_bytes_total 4");
    drop(client);
    // The server lets the other one go as well.
    let mut room = [0; 10];
    assert!(matches!(stream.read(&mut room), Ok(0) | Err(_)));
    here.await_metric("file_server_transfers_active 0");
    assert_eq!(here.names(), Vec::<String>::new());
}
