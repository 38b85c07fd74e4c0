//! A region of memory on huge pages, all of it mapped before the clock starts.
//!
//! A fresh page costs about ten times the copy into it, and 4 KiB pages cost a sixth to a third of the
//! throughput from 1 MB up, so neither side takes either in its measured window.

#![expect(
    unsafe_code,
    reason = "the standard library cannot map memory or advise on its pages"
)]

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// Private anonymous memory, zeroed and mapped page by page, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Pool {
    start: NonNull<u8>,
    bytes: usize,
}

impl Pool {
    /// Maps `bytes` (more than 0) and touches every page.
    ///
    /// Huge pages are asked for, not insisted on: the report says how many bytes came to lie on them.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        // SAFETY: a null hint lets the kernel choose a place where nothing of this process lies.
        let start = unsafe {
            mmap_anonymous(
                null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let start = start.with_context(|| format!("cannot map a pool of {bytes} bytes"))?;
        let start =
            NonNull::new(start.cast()).context("the kernel mapped the pool at address 0")?;
        let mut pool = Self { start, bytes };
        // SAFETY: the range is the mapping made above, and this advice does not change its content.
        let advised = unsafe { madvise(pool.start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        // A kernel without transparent huge pages answers EINVAL; the run then shows 0 huge bytes.
        if let Err(error) = advised
            && error != rustix::io::Errno::INVAL
        {
            return Err(error).context("cannot ask for huge pages");
        }
        // A write, not a read: reading maps the shared zero page and leaves the fault for later.
        pool.fill(0);
        Ok(pool)
    }
}

impl Deref for Pool {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is `bytes` long, readable, zeroed by the kernel, and lives as long as self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Pool {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and writable; `&mut self` makes the borrow exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping, and no borrow of it outlives self.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping: {unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_zeroed_and_keeps_what_is_written() {
        let mut pool = Pool::new(3 * 4096 + 5).unwrap();
        assert_eq!(pool.len(), 3 * 4096 + 5);
        assert!(pool.iter().all(|&byte| byte == 0));
        *pool.last_mut().unwrap() = 7;
        assert_eq!(pool[3 * 4096 + 4], 7);
    }

    #[test]
    fn a_pool_of_no_bytes_is_refused() {
        assert!(format!("{:#}", Pool::new(0).unwrap_err()).contains("pool of 0 bytes"));
    }
}
