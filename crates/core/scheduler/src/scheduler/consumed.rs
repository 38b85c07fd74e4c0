//! Work of the consumers behind the EPNs: the room that it makes, and the pace that policies go by.

use super::Scheduler;
use super::peer::target_id;
use sheaf_placement::TargetLoad;
use sheaf_protocol::control::Consumed;
use sheaf_protocol::{Target, Timestamp};
use std::time::Duration;

impl Scheduler {
    /// Handles the report of an EPN that its consumer has finished with TFs.
    pub(super) fn handle_freed(&mut self, now: Timestamp, target: Target, consumed: Consumed) {
        let before = self
            .view
            .get(target_id(target.epn))
            .map(TargetLoad::free_bytes);
        self.note_consumed(now, target, consumed);
        let after = self
            .view
            .get(target_id(target.epn))
            .map(TargetLoad::free_bytes);
        if after > before {
            self.place_queued(now);
        }
    }

    /// Notes the work of the consumer of an EPN since the report before.
    pub(super) fn note_consumed(&mut self, now: Timestamp, target: Target, consumed: Consumed) {
        let id = target_id(target.epn);
        self.view.set_held(id, consumed.sink_bytes);
        let Some(node) = self.epns.get_mut(&target.epn) else {
            return;
        };
        let before = node.consumed;
        let bytes = consumed.freed_bytes.saturating_sub(before.freed_bytes);
        if bytes == 0 {
            return;
        }
        node.consumed = consumed;
        let busy = Duration::from_nanos(consumed.busy_ns.saturating_sub(before.busy_ns));
        self.view.observe_work(id, bytes, busy, now);
    }
}
