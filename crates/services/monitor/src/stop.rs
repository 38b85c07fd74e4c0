//! The request to stop, which all threads of a collector watch.

use std::sync::Arc;
use tokio::sync::watch;

/// Request to stop, shared by all threads of a collector.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Self {
        Self(Arc::new(watch::channel(false).0))
    }
}

impl Stop {
    /// Asks the collector to stop. A second request changes nothing.
    pub fn set(&self) {
        self.0.send_replace(true);
    }

    /// Returns whether it was asked to stop.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is asked to stop.
    pub(crate) async fn wait(&self) {
        // The sender lives in `self`.
        let _ = self.0.subscribe().wait_for(|is_set| *is_set).await;
    }
}
