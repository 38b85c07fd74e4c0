//! TFs of a farm in files of streams: nothing is lost when an EPN is killed, and every file is as its catalogue says.

use crate::harness::{DemoDir, Running, farm_turn, free_address, sheaf, start, start_icn, write};
use crate::shapes::get;
use crate::stored::Mount;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Runs a demo with the sink "streams" in `files`; returns its directory.
pub(crate) fn demo_into(files: &Path, line: &str) -> DemoDir {
    let dir = DemoDir::new();
    std::fs::create_dir(files).unwrap();
    let line = format!("{line} --sink streams:{}", files.display());
    let ended = Running::start(&dir.words(&line)).end();
    assert!(ended.status.success(), "{}", ended.stderr);
    dir.summary().assert_sound();
    dir
}

/// Runs `sheaf` with `words`, and returns each line of its output as JSON.
pub(crate) fn json_of(words: &[&str]) -> Vec<Value> {
    let ended = sheaf(words);
    assert!(
        ended.status.success(),
        "{:?} {}",
        ended.stdout,
        ended.stderr
    );
    let lines = ended.stdout.iter();
    lines
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect()
}

#[test]
fn files_of_streams_have_every_delivered_tf_once_though_an_epn_is_killed() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    let kill = "--kill epn:1@600ms --start epn:1@1s";
    let dir = demo_into(
        &files,
        &format!("--rate 200 --orbits-per-tf 8 --epns 3 --duration 2s {kill}"),
    );
    let (files, out) = (files.to_str().unwrap(), dir.out());
    // The killed one has closed its files in its next life.
    let rows = json_of(&["files", "list", files, "--json"]);
    let of_state = |state: &str| rows.iter().filter(|row| row["state"] == state).count();
    assert_eq!(
        (of_state("open"), of_state("recovered")),
        (0, 1),
        "{rows:#?}"
    );
    let records: u64 = rows.iter().filter_map(|row| row["records"].as_u64()).sum();
    let summary = dir.summary();
    let complete = summary.count("complete");
    let abandoned = summary.count("abandoned");
    assert!(
        (complete - abandoned..=complete).contains(&records),
        "{records} records, {complete} complete, {abandoned} abandoned"
    );
    let report = &json_of(&["files", "check", files, "--json"])[0];
    assert_eq!(report["faults"], Value::Array(Vec::new()), "{report:#}");
    assert_eq!(report["records"], records);
    assert_eq!(tfs_by_python(files), Some(records));
    // The logs of the nodes and the bytes in the files agree.
    let verified = sheaf(&["data", "verify", out.to_str().unwrap(), "--sink", files]);
    assert!(
        matches!(verified.status.code(), Some(0 | 3)),
        "{:#?}",
        verified.stdout
    );
    // A byte that changes is found by all three.
    let row = rows.iter().max_by_key(|row| row["bytes"].as_u64()).unwrap();
    let text = |key: &str| row[key].as_str().unwrap();
    let path = Path::new(text("directory")).join(text("file"));
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let path = path.to_str().unwrap();
    for words in [
        &["files", "check", files][..],
        &["files", "read", path],
        &["data", "verify", out.to_str().unwrap(), "--sink", files],
    ] {
        let ended = sheaf(words);
        assert_eq!(
            ended.status.code(),
            Some(1),
            "{words:?}: {:?}",
            ended.stdout
        );
    }
    assert_eq!(tfs_by_python(files), None);
}

/// Reads all folders of EPNs by the example in Python, which knows nothing of ours; `None` if it refuses a file.
pub(crate) fn tfs_by_python(files: &str) -> Option<u64> {
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../examples/files/read_tfs.py"
    );
    let mut sum = 0;
    for folder in std::fs::read_dir(files).unwrap() {
        let read = Command::new("python3")
            .arg(example)
            .arg(folder.unwrap().path())
            .output()
            .expect("this test needs python3");
        if !read.status.success() {
            return None;
        }
        let text = String::from_utf8(read.stdout).unwrap();
        let last = text.lines().last();
        let tfs = last.and_then(|line| line.strip_suffix(" TFs")).unwrap();
        sum += tfs.parse::<u64>().unwrap();
    }
    Some(sum)
}

#[test]
fn tfs_are_given_back_by_id_and_by_flp() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    let line = "--rate 200 --orbits-per-tf 8 --flps 2 --epns 1 --duration 1s";
    demo_into(&files, line);
    let rows = json_of(&["files", "list", files.to_str().unwrap(), "--json"]);
    let text = |key: &str| rows[0][key].as_str().unwrap();
    let path = Path::new(text("directory")).join(text("file"));
    let to = folder.path().join("to");
    std::fs::create_dir(&to).unwrap();
    let tfs = json_of(&[
        "files",
        "read",
        path.to_str().unwrap(),
        "--tf",
        "10..13",
        "--flp",
        "1",
        "--to",
        to.to_str().unwrap(),
        "--json",
    ]);
    let mut found: Vec<u64> = tfs.iter().map(|tf| tf["tf"].as_u64().unwrap()).collect();
    found.sort_unstable();
    assert_eq!(found, [10, 11, 12]);
    assert!(tfs.iter().all(|tf| tf["flps"] == serde_json::json!([1])));
    let one = to.join("tf-000000000011.tf");
    let ended = sheaf(&["data", "inspect", one.to_str().unwrap()]);
    assert!(ended.status.success(), "{}", ended.stderr);
}

#[test]
fn parts_of_tfs_go_to_streams_by_flp_and_every_so_many() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let (at, files) = (folder.path(), folder.path().join("files"));
    std::fs::create_dir(&files).unwrap();
    let place = at.display();
    let text = format!(
        "[run]\nflps = 2\nepns = 1\ntimeframes = 40\n\
         [icn]\naddress = \"unix:{place}/icn.sock\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 20000\n\
         [epn]\nlisten = \"unix:{place}/epn.sock\"\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
         [epn.sink]\nkind = \"streams\"\ndirectory = {files:?}\nblock_tfs = 16\nchecksums = [\"crc32c\"]\n\
         [[epn.sink.stream]]\nname = \"first\"\nflps = [0]\n\
         [[epn.sink.stream]]\nname = \"second\"\nflps = [1]\n\
         [[epn.sink.stream]]\nname = \"tenth\"\nevery = 10\n"
    );
    let config = write(at, "farm.toml", &text);
    let icn = start(at, &config, "icn", 0, &[]);
    let epn = start(at, &config, "epn", 0, &[]);
    let flps = [0, 1].map(|flp| start(at, &config, "flp", flp, &[]));
    for node in [icn, epn].into_iter().chain(flps) {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    let files = files.to_str().unwrap();
    // Records by block: TFs 0 to 15, 16 to 31, 32 to 39.
    let records = |stream: &str| -> Vec<u64> {
        let mut blocks = BTreeMap::new();
        for row in json_of(&["files", "list", files, "--stream", stream, "--json"]) {
            assert!(row["crc32c"].is_string(), "{row:#}");
            let number = |key: &str| row[key].as_u64().unwrap();
            *blocks.entry(number("block")).or_default() += number("records");
        }
        blocks.into_values().collect()
    };
    assert_eq!(records("first"), [16, 16, 8]);
    assert_eq!(records("second"), [16, 16, 8]);
    // TFs 0 and 10, 20 and 30.
    assert_eq!(records("tenth"), [2, 2]);
    let checked = sheaf(&["files", "check", files]);
    assert!(checked.status.success(), "{:?}", checked.stdout);
    // Together the streams have every STF of every TF that was delivered, and none is there twice.
    let place = at.to_str().unwrap();
    let verified = sheaf(&["data", "verify", place, "--sink", files]);
    assert!(
        matches!(verified.status.code(), Some(0 | 3)),
        "{:#?} {}",
        verified.stdout,
        verified.stderr
    );
}

#[test]
fn files_of_streams_wait_for_a_full_disk_and_go_on_when_there_is_room() {
    // The first one fills it; the second one stops before.
    for (free_min_mib, ballast, told) in [
        (0, 3_300_000, "No space left"),
        (1, 2_000_000, "free_min_mib keeps 1048576"),
    ] {
        wait_for_room(free_min_mib, ballast, told);
    }
}

fn wait_for_room(free_min_mib: u64, ballast_bytes: usize, told: &str) {
    // A file system of a few MiB needs the right to mount one.
    let folder = tempfile::tempdir().unwrap();
    let (at, disk) = (folder.path(), folder.path().join("disk"));
    std::fs::create_dir(&disk).unwrap();
    let Some(_mount) = Mount::tmpfs(&disk, "4m") else {
        println!("skipped: this user may not mount a file system");
        return;
    };
    let _turn = farm_turn();
    let (place, metrics) = (at.display(), free_address());
    let text = format!(
        "[run]\nflps = 1\nepns = 1\ntimeframes = 60\n\
         [icn]\naddress = \"unix:{place}/icn.sock\"\n\
         [flp]\nhold_bytes = 67108864\nrate_hz = 20.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 40000\n\
         [epn]\nlisten = \"unix:{place}/epn.sock\"\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
         [epn.sink]\nkind = \"streams\"\ndirectory = {disk:?}\nfree_min_mib = {free_min_mib}\n"
    );
    let config = write(at, "farm.toml", &text);
    // Room for the catalogue and for some of the TFs, which have 2.4 MB.
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![0; ballast_bytes]).unwrap();
    let icn = start_icn(at, &config, &[]);
    let epn = start(at, &config, "epn", 0, &["--metrics", &metrics]);
    epn.await_line("listening");
    let flp = start(at, &config, "flp", 0, &[]);
    let has_failed = || {
        let page = get(&metrics);
        let line = page
            .lines()
            .find(|line| line.starts_with("build_storage_full "));
        line.is_some_and(|line| line.ends_with(" 1"))
    };
    // Looked at with every status of the ICN, until the EPN can store nothing.
    loop {
        icn.await_line("\"books\"");
        if has_failed() {
            break;
        }
    }
    std::fs::remove_file(&ballast).unwrap();
    for (name, node) in [("icn", icn), ("flp", flp), ("epn", epn)] {
        let ended = node.end();
        assert!(ended.status.success(), "{name}: {}", ended.stderr);
        if name == "epn" {
            assert!(ended.stderr.contains(told), "{}", ended.stderr);
            assert!(ended.stderr.contains("takes TFs again"), "{}", ended.stderr);
        }
    }
    let files = disk.to_str().unwrap();
    let report = &json_of(&["files", "check", files, "--json"])[0];
    assert_eq!(
        (&report["records"], &report["faults"]),
        (&60.into(), &Value::Array(Vec::new())),
        "{report:#}"
    );
}
