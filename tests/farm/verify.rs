//! `sheaf data verify` on what real farms leave.

use crate::harness::{DemoDir, Running, farm_turn, sheaf};
use serde_json::Value;
use sheaf_formats::Findings;
use sheaf_formats::sample::o2_tf;
use sheaf_formats::stf_file::FileTfs;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// Runs `sheaf data verify` on `dir` and gives its exit status and its JSON.
fn verify(dir: &Path, more: &[&str]) -> (Option<i32>, Value) {
    let words = [
        "data",
        "verify",
        dir.to_str().unwrap(),
        "--json",
        "-",
        "--allow-abandoned",
    ];
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

/// Runs a farm of two EPNs whose sinks write into a folder; returns the folder.
fn farm_with_sinks(dir: &DemoDir, sink: &str) -> std::path::PathBuf {
    let sinks = dir.out().parent().unwrap().join("sinks");
    fs::create_dir(&sinks).unwrap();
    let line = format!("--timeframes 60 --epns 2 --sink {sink}:{}", sinks.display());
    let ended = Running::start(&dir.words(&line)).end();
    assert!(ended.status.success(), "{}", ended.stderr);
    sinks
}

/// Checks the sinks; returns the kinds of all contradictions and their texts.
fn verify_sinks(dir: &DemoDir, sinks: &Path) -> Vec<(String, String)> {
    let (status, found) = verify(&dir.out(), &["--all", "--sink", sinks.to_str().unwrap()]);
    let all = found["contradictions"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all: Vec<_> = all
        .map(|found| (text(&found["kind"]), text(&found["text"])))
        .collect();
    assert_eq!(status, Some(i32::from(!all.is_empty())), "{found:#}");
    assert_eq!(found["sinks"], 1, "{found:#}");
    all
}

/// The files of the run, sorted.
fn files_in(sinks: &Path) -> Vec<std::path::PathBuf> {
    let runs = fs::read_dir(sinks).unwrap();
    let files = runs.flat_map(|run| fs::read_dir(run.unwrap().path()).unwrap());
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Writes `bytes` to `path`, checks for these kinds of contradictions, and puts the file back.
#[track_caller]
fn check_damage(dir: &DemoDir, sinks: &Path, path: &Path, bytes: Option<&[u8]>, kinds: &[&str]) {
    let before = fs::read(path).ok();
    match bytes {
        Some(bytes) => fs::write(path, bytes).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
    let found = verify_sinks(dir, sinks);
    let of_kinds: Vec<&str> = found.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(of_kinds, kinds, "{found:#?}");
    let name = path.file_name().unwrap().to_str().unwrap();
    let is_named = found.iter().any(|(_, text)| text.contains(name));
    let is_about_files = kinds.iter().any(|kind| *kind != "sink-missing");
    assert!(is_named || !is_about_files, "{name} is not in {found:#?}");
    match before {
        Some(before) => fs::write(path, before).unwrap(),
        None => fs::remove_file(path).unwrap(),
    }
}

#[test]
fn every_damage_of_what_the_file_sinks_wrote_is_found() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let sinks = farm_with_sinks(&dir, "file");
    assert_eq!(verify_sinks(&dir, &sinks), []);
    let files = files_in(&sinks);
    assert_eq!(files.len(), 60);
    let path = &files[7];
    let good = fs::read(path).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    check_damage(&dir, &sinks, path, Some(&flipped), &["sink-damaged"]);
    let cut = &good[..good.len() - 1];
    check_damage(&dir, &sinks, path, Some(cut), &["sink-damaged"]);
    check_damage(&dir, &sinks, path, Some(&[]), &["sink-damaged"]);
    check_damage(&dir, &sinks, path, None, &["sink-missing"]);
    let copy = path.with_file_name("copy.tf");
    check_damage(&dir, &sinks, &copy, Some(&good), &["sink-twice"]);
    // A TF that is whole in itself, of another place: its own is missing, and it stands twice.
    let other = fs::read(&files[8]).unwrap();
    let kinds = ["sink-twice", "sink-missing"];
    let renamed = path.with_file_name("other.tf");
    fs::rename(path, &renamed).unwrap();
    check_damage(&dir, &sinks, &renamed, Some(&other), &kinds);
    fs::rename(&renamed, path).unwrap();
    let notes = path.with_file_name("notes.txt");
    check_damage(&dir, &sinks, &notes, Some(b"notes"), &["sink-foreign"]);
    assert_eq!(verify_sinks(&dir, &sinks), []);
}

#[test]
fn every_damage_of_what_the_stf_file_sinks_wrote_is_found() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let sinks = farm_with_sinks(&dir, "stf-file");
    assert_eq!(verify_sinks(&dir, &sinks), []);
    let files = files_in(&sinks);
    assert_eq!(files.len(), 2, "one for each EPN");
    let path = &files[0];
    let good = fs::read(path).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let kinds = ["sink-foreign", "sink-missing"];
    check_damage(&dir, &sinks, path, Some(&flipped), &kinds);
    let cut = &good[..good.len() - 1];
    check_damage(
        &dir,
        &sinks,
        path,
        Some(cut),
        &["sink-damaged", "sink-missing"],
    );
    let (mut tfs, mut findings) = (FileTfs::new(&good), Findings::default());
    let places = std::iter::from_fn(|| tfs.next_good(&mut findings));
    let ends: Vec<usize> = places.map(|tf| tf.offset + tf.bytes).collect();
    let without_first = &good[ends[0]..];
    check_damage(&dir, &sinks, path, Some(without_first), &["sink-missing"]);
    let first_twice = [&good[..ends[0]], &good].concat();
    check_damage(&dir, &sinks, path, Some(&first_twice), &["sink-twice"]);
    let foreign = [&good[..], &o2_tf(1, 2, 3)].concat();
    check_damage(&dir, &sinks, path, Some(&foreign), &["sink-foreign"]);
    check_damage(&dir, &sinks, path, None, &vec!["sink-missing"; ends.len()]);
    let copy = path.with_file_name("copy.tf");
    check_damage(
        &dir,
        &sinks,
        &copy,
        Some(&good),
        &vec!["sink-twice"; ends.len()],
    );
}
