//! Where live runs take place: in namespaces of this machine, or on the hosts of an inventory.

use crate::place::{Misfit, Placement};
use sheaf_testbed::hosts::{Fleet, Inventory, OpenError};
use sheaf_testbed::machine::Host;
use sheaf_testbed::net::{Net, NetError, Topology};
use sheaf_testbed::tool::ToolError;
use thiserror::Error;

/// Where a point is to be run.
#[derive(Clone, Debug, PartialEq)]
pub enum Venue {
    /// In namespaces with the wires of a topology.
    Net(Topology),
    /// On real machines.
    Hosts(Inventory),
}

impl Venue {
    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Net(topology) => &topology.name,
            Self::Hosts(inventory) => &inventory.name,
        }
    }

    /// Which place of it is which node of a farm.
    ///
    /// # Errors
    ///
    /// A [`Misfit`] that says for how many there is room.
    pub(crate) fn place(&self, flps: u32, epns: u32) -> Result<Placement, Misfit> {
        match self {
            Self::Net(topology) => Placement::on_topology(topology, flps, epns),
            Self::Hosts(inventory) => Placement::on_hosts(inventory, flps, epns),
        }
    }
}

/// Reasons why a venue is not made, or not connected.
#[derive(Debug, Error)]
pub enum StageError {
    /// There is no network.
    #[error(transparent)]
    Net(#[from] NetError),
    /// Hosts are not connected.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A venue that is made, or connected.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Namespaces.
    Net(Net),
    /// Hosts.
    Hosts(Fleet),
}

impl Stage {
    /// Whether this is what `venue` asks for.
    pub(crate) fn is(&self, venue: &Venue) -> bool {
        match (self, venue) {
            (Self::Net(net), Venue::Net(topology)) => net.topology() == topology,
            (Self::Hosts(fleet), Venue::Hosts(inventory)) => fleet.inventory() == inventory,
            _ => false,
        }
    }

    /// Makes it, or connects.
    ///
    /// # Errors
    ///
    /// What making a network, or connecting, gives.
    pub(crate) fn make(venue: &Venue) -> Result<Self, StageError> {
        match venue {
            Venue::Net(topology) => Ok(Self::Net(Net::make(topology)?)),
            Venue::Hosts(inventory) => Ok(Self::Hosts(Fleet::open(inventory)?)),
        }
    }

    /// Makes the cable of `host` `factor` times slower than the topology has it.
    ///
    /// # Errors
    ///
    /// What `tc` says.
    pub(crate) fn slow_down(&self, host: &Host, factor: f64) -> Result<(), ToolError> {
        match self {
            Self::Net(net) => net.slow_down(&host.namespace, factor),
            // Wires of others are left alone; who read the experiment has said so.
            Self::Hosts(_) => Ok(()),
        }
    }
}
