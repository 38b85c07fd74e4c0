//! Where every node of a farm listens, and how the others get there.

use super::FarmError;
use crate::shape::{Ground, Shape};
use sheaf_node::config::FarmConfig;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_testbed::hosts::Session;
use sheaf_testbed::machine::{Host, Network};
use sheaf_testbed::relay::Relay;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

/// Where one node stands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spot {
    /// Namespace.
    pub(crate) host: Option<Host>,
    /// The connection to its machine, if that is another one.
    pub(crate) session: Option<Arc<Session>>,
    /// Where it listens; empty for an FLP.
    pub(crate) listen: String,
    /// Address announced to others, if different.
    pub(crate) advertise: Option<String>,
    /// Address of the ICN given to the node, if different from where the ICN listens.
    pub(crate) icn: Option<String>,
}

/// The addresses of a farm.
#[derive(Debug)]
pub(super) struct Plan {
    spots: BTreeMap<NodeId, Spot>,
    relays: BTreeMap<&'static str, Relay>,
    /// Between each node and each ZooKeeper server.
    keeper_relays: BTreeMap<NodeId, Vec<Relay>>,
}

/// Names of the relays of a farm: before the data port of EPN 0, and between FLP 0 or EPN 0 and the ICN.
pub(crate) const RELAYS: [&str; 3] = ["data", "flp-icn", "epn-icn"];

impl Plan {
    /// Makes hosts and relays where `shape` wants them, and picks ports that are free.
    ///
    /// # Errors
    ///
    /// What the operating system gives.
    pub(super) fn make(shape: &Shape, network: Option<&mut Network>) -> Result<Self, FarmError> {
        let nodes = |role, count| (0..count).map(move |index| NodeId { role, index });
        let nodes = nodes(Role::Icn, shape.icns)
            .chain(nodes(Role::Flp, shape.flps))
            .chain(nodes(Role::Epn, shape.epns))
            .chain(shape.writers());
        let mut spots = BTreeMap::new();
        match network {
            Some(network) => {
                for node in nodes {
                    let host = network.add_host()?;
                    let listen = format!("{}:7000", host.address);
                    let spot = Spot {
                        host: Some(host),
                        listen,
                        ..Spot::default()
                    };
                    spots.insert(node, spot);
                }
            }
            None => {
                let mut ports = FreePorts::default();
                for node in nodes {
                    let listen = ports.pick()?;
                    let spot = Spot {
                        listen,
                        ..Spot::default()
                    };
                    spots.insert(node, spot);
                }
            }
        }
        let mut plan = Self {
            spots,
            relays: BTreeMap::new(),
            keeper_relays: BTreeMap::new(),
        };
        if shape.ground == Ground::Relays {
            plan.add_relays()?;
        }
        Ok(plan)
    }

    /// Nodes at addresses that another process chose.
    pub(super) fn of_spots(spots: BTreeMap<NodeId, Spot>) -> Self {
        Self {
            spots,
            relays: BTreeMap::new(),
            keeper_relays: BTreeMap::new(),
        }
    }

    fn add_relays(&mut self) -> Result<(), FarmError> {
        let (flp, epn): (NodeId, NodeId) = (FlpId(0).into(), EpnId(0).into());
        let icn = self.spot(NodeId::ICN).listen.clone();
        let data = Relay::to(&self.spot(epn).listen)?;
        let [flp_icn, epn_icn] = [Relay::to(&icn)?, Relay::to(&icn)?];
        self.spot_mut(epn).advertise = Some(data.address().to_owned());
        self.spot_mut(epn).icn = Some(epn_icn.address().to_owned());
        self.spot_mut(flp).icn = Some(flp_icn.address().to_owned());
        let [data_name, flp_name, epn_name] = RELAYS;
        self.relays = [(data_name, data), (flp_name, flp_icn), (epn_name, epn_icn)].into();
        Ok(())
    }

    /// Puts a relay between every node and every one of `servers`.
    ///
    /// # Errors
    ///
    /// What the operating system gives.
    pub(super) fn add_keeper_relays(&mut self, servers: &[String]) -> Result<(), FarmError> {
        for node in self.spots.keys() {
            let relays = servers.iter().map(|server| Relay::to(server));
            let relays = relays.collect::<Result<_, _>>()?;
            self.keeper_relays.insert(*node, relays);
        }
        Ok(())
    }

    /// The relays between `node` and the ZooKeeper servers, in the order of these.
    pub(super) fn keeper_relays(&self, node: NodeId) -> &[Relay] {
        self.keeper_relays.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Puts what all nodes have in common into the farm file.
    pub(super) fn write_into(&self, config: &mut FarmConfig) {
        let of_role = |role| {
            let spots = self.spots.iter().filter(move |(node, _)| node.role == role);
            spots.map(|(_, spot)| spot.listen.clone())
        };
        config.writer.addresses = of_role(Role::Writer).collect();
        let addresses: Vec<String> = of_role(Role::Icn).collect();
        if addresses.len() > 1 {
            config.icn.addresses = addresses;
        } else if let [address] = addresses.as_slice() {
            config.icn.address.clone_from(address);
        }
    }

    /// Where `node` stands.
    pub(super) fn spot(&self, node: NodeId) -> &Spot {
        self.spots
            .get(&node)
            .expect("every node of the shape has a spot")
    }

    fn spot_mut(&mut self, node: NodeId) -> &mut Spot {
        self.spots
            .get_mut(&node)
            .expect("every node of the shape has a spot")
    }

    /// The relays by name.
    pub(super) fn relays(&self) -> &BTreeMap<&'static str, Relay> {
        &self.relays
    }
}

/// Returns ports without a listener. They are all held until the last is picked, so that none is returned twice.
#[derive(Default)]
struct FreePorts(Vec<TcpListener>);

impl FreePorts {
    fn pick(&mut self) -> Result<String, FarmError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .map_err(FarmError::io("find a free port"))?;
        let address = listener
            .local_addr()
            .map_err(FarmError::io("find a free port"))?;
        self.0.push(listener);
        Ok(address.to_string())
    }
}
