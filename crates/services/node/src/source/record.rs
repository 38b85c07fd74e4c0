//! One STF as a producer delivers it to an FLP: a head of 24 bytes, then the payload.

use sheaf_protocol::{DIGEST_PIECE_BYTES, Digest, PayloadFormat, Stf, TfId};
use sheaf_transport::Block;
use std::io::{self, Read};
use thiserror::Error;

/// The head of a record. Layout: `docs/reference/feed.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Format of the payload.
    pub format: PayloadFormat,
    /// The TF that it is a part of.
    pub tf: TfId,
    /// Payload bytes.
    pub payload_bytes: u64,
}

/// Why a producer is not listened to any longer: what comes behind such a record cannot be trusted.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Something else speaks, or the stream is shifted.
    #[error(
        "record starts with {found:02x?}, expected {:02x?} (\"STFF\")",
        RecordHeader::MAGIC
    )]
    Magic {
        /// The four bytes found.
        found: [u8; 4],
    },
    /// Another version wrote it.
    #[error("record has version {found}, expected {}", RecordHeader::VERSION)]
    Version {
        /// The version found.
        found: u8,
    },
    /// No such payload format.
    #[error(
        "record has payload format {found}, expected 0 to {}",
        PayloadFormat::CODE_MAX
    )]
    Format {
        /// The code found.
        found: u8,
    },
    /// Bytes that have no meaning yet have one.
    #[error("record has {found:#06x} in its reserved bytes, expected 0")]
    Reserved {
        /// Value found.
        found: u16,
    },
    /// The payload is larger than this FLP takes.
    #[error("record has a payload of {found} bytes, at most {max} are accepted")]
    TooLarge {
        /// Bytes announced.
        found: u64,
        /// The cap, `flp.stf_bytes_max`.
        max: u64,
    },
    /// The stream ended inside a record.
    #[error("record is cut: {got} of {needed} bytes of its {part}")]
    Truncated {
        /// Head or payload.
        part: &'static str,
        /// Bytes that came.
        got: u64,
        /// Bytes that it has.
        needed: u64,
    },
    /// The stream failed.
    #[error("record cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl RecordHeader {
    /// Bytes of the head.
    pub const SIZE: usize = 24;
    /// The first four bytes.
    pub const MAGIC: [u8; 4] = *b"STFF";
    /// The version of this build.
    pub const VERSION: u8 = 1;

    /// The 24 bytes of the head.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..4].copy_from_slice(&Self::MAGIC);
        bytes[4] = Self::VERSION;
        bytes[5] = PayloadFormat::code(self.format);
        bytes[8..16].copy_from_slice(&self.tf.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes
    }

    /// Reads a head.
    ///
    /// # Errors
    ///
    /// [`RecordError`] with the first field that is wrong.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Result<Self, RecordError> {
        let [m0, m1, m2, m3, version, format, r0, r1, ..] = *bytes;
        let magic = [m0, m1, m2, m3];
        if magic != Self::MAGIC {
            return Err(RecordError::Magic { found: magic });
        }
        if version != Self::VERSION {
            return Err(RecordError::Version { found: version });
        }
        let Some(payload_format) = PayloadFormat::from_code(format) else {
            return Err(RecordError::Format { found: format });
        };
        let reserved = u16::from_le_bytes([r0, r1]);
        if reserved != 0 {
            return Err(RecordError::Reserved { found: reserved });
        }
        let u64_at =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 of 24 bytes"));
        Ok(Self {
            format: payload_format,
            tf: TfId(u64_at(8)),
            payload_bytes: u64_at(16),
        })
    }
}

/// Reads the next record, of at most `bytes_max` payload bytes, into memory that `take` gives; `None` if the stream
/// ends in front of it, or if there is no memory for it.
pub(super) fn read_record(
    reader: &mut impl Read,
    bytes_max: u64,
    take: &mut dyn FnMut(usize) -> Option<Block>,
) -> Result<Option<Stf>, RecordError> {
    let mut head = [0; RecordHeader::SIZE];
    match read_full(reader, &mut head)? {
        0 => return Ok(None),
        RecordHeader::SIZE => {}
        got => return Err(truncated("head", got, head.len())),
    }
    let header = RecordHeader::decode(&head)?;
    let too_large = RecordError::TooLarge {
        found: header.payload_bytes,
        max: bytes_max,
    };
    if header.payload_bytes > bytes_max {
        return Err(too_large);
    }
    let Ok(payload_bytes) = usize::try_from(header.payload_bytes) else {
        return Err(too_large);
    };
    let Some(mut payload) = take(payload_bytes) else {
        return Ok(None);
    };
    let (mut digest, mut got) = (Digest::default(), 0);
    for piece in payload.as_mut().chunks_mut(DIGEST_PIECE_BYTES) {
        let read = read_full(reader, piece)?;
        digest.update(&piece[..read]);
        got += read;
        if read < piece.len() {
            return Err(truncated("payload", got, payload_bytes));
        }
    }
    Ok(Some(Stf {
        tf: header.tf,
        format: header.format,
        digest: digest.value(),
        payload: payload.freeze(),
    }))
}

fn truncated(part: &'static str, got: usize, needed: usize) -> RecordError {
    RecordError::Truncated {
        part,
        got: got as u64,
        needed: needed as u64,
    }
}

/// Fills `buffer` as far as the stream goes.
fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match reader.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(bytes) => got += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

#[cfg(test)]
mod tests {
    use super::super::feed::tests::arena;
    use super::*;
    use proptest::prelude::*;

    fn read_one(reader: &mut impl Read, bytes_max: u64) -> Result<Option<Stf>, RecordError> {
        let arena = arena(1);
        read_record(reader, bytes_max, &mut |bytes| arena.allocate(bytes))
    }

    fn record(tf: u64, format: PayloadFormat, payload: &[u8]) -> Vec<u8> {
        let header = RecordHeader {
            format,
            tf: TfId(tf),
            payload_bytes: payload.len() as u64,
        };
        [&header.encode(), payload].concat()
    }

    /// Reads all of `input`; the error that ends it must be `expected`.
    fn check(input: &[u8], records: usize, expected: &str) {
        let mut reader = input;
        let mut read = 0;
        let error = loop {
            match read_one(&mut reader, 100) {
                Ok(Some(_)) => read += 1,
                Ok(None) => break String::new(),
                Err(error) => break error.to_string(),
            }
        };
        assert_eq!((read, error.as_str()), (records, expected));
    }

    #[test]
    fn what_is_not_a_record_is_named() {
        let good = record(7, PayloadFormat::RdhPages, b"payload");
        let changed = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            [good.clone(), bytes].concat()
        };
        check(&[good.clone(), good.clone()].concat(), 2, "");
        check(
            &changed(0, b'G'),
            1,
            "record starts with [47, 54, 46, 46], expected [53, 54, 46, 46] (\"STFF\")",
        );
        check(&changed(4, 2), 1, "record has version 2, expected 1");
        check(
            &changed(5, 5),
            1,
            "record has payload format 5, expected 0 to 4",
        );
        check(
            &changed(7, 1),
            1,
            "record has 0x0100 in its reserved bytes, expected 0",
        );
        check(
            &changed(16, 101),
            1,
            "record has a payload of 101 bytes, at most 100 are accepted",
        );
        check(
            &changed(23, 0xff),
            1,
            "record has a payload of 18374686479671623687 bytes, at most 100 are accepted",
        );
        check(
            &changed(16, 99),
            1,
            "record is cut: 7 of 99 bytes of its payload",
        );
        check(&good[..23], 0, "record is cut: 23 of 24 bytes of its head");
    }

    #[test]
    fn a_payload_of_several_pieces_has_the_digest_of_the_whole() {
        let payload: Vec<u8> = (0..=u8::MAX)
            .cycle()
            .take(2 * DIGEST_PIECE_BYTES + 1)
            .collect();
        let bytes = record(7, PayloadFormat::Opaque, &payload);
        let read = |bytes: &[u8]| read_one(&mut &bytes[..], 1 << 20);
        let stf = read(&bytes).unwrap().unwrap();
        assert_eq!(
            stf,
            Stf::new(TfId(7), PayloadFormat::Opaque, payload.into())
        );
        let cut = read(&bytes[..RecordHeader::SIZE + DIGEST_PIECE_BYTES]).unwrap_err();
        let told = format!(
            "record is cut: {DIGEST_PIECE_BYTES} of {} bytes of its payload",
            2 * DIGEST_PIECE_BYTES + 1
        );
        assert_eq!(cut.to_string(), told);
    }

    proptest! {
        #[test]
        fn a_record_survives_the_stream(
            tf in any::<u64>(), code in 0..=PayloadFormat::CODE_MAX,
            payload in prop::collection::vec(any::<u8>(), 0..100)
        ) {
            let format = PayloadFormat::from_code(code).unwrap();
            let bytes = record(tf, format, &payload);
            let stf = read_one(&mut bytes.as_slice(), 100).unwrap().unwrap();
            prop_assert_eq!(stf, Stf::new(TfId(tf), format, payload.into()));
        }

        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), head in any::<bool>()
        ) {
            let magic: &[u8] = if head { b"STFF\x01\x00\x00\x00" } else { b"" };
            let input = [magic, &bytes].concat();
            let mut reader = input.as_slice();
            while let Ok(Some(stf)) = read_one(&mut reader, 150) {
                prop_assert!(stf.bytes() <= 150);
            }
        }
    }
}
