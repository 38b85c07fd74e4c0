//! Treatment of refused input: the code is counted by peer, sent to the peer where the stream can
//! still carry it, and logged once a second at most. Nothing changes for any other peer. Codes:
//! `docs/reference/codes.md`.

use sheaf_metrics::{Metric, Registry};
use sheaf_protocol::reject::Code;
use sheaf_protocol::{
    Control, Envelope, Incarnation, NodeId, PrefixError, RunId, Term, Timestamp, WireKind,
};
use sheaf_transport::{CloseReason, ConnId, EarlyFrame, Frame, Refusal, TlsFailure, Transport};
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::warn;

/// Peers with counters of their own. Later peers are counted together as the others.
const PEERS_MAX: usize = 256;
/// Names of the codes.
const OTHERS: &str = "others";
pub(crate) const REJECTED: Metric = Metric::counter(
    "node_rejected_total",
    "Inputs rejected, by peer and code of rejection.",
)
.labels(&["peer", "code"])
.advice("[codes.md](codes.md) has each code");
/// Shortest and longest time between two lines of the log about the same.
const TELL_EVERY: Duration = Duration::from_secs(1);
const TELL_EVERY_MAX: Duration = Duration::from_secs(64);
/// How long a peer has to take the last word and go.
const LINGER: Duration = Duration::from_millis(200);

/// The code of the end of a connection; `None` if the peer is not to blame.
pub(crate) fn code_of(reason: &CloseReason) -> Option<Code> {
    Some(match reason {
        CloseReason::Refused(error) => match error {
            PrefixError::Version { .. } => Code::OtherVersion,
            PrefixError::HeadTooLarge { .. } | PrefixError::BodyTooLarge { .. } => Code::TooBig,
            PrefixError::Magic { .. } | PrefixError::Kind { .. } | PrefixError::Digest { .. } => {
                Code::BadFrame
            }
        },
        CloseReason::Early(EarlyFrame::Head { .. } | EarlyFrame::Body { .. }) => Code::BeforeHello,
        CloseReason::Early(EarlyFrame::Lane) => Code::BadMessage,
        CloseReason::Silent { .. } => Code::HandshakeTimeout,
        CloseReason::Stalled { .. } => Code::Stalled,
        CloseReason::Cut { .. } => Code::Cut,
        CloseReason::Crowded => Code::TooManyConnections,
        CloseReason::Tls(_) => Code::Untrusted,
        CloseReason::Shm(_) => Code::BadMessage,
        CloseReason::ByPeer
        | CloseReason::ByUs
        | CloseReason::Reset
        | CloseReason::Unreachable(_)
        | CloseReason::Io(_) => return None,
    })
}

/// The code of the end of a connection that this node made, if the peer refuses this node, or is none, for a reason
/// that a pause does not mend: certificates, another version, another protocol.
pub(crate) fn refusal_of(reason: &CloseReason) -> Option<Code> {
    let is_lasting = match reason {
        CloseReason::Refused(error) => !matches!(error, PrefixError::Digest { .. }),
        CloseReason::Tls(failure) => match failure {
            TlsFailure::Plain
            | TlsFailure::NoCertificate
            | TlsFailure::Certificate(_)
            | TlsFailure::Alert(_) => true,
            // A peer that dies, or has too much to do.
            TlsFailure::Protocol(_) | TlsFailure::Slow { .. } => false,
        },
        _ => false,
    };
    code_of(reason).filter(|_| is_lasting)
}

/// Whether a peer that has sent this code would send it again after a pause.
pub(crate) fn is_refusal(code: Code) -> bool {
    use Code::{BeforeHello, OtherVersion, RoleDenied, Untrusted, WrongStream};
    matches!(
        code,
        OtherVersion | RoleDenied | WrongStream | Untrusted | BeforeHello
    )
}

/// A rejection as a frame. It is of no run and no term: its receiver only logs it.
pub(crate) fn message(code: Code, detail: &str) -> Frame {
    let detail = detail.to_owned();
    // Whose word it is does not matter: it is the last one.
    on_data_stream(NodeId::ICN, &Control::Rejected { code, detail })
}

/// The frame of a message on a data stream. Run and life of its ends were said at its begin, so the envelope has none.
pub(crate) fn on_data_stream(sender: NodeId, control: &Control) -> Frame {
    let envelope = Envelope {
        minor: crate::minor::ours(),
        run: RunId(0),
        sender,
        incarnation: Incarnation(0),
        term: Term(0),
        sequence: 0,
    };
    Frame::without_body(WireKind::Control, control.encode(&envelope).into())
}

/// Returns the code for a peer whose connection the transport closes.
pub(crate) fn close_notice(reason: &CloseReason) -> Option<Frame> {
    let code = code_of(reason)?;
    // Half a frame that never ends is no stream that could carry a frame back in any other sense.
    Some(message(code, &reason.to_string()))
}

/// When the log gets a line about something that goes on: at once, then after pauses that double.
#[derive(Debug, Default)]
pub(crate) struct Told {
    at: Option<Timestamp>,
    pause: Duration,
    untold: u64,
}

impl Told {
    /// Notes that it has happened once more. Returns for how many others a line stands, if it is time for one.
    pub(crate) fn note(&mut self, now: Timestamp) -> Option<u64> {
        let since = self.at.map(|at| now.since(at));
        if since.is_some_and(|since| since < self.pause) {
            self.untold += 1;
            return None;
        }
        // Quiet for long: it has begun again.
        let goes_on = since.is_some_and(|since| since < self.pause * 4);
        self.pause = if goes_on {
            (self.pause * 2).min(TELL_EVERY_MAX)
        } else {
            TELL_EVERY
        };
        self.at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[derive(Debug, Default)]
struct Count {
    total: u64,
    told: Told,
}

/// Knows who is at the other end of each stream, and what was rejected of whom.
#[derive(Debug, Default)]
pub(crate) struct PeerGuard {
    peers: BTreeMap<ConnId, String>,
    /// Streams that were sent the reason of their end, and when.
    leaving: BTreeMap<ConnId, Timestamp>,
    counts: BTreeMap<String, BTreeMap<Code, Count>>,
    /// Rejections that peers have sent.
    heard: BTreeMap<(NodeId, Code), Told>,
}

impl PeerGuard {
    /// A peer at `address` has connected.
    pub(crate) fn accepted(&mut self, conn: ConnId, address: &str) {
        self.peers.insert(conn, host_of(address));
    }

    /// The peer at the other end of `conn` is known by this name.
    pub(crate) fn named(&mut self, conn: ConnId, node: NodeId) {
        self.peers.insert(conn, node.to_string());
    }

    /// A stream has ended.
    pub(crate) fn closed(&mut self, now: Timestamp, conn: ConnId, reason: &CloseReason) {
        let was_leaving = self.leaving.remove(&conn).is_some();
        if let Some(code) = code_of(reason).filter(|_| !was_leaving) {
            self.note(now, conn, code, &reason.to_string());
        }
        self.peers.remove(&conn);
    }

    /// Counts what the peer at the other end of `conn` did. Returns whether it was logged, which is the case
    /// once a second at most.
    pub(crate) fn note(&mut self, now: Timestamp, conn: ConnId, code: Code, detail: &str) -> bool {
        let peer = self.peers.get(&conn).cloned();
        self.note_of(now, peer.as_deref().unwrap_or("unknown"), code, detail)
    }

    fn note_of(&mut self, now: Timestamp, peer: &str, code: Code, detail: &str) -> bool {
        let is_known = self.counts.contains_key(peer) || self.counts.len() < PEERS_MAX;
        let peer = if is_known { peer } else { OTHERS };
        let count = self
            .counts
            .entry(peer.to_owned())
            .or_default()
            .entry(code)
            .or_default();
        count.total += 1;
        let untold = count.told.note(now);
        if let Some(untold) = untold {
            warn!(peer, %code, detail, untold, "Rejected");
        }
        untold.is_some()
    }

    /// Counts what came on `conn`, tells the peer, and ends the stream. What is still under way on it counts for
    /// nothing.
    pub(crate) fn reject<T: Transport>(
        &mut self,
        now: Timestamp,
        transport: &mut T,
        conn: ConnId,
        code: Code,
        detail: &str,
    ) {
        self.note(now, conn, code, detail);
        // A peer that takes nothing any more is not notified.
        let _ = transport.send(conn, message(code, detail));
        transport.finish(conn);
        self.leaving.insert(conn, now);
    }

    /// Counts what came on `conn`, tells the peer now and then, and lets the stream be.
    pub(crate) fn object<T: Transport>(
        &mut self,
        now: Timestamp,
        transport: &mut T,
        conn: ConnId,
        code: Code,
        detail: &str,
    ) {
        if self.note(now, conn, code, detail) {
            let _ = transport.send(conn, message(code, detail));
        }
    }

    /// A peer that this node knows has rejected what this node sent.
    pub(crate) fn heard(&mut self, now: Timestamp, peer: NodeId, code: Code, detail: &str) {
        if let Some(untold) = self.heard.entry((peer, code)).or_default().note(now) {
            warn!(%peer, %code, detail, untold, "A peer has rejected what this node sent");
        }
    }

    /// Whether the stream was rejected: what still comes on it is not looked at.
    pub(crate) fn is_rejected(&self, conn: ConnId) -> bool {
        self.leaving.contains_key(&conn)
    }

    /// Closes the streams of peers that were rejected and do not close them.
    pub(crate) fn tick<T: Transport>(&mut self, now: Timestamp, transport: &mut T) {
        for (conn, since) in &self.leaving {
            if now.since(*since) >= LINGER {
                transport.close(*conn);
            }
        }
    }

    /// Counts peers that were turned away before they had a stream.
    pub(crate) fn turned_away(&mut self, now: Timestamp, refusals: Vec<Refusal>) {
        for Refusal { peer, reason } in refusals {
            if let Some(code) = code_of(&reason) {
                self.note_of(now, &host_of(&peer), code, &reason.to_string());
            }
        }
    }

    /// How often something was rejected with this code.
    pub(crate) fn count(&self, code: Code) -> u64 {
        let counts = self.counts.values().filter_map(|codes| codes.get(&code));
        counts.map(|count| count.total).sum()
    }

    /// Brings the metric up to date.
    pub(crate) fn export(&self, registry: &Registry) {
        for (peer, codes) in &self.counts {
            for (code, count) in codes {
                let labels = [("peer", peer.as_str()), ("code", code.name())];
                registry.set(&REJECTED, &labels, count.total);
            }
        }
    }
}

/// A rejection that a node got, for its log.
pub(crate) fn log_rejection(peer: &str, code: Code, detail: &str) {
    warn!(peer, %code, detail, "A peer has rejected what this node sent");
}

/// The address without its port: a peer that comes again comes from another one. Those at a Unix socket have no other
/// name than that of the socket.
fn host_of(address: &str) -> String {
    let host_and_port = address.rsplit_once(':');
    host_and_port
        .filter(|_| !address.starts_with("unix:"))
        .map_or(address, |(host, _)| host)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_connection_has_a_code_if_the_peer_is_to_blame() {
        let plain = CloseReason::Tls(TlsFailure::Plain);
        assert_eq!(code_of(&plain), Some(Code::Untrusted));
        assert_eq!(
            code_of(&CloseReason::Crowded),
            Some(Code::TooManyConnections)
        );
        let body = CloseReason::Early(EarlyFrame::Body { found: 1 });
        assert_eq!(code_of(&body), Some(Code::BeforeHello));
        assert_eq!(code_of(&CloseReason::ByPeer), None);
        assert_eq!(code_of(&CloseReason::Reset), None);
    }

    #[test]
    fn a_peer_is_named_without_what_changes_when_it_comes_again() {
        assert_eq!(host_of("10.0.0.7:40000"), "10.0.0.7");
        assert_eq!(host_of("[::1]:40000"), "[::1]");
        assert_eq!(host_of("unix:/run/a:b.sock"), "unix:/run/a:b.sock");
    }

    #[test]
    fn peers_are_told_apart_up_to_a_bound_and_the_log_is_told_once_a_second() {
        let mut peer_guard = PeerGuard::default();
        let at = |ms: u64| Timestamp(ms * 1_000_000);
        for number in 0..1000 {
            let address = format!("10.0.{}.{}:40000", number / 250, number % 250);
            peer_guard.accepted(ConnId(number), &address);
            assert_eq!(
                peer_guard.note(at(0), ConnId(number), Code::BadFrame, "x"),
                number <= PEERS_MAX as u64
            );
        }
        assert_eq!(peer_guard.counts.len(), PEERS_MAX + 1);
        assert_eq!(peer_guard.count(Code::BadFrame), 1000);
        assert!(!peer_guard.note(at(999), ConnId(0), Code::BadFrame, "x"));
        assert!(peer_guard.note(at(999), ConnId(0), Code::TooBig, "another code"));
        assert!(peer_guard.note(at(1000), ConnId(0), Code::BadFrame, "x"));
        assert_eq!(peer_guard.count(Code::BadFrame), 1002);
    }

    #[test]
    fn what_goes_on_is_told_less_and_less_often_with_a_count() {
        let mut told = Told::default();
        let at = |ms: u64| Timestamp(ms * 1_000_000);
        // Ten times a second for ten minutes.
        let lines: Vec<(u64, u64)> = (0..6000)
            .filter_map(|number| Some((number, told.note(at(number * 100))?)))
            .collect();
        let first = [(0, 0), (10, 9), (30, 19), (70, 39), (150, 79)];
        assert_eq!(lines[..5], first);
        let steps: Vec<u64> = lines.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert_eq!(steps.iter().max(), Some(&640), "{steps:?}");
        // After a long silence there is a line at once, and the next one after a second.
        assert!(told.note(at(2_000_000)).is_some());
        assert_eq!(told.note(at(2_000_900)), None);
        assert_eq!(told.note(at(2_001_000)), Some(1));
    }

    #[test]
    fn refusals_that_last_are_told_from_accidents() {
        let alert = TlsFailure::Alert("UnknownCA".to_owned());
        let magic = PrefixError::Magic { found: *b"HTTP" };
        for reason in [CloseReason::Tls(alert), CloseReason::Refused(magic)] {
            assert!(refusal_of(&reason).is_some(), "{reason}");
        }
        let digest = PrefixError::Digest {
            computed: 0,
            stated: 1,
        };
        let protocol = TlsFailure::Protocol("the peer ended the connection".to_owned());
        for reason in [
            CloseReason::ByPeer,
            CloseReason::Reset,
            CloseReason::Refused(digest),
            CloseReason::Tls(protocol),
            CloseReason::Tls(TlsFailure::Slow { limit_ms: 3000 }),
        ] {
            assert_eq!(refusal_of(&reason), None, "{reason}");
        }
        assert!(is_refusal(Code::OtherVersion));
        assert!(!is_refusal(Code::WrongTarget), "an EPN was restarted");
    }

    #[test]
    fn a_peer_is_known_by_its_host_and_then_by_its_name() {
        assert_eq!(host_of("10.0.0.1:7000"), "10.0.0.1");
        assert_eq!(host_of("[::1]:7000"), "[::1]");
        let mut peer_guard = PeerGuard::default();
        peer_guard.accepted(ConnId(1), "10.0.0.1:7000");
        peer_guard.named(ConnId(1), sheaf_protocol::FlpId(3).into());
        peer_guard.note(Timestamp(0), ConnId(1), Code::Conflict, "x");
        assert_eq!(peer_guard.counts.keys().collect::<Vec<_>>(), ["flp:3"]);
    }
}
