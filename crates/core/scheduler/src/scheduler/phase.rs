//! Phases of a run.

use sheaf_protocol::{TfId, Timestamp};

/// Phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunPhase {
    /// Waits for the nodes that it needs.
    Waiting,
    /// Sources make TFs.
    Running,
    /// Sources pause; when all have reported how far they are, they go on to the same last TF.
    Stopping {
        since: Timestamp,
        stop_at: Option<TfId>,
    },
    /// Sources are done, TFs are not.
    Draining { since: Timestamp },
    /// Everything is decided, and the nodes may go.
    Over,
}
