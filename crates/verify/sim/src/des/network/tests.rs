use super::*;
use crate::scenario::{Group, Rack};
use sheaf_protocol::splitmix;

fn wires(flps: u32, epns: u32) -> Scenario {
    let mut scenario = Scenario {
        flps,
        epns,
        ..Scenario::default()
    };
    scenario.network.flp_mbit_s = 1000.0;
    scenario.network.epn_mbit_s = 1000.0;
    scenario.network.efficiency = 1.0; // 8 ns a byte.
    scenario.network.delay_us = 0;
    scenario
}

/// Runs flows, each `(start, flp, epn, bytes)`, and returns the end of each.
fn ends(scenario: &Scenario, flows: &[(Nanos, u32, u32, u64)]) -> Vec<Nanos> {
    let mut network = Network::new(scenario, scenario.epns);
    let mut looks: Vec<Look> = Vec::new();
    let mut ends = vec![0; flows.len()];
    let mut ids = vec![None; flows.len()];
    loop {
        let start = flows.iter().zip(&ids).filter(|(_, id)| id.is_none());
        let start = start.map(|((at, ..), _)| *at).min();
        let look = looks.iter().map(|look| look.at).min();
        let Some(now) = start.into_iter().chain(look).min() else {
            return ends;
        };
        for (tag, (at, flp, epn, bytes)) in flows.iter().enumerate() {
            if ids[tag].is_none() && *at == now {
                ids[tag] = Some(network.begin(now, *flp, *epn, *bytes, tag as u32));
            }
        }
        let due: Vec<Look> = looks.extract_if(.., |look| look.at == now).collect();
        for look in due {
            let seen = network.look(now, look.sight);
            if let (Seen::Done { tag }, Sight::Flow(flow)) = (seen, look.sight) {
                ends[tag as usize] = now;
                network.end(now, flow);
            }
        }
        looks.extend(network.take_looks().filter(|look| look.at != Nanos::MAX));
    }
}

#[track_caller]
fn check(found: &[Nanos], expected: &[Nanos]) {
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found.abs_diff(*expected) <= 2,
            "{found}, expected {expected}"
        );
    }
}

#[test]
fn one_flow_takes_its_bytes_over_the_narrowest_rate() {
    let mut scenario = wires(1, 1);
    check(&ends(&scenario, &[(5, 0, 0, 1_000_000)]), &[8_000_005]);
    scenario.network.epn_mbit_s = 100.0;
    check(&ends(&scenario, &[(0, 0, 0, 1_000_000)]), &[80_000_000]);
    scenario.network.efficiency = 0.5;
    check(&ends(&scenario, &[(0, 0, 0, 1_000_000)]), &[160_000_000]);
}

#[test]
fn flows_of_one_port_share_it_evenly_and_take_over_what_others_leave() {
    let scenario = wires(2, 1);
    let two = [(0, 0, 0, 1_000_000), (0, 1, 0, 1_000_000)];
    check(&ends(&scenario, &two), &[16_000_000, 16_000_000]);
    // The second is half as long: it ends when each has had half a megabyte, and the first goes on alone.
    let uneven = [(0, 0, 0, 1_000_000), (0, 1, 0, 500_000)];
    check(&ends(&scenario, &uneven), &[12_000_000, 8_000_000]);
    // The second begins when the first is half through.
    let later = [(0, 0, 0, 1_000_000), (4_000_000, 1, 0, 1_000_000)];
    check(&ends(&scenario, &later), &[12_000_000, 16_000_000]);
}

#[test]
fn shares_are_max_min_fair_over_several_ports() {
    // FLP 0 sends to EPNs 0 and 1, FLPs 1 and 2 to EPN 0: the port of EPN 0 is shared by three, and what is left of
    // FLP 0's NIC goes to EPN 1.
    let scenario = wires(3, 2);
    let mut network = Network::new(&scenario, 2);
    for (tag, (flp, epn)) in [(0, 0), (1, 0), (2, 0), (0, 1)].into_iter().enumerate() {
        network.begin(0, flp, epn, 1_000_000, tag as u32);
    }
    let rates: Vec<f64> = network.flows.iter().map(|flow| flow.rate * 8.0).collect();
    for (found, expected) in rates
        .iter()
        .zip([1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 2.0 / 3.0])
    {
        assert!((found - expected).abs() < 1e-9, "{rates:?}");
    }
}

#[test]
fn random_shares_use_up_a_port_of_every_flow_and_exceed_none() {
    let mut seed = 1;
    let mut next = |below: u64| {
        seed = splitmix::mix(seed + 1);
        seed % below
    };
    for case in 0..200 {
        let (flps, epns) = (1 + next(12) as u32, 1 + next(12) as u32);
        let mut scenario = wires(flps, epns);
        scenario.network.port_buffer_bytes = 1 << 30;
        scenario.network.flp_mbit_s = 100.0 + next(1000) as f64;
        scenario.network.racks.push(Rack {
            flps: flps / 2,
            epns: epns / 2,
            uplink_mbit_s: 50.0 + next(2000) as f64,
        });
        let mut network = Network::new(&scenario, epns);
        let mut ids = Vec::new();
        for tag in 0..1 + next(60) as u32 {
            let pair = (next(flps.into()) as u32, next(epns.into()) as u32);
            ids.push(network.begin(0, pair.0, pair.1, 1 << 30, tag));
            if next(4) == 0 {
                let at = next(ids.len() as u64) as usize;
                network.end(0, ids.swap_remove(at));
            }
        }
        for (index, port) in network.ports.iter().enumerate() {
            let used: f64 = port
                .flows
                .iter()
                .map(|flow| network.flows[*flow as usize].rate)
                .sum();
            assert!(
                used <= port.rate * (1.0 + 1e-9),
                "case {case}, port {index}: {used} of {}",
                port.rate
            );
        }
        for flow in network
            .flows
            .iter()
            .filter(|flow| flow.state == State::Active)
        {
            let is_bounded = flow.ports[..usize::from(flow.count)].iter().any(|port| {
                let port = &network.ports[*port as usize];
                let rates = port
                    .flows
                    .iter()
                    .map(|flow| network.flows[*flow as usize].rate);
                let (used, most) = rates.fold((0.0, 0.0_f64), |(sum, most), rate| {
                    (sum + rate, most.max(rate))
                });
                used >= port.rate * (1.0 - 1e-9) && flow.rate >= most * (1.0 - 1e-9)
            });
            assert!(is_bounded, "case {case}: no port is full for {flow:?}");
        }
    }
}

/// Returns 100 Mbit/s behind buckets of 250 kB, on a machine that moves a byte a ns.
fn shaped(flps: u32, epns: u32) -> Scenario {
    let mut scenario = wires(flps, epns);
    scenario.network.flp_mbit_s = 100.0;
    scenario.network.epn_mbit_s = 100.0;
    scenario.network.burst_bytes = 250_000;
    scenario.network.machine_mbit_s = Some(8000.0);
    scenario
}

#[test]
fn a_shaped_port_lets_a_burst_through_at_the_speed_of_the_machine_and_the_rest_at_its_own() {
    let scenario = shaped(1, 1);
    check(&ends(&scenario, &[(0, 0, 0, 200_000)]), &[200_000]);
    // All but a frame of the bucket, and what flows in meanwhile, leaves at once.
    let at_once = (250_000.0 - 1538.0) / (1.0 - 0.0125);
    let end = (at_once + (1_000_000.0 - at_once) / 0.0125) as Nanos;
    // 10 ms later there are 125 kB in it again.
    let later = end + 10 * MS;
    let found = ends(&scenario, &[(0, 0, 0, 1_000_000), (later, 0, 0, 100_000)]);
    assert!(found[0].abs_diff(end) <= 500, "{found:?}, expected {end}");
    assert!(
        found[1].abs_diff(later + 100_000) <= 500,
        "{found:?}, expected {later} and 100 us"
    );
}

#[test]
fn nodes_that_share_a_machine_share_its_processors() {
    let flows = [(0, 0, 0, 100_000), (0, 1, 1, 100_000)];
    check(&ends(&shaped(2, 2), &flows), &[200_000, 200_000]);
}

#[test]
fn a_port_whose_rate_is_changed_has_a_full_bucket_and_one_that_is_cut_off_lets_nothing_through() {
    let scenario = shaped(1, 1);
    let mut network = Network::new(&scenario, 1);
    network.set_epn_rate(0, 0, 0.0);
    let flow = network.begin(0, 0, 0, 100_000, 7);
    assert_eq!(network.look(MS, Sight::Flow(flow)), Seen::Nothing);
    assert_eq!(network.flows[0].rate, 0.0);
    network.set_epn_rate(5 * MS, 0, 0.1);
    let ends: Vec<Look> = network.take_looks().collect();
    assert!(
        ends.iter().any(|look| look.at == 5 * MS + 100_000),
        "{ends:?}"
    );
}

#[test]
fn an_uplink_is_shared_by_what_leaves_the_rack_and_by_nothing_else() {
    let mut scenario = wires(2, 2);
    scenario.network.racks.push(Rack {
        flps: 2,
        epns: 1,
        uplink_mbit_s: 100.0,
    });
    // FLP 0 to the EPN in the rack at 1000 Mbit/s, FLP 1 to the one outside at 100.
    let flows = [(0, 0, 0, 1_000_000), (0, 1, 1, 1_000_000)];
    check(&ends(&scenario, &flows), &[8_000_000, 80_000_000]);
    let network = Network::new(&scenario, 2);
    assert_eq!(network.delay(1, 1), 2 * network.delay(1, 0));
    assert!((network.path_rate(0, 0) - 0.125).abs() < 1e-12);
}

#[test]
fn pushed_bursts_beyond_a_buffer_wait_for_the_retransmission_timeout() {
    // 24 senders of 64 KB into 1 Gbit/s, 128 KiB of buffer: 8 windows of 14600 bytes fit.
    let mut scenario = wires(24, 1);
    scenario.network.probe_ms = 0;
    let flows: Vec<_> = (0..24).map(|flp| (0, flp, 0, 64_000)).collect();
    let found = ends(&scenario, &flows);
    let at_once = found.iter().filter(|end| **end < 200 * MS).count();
    assert_eq!(at_once, 8, "{found:?}");
    let last = found.iter().max().copied().unwrap_or(0);
    assert!(last > 600 * MS, "third timeouts of the last: {last}");
    // Without loss it would be 12.3 ms: the goodput is a few percent.
    let mut patient = scenario;
    patient.network.port_buffer_bytes = 1 << 20;
    let flows: Vec<_> = (0..24).map(|flp| (0, flp, 0, 64_000)).collect();
    check(&ends(&patient, &flows)[23..], &[12_288_000]);
}

#[test]
fn a_probe_finds_a_lost_window_where_the_port_is_not_filled_twice() {
    let last = |flps: u32| {
        let flows: Vec<_> = (0..flps).map(|flp| (0, flp, 0, 64_000)).collect();
        ends(&wires(flps, 1), &flows).into_iter().max().unwrap_or(0)
    };
    // 8 windows fit; the next ones go on after 20 ms.
    assert!(last(8) < 5 * MS, "{}", last(8));
    assert!((20 * MS..25 * MS).contains(&last(12)), "{}", last(12));
    assert!((20 * MS..26 * MS).contains(&last(16)), "{}", last(16));
    // 24 are more than the port bears twice: the last ones wait for the timeout, and need no second one.
    assert!((200 * MS..210 * MS).contains(&last(24)), "{}", last(24));
}

#[test]
fn a_link_without_rate_holds_its_flows_until_it_has_one_again() {
    let scenario = wires(1, 1);
    let mut network = Network::new(&scenario, 1);
    let flow = network.begin(0, 0, 0, 1_000_000, 7);
    network.set_epn_rate(4_000_000, 0, 0.0);
    assert_eq!(network.look(8_000_000, Sight::Flow(flow)), Seen::Nothing);
    network.set_epn_rate(100 * MS, 0, 0.5);
    let looks: Vec<Look> = network.take_looks().collect();
    let end = looks.last().expect("it has a rate again").at;
    check(&[end], &[108 * MS]);
    assert_eq!(network.look(end, Sight::Flow(flow)), Seen::Done { tag: 7 });
}

#[test]
fn groups_stand_at_the_begin_or_come_again_and_again() {
    let group = |epns, speed| Group {
        epns,
        speed,
        nic: 1.0,
        weight: 1.0,
    };
    let mut scenario = Scenario {
        epns: 8,
        groups: vec![group(1, 0.5), group(2, 2.0)],
        ..Scenario::default()
    };
    let speeds = |scenario: &Scenario| -> Vec<f64> {
        let speed = |epn| scenario.group_of(epn).map_or(1.0, |group| group.speed);
        (0..8).map(speed).collect()
    };
    assert_eq!(speeds(&scenario), [0.5, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    scenario.groups_repeat = true;
    assert_eq!(speeds(&scenario), [0.5, 2.0, 2.0, 0.5, 2.0, 2.0, 0.5, 2.0]);
    scenario.groups.clear();
    assert_eq!(speeds(&scenario), [1.0; 8]);
}
