//! The proxy with servers at loopback that tell their names.

use super::*;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream as Std};
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(30);
const VIRTUAL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// Takes connections at `address` for ever, and tells each `name`.
fn serve_name(address: SocketAddr, name: &'static [u8; 1]) -> u16 {
    let listener = TcpListener::bind(address).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let _ = stream.write_all(name);
                // The client ends it.
                let _ = stream.read(&mut [0]);
            });
        }
    });
    port
}

/// Opens a connection through the proxy; the name of its server.
fn connect(port: u16) -> (Std, u8) {
    let mut stream = Std::connect((VIRTUAL, port)).expect("the proxy listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut name = [0];
    stream.read_exact(&mut name).expect("the server answers");
    (stream, name[0])
}

#[test]
fn all_connections_of_a_client_go_to_one_server_at_every_port() {
    let hosts = [Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::new(127, 0, 0, 4)];
    let at = |host: usize, port| SocketAddr::from((hosts[host], port));
    let [port, further] = [0, 0].map(|any| serve_name(at(0, any), b"a"));
    for port in [port, further] {
        serve_name(at(1, port), b"b");
    }
    let ids = [ServerId(0), ServerId(1)];
    let place = |id: ServerId| ServerPlace {
        name: format!("s{}", id.0),
        addresses: vec![hosts[id.0 as usize].into()],
        port,
    };
    let mut wanted = Wanted {
        service: "files".to_owned(),
        addresses: vec![VIRTUAL.into()],
        port,
        further_ports: Some([further, further]),
        affinity: Affinity::Client,
        servers: ids.map(|id| (id, place(id))).into(),
        slots: vec![ids[0]],
        moving: BTreeMap::new(),
        former: BTreeSet::new(),
        pins: BTreeMap::new(),
        held: BTreeSet::new(),
    };
    let mut plane = Userspace::new();
    plane.apply(&wanted).expect("it begins");
    let (held, name) = connect(port);
    assert_eq!(name, b'a');
    // The table names the other server alone; the client stays as long as it has a connection.
    wanted.slots = vec![ids[1]];
    wanted.servers.remove(&ids[0]);
    plane.apply(&wanted).expect("it follows");
    for port in [port, further, port, further] {
        assert_eq!(connect(port).1, b'a');
    }
    drop(held);
    let end = Instant::now() + PATIENCE;
    while plane.services["files"].shared.clients.count() > 0 {
        assert!(Instant::now() < end, "the client has no connection left");
        std::thread::yield_now();
    }
    assert_eq!(connect(further).1, b'b');
    assert_eq!(connect(port).1, b'b');
}
