//! `sheaf bench transport` with few and small messages: every process, the network, and the report.

use crate::harness::farm_turn;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs it; the report, or `None` if there is no `plain_tcp` beside the program.
fn bench(words: &str) -> Option<Value> {
    let _turn = farm_turn();
    let sheaf = Path::new(env!("CARGO_BIN_EXE_sheaf"));
    let folder = sheaf.parent().expect("a program is in a folder");
    if !folder.join("plain_tcp").exists() {
        println!("skipped: no plain_tcp in {}", folder.display());
        return None;
    }
    let files = tempfile::tempdir().unwrap();
    let (json, html) = (files.path().join("a.json"), files.path().join("a.html"));
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tools/peers/bin");
    let mut command = Command::new(sheaf);
    command.args(["bench", "transport", "--pairs", "1", "--seconds", "0.1"]);
    command.args(["--warm-up-seconds", "0.05", "--pool-bytes", "8388608"]);
    command.args(words.split_whitespace());
    command.arg("--json").arg(&json).arg("--html").arg(&html);
    command.arg("--peers-dir").arg(peers);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {told}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("<svg") && page.ends_with("</body></html>\n"));
    Some(serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap())
}

/// Every row has a rate, lost nothing, and says that a run as short as this is not to be trusted.
fn check(report: &Value, rows_expected: usize) {
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), rows_expected);
    for row in rows {
        assert_eq!(row["skipped"], Value::Null, "{row}");
        assert!(row["mb_per_s"]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["cpu_s_per_gb"].as_f64().unwrap() >= 0.0, "{row}");
        assert!(row["jain"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["lost"], 0, "{row}");
        assert_eq!(row["trusted"], false, "{row}");
        assert!(!row["doubts"].as_array().unwrap().is_empty(), "{row}");
    }
}

#[test]
fn one_sender_and_one_receiver_are_measured_beside_plain_sockets() {
    let words = "--sizes 10000,300000 --transports plain-tcp,sheaf,sheaf-unix";
    let Some(report) = bench(words) else { return };
    check(&report, 6);
}

#[test]
fn many_senders_and_many_receivers_are_measured_whoever_binds() {
    for words in [
        "--shapes 3-1 --binds receiver,sender",
        "--shapes 1-3 --binds receiver,sender",
    ] {
        let words = format!("{words} --sizes 20000 --transports plain-tcp,sheaf");
        let Some(report) = bench(&words) else { return };
        check(&report, 4);
    }
}

#[test]
fn libzmq_is_measured_where_it_is_and_skipped_by_name_where_it_is_not() {
    let Some(report) = bench("--sizes 20000") else {
        return;
    };
    let skipped = report["skipped"].to_string();
    let is_measured = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .any(|row| row["transport"] == "libzmq" && row["mb_per_s"]["median"].is_number());
    if !is_measured {
        println!("skipped: libzmq is not here");
    }
    assert!(
        is_measured != skipped.contains("libzmq: no `libzmq_peer` in"),
        "{report}"
    );
}
