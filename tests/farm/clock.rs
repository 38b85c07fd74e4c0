//! Nodes whose wall clock was set back between two lives.

use crate::harness::{PROGRAM, Running, farm_turn, free_address, sheaf, write};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Variable that gives a process a clock that runs ahead: its incarnation is at least that.
const INCARNATION_MIN: &str = "SHEAF_INCARNATION_MIN";

#[test]
fn nodes_whose_clock_was_set_back_join_again_and_the_run_verifies() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    let text = format!(
        "[run]\nflps = 2\nepns = 2\n[icn]\naddress = \"{}\"\n[icn.liveness]\nepn_grace_ms = 60000\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 100.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n[epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nincomplete = \"allow\"\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        free_address()
    );
    let config = write(dir, "farm.toml", &text);
    let events = |node: &str| dir.join(format!("{node}.events")).display().to_string();
    let icn = Running::start(&[
        "run",
        "icn",
        "--config",
        &config,
        "--status-ms",
        "50",
        "--events",
        &events("icn-0"),
    ]);
    let in_an_hour = SystemTime::now() + Duration::from_secs(3600);
    let in_an_hour = in_an_hour.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let start = |role: &str, index: &str, is_ahead: bool| {
        let mut command = Command::new(PROGRAM);
        command.args(["run", role, "--config", &config, "--index", index]);
        command.args(["--events", &events(&format!("{role}-{index}"))]);
        if is_ahead {
            command.env(INCARNATION_MIN, in_an_hour.as_nanos().to_string());
        }
        Running::of(command)
    };
    let mut flps = [start("flp", "0", true), start("flp", "1", true)];
    let mut epns = [start("epn", "0", true), start("epn", "1", true)];
    await_complete(&icn, 50);

    // Their next lives have the true time.
    for (role, node) in [("epn", &mut epns[0]), ("flp", &mut flps[0])] {
        node.kill();
        *node = start(role, "0", false);
        let goal = await_complete(&icn, 0) + 50;
        await_complete(&icn, goal);
    }

    let stopped = sheaf(&["ctl", "stop", "--config", &config, "--allow-abandoned"]);
    assert!(stopped.status.success(), "{}", stopped.stderr);
    assert!(icn.end().status.success());
    let again = "starting again with a later incarnation";
    for (index, node) in flps.into_iter().chain(epns).enumerate() {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        // The first FLP and the first EPN are the ones whose clock was set back.
        assert_eq!(
            ended.stderr.contains(again),
            index % 2 == 0,
            "{}",
            ended.stderr
        );
    }
    let words = ["data", "verify", dir.to_str().unwrap(), "--allow-abandoned"];
    sheaf(&words).ok(&words);
}

/// Waits until at least `goal` TFs are complete. Returns how many are.
fn await_complete(icn: &Running, goal: u64) -> u64 {
    loop {
        let status: serde_json::Value = serde_json::from_str(&icn.await_line("\"books\"")).unwrap();
        let complete = status["books"]["complete"].as_u64().unwrap();
        if complete >= goal {
            return complete;
        }
    }
}
