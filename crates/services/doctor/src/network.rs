//! Checks of cards, settings of the network, and the way to other machines.

use crate::check::Case;
use crate::finding::Verdict;
use crate::peers::{Connected, Heard, Place, Purpose};
use std::time::Duration;

/// Offloads that are to be on.
const OFFLOADS: [&str; 3] = [
    "generic-receive-offload",
    "generic-segmentation-offload",
    "tcp-segmentation-offload",
];
/// Interrupts from which on their shares say something.
const INTERRUPTS_MIN: u64 = 1000;
/// Longest look-up that is nothing to speak of.
const LOOKUP_LONG: Duration = Duration::from_millis(200);
/// Headers of TCP and IP with the option of timestamps, in bytes: IPv4, IPv6.
const HEADERS: (u32, u32) = (52, 72);

/// Whether the farm file has addresses of other machines.
fn has_others(case: &Case<'_>) -> bool {
    let places = crate::peers::places(case.farm);
    case.question.farm.is_some()
        && places.iter().any(|place| {
            let is_loopback = ["127.", "localhost:", "[::1]:"];
            !is_loopback.iter().any(|own| place.address.starts_with(own))
        })
}

pub(crate) fn socket_buffers(case: &Case<'_>) -> Vec<Verdict> {
    if !has_others(case) {
        return vec![Verdict::ok("the farm file has no other machine")];
    }
    let wanted = u64::from(case.farm.transport.socket_buffer_bytes);
    let (received, sent) = case.machine.buffers_max;
    [("net.core.rmem_max", received), ("net.core.wmem_max", sent)]
        .map(|(key, found)| match found {
            None => Verdict::not_checked("the kernel does not tell it").at(key),
            Some(found) if found < wanted => {
                Verdict::advice(format!("{found} bytes"), format!("{wanted} bytes or more"))
                    .at(key)
                    .mended_by(format!(
                        "sysctl -w {key}={wanted}, and the same in /etc/sysctl.d/90-sheaf.conf"
                    ))
            }
            Some(found) => Verdict::ok(format!("{found} bytes")).at(key),
        })
        .into()
}

pub(crate) fn congestion_control(case: &Case<'_>) -> Vec<Verdict> {
    let wanted = &case.farm.transport.congestion;
    let known = &case.machine.congestion;
    vec![if known.is_empty() {
        Verdict::not_checked("the kernel does not tell what it has")
    } else if wanted.is_empty() || known.contains(wanted) {
        Verdict::ok(known.join(" "))
    } else {
        Verdict::advice(known.join(" "), wanted.as_str())
            .mended_by(format!("modprobe tcp_{wanted}"))
    }]
}

/// Returns whether a list such as `80,7100-7200` has `port`.
fn is_reserved(list: &str, port: u16) -> bool {
    list.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&port),
            _ => false,
        }
    })
}

pub(crate) fn port_range(case: &Case<'_>) -> Vec<Verdict> {
    let Some((first, last)) = case.machine.port_range else {
        return vec![Verdict::not_checked("the kernel does not tell it")];
    };
    let roles = case.question.roles.iter();
    let listens = roles.flat_map(|role| case.farm.listens(*role));
    let found: Vec<Verdict> = listens
        .filter_map(|(key, address)| {
            let port: u16 = address.rsplit_once(':')?.1.parse().ok()?;
            let is_free = is_reserved(&case.machine.reserved_ports, port);
            let is_taken = port != 0 && (first..=last).contains(&port) && !is_free;
            is_taken.then(|| {
                Verdict::advice(
                    format!("{port} in {first} to {last}"),
                    "a port outside, or one that is reserved",
                )
                .at(key)
                .mended_by(format!(
                    "sysctl -w net.ipv4.ip_local_reserved_ports={port} (with commas for several)"
                ))
            })
        })
        .collect();
    match found.is_empty() {
        true => vec![Verdict::ok(format!("{first} to {last}"))],
        false => found,
    }
}

pub(crate) fn cards(case: &Case<'_>) -> Vec<Verdict> {
    if let Err(reason) = case.links {
        return vec![Verdict::not_checked(reason.as_str())];
    }
    if case.machine.cards.is_empty() {
        return vec![Verdict::not_checked("no network card with hardware is up")];
    }
    let mut all = Vec::new();
    for card in &case.machine.cards {
        let name = card.name.as_str();
        let before = all.len();
        for offload in OFFLOADS {
            if card.offloads.get(offload) == Some(&false) {
                all.push(
                    Verdict::advice(format!("{offload} off"), "on")
                        .at(name)
                        .mended_by(format!("ethtool -K {name} {offload} on")),
                );
            }
        }
        if let Some((ring, most)) = card.ring.filter(|(ring, most)| ring < most) {
            all.push(
                Verdict::advice(
                    format!("a receive ring of {ring} packets"),
                    format!("{most}, the largest"),
                )
                .at(name)
                .mended_by(format!("ethtool -G {name} rx {most}")),
            );
        }
        if all.len() == before {
            let place = &card.place;
            let interrupts = match place.interrupted.is_empty() {
                true => String::new(),
                false => format!(", interrupts at processors {}", place.interrupted),
            };
            let queues = format!("; receive queues: {}{interrupts}", place.queues);
            let node = place.memory_node.map_or_else(String::new, |node| {
                let near = &place.near;
                format!("; at memory node {node}: give its nodes processors there (--cpus {near})")
            });
            let ring = card.ring.map_or("ring not known".to_owned(), |(ring, _)| {
                format!("ring {ring}")
            });
            let offloads = match card.offloads.is_empty() {
                true => "offloads fixed or not known",
                false => "offloads on",
            };
            all.push(Verdict::ok(format!("{offloads}, {ring}{queues}{node}")).at(name));
        }
    }
    all
}

pub(crate) fn interrupts(case: &Case<'_>) -> Vec<Verdict> {
    let cards = case.machine.cards.iter();
    let all: Vec<Verdict> = cards
        .filter_map(|card| {
            let place = &card.place;
            let away = place.interrupted.outside(&place.near);
            if !place.near.is_empty() && !away.is_empty() {
                let found = format!("queues interrupt processors {away}");
                let expected = format!("{}, those of its memory node", place.near);
                let mended = format!("irqbalance, or {} into /proc/irq/N/smp_affinity_list", place.near);
                return Some(Verdict::advice(found, expected).mended_by(mended).at(card.name.as_str()));
            }
            let total: u64 = card.interrupts.iter().sum();
            if total < INTERRUPTS_MIN || card.interrupts.len() < 2 {
                return None;
            }
            let busy = card.interrupts.iter().enumerate().max_by_key(|(_, count)| **count)?;
            let verdict = match *busy.1 == total {
                true => Verdict::advice(format!("all {total} at CPU {}", busy.0), "several processors").mended_by(format!(
                    "ethtool -L {0} combined N for several queues, and irqbalance or /proc/irq/*/smp_affinity",
                    card.name
                )),
                false => Verdict::ok(format!("{total}, at most {} at one processor", busy.1)),
            };
            Some(verdict.at(card.name.as_str()))
        })
        .collect();
    match all.is_empty() {
        true => vec![Verdict::ok("too few to say anything")],
        false => all,
    }
}

/// Returns what `judge` says of each address, or one verdict if nothing was asked, or all are well.
fn of_all(
    case: &Case<'_>,
    purposes: &[Purpose],
    judge: impl Fn(&Place, &Heard) -> Option<Verdict>,
) -> Vec<Verdict> {
    if !case.question.is_wide {
        return vec![Verdict::not_checked(
            "other machines are not asked (--here)",
        )];
    }
    if case.question.farm.is_none() {
        return vec![Verdict::not_checked("no farm file was given (--config)")];
    }
    let asked: Vec<(&Place, &Heard)> = purposes
        .iter()
        .flat_map(|purpose| case.peers.of(*purpose))
        .collect();
    let mut found: Vec<Verdict> = Vec::new();
    for (place, heard) in &asked {
        // A node with two addresses has one way to it.
        let verdict = judge(place, heard).map(|verdict| verdict.at(place.name.as_str()));
        found.extend(verdict.filter(|verdict| !found.contains(verdict)));
    }
    match (found.is_empty(), asked.len()) {
        (true, 0) => vec![Verdict::ok("the farm file has no such address")],
        (true, count) => vec![Verdict::ok(format!("{count} addresses"))],
        (false, _) => found,
    }
}

pub(crate) fn names(case: &Case<'_>) -> Vec<Verdict> {
    let all = [Purpose::Node, Purpose::Page, Purpose::Registry];
    of_all(case, &all, |place, heard| {
        let (time, found) = heard.lookup.as_ref()?;
        let address = &place.address;
        match found {
            Err(error) => Some(
                Verdict::wrong(format!("{address}: {error}"), "an address")
                    .mended_by("the name server, or a line in /etc/hosts on every machine"),
            ),
            Ok(_) if *time > LOOKUP_LONG => Some(
                Verdict::advice(
                    format!("{address}: {} ms", time.as_millis()),
                    "200 ms or less",
                )
                .mended_by("the name server, or a line in /etc/hosts on every machine"),
            ),
            Ok(_) => None,
        }
    })
}

pub(crate) fn reach(case: &Case<'_>) -> Vec<Verdict> {
    of_all(case, &[Purpose::Node], |place, heard| {
        match heard.connected.as_ref()? {
            Ok(_) => None,
            Err(error) => Some(
                Verdict::wrong(format!("{}: {error}", place.address), "a connection").mended_by(
                    format!(
                        "start {} there, or open the port in the firewall",
                        place.name
                    ),
                ),
            ),
        }
    })
}

pub(crate) fn registry(case: &Case<'_>) -> Vec<Verdict> {
    let mut found = of_all(case, &[Purpose::Registry], |place, heard| {
        let connected = heard.connected.as_ref()?;
        let at = &place.address;
        let mend = "start the server; of three, two have to run (docs/how-to/zookeeper.md)";
        match (connected, &heard.page) {
            (Err(error), _) => {
                Some(Verdict::wrong(format!("{at}: {error}"), "a connection").mended_by(mend))
            }
            (Ok(_), Some(Ok(text))) if text.contains("not in the whitelist") => {
                Some(Verdict::not_checked(format!(
                    "{at}: takes connections; 4lw.commands.whitelist does not have srvr"
                )))
            }
            (Ok(_), Some(Ok(text))) if text.contains("Mode: ") => None,
            (Ok(_), Some(Ok(_))) if case.farm.membership.tls => Some(Verdict::not_checked(
                format!("{at}: takes connections, and speaks TLS"),
            )),
            (Ok(_), Some(Ok(text))) => {
                let text = text.lines().next().unwrap_or("nothing");
                Some(
                    Verdict::wrong(format!("{at}: {text}"), "a server that serves").mended_by(mend),
                )
            }
            (Ok(_), Some(Err(error))) => Some(Verdict::not_checked(format!(
                "{at}: takes connections; srvr: {error}"
            ))),
            (Ok(_), None) => None,
        }
    });
    let modes: Vec<&str> = case
        .peers
        .of(Purpose::Registry)
        .filter_map(|(_, heard)| heard.page.as_ref()?.as_ref().ok())
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("Mode: ")))
        .collect();
    let leads = |mode: &&&str| matches!(**mode, "leader" | "standalone");
    if !modes.is_empty() && modes.iter().filter(leads).count() != 1 {
        found.push(
            Verdict::wrong(modes.join(", "), "one leader").mended_by("the logs of ZooKeeper"),
        );
    }
    found
}

pub(crate) fn mtu(case: &Case<'_>) -> Vec<Verdict> {
    let links = match case.links {
        Ok(links) => links,
        Err(reason) => return vec![Verdict::not_checked(reason.as_str())],
    };
    of_all(case, &[Purpose::Node, Purpose::Page], |_, heard| {
        let Connected { own, segment } = heard.connected.as_ref()?.as_ref().ok()?;
        let has =
            |link: &&sheaf_gateway::Link| link.addresses.iter().any(|has| has.address == *own);
        let link = links
            .links
            .iter()
            .find(has)
            .filter(|link| !link.is_silent)?;
        let headers = if own.is_ipv4() { HEADERS.0 } else { HEADERS.1 };
        let packet = (*segment)? + headers;
        (packet < link.mtu).then(|| {
            Verdict::advice(
                format!(
                    "packets of {packet} bytes, and {} has {}",
                    link.name, link.mtu
                ),
                "the same at both ends and between them",
            )
            .mended_by(format!(
                "ip link set dev CARD mtu {} there, and on the switches",
                link.mtu
            ))
        })
    })
}

/// Returns the value of a metric in a page.
fn value(page: &str, name: &str) -> Option<f64> {
    let mut lines = page.lines();
    let line = lines.find(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(' '))
    })?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Returns the version in a page.
fn version(page: &str) -> Option<&str> {
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with("sheaf_build_info{"))?;
    let (_, rest) = line.split_once("version=\"")?;
    Some(rest.split_once('"')?.0)
}

pub(crate) fn pages(case: &Case<'_>) -> Vec<Verdict> {
    let has_tls = case.farm.security.has_certificates();
    of_all(case, &[Purpose::Page], |place, heard| {
        let at = format!("http://{}/metrics", place.address);
        let bad = |error: &String| {
            Some(match has_tls {
                true => Verdict::not_checked(format!("{at}: {error}; a page may want TLS here")),
                false => Verdict::advice(format!("{at}: {error}"), "the page").mended_by(
                    "start the node; if it runs, the mtu of the way to it, or a firewall",
                ),
            })
        };
        match (heard.connected.as_ref()?, &heard.page) {
            (Err(error), _) | (_, Some(Err(error))) => bad(error),
            (Ok(_), None) => None,
            (Ok(_), Some(Ok(page))) => {
                let (open, most) = (
                    value(page, "process_open_fds")?,
                    value(page, "process_max_fds")?,
                );
                (open > 0.8 * most).then(|| {
                    Verdict::advice(
                        format!("{open} of {most} files are open"),
                        "fewer than 80 %",
                    )
                    .mended_by("raise transport.connections_max and LimitNOFILE")
                })
            }
        }
    })
}

pub(crate) fn versions(case: &Case<'_>) -> Vec<Verdict> {
    let own = &case.question.version;
    of_all(case, &[Purpose::Page], |_, heard| {
        let page = heard.page.as_ref()?.as_ref().ok()?;
        let found = version(page)?;
        (found != own).then(|| {
            Verdict::wrong(found, format!("{own}, as of this program")).mended_by(
                "install one version on all machines, and restart (docs/how-to/operate.md#restart)",
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_lists_are_read() {
        assert!(is_reserved("80,7100-7200", 7150) && is_reserved("80", 80));
        assert!(!is_reserved("80,7100-7200", 81) && !is_reserved("", 0));
        let page = "# HELP process_open_fds x\nprocess_open_fds 12\nprocess_open_fds_more 1\n";
        assert_eq!(value(page, "process_open_fds"), Some(12.0));
        assert_eq!(value(page, "process_open"), None);
        assert_eq!(
            version("sheaf_build_info{version=\"0.1.0\",commit=\"a\"} 1"),
            Some("0.1.0")
        );
    }
}
