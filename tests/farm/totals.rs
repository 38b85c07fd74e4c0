//! Totals of the status: they hold over a drain, a killed EPN and a change of leader.

use crate::harness::{Running, farm_turn, free_address, sheaf, write};
use rustix::process::Signal;
use serde_json::Value;

/// Waits for a status with at least `goal` complete TFs.
fn await_complete(icn: &Running, goal: u64) -> Value {
    loop {
        let status: Value = serde_json::from_str(&icn.await_line("\"books\"")).unwrap();
        if status["books"]["complete"].as_u64().unwrap() >= goal {
            return status;
        }
    }
}

#[test]
fn the_status_keeps_the_totals_of_nodes_that_are_gone() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[run]\nflps = 1\nepns = 3\n[icn]\naddress = \"{}\"\n[icn.ledger]\ncheckpoint_records = 100\n\
         [icn.liveness]\nepn_grace_ms = 200\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n[epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        free_address()
    );
    let config = write(folder.path(), "farm.toml", &text);
    let icn = || Running::start(&["run", "icn", "--config", &config, "--status-ms", "50"]);
    let node = |role, index| Running::start(&["run", role, "--config", &config, "--index", index]);
    let first = icn();
    let flp = node("flp", "0");
    let epns = ["0", "1", "2"].map(|index| node("epn", index));
    await_complete(&first, 60);

    let drained = sheaf(&["ctl", "drain", "epn:1", "--config", &config, "--wait"]);
    assert!(drained.status.success(), "{}", drained.stderr);
    epns[2].signal(Signal::KILL);
    let status = await_complete(&first, 0);
    let goal = status["books"]["complete"].as_u64().unwrap() + 60;
    let status = await_complete(&first, goal);
    let left = &status["epns"][1];
    assert_eq!(
        (&left["state"], &left["weight_milli"]),
        (&"left".into(), &1000.into())
    );
    assert!(left["delivered_tfs"].as_u64().unwrap() > 0, "{left:#}");
    assert!(left["received_bytes"].as_u64().unwrap() > 0, "{left:#}");

    first.signal(Signal::KILL);
    drop(first.end());
    let second = icn();
    let status = await_complete(&second, goal + 60);
    assert_eq!(status["epns"].as_array().unwrap().len(), 3, "{status:#}");
    let stopped = sheaf(&["ctl", "stop", "--config", &config, "--allow-abandoned"]);
    assert!(stopped.status.success(), "{}", stopped.stderr);
    let ended = second.end();
    assert!(ended.status.success(), "{}", ended.stderr);
    let last = ended
        .stdout
        .iter()
        .rev()
        .find(|line| line.contains("\"books\""));
    let last: Value = serde_json::from_str(last.unwrap()).unwrap();
    assert_eq!(last["phase"], "over", "{last:#}");
    let count = |field: &str| last["books"][field].as_u64().unwrap();
    let epns_now = last["epns"].as_array().unwrap().iter();
    let delivered: u64 = epns_now
        .map(|epn| epn["delivered_tfs"].as_u64().unwrap())
        .sum();
    assert_eq!(
        delivered + count("abandoned"),
        count("complete") + count("incomplete"),
        "{last:#}"
    );
    assert!(flp.end().status.success());
    for (index, epn) in epns.into_iter().enumerate() {
        assert_eq!(epn.end().status.success(), index != 2);
    }
}
