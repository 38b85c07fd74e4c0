//! Facts of a machine that direct return depends on: settings of its kernel, its cards, their addresses.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Settings that are read once, below `/proc/sys`.
const SETTINGS: [&str; 8] = [
    "net/ipv4/ip_forward",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/ip_local_reserved_ports",
    "net/ipv4/conf/all/arp_ignore",
    "net/ipv4/conf/all/arp_announce",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/vs/expire_nodest_conn",
    "net/ipv6/conf/all/forwarding",
];
/// Settings that each card has, below `/proc/sys/net`: family and name.
const OF_LINKS: [(&str, &str); 4] = [
    ("ipv4", "arp_ignore"),
    ("ipv4", "arp_announce"),
    ("ipv4", "rp_filter"),
    ("ipv6", "disable_ipv6"),
];

/// Reason why the facts of a machine cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Program that is not there.
    #[error("ip cannot be started ({0}); on Debian: apt-get install iproute2")]
    Missing(#[source] io::Error),
    /// Program that refused, or whose output is not as documented.
    #[error("the addresses of this machine cannot be read by ip: {0}")]
    Output(String),
}

/// Facts of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Facts {
    /// Time by its clock, in ms since 1970.
    pub unix_ms: u64,
    /// Settings of the kernel by name, such as `net/ipv4/ip_forward`; those that it does not have are missing.
    pub settings: BTreeMap<String, String>,
    /// Cards.
    pub links: Vec<Link>,
}

/// Network card, real or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Link {
    /// Name, such as `eth0`.
    pub name: String,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it answers no question for its addresses: `lo`, or a card without ARP such as `dummy0`.
    pub is_silent: bool,
    /// Addresses.
    pub addresses: Vec<Assigned>,
}

/// Address of a card.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Assigned {
    /// Address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
    /// Whether new connections from this machine do not begin from it.
    pub is_deprecated: bool,
    /// Whether the kernel still asks if another machine has it, or found one: packets to it are not taken.
    pub is_unusable: bool,
}

impl Facts {
    /// Reads the facts of this machine, or of its network namespace.
    ///
    /// # Errors
    ///
    /// Why they cannot be read.
    pub fn read() -> Result<Self, FactsError> {
        let output = Command::new("ip").args(["-j", "addr", "show"]).output();
        let output = output.map_err(FactsError::Missing)?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(FactsError::Output(text));
        }
        let links = parse(&output.stdout).map_err(|error| FactsError::Output(error.to_string()))?;
        let mut keys: Vec<String> = SETTINGS.map(str::to_owned).into();
        for link in &links {
            let of_link = |(family, name)| format!("net/{family}/conf/{}/{name}", link.name);
            keys.extend(OF_LINKS.map(of_link));
        }
        let read = |key: String| {
            let text = std::fs::read_to_string(Path::new("/proc/sys").join(&key));
            Some((key, text.ok()?.trim().replace('\t', " ")))
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_millis();
        Ok(Self {
            unix_ms: u64::try_from(now).unwrap_or(u64::MAX),
            settings: keys.into_iter().filter_map(read).collect(),
            links,
        })
    }

    /// Returns a setting that is a number.
    pub(crate) fn number(&self, key: &str) -> Option<u32> {
        self.settings.get(key)?.parse().ok()
    }

    /// Returns a setting of IPv4 as the kernel takes it at a card: the larger of that of all cards and its own.
    pub(crate) fn effective(&self, name: &str, link: &str) -> Option<u32> {
        let of = |link: &str| self.number(&format!("net/ipv4/conf/{link}/{name}"));
        Some(of("all")?.max(of(link)?))
    }

    /// Returns the cards that have an address, with it.
    pub(crate) fn holders(&self, address: IpAddr) -> impl Iterator<Item = (&Link, &Assigned)> {
        self.links.iter().flat_map(move |link| {
            let own = link.addresses.iter();
            own.filter(move |own| own.address == address)
                .map(move |own| (link, own))
        })
    }

    /// Returns the first card that has one of the addresses.
    pub(crate) fn link_of(&self, addresses: &[IpAddr]) -> Option<&Link> {
        let mut all = addresses.iter().flat_map(|own| self.holders(*own));
        all.next().map(|(link, _)| link)
    }
}

/// Reads what `ip -j addr show` prints.
fn parse(text: &[u8]) -> serde_json::Result<Vec<Link>> {
    let rows: Vec<serde_json::Value> = serde_json::from_slice(text)?;
    let link = |row: &serde_json::Value| {
        let flags: Vec<&str> = row["flags"]
            .as_array()
            .map(|flags| flags.iter().filter_map(serde_json::Value::as_str).collect())
            .unwrap_or_default();
        let addresses = row["addr_info"].as_array().map(Vec::as_slice);
        Some(Link {
            name: row["ifname"].as_str()?.to_owned(),
            mtu: u32::try_from(row["mtu"].as_u64()?).ok()?,
            is_up: flags.contains(&"UP"),
            is_silent: flags.contains(&"LOOPBACK") || flags.contains(&"NOARP"),
            addresses: addresses
                .unwrap_or_default()
                .iter()
                .filter_map(assigned)
                .collect(),
        })
    };
    Ok(rows.iter().filter_map(link).collect())
}

fn assigned(row: &serde_json::Value) -> Option<Assigned> {
    Some(Assigned {
        address: row["local"].as_str()?.parse().ok()?,
        prefix: u8::try_from(row["prefixlen"].as_u64()?).ok()?,
        is_deprecated: row["deprecated"] == true,
        is_unusable: row["dadfailed"] == true || row["tentative"] == true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_this_machine_have_lo_and_the_range_of_ports() {
        let facts = match Facts::read() {
            Err(FactsError::Missing(error)) => return eprintln!("skipped: {error}"),
            facts => facts.expect("ip prints them"),
        };
        let lo = facts.links.iter().find(|link| link.name == "lo");
        assert!(lo.expect("every machine has lo").is_silent);
        let range = &facts.settings["net/ipv4/ip_local_port_range"];
        assert_eq!(range.split(' ').count(), 2, "{range}");
        let text = serde_json::to_string(&facts).expect("they are text");
        assert_eq!(
            serde_json::from_str::<Facts>(&text).expect("as written"),
            facts
        );
    }

    #[test]
    fn an_address_that_another_machine_has_is_unusable() {
        let text = r#"[{"ifname":"eth0","flags":["UP"],"mtu":9000,"addr_info":[
            {"local":"10.80.0.11","prefixlen":16},
            {"local":"fd00:80::100","prefixlen":128,"dadfailed":true,"tentative":true,"deprecated":true}]}]"#;
        let links = parse(text.as_bytes()).expect("it is JSON");
        let [first, second] = &links[0].addresses[..] else {
            panic!("{links:?}");
        };
        assert!(!first.is_unusable && !first.is_deprecated && first.prefix == 16);
        assert!(second.is_unusable && second.is_deprecated);
        assert!(links[0].is_up && !links[0].is_silent);
    }
}
