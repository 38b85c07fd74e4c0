//! Nodes started by hand, in every order of their roles.

use crate::harness::{Running, farm_turn, free_address, write};
use serde_json::Value;

const FLPS: usize = 2;
const EPNS: usize = 3;
const TFS: u64 = 50;

fn farm_file(icn: &str) -> String {
    format!(
        "[run]\nflps = {FLPS}\nepns = {EPNS}\ntimeframes = {TFS}\n\
         [icn]\naddress = \"{icn}\"\n\
         [flp]\nhold_bytes = 16777216\nrate_hz = 500.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 16777216\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n"
    )
}

fn start(role: &str, config: &str) -> Vec<Running> {
    let one = |more: &[&str]| Running::start(&[&["run", role, "--config", config], more].concat());
    let several = |count: usize| -> Vec<Running> {
        (0..count)
            .map(|index| one(&["--index", &index.to_string()]))
            .collect()
    };
    let nodes = match role {
        "icn" => vec![one(&["--status-ms", "100"])],
        "flp" => several(FLPS),
        _ => several(EPNS),
    };
    if role != "flp" {
        nodes
            .iter()
            .for_each(|node| drop(node.await_line("listening")));
    }
    nodes
}

#[test]
fn a_run_begins_and_ends_whatever_was_started_first() {
    let orders = [
        ["icn", "flp", "epn"],
        ["icn", "epn", "flp"],
        ["flp", "icn", "epn"],
        ["flp", "epn", "icn"],
        ["epn", "icn", "flp"],
        ["epn", "flp", "icn"],
    ];
    for order in orders {
        let _turn = farm_turn();
        let folder = tempfile::tempdir().unwrap();
        let config = write(folder.path(), "farm.toml", &farm_file(&free_address()));
        let nodes: Vec<(&str, Running)> = order
            .into_iter()
            .flat_map(|role| {
                start(role, &config)
                    .into_iter()
                    .map(move |node| (role, node))
            })
            .collect();
        for (role, node) in nodes {
            let ended = node.end();
            assert!(ended.status.success(), "{order:?} {role}: {}", ended.stderr);
            let last: Value = serde_json::from_str(ended.stdout.last().unwrap()).unwrap();
            assert_eq!(
                last["exit"]["reason"], "dismissed",
                "{order:?} {role}: {last}"
            );
            assert!(
                !ended.stderr.contains(" ERROR "),
                "{order:?} {role}: {}",
                ended.stderr
            );
            if role == "icn" {
                check_accounting(&ended.stdout);
            }
        }
    }
}

/// The last status of the ICN says that all TFs are complete.
fn check_accounting(lines: &[String]) {
    let mut statuses = lines.iter().filter(|line| line.contains("\"books\""));
    let last: Value = serde_json::from_str(statuses.next_back().unwrap()).unwrap();
    assert_eq!(last["phase"], "over", "{last:#}");
    assert_eq!(last["books"]["complete"], TFS, "{last:#}");
    assert_eq!(last["books"]["balanced"], true, "{last:#}");
}
