//! One TLS session: what goes over the wire for what the two ends say.
//!
//! The session moves no bytes itself. It takes apart what was read, and puts together what is to be written; when,
//! and in which pieces, is the business of the connection.

mod in_kernel;

use super::address::Address;
use super::records::{Records, Step};
use crate::transport::{ListenerId, TlsFailure};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{DnsName, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{CertificateError, CommonState, HandshakeKind, InvalidMessage};
use sheaf_auth::{Identity, Moment, PeerError, Tls};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;

/// Room for what a session says in most cases. A certificate needs more, and says how much.
const SAID_BYTES: usize = 512;

/// One end of a session.
pub(super) struct Session {
    end: End,
    tls: Tls,
    /// Identity of the peer. Known from the end of the handshake on.
    peer: Option<Identity>,
    /// Listener and peer of the connection, until its acceptance is reported.
    pub(super) arrival: Option<(ListenerId, String)>,
    /// Bytes read and not yet decrypted: the beginning of a record, or, while a body waits for its place, all
    /// that came behind it.
    pub(super) incoming: Vec<u8>,
    /// Whether an error has ended it. The library must not be asked anything then: it keeps places in an input that is
    /// gone.
    is_broken: bool,
    /// Bytes that the kernel did not take yet.
    pub(super) outgoing: Vec<u8>,
    protection: Protection,
    kernel: Kernel,
}

/// Way in which the records of a session are protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protection {
    /// Whether the kernel is to do it, if it can.
    pub(crate) wants_kernel: bool,
    /// Records under one key at the most, if fewer than the suite allows.
    pub(crate) records_max: Option<u64>,
}

/// Part of the kernel in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// Nothing, or nothing more than it does.
    Apart,
    /// Wanted to protect records, as soon as nothing is between the session and the socket.
    Wanted,
    /// The socket is ready for keys.
    Ready,
}

enum End {
    /// In the handshake.
    Client(UnbufferedClientConnection),
    /// In the handshake.
    Server(UnbufferedServerConnection),
    /// Behind the handshake.
    Open(Box<Records>),
    /// Behind an error between the two.
    Over,
}

impl Session {
    /// Creates the session of a connection that we make to `peer`.
    pub(super) fn client(
        tls: &Tls,
        peer: &Address,
        protection: Protection,
    ) -> Result<Self, TlsFailure> {
        let end = UnbufferedClientConnection::new(tls.client(), session_name(peer))
            .map_err(|error| failure(&error))?;
        Ok(Self::new(End::Client(end), tls, None, protection))
    }

    /// Creates the session of a connection that came in.
    pub(super) fn server(
        tls: &Tls,
        arrival: (ListenerId, String),
        protection: Protection,
    ) -> Result<Self, TlsFailure> {
        let end = UnbufferedServerConnection::new(tls.server()).map_err(|error| failure(&error))?;
        Ok(Self::new(End::Server(end), tls, Some(arrival), protection))
    }

    fn new(
        end: End,
        tls: &Tls,
        arrival: Option<(ListenerId, String)>,
        protection: Protection,
    ) -> Self {
        Self {
            end,
            tls: tls.clone(),
            peer: None,
            arrival,
            incoming: Vec::new(),
            is_broken: false,
            outgoing: Vec::new(),
            protection,
            kernel: match protection.wants_kernel {
                true => Kernel::Wanted,
                false => Kernel::Apart,
            },
        }
    }

    /// Returns who is at the other end, once the handshake is over.
    pub(super) fn peer(&self) -> Option<&Identity> {
        self.peer.as_ref()
    }

    /// Returns whether frames can go over it.
    pub(super) fn stands(&self) -> bool {
        matches!(self.end, End::Open(_)) && !self.is_broken
    }

    /// Returns the state of the handshake; `None` behind it.
    fn handshake(&self) -> Option<&CommonState> {
        match &self.end {
            End::Client(end) => Some(end),
            End::Server(end) => Some(end),
            End::Open(_) | End::Over => None,
        }
    }

    /// Returns whether the handshake is over and the peer is not identified yet.
    pub(super) fn is_to_be_met(&self) -> bool {
        let state = self.handshake();
        self.peer.is_none() && state.is_some_and(|state| !state.is_handshaking())
    }

    /// Looks who is there. Says whether an earlier session was taken up.
    pub(super) fn meet(&mut self) -> Result<bool, TlsFailure> {
        let state = self.handshake();
        let chain = state.and_then(|state| state.peer_certificates());
        let is_resumed = state.and_then(CommonState::handshake_kind);
        let is_resumed = is_resumed == Some(HandshakeKind::Resumed);
        let peer = self.tls.peer(chain, Moment::now());
        let peer = peer.map_err(|error| match error {
            PeerError::NoCertificate => TlsFailure::NoCertificate,
            other => TlsFailure::Certificate(other.to_string()),
        })?;
        self.peer = Some(peer);
        Ok(is_resumed)
    }

    /// Takes the records over from the TLS library, once the peer is known and the library has nothing more to say.
    pub(super) fn open(&mut self) -> Result<(), TlsFailure> {
        let state = self.handshake();
        if self.peer.is_none() || state.is_none_or(CommonState::wants_write) {
            return Ok(());
        }
        let records = match std::mem::replace(&mut self.end, End::Over) {
            End::Client(end) => Records::of_client(end),
            End::Server(end) => Records::of_server(end),
            End::Open(_) | End::Over => return Ok(()),
        };
        let records = records.map_err(|error| failure(&error));
        self.is_broken |= records.is_err();
        let mut records = records?;
        records.limit(self.protection.records_max);
        self.end = End::Open(Box::new(records));
        Ok(())
    }

    /// Does one step with `input`, which begins at a record: puts plain bytes into `sink` and what is to be sent behind
    /// [`outgoing`](Self::outgoing). Says how many bytes of `input` are done with.
    pub(super) fn step(
        &mut self,
        input: &mut [u8],
        sink: impl FnMut(&[u8]),
    ) -> (usize, Result<Step, TlsFailure>) {
        let outgoing = &mut self.outgoing;
        let (bytes, step) = match &mut self.end {
            End::Client(end) => take(end.process_tls_records(input), outgoing, sink),
            End::Server(end) => take(end.process_tls_records(input), outgoing, sink),
            End::Open(records) => records.step(input, outgoing, sink),
            End::Over => (0, Err(is_over())),
        };
        self.is_broken |= step.is_err();
        (bytes, step)
    }

    /// Encrypts `plain` into the front of `place` and says how many bytes that came to. What lies in
    /// [`outgoing`](Self::outgoing) must have been sent before: records have an order.
    pub(super) fn encrypt(&mut self, plain: &[u8], place: &mut [u8]) -> Result<usize, TlsFailure> {
        match &mut self.end {
            End::Open(records) if !self.is_broken => records.encrypt(plain, place),
            _ => Err(is_over()),
        }
    }

    /// Puts behind [`outgoing`](Self::outgoing) that nothing more comes from us.
    pub(super) fn end(&mut self) -> Result<(), TlsFailure> {
        match &mut self.end {
            End::Open(records) if !self.is_broken => records.end(&mut self.outgoing),
            _ => return Err(is_over()),
        }
        Ok(())
    }

    /// After an error: what is to be said to the peer about it lies in [`outgoing`](Self::outgoing) then.
    pub(super) fn collect_alert(&mut self) {
        if let End::Open(records) = &mut self.end {
            records.collect_alert(&mut self.outgoing);
        }
        // No step further: after an error the library must not be asked to look at its input again.
        while self.handshake().is_some_and(CommonState::wants_write) {
            let (_, step) = self.step(&mut [], |_| {});
            if step.is_err() {
                return;
            }
        }
    }

    /// Returns whether there is something that the socket could take, beside frames.
    pub(super) fn has_output(&self) -> bool {
        let has_said = matches!(&self.end, End::Open(records) if records.has_said());
        has_said || !self.outgoing.is_empty()
    }

    #[cfg(test)]
    pub(super) fn records(&mut self) -> &mut Records {
        match &mut self.end {
            End::Open(records) => records,
            _ => panic!("the handshake is not over"),
        }
    }
}

fn is_over() -> TlsFailure {
    TlsFailure::Protocol("the session is over".to_owned())
}

/// Deals with the state that a session is in.
fn take<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Vec<u8>,
    mut sink: impl FnMut(&[u8]),
) -> (usize, Result<Step, TlsFailure>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    sink(record.payload);
                }
                Some(Err(error)) => break Err(failure(&error)),
                None => break Ok(Step::Went),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            append(&mut data, outgoing).map(|()| Step::Went)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // It lies in the queue in its place, which is as good as sent.
            data.done();
            Ok(Step::Went)
        }
        Ok(ConnectionState::PeerClosed) => Ok(Step::PeerEnds),
        Ok(ConnectionState::ReadEarlyData(_)) => {
            Err(TlsFailure::Protocol("data before the handshake".to_owned()))
        }
        Ok(_) => Ok(Step::Waits),
        Err(error) => Err(failure(&error)),
    };
    (discard, step)
}

/// Puts what the session has to say behind what is in `out`.
fn append<Data>(data: &mut EncodeTlsData<'_, Data>, out: &mut Vec<u8>) -> Result<(), TlsFailure> {
    let filled = out.len();
    let mut room = SAID_BYTES;
    loop {
        out.resize(filled + room, 0);
        match data.encode(&mut out[filled..]) {
            Ok(bytes) => {
                out.truncate(filled + bytes);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(short)) if short.required_size > room => {
                room = short.required_size;
            }
            Err(error) => {
                out.truncate(filled);
                return Err(TlsFailure::Protocol(error.to_string()));
            }
        }
    }
}

/// Returns the name under which the client keeps sessions to resume: it is neither resolved nor sent. Each address has
/// its own, since the tickets of one node are worth nothing at another.
fn session_name(peer: &Address) -> ServerName<'static> {
    let name = match peer {
        Address::Inet(peer) => {
            let host = peer.ip().to_string().replace([':', '.'], "-");
            format!("p{}.a{host}a", peer.port())
        }
        Address::Unix(path) => {
            // Two of one digest would try tickets in vain, no more.
            let mut digest = DefaultHasher::new();
            path.hash(&mut digest);
            format!("u{:016x}.unix", digest.finish())
        }
    };
    let fallback = || ServerName::from(peer.ip().unwrap_or(Ipv4Addr::LOCALHOST.into()));
    DnsName::try_from(name).map_or_else(|_| fallback(), ServerName::DnsName)
}

/// Returns what an error of the TLS library means to a node.
fn failure(error: &rustls::Error) -> TlsFailure {
    use rustls::Error;
    match error {
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::InvalidEmptyPayload,
        ) => TlsFailure::Plain,
        Error::NoCertificatesPresented => TlsFailure::NoCertificate,
        Error::InvalidCertificate(error) => TlsFailure::Certificate(certificate_error(error)),
        Error::AlertReceived(alert) => TlsFailure::Alert(format!("{alert:?}")),
        other => TlsFailure::Protocol(other.to_string()),
    }
}

fn certificate_error(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it was not signed by the CA of this farm".to_owned()
        }
        CertificateError::ExpiredContext { not_after, .. } => {
            let seconds = i64::try_from(not_after.as_secs()).unwrap_or(i64::MAX);
            format!("it expired at {}", Moment(seconds))
        }
        CertificateError::NotValidYetContext { not_before, .. } => {
            let seconds = i64::try_from(not_before.as_secs()).unwrap_or(i64::MAX);
            format!("it is valid from {} on", Moment(seconds))
        }
        other => other.to_string(),
    }
}
