//! The farm of containers in deploy/oci: its files fit together.

use crate::harness::{Running, sheaf};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Folder of the files.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy/oci");

#[test]
fn each_node_of_the_farm_of_containers_is_a_service_whose_command_is_one() {
    let test = "each_node_of_the_farm_of_containers_is_a_service_whose_command_is_one";
    let farm = format!("{FOLDER}/farm.toml");
    sheaf(&["config", "check", &farm]).ok(&["config", "check"]);
    if !Path::new("/usr/bin/docker-compose").is_file() {
        eprintln!("{test} skipped: needs `docker-compose` (Debian package docker-compose)");
        return;
    }
    let mut command = Command::new("/usr/bin/docker-compose");
    command.args(["--file", &format!("{FOLDER}/compose.yaml"), "config"]);
    let composed = Running::of(command).end().ok(&["docker-compose", "config"]);
    let shown = sheaf(&["config", "show", &farm, "--json"]).ok(&["config", "show"]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    let addresses = shown["icn"]["addresses"].as_array().expect("addresses");
    let count = |role: &str| shown["run"][role].as_u64().expect("a number");
    let icns = u64::try_from(addresses.len()).expect("a few");
    for (role, nodes) in [
        ("icn", icns),
        ("flp", count("flps")),
        ("epn", count("epns")),
    ] {
        for index in 0..nodes {
            let words = format!("command: run {role} --config /farm.toml --index {index} ");
            assert!(composed.contains(&words), "{words} is not in:\n{composed}");
        }
        let beyond = format!("command: run {role} --config /farm.toml --index {nodes}");
        assert!(!composed.contains(&beyond), "{beyond} is in:\n{composed}");
    }
    for address in addresses {
        let listens = format!("--listen {} ", address.as_str().expect("an address"));
        assert!(
            composed.contains(&listens),
            "{listens} is not in:\n{composed}"
        );
    }
}
