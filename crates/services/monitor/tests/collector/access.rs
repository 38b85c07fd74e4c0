//! TLS, tokens and networks, from the sockets of clients.

use super::{PATIENCE, ask, await_values, begin, config};
use sheaf_auth::{Authority, Validity};
use sheaf_metrics::Registry;
use sheaf_monitor::config::SecurityConfig;
use sheaf_monitor::{MonitorConfig, start};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

const WRITER: &str = "writes-0123456789";
const READER: &str = "reads-0123456789";
const OWNER: &str = "owns-0123456789ab";

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Writes certificates and tokens into `folder`, and returns the table that names them.
pub(crate) fn security(folder: &Path) -> SecurityConfig {
    let at = |name: &str| folder.join(name);
    let authority = Authority::new("north", Validity::of_days(2)).unwrap();
    authority.save(folder, true).unwrap();
    let pem = authority
        .issue_host(&["localhost", "127.0.0.1"], Validity::of_days(1))
        .unwrap();
    write(&at("host.pem"), &pem.certificate);
    write(&at("host.key"), &pem.key);
    let tokens = format!("{WRITER} write\n{READER} read\n{OWNER}\n");
    write(&at("tokens"), &tokens);
    SecurityConfig {
        certificate: at("host.pem"),
        key: at("host.key"),
        tokens: at("tokens"),
        ..SecurityConfig::default()
    }
}

/// Sends one request over TLS; returns the status.
fn ask_tls(at: SocketAddr, ca: &Path, method: &str, path: &str, token: &str, body: &[u8]) -> u16 {
    use tokio_rustls::rustls::{ClientConnection, StreamOwned};
    let client = sheaf_auth::web::client(ca).unwrap();
    let client = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(client, stream);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n{token}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_token_of_the_right_kind_opens_http_and_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let secure = MonitorConfig {
        security: security(folder.path()),
        ..config(&folder.path().join("data"))
    };
    let monitor = begin(&secure);
    let http = monitor.http();
    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let line = b"load,way=http value=1";
    for (method, path, token, expected) in [
        ("POST", "/write", "", 401),
        ("POST", "/write", "another-0123456789", 401),
        ("POST", "/write", READER, 403),
        ("POST", "/write", WRITER, 204),
        ("POST", "/write", OWNER, 204),
        ("GET", "/api/v1/query?query=load", WRITER, 403),
        ("GET", "/api/v1/query?query=load", READER, 200),
        ("GET", "/metrics", "", 401),
        ("GET", "/healthz", "", 200),
    ] {
        let status = ask_tls(http, &ca, method, path, &bearer(token), line);
        assert_eq!(status, expected, "{method} {path} {token}");
    }
    // A client in the clear gets no answer of HTTP.
    let mut plain = TcpStream::connect(http).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    monitor.end();

    let clear = MonitorConfig {
        security: SecurityConfig {
            tokens: folder.path().join("tokens"),
            allow: vec!["127.0.0.1".to_owned()],
            ..SecurityConfig::default()
        },
        ..config(&folder.path().join("clear"))
    };
    let monitor = begin(&clear);
    let send = |first: &str| {
        let mut tcp = TcpStream::connect(monitor.tcp()[0]).unwrap();
        tcp.write_all(format!("{first}\nload,way=tcp value=2\n").as_bytes())
            .unwrap();
        let _ = tcp.shutdown(std::net::Shutdown::Write);
        // The collector closes when it has taken the lines, or refused them; a query may see them later.
        let _ = tcp.read_to_end(&mut Vec::new());
    };
    send("load,way=open value=1");
    send(&format!("# token {READER}"));
    send(&format!("# token {WRITER}"));
    let query = "/api/v1/query?query=load";
    let begun = std::time::Instant::now();
    loop {
        let answer = ask(monitor.http(), "GET", query, &bearer(READER), b"").1;
        assert!(!answer.contains("open"), "{answer}");
        if answer.contains("tcp") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer}");
    }
    let udp = UdpSocket::bind("127.0.0.2:0").unwrap();
    udp.send_to(b"load,way=udp value=3", monitor.udp()[0])
        .unwrap();
    let begun = std::time::Instant::now();
    loop {
        let metrics = ask(monitor.http(), "GET", "/metrics", &bearer(READER), b"").1;
        if metrics.contains("monitor_access_refused_total{reason=\"network\"} 1") {
            assert!(metrics.contains("reason=\"rights\"} 1"), "{metrics}");
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{metrics}");
    }
    monitor.end();
}

#[test]
fn without_tokens_loopback_is_open_and_unreadable_ones_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let monitor = begin(&config(folder.path()));
    assert_eq!(
        ask(monitor.http(), "POST", "/write", "", b"load,way=a value=1").0,
        204
    );
    await_values(monitor.http(), "load", "way", &[("a", "1")]);
    monitor.end();
    let unread = MonitorConfig {
        security: SecurityConfig {
            tokens: folder.path().join("none"),
            ..SecurityConfig::default()
        },
        ..config(folder.path())
    };
    let error = start(&unread, Arc::new(Registry::default())).err().unwrap();
    assert!(
        error
            .to_string()
            .starts_with("monitor.security: cannot read the tokens"),
        "{error}"
    );
}
