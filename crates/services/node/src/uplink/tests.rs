//! Streams to ICNs that come and go.

use super::*;
use sheaf_protocol::EpnId;
use sheaf_protocol::PrefixError;
use sheaf_transport::memory::{Faults, Memory, Network};
use sheaf_transport::{Event, ListenerId, TlsFailure};

/// The challenge of an ICN on a stream that it has accepted.
pub(super) fn challenge(conn: ConnId) -> Frame {
    let envelope = Envelope {
        minor: 0,
        run: RunId(0),
        sender: NodeId::ICN,
        incarnation: Incarnation(1),
        term: Term(0),
        sequence: 0,
    };
    let challenge = Control::Challenge { nonce: conn.0 };
    Frame::without_body(WireKind::Control, challenge.encode(&envelope).into())
}

struct Pair {
    network: Network,
    uplink: Uplink,
    node: Memory,
    icn: Memory,
    _listener: ListenerId,
    address: String,
    /// The ICN accepts streams and sends nothing on them.
    is_icn_silent: bool,
}

impl Pair {
    /// A node whose stream to its one ICN stands.
    fn new() -> Self {
        Self::with(false)
    }

    /// A node half a second after its start.
    fn with(is_icn_silent: bool) -> Self {
        let network = Network::new(1, Faults::default());
        let (node, mut icn) = (network.endpoint("epn"), network.endpoint("icn"));
        let (listener, address) = icn.listen("icn:1").expect("the address is free");
        let hello = Hello {
            data_address: "epn:1".to_owned(),
            capacity_bytes: 1000,
            slots: 1,
            stf_bytes_max: 0,
            weight_milli: 1000,
            is_durable: false,
            ..Hello::default()
        };
        let id = EpnId(0).into();
        let uplink = Uplink::new(vec![address.clone()], id, Incarnation(1), hello);
        let mut pair = Self {
            network,
            uplink,
            node,
            icn,
            _listener: listener,
            address,
            is_icn_silent,
        };
        pair.pass();
        pair
    }

    /// Time passes, and what happens on the streams meanwhile is taken in. Gives what the ICN sees closed.
    fn pass(&mut self) -> usize {
        let mut closed = 0;
        let until = self.network.now() + Duration::from_millis(500);
        while self.network.now() < until {
            let now = self.network.now() + Duration::from_millis(5);
            self.network.advance_to(now);
            self.uplink.handle_tick(now, &mut self.node);
            let mut events = Vec::new();
            self.node
                .poll(&mut events, None)
                .expect("memory does not fail");
            for event in events {
                match event {
                    Event::Connected { conn } => self.uplink.handle_connected(now, conn),
                    Event::Received { conn, frame, .. } => {
                        self.uplink.handle_frame(now, conn, &frame, &mut self.node);
                    }
                    Event::Closed { conn, reason } => {
                        self.uplink.handle_closed(now, conn, &reason);
                    }
                    _ => {}
                }
            }
            let mut events = Vec::new();
            self.icn
                .poll(&mut events, None)
                .expect("memory does not fail");
            for event in events {
                match event {
                    Event::Accepted { conn, .. } if !self.is_icn_silent => {
                        self.icn.send(conn, challenge(conn)).unwrap();
                    }
                    Event::Closed { .. } => closed += 1,
                    _ => {}
                }
            }
        }
        closed
    }

    fn conn(&self) -> Option<ConnId> {
        self.uplink.streams.first()?.conn()
    }
}

#[test]
fn a_stream_that_stands_outlives_a_list_that_lacks_its_icn() {
    let mut pair = Pair::new();
    let conn = pair.conn().expect("the stream stands");
    pair.uplink.set_addresses(&[], &mut pair.node);
    assert_eq!(pair.pass(), 0, "the ICN sees nothing of it");
    assert_eq!(pair.conn(), Some(conn));
    let again = [pair.address.clone()];
    pair.uplink.set_addresses(&again, &mut pair.node);
    assert_eq!((pair.pass(), pair.conn()), (0, Some(conn)));
}

#[test]
fn a_stream_on_which_no_challenge_comes_is_closed_and_opened_again() {
    let mut pair = Pair::with(true);
    let first = pair.conn().expect("the node has connected");
    assert_eq!(pair.pass(), 0, "a challenge may take a second");
    assert_eq!(pair.conn(), Some(first));
    assert_eq!(pair.pass(), 1);
    let second = pair.conn().expect("the node has connected again");
    assert_ne!(first, second);
    pair.is_icn_silent = false;
    pair.pass();
    assert_eq!(pair.pass(), 1, "the second one had no challenge either");
    let third = pair.conn();
    assert_eq!(
        (pair.pass() + pair.pass() + pair.pass(), pair.conn()),
        (0, third)
    );
}

/// Streams that the node begins in a minute of virtual time, when each ends like this right after it stands.
fn tries(reason: &CloseReason) -> usize {
    let mut pair = Pair::new();
    let mut tries = 0;
    let until = pair.network.now() + Duration::from_secs(60);
    while pair.network.now() < until {
        let now = pair.network.now() + Duration::from_millis(5);
        pair.network.advance_to(now);
        if let Some(conn) = pair.conn() {
            pair.uplink.handle_closed(now, conn, reason);
            pair.node.close(conn);
            tries += 1;
        }
        pair.uplink.handle_tick(now, &mut pair.node);
    }
    tries
}

#[test]
fn an_icn_that_refuses_the_node_is_tried_less_and_less_often() {
    let alert = TlsFailure::Alert("UnknownCA".to_owned());
    let version = PrefixError::Version { found: 9 };
    for reason in [CloseReason::Tls(alert), CloseReason::Refused(version)] {
        let tries = tries(&reason);
        assert!((8..40).contains(&tries), "{reason}: {tries}");
    }
    let tries = tries(&CloseReason::Reset);
    assert!(tries > 600, "{tries}: one that dies is not kept waiting");
}

#[test]
fn an_icn_that_is_on_no_list_any_more_is_not_looked_for() {
    let mut pair = Pair::new();
    pair.uplink.set_addresses(&[], &mut pair.node);
    let conn = pair.conn().expect("the stream stands");
    pair.uplink
        .handle_closed(pair.network.now(), conn, &CloseReason::ByPeer);
    assert!(pair.uplink.streams.is_empty());
}
