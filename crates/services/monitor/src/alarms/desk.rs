//! Alarms as several threads share them: the one that drives them, the one of late rules, and requests.

use super::inbox::Inbox;
use super::tap::Wanted;
use sheaf_alarms::Alarms;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Alarms, and the ways to wake the thread that drives them.
pub(crate) struct Desk {
    alarms: Mutex<Alarms>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) wanted: Arc<Wanted>,
    /// Set when something changed that has to be saved.
    is_changed: AtomicBool,
}

impl Desk {
    pub(crate) fn new(alarms: Alarms, inbox: Arc<Inbox>, wanted: Arc<Wanted>) -> Self {
        Self {
            alarms: Mutex::new(alarms),
            inbox,
            wanted,
            is_changed: AtomicBool::new(false),
        }
    }

    /// The alarms; held for short work only, since no alarm is raised meanwhile.
    pub(crate) fn alarms(&self) -> MutexGuard<'_, Alarms> {
        self.alarms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a change by a request: it is saved and acted on at once.
    pub(crate) fn note_change(&self) {
        self.is_changed.store(true, Ordering::Relaxed);
        self.inbox.ring();
    }

    pub(crate) fn take_change(&self) -> bool {
        self.is_changed.swap(false, Ordering::Relaxed)
    }
}
