//! Wrong uses of the command line: one line that names the mistake, and the right exit status.

use crate::harness::{DemoDir, Running, farm_turn, sheaf, write};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;

/// Runs `line` and expects this status and these words on the standard error, and nothing on the standard output.
#[track_caller]
fn check(line: &[&str], status: i32, expected: &[&str]) {
    let ended = sheaf(line);
    assert_eq!(
        ended.status.code(),
        Some(status),
        "{line:?}: {}",
        ended.stderr
    );
    for words in expected {
        assert!(
            ended.stderr.contains(words),
            "{line:?}: {words:?} is not in {}",
            ended.stderr
        );
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

#[test]
fn a_wrong_flag_is_named() {
    check(
        &["demo", "--epn", "3"],
        2,
        &["unexpected argument '--epn'", "--epns"],
    );
    check(
        &["demo", "--rate", "fast"],
        2,
        &["expected lhc, max or a number above 0"],
    );
    check(&["dmo"], 2, &["unrecognized subcommand 'dmo'", "demo"]);
    check(&["run", "icn"], 2, &["--config <FILE>"]);
    check(&["run", "flp", "--config", "x.toml"], 2, &["--index <N>"]);
    check(
        &["run", "icn", "--config", "x.toml", "--listen", "7000"],
        2,
        &["expected HOST:PORT"],
    );
}

#[test]
fn quiet_leaves_out_progress_and_not_results() {
    let line = ["sim", "torture", "--seeds", "1", "--threads", "1"];
    let loud = sheaf(&line);
    assert!(
        loud.stderr.contains("seeds of the family"),
        "{}",
        loud.stderr
    );
    let quiet = sheaf(&[&["--quiet"], &line[..]].concat());
    assert_eq!((quiet.status.code(), &*quiet.stderr), (Some(0), ""));
    assert!(!quiet.stdout.is_empty());
    let json = sheaf(&[&["--quiet"], &line[..], &["--json", "-"]].concat());
    let found: Result<serde_json::Value, _> = serde_json::from_str(&json.stdout.join("\n"));
    assert!(found.is_ok(), "{:?}", json.stdout);
}

#[test]
fn an_old_name_runs_the_command_and_says_the_new_name() {
    for (old, new) in [
        (&["inspect"][..], &["data", "inspect"][..]),
        (&["-v", "epn"], &["-v", "run", "epn"]),
        (
            &["epn", "set", "epn:1", "--weight", "1"],
            &["ctl", "set", "epn:1", "--weight", "1"],
        ),
    ] {
        let (found, expected) = (sheaf(old), sheaf(new));
        let (warning, rest) = found.stderr.split_once('\n').unwrap();
        assert!(warning.starts_with("sheaf: `sheaf "), "{warning}");
        assert!(
            warning.ends_with("the old name goes with release 0.3"),
            "{warning}"
        );
        assert_eq!(found.status.code(), expected.status.code());
        assert_eq!((rest, found.stdout), (&*expected.stderr, expected.stdout));
    }
}

#[test]
fn a_missing_file_is_named() {
    for role in [
        &["run", "icn"][..],
        &["run", "flp", "--index", "0"],
        &["run", "epn", "--index", "0"],
    ] {
        let line = [role, &["--config", "/nowhere/farm.toml"]].concat();
        check(
            &line,
            2,
            &["sheaf: ", "/nowhere/farm.toml", "No such file or directory"],
        );
    }
    check(
        &["demo", "--source", "/nowhere/run.raw"],
        2,
        &["sheaf: ", "/nowhere/run.raw"],
    );
    check(
        &["demo", "--sink", "file:/nowhere/tfs"],
        2,
        &["sheaf: ", "/nowhere/tfs"],
    );
}

#[test]
fn what_cannot_be_written_or_shared_is_named_before_the_start() {
    check(
        &["demo", "--json", "/nowhere/x.json"],
        2,
        &["sheaf: cannot write --json /nowhere/x.json: No such file"],
    );
    check(
        &["demo", "--sink", "unix:/tmp/x.sock"],
        2,
        &["5 EPNs would share it, expected {epn} in the path"],
    );
    let slices = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../testdata/km3net-daq/IO_TSL1_1003.dat"
    );
    check(
        &["demo", "--source", slices],
        2,
        &["--source has 1 file, expected at least one for each of 3 FLPs (--flps)"],
    );
}

#[test]
fn a_fault_for_a_node_that_is_not_there_is_refused() {
    let expected = "there is no epn:5: the farm has epn:0 to epn:4 (--epns)";
    check(&["demo", "--kill", "epn:5@1s"], 2, &["sheaf: ", expected]);
    check(
        &["demo", "--pause", "flp:3@1s+1s"],
        2,
        &["there is no flp:3", "flp:2"],
    );
    check(
        &["demo", "--kill", "icn:0@1s"],
        2,
        &[
            "0 of 1 would be left",
            "expected --start icn:0 later, or more --icns",
        ],
    );
    check(
        &["demo", "--icns", "2"],
        2,
        &["--icns 2: expected 1 or an odd number from 3 on"],
    );
    check(
        &[
            "demo", "--flps", "512", "--epns", "512", "--memory", "65536",
        ],
        2,
        &[
            "--memory 65536: found 67108864 MiB",
            "this machine has available",
        ],
    );
    check(
        &["demo", "--rate", "max", "--paced"],
        2,
        &["--paced needs a --rate"],
    );
}

#[test]
fn a_wrong_farm_file_is_refused_with_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(
        folder.path(),
        "farm.toml",
        "[run]\nflps = 2\n\n[icn]\nadress = \"x:1\"\n",
    );
    check(
        &["run", "icn", "--config", &file],
        2,
        &["sheaf: ", "farm.toml:5", "adress"],
    );
    let file = write(
        folder.path(),
        "policy.toml",
        "[icn.scheduler]\npolicy = \"best\"\n",
    );
    check(
        &["run", "icn", "--config", &file],
        2,
        &["policy.toml:2", "icn.scheduler.policy", "best"],
    );
}

#[test]
fn an_index_beyond_the_farm_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[run]\nflps = 2\n[flp.source]\nkind = \"generator\"\n";
    let file = write(folder.path(), "farm.toml", text);
    check(
        &["run", "flp", "--config", &file, "--index", "2"],
        2,
        &["--index 2", "expected 0 to 1"],
    );
}

#[test]
fn a_port_in_use_is_named_with_its_address() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let text = format!("[icn]\naddress = \"{address}\"\n[epn.build]\ncapacity_bytes = 67108864\n");
    let file = write(folder.path(), "farm.toml", &text);
    check(
        &["run", "icn", "--config", &file],
        1,
        &["sheaf: icn:0 failed", &address, "in use"],
    );
    let epn = [
        "run", "epn", "--config", &file, "--index", "0", "--listen", &address,
    ];
    check(&epn, 1, &["sheaf: epn:0 failed", &address, "in use"]);
    let metrics = [
        "run",
        "icn",
        "--config",
        &file,
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        &address,
    ];
    check(&metrics, 1, &["sheaf: icn:0 failed", &address, "in use"]);
}

#[test]
fn a_demo_whose_icn_cannot_start_says_why_and_keeps_the_logs() {
    let _turn = farm_turn();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = sheaf(&["demo", "--metrics", &address]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    for expected in [
        "sheaf: the demo failed (logs in ",
        "icn:0 ended before the run began",
        &address,
    ] {
        assert!(
            ended.stderr.contains(expected),
            "{expected:?} is not in {}",
            ended.stderr
        );
    }
    let kept = ended
        .stderr
        .split("(logs in ")
        .nth(1)
        .and_then(|rest| rest.split(')').next());
    std::fs::remove_dir_all(kept.unwrap()).unwrap();
}

#[test]
fn an_output_directory_with_files_in_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "precious.txt", "x");
    let out = folder.path().to_str().unwrap();
    check(
        &["demo", "--out", out],
        2,
        &["is not empty, expected a new or an empty directory"],
    );
}

#[test]
fn a_demo_whose_reader_has_seen_enough_ends_in_order() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sheaf"));
    let mut demo = command
        .args(dir.words(""))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let out = BufReader::new(demo.stdout.take().unwrap());
    let begun = out
        .lines()
        .find(|line| line.as_ref().unwrap().contains("the run begins"));
    assert!(begun.is_some());
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    let summary = dir.summary();
    summary.assert_sound();
    summary.assert_nothing_lost();
}

#[test]
fn a_reader_that_goes_away_ends_the_demo() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sheaf"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = command.args(dir.words("")).stdout(writer).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(stderr.contains("cannot write"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn version_and_help_are_there() {
    let short = sheaf(&["-V"]).stdout;
    let version = sheaf(&["--version"]);
    let [line, protocol, features] = &version.stdout[..] else {
        panic!("{:?}", version.stdout)
    };
    assert_eq!(short, [line.as_str()]);
    assert_eq!(protocol, "protocol 1.1");
    assert!(features.starts_with("features tui monitor "), "{features}");
    // The commit behind it: `(0123456789ab)`, with a mark if files were changed.
    let commit = line.strip_prefix(concat!("sheaf ", env!("CARGO_PKG_VERSION"), " ("));
    assert!(
        commit.is_some_and(|commit| commit.len() > 1 && commit.ends_with(')')),
        "{line}"
    );
    for command in [
        &["--help"][..],
        &["demo", "--help"],
        &["run", "icn", "--help"],
        &["run", "flp", "--help"],
        &["run", "epn", "--help"],
    ] {
        let help = Running::start(command).end();
        assert!(help.status.success());
        assert!(
            help.stdout.iter().any(|line| line == "Examples:"),
            "{command:?}"
        );
    }
}
