//! Targets for the bytes of programs that speak ZeroMQ.

use bytes::Bytes;
#[cfg(feature = "node")]
use sheaf_node::config::{StfFormat, ZmqFraming, ZmqSource};
#[cfg(feature = "node")]
use sheaf_node::source::{Fed, Framing};
#[cfg(feature = "node")]
use sheaf_zmtp::Message;
use sheaf_zmtp::{
    Command, FrameHead, Greeting, Incoming, Limits, Session, SessionConfig, SocketType,
};
use std::time::{Duration, Instant};

/// Smaller than the defaults, so that inputs cross them.
const LIMITS: Limits = Limits {
    frame_bytes_max: 512,
    message_bytes_max: 1024,
    parts_max: 4,
};
/// Bytes that a session may hold beside an incomplete message: a command, or the result of one read.
const HELD_BYTES_MAX: u64 = LIMITS.message_bytes_max + (8 << 10);

/// The stream of a peer. The first byte says what we are, the second the size of the reads, which changes nothing.
pub fn zmtp(bytes: &[u8]) {
    let [socket_type, piece_bytes, stream @ ..] = bytes else {
        return;
    };
    let socket_type = match socket_type % 4 {
        0 => SocketType::Pull,
        1 => SocketType::Push,
        2 => SocketType::Sub,
        _ => SocketType::Pub,
    };
    let piece_bytes = usize::from(*piece_bytes).max(1);
    let cut = heard(socket_type, stream.chunks(piece_bytes));
    assert_eq!(cut, heard(socket_type, std::iter::once(stream)));
    words(stream);
}

/// All that comes of `pieces`, the last of it why no more.
fn heard<'a>(socket_type: SocketType, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let now = Instant::now();
    let config = SessionConfig {
        socket_type,
        identity: Bytes::new(),
        limits: LIMITS,
        handshake: Duration::from_secs(1),
        heartbeat: None,
    };
    let mut session = Session::new(config, now);
    let mut heard = Vec::new();
    for piece in pieces {
        session.push(piece, now);
        loop {
            match session.poll_incoming() {
                Ok(Some(Incoming::Message(message))) => {
                    assert!(socket_type.receives() && message.bytes() <= LIMITS.message_bytes_max);
                    assert!((1..=LIMITS.parts_max).contains(&message.parts().len()));
                    heard.push(format!("{:?}", message.parts()));
                }
                Ok(Some(Incoming::Ready(hello))) => heard.push(format!("{hello:?}")),
                Ok(None) => break,
                Err(error) => {
                    heard.push(error.code().to_owned());
                    return heard;
                }
            }
        }
        assert!(session.held_bytes() <= HELD_BYTES_MAX);
    }
    heard
}

/// Decodes, encodes and decodes again; both results are equal.
fn words(bytes: &[u8]) {
    if let Some(Ok(greeting)) = bytes.first_chunk().map(Greeting::decode) {
        assert_eq!(Greeting::decode(&greeting.encode()), Ok(greeting));
    }
    if let Ok(Some((head, _))) = FrameHead::decode(bytes) {
        let mut encoded = Vec::new();
        head.encode(&mut encoded);
        assert_eq!(FrameHead::decode(&encoded), Ok(Some((head, encoded.len()))));
    }
    if let Ok(command) = Command::decode(&Bytes::copy_from_slice(bytes)) {
        let encoded = command.encode();
        let (_, size) = FrameHead::decode(&encoded)
            .ok()
            .flatten()
            .expect("a command is a frame");
        let again = Command::decode(&encoded.slice(size..)).expect("it was just written");
        // Texts of a peer are made readable when they are read, and cut when they are written.
        let has_text = matches!(
            command,
            Command::Ready { .. } | Command::Error { .. } | Command::Unknown { .. }
        );
        assert!(has_text || again == command);
    }
}

/// A message to the source of an FLP, each part with a byte of length in front. The first two bytes say how it is read.
#[cfg(feature = "node")]
pub fn zmq_message(bytes: &[u8]) {
    let [kind, first_tf, rest @ ..] = bytes else {
        return;
    };
    let (mut rest, mut parts) = (rest, Vec::new());
    while let Some((length, behind)) = rest.split_first() {
        let (part, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        parts.push(Bytes::copy_from_slice(part));
        rest = behind;
    }
    let message = Message::new(parts);
    let framing = Framing::new(&ZmqSource {
        framing: match kind % 4 {
            0 => ZmqFraming::Record,
            1 => ZmqFraming::TfId,
            2 => ZmqFraming::O2Balancer,
            _ => ZmqFraming::Count,
        },
        format: StfFormat::Rdh,
        first_tf: (*first_tf).into(),
        ..ZmqSource::default()
    });
    match framing.read(&message) {
        Ok(Fed::Stf(stf) | Fed::Counted(stf)) => assert!(stf.bytes() <= message.bytes()),
        Ok(other) => panic!("{other:?} of a message"),
        Err(error) => assert!(!error.to_string().is_empty() && !error.code().is_empty()),
    }
}
