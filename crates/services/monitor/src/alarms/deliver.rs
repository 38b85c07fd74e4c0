//! Deliveries of notifications: threads that post and mail, one attempt at a time for each receiver and channel.
//!
//! When an attempt is due, and how often it is repeated, is decided in `sheaf-alarms`. A receiver that hangs holds up
//! one thread for the time of one attempt, and no other receiver as long as there are threads.

mod http;
mod mail;

use super::inbox::{Inbox, Outcome};
use super::settings::AlarmsSettings;
use sheaf_alarms::{Channel, Notification, Status, alertmanager, log_line, webhook};
use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::{info, warn};

/// Threads that deliver.
pub(super) const WORKERS: usize = 4;

/// A notification with its lane.
pub(super) struct Job {
    lane: String,
    notification: Notification,
}

/// Notifications that are due, and attempts under way.
pub(super) struct Dispatch {
    jobs: SyncSender<Job>,
    /// Due, in their order; bounded by the queue of the alarms.
    due: VecDeque<Job>,
    /// Lanes in which an attempt is under way.
    busy: BTreeSet<String>,
}

impl Dispatch {
    /// Returns the dispatcher before `jobs`, which has room for [`WORKERS`].
    pub(super) fn new(jobs: SyncSender<Job>) -> Self {
        Self {
            jobs,
            due: VecDeque::new(),
            busy: BTreeSet::new(),
        }
    }

    /// Takes in a notification that is due.
    pub(super) fn push(&mut self, notification: Notification) {
        let lane = format!("{} {:?}", notification.receiver, notification.channel);
        self.due.push_back(Job { lane, notification });
    }

    /// Takes in that an attempt is over.
    pub(super) fn finish(&mut self, lane: &str) {
        self.busy.remove(lane);
    }

    /// Hands over what has a free lane and a free thread.
    pub(super) fn hand_over(&mut self) {
        let mut at = 0;
        while at < self.due.len() && self.busy.len() < WORKERS {
            if self.busy.contains(&self.due[at].lane) {
                at += 1;
                continue;
            }
            let Some(job) = self.due.remove(at) else {
                return;
            };
            let lane = job.lane.clone();
            match self.jobs.try_send(job) {
                Ok(()) => drop(self.busy.insert(lane)),
                Err(TrySendError::Full(job) | TrySendError::Disconnected(job)) => {
                    self.due.insert(at, job);
                    return;
                }
            }
        }
    }

    /// Returns whether an attempt is under way.
    pub(super) fn is_busy(&self) -> bool {
        !self.busy.is_empty()
    }
}

/// One thread that delivers.
pub(super) struct Worker {
    pub(super) settings: Arc<Mutex<AlarmsSettings>>,
    pub(super) jobs: Arc<Mutex<Receiver<Job>>>,
    pub(super) inbox: Arc<Inbox>,
}

impl Worker {
    /// Delivers until there will be no more.
    pub(super) fn run(&self) {
        loop {
            // One waits with the lock held; the others wait for the lock.
            let job = self
                .jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv();
            let Ok(Job { lane, notification }) = job else {
                return;
            };
            let settings = self
                .settings
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            let result = attempt(&settings, &notification);
            if let Err(error) = &result {
                let receiver = &notification.receiver;
                warn!(receiver, %error, "A notification is not delivered; it is tried again");
            }
            self.inbox.report(Outcome::Delivered {
                id: notification.id,
                lane,
                result,
            });
        }
    }
}

/// Tries to deliver once.
fn attempt(settings: &AlarmsSettings, notification: &Notification) -> Result<(), String> {
    match &notification.channel {
        Channel::Log => {
            let line = log_line(notification);
            match notification.status {
                Status::Firing => warn!("{line}"),
                Status::Resolved => info!("{line}"),
            }
            Ok(())
        }
        Channel::Webhook { url, secret_file } => {
            let body = webhook(notification, &settings.page);
            http::post(settings, url, &body, secret_file.as_deref())
        }
        Channel::Alertmanager { url } => {
            let url = format!("{}/api/v2/alerts", url.trim_end_matches('/'));
            http::post(
                settings,
                &url,
                &alertmanager(notification, &settings.page),
                None,
            )
        }
        Channel::Email { to, from } => mail::send(settings, notification, to, from.as_deref()),
    }
}
