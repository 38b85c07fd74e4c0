//! Notifications on their way: tried again after failures, bounded, and again after a restart.

use super::{Notification, NotifiedAlert, Status};
use crate::routing::Routing;
use crate::saved;
use serde::{Deserialize, Serialize};
use sheaf_samples::Labels;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bounds of deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeliveryConfig {
    /// Notifications on their way; beyond, groups wait. Default: 1000.
    pub queue_max: usize,
    /// Attempts before a notification is given up. Default: 12, about an hour.
    pub attempts_max: u32,
    /// Wait after the first failure, in ms; it doubles with each. Default: 1 s.
    pub backoff_ms: i64,
    /// Longest wait between attempts, in ms. Default: 5 min.
    pub backoff_ms_max: i64,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        Self {
            queue_max: 1000,
            attempts_max: 12,
            backoff_ms: 1_000,
            backoff_ms_max: 300_000,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Delivery {
    receiver: String,
    /// Place of the channel in the list of its receiver.
    channel: usize,
    group_key: String,
    #[serde(with = "saved::labels")]
    group_labels: Arc<Labels>,
    status: Status,
    alerts: Vec<NotifiedAlert>,
    truncated: usize,
    at_ms: i64,
    expires_ms: i64,
    attempts: u32,
    due_ms: i64,
    /// With the driver.
    #[serde(skip)]
    is_out: bool,
}

/// All notifications without an outcome, by number.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Deliveries {
    next_id: u64,
    waiting: BTreeMap<u64, Delivery>,
}

impl Deliveries {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn has_room(&self, count: usize, config: &DeliveryConfig) -> bool {
        self.waiting.len() + count <= config.queue_max.max(count)
    }

    /// Adds a notification; returns how many earlier ones of its group, not yet with the driver, it takes the place of.
    ///
    /// It takes in the alerts that they would have reported as resolved.
    pub(crate) fn push(
        &mut self,
        now_ms: i64,
        mut notification: Notification,
        channel: usize,
    ) -> u64 {
        let is_superseded = |one: &Delivery| {
            !one.is_out
                && one.group_key == notification.group_key
                && one.receiver == notification.receiver
                && one.channel == channel
        };
        let old: Vec<u64> = self
            .waiting
            .iter()
            .filter(|one| is_superseded(one.1))
            .map(|one| *one.0)
            .collect();
        let mut known: BTreeSet<Arc<Labels>> = notification
            .alerts
            .iter()
            .map(|one| Arc::clone(&one.labels))
            .collect();
        for id in &old {
            let Some(delivery) = self.waiting.remove(id) else {
                continue;
            };
            for alert in delivery.alerts {
                if alert.status == Status::Resolved && known.insert(Arc::clone(&alert.labels)) {
                    notification.alerts.push(alert);
                }
            }
        }
        let id = self.next_id;
        self.next_id += 1;
        let delivery = Delivery {
            receiver: notification.receiver,
            channel,
            group_key: notification.group_key,
            group_labels: notification.group_labels,
            status: notification.status,
            alerts: notification.alerts,
            truncated: notification.truncated,
            at_ms: notification.at_ms,
            expires_ms: notification.expires_ms,
            attempts: 0,
            due_ms: now_ms,
            is_out: false,
        };
        self.waiting.insert(id, delivery);
        old.len() as u64
    }

    /// Takes the next notification that is due; those whose receiver is no longer there are dropped.
    pub(crate) fn poll(&mut self, now_ms: i64, routing: &Routing) -> Option<Notification> {
        loop {
            let due = |one: &(&u64, &mut Delivery)| !one.1.is_out && one.1.due_ms <= now_ms;
            let (id, delivery) = self.waiting.iter_mut().find(due)?;
            let id = *id;
            let receiver = routing
                .receivers
                .iter()
                .find(|one| one.name == delivery.receiver);
            let Some(channel) = receiver.and_then(|one| one.channels.get(delivery.channel)) else {
                self.waiting.remove(&id);
                continue;
            };
            delivery.is_out = true;
            return Some(Notification {
                id,
                receiver: delivery.receiver.clone(),
                channel: channel.clone(),
                group_key: delivery.group_key.clone(),
                group_labels: Arc::clone(&delivery.group_labels),
                status: delivery.status,
                alerts: delivery.alerts.clone(),
                truncated: delivery.truncated,
                at_ms: delivery.at_ms,
                expires_ms: delivery.expires_ms,
            });
        }
    }

    /// Marks as handed out what was so in `old`.
    pub(crate) fn take_over(&mut self, old: &Self) {
        for (id, delivery) in &mut self.waiting {
            delivery.is_out = old.waiting.get(id).is_some_and(|one| one.is_out);
        }
    }

    pub(crate) fn remove(&mut self, id: u64) -> Option<String> {
        self.waiting.remove(&id).map(|delivery| delivery.group_key)
    }

    /// Takes a failed attempt; returns the group of a notification that is given up.
    pub(crate) fn fail(&mut self, now_ms: i64, id: u64, config: &DeliveryConfig) -> Option<String> {
        let delivery = self.waiting.get_mut(&id)?;
        delivery.attempts += 1;
        delivery.is_out = false;
        if delivery.attempts >= config.attempts_max {
            return self.remove(id);
        }
        let doubled = config
            .backoff_ms
            .saturating_mul(1 << (delivery.attempts - 1).min(30));
        delivery.due_ms = now_ms + doubled.clamp(1, config.backoff_ms_max.max(1));
        None
    }

    pub(crate) fn next_ms(&self) -> Option<i64> {
        self.waiting
            .values()
            .filter(|one| !one.is_out)
            .map(|one| one.due_ms)
            .min()
    }
}
