//! The digest of a payload: CRC-32C, the polynomial that modern processors and storage share.

use crc_fast::{CrcAlgorithm, Digest as CrcDigest};
use std::ops::Range;
use std::sync::LazyLock;

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

/// Bytes that are read or copied at a time, so that they are still in the cache for the digest.
pub const DIGEST_PIECE_BYTES: usize = 256 << 10;

/// Copies `pieces` to `place`, one behind the other, and returns their CRC-32C, which is taken while they are in the
/// cache.
///
/// # Panics
///
/// Unless they fill `place`.
#[must_use]
pub fn copy_digested<'a>(place: &mut [u8], pieces: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let (mut digest, mut rest) = (Digest::default(), place);
    for piece in pieces {
        for piece in piece.chunks(DIGEST_PIECE_BYTES) {
            let (front, behind) = rest.split_at_mut(piece.len());
            front.copy_from_slice(piece);
            digest.update(front);
            rest = behind;
        }
    }
    assert!(rest.is_empty(), "{} bytes are not written", rest.len());
    digest.value()
}

/// Returns the kernel that [`crc32c`] uses on this processor, such as `x86_64-avx512-vpclmulqdq`.
#[must_use]
pub fn crc32c_kernel() -> String {
    crc_fast::get_calculator_target(CrcAlgorithm::Crc32Iscsi)
}

/// CRC-32Cs of the beginnings of a buffer, from which that of any of its slices follows: only the ends of the slice are
/// read. For bytes that are used again and again after they were digested once.
#[derive(Clone, Debug)]
pub struct SliceDigests {
    /// The CRC-32C of the first `n` × [`EVERY`](Self::EVERY) bytes, from 0 on.
    beginnings: Vec<u32>,
}

impl SliceDigests {
    /// Bytes from one beginning to the next.
    const EVERY: usize = 4096;

    /// Shorter slices are read: that takes no longer.
    const BYTES_MIN: usize = 32 << 10;

    /// Digests `bytes`, from the first to the last.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut digest = Digest::default();
        let mut beginnings = vec![digest.value()];
        beginnings.extend(bytes.chunks_exact(Self::EVERY).map(|piece| {
            digest.update(piece);
            digest.value()
        }));
        Self { beginnings }
    }

    /// Returns the CRC-32C of `bytes[slice]`, if `bytes` are those that were digested.
    ///
    /// # Panics
    ///
    /// If `slice` is not within `bytes`.
    #[must_use]
    pub fn of(&self, bytes: &[u8], slice: Range<usize>) -> u32 {
        let first = slice.start.div_ceil(Self::EVERY);
        let last = slice.end / Self::EVERY;
        let (Some(&from), Some(&to)) = (self.beginnings.get(first), self.beginnings.get(last))
        else {
            return crc32c(&bytes[slice]);
        };
        if slice.len() < Self::BYTES_MIN {
            return crc32c(&bytes[slice]);
        }
        let (begin, end) = (first * Self::EVERY, last * Self::EVERY);
        // To append is to shift and to add, so what is before is shifted and added once more to take it away.
        let middle = appended(from, to, end - begin);
        let front = crc32c(&bytes[slice.start..begin]);
        let both = appended(front, middle, end - begin);
        appended(both, crc32c(&bytes[end..slice.end]), slice.end - end)
    }
}

/// Returns the CRC-32C of bytes of which those in front have `front`, and the last `bytes` have `back`.
fn appended(front: u32, back: u32, bytes: usize) -> u32 {
    let mut shifted = front;
    for (bit, shift) in SHIFTS.iter().enumerate() {
        if bytes >> bit & 1 == 1 {
            shifted = times(shift, shifted);
        }
    }
    shifted ^ back
}

/// Effect of 2^n bytes on the CRC-32C of those before them, without their own: a linear map, as the
/// images of single bits. The library makes the first of them; its own way to append takes 25 us for any length.
static SHIFTS: LazyLock<[[u32; 32]; usize::BITS as usize]> = LazyLock::new(|| {
    let one_byte: [u32; 32] = std::array::from_fn(|bit| {
        let crc = 1_u64 << bit;
        low_half(crc_fast::checksum_combine(
            CrcAlgorithm::Crc32Iscsi,
            crc,
            0,
            1,
        ))
    });
    let mut shifts = [one_byte; usize::BITS as usize];
    for bit in 1..shifts.len() {
        shifts[bit] = shifts[bit - 1].map(|image| times(&shifts[bit - 1], image));
    }
    shifts
});

/// Applies a linear map to the bits of `crc`.
fn times(map: &[u32; 32], crc: u32) -> u32 {
    let images = map.iter().enumerate();
    images.fold(0, |sum, (bit, image)| sum ^ (image * (crc >> bit & 1)))
}

fn low_half(checksum: u64) -> u32 {
    u32::try_from(checksum).expect("a 32-bit CRC fits 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_digest_of_a_slice_follows_from_those_of_beginnings(
            bytes in 0_usize..200_000,
            ends in (0_usize..=200_000, 0_usize..=200_000),
            is_even in any::<bool>(),
        ) {
            let bytes: Vec<u8> = (0..bytes).map(|at| (at * at / 7 + at) as u8).collect();
            let digests = SliceDigests::new(&bytes);
            let place = |end: usize| {
                let end = if is_even { end & !4095 } else { end };
                end.min(bytes.len())
            };
            let (a, b) = (place(ends.0), place(ends.1));
            let slice = a.min(b)..a.max(b);
            prop_assert_eq!(digests.of(&bytes, slice.clone()), crc32c(&bytes[slice]));
        }
    }

    #[test]
    fn bytes_that_changed_since_do_not_have_the_digest() {
        let mut bytes = vec![7; 90_000];
        let digests = SliceDigests::new(&bytes);
        bytes[50_000] ^= 1;
        assert_ne!(digests.of(&bytes, 100..89_000), crc32c(&bytes[100..89_000]));
    }

    #[test]
    fn the_kernel_has_a_name() {
        assert!(!crc32c_kernel().is_empty());
    }

    #[test]
    fn crc32c_gives_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283); // RFC 3720, appendix B.4 polynomial
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa); // RFC 3720, appendix B.4
    }

    #[test]
    fn pieces_are_copied_one_behind_the_other_and_digested() {
        let bytes: Vec<u8> = (0..3 * DIGEST_PIECE_BYTES + 5).map(|i| i as u8).collect();
        let (front, behind) = bytes.split_at(2 * DIGEST_PIECE_BYTES + 1);
        let mut place = vec![0; bytes.len()];
        let digest = copy_digested(&mut place, [front, &[], behind]);
        assert!(place == bytes);
        assert_eq!(digest, crc32c(&bytes));
        assert_eq!(copy_digested(&mut [], []), crc32c(b""));
    }

    #[test]
    #[should_panic(expected = "2 bytes are not written")]
    fn pieces_fill_their_place() {
        let _ = copy_digested(&mut [0; 5], [&b"abc"[..]]);
    }

    #[test]
    fn pieces_give_the_same_digest_as_the_whole() {
        let bytes: Vec<u8> = (0..10_000_u32).flat_map(u32::to_le_bytes).collect();
        let mut digest = Digest::default();
        bytes.chunks(777).for_each(|piece| digest.update(piece));
        assert_eq!(digest.value(), crc32c(&bytes));
    }
}
