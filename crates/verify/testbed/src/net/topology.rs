//! A topology file: nodes, switches, what lies between them, and how fast it is.

use crate::input::{self, InputError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use thiserror::Error;

/// Longest name of a network device (`IFNAMSIZ`, 16 with the final zero) but for the `br-` of a bridge.
const SWITCH_NAME_MAX: usize = 12;
/// Longest name of a topology or a node: with what stands before it, a file name has to hold both.
const NAME_MAX: usize = 48;
/// Ports that a bridge of Linux can have (`BR_MAX_PORTS`, 1024, of which port 0 is none).
pub const BRIDGE_PORTS_MAX: u32 = 1023;
/// Nodes that have an address in 10.100.0.0/16.
const NODES_MAX: u32 = 62_500;
/// Most bytes that an Ethernet frame of 1500 bytes has on the wire: preamble, header, checksum, gap.
const WIRE_BYTES: f64 = 1538.0;
/// Largest packet with segments of TCP that have not been cut yet.
const BULK_BYTES_MAX: u32 = 80_000;
/// Burst at rates that are too high for `burst_bytes`, in s of the rate.
const BULK_BURST_S: f64 = 0.000_2;
/// Of these, what TCP carries.
const PAYLOAD_BYTES: f64 = 1448.0;

/// Topologies that come with Sheaf: name and file.
const BUILT_IN: [(&str, &str); 7] = [
    (
        "pi-cluster",
        include_str!("../../../../../experiments/topologies/pi-cluster.toml"),
    ),
    (
        "pi-cluster-fairmq",
        include_str!("../../../../../experiments/topologies/pi-cluster-fairmq.toml"),
    ),
    (
        "pi-single",
        include_str!("../../../../../experiments/topologies/pi-single.toml"),
    ),
    (
        "pi-single-fairmq",
        include_str!("../../../../../experiments/topologies/pi-single-fairmq.toml"),
    ),
    (
        "lan-1g",
        include_str!("../../../../../experiments/topologies/lan-1g.toml"),
    ),
    (
        "rack-10g",
        include_str!("../../../../../experiments/topologies/rack-10g.toml"),
    ),
    (
        "incast",
        include_str!("../../../../../experiments/topologies/incast.toml"),
    ),
];

/// Why a topology cannot be made. Nothing has been made of it.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// Neither a file nor one of those that come with Sheaf.
    #[error("topology {found:?} does not exist, expected a file or one of: {known}")]
    Unknown {
        /// Requested name.
        found: String,
        /// Names of those that come with Sheaf.
        known: String,
    },
    /// The file cannot be used.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The kernel cannot have so many, or so long ones.
    #[error("{topology}: {key}: found {found}, but the kernel takes {limit}")]
    KernelLimit {
        /// The topology.
        topology: String,
        /// Where it stands.
        key: String,
        /// Value found.
        found: String,
        /// The limit, in words.
        limit: String,
    },
}

/// How a link counts bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// Every Ethernet frame by itself, with preamble, checksum and gap: as a wire does. Costs about 0.1 of a core for
    /// 100 Mbit/s.
    #[default]
    Frame,
    /// Segments of up to 64 KiB at once, at the rate that TCP would get of frames. For links of 1 Gbit/s and more.
    Bulk,
}

/// One direction of a cable, and the queue before it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Link {
    /// Bits on the wire, in Mbit/s.
    pub rate_mbit: f64,
    /// How bytes are counted.
    pub framing: Framing,
    /// Burst after a pause, in bytes. Less than 20 ms of the rate is lost on a busy machine, which
    /// comes too late to let frames go.
    pub burst_bytes: u32,
    /// Queue of a switch port before frames are dropped, in bytes.
    pub queue_bytes: u32,
    /// The same in a node.
    pub nic_queue_bytes: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            rate_mbit: 100.0,
            framing: Framing::Frame,
            burst_bytes: 250_000,
            queue_bytes: 128 << 10,
            nic_queue_bytes: 1_000_000,
        }
    }
}

impl Link {
    /// TCP throughput of the link with frames of 1500 bytes, in Mbit/s.
    #[must_use]
    pub fn goodput_mbit(&self) -> f64 {
        self.rate_mbit * PAYLOAD_BYTES / WIRE_BYTES
    }

    /// Burst that the kernel sends at once, in bytes.
    #[must_use]
    pub fn burst(&self) -> u32 {
        match self.framing {
            Framing::Frame => self.burst_bytes,
            Framing::Bulk => {
                let in_time = self.rate_mbit * 1e6 / 8.0 * BULK_BURST_S;
                (in_time as u32).max(BULK_BYTES_MAX).max(self.burst_bytes)
            }
        }
    }

    /// Queue of a switch port before frames are dropped, in bytes: a burst at least, where whole segments
    /// are charged.
    #[must_use]
    pub fn queue(&self) -> u32 {
        self.longest(self.queue_bytes)
    }

    /// The same of a queue of `bytes`.
    pub(super) fn longest(&self, bytes: u32) -> u32 {
        match self.framing {
            Framing::Frame => bytes,
            Framing::Bulk => bytes.max(self.burst()),
        }
    }
}

/// A second network, with one switch for all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Auxiliary {
    /// Bits on the wire, in Mbit/s.
    pub rate_mbit: f64,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Name, at most 12 bytes.
    pub name: String,
    /// Ports that it has; nodes and uplinks take one each.
    pub ports: u32,
}

/// A cable between two switches.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// The two.
    pub between: [String; 2],
    /// Bits on the wire each way, in Mbit/s; without it, that of `[link]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbit: Option<f64>,
}

/// Roles of a node in a farm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Can {
    /// The ICN.
    Icn,
    /// An FLP.
    Flp,
    /// An EPN.
    Epn,
}

/// A node, or `count` of the same kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Name; of several nodes, that of the first if it ends with a number, else a number is appended from 1 on.
    pub name: String,
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// Switch.
    pub switch: String,
    /// Roles that the node can have; all by default.
    #[serde(default = "anything")]
    pub can: Vec<Can>,
    /// Bits on its wire, in Mbit/s; without it, that of `[link]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_mbit: Option<f64>,
}

fn one() -> u32 {
    1
}

fn anything() -> Vec<Can> {
    vec![Can::Icn, Can::Flp, Can::Epn]
}

/// A topology file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Name.
    pub name: String,
    /// Description in a line.
    #[serde(default)]
    pub about: String,
    /// Every cable of the primary network, unless it has a rate of its own.
    #[serde(default)]
    pub link: Link,
    /// The second network, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auxiliary: Option<Auxiliary>,
    /// Switches of the primary network.
    pub switch: Vec<Switch>,
    /// Cables between them.
    #[serde(default)]
    pub uplink: Vec<Uplink>,
    /// Nodes.
    pub node: Vec<NodeSpec>,
}

/// One node of a topology.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Switch.
    pub switch: String,
    /// Roles that the node can have.
    pub can: Vec<Can>,
    /// Cable.
    pub link: Link,
}

impl Topology {
    /// The topology of `name`: a file, or one that comes with Sheaf.
    ///
    /// # Errors
    ///
    /// All of [`TopologyError`].
    pub fn find(name: &str) -> Result<Self, TopologyError> {
        let path = Path::new(name);
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(text, name);
        }
        if !path.is_file() {
            let known: Vec<&str> = Self::built_in().collect();
            return Err(TopologyError::Unknown {
                found: name.to_owned(),
                known: known.join(", "),
            });
        }
        Self::parse(&input::read(path)?, name)
    }

    /// Names of those that come with Sheaf.
    pub fn built_in() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// Reads a topology; `file` is for messages.
    ///
    /// # Errors
    ///
    /// All of [`TopologyError`] but those of reading.
    pub fn parse(text: &str, file: &str) -> Result<Self, TopologyError> {
        let topology: Self = input::parse(text, file)?;
        topology.check()?;
        Ok(topology)
    }

    /// All nodes, in the order of the file.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node> {
        let mut nodes = Vec::new();
        for spec in &self.node {
            let link = Link {
                rate_mbit: spec.rate_mbit.unwrap_or(self.link.rate_mbit),
                ..self.link
            };
            for index in 0..spec.count {
                nodes.push(Node {
                    name: numbered(&spec.name, index, spec.count),
                    switch: spec.switch.clone(),
                    can: spec.can.clone(),
                    link,
                });
            }
        }
        nodes
    }

    fn value(&self, key: &str, found: impl ToString, expected: impl ToString) -> TopologyError {
        InputError::value(&self.name, key, found, expected).into()
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers and texts are formatted alike, and the caller needs the value no longer"
    )]
    fn limit(&self, key: &str, found: impl ToString, limit: impl ToString) -> TopologyError {
        TopologyError::KernelLimit {
            topology: self.name.clone(),
            key: key.to_owned(),
            found: found.to_string(),
            limit: limit.to_string(),
        }
    }

    fn check(&self) -> Result<(), TopologyError> {
        self.check_name("name", &self.name, NAME_MAX)?;
        self.check_link()?;
        for switch in &self.switch {
            self.check_name("switch.name", &switch.name, SWITCH_NAME_MAX)?;
            if switch.ports > BRIDGE_PORTS_MAX {
                let limit = format!("at most {BRIDGE_PORTS_MAX} ports of a bridge");
                return Err(self.limit("switch.ports", switch.ports, limit));
            }
        }
        self.check_nodes()?;
        self.check_ports()?;
        self.check_tree()
    }

    fn check_name(&self, key: &str, name: &str, longest: usize) -> Result<(), TopologyError> {
        if name.len() > longest {
            let limit = format!("at most {longest} bytes here");
            return Err(self.limit(key, format!("{name:?}"), limit));
        }
        let is_fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || !name.chars().all(is_fine) || name.starts_with('-') {
            let expected = "lower-case letters, digits and `-`, not at the beginning";
            return Err(self.value(key, format!("{name:?}"), expected));
        }
        Ok(())
    }

    fn check_link(&self) -> Result<(), TopologyError> {
        let rates = [("link.rate_mbit", Some(self.link.rate_mbit))]
            .into_iter()
            .chain([(
                "auxiliary.rate_mbit",
                self.auxiliary.map(|net| net.rate_mbit),
            )])
            .chain(
                self.uplink
                    .iter()
                    .map(|up| ("uplink.rate_mbit", up.rate_mbit)),
            )
            .chain(
                self.node
                    .iter()
                    .map(|node| ("node.rate_mbit", node.rate_mbit)),
            );
        for (key, rate) in rates {
            if let Some(rate) = rate.filter(|rate| !(0.1..=100_000.0).contains(rate)) {
                return Err(self.value(key, rate, "0.1 to 100000 Mbit/s"));
            }
        }
        for (key, bytes, least) in [
            ("link.burst_bytes", self.link.burst_bytes, 1_600),
            ("link.queue_bytes", self.link.queue_bytes, 3_200),
            ("link.nic_queue_bytes", self.link.nic_queue_bytes, 3_200),
        ] {
            if bytes < least {
                return Err(self.value(key, bytes, format!("at least {least} bytes")));
            }
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), TopologyError> {
        let total: u64 = self.node.iter().map(|node| u64::from(node.count)).sum();
        if total == 0 {
            return Err(self.value("node", "none", "at least one node"));
        }
        if total > u64::from(NODES_MAX) {
            let limit = format!("at most {NODES_MAX} addresses of 10.100.0.0/16");
            return Err(self.limit("node.count", total, limit));
        }
        if self.auxiliary.is_some() && total > u64::from(BRIDGE_PORTS_MAX) {
            let limit = format!("at most {BRIDGE_PORTS_MAX} ports of the auxiliary bridge");
            return Err(self.limit("node.count", total, limit));
        }
        let mut seen = BTreeMap::new();
        for node in self.nodes() {
            self.check_name("node.name", &node.name, NAME_MAX)?;
            if node.can.is_empty() {
                return Err(self.value("node.can", "nothing", "some of icn, flp, epn"));
            }
            if seen.insert(node.name.clone(), ()).is_some() {
                let found = format!("{:?} twice", node.name);
                return Err(self.value("node.name", found, "another name for each node"));
            }
        }
        Ok(())
    }

    fn check_ports(&self) -> Result<(), TopologyError> {
        let mut taken: BTreeMap<&str, u32> = BTreeMap::new();
        for switch in &self.switch {
            if taken.insert(&switch.name, 0).is_some() {
                let found = format!("{:?} twice", switch.name);
                return Err(self.value("switch.name", found, "another name for each switch"));
            }
        }
        let known: Vec<&str> = taken.keys().copied().collect();
        let known = known.join(", ");
        let ends = self.uplink.iter().flat_map(|up| up.between.iter());
        let uses = self
            .node
            .iter()
            .map(|node| ("node.switch", &node.switch, node.count))
            .chain(ends.map(|name| ("uplink.between", name, 1)));
        for (key, name, count) in uses {
            let Some(ports) = taken.get_mut(name.as_str()) else {
                return Err(self.value(key, format!("{name:?}"), format!("one of: {known}")));
            };
            *ports = ports.saturating_add(count);
        }
        for switch in &self.switch {
            let used = taken.get(switch.name.as_str()).copied().unwrap_or(0);
            if used > switch.ports {
                let found = format!("{} ports for {used} cables", switch.ports);
                let expected = format!("at least {used} at switch {:?}", switch.name);
                return Err(self.value("switch.ports", found, expected));
            }
        }
        Ok(())
    }

    /// Every node reaches every other one, on one way only: bridges would send frames around a circle for ever.
    fn check_tree(&self) -> Result<(), TopologyError> {
        let names: Vec<&String> = self.switch.iter().map(|switch| &switch.name).collect();
        let mut group: Vec<usize> = (0..names.len()).collect();
        let index = |name: &String| names.iter().position(|known| *known == name).unwrap_or(0);
        for up in &self.uplink {
            let [a, b] = [&up.between[0], &up.between[1]].map(|name| group[index(name)]);
            if a == b {
                let found = format!(
                    "a second way between {:?} and {:?}",
                    up.between[0], up.between[1]
                );
                return Err(self.value(
                    "uplink.between",
                    found,
                    "switches that are not joined yet",
                ));
            }
            for member in &mut group {
                if *member == b {
                    *member = a;
                }
            }
        }
        if group.iter().any(|member| *member != group[0]) {
            let expected = "an uplink between all groups of switches";
            return Err(self.value("uplink", "switches that do not reach each other", expected));
        }
        Ok(())
    }
}

fn numbered(name: &str, index: u32, count: u32) -> String {
    if count == 1 {
        return name.to_owned();
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let first: u32 = name[stem.len()..].parse().unwrap_or(1);
    format!("{stem}{}", first.saturating_add(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topology_that_comes_along_is_sound_and_has_its_own_name() {
        for name in Topology::built_in() {
            let topology = Topology::find(name).unwrap();
            assert_eq!(topology.name, name);
            assert!(!topology.about.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_cluster_of_the_report_has_eight_nodes_four_at_each_switch() {
        let cluster = Topology::find("pi-cluster").unwrap();
        let nodes = cluster.nodes();
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names.join(" "), "pi1 pi2 pi3 pi4 pi5 pi6 pi7 pi8");
        let left = nodes.iter().filter(|node| node.switch == "left");
        assert_eq!(left.count(), 4);
        assert!((cluster.link.goodput_mbit() - 94.15).abs() < 0.01);
        assert!(cluster.auxiliary.is_some());
        let fairmq = Topology::find("pi-cluster-fairmq").unwrap();
        assert!((fairmq.link.goodput_mbit() - 93.37).abs() < 0.01);
    }

    const GOOD: &str = "
        name = 'x'
        [[switch]]
        name = 'a'
        ports = 4
        [[switch]]
        name = 'b'
        ports = 4
        [[uplink]]
        between = ['a', 'b']
        [[node]]
        name = 'n'
        count = 2
        switch = 'a'
        [[node]]
        name = 'm'
        switch = 'b'
        ";

    #[test]
    fn what_cannot_be_made_is_refused_with_its_key_and_what_is_expected() {
        Topology::parse(GOOD, "good").unwrap();
        for (from, to, told) in [
            (
                "name = 'x'",
                "name = 'X y'",
                "name: found \"X y\", expected lower-case letters",
            ),
            (
                "name = 'a'\n        ports = 4",
                "name = 'a'\n ports = 2",
                "switch.ports: found 2 ports for 3 cables",
            ),
            (
                "ports = 4",
                "ports = 1024",
                "switch.ports: found 1024, but the kernel takes at most 1023 ports",
            ),
            (
                "count = 2",
                "count = 70000",
                "node.count: found 70001, but the kernel takes at most 62500",
            ),
            (
                "name = 'a'\n",
                "name = 'a-very-long-name'\n",
                "but the kernel takes at most 12 bytes here",
            ),
            ("name = 'm'", "name = 'n1'", "node.name: found \"n1\" twice"),
            (
                "switch = 'b'",
                "switch = 'c'",
                "node.switch: found \"c\", expected one of: a, b",
            ),
            (
                "['a', 'b']",
                "['a', 'a']",
                "uplink.between: found a second way between \"a\" and \"a\"",
            ),
            (
                "[[uplink]]\n        between = ['a', 'b']",
                "",
                "uplink: found switches that do not reach",
            ),
            (
                "name = 'm'",
                "name = 'm'\n can = ['gpu']",
                "unknown variant `gpu`, expected one of `icn`, `flp`, `epn`",
            ),
            (
                "name = 'm'",
                "name = 'm'\n speed = 4",
                "unknown field `speed`, expected one of",
            ),
            (
                "[[uplink]]",
                "[link]\n rate_mbit = 0.0\n [[uplink]]",
                "link.rate_mbit: found 0, expected 0.1 to",
            ),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = Topology::parse(&text, "bad").unwrap_err().to_string();
            assert!(error.contains(told), "{to}: {error}");
        }
    }

    #[test]
    fn an_unknown_topology_is_refused_with_those_there_are() {
        let error = Topology::find("moon").unwrap_err().to_string();
        assert!(
            error.starts_with("topology \"moon\" does not exist"),
            "{error}"
        );
        assert!(error.ends_with("lan-1g, rack-10g, incast"), "{error}");
    }
}
