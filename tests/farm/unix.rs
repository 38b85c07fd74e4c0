//! Farms whose nodes talk over Unix sockets.

use crate::harness::{Running, farm_turn, sheaf, write};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

const FLPS: usize = 2;
const EPNS: usize = 3;

/// Writes the farm file of a farm whose sockets are in `folder`; 0 TFs: until it is stopped.
fn farm_file(folder: &Path, timeframes: u64, shared_memory: bool, threads: u8) -> String {
    let at = folder.display();
    let text = format!(
        "[run]\nflps = {FLPS}\nepns = {EPNS}\ntimeframes = {timeframes}\n\
         [icn]\naddress = \"unix:{at}/icn.sock\"\n\
         [flp]\nhold_bytes = 67108864\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 100000\n\
         [epn]\nlisten = \"unix:{at}/epn-{{epn}}.sock\"\n\
         [epn.sink]\nkind = \"verify\"\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
         [transport]\nshared_memory = {shared_memory}\n[node]\nthreads = {threads}\n"
    );
    write(folder, "farm.toml", &text)
}

fn node(role: &str, index: usize, config: &str) -> Running {
    Running::start(&[
        "run",
        role,
        "--config",
        config,
        "--index",
        &index.to_string(),
    ])
}

/// The ICN, then the EPNs, then the FLPs.
fn start(config: &str) -> (Running, Vec<Running>, Vec<Running>) {
    let icn = Running::start(&["run", "icn", "--config", config, "--status-ms", "50"]);
    let epns: Vec<Running> = (0..EPNS).map(|index| node("epn", index, config)).collect();
    for (index, epn) in epns.iter().enumerate() {
        let line = epn.await_line("listening");
        assert!(line.contains(&format!("/epn-{index}.sock\"")), "{line}");
        assert!(line.contains("\"listening\":\"unix:/"), "{line}");
    }
    let flps = (0..FLPS).map(|index| node("flp", index, config)).collect();
    (icn, epns, flps)
}

/// Waits until so many TFs are complete.
fn await_complete(icn: &Running, count: u64) -> Value {
    loop {
        let line = icn.await_line("\"books\"");
        let status: Value = serde_json::from_str(&line).unwrap();
        if status["books"]["complete"].as_u64().unwrap() >= count {
            return status;
        }
    }
}

/// All nodes drained, nothing is lost, and no socket is left.
fn check_end(icn: Running, others: impl IntoIterator<Item = Running>, folder: &Path) -> Value {
    let ended = icn.end();
    assert!(ended.status.success(), "{}", ended.stderr);
    let mut statuses = ended
        .stdout
        .iter()
        .filter(|line| line.contains("\"books\""));
    let last: Value = serde_json::from_str(statuses.next_back().unwrap()).unwrap();
    let accounting = &last["books"];
    assert_eq!(last["phase"], "over", "{last:#}");
    assert_eq!(last["security"], "loopback", "{last:#}");
    assert_eq!(accounting["complete"], accounting["announced"], "{last:#}");
    assert_eq!(accounting["balanced"], true, "{last:#}");
    for other in others {
        let ended = other.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        let errors = ended.stderr.contains(" ERROR ");
        assert!(!errors, "{}", ended.stderr);
        let last = ended.stdout.last().unwrap();
        assert!(last.contains("\"reason\":\"dismissed\""), "{last}");
    }
    let left = std::fs::read_dir(folder).unwrap();
    let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["farm.state", "farm.toml"]);
    last
}

#[test]
fn a_farm_over_unix_sockets_loses_nothing_and_leaves_nothing() {
    for (shared_memory, threads) in [(true, 1), (false, 1), (true, 2), (false, 2)] {
        let _turn = farm_turn();
        let folder = tempfile::tempdir().unwrap();
        let config = farm_file(folder.path(), 100, shared_memory, threads);
        let checked = sheaf(&["config", "check", &config]);
        assert!(checked.status.success(), "{}", checked.stderr);
        let (icn, epns, flps) = start(&config);
        let last = check_end(icn, epns.into_iter().chain(flps), folder.path());
        assert_eq!(last["books"]["complete"], 100, "{last:#}");
    }
}

#[test]
fn an_epn_that_is_killed_comes_back_at_its_socket() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let config = farm_file(folder.path(), 0, true, 1);
    let (icn, mut epns, flps) = start(&config);
    let complete = await_complete(&icn, 50)["books"]["complete"].clone();
    // A process listens there.
    let second = node("epn", 1, &config).end();
    let expected = format!(
        "cannot listen at unix:{}/epn-1.sock: another process listens there",
        folder.path().display()
    );
    assert!(!second.status.success());
    assert!(second.stderr.contains(&expected), "{}", second.stderr);
    // No process listens there any more.
    let first = epns.remove(0);
    first.signal(Signal::KILL);
    first.end();
    assert!(folder.path().join("epn-0.sock").exists());
    let again = node("epn", 0, &config);
    again.await_line("listening");
    epns.push(again);
    let mut wanted = complete.as_u64().unwrap() + 100;
    loop {
        let status = await_complete(&icn, wanted);
        let first = &status["epns"].as_array().unwrap()[0];
        assert_eq!(first["index"], 0, "{status:#}");
        if first["state"] == "up" && first["delivered_tfs"].as_u64().unwrap() > 0 {
            break;
        }
        assert!(status["uptime_s"].as_f64().unwrap() < 60.0, "{status:#}");
        wanted += 1;
    }
    icn.signal(Signal::TERM);
    check_end(icn, epns.into_iter().chain(flps), folder.path());
}

#[test]
fn what_is_wrong_with_a_socket_is_said_before_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    let long = "s".repeat(120);
    let text = format!("[icn]\naddress = \"unix:icn.sock\"\n[epn]\nlisten = \"unix:/{long}\"\n");
    let config = write(folder.path(), "wrong.toml", &text);
    let checked = sheaf(&["config", "check", "--role", "none", &config]);
    assert_eq!(checked.status.code(), Some(1));
    for expected in [
        "wrong.toml:2: icn.address: found \"unix:icn.sock\", a path that does not begin with \"/\", expected unix:PATH",
        "a path of 121 bytes, more than the 107 of a Unix socket, expected unix:PATH",
    ] {
        assert!(checked.stderr.contains(expected), "{}", checked.stderr);
    }
    let text = format!("[epn]\nlisten = \"unix:{at}/no/epn-{{epn}}.sock\"\n");
    let config = write(folder.path(), "no.toml", &text);
    let checked = sheaf(&["config", "check", "--role", "epn", &config]);
    assert_eq!(checked.status.code(), Some(1));
    let expected = format!("no.toml:2: epn.listen: found {at}/no (No such file or directory");
    assert!(checked.stderr.contains(&expected), "{}", checked.stderr);
    let ended = node("epn", 0, &config).end();
    assert!(ended.stderr.contains("epn.listen"), "{}", ended.stderr);
}
