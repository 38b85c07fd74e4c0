//! Benchmark: cost of counting.
//!
//! Workload: values of every magnitude from a fixed sequence; unit: time per record, per scrape of
//! 200 counters and 20 histograms, and per quantile. `cargo bench --profile ci -p sheaf-metrics` measures;
//! under `cargo test` every bench runs once, on a few values. The checksum tells whether two runs did
//! the same work.

use divan::{Bencher, black_box};
use sheaf_metrics::{Counter, Histogram, Registry, Scale};

fn main() {
    let values = values();
    let histogram = Histogram::default();
    values.iter().for_each(|value| histogram.record(*value));
    let snapshot = histogram.snapshot();
    let text = registry(&values);
    let checksum = text.bytes().fold(snapshot.quantile(0.99), |sum, byte| {
        sum.rotate_left(5).wrapping_add(u64::from(byte))
    });
    println!("metric: {} values, checksum {checksum:016x}", values.len());
    divan::main();
}

/// A fixed sequence (Knuth's 64-bit linear congruential generator): many values for a measurement,
/// few for a test.
fn values() -> Vec<u64> {
    let count = if std::env::args().any(|arg| arg == "--bench") {
        4096
    } else {
        64
    };
    let mut state = 1_u64;
    let value = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> (24 + state % 32)
    };
    std::iter::repeat_with(value).take(count).collect()
}

/// The text of a registry as large as that of a busy node.
fn registry(values: &[u64]) -> String {
    let registry = filled(values);
    let mut text = String::new();
    registry.encode(&mut text);
    text
}

fn filled(values: &[u64]) -> Registry {
    let registry = Registry::default();
    for index in 0..200 {
        let labels = [("index", index.to_string())];
        let labels = labels
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        registry
            .counter("bench_things_total", "Things.", &labels)
            .add(index);
        if index % 10 == 0 {
            let histogram = registry.histogram(
                "bench_latency_seconds",
                "Latency.",
                &labels,
                Scale::DURATION_NS,
            );
            values.iter().for_each(|value| histogram.record(*value));
        }
    }
    registry
}

#[divan::bench]
fn count_one(bencher: Bencher<'_, '_>) {
    let counter = Counter::default();
    bencher.bench_local(|| black_box(&counter).increment());
}

#[divan::bench(threads = [1, 2])]
fn record(bencher: Bencher<'_, '_>) {
    let values = values();
    let histogram = Histogram::default();
    bencher
        .counter(divan::counter::ItemsCount::new(values.len()))
        .bench(|| {
            for value in &values {
                black_box(&histogram).record(*value);
            }
        });
}

#[divan::bench]
fn quantile(bencher: Bencher<'_, '_>) {
    let histogram = Histogram::default();
    values().iter().for_each(|value| histogram.record(*value));
    let snapshot = histogram.snapshot();
    bencher.bench(|| black_box(&snapshot).quantile(0.99));
}

#[divan::bench]
fn scrape(bencher: Bencher<'_, '_>) {
    let registry = filled(&values());
    bencher
        .with_inputs(String::new)
        .bench_refs(|text| registry.encode(text));
}
