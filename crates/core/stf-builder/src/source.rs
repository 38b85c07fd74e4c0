//! Sources of STF payloads: the trait that replay, generator and file sources share.
//!
//! A source determines the bytes of a TF. When they are made, how fast, and into which memory is the driver's business:
//! it passes [`Slots`] and gets [`Bytes`] back.

pub mod contract;

use bytes::Bytes;
use sheaf_protocol::{PayloadFormat, TfId, crc32c};

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

/// Answer of a source that is asked for the payload of a TF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// The payload. Empty: the source was there and had nothing in this TF, which is not the same as a missing STF.
    Payload(Bytes),
    /// [`Slots`] had no room. Nothing has changed: ask again when there is.
    NoRoom,
    /// The source is finite and this TF lies behind its end, as do all later ones.
    End,
}

impl Made {
    /// Converts the answer of [`Slots::fill`].
    #[must_use]
    pub fn from_slot(filled: Option<Bytes>) -> Self {
        filled.map_or(Self::NoRoom, Self::Payload)
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

    /// Returns the CRC-32C of a payload that was made by this source. A source that has digested its bytes before need
    /// not read them again.
    fn digest(&self, payload: &Bytes) -> u32 {
        crc32c(payload)
    }
}
