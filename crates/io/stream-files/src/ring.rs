//! Direct writes that go on while the worker takes checksums of the bytes behind them, by io_uring.
//!
//! Each write owns its buffer until the kernel is done with it. What fails is given back, to be written again by a
//! plain call.

#![expect(
    unsafe_code,
    reason = "the kernel reads buffers after the call that names them"
)]

use crate::buffer::Buffer;
use crate::file::StreamFile;
use io_uring::{IoUring, opcode, types};
use sheaf_write::FileId;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

/// Writes of one worker at once.
const DEPTH: usize = 4;

/// Write that the kernel has or had.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) id: FileId,
    pub(crate) file: Arc<StreamFile>,
    pub(crate) buffer: Buffer,
    /// Whether all of it is written.
    pub(crate) is_written: bool,
}

/// Writes of one worker.
pub(crate) struct Ring {
    ring: IoUring,
    flying: BTreeMap<u64, Flight>,
    next: u64,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("flying", &self.flying.len())
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Creates a ring.
    ///
    /// # Errors
    ///
    /// Error of the operating system, for instance because io_uring is switched off.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            ring: IoUring::new(2 * DEPTH as u32)?,
            flying: BTreeMap::new(),
            next: 0,
        })
    }

    /// Whether a write has to end before another begins.
    pub(crate) fn is_full(&self) -> bool {
        self.flying.len() >= DEPTH
    }

    /// Whether a write of `file` is under way.
    pub(crate) fn has(&self, file: FileId) -> bool {
        self.flying.values().any(|flight| flight.id == file)
    }

    /// Begins to write a full buffer; returns it if it has to be written by a plain call.
    pub(crate) fn begin(
        &mut self,
        id: FileId,
        file: &Arc<StreamFile>,
        buffer: Buffer,
    ) -> Result<(), Buffer> {
        let Some((at, bytes)) = buffer.whole() else {
            return Err(buffer);
        };
        let Ok(Some(descriptor)) = file.begin_direct(buffer.end()) else {
            return Err(buffer);
        };
        let length = bytes.len() as u32; // a buffer has 2 MiB
        let write = opcode::Write::new(types::Fd(descriptor.as_raw_fd()), bytes.as_ptr(), length)
            .offset(at)
            .build()
            .user_data(self.next);
        // SAFETY: the buffer and the file, and so memory and descriptor, are in `flying` until the write has ended,
        // and `drop` waits for that. The memory of a buffer does not move with the buffer.
        let pushed = unsafe { self.ring.submission().push(&write) };
        if pushed.is_err() {
            return Err(buffer);
        }
        let flight = Flight {
            id,
            file: Arc::clone(file),
            buffer,
            is_written: false,
        };
        self.flying.insert(self.next, flight);
        self.next += 1;
        // What is not submitted now is with the next call that waits.
        let _ = self.ring.submit();
        Ok(())
    }

    /// Waits for the end of a write; `None` if none is under way.
    pub(crate) fn land(&mut self) -> Option<Flight> {
        while !self.flying.is_empty() {
            let ended = self.ring.completion().next();
            let Some(ended) = ended else {
                match self.ring.submit_and_wait(1) {
                    Err(error) if error.kind() != ErrorKind::Interrupted => {
                        std::thread::yield_now();
                    }
                    Ok(_) | Err(_) => {}
                }
                continue;
            };
            let Some(mut flight) = self.flying.remove(&ended.user_data()) else {
                continue;
            };
            let bytes = flight.buffer.whole().map_or(0, |(_, bytes)| bytes.len());
            flight.is_written = usize::try_from(ended.result()).is_ok_and(|found| found == bytes);
            return Some(flight);
        }
        None
    }
}

impl Drop for Ring {
    /// Waits until the kernel reads no buffer any more.
    fn drop(&mut self) {
        while self.land().is_some() {}
    }
}
