//! Connections of this machine, listed by the kernel.

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use sheaf_serve::Flow;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

/// Bytes of one answer of the kernel.
const BUFFER: usize = 64 << 10;

/// Returns the connections to `port` of the addresses: those that are being set up, that go on, and that are being
/// closed while bytes may still be on their way.
///
/// # Errors
///
/// Error of the operating system.
pub fn connections(addresses: &[IpAddr], port: u16) -> io::Result<BTreeSet<Flow>> {
    let states =
        StateFlags::all() & !(StateFlags::LISTEN | StateFlags::TIME_WAIT | StateFlags::CLOSE);
    let mut flows = BTreeSet::new();
    dump(port, &states, |local, flow| {
        if addresses.contains(&local) {
            flows.insert(flow);
        }
    })?;
    Ok(flows)
}

/// Calls `each` with local address and client of every TCP socket of this port in one of the states.
fn dump(port: u16, states: &StateFlags, mut each: impl FnMut(IpAddr, Flow)) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&NetlinkAddr::new(0, 0))?;
    for (family, any) in [
        (AF_INET, SocketId::new_v4()),
        (AF_INET6, SocketId::new_v6()),
    ] {
        let request = InetRequest {
            family,
            protocol: IPPROTO_TCP,
            extensions: ExtensionFlags::empty(),
            states: states.clone(),
            socket_id: SocketId {
                source_port: port,
                ..any
            },
        };
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        socket.send(&bytes, 0)?;
        answers(&socket, port, &mut each)?;
    }
    Ok(())
}

fn answers(socket: &Socket, port: u16, each: &mut impl FnMut(IpAddr, Flow)) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let received = socket.recv(&mut &mut buffer[..], 0)?;
        let mut rest = &buffer[..received];
        while !rest.is_empty() {
            let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest);
            let message = message.map_err(|error| io::Error::other(error.to_string()))?;
            match message.payload {
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => {
                    let id = &found.header.socket_id;
                    let flow = Flow {
                        address: id.destination_address.to_canonical(),
                        port: id.destination_port,
                    };
                    if id.source_port == port {
                        each(id.source_address.to_canonical(), flow);
                    }
                }
                _ => {}
            }
            // Messages begin at multiples of four bytes.
            let length = message.header.length.next_multiple_of(4) as usize;
            match rest.get(length..) {
                Some(next) if length > 0 => rest = next,
                _ => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_listed_as_long_as_it_lives() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).expect("a port");
            let local = listener.local_addr().expect("an address");
            assert_eq!(
                connections(&[local.ip()], local.port()).expect("the kernel lists"),
                BTreeSet::new()
            );
            let clients: Vec<TcpStream> = (0..100)
                .map(|_| TcpStream::connect(local).expect("a connection"))
                .collect();
            let expected: BTreeSet<Flow> = clients
                .iter()
                .map(|client| client.local_addr().expect("an address"))
                .map(|client| Flow {
                    address: client.ip(),
                    port: client.port(),
                })
                .collect();
            let found = connections(&[local.ip()], local.port()).expect("the kernel lists");
            assert_eq!(found, expected);
            let other: IpAddr = "127.0.0.9".parse().expect("an address");
            assert!(
                connections(&[other], local.port())
                    .expect("the kernel lists")
                    .is_empty()
            );
        }
    }
}
