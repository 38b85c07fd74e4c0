//! collectd's binary network protocol.
//!
//! A packet is a list of parts: type and length (16 bits each, big-endian, the length with these 4 bytes), then
//! content. Parts of names and times stay in force until the next one of their type; each part of values makes one
//! [`ValueList`]. Numbers are big-endian, but for gauges, which are little-endian doubles.
//!
//! A signed packet begins with an HMAC-SHA-256 over all that follows it. The check is a function that the driver gives
//! ([`Security::verify`]), since keys and cryptography are not known here. Encrypted packets are refused
//! ([`Code::Encrypted`](super::Code::Encrypted)): let the sender sign, or use a protected network.
//!
//! Source: "Binary protocol", collectd wiki, and `src/network.h` of collectd 5 for the numbers.

mod decode;
mod encode;
mod types;

pub use decode::{Packet, Security, Value, ValueList, Verify, decode};
pub use encode::{EncodeError, Names, write};
pub use types::{DataSource, Types};

/// Numbers of parts.
mod part {
    pub(super) const HOST: u16 = 0x0000;
    pub(super) const TIME: u16 = 0x0001;
    pub(super) const PLUGIN: u16 = 0x0002;
    pub(super) const PLUGIN_INSTANCE: u16 = 0x0003;
    pub(super) const TYPE: u16 = 0x0004;
    pub(super) const TYPE_INSTANCE: u16 = 0x0005;
    pub(super) const VALUES: u16 = 0x0006;
    pub(super) const INTERVAL: u16 = 0x0007;
    pub(super) const TIME_HR: u16 = 0x0008;
    pub(super) const INTERVAL_HR: u16 = 0x0009;
    pub(super) const MESSAGE: u16 = 0x0100;
    pub(super) const SEVERITY: u16 = 0x0101;
    pub(super) const SIGNATURE: u16 = 0x0200;
    pub(super) const ENCRYPTED: u16 = 0x0210;
}
