//! The nodes of the roles as a [`Driver`](super::driver::Driver) runs them.

use super::driver::Node;
use super::process::Every;
use super::{RoleError, StatusSink};
use crate::config::FarmConfig;
use crate::epn::EpnNode;
use crate::event::EventLog;
use crate::flp::{FlpNode, Turn};
use crate::health::{Health, Standing};
use crate::icn::IcnNode;
use crate::metrics;
use crate::registry::Discovery;
use crate::shutdown::Shutdown;
use crate::writer::WriterNode;
use sheaf_metrics::Registry;
use sheaf_protocol::{RunId, Timestamp};
use sheaf_transport::{Event, Refusal, Sharded};
use std::sync::Arc;
use std::time::Duration;
use tracing::error;

impl Node for FlpNode<Sharded> {
    fn turn(&mut self, now: Timestamp) -> Result<Turn, RoleError> {
        Ok(self.turn(now)?)
    }

    fn handle(&mut self, now: Timestamp, event: Event) {
        self.handle(now, event);
    }

    fn handle_refusals(&mut self, now: Timestamp, refusals: Vec<Refusal>) {
        self.handle_refusals(now, refusals);
    }

    fn transport(&mut self) -> &mut Sharded {
        self.transport()
    }

    fn discover(&mut self, discovery: Discovery) {
        self.discover(discovery);
    }

    fn deregister(&mut self, now: Timestamp) {
        self.deregister(now);
    }

    fn log(&mut self) -> &mut EventLog {
        self.log()
    }

    fn handle_shutdown(&mut self, now: Timestamp) {
        self.handle_shutdown(now);
    }

    fn handle_run_delay(&mut self, now: Timestamp, delay: Duration) {
        self.handle_run_delay(now, delay);
    }

    fn export(&mut self, registry: &Registry) {
        metrics::export_flp(registry, self.brain());
        self.export_rejected(registry);
    }
}

impl Node for EpnNode<Sharded> {
    fn turn(&mut self, now: Timestamp) -> Result<Turn, RoleError> {
        Ok(self.turn(now)?)
    }

    fn handle(&mut self, now: Timestamp, event: Event) {
        self.handle(now, event);
    }

    fn handle_refusals(&mut self, now: Timestamp, refusals: Vec<Refusal>) {
        self.handle_refusals(now, refusals);
    }

    fn transport(&mut self) -> &mut Sharded {
        self.transport()
    }

    fn discover(&mut self, discovery: Discovery) {
        self.discover(discovery);
    }

    fn deregister(&mut self, now: Timestamp) {
        self.deregister(now);
    }

    fn log(&mut self) -> &mut EventLog {
        self.log()
    }

    fn handle_shutdown(&mut self, now: Timestamp) {
        self.handle_shutdown(now);
    }

    fn handle_late(&mut self, late: Duration) {
        self.handle_late(late);
    }

    fn handle_run_delay(&mut self, now: Timestamp, delay: Duration) {
        self.handle_run_delay(now, delay);
    }

    fn export(&mut self, registry: &Registry) {
        metrics::export_epn(registry, self.brain());
        self.export_rejected(registry);
    }
}

impl Node for WriterNode<Sharded> {
    fn turn(&mut self, now: Timestamp) -> Result<Turn, RoleError> {
        Ok(self.turn(now))
    }

    fn handle(&mut self, now: Timestamp, event: Event) {
        self.handle(now, event);
    }

    fn handle_refusals(&mut self, now: Timestamp, refusals: Vec<Refusal>) {
        self.handle_refusals(now, refusals);
    }

    fn transport(&mut self) -> &mut Sharded {
        self.transport()
    }

    // Writers stand in the farm file alone.
    fn discover(&mut self, _discovery: Discovery) {}

    fn deregister(&mut self, _now: Timestamp) {}

    fn log(&mut self) -> &mut EventLog {
        self.log()
    }

    fn handle_shutdown(&mut self, now: Timestamp) {
        self.handle_shutdown(now);
    }

    fn handle_run_delay(&mut self, _now: Timestamp, delay: Duration) {
        self.handle_run_delay(delay);
    }

    fn export(&mut self, registry: &Registry) {
        WriterNode::export(self, registry);
    }
}

/// ICN with its reports.
pub(super) struct ReportingIcn {
    pub(super) node: IcnNode<Sharded>,
    /// How often the farm is reported, and to whom.
    pub(super) report: Option<(Every, StatusSink)>,
    /// Where the standing of the ICN is noted.
    pub(super) health: Arc<Health>,
    /// Whether the run outlives this process, unless that is interrupted.
    pub(super) keep_run: bool,
    pub(super) shutdown: Shutdown,
}

impl ReportingIcn {
    fn standing(&self) -> Standing {
        let scheduler = self.node.scheduler();
        let ledger = self.node.ledger_status();
        Standing {
            phase: scheduler.map_or("standby", |scheduler| scheduler.phase_name()),
            // A standby that knows the leader may take its place: a supervisor can go on to the next ICN.
            is_ready: scheduler.is_some() || ledger.leader.is_some(),
            run: scheduler.map_or(RunId(0), sheaf_scheduler::Scheduler::run),
            term: ledger.term,
        }
    }
}

impl Node for ReportingIcn {
    fn turn(&mut self, now: Timestamp) -> Result<Turn, RoleError> {
        Ok(self.node.turn(now)?)
    }

    fn handle(&mut self, now: Timestamp, event: Event) {
        self.node.handle(now, event);
    }

    fn handle_refusals(&mut self, now: Timestamp, refusals: Vec<Refusal>) {
        self.node.handle_refusals(now, refusals);
    }

    fn transport(&mut self) -> &mut Sharded {
        self.node.transport()
    }

    fn discover(&mut self, discovery: Discovery) {
        self.node.discover(discovery);
    }

    fn deregister(&mut self, now: Timestamp) {
        self.node.deregister(now);
    }

    fn log(&mut self) -> &mut EventLog {
        self.node.log()
    }

    fn reconfigure(&mut self, config: &FarmConfig) {
        let outcome = (self.node).reconfigure(&config.scheduler(), config.icn.liveness);
        if let Err(error) = outcome {
            error!(%error, "The configuration before stays in force");
        }
    }

    fn handle_shutdown(&mut self, now: Timestamp) {
        if self.keep_run && !self.shutdown.is_interrupt() {
            self.node.keep_run();
        }
        self.node.handle_shutdown(now);
    }

    fn handle_sleep(&mut self, until: Timestamp) {
        self.node.handle_sleep(until);
    }

    fn handle_wake(&mut self, now: Timestamp) {
        self.node.handle_wake(now);
    }

    fn handle_run_delay(&mut self, now: Timestamp, delay: Duration) {
        self.node.handle_run_delay(now, delay);
    }

    fn export(&mut self, registry: &Registry) {
        self.health.stand(self.standing());
        self.node.export(registry);
        self.node.export_rejected(registry);
    }

    fn report(&mut self, now: Timestamp, is_last: bool) {
        if let Some((every, sink)) = &mut self.report
            && (every.is_due(now) || is_last)
        {
            sink(&self.node.status(now));
        }
    }
}
