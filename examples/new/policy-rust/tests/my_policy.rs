//! Tests of the policy: its contract, and a live farm of the program.

use my_policy::{MyPolicy, NAME};
use std::process::Command;

#[test]
fn the_contract_of_policies() {
    sheaf_placement::contract::check(|seed| Box::new(MyPolicy::new(seed)));
}

#[test]
fn a_live_farm_loses_nothing() {
    let run = Command::new(env!("CARGO_BIN_EXE_my-policy"))
        .args(["demo", "--policy", NAME, "--source", "generator"])
        .args(["--duration", "2s"])
        .output()
        .expect("the program starts");
    let errors = String::from_utf8_lossy(&run.stderr);
    // The demo recomputes the books from the event logs of all nodes, and fails if something contradicts them.
    assert!(run.status.success(), "{errors}");
    assert!(
        String::from_utf8_lossy(&run.stdout).contains('✔'),
        "{errors}"
    );
}
