//! EPNs that hand their TFs to writer nodes: whatever of them dies, hangs or has a full disk, each TF counts once.

use crate::harness::{DemoDir, PROGRAM, Running, Summary, farm_turn, start, start_icn, write};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A demo that has ended, and the files of its writers.
struct Written {
    folder: tempfile::TempDir,
    dir: DemoDir,
}

impl Written {
    /// Runs a demo of 2 EPNs at 200 TF/s with the sink "streams".
    #[track_caller]
    fn by(line: &str) -> Self {
        let _turn = farm_turn();
        let (folder, dir) = (tempfile::tempdir().unwrap(), DemoDir::new());
        let files = folder.path().display();
        let line = format!("--epns 2 --rate 200 --orbits-per-tf 8 --sink streams:{files} {line}");
        let ended = Running::start(&dir.words(&line)).end();
        ended.ok(&[&line]);
        Self { folder, dir }
    }

    /// Every announced TF is complete, and counts once in the files.
    #[track_caller]
    fn assert_all_written(&self) -> Summary {
        let summary = self.dir.summary();
        summary.assert_nothing_lost();
        assert_eq!(summary.count("abandoned"), 0, "{:#}", summary.0);
        assert_verified(
            &self.dir.out(),
            self.folder.path(),
            summary.count("complete"),
        );
        summary
    }

    /// Log of a node such as `epn-0`.
    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.out().join(format!("{name}.log"))).unwrap()
    }
}

/// The event logs in `out` and the files of the writers in `files` agree: `tfs` TFs are written, each once.
#[track_caller]
fn assert_verified(out: &Path, files: &Path, tfs: u64) {
    let (out, files) = (out.to_str().unwrap(), files.to_str().unwrap());
    let words = ["data", "verify", out, "--sink", files, "--json", "-"];
    let text = Running::start(&words).end().ok(&words);
    let found: Value = serde_json::from_str(&text).expect("the result is JSON");
    assert_eq!(found["first_contradiction"], Value::Null, "{found:#}");
    assert_eq!(found["complete"], tfs, "{found:#}");
    assert_eq!(found["streams"]["main"]["written"], tfs, "{found:#}");
}

#[test]
fn of_two_writers_one_comes_back_and_the_other_dies_and_each_tf_counts_once() {
    let faults = "--kill writer:0@400ms --start writer:0@700ms --kill writer:1@1200ms";
    let summary = Written::by(&format!("--writers 2 --duration 2s {faults}")).assert_all_written();
    assert_eq!(*summary.of_node("writer:0", "lives"), 2);
    assert_eq!(*summary.of_node("writer:1", "exit"), "killed");
}

#[test]
fn with_ack_stored_an_epn_and_a_writer_that_come_back_abandon_nothing() {
    let faults =
        "--kill epn:0@400ms --start epn:0@700ms --kill writer:1@900ms --start writer:1@1200ms";
    let line = format!("--writers 2 --ack stored --duration 2s {faults}");
    let summary = Written::by(&line).assert_all_written();
    assert_eq!(*summary.of_node("epn:0", "lives"), 2);
    assert_eq!(*summary.of_node("writer:1", "lives"), 2);
}

#[test]
fn tfs_of_a_writer_that_hangs_go_to_the_other_one() {
    // It is paused for longer than the silence of 1 s that `epn.sink.silence_ms` allows.
    let written = Written::by("--writers 2 --duration 2500ms --pause writer:0@300ms+1500ms");
    written.assert_all_written();
    let logs = written.log("epn-0") + &written.log("epn-1");
    assert!(logs.contains("A writer is silent"), "{logs}");
    assert!(logs.contains("go to another one"), "{logs}");
}

#[test]
fn epns_wait_for_their_only_writer() {
    let faults = "--kill writer:0@500ms --start writer:0@1s";
    let written = Written::by(&format!("--writers 1 --duration 2s {faults}"));
    let summary = written.assert_all_written();
    assert_eq!(*summary.of_node("writer:0", "lives"), 2);
}

#[test]
fn tfs_go_to_writers_over_tls() {
    let faults = "--kill writer:1@600ms --start writer:1@900ms";
    let summary =
        Written::by(&format!("--writers 2 --duration 1500ms --tls {faults}")).assert_all_written();
    assert_eq!(summary.0["security"], "tls");
}

/// One writer has a farm file that keeps more of its disk free than any disk has.
#[test]
fn tfs_of_a_writer_with_a_full_disk_go_to_the_other_one() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let (at, files) = (folder.path(), folder.path().join("files"));
    std::fs::create_dir(&files).unwrap();
    let place = at.display();
    let text = |free_min_mib: u32| {
        format!(
            "[run]\nflps = 1\nepns = 2\ntimeframes = 100\n\
             [icn]\naddress = \"unix:{place}/icn.sock\"\n\
             [flp]\nhold_bytes = 16777216\nrate_hz = 100.0\nstf_bytes_max = 1048576\n\
             [flp.source]\nkind = \"generator\"\nbytes_mean = 20000\n\
             [epn]\nlisten = \"unix:{place}/epn-{{epn}}.sock\"\n\
             [epn.build]\ncapacity_bytes = 16777216\n\
             [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
             [epn.sink]\nkind = \"writers\"\n\
             [writer]\naddresses = [\"unix:{place}/writer-0.sock\", \"unix:{place}/writer-1.sock\"]\n\
             capacity_bytes = 16777216\n\
             [writer.files]\ndirectory = {files:?}\nfree_min_mib = {free_min_mib}\n"
        )
    };
    let config = write(at, "farm.toml", &text(0));
    let full = write(at, "full.toml", &text(1 << 30));
    let writers = [
        start(at, &full, "writer", 0, &[]),
        start(at, &config, "writer", 1, &[]),
    ];
    for writer in &writers {
        writer.await_line("listening");
    }
    let icn = start_icn(at, &config, &[]);
    let epns = [0, 1].map(|epn| {
        let listen = format!("unix:{place}/epn-{epn}.sock");
        start(at, &config, "epn", epn, &["--listen", &listen])
    });
    let flp = start(at, &config, "flp", 0, &[]);
    let mut logs = String::new();
    for node in [icn, flp].into_iter().chain(epns) {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        logs += &ended.stderr;
    }
    assert!(
        logs.contains("The disks of a writer take nothing now"),
        "{logs}"
    );
    for writer in writers {
        writer.signal(Signal::TERM);
        let ended = writer.end();
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    assert_verified(at, &files, 100);
}

/// Farm file, command line, exit status, and a part of what is printed on the standard error.
const WRONG: &[(&str, &str, i32, &str)] = &[
    (
        "",
        "demo --writers 2 --sink verify",
        2,
        "--writers needs --sink streams:DIR, where they write; found --sink verify",
    ),
    (
        "",
        "demo --kill writer:0@1s",
        2,
        "there is no writer:0: the farm has none (--writers)",
    ),
    (
        "",
        "demo --writers 2 --sink streams:. --kill writer:2@1s",
        2,
        "there is no writer:2: the farm has writer:0 to writer:1 (--writers)",
    ),
    (
        "[writer]\naddresses = [\"127.0.0.1:7300\"]\n[writer.files]\ndirectory = \".\"\n",
        "run writer --config farm.toml --index 5",
        2,
        "--index 5: the farm file has 1 (writer.addresses), expected 0 to 0",
    ),
    (
        "[writer.files]\ndirectory = \".\"\n",
        "run writer --config farm.toml",
        2,
        "found no writer.addresses in the farm file, expected one a writer",
    ),
    (
        "[epn.sink]\nkind = \"writers\"\n",
        "run epn --config farm.toml --index 0",
        2,
        "writer.addresses: found none, expected addresses of writers with the sink writers",
    ),
    (
        "[writer]\naddresses = [\"127.0.0.1:7300\"]\n[writer.files]\ndirectory = \".\"\n\
         [[writer.files.stream]]\nname = \"main\"\nformat = \"raw\"\nflps = [0]\n",
        "run writer --config farm.toml --index 0",
        2,
        "writer.files.stream: found format = \"raw\" of main, expected tf or stf-file",
    ),
    (
        "[writer]\naddresses = [\"127.0.0.1:7300\"]\n",
        "run writer --config farm.toml --index 0",
        2,
        "writer.files: found none, expected a table [writer.files] with a directory",
    ),
    (
        "[writer]\naddresses = [\"127.0.0.1:7300\"]\n",
        "run writer --config farm.toml",
        2,
        "writer.files: found none, expected a table [writer.files] with a directory",
    ),
];

#[test]
fn every_wrong_use_of_writers_names_what_was_found_and_expected() {
    for (file, line, status, expected) in WRONG {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "farm.toml", file);
        let mut command = Command::new(PROGRAM);
        command.args(line.split(' ')).current_dir(folder.path());
        let ended = Running::of(command).end();
        let found = &ended.stderr;
        assert_eq!(ended.status.code(), Some(*status), "{line}: {found}");
        assert!(found.contains(expected), "{line}: {found}");
        assert!(!found.contains("panicked"), "{line}: {found}");
    }
}
