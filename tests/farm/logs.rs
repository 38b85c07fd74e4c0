//! `sheaf logs` attached to a farm of separate processes.

use crate::harness::{DemoDir, Running, farm_turn, free_address, sheaf, start, start_icn, write};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn a_demo_of_one_icn_is_found_by_its_farm_file() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let demo = Running::start(&dir.words("--flps 1 --epns 1 --source generator --rate 50"));
    demo.await_line("announced");
    let config = dir.out().join("farm.toml");
    let config = config.to_str().unwrap();
    sheaf(&["status", "--config", config]).ok(&["status"]);
    let lines = sheaf(&["logs", "--config", config, "--no-follow", "--node", "icn"]);
    assert!(lines.ok(&["logs"]).contains("ICN listens"));
    demo.signal(Signal::INT);
    demo.end().ok(&["demo"]);
}

#[test]
fn the_logs_of_all_nodes_are_followed_to_the_end_of_the_run() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[run]\nflps = 1\nepns = 1\n[icn]\naddress = \"{}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 50.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        free_address()
    );
    let config = write(folder.path(), "farm.toml", &text);
    let icn = start_icn(folder.path(), &config, &[]);
    let nodes = ["flp", "epn"].map(|role| start(folder.path(), &config, role, 0, &[]));
    icn.await_line("\"phase\":\"running\"");
    let follow = ["logs", "--config", &config, "--every", "20ms"];
    let all = Running::start(&follow);
    // Lines of each node come through the ICN, in any order.
    let mut awaited = vec![" icn:0: ", " flp:0: ", " epn:0: "];
    while !awaited.is_empty() {
        let line = all.await_that("a node", |line| {
            awaited.iter().any(|node| line.contains(node))
        });
        awaited.retain(|node| !line.contains(node));
    }
    // What a node has logged comes as JSON, too, and for one node alone.
    let words = ["logs", "--config", &config, "--json", "--no-follow"];
    let lines = sheaf(&[&words[..], &["--node", "epn:0"]].concat());
    assert_eq!(lines.status.code(), Some(0), "{}", lines.stderr);
    assert!(!lines.stdout.is_empty());
    for line in &lines.stdout {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (&line["node"], &line["level"]),
            (&"epn:0".into(), &"info".into()),
            "{line:#}"
        );
    }
    let none = sheaf(&[&words[..], &["--level", "error"]].concat());
    assert_eq!((none.status.code(), none.stdout), (Some(0), Vec::new()));

    let stopped = sheaf(&["ctl", "stop", "--config", &config]);
    assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
    let ended = all.end();
    assert!(ended.status.success(), "{}", ended.stderr);
    for node in nodes.into_iter().chain([icn]) {
        assert!(node.end().status.success());
    }
    let alone = sheaf(&["logs", "--config", &config, "--timeout", "100ms"]);
    assert_eq!(alone.status.code(), Some(1), "{:?}", alone.stdout);
    assert!(
        alone.stderr.contains("no ICN answers for 0.1 s"),
        "{}",
        alone.stderr
    );
}
