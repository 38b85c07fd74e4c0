//! Clients that do what they should not.

use crate::client::Site;
use std::os::unix::fs::symlink;
use std::time::Duration;

#[test]
fn ambiguous_and_broken_requests_are_refused_and_the_connection_closed() {
    let site = Site::start(|_| ());
    site.write("a", b"x");
    let get = "GET /a HTTP/1.1\r\nHost: t\r\n";
    let long = format!("{get}A: {}\r\n\r\n", "x".repeat(40_000));
    let many = format!("{get}{}\r\n", "A: 1\r\n".repeat(101));
    let cases: [(&str, u16); 12] = [
        (
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
        ("Content-Length: 1\r\nContent-Length: 2\r\n\r\nxy", 400),
        ("Content-Length: -1\r\n\r\n", 400),
        ("Transfer-Encoding: identity\r\n\r\n", 501),
        ("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501),
        ("A: 1\nB: 2\r\n\r\n", 400),
        ("Host: u\r\n\r\n", 400),
        ("Expect: tea\r\n\r\n", 417),
        ("A : 1\r\n\r\n", 400),
        ("A: 1\r\n 2\r\n\r\n", 400),
    ];
    let cases = cases.map(|(headers, status)| (format!("{get}{headers}"), status));
    let others = [
        (long, 431),
        (many, 431),
        ("\u{16}\u{3}\u{1}\n".to_owned(), 400),
    ];
    let count = cases.len() + others.len();
    for (text, status) in cases.into_iter().chain(others) {
        let mut client = site.connect();
        // What follows must not be taken for a request.
        client.send(format!("{text}GET /a HTTP/1.1\r\nHost: t\r\n\r\n"));
        let shown = &text[..text.len().min(100)];
        let reply = client.reply("GET");
        assert_eq!(reply.status, status, "{shown:?}: {}", reply.text());
        assert_eq!(reply.get("connection"), Some("close"), "{shown:?}");
        assert!(client.is_closed(), "{shown:?}");
    }
    let line = format!("file_server_refused_total{{reason=\"head\"}} {count}");
    assert!(site.metrics().contains(&line), "{}", site.metrics());
}

#[test]
fn no_path_leads_out_of_the_folder_or_to_hidden_files() {
    let site = Site::start(|_| ());
    std::fs::write(site.around.path().join("secret"), "secret").expect("written");
    site.write("a", b"x");
    for hidden in [
        ".hidden",
        "a.part",
        ".a.1.part",
        "catalogue.sqlite",
        "catalogue.sqlite-wal",
    ] {
        site.write(hidden, b"hidden");
    }
    symlink("../secret", site.path("link")).expect("linked");
    symlink(site.around.path(), site.path("out")).expect("linked");
    let mut client = site.connect();
    for (target, status) in [
        ("/../secret", 400),
        ("/%2e%2e/secret", 400),
        ("/..%2fsecret", 400),
        ("/a/../../secret", 400),
        ("/%2e%2e%2fsecret", 400),
        ("/\\..\\secret", 404),
        ("/link", 403),
        ("/out/secret", 403),
        ("/.hidden", 404),
        ("/a.part", 404),
        ("/.a.1.part", 404),
        ("/catalogue.sqlite", 404),
        ("/catalogue.sqlite-wal", 404),
        ("/%2ehidden", 404),
        ("http://elsewhere/a", 200),
        ("/a%00", 400),
        ("/a/", 404),
        ("/", 403),
    ] {
        for method in ["GET", "HEAD"] {
            let reply = client.ask(method, target, "");
            assert_eq!(reply.status, status, "{method} {target}: {}", reply.text());
            assert!(!reply.text().contains("secret\n"), "{target}");
        }
    }
}

#[test]
fn clients_that_do_not_move_are_put_off() {
    let site = Site::start(|config| {
        config.limits.head_within = Duration::from_millis(100);
        config.limits.idle_within = Duration::from_millis(100);
        config.limits.rate_window = Duration::from_millis(100);
    });
    site.write("large", &vec![0; 64 << 20]);
    // A head that does not end.
    let mut slow = site.connect();
    slow.send("GET /a HTTP/1.1\r\n");
    assert_eq!(slow.reply("GET").status, 408);
    assert!(slow.is_closed());
    // No request at all.
    let mut idle = site.connect();
    assert!(idle.is_closed());
    // A reader that does not read: the transfer breaks.
    let mut reader = site.connect();
    reader.request("GET", "/large", "", b"");
    site.await_metric("file_server_broken_total 1");
    site.await_metric("file_server_refused_total{reason=\"slow\"} 2");
    site.await_metric("file_server_transfers_active 0");
}

#[test]
fn connections_beyond_the_bound_are_refused() {
    let site = Site::start(|config| {
        config.limits.connections_max = 2;
        config.is_writable = true;
        config.threads = 1;
    });
    site.write("a", b"x");
    let mut held: Vec<_> = (0..2).map(|_| site.connect()).collect();
    for client in &mut held {
        let head = "Host: t\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n";
        client.send(format!("PUT /b HTTP/1.1\r\n{head}"));
        assert_eq!(client.reply("PUT").status, 100);
    }
    // With a request under way none is put off.
    let refused = site.connect().reply("GET");
    let shown = (refused.status, refused.get("retry-after"));
    assert_eq!(shown, (503, Some("1")));
    for client in &mut held {
        client.send("x");
        assert!(client.reply("PUT").status < 300);
    }
    // The one that has been without a request for longest makes room for a client that has one.
    let mut next = site.connect();
    assert_eq!(next.ask("GET", "/a", "").status, 200);
    assert!(held[0].is_closed());
    assert_eq!(held[1].ask("GET", "/a", "").status, 200);
    site.await_metric("file_server_refused_total{reason=\"idle\"} 1");
    held.pop();
    site.await_metric("file_server_connections 1");
    let mut last = site.connect();
    assert_eq!(last.ask("GET", "/a", "").status, 200);
}
