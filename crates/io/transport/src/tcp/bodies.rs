//! Places for bodies that come in.

use super::input::SMALL_MAX;
use crate::arena::{Arena, Block, Region, SharedBlocks};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Bytes of the chunks that heads share. Small, because a head that is kept keeps its chunk.
const HEADS_BYTES: usize = 16 << 10;

/// Cuts the places of bodies out of an arena.
#[derive(Debug)]
pub(crate) struct Bodies {
    arena: Arc<Arena>,
    heap_bytes_max: u64,
    /// Places of small bodies.
    shared: SharedBlocks,
    heap_fallbacks: u64,
    /// Rest of the chunk that heads share now.
    heads: BytesMut,
    /// Whether the digests of bodies are taken as they arrive.
    pub(crate) takes_digests: bool,
}

impl Bodies {
    pub(crate) fn new(arena: Arc<Arena>, heap_bytes_max: u64) -> Self {
        Self {
            shared: SharedBlocks::new(&arena),
            arena,
            heap_bytes_max,
            heap_fallbacks: 0,
            heads: BytesMut::new(),
            takes_digests: true,
        }
    }

    /// Returns a head, copied to a chunk that it shares with some hundred others.
    pub(crate) fn head(&mut self, head: &[u8]) -> Bytes {
        if head.len() > HEADS_BYTES / 4 {
            return Bytes::copy_from_slice(head);
        }
        if self.heads.capacity() < head.len() {
            // The chunk itself comes back if all heads in it are gone.
            self.heads.reserve(HEADS_BYTES);
        }
        self.heads.extend_from_slice(head);
        self.heads.split().freeze()
    }

    /// Returns a place for a body of `bytes`, or `None` if there is no room now.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Block> {
        if let Some(block) = self.shared.take(&self.arena, bytes, SMALL_MAX) {
            return Some(block);
        }
        let block = self.arena.allocate_or_heap(bytes, self.heap_bytes_max)?;
        self.heap_fallbacks += u64::from(block.is_on_heap());
        Some(block)
    }

    /// Returns how many bodies were put on the heap.
    pub(crate) fn heap_fallbacks(&self) -> u64 {
        self.heap_fallbacks
    }

    /// Memory for small bodies to be read into, or `None` if there is no room for it now. It is to be
    /// [released](Self::give_region).
    pub(crate) fn take_region(&mut self) -> Option<Region> {
        self.shared.take_rest(&self.arena).map(Region::new)
    }

    /// Reclaims what is left of a region.
    pub(crate) fn give_region(&mut self, region: Region) {
        self.shared.give_rest(region.into_block());
    }

    /// Asks the arena to say when a block comes back; [`take`](Self::take) is tried once more afterwards.
    pub(crate) fn want(&self) {
        self.arena.want();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{ALIGNMENT, ArenaOptions, Cut};
    use crate::tcp::input::Input;

    fn bodies(bytes: usize) -> Bodies {
        let options = ArenaOptions {
            huge_pages: false,
            prefault: false,
            shared: false,
        };
        Bodies::new(Arena::new(bytes, options).unwrap(), 0)
    }

    #[test]
    fn small_bodies_share_a_block() {
        let mut bodies = bodies(32 << 20);
        let held: Vec<Block> = (0..100).map(|_| bodies.take(10_000).unwrap()).collect();
        assert!(held.iter().all(|block| block.len() == 10_000));
        assert_eq!(bodies.arena.used_bytes(), 1 << 20);
    }

    #[test]
    fn a_shared_block_comes_back_when_its_last_body_goes() {
        let mut bodies = bodies(32 << 20);
        let mut held: Vec<Block> = (0..300).map(|_| bodies.take(10_000).unwrap()).collect();
        assert_eq!(bodies.arena.used_bytes(), 3 << 20);
        held.truncate(1);
        assert_eq!(bodies.arena.used_bytes(), 2 << 20);
    }

    #[test]
    fn a_body_is_read_on_where_it_was_cut_off() {
        let mut bodies = bodies(32 << 20);
        let mut region = bodies.take_region().unwrap();
        let read = region.room(usize::MAX);
        assert_eq!(read.len(), 1 << 20);
        read[..8].copy_from_slice(b"head12..");
        let start = read.as_ptr();
        let mut input = Input::placed(&mut region, 6);
        assert_eq!(input.front(4), b"head");
        input.skip(4);
        let Some(Cut::Begun(body, 2)) = input.cut_body(3) else {
            panic!("two bytes of it are there");
        };
        assert_eq!(body.as_ref(), b"12.");
        assert!(input.rest().is_empty());
        bodies.give_region(region);
        // What comes next lies behind it, at the next cache line.
        let mut region = bodies.take_region().unwrap();
        assert_eq!(region.room(1).as_ptr(), start.wrapping_add(ALIGNMENT));
    }

    #[test]
    fn a_read_without_a_body_uses_nothing_up() {
        let mut bodies = bodies(32 << 20);
        let mut starts = Vec::new();
        for _ in 0..2 {
            let mut region = bodies.take_region().unwrap();
            starts.push(region.room(1).as_ptr());
            Input::placed(&mut region, 100).skip(100);
            bodies.give_region(region);
        }
        assert_eq!(starts[0], starts[1]);
    }

    #[test]
    fn a_body_too_large_for_the_rest_of_a_region_gets_a_new_one() {
        let mut bodies = bodies(32 << 20);
        let mut region = bodies.take_region().unwrap();
        let mut cut = |bytes| Input::placed(&mut region, 0).cut_body(bytes);
        let filled = cut(SMALL_MAX as u64).unwrap();
        for _ in 0..7 {
            assert!(cut(SMALL_MAX as u64 - 1).is_some());
        }
        assert!(cut(8).is_none());
        assert!(cut(SMALL_MAX as u64 + 1).is_none());
        assert_eq!(bodies.take(8).unwrap().len(), 8);
        bodies.give_region(region);
        assert_eq!(bodies.arena.used_bytes(), 2 << 20);
        drop(filled);
        assert_eq!(bodies.arena.used_bytes(), 1 << 20);
    }

    #[test]
    fn the_whole_arena_can_be_filled_with_small_bodies() {
        let mut bodies = bodies(2 << 20);
        let held: Vec<Block> = std::iter::from_fn(|| bodies.take(60_000)).collect();
        assert_eq!(held.len(), 32);
        drop(held);
        assert!(bodies.take(60_000).is_some());
    }
}
