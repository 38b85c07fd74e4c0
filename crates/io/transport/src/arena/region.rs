//! Memory that a stream of small payloads is read into.

use super::{Block, Keep};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;

/// Memory for payloads that the kernel reads into. Whole payloads stay where they are, and one that is cut off by the
/// end of a read is continued in place, as long as the region has room.
///
/// All whole payloads of a read have one owner, so that none costs an allocation. Each byte belongs to one payload at
/// most, or to none and is written over by the next read.
#[derive(Debug)]
pub(crate) struct Region {
    block: Block,
    /// Bytes at its front that were taken, and those that were read, taken or not.
    taken: usize,
    filled: usize,
    /// The first `filled` bytes for those who read payloads in them, once there is one.
    front: Option<Bytes>,
    /// End of the last payload in `front`: nothing of it is written to again.
    used: usize,
}

/// A payload, as far as it is there.
#[derive(Debug)]
pub(crate) enum Cut {
    /// All of it.
    Whole(Bytes),
    /// The place of it, and how many of its bytes are there.
    Begun(Block, usize),
}

impl Region {
    /// Creates a region in `block`, which is one of [parts](Block::into_parts).
    pub(crate) fn new(block: Block) -> Self {
        Self {
            block,
            taken: 0,
            filled: 0,
            front: None,
            used: 0,
        }
    }

    /// Returns the first `bytes_max` bytes that no payload has, for the kernel to read into, or as many as there are.
    pub(crate) fn room(&mut self, bytes_max: usize) -> &mut [u8] {
        self.settle();
        let bytes = bytes_max.min(self.block.len());
        &mut self.block.as_mut()[..bytes]
    }

    /// Notes that the kernel has read the first `bytes` of [`room`](Self::room).
    ///
    /// # Panics
    ///
    /// If there is less room.
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.settle();
        assert!(
            bytes <= self.block.len(),
            "cannot read {bytes} bytes into {}",
            self.block.len()
        );
        self.filled = bytes;
    }

    /// Returns what was read and is not taken.
    pub(crate) fn rest(&self) -> &[u8] {
        match &self.front {
            Some(front) => &front[self.taken..self.filled],
            None => &self.block.as_ref()[self.taken..self.filled],
        }
    }

    /// Takes `bytes` of [`rest`](Self::rest) that are no part of a payload.
    ///
    /// # Panics
    ///
    /// If it has fewer.
    pub(crate) fn skip(&mut self, bytes: usize) {
        let taken = self.taken + bytes;
        assert!(taken <= self.filled, "what is taken was read");
        self.taken = taken;
    }

    /// Takes a payload of `bytes` that begins here; `None` if the region has no room for it.
    pub(crate) fn cut(&mut self, bytes: usize) -> Option<Cut> {
        if self.block.len() - self.taken < bytes {
            return None;
        }
        let present = self.filled - self.taken;
        if bytes <= present {
            let payload = self.taken..self.taken + bytes;
            self.taken = payload.end;
            return Some(Cut::Whole(self.share(payload)));
        }
        // `front` reads nothing of this payload, which is written to from now on: no payload in it is behind `used`.
        self.used = self.taken;
        self.settle();
        Some(Cut::Begun(self.block.split_to(bytes), present))
    }

    /// Returns what is left of its memory. Bytes that are no part of a payload are written over.
    pub(crate) fn into_block(mut self) -> Block {
        self.settle();
        self.block
    }

    fn share(&mut self, payload: Range<usize>) -> Bytes {
        if payload.is_empty() {
            return Bytes::new();
        }
        self.used = payload.end;
        let (block, filled) = (&self.block, self.filled);
        let front = self.front.get_or_insert_with(|| block.share(filled));
        front.slice(payload)
    }

    /// Ends a read: what no payload has is room again.
    fn settle(&mut self) {
        self.front = None;
        self.block.advance(self.used);
        (self.taken, self.filled, self.used) = (0, 0, 0);
    }
}

impl Block {
    /// Returns the first `bytes` of a block of [parts](Block::into_parts) to be read. From now on the block must not be
    /// used to write to those of them that are read through the result.
    fn share(&self, bytes: usize) -> Bytes {
        let Keep::Part(extent) = &self.keep else {
            panic!("a block that is shared is one of parts");
        };
        assert!(bytes <= self.len, "what is shared was read");
        Bytes::from_owner(Self {
            start: self.start,
            len: bytes,
            keep: Keep::Part(Arc::clone(extent)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, ArenaOptions, UNIT_BYTES};

    fn region() -> (Arc<Arena>, Region) {
        let options = ArenaOptions {
            huge_pages: false,
            prefault: false,
            shared: false,
        };
        let arena = Arena::new(1, options).unwrap();
        let block = arena.allocate(UNIT_BYTES).unwrap().into_parts();
        (arena, Region::new(block))
    }

    fn whole(region: &mut Region, bytes: usize) -> Bytes {
        match region.cut(bytes) {
            Some(Cut::Whole(payload)) => payload,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn payloads_are_read_while_the_next_ones_come_in() {
        let (arena, mut region) = region();
        region.room(11).copy_from_slice(b"<one><two.>");
        region.fill(11);
        region.skip(1);
        let one = whole(&mut region, 3);
        region.skip(2);
        let two = whole(&mut region, 4);
        assert_eq!(region.rest(), b">");
        region.skip(1);
        // The next read begins behind the last payload: the bracket is written over.
        region.room(4).copy_from_slice(b"<thr");
        region.fill(4);
        assert_eq!((&one[..], &two[..]), (&b"one"[..], &b"two."[..]));
        region.skip(1);
        let Some(Cut::Begun(mut three, 3)) = region.cut(5) else {
            panic!("a payload that is not whole");
        };
        three.as_mut()[3..].copy_from_slice(b"ee");
        region.room(1).copy_from_slice(b"4");
        region.fill(1);
        let four = whole(&mut region, 1);
        assert_eq!((&one[..], &four[..]), (&b"one"[..], &b"4"[..]));
        assert_eq!(three.freeze(), &b"three"[..]);
        drop((one, two, four, region));
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn a_payload_that_is_cut_off_behind_whole_ones_is_continued_in_place() {
        let (_, mut region) = region();
        region.room(8).copy_from_slice(b"wholebeg");
        let start = region.room(8).as_ptr();
        region.fill(8);
        let first = whole(&mut region, 5);
        let reader = std::thread::spawn(move || first == b"whole"[..]);
        let Some(Cut::Begun(mut second, 3)) = region.cut(6) else {
            panic!("a payload that is not whole");
        };
        second.as_mut()[3..].copy_from_slice(b"uns");
        assert_eq!(second.as_ref().as_ptr(), start.wrapping_add(5));
        assert_eq!(second.freeze(), &b"beguns"[..]);
        assert!(reader.join().unwrap());
        assert!(region.rest().is_empty());
    }

    #[test]
    fn a_read_without_a_payload_uses_nothing_up_and_a_large_one_has_no_room() {
        let (_, mut region) = region();
        let start = region.room(1).as_ptr();
        region.fill(100);
        region.skip(100);
        assert_eq!(whole(&mut region, 0), Bytes::new());
        assert_eq!(region.room(1).as_ptr(), start);
        assert!(region.cut(UNIT_BYTES + 1).is_none());
        assert!(matches!(region.cut(UNIT_BYTES), Some(Cut::Begun(_, 0))));
        assert!(region.room(1).is_empty());
    }
}
