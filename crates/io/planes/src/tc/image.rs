//! Table of a service as bytes of the sections of the program. Layouts are those of `bpf/direct.bpf.c`.

use sheaf_serve::Flow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// Version of the layout: a director goes on with the table of one that had the same.
const VERSION: u32 = 1;
/// Virtual addresses of a service at most.
pub(super) const ADDRESSES_MAX: usize = 8;
/// Servers of a service at most, with those that had connections before.
pub(super) const SERVERS_MAX: u16 = 256;
/// Slots in the section, which has one size whatever the service has.
const SLOTS: usize = 65_537;
/// Slot that is not on the move.
const NONE: u16 = 0xffff;

pub(super) const CONFIG_BYTES: usize = 208;
const SERVER_BYTES: usize = 48;
pub(super) const SERVERS_BYTES: usize = SERVER_BYTES * SERVERS_MAX as usize;
const SLOT_BYTES: usize = 4;
pub(super) const SLOTS_BYTES: usize = SLOT_BYTES * SLOTS;
const NAME_BYTES: usize = 40;

/// Connection of a client as key of maps.
pub(super) type Key = [u8; 20];
/// Packets and bytes.
pub(super) type Counter = [u8; 16];

/// Hardware address.
pub(super) type Mac = [u8; 6];

/// Server at its place in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) mac: Mac,
    /// Whether packets go there; else its counter alone is kept.
    pub(super) is_used: bool,
}

/// Slot with the place of its server, and that of the one that it moves to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) own: u16,
    pub(super) next: Option<u16>,
}

/// Table of a service: all that is constant in a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) service: String,
    /// Index of the interface.
    pub(super) interface: u32,
    /// Hardware address of the interface.
    pub(super) own: Mac,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) port: u16,
    pub(super) further_ports: Option<[u16; 2]>,
    pub(super) by_client: bool,
    pub(super) has_pins: bool,
    /// End of the time in which first packets wait, in ns of the monotonic clock.
    pub(super) hold_until: u64,
    pub(super) servers: BTreeMap<u16, Server>,
    pub(super) slots: Vec<Slot>,
}

/// Sections of the program.
#[derive(Clone, Debug)]
pub(super) struct Sections {
    pub(super) config: [u8; CONFIG_BYTES],
    pub(super) servers: Vec<u8>,
    pub(super) slots: Vec<u8>,
}

impl Table {
    pub(super) fn has_moving(&self) -> bool {
        self.slots.iter().any(|slot| slot.next.is_some())
    }

    pub(super) fn encode(&self) -> Sections {
        let mut config = Writer(Vec::with_capacity(CONFIG_BYTES));
        config.put(&VERSION.to_ne_bytes());
        config.put(&self.interface.to_ne_bytes());
        config.put(&(self.slots.len() as u32).to_ne_bytes());
        config.put(&(self.addresses.len().min(ADDRESSES_MAX) as u32).to_ne_bytes());
        config.put(&self.hold_until.to_ne_bytes());
        // A range that is empty, if there is none.
        let [first, last] = self.further_ports.unwrap_or([1, 0]);
        for port in [self.port, first, last] {
            config.put(&port.to_ne_bytes());
        }
        for flag in [self.by_client, self.has_pins, self.has_moving(), false] {
            config.put(&[u8::from(flag)]);
        }
        config.put(&self.own);
        for at in 0..ADDRESSES_MAX {
            let address = self.addresses.get(at).copied();
            config.put(&octets(address.unwrap_or(Ipv6Addr::UNSPECIFIED.into())));
        }
        config.put(&name(&self.service));
        let mut servers = vec![0; SERVERS_BYTES];
        for (place, server) in &self.servers {
            let at = usize::from(*place) * SERVER_BYTES;
            let bytes = &mut servers[at..at + SERVER_BYTES];
            bytes[..6].copy_from_slice(&server.mac);
            bytes[6] = u8::from(server.is_used);
            bytes[8..].copy_from_slice(&name(&server.name));
        }
        let mut slots = vec![0; SLOTS_BYTES];
        for (slot, bytes) in self.slots.iter().zip(slots.chunks_exact_mut(SLOT_BYTES)) {
            bytes[..2].copy_from_slice(&slot.own.to_ne_bytes());
            bytes[2..].copy_from_slice(&slot.next.unwrap_or(NONE).to_ne_bytes());
        }
        Sections {
            config: config.0.try_into().expect("all fields were put"),
            servers,
            slots,
        }
    }

    /// Reads the sections of a program; `None` if another version of the director has made it.
    pub(super) fn decode(config: &[u8], servers: &[u8], slots: &[u8]) -> Option<Self> {
        let mut fields = Reader(config);
        if u32::from_ne_bytes(fields.take()?) != VERSION || config.len() != CONFIG_BYTES {
            return None;
        }
        let interface = u32::from_ne_bytes(fields.take()?);
        let slot_count = u32::from_ne_bytes(fields.take()?) as usize;
        let address_count = u32::from_ne_bytes(fields.take()?) as usize;
        let hold_until = u64::from_ne_bytes(fields.take()?);
        let [port, first, last] = [fields.take()?, fields.take()?, fields.take()?];
        let [first, last] = [first, last].map(u16::from_ne_bytes);
        let [by_client, has_pins, _, _] = fields.take::<4>()?;
        let own = fields.take()?;
        let mut addresses = Vec::new();
        for at in 0..ADDRESSES_MAX {
            let address = IpAddr::from(fields.take::<16>()?).to_canonical();
            addresses.extend((at < address_count).then_some(address));
        }
        let service = text(&fields.take::<NAME_BYTES>()?)?;
        let mut places = BTreeMap::new();
        for (place, bytes) in (0..).zip(servers.chunks_exact(SERVER_BYTES)) {
            let mut fields = Reader(bytes);
            let (mac, [is_used, _]) = (fields.take()?, fields.take::<2>()?);
            let name = text(&fields.take::<NAME_BYTES>()?)?;
            if !name.is_empty() {
                let is_used = is_used != 0;
                places.insert(place, Server { name, mac, is_used });
            }
        }
        let slot = |bytes: &[u8]| {
            let mut fields = Reader(bytes);
            let [own, next] = [fields.take()?, fields.take()?].map(u16::from_ne_bytes);
            let next = (next != NONE).then_some(next);
            Some(Slot { own, next })
        };
        let slots = slots.chunks_exact(SLOT_BYTES).take(slot_count).map(slot);
        Some(Self {
            service,
            interface,
            own,
            addresses,
            port: u16::from_ne_bytes(port),
            further_ports: (first <= last).then_some([first, last]),
            by_client: by_client != 0,
            has_pins: has_pins != 0,
            hold_until,
            servers: places,
            slots: slots.collect::<Option<_>>()?,
        })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }
}

/// Returns an address as IPv6: `::ffff:10.0.0.1`.
fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn name(text: &str) -> [u8; NAME_BYTES] {
    let mut bytes = [0; NAME_BYTES];
    // Names have 40 characters at most, which the configuration checks.
    let length = text.len().min(NAME_BYTES);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

fn text(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.split(|byte| *byte == 0).next()?;
    String::from_utf8(bytes.to_vec()).ok()
}

/// Returns the connection as key of maps.
pub(super) fn key(flow: Flow) -> Key {
    let mut key = [0; 20];
    key[..16].copy_from_slice(&octets(flow.address));
    key[16..18].copy_from_slice(&flow.port.to_be_bytes());
    key
}

/// Returns the connection of a key.
pub(super) fn flow(key: &Key) -> Flow {
    let mut fields = Reader(key);
    let (address, port) = (fields.take::<16>(), fields.take());
    Flow {
        address: IpAddr::from(address.expect("16 of 20 bytes")).to_canonical(),
        port: u16::from_be_bytes(port.expect("2 of 4 bytes")),
    }
}

/// Reads a hardware address as `ip` writes it.
pub(super) fn mac(text: &str) -> Option<Mac> {
    let parts = text.split(':').map(|part| u8::from_str_radix(part, 16));
    let bytes: Vec<u8> = parts.collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let server = |name: &str, is_used| Server {
            name: name.to_owned(),
            mac: mac("02:80:0a:50:00:0b").expect("an address"),
            is_used,
        };
        let slot = |own, next| Slot { own, next };
        Table {
            service: "files".to_owned(),
            interface: 7,
            own: [2, 0, 0, 0, 0, 1],
            addresses: ["10.80.0.100", "fd00:80::100"]
                .map(|text| text.parse().expect("an address"))
                .to_vec(),
            port: 80,
            further_ports: Some([50_000, 50_100]),
            by_client: true,
            has_pins: false,
            hold_until: 1 << 40,
            servers: [(0, server("s-1", true)), (255, server("s-2", false))].into(),
            slots: vec![slot(0, None), slot(0, Some(255)), slot(255, None)],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for further_ports in [Some([50_000, 50_100]), None] {
            let table = Table {
                further_ports,
                ..table()
            };
            let Sections {
                config,
                servers,
                slots,
            } = table.encode();
            assert_eq!(Table::decode(&config, &servers, &slots), Some(table));
        }
    }

    #[test]
    fn the_table_of_another_version_is_left_alone() {
        let mut sections = table().encode();
        sections.config[0] += 1;
        let Sections {
            config,
            servers,
            slots,
        } = sections;
        assert_eq!(Table::decode(&config, &servers, &slots), None);
        assert_eq!(Table::decode(&config[..50], &servers, &slots), None);
    }

    #[test]
    fn a_connection_is_what_its_key_says() {
        for address in ["10.80.1.1", "fd00:80::1:1"] {
            let address = address.parse().expect("an address");
            let one = Flow {
                address,
                port: 51_000,
            };
            assert_eq!(flow(&key(one)), one);
        }
        assert_eq!(mac("02:80:0a:50:00"), None);
        assert_eq!(mac("02:80:0a:50:00:xx"), None);
    }
}
