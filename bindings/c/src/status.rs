//! Results of calls.

use std::ffi::CStr;

/// Result of a call. Errors are below 0; `sheaf_error()` says what was found and what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// Done.
    Ok = 0,
    /// Not done within the time given. Nothing was taken: the same call can follow.
    Timeout = 1,
    /// The run is over, the EPN has ended, or the file has no more TFs.
    End = 2,
    /// `sheaf_source_interrupt` or `sheaf_consumer_interrupt` has ended the wait. Nothing was taken.
    Interrupted = 3,
    /// An argument that no call takes, such as a null pointer or a TF id that is not behind the last one.
    ErrorArgument = -1,
    /// The farm file cannot be used.
    ErrorConfig = -2,
    /// A source cannot begin or go on.
    ErrorSource = -3,
    /// No TF can be taken from the EPN, or given back to it.
    ErrorConsumer = -4,
    /// A file cannot be read, or is no TF file.
    ErrorFile = -5,
    /// A payload has another checksum than the one that its FLP took.
    ErrorDamaged = -6,
    /// The program was compiled with the header of another version.
    ErrorAbi = -7,
    /// A handle of another process, after a fork.
    ErrorFork = -8,
    /// A defect of Sheaf; the standard error has its message.
    ErrorDefect = -9,
}

/// A word for each status.
pub(crate) const WORDS: [(Status, &CStr); 13] = [
    (Status::Ok, c"ok"),
    (Status::Timeout, c"timeout"),
    (Status::End, c"end"),
    (Status::Interrupted, c"interrupted"),
    (Status::ErrorArgument, c"argument"),
    (Status::ErrorConfig, c"config"),
    (Status::ErrorSource, c"source"),
    (Status::ErrorConsumer, c"consumer"),
    (Status::ErrorFile, c"file"),
    (Status::ErrorDamaged, c"damaged"),
    (Status::ErrorAbi, c"abi"),
    (Status::ErrorFork, c"fork"),
    (Status::ErrorDefect, c"defect"),
];
