//! Loads on servers of one connection a thread, each of which behaves in one way.

use rustix::net::{AddressFamily, SocketType};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sheaf_load::{Failure, Load, Method, Outcome, Target, Tls, probe, run};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

const BODY_BYTES: u64 = 300_000;

/// Starts a server that gives every connection to `serve`, in a thread each. It ends with the process.
fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Reads the head of a request; `None` if the client is gone.
fn head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// Answers every request of a connection with a body of `bytes`; whether the client is there.
fn answer(stream: &mut impl Write, name: &str, bytes: u64) -> bool {
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\nX-Served-By: {name}\r\n\r\n");
    let body = vec![b'x'; usize::try_from(bytes).unwrap()];
    stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&body).is_ok()
}

fn target(address: SocketAddr) -> Target {
    Target::parse(&format!("http://{address}/object")).unwrap()
}

fn load(targets: &[SocketAddr]) -> Load {
    Load {
        targets: targets.iter().copied().map(target).collect(),
        clients: 4,
        window: Duration::from_millis(300),
        object_bytes: Some(BODY_BYTES),
        ..Load::default()
    }
}

fn check(load: &Load) -> Outcome {
    let outcome = run(load, &mut |_| {}).unwrap();
    assert!(outcome.adds_up(), "{outcome:#?}");
    outcome
}

/// Runs `load` on a server that always fails; all failures are `expected`.
fn check_failure(load: &Load, expected: Failure) {
    let outcome = check(load);
    assert_eq!(outcome.finished, 0, "{outcome:#?}");
    assert!(outcome.failures() >= 4, "{outcome:#?}");
    assert_eq!(outcome.failed.get(&expected), Some(&outcome.failures()));
    assert_eq!(outcome.broken() > 0, expected.is_break());
}

#[test]
fn whole_bodies_are_finished_and_counted_by_server() {
    let serve = |name: &'static str| {
        server(move |mut stream| {
            head(&mut stream);
            answer(&mut stream, name, BODY_BYTES);
        })
    };
    let outcome = check(&load(&[serve("a"), serve("b")]));
    assert_eq!(outcome.failures(), 0, "{outcome:#?}");
    assert!(outcome.window_finished >= 8, "{outcome:#?}");
    let names: Vec<&str> = outcome.servers.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "b"]);
    let finished: u64 = outcome.servers.values().map(|served| served.finished).sum();
    assert_eq!(finished, outcome.window_finished);
    let bytes: u64 = outcome.servers.values().map(|served| served.bytes).sum();
    assert_eq!(bytes, outcome.window_bytes);
    assert!(bytes >= finished * BODY_BYTES);
    assert_eq!(outcome.latencies.transfer.count(), finished);
    // Nothing is before the window here: each transfer that finished had a connection of its own.
    assert!(outcome.window_connections >= finished);
    assert!(outcome.held_max <= 4);
}

#[test]
fn a_connection_that_is_kept_serves_many_transfers() {
    let address =
        server(
            |mut stream| {
                while head(&mut stream).is_some() && answer(&mut stream, "a", BODY_BYTES) {}
            },
        );
    let outcome = check(&Load {
        keeps_alive: true,
        ..load(&[address])
    });
    assert_eq!(outcome.failures(), 0, "{outcome:#?}");
    assert!(outcome.finished > 4, "{outcome:#?}");
    assert_eq!((outcome.window_connections, outcome.reconnected), (4, 0));
}

#[test]
fn a_kept_connection_that_the_server_closes_is_made_again() {
    let address = server(|mut stream| {
        head(&mut stream);
        answer(&mut stream, "a", BODY_BYTES);
        // It does not say so before.
    });
    let outcome = check(&Load {
        keeps_alive: true,
        ..load(&[address])
    });
    assert_eq!(outcome.failures(), 0, "{outcome:#?}");
    assert!(outcome.finished > 4, "{outcome:#?}");
}

#[test]
fn what_a_server_does_wrong_is_named() {
    let short = server(|mut stream| {
        head(&mut stream);
        answer(&mut stream, "a", BODY_BYTES - 1);
    });
    check_failure(&load(&[short]), Failure::Short);
    let silent = server(|mut stream| {
        head(&mut stream);
    });
    check_failure(&load(&[silent]), Failure::NoAnswer);
    // Closed with a request unread, a connection is reset.
    let reset = server(|stream| {
        let mut byte = [0];
        stream.peek(&mut byte).ok();
    });
    check_failure(&load(&[reset]), Failure::Reset);
    let gone = server(|mut stream| {
        head(&mut stream);
        let text = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(text).ok();
    });
    check_failure(&load(&[gone]), Failure::BadStatus);
    let other = server(|mut stream| {
        head(&mut stream);
        answer(&mut stream, "a", BODY_BYTES);
    });
    let larger = Load {
        object_bytes: Some(BODY_BYTES + 1),
        ..load(&[other])
    };
    check_failure(&larger, Failure::BadAnswer);
}

#[test]
fn where_nothing_listens_connections_are_refused() {
    // Bound, so that no other test gets the port, and not listening.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap();
    check_failure(&load(&[address.try_into().unwrap()]), Failure::Refused);
}

#[test]
fn a_server_that_stops_in_a_body_is_stalled() {
    let address = server(|mut stream| {
        head(&mut stream);
        answer(&mut stream, "a", BODY_BYTES / 2);
        // Until the client has gone.
        stream.peek(&mut [0]).ok();
    });
    let impatient = Load {
        idle_timeout: Duration::from_millis(50),
        ..load(&[address])
    };
    check_failure(&impatient, Failure::Stalled);
}

#[test]
fn uploads_have_a_name_for_each_client_and_heads_no_body() {
    let address = server(|mut stream| {
        let Some(text) = head(&mut stream) else {
            return;
        };
        let path = text.split(' ').nth(1).unwrap_or_default();
        let is_put = text.starts_with("PUT ") && (0..4).any(|n| path == format!("/object.{n}"));
        let mut body = Vec::new();
        let read = (&stream).take(BODY_BYTES).read_to_end(&mut body);
        let status = match read {
            Ok(bytes) if is_put && bytes as u64 == BODY_BYTES => "201 Created",
            _ => "500 Error",
        };
        write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").ok();
    });
    let outcome = check(&Load {
        method: Method::Put,
        ..load(&[address])
    });
    assert_eq!(outcome.failures(), 0, "{outcome:#?}");
    assert!(outcome.window_bytes >= outcome.finished * BODY_BYTES && outcome.finished > 0);
    let heads = server(|mut stream| {
        head(&mut stream);
        answer(&mut stream, "a", 0);
    });
    let outcome = check(&Load {
        method: Method::Head,
        ..load(&[heads])
    });
    assert!(
        outcome.failures() == 0 && outcome.finished > 0,
        "{outcome:#?}"
    );
    assert_eq!(outcome.window_bytes, 0);
}

#[test]
fn clients_keep_to_their_rate() {
    let address = server(|mut stream| {
        head(&mut stream);
        answer(&mut stream, "a", BODY_BYTES);
    });
    let rate = 1_000_000;
    let outcome = check(&Load {
        rate_bytes_per_s: Some(rate),
        ..load(&[address])
    });
    let most = 4.0 * (rate as f64 * outcome.seconds + 2.0 * 20_000.0);
    let moved = outcome.window_bytes as f64;
    assert!(moved <= most && moved > 0.0, "{moved} of {most}");
    assert_eq!(outcome.failures(), 0, "{outcome:#?}");
}

#[test]
fn ranges_are_asked_for_within_the_object() {
    let address = server(|mut stream| {
        let text = head(&mut stream).unwrap_or_default();
        let range = text
            .lines()
            .find_map(|line| line.strip_prefix("Range: bytes="));
        let ends = range.and_then(|range| range.split_once('-'));
        let ends = ends.and_then(|(a, b)| Some((a.parse::<u64>().ok()?, b.parse::<u64>().ok()?)));
        let status = match ends {
            Some((first, last)) if last < BODY_BYTES && last - first == 999 => {
                "206 Partial Content"
            }
            _ => "416 Range Not Satisfiable",
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: 1000\r\n\r\n");
        stream.write_all(head.as_bytes()).ok();
        stream.write_all(&[0; 1000]).ok();
    });
    let outcome = check(&Load {
        range_bytes: Some(1000),
        ..load(&[address])
    });
    assert!(
        outcome.failures() == 0 && outcome.finished > 4,
        "{outcome:#?}"
    );
    let unknown = Load {
        range_bytes: Some(1000),
        object_bytes: None,
        ..load(&[address])
    };
    let error = run(&unknown, &mut |_| {}).unwrap_err().to_string();
    let expected = "found ranges of 1000 bytes of objects of unknown bytes, expected less";
    assert_eq!(error, expected);
}

#[test]
fn encrypted_bodies_are_whole_and_servers_that_no_authority_knows_are_refused() {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], private)
        .unwrap();
    let config = Arc::new(config);
    let address = server(move |stream| {
        let connection = ServerConnection::new(config.clone()).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        while head(&mut stream).is_some() && answer(&mut stream, "a", BODY_BYTES) {}
    });
    let folder = tempfile::tempdir().unwrap();
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, key.cert.pem()).unwrap();
    let encrypted = Load {
        targets: vec![Target::parse(&format!("https://{address}/object")).unwrap()],
        tls: Tls::Authorities(Some(authority.clone())),
        ..load(&[address])
    };
    for load in [
        encrypted.clone(),
        Load {
            keeps_alive: true,
            ..encrypted.clone()
        },
        Load {
            tls: Tls::Any,
            rate_bytes_per_s: Some(10_000_000),
            ..encrypted.clone()
        },
    ] {
        let outcome = check(&load);
        assert_eq!(outcome.failures(), 0, "{outcome:#?}");
        assert!(outcome.finished > 4, "{outcome:#?}");
        assert!(outcome.window_bytes >= outcome.window_finished * BODY_BYTES);
    }
    let asked = |load: &Load| probe(&load.targets[0], &[], &load.tls, Duration::from_secs(10));
    let found = asked(&encrypted).unwrap();
    assert_eq!((found.status, found.length), (200, Some(BODY_BYTES)));
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&authority, other.cert.pem()).unwrap();
    check_failure(&encrypted, Failure::Tls);
    let refused = asked(&encrypted).unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");
    std::fs::write(&authority, "none").unwrap();
    let error = run(&encrypted, &mut |_| {}).unwrap_err().to_string();
    assert!(
        error.ends_with("found none, expected at least one"),
        "{error}"
    );
}
