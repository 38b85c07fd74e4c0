//! Rules as text for `nft`.
//!
//! Text and not JSON: in nftables 1.0.6 the device of a chain of `netdev` is missing in JSON, and the update of a map
//! has no form there.

use crate::neighbors::Macs;
use sheaf_serve::{Affinity, Flow, HOLD_MAX_S, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::IpAddr;

/// Priority of the chain: in front of all filters that people write.
const PRIORITY: i32 = -300;
/// Connections that are noted at most while their slots are on the move.
const FRESH_MAX: u32 = 1 << 20;

/// Returns the name of the table of a service.
pub(super) fn table(service: &str) -> String {
    format!("sheaf_{}", service.replace('-', "_"))
}

/// Returns the name of the counter of a server.
pub(super) fn counter(server: &str) -> String {
    format!("to_{}", server.replace('-', "_"))
}

/// Returns what removes the table of a service, also where there is none.
pub(super) fn removal(service: &str) -> String {
    let table = table(service);
    format!("add table netdev {table}\ndelete table netdev {table}\n")
}

/// Family of addresses in the rules.
struct Family {
    number: u8,
    source: &'static str,
    target: &'static str,
    of: fn(&IpAddr) -> bool,
}

const FAMILIES: [Family; 2] = [
    Family {
        number: 4,
        source: "ip saddr",
        target: "ip daddr",
        of: IpAddr::is_ipv4,
    },
    Family {
        number: 6,
        source: "ip6 saddr",
        target: "ip6 daddr",
        of: IpAddr::is_ipv6,
    },
];

impl Family {
    /// Returns the words of what picks the server of a connection.
    fn key(&self, affinity: Affinity) -> String {
        match affinity {
            Affinity::Connection => format!("{} . tcp sport", self.source),
            Affinity::Client => self.source.to_owned(),
        }
    }
}

fn type_of_key(family: u8, affinity: Affinity) -> String {
    match affinity {
        Affinity::Connection => format!("ipv{family}_addr . inet_service"),
        Affinity::Client => format!("ipv{family}_addr"),
    }
}

/// First packet of a connection.
const FIRST: &str = "tcp flags & (syn | ack) == syn";

/// Elements of the maps, by name of the map: key and value as text.
pub(super) type Elements = BTreeMap<&'static str, BTreeMap<String, String>>;

fn elements(wanted: &Wanted, macs: &Macs) -> Elements {
    let mut all = Elements::new();
    for name in ["slot", "moving", "pin4", "pin6", "server"] {
        all.insert(name, BTreeMap::new());
    }
    let mut add = |map, key: String, value: String| {
        all.entry(map).or_default().insert(key, value);
    };
    for (slot, id) in wanted.slots.iter().enumerate() {
        add("slot", slot.to_string(), macs.of(*id).to_owned());
    }
    // Where new connections of slots on the move wait, none goes to another server.
    let moving = wanted.moving.iter();
    for (slot, id) in moving.filter(|_| wanted.affinity == Affinity::Connection) {
        add("moving", slot.to_string(), macs.of(*id).to_owned());
    }
    for (flow, id) in &wanted.pins {
        let Flow { address, port } = flow;
        let map = if address.is_ipv4() { "pin4" } else { "pin6" };
        let key = match wanted.affinity {
            Affinity::Connection => format!("{address} . {port}"),
            Affinity::Client => address.to_string(),
        };
        add(map, key, macs.of(*id).to_owned());
    }
    for (id, place) in &wanted.servers {
        add(
            "server",
            macs.of(*id).to_owned(),
            format!("\"{}\"", counter(&place.name)),
        );
    }
    all
}

/// Sets of slots and of pinned clients whose new connections wait, and their types.
const HOLDS: [(&str, &str); 3] = [
    ("hold", "mark"),
    ("held4", "ipv4_addr"),
    ("held6", "ipv6_addr"),
];

/// Returns the elements of a set of [`HOLDS`].
fn holds(wanted: &Wanted, set: &str) -> Vec<String> {
    if wanted.affinity == Affinity::Connection {
        return Vec::new();
    }
    let of = |is_v4: bool| {
        let held = wanted.held.iter().map(|flow| flow.address);
        let held = held.filter(move |address| address.is_ipv4() == is_v4);
        held.map(|address| address.to_string()).collect()
    };
    match set {
        "hold" => wanted.moving.keys().map(u32::to_string).collect(),
        "held4" => of(true),
        _ => of(false),
    }
}

/// Writes the sets of what waits. Elements end by themselves, so a set that has changed is written as a whole.
fn hold(text: &mut String, name: &str, before: &Wanted, wanted: &Wanted) {
    for (set, _) in HOLDS {
        let (old, new) = (holds(before, set), holds(wanted, set));
        if old == new {
            continue;
        }
        let _ = writeln!(text, "flush set netdev {name} {set}");
        if !new.is_empty() {
            let new = new.join(", ");
            let _ = writeln!(text, "add element netdev {name} {set} {{ {new} }}");
        }
    }
}

/// Returns the text that makes the whole table, in place of one that may be there.
pub(super) fn whole(interface: &str, fresh_s: u64, wanted: &Wanted, macs: &Macs) -> String {
    let name = table(&wanted.service);
    let mut text = removal(&wanted.service);
    let _ = writeln!(text, "table netdev {name} {{");
    let mut maps = vec![
        (
            "slot".to_owned(),
            "mark : ether_addr".to_owned(),
            String::new(),
        ),
        (
            "moving".to_owned(),
            "mark : ether_addr".to_owned(),
            String::new(),
        ),
        (
            "server".to_owned(),
            "ether_addr : counter".to_owned(),
            String::new(),
        ),
    ];
    for Family { number, .. } in &FAMILIES {
        let kind = format!("{} : ether_addr", type_of_key(*number, wanted.affinity));
        maps.push((format!("pin{number}"), kind, String::new()));
    }
    for (map, kind, flags) in maps {
        let _ = writeln!(text, "  map {map} {{ type {kind};{flags} }}");
    }
    // A set of pairs and not a map: nftables 1.0.6 runs out of registers for the update of a map of IPv6 addresses.
    for Family { number, .. } in &FAMILIES {
        let kind = type_of_key(*number, Affinity::Connection);
        let kind = format!("{kind} . ether_addr");
        for set in ["fresh", "reused"] {
            let _ = writeln!(
                text,
                "  set {set}{number} {{ type {kind}; flags dynamic, timeout; timeout {fresh_s}s; size {FRESH_MAX}; }}"
            );
        }
    }
    for (set, kind) in HOLDS {
        let _ = writeln!(
            text,
            "  set {set} {{ type {kind}; flags timeout; timeout {HOLD_MAX_S}s; }}"
        );
    }
    for chain in [
        "out", "new4", "new6", "move4", "move6", "again4", "again6", "pinned4", "pinned6", "to4",
        "to6",
    ] {
        let _ = writeln!(text, "  chain {chain} {{ }}");
    }
    let _ = writeln!(
        text,
        "  chain in {{ type filter hook ingress device \"{interface}\" priority {PRIORITY}; policy accept; }}"
    );
    text.push_str("}\n");
    let rule = |text: &mut String, chain: &str, rule: &str| {
        let _ = writeln!(text, "add rule netdev {name} {chain} {rule}");
    };
    rule(&mut text, "out", &format!("ether saddr set {}", macs.own));
    rule(&mut text, "out", "counter name ether daddr map @server");
    rule(&mut text, "out", &format!("fwd to \"{interface}\""));
    for family in &FAMILIES {
        let Family {
            number,
            source,
            target,
            ..
        } = family;
        let key = format!("{source} . tcp sport . ether daddr");
        let new = format!("new{number}");
        rule(&mut text, &new, "ether daddr set meta mark map @moving");
        for (chain, set) in [("new", "fresh"), ("again", "reused")] {
            let chain = format!("{chain}{number}");
            rule(
                &mut text,
                &chain,
                &format!("update @{set}{number} {{ {key} }}"),
            );
            rule(&mut text, &chain, "goto out");
        }
        for address in wanted.addresses.iter().filter(|own| (family.of)(own)) {
            let port = match wanted.further_ports {
                None => wanted.port.to_string(),
                Some([first, last]) => format!("{{ {}, {first}-{last} }}", wanted.port),
            };
            rule(
                &mut text,
                "in",
                // A switch that does not know where the director is sends its packets to all, to another one as well.
                &format!("{target} {address} tcp dport {port} meta pkttype host goto to{number}"),
            );
        }
    }
    let nothing = Wanted {
        servers: BTreeMap::new(),
        slots: Vec::new(),
        moving: BTreeMap::new(),
        pins: BTreeMap::new(),
        held: BTreeSet::new(),
        ..wanted.clone()
    };
    text + &change((&nothing, &Macs::default()), (wanted, macs))
}

/// Returns the text that removes elements of a set of notes: connections with the hardware address of their server.
pub(super) fn forgotten(
    service: &str,
    set: &str,
    noted: impl Iterator<Item = (Flow, String)>,
) -> String {
    let key = |(Flow { address, port }, mac): (Flow, String)| format!("{address} . {port} . {mac}");
    let keys: Vec<String> = noted.map(key).collect();
    if keys.is_empty() {
        return String::new();
    }
    let (table, keys) = (table(service), keys.join(", "));
    format!("delete element netdev {table} {set} {{ {keys} }}\n")
}

/// Returns the text that turns the state before into that behind.
pub(super) fn change(before: (&Wanted, &Macs), behind: (&Wanted, &Macs)) -> String {
    let (wanted, macs) = behind;
    let name = table(&wanted.service);
    let mut text = String::new();
    for place in wanted.servers.values() {
        let _ = writeln!(text, "add counter netdev {name} {}", counter(&place.name));
    }
    let (old, new) = (elements(before.0, before.1), elements(wanted, macs));
    text += &differ(&format!("netdev {name}"), &old, &new);
    hold(&mut text, &name, before.0, wanted);
    for family in &FAMILIES {
        steer(&mut text, &name, family, wanted);
        follow(&mut text, &name, family, behind);
        keep(&mut text, &name, family, wanted);
    }
    for Family { number, .. } in &FAMILIES {
        for (set, is_idle) in [
            ("fresh", wanted.moving.is_empty()),
            ("reused", wanted.pins.is_empty()),
        ] {
            if is_idle {
                let _ = writeln!(text, "flush set netdev {name} {set}{number}");
            }
        }
    }
    text
}

/// Returns the text that turns the elements of the maps of `table` into others; family and name of the table.
pub(super) fn differ(table: &str, old: &Elements, new: &Elements) -> String {
    let mut text = String::new();
    for (map, new) in new {
        let old = &old[map];
        let gone = old
            .iter()
            .filter(|(key, value)| new.get(*key) != Some(*value));
        let come = new
            .iter()
            .filter(|(key, value)| old.get(*key) != Some(*value));
        let gone: Vec<&str> = gone.map(|(key, _)| key.as_str()).collect();
        if !gone.is_empty() {
            let gone = gone.join(", ");
            let _ = writeln!(text, "delete element {table} {map} {{ {gone} }}");
        }
        let come: Vec<String> = come
            .map(|(key, value)| format!("{key} : {value}"))
            .collect();
        if !come.is_empty() {
            let come = come.join(", ");
            let _ = writeln!(text, "add element {table} {map} {{ {come} }}");
        }
    }
    text
}

/// Writes the rules of the path of a family, those alone that have something to do.
fn steer(text: &mut String, name: &str, family: &Family, wanted: &Wanted) {
    let number = family.number;
    let chain = format!("to{number}");
    let _ = writeln!(text, "flush chain netdev {name} {chain}");
    let mut rule = |rule: &str| {
        let _ = writeln!(text, "add rule netdev {name} {chain} {rule}");
    };
    let key = family.key(wanted.affinity);
    if wanted.slots.is_empty() {
        return;
    }
    let hash = format!(
        "jhash {key} mod {} seed {:#x}",
        wanted.slots.len(),
        Flow::SEED
    );
    rule(&format!("meta mark set {hash}"));
    if wanted.pins.keys().any(|flow| (family.of)(&flow.address)) {
        rule(&format!("{key} @pin{number} jump pinned{number}"));
    }
    if !wanted.moving.is_empty() {
        match wanted.affinity {
            Affinity::Connection => rule(&format!("meta mark @moving jump move{number}")),
            Affinity::Client => rule(&format!("meta mark @hold {FIRST} drop")),
        }
    }
    rule("ether daddr set meta mark map @slot goto out");
}

/// Writes the rules for slots on the move: a new connection goes to the new server and is noted with it, one that was
/// noted goes where it began, and any other returns to the slots.
fn follow(text: &mut String, name: &str, family: &Family, (wanted, macs): (&Wanted, &Macs)) {
    let Family { number, source, .. } = family;
    let chain = format!("move{number}");
    let _ = writeln!(text, "flush chain netdev {name} {chain}");
    if wanted.moving.is_empty() || wanted.affinity == Affinity::Client {
        return;
    }
    let mut rule = |rule: &str| {
        let _ = writeln!(text, "add rule netdev {name} {chain} {rule}");
    };
    rule(&format!("{FIRST} goto new{number}"));
    let noted = format!("{source} . tcp sport . ether daddr @fresh{number} goto out");
    rule("ether daddr set meta mark map @moving");
    rule(&noted);
    for id in &wanted.former {
        rule(&format!("ether daddr set {}", macs.of(*id)));
        rule(&noted);
    }
}

/// Writes the rules for pinned connections: a SYN says that the client has taken the port again, so the connection
/// begins again at the server of its slot, and is noted with it. A pinned client keeps its server, and its new
/// connections may have to wait.
fn keep(text: &mut String, name: &str, family: &Family, wanted: &Wanted) {
    let Family { number, source, .. } = family;
    let chain = format!("pinned{number}");
    let _ = writeln!(text, "flush chain netdev {name} {chain}");
    if wanted.pins.is_empty() {
        return;
    }
    let mut rule = |rule: &str| {
        let _ = writeln!(text, "add rule netdev {name} {chain} {rule}");
    };
    let key = family.key(wanted.affinity);
    if wanted.affinity == Affinity::Client {
        if !wanted.held.is_empty() {
            rule(&format!("{source} @held{number} {FIRST} drop"));
        }
        rule(&format!("ether daddr set {key} map @pin{number} goto out"));
        return;
    }
    rule("ether daddr set meta mark map @slot");
    if !wanted.moving.is_empty() {
        rule("ether daddr set meta mark map @moving");
    }
    rule(&format!("{FIRST} goto again{number}"));
    rule(&format!("{key} . ether daddr @reused{number} goto out"));
    rule(&format!("ether daddr set {key} map @pin{number} goto out"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use sheaf_serve::ServerId;

    fn wanted() -> (Wanted, Macs) {
        let macs = Macs {
            own: "02:00:00:00:00:02".to_owned(),
            servers: [0, 1]
                .map(|id| (ServerId(id), format!("02:00:00:00:00:1{id}")))
                .into(),
        };
        (example::wanted(2, 80, &[0, 1, 0]), macs)
    }

    #[test]
    fn a_change_is_what_differs() {
        let (before, macs) = wanted();
        let mut behind = before.clone();
        behind.slots[1] = ServerId(0);
        behind.moving.insert(2, ServerId(1));
        let text = change((&before, &macs), (&behind, &macs));
        assert!(
            text.contains("delete element netdev sheaf_files slot { 1 }\n"),
            "{text}"
        );
        assert!(text.contains("add element netdev sheaf_files slot { 1 : 02:00:00:00:00:10 }\n"));
        assert!(text.contains("add element netdev sheaf_files moving { 2 : 02:00:00:00:00:11 }\n"));
        assert!(text.contains("meta mark @moving jump move4"), "{text}");
        assert!(
            !text.contains("flush set netdev sheaf_files fresh"),
            "{text}"
        );
        let text = change((&behind, &macs), (&before, &macs));
        assert!(
            text.contains("delete element netdev sheaf_files moving { 2 }\n"),
            "{text}"
        );
        assert!(
            text.contains("flush set netdev sheaf_files fresh4\n"),
            "{text}"
        );
        assert!(!text.contains("@moving jump"), "{text}");
    }

    #[test]
    fn without_a_server_packets_go_on_to_the_machine_itself() {
        let (mut wanted, macs) = wanted();
        wanted.slots.clear();
        wanted.servers.clear();
        let text = whole("eth0", 60, &wanted, &macs);
        assert!(!text.contains("jhash"), "{text}");
        assert!(
            text.contains("ip daddr 10.80.0.100 tcp dport 80 meta pkttype host goto to4"),
            "{text}"
        );
    }

    #[test]
    fn a_client_is_hashed_by_its_address_and_waits_while_its_slot_moves() {
        let (mut before, macs) = wanted();
        before.affinity = Affinity::Client;
        before.further_ports = Some([50_000, 50_100]);
        let text = whole("eth0", 60, &before, &macs);
        for expected in [
            "jhash ip saddr mod 3 seed",
            "tcp dport { 80, 50000-50100 } meta pkttype host goto to4",
            "map pin6 { type ipv6_addr : ether_addr;",
            "set hold { type mark; flags timeout; timeout 10s; }",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let mut behind = before.clone();
        behind.moving.insert(2, ServerId(1));
        let client = Flow {
            address: "10.80.1.1".parse().expect("an address"),
            port: 0,
        };
        behind.pins.insert(client, ServerId(0));
        behind.held.insert(client);
        let text = change((&before, &macs), (&behind, &macs));
        for expected in [
            "add element netdev sheaf_files hold { 2 }",
            "meta mark @hold tcp flags & (syn | ack) == syn drop",
            "add element netdev sheaf_files pin4 { 10.80.1.1 : 02:00:00:00:00:10 }",
            "add element netdev sheaf_files held4 { 10.80.1.1 }",
            "pinned4 ip saddr @held4 tcp flags & (syn | ack) == syn drop",
            "ether daddr set ip saddr map @pin4 goto out",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("@moving"), "{text}");
        let text = change((&behind, &macs), (&before, &macs));
        assert!(
            text.contains("flush set netdev sheaf_files hold\n"),
            "{text}"
        );
        assert!(!text.contains("@hold"), "{text}");
    }
}
