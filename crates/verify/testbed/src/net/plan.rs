//! Commands that make the network of a topology. Pure: runs nothing.

use super::topology::{Can, Framing, Link, Node, Topology};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// Between the name of a network and that of a node; no name has it.
pub(super) const SEPARATOR: char = '.';
/// Preamble, checksum and gap of an Ethernet frame, in bytes: the kernel does not count them.
const OVERHEAD_BYTES: u32 = 24;
/// A frame of 1500 bytes as the kernel counts it, and on the wire.
const COUNTED_OF_WIRE: f64 = 1514.0 / 1538.0;

/// Where a node stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name in the topology.
    pub node: String,
    /// Namespace.
    pub namespace: String,
    /// Roles that the node can have.
    pub can: Vec<Can>,
    /// Address in the network of the data, on `eth0`.
    pub primary: Ipv4Addr,
    /// Address in the second network, on `eth1`.
    pub auxiliary: Option<Ipv4Addr>,
    /// Port of a switch, in the namespace of the switches.
    pub port: String,
}

impl Place {
    /// Address in the network of control.
    #[must_use]
    pub fn control(&self) -> Ipv4Addr {
        self.auxiliary.unwrap_or(self.primary)
    }
}

impl Can {
    /// Name in a topology file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Icn => "icn",
            Self::Flp => "flp",
            Self::Epn => "epn",
        }
    }
}

/// All of a network.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) prefix: String,
    /// The namespace with all bridges.
    pub(super) switches: String,
    pub(super) places: Vec<Place>,
    steps: Vec<Step>,
}

/// A tool, the namespace that it works in, and its lines.
pub(crate) type Step = (&'static str, Option<String>, String);

impl Plan {
    /// The network of `topology` under names that begin with `prefix`.
    pub(super) fn of(topology: &Topology, prefix: &str) -> Self {
        let nodes = topology.nodes();
        let switches = format!("{prefix}{SEPARATOR}switches");
        let place = |(index, node): (usize, &Node)| Place {
            node: node.name.clone(),
            namespace: format!("{prefix}{SEPARATOR}{}", node.name),
            can: node.can.clone(),
            primary: address(100, index),
            auxiliary: topology.auxiliary.map(|_| address(101, index)),
            port: format!("p{}", index + 1),
        };
        let places: Vec<Place> = nodes.iter().enumerate().map(place).collect();
        let mut plan = Self {
            prefix: prefix.to_owned(),
            switches,
            places,
            steps: Vec::new(),
        };
        plan.plan_namespaces();
        plan.plan_switches(topology, &nodes);
        plan.plan_nodes(topology);
        plan.plan_shapes(topology, &nodes);
        plan
    }

    pub(super) fn steps(&self) -> Vec<Step> {
        self.steps.clone()
    }

    /// Both ends of the cable of the node in `namespace`, `factor` times slower: a namespace and a line for `tc` each.
    pub(super) fn slower(
        &self,
        topology: &Topology,
        namespace: &str,
        factor: f64,
    ) -> Vec<(String, String)> {
        let nodes = topology.nodes();
        let found = nodes
            .iter()
            .zip(&self.places)
            .find(|(_, place)| place.namespace == namespace);
        let Some((node, place)) = found else {
            return Vec::new();
        };
        let link = Link {
            rate_mbit: node.link.rate_mbit / factor,
            ..node.link
        };
        let port = shape(&place.port, &link, link.queue_bytes);
        let nic = shape("eth0", &link, link.nic_queue_bytes);
        vec![
            (self.switches.clone(), port),
            (place.namespace.clone(), nic),
        ]
    }

    fn plan_namespaces(&mut self) {
        let names = self.places.iter().map(|place| &place.namespace);
        let lines = names
            .chain([&self.switches])
            .map(|name| format!("netns add {name}\n"));
        let lines = lines.collect();
        self.steps.push(("ip", None, lines));
    }

    fn plan_switches(&mut self, topology: &Topology, nodes: &[Node]) {
        let mut lines = String::new();
        for bridge in bridges(topology) {
            let _ = writeln!(lines, "link add {bridge} type bridge forward_delay 0");
            let _ = writeln!(lines, "link set {bridge} up");
        }
        let segments = segments(&topology.link);
        for (node, place) in nodes.iter().zip(&self.places) {
            let (port, namespace) = (&place.port, &place.namespace);
            let bridge = format!("br-{}", node.switch);
            let _ = writeln!(
                lines,
                "link add {port} type veth peer name eth0 netns {namespace}"
            );
            let _ = writeln!(lines, "link set {port} master {bridge}{segments} up");
            if place.auxiliary.is_some() {
                let port = auxiliary_port(port);
                let _ = writeln!(
                    lines,
                    "link add {port} type veth peer name eth1 netns {namespace}"
                );
                let _ = writeln!(lines, "link set {port} master {AUXILIARY} up");
            }
        }
        for (index, up) in topology.uplink.iter().enumerate() {
            let [a, b] = uplink_ports(index);
            let _ = writeln!(lines, "link add {a} type veth peer name {b}");
            for (port, switch) in [(a, &up.between[0]), (b, &up.between[1])] {
                let _ = writeln!(lines, "link set {port} master br-{switch}{segments} up");
            }
        }
        self.steps.push(("ip", Some(self.switches.clone()), lines));
    }

    fn plan_nodes(&mut self, topology: &Topology) {
        let segments = segments(&topology.link);
        for place in &self.places {
            let mut lines = format!(
                "link set lo up\naddr add {}/16 dev eth0\nlink set eth0{segments} up\n",
                place.primary
            );
            if let Some(address) = place.auxiliary {
                let _ = writeln!(lines, "addr add {address}/16 dev eth1\nlink set eth1 up");
            }
            self.steps
                .push(("ip", Some(place.namespace.clone()), lines));
        }
    }

    fn plan_shapes(&mut self, topology: &Topology, nodes: &[Node]) {
        let mut at_switches = String::new();
        let auxiliary = topology.auxiliary.map(|net| Link {
            rate_mbit: net.rate_mbit,
            framing: Framing::Bulk,
            ..Link::default()
        });
        for (node, place) in nodes.iter().zip(&self.places) {
            at_switches += &shape(&place.port, &node.link, node.link.queue_bytes);
            let mut in_node = shape("eth0", &node.link, node.link.nic_queue_bytes);
            if let Some(link) = &auxiliary {
                let port = auxiliary_port(&place.port);
                at_switches += &shape(&port, link, link.nic_queue_bytes);
                in_node += &shape("eth1", link, link.nic_queue_bytes);
            }
            self.steps
                .push(("tc", Some(place.namespace.clone()), in_node));
        }
        for (index, up) in topology.uplink.iter().enumerate() {
            let link = Link {
                rate_mbit: up.rate_mbit.unwrap_or(topology.link.rate_mbit),
                ..topology.link
            };
            for port in uplink_ports(index) {
                at_switches += &shape(&port, &link, link.queue_bytes);
            }
        }
        self.steps
            .push(("tc", Some(self.switches.clone()), at_switches));
    }
}

/// The bridge of the second network; no switch has this name, as theirs begin with `br-`.
const AUXILIARY: &str = "aux";

fn bridges(topology: &Topology) -> Vec<String> {
    let names = topology
        .switch
        .iter()
        .map(|switch| format!("br-{}", switch.name));
    let auxiliary = topology.auxiliary.map(|_| AUXILIARY.to_owned());
    names.chain(auxiliary).collect()
}

fn auxiliary_port(port: &str) -> String {
    format!("a{port}")
}

fn uplink_ports(index: usize) -> [String; 2] {
    ["l", "r"].map(|end| format!("up{index}{end}"))
}

/// 10.`net`.x.y of the node `index`, from 10.`net`.0.1 on.
fn address(net: u8, index: usize) -> Ipv4Addr {
    // The topology was checked: there are no more nodes than addresses.
    let (high, low) = (index / 250, index % 250 + 1);
    Ipv4Addr::new(
        10,
        net,
        u8::try_from(high).unwrap_or(u8::MAX),
        u8::try_from(low).unwrap_or(u8::MAX),
    )
}

/// Where frames are charged one by one they have to be cut before they are queued.
fn segments(link: &Link) -> &'static str {
    match link.framing {
        Framing::Frame => " gso_max_segs 1",
        Framing::Bulk => "",
    }
}

/// The line for `tc` that gives `device` the rate of `link`.
pub(crate) fn shape(device: &str, link: &Link, queue_bytes: u32) -> String {
    let (rate, overhead) = match link.framing {
        Framing::Frame => (link.rate_mbit, OVERHEAD_BYTES),
        Framing::Bulk => (link.rate_mbit * COUNTED_OF_WIRE, 0),
    };
    let (burst, queue) = (link.burst(), link.longest(queue_bytes));
    let bits = (rate * 1e6).round();
    format!(
        "qdisc replace dev {device} root tbf rate {bits}bit burst {burst} limit {queue} overhead {overhead}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(name: &str) -> Vec<Step> {
        Plan::of(&Topology::find(name).unwrap(), "net").steps()
    }

    #[test]
    fn the_cluster_has_nine_namespaces_and_every_port_is_shaped_both_ways() {
        let steps = steps("pi-cluster");
        assert_eq!(
            steps[0].2.lines().count(),
            9,
            "eight nodes and the switches"
        );
        let shapes: Vec<&str> = steps
            .iter()
            .filter(|(tool, ..)| *tool == "tc")
            .flat_map(|(.., lines)| lines.lines())
            .collect();
        // Eight nodes on two networks, two ends each, and one uplink with two ends.
        assert_eq!(shapes.len(), 8 * 2 * 2 + 2);
        let nic = "qdisc replace dev eth0 root tbf rate 100000000bit burst 250000 limit 1000000 overhead 24";
        assert_eq!(shapes.iter().filter(|line| **line == nic).count(), 8);
        let port =
            "qdisc replace dev p8 root tbf rate 100000000bit burst 250000 limit 131072 overhead 24";
        assert!(shapes.contains(&port), "{shapes:#?}");
    }

    #[test]
    fn names_of_devices_are_within_what_the_kernel_takes() {
        for name in Topology::built_in() {
            for (.., lines) in steps(name) {
                let words = lines.split_whitespace();
                let devices =
                    words.filter(|word| word.starts_with("br-") || word.starts_with("ap"));
                for device in devices {
                    assert!(device.len() <= 15, "{device}");
                }
            }
        }
    }

    #[test]
    fn fast_links_charge_whole_segments_at_the_rate_of_frames() {
        let link = Link {
            rate_mbit: 10_000.0,
            framing: Framing::Bulk,
            ..Link::default()
        };
        let line = shape("eth0", &link, 4 << 20);
        let expected = "qdisc replace dev eth0 root tbf rate 9843953186bit burst 250000 limit 4194304 overhead 0\n";
        assert_eq!(line, expected);
    }

    #[test]
    fn a_slower_cable_is_slower_at_both_ends() {
        let topology = Topology::find("pi-cluster").unwrap();
        let lines = Plan::of(&topology, "net").slower(&topology, "net.pi3", 4.0);
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0]
                .1
                .starts_with("qdisc replace dev p3 root tbf rate 25000000bit"),
            "{lines:?}"
        );
        assert!(
            lines[1]
                .1
                .starts_with("qdisc replace dev eth0 root tbf rate 25000000bit"),
            "{lines:?}"
        );
        assert_eq!(
            Plan::of(&topology, "net").slower(&topology, "net.moon", 4.0),
            []
        );
    }

    #[test]
    fn addresses_go_on_in_the_next_256() {
        assert_eq!(address(100, 0).to_string(), "10.100.0.1");
        assert_eq!(address(101, 250).to_string(), "10.101.1.1");
    }
}
