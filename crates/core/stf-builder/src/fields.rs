//! Fixed-size fields of foreign bytes: there, or `None`.

/// The `N` bytes from byte `at` on.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// A little-endian u32 at byte `at`.
pub(crate) fn u32_le(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

/// A little-endian i32 at byte `at`.
pub(crate) fn i32_le(bytes: &[u8], at: usize) -> Option<i32> {
    array(bytes, at).map(i32::from_le_bytes)
}

/// A big-endian u32 at byte `at`.
pub(crate) fn u32_be(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}
