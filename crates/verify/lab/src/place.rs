//! Which node of a topology, or which room on a host, is what in a farm.

use sheaf_testbed::hosts::Inventory;
use sheaf_testbed::net::{Can, Topology};
use thiserror::Error;

/// Nodes by their place in the topology, or among the slots of an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) icn: usize,
    pub(crate) flps: Vec<usize>,
    pub(crate) epns: Vec<usize>,
}

/// Reason why a farm does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{key}: found {found}, expected {expected}")]
pub struct Misfit {
    /// Key of the experiment that asks for too much.
    pub key: &'static str,
    /// Value found.
    pub found: String,
    /// Values expected.
    pub expected: String,
}

impl Placement {
    /// On the nodes of `topology`.
    ///
    /// # Errors
    ///
    /// A [`Misfit`] that says for how many there is room.
    pub(crate) fn on_topology(topology: &Topology, flps: u32, epns: u32) -> Result<Self, Misfit> {
        let nodes = topology.nodes();
        let can: Vec<&[Can]> = nodes.iter().map(|node| node.can.as_slice()).collect();
        Self::of(("topology", &topology.name), &can, flps, epns)
    }

    /// On the slots of `inventory`.
    ///
    /// # Errors
    ///
    /// As [`on_topology`](Self::on_topology).
    pub(crate) fn on_hosts(inventory: &Inventory, flps: u32, epns: u32) -> Result<Self, Misfit> {
        let can: Vec<&[Can]> = inventory.slots().iter().map(|slot| slot.can).collect();
        Self::of(("hosts", &inventory.name), &can, flps, epns)
    }

    /// The first node that can be the ICN, then the first ones that can be FLPs, then EPNs of those that are left: in
    /// the order of the file, which is how the founding report numbered them.
    fn of(
        (kind, name): (&'static str, &str),
        nodes: &[&[Can]],
        flps: u32,
        epns: u32,
    ) -> Result<Self, Misfit> {
        let mut taken = vec![false; nodes.len()];
        let mut take = |can: Can, count: u32| {
            let mut found = Vec::new();
            for (index, node) in nodes.iter().enumerate() {
                if found.len() < count as usize && !taken[index] && node.contains(&can) {
                    taken[index] = true;
                    found.push(index);
                }
            }
            found
        };
        let icn = take(Can::Icn, 1);
        let found_flps = take(Can::Flp, flps);
        let found_epns = take(Can::Epn, epns);
        let misfit = |key, asked: u32, room: usize| Misfit {
            key,
            found: asked.to_string(),
            expected: format!("at most {room} on {kind} {name}"),
        };
        if found_flps.len() < flps as usize {
            return Err(misfit("flps", flps, found_flps.len()));
        }
        if found_epns.len() < epns as usize {
            return Err(misfit("epns", epns, found_epns.len()));
        }
        match icn.first() {
            Some(icn) => Ok(Self {
                icn: *icn,
                flps: found_flps,
                epns: found_epns,
            }),
            None => Err(Misfit {
                key: kind,
                found: name.to_owned(),
                expected: "a node that can be icn".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_the_cluster_are_what_they_were_in_the_report() {
        let cluster = Topology::find("pi-cluster").unwrap();
        let one = Placement::on_topology(&cluster, 1, 6).unwrap();
        assert_eq!(
            (one.icn, one.flps, one.epns),
            (0, vec![1], vec![2, 3, 4, 5, 6, 7])
        );
        // The node of the first EPN becomes the second FLP.
        let two = Placement::on_topology(&cluster, 2, 5).unwrap();
        assert_eq!((two.flps, two.epns), (vec![1, 2], vec![3, 4, 5, 6, 7]));
    }

    #[test]
    fn a_farm_that_does_not_fit_is_refused_with_the_room_there_is() {
        let cluster = Topology::find("pi-cluster").unwrap();
        let text = |flps, epns| {
            Placement::on_topology(&cluster, flps, epns)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            text(4, 1),
            "flps: found 4, expected at most 3 on topology pi-cluster"
        );
        assert_eq!(
            text(2, 6),
            "epns: found 6, expected at most 5 on topology pi-cluster"
        );
    }
}
