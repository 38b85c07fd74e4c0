//! How a process is made to end, or to read its configuration again: flags, and a waker for its loop.

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

type Waker = Box<dyn Fn() + Send>;

/// Asks a role to drain and return. Clones share the request.
#[derive(Clone, Default)]
pub struct Shutdown {
    requests: Arc<AtomicUsize>,
    is_interrupt: Arc<AtomicBool>,
    has_hung_up: Arc<AtomicBool>,
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
        Self::on(&[SIGINT, SIGTERM])
    }

    /// As [`on_signals`](Self::on_signals), and notes SIGHUP: the process is to read its configuration again.
    ///
    /// # Errors
    ///
    /// As [`on_signals`](Self::on_signals).
    pub fn on_signals_of_node() -> std::io::Result<Self> {
        Self::on(&[SIGINT, SIGTERM, SIGHUP])
    }

    fn on(signals: &[i32]) -> std::io::Result<Self> {
        let shutdown = Self::new();
        let asked = shutdown.clone();
        let mut signals = signal_hook::iterator::Signals::new(signals)?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for signal in signals.forever() {
                    if signal == SIGHUP {
                        asked.hang_up();
                        continue;
                    }
                    if asked.is_requested() {
                        end_at_once();
                    }
                    asked.is_interrupt.store(signal == SIGINT, Ordering::SeqCst);
                    asked.request();
                }
            })?;
        Ok(shutdown)
    }

    /// Asks.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// Asks the process to read its configuration again.
    pub fn hang_up(&self) {
        self.has_hung_up.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Returns whether the process is to read its configuration again, once for all requests before.
    #[must_use]
    pub fn take_hang_up(&self) -> bool {
        self.has_hung_up.swap(false, Ordering::SeqCst)
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(PoisonError::into_inner) {
            waker();
        }
    }

    /// Whether the shutdown is requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requests.load(Ordering::SeqCst) > 0
    }

    /// Returns whether the request was SIGINT, by which a person at a terminal ends the run, too.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        self.is_interrupt.load(Ordering::SeqCst)
    }

    /// Calls `waker` at every request from now on.
    pub fn set_waker(&self, waker: impl Fn() + Send + 'static) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(waker));
    }
}
