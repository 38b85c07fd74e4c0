//! `sheaf data verify` on what real farms leave.

use crate::harness::{DemoDir, Running, farm_turn, sheaf};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// Runs `sheaf data verify` on `dir` and gives its exit status and its JSON.
fn verify(dir: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let words = ["data", "verify", dir.to_str().unwrap(), "--json", "-"];
    let ended = sheaf(&[&words, more].concat());
    let text = ended.stdout.join("\n");
    let json = serde_json::from_str(&text);
    let json = json.unwrap_or_else(|error| panic!("{error}: {text}\n{}", ended.stderr));
    (ended.status.code(), json)
}

#[test]
fn a_farm_that_lost_an_epn_and_an_flp_is_verified_from_its_logs_and_a_doctored_one_is_not() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let line = "--timeframes 150 --kill epn:1@300ms --start epn:1@900ms --kill flp:1@600ms --start flp:1@1s";
    let ended = Running::start(&dir.words(line)).end();
    assert!(ended.status.success(), "{}", ended.stderr);
    let summary = dir.summary();
    let (status, found) = verify(&dir.out(), &[]);
    assert_eq!(status, Some(0), "{found:#}");
    assert_eq!(found["first_contradiction"], Value::Null);
    assert_eq!(found["over"], true, "{found:#}");
    for name in [
        "announced",
        "complete",
        "incomplete",
        "abandoned",
        "bytes",
        "dropped",
    ] {
        assert_eq!(found[name], summary.0[name], "{name}: {found:#}");
    }
    assert_eq!(found["lives"]["epns"], 6, "{found:#}");

    // The very bytes of a line, once more, in the log of the same life.
    let log = dir.out().join("epn-0.events");
    let text = fs::read_to_string(&log).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("delivered"))
        .unwrap();
    let (rest, end) = text.rsplit_once("{\"event\":\"end\"").unwrap();
    fs::write(&log, format!("{rest}{line}\n{{\"event\":\"end\"{end}")).unwrap();
    let (status, found) = verify(&dir.out(), &["--all"]);
    assert_eq!(status, Some(1), "{found:#}");
    assert_eq!(found["first_contradiction"]["kind"], "delivered-twice");
    assert_eq!(
        found["contradictions"].as_array().unwrap().len(),
        1,
        "{found:#}"
    );

    let mut file = OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(b"\0\0\0\0\n").unwrap();
    let (status, found) = verify(&dir.out(), &[]);
    assert_eq!(status, Some(1));
    let text = found["first_contradiction"]["text"].as_str().unwrap();
    assert!(text.contains("epn-0.events is no event"), "{text}");
}

#[test]
fn a_directory_without_logs_is_refused_with_the_way_to_get_some() {
    let folder = tempfile::tempdir().unwrap();
    let ended = sheaf(&["data", "verify", folder.path().to_str().unwrap()]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        ended.stderr.contains("holds no event log"),
        "{}",
        ended.stderr
    );
    let ended = sheaf(&["data", "verify", "/nonexistent/run"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(
        ended.stderr.contains("cannot read /nonexistent/run"),
        "{}",
        ended.stderr
    );
}
