//! One TLS session: what goes over the wire for what the two ends say.
//!
//! The session moves no bytes itself. It takes apart what was read, and puts together what is to be written; when,
//! and in which pieces, is the business of the connection.

use super::address::Address;
use crate::transport::{ListenerId, TlsFailure};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{DnsName, ServerName};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CertificateError, CommonState, HandshakeKind, InvalidMessage};
use sheaf_auth::{Identity, Moment, PeerError, Tls};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;

/// The longest TLS record: header, 16 KiB, and what encryption may add (RFC 8446, section 5.2).
pub(super) const RECORD_BYTES_MAX: usize = 5 + (16 << 10) + 256;

/// Overhead of encryption for every record, in bytes: header, content type, tag.
pub(super) const RECORD_OVERHEAD: usize = 5 + 1 + 16;

/// Room for the last record of a session, and for what the session has to say before it.
const END_BYTES: usize = 4 << 10;

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
    /// Whether whole records lie in [`incoming`](Self::incoming), because a body waits for its place.
    pub(super) is_paused: bool,
    /// Bytes that the kernel did not take yet.
    pub(super) outgoing: Vec<u8>,
}

enum End {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// Result of one step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Something happened; there may be more to do with the bytes at hand.
    Went,
    /// Nothing more happens without more bytes.
    Waits,
    /// The peer has said that it sends no more.
    PeerEnds,
}

impl Session {
    /// Creates the session of a connection that we make to `peer`.
    pub(super) fn client(tls: &Tls, peer: &Address) -> Result<Self, TlsFailure> {
        let end = UnbufferedClientConnection::new(tls.client(), session_name(peer))
            .map_err(|error| failure(&error))?;
        Ok(Self::new(End::Client(end), tls, None))
    }

    /// Creates the session of a connection that came in.
    pub(super) fn server(tls: &Tls, arrival: (ListenerId, String)) -> Result<Self, TlsFailure> {
        let end = UnbufferedServerConnection::new(tls.server()).map_err(|error| failure(&error))?;
        Ok(Self::new(End::Server(end), tls, Some(arrival)))
    }

    fn new(end: End, tls: &Tls, arrival: Option<(ListenerId, String)>) -> Self {
        Self {
            end,
            tls: tls.clone(),
            peer: None,
            arrival,
            incoming: Vec::new(),
            is_broken: false,
            is_paused: false,
            outgoing: Vec::new(),
        }
    }

    /// Returns who is at the other end, once the session stands.
    pub(super) fn peer(&self) -> Option<&Identity> {
        self.peer.as_ref()
    }

    /// Returns whether frames can go over it.
    pub(super) fn stands(&self) -> bool {
        self.peer.is_some() && !self.is_broken
    }

    fn state(&self) -> &CommonState {
        match &self.end {
            End::Client(end) => end,
            End::Server(end) => end,
        }
    }

    /// Returns whether the handshake is over and the peer is not identified yet.
    pub(super) fn is_to_be_met(&self) -> bool {
        self.peer.is_none() && !self.state().is_handshaking()
    }

    /// Looks who is there. Says whether an earlier session was taken up.
    pub(super) fn meet(&mut self) -> Result<bool, TlsFailure> {
        let chain = self.state().peer_certificates();
        let peer = self.tls.peer(chain, Moment::now());
        let peer = peer.map_err(|error| match error {
            PeerError::NoCertificate => TlsFailure::NoCertificate,
            other => TlsFailure::Certificate(other.to_string()),
        })?;
        self.peer = Some(peer);
        Ok(self.state().handshake_kind() == Some(HandshakeKind::Resumed))
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
        };
        self.is_broken |= step.is_err();
        (bytes, step)
    }

    /// Encrypts `plain` into the front of `place` and says how many bytes that came to. What lies in
    /// [`outgoing`](Self::outgoing) must have been sent before: records have an order.
    pub(super) fn encrypt(&mut self, plain: &[u8], place: &mut [u8]) -> Result<usize, TlsFailure> {
        self.write(place, |end, input, place, said| match end {
            End::Client(end) => traffic(end.process_tls_records(input), said, |traffic| {
                traffic.encrypt(plain, place)
            }),
            End::Server(end) => traffic(end.process_tls_records(input), said, |traffic| {
                traffic.encrypt(plain, place)
            }),
        })
    }

    /// Puts behind [`outgoing`](Self::outgoing) that nothing more comes from us.
    pub(super) fn end(&mut self) -> Result<(), TlsFailure> {
        let mut place = [0; END_BYTES];
        let bytes = self.write(&mut place, |end, input, place, said| match end {
            End::Client(end) => traffic(end.process_tls_records(input), said, |traffic| {
                traffic.queue_close_notify(place)
            }),
            End::Server(end) => traffic(end.process_tls_records(input), said, |traffic| {
                traffic.queue_close_notify(place)
            }),
        })?;
        self.outgoing.extend_from_slice(&place[..bytes]);
        Ok(())
    }

    /// After an error: what is to be said to the peer about it lies in [`outgoing`](Self::outgoing) then.
    pub(super) fn collect_alert(&mut self) {
        // No step further: after an error the library must not be asked to look at its input again.
        while self.state().wants_write() {
            let (_, step) = self.step(&mut [], |_| {});
            if step.is_err() {
                return;
            }
        }
    }

    /// Brings the session to where it takes plain bytes, and lets `write` put their cipher into `place`. What the
    /// session itself has to say (tickets, new keys) goes before it.
    fn write(
        &mut self,
        place: &mut [u8],
        mut write: impl FnMut(&mut End, &mut [u8], &mut [u8], &mut Vec<u8>) -> Written,
    ) -> Result<usize, TlsFailure> {
        if self.is_broken {
            return Err(TlsFailure::Protocol("the session is over".to_owned()));
        }
        let mut filled = 0;
        let mut said = Vec::new();
        loop {
            // The library keeps places in what it was shown and is not done with (half a message): it must be shown the
            // same again. Whole records it must not see here, or it would decrypt them; behind data there is no half.
            let input = if self.is_paused {
                &mut []
            } else {
                self.incoming.as_mut_slice()
            };
            if let Some(bytes) = write(&mut self.end, input, &mut place[filled..], &mut said)? {
                return Ok(filled + bytes);
            }
            let room = place.get_mut(filled..filled + said.len());
            let no_room = || TlsFailure::Protocol("the session has too much to say".to_owned());
            room.ok_or_else(no_room)?.copy_from_slice(&said);
            filled += said.len();
            said.clear();
        }
    }
}

/// Bytes that went into a place; none if the session had something to say itself.
type Written = Result<Option<usize>, TlsFailure>;

/// Lets `write` use the session if it takes plain bytes now; otherwise what it has to say goes to `said`.
fn traffic<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    said: &mut Vec<u8>,
    write: impl FnOnce(&mut WriteTraffic<'_, Data>) -> Result<usize, EncryptError>,
) -> Written {
    let status = match status {
        UnbufferedStatus {
            state: Ok(ConnectionState::WriteTraffic(mut traffic)),
            ..
        } => {
            let written = write(&mut traffic).map(Some);
            return written.map_err(|error| TlsFailure::Protocol(error.to_string()));
        }
        other => other,
    };
    // Everything that came in was taken apart when it came, so nothing plain can turn up here.
    match take(status, said, |_| {}) {
        (_, Ok(Step::Went)) => Ok(None),
        (_, Ok(_)) => Err(TlsFailure::Protocol(
            "the session takes nothing more".to_owned(),
        )),
        (_, Err(failure)) => Err(failure),
    }
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
