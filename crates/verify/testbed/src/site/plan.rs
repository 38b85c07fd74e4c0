//! Addresses and names of a site, and the commands that make it. Pure: runs nothing.

use super::Plan;
use crate::net::{Framing, Link, Step, shape};
use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Between the name of a site and that of a place.
const SEPARATOR: char = '.';
/// Bridge in the namespace of the switch.
const BRIDGE: &str = "br0";
/// Virtual address of every site, IPv4.
pub(super) const VIRTUAL_V4: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 100);
/// Virtual address of every site, IPv6.
pub(super) const VIRTUAL_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x80, 0, 0, 0, 0, 0, 0x100);
/// Directors that have addresses: 10.80.0.2 to 10.80.0.9.
pub(super) const DIRECTORS_MAX: usize = 8;
/// Servers that have addresses: 10.80.0.11 to 10.80.0.90.
pub(super) const SERVERS_MAX: usize = 80;
/// Client hosts that have addresses: 10.80.1.1 to 10.80.1.250.
pub(super) const CLIENTS_MAX: usize = 250;

/// Address of an Ethernet card; displayed as `02:80:0a:50:00:0b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Kind of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Server,
    Director,
    Client,
}

/// Namespace of a site with one card, `eth0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name in the site: `s1`, `d1`, `c1`.
    pub name: String,
    /// Namespace, as `ip netns` knows it.
    pub namespace: String,
    /// Address of `eth0`.
    pub v4: Ipv4Addr,
    /// Address of `eth0`.
    pub v6: Ipv6Addr,
    /// Address of the card.
    pub mac: Mac,
    pub(super) kind: Kind,
}

impl Place {
    fn new(prefix: &str, kind: Kind, index: usize) -> Self {
        let number = index + 1;
        // The plan was checked: there are no more places than addresses.
        let octet = |base: usize| u8::try_from(base + number).unwrap_or(u8::MAX);
        let (letter, net, host) = match kind {
            Kind::Server => ('s', 0, octet(10)),
            Kind::Director => ('d', 0, octet(1)),
            Kind::Client => ('c', 1, octet(0)),
        };
        let name = format!("{letter}{number}");
        Self {
            namespace: format!("{prefix}{SEPARATOR}{name}"),
            name,
            v4: Ipv4Addr::new(10, 80, net, host),
            v6: Ipv6Addr::new(0xfd00, 0x80, 0, 0, 0, 0, net.into(), as_typed(host)),
            mac: Mac([0x02, 0x80, 10, 80, net, host]),
            kind,
        }
    }
}

/// The group of an IPv6 address that reads as `host` does in decimal: 11 gives 0x11.
fn as_typed(host: u8) -> u16 {
    let [hundreds, tens, ones] = [host / 100, host / 10 % 10, host % 10].map(u16::from);
    hundreds << 8 | tens << 4 | ones
}

/// All of a site.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) prefix: String,
    /// Namespace with the bridge.
    pub(super) switch: String,
    pub(super) servers: Vec<Place>,
    pub(super) directors: Vec<Place>,
    pub(super) clients: Vec<Place>,
}

impl Layout {
    /// Places of `plan` under names that begin with `prefix`.
    pub(super) fn of(plan: &Plan, prefix: &str) -> Self {
        let places = |kind, count| (0..count).map(move |index| Place::new(prefix, kind, index));
        Self {
            prefix: prefix.to_owned(),
            switch: format!("{prefix}{SEPARATOR}switch"),
            servers: places(Kind::Server, plan.servers).collect(),
            directors: places(Kind::Director, plan.directors).collect(),
            clients: places(Kind::Client, plan.clients).collect(),
        }
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.servers
            .iter()
            .chain(&self.directors)
            .chain(&self.clients)
    }

    pub(super) fn namespaces(&self) -> impl Iterator<Item = &str> {
        let places = self.places().map(|place| place.namespace.as_str());
        places.chain([self.switch.as_str()])
    }

    /// Line for `ip` that makes all namespaces.
    pub(super) fn namespace_lines(&self) -> String {
        let lines = self.namespaces().map(|name| format!("netns add {name}\n"));
        lines.collect()
    }

    /// Steps after the namespaces and their settings: switch, cables, addresses, rates.
    pub(super) fn steps(&self, plan: &Plan) -> Vec<Step> {
        let mut steps = vec![("ip", Some(self.switch.clone()), self.switch_lines(plan))];
        for place in self.places() {
            let inside = Some(place.namespace.clone());
            steps.push(("ip", inside, self.place_lines(plan, place)));
        }
        steps.extend(self.shapes(plan));
        steps
    }

    fn switch_lines(&self, plan: &Plan) -> String {
        // Without snooping the first neighbour solicitation is not lost to a bridge that knows no group yet.
        let mut lines = format!("link add {BRIDGE} type bridge forward_delay 0 mcast_snooping 0\n");
        let _ = writeln!(lines, "link set {BRIDGE} up");
        for place in self.places() {
            let Place {
                name,
                namespace,
                mac,
                ..
            } = place;
            let _ = writeln!(
                lines,
                "link add {name} type veth peer name eth0 address {mac} netns {namespace}"
            );
            let segments = segments(plan, place);
            let _ = writeln!(lines, "link set {name} master {BRIDGE}{segments} up");
        }
        lines
    }

    fn place_lines(&self, plan: &Plan, place: &Place) -> String {
        let segments = segments(plan, place);
        let mut lines = format!("link set lo up\nlink set eth0{segments} up\n");
        let _ = writeln!(lines, "addr add {}/16 dev eth0", place.v4);
        let _ = writeln!(lines, "addr add {}/64 dev eth0 nodad", place.v6);
        let holder = plan.virtual_at.and_then(|at| self.directors.get(at));
        let device = match place.kind {
            Kind::Server => Some("lo"),
            Kind::Director if holder == Some(place) => Some("eth0"),
            Kind::Director | Kind::Client => None,
        };
        if let Some(device) = device {
            let _ = writeln!(lines, "addr add {VIRTUAL_V4}/32 dev {device}");
            // Deprecated, so that it is no source address: of two, the kernel takes the one with the longer prefix.
            let _ = writeln!(
                lines,
                "addr add {VIRTUAL_V6}/128 dev {device} nodad preferred_lft 0"
            );
        }
        lines
    }

    /// Rates, at both ends of every cable that has one.
    fn shapes(&self, plan: &Plan) -> Vec<Step> {
        let mut at_switch = String::new();
        let mut steps = Vec::new();
        for place in self.places() {
            let Some(link) = link(plan, place) else {
                continue;
            };
            at_switch += &shape(&place.name, link, link.queue_bytes);
            let line = shape("eth0", link, link.nic_queue_bytes);
            steps.push(("tc", Some(place.namespace.clone()), line));
        }
        if !at_switch.is_empty() {
            steps.push(("tc", Some(self.switch.clone()), at_switch));
        }
        steps
    }
}

fn link<'a>(plan: &'a Plan, place: &Place) -> Option<&'a Link> {
    match place.kind {
        Kind::Server => plan.server_link.as_ref(),
        Kind::Client => plan.client_link.as_ref(),
        Kind::Director => None,
    }
}

/// Where frames are charged one by one they have to be cut before they are queued.
fn segments(plan: &Plan, place: &Place) -> &'static str {
    match link(plan, place).map(|link| link.framing) {
        Some(Framing::Frame) => " gso_max_segs 1",
        Some(Framing::Bulk) | None => "",
    }
}

/// Settings of the kernel in the namespace of a place of `kind`: files below `/proc/sys/net` and their values.
pub(super) fn settings(kind: Kind) -> Vec<(&'static str, &'static str)> {
    let mut settings = vec![
        // Addresses are known to be free.
        ("ipv6/conf/all/accept_dad", "0"),
        ("ipv6/conf/default/accept_dad", "0"),
        // Answers of the virtual address come from elsewhere than where requests went.
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("core/somaxconn", "65535"),
        ("ipv4/tcp_max_syn_backlog", "65535"),
    ];
    match kind {
        // The virtual address on `lo` is neither answered for nor announced; IPv6 answers for `eth0` alone anyway.
        Kind::Server => settings.extend([
            ("ipv4/conf/all/arp_ignore", "1"),
            ("ipv4/conf/all/arp_announce", "2"),
        ]),
        Kind::Director => settings.extend([
            ("ipv4/ip_forward", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/conf/all/send_redirects", "0"),
            ("ipv4/conf/default/send_redirects", "0"),
            ("ipv4/ip_local_port_range", "1024 65535"),
            // Where directors listen: no connection of theirs begins there.
            ("ipv4/ip_local_reserved_ports", "7400"),
            ("ipv4/tcp_tw_reuse", "1"),
        ]),
        Kind::Client => settings.extend([
            ("ipv4/ip_local_port_range", "1024 65535"),
            ("ipv4/tcp_tw_reuse", "1"),
        ]),
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(plan: &Plan, tool: &str, namespace: &str) -> String {
        let steps = Layout::of(plan, "net").steps(plan);
        let steps = steps
            .iter()
            .filter(|(by, inside, _)| *by == tool && inside.as_deref() == Some(namespace));
        steps.map(|(.., lines)| lines.as_str()).collect()
    }

    #[test]
    fn addresses_read_alike_in_both_families() {
        let layout = Layout::of(&Plan::default(), "net");
        let server = &layout.servers[0];
        assert_eq!(
            (server.v4.to_string(), server.v6.to_string()),
            ("10.80.0.11".to_owned(), "fd00:80::11".to_owned())
        );
        assert_eq!(server.mac.to_string(), "02:80:0a:50:00:0b");
        assert_eq!(layout.directors[0].v4.to_string(), "10.80.0.2");
        assert_eq!(layout.clients[0].v6.to_string(), "fd00:80::1:1");
        assert_eq!(as_typed(123), 0x123);
    }

    #[test]
    fn servers_have_the_virtual_address_on_lo_and_one_director_on_its_card() {
        let plan = Plan {
            directors: 2,
            ..Plan::default()
        };
        let has = "addr add 10.80.0.100/32 dev";
        assert!(lines(&plan, "ip", "net.s6").contains(&format!("{has} lo\n")));
        assert!(lines(&plan, "ip", "net.d1").contains(&format!("{has} eth0\n")));
        for place in ["net.d2", "net.c1"] {
            assert!(!lines(&plan, "ip", place).contains(has), "{place}");
        }
        let without = Plan {
            virtual_at: None,
            ..plan
        };
        assert!(!lines(&without, "ip", "net.d1").contains(has));
    }

    #[test]
    fn rates_are_at_both_ends_of_a_cable() {
        let link = Link {
            rate_mbit: 20.0,
            ..Link::default()
        };
        let plan = Plan {
            client_link: Some(link),
            ..Plan::default()
        };
        assert!(lines(&plan, "tc", "net.c1").starts_with("qdisc replace dev eth0 root tbf rate"));
        assert!(lines(&plan, "tc", "net.switch").starts_with("qdisc replace dev c1 root tbf rate"));
        assert_eq!(lines(&plan, "tc", "net.s1"), "");
        assert!(lines(&plan, "ip", "net.c1").contains("link set eth0 gso_max_segs 1 up"));
        assert_eq!(lines(&Plan::default(), "tc", "net.switch"), "");
    }
}
