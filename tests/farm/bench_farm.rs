//! `sheaf bench farm` under each protection: the farm, the pair beside it, and the report.

use crate::harness::farm_turn;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

#[test]
fn a_farm_is_measured_in_the_clear_and_under_tls() {
    let _turn = farm_turn();
    let sheaf = Path::new(env!("CARGO_BIN_EXE_sheaf"));
    let folder = sheaf.parent().expect("a program is in a folder");
    if !folder.join("plain_tcp").exists() {
        println!("skipped: no plain_tcp in {}", folder.display());
        return;
    }
    let mut command = Command::new(sheaf);
    command.args(["bench", "farm", "--pairs", "1", "--seconds", "0.3"]);
    command.args(["--warm-up-seconds", "0.1", "--stf-bytes", "100000"]);
    command.args(["--security", "plain", "--security", "tls"]);
    command.args(["--security", "crc-only", "--pin=false", "--json", "-"]);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<&str> = rows
        .iter()
        .map(|row| row["security"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["plain", "tls", "crc-only"]);
    for row in rows {
        assert!(row["farm"]["gb_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["plain"]["gb_per_s"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["trusted"], false, "{row}");
    }
}
