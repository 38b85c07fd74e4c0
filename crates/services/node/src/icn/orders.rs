//! Orders of an operator in a running run: `sheaf ctl drain`, `set`, `restart`, `stop`, and questions.

use super::IcnNode;
use bytes::Bytes;
use sheaf_protocol::control::Order;
use sheaf_protocol::{Control, EpnId, NodeId, Timestamp};
use sheaf_transport::{ConnId, Transport};
use std::time::Duration;
use tracing::info;

/// Time for a status to leave this process.
pub(super) const SEND_WAIT: Duration = Duration::from_millis(50);
/// Bytes of a part of a status: below the longest blob of the protocol.
const STATUS_PART_BYTES: usize = 256 << 10;

impl<T: Transport> IcnNode<T> {
    pub(super) fn handle_operator(&mut self, now: Timestamp, conn: ConnId, control: &Control) {
        let Control::Order(order) = control else {
            return;
        };
        if let Order::Restart { term } = *order
            && self.lead.is_some()
        {
            let outcome = self.handle_restart(now, term);
            return self.answer(now, conn, *order, outcome);
        }
        let Some(lead) = &mut self.lead else {
            return self.send(&[conn], &Control::Standby);
        };
        if matches!(order, Order::Status) {
            return self.send_status(now, conn);
        }
        if let Order::Log { after } = *order {
            return self.send_log_page(now, conn, after);
        }
        let outcome = match *order {
            Order::Report => Ok(format!(
                "run {} is {}, {} TFs in flight, {} EPNs",
                lead.scheduler.run(),
                lead.scheduler.phase_name(),
                lead.scheduler.in_flight(),
                lead.scheduler.view().len(),
            )),
            Order::Drain { epn } => lead.scheduler.handle_drain(now, epn),
            Order::Set {
                epn,
                weight_milli,
                enabled,
            } => lead.scheduler.handle_set(epn, weight_milli, enabled),
            Order::Stop => {
                lead.scheduler.handle_stop(now);
                Ok("the sources stop, the farm drains".to_owned())
            }
            Order::Status | Order::Log { .. } | Order::Restart { .. } => {
                Err("answered above".to_owned())
            }
        };
        if let (Order::Drain { epn }, Ok(_)) = (order, &outcome) {
            self.ask_to_leave(*epn);
        }
        self.answer(now, conn, *order, outcome);
    }

    /// Answers an order, when what it has changed is durable.
    fn answer(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        order: Order,
        outcome: Result<String, String>,
    ) {
        let (done, detail) = match outcome {
            Ok(detail) => (true, detail),
            Err(detail) => (false, detail),
        };
        if !matches!(order, Order::Report) {
            info!(?order, done, detail, "An operator's order");
        }
        let answer = Control::Answer { done, detail };
        // What an order has changed is in the log before the operator gets the answer.
        self.act(now);
        match &mut self.lead {
            Some(lead) if !lead.gate.is_open() => lead.hold_answer(conn, answer),
            _ => self.send(&[conn], &answer),
        }
    }

    /// Returns whether all operators that watch the run know that it is over, or have gone.
    pub(super) fn watchers_have_seen(&mut self, now: Timestamp) -> bool {
        let sessions = &self.sessions;
        self.watchers.retain(|conn, _| sessions.contains_key(conn));
        let has_seen =
            |since: &Option<Timestamp>| since.is_some_and(|at| now.since(at) >= SEND_WAIT);
        self.watchers.values().all(has_seen)
    }

    /// Notes that an operator watches the run, and whether it learns now that the run is over; returns that.
    fn note_watcher(&mut self, now: Timestamp, conn: ConnId) -> bool {
        let lead = self.lead.as_ref();
        let is_over = lead.is_some_and(|lead| lead.scheduler.is_over());
        let seen = self.watchers.entry(conn).or_default();
        *seen = seen.or(is_over.then_some(now));
        is_over
    }

    /// Sends lines of the logs of all nodes.
    fn send_log_page(&mut self, now: Timestamp, conn: ConnId, after: u64) {
        self.log_book
            .add_ours(self.terms.me, self.terms.incarnation);
        let is_over = self.note_watcher(now, conn);
        let page = self.log_book.page(after, is_over);
        self.send_parts(conn, &page);
    }

    /// Sends the status of the farm.
    fn send_status(&mut self, now: Timestamp, conn: ConnId) {
        self.note_watcher(now, conn);
        let text = serde_json::to_vec(&self.status(now));
        let text = Bytes::from(text.expect("names and numbers always have a JSON form"));
        self.send_parts(conn, &text);
    }

    /// Sends a long answer in as many parts as it takes.
    fn send_parts(&mut self, conn: ConnId, text: &Bytes) {
        let parts = text.len().div_ceil(STATUS_PART_BYTES);
        for at in 0..parts {
            let end = text.len().min((at + 1) * STATUS_PART_BYTES);
            let left = u32::try_from(parts - at - 1).unwrap_or(u32::MAX);
            let part = text.slice(at * STATUS_PART_BYTES..end);
            self.send(&[conn], &Control::Status { left, part });
        }
    }

    pub(super) fn send_answers(&mut self) {
        let answers = self.lead.as_mut().map(|lead| lead.take_answers());
        for (conn, answer) in answers.unwrap_or_default() {
            self.send(&[conn], &answer);
        }
    }

    /// Notifies operators that wait for an answer of a former leader, so that they repeat the order at the next one.
    pub(super) fn refuse_answers(&mut self, conns: &[ConnId]) {
        self.send(conns, &Control::Standby);
    }

    /// The EPN itself says that it leaves, to this leader and to the next.
    fn ask_to_leave(&mut self, epn: EpnId) {
        if let Some(conn) = self.conns.get(&NodeId::from(epn)).copied() {
            self.send(&[conn], &Control::Leaving);
        }
    }
}
