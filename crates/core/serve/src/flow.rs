//! Connections and the slots that they fall into.

use core::net::IpAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Connection of a client, as its packets show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct Flow {
    /// Address of the client.
    pub address: IpAddr,
    /// Port of the client.
    pub port: u16,
}

/// Part of a connection that picks its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Affinity {
    /// Address and port of the client: each connection by itself.
    #[default]
    Connection,
    /// Address of the client: all its connections go to one server, also those to the data ports of the service.
    Client,
}

impl Affinity {
    /// Returns what picks the server: the connection, or one without a port that stands for all of its client.
    #[must_use]
    pub fn key(self, flow: Flow) -> Flow {
        let flow = flow.canonical();
        match self {
            Self::Connection => flow,
            Self::Client => Flow { port: 0, ..flow },
        }
    }

    /// Returns the hash that nftables computes: that of `jhash ip saddr . tcp sport` with [`Flow::SEED`], whose
    /// registers have 32 bits each, or that of `jhash ip saddr`.
    #[must_use]
    pub fn hash(self, flow: Flow) -> u32 {
        let mut key = [0; 20];
        let address = match flow.address {
            IpAddr::V4(address) => {
                key[..4].copy_from_slice(&address.octets());
                4
            }
            IpAddr::V6(address) => {
                key[..16].copy_from_slice(&address.octets());
                16
            }
        };
        let length = match self {
            Self::Connection => {
                key[address..address + 2].copy_from_slice(&flow.port.to_be_bytes());
                address + 4
            }
            Self::Client => address,
        };
        jhash(&key[..length], SEED)
    }

    /// Returns the slot of a connection among `slots`.
    ///
    /// The hash is scaled, not divided, as the kernel does it (`reciprocal_scale`).
    #[must_use]
    pub fn slot_of(self, flow: Flow, slots: u32) -> u32 {
        let scaled = (u64::from(self.hash(flow)) * u64::from(slots)) >> 32;
        u32::try_from(scaled).unwrap_or(u32::MAX)
    }
}

/// Seed of the hash, equal in all directors.
pub(crate) const SEED: u32 = 0x5EAF_0001;

impl Flow {
    /// Returns the connection with an IPv4 address that is written as IPv6 (`::ffff:10.0.0.1`) made plain, as sockets
    /// for both families list it.
    #[must_use]
    pub fn canonical(self) -> Self {
        Self {
            address: self.address.to_canonical(),
            ..self
        }
    }

    /// Seed of [`Affinity::hash`].
    pub const SEED: u32 = SEED;
}

/// Returns Bob Jenkins' hash `lookup3` (2006, public domain) of `key` as Linux computes it on a little-endian machine.
#[must_use]
pub fn jhash(key: &[u8], seed: u32) -> u32 {
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
    let start = 0xDEAD_BEEF_u32.wrapping_add(length).wrapping_add(seed);
    let (mut a, mut b, mut c) = (start, start, start);
    let word = |bytes: &[u8]| {
        let mut word = [0; 4];
        word[..bytes.len().min(4)].copy_from_slice(&bytes[..bytes.len().min(4)]);
        u32::from_le_bytes(word)
    };
    let mut rest = key;
    while rest.len() > 12 {
        a = a.wrapping_add(word(&rest[..4]));
        b = b.wrapping_add(word(&rest[4..8]));
        c = c.wrapping_add(word(&rest[8..12]));
        a = a.wrapping_sub(c) ^ c.rotate_left(4);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(6);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(8);
        b = b.wrapping_add(a);
        a = a.wrapping_sub(c) ^ c.rotate_left(16);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(19);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(4);
        b = b.wrapping_add(a);
        rest = &rest[12..];
    }
    if rest.is_empty() {
        return c;
    }
    a = a.wrapping_add(word(rest));
    b = b.wrapping_add(word(rest.get(4..).unwrap_or_default()));
    c = c.wrapping_add(word(rest.get(8..).unwrap_or_default()));
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_lookup3() {
        // Expectations of the author's own driver (lookup3.c, `driver5`): hashlittle of the text with these seeds.
        let text = b"Four score and seven years ago";
        assert_eq!(jhash(text, 0), 0x1777_0551);
        assert_eq!(jhash(text, 1), 0xcd62_8161);
        assert_eq!(jhash(b"", 0), 0xdead_beef);
        assert_eq!(jhash(b"", 0xdead_beef), 0xbd5b_7dde);
    }

    #[test]
    fn slots_are_hit_evenly() {
        let slots = 7;
        let mut hits = vec![0; slots as usize];
        for port in 1024..=65_535 {
            let address = "10.0.0.7".parse().expect("an address");
            hits[Affinity::Connection.slot_of(Flow { address, port }, slots) as usize] += 1;
        }
        let even = (65_536 - 1024) / slots as i32;
        assert!(
            hits.iter().all(|hit: &i32| (hit - even).abs() < even / 20),
            "{hits:?}"
        );
    }

    #[test]
    fn a_client_has_one_slot_whatever_its_port() {
        let of = |address: &str, port| {
            let address = address.parse().expect("an address");
            Affinity::Client.slot_of(Flow { address, port }, 4093)
        };
        assert_eq!(of("10.80.1.1", 1), of("10.80.1.1", 60_000));
        assert_eq!(of("fd00:80::1", 1), of("fd00:80::1", 60_000));
        assert_ne!(of("10.80.1.1", 1), of("10.80.1.2", 1));
        let mapped = Flow {
            address: "::ffff:10.80.1.1".parse().expect("an address"),
            port: 5,
        };
        let plain = Flow {
            address: "10.80.1.1".parse().expect("an address"),
            port: 0,
        };
        assert_eq!(Affinity::Client.key(mapped), plain);
    }
}
