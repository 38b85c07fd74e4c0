//! Rules of NAT as text for `nft`.

use super::super::render::{self as common, Elements};
use super::FAMILY;
use sheaf_serve::{Flow, ServerId, Wanted};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

/// Returns the name of the table of a service.
pub(super) fn table(service: &str) -> String {
    common::table(service)
}

/// Returns what removes the table of a service, also where there is none.
pub(super) fn removal(service: &str) -> String {
    let table = table(service);
    format!("add table {FAMILY} {table}\ndelete table {FAMILY} {table}\n")
}

/// Family of addresses in the rules, by the number in the names of its maps.
struct Family {
    number: u8,
    header: &'static str,
    slot: &'static str,
    moving: &'static str,
    server: &'static str,
    of: fn(&IpAddr) -> bool,
}

const FAMILIES: [Family; 2] = [
    Family {
        number: 4,
        header: "ip",
        slot: "slot4",
        moving: "moving4",
        server: "server4",
        of: IpAddr::is_ipv4,
    },
    Family {
        number: 6,
        header: "ip6",
        slot: "slot6",
        moving: "moving6",
        server: "server6",
        of: IpAddr::is_ipv6,
    },
];

impl Family {
    fn is_served(&self, wanted: &Wanted) -> bool {
        wanted.addresses.iter().any(self.of)
    }

    fn place(&self, wanted: &Wanted, id: ServerId) -> Option<String> {
        let place = wanted.servers.get(&id)?;
        let own = place.addresses.iter().find(|own| (self.of)(own))?;
        Some(as_element(SocketAddr::new(*own, place.port)))
    }
}

fn as_element(address: SocketAddr) -> String {
    format!("{} . {}", address.ip(), address.port())
}

fn elements(wanted: &Wanted) -> Elements {
    let mut all = Elements::new();
    for family in &FAMILIES {
        let place = |id: &ServerId| family.place(wanted, *id);
        let is_served = family.is_served(wanted);
        let slots = (0_u32..).zip(&wanted.slots).filter(|_| is_served);
        let slots = slots.filter_map(|(slot, id)| Some((slot.to_string(), place(id)?)));
        all.insert(family.slot, slots.collect());
        let moving = wanted.moving.iter().filter(|_| is_served);
        let moving = moving.filter_map(|(slot, id)| Some((slot.to_string(), place(id)?)));
        all.insert(family.moving, moving.collect());
        let counters = wanted.servers.iter().filter_map(|(id, server)| {
            let counter = common::counter(&server.name);
            Some((place(id)?, format!("\"{counter}\"")))
        });
        all.insert(family.server, counters.collect());
    }
    all
}

/// Returns the text that makes the whole table, in place of one that may be there.
pub(super) fn whole(wanted: &Wanted) -> String {
    let name = table(&wanted.service);
    let mut text = removal(&wanted.service);
    let _ = writeln!(text, "table {FAMILY} {name} {{");
    for family in &FAMILIES {
        let Family {
            number,
            header,
            slot,
            moving,
            server,
            ..
        } = family;
        let place = format!("ipv{number}_addr . inet_service");
        for map in [slot, moving] {
            let _ = writeln!(text, "  map {map} {{ type mark : {place}; }}");
        }
        let _ = writeln!(text, "  map {server} {{ type {place} : counter; }}");
        let _ = writeln!(text, "  chain to{number} {{");
        if family.is_served(wanted) && !wanted.slots.is_empty() {
            let (slots, seed) = (wanted.slots.len(), Flow::SEED);
            let _ = writeln!(
                text,
                "    meta mark set jhash {header} saddr . tcp sport mod {slots} seed {seed:#x}"
            );
            // A map without the slot ends its rule, and the next one is tried.
            for map in [moving, slot] {
                let _ = writeln!(
                    text,
                    "    meta l4proto tcp dnat {header} to meta mark map @{map}"
                );
            }
        }
        text += "  }\n";
    }
    // In front of the chains that people write: what was translated once is not translated again.
    let chains = [
        ("in", "type nat hook prerouting priority -110"),
        ("out", "type nat hook postrouting priority 90"),
        ("count", "type filter hook forward priority -300"),
    ];
    for (chain, hook) in chains {
        let _ = writeln!(text, "  chain {chain} {{ {hook}; policy accept; }}");
    }
    text += "}\n";
    for family in &FAMILIES {
        let Family {
            number,
            header,
            server,
            ..
        } = family;
        for address in wanted.addresses.iter().filter(|own| (family.of)(own)) {
            let port = wanted.port;
            let tracked = format!(
                "meta l4proto tcp ct original {header} daddr {address} ct original proto-dst {port}"
            );
            for (chain, rule) in [
                (
                    "in",
                    format!("{header} daddr {address} tcp dport {port} goto to{number}"),
                ),
                ("out", format!("{tracked} ct status dnat masquerade")),
                (
                    "count",
                    format!(
                        "{tracked} ct direction original counter name {header} daddr . tcp dport map @{server}"
                    ),
                ),
            ] {
                let _ = writeln!(text, "add rule {FAMILY} {name} {chain} {rule}");
            }
        }
    }
    let nothing = Wanted {
        servers: [].into(),
        slots: Vec::new(),
        moving: [].into(),
        ..wanted.clone()
    };
    text + &change(&nothing, wanted)
}

/// Returns the text that turns the state before into that behind.
pub(super) fn change(before: &Wanted, behind: &Wanted) -> String {
    let name = table(&behind.service);
    let mut text = String::new();
    for place in behind.servers.values() {
        let counter = common::counter(&place.name);
        let _ = writeln!(text, "add counter {FAMILY} {name} {counter}");
    }
    let table = format!("{FAMILY} {name}");
    text + &common::differ(&table, &elements(before), &elements(behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn wanted() -> Wanted {
        example::wanted(2, 8080, &[0, 1, 0])
    }

    #[test]
    fn a_change_is_what_differs() {
        let before = wanted();
        let mut behind = before.clone();
        behind.slots[1] = ServerId(0);
        behind.moving.insert(2, ServerId(1));
        let text = change(&before, &behind);
        let expected = "add counter inet sheaf_files to_s_0\nadd counter inet sheaf_files to_s_1\n\
                        add element inet sheaf_files moving4 { 2 : 10.80.0.11 . 8080 }\n\
                        delete element inet sheaf_files slot4 { 1 }\n\
                        add element inet sheaf_files slot4 { 1 : 10.80.0.10 . 8080 }\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_family_that_is_not_served_has_no_rules() {
        let text = whole(&wanted());
        assert!(text.contains("chain to6 {\n  }"), "{text}");
        assert!(!text.contains("ip6 daddr"), "{text}");
        assert!(text.contains("dnat ip to meta mark map @slot4"), "{text}");
    }
}
