//! Challenges of accepted streams: a hello counts only with the nonce of its own stream.
//!
//! A peer that recorded a stream can send it again, hello and all. The recorded hello has the nonce of the recorded
//! stream, and every accepted stream has another one (`docs/adr/2026-11-24-a-hello-answers-a-challenge.md`).

use crate::clock::random_number;
use sheaf_protocol::splitmix::SplitMix64;
use sheaf_protocol::{Control, Timestamp, protect};
use sheaf_transport::ConnId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time that a challenge waits for its hello before it is repeated: a network may lose it.
const CHALLENGE_AGAIN: Duration = Duration::from_millis(40);

/// Time that a stream which this node has opened may be without the challenge of the other end. That end repeats it
/// every 40 ms; one that has died without a word sends none, and nothing else would tell, since a hello waits for it.
pub(crate) const CHALLENGE_WITHIN: Duration = Duration::from_secs(1);

/// Source of nonces.
#[derive(Clone, Debug)]
pub struct Nonces(Option<SplitMix64>);

impl Nonces {
    /// Creates the source of a process: random numbers of the kernel.
    #[must_use]
    pub fn of_kernel() -> Self {
        Self(None)
    }

    /// Creates a source whose numbers follow from `seed`, for simulated farms. Every life of a node needs another seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Some(SplitMix64::new(seed)))
    }

    fn draw(&mut self) -> u64 {
        self.0.as_mut().map_or_else(random_number, SplitMix64::draw)
    }
}

/// Nonces of all streams that a node has accepted.
#[derive(Debug)]
pub(crate) struct Challenges {
    source: Nonces,
    nonces: BTreeMap<ConnId, u64>,
    /// Streams without a hello yet, and when their challenge was sent last.
    open: BTreeMap<ConnId, Timestamp>,
}

impl Challenges {
    /// Creates the challenges of a node that has accepted no stream yet.
    pub(crate) fn new(source: Nonces) -> Self {
        Self {
            source,
            nonces: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    /// Returns the challenge of a stream that was accepted.
    pub(crate) fn accepted(&mut self, now: Timestamp, conn: ConnId) -> Control {
        let nonce = self.source.draw();
        self.nonces.insert(conn, nonce);
        self.open.insert(conn, now);
        Control::Challenge { nonce }
    }

    /// Checks the nonce of a hello. The hello of a stream may be repeated.
    ///
    /// # Errors
    ///
    /// Nonce found and nonce expected, if the hello was not made for this stream.
    pub(crate) fn check(&mut self, conn: ConnId, nonce: u64) -> Result<(), String> {
        self.open.remove(&conn);
        let expected = self.nonces.get(&conn).copied();
        if protect!(FreshHello, requires expected == Some(nonce)) {
            return Ok(());
        }
        Err(match expected {
            Some(expected) => {
                format!("hello with nonce {nonce:016x}, that of the stream is {expected:016x}")
            }
            None => "a hello on a stream that this node has opened".to_owned(),
        })
    }

    /// Returns the challenges that are sent again.
    pub(crate) fn due(&mut self, now: Timestamp) -> Vec<(ConnId, Control)> {
        let mut due = Vec::new();
        for (conn, sent_at) in &mut self.open {
            if now.since(*sent_at) >= CHALLENGE_AGAIN {
                *sent_at = now;
                let nonce = self.nonces[conn];
                due.push((*conn, Control::Challenge { nonce }));
            }
        }
        due
    }

    /// Forgets a stream that has closed, or is about to.
    pub(crate) fn closed(&mut self, conn: ConnId) {
        self.nonces.remove(&conn);
        self.open.remove(&conn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce_of(control: &Control) -> u64 {
        let Control::Challenge { nonce } = control else {
            panic!("{control:?}");
        };
        *nonce
    }

    #[test]
    fn a_hello_counts_on_the_stream_that_it_was_made_for_and_on_no_other() {
        let mut challenges = Challenges::new(Nonces::seeded(1));
        let (now, former, present) = (Timestamp(0), ConnId(1), ConnId(2));
        let recorded = nonce_of(&challenges.accepted(now, former));
        assert_eq!(challenges.check(former, recorded), Ok(()));
        assert_eq!(challenges.check(former, recorded), Ok(()), "it is repeated");
        challenges.closed(former);
        let fresh = nonce_of(&challenges.accepted(now, present));
        let refusal = challenges.check(present, recorded).unwrap_err();
        assert!(refusal.contains(&format!("{recorded:016x}")), "{refusal}");
        assert!(refusal.contains(&format!("{fresh:016x}")), "{refusal}");
        assert!(challenges.check(former, recorded).is_err(), "it has closed");
        assert!(challenges.check(ConnId(3), 0).is_err());
    }

    #[test]
    fn a_challenge_is_repeated_until_a_hello_comes() {
        let mut challenges = Challenges::new(Nonces::of_kernel());
        let (at, conn) = (|ms: u64| Timestamp(ms * 1_000_000), ConnId(1));
        let first = challenges.accepted(at(0), conn);
        assert_eq!(challenges.due(at(39)), []);
        assert_eq!(challenges.due(at(40)), [(conn, first.clone())]);
        assert_eq!(challenges.due(at(79)), []);
        challenges.check(conn, nonce_of(&first)).unwrap();
        assert_eq!(challenges.due(at(1000)), []);
    }

    #[test]
    fn no_two_streams_have_one_nonce() {
        let mut nonces = Nonces::of_kernel();
        let drawn: std::collections::BTreeSet<u64> = (0..1000).map(|_| nonces.draw()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
