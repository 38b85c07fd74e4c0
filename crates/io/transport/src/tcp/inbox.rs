//! Input of one connection: from bytes to frames.

use super::bodies::Bodies;
use super::input::Input;
use crate::arena::{Block, Cut};
use crate::transport::{CloseReason, EARLY_HEAD_BYTES_MAX, EarlyFrame, Frame};
use bytes::Bytes;
use sheaf_protocol::{Digest, Limits, Prefix, PrefixError, WireKind, crc32c};
use std::time::Instant;

/// Heads up to this are allocated at once; a larger one grows as it arrives, so that it costs a peer as much
/// to send as us to hold.
const HEAD_AT_ONCE: usize = 4 << 10;

/// Takes the bytes of one stream, in pieces of any size, and makes frames of them.
///
/// The body of a frame goes to its final place: a small one lies there when it is taken, or is copied there out of the
/// read buffer ([`take`](Self::take)), and large pieces are read there by the kernel ([`body_rest`](Self::body_rest)).
#[derive(Debug)]
pub(crate) struct Inbox {
    state: State,
    /// When the first byte of the present frame was seen.
    began: Instant,
    /// The largest head that the peer may send; `None` before it is admitted.
    head_bytes_max: Option<u32>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "one a connection; a box would be an allocation a frame"
)]
#[derive(Debug)]
enum State {
    Prefix {
        bytes: [u8; Prefix::SIZE],
        filled: usize,
    },
    /// A head that comes in pieces.
    Head {
        prefix: Prefix,
        head: Vec<u8>,
    },
    /// The head is there, the place for the body is not.
    Space {
        kind: WireKind,
        head: Bytes,
        body_bytes: u64,
    },
    Body(Body),
}

#[derive(Debug)]
struct Body {
    kind: WireKind,
    head: Bytes,
    block: Block,
    filled: usize,
    digest: Option<Digest>,
}

/// A whole frame.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) frame: Frame,
    pub(crate) body_digest: Option<u32>,
    /// When its first byte was seen.
    pub(crate) began: Instant,
}

/// Why [`Inbox::take`] stopped.
#[derive(Debug)]
pub(crate) enum Step {
    /// A frame is whole; there may be more in the input.
    Arrived(Arrived),
    /// The input is used up.
    Bytes,
    /// There is no place for the next body. The rest of the input must be kept.
    Space,
}

impl Inbox {
    /// Creates an empty inbox. Before it is [admitted](Self::admit) it takes nothing that needs memory.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            state: State::EMPTY,
            began: now,
            head_bytes_max: None,
        }
    }

    /// Takes bodies from now on, and heads of up to `head_bytes_max` bytes.
    pub(crate) fn admit(&mut self, head_bytes_max: u32) {
        self.head_bytes_max = Some(head_bytes_max);
    }

    /// Returns whether the peer is admitted.
    pub(crate) fn is_admitted(&self) -> bool {
        self.head_bytes_max.is_some()
    }

    /// Holds lengths that are within the limits of the endpoint against those of the peer.
    fn check(&self, prefix: &Prefix) -> Result<(), CloseReason> {
        let (head, body) = (prefix.head_bytes, prefix.body_bytes);
        match self.head_bytes_max {
            None if body > 0 => Err(CloseReason::Early(EarlyFrame::Body { found: body })),
            None if head > EARLY_HEAD_BYTES_MAX => {
                Err(CloseReason::Early(EarlyFrame::Head { found: head }))
            }
            None if prefix.kind == WireKind::Lane => Err(CloseReason::Early(EarlyFrame::Lane)),
            Some(max) if head > max => {
                let found = head;
                let error = PrefixError::HeadTooLarge { found, max };
                Err(CloseReason::Refused(error))
            }
            _ => Ok(()),
        }
    }

    /// Drops a frame that is not whole.
    pub(crate) fn clear(&mut self) {
        self.state = State::EMPTY;
    }

    /// Takes from the front of `input` until a frame is whole, the input used up, or space wanted.
    pub(crate) fn take(
        &mut self,
        input: &mut Input<'_>,
        limits: &Limits,
        bodies: &mut Bodies,
        now: Instant,
    ) -> Result<Step, CloseReason> {
        loop {
            match &mut self.state {
                State::Prefix { bytes, filled } => {
                    if *filled == 0 {
                        self.began = now;
                    }
                    let piece = input.front(Prefix::SIZE - *filled);
                    let piece_bytes = piece.len();
                    bytes[*filled..*filled + piece_bytes].copy_from_slice(piece);
                    *filled += piece_bytes;
                    input.skip(piece_bytes);
                    if *filled < Prefix::SIZE {
                        return Ok(Step::Bytes);
                    }
                    let prefix = Prefix::decode(bytes, limits).map_err(CloseReason::Refused)?;
                    self.check(&prefix)?;
                    let head_bytes = prefix.head_bytes as usize;
                    let head = input.front(head_bytes);
                    self.state = if head.len() == head_bytes {
                        if let Err(refused) = prefix.check(head) {
                            // As if it had come in pieces.
                            let head = head.to_vec();
                            self.state = State::Head { prefix, head };
                            return Err(CloseReason::Refused(refused));
                        }
                        let head = bodies.head(head);
                        input.skip(head_bytes);
                        State::Space {
                            kind: prefix.kind,
                            head,
                            body_bytes: prefix.body_bytes,
                        }
                    } else {
                        let head = Vec::with_capacity(HEAD_AT_ONCE.min(head_bytes));
                        State::Head { prefix, head }
                    };
                }
                State::Head { prefix, head } => {
                    let piece = input.front(prefix.head_bytes as usize - head.len());
                    let piece_bytes = piece.len();
                    head.extend_from_slice(piece);
                    input.skip(piece_bytes);
                    if head.len() < prefix.head_bytes as usize {
                        return Ok(Step::Bytes);
                    }
                    prefix.check(head).map_err(CloseReason::Refused)?;
                    let (kind, body_bytes) = (prefix.kind, prefix.body_bytes);
                    let head = Bytes::from(std::mem::take(head));
                    self.state = State::Space {
                        kind,
                        head,
                        body_bytes,
                    };
                }
                State::Space {
                    kind,
                    head,
                    body_bytes,
                } => match input.cut_body(*body_bytes) {
                    Some(Cut::Whole(body)) => {
                        let body_digest = bodies.takes_digests.then(|| crc32c(&body));
                        let frame = Frame {
                            kind: *kind,
                            head: std::mem::take(head),
                            body,
                        };
                        return Ok(Step::Arrived(self.arrived(frame, body_digest)));
                    }
                    Some(Cut::Begun(block, present)) => {
                        self.begin(block, bodies.takes_digests);
                        return Ok(self.filled(present).map_or(Step::Bytes, Step::Arrived));
                    }
                    None if !self.find_space(bodies) => return Ok(Step::Space),
                    None => {}
                },
                State::Body(body) => {
                    let piece = input.front(body.block.len() - body.filled);
                    let piece_bytes = piece.len();
                    body.block.as_mut()[body.filled..][..piece_bytes].copy_from_slice(piece);
                    input.skip(piece_bytes);
                    return Ok(self.filled(piece_bytes).map_or(Step::Bytes, Step::Arrived));
                }
            }
        }
    }

    /// Tries again to find a place for the body; `true` if none is wanted any more.
    pub(crate) fn find_space(&mut self, bodies: &mut Bodies) -> bool {
        let State::Space { body_bytes, .. } = &self.state else {
            return true;
        };
        // A body that does not fit the address space does not fit the arena either.
        let Some(block) = usize::try_from(*body_bytes)
            .ok()
            .and_then(|bytes| bodies.take(bytes))
        else {
            return false;
        };
        self.begin(block, bodies.takes_digests);
        true
    }

    /// The body that waits for a place has it in `block`.
    fn begin(&mut self, block: Block, takes_digest: bool) {
        if let State::Space { kind, head, .. } = &mut self.state {
            let (kind, head) = (*kind, std::mem::take(head));
            self.state = State::Body(Body {
                kind,
                head,
                block,
                filled: 0,
                digest: takes_digest.then(Digest::default),
            });
        }
    }

    /// Returns bytes of the present body, if it has its place.
    pub(crate) fn body_bytes(&self) -> Option<usize> {
        match &self.state {
            State::Body(body) => Some(body.block.len()),
            _ => None,
        }
    }

    /// Returns the part of the present body that is still missing, for the kernel to read into.
    pub(crate) fn body_rest(&mut self) -> Option<&mut [u8]> {
        match &mut self.state {
            State::Body(body) => Some(&mut body.block.as_mut()[body.filled..]),
            _ => None,
        }
    }

    /// Notes that the first `bytes` of [`body_rest`](Self::body_rest) are there, and gives the frame if that
    /// was all. The digest is taken here, while the piece is in the cache.
    pub(crate) fn filled(&mut self, bytes: usize) -> Option<Arrived> {
        let State::Body(body) = &mut self.state else {
            return None;
        };
        if let Some(digest) = &mut body.digest {
            digest.update(&body.block.as_ref()[body.filled..][..bytes]);
        }
        body.filled += bytes;
        if body.filled < body.block.len() {
            return None;
        }
        // Piece by piece: the digest, which is large, stays where it is.
        let frame = Frame {
            kind: body.kind,
            head: std::mem::take(&mut body.head),
            body: std::mem::take(&mut body.block).freeze(),
        };
        let body_digest = body.digest.as_ref().map(Digest::value);
        Some(self.arrived(frame, body_digest))
    }

    fn arrived(&mut self, frame: Frame, body_digest: Option<u32>) -> Arrived {
        self.state = State::EMPTY;
        Arrived {
            frame,
            body_digest,
            began: self.began,
        }
    }

    /// Returns whether a body waits for its place.
    pub(crate) fn wants_space(&self) -> bool {
        matches!(self.state, State::Space { .. })
    }

    /// Returns bytes that the present frame still needs, as far as they are announced; `None` between two frames.
    pub(crate) fn missing(&self) -> Option<u64> {
        match &self.state {
            State::Prefix { filled: 0, .. } => None,
            State::Prefix { filled, .. } => Some((Prefix::SIZE - filled) as u64),
            State::Head { prefix, head } => {
                Some(u64::from(prefix.head_bytes) - head.len() as u64 + prefix.body_bytes)
            }
            State::Space { body_bytes, .. } => Some(*body_bytes),
            State::Body(body) => Some((body.block.len() - body.filled) as u64),
        }
    }
}

impl State {
    const EMPTY: Self = Self::Prefix {
        bytes: [0; Prefix::SIZE],
        filled: 0,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, ArenaOptions};
    use proptest::prelude::*;

    fn bodies() -> Bodies {
        let options = ArenaOptions {
            huge_pages: false,
            prefault: false,
            shared: false,
        };
        Bodies::new(Arena::new(2 << 20, options).unwrap(), 0)
    }

    /// Takes at most `bytes` off the front of `rest`.
    fn split<'a>(rest: &mut &'a [u8], bytes: usize) -> &'a [u8] {
        let (front, behind) = rest.split_at(bytes.min(rest.len()));
        *rest = behind;
        front
    }

    fn encoded(head: &[u8], body: &[u8]) -> Vec<u8> {
        let prefix = Prefix::new(WireKind::Stf, head, body.len() as u64).encode();
        [prefix.as_slice(), head, body].concat()
    }

    fn admitted() -> Inbox {
        let mut inbox = Inbox::new(Instant::now());
        inbox.admit(u32::MAX);
        inbox
    }

    fn missing_after(bytes: &[u8]) -> Option<u64> {
        let mut inbox = admitted();
        let (limits, mut bodies) = (Limits::default(), bodies());
        let mut input = Input::Apart(bytes);
        while !input.rest().is_empty() {
            inbox
                .take(&mut input, &limits, &mut bodies, Instant::now())
                .unwrap();
        }
        inbox.missing()
    }

    #[test]
    fn what_is_missing_of_a_cut_frame_is_known() {
        let bytes = encoded(b"head", b"bodies");
        assert_eq!(missing_after(&[]), None);
        assert_eq!(missing_after(&bytes[..20]), Some(4));
        assert_eq!(missing_after(&bytes[..25]), Some(9));
        assert_eq!(missing_after(&bytes[..33]), Some(1));
        assert_eq!(missing_after(&bytes), None);
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting_of_the_stream(
            frames in prop::collection::vec((0_usize..100, 0_usize..3000), 1..20),
            cuts in prop::collection::vec((1_usize..2000, any::<bool>(), any::<bool>()), 1..40),
        ) {
            let (limits, mut bodies) = (Limits::default(), bodies());
            let mut expected = Vec::new();
            let mut stream = Vec::new();
            for (fill, (head, body)) in (0_u8..).zip(frames) {
                let (head, body) = (vec![fill; head], vec![fill; body]);
                stream.extend_from_slice(&encoded(&head, &body));
                expected.push((head, body));
            }
            let mut inbox = admitted();
            let mut arrived = Vec::new();
            let mut rest = stream.as_slice();
            for (bytes, into_body, into_region) in cuts.into_iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let mut piece = split(&mut rest, bytes);
                if into_body && let Some(place) = inbox.body_rest() {
                    let front = split(&mut piece, place.len());
                    place[..front.len()].copy_from_slice(front);
                    arrived.extend(inbox.filled(front.len()));
                }
                let mut region = into_region.then(|| bodies.take_region().unwrap());
                let mut input = Input::Apart(piece);
                if let Some(region) = &mut region {
                    region.room(piece.len()).copy_from_slice(piece);
                    input = Input::placed(region, piece.len());
                }
                while let Step::Arrived(frame) =
                    inbox.take(&mut input, &limits, &mut bodies, Instant::now()).unwrap()
                {
                    arrived.push(frame);
                }
                prop_assert!(input.rest().is_empty());
                if let Some(region) = region {
                    bodies.give_region(region);
                }
            }
            prop_assert_eq!(inbox.missing(), None);
            prop_assert_eq!(arrived.len(), expected.len());
            for (got, (head, body)) in arrived.iter().zip(&expected) {
                prop_assert_eq!(&got.frame.head[..], &head[..]);
                prop_assert_eq!(&got.frame.body[..], &body[..]);
                prop_assert_eq!(got.body_digest, Some(crc32c(body)));
            }
        }

        #[test]
        fn any_bytes_are_taken_or_refused_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            magic in any::<bool>(),
            is_admitted in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if magic && bytes.len() >= 5 {
                bytes[..4].copy_from_slice(&Prefix::MAGIC);
                bytes[4] = Prefix::VERSION;
            }
            let (limits, mut bodies) = (Limits::default(), bodies());
            let mut inbox = if is_admitted { admitted() } else { Inbox::new(Instant::now()) };
            let mut input = Input::Apart(&bytes);
            while let Ok(Step::Arrived(_)) =
                inbox.take(&mut input, &limits, &mut bodies, Instant::now())
            {}
        }
    }
}
