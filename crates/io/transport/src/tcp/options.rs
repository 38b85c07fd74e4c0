//! Sockets and their options.

use super::address::Address;
use super::config::TcpConfig;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// A stream that carries nothing for so long is asked whether the other end is there, again and again; no answer
/// within [`TcpConfig::unacknowledged_ms`] closes it. Whole seconds, 1 s at least: the kernel has no finer ones.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// Most bytes of a socket buffer on loopback, and of a Unix socket. No wire has to be filled there, and what
/// lies in the buffers is to be still in the caches when the peer reads it: 4 MiB cost up to a tenth of the throughput
/// (docs/results/transport.md).
const LOCAL_BUFFER_BYTES_MAX: usize = 1 << 20;

/// Socket options in force, as the kernel granted them to [`TcpConfig`]. Part of every report of a throughput.
///
/// Of TCP between machines. On loopback the buffers are of 1 MiB at most, and a Unix socket has nothing else of what
/// is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// The congestion control in force, by its kernel name.
    pub congestion_control: String,
    /// Send buffer in bytes, the kernel's bookkeeping included: twice what was granted.
    pub send_buffer_bytes: usize,
    /// Receive buffer in bytes, the kernel's bookkeeping included: twice what was granted.
    pub receive_buffer_bytes: usize,
    /// Whether small segments leave at once.
    pub no_delay: bool,
}

/// Returns what the kernel gives to a socket made now.
pub(crate) fn in_force(config: &TcpConfig) -> io::Result<SocketOptions> {
    let socket = inet_socket(([127, 0, 0, 1], 0).into(), config)?;
    let name = socket.tcp_congestion()?;
    let name: Vec<u8> = name.into_iter().take_while(|byte| *byte != 0).collect();
    Ok(SocketOptions {
        congestion_control: String::from_utf8_lossy(&name).into_owned(),
        send_buffer_bytes: socket.send_buffer_size()?,
        receive_buffer_bytes: socket.recv_buffer_size()?,
        no_delay: socket.tcp_nodelay()?,
    })
}

/// Returns a socket that connects to `peer`.
pub(crate) fn stream_socket(peer: &Address, config: &TcpConfig) -> io::Result<Socket> {
    match peer {
        Address::Inet(address) => inet_socket(*address, config),
        Address::Unix(_) => {
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            prepare_unix(&SockRef::from(&socket), config)?;
            Ok(socket)
        }
    }
}

/// Returns the one option that a Unix socket has: its bytes lie in the send buffer until the peer reads them, its end
/// is reported at once, and nothing between the two could be slow or gone. One that is accepted inherits nothing.
pub(crate) fn prepare_unix(socket: &SockRef<'_>, config: &TcpConfig) -> io::Result<()> {
    socket.set_send_buffer_size(config.send_buffer_bytes.min(LOCAL_BUFFER_BYTES_MAX))
}

/// Returns a socket that connects to `address`, or that listens there: what is accepted inherits the options.
fn inet_socket(address: SocketAddr, config: &TcpConfig) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    // Before connect and listen, because the window scale is fixed in the first segment.
    let is_loopback = address.ip().to_canonical().is_loopback();
    let bytes_max = if is_loopback {
        LOCAL_BUFFER_BYTES_MAX
    } else {
        usize::MAX
    };
    socket.set_send_buffer_size(config.send_buffer_bytes.min(bytes_max))?;
    socket.set_recv_buffer_size(config.receive_buffer_bytes.min(bytes_max))?;
    // A path that swallows packets closes nothing by itself. A peer that is only stopped still acknowledges.
    socket.set_tcp_user_timeout(Some(Duration::from_millis(config.unacknowledged_ms)))?;
    // One that only receives has nothing that could stay unacknowledged: it would wait for a sender that gave up.
    let asks = TcpKeepalive::new().with_time(ASK_AFTER);
    socket.set_tcp_keepalive(&asks.with_interval(ASK_AFTER))?;
    if let Some(name) = &config.congestion_control {
        // A kernel without it, or that keeps it from us, stays at its default: `in_force` reports which.
        let _ = socket.set_tcp_congestion(name.as_bytes());
    }
    Ok(socket)
}

/// Returns a socket that listens at `address`.
pub(crate) fn listening_socket(address: SocketAddr, config: &TcpConfig) -> io::Result<Socket> {
    let socket = inet_socket(address, config)?;
    socket.set_reuse_address(true)?; // A restarted node gets its port although old connections linger.
    socket.bind(&address.into())?;
    socket.listen(i32::from(config.listen_backlog))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_and_reported() {
        let options = in_force(&TcpConfig::default()).unwrap();
        assert!(options.no_delay);
        assert!(!options.congestion_control.is_empty());
        assert!(options.send_buffer_bytes > 0 && options.receive_buffer_bytes > 0);
    }

    #[test]
    fn an_accepted_stream_asks_whether_its_sender_is_there() {
        let config = TcpConfig::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = listening_socket(any, &config).unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(false).unwrap();
        let _sender = std::net::TcpStream::connect(address.as_socket().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.keepalive().unwrap());
        assert_eq!(accepted.tcp_keepalive_time().unwrap(), ASK_AFTER);
        assert_eq!(accepted.tcp_keepalive_interval().unwrap(), ASK_AFTER);
        let limit = Duration::from_millis(config.unacknowledged_ms);
        assert_eq!(accepted.tcp_user_timeout().unwrap(), Some(limit));
    }

    #[test]
    fn a_stream_on_loopback_has_small_buffers() {
        let config = TcpConfig {
            send_buffer_bytes: 10_000,
            ..TcpConfig::default()
        };
        for ip in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            let socket = inet_socket(SocketAddr::new(ip.parse().unwrap(), 0), &config).unwrap();
            assert_eq!(socket.send_buffer_size().unwrap(), 20_000, "{ip}");
            let found = socket.recv_buffer_size().unwrap();
            assert!(found <= 2 * LOCAL_BUFFER_BYTES_MAX, "{ip}: {found}");
        }
    }

    #[test]
    fn a_congestion_control_that_nobody_has_leaves_the_default() {
        let config = |name: Option<&str>| TcpConfig {
            congestion_control: name.map(str::to_owned),
            ..TcpConfig::default()
        };
        let machine = in_force(&config(None)).unwrap();
        assert_eq!(in_force(&config(Some("no-such"))).unwrap(), machine);
    }
}
