//! Reasons why a file is not fetched.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Reason why a file is not fetched.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Address that no file can be fetched from.
    #[error("found `{found}`, expected {expected}")]
    Address {
        /// The address.
        found: String,
        /// Shape of an address.
        expected: &'static str,
    },
    /// Checksum that cannot be compared.
    #[error("found the checksum `{0}`, expected one such as adler32=03da0195 or crc32c=4waSgw==")]
    Checksum(String),
    /// Authorities, or a file with a token, that cannot be used.
    #[error("{0}")]
    Access(String),
    /// Something that has the name already.
    #[error("found {} already, expected no such file", .0.display())]
    Exists(PathBuf),
    /// Another process that fetches into the same file.
    #[error("{} is being written by another process", .0.display())]
    Busy(PathBuf),
    /// Disk of this machine.
    #[error("cannot write {}: {source}", path.display())]
    Disk {
        /// File that was written.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// No server that has the file, or none that is left. What came is kept, and a further call goes on there.
    #[error("no server is left that has the file: {0}")]
    NoSource(String),
    /// Servers that are there, and send nothing. What came is kept.
    #[error("no bytes came for {within:?}: {troubles}")]
    Stalled {
        /// How long none came.
        within: Duration,
        /// Last troubles by server.
        troubles: String,
    },
    /// No server states a checksum, and one was asked for.
    #[error("no server states a checksum, expected one to compare the file with")]
    NoChecksum,
    /// Bytes of all servers that are not those of the checksum.
    #[error("no server has the bytes of the checksum: {0}")]
    Differs(String),
    /// Request to end. What came is kept.
    #[error("ended before the file was there; a further call goes on where this one was")]
    Ended,
}
