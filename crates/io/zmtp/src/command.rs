//! Commands: frames about the connection, beside messages.

use crate::frame::{FrameHead, FrameKind};
use bytes::Bytes;
use thiserror::Error;

/// Bytes of the context of a PING at most (RFC 37).
const CONTEXT_BYTES_MAX: usize = 16;
/// Bytes of an identity at most.
const IDENTITY_BYTES_MAX: usize = 255;

/// A command (RFC 37, "Commands"): the length of its name in one byte, the name, and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The first one of each side: who it is. Of its properties these two count; others are passed over.
    Ready {
        /// The name of its socket type, such as `PUSH`.
        socket_type: String,
        /// Identity of the peer; may be empty.
        identity: Bytes,
    },
    /// Refusal by the peer.
    Error {
        /// Why.
        reason: String,
    },
    /// Messages that begin with these bytes are wanted (ZMTP 3.1; before, it is a message).
    Subscribe(Bytes),
    /// End of a subscription.
    Cancel(Bytes),
    /// Heartbeat request.
    Ping {
        /// Time that the peer waits for a sign of life, in tenths of a second; 0 for no limit.
        ttl_ds: u16,
        /// Context that the PONG has to repeat, at most 16 bytes.
        context: Bytes,
    },
    /// Heartbeat reply.
    Pong {
        /// Context of the PING.
        context: Bytes,
    },
    /// Something that another version may understand.
    Unknown {
        /// Name.
        name: String,
    },
}

/// Why a command is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommandError {
    /// A length within it points behind its end.
    #[error("command {name} is cut inside its {part}")]
    Cut {
        /// Name, as far as that is known.
        name: String,
        /// Field that is cut.
        part: &'static str,
    },
    /// A name without letters.
    #[error("command has an empty name")]
    NoName,
    /// READY does not say what the peer is.
    #[error("READY has no Socket-Type")]
    NoSocketType,
    /// More bytes than the protocol has for it.
    #[error("command {name} has {found} bytes of {part}, at most {max} are allowed")]
    TooLong {
        /// Name.
        name: &'static str,
        /// Field that is too long.
        part: &'static str,
        /// Bytes found.
        found: usize,
        /// Bytes allowed.
        max: usize,
    },
}

impl Command {
    /// Reads the body of a command frame.
    ///
    /// # Errors
    ///
    /// [`CommandError`] with what is wrong.
    pub fn decode(body: &Bytes) -> Result<Self, CommandError> {
        let mut rest: &[u8] = body;
        let name = take_short(&mut rest).ok_or_else(|| cut("", "name"))?;
        if name.is_empty() {
            return Err(CommandError::NoName);
        }
        let value = body.slice(1 + name.len()..);
        match name {
            b"READY" => ready(rest),
            b"ERROR" => {
                let reason = take_short(&mut rest).ok_or_else(|| cut("ERROR", "reason"))?;
                Ok(Self::Error {
                    reason: readable(reason),
                })
            }
            b"SUBSCRIBE" => Ok(Self::Subscribe(value)),
            b"CANCEL" => Ok(Self::Cancel(value)),
            b"PING" => {
                let Some((ttl, _)) = value.split_first_chunk() else {
                    return Err(cut("PING", "time to live"));
                };
                let context = check_context("PING", value.slice(2..))?;
                Ok(Self::Ping {
                    ttl_ds: u16::from_be_bytes(*ttl),
                    context,
                })
            }
            b"PONG" => Ok(Self::Pong {
                context: check_context("PONG", value)?,
            }),
            _ => Ok(Self::Unknown {
                name: readable(name),
            }),
        }
    }

    /// Returns the whole frame, head and body. A name, a type or a reason is cut at 255 bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut body = Vec::new();
        match self {
            Self::Ready {
                socket_type,
                identity,
            } => {
                put_short(&mut body, b"READY");
                put_property(&mut body, b"Socket-Type", socket_type.as_bytes());
                put_property(&mut body, b"Identity", identity);
            }
            Self::Error { reason } => {
                put_short(&mut body, b"ERROR");
                put_short(&mut body, reason.as_bytes());
            }
            Self::Subscribe(topic) => {
                put_short(&mut body, b"SUBSCRIBE");
                body.extend_from_slice(topic);
            }
            Self::Cancel(topic) => {
                put_short(&mut body, b"CANCEL");
                body.extend_from_slice(topic);
            }
            Self::Ping { ttl_ds, context } => {
                put_short(&mut body, b"PING");
                body.extend(ttl_ds.to_be_bytes());
                body.extend_from_slice(context);
            }
            Self::Pong { context } => {
                put_short(&mut body, b"PONG");
                body.extend_from_slice(context);
            }
            Self::Unknown { name } => put_short(&mut body, name.as_bytes()),
        }
        let head = FrameHead {
            kind: FrameKind::Command,
            bytes: body.len() as u64,
        };
        let mut frame = Vec::with_capacity(FrameHead::SIZE_MAX + body.len());
        head.encode(&mut frame);
        frame.append(&mut body);
        frame.into()
    }
}

/// Returns the properties of READY: name with its length in one byte, value with its length in four.
fn ready(mut rest: &[u8]) -> Result<Command, CommandError> {
    let (mut socket_type, mut identity) = (None, Bytes::new());
    while !rest.is_empty() {
        let name = take_short(&mut rest).ok_or_else(|| cut("READY", "property name"))?;
        let value = take_long(&mut rest).ok_or_else(|| cut("READY", "property value"))?;
        // Names of properties are not case-sensitive.
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            socket_type = Some(readable(value));
        } else if name.eq_ignore_ascii_case(b"Identity") {
            let (found, max) = (value.len(), IDENTITY_BYTES_MAX);
            if found > max {
                return Err(CommandError::TooLong {
                    name: "READY",
                    part: "identity",
                    found,
                    max,
                });
            }
            identity = Bytes::copy_from_slice(value);
        }
    }
    let socket_type = socket_type.ok_or(CommandError::NoSocketType)?;
    Ok(Command::Ready {
        socket_type,
        identity,
    })
}

fn check_context(name: &'static str, context: Bytes) -> Result<Bytes, CommandError> {
    let (found, max) = (context.len(), CONTEXT_BYTES_MAX);
    if found > max {
        return Err(CommandError::TooLong {
            name,
            part: "context",
            found,
            max,
        });
    }
    Ok(context)
}

fn cut(name: &str, part: &'static str) -> CommandError {
    CommandError::Cut {
        name: name.to_owned(),
        part,
    }
}

/// Text of a peer, as it can stand in a log.
fn readable(bytes: &[u8]) -> String {
    let shown = bytes.get(..255).unwrap_or(bytes);
    String::from_utf8_lossy(shown).escape_debug().to_string()
}

fn take_short<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first()?;
    let (taken, left) = behind.split_at_checked(usize::from(*length))?;
    *rest = left;
    Some(taken)
}

fn take_long<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (taken, left) = behind.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn put_short(out: &mut Vec<u8>, text: &[u8]) {
    let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend_from_slice(text.get(..usize::from(length)).unwrap_or(text));
}

fn put_property(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    put_short(out, name);
    let value = value.get(..IDENTITY_BYTES_MAX).unwrap_or(value);
    out.extend(u32::try_from(value.len()).unwrap_or(0).to_be_bytes());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(body: &'static [u8]) -> Result<Command, CommandError> {
        Command::decode(&Bytes::from_static(body))
    }

    #[test]
    fn commands_survive_their_bytes() {
        let bytes = |text: &'static [u8]| Bytes::from_static(text);
        let commands = [
            Command::Ready {
                socket_type: "PUSH".to_owned(),
                identity: bytes(b"flp3"),
            },
            Command::Error {
                reason: "no".to_owned(),
            },
            Command::Subscribe(bytes(b"")),
            Command::Cancel(bytes(b"topic")),
            Command::Ping {
                ttl_ds: 300,
                context: bytes(b"abc"),
            },
            Command::Pong {
                context: bytes(&[7; 16]),
            },
            Command::Unknown {
                name: "WHAT".to_owned(),
            },
        ];
        for command in commands {
            let frame = command.encode();
            let (head, size) = FrameHead::decode(&frame).unwrap().unwrap();
            assert_eq!(
                (head.kind, head.bytes),
                (FrameKind::Command, (frame.len() - size) as u64)
            );
            assert_eq!(Command::decode(&frame.slice(size..)), Ok(command));
        }
    }

    #[test]
    fn ready_is_laid_out_as_libzmq_does() {
        let ready = Command::Ready {
            socket_type: "PULL".to_owned(),
            identity: Bytes::new(),
        };
        let expected = b"\x04\x27\x05READY\x0bSocket-Type\0\0\0\x04PULL\x08Identity\0\0\0\0";
        assert_eq!(ready.encode()[..], expected[..]);
        let other = decode(b"\x05READY\x01x\0\0\0\x01y\x0bsocket-TYPE\0\0\0\x04PULL");
        assert_eq!(other, Ok(ready));
    }

    #[test]
    fn what_is_cut_or_too_long_is_named() {
        let cases: [(&'static [u8], &str); 8] = [
            (b"", "command  is cut inside its name"),
            (b"\x05REA", "command  is cut inside its name"),
            (b"\0", "command has an empty name"),
            (b"\x05READY", "READY has no Socket-Type"),
            (
                b"\x05READY\x0bSocket-Type\0\0\0\x05PULL",
                "command READY is cut inside its property value",
            ),
            (
                b"\x05READY\x0cSocket-Type",
                "command READY is cut inside its property name",
            ),
            (b"\x04PING\0", "command PING is cut inside its time to live"),
            (
                b"\x04PONG12345678901234567",
                "command PONG has 17 bytes of context, at most 16 are allowed",
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(decode(body).unwrap_err().to_string(), expected);
        }
    }
}
