//! A lone ICN that is restarted in order, and nodes that read their farm file again: the run goes on, nothing is lost.

use crate::harness::{Running, farm_turn, free_address, sheaf, start, start_icn, write};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

/// Writes the farm file of one FLP, two EPNs and an ICN whose verdict log is of kind `backend`.
fn farm_file(folder: &Path, backend: &str) -> String {
    let text = format!(
        "[run]\nflps = 1\nepns = 2\n[icn]\naddress = \"{}\"\n\
         [icn.ledger]\nbackend = \"{backend}\"\ndirectory = \"{}/ledger\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 150.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n[epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        free_address(),
        folder.display()
    );
    write(folder, "farm.toml", &text)
}

fn start_nodes(folder: &Path, config: &str) -> [Running; 3] {
    [("flp", 0), ("epn", 0), ("epn", 1)]
        .map(|(role, index)| start(folder, config, role, index, &[]))
}

/// Waits for a status with at least `goal` complete TFs.
fn await_complete(icn: &Running, goal: u64) -> Value {
    loop {
        let status: Value = serde_json::from_str(&icn.await_line("\"books\"")).unwrap();
        if status["books"]["complete"].as_u64().unwrap() >= goal {
            return status;
        }
    }
}

/// Ends the run; every TF announced is complete, and the logs prove it. Returns the closing balance.
fn stop_and_verify(folder: &Path, config: &str, icn: Running, nodes: [Running; 3]) -> Value {
    let stopped = sheaf(&["ctl", "stop", "--config", config, "--json"]);
    let outcome: Value = serde_json::from_str(&stopped.ok(&["ctl", "stop"])).unwrap();
    let accounting = outcome["accounting"].clone();
    assert_eq!(
        accounting["complete"], accounting["announced"],
        "{outcome:#}"
    );
    icn.end().ok(&["icn"]);
    let found = end_and_verify(folder, nodes);
    assert_eq!(found["announced"], accounting["announced"], "{found:#}");
    found
}

/// Waits for the nodes of a run that is over. Every TF announced is delivered, as the logs prove.
fn end_and_verify(folder: &Path, nodes: [Running; 3]) -> Value {
    for node in nodes {
        let ended = node.end();
        assert!(!ended.stderr.contains(" ERROR "), "{}", ended.stderr);
        let stdout = ended.ok(&["node"]);
        assert!(stdout.contains("\"reason\":\"dismissed\""), "{stdout}");
    }
    let verified = sheaf(&["data", "verify", folder.to_str().unwrap(), "--json", "-"]);
    let found: Value = serde_json::from_str(&verified.ok(&["data", "verify"])).unwrap();
    assert_eq!(found["ok"], true, "{found:#}");
    assert_eq!(found["over"], true, "{found:#}");
    assert_eq!(found["delivered"], found["announced"], "{found:#}");
    found
}

#[test]
fn a_lone_icn_is_restarted_by_an_order_and_its_run_goes_on() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), "file");
    let icn = start_icn(folder.path(), &config, &[]);
    let nodes = start_nodes(folder.path(), &config);
    let before = await_complete(&icn, 50);
    let pid = icn.pid();
    for life in 2..=3 {
        let ended = sheaf(&["ctl", "restart", "--config", &config, "--json"]);
        let outcome: Value = serde_json::from_str(&ended.ok(&["ctl", "restart"])).unwrap();
        assert_eq!(outcome["done"], true, "{outcome:#}");
        assert_eq!(outcome["term"], life, "{outcome:#}");
        assert_eq!(outcome["run"], before["run"], "{outcome:#}");
        let after = await_complete(&icn, 50 * life);
        assert_eq!(after["run"], before["run"], "{after:#}");
    }
    assert_eq!(icn.pid(), pid, "a service manager sees the same process");
    let found = stop_and_verify(folder.path(), &config, icn, nodes);
    assert_eq!(found["run"], before["run"], "{found:#}");
    assert_eq!(found["lives"]["icns"], 3, "{found:#}");
    assert_eq!(
        found["lives"]["ended"], 6,
        "every life ended in order: {found:#}"
    );
}

#[test]
fn with_keep_run_a_signal_ends_the_icn_and_the_next_life_goes_on() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), "file");
    let first = start_icn(folder.path(), &config, &["--keep-run"]);
    let nodes = start_nodes(folder.path(), &config);
    let before = await_complete(&first, 50);
    first.signal(Signal::TERM);
    let stdout = first.end().ok(&["icn"]);
    assert!(stdout.contains("\"reason\":\"shutdown\""), "{stdout}");
    let second = start_icn(folder.path(), &config, &["--keep-run"]);
    let goal = before["books"]["complete"].as_u64().unwrap() + 50;
    let after = await_complete(&second, goal);
    assert_eq!(after["run"], before["run"], "{after:#}");
    second.signal(Signal::INT);
    let stdout = second.end().ok(&["icn"]);
    assert!(
        stdout.contains("\"phase\":\"over\""),
        "SIGINT ends the run: {stdout}"
    );
    end_and_verify(folder.path(), nodes);
}

#[test]
fn a_run_that_would_be_lost_is_not_restarted() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), "memory");
    let ended = sheaf(&["run", "icn", "--config", &config, "--keep-run"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    let expected = "--keep-run: found icn.ledger.backend = \"memory\"";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    let icn = start_icn(folder.path(), &config, &[]);
    let nodes = start_nodes(folder.path(), &config);
    await_complete(&icn, 1);
    let ended = sheaf(&["ctl", "restart", "--config", &config]);
    assert_eq!(ended.status.code(), Some(1), "{:?}", ended.stdout);
    let expected = "icn.ledger.backend is `memory`: the run would be lost";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    let found = stop_and_verify(folder.path(), &config, icn, nodes);
    assert_eq!(found["lives"]["icns"], 1, "{found:#}");
}

#[test]
fn a_leader_of_several_is_restarted_by_an_order_and_another_one_leads() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), "majority");
    let addresses = [(); 3].map(|()| free_address());
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("/ledger\"", "/ledger-{icn}\"");
    let (before, behind) = text.split_once("address = ").unwrap();
    let (_, behind) = behind.split_once('\n').unwrap();
    std::fs::write(
        &config,
        format!("{before}addresses = {addresses:?}\n{behind}"),
    )
    .unwrap();
    let status = ["--status-ms", "50"];
    let icns = [0, 1, 2].map(|index| start(folder.path(), &config, "icn", index, &status));
    let nodes = start_nodes(folder.path(), &config);
    let status_of_leader = || -> Value {
        let ended = sheaf(&["status", "--config", &config, "--json"]);
        serde_json::from_str(&ended.stdout.join("\n")).unwrap()
    };
    let await_complete = |goal: u64| loop {
        let found = status_of_leader();
        if found["status"]["books"]["complete"].as_u64() >= Some(goal) {
            return found;
        }
    };
    let before = await_complete(50);
    let pids = icns.each_ref().map(Running::pid);
    let ended = sheaf(&["ctl", "restart", "--config", &config, "--json"]);
    let outcome: Value = serde_json::from_str(&ended.ok(&["ctl", "restart"])).unwrap();
    assert_eq!(outcome["done"], true, "{outcome:#}");
    assert_eq!(outcome["run"], before["status"]["run"], "{outcome:#}");
    assert!(
        outcome["term"].as_u64() > before["status"]["ledger"]["term"].as_u64(),
        "{outcome:#}"
    );
    let leader = before["status"]["ledger"]["icn"].as_u64().unwrap();
    let former = &addresses[usize::try_from(leader).unwrap()];
    assert_ne!(
        outcome["icn"],
        former.as_str(),
        "another one leads: {outcome:#}"
    );
    // The next life of the former leader stands by.
    let former = &icns[usize::try_from(leader).unwrap()];
    former.await_line("\"office\":\"standby\"");
    let complete = before["status"]["books"]["complete"].as_u64().unwrap();
    let after = await_complete(complete + 50);
    assert_eq!(after["status"]["run"], before["status"]["run"], "{after:#}");
    assert_eq!(icns.each_ref().map(Running::pid), pids);

    let stopped = sheaf(&["ctl", "stop", "--config", &config]);
    assert!(stopped.status.success(), "{}", stopped.stderr);
    for icn in icns {
        icn.end().ok(&["icn"]);
    }
    let found = end_and_verify(folder.path(), nodes);
    assert_eq!(found["run"], before["status"]["run"], "{found:#}");
    assert_eq!(found["lives"]["icns"], 4, "{found:#}");
}

#[test]
fn an_icn_at_a_port_that_the_kernel_chose_is_not_restarted() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), "file");
    let icn = start_icn(folder.path(), &config, &["--listen", "127.0.0.1:0"]);
    let line: Value = serde_json::from_str(&icn.await_line("\"listening\"")).unwrap();
    let address = line["listening"].as_str().unwrap();
    let more = ["--icn", address];
    let nodes = [
        start(folder.path(), &config, "flp", 0, &more),
        start(folder.path(), &config, "epn", 0, &more),
        start(folder.path(), &config, "epn", 1, &more),
    ];
    await_complete(&icn, 1);
    let ended = sheaf(&["ctl", "restart", "--icn", address]);
    assert_eq!(ended.status.code(), Some(1), "{:?}", ended.stdout);
    let expected = "the ICN listens at a port that the kernel chose (port 0)";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    sheaf(&["ctl", "stop", "--icn", address]).ok(&["ctl", "stop"]);
    icn.end().ok(&["icn"]);
    let found = end_and_verify(folder.path(), nodes);
    assert_eq!(found["lives"]["icns"], 1, "{found:#}");
}

/// Asserts that a line of a log has this level and text.
fn assert_logged(line: &str, level: &str, text: &str) {
    let level = format!(" {level} ");
    assert!(line.contains(&level) && line.contains(text), "{line}");
}

/// Waits until the file at `path` has a line with `expected`; its writer writes all the time.
fn await_in_file(icn: &Running, path: &Path, expected: &str) -> String {
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(line) = text.lines().find(|line| line.contains(expected)) {
            return line.to_owned();
        }
        icn.await_line("\"books\"");
    }
}

/// Runs `sheaf data verify`; returns its exit status and the texts of all contradictions.
fn contradictions(folder: &Path) -> (Option<i32>, String) {
    let words = [
        "data",
        "verify",
        folder.to_str().unwrap(),
        "--all",
        "--json",
        "-",
    ];
    let ended = sheaf(&words);
    let found: Value = serde_json::from_str(&ended.stdout.join("\n")).unwrap();
    (ended.status.code(), found["contradictions"].to_string())
}

#[test]
fn sighup_opens_logs_again_and_changes_what_may_change_and_a_rotated_series_is_verified() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), "file");
    let text = std::fs::read_to_string(&config).unwrap();
    let log = folder.path().join("icn.log");
    let icn = start_icn(
        folder.path(),
        &config,
        &["--log-file", log.to_str().unwrap()],
    );
    let nodes = start_nodes(folder.path(), &config);
    await_complete(&icn, 20);

    let former = folder.path().join("icn.log.1");
    std::fs::rename(&log, &former).unwrap();
    let events = folder.path().join("icn-0.events");
    std::fs::rename(&events, folder.path().join("icn-0.events.1")).unwrap();
    let changed = text
        .replace(
            "[icn.scheduler]",
            "[icn.scheduler]\npolicy = \"least-loaded\"\ntf_deadline_ms = 900",
        )
        .replace("rate_hz = 150.0", "rate_hz = 151.0");
    let changed = format!("{changed}[log]\nlevel = \"debug\"\nevents_bytes_max = 4096\n");
    std::fs::write(&config, &changed).unwrap();
    icn.signal(Signal::HUP);
    for expected in [
        "key=\"icn.scheduler.policy\" from=\"\\\"earliest-finish\\\"\" to=\"\\\"least-loaded\\\"\"",
        "key=\"icn.scheduler.tf_deadline_ms\" from=\"400\" to=\"900\"",
        "key=\"log.level\"",
    ] {
        let line = await_in_file(&icn, &log, expected);
        assert_logged(&line, "INFO", "Changed");
    }
    let line = await_in_file(&icn, &log, "key=\"flp.rate_hz\"");
    assert_logged(&line, "WARN", "Needs a restart");
    let former = std::fs::read_to_string(&former).unwrap();
    assert!(!former.contains("Needs a restart"), "{former}");

    std::fs::write(&config, "[icn.scheduler]\npolicy = \"best\"\n").unwrap();
    icn.signal(Signal::HUP);
    let line = await_in_file(&icn, &log, "The farm file is refused");
    assert!(line.contains(" ERROR "), "{line}");
    std::fs::write(&config, &changed).unwrap();
    let status = await_complete(&icn, 20);
    await_complete(&icn, status["books"]["complete"].as_u64().unwrap() + 100);

    let found = stop_and_verify(folder.path(), &config, icn, nodes);
    assert_eq!(found["event_logs"], 4, "{found:#}");
    assert_eq!(found["lives"]["icns"], 1, "{found:#}");
    let part = |number: u64| folder.path().join(format!("icn-0.events.{number:06}"));
    assert!(part(3).exists(), "the event log was rotated");

    let middle = std::fs::read_to_string(part(3)).unwrap();
    std::fs::write(part(3), &middle[..middle.len() * 2 / 3]).unwrap();
    let (status, text) = contradictions(folder.path());
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("its last line is not `rotated`"), "{text}");
    std::fs::remove_file(part(3)).unwrap();
    let (status, text) = contradictions(folder.path());
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("files 3 to 3 before "), "{text}");
}

#[test]
fn event_logs_go_on_in_new_files_by_age() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), "file");
    let text = std::fs::read_to_string(&config).unwrap() + "[log]\nevents_age_s = 1\n";
    std::fs::write(&config, text).unwrap();
    let icn = start_icn(folder.path(), &config, &[]);
    let nodes = start_nodes(folder.path(), &config);
    let names = ["icn-0", "flp-0", "epn-0", "epn-1"];
    let part = |name: &str| folder.path().join(format!("{name}.events.000002"));
    while !names.iter().all(|name| part(name).exists()) {
        icn.await_line("\"books\"");
    }
    let found = stop_and_verify(folder.path(), &config, icn, nodes);
    assert_eq!(found["event_logs"], 4, "{found:#}");
    for name in names {
        let text = std::fs::read_to_string(part(name)).unwrap();
        let (first, last) = (text.lines().next(), text.lines().last());
        let is = |line: Option<&str>, event: &str| line.is_some_and(|line| line.contains(event));
        assert!(is(first, "\"event\":\"continued\",\"part\":2"), "{text}");
        assert!(is(last, "\"event\":\"rotated\",\"part\":2"), "{text}");
    }
}

#[test]
fn sighup_to_an_flp_and_an_epn_opens_their_logs_again_and_names_keys_that_need_a_restart() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), "file");
    let text = std::fs::read_to_string(&config).unwrap();
    let icn = start_icn(folder.path(), &config, &[]);
    let logged = [("flp", 0), ("epn", 0), ("epn", 1)];
    let log_of = |role: &str, index: u16| folder.path().join(format!("{role}-{index}.log"));
    let nodes = logged.map(|(role, index)| {
        let log = log_of(role, index);
        let more = ["--log-file", log.to_str().unwrap(), "--color", "always"];
        start(folder.path(), &config, role, index, &more)
    });
    await_complete(&icn, 20);

    let changed = text.replace("rate_hz = 150.0", "rate_hz = 151.0");
    std::fs::write(&config, changed + "[log]\nlevel = \"debug\"\n").unwrap();
    let former = |path: &Path| std::path::PathBuf::from(format!("{}.1", path.display()));
    for (node, (role, index)) in nodes.iter().zip(logged) {
        let events = folder.path().join(format!("{role}-{index}.events"));
        for path in [&log_of(role, index), &events] {
            std::fs::rename(path, former(path)).unwrap();
        }
        node.signal(Signal::HUP);
    }
    for (role, index) in logged {
        let log = log_of(role, index);
        let line = await_in_file(&icn, &log, "key=\"log.level\"");
        assert_logged(&line, "INFO", "Changed");
        let line = await_in_file(&icn, &log, "key=\"flp.rate_hz\"");
        assert_logged(&line, "WARN", "Needs a restart");
        let before = std::fs::read_to_string(former(&log)).unwrap();
        assert!(
            !before.is_empty() && !before.contains("Changed"),
            "{before}"
        );
        // A file has no colours, whatever the terminal has.
        let after = std::fs::read_to_string(&log).unwrap();
        assert!(
            !before.contains('\u{1b}') && !after.contains('\u{1b}'),
            "{after}"
        );
        let events = folder.path().join(format!("{role}-{index}.events"));
        await_in_file(&icn, &events, "\"event\":\"continued\",\"part\":2");
    }
    let status = await_complete(&icn, 20);
    await_complete(&icn, status["books"]["complete"].as_u64().unwrap() + 50);
    let found = stop_and_verify(folder.path(), &config, icn, nodes);
    assert_eq!(found["event_logs"], 4, "{found:#}");
}
