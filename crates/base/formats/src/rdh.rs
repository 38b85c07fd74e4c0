//! The raw data header (RDH) that begins every page of ALICE raw data: versions 6 and 7, 64 bytes.
//!
//! Layout: `docs/reference/formats.md`, section "RDH", after AliceO2
//! `DataFormats/Headers/include/Headers/RAWDataHeader.h`. The two versions differ in one byte: version 7 says how the
//! payload is packed ([`Rdh::data_format`]).

use thiserror::Error;

/// Bits of the trigger word of an RDH, after AliceO2 `RAWDataHeader.h` and the CTP trigger list.
pub mod trigger {
    /// An orbit begins.
    pub const ORBIT: u32 = 1 << 0;
    /// A heartbeat: the HBF of this orbit.
    pub const HEARTBEAT: u32 = 1 << 1;
    /// A physics trigger.
    pub const PHYSICS: u32 = 1 << 4;
    /// Start of a triggered run.
    pub const START_TRIGGERED: u32 = 1 << 7;
    /// End of a triggered run.
    pub const END_TRIGGERED: u32 = 1 << 8;
    /// Start of a continuous run.
    pub const START_CONTINUOUS: u32 = 1 << 9;
    /// End of a continuous run.
    pub const END_CONTINUOUS: u32 = 1 << 10;
    /// First orbit of a timeframe.
    pub const TIMEFRAME: u32 = 1 << 11;
    /// The run is a continuous one.
    pub const CONTINUOUS: u32 = 1 << 13;
    /// The run is going on.
    pub const RUNNING: u32 = 1 << 14;

    /// An HBF inside a TF of a continuous run: 0x6003.
    pub const HBF: u32 = ORBIT | HEARTBEAT | CONTINUOUS | RUNNING;
    /// The first HBF of a TF: 0x6803.
    pub const TF_START: u32 = HBF | TIMEFRAME;
    /// The first HBF of the first TF of a continuous run: 0x6a03.
    pub const RUN_START: u32 = TF_START | START_CONTINUOUS;
}

/// Reason why bytes are not an RDH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RdhError {
    /// The bytes end inside the header.
    #[error("RDH is cut: {got} of {} bytes", Rdh::SIZE)]
    Truncated {
        /// Bytes found.
        got: usize,
    },
    /// Neither version 6 nor 7, or no RDH at all.
    #[error("RDH has version {found}, expected 6 or 7")]
    Version {
        /// The version found.
        found: u8,
    },
    /// The header states another size.
    #[error("RDH states a header size of {found}, expected {}", Rdh::SIZE)]
    HeaderSize {
        /// The size found, in bytes.
        found: u8,
    },
}

/// One link of a Common Readout Unit (CRU): the unit whose pages follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The CRU, 12 bits, unique in the experiment.
    pub cru: u16,
    /// Which of the CRU's two data paths ("DW", end point), 4 bits.
    pub dw: u8,
    /// The link of the data path.
    pub link: u8,
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "link {}.{}.{}", self.cru, self.dw, self.link)
    }
}

/// A raw data header. Reserved bits are not kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rdh {
    /// 6 or 7.
    pub version: u8,
    /// Front-end electronics of the data; its bits have another meaning for each detector.
    pub fee_id: u16,
    /// Priority bit of the front end.
    pub priority: u8,
    /// The detector: 3 TPC, 32 ITS and so on.
    pub system_id: u8,
    /// Bytes from the start of this header to the next one.
    pub offset_to_next: u16,
    /// Bytes of header and payload, without the padding behind.
    pub memory_bytes: u16,
    /// The link that the page came over.
    pub link: Link,
    /// Counts pages, modulo 256: over all links of a data path, or for each link, depending on the set-up.
    pub packet_counter: u8,
    /// Bunch crossing of the trigger, 12 bits.
    pub bunch_crossing: u16,
    /// The LHC orbit, wraps.
    pub orbit: u32,
    /// How the payload is packed: 0 padded to words of 128 bits, 1 and 2 unpadded. Always 0 in version 6.
    pub data_format: u8,
    /// The trigger word, see [`trigger`].
    pub trigger: u32,
    /// Counts the pages of one HBF from 0.
    pub pages_counter: u16,
    /// 1 on the last page of an HBF.
    pub stop_bit: u8,
    /// Status bits whose meaning is the detector's.
    pub detector_field: u32,
    /// Pause and reset bits of the detector ("PAR").
    pub detector_par: u16,
}

const VERSION_AT: usize = 0;
const CRU_AND_DW_AT: usize = 14;
const PACKET_COUNTER_AT: usize = 13;
const ORBIT_AT: usize = 20;
const TRIGGER_AT: usize = 32;
const PAGES_COUNTER_AT: usize = 36;

impl Rdh {
    /// Bytes of a header.
    pub const SIZE: usize = 64;

    /// Reads the header at the start of `bytes`; what follows it is left alone.
    ///
    /// Offsets and sizes are taken as they stand: the walker checks them.
    ///
    /// # Errors
    ///
    /// [`Truncated`](RdhError::Truncated) if `bytes` is too short, [`Version`](RdhError::Version) or
    /// [`HeaderSize`](RdhError::HeaderSize) if this is not an RDH of version 6 or 7.
    pub fn decode(bytes: &[u8]) -> Result<Self, RdhError> {
        let Some(raw) = bytes.first_chunk::<{ Self::SIZE }>() else {
            return Err(RdhError::Truncated { got: bytes.len() });
        };
        let version = raw[VERSION_AT];
        if !matches!(version, 6 | 7) {
            return Err(RdhError::Version { found: version });
        }
        if usize::from(raw[1]) != Self::SIZE {
            return Err(RdhError::HeaderSize { found: raw[1] });
        }
        Ok(Self::fields(raw))
    }

    /// Returns the fields of a header, or of bytes that are to be shown although they are none.
    fn fields(raw: &[u8; Self::SIZE]) -> Self {
        let u16_at = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        let u32_at =
            |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let cru_and_dw = u16_at(CRU_AND_DW_AT).to_le_bytes();
        Self {
            version: raw[VERSION_AT],
            fee_id: u16_at(2),
            priority: raw[4],
            system_id: raw[5],
            offset_to_next: u16_at(8),
            memory_bytes: u16_at(10),
            link: Link {
                cru: u16::from_le_bytes(cru_and_dw) & 0xfff,
                dw: cru_and_dw[1] >> 4,
                link: raw[12],
            },
            packet_counter: raw[PACKET_COUNTER_AT],
            bunch_crossing: u16_at(16) & 0xfff,
            orbit: u32_at(ORBIT_AT),
            data_format: raw[24],
            trigger: u32_at(TRIGGER_AT),
            pages_counter: u16_at(PAGES_COUNTER_AT),
            stop_bit: raw[38],
            detector_field: u32_at(48),
            detector_par: u16_at(52),
        }
    }

    /// Returns the 64 bytes; reserved bits are 0, and so are bits that a field has too many of.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut raw = [0; Self::SIZE];
        raw[VERSION_AT] = self.version;
        raw[1] = 0x40;
        raw[2..4].copy_from_slice(&self.fee_id.to_le_bytes());
        raw[4] = self.priority;
        raw[5] = self.system_id;
        raw[8..10].copy_from_slice(&self.offset_to_next.to_le_bytes());
        raw[10..12].copy_from_slice(&self.memory_bytes.to_le_bytes());
        raw[12] = self.link.link;
        raw[16..18].copy_from_slice(&(self.bunch_crossing & 0xfff).to_le_bytes());
        raw[24] = self.data_format;
        raw[38] = self.stop_bit;
        raw[48..52].copy_from_slice(&self.detector_field.to_le_bytes());
        raw[52..54].copy_from_slice(&self.detector_par.to_le_bytes());
        let mut stamp = Stamp::new(&mut raw);
        stamp.cru_and_dw(self.link.cru, self.link.dw);
        stamp.packet_counter(self.packet_counter);
        stamp.orbit(self.orbit);
        stamp.trigger(self.trigger);
        stamp.pages_counter(self.pages_counter);
        raw
    }

    /// Returns whether this is the last page of its HBF.
    #[must_use]
    pub fn closes_hbf(&self) -> bool {
        self.stop_bit & 1 == 1
    }

    /// Returns whether this is the first page of its HBF.
    #[must_use]
    pub fn opens_hbf(&self) -> bool {
        self.pages_counter == 0
    }

    /// Returns whether the page belongs to the first HBF of a TF.
    #[must_use]
    pub fn starts_tf(&self) -> bool {
        self.trigger & trigger::TIMEFRAME != 0
    }

    /// Returns whether `bytes` begin like an RDH of version 6 or 7.
    #[must_use]
    pub fn is_at_start_of(bytes: &[u8]) -> bool {
        bytes.len() >= Self::SIZE && matches!(bytes[..2], [6 | 7, 0x40])
    }
}

/// Writer of single fields of a header in place, which leaves all other bits as they are.
#[derive(Debug)]
pub struct Stamp<'a>(&'a mut [u8; Rdh::SIZE]);

impl<'a> Stamp<'a> {
    /// Returns a writer for the header in `raw`.
    pub fn new(raw: &'a mut [u8; Rdh::SIZE]) -> Self {
        Self(raw)
    }

    /// Returns a writer for the header at byte `at` of `bytes`; `None` if it does not lie within.
    #[must_use]
    pub fn at(bytes: &'a mut [u8], at: usize) -> Option<Self> {
        bytes.get_mut(at..)?.first_chunk_mut().map(Self)
    }

    /// Writes the orbit.
    #[inline]
    pub fn orbit(&mut self, orbit: u32) {
        self.0[ORBIT_AT..ORBIT_AT + 4].copy_from_slice(&orbit.to_le_bytes());
    }

    /// Writes the packet counter.
    #[inline]
    pub fn packet_counter(&mut self, counter: u8) {
        self.0[PACKET_COUNTER_AT] = counter;
    }

    /// Writes the trigger word.
    #[inline]
    pub fn trigger(&mut self, word: u32) {
        self.0[TRIGGER_AT..TRIGGER_AT + 4].copy_from_slice(&word.to_le_bytes());
    }

    /// Writes the pages counter.
    #[inline]
    pub fn pages_counter(&mut self, counter: u16) {
        self.0[PAGES_COUNTER_AT..PAGES_COUNTER_AT + 2].copy_from_slice(&counter.to_le_bytes());
    }

    /// Writes CRU id (the low 12 bits) and data path (the low 4 bits).
    pub fn cru_and_dw(&mut self, cru: u16, dw: u8) {
        let word = (cru & 0xfff) | (u16::from(dw & 0xf) << 12);
        self.0[CRU_AND_DW_AT..CRU_AND_DW_AT + 2].copy_from_slice(&word.to_le_bytes());
    }

    /// Writes the link id.
    pub fn link_id(&mut self, link: u8) {
        self.0[12] = link;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_trigger_words_are_those_of_the_recorded_runs() {
        assert_eq!(
            [trigger::HBF, trigger::TF_START, trigger::RUN_START],
            [0x6003, 0x6803, 0x6a03]
        );
    }

    #[test]
    fn what_is_not_an_rdh_is_named() {
        let mut raw = Rdh {
            version: 7,
            ..Rdh::default()
        }
        .encode();
        let text = |bytes: &[u8]| Rdh::decode(bytes).unwrap_err().to_string();
        assert_eq!(text(&raw[..63]), "RDH is cut: 63 of 64 bytes");
        raw[1] = 32;
        assert_eq!(text(&raw), "RDH states a header size of 32, expected 64");
        raw[0] = 5;
        assert_eq!(text(&raw), "RDH has version 5, expected 6 or 7");
    }

    proptest! {
        #[test]
        fn decode_and_encode_agree(mut raw in prop::collection::vec(any::<u8>(), 64), seven in any::<bool>()) {
            raw[0] = if seven { 7 } else { 6 };
            raw[1] = 64;
            let rdh = Rdh::decode(&raw).unwrap();
            prop_assert_eq!(Rdh::decode(&rdh.encode()), Ok(rdh));
            prop_assert!(Rdh::is_at_start_of(&raw));
        }

        #[test]
        fn a_stamp_changes_its_field_and_nothing_else(
            raw in prop::collection::vec(any::<u8>(), 64),
            orbit in any::<u32>(), counter in any::<u8>(), word in any::<u32>(), pages in any::<u16>(),
            cru in 0_u16..4096, dw in 0_u8..16, link in any::<u8>(),
        ) {
            let mut raw = raw;
            raw[..2].copy_from_slice(&[7, 64]);
            let before = Rdh::decode(&raw).unwrap();
            let mut stamp = Stamp::at(&mut raw, 0).unwrap();
            stamp.orbit(orbit);
            stamp.packet_counter(counter);
            stamp.trigger(word);
            stamp.pages_counter(pages);
            stamp.cru_and_dw(cru, dw);
            stamp.link_id(link);
            let expected = Rdh {
                orbit, packet_counter: counter, trigger: word, pages_counter: pages,
                link: Link { cru, dw, link }, ..before
            };
            prop_assert_eq!(Rdh::decode(&raw), Ok(expected));
        }

        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(raw in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Rdh::decode(&raw);
        }
    }
}
