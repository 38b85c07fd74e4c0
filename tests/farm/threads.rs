//! Farms whose nodes move STFs with several threads, and the benchmark of those.

use crate::guest::{Guest, TWO_SIDES};
use crate::harness::{PROGRAM, Running, demo, farm_turn, free_address, sheaf, write};
use crate::serving::can_run;
use sheaf_testbed::namespace::Namespace;
use std::process::Command;

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

/// Runs in the guest of `memory_lies_beside_the_threads_of_data_in_a_guest`, and on any machine with processors 0 and
/// 1 at memory nodes 0 and 1.
#[test]
#[ignore = "needs two memory nodes, with processor 0 at the first and 1 at the second"]
fn memory_lies_beside_the_threads_of_data() {
    let _turn = farm_turn();
    let folder = tempfile::tempdir().unwrap();
    let icn = free_address();
    let text = format!(
        "[run]\nflps = 1\nepns = 2\ntimeframes = 50\n[node]\nthreads = 2\n[icn]\naddress = \"{icn}\"\n\
         [flp]\nhold_bytes = 67108864\nrate_hz = 500.0\nstf_bytes_max = 1048576\n\
         [flp.source]\nkind = \"generator\"\nbytes_mean = 10000\n\
         [epn.build]\ncapacity_bytes = 67108864\n\
         [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
         [transport]\ncongestion = \"\"\nshared_memory = false\n"
    );
    let config = write(folder.path(), "farm.toml", &text);
    let start =
        |words: &[&str]| Running::start(&[&["run"][..], words, &["--config", &config]].concat());
    let icn = start(&["icn"]);
    let right_epn = start(&["epn", "--index", "0", "--data-cpus", "1"]);
    let both_epn = start(&["epn", "--index", "1", "--data-cpus", "0,1"]);
    let flp = start(&["flp", "--index", "0", "--data-cpus", "0,1"]);
    let shares = |node: Running| {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
        let (_, rest) = (ended.stderr)
            .split_once("Memory of the arena by memory node")
            .unwrap_or_else(|| panic!("{}", ended.stderr));
        let line = rest.lines().next().unwrap();
        let (_, map) = line.split_once("bytes={").unwrap();
        let map = map.split('}').next().unwrap();
        let mut shares = [0, 0];
        for (node, bytes) in map.split(", ").map(|pair| pair.split_once(": ").unwrap()) {
            shares[node.parse::<usize>().unwrap()] = bytes.parse::<u64>().unwrap();
        }
        shares
    };
    let [left, right] = shares(right_epn);
    assert!(right >= 64 << 20 && left * 50 < right, "{left} {right}");
    let [left, right] = shares(both_epn);
    assert!(left.abs_diff(right) * 10 < right, "{left} {right}");
    let ended = flp.end();
    assert!(ended.status.success(), "{}", ended.stderr);
    let words = "Memory lies beside the threads of data memory_nodes={0, 1} cpus=0-1";
    assert!(ended.stderr.contains(words), "{}", ended.stderr);
    assert!(icn.end().status.success());
}

#[test]
fn memory_lies_beside_the_threads_of_data_in_a_guest() {
    let test = "memory_lies_beside_the_threads_of_data_in_a_guest";
    let inside = "threads::memory_lies_beside_the_threads_of_data";
    Guest::run_or_skip(&TWO_SIDES, test, inside);
}

/// Two links between a machine with FLPs and one with EPNs that have an address on each.
#[test]
fn two_cards_share_the_stfs_of_one_flp_with_several_threads() {
    let test = "two_cards_share_the_stfs_of_one_flp_with_several_threads";
    if !can_run(test) {
        return;
    }
    let _turn = farm_turn();
    let (left, right) = (Namespace::make().unwrap(), Namespace::make().unwrap());
    for (namespace, card, last) in [(&left, 1, 1), (&left, 2, 1), (&right, 1, 2), (&right, 2, 2)] {
        let holder = right.holder();
        let cable = format!("link add card{card} type veth peer name card{card} netns {holder}\n");
        let cable = if last == 1 { cable } else { String::new() };
        let lines = format!(
            "{cable}link set lo up\naddr add 10.77.{card}.{last}/24 dev card{card}\nlink set card{card} up\n"
        );
        namespace.ip(&lines).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let text = "[run]\nflps = 1\nepns = 2\ntimeframes = 200\n[node]\nthreads = 2\n\
                [icn]\naddress = \"10.77.1.1:7070\"\n[security]\ninsecure = true\n\
                [flp]\nhold_bytes = 134217728\nrate_hz = 200.0\nstf_bytes_max = 1048576\n\
                [flp.source]\nkind = \"generator\"\nbytes_mean = 200000\n\
                [epn]\nlisten = \"10.77.1.2:0\"\nlisten_also = [\"10.77.2.2:0\"]\n\
                [epn.build]\ncapacity_bytes = 67108864\n\
                [icn.scheduler]\nstf_bytes_max = 1048576\ntf_bytes_max = 4194304\n\
                [transport]\ncongestion = \"\"\nhuge_pages = false\n";
    let config = write(folder.path(), "farm.toml", text);
    let inside = |namespace: &Namespace| {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", namespace.holder()));
        command
    };
    let start = |namespace: &Namespace, words: &str| {
        let mut command = inside(namespace);
        command.args([PROGRAM, "run"]).args(words.split(' '));
        command.args(["--config", &config]);
        Running::of(command)
    };
    let icn = start(&left, "icn --status-ms 100");
    let nodes = [
        start(&right, "epn --index 0"),
        start(&right, "epn --index 1"),
        start(&left, "flp --index 0"),
    ];
    for node in nodes {
        let ended = node.end();
        assert!(ended.status.success(), "{}", ended.stderr);
    }
    let ended = icn.end();
    let books = ended.stdout.iter().rfind(|line| line.contains("\"books\""));
    let last: serde_json::Value = serde_json::from_str(books.unwrap()).unwrap();
    assert_eq!(last["books"]["complete"], 200, "{last:#}");
    assert_eq!(last["books"]["balanced"], true, "{last:#}");
    let counts = inside(&right)
        .args(["cat", "/proc/net/dev"])
        .output()
        .unwrap();
    let counts = String::from_utf8(counts.stdout).unwrap();
    let received = |card: &str| {
        let line = counts
            .lines()
            .find_map(|line| line.trim().strip_prefix(card));
        let bytes = line.unwrap().split_whitespace().next().unwrap();
        bytes.parse::<u64>().unwrap()
    };
    let (one, two) = (received("card1:"), received("card2:"));
    // 40 MB in all; each EPN gets its half over a card of its own.
    assert!(one > 8_000_000 && two > 8_000_000, "{one} {two}");
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
