//! The version of the interface, the text of errors, and the log.

#![expect(unsafe_code, reason = "names of functions that C finds")]

use crate::border::{self, Failure, call};
use crate::status::{Status, WORDS};
use std::ffi::c_char;
use tracing_subscriber::filter::LevelFilter;

/// Major version of this interface: programs of another one are refused.
pub const SHEAF_ABI_MAJOR: u32 = 1;

/// Minor version of this interface: programs of an older one go on to work.
pub const SHEAF_ABI_MINOR: u32 = 0;

/// Version of this interface, for the functions that open something.
pub const SHEAF_ABI: u32 = SHEAF_ABI_MAJOR << 16 | SHEAF_ABI_MINOR;

/// A wait without a bound, as `timeout_ms`.
pub const SHEAF_FOREVER: i64 = -1;

/// Returns what went wrong in the last call of this thread that failed: what was found and what was expected, in one
/// line of UTF-8. Never null; valid until the next call of this thread fails.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_error() -> *const c_char {
    border::last_error()
}

/// Returns a word for `status`, such as `timeout`. Never null; valid for ever.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_status_word(status: i32) -> *const c_char {
    let mut words = WORDS.into_iter();
    let word = words.find(|(known, _)| *known as i32 == status);
    let (_, word) = word.unwrap_or((Status::Ok, c"unknown"));
    word.as_ptr()
}

/// Returns the `SHEAF_ABI` of the library that was loaded.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_abi() -> u32 {
    SHEAF_ABI
}

/// Returns the version of the product, such as `0.1.0`. Never null; valid for ever.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Writes the log of nodes in this process to the standard error, from `level` on: `error`, `warn`, `info`, `debug`,
/// `trace` or `off`. Without it nothing is written. One call for each process.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn sheaf_log_to_stderr(level: *const c_char) -> Status {
    call(|| {
        let level = border::text(level, "level")?;
        let parsed: Result<LevelFilter, _> = level.parse();
        let filter = parsed.map_err(|_| {
            Failure::argument(format!(
                "found level {level:?}, expected one of: error warn info debug trace off"
            ))
        })?;
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(filter)
            .with_writer(std::io::stderr);
        let set = subscriber.try_init();
        set.map_err(|_| Failure::argument("the log of this process has its level already"))?;
        Ok(Status::Ok)
    })
}

/// Refuses a program that was compiled with the header `abi`.
pub(crate) fn check(abi: u32) -> Result<(), Failure> {
    if abi >> 16 == SHEAF_ABI_MAJOR && abi <= SHEAF_ABI {
        return Ok(());
    }
    Err(Failure::new(
        Status::ErrorAbi,
        format!(
            "the program was compiled with sheaf.h of ABI {}.{}, and the library has ABI \
             {SHEAF_ABI_MAJOR}.{SHEAF_ABI_MINOR}: compile it again, or install the library that belongs to its header",
            abi >> 16,
            abi & 0xffff
        ),
    ))
}
