//! The choice of payloads whose digest is computed when they are received.

use serde::{Deserialize, Serialize};
use sheaf_protocol::crc32c;
use std::fmt;
use std::str::FromStr;

/// Choice of the payloads whose CRC-32C an EPN computes when it receives them, to compare it with what their source
/// stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadDigest {
    /// All payloads.
    #[default]
    Crc32c,
    /// All but those that the EPN reads in memory of an FLP on the same machine: for these the digest is passed on as
    /// it is stated, and a consumer that computes it is the first that compares.
    NoneOnLane,
}

impl PayloadDigest {
    const NAMES: [(&'static str, Self); 2] =
        [("crc32c", Self::Crc32c), ("none-on-lane", Self::NoneOnLane)];

    /// Returns the digest to hold against the `stated` one of `body`, of which the transport has computed `arrived`
    /// unless it lies in memory of its sender.
    #[must_use]
    pub(crate) fn found(self, arrived: Option<u32>, body: &[u8], stated: u32) -> u32 {
        match (arrived, self) {
            (Some(arrived), _) => arrived,
            (None, Self::Crc32c) => crc32c(body),
            (None, Self::NoneOnLane) => stated,
        }
    }
}

impl fmt::Display for PayloadDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.iter().filter(|(_, digest)| digest == self);
        f.write_str(names.next().map_or("", |(name, _)| name))
    }
}

impl FromStr for PayloadDigest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut names = Self::NAMES.iter().filter(|(name, _)| *name == text);
        names.next().map(|(_, digest)| *digest).ok_or_else(|| {
            let names = Self::NAMES.map(|(name, _)| name).join(" or ");
            format!("found `{text}`, expected {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_computed_of_what_nothing_has_computed_unless_that_is_turned_off() {
        let (body, stated) = (b"abc", 7);
        for (name, of_lane) in [("crc32c", crc32c(body)), ("none-on-lane", stated)] {
            let digest: PayloadDigest = name.parse().unwrap();
            assert_eq!(digest.to_string(), name);
            assert_eq!(digest.found(None, body, stated), of_lane);
            assert_eq!(digest.found(Some(9), body, stated), 9);
        }
        let error = "xxh3".parse::<PayloadDigest>().unwrap_err();
        assert_eq!(error, "found `xxh3`, expected crc32c or none-on-lane");
    }
}
