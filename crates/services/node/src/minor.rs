//! Minor version of the protocol that this process speaks: that of its build, or a lower one that it was limited to.

use sheaf_protocol::version::MINOR;
use std::sync::atomic::{AtomicU8, Ordering};

static LIMIT: AtomicU8 = AtomicU8::new(MINOR);

/// Limits the process to `minor`, as if it were a build of that version. Before its first stream is opened.
pub fn limit(minor: u8) {
    LIMIT.store(minor.min(MINOR), Ordering::Relaxed);
}

/// Returns the minor version that the process speaks.
pub(crate) fn ours() -> u8 {
    LIMIT.load(Ordering::Relaxed)
}

/// Returns the minor version on a stream to a peer that speaks `theirs`: the lower one.
pub(crate) fn common(theirs: u8) -> u8 {
    ours().min(theirs)
}
