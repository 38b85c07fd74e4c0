//! Memory that may be lent.

use crate::arena::Arena;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory that may be lent, up to a bound over all lanes of an endpoint.
#[derive(Clone)]
pub(crate) struct Lendable {
    pub(crate) arena: Arc<Arena>,
    bytes_max: u64,
    lent_bytes: Arc<AtomicU64>,
}

impl Lendable {
    pub(crate) fn new(arena: Arc<Arena>, bytes_max: u64) -> Self {
        let lent_bytes = Arc::default();
        Self {
            arena,
            bytes_max,
            lent_bytes,
        }
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let lent = self.lent_bytes.load(Ordering::Relaxed);
        lent.saturating_add(bytes as u64) <= self.bytes_max
    }

    pub(super) fn count(&self, bytes: usize, is_lent: bool) {
        match is_lent {
            true => self.lent_bytes.fetch_add(bytes as u64, Ordering::Relaxed),
            false => self.lent_bytes.fetch_sub(bytes as u64, Ordering::Relaxed),
        };
    }
}
