//! Frame on the wire: a header of 16 bytes, then the payload; and the check of the payload.
//!
//! Header: payload length, then sequence number, both `u64` little-endian. Sequence numbers count from
//! 0 in each window (the warm-up, then the measured one). A window ends with a header whose length is
//! [`Header::END`] and whose sequence number is the count of messages in the window.

/// The 16 bytes before each payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Payload bytes that follow, or [`Header::END`].
    pub(crate) bytes: u64,
    /// Which message of its window, from 0; at the end the count of messages.
    pub(crate) sequence: u64,
}

impl Header {
    /// Bytes on the wire.
    pub(crate) const SIZE: usize = 16;
    /// The length that no message has: it closes a window.
    pub(crate) const END: u64 = u64::MAX;

    pub(crate) fn encode(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        let field = |at: usize| {
            u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 of the 16 bytes"))
        };
        Self {
            bytes: field(0),
            sequence: field(8),
        }
    }
}

/// Where the payload of each message lies in a pool of pseudo-random bytes.
///
/// Payloads follow each other through the pool and start again at its front, so that the sender reads
/// memory that has left the caches. The content is a function of the position alone: the receiver
/// knows every byte without having the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    payload_bytes: usize,
    messages_per_lap: u64,
}

impl Layout {
    /// `payload_bytes` is at most `pool_bytes`.
    pub(crate) fn new(payload_bytes: usize, pool_bytes: usize) -> Self {
        let messages_per_lap = (pool_bytes / payload_bytes.max(1)).max(1) as u64;
        Self {
            payload_bytes,
            messages_per_lap,
        }
    }

    /// Offset in the pool of the payload of message `sequence`.
    pub(crate) fn offset(self, sequence: u64) -> usize {
        (sequence % self.messages_per_lap) as usize * self.payload_bytes
    }

    /// The last payload byte of message `sequence`; none if payloads are empty.
    pub(crate) fn last_byte(self, sequence: u64) -> Option<u8> {
        let last = self.payload_bytes.checked_sub(1)?;
        let position = self.offset(sequence) + last;
        Some(word((position / 8) as u64).to_le_bytes()[position % 8])
    }
}

/// Fills `pool` with the bytes that [`Layout::last_byte`] expects.
pub(crate) fn fill(pool: &mut [u8]) {
    for (index, chunk) in (0..).zip(pool.chunks_mut(8)) {
        chunk.copy_from_slice(&word(index).to_le_bytes()[..chunk.len()]);
    }
}

/// The `index`-th output of SplitMix64 with seed 0 (Steele, Lea, Flood, OOPSLA 2014; the mixing
/// constants are Stafford's variant 13).
fn word(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_wire() {
        for header in [
            Header {
                bytes: 0,
                sequence: 0,
            },
            Header {
                bytes: 1_000_000,
                sequence: 0x0102_0304_0506_0708,
            },
            Header {
                bytes: Header::END,
                sequence: 7,
            },
        ] {
            assert_eq!(Header::decode(&header.encode()), header);
        }
    }

    #[test]
    fn words_are_those_of_splitmix64() {
        assert_eq!(
            [word(0), word(1)],
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]
        );
    }

    #[test]
    fn the_last_byte_is_what_the_pool_holds() {
        let mut pool = vec![0; 1003];
        fill(&mut pool);
        for payload_bytes in [1, 7, 8, 13, 500, 501, 502, 1003] {
            let layout = Layout::new(payload_bytes, pool.len());
            for sequence in 0..300 {
                let end = layout.offset(sequence) + payload_bytes;
                assert_eq!(
                    layout.last_byte(sequence),
                    Some(pool[end - 1]),
                    "{payload_bytes}"
                );
            }
        }
        assert_eq!(Layout::new(0, pool.len()).last_byte(5), None);
    }
}
