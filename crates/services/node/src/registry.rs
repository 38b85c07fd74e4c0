//! How a node finds the others in a registry outside the farm, and what it makes of what it sees there.

use crate::config::{FarmConfig, MembershipBackend, MembershipFileError};
use sheaf_membership::{Member, Registry, RegistryEvent};
use sheaf_protocol::{Incarnation, NodeId, Role, Timestamp};
use sheaf_zookeeper::{OptionsError, Waker};
use std::collections::BTreeSet;
use thiserror::Error;
use tracing::{info, warn};

/// Why the registry cannot be used.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// A file that cannot be used.
    #[error(transparent)]
    File(#[from] MembershipFileError),
    /// An option that is none.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

/// The registry of the farm file; `None` if the ICNs are it.
///
/// # Errors
///
/// [`RegistryError`] if an option cannot be used.
pub(crate) fn open(
    config: &FarmConfig,
    node: NodeId,
    interest: &[Role],
    waker: Waker,
) -> Result<Option<Box<dyn Registry>>, RegistryError> {
    if config.membership.backend == MembershipBackend::Embedded {
        return Ok(None);
    }
    let options = config.membership.zookeeper(node)?;
    let registry =
        sheaf_zookeeper::open_registry(&options, &config.membership.root, interest, waker)?;
    Ok(Some(registry))
}

/// A registry, and what this node has made of it.
pub struct Discovery {
    registry: Box<dyn Registry>,
    icns: Vec<String>,
    there: BTreeSet<(NodeId, Incarnation)>,
    /// Lives that were there and are no longer.
    over: BTreeSet<(NodeId, Incarnation)>,
}

impl std::fmt::Debug for Discovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Discovery")
            .field("registry", &self.registry.name())
            .field("there", &self.there)
            .finish_non_exhaustive()
    }
}

impl Discovery {
    /// Writes `me` down in `registry` and looks out for others.
    #[must_use]
    pub fn new(mut registry: Box<dyn Registry>, now: Timestamp, me: Member) -> Self {
        registry.join(now, me);
        Self {
            registry,
            icns: Vec::new(),
            there: BTreeSet::new(),
            over: BTreeSet::new(),
        }
    }

    /// Looks; `true` if who is there has changed.
    pub(crate) fn look(&mut self, now: Timestamp) -> bool {
        let mut has_changed = false;
        while let Some(event) = self.registry.poll(now) {
            match event {
                RegistryEvent::View(members) => {
                    has_changed = true;
                    self.take_in(&members);
                }
                RegistryEvent::Away { why } => {
                    warn!(why, "The registry is away; what was known stays in force");
                }
                RegistryEvent::Back => info!("The registry is back"),
                RegistryEvent::Problem { what } => {
                    warn!(
                        what,
                        "The registry has a problem; what was known stays in force"
                    );
                }
            }
        }
        has_changed
    }

    fn take_in(&mut self, members: &[Member]) {
        let there: BTreeSet<_> = members.iter().map(|m| (m.node, m.incarnation)).collect();
        self.over.extend(self.there.difference(&there));
        self.over.retain(|life| !there.contains(life));
        self.there = there;
        let icns = members
            .iter()
            .filter(|member| member.node.role == Role::Icn);
        let addresses = icns.map(|member| member.address.clone());
        self.icns = addresses.filter(|address| !address.is_empty()).collect();
    }

    /// Where the ICNs listen.
    pub(crate) fn icns(&self) -> &[String] {
        &self.icns
    }

    /// Lives whose registration has ended, while the registry could be asked.
    pub(crate) fn over(&self) -> impl Iterator<Item = (NodeId, Incarnation)> + '_ {
        let over = self.over.iter().copied();
        over.filter(|_| !self.registry.is_away())
    }

    /// Deregisters this node, so that no node has to wait for the end of its session.
    pub(crate) fn leave(&mut self, now: Timestamp) {
        self.registry.leave(now);
    }
}
