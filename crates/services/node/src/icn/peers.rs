//! The streams between the ICNs of a farm, for the messages of the verdict log.
//!
//! One stream a pair: the ICN with the higher index opens it and says hello. What is lost with a stream the log
//! repeats by itself.

use crate::challenge::CHALLENGE_WITHIN;
use crate::log_tail;
use sheaf_protocol::{Control, Timestamp, protect};
use sheaf_stf_builder::Backoff;
use sheaf_transport::{ConnId, Transport};
use std::time::Duration;
use tracing::debug;

const PAUSE_FIRST: Duration = Duration::from_millis(10);
/// The log waits for its peers: they are looked for more often than an ICN that nodes cannot reach.
const PAUSE_MAX: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Peer {
    icn: u16,
    /// Where this ICN has to connect to; `None` if the peer comes by itself.
    address: Option<String>,
    conn: Option<ConnId>,
    /// Since when the stream stands, if this ICN has opened it.
    stands_since: Option<Timestamp>,
    /// Established stream of an authenticated peer.
    is_up: bool,
    log: log_tail::Sending,
    retry_at: Timestamp,
    pause: Backoff,
}

/// All other ICNs.
#[derive(Debug, Default)]
pub(super) struct Peers(Vec<Peer>);

impl Peers {
    /// The ICNs at `addresses`, by index, without `me`.
    pub(super) fn new(me: u16, addresses: &[String]) -> Self {
        let others = (0_u16..).zip(addresses).filter(|(icn, _)| *icn != me);
        let peer = |(icn, address): (u16, &String)| Peer {
            icn,
            address: (icn < me).then(|| address.clone()),
            conn: None,
            stands_since: None,
            is_up: false,
            log: log_tail::Sending::default(),
            retry_at: Timestamp(0),
            pause: Backoff::new(PAUSE_FIRST, PAUSE_MAX, u64::from(me) << 16 | u64::from(icn)),
        };
        Self(others.map(peer).collect())
    }

    /// Whether `icn` is one of them.
    pub(super) fn is_one(&self, icn: u16) -> bool {
        self.0.iter().any(|peer| peer.icn == icn)
    }

    /// The ICN at the other end of a stream that this ICN opened.
    pub(super) fn opened(&self, conn: ConnId) -> Option<u16> {
        let mut peers = self.0.iter();
        let peer = peers.find(|peer| peer.address.is_some() && peer.conn == Some(conn))?;
        Some(peer.icn)
    }

    /// The stream to an ICN, if it stands.
    pub(super) fn conn_of(&self, icn: u16) -> Option<ConnId> {
        let mut peers = self.0.iter();
        peers.find(|peer| peer.icn == icn && peer.is_up)?.conn
    }

    /// Every stream that stands.
    pub(super) fn conns(&self) -> Vec<ConnId> {
        let up = self.0.iter().filter(|peer| peer.is_up);
        up.filter_map(|peer| peer.conn).collect()
    }

    /// The connection of a stream that this ICN has opened stands: the challenge of the peer comes next.
    pub(super) fn handle_connected(&mut self, now: Timestamp, conn: ConnId) {
        let mut peers = self.0.iter_mut();
        if let Some(peer) = peers.find(|peer| peer.conn == Some(conn)) {
            peer.stands_since = Some(now);
        }
    }

    /// Opens streams that are down and whose pause is over, and gives up those on which no challenge came.
    pub(super) fn handle_tick<T: Transport>(&mut self, now: Timestamp, transport: &mut T) {
        for peer in &mut self.0 {
            let Some(address) = &peer.address else {
                continue;
            };
            if let (Some(conn), Some(since), false) = (peer.conn, peer.stands_since, peer.is_up)
                && protect!(ChallengeDeadline, when now.since(since) >= CHALLENGE_WITHIN)
            {
                transport.close(conn);
                peer.conn = None;
                peer.stands_since = None;
                peer.retry_at = now + peer.pause.pause();
            }
            if peer.conn.is_some() || now < peer.retry_at {
                continue;
            }
            match transport.connect(address) {
                Ok(conn) => peer.conn = Some(conn),
                Err(error) => {
                    debug!(peer = peer.icn, %error, "Cannot begin a stream to another ICN");
                    peer.retry_at = now + peer.pause.pause();
                }
            }
        }
    }

    /// The stream `conn` is that of `icn`, which speaks `minor`, from now on; returns one that it replaces.
    pub(super) fn set_up(&mut self, icn: u16, conn: ConnId, minor: u8) -> Option<ConnId> {
        let peer = self.0.iter_mut().find(|peer| peer.icn == icn)?;
        peer.is_up = true;
        peer.log.begin(minor);
        peer.pause.reset();
        peer.conn.replace(conn).filter(|former| *former != conn)
    }

    /// Returns the next lines of the log of this process for each ICN whose version knows them: one of them may lead.
    pub(super) fn take_log(&mut self, now: Timestamp) -> Vec<(ConnId, Control)> {
        let up = self.0.iter_mut().filter(|peer| peer.is_up);
        up.filter_map(|peer| Some((peer.conn?, peer.log.next(now)?)))
            .collect()
    }

    /// A stream has closed; returns the node of it.
    pub(super) fn set_down(&mut self, now: Timestamp, conn: ConnId) -> Option<u16> {
        let peer = self.0.iter_mut().find(|peer| peer.conn == Some(conn))?;
        peer.conn = None;
        peer.stands_since = None;
        peer.is_up = false;
        peer.retry_at = now + peer.pause.pause();
        Some(peer.icn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_transport::Event;
    use sheaf_transport::memory::{Faults, Network};

    #[test]
    fn a_stream_on_which_no_challenge_comes_is_given_up_and_opened_again() {
        let network = Network::new(1, Faults::default());
        let (mut me, mut other) = (network.endpoint("icn1"), network.endpoint("icn0"));
        other.listen("icn0:1").expect("the address is free");
        let mut peers = Peers::new(1, &["icn0:1".to_owned(), "icn1:1".to_owned()]);
        let (mut accepted, mut closed) = (0, 0);
        let mut pass = |until_ms: u64| {
            while network.now() < Timestamp(until_ms * 1_000_000) {
                let now = network.now() + Duration::from_millis(5);
                network.advance_to(now);
                peers.handle_tick(now, &mut me);
                let mut events = Vec::new();
                me.poll(&mut events, None).expect("memory does not fail");
                for event in events.drain(..) {
                    if let Event::Connected { conn } = event {
                        peers.handle_connected(now, conn);
                    }
                }
                // The other ICN has died without a word: its machine accepts streams, and nothing answers.
                other.poll(&mut events, None).expect("memory does not fail");
                let count =
                    |is: fn(&Event) -> bool| events.iter().filter(|event| is(event)).count();
                accepted += count(|event| matches!(event, Event::Accepted { .. }));
                closed += count(|event| matches!(event, Event::Closed { .. }));
            }
            (accepted, closed)
        };
        assert_eq!(pass(1000), (1, 0), "a challenge may take a second");
        assert_eq!(pass(1300), (2, 1), "another stream takes its place");
        assert_eq!(pass(3900), (4, 3), "and each is given up like the first");
    }
}
