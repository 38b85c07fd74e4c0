//! Errors of hosts.

use super::inventory::Host;
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

/// The exit status of `ssh` when not the command failed, but the connection.
const CONNECTION_FAILED: i32 = 255;

impl HostError {
    /// Translates the end of `ssh` with `status` and `stderr`, while doing `what` on `host`, into an error.
    pub(super) fn of_ssh(host: &Host, what: &str, status: Option<i32>, stderr: &str) -> Self {
        let name = host.name.clone();
        let address = format!("{}:{}", host.address, host.ssh_port);
        let found = said(stderr);
        if status != Some(CONNECTION_FAILED) {
            let is_full = stderr.contains("No space left on device");
            return Self::Failed {
                host: name,
                what: what.to_owned(),
                found: if is_full {
                    format!("no space left in {}", host.folder)
                } else {
                    found
                },
            };
        }
        let file = |path: &Option<std::path::PathBuf>, else_: &str| {
            path.as_ref()
                .map_or_else(|| else_.to_owned(), |path| path.display().to_string())
        };
        if stderr.contains("Permission denied")
            || stderr.contains("Too many authentication failures")
        {
            let key = file(&host.identity, "a key of `ssh`");
            return Self::Refused {
                host: name,
                address,
                found,
                key,
            };
        }
        if stderr.contains("Host key verification failed")
            || stderr.contains("host key is known for")
        {
            let known_hosts = file(&host.known_hosts, "the known hosts of `ssh`");
            return Self::HostKey {
                host: name,
                address,
                found,
                known_hosts,
            };
        }
        Self::Unreachable {
            host: name,
            address,
            found,
        }
    }
}

/// The last line that says something.
fn said(stderr: &str) -> String {
    let last = stderr.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.unwrap_or("no word").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::inventory::Inventory;
    use super::*;
    use std::path::Path;

    #[test]
    fn what_ssh_says_is_told_apart() {
        let text = "name = 'x'\n[[host]]\nname = 'a'\naddress = '10.0.0.1:2222'";
        let inventory = Inventory::parse(text, Path::new("x.toml")).unwrap();
        for (status, stderr, told) in [
            (
                255,
                "ssh: connect to host 10.0.0.1 port 2222: Connection refused\r\n",
                "host a: cannot be reached at 10.0.0.1:2222: ssh: connect to host 10.0.0.1 port 2222: \
                 Connection refused",
            ),
            (
                255,
                "root@10.0.0.1: Permission denied (publickey).\r\n",
                "host a: 10.0.0.1:2222 refuses the key: found \"root@10.0.0.1: Permission denied (publickey).\", \
                 expected that a key of `ssh` is among its authorized keys",
            ),
            (
                255,
                "No ED25519 host key is known for [10.0.0.1]:2222 and you have requested strict checking.\r\n\
                 Host key verification failed.\r\n",
                "host a: its host key: found \"Host key verification failed.\", expected the one of 10.0.0.1:2222 in \
                 the known hosts of `ssh`",
            ),
            (
                1,
                "dd: error writing 'x': No space left on device\n",
                "host a: cannot write x: no space left in sheaf-lab",
            ),
            (2, "", "host a: cannot write x: no word"),
        ] {
            let error = HostError::of_ssh(&inventory.hosts[0], "write x", Some(status), stderr);
            assert_eq!(error.to_string(), told);
        }
    }
}
