//! Benchmark of queries over a store in memory.
//!
//! Questions: how long do the average of 1 min over 1 h take for one series, and for 1,000 hosts summed to one line,
//! with samples every second and with buckets of 10 s and of 1 min; how long does a rate by job. Unit: time per query,
//! parsing and selection included. Aim on one core: 1 ms for one series, 10 ms for 1,000 hosts with buckets.
//! `cargo bench --profile ci -p sheaf-query` measures; under `cargo test` every bench runs once on less data. The
//! checksum tells whether two runs did the same work.

use divan::{Bencher, black_box};
use sheaf_query::{Memory, Options, Query, Range, Value};
use sheaf_samples::{Labels, Sample};
use std::sync::Arc;

const HOUR_MS: i64 = 3_600_000;

fn main() {
    let hosts = hosts();
    for level_ms in LEVELS {
        let memory = memory(hosts, level_ms);
        let sum = run(&memory, QUERIES[1]);
        println!("query: {hosts} hosts, buckets of {level_ms} ms, checksum {sum:016x}");
    }
    divan::main();
}

/// Lengths of buckets; 0: samples.
const LEVELS: [i64; 3] = [0, 10_000, 60_000];

const QUERIES: [&str; 3] = [
    "avg_over_time(load{host=\"7\"}[1m])",
    "sum(avg_over_time(load[1m]))",
    "sum by (rack) (rate(load[5m]))",
];

fn hosts() -> usize {
    if std::env::args().any(|arg| arg == "--bench") {
        1000
    } else {
        10
    }
}

/// One sample a second for one hour and the window before it.
fn memory(hosts: usize, level_ms: i64) -> Memory {
    let mut memory = if level_ms == 0 {
        Memory::new()
    } else {
        Memory::with_buckets(level_ms)
    };
    for host in 0..hosts {
        let pairs = [
            ("__name__", "load".to_owned()),
            ("host", host.to_string()),
            ("rack", (host / 40).to_string()),
        ];
        let labels = Arc::new(Labels::new(pairs).expect("three names"));
        for second in -300..=3_600 {
            let value = f64::from((second * 7 + host as i32) % 100) / 10.0;
            let at_ms = i64::from(second) * 1000;
            memory.insert(&labels, Sample { at_ms, value });
        }
    }
    memory
}

fn run(memory: &Memory, text: &str) -> u64 {
    let options = Options::default();
    let range = Range {
        from_ms: 60_000,
        to_ms: HOUR_MS,
        step_ms: 60_000,
    };
    let query = Query::parse(black_box(text), &options).expect("PromQL");
    let answer = query.range(memory, range, &options).expect("a value");
    let Value::Matrix(lines) = answer.value else {
        panic!("a range has a matrix")
    };
    let values = lines.iter().flat_map(|line| &line.samples);
    values.fold(0, |sum: u64, sample| {
        sum.rotate_left(7) ^ sample.value.to_bits()
    })
}

#[divan::bench(args = LEVELS)]
fn one_series(bencher: Bencher<'_, '_>, level_ms: i64) {
    let memory = memory(hosts(), level_ms);
    bencher.bench(|| run(&memory, QUERIES[0]));
}

#[divan::bench(args = LEVELS)]
fn all_hosts_to_one_line(bencher: Bencher<'_, '_>, level_ms: i64) {
    let memory = memory(hosts(), level_ms);
    bencher.bench(|| run(&memory, QUERIES[1]));
}

#[divan::bench]
fn rate_by_rack(bencher: Bencher<'_, '_>) {
    let memory = memory(hosts(), 0);
    bencher.bench(|| run(&memory, QUERIES[2]));
}
