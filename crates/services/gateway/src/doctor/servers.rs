//! Checks of a server. Each judges facts and reads none.

use super::finding::{RESERVED_PORTS, Repair, Verdict};
use super::survey::{Asked, ServerCase};
use crate::backend::health_kind;
use crate::facts::{Facts, Link};
use crate::keepalived::prefix;
use sheaf_serve::{Affinity, HealthKind};
use std::net::IpAddr;

/// Largest difference of two clocks.
const CLOCKS_MS: u64 = 1000;
/// Time that a certificate has to be valid for at least.
const VALID_DAYS: i64 = 7;
/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// Judges the facts of a machine, or says why there are none.
fn of_facts(case: &ServerCase<'_>, judge: impl Fn(&Facts) -> Vec<Verdict>) -> Vec<Verdict> {
    match &case.facts {
        _ if !case.is_direct_return => {
            let reason = "the plane is a proxy: servers need nothing of this";
            vec![Verdict::not_checked(reason)]
        }
        Asked::Answer(facts) => judge(facts),
        Asked::Failed(reason) | Asked::Not(reason) => vec![Verdict::not_checked(reason)],
    }
}

pub(super) fn agent(case: &ServerCase<'_>) -> Vec<Verdict> {
    vec![match (&case.facts, case.server.agent) {
        (_, None) => Verdict::not_checked(
            "none in the configuration: drains wait for their deadline, weights do not follow the load",
        ),
        _ if case.is_here => Verdict::not_checked("asked from the director"),
        (Asked::Answer(_), Some(agent)) => Verdict::ok(format!("answers at {agent}")),
        (Asked::Failed(reason) | Asked::Not(reason), Some(_)) => Verdict::by_hand(
            reason,
            "an answer",
            "start `sheaf serve agent` there, and open its port to the directors",
        ),
    }]
}

pub(super) fn clock(case: &ServerCase<'_>) -> Vec<Verdict> {
    vec![match &case.facts {
        _ if case.is_here => Verdict::not_checked("compared from the director"),
        Asked::Failed(reason) | Asked::Not(reason) => Verdict::not_checked(reason),
        Asked::Answer(facts) => {
            let (earliest, latest) = case.asked_ms;
            let behind = earliest.saturating_sub(facts.unix_ms);
            let ahead = facts.unix_ms.saturating_sub(latest);
            let off = behind.max(ahead);
            let word = if behind > ahead { "behind" } else { "ahead of" };
            match off > CLOCKS_MS {
                false => Verdict::ok(format!("within {CLOCKS_MS} ms")),
                true => Verdict::by_hand(
                    format!("{off} ms {word} this machine"),
                    format!("within {CLOCKS_MS} ms"),
                    "run chrony or systemd-timesyncd on both",
                ),
            }
        }
    }]
}

pub(super) fn ipv6(case: &ServerCase<'_>) -> Vec<Verdict> {
    if case.service.addresses.iter().all(IpAddr::is_ipv4) {
        return vec![Verdict::not_checked("the service has no IPv6 address")];
    }
    of_facts(case, |facts| {
        let card = facts.link_of(&case.server.addresses);
        let names = ["lo"]
            .into_iter()
            .chain(card.map(|link| link.name.as_str()));
        let keys = names.map(|name| format!("net/ipv6/conf/{name}/disable_ipv6"));
        let off: Vec<String> = keys.filter(|key| facts.number(key) != Some(0)).collect();
        vec![match off.is_empty() {
            true => Verdict::ok("switched on"),
            false => {
                let repairs = off.iter().map(|key| Repair::set(key, 0)).collect();
                let found = format!("switched off: {}", off.join(", "));
                Verdict::repaired_by(found, "disable_ipv6 = 0 on lo and the card", repairs)
            }
        }]
    })
}

pub(super) fn virtual_address(case: &ServerCase<'_>) -> Vec<Verdict> {
    of_facts(case, |facts| {
        let addresses = case.service.addresses.iter();
        addresses
            .map(|address| virtual_address_at(facts, *address))
            .collect()
    })
}

/// Judges where a virtual address is on a server.
fn virtual_address_at(facts: &Facts, address: IpAddr) -> Verdict {
    let whole = prefix(address);
    let (mut repairs, mut is_held, mut found) = (Vec::new(), false, Vec::new());
    for (link, own) in facts.holders(address) {
        let name = &link.name;
        let unusable = if own.is_unusable {
            ", which is not usable: another machine may have it"
        } else {
            ""
        };
        found.push(format!("{address}/{} on {name}{unusable}", own.prefix));
        if link.is_silent && link.is_up && own.prefix == whole && !own.is_unusable {
            is_held = true;
        } else {
            let words = format!("addr del {address}/{} dev {name}", own.prefix);
            repairs.push(Repair::ip(&words));
        }
    }
    let found = match found.is_empty() {
        true => format!("{address} on no card"),
        false => found.join(", "),
    };
    if is_held && repairs.is_empty() {
        return Verdict::ok(found);
    }
    if !is_held {
        let rest = if address.is_ipv4() {
            ""
        } else {
            " nodad preferred_lft 0"
        };
        repairs.push(Repair::ip(&format!(
            "addr add {address}/{whole} dev lo{rest}"
        )));
    }
    let expected = format!("{address}/{whole} on lo (or a card without ARP) and on no other");
    Verdict::repaired_by(found, expected, repairs)
}

/// Cards of a server that could answer for its virtual addresses.
fn cards(facts: &Facts) -> impl Iterator<Item = &Link> {
    let all = facts.links.iter();
    all.filter(|link| link.is_up && !link.is_silent && !link.addresses.is_empty())
}

/// Judges a setting of IPv4 at every card: the value of all cards and that of the card, of which the larger counts.
fn setting(
    case: &ServerCase<'_>,
    name: &str,
    expected: &str,
    is_good: impl Fn(u32) -> bool,
    repair: impl Fn(&Facts, &Link) -> Vec<Repair>,
) -> Vec<Verdict> {
    if !case.service.addresses.iter().any(IpAddr::is_ipv4) {
        return vec![Verdict::not_checked("the service has no IPv4 address")];
    }
    of_facts(case, |facts| {
        let one = |link: &Link| {
            let card = &link.name;
            match facts.effective(name, card) {
                None => Verdict::not_checked(format!("{name} of {card} cannot be read")),
                Some(value) if is_good(value) => Verdict::ok(format!("{value} at {card}")),
                Some(value) => {
                    let found = format!("{name} {value} at {card}");
                    Verdict::repaired_by(found, expected, repair(facts, link))
                }
            }
        };
        cards(facts).map(one).collect()
    })
}

pub(super) fn arp_ignore(case: &ServerCase<'_>) -> Vec<Verdict> {
    // 3 and 8 leave the own address unanswered too.
    let is_good = |value| value == 1 || value == 2;
    setting(case, "arp_ignore", "1 or 2", is_good, |facts, link| {
        let own = format!("net/ipv4/conf/{}/arp_ignore", link.name);
        let mut repairs = vec![Repair::set("net/ipv4/conf/all/arp_ignore", 1)];
        if facts.number(&own).is_some_and(|value| value > 2) {
            repairs.push(Repair::set(own, 1));
        }
        repairs
    })
}

pub(super) fn arp_announce(case: &ServerCase<'_>) -> Vec<Verdict> {
    setting(
        case,
        "arp_announce",
        "2",
        |value| value == 2,
        |_, _| vec![Repair::set("net/ipv4/conf/all/arp_announce", 2)],
    )
}

pub(super) fn reverse_path(case: &ServerCase<'_>) -> Vec<Verdict> {
    let is_good = |value| value != 1;
    setting(case, "rp_filter", "0 or 2 (loose)", is_good, |_, link| {
        let key = format!("net/ipv4/conf/{}/rp_filter", link.name);
        vec![Repair::set(key, 2)]
    })
}

/// Reads ranges of ports such as `80,50000-51000`.
fn ranges(text: &str) -> Vec<(u16, u16)> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    text.split(',').filter_map(range).collect()
}

pub(super) fn port_range(case: &ServerCase<'_>) -> Vec<Verdict> {
    let port = case.server.port.unwrap_or(case.service.port);
    let mut needed = vec![("port of the service", port, port)];
    if let Some([first, last]) = case.expect.and_then(|expect| expect.data_ports) {
        needed.push(("data ports", first, last));
    }
    let facts = match &case.facts {
        Asked::Answer(facts) => facts,
        Asked::Failed(reason) | Asked::Not(reason) => return vec![Verdict::not_checked(reason)],
    };
    let key = "net/ipv4/ip_local_port_range";
    let text = facts.settings.get(key).map_or("", String::as_str);
    let range = text.split_once(' ').and_then(|(first, last)| {
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some::<(u16, u16)>((first, last))
    });
    let Some((low, high)) = range else {
        return vec![Verdict::not_checked(format!("{key} cannot be read"))];
    };
    let reserved = facts
        .settings
        .get(RESERVED_PORTS)
        .map_or("", String::as_str);
    let kept = ranges(reserved);
    let is_kept = |port: u16| {
        kept.iter()
            .any(|(first, last)| (*first..=*last).contains(&port))
    };
    let judge = |(what, first, last): &(&str, u16, u16)| {
        let name = match first == last {
            true => format!("{what} {first}"),
            false => format!("{what} {first}-{last}"),
        };
        let mut inside = (*first).max(low)..=(*last).min(high);
        if inside.all(is_kept) {
            return Verdict::ok(format!("{name} beside {low}-{high}, or reserved"));
        }
        let part = match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let value = match reserved.is_empty() {
            true => part,
            false => format!("{reserved},{part}"),
        };
        Verdict::repaired_by(
            format!("{name} within {low}-{high}, from which outgoing connections take theirs"),
            "ports outside of ip_local_port_range, or in ip_local_reserved_ports",
            vec![Repair::set(RESERVED_PORTS, value)],
        )
    };
    needed.iter().map(judge).collect()
}

pub(super) fn accepts(case: &ServerCase<'_>) -> Vec<Verdict> {
    let answers = match &case.accepts {
        Asked::Answer(answers) => answers,
        Asked::Failed(reason) | Asked::Not(reason) => return vec![Verdict::not_checked(reason)],
    };
    let port = case.service.port;
    let judge = |(address, result): (&IpAddr, &Result<(), String>)| match result {
        Ok(()) => Verdict::ok(format!("a connection to {address} port {port}")),
        Err(error) => Verdict::by_hand(
            format!("no connection to {address} port {port}: {error}"),
            "a connection that is accepted",
            "let the storage server listen on all addresses, or on the virtual one too",
        ),
    };
    answers.iter().map(judge).collect()
}

pub(super) fn data_address(case: &ServerCase<'_>) -> Vec<Verdict> {
    if health_kind(case.service) != HealthKind::Gridftp {
        return vec![Verdict::not_checked("the service is not GridFTP")];
    }
    let found = match &case.data_address {
        Asked::Answer(found) => *found,
        Asked::Failed(reason) | Asked::Not(reason) => return vec![Verdict::not_checked(reason)],
    };
    let own = &case.server.addresses;
    let is_virtual = case.service.addresses.contains(&found);
    if is_virtual && case.service.affinity == Affinity::Client {
        return vec![Verdict::ok(format!(
            "{found}, the virtual one, behind which a client has one server"
        ))];
    }
    if own.contains(&found) {
        return vec![Verdict::ok(format!("{found}, its own"))];
    }
    let whose = match is_virtual {
        true => ", the virtual one",
        false => ", which is none of its own",
    };
    let first = own.first().map(ToString::to_string).unwrap_or_default();
    vec![Verdict::by_hand(
        format!("{found}{whose}"),
        format!("an own address of the server, such as {first}"),
        format!("`data_interface {first}` in /etc/gridftp.conf, and start the server again"),
    )]
}

/// Whether a name in a certificate is that of a host: equal, or `*` in place of its first part (RFC 6125, 6.4.3).
fn is_name_of(name: &str, host: &str) -> bool {
    if name.eq_ignore_ascii_case(host) {
        return true;
    }
    match (name.strip_prefix("*."), host.split_once('.')) {
        (Some(rest), Some((_, domain))) => rest.eq_ignore_ascii_case(domain),
        _ => false,
    }
}

pub(super) fn certificate(case: &ServerCase<'_>) -> Vec<Verdict> {
    let Some(expect) = case.expect.and_then(|expect| expect.certificate.as_ref()) else {
        let reason = format!("no [expect.{}.certificate]", case.service.name);
        return vec![Verdict::not_checked(reason)];
    };
    let found = match &case.certificate {
        Asked::Answer(found) => found,
        Asked::Not(reason) => return vec![Verdict::not_checked(reason)],
        Asked::Failed(reason) => {
            let by_hand = "give the server a certificate that clients trust";
            return vec![Verdict::by_hand(reason, "a certificate", by_hand)];
        }
    };
    let renew = "have a certificate made with every name of the service, and put it on the server";
    let mut verdicts = Vec::new();
    let names = match expect.names.is_empty() {
        false => expect.names.clone(),
        true => case
            .service
            .addresses
            .iter()
            .map(ToString::to_string)
            .collect(),
    };
    for name in names {
        let address: Option<IpAddr> = name.parse().ok();
        let is_there = match address {
            Some(address) => found.addresses.contains(&address),
            None => found.names.iter().any(|own| is_name_of(own, &name)),
        };
        if is_there {
            verdicts.push(Verdict::ok(format!("for {name}")));
            continue;
        }
        let addresses = found.addresses.iter().map(ToString::to_string);
        let all: Vec<String> = found.names.iter().cloned().chain(addresses).collect();
        let all = if all.is_empty() {
            "no name".to_owned()
        } else {
            all.join(", ")
        };
        verdicts.push(Verdict::by_hand(
            format!("for {all}"),
            format!("for {name}"),
            renew,
        ));
    }
    let left_days = (found.to_s - case.now_s).div_euclid(DAY_S);
    if found.from_s > case.now_s {
        let expected = "a certificate that is valid now";
        verdicts.push(Verdict::by_hand(
            "not valid yet",
            expected,
            "look at the clocks",
        ));
    } else if left_days < VALID_DAYS {
        let found = match left_days < 0 {
            true => format!("expired {} days ago", -left_days),
            false => format!("valid for {left_days} days more"),
        };
        let expected = format!("valid for {VALID_DAYS} days at least");
        verdicts.push(Verdict::by_hand(found, expected, renew));
    } else {
        verdicts.push(Verdict::ok(format!("valid for {left_days} days more")));
    }
    verdicts
}

#[cfg(test)]
mod tests;
