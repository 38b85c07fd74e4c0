//! Rules of the machine, read back.

use super::render::table;
use crate::error::PlaneError;
use crate::plane::{Counted, Installed};
use crate::tool::NFT;
use serde_json::Value;
use sheaf_serve::Flow;
use std::collections::BTreeMap;

/// Returns the objects of a table; `None` if there is no such table.
pub(super) fn objects(family: &str, name: &str) -> Result<Option<Vec<Value>>, PlaneError> {
    let tables = NFT.json(&["-j", "list", "tables", family])?;
    let rows = tables["nftables"].as_array().cloned().unwrap_or_default();
    if !rows.iter().any(|row| row["table"]["name"] == name) {
        return Ok(None);
    }
    let found = NFT.json(&["-j", "list", "table", family, name])?;
    Ok(Some(
        found["nftables"].as_array().cloned().unwrap_or_default(),
    ))
}

/// Returns the elements of the map `name` among `objects`.
pub(super) fn map(objects: &[Value], name: &str) -> Vec<(Value, Value)> {
    let found = objects.iter().find(|object| object["map"]["name"] == name);
    found
        .map(|object| pairs(&object["map"]))
        .unwrap_or_default()
}

/// Returns places of servers with their names, which are in the names of their counters.
pub(super) fn servers(counters: Vec<(Value, Value)>) -> Vec<(Value, String)> {
    let named = counters.into_iter().filter_map(|(place, counter)| {
        let name = counter.as_str()?.strip_prefix("to_")?;
        Some((place, name.replace('_', "-")))
    });
    named.collect()
}

/// Returns the value of an element without its timeout.
fn bare(element: &Value) -> &Value {
    let value = &element["elem"]["val"];
    if value.is_null() { element } else { value }
}

/// Returns the elements of a map as pairs of key and value.
fn pairs(map: &Value) -> Vec<(Value, Value)> {
    let elements = map["elem"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let pair = |element: &Value| {
        let pair = element.as_array()?;
        Some((bare(pair.first()?).clone(), pair.get(1)?.clone()))
    };
    elements.iter().filter_map(pair).collect()
}

/// Returns the connection of a key, or the client of one that has no port.
fn flow(key: &Value) -> Option<Flow> {
    if let Some(address) = key.as_str() {
        let address = address.parse().ok()?;
        return Some(Flow { address, port: 0 });
    }
    let parts = key["concat"].as_array()?;
    let port = parts.get(1)?;
    Some(Flow {
        address: parts.first()?.as_str()?.parse().ok()?,
        port: u16::try_from(port.as_u64()?).ok()?,
    })
}

pub(super) fn number(value: &Value) -> Option<u32> {
    let text = value.as_str().map(str::trim);
    let hex = text.and_then(|text| text.strip_prefix("0x"));
    value
        .as_u64()
        .and_then(|number| u32::try_from(number).ok())
        .or_else(|| hex.and_then(|hex| u32::from_str_radix(hex, 16).ok()))
        .or_else(|| text?.parse().ok())
}

/// Returns the elements of a set of notes: connections with the hardware address of their server.
pub(super) fn noted(service: &str, set: &str) -> Result<Vec<(Flow, String)>, PlaneError> {
    let found = NFT.json(&["-j", "list", "set", "netdev", &table(service), set])?;
    let rows = found["nftables"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let elements = rows
        .iter()
        .filter_map(|row| row["set"]["elem"].as_array())
        .flatten();
    let pair = |element| {
        let key = bare(element);
        Some((flow(key)?, key["concat"][2].as_str()?.to_owned()))
    };
    Ok(elements.filter_map(pair).collect())
}

/// Returns what the machine follows.
pub(super) fn installed(service: &str) -> Result<Option<Installed>, PlaneError> {
    let Some(objects) = objects("netdev", &table(service))? else {
        return Ok(None);
    };
    let map = |name: &str| map(&objects, name);
    // Servers by hardware address: the names of their counters without the prefix.
    let servers = servers(map("server"));
    let server = |mac: &Value| {
        let found = servers.iter().find(|(known, _)| known == mac);
        found.map(|(_, name)| name.clone()).unwrap_or_default()
    };
    let numbered = |name| {
        let all = map(name).into_iter();
        all.filter_map(|(key, mac)| Some((number(&key)?, server(&mac))))
            .collect::<BTreeMap<_, _>>()
    };
    let noted = |name: &str| {
        let found = objects.iter().find(|object| object["set"]["name"] == name);
        let elements = found.and_then(|object| object["set"]["elem"].as_array());
        let elements = elements.map(Vec::as_slice).unwrap_or_default();
        let pair = |element| {
            let key = bare(element);
            Some((flow(key)?, server(&key["concat"][2])))
        };
        elements.iter().filter_map(pair).collect::<Vec<_>>()
    };
    let mut flows: BTreeMap<Flow, String> = noted("fresh4").into_iter().collect();
    flows.extend(noted("fresh6"));
    for name in ["pin4", "pin6"] {
        for (key, mac) in map(name) {
            if let Some(flow) = flow(&key) {
                flows.insert(flow, server(&mac));
            }
        }
    }
    // Ports of pinned connections that were taken again.
    for (flow, server) in noted("reused4").into_iter().chain(noted("reused6")) {
        if let Some(known) = flows.get_mut(&flow) {
            *known = server;
        }
    }
    Ok(Some(Installed {
        slots: numbered("slot").into_values().collect(),
        moving: numbered("moving"),
        flows,
        ..Installed::default()
    }))
}

/// Returns the counters of the servers in a table.
pub(super) fn counters(family: &str, name: &str) -> Result<BTreeMap<String, Counted>, PlaneError> {
    let found = NFT.json(&["-j", "list", "counters", "table", family, name])?;
    let rows = found["nftables"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let counted = rows.iter().filter_map(|row| {
        let counter = &row["counter"];
        let name = counter["name"].as_str()?.strip_prefix("to_")?;
        let counted = Counted {
            packets: counter["packets"].as_u64()?,
            bytes: counter["bytes"].as_u64()?,
        };
        Some((name.replace('_', "-"), counted))
    });
    Ok(counted.collect())
}
