//! Both transports against the contract suite.

use crate::{arena, authority, encrypted, nobody_at, tls_of};
use sheaf_protocol::Limits;
use sheaf_transport::contract::{Pair, check, check_admission};
use sheaf_transport::memory::{Faults, Network, Settings};
use sheaf_transport::{Arena, ArenaOptions, Tcp, TcpConfig};
use std::net::TcpListener;

const LIMITS: Limits = Limits {
    head_bytes_max: 1 << 20,
    body_bytes_max: 3 << 20,
};

fn tcp_endpoint() -> Tcp {
    let options = ArenaOptions {
        huge_pages: false,
        prefault: false,
        shared: false,
    };
    let arena = Arena::new(256 << 20, options).unwrap();
    Tcp::new(
        TcpConfig {
            limits: LIMITS,
            ..TcpConfig::default()
        },
        arena,
    )
    .unwrap()
}

fn tcp_pair(address: &str, absent: String) -> Pair<Tcp> {
    let (client, server) = (tcp_endpoint(), tcp_endpoint());
    // The queue, and a send and a receive buffer of twice what was asked for.
    let held_bytes_max = (8 + 2 * 4 + 2 * 4 + 1) << 20;
    let address = address.to_owned();
    Pair {
        client,
        server,
        address,
        absent,
        limits: LIMITS,
        held_bytes_max,
    }
}

#[test]
fn tcp_keeps_the_contract() {
    check(|| tcp_pair("127.0.0.1:0", nobody_at("127.0.0.1")));
}

#[test]
fn tcp_keeps_the_contract_over_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6 loopback");
        return;
    }
    check(|| tcp_pair("[::1]:0", nobody_at("::1")));
}

#[test]
fn unix_sockets_keep_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("unix:{}/{name}", folder.path().display());
    check(|| tcp_pair(&at("server"), at("absent")));
    // The contract has let every server go.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn tls_over_unix_sockets_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("unix:{}/{name}", folder.path().display());
    check_tls(&at("server"), || at("absent"));
}

#[test]
fn tls_keeps_the_contract() {
    check_tls("127.0.0.1:0", || nobody_at("127.0.0.1"));
}

fn check_tls(address: &str, absent: impl Fn() -> String) {
    let authority = authority();
    let endpoint = |node| {
        let config = TcpConfig {
            limits: LIMITS,
            ..TcpConfig::default()
        };
        let security = encrypted(tls_of(&authority, node));
        Tcp::with_security(config, arena(256 << 20), security).unwrap()
    };
    check(|| Pair {
        client: endpoint("flp:0"),
        server: endpoint("epn:0"),
        ..tcp_pair(address, absent())
    });
}

/// Waits for admissions, and not for long: a part of the suite waits for the end of that.
fn guarded() -> TcpConfig {
    TcpConfig {
        limits: LIMITS,
        awaits_admission: true,
        first_frame_ms: 2_000,
        ..TcpConfig::default()
    }
}

#[test]
fn tcp_keeps_the_contract_of_admissions() {
    check_admission(|| Pair {
        server: Tcp::new(guarded(), arena(256 << 20)).unwrap(),
        ..tcp_pair("127.0.0.1:0", nobody_at("127.0.0.1"))
    });
}

#[test]
fn unix_sockets_keep_the_contract_of_admissions() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("unix:{}/{name}", folder.path().display());
    check_admission(|| Pair {
        server: Tcp::new(guarded(), arena(256 << 20)).unwrap(),
        ..tcp_pair(&at("server"), at("absent"))
    });
}

#[test]
fn tls_keeps_the_contract_of_admissions() {
    let authority = authority();
    check_admission(|| {
        let pair = tcp_pair("127.0.0.1:0", nobody_at("127.0.0.1"));
        let endpoint = |node| {
            let security = encrypted(tls_of(&authority, node));
            Tcp::with_security(guarded(), arena(256 << 20), security).unwrap()
        };
        Pair {
            client: endpoint("flp:0"),
            server: endpoint("epn:0"),
            ..pair
        }
    });
}

#[test]
fn memory_keeps_the_contract() {
    check(|| {
        let settings = Settings {
            limits: LIMITS,
            ..Settings::default()
        };
        let network = Network::with_settings(1, Faults::default(), settings);
        Pair {
            client: network.endpoint("client"),
            server: network.endpoint("server"),
            address: "server:0".to_owned(),
            absent: "absent:1".to_owned(),
            limits: LIMITS,
            held_bytes_max: 9 << 20,
        }
    });
}
