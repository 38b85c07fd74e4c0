//! Records of an open TLS session: encrypted and decrypted in the buffers of the transport.
//!
//! rustls makes the session: handshake, certificates, keys, tickets, and the keys that follow these. Its records go
//! through memory of their own on both sides, which cost a fifth of the processor time of a node under TLS. Here a
//! record is encrypted where the system call takes it from, and decrypted where it was read
//! (docs/adr/2026-11-29-records-of-tls-in-the-buffers-of-the-transport.md). Sections are those of RFC 8446.

use super::kernel_tls::{self, Way};
use crate::transport::TlsFailure;
use ring::aead::{
    AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, Tag, UnboundKey,
};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::cipher::{self, Iv};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::{AlertDescription, ConnectionTrafficSecrets, ContentType, HandshakeType};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;

/// Plain bytes of a record at the most (section 5.1).
pub(super) const PLAIN_BYTES_MAX: usize = 16 << 10;

/// Bytes of a record behind its header at the most (section 5.2).
const CIPHER_BYTES_MAX: usize = PLAIN_BYTES_MAX + 256;

/// Content type, version and length.
const HEADER_BYTES: usize = 5;

/// Bytes that authenticate a record, the same for all three algorithms.
const TAG_BYTES: usize = 16;

/// Overhead of encryption for every record, in bytes: header, content type, tag.
pub(super) const OVERHEAD: usize = HEADER_BYTES + 1 + TAG_BYTES;

/// The longest TLS record.
pub(super) const BYTES_MAX: usize = HEADER_BYTES + CIPHER_BYTES_MAX;

/// Bytes of a message of the handshake at the most, as rustls has it.
const MESSAGE_BYTES_MAX: usize = (64 << 10) - 1;

/// Changes of keys that a peer may ask for before it sends data, as in rustls and BoringSSL.
const KEY_UPDATES_MAX: u8 = 32;

/// Error of a record.
#[derive(Debug)]
pub(super) struct Refused {
    /// For the peer, unless the session ends by its own alert.
    alert: Option<AlertDescription>,
    failure: TlsFailure,
}

impl Refused {
    fn new(alert: AlertDescription, text: String) -> Self {
        Self {
            alert: Some(alert),
            failure: TlsFailure::Protocol(text),
        }
    }

    /// Something that is not allowed where it comes.
    fn unexpected(text: String) -> Self {
        Self::new(AlertDescription::UnexpectedMessage, text)
    }

    /// Something that cannot be read.
    fn damaged(text: String) -> Self {
        Self::new(AlertDescription::DecodeError, text)
    }

    /// An error of the TLS library.
    fn internal(error: &rustls::Error) -> Self {
        Self::new(AlertDescription::InternalError, error.to_string())
    }
}

type Result<T> = std::result::Result<T, Refused>;

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

/// Protection of the records of an open session.
pub(super) struct Records {
    keys: Keys,
    tx: Direction,
    rx: Direction,
    /// Records under one key at the most (section 5.5).
    records_max: u64,
    /// First bytes of a message of the handshake that comes in several records.
    message: Vec<u8>,
    key_updates_left: u8,
    /// Our direction has ended: nothing may follow.
    has_ended: bool,
    /// The peer has ended its direction; what follows counts for nothing.
    is_ended: bool,
    /// For the peer, after an error.
    alert: Option<AlertDescription>,
    /// Records that are not data, to be sent in the order in which they are here by the kernel, which has our keys.
    said: VecDeque<Said>,
}

/// A record that the kernel is to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// Of two bytes: level and description.
    Alert([u8; 2]),
    /// The records behind it have new keys.
    KeyUpdate,
}

/// The part of a session that stays with rustls.
enum Keys {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

/// Keys of one direction.
pub(super) struct Direction {
    key: LessSafeKey,
    secrets: ConnectionTrafficSecrets,
    iv: Iv,
    /// Number of the next record; where the kernel makes them, at least that.
    sequence: u64,
    /// Whether the socket has the keys.
    is_in_kernel: bool,
}

impl Records {
    /// Takes over from a client whose handshake is done and that has nothing more to send.
    pub(super) fn of_client(
        end: UnbufferedClientConnection,
    ) -> std::result::Result<Self, rustls::Error> {
        let (secrets, keys) = end.dangerous_into_kernel_connection()?;
        let records_max = records_max(&keys);
        Self::new(Keys::Client(keys), secrets, records_max)
    }

    /// Takes over from a server whose handshake is done and that has nothing more to send.
    pub(super) fn of_server(
        end: UnbufferedServerConnection,
    ) -> std::result::Result<Self, rustls::Error> {
        let (secrets, keys) = end.dangerous_into_kernel_connection()?;
        let records_max = records_max(&keys);
        Self::new(Keys::Server(keys), secrets, records_max)
    }

    fn new(
        keys: Keys,
        secrets: rustls::ExtractedSecrets,
        records_max: u64,
    ) -> std::result::Result<Self, rustls::Error> {
        Ok(Self {
            keys,
            tx: Direction::new(secrets.tx)?,
            rx: Direction::new(secrets.rx)?,
            records_max,
            message: Vec::new(),
            key_updates_left: KEY_UPDATES_MAX,
            has_ended: false,
            is_ended: false,
            alert: None,
            said: VecDeque::new(),
        })
    }

    /// Changes keys after `records_max` records, if these are fewer than the suite allows.
    pub(super) fn limit(&mut self, records_max: Option<u64>) {
        self.records_max = self.records_max.min(records_max.unwrap_or(u64::MAX));
    }

    /// Returns whether the kernel protects the records of a direction.
    pub(super) fn is_in_kernel(&self, way: Way) -> bool {
        match way {
            Way::Send => self.tx.is_in_kernel,
            Way::Receive => self.rx.is_in_kernel,
        }
    }

    /// Returns whether the keys of a direction may still be given to the kernel.
    pub(super) fn may_give(&self, way: Way) -> bool {
        let has_ended = match way {
            Way::Send => self.has_ended,
            Way::Receive => self.is_ended,
        };
        !has_ended && !self.is_in_kernel(way)
    }

    /// Gives the keys of a direction to the kernel. Nothing may be between us and the socket: no record that is not
    /// sent, or was read in part.
    pub(super) fn give(&mut self, way: Way, socket: impl AsFd) -> io::Result<()> {
        let direction = match way {
            Way::Send => &mut self.tx,
            Way::Receive => &mut self.rx,
        };
        kernel_tls::give(socket, way, direction.sequence, &direction.secrets)?;
        direction.is_in_kernel = true;
        Ok(())
    }

    /// Notes that the kernel made data of `bytes` out of `slices` into records, and asks for new keys if these have
    /// been used enough.
    pub(super) fn sent_by_kernel(&mut self, bytes: usize, slices: usize) {
        // Never fewer than it made: each call ends a record, and so may each slice.
        self.tx.sequence += (bytes / PLAIN_BYTES_MAX + slices + 1) as u64;
        if self.tx.sequence >= self.records_max && !self.said.contains(&Said::KeyUpdate) {
            self.said.push_back(Said::KeyUpdate);
        }
    }

    /// Returns whether the kernel has to send something that is not data.
    pub(super) fn has_said(&self) -> bool {
        !self.said.is_empty()
    }

    /// Sends what is not data through the kernel, as far as the socket takes it.
    ///
    /// # Errors
    ///
    /// Those of the socket, [`ErrorKind::WouldBlock`](io::ErrorKind::WouldBlock) if it is full, and new keys that the
    /// kernel does not take. Nothing is left to be sent then, unless the socket was full.
    pub(super) fn send_said(&mut self, socket: impl AsFd) -> io::Result<()> {
        let sent = self.send_all_said(socket);
        if let Err(error) = &sent
            && error.kind() != io::ErrorKind::WouldBlock
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.said.clear();
        }
        sent
    }

    fn send_all_said(&mut self, socket: impl AsFd) -> io::Result<()> {
        while let Some(said) = self.said.front() {
            match said {
                Said::Alert(alert) => {
                    kernel_tls::send_record(&socket, ContentType::Alert, alert)?;
                }
                Said::KeyUpdate => {
                    kernel_tls::send_record(&socket, ContentType::Handshake, &KEY_UPDATE)?;
                    self.change_tx().map_err(io::Error::other)?;
                    self.give(Way::Send, &socket)?;
                }
            }
            self.said.pop_front();
        }
        Ok(())
    }

    /// Takes a record that the kernel has opened.
    pub(super) fn take_opened(
        &mut self,
        kind: ContentType,
        content: &[u8],
        socket: impl AsFd,
        outgoing: &mut Vec<u8>,
    ) -> std::result::Result<Step, TlsFailure> {
        let taken = self.take(kind, content, outgoing, |_| {});
        let step = taken.map_err(|refused| {
            self.alert = refused.alert;
            refused.failure
        })?;
        if !self.rx.is_in_kernel {
            // The peer has changed its keys: a direction begins with us.
            let given = self.give(Way::Receive, socket);
            given.map_err(|error| TlsFailure::Protocol(format!("new keys: {error}")))?;
        }
        Ok(step)
    }

    /// Encrypts `plain` into the front of `place`, in as many records as it takes, and returns their bytes.
    ///
    /// # Errors
    ///
    /// [`TlsFailure::Protocol`] if there are no new keys; `place` must have room for all records and one more.
    pub(super) fn encrypt(
        &mut self,
        plain: &[u8],
        place: &mut [u8],
    ) -> std::result::Result<usize, TlsFailure> {
        let mut filled = 0;
        for piece in plain.chunks(PLAIN_BYTES_MAX) {
            if self.tx.sequence >= self.records_max {
                let renewed = self.renew_tx(&mut place[filled..]);
                filled += renewed.map_err(|refused| refused.failure)?;
            }
            let place = &mut place[filled..];
            filled += self.tx.seal(ContentType::ApplicationData, piece, place);
        }
        Ok(filled)
    }

    /// Puts behind `outgoing` that nothing more comes from us.
    pub(super) fn end(&mut self, outgoing: &mut Vec<u8>) {
        self.has_ended = true;
        self.alert(AlertDescription::CloseNotify, outgoing);
    }

    /// After an error: puts behind `outgoing` what the peer may know about it.
    pub(super) fn collect_alert(&mut self, outgoing: &mut Vec<u8>) {
        if let Some(alert) = self.alert.take() {
            self.alert(alert, outgoing);
        }
    }

    fn alert(&mut self, alert: AlertDescription, outgoing: &mut Vec<u8>) {
        // Levels mean nothing any more, but these two are asked for (section 6).
        let level = if alert == AlertDescription::CloseNotify {
            1
        } else {
            2
        };
        let content = [level, alert.into()];
        if self.tx.is_in_kernel {
            self.said.push_back(Said::Alert(content));
            return;
        }
        let mut record = [0; 2 + OVERHEAD];
        let bytes = self.tx.seal(ContentType::Alert, &content, &mut record);
        outgoing.extend_from_slice(&record[..bytes]);
    }

    /// Decrypts the record at the front of `input` where it lies and gives its plain bytes to `sink`; answers of the
    /// session go behind `outgoing`. Returns how many bytes of `input` are done with.
    pub(super) fn step(
        &mut self,
        input: &mut [u8],
        outgoing: &mut Vec<u8>,
        sink: impl FnMut(&[u8]),
    ) -> (usize, std::result::Result<Step, TlsFailure>) {
        if self.is_ended {
            return (input.len(), Ok(Step::Waits));
        }
        let outcome = self.open(input, outgoing, sink);
        match outcome {
            Ok(Some((bytes, step))) => (bytes, Ok(step)),
            Ok(None) => (0, Ok(Step::Waits)),
            Err(refused) => {
                self.alert = refused.alert;
                (0, Err(refused.failure))
            }
        }
    }

    /// Opens one record; `None` if it is not there whole.
    fn open(
        &mut self,
        input: &mut [u8],
        outgoing: &mut Vec<u8>,
        sink: impl FnMut(&[u8]),
    ) -> Result<Option<(usize, Step)>> {
        let Some(&[outer, _, _, high, low]) = input.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        if ContentType::from(outer) != ContentType::ApplicationData {
            let found = ContentType::from(outer);
            return Err(Refused::unexpected(format!(
                "a record of type {found:?} in the clear"
            )));
        }
        let cipher_bytes = usize::from(u16::from_be_bytes([high, low]));
        if cipher_bytes > CIPHER_BYTES_MAX {
            let text =
                format!("a record of {cipher_bytes} bytes, at most {CIPHER_BYTES_MAX} are allowed");
            return Err(Refused::new(AlertDescription::RecordOverflow, text));
        }
        let bytes = HEADER_BYTES + cipher_bytes;
        let Some(record) = input.get_mut(..bytes) else {
            return Ok(None);
        };
        let (kind, content) = self.rx.open(record)?;
        let step = self.take(kind, content, outgoing, sink)?;
        Ok(Some((bytes, step)))
    }

    /// Takes the content of a record.
    fn take(
        &mut self,
        kind: ContentType,
        content: &[u8],
        outgoing: &mut Vec<u8>,
        mut sink: impl FnMut(&[u8]),
    ) -> Result<Step> {
        if kind != ContentType::Handshake && !self.message.is_empty() {
            return Err(Refused::unexpected(format!(
                "{kind:?} inside a message of the handshake"
            )));
        }
        let step = match kind {
            ContentType::ApplicationData => {
                if !content.is_empty() {
                    self.key_updates_left = KEY_UPDATES_MAX;
                    sink(content);
                }
                Step::Went
            }
            ContentType::Alert => match *content {
                [_, alert] if AlertDescription::from(alert) == AlertDescription::CloseNotify => {
                    self.is_ended = true;
                    Step::PeerEnds
                }
                // Behind it comes the end (section 6.1).
                [_, alert] if AlertDescription::from(alert) == AlertDescription::UserCanceled => {
                    Step::Went
                }
                [_, alert] => {
                    return Err(Refused {
                        alert: None,
                        failure: TlsFailure::Alert(format!("{:?}", AlertDescription::from(alert))),
                    });
                }
                _ => {
                    return Err(Refused::damaged(format!(
                        "an alert of {} bytes",
                        content.len()
                    )));
                }
            },
            ContentType::Handshake => {
                // In a buffer of its own: messages are rare and small.
                self.message.extend_from_slice(content);
                self.take_messages(outgoing)?;
                Step::Went
            }
            other => return Err(Refused::unexpected(format!("a record of type {other:?}"))),
        };
        Ok(step)
    }

    /// Takes the whole messages of the handshake that have come.
    fn take_messages(&mut self, outgoing: &mut Vec<u8>) -> Result<()> {
        let mut messages = std::mem::take(&mut self.message);
        let mut rest = messages.as_slice();
        while let [kind, length @ ..] = rest
            && let Some((length, body)) = length.split_first_chunk::<3>()
        {
            let kind = HandshakeType::from(*kind);
            let length = u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize;
            if length > MESSAGE_BYTES_MAX {
                return Err(Refused::damaged(format!(
                    "a message {kind:?} of {length} bytes"
                )));
            }
            let Some((body, behind)) = body.split_at_checked(length) else {
                break;
            };
            match (kind, &mut self.keys) {
                (HandshakeType::NewSessionTicket, Keys::Client(keys)) => {
                    let taken = keys.handle_new_session_ticket(body);
                    taken.map_err(|error| Refused::damaged(error.to_string()))?;
                }
                (HandshakeType::KeyUpdate, _) => self.renew_rx(body, behind, outgoing)?,
                (other, _) => return Err(Refused::unexpected(format!("a message {other:?}"))),
            }
            rest = behind;
        }
        let done = messages.len() - rest.len();
        messages.drain(..done);
        self.message = messages;
        Ok(())
    }

    /// The peer uses new keys from its next record on, and may ask for the same (section 4.6.3).
    fn renew_rx(&mut self, asks: &[u8], behind: &[u8], outgoing: &mut Vec<u8>) -> Result<()> {
        if !behind.is_empty() {
            return Err(Refused::unexpected(
                "a message behind a change of keys".to_owned(),
            ));
        }
        let is_asked = match asks {
            [0] => false,
            [1] => true,
            _ => return Err(Refused::damaged(format!("a change of keys with {asks:?}"))),
        };
        let secrets = match &mut self.keys {
            Keys::Client(keys) => keys.update_rx_secret(),
            Keys::Server(keys) => keys.update_rx_secret(),
        };
        self.rx = secrets
            .and_then(Direction::new)
            .map_err(|error| Refused::internal(&error))?;
        if is_asked {
            let left = self.key_updates_left.checked_sub(1);
            self.key_updates_left =
                left.ok_or_else(|| Refused::unexpected("too many changes of keys".to_owned()))?;
        }
        if is_asked && !self.has_ended {
            if self.tx.is_in_kernel {
                self.said.push_back(Said::KeyUpdate);
                return Ok(());
            }
            let mut record = [0; KEY_UPDATE.len() + OVERHEAD];
            let bytes = self.renew_tx(&mut record)?;
            outgoing.extend_from_slice(&record[..bytes]);
        }
        Ok(())
    }

    /// Says in `place` that the next record has new keys, and changes to them.
    fn renew_tx(&mut self, place: &mut [u8]) -> Result<usize> {
        let bytes = self.tx.seal(ContentType::Handshake, &KEY_UPDATE, place);
        self.change_tx()
            .map_err(|error| Refused::internal(&error))?;
        Ok(bytes)
    }

    fn change_tx(&mut self) -> std::result::Result<(), rustls::Error> {
        let secrets = match &mut self.keys {
            Keys::Client(keys) => keys.update_tx_secret(),
            Keys::Server(keys) => keys.update_tx_secret(),
        };
        self.tx = secrets.and_then(Direction::new)?;
        Ok(())
    }
}

/// Returns how many bytes are missing of the record of which `begun` is there, as far as they are known; `None` if
/// `begun` is empty.
pub(super) fn missing(begun: &[u8]) -> Option<usize> {
    let bytes = match begun {
        [] => return None,
        [_, _, _, high, low, ..] => HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low])),
        _ => HEADER_BYTES,
    };
    Some(bytes.saturating_sub(begun.len()))
}

/// Returns how many records one key of the suite of a session may protect.
fn records_max<Data>(keys: &KernelConnection<Data>) -> u64 {
    let suite = keys.negotiated_cipher_suite();
    suite
        .tls13()
        .map_or(0, |suite| suite.common.confidentiality_limit)
}

/// A message that keys change, which asks for nothing.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

impl Direction {
    pub(super) fn new(
        (sequence, secrets): (u64, ConnectionTrafficSecrets),
    ) -> std::result::Result<Self, rustls::Error> {
        let (algorithm, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv),
            _ => return Err(rustls::Error::General("an unknown cipher".to_owned())),
        };
        let key = UnboundKey::new(algorithm, key.as_ref());
        let key = key.map_err(|_| rustls::Error::General("a key of another length".to_owned()))?;
        let iv: [u8; cipher::NONCE_LEN] = iv.as_ref().try_into().expect("the length of its type");
        let iv = Iv::from(iv);
        Ok(Self {
            key: LessSafeKey::new(key),
            secrets,
            iv,
            sequence,
            is_in_kernel: false,
        })
    }

    /// Returns the nonce of the next record (section 5.3). Each is used once, since numbers only grow under a key.
    fn nonce(&mut self) -> Nonce {
        let nonce = cipher::Nonce::new(&self.iv, self.sequence);
        self.sequence = self
            .sequence
            .checked_add(1)
            .expect("keys change long before");
        Nonce::assume_unique_for_key(nonce.0)
    }

    /// Encrypts `content`, of at most [`PLAIN_BYTES_MAX`], into the front of `place`, and returns the bytes of the
    /// record.
    pub(super) fn seal(&mut self, kind: ContentType, content: &[u8], place: &mut [u8]) -> usize {
        let inner_bytes = content.len() + 1;
        let cipher_bytes = inner_bytes + TAG_BYTES;
        let record = &mut place[..HEADER_BYTES + cipher_bytes];
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        let length = u16::try_from(cipher_bytes).expect("a record of at most 16 KiB");
        let [high, low] = length.to_be_bytes();
        header.copy_from_slice(&[ContentType::ApplicationData.into(), 3, 3, high, low]);
        let (inner, tag) = body.split_at_mut(inner_bytes);
        inner[..content.len()].copy_from_slice(content);
        inner[content.len()] = kind.into();
        let nonce = self.nonce();
        let sealed = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::from(&*header), inner);
        let made: Tag = sealed.expect("a record is short enough for any cipher");
        tag.copy_from_slice(made.as_ref());
        HEADER_BYTES + cipher_bytes
    }

    /// Decrypts a whole record where it lies.
    pub(super) fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<(ContentType, &'a [u8])> {
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        let nonce = self.nonce();
        let opened = self.key.open_in_place(nonce, Aad::from(&*header), body);
        let plain: &[u8] = opened.map_err(|_| {
            let text = "a record that cannot be decrypted".to_owned();
            Refused::new(AlertDescription::BadRecordMac, text)
        })?;
        // The type is the last byte that is not padding.
        let Some(at) = plain.iter().rposition(|byte| *byte != 0) else {
            return Err(Refused::unexpected("a record without a type".to_owned()));
        };
        let (content, kind) = (&plain[..at], ContentType::from(plain[at]));
        if content.len() > PLAIN_BYTES_MAX {
            let text = format!("a record of {} plain bytes", content.len());
            return Err(Refused::new(AlertDescription::RecordOverflow, text));
        }
        Ok((kind, content))
    }
}

#[cfg(test)]
mod tests;
