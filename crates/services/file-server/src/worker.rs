//! State of a thread that serves: the watch over its connections, and the date.

use crate::answer::Answer;
use crate::metrics::Refused;
use crate::site::Site;
use crate::watch::{Phase, Watched};
use httpdate::HttpDate;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Idle connections that are put off at once where there are too many.
const PUT_OFF_AT_ONCE: usize = 64;

/// State of a thread that its connections share.
pub(crate) struct Worker {
    pub(crate) site: Arc<Site>,
    watched: RefCell<Vec<Weak<Watched>>>,
    is_stopping: Cell<bool>,
    /// Connections that were put off for new ones, which have not yet come.
    room: Cell<usize>,
    /// Notified at the end of each connection.
    pub(crate) ended: Notify,
    /// Second since 1970, and the date of headers in it.
    date: RefCell<(u64, String)>,
}

impl Worker {
    pub(crate) fn new(site: Arc<Site>) -> Self {
        Self {
            site,
            watched: RefCell::default(),
            is_stopping: Cell::new(false),
            room: Cell::new(0),
            ended: Notify::new(),
            date: RefCell::default(),
        }
    }

    /// Takes no further request from now on.
    pub(crate) fn stop(&self) {
        self.is_stopping.set(true);
    }

    /// Registers a connection with the watch.
    pub(crate) fn watch(&self) -> Rc<Watched> {
        let watched = Rc::new(Watched::new(Instant::now()));
        self.watched.borrow_mut().push(Rc::downgrade(&watched));
        watched
    }

    /// Returns whether no further request is to be taken.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// Gives the present date, as headers carry it, to `use_it`.
    pub(crate) fn date(&self, use_it: impl FnOnce(&str)) {
        let now = SystemTime::now();
        let since = now.duration_since(SystemTime::UNIX_EPOCH);
        let second = since.map_or(0, |since| since.as_secs());
        let mut date = self.date.borrow_mut();
        if date.0 != second || date.1.is_empty() {
            *date = (second, HttpDate::from(now).to_string());
        }
        use_it(&date.1);
    }

    /// Sends an answer as far as the socket has room for it, for a client that is not waited for.
    pub(crate) fn send_at_once(&self, answer: &Answer, socket: &TcpStream) {
        let name = self.site.name.as_deref();
        // If there is no room for a few lines, the client does not read them either.
        self.date(|date| drop(socket.try_write(&answer.to_bytes(date, name))));
    }

    /// Looks at all connections, and puts off clients that are late.
    pub(crate) fn tick(&self) {
        let now = Instant::now();
        // What was not taken is gone with the connections that ended.
        self.room.set(0);
        self.watched.borrow_mut().retain(|watched| {
            let watched = watched.upgrade();
            if let Some(watched) = &watched {
                watched.tick(now, &self.site.limits);
            }
            watched.is_some()
        });
    }

    /// Puts off the connections that have been without a request for longest, so that clients with one get a place.
    /// Returns whether there is one.
    pub(crate) fn makes_room(&self) -> bool {
        if self.room.get() == 0 {
            let mut idle: Vec<(Instant, Rc<Watched>)> = {
                let watched = self.watched.borrow();
                let watched = watched.iter().filter_map(Weak::upgrade);
                watched
                    .filter_map(|one| Some((one.idle_since()?, one)))
                    .collect()
            };
            // Many at once: one look at all connections for each new one would cost more than the attack.
            let count = idle.len().div_ceil(16).min(PUT_OFF_AT_ONCE);
            if count == 0 {
                return false;
            }
            idle.select_nth_unstable_by_key(count - 1, |(since, _)| *since);
            for (_, one) in &idle[..count] {
                one.end();
                self.site.counts.refused(Refused::Idle);
            }
            self.room.set(count);
        }
        self.room.set(self.room.get() - 1);
        true
    }

    /// Ends the connections that wait for a request.
    pub(crate) fn end_idle(&self) {
        let watched = self.watched.borrow();
        for watched in watched.iter().filter_map(Weak::upgrade) {
            if watched.phase() == Phase::Idle {
                watched.end();
            }
        }
    }

    /// Number of connections with clients.
    pub(crate) fn count(&self) -> usize {
        let watched = self.watched.borrow();
        watched.iter().filter(|one| one.strong_count() > 0).count()
    }
}
