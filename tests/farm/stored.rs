//! Ack level `stored`: whatever EPNs are killed, every committed TF is one file, and none is abandoned.

use crate::harness::{DemoDir, Running, Summary, farm_turn, sheaf, write};
use sheaf_formats::tf_file::read_tf_file;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// All files in the folders of runs under `directory`: names, and bytes.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for run in std::fs::read_dir(directory).unwrap() {
        for file in std::fs::read_dir(run.unwrap().path()).unwrap() {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            files.push((name, std::fs::read(file.path()).unwrap()));
        }
    }
    files
}

/// How often each TF is a visible file, over all directories; every one is whole, and there is nothing else.
fn visible(directories: &[&Path]) -> BTreeMap<u64, u32> {
    let mut visible = BTreeMap::new();
    for (name, bytes) in directories.iter().flat_map(|directory| files(directory)) {
        assert!(
            Path::new(&name)
                .extension()
                .is_some_and(|extension| extension == "tf"),
            "{name} is left"
        );
        let tf = read_tf_file(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        *visible.entry(tf.tf.0).or_default() += 1;
    }
    visible
}

fn demo_in(store: &Path, line: &str) -> Summary {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let sink = format!(
        "--ack stored --sink file:{}/{{epn}} {line}",
        store.display()
    );
    let ended = Running::start(&dir.words(&sink)).end();
    let stdout = ended.stdout.join("\n");
    assert!(
        ended.status.success(),
        "{line}:\n{stdout}\n{}",
        ended.stderr
    );
    let summary = dir.summary();
    summary.assert_sound();
    summary
}

#[test]
fn killed_epns_that_come_back_abandon_nothing_and_every_tf_is_one_file() {
    let store = tempfile::tempdir().unwrap();
    let directories: Vec<_> = (0..4)
        .map(|epn| store.path().join(epn.to_string()))
        .collect();
    for directory in &directories {
        std::fs::create_dir(directory).unwrap();
    }
    let mut faults = String::new();
    for (at, epn) in (400..3000).step_by(150).zip([0, 1, 2].into_iter().cycle()) {
        faults += &format!("--kill epn:{epn}@{at}ms --start epn:{epn}@{}ms ", at + 70);
    }
    let line = format!(
        "--flps 2 --epns 4 --rate 150 --source generator --stf-bytes 30000 --duration 4s {faults}"
    );
    let summary = demo_in(store.path(), &line);
    summary.assert_nothing_lost();
    assert_eq!(summary.count("abandoned"), 0, "{:#}", summary.0);
    let directories: Vec<&Path> = directories.iter().map(AsRef::as_ref).collect();
    let visible = visible(&directories);
    assert_eq!(visible.len() as u64, summary.count("complete"));
    assert!(visible.values().all(|count| *count == 1), "{visible:?}");
}

#[test]
fn ack_level_stored_without_a_sink_that_stores_is_refused() {
    let ended = sheaf(&["demo", "--ack", "stored"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(ended.stderr.contains("--sink file:DIR"), "{}", ended.stderr);
    let folder = tempfile::tempdir().unwrap();
    let text = "[epn]\nack = \"stored\"\n[epn.sink]\nkind = \"verify\"\n";
    let config = write(folder.path(), "farm.toml", text);
    let ended = sheaf(&["config", "check", &config]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    let all = ended.stderr + &ended.stdout.join("\n");
    assert!(all.contains("epn.ack"), "{all}");
    assert!(all.contains("the sinks file and writers store"), "{all}");
}

/// Whether `strace` is there. Continuous integration must have it: `scripts/setup.sh` installs it.
fn has_strace() -> bool {
    let tried = Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status();
    let has = tried.is_ok_and(|status| status.success());
    assert!(
        has || std::env::var_os("CI").is_none(),
        "strace is not installed"
    );
    has
}

/// The kernel kills the EPN at its n-th call of one kind, in the middle of storing. It is started again; the run goes
/// on, and nothing is lost, doubled, half written or abandoned.
#[test]
fn an_epn_killed_at_any_system_call_of_storing_loses_nothing() {
    if !has_strace() {
        println!("skipped: strace is not installed");
        return;
    }
    let mut recovered = 0;
    for (call, when) in [
        ("fdatasync", 1),
        ("fdatasync", 7),
        ("fsync", 2),
        ("fsync", 9),
        ("rename", 1),
        ("rename", 2),
        ("rename", 12),
        ("openat", 60),
    ] {
        recovered += killed_at(call, when);
    }
    assert!(
        recovered > 0,
        "no kill came between a verdict and its hand-over"
    );
}

/// Gives the number of TFs that the second life has published for the first.
fn killed_at(call: &str, when: u32) -> usize {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    std::fs::create_dir(&store).unwrap();
    let icn = crate::harness::free_address();
    let text = format!(
        "[run]\nflps = 1\nepns = 1\ntimeframes = 60\n[icn]\naddress = \"{icn}\"\n\
         [flp]\nhold_bytes = 67108864\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn]\nack = \"stored\"\n[epn.build]\ncapacity_bytes = 16777216\n\
         [epn.sink]\nkind = \"file\"\ndirectory = \"{}\"\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        store.display()
    );
    let config = write(folder.path(), "farm.toml", &text);
    let icn = Running::start(&["run", "icn", "--config", &config, "--status-ms", "100"]);
    let inject = format!("inject={call}:signal=KILL:when={when}");
    let epn_words = ["run", "epn", "--config", &config, "--index", "0"];
    let mut traced = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &inject, "--"])
        .arg(env!("CARGO_BIN_EXE_sheaf"))
        .args(epn_words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace starts");
    let flp = Running::start(&["run", "flp", "--config", &config, "--index", "0"]);
    let status = traced.wait().expect("it is our child");
    assert!(!status.success(), "{call} {when}: the kill did not come");
    for (name, bytes) in files(&store) {
        if Path::new(&name)
            .extension()
            .is_some_and(|extension| extension == "tf")
        {
            read_tf_file(&bytes).unwrap_or_else(|error| panic!("{call} {when}: {name}: {error}"));
        }
    }
    let epn = Running::start(&epn_words);
    let mut recovered = 0;
    for (name, node) in [("icn", icn), ("flp", flp), ("epn", epn)] {
        let ended = node.end();
        assert!(
            ended.status.success(),
            "{call} {when} {name}: {}",
            ended.stderr
        );
        if name == "epn" {
            recovered = ended
                .stderr
                .matches("a former life had stored is published")
                .count();
        }
        if name == "icn" {
            let mut statuses = ended
                .stdout
                .iter()
                .filter(|line| line.contains("\"books\""));
            let last: serde_json::Value =
                serde_json::from_str(statuses.next_back().unwrap()).unwrap();
            let accounting = &last["books"];
            assert_eq!(
                (&accounting["complete"], &accounting["abandoned"]),
                (&60.into(), &0.into()),
                "{last:#}"
            );
        }
    }
    let visible = visible(&[&store]);
    assert_eq!(visible.len(), 60, "{call} {when}: {visible:?}");
    assert!(visible.values().all(|count| *count == 1), "{visible:?}");
    recovered
}

/// A disk that is full for a while: nothing is lost, no half file is seen, and it goes on by itself.
#[test]
fn a_disk_that_is_full_for_a_while_costs_nothing() {
    // A file system of a few MiB needs the right to mount one.
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let Some(_mount) = Mount::tmpfs(&disk, "2m") else {
        println!("skipped: this user may not mount a file system");
        return;
    };
    let _turn = farm_turn();
    let icn = crate::harness::free_address();
    let text = format!(
        "[run]\nflps = 1\nepns = 1\ntimeframes = 40\n[icn]\naddress = \"{icn}\"\n\
         [flp]\nhold_bytes = 67108864\nrate_hz = 100.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 20000\n\
         [epn]\nack = \"stored\"\n[epn.build]\ncapacity_bytes = 16777216\n\
         [epn.sink]\nkind = \"file\"\ndirectory = \"{}\"\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        disk.display()
    );
    let config = write(folder.path(), "farm.toml", &text);
    // Room for some of the 40 TFs.
    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![0; 1_700_000]).unwrap();
    let icn = Running::start(&["run", "icn", "--config", &config, "--status-ms", "50"]);
    let epn = Running::start(&["run", "epn", "--config", &config, "--index", "0"]);
    let flp = Running::start(&["run", "flp", "--config", &config, "--index", "0"]);
    // It stands still with some TFs decided; then room is made.
    loop {
        let line = icn.await_line("\"books\"");
        let status: serde_json::Value = serde_json::from_str(&line).unwrap();
        let complete = status["books"]["complete"].as_u64().unwrap();
        if complete > 0 && status["books"]["announced"] == 40 {
            assert!(complete < 40, "the disk was never full: {status:#}");
            break;
        }
    }
    std::fs::remove_file(&ballast).unwrap();
    for (name, node) in [("icn", icn), ("flp", flp), ("epn", epn)] {
        let ended = node.end();
        assert!(ended.status.success(), "{name}: {}", ended.stderr);
        if name == "epn" {
            assert!(ended.stderr.contains("No space left"), "{}", ended.stderr);
            assert!(ended.stderr.contains("takes TFs again"), "{}", ended.stderr);
        }
    }
    assert_eq!(visible(&[&disk]).len(), 40);
}

/// File system of a test, gone at its end.
pub(crate) struct Mount<'a>(&'a Path);

impl<'a> Mount<'a> {
    /// Mounts a file system in memory of `size`; `None` if this user may not.
    pub(crate) fn tmpfs(at: &'a Path, size: &str) -> Option<Self> {
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "sheaf-test"])
            .arg(at)
            .stderr(Stdio::null())
            .status();
        status
            .is_ok_and(|status| status.success())
            .then_some(Self(at))
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
