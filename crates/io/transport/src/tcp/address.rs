//! Where an endpoint listens or connects: a port of a machine, or a socket in its file system.

use crate::unix::{PREFIX, unix_path};
use socket2::{SockAddr, Socket};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// An address that needs no name server any more. Written as it is read: `10.0.0.7:7100`, `[::1]:7100`,
/// `unix:/run/sheaf/epn-0.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// IPv4 or IPv6.
    Inet(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

/// Returns the first address that HOST:PORT stands for, or the socket that `unix:PATH` names. HOST may be a name:
/// then this may ask a name server and wait.
///
/// # Errors
///
/// If the text is neither or the name is not known.
pub fn resolve(address: &str) -> io::Result<Address> {
    match unix_path(address) {
        Some(Ok(path)) => return Ok(Address::Unix(path.to_owned())),
        Some(Err(error)) => return Err(io::Error::new(ErrorKind::InvalidInput, error)),
        None => {}
    }
    let mut found = address.to_socket_addrs()?;
    let first = found.next().ok_or(ErrorKind::NotFound)?;
    Ok(Address::Inet(first))
}

impl Address {
    /// Returns the address on the network; `None` for a Unix socket, which is on none.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Inet(address) => Some(address.ip()),
            Self::Unix(_) => None,
        }
    }

    /// Returns whether only processes of this machine can use the address.
    #[must_use]
    pub fn is_of_this_machine(&self) -> bool {
        self.ip().is_none_or(|ip| ip.to_canonical().is_loopback())
    }

    /// Begins to connect `socket`, which does not block. Whether it stands is known when it can be written to.
    pub(crate) fn begin(&self, socket: &Socket) -> io::Result<()> {
        let begun = match self {
            Self::Inet(address) => socket.connect(&(*address).into()),
            Self::Unix(path) => socket.connect(&SockAddr::unix(path)?),
        };
        let is_begun = |error: &io::Error| {
            let in_progress = rustix::io::Errno::INPROGRESS.raw_os_error();
            // Too many wait to be accepted. The kernel does not keep us in mind: the connection is begun once more.
            let is_full = self.ip().is_none() && error.kind() == ErrorKind::WouldBlock;
            error.raw_os_error() == Some(in_progress) || is_full
        };
        begun.or_else(|error| is_begun(&error).then_some(()).ok_or(error))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{PREFIX}{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in ["10.0.0.7:7100", "[::1]:7100", "unix:/run/sheaf/epn-0.sock"] {
            let address = resolve(text).unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.is_of_this_machine(), text != "10.0.0.7:7100");
        }
    }

    #[test]
    fn what_no_node_can_be_told_of_is_refused() {
        let check = |path: &str, expected: &str| {
            let refused = resolve(&format!("unix:{path}")).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        };
        check("s", "a path that does not begin with \"/\"");
        check("", "a path that does not begin with \"/\"");
        check("/a,b", "a path with ','");
        check("/a b", "a path with ' '");
        check("/{epn}", "a path with '{'");
        let long = format!("/{}", "s".repeat(107));
        check(
            &long,
            "a path of 108 bytes, more than the 107 of a Unix socket",
        );
        assert!(resolve(&format!("unix:{}", &long[..107])).is_ok());
    }
}
