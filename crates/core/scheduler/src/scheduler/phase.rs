//! Phases of a run.

use sheaf_protocol::{TfId, Timestamp};

/// Where the run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunPhase {
    /// For its quorum.
    Waiting,
    /// Sources make TFs.
    Running,
    /// Sources pause; when all have said how far they are, they go on to the same last TF.
    Stopping {
        since: Timestamp,
        stop_at: Option<TfId>,
    },
    /// Sources are done, TFs are not.
    Draining { since: Timestamp },
    /// Everything is decided, and the nodes may go.
    Over,
}
