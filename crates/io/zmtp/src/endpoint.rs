//! Where a socket binds or connects, as ZeroMQ writes it.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// `tcp://HOST:PORT` or `ipc://PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// IPv4 or IPv6.
    Tcp {
        /// An address, a name, or `*` for all addresses of this machine.
        host: String,
        /// 0, or `*`: any free one.
        port: u16,
    },
    /// A Unix socket.
    Ipc(PathBuf),
}

/// Why a text is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("\"{found}\", expected tcp://HOST:PORT or ipc://PATH")]
pub struct EndpointError {
    /// The text.
    pub found: String,
}

/// Error of listening or of name resolution.
#[derive(Debug, Error)]
#[error("cannot use {endpoint}: {source}")]
pub struct BindError {
    /// Where.
    pub endpoint: String,
    /// Error of the operating system.
    pub source: io::Error,
}

impl Endpoint {
    /// Returns the addresses of a TCP endpoint. `*` is every IPv4 address of this machine. May ask a name server.
    pub(crate) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if host == "*" {
            return Ok(vec![(Ipv4Addr::UNSPECIFIED, port).into()]);
        }
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let found: Vec<SocketAddr> = (bare.unwrap_or(host), port).to_socket_addrs()?.collect();
        if found.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the name has no address",
            ));
        }
        Ok(found)
    }

    /// HOST:PORT of a TCP endpoint, with `0.0.0.0` for `*`; `None` for a Unix socket.
    #[must_use]
    pub fn host_port(&self) -> Option<String> {
        match self {
            Self::Tcp { host, port } if host == "*" => Some(format!("0.0.0.0:{port}")),
            Self::Tcp { host, port } => Some(format!("{host}:{port}")),
            Self::Ipc(_) => None,
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        let host = match address {
            SocketAddr::V4(v4) => v4.ip().to_string(),
            SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
        };
        Self::Tcp {
            host,
            port: address.port(),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let parsed = match text.split_once("://") {
            Some(("tcp", rest)) => tcp(rest),
            // A Unix socket address has 108 bytes for the path (`sockaddr_un`), the last of which is zero.
            Some(("ipc", path)) if (1..=107).contains(&path.len()) => Some(Self::Ipc(path.into())),
            _ => None,
        };
        parsed.ok_or_else(|| EndpointError {
            found: text.to_owned(),
        })
    }
}

fn tcp(text: &str) -> Option<Endpoint> {
    let (host, port) = text.rsplit_once(':')?;
    let port = match port {
        "*" => 0,
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => digits.parse().ok()?,
        _ => return None,
    };
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok(),
        None => {
            host == "*"
                || (!host.is_empty()
                    && host
                        .bytes()
                        .all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)))
        }
    };
    is_host.then(|| Endpoint::Tcp {
        host: host.to_owned(),
        port,
    })
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Ipc(path) => write!(f, "ipc://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_written_as_zeromq_does() {
        for (text, host_port) in [
            ("tcp://127.0.0.1:5555", Some("127.0.0.1:5555")),
            ("tcp://[::1]:1", Some("[::1]:1")),
            ("tcp://flp-3.farm:7100", Some("flp-3.farm:7100")),
            ("tcp://*:5005", Some("0.0.0.0:5005")),
            ("ipc:///run/sheaf/flp0", None),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(
                (
                    endpoint.to_string().as_str(),
                    endpoint.host_port().as_deref()
                ),
                (text, host_port)
            );
        }
        let any: Endpoint = "tcp://*:*".parse().unwrap();
        assert_eq!(any.to_string(), "tcp://*:0");
        for bad in [
            "",
            "127.0.0.1:1",
            "udp://a:1",
            "tcp://a",
            "tcp://:1",
            "tcp://a:65536",
            "tcp://a:+1",
            "tcp://::1:1",
            "tcp://[x]:1",
            "tcp://a b:1",
            "ipc://",
            "tcp://eth0;a:1",
        ] {
            assert!(bad.parse::<Endpoint>().is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_are_looked_up() {
        let local: SocketAddr = "127.0.0.1:7".parse().unwrap();
        assert_eq!(Endpoint::resolve("127.0.0.1", 7).unwrap(), [local]);
        assert_eq!(
            Endpoint::resolve("[::1]", 7).unwrap(),
            ["[::1]:7".parse().unwrap()]
        );
        assert_eq!(
            Endpoint::resolve("*", 7).unwrap(),
            ["0.0.0.0:7".parse().unwrap()]
        );
        assert_eq!(Endpoint::from(local).to_string(), "tcp://127.0.0.1:7");
    }
}
