//! Planes where all connections of a client go to one server.

use super::held::Held;
use super::{Stage, assert_well, can_run};
use crate::harness::farm_turn;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Client hosts of a test by client, each two clients: one of each family.
const HOSTS: usize = 12;

/// Checks that each client is at one server, and returns where the clients are.
#[track_caller]
fn clients_of(held: &[Held]) -> BTreeMap<IpAddr, String> {
    let mut clients = BTreeMap::new();
    for held in held {
        let address = held.stream.local_addr().expect("an address").ip();
        let at = clients
            .entry(address)
            .or_insert_with(|| held.server.clone());
        assert_eq!(
            *at, held.server,
            "connections of {address} are at two servers"
        );
    }
    clients
}

/// Runs the suite of planes where all connections of a client go to one server.
pub(super) fn contract_by_client(plane: &str, is_explained: bool) {
    let _turn = farm_turn();
    let mut stage = Stage::build_with((3, HOSTS), plane, "affinity = \"client\"", true);
    stage.start_director();
    let connect = |each: usize| -> Vec<Held> {
        let all = (0..HOSTS).flat_map(|host| stage.connect_from(host, each));
        all.collect()
    };
    let mut held = connect(4);
    let before = clients_of(&held);
    assert_eq!(before.len(), 2 * HOSTS);
    let mut servers: Vec<&str> = before.values().map(String::as_str).collect();
    servers.sort_unstable();
    servers.dedup();
    assert!(servers.len() > 1, "{before:?}");
    if is_explained {
        for (client, server) in &before {
            let client = SocketAddr::new(*client, 1).to_string();
            let text = stage.ok(&["explain", "files", &client, "--json"]);
            let explained: Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(explained["server"], server.as_str(), "{text}");
        }
    }
    // Clients with connections stay during a drain, with their new ones, and nothing breaks.
    let drained = before.values().next().expect("there are clients").clone();
    stage.ok(&["drain", &format!("files/{drained}")]);
    held.extend(connect(2));
    stage.wait(|status| status["step"] == "steady" && status["moving"] == 0);
    held.extend(connect(2));
    assert_well(&mut held);
    assert_eq!(clients_of(&held), before);
    // Without connections they go elsewhere.
    held.retain(|held| held.server != drained);
    stage.ok(&[
        "drain",
        &format!("files/{drained}"),
        "--wait",
        "--timeout",
        "60s",
    ]);
    held.extend(connect(2));
    let after = clients_of(&held);
    assert!(after.values().all(|server| *server != drained), "{after:?}");
    for (client, server) in before.iter().filter(|(_, server)| **server != drained) {
        assert_eq!(after[client], *server, "{client} had no reason to move");
    }
    assert_well(&mut held);
    assert_eq!(stage.status()["given_up"], 0);
}

#[test]
fn the_plane_of_nftables_keeps_the_connections_of_a_client_together() {
    if can_run("the_plane_of_nftables_keeps_the_connections_of_a_client_together") {
        contract_by_client("nft", true);
    }
}

#[test]
fn the_plane_in_user_space_keeps_the_connections_of_a_client_together() {
    if can_run("the_plane_in_user_space_keeps_the_connections_of_a_client_together") {
        contract_by_client("userspace", true);
    }
}
