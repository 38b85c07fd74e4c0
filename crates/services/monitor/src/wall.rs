//! Wall clock of the collector.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the time in ms since 1970-01-01 UTC; 0 for a clock before that.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}
