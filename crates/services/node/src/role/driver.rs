//! The loop of a process: polls the transport, feeds a node and publishes its metrics until the node is done.

use super::RoleError;
use super::manager::Manager;
use super::process::{Every, Process};
use super::reload::{Reader, Reload};
use crate::clock::FairClock;
use crate::config::FarmConfig;
use crate::event::EventLog;
use crate::flp::Turn;
use crate::registry::Discovery;
use crate::run_queue::RunQueue;
use crate::shutdown::Shutdown;
use crate::{metrics, security};
use sheaf_metrics::Registry;
use sheaf_protocol::Timestamp;
use sheaf_transport::{Event, Refusal, Sharded, Transport};
use std::time::Duration;
use tracing::{error, info};

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

    /// Notes that the loop was ready to run for `delay` and had no processor, until just before `now`.
    fn handle_run_delay(&mut self, now: Timestamp, delay: Duration);

    /// Extends deadlines by the time for which the process was kept from the processor.
    fn handle_late(&mut self, _late: Duration) {}

    /// Returns the transport.
    fn transport(&mut self) -> &mut Sharded;

    /// Uses `discovery` to find the other nodes.
    fn discover(&mut self, discovery: Discovery);

    /// Leaves the registry of the farm.
    fn deregister(&mut self, now: Timestamp);

    /// Returns the event log.
    fn log(&mut self) -> &mut EventLog;

    /// Follows `config` in the keys that may change while the node runs.
    fn reconfigure(&mut self, _config: &FarmConfig) {}

    /// Publishes the metrics of the node.
    fn export(&mut self, registry: &Registry);

    /// Reports the state of the farm, if that is due or the loop `is_last`.
    fn report(&mut self, _now: Timestamp, _is_last: bool) {}
}

/// Loop around a node.
pub(super) struct Driver<'a, N> {
    process: &'a mut Process,
    node: N,
    shutdown: &'a Shutdown,
    reload: Option<Reload>,
}

impl<'a, N: Node> Driver<'a, N> {
    /// Makes the loop of `node` in `process`.
    pub(super) fn new(
        process: &'a mut Process,
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
            reload: None,
        }
    }

    /// Reads the farm file, which `config` is from, by `reader` when the process is asked to.
    pub(super) fn reloading(mut self, config: &FarmConfig, reader: Option<Reader>) -> Self {
        self.reload = reader.map(|reader| Reload::new(config, reader));
        self
    }

    /// Runs until the node is done, and returns it.
    pub(super) fn run(mut self) -> Result<N, RoleError> {
        let (clock, mut fair) = (self.process.clock, FairClock::default());
        let (mut export, mut events) = (Every::new(EXPORT_EVERY), Vec::new());
        let mut manager = Manager::of_environment();
        let (mut was_asked, mut woken_at) = (false, clock.now());
        let threads = self.node.transport().thread_ids();
        let mut run_queue = RunQueue::of_this_thread_and(threads);
        loop {
            let now = clock.now();
            self.process.health.turn(now);
            let turn = self.node.turn(now)?;
            if let Some(manager) = &mut manager {
                manager.turn(now, &self.process.health);
            }
            let is_last = turn == Turn::Done;
            if export.is_due(now) || is_last {
                self.export(now);
                run_queue.export(now, &self.process.registry);
            }
            self.node.report(now, is_last);
            let Turn::WaitUntil(until) = turn else { break };
            let until = manager
                .as_ref()
                .map_or(until, |manager| until.min(manager.due()));
            fair.sleep_until(until);
            self.node.handle_sleep(until);
            self.process.health.sleep_until(until);
            let sleeps_at = clock.now();
            run_queue.note_turn(sleeps_at, sleeps_at.since(woken_at));
            let timeout = until.since(sleeps_at);
            self.node.transport().poll(&mut events, Some(timeout))?;
            let now = clock.now();
            woken_at = now;
            self.process.health.turn(now);
            self.node.handle_wake(now);
            let late = fair.wake(now);
            if !late.is_zero() {
                self.node.handle_late(late);
            }
            if let Some(delay) = run_queue.look(now) {
                self.node.handle_run_delay(now, delay);
            }
            if self.shutdown.is_requested() && !was_asked {
                was_asked = true;
                if let Some(manager) = &mut manager {
                    manager.stop();
                }
                self.node.handle_shutdown(now);
            }
            if self.shutdown.take_hang_up() {
                self.hang_up();
            }
            for event in events.drain(..) {
                self.node.handle(now, event);
            }
        }
        self.node.deregister(clock.now());
        Ok(self.node)
    }

    /// Opens the logs again, and follows the farm file.
    fn hang_up(&mut self) {
        info!("SIGHUP: opens its logs again, and reads the farm file");
        if let Some(config) = self.reload.as_mut().and_then(Reload::read) {
            self.node.log().set_rotation(config.log.rotation());
            self.node.reconfigure(&config);
            self.process.reconfigure(&config);
        }
        if let Err(error) = self.node.log().reopen() {
            error!(%error, "The event log cannot be opened again; it goes on in the file that it has");
        }
    }

    fn export(&mut self, now: Timestamp) {
        let registry = &self.process.registry;
        let stats = self.node.transport().stats();
        metrics::export_transport(registry, &stats, &self.process.arena);
        security::export(registry, self.process.level);
        let refusals = self.node.transport().take_refusals();
        self.node.handle_refusals(now, refusals);
        self.node.export(registry);
        self.process.follow_run();
    }
}
