//! A farm of threads on the loopback device, and what is made of its reports.

use super::*;
use crate::experiment::Experiment;
use std::net::TcpListener;

fn trial(extra: &str) -> Trial {
    let text = format!(
        "name = 'x'\nquestion = '?'\n[base]\ntopology = 'pi-cluster'\nmode = 'legacy'\nflps = 2\nepns = 3\n\
         rate_hz = 200.0\nbytes = 1000\nduration_s = 0.5\npolicy = 'round-robin'\n{extra}"
    );
    Experiment::parse(&text, "x")
        .unwrap()
        .trials()
        .unwrap()
        .remove(0)
}

/// Returns ports without a listener, on the loopback device.
fn free(count: usize) -> Vec<SocketAddr> {
    let listeners: Vec<TcpListener> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap())
        .collect()
}

/// A whole farm of `trial`, each node a thread.
fn run_farm(trial: &Trial) -> Vec<(NodeId, NodeReport)> {
    let scenario = &trial.scenario;
    let (flps, epns) = (scenario.flps as u16, scenario.epns as u16);
    let ports = free(usize::from(epns) + 1);
    let config = |node: NodeId| NodeConfig {
        role: node.role.to_string(),
        index: node.index,
        flps,
        epns,
        control: ports[0],
        data: (node.role == Role::Epn).then(|| ports[1 + usize::from(node.index)]),
        rate_hz: scenario.rate_hz,
        heartbeats: scenario.timeframes(),
        bytes: scenario.size.bytes,
        is_fixed: scenario.policy == "fixed",
        has_dead_band: false,
        rules: scenario.legacy.clone(),
        seed: 1,
    };
    let nodes = [NodeId::ICN].into_iter();
    let nodes = nodes.chain((0..flps).map(|index| FlpId(index).into()));
    let nodes = nodes.chain((0..epns).map(|index| EpnId(index).into()));
    let threads: Vec<_> = nodes
        .map(|node: NodeId| {
            let config = config(node);
            let run = move || match node.role {
                Role::Icn => icn::run(&config),
                Role::Flp => flp::run(&config),
                _ => epn::run(&config),
            };
            (node, std::thread::spawn(run))
        })
        .collect();
    threads
        .into_iter()
        .map(|(node, thread)| (node, thread.join().unwrap().unwrap()))
        .collect()
}

#[test]
fn on_a_fast_network_every_heartbeat_is_acknowledged_and_the_epns_share() {
    let trial = trial("");
    let reports = run_farm(&trial);
    let result = judge(&trial, &reports, 0);
    assert_eq!(result.announced, 100);
    assert_eq!(result.mixed_target, 0);
    // Threads may be late on a busy machine, and messages then cross: what is lost has a cause.
    assert_eq!(
        result.lost,
        result.lost_by.values().sum::<u64>(),
        "{result:?}"
    );
    assert!(result.tfs_by_epn.iter().all(|tfs| *tfs > 0), "{result:?}");
}

#[test]
fn a_stream_that_stalls_costs_sets_that_are_out_of_order() {
    // Every stream stops for 60 ms within the first 100 ms, each at its own time: four rounds of three EPNs at 200 Hz.
    let stalls = "[scenario.legacy]\nstart_stalls = { probability = 1.0, ms = 60, within_s = 0.1 }";
    let trial = trial(stalls);
    let result = judge(&trial, &run_farm(&trial), 0);
    assert!(result.out_of_order > 0, "{result:?}");
    assert!(result.lost_by["out-of-order"] > 0, "{result:?}");
    let keyed = format!("{stalls}\nbuilder = 'keyed'");
    let trial = self::trial(&keyed);
    let result = judge(&trial, &run_farm(&trial), 0);
    assert_eq!(
        result.out_of_order, 0,
        "a builder with keys does not mind: {result:?}"
    );
}

#[test]
fn causes_add_up_to_what_is_lost() {
    let trial = trial("");
    let icn = NodeReport {
        heartbeats: 100,
        generation_ns: 495_000_000,
        acks: 60,
        late: 25,
        ..NodeReport::default()
    };
    let epn = NodeReport {
        out_of_order: 10,
        ..NodeReport::default()
    };
    let reports = [(NodeId::ICN, icn), (EpnId(0).into(), epn)];
    let result = judge(&trial, &reports, 0);
    let causes: Vec<(&str, u64)> = result
        .lost_by
        .iter()
        .map(|(cause, lost)| (cause.as_str(), *lost))
        .collect();
    assert_eq!(
        causes,
        [
            ("late-at-run-end", 25),
            ("misaligned", 5),
            ("out-of-order", 10)
        ]
    );
    assert_eq!((result.lost, result.rejected), (40, None));
    let dead = judge(&trial, &reports, 1);
    assert_eq!(dead.lost_by["dead-epn"], 5);
}

#[test]
fn heartbeats_that_went_to_different_epns_are_counted() {
    let (a, b) = (vec![0, 1, 2, 0], vec![0, 1, 0, 1]);
    assert_eq!(mixed(&[&a, &b]), 2);
    assert_eq!(mixed(&[&a]), 0);
}
