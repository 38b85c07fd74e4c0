//! Passage between the caller and one loop of data: orders one way, news the other, both in batches.
//!
//! Each side fills a list of its own and exchanges it under a lock that is held for the exchange only; an exchange
//! that finds nothing takes no lock. Orders are bounded by the queues of the connections. News are bounded here: a loop
//! whose caller does not poll waits, and takes no more from its sockets.

use super::line::Line;
use crate::shm::lendable::Lendable;
use crate::tcp::{Address, CloseNotice, Dealt, Refusal, Ringer, Stats};
use crate::transport::{ConnId, Event, Frame};
use sheaf_auth::Identity;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// News that wait for the caller, in number and in bytes of their frames, before the loop waits, too.
const NEWS_MAX: usize = 4096;
const NEWS_BYTES_MAX: u64 = 8 << 20;

/// Order to a loop.
pub(super) enum Order {
    /// Begin a connection.
    Connect {
        conn: ConnId,
        peer: Address,
        line: Arc<Line>,
    },
    /// Serve a connection of a peer.
    Adopt {
        dealt: Dealt,
        line: Arc<Line>,
    },
    Admit {
        conn: ConnId,
        head_bytes_max: u32,
    },
    Send {
        conn: ConnId,
        frame: Frame,
    },
    Finish {
        conn: ConnId,
    },
    /// End a connection whose peer has ended: no more frames come for it.
    EndWithPeer {
        conn: ConnId,
    },
    Close {
        conn: ConnId,
    },
    Lend(Lendable),
    CloseNotice(CloseNotice),
}

/// News of a loop.
pub(super) enum News {
    /// An event of a connection.
    Event { conn: ConnId, event: Event },
    /// The certificate of a peer; comes before the event that it stands.
    Proved {
        conn: ConnId,
        identity: Box<Identity>,
    },
    /// A queue is shorter than when the caller asked.
    Left { conn: ConnId },
    /// The peer of a connection sends no more. It ends when all is sent that the caller has queued.
    PeerEnded { conn: ConnId },
    /// A connection is no more, whether it was reported or not; comes behind its last event.
    Gone { conn: ConnId },
    /// A peer was turned away.
    Refused(Refusal),
}

impl News {
    fn bytes(&self) -> u64 {
        match self {
            Self::Event {
                event: Event::Received { frame, .. },
                ..
            } => frame.wire_bytes(),
            _ => 0,
        }
    }
}

#[derive(Default)]
struct Waiting {
    news: Vec<News>,
    bytes: u64,
    failure: Option<io::Error>,
}

/// Passage between the caller and one loop.
pub(super) struct Passage {
    orders: Mutex<Vec<Order>>,
    has_orders: AtomicBool,
    waiting: Mutex<Waiting>,
    has_news: AtomicBool,
    /// The caller has taken the news, or the endpoint ends.
    taken: Condvar,
    is_over: AtomicBool,
    stats: Mutex<Stats>,
    moved_bytes: AtomicU64,
    /// Ends the sleep of the caller.
    ringer: Ringer,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Lists are exchanged whole: one of a thread that has panicked is as good as any.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Passage {
    pub(super) fn new(ringer: Ringer) -> Self {
        Self {
            orders: Mutex::default(),
            has_orders: AtomicBool::new(false),
            waiting: Mutex::default(),
            has_news: AtomicBool::new(false),
            taken: Condvar::new(),
            is_over: AtomicBool::new(false),
            stats: Mutex::default(),
            moved_bytes: AtomicU64::new(0),
            ringer,
        }
    }

    /// Passes orders on; the caller wakes the loop.
    pub(super) fn order(&self, orders: &mut Vec<Order>) {
        lock(&self.orders).append(orders);
        self.has_orders.store(true, Ordering::Release);
    }

    /// Takes all orders into `orders`, which is empty.
    pub(super) fn take_orders(&self, orders: &mut Vec<Order>) {
        if self.has_orders.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut *lock(&self.orders), orders);
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    /// Takes all news into `news`, which is empty.
    ///
    /// # Errors
    ///
    /// What has ended the loop.
    pub(super) fn take_news(&self, news: &mut Vec<News>) -> io::Result<()> {
        if !self.has_news.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let mut waiting = lock(&self.waiting);
        std::mem::swap(&mut waiting.news, news);
        waiting.bytes = 0;
        self.taken.notify_one();
        match waiting.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Passes `news` on, which is empty then. Waits while the caller has not taken those before.
    pub(super) fn tell(&self, news: &mut Vec<News>) {
        if news.is_empty() {
            return;
        }
        let mut waiting = lock(&self.waiting);
        while (waiting.news.len() >= NEWS_MAX || waiting.bytes >= NEWS_BYTES_MAX) && !self.is_over()
        {
            let woken = self.taken.wait(waiting);
            waiting = woken.unwrap_or_else(PoisonError::into_inner);
        }
        waiting.bytes += news.iter().map(News::bytes).sum::<u64>();
        waiting.news.append(news);
        drop(waiting);
        self.ring();
    }

    /// Tells the caller why the loop has ended.
    pub(super) fn fail(&self, failure: io::Error) {
        lock(&self.waiting).failure = Some(failure);
        self.ring();
    }

    fn ring(&self) {
        if !self.has_news.swap(true, Ordering::AcqRel) {
            self.ringer.ring();
        }
    }

    /// Ends the loop.
    pub(super) fn end(&self) {
        let waiting = lock(&self.waiting);
        self.is_over.store(true, Ordering::Release);
        drop(waiting);
        self.taken.notify_all();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(super) fn set_stats(&self, stats: Stats) {
        let moved = stats.bytes_in + stats.bytes_out + stats.lent_bytes_in + stats.lent_bytes_out;
        self.moved_bytes.store(moved, Ordering::Relaxed);
        *lock(&self.stats) = stats;
    }

    pub(super) fn stats(&self) -> Stats {
        *lock(&self.stats)
    }

    /// Returns bytes that the loop has received and sent.
    pub(super) fn moved_bytes(&self) -> u64 {
        self.moved_bytes.load(Ordering::Relaxed)
    }
}
