//! Output of a connection: a queue that counts bytes and messages, written in vectored batches.

use crate::frame::{FrameHead, FrameKind};
use crate::message::Message;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

/// Pieces that one write takes at most.
const PIECES_MAX: usize = 128;
/// Bytes that are made ready for writing ahead of time.
const AHEAD_BYTES: usize = 1 << 20;
/// A part up to this size is copied behind its head: a copy is cheaper than one more piece.
const COPIED_BYTES_MAX: usize = 1024;
/// Commands that wait at most. A peer that asks for more answers than it reads gets no more of them.
const COMMANDS_MAX: usize = 64;

/// Bounds of the queue of one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HighWater {
    /// Messages.
    pub messages: usize,
    /// Bytes of them. A single message may be larger.
    pub bytes: u64,
}

impl Default for HighWater {
    /// 1000 messages, as libzmq has it, and 64 MiB, which it does not count.
    fn default() -> Self {
        Self {
            messages: 1000,
            bytes: 64 << 20,
        }
    }
}

#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    /// Whether a message is written when this is.
    ends: bool,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wrote {
    /// Bytes, heads included.
    pub(crate) bytes: u64,
    /// Messages whose last byte is with the kernel now.
    pub(crate) messages: u64,
}

/// The sending half of a connection.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Messages that are not made ready for writing yet.
    waiting: VecDeque<Message>,
    /// Messages whose pieces are in `pieces`: not wholly written.
    writing: VecDeque<Message>,
    commands: VecDeque<Bytes>,
    pieces: VecDeque<Piece>,
    /// Bytes of `waiting` and `writing`.
    bytes: u64,
}

impl Outbox {
    /// Returns whether `message` finds room.
    pub(crate) fn has_room(&self, message: &Message, high_water: &HighWater) -> bool {
        let messages = self.messages();
        messages == 0
            || (messages < high_water.messages
                && self.bytes.saturating_add(message.bytes()) <= high_water.bytes)
    }

    /// Queues a message, whether there is room or not.
    pub(crate) fn push(&mut self, message: Message) {
        self.bytes += message.bytes();
        self.waiting.push_back(message);
    }

    /// Queues what goes out before the messages that are not being written yet. Gives `false` if too many wait.
    pub(crate) fn push_command(&mut self, bytes: Bytes) -> bool {
        let has_room = self.commands.len() < COMMANDS_MAX;
        if has_room {
            self.commands.push_back(bytes);
        }
        has_room
    }

    /// Messages that are not wholly written.
    pub(crate) fn messages(&self) -> usize {
        self.waiting.len() + self.writing.len()
    }

    /// Returns whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages() == 0 && self.commands.is_empty() && self.pieces.is_empty()
    }

    /// Removes and returns all messages not wholly written, the oldest first. A peer that got a piece of one throws it
    /// away, since the connection ends.
    pub(crate) fn take_back(&mut self) -> impl Iterator<Item = Message> + '_ {
        self.bytes = 0;
        self.pieces.clear();
        self.writing.drain(..).chain(self.waiting.drain(..))
    }

    /// Writes until the peer takes no more (that is no error) or nothing is left; `with_messages` is false until it may
    /// get messages.
    pub(crate) fn write(&mut self, to: &mut impl Write, with_messages: bool) -> io::Result<Wrote> {
        let mut wrote = Wrote::default();
        loop {
            self.make_ready(with_messages);
            if self.pieces.is_empty() {
                return Ok(wrote);
            }
            let slices: Vec<IoSlice<'_>> = self
                .pieces
                .iter()
                .take(PIECES_MAX)
                .map(|piece| IoSlice::new(&piece.bytes))
                .collect();
            match to.write_vectored(&slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    wrote.bytes += bytes as u64;
                    wrote.messages += self.advance(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(wrote),
                Err(error) => return Err(error),
            }
        }
    }

    /// Pieces of the next commands and messages. They always end between two messages, where a command may stand.
    fn make_ready(&mut self, with_messages: bool) {
        let mut bytes: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        while let Some(command) = self.commands.pop_front() {
            bytes += command.len();
            self.pieces.push_back(Piece {
                bytes: command,
                ends: false,
            });
        }
        while with_messages && self.pieces.len() < PIECES_MAX && bytes < AHEAD_BYTES {
            let Some(message) = self.waiting.pop_front() else {
                return;
            };
            bytes = bytes.saturating_add(usize::try_from(message.bytes()).unwrap_or(usize::MAX));
            self.cut(&message);
            self.writing.push_back(message);
        }
    }

    fn cut(&mut self, message: &Message) {
        let last = message.parts().len() - 1; // a message has a part
        let mut front = Vec::new();
        for (index, part) in message.parts().iter().enumerate() {
            let kind = FrameKind::Part { more: index < last };
            FrameHead {
                kind,
                bytes: part.len() as u64,
            }
            .encode(&mut front);
            if part.len() <= COPIED_BYTES_MAX {
                front.extend_from_slice(part);
            } else {
                self.pieces.push_back(Piece {
                    bytes: std::mem::take(&mut front).into(),
                    ends: false,
                });
                self.pieces.push_back(Piece {
                    bytes: part.clone(),
                    ends: index == last,
                });
            }
        }
        if !front.is_empty() {
            self.pieces.push_back(Piece {
                bytes: front.into(),
                ends: true,
            });
        }
    }

    /// Takes `bytes` off the front; gives the messages that ended in them.
    fn advance(&mut self, mut bytes: usize) -> u64 {
        let mut messages = 0;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.bytes.len() > bytes {
                let _ = piece.bytes.split_to(bytes);
                break;
            }
            bytes -= piece.bytes.len();
            let ends = piece.ends;
            self.pieces.pop_front();
            if ends && let Some(message) = self.writing.pop_front() {
                self.bytes -= message.bytes();
                messages += 1;
            }
            // An empty piece behind is taken off as well: nothing would ever write it.
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many bytes a call as its plan says; blocks when that is at its end.
    struct Slow {
        plan: Vec<usize>,
        written: Vec<u8>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let most = self.plan.pop().ok_or(io::ErrorKind::WouldBlock)?;
            let bytes = &bytes[..bytes.len().min(most)];
            self.written.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn message(parts: &[&[u8]]) -> Message {
        Message::new(
            parts
                .iter()
                .map(|part| Bytes::copy_from_slice(part))
                .collect(),
        )
    }

    #[test]
    fn parts_go_out_in_frames_and_commands_between_messages() {
        let large = vec![7; 2000];
        let mut outbox = Outbox::default();
        outbox.push(message(&[b"a", &large, b""]));
        outbox.push(message(&[&large]));
        assert!(outbox.push_command(Bytes::from_static(b"\x04\x05\x04PONG")));
        let mut slow = Slow {
            plan: vec![1; 10],
            written: Vec::new(),
        };
        assert_eq!(
            outbox.write(&mut slow, true).unwrap(),
            Wrote {
                bytes: 10,
                messages: 0
            }
        );
        assert!(outbox.push_command(Bytes::from_static(b"\x04\x05\x04PING")));
        slow.plan = vec![usize::MAX; 20];
        let wrote = outbox.write(&mut slow, true).unwrap();
        assert_eq!(
            (wrote.messages, outbox.is_empty(), outbox.bytes),
            (2, true, 0)
        );
        let long = [&b"\x07\xd0"[..], &large].concat();
        let expected = [
            &b"\x04\x05\x04PONG\x01\x01a\x03\0\0\0\0\0\0"[..],
            &long,
            b"\0\0\x02\0\0\0\0\0\0",
            &long,
            b"\x04\x05\x04PING",
        ]
        .concat();
        assert_eq!(slow.written, expected);
    }

    #[test]
    fn what_is_not_wholly_written_is_taken_back() {
        let mut outbox = Outbox::default();
        let all: Vec<Message> = (0..4).map(|number| message(&[&[number; 100]])).collect();
        all.iter().for_each(|message| outbox.push(message.clone()));
        let mut slow = Slow {
            plan: vec![102, 50].into_iter().rev().collect(),
            written: Vec::new(),
        };
        assert_eq!(
            outbox.write(&mut slow, true).unwrap(),
            Wrote {
                bytes: 152,
                messages: 1
            }
        );
        assert_eq!(outbox.take_back().collect::<Vec<_>>(), all[1..]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn messages_wait_for_the_handshake_and_commands_do_not() {
        let mut outbox = Outbox::default();
        outbox.push(message(&[b"x"]));
        outbox.push_command(Bytes::from_static(b"READY"));
        let mut slow = Slow {
            plan: vec![usize::MAX; 4],
            written: Vec::new(),
        };
        assert_eq!(
            outbox.write(&mut slow, false).unwrap(),
            Wrote {
                bytes: 5,
                messages: 0
            }
        );
        assert_eq!(
            (slow.written.as_slice(), outbox.messages()),
            (&b"READY"[..], 1)
        );
    }

    #[test]
    fn high_water_counts_messages_and_bytes_and_takes_one_in_any_case() {
        let high_water = HighWater {
            messages: 2,
            bytes: 10,
        };
        let mut outbox = Outbox::default();
        let large = message(&[&[0; 100]]);
        assert!(outbox.has_room(&large, &high_water));
        outbox.push(message(&[&[0; 4]]));
        assert!(outbox.has_room(&message(&[&[0; 6]]), &high_water));
        assert!(!outbox.has_room(&message(&[&[0; 7]]), &high_water));
        outbox.push(message(&[b""]));
        assert!(!outbox.has_room(&message(&[b""]), &high_water));
        for _ in 0..COMMANDS_MAX {
            assert!(outbox.push_command(Bytes::new()));
        }
        assert!(!outbox.push_command(Bytes::new()));
    }
}
