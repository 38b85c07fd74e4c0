//! Farms whose nodes move STFs with several threads, and the benchmark of those.

use crate::harness::{demo, sheaf};

#[test]
fn nodes_with_threads_for_data_lose_nothing_when_one_dies() {
    for words in [
        "--rate 200 --timeframes 500 --kill epn:1@1s --start epn:1@2s",
        "--tls --rate 200 --timeframes 400 --kill epn:2@1s",
        "--push granted --tls=crc-only --rate 200 --timeframes 400 --pause epn:0@1s+300ms",
    ] {
        let summary = demo(&format!("--threads 2 {words}"));
        summary.assert_nothing_lost();
        assert!(summary.count("announced") >= 400, "{words}");
    }
}

#[test]
fn writers_with_threads_for_data_write_every_tf() {
    let folder = tempfile::tempdir().unwrap();
    let sink = format!("streams:{}", folder.path().display());
    let summary = demo(&format!(
        "--threads 3 --writers 1 --sink {sink} --rate 100 --timeframes 200"
    ));
    summary.assert_nothing_lost();
    assert_eq!(summary.count("complete"), 200);
}

#[test]
fn every_number_of_threads_is_measured_with_every_size() {
    let words = "bench threads --size 10000 --size 200000 --rounds 2 --seconds 0.05 --json -";
    let ended = sheaf(&words.split_whitespace().collect::<Vec<_>>());
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let report: serde_json::Value =
        serde_json::from_str(&ended.stdout.join("\n")).expect("JSON alone");
    let rows = report["rows"].as_array().expect("rows");
    let named: Vec<(u64, u64)> = rows
        .iter()
        .map(|row| {
            let of = |key: &str| row[key]["median"].as_f64().expect(key);
            assert!(of("gb_per_s") > 0.0 && of("cpu_s_per_gb") > 0.0, "{row}");
            assert_eq!(row["ratio"]["n"], 2, "{row}");
            let is_first = row["threads"] == 1;
            assert!(!is_first || of("ratio") == 1.0, "{row}");
            let count = |key: &str| row[key].as_u64().expect(key);
            (count("bytes"), count("threads"))
        })
        .collect();
    assert_eq!(
        named,
        [(10_000, 1), (10_000, 2), (200_000, 1), (200_000, 2)]
    );
    assert!(ended.stderr.contains("CPU s/GB"), "{}", ended.stderr);
}

#[test]
fn a_number_of_threads_that_there_is_not_is_refused() {
    for (words, told) in [
        ("demo --threads 0", "found `0`, expected 1 to 64 or auto"),
        ("bench threads --threads 65", "65 is not in 1..=64"),
        (
            "bench threads --seconds 0",
            "found `0`, expected seconds from 0.01 to 3600",
        ),
    ] {
        let ended = sheaf(&words.split_whitespace().collect::<Vec<_>>());
        assert_eq!(ended.status.code(), Some(2), "{words}");
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
    let ended = sheaf(&[
        "bench",
        "threads",
        "--rounds",
        "1",
        "--seconds",
        "0.05",
        "--congestion",
        "none-such",
    ]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("no congestion control none-such"),
        "{}",
        ended.stderr
    );
}
