//! Uploads and changes: whole or not at all.

use crate::client::{Reply, Site, bytes};
use std::os::unix::fs::symlink;
use std::process::Command;

fn writable() -> Site {
    Site::start(|config| config.is_writable = true)
}

fn send(site: &Site, method: &str, target: &str, headers: &str, body: &[u8]) -> Reply {
    let mut client = site.connect();
    client.request(method, target, headers, body);
    client.reply(method)
}

#[test]
fn an_upload_is_there_whole_under_its_name() {
    let site = writable();
    let all = bytes(3_000_001);
    let reply = send(&site, "PUT", "/new.dat", "Want-Digest: adler32\r\n", &all);
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert!(std::fs::read(site.path("new.dat")).expect("readable") == all);
    let etag = reply.get("etag").expect("a version").to_owned();
    let get = send(&site, "GET", "/new.dat", "Want-Digest: adler32\r\n", b"");
    assert_eq!(get.get("etag"), Some(etag.as_str()));
    assert_eq!(get.get("digest"), reply.get("digest"));
    assert_eq!(send(&site, "PUT", "/new.dat", "", b"other").status, 204);
    assert_eq!(
        std::fs::read(site.path("new.dat")).expect("readable"),
        b"other"
    );
    assert_eq!(
        send(&site, "PUT", "/empty", "Content-Length: 0\r\n", b"").status,
        201
    );
    assert_eq!(site.names(), ["empty", "new.dat"]);
}

#[test]
fn chunks_and_the_question_before_them_are_understood() {
    let site = writable();
    let mut client = site.connect();
    client.send(
        "PUT /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.reply("PUT").status, 100);
    client.send("4\r\nWiki\r\n5;x=y\r\npedia\r\n0\r\n\r\nGET /a HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(client.reply("PUT").status, 201);
    assert_eq!(client.reply("GET").text(), "Wikipedia");
}

#[test]
fn half_uploads_leave_nothing_behind() {
    let site = writable();
    site.write("old", b"old");
    let cases = [
        "PUT /new HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\nhalf",
        "PUT /old HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\nhalf",
        "PUT /new HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "PUT /new HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n",
    ];
    for text in cases {
        let mut client = site.connect();
        client.send(text);
        client.end();
        let reply = client.reply("PUT");
        assert_eq!(reply.status, 400, "{text}");
        assert!(client.is_closed());
        assert_eq!(site.names(), ["old"], "{text}");
    }
    assert_eq!(std::fs::read(site.path("old")).expect("readable"), b"old");
    // A client that is gone altogether.
    let mut client = site.connect();
    client.send("PUT /new HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\nhalf");
    site.await_metric("file_server_transfers_active 1");
    drop(client);
    site.await_metric("file_server_transfers_active 0");
    assert_eq!(site.names(), ["old"]);
}

#[test]
fn a_checksum_that_differs_keeps_the_file_out() {
    let site = writable();
    let check = |headers: &str, status: u16| {
        let reply = send(&site, "PUT", "/a", headers, b"Wikipedia");
        assert_eq!(reply.status, status, "{headers}: {}", reply.text());
        reply.text()
    };
    let text = check("Digest: adler32=11e60399\r\n", 422);
    assert!(
        text.contains("adler32 of what came is 11e60398, expected 11e60399"),
        "{text}"
    );
    check("Repr-Digest: adler=:AAAAAA==:\r\n", 422);
    check("Digest: crc32c=AAAAAA==\r\n", 422);
    check("Digest: adler32=xyz\r\n", 400);
    assert_eq!(site.names(), Vec::<String>::new());
    check(
        "Digest: adler32=11e60398, md5=x\r\nRepr-Digest: adler=:EeYDmA==:\r\n",
        201,
    );
}

#[test]
fn uploads_that_state_no_whole_file_are_refused() {
    let site = writable();
    std::fs::create_dir(site.path("folder")).expect("made");
    for (target, headers, status) in [
        ("/a", "Content-Range: bytes 0-0/2\r\n", 400),
        ("/a", "Content-Encoding: gzip\r\n", 415),
        ("/none/a", "", 409),
        ("/folder", "", 405),
        ("/folder/", "", 405),
        ("/", "", 405),
        ("/.a", "", 403),
        ("/a.part", "", 403),
        ("/catalogue.sqlite", "", 403),
        ("/../a", "", 400),
    ] {
        let reply = send(&site, "PUT", target, headers, b"x");
        assert_eq!(reply.status, status, "{target} {headers}: {}", reply.text());
    }
    assert_eq!(send(&site, "PUT", "/a", "", b"").status, 411);
    assert_eq!(site.names(), ["folder"]);
}

#[test]
fn conditions_keep_one_client_from_replacing_the_file_of_another() {
    let site = writable();
    let new_only = "If-None-Match: *\r\n";
    assert_eq!(send(&site, "PUT", "/a", new_only, b"one").status, 201);
    assert_eq!(send(&site, "PUT", "/a", new_only, b"two").status, 412);
    assert_eq!(
        send(&site, "PUT", "/a", "If-Match: \"x\"\r\n", b"two").status,
        412
    );
    assert_eq!(
        send(&site, "DELETE", "/a", "If-Match: \"x\"\r\n", b"").status,
        412
    );
    let head = send(&site, "HEAD", "/a", "", b"");
    let same = format!("If-Match: {}\r\n", head.get("etag").expect("a version"));
    assert_eq!(send(&site, "PUT", "/a", &same, b"two").status, 204);
    assert_eq!(send(&site, "DELETE", "/a", &same, b"").status, 412);
    assert_eq!(send(&site, "DELETE", "/a", "", b"").status, 204);
    assert_eq!(send(&site, "DELETE", "/a", "", b"").status, 404);
}

#[test]
fn a_server_that_is_only_read_from_changes_nothing() {
    let site = Site::start(|_| ());
    site.write("a", b"x");
    for method in ["PUT", "DELETE", "MKCOL", "MOVE", "COPY", "PROPPATCH"] {
        let headers = "Destination: /b\r\nContent-Length: 0\r\n";
        let reply = send(&site, method, "/a", headers, b"");
        assert_eq!(reply.status, 405, "{method}");
        assert_eq!(reply.get("allow"), Some("GET, HEAD, OPTIONS, PROPFIND"));
    }
    assert_eq!(send(&site, "BREW", "/a", "", b"").status, 501);
    assert_eq!(site.names(), ["a"]);
    let listed = send(&site, "PROPFIND", "/", "Depth: 1\r\n", b"");
    assert_eq!(listed.status, 207);
    assert!(
        listed.text().contains("<D:href>/a</D:href>"),
        "{}",
        listed.text()
    );
    assert_eq!(
        send(&site, "PROPFIND", "/", "Depth: infinity\r\n", b"").status,
        403
    );
}

#[test]
fn files_are_moved_and_copied_in_one_step() {
    let site = writable();
    site.write("a", b"one");
    site.write("b", b"two");
    let to = |destination: &str| format!("Destination: {destination}\r\n");
    let host = site.server.address();
    assert_eq!(
        send(&site, "COPY", "/a", &to("http://test/c"), b"").status,
        201
    );
    assert_eq!(send(&site, "COPY", "/a", &to("/c"), b"").status, 204);
    let keep = format!("{}Overwrite: F\r\n", to("/b"));
    assert_eq!(send(&site, "MOVE", "/a", &keep, b"").status, 412);
    assert_eq!(send(&site, "MOVE", "/a", &to("/b"), b"").status, 204);
    assert_eq!(std::fs::read(site.path("b")).expect("readable"), b"one");
    for (source, destination, status) in [
        ("/b", "/none/b", 409),
        ("/b", "/b", 403),
        ("/none", "/d", 404),
        ("/b", "/../d", 400),
        ("/b", "/.d", 403),
        ("/b", "/catalogue.sqlite", 403),
        ("/b", "http://elsewhere/d", 502),
    ] {
        for method in ["COPY", "MOVE"] {
            let reply = send(&site, method, source, &to(destination), b"");
            assert_eq!(
                reply.status, status,
                "{method} {source} {destination} at {host}"
            );
        }
    }
    assert_eq!(site.names(), ["b", "c"]);
}

#[test]
fn links_that_lead_out_are_not_followed_by_changes() {
    let site = writable();
    let secret = site.around.path().join("secret");
    std::fs::create_dir(site.around.path().join("dir")).expect("made");
    std::fs::write(&secret, b"secret").expect("written");
    symlink("../secret", site.path("link")).expect("linked");
    symlink("../dir", site.path("out")).expect("linked");
    for (method, target, headers) in [
        ("PUT", "/out/a", ""),
        ("MKCOL", "/out/new", ""),
        ("COPY", "/link", "Destination: /b\r\n"),
        ("PROPFIND", "/out", "Depth: 1\r\n"),
        ("PROPPATCH", "/link", ""),
        ("DELETE", "/out/a", ""),
    ] {
        let reply = send(
            &site,
            method,
            target,
            headers,
            if method == "PUT" { b"x" } else { b"" },
        );
        assert!(
            (400..500).contains(&reply.status),
            "{method} {target}: {}",
            reply.status
        );
        assert!(!reply.text().contains("secret"));
    }
    let listed = send(&site, "PROPFIND", "/", "Depth: 1\r\n", b"").text();
    assert!(
        !listed.contains("link") && !listed.contains("out"),
        "{listed}"
    );
    // An upload takes the place of a link, and does not go where it leads.
    assert_eq!(send(&site, "PUT", "/link", "", b"mine").status, 204);
    assert_eq!(send(&site, "DELETE", "/out", "", b"").status, 204);
    assert_eq!(std::fs::read(&secret).expect("readable"), b"secret");
    assert!(site.around.path().join("dir").exists());
    assert_eq!(site.names(), ["link"]);
}

#[test]
fn curl_uploads_and_deletes() {
    let site = writable();
    let source = site.around.path().join("source");
    std::fs::write(&source, bytes(1_000_000)).expect("written");
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "--fail", "-w", "%{http_code}"])
            .args(arguments)
            .output();
        let output = output.expect("curl runs; it is among the packages of scripts/setup.sh");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("text")
    };
    let url = site.url("up.dat");
    let source = source.to_str().expect("text");
    assert_eq!(curl(&["-T", source, &url]), "201");
    assert_eq!(
        curl(&["-T", source, "-H", "Transfer-Encoding: chunked", &url]),
        "204"
    );
    assert_eq!(curl(&["-X", "DELETE", &url]), "204");
    assert_eq!(site.names(), Vec::<String>::new());
}
