//! Notifications for the service manager that has started the process: `systemd`, or another one with its protocol
//! (`sd_notify(3)`).
//!
//! A node is ready when it listens and its event loop turns: it may then wait for its ICN for as long as it takes. The
//! state of the service says which phase it is in. The watchdog is fed by turns of the loop.

use crate::health::{Health, Standing};
use sd_notify::NotifyState;
use sheaf_protocol::Timestamp;
use std::time::Duration;
use tracing::warn;

/// Notifications of one process.
pub(super) struct Manager {
    /// Half of what the manager waits for, if it expects signs of life.
    watchdog_every: Option<Duration>,
    fed_at: Timestamp,
    reported: Option<Standing>,
    has_failed: bool,
}

impl Manager {
    /// Reads from the environment of the process what its manager expects; `None` without one.
    pub(super) fn of_environment() -> Option<Self> {
        std::env::var_os("NOTIFY_SOCKET")?;
        Some(Self::new(sd_notify::watchdog_enabled()))
    }

    fn new(watchdog: Option<Duration>) -> Self {
        Self {
            watchdog_every: watchdog.map(|limit| limit / 2),
            fed_at: Timestamp(0),
            reported: None,
            has_failed: false,
        }
    }

    /// Notifies the manager of what has changed by `now`. The first call reports the node as ready.
    pub(super) fn turn(&mut self, now: Timestamp, health: &Health) {
        let standing = health.standing();
        let changes = self.changes(now, standing);
        if !changes.is_empty() {
            self.send(&changes);
        }
    }

    /// Returns when the loop has to turn for the watchdog; the end of time without one.
    pub(super) fn due(&self) -> Timestamp {
        let every = self.watchdog_every;
        every.map_or(Timestamp(u64::MAX), |every| self.fed_at + every)
    }

    /// Notifies the manager that the node drains.
    pub(super) fn stop(&mut self) {
        let draining = NotifyState::Status("draining").to_string();
        self.send(&[NotifyState::Stopping.to_string(), draining]);
    }

    /// Returns the lines to send.
    fn changes(&mut self, now: Timestamp, standing: Standing) -> Vec<String> {
        let mut changes = Vec::new();
        if self.reported.is_none() {
            changes.push(NotifyState::Ready.to_string());
        }
        if self.reported != Some(standing) {
            self.reported = Some(standing);
            let mut text = standing.phase.to_owned();
            if standing.run.0 != 0 {
                text += &format!(", run {}", standing.run);
            }
            changes.push(NotifyState::Status(&text).to_string());
        }
        if self
            .watchdog_every
            .is_some_and(|every| now.since(self.fed_at) >= every)
        {
            self.fed_at = now;
            changes.push(NotifyState::Watchdog.to_string());
        }
        changes
    }

    fn send(&mut self, changes: &[String]) {
        let changes: Vec<NotifyState<'_>> = changes
            .iter()
            .map(|line| NotifyState::Custom(line))
            .collect();
        if let Err(error) = sd_notify::notify(&changes)
            && !self.has_failed
        {
            self.has_failed = true;
            warn!(%error, "Cannot notify the service manager");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{RunId, Term};

    fn standing(phase: &'static str, run: u64) -> Standing {
        Standing {
            phase,
            is_ready: run != 0,
            run: RunId(run),
            term: Term(u64::from(run != 0)),
        }
    }

    #[test]
    fn a_manager_is_notified_of_the_start_and_of_every_change() {
        let mut manager = Manager::new(None);
        let found = manager.changes(Timestamp(0), standing("connecting", 0));
        assert_eq!(found, ["READY=1", "STATUS=connecting"]);
        let found = manager.changes(Timestamp(1), standing("connecting", 0));
        assert_eq!(found, [""; 0]);
        let found = manager.changes(Timestamp(2), standing("joined", 10));
        let expected = format!("STATUS=joined, run {}", RunId(10));
        assert_eq!(found, [expected]);
        assert_eq!(manager.due(), Timestamp(u64::MAX));
    }

    #[test]
    fn the_watchdog_is_fed_twice_as_often_as_it_needs() {
        let mut manager = Manager::new(Some(Duration::from_secs(10)));
        manager.changes(Timestamp(0), standing("connecting", 0));
        let mut fed = 0;
        for second in 1..=60 {
            let now = Timestamp(second * 1_000_000_000);
            let found = manager.changes(now, standing("connecting", 0));
            fed += found.iter().filter(|line| *line == "WATCHDOG=1").count();
        }
        assert_eq!(fed, 12);
        assert_eq!(manager.due(), Timestamp(65 * 1_000_000_000));
    }
}
