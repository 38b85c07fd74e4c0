//! Payload of a message: pseudo-random bytes, a stamp and a check.

/// Bytes of a [`Stamp`].
pub const STAMP_BYTES: usize = 16;

const SEQUENCE_BITS: u32 = 48;

/// The first bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Which sender.
    pub sender: u16,
    /// Which message of this sender, from 0. 48 bits.
    pub sequence: u64,
    /// When it was passed to the library, ns of the machine's monotonic clock; 0 if it is not one that is timed.
    pub sent_ns: u64,
}

impl Stamp {
    /// Sender in the upper 16 bits of a `u64` and sequence number in the others, then the time; little-endian.
    #[must_use]
    pub fn encode(self) -> [u8; STAMP_BYTES] {
        let word = (u64::from(self.sender) << SEQUENCE_BITS) | self.sequence;
        let mut bytes = [0; STAMP_BYTES];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    /// Reads the stamp at the start of `bytes`; `None` if there are too few.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (word, rest) = bytes.split_first_chunk()?;
        let word = u64::from_le_bytes(*word);
        Some(Self {
            sender: (word >> SEQUENCE_BITS) as u16,
            sequence: word & ((1 << SEQUENCE_BITS) - 1),
            sent_ns: u64::from_le_bytes(*rest.first_chunk()?),
        })
    }
}

/// Where the payload of each message lies in a pool of pseudo-random bytes.
///
/// Payloads follow each other through the pool and start again at its front, so that the sender reads memory that
/// has left the caches. The content is a function of the position alone: the receiver knows it without the pool.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    bytes: usize,
    messages_per_lap: u64,
}

impl Layout {
    /// Of messages of `bytes` in a pool of `pool_bytes`.
    #[must_use]
    pub fn new(bytes: usize, pool_bytes: usize) -> Self {
        Self {
            bytes,
            messages_per_lap: (pool_bytes / bytes.max(1)).max(1) as u64,
        }
    }

    /// Offset in the pool of message `sequence`.
    #[must_use]
    pub fn offset(self, sequence: u64) -> usize {
        (sequence % self.messages_per_lap) as usize * self.bytes
    }

    /// How many messages the pool holds.
    #[must_use]
    pub fn slots(self) -> u64 {
        self.messages_per_lap
    }

    /// The last byte of message `sequence`, which is not its stamp's unless the message is nothing else.
    #[must_use]
    pub fn last_byte(self, sequence: u64) -> u8 {
        let position = self.offset(sequence) + self.bytes.saturating_sub(1);
        word((position / 8) as u64).to_le_bytes()[position % 8]
    }
}

/// Fills `pool` with what [`Layout::last_byte`] expects.
pub fn fill(pool: &mut [u8]) {
    for (index, chunk) in (0..).zip(pool.chunks_mut(8)) {
        chunk.copy_from_slice(&word(index).to_le_bytes()[..chunk.len()]);
    }
}

/// The `index`-th output of SplitMix64 with seed 0 (Steele, Lea, Flood, OOPSLA 2014; the mixing constants are
/// Stafford's variant 13).
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
    fn a_stamp_survives_the_wire() {
        for stamp in [
            Stamp {
                sender: 0,
                sequence: 0,
                sent_ns: 0,
            },
            Stamp {
                sender: 0xfedc,
                sequence: 0x0123_4567_89ab,
                sent_ns: u64::MAX,
            },
        ] {
            assert_eq!(Stamp::decode(&stamp.encode()), Some(stamp));
        }
        assert_eq!(Stamp::decode(&[0; 15]), None);
    }

    #[test]
    fn the_last_byte_is_what_the_pool_holds() {
        let mut pool = vec![0; 1003];
        fill(&mut pool);
        assert_eq!(pool[..8], 0xe220_a839_7b1d_cdaf_u64.to_le_bytes());
        for bytes in [16, 17, 500, 501, 502, 1003] {
            let layout = Layout::new(bytes, pool.len());
            for sequence in 0..100 {
                let end = layout.offset(sequence) + bytes;
                assert_eq!(layout.last_byte(sequence), pool[end - 1], "{bytes}");
            }
        }
    }
}
