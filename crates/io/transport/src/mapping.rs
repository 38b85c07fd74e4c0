//! Mapped memory: of this process alone, or shared with others of the machine.
//!
//! The pointers of the crate begin here. Memory that another process may write to is read and written as atomic words.
//! Only bodies are read in place: those that a peer has lent ([`Mapping::lent_at`]), and those that no process can
//! change any more ([`Unchanging`]).
//!
//! Under Miri, which knows neither mappings nor descriptors of memory, a mapping is memory of the heap.

#![expect(unsafe_code, reason = "memory is mapped by hand here")]

use crate::memory_nodes;
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Smallest page of any Linux, in bytes.
const PAGE_BYTES_MIN: usize = 4 << 10;

/// Seals of the size: shrinking a mapped file would kill its readers (SIGBUS) at the next access behind the new end.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::SEAL);

/// A mapping, unmapped when dropped.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// File that is mapped, if others can map it too.
    file: Option<OwnedFd>,
}

// SAFETY: a mapping is a pointer and a length until it is dropped; who may read and write behind the pointer, its
// users decide.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Memory of this process alone.
    pub(crate) fn anonymous(bytes: usize) -> rustix::io::Result<Self> {
        if cfg!(miri) {
            return Ok(Self::of_heap(bytes));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)?
        };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            start,
            bytes,
            file: None,
        })
    }

    /// Memory that other processes can map and write to, of a size that cannot change any more.
    pub(crate) fn shared(bytes: usize) -> rustix::io::Result<Self> {
        Self::sealed(bytes, SIZE_SEALS)
    }

    /// As [`shared`](Self::shared), but no other process can map it for writing, with any descriptor of it.
    ///
    /// Linux before 5.1 does not know that: there, who was given it [to read](read_only) and goes looking for a way to
    /// write (`/proc/self/fd`) finds one.
    pub(crate) fn lent(bytes: usize) -> rustix::io::Result<Self> {
        match Self::sealed(bytes, SIZE_SEALS | SealFlags::FUTURE_WRITE) {
            Err(Errno::INVAL) => Self::sealed(bytes, SIZE_SEALS),
            lent => lent,
        }
    }

    fn sealed(bytes: usize, seals: SealFlags) -> rustix::io::Result<Self> {
        if cfg!(miri) {
            return Ok(Self::of_heap(bytes));
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("sheaf", flags)?;
        rustix::fs::ftruncate(&file, bytes as u64)?;
        let mapping = Self::of(file, bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        // Our own mapping is there already: it is not one of the future.
        rustix::fs::fcntl_add_seals(mapping.file().ok_or(Errno::BADF)?, seals)?;
        Ok(mapping)
    }

    /// Memory of another process. It must be sealed, and as long as stated.
    pub(crate) fn of_peer(file: OwnedFd, bytes: usize, is_writable: bool) -> io::Result<Self> {
        let refused = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(refused("shared memory is not sealed".to_owned()));
        }
        let found = rustix::fs::fstat(&file)?.st_size;
        if bytes == 0 || u64::try_from(found).is_ok_and(|found| found < bytes as u64) {
            let what = format!("shared memory has {found} bytes, its owner says {bytes}");
            return Err(refused(what));
        }
        let write = if is_writable {
            ProtFlags::WRITE
        } else {
            ProtFlags::empty()
        };
        Ok(Self::of(file, bytes, ProtFlags::READ | write)?)
    }

    /// Memory that stands in for a mapping where there are none.
    fn of_heap(bytes: usize) -> Self {
        // SAFETY: the size of a mapping is not 0.
        let start = unsafe { std::alloc::alloc_zeroed(Self::layout(bytes)) };
        Self {
            start: NonNull::new(start).expect("Miri gives all memory"),
            bytes,
            file: None,
        }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, PAGE_BYTES_MIN).expect("a size that fits the address space")
    }

    fn of(file: OwnedFd, bytes: usize, protection: ProtFlags) -> rustix::io::Result<Self> {
        let place = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start =
            unsafe { rustix::mm::mmap(place, bytes, protection, MapFlags::SHARED, &file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let file = Some(file);
        Ok(Self { start, bytes, file })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Returns where `bytes` begin in the mapping; `None` if they do not lie in it.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Option<u64> {
        let offset = (bytes.as_ptr() as usize).checked_sub(self.start.as_ptr() as usize)?;
        (offset.checked_add(bytes.len())? <= self.bytes).then_some(offset as u64)
    }

    /// Asks for huge pages: a hint. A kernel that cannot follow it still gives memory, in small pages.
    pub(crate) fn ask_for_huge_pages(&self, offset: usize, bytes: usize) {
        let _ = self.advise(offset, bytes, Advice::LinuxHugepage);
    }

    /// Returns the bytes of the mapping that lie in huge pages now; `None` where the kernel does not report them.
    pub(crate) fn huge_bytes(&self) -> Option<u64> {
        let start = self.start.as_ptr() as u64;
        let areas = std::fs::read_to_string("/proc/self/smaps").ok()?;
        huge_bytes_of(&areas, start, start + self.bytes as u64)
    }

    /// Returns the bytes of the mapping at each memory node of the machine, as far as the kernel reports them.
    pub(crate) fn bytes_by_memory_node(&self) -> BTreeMap<u32, u64> {
        let start = self.start.as_ptr() as u64;
        let areas = std::fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
        memory_nodes::bytes_in(&areas, start, start + self.bytes as u64)
    }

    /// Faults in every page from `offset` before it is used. Called before the mapping is shared.
    pub(crate) fn touch(&self, offset: usize, bytes: usize) -> rustix::io::Result<()> {
        match self.advise(offset, bytes, Advice::LinuxPopulateWrite) {
            Err(Errno::INVAL) => self.touch_each(offset, bytes), // Linux before 5.14 does not know the advice.
            populated => populated?,
        }
        Ok(())
    }

    fn advise(&self, offset: usize, bytes: usize, advice: Advice) -> rustix::io::Result<()> {
        let start = self.at(offset, bytes);
        // SAFETY: the range is inside the mapping, and neither kind of advice changes what is in it.
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), bytes, advice) }
    }

    fn touch_each(&self, offset: usize, bytes: usize) {
        for at in (offset..offset + bytes).step_by(PAGE_BYTES_MIN) {
            // SAFETY: inside the mapping, which is not shared yet. Volatile, so that the write is not
            // taken for superfluous.
            unsafe { self.at(at, 1).as_ptr().write_volatile(0) };
        }
    }

    /// Returns where `bytes` bytes from `offset` lie.
    fn at(&self, offset: usize, bytes: usize) -> NonNull<u8> {
        let end = offset.checked_add(bytes);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{bytes} bytes from {offset} lie in a mapping of {}",
            self.bytes
        );
        // SAFETY: inside the mapping, or one behind its end.
        unsafe { self.start.add(offset) }
    }

    /// Returns a word that other processes change too.
    ///
    /// # Panics
    ///
    /// If it does not lie in the mapping, or across its boundary.
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        let word = self.at(offset, 8).cast::<u64>();
        assert!(word.is_aligned(), "words lie at multiples of their size");
        // SAFETY: aligned, inside the mapping, which lives as long as `self`; all changes of it are atomic.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }
    }

    /// As [`word`](Self::word), of 32 bits.
    pub(crate) fn half(&self, offset: usize) -> &AtomicU32 {
        let half = self.at(offset, 4).cast::<u32>();
        assert!(half.is_aligned(), "words lie at multiples of their size");
        // SAFETY: as for `word`.
        unsafe { AtomicU32::from_ptr(half.as_ptr()) }
    }

    /// Returns `words` words that other processes change too.
    ///
    /// # Panics
    ///
    /// As [`word`](Self::word).
    pub(crate) fn words(&self, offset: usize, words: usize) -> &[AtomicU64] {
        let start = self.at(offset, words * 8).cast::<AtomicU64>();
        assert!(start.is_aligned(), "words lie at multiples of their size");
        // SAFETY: as for `word`.
        unsafe { slice::from_raw_parts(start.as_ptr(), words) }
    }

    /// Copies `bytes` to `offset` of memory in which no other process can write, before any process learns of them.
    pub(crate) fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: inside the mapping, and `&mut self` is the only way to it in this process.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
    }

    /// Returns whether `bytes` bytes from `offset` lie in the mapping.
    pub(crate) fn has(&self, offset: u64, bytes: u64) -> bool {
        let end = offset.checked_add(bytes);
        end.is_some_and(|end| end <= self.bytes as u64)
    }

    /// Returns what lies at `offset`, in place; `None` if it does not lie in the mapping.
    ///
    /// # Safety
    ///
    /// No process writes to these bytes as long as the result lives: their owner has lent them, and has them back
    /// afterwards.
    pub(crate) unsafe fn lent_at(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        if !self.has(offset, bytes) {
            return None;
        }
        let (offset, bytes) = (usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?);
        // SAFETY: inside the mapping, which lives as long as `self`. That it does not change, the caller knows.
        Some(unsafe { slice::from_raw_parts(self.at(offset, bytes).as_ptr(), bytes) })
    }
}

/// Memory of another process that no process can change any more.
pub(crate) struct Unchanging(Mapping);

impl Unchanging {
    /// Maps `bytes` bytes, which must be sealed against writing. The descriptor is closed.
    pub(crate) fn new(file: OwnedFd, bytes: usize) -> io::Result<Self> {
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        if !seals.contains(SealFlags::WRITE) {
            let what = "memory that its owner can still change";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut mapping = Mapping::of_peer(file, bytes, false)?;
        mapping.file = None;
        Ok(Self(mapping))
    }
}

impl AsRef<[u8]> for Unchanging {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the kernel refuses `F_SEAL_WRITE` while a writable mapping exists, and one of these afterwards.
        let bytes = unsafe { self.0.lent_at(0, self.0.bytes as u64) };
        bytes.expect("all of a mapping lies in it")
    }
}

/// Returns the same memory, for a reader.
pub(crate) fn read_only(file: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Returns memory with a copy of `bytes` that no process can change, this one neither.
pub(crate) fn unchanging(bytes: &[u8]) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = File::from(rustix::fs::memfd_create("sheaf", flags)?);
    file.write_all(bytes)?;
    rustix::fs::fcntl_add_seals(&file, SIZE_SEALS | SealFlags::WRITE)?;
    Ok(file.into())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if cfg!(miri) {
            // SAFETY: as below, with memory of the heap.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), Self::layout(self.bytes)) };
            return;
        }
        // SAFETY: one of the constructors made exactly this mapping; who looks into it borrows it, and every block
        // of an arena holds its arena.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping is unmapped once");
    }
}

/// Returns the bytes in huge pages of all areas of `/proc/self/smaps` between the addresses `start` and `end`.
fn huge_bytes_of(areas: &str, start: u64, end: u64) -> Option<u64> {
    let (mut sum, mut is_inside) = (None, false);
    for line in areas.lines() {
        let (first, rest) = line.split_once(char::is_whitespace)?;
        if let Some((from, to)) = first.split_once('-') {
            let address = |hex| u64::from_str_radix(hex, 16).ok();
            is_inside = address(from)? < end && start < address(to)?;
        } else if is_inside && matches!(first, "AnonHugePages:" | "ShmemPmdMapped:") {
            let kib: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
            sum = Some(sum.unwrap_or(0) + kib * 1024);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn word_at(mapping: &Mapping, offset: usize) -> [u8; 8] {
        let [word] = mapping.words(offset, 1) else {
            panic!("one word");
        };
        word.load(Ordering::Relaxed).to_ne_bytes()
    }

    #[test]
    #[should_panic(expected = "16 bytes from 4088 lie in a mapping of 4096")]
    fn words_lie_in_their_mapping() {
        let _ = Mapping::anonymous(4096).unwrap().words(4088, 2);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn what_one_writes_another_reads_and_cannot_change() {
        let mut mine = Mapping::shared(8192).unwrap();
        mine.copy_in(4000, b"hello   ");
        let file = read_only(mine.file().unwrap()).unwrap();
        let refused = Mapping::of_peer(file.try_clone().unwrap(), 8192, true);
        assert_eq!(
            refused.err().map(|error| error.kind()),
            Some(io::ErrorKind::PermissionDenied)
        );
        let theirs = Mapping::of_peer(file, 8192, false).unwrap();
        assert_eq!(word_at(&theirs, 4000), *b"hello   ");
        assert!(theirs.has(8189, 3) && !theirs.has(8190, 3) && !theirs.has(u64::MAX, 3));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn what_is_lent_cannot_be_written_to_by_any_descriptor() {
        let mut mine = Mapping::lent(1 << 20).unwrap();
        mine.touch(0, mine.len()).unwrap();
        mine.copy_in(4000, b"hello   ");
        let file = read_only(mine.file().unwrap()).unwrap();
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap();
        if !seals.contains(SealFlags::FUTURE_WRITE) {
            eprintln!("skipped: this kernel does not know F_SEAL_FUTURE_WRITE");
            return;
        }
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let reopened = rustix::fs::open(path, flags, Mode::empty()).unwrap();
        let written = rustix::io::pwrite(&reopened, b"other", 4000).unwrap_err();
        assert_eq!(written, Errno::PERM);
        let refused = Mapping::of_peer(reopened.try_clone().unwrap(), mine.len(), true);
        let refused = refused.err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::PermissionDenied));
        let theirs = Mapping::of_peer(reopened, mine.len(), false).unwrap();
        mine.copy_in(4000, b"still   ");
        assert_eq!(word_at(&theirs, 4000), *b"still   ");
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn memory_that_can_shrink_or_is_too_short_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("open", flags).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        let refused = Mapping::of_peer(open, 4096, true).err().unwrap();
        assert_eq!(refused.to_string(), "shared memory is not sealed");
        let short = Mapping::shared(4096).unwrap();
        let file = read_only(short.file().unwrap()).unwrap();
        let refused = Mapping::of_peer(file, 8192, false).err().unwrap();
        assert_eq!(
            refused.to_string(),
            "shared memory has 4096 bytes, its owner says 8192"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn what_is_unchanging_cannot_be_written_to_by_its_owner() {
        let file = unchanging(b"made of it").unwrap();
        let written = rustix::io::pwrite(&file, b"other", 0).unwrap_err();
        assert_eq!(written, Errno::PERM);
        let theirs = Unchanging::new(file, 10).unwrap();
        assert_eq!(theirs.as_ref(), b"made of it");
        let shared = Mapping::shared(4096).unwrap();
        let file = read_only(shared.file().unwrap()).unwrap();
        let refused = Unchanging::new(file, 4096).err().unwrap();
        assert_eq!(
            refused.to_string(),
            "memory that its owner can still change"
        );
    }

    const AREAS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 [anon]
Size:               4096 kB
AnonHugePages:      2048 kB
ShmemPmdMapped:        0 kB
VmFlags: rd wr mr mw me ac sd hg
7f0000400000-7f0000800000 rw-s 00000000 00:01 9       /memfd:sheaf (deleted)
Size:               4096 kB
AnonHugePages:         0 kB
ShmemPmdMapped:     4096 kB
";

    #[test]
    fn huge_pages_are_counted_between_two_addresses() {
        let (start, middle, end) = (0x7f00_0000_0000, 0x7f00_0040_0000, 0x7f00_0080_0000);
        assert_eq!(huge_bytes_of(AREAS, start, middle), Some(2 << 20));
        assert_eq!(huge_bytes_of(AREAS, middle, end), Some(4 << 20));
        assert_eq!(huge_bytes_of(AREAS, start, end), Some(6 << 20));
        assert_eq!(huge_bytes_of(AREAS, end, end + 4096), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs a kernel")]
    fn the_kernel_reports_the_areas_of_this_process() {
        let mapping = Mapping::anonymous(4 << 20).unwrap();
        mapping.touch(0, 4 << 20).unwrap();
        let found = mapping.huge_bytes().expect("Linux with /proc");
        assert!(found <= 4 << 20, "{found}");
    }
}
