//! Is a record of a table what was written under its key?
//!
//! Every value in a table is a frame: CRC-32C of key, version and payload (4 bytes, little-endian), the version of the
//! layout (1 byte), the payload. The checksum covers the key, so a record in a wrong place is damaged as well.

use crc_fast::{CrcAlgorithm, Digest};

/// Version of the layout of all records; stands in each of them and in the file `format`.
pub(crate) const FORMAT: u8 = 1;

/// Reason why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record is damaged: {0}")]
pub(crate) struct Damage(pub(crate) &'static str);

/// CRC-32C of the parts one after the other.
pub(crate) fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).expect("a CRC of 32 bits")
}

/// Returns the frame of `payload` under `key`.
pub(crate) fn frame(key: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(payload.len() + 5);
    bytes.extend_from_slice(&checksum(&[key, &[FORMAT], payload]).to_le_bytes());
    bytes.push(FORMAT);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns the payload of the frame `bytes` that stands under `key`.
pub(crate) fn payload<'a>(key: &[u8], bytes: &'a [u8]) -> Result<&'a [u8], Damage> {
    let (found, rest) = bytes
        .split_first_chunk::<4>()
        .ok_or(Damage("fewer than 5 bytes"))?;
    if checksum(&[key, rest]) != u32::from_le_bytes(*found) {
        return Err(Damage("its checksum is another"));
    }
    let (&version, payload) = rest.split_first().ok_or(Damage("fewer than 5 bytes"))?;
    if version != FORMAT {
        return Err(Damage("its version is another"));
    }
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_bit_and_a_wrong_key_are_noticed() {
        let bytes = frame(b"key", b"payload");
        assert_eq!(payload(b"key", &bytes), Ok(&b"payload"[..]));
        assert!(payload(b"kez", &bytes).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(payload(b"key", &changed).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(payload(b"key", &bytes[..length]).is_err(), "{length} bytes");
        }
    }
}
