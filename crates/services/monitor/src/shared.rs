//! State that requests and streams of one collector share.

use crate::alarms::Desk;
use crate::config::MonitorConfig;
use crate::keep::Kept;
use crate::metrics::Counts;
use crate::peers::{Joint, Peers};
use crate::queue::Queue;
use crate::security::Guard;
use crate::shard::Shard;
use crate::sources::Board;
use crate::stop::Stop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Everything that requests share.
pub(crate) struct Shared {
    pub(crate) config: MonitorConfig,
    pub(crate) kept: Arc<Kept>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) board: Arc<Board>,
    pub(crate) shard: Mutex<Shard>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) peers: Peers,
    pub(crate) stop: Stop,
}

impl Shared {
    /// Source of the samples of this collector and of those side by side, for one question.
    pub(crate) fn source(&self) -> Joint {
        self.peers.beside(self.kept.store.clone())
    }

    /// The shard of requests and streams; held while bytes are decoded, never across a wait.
    pub(crate) fn shard(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
