//! The digest of a payload: CRC-32C, the polynomial that modern processors and storage share.

use crc_fast::{CrcAlgorithm, Digest as CrcDigest};

/// CRC-32C (Castagnoli, iSCSI) of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    low_half(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

/// A CRC-32C that is fed piece by piece, for payloads that arrive in several reads.
#[derive(Clone, Debug)]
pub struct Digest(CrcDigest);

impl Default for Digest {
    fn default() -> Self {
        Self(CrcDigest::new(CrcAlgorithm::Crc32Iscsi))
    }
}

impl Digest {
    /// Takes in the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the CRC-32C of all pieces so far.
    #[must_use]
    pub fn value(&self) -> u32 {
        low_half(self.0.finalize())
    }
}

fn low_half(checksum: u64) -> u32 {
    u32::try_from(checksum).expect("a 32-bit CRC fits 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_gives_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283); // RFC 3720, appendix B.4 polynomial
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, appendix B.4
    }

    #[test]
    fn pieces_give_the_same_digest_as_the_whole() {
        let bytes: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut digest = Digest::default();
        bytes.chunks(777).for_each(|piece| digest.update(piece));
        assert_eq!(digest.value(), crc32c(&bytes));
    }
}
