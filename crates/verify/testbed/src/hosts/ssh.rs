//! Classification of the errors of `ssh`.

use super::error::HostError;
use super::inventory::Host;

/// The exit status of `ssh` when not the command failed, but the connection.
const CONNECTION_FAILED: i32 = 255;

/// Translates the end of `ssh` with `status` and `stderr`, while doing `what` on `host`, into an error.
pub(super) fn of_ssh(host: &Host, what: &str, status: Option<i32>, stderr: &str) -> HostError {
    let name = host.name.clone();
    let address = format!("{}:{}", host.address, host.ssh_port);
    let found = said(stderr);
    if status != Some(CONNECTION_FAILED) {
        let is_full = stderr.contains("No space left on device");
        return HostError::Failed {
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
    if stderr.contains("Permission denied") || stderr.contains("Too many authentication failures") {
        let key = file(&host.identity, "a key of `ssh`");
        return HostError::Refused {
            host: name,
            address,
            found,
            key,
        };
    }
    if stderr.contains("Host key verification failed") || stderr.contains("host key is known for") {
        let known_hosts = file(&host.known_hosts, "the known hosts of `ssh`");
        return HostError::HostKey {
            host: name,
            address,
            found,
            known_hosts,
        };
    }
    HostError::Unreachable {
        host: name,
        address,
        found,
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
            let error = of_ssh(&inventory.hosts[0], "write x", Some(status), stderr);
            assert_eq!(error.to_string(), told);
        }
    }
}
