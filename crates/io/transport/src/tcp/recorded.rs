//! A recorded stream, taken apart as a connection that is admitted would have taken it: for tools and tests.

use super::bodies::Bodies;
use super::inbox::{Inbox, Step};
use super::input::Input;
use crate::arena::Arena;
use crate::transport::{CloseReason, Frame};
use sheaf_protocol::Limits;
use std::sync::Arc;
use std::time::Instant;

/// Contents of a recorded stream.
#[derive(Debug)]
pub struct Recorded {
    /// The whole frames, each with the CRC-32C of its body.
    pub frames: Vec<(Frame, u32)>,
    /// Why the stream was not read further.
    pub refused: Option<CloseReason>,
    /// Bytes that the last frame lacks, as far as they were announced.
    pub missing: Option<u64>,
}

/// Takes `stream` apart in reads of `piece_bytes` (at least 1), with bodies in `arena`. Every other read is into memory
/// for bodies, if it has room. Stops where a body has no room, as a connection would wait there.
#[must_use]
pub fn frames_of(
    stream: &[u8],
    piece_bytes: usize,
    limits: &Limits,
    arena: &Arc<Arena>,
) -> Recorded {
    let mut bodies = Bodies::new(arena.clone(), 0);
    let now = Instant::now();
    let mut inbox = Inbox::new(now);
    inbox.admit(limits.head_bytes_max);
    let mut frames = Vec::new();
    for (index, piece) in stream.chunks(piece_bytes.max(1)).enumerate() {
        let mut region = (index % 2 == 0).then(|| bodies.take_region()).flatten();
        let mut input = Input::Apart(piece);
        if let Some(region) = &mut region
            && let room = region.room(piece.len())
            && room.len() == piece.len()
        {
            room.copy_from_slice(piece);
            input = Input::placed(region, piece.len());
        }
        loop {
            match inbox.take(&mut input, limits, &mut bodies, now) {
                Ok(Step::Arrived(arrived)) => {
                    let digest = arrived.body_digest.unwrap_or_default(); // it is taken, unless turned off
                    frames.push((arrived.frame, digest));
                }
                Ok(Step::Bytes) => break,
                Ok(Step::Space) => return recorded(frames, None, &inbox),
                Err(error) => return recorded(frames, Some(error), &inbox),
            }
        }
        if let Some(region) = region {
            bodies.give_region(region);
        }
    }
    recorded(frames, None, &inbox)
}

fn recorded(frames: Vec<(Frame, u32)>, refused: Option<CloseReason>, inbox: &Inbox) -> Recorded {
    let missing = inbox.missing();
    Recorded {
        frames,
        refused,
        missing,
    }
}
