//! Messages of O2-Balancer2, the founding system: structs of C as its processes have them in memory, 24 bytes each.
//!
//! After hexoxide/O2-Balancer2, tag experiment-2: `O2Data` and `O2Channel`, on machines with 8-byte alignment,
//! little-endian. Padding is not looked at, since its bytes were never set. Who sends which: `docs/how-to/zmq.md`,
//! section "O2-Balancer2".

use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddrV4};
use thiserror::Error;

/// Why a part is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{what} has {found} bytes, expected {SIZE}")]
pub struct O2Error {
    /// `O2Data` or `O2Channel`.
    pub what: &'static str,
    /// Bytes found.
    pub found: usize,
}

/// Bytes of each.
pub const SIZE: usize = 24;

/// The first part of every message but an acknowledgement.
///
/// | byte | size | field |
/// | --- | --- | --- |
/// | 0 | 8 | heartbeat |
/// | 8 | 8 | channel that it goes to |
/// | 16 | 1 | 1: channels follow, and no data |
/// | 17 | 7 | padding |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct O2Data {
    /// The heartbeat, from 0.
    pub heartbeat: u64,
    /// The channel of the EPN that gets its data.
    pub channel: u64,
    /// Whether channels follow.
    pub configures: bool,
}

impl O2Data {
    /// The 24 bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.heartbeat.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.channel.to_le_bytes());
        bytes[16] = self.configures.into();
        Bytes::copy_from_slice(&bytes)
    }

    /// Reads the part.
    ///
    /// # Errors
    ///
    /// [`O2Error`] if it has another size.
    pub fn decode(bytes: &[u8]) -> Result<Self, O2Error> {
        let bytes = sized(bytes, "O2Data")?;
        Ok(Self {
            heartbeat: u64_at(bytes, 0),
            channel: u64_at(bytes, 8),
            configures: bytes[16] != 0,
        })
    }
}

/// Where the data of a channel go.
///
/// | byte | size | field |
/// | --- | --- | --- |
/// | 0 | 4 | IPv4 address |
/// | 4 | 4 | padding |
/// | 8 | 8 | channel |
/// | 16 | 2 | port |
/// | 18 | 6 | padding |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct O2Channel {
    /// Number.
    pub channel: u64,
    /// Where its EPN listens.
    pub address: SocketAddrV4,
}

impl O2Channel {
    /// The 24 bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&self.address.ip().octets());
        bytes[8..16].copy_from_slice(&self.channel.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.address.port().to_le_bytes());
        Bytes::copy_from_slice(&bytes)
    }

    /// Reads the part.
    ///
    /// # Errors
    ///
    /// [`O2Error`] if it has another size.
    pub fn decode(bytes: &[u8]) -> Result<Self, O2Error> {
        let bytes = sized(bytes, "O2Channel")?;
        let [a, b, c, d, ..] = *bytes;
        let port = u16::from_le_bytes([bytes[16], bytes[17]]);
        Ok(Self {
            channel: u64_at(bytes, 8),
            address: SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port),
        })
    }
}

fn sized<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a [u8; SIZE], O2Error> {
    let found = bytes.len();
    bytes.try_into().map_err(|_| O2Error { what, found })
}

fn u64_at(bytes: &[u8; SIZE], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 of 24 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_are_laid_out_as_a_c_compiler_does() {
        let data = O2Data {
            heartbeat: 0x0102,
            channel: 3,
            configures: true,
        };
        let bytes = b"\x02\x01\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0";
        assert_eq!(data.encode(), bytes[..]);
        assert_eq!(O2Data::decode(bytes), Ok(data));
        let channel = O2Channel {
            channel: 5,
            address: "10.1.0.8:5555".parse().unwrap(),
        };
        let bytes = b"\x0a\x01\0\x08\0\0\0\0\x05\0\0\0\0\0\0\0\xb3\x15\0\0\0\0\0\0";
        assert_eq!(channel.encode(), bytes[..]);
        assert_eq!(O2Channel::decode(bytes), Ok(channel));
    }

    #[test]
    fn padding_is_not_looked_at_and_other_sizes_are_refused() {
        let data = O2Data::decode(&[0xff; SIZE]).unwrap();
        assert_eq!((data.heartbeat, data.configures), (u64::MAX, true));
        let error = O2Data::decode(&[0; 16]).unwrap_err().to_string();
        assert_eq!(error, "O2Data has 16 bytes, expected 24");
        assert!(O2Channel::decode(&[0; 25]).is_err());
    }
}
