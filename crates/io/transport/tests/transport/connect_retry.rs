//! Connections whose first segment is lost.

use crate::{PATIENCE, await_event, tcp};
use sheaf_transport::{Event, TcpConfig, Transport};
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// A listener that takes no connection more: the kernel drops what comes, as a link that is down does.
fn full_listener() -> (Socket, SocketAddr, Vec<Socket>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener
        .bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())
        .unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    loop {
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let outcome = client.connect_timeout(&address.into(), Duration::from_millis(100));
        waiting.push(client);
        if outcome.is_err() {
            return (listener, address, waiting);
        }
    }
}

#[test]
fn a_connection_that_nobody_answers_is_begun_once_more_and_stands_when_somebody_does() {
    let (listener, address, waiting) = full_listener();
    let mut client = tcp(TcpConfig {
        connect_retry_ms: 20,
        connect_ms: 60_000,
        ..TcpConfig::default()
    });
    let conn = client.connect(&address.to_string()).unwrap();
    let (begin, mut events) = (Instant::now(), Vec::new());
    while client.stats().connect_retries < 2 {
        client.poll(&mut events, Some(PATIENCE)).unwrap();
        assert_eq!(events, [], "no peer has answered");
        assert!(begin.elapsed() < PATIENCE, "not begun once more");
    }
    drop(waiting);
    let _accepting = std::thread::spawn(move || while listener.accept().is_ok() {});
    await_event(&mut client, "the connection", |event| match event {
        Event::Connected { conn: found } => {
            assert_eq!(*found, conn, "the same connection");
            Some(())
        }
        other => panic!("{other:?}"),
    });
    assert_eq!(client.stats().connected, 1);
}
