//! ZooKeeper of a farm that has one, as each node of the farm reaches it.

use super::seat::Node;
use super::{TortureFarm, planned::PlannedStep};
use crate::options::{Log, Options};
use sheaf_membership::Member;
use sheaf_node::registry::Discovery;
use sheaf_protocol::{Incarnation, NodeId, Role, Timestamp};
use sheaf_verdict_log::Ledger;
use sheaf_zookeeper::keeper::model::{Model, ModelKeeper};
use sheaf_zookeeper::keeper::{Keeper, KeeperEvent, Request, Ticket};
use sheaf_zookeeper::ledger::{ZooKeeperLedger, ZooKeeperLedgerOptions};
use sheaf_zookeeper::registry::ZooKeeperRegistry;
use std::time::Duration;

/// Path above the farm's nodes in the tree.
const ROOT: &str = "/sheaf";
/// Least duration of a request or an answer.
const FASTEST: Duration = Duration::from_micros(200);
const SLOWEST: Duration = Duration::from_millis(3);

/// Returns the ZooKeeper that `options` ask for.
pub(super) fn model(options: &Options) -> Option<Model> {
    let is_there = options.log == Log::ZooKeeper;
    is_there.then(|| Model::new(options.seed, FASTEST, SLOWEST))
}

/// Session of a node whose clock is ahead of the time of the farm.
#[derive(Debug)]
struct Here {
    keeper: ModelKeeper,
    ahead: Duration,
}

impl Here {
    fn there(&self, here: Timestamp) -> Timestamp {
        Timestamp(here.0.saturating_sub(self.ahead.as_nanos() as u64))
    }
}

impl Keeper for Here {
    fn submit(&mut self, now: Timestamp, request: Request) -> Ticket {
        let there = self.there(now);
        self.keeper.submit(there, request)
    }

    fn poll(&mut self, now: Timestamp) -> Option<KeeperEvent> {
        let there = self.there(now);
        self.keeper.poll(there)
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.keeper.next_due().map(|due| due + self.ahead)
    }
}

impl TortureFarm<'_> {
    /// Returns a session of the process that is about to live in a seat.
    fn keeper(&mut self, index: usize) -> Option<Here> {
        let now = self.network.now();
        let seat = &mut self.seats[index];
        let model = self.zookeeper.as_ref()?;
        let keeper = model.client(now, self.options.session);
        seat.keepers.push(keeper.id());
        if seat.cuts_from_registry > 0 {
            model.set_cut(now, keeper.id(), true);
        }
        let ahead = seat.clock_ahead;
        Some(Here { keeper, ahead })
    }

    /// Returns the log of the ICN in a seat, if it is in a ZooKeeper.
    pub(super) fn zookeeper_ledger(&mut self, index: usize) -> Option<Box<dyn Ledger>> {
        let keeper = self.keeper(index)?;
        let options = ZooKeeperLedgerOptions::new(ROOT, self.seats[index].node.index);
        Some(Box::new(ZooKeeperLedger::new(keeper, options)))
    }

    /// Returns the discovery of the process of a seat. ICNs look for all, the others for ICNs.
    pub(super) fn discovery(
        &mut self,
        index: usize,
        incarnation: Incarnation,
        address: &str,
    ) -> Option<Discovery> {
        let keeper = self.keeper(index)?;
        let seat = &self.seats[index];
        let interest: &[Role] = match seat.node.role {
            Role::Icn => &[],
            _ => &[Role::Icn],
        };
        let registry = ZooKeeperRegistry::new(keeper, "memory", ROOT, interest);
        let me = Member {
            node: seat.node,
            incarnation,
            address: address.to_owned(),
        };
        let here = seat.here(self.network.now());
        Some(Discovery::new(Box::new(registry), here, me))
    }

    /// Calls `act` for every session of the process in a seat.
    fn each_session(&self, index: usize, act: impl Fn(&Model, usize)) {
        if let Some(model) = &self.zookeeper {
            for keeper in &self.seats[index].keepers {
                act(model, *keeper);
            }
        }
    }

    pub(super) fn take_registry_away(&mut self, now: Timestamp, length: Duration) {
        self.outages += 1;
        if let Some(model) = &self.zookeeper {
            model.set_up(now, false);
        }
        self.plan(now + length, PlannedStep::RegistryBack);
    }

    pub(super) fn give_registry_back(&mut self, now: Timestamp, is_for_good: bool) {
        self.outages = match is_for_good {
            true => 0,
            false => self.outages.saturating_sub(1),
        };
        if let Some(model) = self.zookeeper.as_ref().filter(|_| self.outages == 0) {
            model.set_up(now, true);
        }
    }

    pub(super) fn cut_from_registry(&mut self, now: Timestamp, node: NodeId, length: Duration) {
        if self.zookeeper.is_none() {
            return;
        }
        let index = self.seat_of(node);
        self.seats[index].cuts_from_registry += 1;
        self.each_session(index, |model, id| model.set_cut(now, id, true));
        self.plan(now + length, PlannedStep::RegistryHeals(index));
    }

    pub(super) fn heal_registry(&mut self, now: Timestamp, index: usize, is_for_good: bool) {
        let seat = &mut self.seats[index];
        seat.cuts_from_registry = match is_for_good {
            true => 0,
            false => seat.cuts_from_registry.saturating_sub(1),
        };
        if seat.cuts_from_registry == 0 {
            self.each_session(index, |model, id| model.set_cut(now, id, false));
        }
    }

    /// Ends the sessions of a seat, by the servers or by a process that leaves in order.
    pub(super) fn end_sessions(&mut self, now: Timestamp, index: usize) {
        self.each_session(index, |model, id| model.expire(now, id));
    }

    pub(super) fn pause_sessions(&mut self, now: Timestamp, index: usize, is_paused: bool) {
        self.each_session(index, |model, id| model.set_paused(now, id, is_paused));
    }
}

impl Node {
    /// Finds the others by a registry.
    pub(super) fn discover(&mut self, discovery: Discovery) {
        match self {
            Self::Icn(icn) => icn.discover(discovery),
            Self::Flp(flp) => flp.discover(discovery),
            Self::Epn(epn) => epn.discover(discovery),
        }
    }

    /// The process ends in order.
    pub(super) fn deregister(&mut self, here: Timestamp) {
        match self {
            Self::Icn(icn) => icn.deregister(here),
            Self::Flp(flp) => flp.deregister(here),
            Self::Epn(epn) => epn.deregister(here),
        }
    }
}
