//! `sheaf top` attached to a farm of separate processes.

use crate::harness::{Running, farm_turn, free_address, sheaf, write};

#[test]
fn top_follows_a_farm_to_its_end_in_lines() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let text = format!(
        "[run]\nflps = 1\nepns = 1\n[icn]\naddress = \"{address}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 50.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n"
    );
    let config = write(folder.path(), "farm.toml", &text);
    let alone = sheaf(&["top", "--config", &config, "--timeout", "100ms"]);
    assert_eq!(alone.status.code(), Some(1), "{:?}", alone.stdout);
    assert!(
        alone.stderr.contains("no ICN answers for 0.1 s"),
        "{}",
        alone.stderr
    );

    let start = |words: &[&str]| Running::start(&[words, &["--config", &config]].concat());
    let icn = start(&["run", "icn", "--status-ms", "50"]);
    let nodes = ["flp", "epn"].map(|role| start(&["run", role, "--index", "0"]));
    icn.await_line("\"phase\":\"running\"");
    let top = start(&["top", "--every", "50ms", "--timeout", "1s"]);
    let first = top.await_line("announced ");
    assert!(first.contains(" TF/s") && first.contains('✔'), "{first}");
    let ended = sheaf(&["ctl", "stop", "--config", &config]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    for node in nodes.into_iter().chain([icn]) {
        assert!(node.end().status.success());
    }
    let ended = top.end();
    assert!(ended.status.success(), "{}", ended.stderr);
    let last = ended.stdout.last().unwrap();
    assert!(last.ends_with("the run is over"), "{:?}", ended.stdout);
}
