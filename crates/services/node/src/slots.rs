//! Payloads in an arena: what sources write into.

use bytes::Bytes;
use sheaf_stf_builder::Slots;
use sheaf_transport::Arena;
use std::sync::Arc;

/// Gives out blocks of an arena.
pub(crate) struct ArenaSlots(pub(crate) Arc<Arena>);

impl Slots for ArenaSlots {
    fn fill(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Bytes> {
        let mut block = self.0.allocate(bytes)?;
        fill(block.as_mut());
        Some(block.freeze())
    }
}
