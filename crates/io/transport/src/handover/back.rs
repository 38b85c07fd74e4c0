//! Records in which messages come back to their lender, and the products that they name.

use super::BACK_FIXED;
use super::answer::{TAGS_BYTES_MAX, are_tags};
use crate::fault::ShmFault;
use crate::mapping::Mapping;

/// Memory of a product.
pub(super) struct Product {
    memory: Mapping,
    bytes: u64,
}

impl Product {
    /// Wraps memory with a product of `bytes`.
    pub(super) fn new(memory: Mapping, bytes: u64) -> Self {
        Self { memory, bytes }
    }
}

impl AsRef<[u8]> for Product {
    fn as_ref(&self) -> &[u8] {
        self.memory.look(0, self.bytes).unwrap_or_default() // mapped with this size
    }
}

/// Reads a record that comes back: slot, product, tags.
pub(super) fn read_back(record: &[u8]) -> Result<(u32, u32, &str), ShmFault> {
    let (found, least) = (record.len(), BACK_FIXED);
    let most = BACK_FIXED + TAGS_BYTES_MAX;
    let wrong = || ShmFault::Record { found, least, most };
    let (slot, rest) = record.split_first_chunk().ok_or_else(wrong)?;
    let (product, tags) = rest.split_first_chunk().ok_or_else(wrong)?;
    if tags.len() > TAGS_BYTES_MAX {
        return Err(wrong());
    }
    let tags = std::str::from_utf8(tags).ok().filter(|tags| are_tags(tags));
    let tags = tags.ok_or(ShmFault::Word("tags that are no words"))?;
    Ok((
        u32::from_le_bytes(*slot),
        u32::from_le_bytes(*product),
        tags,
    ))
}
