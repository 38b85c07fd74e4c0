//! Several ICNs: the leader dies, hangs, is asked to go, and the run goes on under another.

use crate::harness::{DemoDir, Running, demo, farm_turn, free_address, write};
use rustix::process::Signal;
use serde_json::Value;

const THREE: &str = "--icns 3 --rate 200 --orbits-per-tf 4";

#[test]
fn a_killed_leader_costs_no_tf_and_another_leads() {
    let summary = demo(&format!("{THREE} --duration 2s --kill icn:0@1s"));
    summary.assert_nothing_lost();
    assert_eq!(summary.count("icns"), 3);
    assert_eq!(summary.0["membership"], "embedded");
    let leaders = summary.0["leaders"].as_array().unwrap();
    let term = |leader: &Value| leader["term"].as_u64().unwrap();
    assert!(leaders.len() >= 2, "{leaders:#?}");
    assert!(
        leaders.is_sorted_by(|a, b| term(a) < term(b)),
        "{leaders:#?}"
    );
    let killed = &summary.0["faults"][0]["node"];
    assert_ne!(leaders.last().unwrap()["icn"], *killed);
    assert_eq!(*summary.of_node(killed.as_str().unwrap(), "exit"), "killed");
    assert!(summary.0["assignment_gap_ms_max"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_leader_that_hangs_is_told_that_another_one_leads() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let line = format!("{THREE} --duration 3s --pause icn:0@700ms+1s");
    let ended = Running::start(&dir.words(&line)).end();
    assert!(
        ended.status.success(),
        "{:#?}\n{}",
        ended.stdout,
        ended.stderr
    );
    let summary = dir.summary();
    summary.assert_nothing_lost();
    let hung = summary.0["faults"][0]["node"].as_str().unwrap();
    let log = dir.out().join(format!("{}.events", hung.replace(':', "-")));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(
        log.contains("\"event\":\"deposed\""),
        "{hung} was not deposed"
    );
    assert_eq!(*summary.of_node(hung, "exit"), "dismissed");
}

#[test]
fn a_lone_icn_that_is_started_again_goes_on_with_its_run() {
    let summary =
        demo("--rate 200 --orbits-per-tf 4 --duration 2s --kill icn:0@700ms --start icn:0@900ms");
    summary.assert_nothing_lost();
    let leaders = summary.0["leaders"].as_array().unwrap();
    assert_eq!(leaders.len(), 2, "{leaders:#?}");
    assert_eq!(*summary.of_node("icn:0", "lives"), 2);
}

#[test]
fn control_c_finds_the_icn_that_leads() {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let demo = Running::start(&dir.words(&format!("{THREE} --kill icn:0@300ms")));
    demo.await_line("killed");
    demo.await_line("leads in term");
    demo.signal(Signal::INT);
    let ended = demo.end();
    assert!(
        ended.status.success(),
        "{:#?}\n{}",
        ended.stdout,
        ended.stderr
    );
    let summary = dir.summary();
    summary.assert_nothing_lost();
    assert_eq!(summary.0["ended_by"], "user");
}

const TFS: u64 = 300;

/// A farm of three ICNs at `addresses`, one FLP and two EPNs.
fn farm_file(addresses: &[String], directory: &str) -> String {
    format!(
        "[run]\nflps = 1\nepns = 2\ntimeframes = {TFS}\n\
         [icn]\naddresses = {addresses:?}\n\
         [icn.ledger]\nbackend = \"majority\"\ndirectory = \"{directory}/verdicts-{{icn}}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 150.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n"
    )
}

#[test]
fn a_leader_that_is_asked_to_end_hands_over_and_the_run_goes_on() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let addresses: Vec<String> = (0..3).map(|_| free_address()).collect();
    let text = farm_file(&addresses, folder.path().to_str().unwrap());
    let config = write(folder.path(), "farm.toml", &text);
    let start = |role: &str, index: usize| {
        let mut words = vec![
            "run".to_owned(),
            role.to_owned(),
            "--config".to_owned(),
            config.clone(),
        ];
        words.extend(["--index".to_owned(), index.to_string()]);
        if role == "icn" {
            words.extend(["--status-ms".to_owned(), "50".to_owned()]);
        }
        Running::start(&words)
    };
    let mut icns: Vec<Running> = (0..3).map(|index| start("icn", index)).collect();
    let nodes = [start("flp", 0), start("epn", 0), start("epn", 1)];
    let leader = loop {
        let line: Value = serde_json::from_str(&icns[0].await_line("\"ledger\"")).unwrap();
        // Once the run has begun the first leader stays.
        let has_begun = line["ledger"]["records"].as_u64().unwrap() > 3;
        if let Some(leader) = line["ledger"]["leader"].as_u64().filter(|_| has_begun) {
            break usize::try_from(leader).unwrap();
        }
    };
    let asked = icns.remove(leader);
    asked.signal(Signal::TERM);
    let ended = asked.end();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert!(
        ended
            .stdout
            .last()
            .unwrap()
            .contains("\"reason\":\"shutdown\"")
    );
    assert!(!ended.stderr.contains(" ERROR "), "{}", ended.stderr);
    let mut last_accounting = None;
    for node in icns.into_iter().chain(nodes) {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        assert!(!ended.stderr.contains(" ERROR "), "{}", ended.stderr);
        let last = ended.stdout.last().unwrap();
        assert!(last.contains("\"reason\":\"dismissed\""), "{last}");
        let over = ended
            .stdout
            .iter()
            .rfind(|line| line.contains("\"phase\":\"over\""));
        last_accounting = last_accounting.or(over.cloned());
    }
    let last: Value =
        serde_json::from_str(&last_accounting.expect("an ICN led to the end")).unwrap();
    assert_eq!(last["books"]["complete"], TFS, "{last:#}");
    assert_eq!(last["books"]["balanced"], true, "{last:#}");
}

#[test]
fn with_zookeeper_one_of_two_icns_may_die() {
    if let Err(missing) = sheaf_zookeeper::server::Home::find() {
        println!("skipped: {missing}");
        return;
    }
    let line = "--membership zookeeper --rate 100 --orbits-per-tf 4 --duration 4s --kill icn:0@1s";
    let summary = demo(line);
    summary.assert_nothing_lost();
    assert_eq!(summary.0["membership"], "zookeeper");
    assert_eq!(summary.count("icns"), 2);
    let leaders = summary.0["leaders"].as_array().unwrap();
    assert_ne!(
        leaders.last().unwrap()["icn"],
        summary.0["faults"][0]["node"],
        "{leaders:#?}"
    );
}
