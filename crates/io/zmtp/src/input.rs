//! Input of a connection: greeting, then frames, then messages and commands.

use crate::error::PeerError;
use crate::frame::{FrameHead, FrameKind};
use crate::greeting::{Greeting, GreetingError};
use crate::message::Message;
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use std::io;
use std::os::fd::AsFd;

/// Bytes that one read takes for heads and small frames.
const BUFFER_BYTES: usize = 64 << 10;
/// A frame up to this size is copied out of the buffer when it has come whole; a larger one gets memory of its own,
/// which its bytes are read into.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// Bytes of a command at most. Larger than any that there is, beside a subscription to a very long topic.
const COMMAND_BYTES_MAX: u64 = 8 << 10;

/// Limits of messages of a peer. Checked against every length before memory is taken for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a frame.
    pub frame_bytes_max: u64,
    /// Bytes of all parts of a message.
    pub message_bytes_max: u64,
    /// Parts of a message.
    pub parts_max: usize,
}

impl Default for Limits {
    /// 64 MiB a message, in at most 4096 parts.
    fn default() -> Self {
        Self {
            frame_bytes_max: 64 << 20,
            message_bytes_max: 64 << 20,
            parts_max: 4096,
        }
    }
}

/// One thing that came in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// All parts of a message.
    Message(Message),
    /// The body of a command.
    Command(Bytes),
}

/// A frame whose bytes are still coming.
#[derive(Debug)]
struct Body {
    kind: FrameKind,
    bytes: Vec<u8>,
    needed: usize,
}

impl Body {
    fn missing(&self) -> usize {
        self.needed.saturating_sub(self.bytes.len())
    }
}

/// The receiving half of a connection. Holds at most one buffer, and the parts of one message.
#[derive(Debug, Default)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    /// Bytes of the buffer that were looked at.
    at: usize,
    body: Option<Body>,
    parts: Vec<Bytes>,
    parts_bytes: u64,
}

impl Input {
    /// Takes in what one read gives: straight into the frame that is under way, else into the buffer. 0: the peer has
    /// ended the stream.
    pub(crate) fn fill(&mut self, source: impl AsFd) -> io::Result<usize> {
        self.compact();
        if let Some(body) = &mut self.body
            && self.buffer.is_empty()
            && body.missing() > 0
        {
            let got = rustix::io::read(source, spare_capacity(&mut body.bytes))?;
            // A vector may have more room than was asked for: then this is the start of the next frame.
            if body.bytes.len() > body.needed {
                self.buffer.extend_from_slice(&body.bytes[body.needed..]);
                body.bytes.truncate(body.needed);
            }
            return Ok(got);
        }
        self.buffer
            .reserve(BUFFER_BYTES.saturating_sub(self.buffer.len()).max(1));
        Ok(rustix::io::read(source, spare_capacity(&mut self.buffer))?)
    }

    /// Takes in `bytes`, as if they had been read.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.compact();
        self.buffer.extend_from_slice(bytes);
    }

    fn compact(&mut self) {
        if self.at > 0 {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
    }

    fn unread(&self) -> &[u8] {
        self.buffer.get(self.at..).unwrap_or_default()
    }

    /// Returns the greeting, when all of it has come.
    pub(crate) fn greeting(&mut self) -> Result<Option<Greeting>, GreetingError> {
        let Some(bytes) = self.unread().first_chunk() else {
            return Greeting::check_start(self.unread()).map(|()| None);
        };
        let greeting = Greeting::decode(bytes)?;
        self.at += Greeting::SIZE;
        Ok(Some(greeting))
    }

    /// Returns the next message or command that has come whole.
    pub(crate) fn next(&mut self, limits: &Limits) -> Result<Option<Unit>, PeerError> {
        loop {
            let Some((kind, bytes)) = self.next_frame(limits)? else {
                return Ok(None);
            };
            let FrameKind::Part { more } = kind else {
                return Ok(Some(Unit::Command(bytes)));
            };
            self.parts_bytes += bytes.len() as u64;
            self.parts.push(bytes);
            if !more {
                self.parts_bytes = 0;
                return Ok(Some(Unit::Message(Message::new(std::mem::take(
                    &mut self.parts,
                )))));
            }
        }
    }

    fn next_frame(&mut self, limits: &Limits) -> Result<Option<(FrameKind, Bytes)>, PeerError> {
        if self.body.is_none() {
            let Some((head, size)) = FrameHead::decode(self.unread())? else {
                return Ok(None);
            };
            let needed = self.check(&head, limits)?;
            let unread = self.unread();
            if needed <= COPIED_BYTES_MAX {
                // The rest of a small frame comes with the next buffer, not by a read of its own.
                if unread.len() - size < needed {
                    return Ok(None);
                }
                let bytes = Bytes::copy_from_slice(&unread[size..size + needed]);
                self.at += size + needed;
                return Ok(Some((head.kind, bytes)));
            }
            self.at += size;
            let mut bytes = Vec::new();
            // Memory is only reserved: a page of it is taken when the first byte of it comes.
            if bytes.try_reserve_exact(needed).is_err() {
                return Err(PeerError::NoMemory { bytes: head.bytes });
            }
            self.body = Some(Body {
                kind: head.kind,
                bytes,
                needed,
            });
        }
        let Some(mut body) = self.body.take() else {
            return Ok(None);
        };
        let unread = self.unread();
        let taken = unread.len().min(body.missing());
        body.bytes.extend_from_slice(&unread[..taken]);
        self.at += taken;
        if body.missing() > 0 {
            self.body = Some(body);
            return Ok(None);
        }
        Ok(Some((body.kind, body.bytes.into())))
    }

    /// Holds a frame against the limits; gives its bytes.
    fn check(&self, head: &FrameHead, limits: &Limits) -> Result<usize, PeerError> {
        let found = head.bytes;
        let max = match head.kind {
            FrameKind::Command => COMMAND_BYTES_MAX,
            FrameKind::Part { .. } => limits.frame_bytes_max,
        };
        let too_large = PeerError::FrameTooLarge { found, max };
        if found > max {
            return Err(too_large);
        }
        if let FrameKind::Part { .. } = head.kind {
            let (found, max) = (
                self.parts_bytes.saturating_add(found),
                limits.message_bytes_max,
            );
            if found > max {
                return Err(PeerError::MessageTooLarge { found, max });
            }
            if self.parts.len() >= limits.parts_max {
                return Err(PeerError::TooManyParts {
                    max: limits.parts_max,
                });
            }
        }
        usize::try_from(found).map_err(|_| too_large)
    }

    /// Returns bytes held of what has not come whole, parts of an unfinished message included.
    pub(crate) fn held_bytes(&self) -> u64 {
        let body = self.body.as_ref().map_or(0, |body| body.bytes.len());
        (self.unread().len() + body) as u64 + self.parts_bytes
    }

    /// Returns whether the stream may end here.
    pub(crate) fn is_between(&self) -> bool {
        self.unread().is_empty() && self.body.is_none() && self.parts.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    const LIMITS: Limits = Limits {
        frame_bytes_max: 100_000,
        message_bytes_max: 150_000,
        parts_max: 3,
    };

    fn frame(kind: FrameKind, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        FrameHead {
            kind,
            bytes: body.len() as u64,
        }
        .encode(&mut bytes);
        bytes.extend_from_slice(body);
        bytes
    }

    fn part(more: bool, body: &[u8]) -> Vec<u8> {
        frame(FrameKind::Part { more }, body)
    }

    /// Everything that `stream` gives in pieces of `piece` bytes.
    fn units(stream: &[u8], piece: usize) -> Result<Vec<Unit>, PeerError> {
        let mut input = Input::default();
        let mut units = Vec::new();
        for bytes in stream.chunks(piece) {
            input.push(bytes);
            while let Some(unit) = input.next(&LIMITS)? {
                units.push(unit);
            }
        }
        assert!(input.is_between());
        assert_eq!(input.held_bytes(), 0);
        Ok(units)
    }

    #[test]
    fn messages_and_commands_come_whole_whatever_the_pieces() {
        let large = vec![7; 90_000];
        let stream = [
            part(true, b"head"),
            part(false, &large),
            frame(FrameKind::Command, b"\x04PONG"),
            part(false, b""),
            part(true, b""),
            part(true, b"x"),
            part(false, &large),
        ]
        .concat();
        let message = |parts: &[&[u8]]| {
            Unit::Message(Message::new(
                parts
                    .iter()
                    .map(|part| Bytes::copy_from_slice(part))
                    .collect(),
            ))
        };
        let expected = [
            message(&[b"head", &large]),
            Unit::Command(Bytes::from_static(b"\x04PONG")),
            message(&[b""]),
            message(&[b"", b"x", &large]),
        ];
        for piece in [1, 2, 9, 1000, 70_000, stream.len()] {
            assert_eq!(
                units(&stream, piece).unwrap(),
                expected,
                "pieces of {piece}"
            );
        }
    }

    #[test]
    fn a_socket_is_read_straight_into_a_large_frame_and_never_beyond_it() {
        let (mut near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let (first, second) = (vec![1; 90_000], vec![2; 60_000]);
        let stream = [part(false, &first), part(true, b"x"), part(false, &second)].concat();
        let writer = std::thread::spawn(move || near.write_all(&stream).unwrap());
        far.set_nonblocking(false).unwrap();
        let mut input = Input::default();
        let mut messages = Vec::new();
        while messages.len() < 2 {
            assert!(input.fill(&far).unwrap() > 0);
            while let Some(unit) = input.next(&LIMITS).unwrap() {
                messages.push(unit);
            }
        }
        writer.join().unwrap();
        let second = vec![Bytes::from_static(b"x"), second.into()];
        assert_eq!(
            messages,
            [
                Unit::Message(Bytes::from(first).into()),
                Unit::Message(Message::new(second))
            ]
        );
        assert_eq!(input.fill(&far).unwrap(), 0);
    }

    #[test]
    fn small_frames_cost_one_read_for_a_buffer_of_them() {
        let frames = 100;
        let stream = part(false, &[7; 10_000]).repeat(frames);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&stream).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let (mut input, mut reads, mut messages) = (Input::default(), 0, 0);
        while messages < frames {
            assert!(input.fill(&file).unwrap() > 0);
            reads += 1;
            while input.next(&LIMITS).unwrap().is_some() {
                messages += 1;
            }
        }
        // What is left of a frame at the end of a buffer is read with the next ones, not for itself.
        assert!(reads <= 20, "{reads} reads for {} bytes", stream.len());
        assert!(input.is_between());
    }

    #[test]
    fn what_is_too_large_is_refused_by_its_head() {
        let head = |kind, bytes| {
            let mut out = Vec::new();
            FrameHead { kind, bytes }.encode(&mut out);
            out
        };
        let last = FrameKind::Part { more: false };
        let max = LIMITS.frame_bytes_max;
        assert_eq!(
            units(&head(last, max + 1), 100),
            Err(PeerError::FrameTooLarge {
                found: max + 1,
                max
            })
        );
        let max = COMMAND_BYTES_MAX;
        let command = head(FrameKind::Command, max + 1);
        assert_eq!(
            units(&command, 100),
            Err(PeerError::FrameTooLarge {
                found: max + 1,
                max
            })
        );
        let two = [part(true, &[0; 100_000]), head(last, 50_001)].concat();
        let max = LIMITS.message_bytes_max;
        assert_eq!(
            units(&two, 1 << 20),
            Err(PeerError::MessageTooLarge {
                found: max + 1,
                max
            })
        );
        let four = [
            part(true, b""),
            part(true, b""),
            part(true, b""),
            head(last, 0),
        ]
        .concat();
        assert_eq!(
            units(&four, 1 << 20),
            Err(PeerError::TooManyParts { max: 3 })
        );
    }
}
