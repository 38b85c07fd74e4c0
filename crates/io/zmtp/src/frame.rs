//! The head of a frame: flags, and the length in one byte or in eight.

use thiserror::Error;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// A part of a message.
    Part {
        /// Whether more parts of the same message follow.
        more: bool,
    },
    /// A command of the protocol.
    Command,
}

/// The head of a frame (RFC 37, "Framing"): one byte of flags, then the length of the body, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Content of the frame.
    pub kind: FrameKind,
    /// Bytes of the body.
    pub bytes: u64,
}

/// Why a head is none: the stream is shifted, or not ZMTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Flags that mean nothing, or nothing together.
    #[error("frame has flags {found:#04x}, expected 0 to 4 or 6")]
    Flags {
        /// The byte of flags.
        found: u8,
    },
    /// Length beyond that of any frame.
    #[error("frame has {found} bytes, expected less than 2^63")]
    Length {
        /// The length found.
        found: u64,
    },
}

impl FrameHead {
    /// Bytes of the longest head.
    pub const SIZE_MAX: usize = 9;

    /// Reads a head at the start of `bytes`; `None` if it has not all come. Gives the bytes that it takes, too.
    ///
    /// # Errors
    ///
    /// [`FrameError`] if no frame begins like this.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, FrameError> {
        let Some((flags, rest)) = bytes.split_first() else {
            return Ok(None);
        };
        let kind = match flags & !LONG {
            0 => FrameKind::Part { more: false },
            MORE => FrameKind::Part { more: true },
            COMMAND => FrameKind::Command,
            _ => return Err(FrameError::Flags { found: *flags }),
        };
        if flags & LONG == 0 {
            let head = |length: &u8| {
                (
                    Self {
                        kind,
                        bytes: u64::from(*length),
                    },
                    2,
                )
            };
            return Ok(rest.first().map(head));
        }
        let Some(length) = rest.first_chunk() else {
            return Ok(None);
        };
        let found = u64::from_be_bytes(*length);
        if found >= 1 << 63 {
            return Err(FrameError::Length { found });
        }
        Ok(Some((Self { kind, bytes: found }, Self::SIZE_MAX)))
    }

    /// Appends the head, in its short form if that holds the length.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flags = match self.kind {
            FrameKind::Part { more: false } => 0,
            FrameKind::Part { more: true } => MORE,
            FrameKind::Command => COMMAND,
        };
        match u8::try_from(self.bytes) {
            Ok(length) => out.extend([flags, length]),
            Err(_) => {
                out.push(flags | LONG);
                out.extend(self.bytes.to_be_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: FrameKind = FrameKind::Part { more: false };

    #[test]
    fn heads_are_short_up_to_255_bytes_and_survive() {
        for kind in [LAST, FrameKind::Part { more: true }, FrameKind::Command] {
            for (bytes, size) in [(0, 2), (255, 2), (256, 9), (u64::MAX >> 1, 9)] {
                let head = FrameHead { kind, bytes };
                let mut encoded = Vec::new();
                head.encode(&mut encoded);
                assert_eq!(FrameHead::decode(&encoded), Ok(Some((head, size))));
                for end in 0..size {
                    assert_eq!(FrameHead::decode(&encoded[..end]), Ok(None));
                }
            }
        }
    }

    #[test]
    fn a_long_head_of_a_short_frame_is_understood() {
        let head = FrameHead {
            kind: LAST,
            bytes: 5,
        };
        assert_eq!(
            FrameHead::decode(b"\x02\0\0\0\0\0\0\0\x05"),
            Ok(Some((head, 9)))
        );
    }

    #[test]
    fn flags_without_meaning_are_refused() {
        for found in [5, 7, 8, 0x80, 0xff] {
            assert_eq!(
                FrameHead::decode(&[found]),
                Err(FrameError::Flags { found })
            );
        }
        let found = u64::MAX;
        assert_eq!(
            FrameHead::decode(&[[2].as_slice(), &[0xff; 8]].concat()),
            Err(FrameError::Length { found })
        );
    }
}
