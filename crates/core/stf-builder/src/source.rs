//! Sources of STF payloads: the trait that replay, generator and file sources share.
//!
//! A source determines the bytes of a TF. When they are made, how fast, and into which memory is the driver's business:
//! it passes [`Slots`] and gets [`Bytes`] back.

pub mod contract;

use bytes::Bytes;
use sheaf_protocol::{PayloadFormat, TfId, crc32c};
use std::ops::Deref;

/// Memory that a payload is written to: a node passes its arena, a test the heap.
pub trait Slots {
    /// Lets `fill` write a payload of exactly `bytes` bytes and returns it; `None` if there is no room now.
    ///
    /// What the slice holds before is unspecified: `fill` writes all of it. It is called at most once,
    /// and not at all when there is no room.
    fn fill(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Bytes>;
}

/// Slots on the heap, one allocation a payload, never full. For tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeapSlots;

impl Slots for HeapSlots {
    fn fill(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Bytes> {
        let mut payload = vec![0; bytes];
        fill(&mut payload);
        Some(payload.into())
    }
}

/// A payload that a source has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    /// The bytes.
    pub bytes: Bytes,
    /// CRC-32C of the bytes. A source takes it while it writes them, or has digested them before.
    pub digest: u32,
}

impl Payload {
    /// Creates a payload of bytes that lie in memory already, and reads all of them for their digest.
    #[must_use]
    pub fn of(bytes: Bytes) -> Self {
        let digest = crc32c(&bytes);
        Self { bytes, digest }
    }
}

impl Deref for Payload {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

/// Answer of a source that is asked for the payload of a TF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The payload. Empty: the source was there and had nothing in this TF, which is not the same as a missing STF.
    Payload(Payload),
    /// [`Slots`] had no room. Nothing has changed: ask again when there is.
    NoRoom,
    /// The source is finite and this TF lies behind its end, as do all later ones.
    End,
}

impl Made {
    /// Lets `write` write a payload of exactly `bytes` bytes in `slots` and return its CRC-32C.
    pub fn in_slot(
        slots: &mut dyn Slots,
        bytes: usize,
        write: impl FnOnce(&mut [u8]) -> u32,
    ) -> Self {
        let (mut write, mut digest) = (Some(write), 0);
        let filled = slots.fill(bytes, &mut |place| {
            if let Some(write) = write.take() {
                digest = write(place);
            }
        });
        filled.map_or(Self::NoRoom, |bytes| {
            Self::Payload(Payload { bytes, digest })
        })
    }

    /// Returns the payload of a source that had nothing in a TF.
    #[must_use]
    pub fn empty() -> Self {
        Self::Payload(Payload::default())
    }
}

/// Makes the payload of any TF.
///
/// # Contract, checked for every source by [`contract::check`]
///
/// - The same TF always has the same bytes, whatever was made before it, so a TF can be made again or out of order.
/// - A payload has at most [`bytes_max`](Self::bytes_max) bytes.
/// - Once a TF answers [`Made::End`], every later one does.
pub trait StfSource: Send {
    /// Returns the format of its payloads.
    fn format(&self) -> PayloadFormat;

    /// Returns the bytes of the largest payload that it makes.
    fn bytes_max(&self) -> u64;

    /// Makes the payload of `tf`, in `slots` unless the bytes are there already.
    fn make(&mut self, tf: TfId, slots: &mut dyn Slots) -> Made;
}
