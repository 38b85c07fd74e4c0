//! Checks of a director. Each judges facts and reads none.

use super::finding::{Repair, Verdict};
use super::survey::{Asked, DirectorCase};
use crate::facts::Link;
use crate::keepalived::prefix;
use sheaf_planes::BpfMode;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Planes that hand packets on as routers do.
const ROUTING: [&str; 1] = ["nft-nat"];
/// Feature of a card that merges packets so that they cannot be parted again.
const LRO: &str = "large-receive-offload";
/// Features of a card by which several packets come as one, which drivers with XDP refuse or cut.
const MERGING: [&str; 2] = [LRO, "rx-gro-hw"];
/// Setting by which IPVS ends connections to a server that is not there any more.
const EXPIRE: &str = "net/ipv4/vs/expire_nodest_conn";

fn is_proxy(case: &DirectorCase<'_>) -> bool {
    !case.config.is_direct_return()
}

/// Reason not to check what only direct return needs.
fn proxy() -> Vec<Verdict> {
    vec![Verdict::not_checked("the plane is a proxy")]
}

fn card<'a>(case: &'a DirectorCase<'_>) -> Option<&'a Link> {
    let name = &case.config.director.interface;
    case.facts.links.iter().find(|link| link.name == *name)
}

fn addresses(case: &DirectorCase<'_>) -> BTreeSet<IpAddr> {
    let services = case.services.iter();
    services
        .flat_map(|service| service.addresses.clone())
        .collect()
}

pub(super) fn interface(case: &DirectorCase<'_>) -> Vec<Verdict> {
    if is_proxy(case) {
        return proxy();
    }
    let name = &case.config.director.interface;
    vec![match card(case) {
        Some(link) if link.is_up => Verdict::ok(format!("{name} is up")),
        Some(_) => {
            let repairs = vec![Repair::ip(&format!("link set {name} up"))];
            Verdict::repaired_by(format!("{name} is down"), "up", repairs)
        }
        None => {
            let all: Vec<&str> = case
                .facts
                .links
                .iter()
                .map(|link| link.name.as_str())
                .collect();
            let expected = format!("one of {}", all.join(", "));
            let by_hand = "change `interface` of [director]";
            Verdict::by_hand(format!("no card {name}"), expected, by_hand)
        }
    }]
}

pub(super) fn virtual_address(case: &DirectorCase<'_>) -> Vec<Verdict> {
    let interface = &case.config.director.interface;
    let judge = |address: &IpAddr| {
        let (address, whole) = (*address, prefix(*address));
        let held: Vec<_> = case.facts.holders(address).collect();
        let found: Vec<String> = held
            .iter()
            .map(|(link, own)| format!("{address}/{} on {}", own.prefix, link.name))
            .collect();
        let rest = if address.is_ipv4() {
            ""
        } else {
            " nodad preferred_lft 0"
        };
        let is_good = held
            .iter()
            .any(|(link, own)| !link.is_silent && own.prefix == whole && !own.is_unusable);
        if case.config.failover.is_some() && (held.is_empty() || is_good) {
            let found = match held.is_empty() {
                true => "not here: keepalived moves it".to_owned(),
                false => found.join(", "),
            };
            return Verdict::ok(found);
        }
        if is_good && held.len() == 1 {
            return Verdict::ok(found.join(", "));
        }
        let mut repairs: Vec<Repair> = held
            .iter()
            .filter(|(link, own)| link.is_silent || own.prefix != whole || own.is_unusable)
            .map(|(link, own)| {
                Repair::ip(&format!(
                    "addr del {address}/{} dev {}",
                    own.prefix, link.name
                ))
            })
            .collect();
        if !is_good && case.config.failover.is_none() {
            repairs.push(Repair::ip(&format!(
                "addr add {address}/{whole} dev {interface}{rest}"
            )));
        }
        let found = match found.is_empty() {
            true => format!("{address} on no card"),
            false => found.join(", "),
        };
        Verdict::repaired_by(found, format!("{address}/{whole} on {interface}"), repairs)
    };
    match is_proxy(case) {
        true => proxy(),
        false => addresses(case).iter().map(judge).collect(),
    }
}

pub(super) fn source_address(case: &DirectorCase<'_>) -> Vec<Verdict> {
    if is_proxy(case) {
        return proxy();
    }
    let all = addresses(case);
    let wrong: BTreeSet<IpAddr> = case.sources.values().copied().collect();
    let wrong: Vec<IpAddr> = wrong.intersection(&all).copied().collect();
    if wrong.is_empty() {
        return vec![Verdict::ok("own addresses to every server")];
    }
    let judge = |address: &IpAddr| {
        let mut repairs = Vec::new();
        for (link, own) in case.facts.holders(*address) {
            let (place, name) = (format!("{address}/{}", own.prefix), &link.name);
            if address.is_ipv4() {
                // The first of several is the source: taken away and added again, it is the last.
                repairs.push(Repair::ip(&format!("addr del {place} dev {name}")));
                repairs.push(Repair::ip(&format!("addr add {address}/32 dev {name}")));
            } else {
                let words = format!("addr change {place} dev {name} preferred_lft 0");
                repairs.push(Repair::ip(&words));
            }
        }
        let found = format!("connections to servers begin from {address}");
        Verdict::repaired_by(found, "from an own address of the director", repairs)
    };
    wrong.iter().map(judge).collect()
}

pub(super) fn rules(case: &DirectorCase<'_>) -> Vec<Verdict> {
    vec![match &case.rules {
        Asked::Answer(()) => Verdict::ok("the kernel takes the rules"),
        Asked::Not(reason) => Verdict::not_checked(reason),
        Asked::Failed(reason) => Verdict::by_hand(
            reason,
            "rules with jhash and fwd at ingress",
            "as root: apt-get install nftables; modprobe -a nft_fwd_netdev nft_hash",
        ),
    }]
}

pub(super) fn plane(case: &DirectorCase<'_>) -> Vec<Verdict> {
    let mut verdicts = vec![match &case.plane {
        Asked::Answer(found) => Verdict::ok(found),
        Asked::Not(reason) => Verdict::not_checked(reason),
        Asked::Failed(reason) => Verdict::by_hand(
            reason,
            format!("what plane {} needs", case.config.director.plane),
            "as root: what is named there, or another `plane` of [director]",
        ),
    }];
    if case.config.director.plane == "ipvs" && case.facts.number(EXPIRE) == Some(0) {
        let repairs = vec![Repair::set(EXPIRE, 1)];
        verdicts.push(Verdict::repaired_by(format!("{EXPIRE} 0"), "1", repairs));
    }
    verdicts
}

pub(super) fn mtu(case: &DirectorCase<'_>) -> Vec<Verdict> {
    if is_proxy(case) {
        return proxy();
    }
    let Some(link) = card(case) else {
        return vec![Verdict::not_checked("the card is not there")];
    };
    let largest = case.server_mtus.iter().max_by_key(|(_, mtu)| **mtu);
    vec![match largest {
        None => Verdict::not_checked("no agent tells the MTU of its server"),
        Some((_, most)) if *most <= link.mtu => {
            Verdict::ok(format!("{}, of servers {most} at most", link.mtu))
        }
        Some((server, most)) => Verdict::by_hand(
            format!("{} on {}, {most} on {server}", link.mtu, link.name),
            "at least that of every server",
            format!(
                "ip link set {} mtu {most} (cards begin again), if the switch carries it; else a smaller one on servers",
                link.name
            ),
        ),
    }]
}

pub(super) fn offloads(case: &DirectorCase<'_>) -> Vec<Verdict> {
    if is_proxy(case) {
        return proxy();
    }
    let features = match &case.features {
        Asked::Answer(features) => features,
        Asked::Failed(reason) | Asked::Not(reason) => return vec![Verdict::not_checked(reason)],
    };
    let interface = &case.config.director.interface;
    let state = |name: &str| features.get(name).is_some_and(|(is_on, _)| *is_on);
    let director = &case.config.director;
    let is_xdp = director.plane == "tc" && director.bpf.mode != BpfMode::Tc;
    let merging = MERGING.iter().take(if is_xdp { MERGING.len() } else { 1 });
    let judge = |(name, is_fixed): (&str, bool)| {
        let found = format!("{name} is on at {interface}");
        match is_fixed {
            false => {
                let short = if name == LRO { "lro" } else { name };
                let repair = Repair::ethtool(&format!("-K {interface} {short} off"));
                Verdict::repaired_by(found, "off", vec![repair])
            }
            true => Verdict::by_hand(found, "off", "switch it off in the driver's options"),
        }
    };
    let wrong: Vec<Verdict> = merging
        .filter_map(|name| match features.get(*name) {
            Some((true, is_fixed)) => Some(judge((name, *is_fixed))),
            _ => None,
        })
        .collect();
    if !wrong.is_empty() {
        return wrong;
    }
    let word = |name| if state(name) { "on" } else { "off" };
    let (gro, tso) = ("generic-receive-offload", "tcp-segmentation-offload");
    vec![Verdict::ok(format!(
        "LRO off, GRO {}, TSO {}",
        word(gro),
        word(tso)
    ))]
}

pub(super) fn forwarding(case: &DirectorCase<'_>) -> Vec<Verdict> {
    let plane = case.config.director.plane.as_str();
    if !ROUTING.contains(&plane) {
        let reason = format!("plane {plane} needs none");
        return vec![Verdict::not_checked(reason)];
    }
    let judge = |is_v4: bool| {
        let key = match is_v4 {
            true => "net/ipv4/ip_forward",
            false => "net/ipv6/conf/all/forwarding",
        };
        match case.facts.number(key) {
            None => Verdict::not_checked(format!("{key} cannot be read")),
            Some(0) => Verdict::repaired_by(format!("{key} 0"), "1", vec![Repair::set(key, 1)]),
            Some(value) => Verdict::ok(format!("{key} {value}")),
        }
    };
    let all = addresses(case);
    let families = [true, false].into_iter();
    families
        .filter(|is_v4| all.iter().any(|address| address.is_ipv4() == *is_v4))
        .map(judge)
        .collect()
}

pub(super) fn same_table(case: &DirectorCase<'_>) -> Vec<Verdict> {
    let Some(((own_name, own), others)) = case.tables.split_first() else {
        return vec![Verdict::not_checked(
            "no table [failover]: the director stands alone",
        )];
    };
    let own = match own {
        Asked::Answer(own) => own,
        Asked::Failed(reason) | Asked::Not(reason) => {
            let by_hand = "start `sheaf serve run`";
            return vec![Verdict::by_hand(reason, "a director that answers", by_hand)];
        }
    };
    let judge = |(name, tables): &(String, Asked<super::survey::Tables>)| match tables {
        Asked::Failed(reason) | Asked::Not(reason) => Verdict::by_hand(
            reason,
            "a director that answers",
            "start `sheaf serve run` there, with `listen` on the address in [[failover.director]]",
        ),
        Asked::Answer(tables) => {
            let other = case.services.iter().find(|service| {
                let digest = |tables: &super::survey::Tables| {
                    tables.get(&service.name).map(|(digest, _)| digest.clone())
                };
                digest(own) != digest(tables)
            });
            match other {
                None => Verdict::ok(format!("{own_name} and {name} have equal tables")),
                Some(service) => Verdict::by_hand(
                    format!(
                        "{own_name} and {name} have different tables of {}",
                        service.name
                    ),
                    "equal tables",
                    "compare files and `sheaf serve status` of both; give orders to both (--director A B)",
                ),
            }
        }
    };
    others.iter().map(judge).collect()
}

#[cfg(test)]
mod tests;
