//! Hardware addresses of servers, as the kernel knows them.

use crate::error::PlaneError;
use crate::tool::IP;
use sheaf_serve::{ServerId, ServerPlace, Wanted};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

/// Longest wait for the hardware address of a server.
const WAIT: Duration = Duration::from_millis(500);

/// Hardware addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Macs {
    /// That of the director.
    pub(crate) own: String,
    /// Hardware addresses of the servers.
    pub(crate) servers: BTreeMap<ServerId, String>,
}

impl Macs {
    pub(crate) fn of(&self, id: ServerId) -> &str {
        self.servers
            .get(&id)
            .map_or("00:00:00:00:00:00", String::as_str)
    }
}

/// Machines that an interface reaches without a router.
#[derive(Clone, Debug)]
pub(crate) struct Neighbors {
    interface: String,
}

impl Neighbors {
    pub(crate) fn at(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
        }
    }

    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }

    /// Whether the kernel knows another hardware address of a server than `macs`.
    pub(crate) fn have_changed(&self, wanted: &Wanted, macs: &Macs) -> Result<bool, PlaneError> {
        let known = self.known()?;
        let is_other = |(id, place): (_, &ServerPlace)| {
            let mac = place.addresses.iter().find_map(|own| known.get(own));
            mac.is_some_and(|mac| macs.servers.get(id) != Some(mac))
        };
        Ok(wanted.servers.iter().any(is_other))
    }

    /// Returns the hardware address of each server of `wanted`, and that of the interface.
    pub(crate) fn macs(&self, wanted: &Wanted) -> Result<Macs, PlaneError> {
        let mut macs = Macs {
            own: self.own_mac()?,
            servers: BTreeMap::new(),
        };
        let mut known = self.known()?;
        for (id, place) in &wanted.servers {
            PlaneError::check_port(wanted, place)?;
            let found = place
                .addresses
                .iter()
                .find_map(|own| known.get(own).cloned());
            let mac = match found {
                Some(mac) => mac,
                None => self.ask(place, &mut known)?,
            };
            macs.servers.insert(*id, mac);
        }
        Ok(macs)
    }

    fn own_mac(&self) -> Result<String, PlaneError> {
        let found = IP.json(&["-j", "link", "show", "dev", &self.interface])?;
        let address = found[0]["address"].as_str();
        address
            .map(str::to_owned)
            .ok_or_else(|| PlaneError::Output {
                tool: IP.name,
                text: format!("no hardware address of {}", self.interface),
            })
    }

    /// Returns the hardware addresses that the kernel knows on the interface.
    fn known(&self) -> Result<BTreeMap<IpAddr, String>, PlaneError> {
        let found = IP.json(&["-j", "neigh", "show", "dev", &self.interface])?;
        let rows = found.as_array().map(Vec::as_slice).unwrap_or_default();
        let known = rows.iter().filter_map(|row| {
            let address = row["dst"].as_str()?.parse().ok()?;
            Some((address, row["lladdr"].as_str()?.to_owned()))
        });
        Ok(known.collect())
    }

    /// Has the kernel ask for the hardware address of a server, by a datagram to a port where nothing listens.
    fn ask(
        &self,
        place: &ServerPlace,
        known: &mut BTreeMap<IpAddr, String>,
    ) -> Result<String, PlaneError> {
        let end = Instant::now() + WAIT;
        for address in &place.addresses {
            let any: IpAddr = match address {
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            // What cannot be sent shows in the table of neighbours.
            let _ =
                UdpSocket::bind((any, 0)).and_then(|socket| socket.send_to(&[0], (*address, 9)));
        }
        loop {
            *known = self.known()?;
            if let Some(mac) = place.addresses.iter().find_map(|own| known.get(own)) {
                return Ok(mac.clone());
            }
            if Instant::now() >= end {
                return Err(PlaneError::NoNeighbor {
                    server: place.name.clone(),
                    address: place
                        .addresses
                        .first()
                        .copied()
                        .unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
                    interface: self.interface.clone(),
                });
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}
