//! How a process is made to end: a flag, and a waker for its loop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

type Waker = Box<dyn Fn() + Send>;

/// Asks a role to drain and return. Clones share the request.
#[derive(Clone, Default)]
pub struct Shutdown {
    requests: Arc<AtomicUsize>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl std::fmt::Debug for Shutdown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shutdown")
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an operator that signals twice does not want to wait for a drain"
)]
fn end_at_once() -> ! {
    std::process::exit(130)
}

impl Shutdown {
    /// Returns a request that has not been made yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A request that SIGTERM or SIGINT makes. A second signal ends the process at once, with status 130.
    ///
    /// # Errors
    ///
    /// What the operating system gives when it refuses a signal handler or a thread.
    pub fn on_signals() -> std::io::Result<Self> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let shutdown = Self::new();
        let asked = shutdown.clone();
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in signals.forever() {
                    if asked.is_requested() {
                        end_at_once();
                    }
                    asked.request();
                }
            })?;
        Ok(shutdown)
    }

    /// Asks.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker();
        }
    }

    /// Whether the shutdown is requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requests.load(Ordering::SeqCst) > 0
    }

    /// Calls `waker` at every request from now on.
    pub fn set_waker(&self, waker: impl Fn() + Send + 'static) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(waker));
    }
}
