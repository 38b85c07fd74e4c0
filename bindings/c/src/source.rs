//! An FLP in this process.

#![expect(unsafe_code, reason = "names of functions that C finds")]

use crate::abi;
use crate::border::{self, Failure, Home, Interrupt, call, given};
use crate::status::Status;
use crate::tf::format_of;
use sheaf_node::config::FarmConfig;
use sheaf_node::readout::{Heartbeat, Patience, Readout, ReadoutError, ReadoutOptions, SendError};
use sheaf_protocol::{FlpId, TfId};
use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The readout of one FLP, in this process: the farm file has `flp.source.kind = "program"`, and this handle stands
/// where another farm has a process `sheaf run flp`. The FLP has threads of its own, in which all signals are blocked.
pub struct Source {
    home: Home,
    interrupt: Interrupt,
    /// None once it is closed.
    readout: Mutex<Option<Readout>>,
}

/// Options of `sheaf_source_open`. Members that are zero have their defaults.
#[repr(C)]
pub struct SourceOptions {
    /// Address at which the metrics of the FLP are served, such as `127.0.0.1:9100`; null: as the farm file says.
    pub metrics: *const c_char,
    /// File to which the event log of the FLP is appended; null: none.
    pub events: *const c_char,
}

/// Some bytes of the program.
#[repr(C)]
pub struct Bytes {
    /// The first one; may be null if there are none.
    pub data: *const c_void,
    /// Number of bytes.
    pub size: usize,
}

impl Source {
    /// Calls `work` with the readout. A request to interrupt ends its wait.
    fn with<T>(
        &self,
        timeout_ms: i64,
        work: impl FnOnce(&mut Readout, Patience<'_>) -> Result<T, ReadoutError>,
    ) -> Result<T, Failure> {
        self.home.check("source")?;
        let mut readout = self.readout.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.interrupt.goes_on() {
            return Err(of_readout(&SendError::Interrupted.into()));
        }
        let mut goes_on = || self.interrupt.goes_on();
        let patience = Patience::new(border::timeout(timeout_ms), &mut goes_on);
        let readout = given(readout.as_mut(), "the readout of a closed source")?;
        work(readout, patience).map_err(|error| of_readout(&error))
    }
}

/// Returns the failure of a readout. That a run is over, or a wait was interrupted, is one with a status above 0.
fn of_readout(error: &ReadoutError) -> Failure {
    let status = match error {
        ReadoutError::Send(SendError::Over { .. }) => Status::End,
        ReadoutError::Send(SendError::Interrupted) => Status::Interrupted,
        ReadoutError::Send(SendError::TooLarge { .. } | SendError::Order { .. }) => {
            Status::ErrorArgument
        }
        ReadoutError::Kind { .. } | ReadoutError::Index { .. } | ReadoutError::NotPaced => {
            Status::ErrorConfig
        }
        _ => Status::ErrorSource,
    };
    Failure::of(status, error)
}

/// Starts FLP `flp` of the farm file `farm`. It takes STFs from now on; the run begins when all nodes that it needs are
/// there. `abi` is `SHEAF_ABI`, `options` may be null. With `SHEAF_STATUS_OK` `*source` is the handle, which
/// `sheaf_source_close` frees; else it is null.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_source_open(
    abi: u32,
    farm: *const c_char,
    flp: u16,
    options: Option<&SourceOptions>,
    source: Option<&mut *mut Source>,
) -> Status {
    call(|| {
        let place = given(source, "source")?;
        *place = std::ptr::null_mut();
        abi::check(abi)?;
        let farm = border::text(farm, "farm")?;
        let mut chosen = ReadoutOptions::default();
        if let Some(options) = options {
            let metrics = border::optional_text(options.metrics, "metrics")?;
            let events = border::optional_text(options.events, "events")?;
            chosen.metrics = metrics.map(str::to_owned);
            chosen.events = events.map(PathBuf::from);
        }
        let config = FarmConfig::load(farm.as_ref());
        let config = config.map_err(|error| Failure::of(Status::ErrorConfig, &error))?;
        let started = border::without_signals(|| Readout::start(config, FlpId(flp), chosen));
        let readout = started.map_err(|error| of_readout(&error))?;
        *place = Box::into_raw(Box::new(Source {
            home: Home::here(),
            interrupt: Interrupt::default(),
            readout: Mutex::new(Some(readout)),
        }));
        Ok(Status::Ok)
    })
}

/// Sends the STF of TF `tf`, whose payload is the `count` `parts` one behind the other, in the format `format`, one of
/// `sheaf_format`. The payload is copied once, before the call returns. Waits for at most `timeout_ms` milliseconds
/// while the farm takes nothing, `SHEAF_FOREVER` without a bound. Ids go up; those that are left out count as
/// source-overrun.
///
/// Returns `SHEAF_STATUS_OK` if the farm has the STF. With any other status nothing was taken, and the same STF can be
/// sent again: `SHEAF_STATUS_TIMEOUT`, `SHEAF_STATUS_INTERRUPTED`, `SHEAF_STATUS_END` when the run is over, or an
/// error.
///
/// Threads: any; calls on one source follow one another, so one that waits holds up the next.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_source_send(
    source: *mut Source,
    tf: u64,
    parts: *const Bytes,
    count: usize,
    format: u32,
    timeout_ms: i64,
) -> Status {
    call(|| {
        let source = given(border::opened(source), "source")?;
        let format = format_of(format)?;
        let parts = border::values(parts, count, "parts")?;
        let payload = |part: &Bytes| border::bytes(part.data, part.size, "data of a part");
        let parts: Vec<&[u8]> = parts.iter().map(payload).collect::<Result<_, _>>()?;
        let is_taken = source.with(timeout_ms, |readout, patience| {
            readout.send(TfId(tf), format, &parts, patience)
        })?;
        Ok(if is_taken {
            Status::Ok
        } else {
            Status::Timeout
        })
    })
}

/// Waits for the next TF that the ICN calls for, in a farm with `icn.scheduler.mode = "paced"`, for at most
/// `timeout_ms` milliseconds. Each is returned once.
///
/// Returns `SHEAF_STATUS_OK` with the TF in `*tf`, `SHEAF_STATUS_TIMEOUT`, `SHEAF_STATUS_INTERRUPTED`,
/// `SHEAF_STATUS_END` when the run is over, or an error; in a farm without heartbeats `SHEAF_STATUS_ERROR_CONFIG`.
///
/// Threads: any; calls on one source follow one another.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_source_next_heartbeat(
    source: *mut Source,
    timeout_ms: i64,
    tf: Option<&mut u64>,
) -> Status {
    call(|| {
        let source = given(border::opened(source), "source")?;
        let tf = given(tf, "tf")?;
        let heartbeat = source.with(timeout_ms, Readout::next_heartbeat)?;
        match heartbeat {
            Heartbeat::Tf(next) => *tf = next.0,
            Heartbeat::Nothing => return Ok(Status::Timeout),
            Heartbeat::Over => return Ok(Status::End),
        }
        Ok(Status::Ok)
    })
}

/// Ends the wait that another thread has in `source` within 50 ms, or the next one: it returns
/// `SHEAF_STATUS_INTERRUPTED`.
///
/// Threads: any, and handlers of signals, until `sheaf_source_close` has returned.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_source_interrupt(source: *mut Source) {
    if let Some(source) = border::opened(source) {
        source.interrupt.ask();
    }
}

/// Ends the source, and waits for at most `timeout_ms` milliseconds until each of its STFs is decided and the FLP has
/// left the farm. The handle is freed in any case; null is taken and does nothing.
///
/// Returns `SHEAF_STATUS_OK` if that has come, `SHEAF_STATUS_TIMEOUT` or `SHEAF_STATUS_INTERRUPTED` if not: the FLP
/// goes on without the handle then, for as long as the process lives. In a process that was forked nothing happens.
///
/// Threads: any, when no other call on the source but `sheaf_source_interrupt` is under way or comes.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_source_close(source: *mut Source, timeout_ms: i64) -> Status {
    call(|| {
        let Some(handle) = border::opened(source) else {
            return Ok(Status::Ok);
        };
        // In another process its threads are not there: nothing could be waited for.
        handle.home.check("source")?;
        let mut readout = handle
            .readout
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let closed = readout.take().map(|readout| {
            let mut goes_on = || handle.interrupt.goes_on();
            readout.close(Patience::new(border::timeout(timeout_ms), &mut goes_on))
        });
        drop(readout);
        border::free(source);
        match closed {
            Some(Ok(false)) => Ok(Status::Timeout),
            Some(Err(error)) => Err(of_readout(&error)),
            Some(Ok(true)) | None => Ok(Status::Ok),
        }
    })
}
