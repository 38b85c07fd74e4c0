//! What can be wrong with a host.

use thiserror::Error;

/// Why a host did not do what it was asked. The command may be repeated when that is mended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// Nobody answers, or the connection broke.
    #[error("host {host}: cannot be reached at {address}: {found}")]
    Unreachable {
        /// Its name.
        host: String,
        /// Where it was looked for.
        address: String,
        /// What `ssh` says.
        found: String,
    },
    /// It does not let us in.
    #[error(
        "host {host}: {address} refuses the key: found {found:?}, expected that {key} is among its authorized keys"
    )]
    Refused {
        /// Its name.
        host: String,
        /// Where it is.
        address: String,
        /// What `ssh` says.
        found: String,
        /// The key that was shown.
        key: String,
    },
    /// It is not the machine that is known by this name, or not known yet.
    #[error(
        "host {host}: its host key: found {found:?}, expected the one of {address} in {known_hosts}"
    )]
    HostKey {
        /// Its name.
        host: String,
        /// Where it is.
        address: String,
        /// What `ssh` says.
        found: String,
        /// The file of keys.
        known_hosts: String,
    },
    /// Its folder is not as it has to be.
    #[error("host {host}: folder {folder}: found {found}, expected {expected}")]
    Folder {
        /// Its name.
        host: String,
        /// The folder.
        folder: String,
        /// What is there.
        found: String,
        /// What has to be there.
        expected: String,
    },
    /// Its disk is full.
    #[error(
        "host {host}: no space in {folder}: found {found} MiB free, expected at least {expected}"
    )]
    Space {
        /// Its name.
        host: String,
        /// The folder.
        folder: String,
        /// MiB that are free.
        found: u64,
        /// MiB that are needed.
        expected: u64,
    },
    /// It has not the program that runs here.
    #[error(
        "host {host}: binary: found {found}, expected {expected}: `sheaf lab hosts push` brings it there"
    )]
    Binary {
        /// Its name.
        host: String,
        /// What is there.
        found: String,
        /// What runs here.
        expected: String,
    },
    /// Processes of this folder run there.
    #[error(
        "host {host}: found {found} processes of {folder} at work, expected none: `sheaf lab hosts stop` ends their \
         run, `purge` removes them"
    )]
    Busy {
        /// Its name.
        host: String,
        /// The folder.
        folder: String,
        /// How many.
        found: u64,
    },
    /// What was to be done there failed.
    #[error("host {host}: cannot {what}: {found}")]
    Failed {
        /// Its name.
        host: String,
        /// What was tried.
        what: String,
        /// What the host says.
        found: String,
    },
}
