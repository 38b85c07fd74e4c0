//! Errors of hosts.

use crate::IoError;
use crate::clock::Interrupted;
use crate::tool::{Missing, ToolError};
use thiserror::Error;

/// Why a host did not do what it was asked. The command may be repeated when that is mended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// No answer, or a broken connection.
    #[error("host {host}: cannot be reached at {address}: {found}")]
    Unreachable {
        /// Name.
        host: String,
        /// Where it was looked for.
        address: String,
        /// Message of `ssh`.
        found: String,
    },
    /// Login refused.
    #[error(
        "host {host}: {address} refuses the key: found {found:?}, expected that {key} is among its authorized keys"
    )]
    Refused {
        /// Name.
        host: String,
        /// Where it is.
        address: String,
        /// Message of `ssh`.
        found: String,
        /// The key that was shown.
        key: String,
    },
    /// Host key that differs from the known one, or is not known yet.
    #[error(
        "host {host}: its host key: found {found:?}, expected the one of {address} in {known_hosts}"
    )]
    HostKey {
        /// Name.
        host: String,
        /// Where it is.
        address: String,
        /// Message of `ssh`.
        found: String,
        /// The file of keys.
        known_hosts: String,
    },
    /// Folder in a wrong state.
    #[error("host {host}: folder {folder}: found {found}, expected {expected}")]
    Folder {
        /// Name.
        host: String,
        /// The folder.
        folder: String,
        /// State found.
        found: String,
        /// State expected.
        expected: String,
    },
    /// Disk full.
    #[error(
        "host {host}: no space in {folder}: found {found} MiB free, expected at least {expected}"
    )]
    Space {
        /// Name.
        host: String,
        /// The folder.
        folder: String,
        /// MiB that are free.
        found: u64,
        /// MiB that are needed.
        expected: u64,
    },
    /// Program that differs from the one on this machine.
    #[error(
        "host {host}: binary: found {found}, expected {expected}: `sheaf lab hosts push` brings it there"
    )]
    Binary {
        /// Name.
        host: String,
        /// State found.
        found: String,
        /// Program on this machine.
        expected: String,
    },
    /// Processes of this folder run there.
    #[error(
        "host {host}: found {found} processes of {folder} at work, expected none: `sheaf lab hosts stop` ends their \
         run, `purge` removes them"
    )]
    Busy {
        /// Name.
        host: String,
        /// The folder.
        folder: String,
        /// How many.
        found: u64,
    },
    /// Failed action on the host.
    #[error("host {host}: cannot {what}: {found}")]
    Failed {
        /// Name.
        host: String,
        /// Action that failed.
        what: String,
        /// Message of the host.
        found: String,
    },
}

/// Reasons why an action on one host failed.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The host did not do it.
    #[error(transparent)]
    Host(Box<HostError>),
    /// A file or a process of this machine.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl From<HostError> for SessionError {
    fn from(error: HostError) -> Self {
        Self::Host(Box::new(error))
    }
}

/// Reasons why the hosts of an inventory are not connected.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no `ssh`.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A file or a process of this machine.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The SHA-256 of this program cannot be computed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// One of the hosts refuses.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Reasons why hosts do not have this program, or are not ready for a run.
#[derive(Debug, Error)]
pub enum PushError {
    /// This program cannot be read.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The SHA-256 of this program cannot be computed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// One of the hosts refuses, or is not as it has to be.
    #[error(transparent)]
    Session(#[from] SessionError),
}
