//! The connection of a side: bytes in the clear, or TLS 1.3 around them.
//!
//! Both ends of a session do what rustls lets them do at the least cost. The sender gives many pieces to one call and
//! writes the records that come of them with one `writev`. The receiver reads up to 256 KiB at a time into a buffer of
//! its own, has the records decrypted where they lie, and copies what was in them to where it is wanted; the stream
//! interface of rustls would read 4 KiB at a time.

use anyhow::{Context as _, Result};
use rustls::client::{ClientConfig, ClientConnection};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::{ServerConfig, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{RootCertStore, version};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Bytes that the receiver reads at a time.
const READ_BYTES: usize = 256 << 10;
/// Room for a record of what the receiver sends: single bytes.
const RECORD_BYTES: usize = 256;
/// Name in the certificate.
const NAME: &str = "localhost";

/// Certificate of a run and its key, both made for that run alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Certificate {
    /// The certificate, in DER.
    certificate: Vec<u8>,
    /// Private key, in PKCS #8.
    key: Vec<u8>,
}

impl Certificate {
    /// Makes a certificate that signs itself.
    pub(crate) fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])
            .context("cannot make a certificate")?;
        Ok(Self {
            certificate: made.cert.der().to_vec(),
            key: made.signing_key.serialize_der(),
        })
    }

    fn client(&self) -> Result<ClientConnection> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.certificate.clone()))?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut session = ClientConnection::new(Arc::new(config), ServerName::try_from(NAME)?)?;
        // A batch is taken whole.
        session.set_buffer_limit(None);
        Ok(session)
    }

    fn server(&self) -> Result<UnbufferedServerConnection> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.clone()));
        let chain = vec![CertificateDer::from(self.certificate.clone())];
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(UnbufferedServerConnection::new(Arc::new(config))?)
    }
}

/// Returns ring with the one cipher suite that a farm uses.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..ring::default_provider()
    })
}

/// One end of the connection. The sender is the client of a session.
pub(crate) enum Link {
    /// In the clear.
    Plain(TcpStream),
    /// The sender's end of a session.
    Sender(Box<SenderSession>),
    /// The receiver's end of a session.
    Receiver(Box<ReceiverSession>),
}

impl Link {
    /// The sender's end; with a certificate, that of a session.
    pub(crate) fn of_sender(stream: TcpStream, tls: Option<&Certificate>) -> Result<Self> {
        let Some(certificate) = tls else {
            return Ok(Self::Plain(stream));
        };
        let session = certificate.client()?;
        Ok(Self::Sender(Box::new(SenderSession { stream, session })))
    }

    /// The receiver's end; with a certificate, that of a session.
    pub(crate) fn of_receiver(stream: TcpStream, tls: Option<&Certificate>) -> Result<Self> {
        let Some(certificate) = tls else {
            return Ok(Self::Plain(stream));
        };
        Ok(Self::Receiver(Box::new(ReceiverSession {
            stream,
            session: certificate.server()?,
            incoming: vec![0; READ_BYTES],
            filled: 0,
            plain: Vec::new(),
            given: 0,
        })))
    }

    /// Waits until the next bytes can be read. None may have come before.
    pub(crate) fn wait(&self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream,
            Self::Sender(end) => &end.stream,
            Self::Receiver(end) => &end.stream,
        }
        .peek(&mut [0])
        .map(|_| ())
    }
}

impl Read for Link {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(place),
            Self::Sender(end) => rustls::Stream::new(&mut end.session, &mut end.stream).read(place),
            Self::Receiver(end) => end.read(place),
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write_vectored(pieces),
            Self::Sender(end) => end.write(pieces),
            Self::Receiver(end) => {
                let piece = pieces.iter().find(|piece| !piece.is_empty());
                piece.map_or(Ok(0), |piece| end.write(piece))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The sender's end of a session.
pub(crate) struct SenderSession {
    stream: TcpStream,
    session: ClientConnection,
}

impl SenderSession {
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let taken = self.session.writer().write_vectored(pieces)?;
        while self.session.wants_write() {
            match self.session.write_tls(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }
}

/// The receiver's end of a session.
pub(crate) struct ReceiverSession {
    stream: TcpStream,
    session: UnbufferedServerConnection,
    /// Bytes of the stream, of which the first `filled` have come and are not decrypted.
    incoming: Vec<u8>,
    filled: usize,
    /// Decrypted bytes that had no room where they were wanted, of which `given` have been given out since.
    plain: Vec<u8>,
    given: usize,
}

/// State of a session after a step.
#[derive(PartialEq)]
enum Step {
    /// Bytes that were put where they were wanted.
    Got(usize),
    /// The session said something, and there may be more to do.
    Went,
    /// The session needs more bytes of the stream.
    Waits,
    /// The sender has ended the session.
    Ended,
}

impl ReceiverSession {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        let left = &self.plain[self.given..];
        if !left.is_empty() {
            let bytes = left.len().min(place.len());
            place[..bytes].copy_from_slice(&left[..bytes]);
            self.given += bytes;
            return Ok(bytes);
        }
        self.plain.clear();
        self.given = 0;
        loop {
            match self.step(place)? {
                Step::Got(bytes) => return Ok(bytes),
                Step::Went => {}
                Step::Ended => return Ok(0),
                Step::Waits => {
                    if self.fill()? == 0 {
                        return Ok(0);
                    }
                }
            }
        }
    }

    /// Sends a few bytes, after the handshake.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let step = {
                let status = self
                    .session
                    .process_tls_records(&mut self.incoming[..self.filled]);
                if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state {
                    let bytes = &bytes[..bytes.len().min(RECORD_BYTES / 2)];
                    let mut record = [0; RECORD_BYTES];
                    let length = traffic.encrypt(bytes, &mut record);
                    let length = length.map_err(io::Error::other)?;
                    self.stream.write_all(&record[..length])?;
                    return Ok(bytes.len());
                }
                take(status, &mut self.stream, &mut [], &mut self.plain)
            };
            match self.done(step)? {
                Step::Waits => {
                    if self.fill()? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Step::Ended => return Err(io::ErrorKind::BrokenPipe.into()),
                Step::Got(_) | Step::Went => {}
            }
        }
    }

    fn step(&mut self, place: &mut [u8]) -> io::Result<Step> {
        let status = self
            .session
            .process_tls_records(&mut self.incoming[..self.filled]);
        let step = take(status, &mut self.stream, place, &mut self.plain);
        self.done(step)
    }

    /// Takes away the bytes that the session is done with.
    fn done(&mut self, (bytes, step): (usize, io::Result<Step>)) -> io::Result<Step> {
        self.incoming.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
        step
    }

    fn fill(&mut self) -> io::Result<usize> {
        loop {
            match self.stream.read(&mut self.incoming[self.filled..]) {
                Ok(bytes) => {
                    self.filled += bytes;
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Deals with the state of a session: puts decrypted bytes into `place` and behind `plain` what has no room there, and
/// says how many bytes of the stream are done with.
fn take<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    stream: &mut TcpStream,
    place: &mut [u8],
    plain: &mut Vec<u8>,
) -> (usize, io::Result<Step>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => {
            let mut got = 0;
            loop {
                match traffic.next_record() {
                    Some(Ok(record)) => {
                        discard += record.discard;
                        let rest = &mut place[got..];
                        let (fits, over) = record
                            .payload
                            .split_at(record.payload.len().min(rest.len()));
                        rest[..fits.len()].copy_from_slice(fits);
                        got += fits.len();
                        plain.extend_from_slice(over);
                    }
                    Some(Err(error)) => break Err(io::Error::other(error)),
                    None if got == 0 => break Ok(Step::Went),
                    None => break Ok(Step::Got(got)),
                }
            }
        }
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let mut said = vec![0; RECORD_BYTES];
            let mut encoded = data.encode(&mut said);
            if let Err(EncodeError::InsufficientSize(short)) = &encoded {
                said.resize(short.required_size, 0);
                encoded = data.encode(&mut said);
            }
            let sent = encoded.map_err(io::Error::other);
            sent.and_then(|bytes| stream.write_all(&said[..bytes]))
                .map(|()| Step::Went)
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Ok(Step::Went)
        }
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Ended),
        Ok(_) => Ok(Step::Waits),
        Err(error) => Err(io::Error::other(error)),
    };
    (discard, step)
}
