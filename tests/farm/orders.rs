//! Orders of an operator to a running farm: drain an EPN, pause it, set its weight, stop the run.

use crate::harness::{DemoDir, Running, farm_turn, free_address, sheaf, start, start_icn, write};
use rustix::process::Signal;
use serde_json::Value;

/// The numbers of the TFs in the lines of kind `event` of an event log, with the whole lines.
fn events(log: &str, event: &str) -> Vec<(u64, Value)> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines
        .filter(|line| line["event"] == event)
        .map(|line| (line["tf"].as_u64().unwrap(), line))
        .collect()
}

#[test]
fn a_drained_epn_leaves_and_a_disabled_one_gets_nothing_and_no_tf_is_lost() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let demo =
        Running::start(&dir.words("--icns 3 --rate 150 --orbits-per-tf 4 --policy round-robin"));
    demo.await_line("announced");
    let config = dir.out().join("farm.toml");
    let config = config.to_str().unwrap();
    let drain = [
        "ctl",
        "drain",
        "epn:1",
        "--config",
        config,
        "--wait",
        "--json",
        "--timeout",
        "60s",
    ];
    let ended = sheaf(&drain);
    assert_eq!(
        ended.status.code(),
        Some(0),
        "{:?} {}",
        ended.stdout,
        ended.stderr
    );
    let outcome: Value = serde_json::from_str(&ended.stdout[0]).unwrap();
    assert_eq!(
        (&outcome["done"], &outcome["left"]),
        (&Value::Bool(true), &Value::Bool(true))
    );
    let log = std::fs::read_to_string(dir.out().join("epn-1.events")).unwrap();
    assert!(log.contains("\"event\":\"end\""), "it has ended by itself");

    let ended = sheaf(&[
        "ctl",
        "set",
        "epn:2",
        "--config",
        config,
        "--enabled",
        "false",
    ]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, ["epn:2 is disabled, with weight 1"]);
    demo.await_line("epn:2 disabled");
    let flp = dir.out().join("flp-0.events");
    let made = events(&std::fs::read_to_string(&flp).unwrap(), "made");
    let newest = made.last().unwrap().0;
    demo.await_line("announced");
    demo.await_line("announced");
    demo.signal(Signal::INT);
    let ended = demo.end();
    assert!(
        ended.status.success(),
        "{:#?}\n{}",
        ended.stdout,
        ended.stderr
    );
    let summary = dir.summary();
    summary.assert_nothing_lost();
    assert_eq!(*summary.of_node("epn:1", "exit"), "dismissed");
    let sent = events(&std::fs::read_to_string(&flp).unwrap(), "sent");
    let later: Vec<&Value> = sent
        .iter()
        .filter(|(tf, _)| *tf > newest)
        .map(|(_, line)| line)
        .collect();
    assert!(
        later.iter().any(|line| line["epn"] == 3),
        "the others go on"
    );
    let wrong: Vec<&&Value> = later
        .iter()
        .filter(|line| line["epn"] == 1 || line["epn"] == 2)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_weight_is_seen_in_the_status_and_stop_ends_the_run() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let text = format!(
        "[run]\nflps = 1\nepns = 1\n[icn]\naddress = \"{address}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 50.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n"
    );
    let config = write(folder.path(), "farm.toml", &text);
    let icn = Running::start(&["run", "icn", "--config", &config, "--status-ms", "50"]);
    let nodes = ["flp", "epn"]
        .map(|role| Running::start(&["run", role, "--config", &config, "--index", "0"]));
    icn.await_line("\"phase\":\"running\"");
    let order = |words: &[&str]| sheaf(&[words, &["--icn", &address]].concat());
    let ended = order(&["ctl", "set", "epn:0", "--weight", "2.5"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    icn.await_line("\"weight_milli\":2500");
    let ended = order(&["ctl", "status"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let expected = [format!("leader  {address} "), "state   run ".to_owned()];
    for (line, expected) in ended.stdout.iter().zip(&expected) {
        assert!(line.starts_with(expected), "{:?}", ended.stdout);
    }
    assert!(
        ended.stdout[1].contains(" is running, "),
        "{:?}",
        ended.stdout
    );
    let ended = order(&["ctl", "drain", "epn:9"]);
    assert_eq!(ended.status.code(), Some(1), "{:?}", ended.stdout);
    assert!(
        ended.stderr.contains("sheaf: epn:9 is not in the farm"),
        "{}",
        ended.stderr
    );
    let ended = order(&["ctl", "stop", "--json"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let outcome: Value = serde_json::from_str(&ended.stdout[0]).unwrap();
    assert_eq!(outcome["done"], true, "{outcome:#}");
    assert_eq!(outcome["over"], true, "{outcome:#}");
    let accounting = &outcome["accounting"];
    assert_eq!(accounting["in_flight"], 0, "{outcome:#}");
    assert_eq!(
        accounting["announced"], accounting["complete"],
        "{outcome:#}"
    );
    for node in nodes.into_iter().chain([icn]) {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        let last = ended.stdout.last().unwrap();
        assert!(last.contains("\"reason\":\"dismissed\""), "{last}");
    }
}

#[test]
fn an_order_that_reaches_nobody_or_names_nothing_is_answered_in_one_line() {
    let unused = free_address();
    for (line, status, expected) in [
        (
            &["ctl", "stop", "--icn", &unused, "--timeout", "300ms"][..],
            1,
            "no ICN answers for 0.3 s",
        ),
        (&["ctl", "stop"], 2, "--config <FILE>"),
        (
            &["ctl", "drain", "flp:1", "--icn", &unused],
            2,
            "found `flp:1`, expected epn:N",
        ),
        (
            &["ctl", "set", "epn:1", "--icn", &unused],
            2,
            "--weight <W>",
        ),
        (
            &["ctl", "set", "epn:1", "--icn", &unused, "--weight", "0"],
            2,
            "expected 0.001 to 1000",
        ),
        (&["run", "epn", "--config", "x.toml"], 2, "--index <N>"),
        (
            &["ctl", "stop", "--config", "/nowhere/farm.toml"],
            2,
            "/nowhere/farm.toml",
        ),
        (
            &["ctl", "stop", "--icn", "10.0.0.1:7000"],
            2,
            "certificates",
        ),
    ] {
        let ended = sheaf(line);
        assert_eq!(
            ended.status.code(),
            Some(status),
            "{line:?}: {}",
            ended.stderr
        );
        assert!(
            ended.stderr.contains(expected),
            "{line:?}: {}",
            ended.stderr
        );
    }
}

/// Found by a trial: the accounting said complete 768, delivered 0, abandoned 768, and every exit status was 0.
#[test]
fn a_stop_without_a_consumer_drops_the_tfs_as_undelivered() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let address = free_address();
    let text = format!(
        "[run]\nflps = 1\nepns = 1\n[icn]\naddress = \"{address}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 50.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [epn.sink]\nkind = \"unix\"\npath = \"{}/tfs.sock\"\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\ndrain_ms = 500\n",
        at.display()
    );
    let config = write(at, "farm.toml", &text);
    let icn = start_icn(at, &config, &[]);
    let nodes = ["flp", "epn"].map(|role| start(at, &config, role, 0, &[]));
    icn.await_line("\"complete\":1");
    let ended = sheaf(&["ctl", "stop", "--icn", &address, "--json"]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let outcome: Value = serde_json::from_str(&ended.stdout[0]).unwrap();
    let accounting = &outcome["accounting"];
    assert!(accounting["announced"].as_u64().unwrap() > 0, "{outcome:#}");
    for none in ["complete", "incomplete", "abandoned", "in_flight"] {
        assert_eq!(accounting[none], 0, "{outcome:#}");
    }
    assert_eq!(
        accounting["dropped"]["undelivered"], accounting["announced"],
        "{outcome:#}"
    );
    for node in nodes.into_iter().chain([icn]) {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    let words = ["data", "verify", at.to_str().unwrap(), "--json", "-"];
    let report: Value = serde_json::from_str(&sheaf(&words).ok(&words)).unwrap();
    assert_eq!(report["delivered"], 0, "{report:#}");
    let dropped = &report["dropped"]["undelivered"];
    assert_eq!(dropped, &accounting["announced"], "{report:#}");
}
