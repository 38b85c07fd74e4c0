//! Deadlines of connections, and times at which they are looked at again.

use super::Tcp;
use crate::transport::{CloseReason, Event};
use std::time::Instant;

impl Tcp {
    /// Closes the connections whose deadline has passed. Comes after the turns: what lay in the socket while this
    /// process was stopped counts as in time.
    pub(super) fn expire(&mut self, events: &mut Vec<Event>) {
        let now = Instant::now();
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        let listeners = self.listeners.iter();
        let mut next = listeners.filter_map(|listener| listener.again).min();
        let (mut expired, mut unanswered, mut roomy) = (Vec::new(), Vec::new(), Vec::new());
        let config = &self.shared.config;
        for connection in self.connections.values_mut() {
            let is_over = |(at, _): &(Instant, CloseReason)| *at <= now;
            if connection.deadline(config).as_ref().is_some_and(is_over) {
                connection.look_for_body(now);
            }
            match connection.deadline(config) {
                Some((at, reason)) if at <= now => {
                    expired.push((connection.id, reason));
                    continue;
                }
                deadline => {
                    next = [next, deadline.map(|(at, _)| at)]
                        .into_iter()
                        .flatten()
                        .min();
                }
            }
            match connection.room_due() {
                Some(at) if at <= now => {
                    connection.try_again();
                    roomy.push(connection.id);
                }
                due => next = [next, due].into_iter().flatten().min(),
            }
            // One that waits for its turn may have been answered.
            let due = connection.connect_retry_due(config);
            match due.filter(|_| !connection.listed) {
                Some(at) if at <= now => unanswered.push(connection.id),
                due => next = [next, due].into_iter().flatten().min(),
            }
        }
        self.deadline = next;
        roomy.sort_unstable();
        for conn in roomy {
            self.enlist(conn);
        }
        unanswered.sort_unstable();
        for conn in unanswered {
            self.retry_connect(conn, now);
            let connection = self.connections.get(&conn);
            let due = connection.and_then(|found| found.connect_retry_due(&self.shared.config));
            self.keep_deadline(due);
        }
        expired.sort_unstable_by_key(|(conn, _)| *conn);
        for (conn, reason) in expired {
            events.extend(self.remove(conn, reason));
        }
    }
}
