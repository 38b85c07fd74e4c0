//! Plane of nftables with NAT: for servers that cannot carry the virtual address, in any network that routes to them.
//!
//! The first packet of a connection gets the address and port of the server of its slot, and the address of the
//! director as its source; connection tracking does the same to all others, and the reverse to answers. So a
//! connection stays where it began, whatever the table says meanwhile, and both directions pass the director. Servers
//! see the director as their client.
//!
//! A table of family `inet` for each service; a change is one transaction of `nft`, of elements that differ.

mod conntrack;
mod render;

use super::read;
use crate::error::PlaneError;
use crate::plane::{Counted, Installed, Plane};
use crate::tool::NFT;
use serde_json::Value;
use sheaf_serve::{Flow, Wanted};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use tracing::warn;

const FAMILY: &str = "inet";

/// Rules of nftables with NAT.
#[derive(Debug, Default)]
pub(crate) struct Nat {
    applied: BTreeMap<String, Wanted>,
}

/// Returns the settings of the kernel without which no packet is passed on, and their files.
fn settings(wanted: &Wanted) -> Vec<(&'static str, &'static str)> {
    let has = |of: fn(&IpAddr) -> bool| wanted.addresses.iter().any(of);
    let v4 = ("net.ipv4.ip_forward", "/proc/sys/net/ipv4/ip_forward");
    let v6 = (
        "net.ipv6.conf.all.forwarding",
        "/proc/sys/net/ipv6/conf/all/forwarding",
    );
    let needed = [(v4, has(IpAddr::is_ipv4)), (v6, has(IpAddr::is_ipv6))];
    let needed = needed.into_iter().filter(|(_, is_needed)| *is_needed);
    needed.map(|(setting, _)| setting).collect()
}

fn check_settings(wanted: &Wanted) -> Result<(), PlaneError> {
    for (setting, path) in settings(wanted) {
        let found = fs::read_to_string(path).map_err(|error| PlaneError::File {
            path: PathBuf::from(path),
            error,
        })?;
        if found.trim() == "0" {
            return Err(PlaneError::Setting {
                setting,
                found: "0".to_owned(),
                expected: "1",
            });
        }
    }
    Ok(())
}

/// Returns the names of servers by address and port.
fn places_of(wanted: &Wanted) -> BTreeMap<SocketAddr, String> {
    let all = wanted.servers.values().flat_map(|place| {
        let own = place.addresses.iter();
        own.map(|own| (SocketAddr::new(*own, place.port), place.name.clone()))
    });
    all.collect()
}

/// Reads address and port from an element.
fn endpoint(value: &Value) -> Option<SocketAddr> {
    let parts = value["concat"].as_array()?;
    let address: IpAddr = parts.first()?.as_str()?.parse().ok()?;
    let port = parts.get(1)?.as_u64()?;
    Some(SocketAddr::new(address, u16::try_from(port).ok()?))
}

/// Returns the names of servers by their addresses.
fn servers(objects: &[Value]) -> BTreeMap<SocketAddr, String> {
    let all = ["server4", "server6"].map(|map| read::servers(read::map(objects, map)));
    let named = all.into_iter().flatten();
    named
        .filter_map(|(place, name)| Some((endpoint(&place)?, name)))
        .collect()
}

impl Plane for Nat {
    fn apply(&mut self, wanted: &Wanted) -> Result<(), PlaneError> {
        check_settings(wanted)?;
        let before = self.applied.get(&wanted.service);
        let has_same_rules = |before: &&Wanted| {
            let key = |one: &Wanted| (one.addresses.clone(), one.port, one.slots.len());
            key(before) == key(wanted)
        };
        // A table that another director made, or this one before it began again, is replaced as a whole.
        let text = match before.filter(has_same_rules) {
            Some(before) => render::change(before, wanted),
            None => render::whole(wanted),
        };
        NFT.run(&["-f", "-"], &text)?;
        // What a server that is dead, or whose drain is over, still has: its clients are to begin again.
        let mut gone = before.map(places_of).unwrap_or_default();
        let kept = places_of(wanted);
        gone.retain(|place, _| !kept.contains_key(place));
        if let Err(error) = conntrack::forget(&gone) {
            warn!(service = wanted.service, %error, "Connections to servers that are gone are kept");
        }
        self.applied.insert(wanted.service.clone(), wanted.clone());
        Ok(())
    }

    fn read_back(&mut self, service: &str) -> Result<Option<Installed>, PlaneError> {
        let Some(objects) = read::objects(FAMILY, &render::table(service))? else {
            return Ok(None);
        };
        let servers = servers(&objects);
        let numbered = |map: &str| -> BTreeMap<u32, String> {
            let all = [4, 6].map(|number| read::map(&objects, &format!("{map}{number}")));
            let name = |place: &Value| servers.get(&endpoint(place)?).cloned();
            let all = all.into_iter().flatten();
            all.filter_map(|(key, place)| Some((read::number(&key)?, name(&place)?)))
                .collect()
        };
        Ok(Some(Installed {
            slots: numbered("slot").into_values().collect(),
            moving: numbered("moving"),
            flows: conntrack::connections(&servers)?,
            ..Installed::default()
        }))
    }

    fn counters(&mut self, service: &str) -> Result<BTreeMap<String, Counted>, PlaneError> {
        read::counters(FAMILY, &render::table(service))
    }

    fn connections(&mut self, service: &str) -> Result<BTreeMap<Flow, String>, PlaneError> {
        let names = match self.applied.get(service) {
            // The rules are long to read, and this is asked often.
            Some(wanted) => places_of(wanted),
            None => servers(&read::objects(FAMILY, &render::table(service))?.unwrap_or_default()),
        };
        conntrack::connections(&names)
    }

    fn undo(&mut self, service: &str) -> Result<(), PlaneError> {
        self.applied.remove(service);
        NFT.run(&["-f", "-"], &render::removal(service)).map(drop)
    }
}
