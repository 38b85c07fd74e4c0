//! System calls of a client.

use crate::fate::Failure;
use crate::plan::{Load, Method};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_tcp_nodelay, socket_error};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, socket_with,
};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

/// Fault in the TLS of a peer, among the errors of system calls.
pub(super) const BAD_TLS: Errno = Errno::PROTO;

/// Events that a client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    /// None but the end of the connection.
    None,
    In,
    Out,
    Both,
}

impl Interest {
    pub(super) fn flags(self) -> epoll::EventFlags {
        match self {
            Self::None => epoll::EventFlags::empty(),
            Self::In => epoll::EventFlags::IN,
            Self::Out => epoll::EventFlags::OUT,
            Self::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        }
    }
}

/// Begins a connection to `address`.
pub(super) fn connect(address: SocketAddr, load: &Load) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(bytes) = load.receive_buffer_bytes {
        set_socket_recv_buffer_size(&socket, bytes as usize)?;
    }
    if load.method == Method::Put {
        // The body does not wait for the acknowledgement of the head.
        set_tcp_nodelay(&socket, true)?;
    }
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Returns whether the connection was made.
pub(super) fn check(socket: &OwnedFd) -> Result<(), Errno> {
    socket_error(socket)?
}

pub(super) fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)
}

pub(super) fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    recv(socket, bytes, RecvFlags::empty()).map(|(_, bytes)| bytes)
}

/// Takes at most `most` bytes that have come, and as much as `sink` is long, without copying them: with `MSG_TRUNC` the
/// kernel discards bytes of a TCP stream (tcp(7)). `sink` says how many, and stays as it is.
pub(super) fn discard(socket: &OwnedFd, sink: &mut [u8], most: usize) -> Result<usize, Errno> {
    let most = most.min(sink.len());
    recv(socket, &mut sink[..most], RecvFlags::TRUNC).map(|(_, bytes)| bytes)
}

/// Returns what the error of a system call means for a transfer.
pub(super) fn failure_of(error: Errno) -> Failure {
    match error {
        Errno::CONNREFUSED => Failure::Refused,
        Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::ACCESS | Errno::PERM => {
            Failure::Unreachable
        }
        Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
            Failure::NoRoom
        }
        Errno::TIMEDOUT => Failure::Stalled,
        BAD_TLS => Failure::Tls,
        _ => Failure::Reset,
    }
}

/// Returns the head of the request of the client `number` for the target `target`.
pub(crate) fn request(
    load: &Load,
    target: usize,
    number: usize,
    range: Option<(u64, u64)>,
) -> Vec<u8> {
    use std::io::Write as _;
    let target = &load.targets[target];
    let mut text = Vec::with_capacity(256);
    let mut line = |words: std::fmt::Arguments<'_>| {
        text.write_fmt(words)
            .and_then(|()| text.write_all(b"\r\n"))
            .expect("memory takes all that is written");
    };
    let (method, path) = (load.method.name(), &target.path);
    match load.method {
        Method::Put => line(format_args!("{method} {path}.{number} HTTP/1.1")),
        Method::Get | Method::Head => line(format_args!("{method} {path} HTTP/1.1")),
    }
    line(format_args!("Host: {}", target.host));
    if let Some((first, last)) = range {
        line(format_args!("Range: bytes={first}-{last}"));
    }
    if load.method == Method::Put {
        let bytes = load.object_bytes.unwrap_or(0);
        line(format_args!("Content-Length: {bytes}"));
    }
    if !load.keeps_alive {
        line(format_args!("Connection: close"));
    }
    for field in &load.fields {
        line(format_args!("{field}"));
    }
    line(format_args!(""));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Target;

    #[test]
    fn requests_say_what_the_load_asks_for() {
        let target = Target {
            address: ([127, 0, 0, 1], 80).into(),
            host: "store".to_owned(),
            path: "/a".to_owned(),
            is_tls: false,
        };
        let get = Load {
            targets: vec![target],
            fields: vec!["Authorization: Bearer x".to_owned()],
            ..Load::default()
        };
        let text = String::from_utf8(request(&get, 0, 7, Some((5, 9)))).unwrap();
        let expected = "GET /a HTTP/1.1\r\nHost: store\r\nRange: bytes=5-9\r\nConnection: close\r\n\
                        Authorization: Bearer x\r\n\r\n";
        assert_eq!(text, expected);
        let put = Load {
            method: Method::Put,
            object_bytes: Some(10),
            keeps_alive: true,
            fields: Vec::new(),
            ..get
        };
        let text = String::from_utf8(request(&put, 0, 7, None)).unwrap();
        let expected = "PUT /a.7 HTTP/1.1\r\nHost: store\r\nContent-Length: 10\r\n\r\n";
        assert_eq!(text, expected);
    }
}
