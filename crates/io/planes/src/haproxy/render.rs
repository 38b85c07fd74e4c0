//! Files of `HAProxy` as text.

use sheaf_serve::{Flow, ServerId, ServerPlace, Wanted};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

pub(super) const CONFIG: &str = "haproxy.cfg";
pub(super) const HASH: &str = "slot.lua";
pub(super) const MAP: &str = "slots.map";
pub(super) const PID: &str = "haproxy.pid";
pub(super) const SOCKET: &str = "admin.sock";
/// Account that Debian's package makes.
pub(super) const ACCOUNT: &str = "haproxy";
/// Between the server of new connections and that of known ones, in the map.
pub(super) const MOVE: char = '/';
/// Largest weight of a server.
const WEIGHT_MAX: usize = 256;

/// Returns the configuration without its servers.
pub(super) fn head(wanted: &Wanted, stop_s: u64, account: Option<&str>) -> String {
    let Wanted {
        service,
        addresses,
        port,
        slots,
        ..
    } = wanted;
    let mut text = format!(
        "# Written by Sheaf; changes are overwritten.\nglobal\n  \
         stats socket unix@{SOCKET} mode 600 level admin expose-fd listeners\n  \
         lua-load-per-thread {HASH}\n  tune.bufsize 65536\n  hard-stop-after {stop_s}s\n"
    );
    if let Some(account) = account {
        let _ = writeln!(text, "  user {account}\n  group {account}");
    }
    // Peers that are gone are found by the kernel; a client may pause as long as it likes.
    text += "defaults\n  mode tcp\n  timeout connect 2s\n  timeout client 1d\n  timeout server 1d\n  option tcpka\n";
    let _ = writeln!(text, "listen {service}");
    for address in addresses {
        let _ = match address {
            IpAddr::V4(address) => writeln!(text, "  bind {address}:{port}"),
            IpAddr::V6(address) => writeln!(text, "  bind [{address}]:{port} v6only"),
        };
    }
    let hash = format!("lua.sheaf_slot({},{})", Flow::SEED, slots.len());
    let _ = write!(
        text,
        "  tcp-request content set-var(sess.port) src_port\n  \
         tcp-request content set-var(sess.slot) src,hex,concat(:,sess.port),{hash}\n  \
         tcp-request content set-var(sess.server) var(sess.slot),map({MAP}),field(1,{MOVE})\n  \
         balance leastconn\n  retries 3\n  \
         option redispatch 1\n  srvtcpka-idle 10s\n  srvtcpka-intvl 5s\n  srvtcpka-cnt 3\n  \
         clitcpka-idle 30s\n  clitcpka-intvl 10s\n  clitcpka-cnt 3\n  \
         use-server %[var(sess.server)] if {{ var(sess.server) -m found }}\n"
    );
    text
}

/// Returns the lines of the servers, which stand behind the [`head`].
pub(super) fn servers(wanted: &Wanted) -> String {
    let shares = shares(wanted);
    let mut text = String::new();
    for (id, place) in &wanted.servers {
        if let Some(address) = address(place) {
            // A weight of 0 is a drain.
            let weight = shares.get(id).copied().unwrap_or(0);
            let name = &place.name;
            let _ = writeln!(text, "  server {name} {address} weight {weight}");
        }
    }
    text
}

/// Address that connections to a server are made to, of either family.
pub(super) fn address(place: &ServerPlace) -> Option<SocketAddr> {
    let first = place.addresses.first()?;
    Some(SocketAddr::new(*first, place.port))
}

/// Returns the map: slot, server of new connections, and behind a slash that of known ones if the slot is on the move.
pub(super) fn map(wanted: &Wanted) -> String {
    let name = |id: &ServerId| {
        let place = wanted.servers.get(id);
        place.map_or("", |place| place.name.as_str())
    };
    let mut text = String::new();
    for (slot, own) in (0..).zip(&wanted.slots) {
        let _ = match wanted.moving.get(&slot) {
            Some(new) => writeln!(text, "{slot} {}{MOVE}{}", name(new), name(own)),
            None => writeln!(text, "{slot} {}", name(own)),
        };
    }
    text
}

/// Returns the weight of each server that gets new connections, by its slots.
pub(super) fn shares(wanted: &Wanted) -> BTreeMap<ServerId, usize> {
    let mut counts = BTreeMap::new();
    for (slot, own) in (0..).zip(&wanted.slots) {
        let id = wanted.moving.get(&slot).unwrap_or(own);
        *counts.entry(*id).or_insert(0) += 1;
    }
    let most = counts.values().copied().max().unwrap_or(1);
    let scale = |count: usize| (count * WEIGHT_MAX).div_ceil(most);
    counts.into_iter().map(|(id, n)| (id, scale(n))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn wanted() -> Wanted {
        let place = |number: u32| ServerPlace {
            name: format!("s{number}"),
            addresses: vec!["fd00::1".parse().expect("an address")],
            port: 8000,
        };
        let ids = [ServerId(1), ServerId(2), ServerId(3)];
        Wanted {
            service: "files".to_owned(),
            addresses: ["10.80.0.100", "fd00:80::100"]
                .map(|text| text.parse().expect("an address"))
                .to_vec(),
            port: 80,
            servers: ids.map(|id| (id, place(id.0))).into(),
            slots: vec![ids[0], ids[1], ids[0], ids[0]],
            moving: BTreeMap::from([(1, ids[0]), (2, ids[2])]),
            former: BTreeSet::new(),
            pins: BTreeMap::new(),
            held: BTreeSet::new(),
            affinity: sheaf_serve::Affinity::Connection,
            further_ports: None,
        }
    }

    #[test]
    fn a_slot_on_the_move_names_both_servers() {
        assert_eq!(map(&wanted()), "0 s1\n1 s1/s2\n2 s3/s1\n3 s1\n");
    }

    #[test]
    fn weights_follow_slots_of_new_connections() {
        let expected = [(ServerId(1), 256), (ServerId(3), 86)];
        assert_eq!(shares(&wanted()), expected.into());
        let text = servers(&wanted());
        assert!(
            text.contains("server s2 [fd00::1]:8000 weight 0\n"),
            "{text}"
        );
    }

    #[test]
    fn both_families_are_listened_on() {
        let text = head(&wanted(), 60, None);
        assert!(text.contains("bind 10.80.0.100:80\n"), "{text}");
        assert!(text.contains("bind [fd00:80::100]:80 v6only\n"), "{text}");
    }
}
