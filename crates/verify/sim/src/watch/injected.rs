//! Faults injected so far: the basis for checking a reason.

use crate::options::{Fault, Options};
use sheaf_protocol::{NodeId, Role, StfHeader};
use std::collections::BTreeMap;

/// Everything injected into the farm so far.
#[derive(Debug, Default)]
pub(crate) struct Injected {
    /// Nodes that were killed, stopped, slowed or cut off.
    nodes: Vec<NodeId>,
    /// Nodes of these that were hit by more than a cut between an FLP and an ICN.
    harmed: Vec<NodeId>,
    /// Whether frames may be lost or streams break.
    is_network_bad: bool,
    /// Damaged STFs, by TF and FLP.
    corrupted: BTreeMap<(u64, u16), u32>,
    /// Whether the storage of an EPN took nothing for a while.
    pub(crate) was_storage_full: bool,
    /// Whether an FLP has left.
    pub(crate) has_source_ended: bool,
}

impl Injected {
    pub(crate) fn new(options: &Options) -> Self {
        let network = options.network;
        Self {
            is_network_bad: network.loss > 0.0
                || network.reset > 0.0
                || network.reorder > 0.0
                || network.corrupt > 0.0,
            has_source_ended: options.timeframes.is_some(),
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, fault: &Fault) {
        self.was_storage_full |= matches!(fault, Fault::SinkDown { .. });
        let known = self.nodes.len();
        match fault {
            Fault::Crash { node, .. }
            | Fault::Pause { node, .. }
            | Fault::Isolate { node, .. }
            | Fault::Slow { node, .. }
            | Fault::SinkDown { node, .. }
            | Fault::Disk { node, .. }
            | Fault::RegistryCut { node, .. }
            | Fault::SessionExpired { node }
            | Fault::PowerFailure { node, .. }
            | Fault::ClockBack { node, .. }
            | Fault::Twin { node, .. }
            | Fault::ControlCut { node, .. } => self.nodes.push(*node),
            // A record that is sent again must change nothing.
            Fault::Replay { .. } => {}
            // Without it no ICN leads, and a node that starts meanwhile finds none.
            Fault::RegistryAway { .. } => {
                let roles = [Role::Icn, Role::Flp, Role::Epn];
                self.nodes
                    .extend(roles.map(|role| NodeId { role, index: 0 }));
            }
            Fault::Leave { node, .. } => {
                self.nodes.push(*node);
                self.has_source_ended |= node.role == Role::Flp;
            }
            Fault::Cut { a, b, .. } => self.nodes.extend([*a, *b]),
            Fault::Storm { .. } => self.is_network_bad = true,
        }
        let is_control_cut = match fault {
            Fault::ControlCut { .. } => true,
            Fault::Cut { a, b, .. } => a.role != Role::Epn && b.role != Role::Epn,
            _ => false,
        };
        if !is_control_cut {
            self.harmed.extend_from_slice(&self.nodes[known..]);
        }
    }

    /// Notes that a frame with a damaged body was sent; its head has gone unharmed.
    pub(crate) fn add_corrupted(&mut self, head: &[u8]) {
        let bytes = head
            .get(40..48)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_le_bytes);
        if let Ok(header) = StfHeader::decode(head, bytes) {
            *self
                .corrupted
                .entry((header.key.tf.0, header.key.source.flp.0))
                .or_default() += 1;
        }
    }

    /// Returns how often the STF of one FLP of this TF was damaged, at most.
    pub(crate) fn corrupted(&self, tf: u64) -> u32 {
        self.corrupted
            .range((tf, 0)..=(tf, u16::MAX))
            .map(|(_, count)| *count)
            .max()
            .unwrap_or(0)
    }

    /// Returns whether an STF may be lost with its FLP, or come too late.
    pub(crate) fn may_lose_stfs(&self) -> bool {
        self.is_network_bad || self.has_hit(Role::Flp) || self.has_hit(Role::Icn)
    }

    /// Returns whether an ICN may take this FLP for dead: not if its control path alone was cut.
    pub(crate) fn may_seem_dead(&self, flp: u16) -> bool {
        let icn = |node: &NodeId| node.role == Role::Icn;
        let it = |node: &NodeId| node.role == Role::Flp && node.index == flp;
        self.is_network_bad || self.harmed.iter().any(|node| icn(node) || it(node))
    }

    pub(crate) fn has_hit(&self, role: Role) -> bool {
        self.is_network_bad || self.nodes.iter().any(|node| node.role == role)
    }
}
