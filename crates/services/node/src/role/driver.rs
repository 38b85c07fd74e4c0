//! The loop of a process: polls the transport, feeds a node and publishes its metrics until the node is done.

use super::RoleError;
use super::manager::Manager;
use super::process::{Every, Process};
use crate::clock::FairClock;
use crate::flp::Turn;
use crate::registry::Discovery;
use crate::shutdown::Shutdown;
use crate::{metrics, security};
use sheaf_metrics::Registry;
use sheaf_protocol::Timestamp;
use sheaf_transport::{Event, Refusal, Tcp, Transport};
use std::time::Duration;

/// How often the metrics are brought up to date.
const EXPORT_EVERY: Duration = Duration::from_millis(250);

/// Node of a role, as its process drives it.
pub(super) trait Node {
    /// Does all that is due at `now`.
    fn turn(&mut self, now: Timestamp) -> Result<Turn, RoleError>;

    /// Handles an event of the transport.
    fn handle(&mut self, now: Timestamp, event: Event);

    /// Handles connections that the transport refused.
    fn handle_refusals(&mut self, now: Timestamp, refusals: Vec<Refusal>);

    /// Begins to drain, so that the process can end.
    fn handle_shutdown(&mut self, now: Timestamp);

    /// Notes when the loop means to wake.
    fn handle_sleep(&mut self, _until: Timestamp) {}

    /// Notes that the loop has woken, before the events that woke it.
    fn handle_wake(&mut self, _now: Timestamp) {}

    /// Extends deadlines by the time for which the process was kept from the processor.
    fn handle_late(&mut self, _late: Duration) {}

    /// Returns the transport.
    fn transport(&mut self) -> &mut Tcp;

    /// Uses `discovery` to find the other nodes.
    fn discover(&mut self, discovery: Discovery);

    /// Leaves the registry of the farm.
    fn deregister(&mut self, now: Timestamp);

    /// Publishes the metrics of the node.
    fn export(&self, registry: &Registry);

    /// Reports the state of the farm, if that is due or the loop `is_last`.
    fn report(&mut self, _now: Timestamp, _is_last: bool) {}
}

/// Loop around a node.
pub(super) struct Driver<'a, N> {
    process: &'a Process,
    node: N,
    shutdown: &'a Shutdown,
}

impl<'a, N: Node> Driver<'a, N> {
    /// Makes the loop of `node` in `process`.
    pub(super) fn new(
        process: &'a Process,
        mut node: N,
        discovery: Option<Discovery>,
        shutdown: &'a Shutdown,
    ) -> Self {
        if let Some(discovery) = discovery {
            node.discover(discovery);
        }
        Self {
            process,
            node,
            shutdown,
        }
    }

    /// Runs until the node is done.
    pub(super) fn run(mut self) -> Result<(), RoleError> {
        let (clock, mut fair) = (self.process.clock, FairClock::default());
        let (mut export, mut events) = (Every::new(EXPORT_EVERY), Vec::new());
        let mut manager = Manager::of_environment();
        let mut was_asked = false;
        loop {
            let now = clock.now();
            self.process.health.turn(now);
            let turn = self.node.turn(now)?;
            manager.turn(now, &self.process.health);
            let is_last = turn == Turn::Done;
            if export.is_due(now) || is_last {
                self.export(now);
            }
            self.node.report(now, is_last);
            let Turn::WaitUntil(until) = turn else { break };
            let until = until.min(manager.due());
            fair.sleep_until(until);
            self.node.handle_sleep(until);
            self.process.health.sleep_until(until);
            let timeout = until.since(clock.now());
            self.node.transport().poll(&mut events, Some(timeout))?;
            let now = clock.now();
            self.process.health.turn(now);
            self.node.handle_wake(now);
            let late = fair.wake(now);
            if !late.is_zero() {
                self.node.handle_late(late);
            }
            if self.shutdown.is_requested() && !was_asked {
                was_asked = true;
                manager.stop();
                self.node.handle_shutdown(now);
            }
            for event in events.drain(..) {
                self.node.handle(now, event);
            }
        }
        self.node.deregister(clock.now());
        Ok(())
    }

    fn export(&mut self, now: Timestamp) {
        let registry = &self.process.registry;
        let stats = self.node.transport().stats();
        metrics::export_transport(registry, &stats, &self.process.arena);
        security::export(registry, self.process.level);
        let refusals = self.node.transport().take_refusals();
        self.node.handle_refusals(now, refusals);
        self.node.export(registry);
    }
}
