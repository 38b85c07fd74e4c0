//! Checksums of files: taken over the bytes as they are written, in one pass, and combined over segments.
//!
//! Adler-32 is the checksum of files in high-energy physics (XRootD and WLCG compare it after every transfer), CRC-32C
//! that of payloads in Sheaf, XXH3 the fast one of ALICE's EPN2EOS. The first two of a file follow from those of its
//! segments; XXH3 does not, so it is there only for files of one segment.

use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;
use xxhash_rust::xxh3::Xxh3Default;

/// Modulus of Adler-32 (RFC 1950, section 9).
const ADLER_MOD: u64 = 65521;
/// Bytes that all sums take before the next ones, so that they find them in the cache.
const STRIDE: usize = 32 << 10;

/// Checksums that are wanted beside Adler-32, which every file has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Kinds {
    /// CRC-32C.
    #[serde(default)]
    pub crc32c: bool,
    /// XXH3 with 64 bits, for files of one segment.
    #[serde(default)]
    pub xxh3: bool,
}

/// Checksums of a file or of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Bytes summed.
    pub bytes: u64,
    /// Adler-32 of them; 1 for no bytes.
    pub adler32: u32,
    /// CRC-32C of them, if wanted.
    pub crc32c: Option<u32>,
    /// XXH3 of them, if wanted and known: not after two segments were combined.
    pub xxh3: Option<u64>,
}

/// Difference between the checksums of a file as stated and as found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{name} is {found}, expected {expected}")]
pub struct SumsError {
    /// Name of the first checksum that differs, or `bytes`.
    pub name: &'static str,
    /// Value found.
    pub found: u64,
    /// Value stated.
    pub expected: u64,
}

impl Sums {
    /// Returns the sums of no bytes.
    #[must_use]
    pub fn empty(kinds: Kinds) -> Self {
        Summing::new(kinds).sums()
    }

    /// Returns the sums of these bytes followed by those of `next`.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        let both = self.crc32c.zip(next.crc32c);
        let xxh3 = match (self.bytes, next.bytes) {
            (_, 0) => self.xxh3,
            (0, _) => next.xxh3,
            _ => None,
        };
        Self {
            bytes: self.bytes + next.bytes,
            adler32: combine_adler32(self.adler32, next.adler32, next.bytes),
            crc32c: both.map(|(first, second)| combine_crc32c(first, second, next.bytes)),
            xxh3,
        }
    }

    /// Compares what is stated here with what was `found`; sums that one of them lacks are not compared.
    ///
    /// # Errors
    ///
    /// [`SumsError`] with the first that differs.
    pub fn compare(&self, found: &Self) -> Result<(), SumsError> {
        let pairs = [
            ("bytes", Some(self.bytes), Some(found.bytes)),
            (
                "adler32",
                Some(u64::from(self.adler32)),
                Some(u64::from(found.adler32)),
            ),
            (
                "crc32c",
                self.crc32c.map(u64::from),
                found.crc32c.map(u64::from),
            ),
            ("xxh3", self.xxh3, found.xxh3),
        ];
        for (name, expected, found) in pairs {
            if let (Some(expected), Some(found)) = (expected, found)
                && expected != found
            {
                return Err(SumsError {
                    name,
                    found,
                    expected,
                });
            }
        }
        Ok(())
    }
}

/// Returns the Adler-32 of bytes with the sum `first` followed by `second_bytes` bytes with the sum `second`.
///
/// The two halves of Adler-32 are sums modulo 65521: the lower of the bytes, the upper of the lower after each byte
/// (RFC 1950, section 9). What follows raises the upper half by the lower one of the first part once for each byte.
#[must_use]
pub fn combine_adler32(first: u32, second: u32, second_bytes: u64) -> u32 {
    let halves = |sum: u32| (u64::from(sum & 0xffff), u64::from(sum >> 16));
    let ((low_1, high_1), (low_2, high_2)) = (halves(first), halves(second));
    let bytes = second_bytes % ADLER_MOD;
    // Every sum begins at 1, which counts once.
    let low = (low_1 + low_2 + ADLER_MOD - 1) % ADLER_MOD;
    let high = (high_1 + high_2 + bytes * low_1 + ADLER_MOD - bytes) % ADLER_MOD;
    // Both halves are below 65521.
    u32::try_from(high << 16 | low).unwrap_or(u32::MAX)
}

fn combine_crc32c(first: u32, second: u32, second_bytes: u64) -> u32 {
    let combined = crc_fast::checksum_combine(
        CrcAlgorithm::Crc32Iscsi,
        u64::from(first),
        u64::from(second),
        second_bytes,
    );
    // A sum of 32 bits in a type for those of 64 as well.
    u32::try_from(combined).unwrap_or(u32::MAX)
}

/// Checksums under way.
#[derive(Clone)]
pub struct Summing {
    bytes: u64,
    adler: simd_adler32::Adler32,
    crc32c: Option<Digest>,
    xxh3: Option<Box<Xxh3Default>>,
}

impl fmt::Debug for Summing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sums().fmt(f)
    }
}

impl Summing {
    /// Begins sums over no bytes.
    #[must_use]
    pub fn new(kinds: Kinds) -> Self {
        Self {
            bytes: 0,
            adler: simd_adler32::Adler32::new(),
            crc32c: kinds.crc32c.then(|| Digest::new(CrcAlgorithm::Crc32Iscsi)),
            xxh3: kinds.xxh3.then(|| Box::new(Xxh3Default::new())),
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        for stride in bytes.chunks(STRIDE) {
            self.adler.write(stride);
            if let Some(crc32c) = &mut self.crc32c {
                crc32c.update(stride);
            }
            if let Some(xxh3) = &mut self.xxh3 {
                xxh3.update(stride);
            }
        }
    }

    /// Returns the sums of the bytes so far.
    #[must_use]
    pub fn sums(&self) -> Sums {
        let crc32c = self.crc32c.as_ref().map(Digest::finalize);
        Sums {
            bytes: self.bytes,
            adler32: self.adler.finish(),
            crc32c: crc32c.map(|sum| u32::try_from(sum).unwrap_or(u32::MAX)),
            xxh3: self.xxh3.as_ref().map(|sum| sum.digest()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: Kinds = Kinds {
        crc32c: true,
        xxh3: true,
    };

    fn sums(bytes: &[u8]) -> Sums {
        let mut summing = Summing::new(ALL);
        summing.update(bytes);
        summing.sums()
    }

    #[test]
    fn sums_are_those_of_the_standards() {
        // RFC 1950's example on Wikipedia; RFC 3720, section B.4; the test vector of XXH3 for no bytes.
        assert_eq!(sums(b"Wikipedia").adler32, 0x11e6_0398);
        assert_eq!(sums(&[0; 32]).crc32c, Some(0x8a91_36aa));
        assert_eq!(sums(b"").xxh3, Some(0x2d06_8005_38d3_94c2));
        assert_eq!(sums(b"").adler32, 1);
    }

    #[test]
    fn a_difference_is_named() {
        let stated = sums(b"abc");
        let told = |found: &[u8]| stated.compare(&sums(found)).expect_err("differs").name;
        assert_eq!((told(b"ab"), told(b"abd")), ("bytes", "adler32"));
        let swapped = Sums {
            crc32c: Some(0),
            ..stated
        };
        assert_eq!(
            stated.compare(&swapped).expect_err("differs").name,
            "crc32c"
        );
        let unknown = Sums {
            crc32c: None,
            xxh3: None,
            ..stated
        };
        assert_eq!(stated.compare(&unknown), Ok(()));
    }

    proptest! {
        #[test]
        fn sums_of_any_segments_combine_to_those_of_the_file(
            bytes in proptest::collection::vec(any::<u8>(), 0..200_000),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let (mut combined, mut from) = (Sums::empty(ALL), 0);
            for to in cuts {
                combined = combined.then(sums(&bytes[from..to]));
                from = to;
            }
            let whole = sums(&bytes);
            prop_assert_eq!(whole.compare(&combined), Ok(()));
            prop_assert!(combined.xxh3.is_none_or(|xxh3| Some(xxh3) == whole.xxh3));
        }

        #[test]
        fn adler_combines_for_lengths_beyond_its_modulus(times in 1u64..300) {
            // Bytes that fill both halves.
            let block = vec![0xff_u8; 65521];
            let one = sums(&block);
            let mut combined = Sums::empty(ALL);
            let mut whole = Summing::new(ALL);
            for _ in 0..times.min(40) {
                combined = combined.then(one);
                whole.update(&block);
            }
            prop_assert_eq!(whole.sums().compare(&combined), Ok(()));
        }
    }
}
