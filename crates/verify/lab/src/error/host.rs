//! Errors of hosts.

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
