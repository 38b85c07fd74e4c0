//! A TF as a file, and as a consumer at a socket reads it: a head with a table of its STFs, then their payloads.
//!
//! Layout: `docs/reference/tf-file.md`. The head has a CRC-32C of its own, every payload the one that its FLP took: so
//! every byte of the file is covered.

mod next;

pub use next::{NextTf, next_tf};

use crate::view::{View, digest_of};
use bytes::Bytes;
use sheaf_protocol::{
    Attempt, FlpId, Incarnation, Part, PayloadFormat, RunId, Source, Tf, TfId, crc32c,
};
use thiserror::Error;

const MAGIC: [u8; 4] = *b"SHTF";
const VERSION: u16 = 1;
/// Flag of a TF that an EPN which died may have delivered before.
const REDELIVERED: u16 = 1;
/// Bytes in front of the table.
const FIXED: usize = 48;
/// Bytes of a part in the table.
const ENTRY: usize = 32;
/// Heads are as long as a multiple of this, so that payloads begin at a cache line.
const ALIGN: u64 = 64;

/// Why bytes are not a TF file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TfFileError {
    /// Something else.
    #[error("file starts with {found:02x?}, expected {MAGIC:02x?} (\"SHTF\")")]
    Magic {
        /// The four bytes found.
        found: [u8; 4],
    },
    /// Another version wrote it.
    #[error("TF file has version {found}, expected {VERSION}")]
    Version {
        /// The version found.
        found: u16,
    },
    /// The file is too short.
    #[error("TF file is cut: {got} of at least {needed} bytes")]
    Truncated {
        /// Bytes found.
        got: u64,
        /// Bytes that are needed, as far as is known.
        needed: u64,
    },
    /// The file is too long.
    #[error("TF file has {left} bytes behind its last payload")]
    Trailing {
        /// Bytes left over.
        left: u64,
    },
    /// The head is damaged.
    #[error("TF file head has CRC-32C {found:08x}, it states {stated:08x}")]
    HeadDigest {
        /// Value in the bytes.
        found: u32,
        /// Value expected.
        stated: u32,
    },
    /// A payload is damaged.
    #[error("payload of {flp} has CRC-32C {found:08x}, the head states {stated:08x}")]
    PayloadDigest {
        /// The FLP.
        flp: FlpId,
        /// Value in the bytes.
        found: u32,
        /// Value expected.
        stated: u32,
    },
    /// No such payload format.
    #[error(
        "payload of {flp} has format {found}, expected 0 to {}",
        PayloadFormat::CODE_MAX
    )]
    Format {
        /// The FLP.
        flp: FlpId,
        /// The code found.
        found: u8,
    },
    /// A field contradicts others, or has a value that no version gives it.
    #[error("{what} is {found}, expected {expected}")]
    Invalid {
        /// The field.
        what: &'static str,
        /// The value found.
        found: u64,
        /// Value expected.
        expected: u64,
    },
    /// The FLPs are not in order.
    #[error("the {list} of a TF file are not in ascending order of their FLPs")]
    Order {
        /// Parts or missing FLPs.
        list: &'static str,
    },
}

/// Bytes of a head with so many parts and missing FLPs.
fn head_bytes(parts: u64, missing: u64) -> u64 {
    (FIXED as u64 + parts * ENTRY as u64 + missing * 2 + 4).next_multiple_of(ALIGN)
}

/// Returns the head of `tf`; its payloads follow in the order of its parts.
///
/// # Panics
///
/// If the TF has 2^26 parts or more: there are at most 2^16 FLPs.
#[must_use]
pub fn tf_file_head(tf: &Tf<Bytes>) -> Vec<u8> {
    let bytes = head_bytes(tf.parts.len() as u64, tf.missing.len() as u64);
    let head_u32 = u32::try_from(bytes).expect("a table of at most 2^16 FLPs");
    let count = |count: usize| u32::try_from(count).expect("at most 2^16 FLPs");
    let mut head = Vec::with_capacity(head_u32 as usize);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    let flags = if tf.is_redelivered { REDELIVERED } else { 0 };
    head.extend_from_slice(&flags.to_le_bytes());
    head.extend_from_slice(&head_u32.to_le_bytes());
    head.extend_from_slice(&tf.attempt.0.to_le_bytes());
    head.extend_from_slice(&tf.run.0.to_le_bytes());
    head.extend_from_slice(&tf.tf.0.to_le_bytes());
    head.extend_from_slice(&count(tf.parts.len()).to_le_bytes());
    head.extend_from_slice(&count(tf.missing.len()).to_le_bytes());
    head.extend_from_slice(&payload_bytes(tf).to_le_bytes());
    let mut offset = bytes;
    for part in &tf.parts {
        head.extend_from_slice(&part.source.flp.0.to_le_bytes());
        head.extend_from_slice(&[part.format.code(), 0]);
        head.extend_from_slice(&part.digest.to_le_bytes());
        head.extend_from_slice(&part.source.incarnation.0.to_le_bytes());
        head.extend_from_slice(&offset.to_le_bytes());
        head.extend_from_slice(&(part.payload.len() as u64).to_le_bytes());
        offset += part.payload.len() as u64;
    }
    for flp in &tf.missing {
        head.extend_from_slice(&flp.0.to_le_bytes());
    }
    head.resize(head_u32 as usize - 4, 0);
    let digest = crc32c(&head);
    head.extend_from_slice(&digest.to_le_bytes());
    head
}

/// Returns the bytes of all payloads.
#[must_use]
pub fn payload_bytes(tf: &Tf<Bytes>) -> u64 {
    tf.parts.iter().map(|part| part.payload.len() as u64).sum()
}

/// Reads a TF file, or what a consumer at a socket got for one TF, and checks every byte of it.
///
/// # Errors
///
/// [`TfFileError`] with the first thing that is wrong.
pub fn read_tf_file(bytes: &[u8]) -> Result<Tf<&[u8]>, TfFileError> {
    let (head, mut offset) = head_of(bytes)?;
    let fields = Fields { bytes };
    let tf = with_payloads(head, |part| {
        let payload = fields.payload(offset, part.bytes)?;
        let found = crc32c(payload);
        if found != part.digest {
            let (flp, stated) = (part.source.flp, part.digest);
            return Err(TfFileError::PayloadDigest { flp, found, stated });
        }
        offset += part.bytes;
        Ok(payload)
    })?;
    end_at(bytes, offset)?;
    Ok(tf)
}

/// FLPs that there can be: the parts of a TF, and its missing ones.
const FLPS_MAX: u64 = 1 << 16;

/// Reads the TF file `view`, of any size, and checks every byte of it; returns its head. Damage behind the head goes
/// to `damaged`, with its place: all of it, not the first alone.
///
/// # Errors
///
/// [`TfFileError`] if the head is damaged: then the place and size of no payload is known.
pub fn check_tf_file(
    view: &mut impl View,
    mut damaged: impl FnMut(usize, TfFileError),
) -> Result<Tf<()>, TfFileError> {
    let fixed = view.at(0, FIXED);
    let fields = Fields { bytes: fixed };
    let count = |at| fields.u32(at).unwrap_or_default().into();
    let counts: [u64; 2] = [count(32), count(36)];
    let most = usize::try_from(head_bytes(FLPS_MAX, FLPS_MAX)).unwrap_or(usize::MAX);
    let head = usize::try_from(head_bytes(counts[0], counts[1])).unwrap_or(usize::MAX);
    if fixed.starts_with(&MAGIC) && head > most {
        let found = counts[0].max(counts[1]);
        expect("number of FLPs", found, FLPS_MAX)?;
    }
    let (tf, head) = head_of(view.at(0, head.min(most)))?;
    let mut at = usize::try_from(head).unwrap_or(usize::MAX);
    let end = view.end();
    for part in &tf.parts {
        let size = usize::try_from(part.bytes).unwrap_or(usize::MAX);
        let payload_end = at.saturating_add(size);
        if payload_end > end {
            let (got, needed) = (end as u64, payload_end as u64);
            damaged(at.min(end), TfFileError::Truncated { got, needed });
            return Ok(tf);
        }
        let found = digest_of(view, at..payload_end);
        let (stated, flp) = (part.digest, part.source.flp);
        if found != stated {
            damaged(at, TfFileError::PayloadDigest { flp, found, stated });
        }
        at = payload_end;
    }
    if at < end {
        let left = (end - at) as u64;
        damaged(at, TfFileError::Trailing { left });
    }
    Ok(tf)
}

/// Returns whether `bytes` begin like a TF file.
#[must_use]
pub fn is_tf_file(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Puts the payloads to a head that came by itself. Their digests are not compared.
///
/// # Errors
///
/// [`TfFileError`] if the head is damaged, or the payloads are not as many or as long as it states.
pub fn tf_of_head(bytes: &[u8], payloads: Vec<Bytes>) -> Result<Tf<Bytes>, TfFileError> {
    let (head, head_bytes) = head_of(bytes)?;
    let (found, expected) = (payloads.len() as u64, head.parts.len() as u64);
    expect("number of payloads", found, expected)?;
    end_at(bytes, head_bytes)?;
    let mut payloads = payloads.into_iter();
    with_payloads(head, |part| {
        let payload = payloads.next().unwrap_or_default(); // there are as many
        expect("bytes of a payload", payload.len() as u64, part.bytes)?;
        Ok(payload)
    })
}

/// The TF of `head` with what `payload_of` gives for each of its parts.
fn with_payloads<P>(
    head: Tf<()>,
    mut payload_of: impl FnMut(&Part<()>) -> Result<P, TfFileError>,
) -> Result<Tf<P>, TfFileError> {
    let parts = head.parts.into_iter().map(|part| {
        Ok(Part {
            payload: payload_of(&part)?,
            source: part.source,
            format: part.format,
            digest: part.digest,
            bytes: part.bytes,
        })
    });
    Ok(Tf {
        parts: parts.collect::<Result<_, _>>()?,
        run: head.run,
        tf: head.tf,
        attempt: head.attempt,
        is_redelivered: head.is_redelivered,
        missing: head.missing,
    })
}

/// Refuses what comes behind `end`.
fn end_at(bytes: &[u8], end: u64) -> Result<(), TfFileError> {
    match bytes.len() as u64 - end {
        0 => Ok(()),
        left => Err(TfFileError::Trailing { left }),
    }
}

/// Returns the fields of the head, and its length.
fn head_of(bytes: &[u8]) -> Result<(Tf<()>, u64), TfFileError> {
    let fields = Fields { bytes };
    let magic = fields.array(0)?;
    if magic != MAGIC {
        return Err(TfFileError::Magic { found: magic });
    }
    let version = fields.u16(4)?;
    if version != VERSION {
        return Err(TfFileError::Version { found: version });
    }
    let (parts, missing) = (fields.u32(32)?, fields.u32(36)?);
    let head_bytes = head_bytes(parts.into(), missing.into());
    expect("bytes of the head", fields.u32(8)?.into(), head_bytes)?;
    // What follows reads only within the head, so a count that is too large ends here, before anything is allocated.
    let head = usize::try_from(head_bytes)
        .ok()
        .and_then(|count| bytes.get(..count));
    let Some((covered, stated)) = head.and_then(|head| head.split_last_chunk::<4>()) else {
        return Err(TfFileError::Truncated {
            got: bytes.len() as u64,
            needed: head_bytes,
        });
    };
    let (found, stated) = (crc32c(covered), u32::from_le_bytes(*stated));
    if found != stated {
        return Err(TfFileError::HeadDigest { found, stated });
    }
    let flags = fields.u16(6)?;
    expect("bits of unknown flags", (flags & !REDELIVERED).into(), 0)?;
    let table_end = FIXED + parts as usize * ENTRY;
    let missing_at = (0..missing as usize).map(|index| table_end + 2 * index);
    let tf = Tf {
        run: RunId(fields.u64(16)?),
        tf: TfId(fields.u64(24)?),
        attempt: Attempt(fields.u32(12)?),
        is_redelivered: flags & REDELIVERED != 0,
        parts: fields.parts(parts, head_bytes)?,
        missing: missing_at
            .map(|at| fields.u16(at).map(FlpId))
            .collect::<Result<_, _>>()?,
    };
    expect("bytes of all payloads", fields.u64(40)?, tf.bytes())?;
    if !tf.parts.is_sorted_by(|a, b| a.source.flp < b.source.flp) {
        return Err(TfFileError::Order { list: "parts" });
    }
    if !tf.missing.is_sorted_by(|a, b| a < b) {
        return Err(TfFileError::Order {
            list: "missing FLPs",
        });
    }
    Ok((tf, head_bytes))
}

fn expect(what: &'static str, found: u64, expected: u64) -> Result<(), TfFileError> {
    if found == expected {
        Ok(())
    } else {
        Err(TfFileError::Invalid {
            what,
            found,
            expected,
        })
    }
}

/// Little-endian fields of a file.
#[derive(Clone, Copy)]
struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], TfFileError> {
        let field = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        let (got, needed) = (
            self.bytes.len() as u64,
            at.saturating_add(N).max(FIXED) as u64,
        );
        field.copied().ok_or(TfFileError::Truncated { got, needed })
    }

    fn u16(self, at: usize) -> Result<u16, TfFileError> {
        self.array(at).map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Result<u32, TfFileError> {
        self.array(at).map(u32::from_le_bytes)
    }

    fn u64(self, at: usize) -> Result<u64, TfFileError> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// The table of `count` parts, which lies in the head, of payloads that begin at `offset`.
    fn parts(self, count: u32, mut offset: u64) -> Result<Vec<Part<()>>, TfFileError> {
        let mut parts = Vec::with_capacity(count as usize);
        for at in (FIXED..).step_by(ENTRY).take(count as usize) {
            let [code, reserved] = self.array(at + 2)?;
            expect("reserved byte of a part", reserved.into(), 0)?;
            let flp = FlpId(self.u16(at)?);
            let Some(format) = PayloadFormat::from_code(code) else {
                return Err(TfFileError::Format { flp, found: code });
            };
            expect("offset of a payload", self.u64(at + 16)?, offset)?;
            let bytes = self.u64(at + 24)?;
            let got = self.bytes.len() as u64;
            offset = offset.checked_add(bytes).ok_or(TfFileError::Truncated {
                got,
                needed: u64::MAX,
            })?;
            parts.push(Part {
                source: Source {
                    flp,
                    incarnation: Incarnation(self.u64(at + 8)?),
                },
                format,
                digest: self.u32(at + 4)?,
                bytes,
                payload: (),
            });
        }
        Ok(parts)
    }

    fn payload(self, offset: u64, bytes: u64) -> Result<&'a [u8], TfFileError> {
        let end = offset.saturating_add(bytes);
        let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
        let payload = range.and_then(|(start, end)| self.bytes.get(start..end));
        let got = self.bytes.len() as u64;
        payload.ok_or(TfFileError::Truncated { got, needed: end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A TF of opaque payloads, of FLP 0 and so on, without FLP 9.
    pub(super) fn tf(id: u64, payloads: &[&[u8]]) -> Tf<Bytes> {
        let part = |(flp, payload): (u16, &&[u8])| Part {
            source: Source {
                flp: FlpId(flp),
                incarnation: Incarnation(100 + u64::from(flp)),
            },
            format: PayloadFormat::Opaque,
            digest: crc32c(payload),
            bytes: payload.len() as u64,
            payload: Bytes::copy_from_slice(payload),
        };
        Tf {
            run: RunId(0xabc),
            tf: TfId(id),
            attempt: Attempt(2),
            is_redelivered: false,
            parts: (0..).zip(payloads).map(part).collect(),
            missing: vec![FlpId(9)],
        }
    }

    fn file(tf: &Tf<Bytes>) -> Vec<u8> {
        let mut bytes = tf_file_head(tf);
        tf.parts
            .iter()
            .for_each(|part| bytes.extend_from_slice(&part.payload));
        bytes
    }

    /// Borrowed payloads, to compare with what was read.
    fn borrowed(tf: &Tf<Bytes>) -> Tf<&[u8]> {
        let part = |part: &'_ Part<Bytes>| (part.source, part.format, part.digest, part.bytes);
        let parts = tf.parts.iter().map(|p| {
            let (source, format, digest, bytes) = part(p);
            Part {
                source,
                format,
                digest,
                bytes,
                payload: p.payload.as_ref(),
            }
        });
        Tf {
            run: tf.run,
            tf: tf.tf,
            attempt: tf.attempt,
            is_redelivered: tf.is_redelivered,
            parts: parts.collect(),
            missing: tf.missing.clone(),
        }
    }

    /// Changes the head of a good file by `change`, makes its digest right again, and expects the error.
    fn check(change: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let mut bytes = file(&tf(5, &[b"abc", b"", b"defg"]));
        change(&mut bytes);
        let head = 192.min(bytes.len());
        if head == 192 {
            let digest = crc32c(&bytes[..188]);
            bytes[188..192].copy_from_slice(&digest.to_le_bytes());
        }
        assert_eq!(read_tf_file(&bytes).unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_file_has_the_documented_layout() {
        let bytes = file(&tf(0x0102_0304, &[b"abc", b"", b"defg"]));
        assert_eq!(bytes.len(), 192 + 7); // 48 + 3 * 32 + 2 + 4, rounded up
        let (magic, rest) = bytes.split_at(4);
        assert_eq!(magic, b"SHTF");
        assert_eq!(rest[..12], [1, 0, 0, 0, 192, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(
            bytes[16..40],
            [
                0xbc, 10, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0
            ]
        );
        let third = &bytes[48 + 64..48 + 96];
        assert_eq!(third[0..4], [2, 0, 0, 0]);
        assert_eq!(third[4..8], crc32c(b"defg").to_le_bytes());
        assert_eq!(
            third[8..],
            [
                102, 0, 0, 0, 0, 0, 0, 0, 195, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0
            ]
        );
        assert_eq!(bytes[144..146], [9, 0]);
    }

    #[test]
    fn what_is_not_a_tf_file_is_named() {
        check(
            |b| b[0] = b'X',
            "file starts with [58, 48, 54, 46], expected [53, 48, 54, 46] (\"SHTF\")",
        );
        check(|b| b[4] = 2, "TF file has version 2, expected 1");
        check(|b| b[6] = 3, "bits of unknown flags is 2, expected 0");
        check(|b| b[8] = 193, "bytes of the head is 193, expected 192");
        check(
            |b| b[35] = 255,
            "bytes of the head is 192, expected 136902082752",
        );
        check(|b| b[40] = 8, "bytes of all payloads is 8, expected 7");
        check(
            |b| b[48] = 1,
            "the parts of a TF file are not in ascending order of their FLPs",
        );
        check(
            |b| b[50] = 5,
            "payload of flp:0 has format 5, expected 0 to 4",
        );
        check(|b| b[64] = 191, "offset of a payload is 191, expected 192");
        check(
            |b| b[79] = 255,
            "offset of a payload is 195, expected 18374686479671623875",
        );
        check(
            |b| b[192] = b'x',
            "payload of flp:0 has CRC-32C dbf9ee86, the head states 364b3fb7",
        );
        check(|b| b.push(0), "TF file has 1 bytes behind its last payload");
        check(
            |b| b.truncate(100),
            "TF file is cut: 100 of at least 192 bytes",
        );
        let mut bytes = file(&tf(5, &[]));
        bytes[20] ^= 1;
        let error = read_tf_file(&bytes).unwrap_err();
        assert!(matches!(error, TfFileError::HeadDigest { .. }), "{error}");
    }

    #[test]
    fn a_mark_is_one_bit_of_the_head() {
        let plain = tf(5, &[b"abc"]);
        let marked = Tf {
            is_redelivered: true,
            ..plain.clone()
        };
        let (plain, bytes) = (file(&plain), file(&marked));
        assert_eq!(
            (plain[6..8].to_vec(), bytes[6..8].to_vec()),
            (vec![0, 0], vec![1, 0])
        );
        assert_eq!(read_tf_file(&bytes).unwrap(), borrowed(&marked));
    }

    #[test]
    fn payloads_that_came_by_themselves_are_put_to_their_head() {
        let tf = tf(5, &[b"abc", b"", b"defg"]);
        let head = tf_file_head(&tf);
        let payloads: Vec<Bytes> = tf.parts.iter().map(|part| part.payload.clone()).collect();
        assert_eq!(tf_of_head(&head, payloads.clone()).unwrap(), tf);
        let refused = |head: &[u8], payloads: &[Bytes]| {
            tf_of_head(head, payloads.to_vec()).unwrap_err().to_string()
        };
        let two = refused(&head, &payloads[..2]);
        assert_eq!(two, "number of payloads is 2, expected 3");
        let mixed = refused(&head, &[&payloads[1..], &payloads[..1]].concat());
        assert_eq!(mixed, "bytes of a payload is 0, expected 3");
        let long = refused(&[&head[..], b"x"].concat(), &payloads);
        assert_eq!(long, "TF file has 1 bytes behind its last payload");
    }

    /// Returns all that is wrong with a file, found in pieces.
    fn all_wrong(mut bytes: &[u8]) -> Vec<String> {
        let mut found = Vec::new();
        let checked = check_tf_file(&mut bytes, |_, error| found.push(error.to_string()));
        found.extend(checked.err().map(|error| error.to_string()));
        found
    }

    #[test]
    fn every_damaged_payload_is_named() {
        let mut bytes = file(&tf(7, &[b"abc", b"", b"defg"]));
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        bytes[last - 4] ^= 1;
        bytes.push(0);
        let found = all_wrong(&bytes);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[0].starts_with("payload of flp:0 has CRC-32C "),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("payload of flp:2 has CRC-32C "),
            "{found:?}"
        );
        assert_eq!(found[2], "TF file has 1 bytes behind its last payload");
        bytes[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        let found = all_wrong(&bytes);
        assert_eq!(found, ["number of FLPs is 4294967295, expected 65536"]);
    }

    proptest! {
        #[test]
        fn a_tf_survives_its_file_and_damage_is_refused(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
            missing in prop::collection::btree_set(100_u16..200, 0..20),
            id in any::<u64>(), format in 0..=PayloadFormat::CODE_MAX, at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
            let mut tf = tf(id, &slices);
            tf.missing = missing.into_iter().map(FlpId).collect();
            for part in &mut tf.parts {
                part.format = PayloadFormat::from_code(format).unwrap_or_default();
            }
            let bytes = file(&tf);
            prop_assert_eq!(read_tf_file(&bytes).unwrap(), borrowed(&tf));
            prop_assert_eq!(all_wrong(&bytes), Vec::<String>::new());
            for cut in 0..bytes.len() {
                prop_assert!(read_tf_file(&bytes[..cut]).is_err());
                prop_assert_eq!(all_wrong(&bytes[..cut]).len(), 1);
            }
            let mut damaged = bytes;
            let at = at.index(damaged.len());
            damaged[at] ^= 1 << bit;
            prop_assert!(read_tf_file(&damaged).is_err());
        }

        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400),
            parts in 0_u32..8, missing in 0_u32..40, is_head in any::<bool>()
        ) {
            if is_head && bytes.len() >= FIXED {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4..8].copy_from_slice(&[1, 0, 0, 0]);
                bytes[32..36].copy_from_slice(&parts.to_le_bytes());
                bytes[36..40].copy_from_slice(&missing.to_le_bytes());
                let head = head_bytes(parts.into(), missing.into());
                bytes[8..12].copy_from_slice(&u32::try_from(head).unwrap().to_le_bytes());
                let head = usize::try_from(head).unwrap();
                if bytes.len() >= head {
                    let digest = crc32c(&bytes[..head - 4]);
                    bytes[head - 4..head].copy_from_slice(&digest.to_le_bytes());
                }
            }
            let _ = read_tf_file(&bytes);
        }
    }
}
