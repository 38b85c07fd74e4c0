//! Facts of servers, and what the checks say of them.

use super::super::survey::Certificate;
use super::*;
use crate::expect::{Expect, ExpectCertificate};
use crate::facts::Assigned;
use sheaf_serve::{ServerConfig, ServiceConfig};
use std::collections::BTreeMap;

const SERVICE: &str = r#"
name = "files"
addresses = ["10.80.0.100", "fd00:80::100"]
port = 2811
health = { kind = "gridftp" }
[[server]]
name = "s1"
addresses = ["10.80.0.11", "fd00:80::11"]
agent = "10.80.0.11:7401"
"#;

fn assigned(address: &str, prefix: u8) -> Assigned {
    Assigned {
        address: address.parse().expect("an address"),
        prefix,
        is_deprecated: false,
        is_unusable: false,
    }
}

/// Facts of a server that is set up well.
fn facts() -> Facts {
    let lo = Link {
        name: "lo".to_owned(),
        mtu: 65_536,
        is_up: true,
        is_silent: true,
        addresses: vec![
            assigned("127.0.0.1", 8),
            assigned("10.80.0.100", 32),
            assigned("fd00:80::100", 128),
        ],
    };
    let card = Link {
        name: "eth0".to_owned(),
        mtu: 1500,
        is_up: true,
        is_silent: false,
        addresses: vec![assigned("10.80.0.11", 16), assigned("fd00:80::11", 64)],
    };
    let mut settings = BTreeMap::new();
    for (key, value) in [
        ("net/ipv4/ip_local_port_range", "32768 60999"),
        ("net/ipv4/ip_local_reserved_ports", ""),
        ("net/ipv4/conf/all/arp_ignore", "1"),
        ("net/ipv4/conf/all/arp_announce", "2"),
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/eth0/arp_ignore", "0"),
        ("net/ipv4/conf/eth0/arp_announce", "0"),
        ("net/ipv4/conf/eth0/rp_filter", "0"),
        ("net/ipv6/conf/lo/disable_ipv6", "0"),
        ("net/ipv6/conf/eth0/disable_ipv6", "0"),
    ] {
        settings.insert(key.to_owned(), value.to_owned());
    }
    Facts {
        unix_ms: 1_000_000,
        settings,
        links: vec![lo, card],
    }
}

/// Changes a case, calls the check, and returns its verdicts in a line each: state, fact, repairs.
fn run(
    check: fn(&ServerCase<'_>) -> Vec<Verdict>,
    change: impl FnOnce(&mut ServerCase<'_>),
) -> Vec<String> {
    let service: ServiceConfig = toml::from_str(SERVICE).expect("a service");
    let expect = Expect {
        data_ports: Some([50_000, 51_000]),
        certificate: Some(ExpectCertificate {
            names: vec!["files.example.org".to_owned(), "10.80.0.100".to_owned()],
            file: None,
        }),
    };
    let certificate = Certificate {
        names: vec!["*.example.org".to_owned()],
        addresses: service.addresses.clone(),
        from_s: 0,
        to_s: 100 * DAY_S,
    };
    let server: &ServerConfig = &service.servers[0];
    let mut case = ServerCase {
        service: &service,
        server,
        expect: Some(&expect),
        is_here: false,
        is_direct_return: true,
        facts: Asked::Answer(facts()),
        asked_ms: (1_000_000, 1_000_010),
        data_address: Asked::Answer(server.addresses[0]),
        certificate: Asked::Answer(certificate),
        accepts: Asked::Answer([(service.addresses[0], Ok(()))].into()),
        now_s: 10 * DAY_S,
    };
    change(&mut case);
    let line = |verdict: Verdict| match verdict {
        Verdict::Ok { .. } => "ok".to_owned(),
        Verdict::NotChecked { reason } => format!("not checked: {reason}"),
        Verdict::Wrong { found, repairs, .. } => {
            let repairs: Vec<String> = repairs.iter().map(ToString::to_string).collect();
            format!("wrong: {found}; {}", repairs.join("; "))
        }
    };
    check(&case).into_iter().map(line).collect()
}

fn with(case: &mut ServerCase<'_>, change: impl FnOnce(&mut Facts)) {
    match &mut case.facts {
        Asked::Answer(facts) => change(facts),
        other => panic!("{other:?}"),
    }
}

fn set(case: &mut ServerCase<'_>, key: &str, value: &str) {
    with(case, |facts| {
        drop(facts.settings.insert(key.to_owned(), value.to_owned()));
    });
}

#[test]
fn a_server_that_is_set_up_well_passes_every_check() {
    for check in [
        agent,
        clock,
        ipv6,
        arp_ignore,
        arp_announce,
        virtual_address,
        reverse_path,
        port_range,
        accepts,
        data_address,
        certificate,
    ] {
        let lines = run(check, |case| {
            set(case, "net/ipv4/ip_local_reserved_ports", "50000-51000");
        });
        assert!(
            !lines.is_empty() && lines.iter().all(|line| line == "ok"),
            "{lines:?}"
        );
    }
}

#[test]
fn a_virtual_address_has_to_be_on_a_silent_card_alone_in_its_prefix() {
    type Damage = fn(&mut Facts);
    let cases: [(&str, Damage); 5] = [
        (
            "wrong: 10.80.0.100 on no card; ip addr add 10.80.0.100/32 dev lo",
            |facts| {
                facts.links[0].addresses.remove(1);
            },
        ),
        (
            "wrong: 10.80.0.100/24 on lo; ip addr del 10.80.0.100/24 dev lo; ip addr add 10.80.0.100/32 dev lo",
            |facts| facts.links[0].addresses[1].prefix = 24,
        ),
        (
            "wrong: 10.80.0.100/32 on lo, 10.80.0.100/32 on eth0; ip addr del 10.80.0.100/32 dev eth0",
            |facts| facts.links[1].addresses.push(assigned("10.80.0.100", 32)),
        ),
        (
            "wrong: fd00:80::100 on no card; ip addr add fd00:80::100/128 dev lo nodad preferred_lft 0",
            |facts| {
                facts.links[0].addresses.remove(2);
            },
        ),
        (
            "wrong: fd00:80::100/128 on lo, which is not usable: another machine may have it; \
             ip addr del fd00:80::100/128 dev lo; ip addr add fd00:80::100/128 dev lo nodad preferred_lft 0",
            |facts| facts.links[0].addresses[2].is_unusable = true,
        ),
    ];
    for (expected, damage) in cases {
        let lines = run(virtual_address, |case| with(case, damage));
        assert!(
            lines.contains(&expected.to_owned()),
            "{expected}: {lines:?}"
        );
        assert_eq!(
            lines.iter().filter(|line| *line == "ok").count(),
            1,
            "{lines:?}"
        );
    }
}

#[test]
fn the_larger_of_the_settings_of_all_cards_and_of_the_card_counts() {
    let none = |case: &mut ServerCase<'_>| {
        set(case, "net/ipv4/conf/all/arp_ignore", "0");
        set(case, "net/ipv4/conf/all/arp_announce", "0");
    };
    assert_eq!(
        run(arp_ignore, none),
        ["wrong: arp_ignore 0 at eth0; sysctl -w net.ipv4.conf.all.arp_ignore=1"]
    );
    assert_eq!(
        run(arp_announce, none),
        ["wrong: arp_announce 0 at eth0; sysctl -w net.ipv4.conf.all.arp_announce=2"]
    );
    let own = |case: &mut ServerCase<'_>| {
        none(case);
        set(case, "net/ipv4/conf/eth0/arp_ignore", "2");
        set(case, "net/ipv4/conf/eth0/arp_announce", "2");
    };
    assert_eq!(run(arp_ignore, own), ["ok"]);
    assert_eq!(run(arp_announce, own), ["ok"]);
    let mute = |case: &mut ServerCase<'_>| set(case, "net/ipv4/conf/eth0/arp_ignore", "8");
    assert_eq!(
        run(arp_ignore, mute),
        [
            "wrong: arp_ignore 8 at eth0; sysctl -w net.ipv4.conf.all.arp_ignore=1; \
          sysctl -w net.ipv4.conf.eth0.arp_ignore=1"
        ]
    );
    let strict = |case: &mut ServerCase<'_>| set(case, "net/ipv4/conf/all/rp_filter", "1");
    assert_eq!(
        run(reverse_path, strict),
        ["wrong: rp_filter 1 at eth0; sysctl -w net.ipv4.conf.eth0.rp_filter=2"]
    );
    let loose = |case: &mut ServerCase<'_>| {
        strict(case);
        set(case, "net/ipv4/conf/eth0/rp_filter", "2");
    };
    assert_eq!(run(reverse_path, loose), ["ok"]);
}

#[test]
fn ports_of_the_service_are_kept_from_outgoing_connections() {
    let lines = run(port_range, |_| {});
    assert_eq!(
        lines,
        [
            "ok",
            "wrong: data ports 50000-51000 within 32768-60999, from which outgoing connections take theirs; \
             sysctl -w net.ipv4.ip_local_reserved_ports=50000-51000"
        ]
    );
    let lines = run(port_range, |case| {
        set(case, "net/ipv4/ip_local_reserved_ports", "50000-50999");
        set(case, "net/ipv4/ip_local_port_range", "1024 65535");
    });
    assert!(
        lines[0].ends_with("ip_local_reserved_ports=50000-50999,2811"),
        "{lines:?}"
    );
    assert!(
        lines[1].ends_with("ip_local_reserved_ports=50000-50999,50000-51000"),
        "{lines:?}"
    );
}

#[test]
fn data_of_gridftp_goes_to_an_own_address() {
    let lines = run(data_address, |case| {
        case.data_address = Asked::Answer(case.service.addresses[0]);
    });
    assert_eq!(lines, ["wrong: 10.80.0.100, the virtual one; "]);
    let lines = run(data_address, |case| {
        case.data_address = Asked::Answer(IpAddr::from([127, 0, 1, 1]));
    });
    assert_eq!(lines, ["wrong: 127.0.1.1, which is none of its own; "]);
    let by_client = ServiceConfig {
        affinity: Affinity::Client,
        ..toml::from_str(SERVICE).expect("a service")
    };
    let by_client: &'static ServiceConfig = Box::leak(Box::new(by_client));
    let lines = run(data_address, |case| {
        case.data_address = Asked::Answer(by_client.addresses[0]);
        case.service = by_client;
    });
    assert_eq!(lines, ["ok"]);
}

#[test]
fn a_certificate_has_every_name_and_does_not_expire_soon() {
    let change = |change: fn(&mut Certificate)| {
        run(certificate, |case| match &mut case.certificate {
            Asked::Answer(found) => change(found),
            other => panic!("{other:?}"),
        })
    };
    let lines = change(|found| found.names = vec!["s1.example.org".to_owned()]);
    assert!(
        lines[0].starts_with("wrong: for s1.example.org, 10.80.0.100"),
        "{lines:?}"
    );
    assert_eq!(
        change(|found| found.addresses.clear())[1],
        "wrong: for *.example.org; "
    );
    assert_eq!(
        change(|found| found.to_s = 12 * DAY_S)[2],
        "wrong: valid for 2 days more; "
    );
    assert_eq!(
        change(|found| found.to_s = 0)[2],
        "wrong: expired 10 days ago; "
    );
    assert_eq!(
        change(|found| found.from_s = 11 * DAY_S)[2],
        "wrong: not valid yet; "
    );
    assert!(is_name_of("FILES.example.org", "files.example.org"));
    assert!(!is_name_of("*.example.org", "a.files.example.org"));
    assert!(!is_name_of("*.example.org", "example.org"));
}

#[test]
fn clocks_agents_and_listeners_are_named() {
    let lines = run(clock, |case| with(case, |facts| facts.unix_ms += 90_000));
    assert_eq!(lines, ["wrong: 89990 ms ahead of this machine; "]);
    let lines = run(clock, |case| with(case, |facts| facts.unix_ms -= 2_000));
    assert_eq!(lines, ["wrong: 2000 ms behind this machine; "]);
    let lines = run(agent, |case| {
        case.facts = Asked::Failed("refused".to_owned());
    });
    assert_eq!(lines, ["wrong: refused; "]);
    let mut alone: ServiceConfig = toml::from_str(SERVICE).expect("a service");
    alone.servers[0].agent = None;
    let server = alone.servers.remove(0);
    let lines = run(agent, |case| {
        let without = ServerCase {
            server: &server,
            ..case.clone()
        };
        assert!(matches!(agent(&without)[..], [Verdict::NotChecked { .. }]));
    });
    assert_eq!(lines, ["ok"]);
    let lines = run(arp_ignore, |case| {
        case.facts = Asked::Failed("refused".to_owned());
    });
    assert_eq!(lines, ["not checked: refused"]);
    let lines = run(accepts, |case| {
        let refused = Err("Connection refused".to_owned());
        case.accepts = Asked::Answer([(case.service.addresses[0], refused)].into());
    });
    assert_eq!(
        lines,
        ["wrong: no connection to 10.80.0.100 port 2811: Connection refused; "]
    );
    let lines = run(ipv6, |case| set(case, "net/ipv6/conf/lo/disable_ipv6", "1"));
    assert_eq!(
        lines,
        [
            "wrong: switched off: net/ipv6/conf/lo/disable_ipv6; sysctl -w net.ipv6.conf.lo.disable_ipv6=0"
        ]
    );
    let lines = run(virtual_address, |case| case.is_direct_return = false);
    assert!(
        lines[0].starts_with("not checked: the plane is a proxy"),
        "{lines:?}"
    );
}
