//! `sheaf sim run`: the same figures for the same file, and one line for what is wrong with it.

use crate::harness::{sheaf, write};
use serde_json::Value;

const SCENARIO: &str = "\
name = 'tiny'
flps = 2
epns = 3
rate_hz = 50
duration_s = 1
[size]
model = 'random'
[matrix]
policy = ['round-robin', 'least-loaded']
";

fn json(path: &str) -> Value {
    let text = std::fs::read_to_string(path).expect("it was written");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn a_scenario_gives_a_row_a_point_and_equal_seeds_equal_traces() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "tiny.toml", SCENARIO);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let simulate = |seed: &str, name: &str| {
        let line = ["sim", "run", &file, "--seed", seed, "--json", &path(name)];
        let ended = sheaf(&line);
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
        assert!(
            ended
                .stdout
                .iter()
                .any(|line| line.contains("least-loaded")),
            "{:?}",
            ended.stdout
        );
        json(&path(name))
    };
    let (one, same, other) = (
        simulate("1", "1.json"),
        simulate("1", "2.json"),
        simulate("2", "3.json"),
    );
    assert_eq!(one["trace_hash"], same["trace_hash"]);
    assert_eq!(one["points"], same["points"]);
    assert_ne!(one["trace_hash"], other["trace_hash"]);
    for field in [
        "events",
        "events_per_s",
        "simulated_s",
        "wall_s",
        "rss_bytes_max",
    ] {
        assert!(
            one[field].as_f64().is_some_and(|value| value > 0.0),
            "{field}: {one}"
        );
    }
    let points = one["points"].as_array().expect("a list");
    assert_eq!(points.len(), 2);
    assert_eq!(points[0]["source"], "sim");
    assert_eq!(points[0]["announced"], 50.0);
    assert_eq!(points[0]["lost_mean"], 0.0);
}

#[test]
fn results_go_into_a_new_folder_and_never_over_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "tiny.toml", SCENARIO);
    let out = folder.path().join("results");
    let line = ["sim", "run", &file, "--out", &out.display().to_string()];
    assert_eq!(sheaf(&line).status.code(), Some(0));
    for (name, lines) in [("points.csv", 3), ("runs.csv", 3)] {
        let text = std::fs::read_to_string(out.join(name)).expect("it was written");
        assert_eq!(text.lines().count(), lines, "{name}: {text}");
    }
    assert_eq!(
        json(&out.join("summary.json").display().to_string())["format"],
        1
    );
    let again = sheaf(&line);
    assert_eq!(again.status.code(), Some(2), "{}", again.stderr);
    assert!(
        again.stderr.contains("holds results already"),
        "{}",
        again.stderr
    );
}

#[test]
fn what_is_wrong_with_a_scenario_is_told_with_the_file_and_the_key() {
    let folder = tempfile::tempdir().expect("a folder");
    for (text, words) in [
        ("flps = 0", "flps: found 0, expected 1 to"),
        ("flsp = 2", "unknown field `flsp`"),
        ("policy = 'best'", "best"),
        ("[base]\nsource = 'sim'", "missing field `name`"),
    ] {
        let file = write(folder.path(), "wrong.toml", text);
        let ended = sheaf(&["sim", "run", &file]);
        assert_eq!(ended.status.code(), Some(2), "{text}: {}", ended.stderr);
        assert!(
            ended.stderr.contains("wrong.toml"),
            "{text}: {}",
            ended.stderr
        );
        assert!(ended.stderr.contains(words), "{text}: {}", ended.stderr);
    }
    let ended = sheaf(&["sim", "run", "/nowhere/x.toml"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("/nowhere/x.toml"), "{}", ended.stderr);
}

#[test]
fn many_writers_behind_many_epns_account_for_every_tf() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fleet.json").display().to_string();
    let asked = "sim write --writers 3 --epns 7 --workers 2 --blocks 1 --block-s 5 --seeds 2 \
                 --policy random,modulo --json";
    let words: Vec<&str> = asked.split(' ').chain([path.as_str()]).collect();
    let ended = sheaf(&words);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let report = json(&path);
    let rows = report["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2 * 2, "two policies with two assignments");
    for row in rows {
        assert!(row["tfs"].as_u64() > Some(1000), "{row}");
        assert_eq!(row["records_lost"], 0, "{row}");
        assert!(row["fullest_writer"].as_f64() >= Some(1.0), "{row}");
    }
}

#[test]
fn a_fleet_that_makes_no_sense_is_refused_with_what_is_accepted() {
    for (words, told) in [
        ("--policy moon", "policy `moon`, expected one of fixed"),
        ("--load 0", "found 0 as load, expected 0.001 to 10"),
        (
            "--assignment fast",
            "assignment `fast`, expected one of joint-1",
        ),
    ] {
        let line = format!("sim write --writers 2 {words}");
        let ended = sheaf(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(ended.status.code(), Some(2), "{line}: {}", ended.stderr);
        assert!(ended.stderr.contains(told), "{line}: {}", ended.stderr);
    }
}
