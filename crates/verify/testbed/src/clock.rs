//! Time as the event logs have it, and waiting that can be interrupted.

use crate::IoError;
use rustix::time::ClockId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Longest time between two looks at whether the end is requested, and at what is waited for.
const LOOK: Duration = Duration::from_millis(2);

/// Request of a user to end, by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("asked to end")]
pub struct Interrupted;

static QUIT: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// CLOCK_MONOTONIC in ns: the same clock as `at_ns` in the event logs of this machine.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// From now on SIGINT, SIGTERM and SIGHUP end an experiment in order; a second one ends the process at once, and the
/// next experiment tidies up behind it.
///
/// # Errors
///
/// What the operating system gives when it refuses a signal handler.
pub fn end_on_signals() -> Result<(), IoError> {
    if QUIT.get().is_some() {
        return Ok(());
    }
    let flag = QUIT.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let refused = || IoError::of("handle signals");
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())
            .map_err(refused())?;
        signal_hook::flag::register(signal, flag.clone()).map_err(refused())?;
    }
    Ok(())
}

/// Checks that no signal has asked this process to end.
///
/// # Errors
///
/// [`Interrupted`] if one has.
pub fn check_quit() -> Result<(), Interrupted> {
    match QUIT.get() {
        Some(flag) if flag.load(Ordering::SeqCst) => Err(Interrupted),
        _ => Ok(()),
    }
}

/// Waits until `is_done` or until `patience` is over; whether it is done.
///
/// # Errors
///
/// [`Interrupted`], and what `is_done` gives.
pub fn wait_until<E: From<Interrupted>>(
    patience: Duration,
    mut is_done: impl FnMut() -> Result<bool, E>,
) -> Result<bool, E> {
    let begin = Instant::now();
    loop {
        check_quit()?;
        if is_done()? {
            return Ok(true);
        }
        let left = patience.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        pause(left.min(LOOK));
    }
}

/// Waits for nothing but time.
#[expect(
    clippy::disallowed_methods,
    reason = "faults last as long as they are meant to, and a process of others is looked at, not heard"
)]
pub fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Lets the farm run for `time`.
///
/// # Errors
///
/// [`Interrupted`].
pub fn let_pass(time: Duration) -> Result<(), Interrupted> {
    wait_until(time, || Ok(false)).map(drop)
}
