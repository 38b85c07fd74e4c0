//! Replay that notices when the disk fails under it.

use crate::Replay;
use crate::storage::StorageError;
use sheaf_protocol::{Record, Term};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns the records alone. If one cannot be read, the replay ends and `has_failed` is set: the ledger then reports
/// that it leads no longer, and never calls a decision durable that rests on a part of the log.
pub(crate) fn careful_replay(
    records: impl Iterator<Item = Result<(Term, u64, Record), StorageError>> + 'static,
    has_failed: &Arc<AtomicBool>,
) -> Replay {
    let has_failed = Arc::clone(has_failed);
    Replay::new(records.map_while(move |record| {
        let record = record.map(|(_, _, record)| record).ok();
        if record.is_none() {
            has_failed.store(true, Ordering::Relaxed);
        }
        record
    }))
}
