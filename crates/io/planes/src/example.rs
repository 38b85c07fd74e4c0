//! State of a service for tests.

use sheaf_serve::{Affinity, ServerId, ServerPlace, Wanted};
use std::collections::{BTreeMap, BTreeSet};

/// Returns a service `files` at port 80 with the servers `s-0`, `s-1`, …, which listen at `port`; `slots` are numbers
/// of servers.
pub(crate) fn wanted(servers: u32, port: u16, slots: &[u32]) -> Wanted {
    let address = |text: String| text.parse().expect("an address");
    let place = |number: u32| ServerPlace {
        name: format!("s-{number}"),
        addresses: vec![
            address(format!("10.80.0.1{number}")),
            address(format!("fd00::1{number}")),
        ],
        port,
    };
    Wanted {
        service: "files".to_owned(),
        addresses: vec![address("10.80.0.100".to_owned())],
        port: 80,
        servers: (0..servers).map(|id| (ServerId(id), place(id))).collect(),
        slots: slots.iter().copied().map(ServerId).collect(),
        moving: BTreeMap::new(),
        former: BTreeSet::new(),
        pins: BTreeMap::new(),
        held: BTreeSet::new(),
        affinity: Affinity::Connection,
        further_ports: None,
    }
}
