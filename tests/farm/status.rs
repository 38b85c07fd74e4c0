//! `sheaf status` of a running farm: its text, its JSON, and its exit status.

use crate::harness::{Running, farm_turn, free_address, sheaf, write};
use rustix::process::Signal;
use serde_json::Value;

fn farm_file(address: &str) -> String {
    format!(
        "[run]\nflps = 1\nepns = 2\n[icn]\naddress = \"{address}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 50.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n"
    )
}

/// Asks until the farm has this health. Returns the report.
fn await_health(config: &str, health: &str, code: i32) -> Value {
    loop {
        let ended = sheaf(&["status", "--config", config, "--json"]);
        let report: Value = serde_json::from_str(&ended.stdout[0]).unwrap();
        if report["health"] == health {
            assert_eq!(ended.status.code(), Some(code), "{report:#}");
            return report;
        }
    }
}

#[test]
fn the_exit_status_of_status_is_the_health_of_the_farm() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let config = write(folder.path(), "farm.toml", &farm_file(&address));
    let config = config.as_str();
    let ended = sheaf(&["status", "--config", config, "--timeout", "100ms"]);
    assert_eq!(ended.status.code(), Some(1), "{:?}", ended.stdout);
    assert!(
        ended.stderr.contains("no ICN answers for 0.1 s"),
        "{}",
        ended.stderr
    );

    let icn = Running::start(&["run", "icn", "--config", config, "--status-ms", "50"]);
    icn.await_line("\"phase\":\"waiting\"");
    let report = await_health(config, "degraded", 3);
    let reasons = report["reasons"].to_string();
    assert!(
        reasons.contains("the run waits for its quorum"),
        "{reasons}"
    );
    assert!(reasons.contains("flp:0 has not joined"), "{reasons}");

    let start = |role, index| Running::start(&["run", role, "--config", config, "--index", index]);
    let (flp, epn, other) = (start("flp", "0"), start("epn", "0"), start("epn", "1"));
    let report = await_health(config, "healthy", 0);
    assert_eq!(report["done"], true, "{report:#}");
    assert_eq!(report["icns"][0]["state"], "leads", "{report:#}");
    assert_eq!(report["status"]["epns"][1]["state"], "up", "{report:#}");
    assert_eq!(report["status"]["security"], "loopback", "{report:#}");
    for command in [&["status"][..], &["ctl", "status"]] {
        let ended = sheaf(&[command, &["--config", config]].concat());
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        let text = ended.stdout.join("\n");
        for part in ["leader  ", "health  healthy", "flp:0  up", "epn:1  up"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    other.signal(Signal::KILL);
    drop(other.end());
    let report = await_health(config, "degraded", 3);
    assert!(
        report["reasons"][0]
            .as_str()
            .unwrap()
            .starts_with("epn:1 is "),
        "{report:#}"
    );

    let ended = sheaf(&["ctl", "stop", "--config", config, "--allow-abandoned"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert!(
        ended.stdout[0].contains(" is over: announced "),
        "{:?}",
        ended.stdout
    );
    for node in [flp, epn, icn] {
        assert!(node.end().status.success());
    }
    let ended = sheaf(&["status", "--config", config, "--timeout", "100ms"]);
    assert_eq!(ended.status.code(), Some(1), "{:?}", ended.stdout);
}
