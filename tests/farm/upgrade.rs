//! Upgrade of a running farm, node by node, from one minor version of the protocol to the next.
//!
//! The former version is this build, limited to it; or, if `SHEAF_FORMER_BUILD` names a program, another build.

use crate::harness::{Running, farm_turn, free_address, sheaf, start, write};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const NODES: [(&str, u16); 7] = [
    ("icn", 0),
    ("icn", 1),
    ("icn", 2),
    ("epn", 0),
    ("epn", 1),
    ("flp", 0),
    ("flp", 1),
];

fn farm_file(folder: &Path, addresses: &[String]) -> String {
    let text = format!(
        "[run]\nflps = 2\nepns = 2\n[icn]\naddresses = {addresses:?}\n\
         [icn.ledger]\nbackend = \"majority\"\ndirectory = \"{}/verdicts-{{icn}}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 150.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n[epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        folder.display()
    );
    write(folder, "farm.toml", &text)
}

/// Starts a node of the former version.
fn start_former(folder: &Path, config: &str, role: &str, index: u16) -> Running {
    let Some(program) = std::env::var_os("SHEAF_FORMER_BUILD") else {
        return start(folder, config, role, index, &["--protocol-minor", "0"]);
    };
    let mut command = Command::new(program);
    let events = folder.join(format!("{role}-{index}.events"));
    command.args(["run", role, "--config", config, "--index"]);
    command.arg(index.to_string()).arg("--events").arg(events);
    Running::of(command)
}

/// Returns the status of the farm when `is_it` holds.
fn await_status(config: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    loop {
        let ended = sheaf(&["status", "--config", config, "--json", "--timeout", "60s"]);
        let status: Value = serde_json::from_str(&ended.stdout.concat()).unwrap();
        assert_eq!(status["done"], true, "{status:#}");
        if is_it(&status) {
            return status;
        }
    }
}

fn complete(status: &Value) -> u64 {
    status["status"]["books"]["complete"].as_u64().unwrap()
}

/// Returns which life of an FLP or EPN is up, if one is.
fn life(status: &Value, (role, index): (&str, u16)) -> Option<u64> {
    let nodes = status["status"][format!("{role}s")].as_array()?;
    let mut nodes = nodes.iter();
    let node = nodes.find(|node| node["index"] == index && node["state"] == "up")?;
    node["incarnation"].as_u64()
}

/// Ends a node in order, starts its next life, and waits until that is back and the run goes on.
fn replace(
    config: &str,
    running: &mut Option<Running>,
    node: (&str, u16),
    start: impl FnOnce((&str, u16)) -> Running,
) {
    let before = await_status(config, |_| true);
    let former = running.take().unwrap();
    former.signal(Signal::TERM);
    let ended = former.end();
    assert!(ended.status.success(), "{node:?}: {}", ended.stderr);
    assert!(!ended.stderr.contains(" ERROR "), "{}", ended.stderr);
    *running = Some(start(node));
    let is_back = |status: &Value| match life(&before, node) {
        Some(former) => life(status, node).is_some_and(|life| life > former),
        None => node.0 == "icn",
    };
    await_status(config, |status| {
        is_back(status) && complete(status) >= complete(&before) + 20
    });
}

/// Returns the nodes whose lines the ICN has.
fn logging_nodes(config: &str) -> BTreeSet<String> {
    let words = ["logs", "--config", config, "--no-follow", "--json"];
    let ended = sheaf(&[&words[..], &["--lines", "100000"]].concat());
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let lines = ended.stdout.iter();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| line["node"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_farm_is_upgraded_node_by_node_and_back_and_loses_no_tf() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let addresses: Vec<String> = (0..3).map(|_| free_address()).collect();
    let config = farm_file(folder.path(), &addresses);
    let former = |(role, index): (&str, u16)| start_former(folder.path(), &config, role, index);
    let mut running = NODES.map(|node| Some(former(node)));
    let status = await_status(&config, |status| complete(status) >= 50);
    let run = status["run"].clone();
    let logs = sheaf(&["logs", "--config", &config]);
    assert_eq!(logs.status.code(), Some(2), "{:?}", logs.stdout);
    let expected = "speaks protocol 1.0, expected 1.1 or later";
    assert!(logs.stderr.contains(expected), "{}", logs.stderr);

    // The leader last, then EPNs and FLPs: each ends in order, and its next life is of this version.
    let leader = addresses
        .iter()
        .position(|address| status["icn"] == **address);
    let leader = leader.expect("an ICN of the farm file leads");
    let icns = (0..3).filter(|icn| *icn != leader).chain([leader]);
    for at in icns.chain(3..NODES.len()) {
        replace(&config, &mut running[at], NODES[at], |(role, index)| {
            start(folder.path(), &config, role, index, &[])
        });
        if at == leader {
            // The others are of the former version, and the ICN sends them nothing that they do not know.
            let nodes = logging_nodes(&config);
            assert!(
                nodes.iter().all(|node| node.starts_with("icn:")),
                "{nodes:?}"
            );
        }
    }
    let nodes: BTreeSet<String> = NODES
        .iter()
        .map(|(role, index)| format!("{role}:{index}"))
        .collect();
    while logging_nodes(&config) != nodes {}

    // And back, the leader among the first.
    for at in 0..NODES.len() {
        replace(&config, &mut running[at], NODES[at], former);
    }

    let stopped = sheaf(&["ctl", "stop", "--config", &config]);
    assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
    for node in running.into_iter().flatten() {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        assert!(!ended.stderr.contains(" ERROR "), "{}", ended.stderr);
        assert!(!ended.stderr.contains("is no message"), "{}", ended.stderr);
    }
    let verified = sheaf(&[
        "data",
        "verify",
        folder.path().to_str().unwrap(),
        "--json",
        "-",
    ]);
    let found: Value = serde_json::from_str(&verified.ok(&["data", "verify"])).unwrap();
    assert_eq!(
        (&found["ok"], &found["run"]),
        (&true.into(), &run),
        "{found:#}"
    );
    assert_eq!(found["delivered"], found["announced"], "{found:#}");
    assert_eq!(found["lives"]["icns"], 9, "{found:#}");
}
