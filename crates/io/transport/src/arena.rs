//! Memory for bodies: mapped once, touched once, recycled for ever.
//!
//! A page that the kernel provides for the first time costs ten times the copy of what is read into it
//! (fault and zeroing, about 2.5 GB/s on one core). So an endpoint maps all of its memory at the start,
//! in huge pages, touches it, and cuts bodies out of it. A body goes back when its last [`Bytes`] is
//! dropped, on whatever thread that happens.

#![expect(unsafe_code, reason = "mapped memory is shared out by hand here")]

mod free_list;
mod region;
mod shared;

pub(crate) use region::{Cut, Region};
#[cfg(test)]
pub(crate) use shared::ALIGNMENT;
pub use shared::SharedBlocks;

use crate::mapping::Mapping;
use bytes::Bytes;
use free_list::FreeList;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::{fmt, io, slice};
use thiserror::Error;

/// Arena blocks are cut in units of this many bytes.
pub const UNIT_BYTES: usize = 64 << 10;

/// The arena begins at a multiple of this and is as long as a multiple of it: one huge page of x86-64 and aarch64.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Options for the memory of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaOptions {
    /// Asks for huge pages (`MADV_HUGEPAGE`). A kernel without them gives small ones.
    pub huge_pages: bool,
    /// Touches every page at the start, so that none is faulted in while data flows.
    pub prefault: bool,
    /// Memory that can be lent to other processes of this machine. Its pages are small ones unless
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` says `advise`.
    pub shared: bool,
}

impl Default for ArenaOptions {
    fn default() -> Self {
        Self {
            huge_pages: true,
            prefault: true,
            shared: false,
        }
    }
}

/// Why there is no arena.
#[derive(Debug, Error)]
pub enum ArenaError {
    /// The size does not fit the address space.
    #[error("an arena of {bytes} bytes does not fit the address space")]
    Size {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The machine does not give the memory. Ask for less.
    #[error("cannot map an arena of {bytes} bytes: {source}")]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// Error of the operating system.
        source: io::Error,
    },
}

/// One mapping, cut into [`Block`]s.
pub struct Arena {
    /// The mapping, which is up to one huge page longer than what is used of it.
    mapping: Mapping,
    /// The first used byte of the mapping, at a huge-page boundary.
    offset: usize,
    capacity_bytes: usize,
    free: Mutex<FreeList>,
    used_bytes: AtomicU64,
    heap_bytes: AtomicU64,
    heap_blocks: AtomicU64,
    /// Whether a caller found no room and waits for a notification.
    wanted: AtomicBool,
    listeners: Mutex<Vec<Weak<Freed>>>,
}

/// Callback, from any thread, when room was wanted and a block came back.
pub type Freed = dyn Fn() + Send + Sync;

impl Arena {
    /// Maps an arena of at least `bytes`, rounded up to whole huge pages (2 MiB).
    ///
    /// # Errors
    ///
    /// [`ArenaError`] if the size is absurd or the machine does not give the memory.
    pub fn new(bytes: usize, options: ArenaOptions) -> Result<Arc<Self>, ArenaError> {
        let capacity_bytes = bytes
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .filter(|capacity| isize::try_from(capacity.saturating_add(HUGE_PAGE_BYTES)).is_ok())
            .ok_or(ArenaError::Size { bytes })?;
        let failed = |errno: rustix::io::Errno| ArenaError::Map {
            bytes,
            source: errno.into(),
        };
        let (mapping, offset) = if options.shared {
            // The kernel aligns it itself where it has huge pages for shared memory.
            (Mapping::lent(capacity_bytes).map_err(failed)?, 0)
        } else {
            let mapping = Mapping::anonymous(capacity_bytes + HUGE_PAGE_BYTES).map_err(failed)?;
            let offset = mapping.start().as_ptr().align_offset(HUGE_PAGE_BYTES);
            assert!(
                offset < HUGE_PAGE_BYTES,
                "a byte pointer can be aligned to any boundary"
            );
            (mapping, offset)
        };
        if options.huge_pages {
            mapping.ask_for_huge_pages(offset, capacity_bytes);
        }
        if options.prefault {
            mapping.touch(offset, capacity_bytes).map_err(failed)?;
        }
        Ok(Arc::new(Self {
            mapping,
            offset,
            capacity_bytes,
            free: Mutex::new(FreeList::new(capacity_bytes / UNIT_BYTES)),
            used_bytes: AtomicU64::new(0),
            heap_bytes: AtomicU64::new(0),
            heap_blocks: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            listeners: Mutex::new(Vec::new()),
        }))
    }

    /// Returns bytes of the arena.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes as u64
    }

    /// Returns whether its memory can be lent to other processes of this machine.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.mapping.file().is_some()
    }

    /// Returns the bytes of the arena that lie in huge pages now; `None` where the kernel does not report them. Reads
    /// the areas of the process: for the start of a node, not for its loop.
    #[must_use]
    pub fn huge_bytes(&self) -> Option<u64> {
        self.mapping.huge_bytes()
    }

    /// Returns the bytes of the arena at each memory node of the machine, as far as the kernel reports them. Reads the
    /// areas of the process: for the start of a node, not for its loop.
    #[must_use]
    pub fn bytes_by_memory_node(&self) -> BTreeMap<u32, u64> {
        self.mapping.bytes_by_memory_node()
    }

    /// Returns bytes of the arena that are in blocks, whole units of [`UNIT_BYTES`].
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Returns bytes of heap memory that [`allocate_or_heap`](Self::allocate_or_heap) has out now.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        self.heap_bytes.load(Ordering::Relaxed)
    }

    /// Returns how often [`allocate_or_heap`](Self::allocate_or_heap) fell back to the heap.
    #[must_use]
    pub fn heap_blocks_total(&self) -> u64 {
        self.heap_blocks.load(Ordering::Relaxed)
    }

    /// Returns a block of `bytes`, or `None` if no extent of the arena is large enough now. What is in the block is
    /// left over from before.
    #[must_use]
    pub fn allocate(self: &Arc<Self>, bytes: usize) -> Option<Block> {
        if bytes == 0 {
            return Some(Block::default());
        }
        let units = bytes.div_ceil(UNIT_BYTES);
        let first = {
            let mut free = lock(&self.free);
            let first = free.take(units)?;
            self.used_bytes
                .fetch_add((units * UNIT_BYTES) as u64, Ordering::Relaxed);
            first
        };
        // SAFETY: the free list returns units below `capacity_bytes / UNIT_BYTES` only, and the mapping is
        // `capacity_bytes` and more behind `offset`.
        let start = unsafe { self.mapping.start().add(self.offset + first * UNIT_BYTES) };
        let place = Place::Arena { first, units };
        Some(Block::new(Extent {
            arena: Arc::clone(self),
            place,
            start,
            bytes,
        }))
    }

    /// As [`allocate`](Self::allocate), but takes the block from the heap when the arena has no room, as long as
    /// at most `heap_bytes_max` bytes of the heap are out at once.
    #[must_use]
    pub fn allocate_or_heap(self: &Arc<Self>, bytes: usize, heap_bytes_max: u64) -> Option<Block> {
        if let Some(block) = self.allocate(bytes) {
            return Some(block);
        }
        let within = |used: u64| {
            used.checked_add(bytes as u64)
                .filter(|sum| *sum <= heap_bytes_max)
        };
        self.heap_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .ok()?;
        self.heap_blocks.fetch_add(1, Ordering::Relaxed);
        let memory = NonNull::from(Box::leak(vec![0_u8; bytes].into_boxed_slice()));
        let place = Place::Heap { memory };
        Some(Block::new(Extent {
            arena: Arc::clone(self),
            place,
            start: memory.cast(),
            bytes,
        }))
    }

    /// Returns whether `bytes` lie in the arena.
    #[must_use]
    pub fn holds(&self, bytes: &[u8]) -> bool {
        self.mapping.place_of(bytes).is_some()
    }

    /// Returns where `bytes` begin, counted from the start of the memory that other processes can map; `None` if they
    /// do not lie in it, or it cannot be mapped.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Option<u64> {
        self.mapping.file()?;
        self.mapping.place_of(bytes)
    }

    /// Returns the memory, for a test that stands in for another process.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> &Mapping {
        &self.mapping
    }

    /// Returns the memory, for another process, with its length; `None` if it cannot be lent.
    pub(crate) fn file(&self) -> Option<(BorrowedFd<'_>, usize)> {
        Some((self.mapping.file()?, self.mapping.len()))
    }

    /// Has `freed` called, as long as it lives, when a block comes back after [`want`](Self::want).
    pub fn notify_when_freed(&self, freed: &Arc<Freed>) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(freed));
    }

    /// Asks for one call of the listeners. The caller tries to allocate once more afterwards, since the block
    /// may have come back just before.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    fn notify(&self) {
        if self.wanted.swap(false, Ordering::SeqCst) {
            let listeners: Vec<Arc<Freed>> = lock(&self.listeners)
                .iter()
                .filter_map(Weak::upgrade)
                .collect();
            listeners.iter().for_each(|freed| freed());
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("capacity_bytes", &self.capacity_bytes)
            .field("used_bytes", &self.used_bytes())
            .field("heap_bytes", &self.heap_bytes())
            .finish_non_exhaustive()
    }
}

/// Extent of one allocation; returns it when the last block of it is dropped.
struct Extent {
    arena: Arc<Arena>,
    place: Place,
    start: NonNull<u8>,
    bytes: usize,
}

enum Place {
    Arena { first: usize, units: usize },
    Heap { memory: NonNull<[u8]> },
}

// SAFETY: the extent owns its memory and itself uses the pointers only to release it.
unsafe impl Send for Extent {}
// SAFETY: nothing can be done with a shared extent but to look where it is.
unsafe impl Sync for Extent {}

impl Drop for Extent {
    fn drop(&mut self) {
        match self.place {
            Place::Arena { first, units } => {
                let mut free = lock(&self.arena.free);
                free.give(first, units);
                self.arena
                    .used_bytes
                    .fetch_sub((units * UNIT_BYTES) as u64, Ordering::Relaxed);
            }
            Place::Heap { memory } => {
                // SAFETY: `allocate_or_heap` leaked exactly this box, and the last block of it is gone.
                let memory = unsafe { Box::from_raw(memory.as_ptr()) };
                self.arena
                    .heap_bytes
                    .fetch_sub(memory.len() as u64, Ordering::Relaxed);
            }
        }
        self.arena.notify();
    }
}

/// Bytes that one owner may write and read, and then [`freeze`](Self::freeze).
pub struct Block {
    start: NonNull<u8>,
    len: usize,
    keep: Keep,
}

/// Owner of the memory of a block.
enum Keep {
    /// Nothing: it is empty.
    Nothing,
    /// Memory.
    Extent(Extent),
    /// Memory in common with other blocks, each of which names bytes of its own.
    Part(Arc<Extent>),
}

// SAFETY: a block is the only one that names its bytes, as a `Box<[u8]>` would be: those that have memory in common
// were cut apart, and no reference to the whole of it is ever made.
unsafe impl Send for Block {}
// SAFETY: a shared block can only be read.
unsafe impl Sync for Block {}

impl Block {
    fn new(extent: Extent) -> Self {
        Self {
            start: extent.start,
            len: extent.bytes,
            keep: Keep::Extent(extent),
        }
    }

    /// Returns bytes of the block.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the block has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the bytes are heap memory that stands in for a full arena.
    #[must_use]
    pub fn is_on_heap(&self) -> bool {
        match &self.keep {
            Keep::Extent(extent) => matches!(extent.place, Place::Heap { .. }),
            Keep::Nothing | Keep::Part(_) => false,
        }
    }

    /// Creates the same bytes, to be cut into parts by [`split_to`](Self::split_to). Each part is frozen by itself,
    /// while others are written to. The memory goes back when all parts are dropped.
    #[must_use]
    pub fn into_parts(self) -> Self {
        let Self { start, len, keep } = self;
        let keep = match keep {
            Keep::Extent(extent) => Keep::Part(Arc::new(extent)),
            same @ (Keep::Nothing | Keep::Part(_)) => same,
        };
        Self { start, len, keep }
    }

    /// Cuts the first `at` bytes off a block of [parts](Self::into_parts).
    ///
    /// # Panics
    ///
    /// If the block has fewer than `at` bytes, or was not made to be cut.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Self {
        assert!(
            at <= self.len,
            "cannot cut {at} bytes off a block of {}",
            self.len
        );
        if at == self.len {
            return std::mem::take(self);
        }
        let front = Self {
            start: self.start,
            len: at,
            keep: Keep::Part(Arc::clone(self.common())),
        };
        self.advance(at);
        front
    }

    /// Releases the first `by` bytes of a block of [parts](Self::into_parts).
    ///
    /// # Panics
    ///
    /// As [`split_to`](Self::split_to).
    pub fn advance(&mut self, by: usize) {
        assert!(
            by <= self.len,
            "cannot release {by} bytes of a block of {}",
            self.len
        );
        if by == self.len {
            *self = Self::default();
            return;
        }
        let _ = self.common();
        // SAFETY: `by <= len`, so the pointer stays inside the memory or one behind its end.
        self.start = unsafe { self.start.add(by) };
        self.len -= by;
    }

    /// Returns the memory that parts have in common.
    fn common(&self) -> &Arc<Extent> {
        match &self.keep {
            Keep::Part(extent) => extent,
            Keep::Nothing | Keep::Extent(_) => panic!("a block that is cut is one of parts"),
        }
    }

    /// Returns the bytes, from now on shared and immutable. The last drop gives the memory back, on any thread.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        match self.is_empty() {
            true => Bytes::new(),
            false => Bytes::from_owner(self),
        }
    }
}

impl Default for Block {
    /// Creates a block without bytes.
    fn default() -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
            keep: Keep::Nothing,
        }
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `start` and `len` name bytes of memory that this block keeps alive and no other block
        // names; they were written by the kernel (a fresh mapping is zero) or by us. Empty: dangling is allowed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl AsMut<[u8]> for Block {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `as_ref`, and `&mut self` is the only way to these bytes.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// No code panics while it holds one of these locks, and if it did, the data would still be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arena(bytes: usize) -> Arc<Arena> {
        Arena::new(
            bytes,
            ArenaOptions {
                huge_pages: false,
                prefault: false,
                shared: false,
            },
        )
        .unwrap()
    }

    #[test]
    fn the_whole_arena_can_be_used_and_comes_back() {
        let arena = arena(1);
        assert_eq!(arena.capacity_bytes(), 2 << 20);
        let mut blocks: Vec<Block> = std::iter::from_fn(|| arena.allocate(UNIT_BYTES)).collect();
        assert_eq!(blocks.len(), 32);
        assert_eq!(arena.used_bytes(), arena.capacity_bytes());
        let seen = if cfg!(miri) { 64 } else { UNIT_BYTES }; // Miri is slow.
        for (value, block) in (0_u8..).zip(&mut blocks) {
            block.as_mut()[..seen].fill(value);
        }
        for (value, block) in (0_u8..).zip(&blocks) {
            assert!(block.as_ref()[..seen].iter().all(|byte| *byte == value));
        }
        drop(blocks);
        assert_eq!(arena.used_bytes(), 0);
        assert_eq!(arena.allocate(2 << 20).unwrap().len(), 2 << 20);
    }

    #[test]
    fn lengths_are_kept_and_take_whole_units() {
        let arena = arena(1);
        assert!(arena.allocate(0).unwrap().freeze().is_empty());
        assert_eq!(arena.used_bytes(), 0);
        let block = arena.allocate(UNIT_BYTES + 1).unwrap();
        assert_eq!(
            (block.len(), arena.used_bytes()),
            (UNIT_BYTES + 1, 2 * UNIT_BYTES as u64)
        );
        assert!(arena.allocate(2 << 20).is_none());
        assert!(arena.allocate(usize::MAX).is_none());
    }

    #[test]
    fn frozen_bytes_give_the_memory_back_from_another_thread() {
        let arena = arena(1);
        let mut block = arena.allocate(5).unwrap();
        block.as_mut().copy_from_slice(b"hello");
        let bytes = block.freeze();
        let slice = bytes.slice(1..3);
        drop(bytes);
        assert_eq!(arena.used_bytes(), UNIT_BYTES as u64);
        let read = std::thread::spawn(move || slice.to_vec()).join().unwrap();
        assert_eq!((read.as_slice(), arena.used_bytes()), (b"el".as_slice(), 0));
    }

    #[test]
    fn the_parts_of_a_block_are_apart_and_keep_it_together() {
        let arena = arena(1);
        let mut rest = arena.allocate(10).unwrap().into_parts();
        let mut front = rest.split_to(4);
        front.as_mut().fill(1);
        rest.as_mut().fill(2);
        assert_eq!(
            (front.as_ref(), rest.as_ref()),
            ([1; 4].as_slice(), [2; 6].as_slice())
        );
        rest.advance(1);
        let (front, rest) = (front.freeze(), rest.freeze());
        assert_eq!(
            (&front[..], &rest[..]),
            ([1; 4].as_slice(), [2; 5].as_slice())
        );
        drop(front);
        assert_eq!(arena.used_bytes(), UNIT_BYTES as u64);
        drop(rest);
        assert_eq!(arena.used_bytes(), 0);
    }

    #[test]
    fn a_part_is_read_while_others_are_written_to() {
        let arena = arena(1);
        let mut rest = arena.allocate(UNIT_BYTES).unwrap().into_parts();
        let mut readers = Vec::new();
        for turn in 1..=8 {
            let mut part = rest.split_to(100);
            part.as_mut().fill(turn);
            let part = part.freeze();
            readers.push(std::thread::spawn(move || {
                let sum = || part.iter().copied().map(u32::from).sum::<u32>();
                (0..100).all(|_| sum() == 100 * u32::from(turn))
            }));
            rest.as_mut()[..1000].fill(0);
        }
        for reader in readers {
            assert!(reader.join().unwrap());
        }
        rest.advance(rest.len());
        assert_eq!(arena.used_bytes(), 0, "an empty rest holds no memory");
    }

    #[test]
    fn the_heap_helps_out_up_to_its_bound() {
        let arena = arena(1);
        let all = arena.allocate(2 << 20).unwrap();
        let heap = arena.allocate_or_heap(700, 1000).unwrap();
        assert!(arena.allocate_or_heap(301, 1000).is_none());
        assert_eq!((arena.heap_bytes(), arena.heap_blocks_total()), (700, 1));
        drop((heap, all));
        assert_eq!((arena.heap_bytes(), arena.used_bytes()), (0, 0));
    }

    #[test]
    fn who_wants_room_is_told_once_when_some_comes_back() {
        let arena = arena(1);
        let calls = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&calls);
        let freed: Arc<Freed> = Arc::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        arena.notify_when_freed(&freed);
        drop(arena.allocate(1));
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        arena.want();
        drop(arena.allocate(1));
        drop(arena.allocate(1));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn a_prefaulted_arena_of_huge_pages_reads_as_zero() {
        let arena = Arena::new(3 << 20, ArenaOptions::default()).unwrap();
        assert_eq!(arena.capacity_bytes(), 4 << 20);
        let block = arena.allocate(4 << 20).unwrap();
        assert!(block.as_ref().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn an_absurd_size_is_refused() {
        let refused = Arena::new(usize::MAX - 5, ArenaOptions::default()).unwrap_err();
        assert!(matches!(refused, ArenaError::Size { .. }));
    }
}
