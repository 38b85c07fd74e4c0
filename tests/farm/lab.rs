//! The lab: a fault done to a farm, its table, and what it leaves on the machine.

use crate::harness::{farm_turn, sheaf};
use serde_json::Value;

/// Folders that experiments of dead processes left among the temporary files.
fn folders_of(pid_prefix: &str) -> Vec<String> {
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(pid_prefix)).collect()
}

#[test]
fn an_epn_is_killed_and_the_table_says_what_came_of_it() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("rows.json");
    let words = ["lab", "faults", "--cell", "epn-kill", "--trials", "2"];
    let json_words = ["--seed", "3", "--json", json.to_str().unwrap()];
    let ended = sheaf(&[&words[..], &json_words].concat());
    let (stdout, stderr) = (ended.stdout.join("\n"), &ended.stderr);
    assert!(stderr.contains("seed 3"), "{stderr}");
    let rows: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let row = &rows[0];
    assert_eq!(row["cell"], "epn-kill", "{rows:#}");
    for (field, expected) in [
        ("injected", 2),
        ("lost", 0),
        ("delivered_twice", 0),
        ("bound_ms", 150),
    ] {
        assert_eq!(row[field], expected, "{field}: {rows:#}");
    }
    assert!(
        row["recover_ms_p99"].is_f64() && row["detect_ms_p99"].is_f64(),
        "{rows:#}"
    );
    // How fast it is depends on who shares the processors; that the accounting is right does not.
    let problems = row["problems"].as_array().unwrap();
    assert_eq!(row["late"], problems.len(), "{rows:#}\n{stdout}\n{stderr}");
    assert_eq!(ended.status.success(), row["ok"] == true, "{rows:#}");
}

#[test]
fn a_cell_that_does_not_exist_is_refused_with_those_that_do() {
    let ended = sheaf(&["lab", "faults", "--cell", "meteor"]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    assert!(
        ended
            .stderr
            .contains("cell \"meteor\" does not exist, expected one of: epn-kill"),
        "{}",
        ended.stderr
    );
}

#[test]
fn the_list_names_every_cell_and_needs_nothing() {
    let ended = sheaf(&["lab", "faults", "--list"]);
    assert!(ended.status.success(), "{}", ended.stderr);
    let quick = ended.stdout.iter().filter(|line| line.contains(" quick "));
    assert_eq!(quick.count(), 10, "{:#?}", ended.stdout);
}

#[test]
fn what_a_killed_experiment_left_is_removed_by_name() {
    // No process has this id.
    let left = std::env::temp_dir().join("sheaf-lab-4294967295-0");
    std::fs::create_dir_all(left.join("epn-0")).unwrap();
    let ended = sheaf(&["lab", "faults", "--clean"]);
    assert!(ended.status.success(), "{}", ended.stderr);
    let told = ended.stdout.join("\n");
    // An experiment of another test may have been faster.
    assert!(
        !left.exists() && (told.contains("sheaf-lab-4294967295-0") || told.is_empty()),
        "{told}"
    );
    assert_eq!(folders_of("sheaf-lab-4294967295"), Vec::<String>::new());
}
