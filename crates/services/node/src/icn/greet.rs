//! Begin of a stream: challenge, hello, and the session that follows from it.

use super::rolled_back::Followed;
use super::{IcnNode, Session};
use sheaf_membership::{JoinError, MemberEvent as Joining};
use sheaf_protocol::control::{Hello, Welcome};
use sheaf_protocol::reject::Code;
use sheaf_protocol::{Control, Envelope, Incarnation, NodeId, Role, Timestamp};
use sheaf_transport::{ConnId, EARLY_HEAD_BYTES_MAX, Transport};

impl<T: Transport> IcnNode<T> {
    /// Checks the certificate of the peer of a stream that this ICN has opened. The hello waits for the challenge.
    pub(super) fn handle_peer_connected(&mut self, now: Timestamp, conn: ConnId) {
        let Some(icn) = self.peers.opened(conn) else {
            return;
        };
        self.peers.handle_connected(now, conn);
        let role = Role::Icn;
        self.is_denied(now, conn, NodeId { role, index: icn });
    }

    /// Says hello to another ICN, which has sent its challenge.
    pub(super) fn greet_peer(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        icn: u16,
        nonce: u64,
        minor: u8,
    ) {
        let hello = Hello {
            nonce,
            ..Hello::default()
        };
        self.send(&[conn], &Control::Hello(hello));
        let node = NodeId {
            role: Role::Icn,
            index: icn,
        };
        let incarnation = Incarnation(0);
        self.sessions
            .insert(conn, Some(Session { node, incarnation }));
        // A challenge that was repeated is answered, too, and changes nothing.
        if self.peers.conn_of(icn) != Some(conn) {
            self.set_peer_up(now, icn, conn, minor);
        }
    }

    fn set_peer_up(&mut self, now: Timestamp, icn: u16, conn: ConnId, minor: u8) {
        if let Some(former) = self.peers.set_up(icn, conn, minor) {
            self.sessions.insert(former, None);
            self.transport.close(former);
        }
        self.ledger.handle_peer(now, icn, true);
    }

    /// Sends challenges again that no hello has answered.
    pub(super) fn challenge_again(&mut self, now: Timestamp) {
        for (conn, challenge) in self.challenges.due(now) {
            if !self.peer_guard.is_rejected(conn) {
                self.send(&[conn], &challenge);
            }
        }
    }

    pub(super) fn handle_hello(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        envelope: &Envelope,
        hello: Hello,
    ) {
        let (node, incarnation) = (envelope.sender, envelope.incarnation);
        if let Err(detail) = self.challenges.check(conn, hello.nonce) {
            return self.reject(now, conn, Code::WrongNonce, &detail);
        }
        if let Some(detail) = self.objection(node, &hello) {
            return self.send_refusal(now, conn, detail, 0);
        }
        let session = Session { node, incarnation };
        match node.role {
            Role::Icn => {
                self.transport.admit(conn, u32::MAX);
                self.sessions.insert(conn, Some(session));
                return self.set_peer_up(now, node.index, conn, envelope.minor);
            }
            Role::Operator => {
                // Orders are short, and there may be any number of operators.
                self.transport.admit(conn, EARLY_HEAD_BYTES_MAX);
                self.sessions.insert(conn, Some(session));
                return self.send_leadership(conn);
            }
            // A writer is refused above.
            Role::Flp | Role::Epn | Role::Writer => {}
        }
        let fair = self.clock.fair(now);
        let followed = Followed::of(envelope);
        if let Some(lead) = &mut self.lead {
            match lead.members.handle_hello(fair, node, incarnation) {
                Ok(events) => {
                    lead.left.remove(&node);
                    self.take_session(conn, session, hello, followed);
                    self.welcome(now, conn, session, events);
                }
                Err(error) => self.refuse_life(now, conn, &error),
            }
        } else {
            self.take_session(conn, session, hello, followed);
            self.send_leadership(conn);
        }
    }

    /// Welcomes a node that has become a member; `false` if it proves that the log was rolled back.
    pub(super) fn welcome(
        &mut self,
        now: Timestamp,
        conn: ConnId,
        session: Session,
        events: Vec<Joining>,
    ) -> bool {
        if !self.is_told_no_more_than_known(session) {
            return false;
        }
        self.send_leadership(conn);
        self.with_lead(now, |lead, context| lead.handle_joining(context, events));
        true
    }

    fn take_session(&mut self, conn: ConnId, session: Session, hello: Hello, followed: Followed) {
        if let Some(earlier) = self.conns.insert(session.node, conn)
            && earlier != conn
        {
            self.sessions.insert(earlier, None);
            self.transport.close(earlier);
        }
        self.transport.admit(conn, u32::MAX);
        self.peer_guard.named(conn, session.node);
        self.sessions.insert(conn, Some(session));
        self.hellos.insert(session.node, hello);
        self.followed.insert(session.node, followed);
    }

    /// Answers a hello: the leader takes the node in, a standby keeps its stream.
    pub(super) fn send_leadership(&mut self, conn: ConnId) {
        let control = if self.lead.is_some() {
            let pulse = self.terms.liveness.pulse().as_nanos();
            Control::Welcome(Welcome {
                pulse_ns: u64::try_from(pulse).unwrap_or(u64::MAX),
                stf_bytes_max: self.terms.stf_bytes_max,
            })
        } else {
            Control::Standby
        };
        self.send(&[conn], &control);
    }

    pub(super) fn refuse_life(&mut self, now: Timestamp, conn: ConnId, error: &JoinError) {
        let JoinError::Earlier { known, .. } = error;
        self.send_refusal(now, conn, error.to_string(), known.saturating_add(1));
    }

    fn send_refusal(&mut self, now: Timestamp, conn: ConnId, detail: String, incarnation_min: u64) {
        self.peer_guard.note(now, conn, Code::RefusedJoin, &detail);
        let refusal = Control::Refused {
            detail,
            incarnation_min,
        };
        self.send(&[conn], &refusal);
        self.transport.finish(conn);
    }
}
