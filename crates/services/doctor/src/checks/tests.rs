//! Each fault of a machine, and of the way to others, put in by hand.

use super::*;
use crate::Question;
use crate::finding::State;
use crate::machine::Machine;
use crate::peers::{Connected, Heard, Peers, Place, Purpose};
use sheaf_gateway::Facts;
use sheaf_gateway::{Assigned, Link};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A machine with nothing wrong.
fn machine() -> Machine {
    Machine {
        processors: 8,
        quota: None,
        governors: vec!["performance".to_owned()],
        memory: Some((64 << 30, 60 << 30)),
        files_max: Some(1 << 20),
        huge_pages: Some("madvise".to_owned()),
        buffers_max: (Some(16 << 20), Some(16 << 20)),
        congestion: vec!["reno".to_owned(), "cubic".to_owned()],
        port_range: Some((32768, 60999)),
        reserved_ports: String::new(),
        clock: Some((true, "chrony: stratum 3".to_owned())),
        cards: vec![crate::machine::Card {
            name: "eth0".to_owned(),
            ring: Some((4096, 4096)),
            interrupts: vec![100, 200],
            ..crate::machine::Card::default()
        }],
    }
}

fn farm() -> FarmConfig {
    let text = "[run]\nflps = 1\nepns = 1\n[icn]\naddress = \"10.0.0.1:7000\"\n\
                [epn]\nlisten = \"10.0.0.2:7100\"\nmetrics = \"10.0.0.2:9100\"\n[security]\ninsecure = true\n";
    FarmConfig::parse_for(text, Path::new("f"), &[]).expect("a farm file")
}

fn links() -> Facts {
    let own = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
    let mut facts = Facts::default();
    facts.links.push(Link {
        name: "eth0".to_owned(),
        mtu: 9000,
        is_up: true,
        is_silent: false,
        addresses: vec![Assigned {
            address: own,
            prefix: 24,
            is_deprecated: false,
            is_unusable: false,
        }],
    });
    facts
}

/// Peers that all answer as they should.
fn peers(farm: &FarmConfig) -> Peers {
    let answer = |place: &Place| {
        let connected = Connected {
            own: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)),
            segment: Some(8948),
        };
        let page = "sheaf_build_info{version=\"0.1.0\",commit=\"abc\"} 1\nprocess_open_fds 10\nprocess_max_fds 1000\n";
        let address: SocketAddr = place.address.parse().expect("an address");
        Heard {
            lookup: Some((Duration::from_micros(10), Ok(address))),
            connected: Some(Ok(connected)),
            page: (place.purpose == Purpose::Page).then(|| Ok(page.to_owned())),
        }
    };
    let places = crate::peers::places(farm);
    let all = places
        .into_iter()
        .map(|place| (place.clone(), answer(&place)));
    Peers { all: all.collect() }
}

/// Changes what is well, and compares what is not: state, check, place, how what was found begins.
#[track_caller]
fn check(
    change: impl FnOnce(&mut FarmConfig, &mut Machine, &mut Facts, &mut Peers),
    expected: &[(State, &str, &str, &str)],
) {
    let (mut farm, mut machine, mut links) = (farm(), machine(), links());
    let mut peers = peers(&farm);
    change(&mut farm, &mut machine, &mut links, &mut peers);
    let question = Question {
        farm: Some(&farm),
        roles: vec![Role::Epn],
        is_wide: true,
        has_disk: true,
        version: "0.1.0".to_owned(),
        patience: Duration::from_secs(2),
    };
    let case = Case {
        question: &question,
        farm: &farm,
        machine: &machine,
        links: Ok(&links),
        peers: &peers,
    };
    let mut report = crate::Report::default();
    for check in CHECKS {
        report.add(check, (check.judge)(&case));
    }
    let bad = report
        .findings
        .iter()
        .filter(|finding| finding.state != State::Ok);
    let found: Vec<_> = bad
        .map(|finding| {
            (
                finding.state,
                finding.check,
                finding.place.as_str(),
                finding.found.as_str(),
            )
        })
        .collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        let (state, name, place, text) = expected;
        assert_eq!(
            &(found.0, found.1, found.2),
            &(*state, *name, *place),
            "{found:?}"
        );
        assert!(found.3.starts_with(text), "{found:?}, expected {text:?}");
    }
    assert_eq!(
        report.is_well(),
        expected.iter().all(|(state, ..)| *state != State::Wrong)
    );
}

fn heard<'a>(peers: &'a mut Peers, purpose: Purpose, name: &str) -> &'a mut Heard {
    let mut all = peers.all.iter_mut();
    let found = all.find(|(place, _)| place.purpose == purpose && place.name == name);
    found.expect("an address").1
}

#[test]
fn a_machine_with_nothing_wrong_has_no_findings() {
    check(|_, _, _, _| {}, &[]);
}

#[test]
fn each_setting_of_a_machine_is_named() {
    use State::{Advice, NotChecked, Wrong};
    check(
        |_, machine, _, _| machine.processors = 1,
        &[(Advice, "processors", "", "1 processors")],
    );
    check(
        |_, machine, _, _| machine.quota = Some(1.5),
        &[(
            Advice,
            "processors",
            "",
            "8 processors, of which the control group allows 1.5",
        )],
    );
    check(
        |_, machine, _, _| machine.governors = vec!["powersave".to_owned()],
        &[(Advice, "processors", "governor", "governor powersave")],
    );
    check(
        |farm, machine, _, _| {
            farm.epn.build.capacity_bytes = 4 << 30;
            machine.memory = Some((8 << 30, 1 << 30));
        },
        &[(Advice, "memory", "", "1.0 GiB available of 8.0 GiB, ")],
    );
    check(
        |_, machine, _, _| machine.files_max = Some(1024),
        &[(Wrong, "open-files", "", "1024 at most")],
    );
    check(
        |_, machine, _, _| machine.huge_pages = Some("never".to_owned()),
        &[(Advice, "huge-pages", "", "never")],
    );
    check(
        |_, machine, _, _| machine.buffers_max = (Some(212_992), Some(16 << 20)),
        &[(
            Advice,
            "socket-buffers",
            "net.core.rmem_max",
            "212992 bytes",
        )],
    );
    check(
        |farm, _, _, _| farm.transport.congestion = "bbr".to_owned(),
        &[(Advice, "congestion-control", "", "reno cubic")],
    );
    check(
        |_, machine, _, _| machine.port_range = Some((7000, 60999)),
        &[
            (Advice, "port-range", "epn.listen", "7100 in 7000 to 60999"),
            (Advice, "port-range", "epn.metrics", "9100 in 7000 to 60999"),
        ],
    );
    check(
        |_, machine, _, _| {
            machine.port_range = Some((7000, 60999));
            machine.reserved_ports = "80,7100-7200,9100".to_owned();
        },
        &[],
    );
    check(
        |_, machine, _, _| {
            machine.clock = Some((false, "timedatectl: NTPSynchronized=no".to_owned()));
        },
        &[(Advice, "clock", "", "timedatectl: NTPSynchronized=no")],
    );
    check(
        |_, machine, _, _| machine.clock = None,
        &[(
            NotChecked,
            "clock",
            "",
            "neither chronyc nor timedatectl answers",
        )],
    );
    check(
        |_, machine, _, _| {
            machine.cards[0].ring = Some((256, 4096));
            machine.cards[0].interrupts = vec![5000, 0];
            machine.cards[0].offloads = [("tcp-segmentation-offload".to_owned(), false)].into();
        },
        &[
            (Advice, "cards", "eth0", "tcp-segmentation-offload off"),
            (Advice, "cards", "eth0", "a receive ring of 256 packets"),
            (Advice, "interrupts", "eth0", "all 5000 at CPU 0"),
        ],
    );
    check(
        |_, machine, _, _| {
            let place = &mut machine.cards[0].place;
            place.interrupted = (6..10).collect();
            place.near = (8..16).collect();
        },
        &[(
            Advice,
            "interrupts",
            "eth0",
            "queues interrupt processors 6-7",
        )],
    );
}

#[test]
fn each_fault_between_machines_is_named() {
    use State::{Advice, Wrong};
    check(
        |_, _, _, peers| {
            let heard = heard(peers, Purpose::Node, "epn:0");
            heard.lookup = Some((Duration::ZERO, Err("Name or service not known".to_owned())));
            heard.connected = None;
        },
        &[(
            Wrong,
            "names",
            "epn:0",
            "10.0.0.2:7100: Name or service not known",
        )],
    );
    check(
        |_, _, _, peers| {
            let heard = heard(peers, Purpose::Node, "epn:0");
            heard.connected = Some(Err("connection timed out".to_owned()));
        },
        &[(
            Wrong,
            "reach",
            "epn:0",
            "10.0.0.2:7100: connection timed out",
        )],
    );
    check(
        |_, _, _, peers| {
            let heard = heard(peers, Purpose::Node, "icn:0");
            if let Some(Ok(connected)) = &mut heard.connected {
                connected.segment = Some(1448);
            }
        },
        &[(
            Advice,
            "mtu",
            "icn:0",
            "packets of 1500 bytes, and eth0 has 9000",
        )],
    );
    check(
        |_, _, _, peers| {
            let heard = heard(peers, Purpose::Page, "epn:0");
            heard.page = Some(Err("timeout: global".to_owned()));
        },
        &[(
            Advice,
            "pages",
            "epn:0",
            "http://10.0.0.2:9100/metrics: timeout: global",
        )],
    );
    check(
        |_, _, _, peers| {
            let heard = heard(peers, Purpose::Page, "epn:0");
            heard.page = Some(Ok("sheaf_build_info{version=\"0.2.0\",commit=\"def\"} 1\n\
                                  process_open_fds 900\nprocess_max_fds 1000\n"
                .to_owned()));
        },
        &[
            (Advice, "pages", "epn:0", "900 of 1000 files are open"),
            (Wrong, "versions", "epn:0", "0.2.0"),
        ],
    );
}

#[test]
fn a_folder_that_cannot_be_used_is_named() {
    let none = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let verdict = folder_verdict("epn.sink.directory", Path::new("/data"), Err(none));
    assert_eq!(
        (verdict.state, verdict.found.as_str()),
        (State::Wrong, "/data: permission denied")
    );
    let slow = disk::Speed {
        free: 1 << 40,
        durable: (Duration::from_millis(25), Duration::from_millis(90)),
        bytes_per_s: Some(2e8),
    };
    let of = |key, speed| folder_verdict(key, Path::new("/log"), Ok(speed)).state;
    assert_eq!(of("icn.ledger.directory", slow), State::Advice);
    assert_eq!(of("epn.sink.directory", slow), State::Ok);
    let full = disk::Speed {
        free: 1 << 20,
        ..slow
    };
    assert_eq!(of("epn.sink.directory", full), State::Wrong);
}

#[test]
fn names_of_checks_differ() {
    let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CHECKS.len());
}
