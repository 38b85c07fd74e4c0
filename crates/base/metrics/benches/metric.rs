//! Benchmark: cost of counting.
//!
//! Workload: values of every magnitude from a fixed sequence; unit: additions and records a second of
//! each thread, one and two on one metric, time per scrape of 200 counters and 20 histograms, and
//! per quantile. `cargo bench --profile ci -p sheaf-metrics` measures;
//! under `cargo test` every bench runs once, on a few values. The checksum tells whether two runs did
//! the same work.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use sheaf_metrics::{Counter, Gauge, Histogram, Registry, Scale};

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

/// Additions in one sample of a bench: so many that threads which start together do meet.
const ADDITIONS: usize = 200_000;

/// One counter, one thread or two of them.
#[divan::bench(threads = [1, 2])]
fn count(bencher: Bencher<'_, '_>) {
    let counter = Counter::default();
    bencher.counter(ItemsCount::new(ADDITIONS)).bench(|| {
        for _ in 0..ADDITIONS {
            black_box(&counter).increment();
        }
    });
}

/// The same with the crate `prometheus`, bound to its labels beforehand.
#[divan::bench(threads = [1, 2])]
fn count_by_prometheus(bencher: Bencher<'_, '_>) {
    let options = prometheus::Opts::new("bench_total", "Things.");
    let family = prometheus::IntCounterVec::new(options, &["index"]).expect("a legal name");
    let counter = family.with_label_values(&["0"]);
    bencher.counter(ItemsCount::new(ADDITIONS)).bench(|| {
        for _ in 0..ADDITIONS {
            black_box(&counter).inc();
        }
    });
}

/// One gauge that threads change.
#[divan::bench(threads = [1, 2])]
fn change(bencher: Bencher<'_, '_>) {
    let gauge = Gauge::default();
    bencher.counter(ItemsCount::new(ADDITIONS)).bench(|| {
        for change in 0..ADDITIONS as i64 {
            black_box(&gauge).add(change);
        }
    });
}

/// One gauge that threads set.
#[divan::bench(threads = [1, 2])]
fn set(bencher: Bencher<'_, '_>) {
    let gauge = Gauge::default();
    bencher.counter(ItemsCount::new(ADDITIONS)).bench(|| {
        for value in 0..ADDITIONS as i64 {
            black_box(&gauge).set(value);
        }
    });
}

#[divan::bench(threads = [1, 2])]
fn record(bencher: Bencher<'_, '_>) {
    let values = values();
    let registry = Registry::default();
    let histogram = registry.histogram("bench_seconds", "Times.", &[], Scale::DURATION_NS);
    bencher.counter(ItemsCount::new(values.len())).bench(|| {
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
