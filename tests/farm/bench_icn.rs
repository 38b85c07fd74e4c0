//! `sheaf bench icn` with few TFs: a process a row, and the report.

use crate::harness::sheaf;

#[test]
fn each_policy_has_a_row_with_each_farm() {
    let words = "bench icn --shape 3x8 --shape 10x100 --policy round-robin --policy least-loaded \
                 --tfs 10 --rounds 2 --json -";
    let ended = sheaf(&words.split_whitespace().collect::<Vec<_>>());
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let report: serde_json::Value =
        serde_json::from_str(&ended.stdout.join("\n")).expect("JSON alone");
    let rows = report["rows"].as_array().expect("rows");
    let named: Vec<(&str, u64)> = rows
        .iter()
        .map(|row| {
            let of = |key: &str| row[key].as_f64().expect(key);
            assert!(of("tfs_per_s") > 0.0 && of("announces_per_s") > of("tfs_per_s"));
            assert!(row["decision_us"]["p50"].as_f64() > Some(0.0), "{row}");
            let epns = row["epns"].as_u64().expect("a count");
            assert_eq!(row["open_tfs"].as_u64(), Some(epns / 2), "{row}");
            (row["policy"].as_str().expect("a name"), epns)
        })
        .collect();
    let expected = [
        ("round-robin", 8),
        ("least-loaded", 8),
        ("round-robin", 100),
        ("least-loaded", 100),
    ];
    assert_eq!(named, expected);
    assert!(ended.stderr.contains("announces/s"), "{}", ended.stderr);
}

#[test]
fn defaults_are_farms_and_policies_that_there_are() {
    let ended = sheaf(&["bench", "icn", "--policy", "best"]);
    assert_eq!(ended.status.code(), Some(2));
    let told = "policy `best`, expected one of fixed, random, round-robin";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
    let ended = sheaf(&["bench", "icn", "--shape", "250"]);
    assert_eq!(ended.status.code(), Some(2));
    let told = "found `250`, expected FLPs x EPNs, 1 to 20000 each";
    assert!(ended.stderr.contains(told), "{}", ended.stderr);
}
