//! A consumer of one EPN.

#![expect(unsafe_code, reason = "names of functions that C finds")]

use crate::abi;
use crate::border::{self, Failure, Home, Interrupt, Waited, call, given};
use crate::status::Status;
use crate::tf::Tf;
use sheaf_node::consume::{self, ConsumeError, Next};
use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an EPN that is there may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

/// A consumer of the sink `shm` of one EPN, on the same machine. Several processes can share an EPN: a TF goes to one
/// of them.
pub struct Consumer {
    home: Home,
    interrupt: Interrupt,
    consumer: Mutex<consume::Consumer>,
}

fn of_consumer(error: &ConsumeError) -> Failure {
    Failure::of(Status::ErrorConsumer, error)
}

/// Connects, again and again for at most `wait`.
fn connect(path: &Path, wait: Option<Duration>) -> Result<consume::Consumer, ConsumeError> {
    let until = wait.and_then(|wait| Instant::now().checked_add(wait));
    loop {
        match consume::Consumer::connect(path, ANSWER) {
            Err(_) if until.is_none_or(|until| Instant::now() < until) => pause(),
            connected => return connected,
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an EPN that is not there yet cannot say when it is"
)]
fn pause() {
    std::thread::sleep(PAUSE);
}

/// Connects to the EPN at `address`: `shm:` and the `epn.sink.path` of its farm file, or the path alone. Waits for at
/// most `timeout_ms` milliseconds for an EPN to be there; one that is there has 5 s to answer. `abi` is `SHEAF_ABI`.
/// With `SHEAF_STATUS_OK` `*consumer` is the handle, which `sheaf_consumer_close` frees; else it is null.
///
/// Returns `SHEAF_STATUS_ERROR_CONSUMER` if no EPN is there by then, or it runs as another user, or has as many
/// consumers as it takes.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_consumer_open(
    abi: u32,
    address: *const c_char,
    timeout_ms: i64,
    consumer: Option<&mut *mut Consumer>,
) -> Status {
    call(|| {
        let place = given(consumer, "consumer")?;
        *place = std::ptr::null_mut();
        abi::check(abi)?;
        let address = border::text(address, "address")?;
        let path = address.strip_prefix("shm:").unwrap_or(address);
        let connected = connect(path.as_ref(), border::timeout(timeout_ms));
        let consumer = connected.map_err(|error| of_consumer(&error))?;
        *place = Box::into_raw(Box::new(Consumer {
            home: Home::here(),
            interrupt: Interrupt::default(),
            consumer: Mutex::new(consumer),
        }));
        Ok(Status::Ok)
    })
}

/// Waits for the next TF for at most `timeout_ms` milliseconds, `SHEAF_FOREVER` without a bound. The EPN waits for its
/// memory until `sheaf_tf_release` or `sheaf_tf_give_back`, which come in any order and in any thread; an EPN lends few
/// TFs at a time.
///
/// Returns `SHEAF_STATUS_OK` with the TF in `*tf`, else null there and `SHEAF_STATUS_TIMEOUT`,
/// `SHEAF_STATUS_INTERRUPTED`, `SHEAF_STATUS_END` when the EPN has ended and all that it had offered is taken, or an
/// error.
///
/// Threads: any; calls on one consumer follow one another, so one that waits holds up the next.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_consumer_next(
    consumer: *mut Consumer,
    timeout_ms: i64,
    tf: Option<&mut *mut Tf>,
) -> Status {
    call(|| {
        let place = given(tf, "tf")?;
        *place = std::ptr::null_mut();
        let consumer = given(border::opened(consumer), "consumer")?;
        consumer.home.check("consumer")?;
        let mut lender = consumer
            .consumer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let timeout = border::timeout(timeout_ms);
        let waited = consumer.interrupt.wait(timeout, |slice| {
            let next = lender
                .next(Some(slice))
                .map_err(|error| of_consumer(&error))?;
            Ok(match next {
                Next::Tf(lent) => Some(Some(lent)),
                Next::Nothing => None,
                Next::End => Some(None),
            })
        })?;
        Ok(match waited {
            Waited::Given(Some(lent)) => {
                *place = Box::into_raw(Box::new(Tf::lent(lent)));
                Status::Ok
            }
            Waited::Given(None) => Status::End,
            Waited::TimedOut => Status::Timeout,
            Waited::Interrupted => Status::Interrupted,
        })
    })
}

/// Returns a descriptor that becomes readable when there is a TF after `sheaf_consumer_next` has returned
/// `SHEAF_STATUS_TIMEOUT`, for `poll` and event loops; -1 if `consumer` is null. It belongs to the consumer.
///
/// Threads: any; calls on one consumer follow one another.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_consumer_fd(consumer: *mut Consumer) -> c_int {
    border::opened(consumer).map_or(-1, |consumer| {
        let consumer = consumer
            .consumer
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        consumer.socket().as_raw_fd()
    })
}

/// Ends the wait that another thread has in `consumer` within 50 ms, or the next one: it returns
/// `SHEAF_STATUS_INTERRUPTED`.
///
/// Threads: any, and handlers of signals, until `sheaf_consumer_close` is called.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_consumer_interrupt(consumer: *mut Consumer) {
    if let Some(consumer) = border::opened(consumer) {
        consumer.interrupt.ask();
    }
}

/// Leaves the EPN and frees the handle; null is taken and does nothing. What was offered to this consumer goes to
/// another one; TFs that it has given stay valid. In a process that was forked nothing happens.
///
/// Threads: any, when no other call on the consumer is under way or comes.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_consumer_close(consumer: *mut Consumer) {
    // There is nothing to do with a failure: it is that of a fork.
    let _ = call(|| {
        if let Some(handle) = border::opened(consumer) {
            handle.home.check("consumer")?;
            border::free(consumer);
        }
        Ok(Status::Ok)
    });
}
