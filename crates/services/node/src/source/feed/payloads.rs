//! Memory for the payloads of a feed: blocks of the arena, which can be lent to other processes of the machine.

use super::Room;
use crate::source::stop::{Stop, Waited};
use rustix::event::PollFlags;
use sheaf_transport::arena::{Freed, SharedBlocks};
use sheaf_transport::{Arena, Block};
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use tracing::warn;

/// Largest payload that shares a block: a larger one loses less than a fourth of its own to whole units.
const SHARING_MAX: usize = 256 << 10;

/// Cuts the places of payloads out of an arena, and waits when it has no room.
pub(in crate::source) struct Payloads {
    arena: Arc<Arena>,
    /// Places of small payloads.
    shared: SharedBlocks,
    room: Arc<Room>,
    /// Called when a block comes back; the arena does not keep it.
    _freed: Arc<Freed>,
}

impl Payloads {
    /// Takes the memory of `arena`.
    pub(in crate::source) fn new(arena: Arc<Arena>) -> io::Result<Self> {
        let room = Arc::new(Room::new()?);
        Ok(Self::ringing(arena, room))
    }

    /// As [`new`](Self::new), for a thread that waits at `room` for other things as well.
    pub(in crate::source) fn ringing(arena: Arc<Arena>, room: Arc<Room>) -> Self {
        let of_arena = room.clone();
        let freed: Arc<Freed> = Arc::new(move || of_arena.wake());
        arena.notify_when_freed(&freed);
        Self {
            shared: SharedBlocks::new(&arena),
            arena,
            room,
            _freed: freed,
        }
    }

    /// Returns a place for `bytes`; `None` if there is no room now.
    pub(in crate::source) fn try_take(&mut self, bytes: usize) -> Option<Block> {
        let shared = self.shared.take(&self.arena, bytes, SHARING_MAX);
        shared.or_else(|| self.arena.allocate(bytes))
    }

    /// As [`try_take`](Self::try_take), but waits for room; `None` if the feed ends meanwhile.
    pub(in crate::source) fn take(&mut self, bytes: usize, stop: &Stop) -> Option<Block> {
        loop {
            if let Some(block) = self.try_take(bytes) {
                return Some(block);
            }
            self.want();
            // A block may have come back just before.
            if let Some(block) = self.try_take(bytes) {
                self.room.clear();
                return Some(block);
            }
            match stop.wait(self.room.as_fd(), PollFlags::IN, None) {
                Ok(Waited::Stopped) => return None,
                Ok(_) => self.room.clear(),
                Err(error) => {
                    warn!(%error, "Cannot wait for memory any longer");
                    return None;
                }
            }
        }
    }

    /// Has the room ring once when a block comes back; [`try_take`](Self::try_take) is tried once more afterwards.
    pub(in crate::source) fn want(&self) {
        self.room.wait_for();
        self.arena.want();
    }
}

#[cfg(test)]
pub(in crate::source) mod tests {
    use super::*;
    use crate::source::stop::stop_cord;
    use sheaf_transport::ArenaOptions;

    /// Returns an arena of `bytes` for tests.
    pub(in crate::source) fn arena(bytes: usize) -> Arc<Arena> {
        let options = ArenaOptions {
            huge_pages: false,
            prefault: false,
            shared: false,
        };
        Arena::new(bytes, options).unwrap()
    }

    #[test]
    fn payloads_lie_in_the_arena_and_small_ones_share_a_block() {
        let arena = arena(32 << 20);
        let mut payloads = Payloads::new(arena.clone()).unwrap();
        let small: Vec<Block> = (0..100)
            .map(|_| payloads.try_take(10_000).unwrap())
            .collect();
        assert_eq!(arena.used_bytes(), 1 << 20);
        let large = payloads.try_take(SHARING_MAX + 1).unwrap();
        assert_eq!(arena.used_bytes(), (1 << 20) + (320 << 10));
        drop((small, large, payloads));
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn a_full_arena_is_waited_for_until_the_feed_ends() {
        let arena = arena(2 << 20);
        let mut payloads = Payloads::new(arena.clone()).unwrap();
        let all = arena.allocate(2 << 20).unwrap();
        assert!(payloads.try_take(5).is_none());
        let (stopper, stop) = stop_cord().unwrap();
        let waiting = std::thread::spawn(move || {
            let block = payloads.take(2 << 20, &stop).unwrap();
            (block.len(), payloads.take(5, &stop).is_none(), block)
        });
        drop(all);
        // The second wait ends with the feed alone: the first block is not given back before.
        while arena.used_bytes() == 0 {
            std::thread::yield_now();
        }
        drop(stopper);
        let (bytes, has_ended, _block) = waiting.join().unwrap();
        assert_eq!((bytes, has_ended), (2 << 20, true));
    }
}
