//! Heartbeats for the program that an FLP is a part of.

use sheaf_protocol::{RunId, TfId};
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// TFs that heartbeats have called for, between the FLP and its program.
#[derive(Debug, Default)]
pub(in crate::source) struct Calls {
    called: Mutex<Called>,
    pub(in crate::source) changed: Condvar,
}

#[derive(Debug)]
pub(in crate::source) struct Called {
    /// The run; `None` before the first one.
    pub(in crate::source) run: Option<RunId>,
    /// TFs that it calls for, without those of which there is an STF.
    pub(in crate::source) tfs: Range<TfId>,
    /// The program has no TF of its own to begin with.
    pub(in crate::source) is_awaited: bool,
    /// No more comes.
    pub(in crate::source) is_over: bool,
}

impl Default for Called {
    fn default() -> Self {
        Self {
            run: None,
            tfs: TfId(0)..TfId(0),
            is_awaited: false,
            is_over: false,
        }
    }
}

impl Calls {
    pub(in crate::source) fn lock(&self) -> MutexGuard<'_, Called> {
        self.called.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the TFs that `run` calls for.
    pub(super) fn note(&self, run: RunId, tfs: Range<TfId>) {
        let mut called = self.lock();
        if called.run == Some(run) && called.tfs == tfs {
            return;
        }
        (called.run, called.tfs) = (Some(run), tfs);
        drop(called);
        self.changed.notify_all();
    }

    /// Returns whether the program awaits heartbeats.
    pub(super) fn is_awaited(&self) -> bool {
        self.lock().is_awaited
    }

    /// Notes that no more comes.
    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }
}
