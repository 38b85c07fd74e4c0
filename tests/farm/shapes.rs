//! Farms without faults, of several shapes.

use crate::harness::{DemoDir, Running, demo, farm_turn};
use serde_json::Value;

#[test]
fn two_thousand_tfs_at_full_speed_arrive_as_they_were_made() {
    let summary = demo("--timeframes 2000 --rate max");
    summary.assert_nothing_lost();
    assert_eq!(summary.count("complete"), 2000);
    assert_eq!(summary.0["ended_by"], "timeframes");
    for flp in ["flp:0", "flp:1", "flp:2"] {
        assert_eq!(*summary.of_node(flp, "items"), 2000, "{flp}");
    }
    assert_eq!(summary.items("epn"), 2000);
    // 12 links of two HBFs, repeated: 32 orbits a TF are 3.3 MB.
    let tf_bytes = summary.count("bytes") / 2000;
    assert!((3_200_000..3_500_000).contains(&tf_bytes), "{tf_bytes}");
}

#[test]
fn round_robin_gives_every_epn_its_share() {
    let summary = demo("--policy round-robin --timeframes 500 --rate 500 --orbits-per-tf 4");
    summary.assert_nothing_lost();
    for epn in 0..5 {
        assert_eq!(
            *summary.of_node(&format!("epn:{epn}"), "items"),
            100,
            "epn:{epn}"
        );
    }
}

#[test]
fn a_farm_keeps_the_rate_it_is_asked_for() {
    let summary = demo("--rate 100 --duration 3s");
    summary.assert_nothing_lost();
    assert_eq!(summary.0["ended_by"], "duration");
    let (tfs, duration_s) = (
        summary.count("announced"),
        summary.0["duration_s"].as_f64().unwrap(),
    );
    assert!(duration_s >= 2.9, "{duration_s}");
    // The sources make TFs for 3 s; start and end of the farm take as long as the machine lets them.
    let rate = tfs as f64 / 3.0;
    assert!((90.0..=110.0).contains(&rate), "{tfs} TFs in 3 s");
}

#[test]
fn the_icn_can_call_for_every_tf_on_its_clock() {
    let summary = demo("--paced --rate 200 --timeframes 400 --orbits-per-tf 4");
    summary.assert_nothing_lost();
    assert_eq!(summary.count("complete"), 400);
}

#[test]
fn stfs_can_be_fetched_by_the_epns_also_when_one_dies() {
    let summary = demo("--push granted --rate 200 --timeframes 600 --kill epn:1@1s");
    summary.assert_nothing_lost();
    assert_eq!(summary.count("announced"), 600);
}

#[test]
fn more_flps_than_links_repeat_the_links() {
    let summary = demo("--flps 14 --epns 2 --timeframes 50 --orbits-per-tf 2");
    summary.assert_nothing_lost();
    assert_eq!(summary.items("flp"), 14 * 50);
}

#[test]
fn sizes_of_a_generator_vary_and_arrive() {
    let line = "--source generator --stf-bytes 50000 --size-model lognormal --policy least-loaded";
    let summary = demo(&format!("{line} --timeframes 500 --rate max"));
    summary.assert_nothing_lost();
    assert_eq!(summary.count("complete"), 500);
}

#[test]
fn tfs_are_written_as_files() {
    let folder = tempfile::tempdir().unwrap();
    let sink = format!("--sink file:{}", folder.path().display());
    let summary = demo(&format!("--timeframes 20 --orbits-per-tf 1 {sink}"));
    summary.assert_nothing_lost();
    assert_eq!(files_below(folder.path()), 20);
}

fn files_below(folder: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { files_below(&path) } else { 1 })
        .sum()
}

#[test]
fn recorded_files_are_replayed() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../testdata/alice-its-rdh7/12_links_2hbf.raw"
    );
    let summary = demo(&format!("--source {file} --timeframes 50"));
    summary.assert_nothing_lost();
    assert_eq!(summary.count("complete"), 50);
}

#[test]
fn a_summary_on_the_standard_output_stands_there_alone() {
    let _turn = farm_turn();
    let line = "demo --memory 64 --timeframes 10 --orbits-per-tf 2 --json -";
    let ended = Running::start(&line.split(' ').collect::<Vec<_>>()).end();
    assert!(ended.status.success(), "{}", ended.stderr);
    let summary: Value = serde_json::from_str(&ended.stdout.join("\n")).unwrap();
    assert_eq!(summary["complete"], 10);
    assert!(
        ended.stderr.contains("announced 10 = complete 10"),
        "{}",
        ended.stderr
    );
}

#[test]
fn metrics_of_the_icn_are_served() {
    let _turn = farm_turn();
    let address = crate::harness::free_address();
    let dir = DemoDir::new();
    let demo = Running::start(&dir.words(&format!("--metrics {address} --orbits-per-tf 2")));
    demo.await_line("announced");
    let text = get(&address);
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(text.contains("balance_tf_announced_total"), "{text}");
    demo.signal(rustix::process::Signal::INT);
    assert!(demo.end().status.success());
    dir.summary().assert_sound();
}

pub(crate) fn get(address: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: sheaf\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
