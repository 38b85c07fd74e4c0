//! The border to C: panics, errors of a thread, texts and bytes behind pointers, signals, forks.

#![expect(
    unsafe_code,
    reason = "pointers of C, and the mask of signals, have no safe interface"
)]

use crate::status::Status;
use sheaf_node::readout::with_causes;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait between two looks at interrupts.
const LOOK_EVERY: Duration = Duration::from_millis(50);

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Failure {
    status: Status,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(Status::ErrorArgument, message)
    }

    /// Returns the failure of `error`, with what caused it.
    pub(crate) fn of(status: Status, error: &dyn std::error::Error) -> Self {
        Self::new(status, with_causes(error))
    }
}

/// Calls `work`; keeps the message of its failure for this thread. A panic ends here.
pub(crate) fn call(work: impl FnOnce() -> Result<Status, Failure>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(status)) => return status,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(
            Status::ErrorDefect,
            "a defect of Sheaf: the standard error has its message",
        ),
    };
    // A thread that ends has no message any more.
    let _ = LAST_ERROR.try_with(|last| {
        let text = failure.message.replace('\0', "\\0");
        *last.borrow_mut() = CString::new(text).expect("no byte of it is 0");
    });
    failure.status
}

/// Returns the message of the last failure of this thread.
pub(crate) fn last_error() -> *const c_char {
    let message = LAST_ERROR.try_with(|last| last.borrow().as_ptr());
    message.unwrap_or(c"".as_ptr())
}

/// Returns `handle`, unless it is null; `what` is its name for people.
pub(crate) fn given<T>(handle: Option<T>, what: &str) -> Result<T, Failure> {
    handle.ok_or_else(|| Failure::argument(format!("found null as {what}, expected a pointer")))
}

/// Returns the handle at `pointer`; `None` if it is null.
pub(crate) fn opened<'a, T>(pointer: *mut T) -> Option<&'a T> {
    // SAFETY: the caller of a function of C gives null or a handle that is not freed before the call returns; where the
    // call itself frees it, that comes after the last use.
    unsafe { pointer.as_ref() }
}

/// Returns the value of the handle at `pointer`, which is freed.
pub(crate) fn taken<T>(pointer: *mut T) -> T {
    // SAFETY: the caller of a function of C gives a handle that this library has made and that is not freed, and does
    // not use it again.
    *unsafe { Box::from_raw(pointer) }
}

/// Frees the handle at `pointer` and its value.
pub(crate) fn free<T>(pointer: *mut T) {
    drop(taken(pointer));
}

/// Returns the text at `pointer`.
pub(crate) fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    let text = optional_text(pointer, what)?;
    text.ok_or_else(|| Failure::argument(format!("found null as {what}, expected a text")))
}

/// Returns the text at `pointer`; `None` if it is null.
pub(crate) fn optional_text<'a>(
    pointer: *const c_char,
    what: &str,
) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: it is not null; the caller of a function of C gives a text that ends with a 0 and that outlives the call,
    // and nothing here keeps it for longer.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    let text = text.map_err(|error| Failure::argument(format!("{what} is not UTF-8: {error}")))?;
    Ok(Some(text))
}

/// Returns the `count` values at `pointer`, which may be null if there are none.
pub(crate) fn values<'a, T>(
    pointer: *const T,
    count: usize,
    what: &str,
) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::argument(format!(
            "found null as {what}, expected {count} values"
        )));
    }
    if count
        .checked_mul(size_of::<T>())
        .is_none_or(|bytes| bytes > isize::MAX.cast_unsigned())
    {
        return Err(Failure::argument(format!(
            "found {count} values as {what}, more than there can be"
        )));
    }
    // SAFETY: it is not null and no larger than a slice can be; the caller of a function of C gives `count` values that
    // nothing changes during the call, and nothing here keeps them for longer.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Returns the `size` bytes at `pointer`.
pub(crate) fn bytes<'a>(
    pointer: *const c_void,
    size: usize,
    what: &str,
) -> Result<&'a [u8], Failure> {
    values(pointer.cast::<u8>(), size, what)
}

/// Returns a timeout of C: what is negative has no bound.
pub(crate) fn timeout(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

/// The process that a handle was made in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home(u32);

impl Home {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    /// Fails in another process than that of `what`.
    pub(crate) fn check(self, what: &str) -> Result<(), Failure> {
        let here = std::process::id();
        if self.0 == here {
            return Ok(());
        }
        Err(Failure::new(
            Status::ErrorFork,
            format!(
                "the {what} was opened in process {}, and this is process {here}: a fork copies neither its threads \
                 nor its place in the farm. Open it in the process that uses it",
                self.0
            ),
        ))
    }
}

/// A request from elsewhere, such as from a handler of signals, to end a wait.
#[derive(Debug, Default)]
pub(crate) struct Interrupt(AtomicBool);

impl Interrupt {
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the wait may go on. A request ends one wait.
    pub(crate) fn goes_on(&self) -> bool {
        !self.0.swap(false, Ordering::Relaxed)
    }

    /// Calls `step` with the time that it may wait, until it gives something, `timeout` is over or an interrupt is
    /// asked for.
    pub(crate) fn wait<T>(
        &self,
        timeout: Option<Duration>,
        mut step: impl FnMut(Duration) -> Result<Option<T>, Failure>,
    ) -> Result<Waited<T>, Failure> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if !self.goes_on() {
                return Ok(Waited::Interrupted);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let slice = left.unwrap_or(LOOK_EVERY).min(LOOK_EVERY);
            if let Some(given) = step(slice)? {
                return Ok(Waited::Given(given));
            }
            if left.is_some_and(|left| left <= slice) {
                return Ok(Waited::TimedOut);
            }
        }
    }
}

/// Result of a wait.
pub(crate) enum Waited<T> {
    Given(T),
    TimedOut,
    Interrupted,
}

/// Calls `work` with all signals blocked, as the threads that it starts keep them: a signal of the program is for a
/// thread of the program, and a peer that is gone does not end the process by SIGPIPE.
pub(crate) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    struct Before(libc::sigset_t);
    impl Drop for Before {
        fn drop(&mut self) {
            // SAFETY: the set is that which the kernel has given; the old one is not asked for.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
            };
        }
    }
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: sigfillset writes a whole set and cannot fail for an address of ours; pthread_sigmask writes the other
    // one, and with a known operation it cannot fail.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        Before(before.assume_init())
    };
    let done = work();
    drop(before);
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        optional_text(last_error(), "the message")
            .expect("it is UTF-8")
            .expect("it is there")
            .to_owned()
    }

    #[test]
    fn a_panic_ends_at_the_border() {
        assert_eq!(call(|| panic!("injected")), Status::ErrorDefect);
        assert!(message().contains("a defect of Sheaf"), "{}", message());
    }

    #[test]
    fn each_thread_has_its_own_message() {
        let failed = |message: &str| {
            let message = message.to_owned();
            call(move || Err(Failure::argument(message)))
        };
        assert_eq!(failed("mine"), Status::ErrorArgument);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(message(), "");
                failed("another's, with a \0");
                assert_eq!(message(), "another's, with a \\0");
            });
        });
        assert_eq!(message(), "mine");
    }

    #[test]
    fn signals_are_blocked_in_new_threads_and_as_before_afterwards() {
        let mask = || std::fs::read_to_string("/proc/thread-self/status").expect("a mask");
        let blocked = |text: &str| {
            let mut lines = text.lines();
            let line = lines.find(|line| line.starts_with("SigBlk:"));
            line.expect("a line").to_owned()
        };
        let before = blocked(&mask());
        let within = without_signals(|| std::thread::spawn(mask).join().expect("it ends"));
        // All but SIGKILL, SIGSTOP and the two that the C library keeps for itself.
        assert!(blocked(&within).ends_with("fffffffe7ffbfeff"), "{within}");
        assert_eq!(blocked(&mask()), before);
    }

    #[test]
    fn an_interrupt_ends_one_wait() {
        let interrupt = Interrupt::default();
        interrupt.ask();
        let never = |_| Ok(None::<()>);
        let forever = interrupt.wait(None, never).expect("no failure");
        assert!(matches!(forever, Waited::Interrupted));
        let once = interrupt
            .wait(Some(Duration::ZERO), never)
            .expect("no failure");
        assert!(matches!(once, Waited::TimedOut));
    }
}
