//! Flow: its progress, and its end at the present rate.

use super::PATH_MAX;
use crate::des::queue::Nanos;

/// Bytes under way from one node to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) life: u32,
    /// Tag of the owner.
    pub(super) tag: u32,
    pub(super) ports: [u32; PATH_MAX],
    /// Places of the flow in the lists of its ports.
    pub(super) places: [u32; PATH_MAX],
    pub(super) count: u8,
    pub(super) state: State,
    pub(super) timeouts: u8,
    /// Whether a probe has found out that its window was lost, and whether it waits for that.
    pub(super) is_probed: bool,
    pub(super) is_probing: bool,
    /// Bytes that are left at `since`.
    pub(super) left: f64,
    pub(super) since: Nanos,
    /// Rate in bytes a ns.
    pub(super) rate: f64,
    pub(super) window: u64,
    /// Time of the earliest planned look; never if there is none.
    pub(super) due: Nanos,
}

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No such flow.
    Free,
    /// Sends.
    Active,
    /// Waits for its retransmission timeout, or is stopped.
    Stalled,
}

impl Flow {
    /// Subtracts the bytes that were sent until `now`.
    pub(super) fn advance(&mut self, now: Nanos) {
        let sent = self.rate * (now - self.since) as f64;
        self.left = (self.left - sent).max(0.0);
        self.since = now;
    }

    /// Returns when its bytes are through at its present rate.
    pub(super) fn ends_at(&self) -> Nanos {
        if self.left <= 0.0 {
            return self.since;
        }
        if self.rate <= 0.0 {
            return Nanos::MAX;
        }
        let ns = (self.left / self.rate).ceil();
        if ns >= 1e18 {
            Nanos::MAX
        } else {
            self.since + ns as Nanos
        }
    }
}
