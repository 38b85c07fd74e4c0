//! `sheaf doctor` beside a running farm, and what it says when a part of that is taken away.

use crate::harness::{PROGRAM, Running, farm_turn, free_address, sheaf, write};
use serde_json::Value;
use std::process::Command;

/// Asks for a report. Returns its exit status too.
fn ask(words: &[&str]) -> (i32, Value) {
    let ended = sheaf(&[&["doctor", "--json"], words].concat());
    let code = ended.status.code().expect("it ends by itself");
    let report = serde_json::from_str(&ended.stdout.join("\n")).expect("it prints JSON");
    (code, report)
}

/// Returns the state and the text of each finding of `check`, by place.
fn of(report: &Value, check: &str) -> Vec<(String, String, String)> {
    let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().expect("a list");
    let of_check = findings.iter().filter(|finding| finding["check"] == check);
    let row = |finding| ["place", "state", "found"].map(|key| text(finding, key));
    of_check.map(|finding| row(finding).into()).collect()
}

#[test]
fn a_running_farm_is_reached_and_a_dead_node_is_named() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let [icn_at, epn_at, icn_page, epn_page] = [(); 4].map(|()| free_address());
    std::fs::create_dir(folder.path().join("log")).unwrap();
    let text = format!(
        "[run]\nflps = 1\nepns = 1\n[icn]\naddress = \"{icn_at}\"\nmetrics = \"{icn_page}\"\n\
         [icn.ledger]\nbackend = \"file\"\ndirectory = \"{at}/log\"\n\
         [flp]\nhold_bytes = 16777216\nstf_bytes_max = 1048576\n\
         [epn]\nlisten = \"{epn_at}\"\nmetrics = \"{epn_page}\"\n[epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n",
        at = folder.path().display(),
    );
    let config = write(folder.path(), "farm.toml", &text);
    let icn = Running::start(&["run", "icn", "--config", &config]);
    icn.await_line("listening");
    let mut epn = Running::start(&["run", "epn", "--config", &config, "--index", "0"]);
    epn.await_line("listening");

    let (_, report) = ask(&["--config", &config, "--role", "icn"]);
    let well = |count: usize| [(String::new(), "ok".to_owned(), format!("{count} addresses"))];
    assert_eq!(of(&report, "reach"), well(2), "{report:#}");
    assert_eq!(of(&report, "names"), well(4), "{report:#}");
    assert_eq!(of(&report, "pages"), well(2), "{report:#}");
    assert_eq!(of(&report, "versions"), well(2), "{report:#}");
    let disk = of(&report, "disk");
    assert_eq!(disk[0].0, "icn.ledger.directory", "{report:#}");
    assert!(disk[0].2.contains("4 KiB durable in"), "{report:#}");
    // Nothing of it is left beside the verdict log.
    let mut files = std::fs::read_dir(folder.path().join("log")).unwrap();
    let is_ours = |name: &str| name.starts_with(".tmp");
    assert!(!files.any(|file| is_ours(&file.unwrap().file_name().to_string_lossy())));

    epn.kill();
    let (code, report) = ask(&["--config", &config, "--role", "icn", "--no-disk"]);
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(report["is_well"], false);
    let [(place, state, found)] = &of(&report, "reach")[..] else {
        panic!("{report:#}");
    };
    assert_eq!((place.as_str(), state.as_str()), ("epn:0", "wrong"));
    assert!(
        found.starts_with(&epn_at) && found.contains("refused"),
        "{found}"
    );
    assert_eq!(of(&report, "disk")[0].1, "not-checked");
    let (_, report) = ask(&["--config", &config, "--here", "--no-disk"]);
    assert_eq!(of(&report, "reach")[0].1, "not-checked");
}

#[test]
fn limits_of_a_machine_are_wrong_with_the_command_that_mends_them() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[epn.sink]\nkind = \"file\"\ndirectory = \"/none/out\"\n[transport]\ncongestion = \"none\"\n";
    let config = write(folder.path(), "farm.toml", text);
    let mut command = Command::new("sh");
    let words =
        format!("ulimit -n 1000 && exec {PROGRAM} doctor --config {config} --role epn --here");
    command.args(["-c", &words]);
    let ended = Running::of(command).end();
    let told = ended.stdout.join("\n");
    assert_eq!(ended.status.code(), Some(1), "{told}\n{}", ended.stderr);
    for expected in [
        "WRONG        open-files                         1000 at most",
        "mend: LimitNOFILE=4232 in the unit",
        "WRONG        disk                epn.sink.directory /none/out: No such file or directory",
        "mend: install -d -o sheaf -g sheaf /none/out",
        "mend: modprobe tcp_none",
    ] {
        assert!(told.contains(expected), "{expected}\n{told}");
    }
}
