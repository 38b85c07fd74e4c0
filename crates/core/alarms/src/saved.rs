//! Forms in which state is saved: a frame with version and checksum around JSON.

use sheaf_samples::Labels;

/// First word of the frame.
const MAGIC: &str = "sheaf-alarms";
/// Version of what is in the frame; another is refused.
const VERSION: u32 = 1;
/// Largest state that is read, in bytes.
const BYTES_MAX: usize = 256 << 20;

/// Reason why saved state is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// Bytes that are no state of alarms.
    #[error("saved state does not begin as expected, with \"sheaf-alarms\" and a version")]
    Magic,
    /// State of another version.
    #[error("saved state has version {found}, expected {VERSION}")]
    Version {
        /// Version of the state.
        found: u32,
    },
    /// State that was cut or changed; start without it.
    #[error("saved state has checksum {found:08x}, expected {expected:08x}")]
    Checksum {
        /// Checksum of the bytes.
        found: u32,
        /// Checksum in the frame.
        expected: u32,
    },
    /// Whole state that does not fit together.
    #[error("saved state cannot be read: {0}")]
    Content(String),
}

/// Returns the frame around `content`.
pub(crate) fn frame<T: serde::Serialize>(content: &T) -> Vec<u8> {
    // All maps have text keys and all numbers are whole, so there is a JSON form.
    let json = serde_json::to_vec(content).expect("state has a JSON form");
    let mut bytes = format!("{MAGIC} {VERSION} {:08x}\n", checksum(&json)).into_bytes();
    bytes.extend_from_slice(&json);
    bytes
}

/// Returns the content of a frame.
pub(crate) fn unframe<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, RestoreError> {
    let end = bytes
        .iter()
        .take(64)
        .position(|one| *one == b'\n')
        .ok_or(RestoreError::Magic)?;
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| RestoreError::Magic)?;
    let mut words = head.split(' ');
    if words.next() != Some(MAGIC) {
        return Err(RestoreError::Magic);
    }
    let found = words
        .next()
        .and_then(|word| word.parse().ok())
        .ok_or(RestoreError::Magic)?;
    if found != VERSION {
        return Err(RestoreError::Version { found });
    }
    let expected = words
        .next()
        .and_then(|word| u32::from_str_radix(word, 16).ok())
        .ok_or(RestoreError::Magic)?;
    let json = &bytes[end + 1..];
    let found = checksum(json);
    if found != expected {
        return Err(RestoreError::Checksum { found, expected });
    }
    if json.len() > BYTES_MAX {
        return Err(RestoreError::Content(format!(
            "{} bytes, expected {BYTES_MAX} at most",
            json.len()
        )));
    }
    serde_json::from_slice(json).map_err(|error| RestoreError::Content(error.to_string()))
}

fn checksum(bytes: &[u8]) -> u32 {
    // CRC-32C fills the lower half.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Numbers as their bits: JSON has neither NaN nor infinities.
pub(crate) mod bits {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the form that serde asks for"
    )]
    pub(crate) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(value.to_bits())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(f64::from_bits)
    }
}

/// Labels as pairs.
pub(crate) mod labels {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use sheaf_samples::Labels;
    use std::sync::Arc;

    pub(crate) fn serialize<S: Serializer>(
        labels: &Arc<Labels>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(labels.iter())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<Labels>, D::Error> {
        let pairs = std::collections::BTreeMap::<String, String>::deserialize(deserializer)?;
        Labels::new(pairs).map(Arc::new).map_err(de::Error::custom)
    }
}

/// Number that names labels: FNV-1a of names and values, each followed by 0xff, as Prometheus makes it.
#[must_use]
pub fn fingerprint(labels: &Labels) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mut hash = OFFSET;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0xff]) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    };
    for (name, value) in labels.iter() {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_or_says_why_not() {
        let bytes = frame(&[1, 2, 3]);
        assert_eq!(unframe::<[i32; 3]>(&bytes), Ok([1, 2, 3]));
        let mut damaged = bytes.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(matches!(
            unframe::<[i32; 3]>(&damaged),
            Err(RestoreError::Checksum { .. })
        ));
        assert!(matches!(
            unframe::<[i32; 3]>(&bytes[..bytes.len() - 1]),
            Err(RestoreError::Checksum { .. })
        ));
        assert_eq!(
            unframe::<i32>(b"something else\n"),
            Err(RestoreError::Magic)
        );
        assert_eq!(unframe::<i32>(b""), Err(RestoreError::Magic));
        assert_eq!(
            unframe::<i32>(b"sheaf-alarms 9 0\n"),
            Err(RestoreError::Version { found: 9 })
        );
        assert!(matches!(
            unframe::<String>(&bytes),
            Err(RestoreError::Content(_))
        ));
    }
}
