//! Addresses and paths as they stand in a farm file.

use super::Check;
use sheaf_protocol::NodeId;
use sheaf_transport::tcp::{UnixPathError, unix_path};
use std::path::{Path, PathBuf};

/// Whether `text` is HOST:PORT, such as `10.0.0.7:7100`, `flp3.farm:7100` or `[::1]:7100`.
///
/// Names are not looked up: that may wait for a server.
#[must_use]
pub fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let is_port = !port.is_empty()
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && port.parse::<u16>().is_ok();
    let is_host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
            !host.is_empty() && host.bytes().all(is_allowed) && !is_broken_v4(host)
        }
    };
    is_port && is_host
}

/// Whether a node can listen or connect at `text`: HOST:PORT, or `unix:PATH` such as `unix:/run/sheaf/epn-0.sock`.
#[must_use]
pub fn is_node_address(text: &str) -> bool {
    unix_path(text).map_or_else(|| is_address(text), |path| path.is_ok())
}

/// Form of a node address, for messages.
pub const NODE_ADDRESS: &str = "HOST:PORT, such as 10.0.0.7:7100 or [::1]:7100, or unix:PATH";

impl Check {
    /// An address of a node, which may be a Unix socket.
    pub(crate) fn node_address(&mut self, key: &str, text: &str) {
        match unix_path(text) {
            Some(Ok(_)) => {}
            Some(Err(error)) => {
                let found = format!("\"{text}\", {error}");
                self.that(false, key, found, UnixPathError::EXPECTED);
            }
            None => self.that(is_address(text), key, format!("\"{text}\""), NODE_ADDRESS),
        }
    }
}

/// Whether `host` is made of numbers and dots only, and still is no IPv4 address.
fn is_broken_v4(host: &str) -> bool {
    host.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
        && host.parse::<std::net::Ipv4Addr>().is_err()
}

/// `text` for one node: `{flp}` or `{epn}`, whichever `node` is, is replaced by its index.
///
/// So one farm file serves nodes that share a machine and may not share a path or a port.
#[must_use]
pub fn for_index(text: &str, node: NodeId) -> String {
    text.replace(&format!("{{{}}}", node.role), &node.index.to_string())
}

/// Returns `path` for one node, as [`for_index`] does.
pub(crate) fn path_for(path: &Path, node: NodeId) -> PathBuf {
    match path.to_str() {
        Some(text) => for_index(text, node).into(),
        None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_protocol::{EpnId, FlpId};

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for good in [
            "127.0.0.1:0",
            "localhost:7000",
            "[::1]:65535",
            "icn-1.farm:1",
        ] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "7000",
            ":7000",
            "host:",
            "host:+1",
            "host:65536",
            "::1:7000",
            "[::1:7000",
            "[x]:7000",
            "300.0.0.1:7000",
            "a b:7000",
            "1.2.3:7000",
            "http://a:80",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }

    #[test]
    fn a_node_may_have_a_socket_in_the_file_system() {
        for good in ["127.0.0.1:0", "unix:/run/sheaf/epn-0.sock"] {
            assert!(is_node_address(good), "{good}");
        }
        for bad in ["", "7000", "unix:", "unix:run/s", "unix:/a,b", "/run/s"] {
            assert!(!is_node_address(bad), "{bad}");
        }
        assert!(!is_address("unix:/run/sheaf/epn-0.sock"));
    }

    #[test]
    fn a_place_holder_is_for_its_role_only() {
        let text = "/run/{flp}/{epn}";
        assert_eq!(for_index(text, FlpId(3).into()), "/run/3/{epn}");
        assert_eq!(for_index(text, EpnId(0).into()), "/run/{flp}/0");
    }
}
