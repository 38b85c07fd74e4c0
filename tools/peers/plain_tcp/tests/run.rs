//! The program as a user starts it: two processes, one line for each size, clear refusals.

use std::process::{Command, Output};

fn plain_tcp(arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plain_tcp"))
        .args(arguments.split_whitespace())
        .output()
        .expect("cargo has built the program")
}

#[test]
fn a_tiny_run_prints_one_json_object_for_each_size() {
    let output = plain_tcp(
        "run --bytes 0 --bytes 10007,65536 --messages 100 --warm-up-seconds 0.001 --pin none \
         --pool-bytes 1000000 --congestion reno --json",
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let lines: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let sizes: Vec<_> = lines
        .iter()
        .map(|line| line["bytes"].as_u64().unwrap())
        .collect();
    assert_eq!(sizes, [0, 10_007, 65_536]);
    for line in &lines {
        assert_eq!(line["messages"], 100);
        assert_eq!(line["congestion"], "reno");
        assert!(line["congestion_refused"].is_null());
        assert!(line["pinned"].is_null());
        assert_eq!(line["batch_bytes"], 262_144);
        assert!(line["cpu_load_sender"].as_f64().unwrap() > 0.0);
        assert!(line["cpu_load_receiver"].as_f64().unwrap() > 0.0);
        assert!(line["seconds"].as_f64().unwrap() > 0.0);
        assert!(line["rss_bytes_max"].as_u64().unwrap() > 2_000_000);
        assert_eq!(line["mb_per_s"].as_f64().unwrap() > 0.0, line["bytes"] != 0);
        assert_eq!(
            line["cpu_s_per_gb"].as_f64().unwrap() > 0.0,
            line["bytes"] != 0
        );
    }
}

#[test]
fn what_cannot_be_run_is_refused_before_anything_starts() {
    for (arguments, message) in [
        (
            "run --bytes 1000 --pool-bytes 1000",
            "does not fit --pool-bytes 1000",
        ),
        ("run --seconds=-1", "--seconds is -1, expected 0 to 3600"),
        ("run --seconds NaN", "--seconds is NaN, expected 0 to 3600"),
        ("run --pin 0", "expected two CPU numbers"),
        ("run --pin 0,1023", "names CPU 1023"),
        ("run --read-bytes 0", "--read-bytes is 0"),
        ("send nonsense", "the description of this side"),
    ] {
        let output = plain_tcp(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments}");
        assert!(stderr.contains(message), "{arguments}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
}
