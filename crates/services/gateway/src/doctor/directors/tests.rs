//! Facts of directors, and what the checks say of them.

use super::super::survey::Tables;
use super::*;
use crate::config::GatewayConfig;
use crate::facts::{Assigned, Facts};

const FILE: &str = r#"
[director]
name = "d1"
interface = "eth0"
[[service]]
name = "files"
addresses = ["10.80.0.100", "fd00:80::100"]
port = 80
[[service.server]]
name = "s1"
addresses = ["10.80.0.11", "fd00:80::11"]
"#;
const FAILOVER: &str = r#"
[failover]
router_id = 80
"#;

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn link() -> Link {
    let assigned = |text, prefix| Assigned {
        address: address(text),
        prefix,
        is_deprecated: false,
        is_unusable: false,
    };
    Link {
        name: "eth0".to_owned(),
        mtu: 1500,
        is_up: true,
        is_silent: false,
        addresses: vec![
            assigned("10.80.0.2", 16),
            assigned("10.80.0.100", 32),
            assigned("fd00:80::100", 128),
        ],
    }
}

/// Changes a case, calls the check, and returns its verdicts in a line each: state, fact, repairs.
fn run(
    file: &str,
    check: fn(&DirectorCase<'_>) -> Vec<Verdict>,
    change: impl FnOnce(&mut DirectorCase<'_>),
) -> Vec<String> {
    let config: GatewayConfig = toml::from_str(file).expect("a configuration");
    let facts = Facts {
        links: vec![link()],
        ..Facts::default()
    };
    let tables = |digest: &str| -> Asked<Tables> {
        Asked::Answer([("files".to_owned(), (digest.to_owned(), 0))].into())
    };
    let mut case = DirectorCase {
        services: config.services.iter().collect(),
        config: &config,
        facts,
        server_mtus: [("s1".to_owned(), 1500)].into(),
        sources: [(address("10.80.0.11"), address("10.80.0.2"))].into(),
        rules: Asked::Answer(()),
        plane: Asked::Answer("it does".to_owned()),
        features: Asked::Answer([(LRO.to_owned(), (false, true))].into()),
        tables: vec![
            ("d1".to_owned(), tables("aa")),
            ("d2".to_owned(), tables("aa")),
        ],
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

#[test]
fn a_director_that_is_set_up_well_passes_every_check() {
    for check in [
        interface,
        virtual_address,
        source_address,
        rules,
        plane,
        mtu,
        offloads,
        same_table,
    ] {
        let lines = run(FILE, check, |_| {});
        assert!(
            !lines.is_empty() && lines.iter().all(|line| line == "ok"),
            "{lines:?}"
        );
    }
    assert_eq!(
        run(FILE, forwarding, |_| {}),
        ["not checked: plane nft needs none"]
    );
}

#[test]
fn virtual_addresses_are_on_the_card_unless_keepalived_moves_them() {
    type Damage = fn(&mut DirectorCase<'_>);
    let gone: Damage = |case| {
        case.facts.links[0].addresses.remove(1);
    };
    assert_eq!(
        run(FILE, virtual_address, gone)[0],
        "wrong: 10.80.0.100 on no card; ip addr add 10.80.0.100/32 dev eth0"
    );
    let moved = FILE.replace("[[service]]", &format!("{FAILOVER}[[service]]"));
    assert_eq!(run(&moved, virtual_address, gone), ["ok", "ok"]);
    let wide: Damage = |case| case.facts.links[0].addresses[1].prefix = 16;
    assert_eq!(
        run(FILE, virtual_address, wide)[0],
        "wrong: 10.80.0.100/16 on eth0; ip addr del 10.80.0.100/16 dev eth0; ip addr add 10.80.0.100/32 dev eth0"
    );
    assert_eq!(
        run(&moved, virtual_address, wide)[0],
        "wrong: 10.80.0.100/16 on eth0; ip addr del 10.80.0.100/16 dev eth0"
    );
    let silent: Damage = |case| case.facts.links[0].is_silent = true;
    assert!(run(&moved, virtual_address, silent)[0].starts_with("wrong: "));
}

#[test]
fn connections_to_servers_do_not_begin_from_a_virtual_address() {
    let lines = run(FILE, source_address, |case| {
        case.sources
            .insert(address("fd00:80::11"), address("fd00:80::100"));
    });
    assert_eq!(
        lines,
        ["wrong: connections to servers begin from fd00:80::100; \
          ip addr change fd00:80::100/128 dev eth0 preferred_lft 0"]
    );
    let lines = run(FILE, source_address, |case| {
        case.sources
            .insert(address("10.80.0.11"), address("10.80.0.100"));
    });
    assert_eq!(
        lines,
        ["wrong: connections to servers begin from 10.80.0.100; \
          ip addr del 10.80.0.100/32 dev eth0; ip addr add 10.80.0.100/32 dev eth0"]
    );
}

#[test]
fn cards_that_drop_or_merge_packets_are_named() {
    let lines = run(FILE, mtu, |case| {
        case.server_mtus.insert("s2".to_owned(), 9000);
    });
    assert_eq!(lines, ["wrong: 1500 on eth0, 9000 on s2; "]);
    let merging = |is_fixed| {
        run(FILE, offloads, move |case| {
            case.features = Asked::Answer([(LRO.to_owned(), (true, is_fixed))].into());
        })
    };
    assert_eq!(
        merging(false),
        ["wrong: large-receive-offload is on at eth0; ethtool -K eth0 lro off"]
    );
    assert_eq!(
        merging(true),
        ["wrong: large-receive-offload is on at eth0; "]
    );
    let lines = run(FILE, interface, |case| case.facts.links[0].is_up = false);
    assert_eq!(lines, ["wrong: eth0 is down; ip link set eth0 up"]);
    let lines = run(FILE, interface, |case| case.facts.links.clear());
    assert_eq!(lines, ["wrong: no card eth0; "]);
}

#[test]
fn planes_that_route_need_forwarding_in_each_family() {
    let file = FILE.replace("[director]", "[director]\nplane = \"nft-nat\"");
    let lines = run(&file, forwarding, |case| {
        let settings = &mut case.facts.settings;
        settings.insert("net/ipv4/ip_forward".to_owned(), "0".to_owned());
        settings.insert("net/ipv6/conf/all/forwarding".to_owned(), "1".to_owned());
    });
    let expected = "wrong: net/ipv4/ip_forward 0; sysctl -w net.ipv4.ip_forward=1";
    assert_eq!(lines, [expected, "ok"]);
}

#[test]
fn directors_with_different_tables_are_named() {
    let lines = run(FILE, same_table, |case| {
        let other = [("files".to_owned(), ("bb".to_owned(), 0))].into();
        case.tables[1].1 = Asked::Answer(other);
    });
    assert_eq!(lines, ["wrong: d1 and d2 have different tables of files; "]);
    let lines = run(FILE, same_table, |case| {
        case.tables[1].1 = Asked::Failed("refused".to_owned());
    });
    assert_eq!(lines, ["wrong: refused; "]);
    let lines = run(FILE, same_table, |case| case.tables.clear());
    assert!(lines[0].starts_with("not checked: "), "{lines:?}");
    let lines = run(FILE, rules, |case| {
        case.rules = Asked::Failed("no nft".to_owned());
    });
    assert_eq!(lines, ["wrong: no nft; "]);
}

#[test]
fn what_a_plane_lacks_is_named_and_its_setting_repaired() {
    let lines = run(FILE, plane, |case| {
        case.plane = Asked::Failed("no program".to_owned());
    });
    assert_eq!(lines, ["wrong: no program; "]);
    let file = FILE.replace("name = \"d1\"", "name = \"d1\"\nplane = \"ipvs\"");
    let lines = run(&file, plane, |case| {
        case.facts
            .settings
            .insert(EXPIRE.to_owned(), "0".to_owned());
    });
    let expected =
        "wrong: net/ipv4/vs/expire_nodest_conn 0; sysctl -w net.ipv4.vs.expire_nodest_conn=1";
    assert_eq!(lines, ["ok", expected]);
}

#[test]
fn with_xdp_no_card_merges_packets() {
    let features = |case: &mut DirectorCase<'_>| {
        let all = [(LRO, (false, false)), ("rx-gro-hw", (true, false))];
        let all = all.map(|(name, state)| (name.to_owned(), state));
        case.features = Asked::Answer(all.into());
    };
    let file = |mode: &str| {
        let keys = format!("name = \"d1\"\nplane = \"tc\"\nbpf = {{ mode = \"{mode}\" }}");
        FILE.replace("name = \"d1\"", &keys)
    };
    assert_eq!(run(&file("tc"), offloads, features), ["ok"]);
    let expected = "wrong: rx-gro-hw is on at eth0; ethtool -K eth0 rx-gro-hw off";
    assert_eq!(run(&file("xdp"), offloads, features), [expected]);
}
