//! A connected pair of TCP sockets over loopback, with every option set and read back.

use anyhow::{Context, Result};
use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// Both ends of one connection and what the kernel made of the wishes.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The end that sends data.
    pub(crate) sender: TcpStream,
    /// The end that receives data.
    pub(crate) receiver: TcpStream,
    /// The congestion control of the sending socket.
    pub(crate) congestion: String,
    /// Why it is not the one asked for, and what to do.
    pub(crate) congestion_refused: Option<String>,
    /// The sender's `SO_SNDBUF`; Linux reports twice the bytes asked for.
    pub(crate) send_buffer_bytes: usize,
    /// The receiver's `SO_RCVBUF`; Linux reports twice the bytes asked for.
    pub(crate) receive_buffer_bytes: usize,
}

/// Connects two sockets over 127.0.0.1, on an ephemeral port.
///
/// `buffer_bytes` is asked for on both sides. A refused congestion control is not an error: what is in
/// force then is in the answer, beside the reason.
pub(crate) fn connect(congestion: &str, buffer_bytes: usize) -> Result<Connection> {
    let listener = new_socket(buffer_bytes)?;
    listener.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))?;
    listener.listen(1).context("cannot listen on 127.0.0.1")?;
    let sender = new_socket(buffer_bytes)?;
    // Before the connection: an algorithm starts from a fresh state then.
    let congestion_refused = match sender.set_tcp_congestion(congestion.as_bytes()) {
        Ok(()) => None,
        Err(error) => Some(refusal(congestion, &error)),
    };
    sender
        .connect(&listener.local_addr()?)
        .context("cannot connect over 127.0.0.1")?;
    let (receiver, _) = listener.accept().context("cannot accept over 127.0.0.1")?;
    receiver.set_tcp_nodelay(true)?;
    Ok(Connection {
        congestion: in_force(&sender)?,
        congestion_refused,
        send_buffer_bytes: sender.send_buffer_size()?,
        receive_buffer_bytes: receiver.recv_buffer_size()?,
        sender: sender.into(),
        receiver: receiver.into(),
    })
}

/// Listens at `address`; what is accepted inherits the options.
pub(crate) fn listen(
    address: SocketAddr,
    congestion: Option<&str>,
    buffer_bytes: usize,
) -> Result<TcpListener> {
    let socket = socket_for(address, congestion, buffer_bytes)?;
    socket.set_reuse_address(true)?;
    socket
        .bind(&address.into())
        .with_context(|| format!("cannot listen at {address}"))?;
    socket.listen(1024)?;
    Ok(socket.into())
}

/// Connects to `address`.
pub(crate) fn connect_to(
    address: SocketAddr,
    congestion: Option<&str>,
    buffer_bytes: usize,
) -> Result<TcpStream> {
    let socket = socket_for(address, congestion, buffer_bytes)?;
    socket
        .connect(&address.into())
        .with_context(|| format!("cannot connect to {address}"))?;
    Ok(socket.into())
}

/// The congestion control in force.
pub(crate) fn congestion_of(stream: &TcpStream) -> Result<String> {
    in_force(&SockRef::from(stream))
}

/// A refused congestion control is no error: the caller asks which one is in force.
fn socket_for(
    address: SocketAddr,
    congestion: Option<&str>,
    buffer_bytes: usize,
) -> Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_send_buffer_size(buffer_bytes)?;
    socket.set_recv_buffer_size(buffer_bytes)?;
    if let Some(name) = congestion {
        let _ = socket.set_tcp_congestion(name.as_bytes());
    }
    Ok(socket)
}

/// A socket with its buffers set: an accepted socket inherits them, and the window scale needs them early.
fn new_socket(buffer_bytes: usize) -> Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket
        .set_send_buffer_size(buffer_bytes)
        .context("cannot set the send buffer")?;
    socket
        .set_recv_buffer_size(buffer_bytes)
        .context("cannot set the receive buffer")?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

fn in_force(socket: &Socket) -> Result<String> {
    let name = socket
        .tcp_congestion()
        .context("cannot read TCP_CONGESTION")?;
    let end = name
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Linux gives `EPERM` for an algorithm that is loaded but kept for processes with `CAP_NET_ADMIN`,
/// and `ENOENT` for one that it does not have (tcp(7), `tcp_allowed_congestion_control`).
fn refusal(congestion: &str, error: &std::io::Error) -> String {
    let advice = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM) => format!(
            "not allowed for this user: as root add it with \
             `sysctl net.ipv4.tcp_allowed_congestion_control=\"reno {congestion}\"` \
             (keep the names it has now), or run with CAP_NET_ADMIN"
        ),
        Some(Errno::NOENT) => format!(
            "not in this kernel: `sysctl net.ipv4.tcp_available_congestion_control` lists what is, \
             `modprobe tcp_{congestion}` may load it"
        ),
        _ => error.to_string(),
    };
    format!("congestion control {congestion} is {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn both_ends_are_connected_and_reno_is_in_force() {
        let mut connection = connect("reno", 1 << 16).unwrap(); // every Linux has reno
        assert_eq!(connection.congestion, "reno");
        assert_eq!(connection.congestion_refused, None);
        assert!(connection.send_buffer_bytes >= 1 << 16);
        assert!(connection.receive_buffer_bytes >= 1 << 16);
        connection.sender.write_all(b"over").unwrap();
        let mut bytes = [0; 4];
        connection.receiver.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"over");
    }

    #[test]
    fn an_unknown_congestion_control_is_reported_with_advice() {
        let connection = connect("nosuch", 1 << 16).unwrap();
        let reason = connection.congestion_refused.unwrap();
        assert!(
            reason.starts_with("congestion control nosuch is not in this kernel"),
            "{reason}"
        );
        assert_ne!(connection.congestion, "nosuch");
        assert!(!connection.congestion.contains('\0'));
    }

    #[test]
    fn a_forbidden_congestion_control_is_reported_with_the_sysctl() {
        let reason = refusal("cubic", &Errno::PERM.into());
        assert!(
            reason.contains("tcp_allowed_congestion_control=\"reno cubic\""),
            "{reason}"
        );
    }
}
