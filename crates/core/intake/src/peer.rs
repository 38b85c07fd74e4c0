//! Senders, as the driver knows them.

// From `core`, which has no sockets: an address is data.
use core::net::IpAddr;

/// Sender of a datagram or a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// Address, without a port; the unspecified one for a socket of this machine that has none.
    pub address: IpAddr,
    /// Number of the stream at this address, which loss is counted by: a port, a path, a connection that stays.
    /// Requests of HTTP, whose clients connect again, have one number for each address and user agent.
    pub stream: u64,
}
