//! Benchmark: cost of a sample in the four scenarios of the founding paper, and of new series.
//!
//! Workload: one value a second of each of 100,000 series, in batches of 10,000 whose series lie far apart in memory,
//! and the windows that close meanwhile; half of the values have changed. Unit: time per batch, and samples per
//! second. Aim on one core of 2020s server hardware: 0.1 µs a sample passed through, 0.25 µs with suppression and an
//! average of 1 s. `cargo bench --profile ci -p sheaf-processing` measures; under `cargo test` every bench runs once,
//! on few series. The checksum tells whether two runs did the same work.

use divan::Bencher;
use divan::counter::ItemsCount;
use sheaf_processing::{Output, Pipeline, ProcessingConfig, Role, SeriesHandle};
use sheaf_samples::{Labels, Sample};
use std::fmt;

const SCENARIOS: [Scenario; 6] = [
    Scenario {
        name: "pass-through",
        config: "",
    },
    Scenario {
        name: "edit a field",
        config: "[[operator]]\nkind = 'set'\nlabels = { run = '1' }\n\
            [[operator]]\nkind = 'scale'\nfrom = 'ms'\nto = 's'\n",
    },
    Scenario {
        name: "suppress",
        config: "[[operator]]\nkind = 'on_change'\n",
    },
    Scenario {
        name: "1 s average of each series",
        config: "[[operator]]\nkind = 'window'\nfunctions = ['avg']\nlength_ms = 1000\nconsume = true\n",
    },
    Scenario {
        name: "1 s average by detector",
        config: "[[operator]]\nkind = 'window'\nfunctions = ['avg']\nlength_ms = 1000\nby = ['detector']\nconsume = true\n",
    },
    Scenario {
        name: "suppress and 1 s average",
        config: "[[operator]]\nkind = 'on_change'\n\
            [[operator]]\nkind = 'window'\nfunctions = ['avg']\nlength_ms = 1000\n",
    },
];

fn main() {
    let checksum = SCENARIOS.iter().fold(0_u64, |sum, scenario| {
        let mut stream = Stream::new(*scenario);
        let sum = sum.rotate_left(7);
        (0..30).fold(sum, |sum, _| sum.rotate_left(1) ^ stream.batch())
    });
    println!("processing: {} series, checksum {checksum:016x}", series());
    divan::main();
}

fn is_bench() -> bool {
    std::env::args().any(|arg| arg == "--bench")
}

fn series() -> u32 {
    if is_bench() { 100_000 } else { 1_000 }
}

#[derive(Clone, Copy)]
struct Scenario {
    name: &'static str,
    config: &'static str,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A pipeline with its series, and what it is fed with.
struct Stream {
    pipeline: Pipeline,
    samples: Vec<(SeriesHandle, Sample)>,
    output: Output,
    sent: u64,
}

impl Stream {
    fn new(scenario: Scenario) -> Self {
        let config: ProcessingConfig = toml::from_str(scenario.config).expect("valid");
        let mut pipeline = Pipeline::new(&config, Role::Whole).expect("valid");
        for handle in 0..series() {
            let (host, metric) = (
                format!("flp{}", handle / 100),
                format!("m{}_ms", handle % 100),
            );
            let detector = ["TPC", "ITS", "TRD", "TOF"][handle as usize / 100 % 4];
            let labels = [
                ("__name__", &*metric),
                ("host", &*host),
                ("detector", detector),
            ];
            let labels = Labels::new(labels).expect("each once");
            let registered = pipeline.handle_new_series(0, SeriesHandle(handle), &labels);
            registered.expect("within the bounds");
        }
        Self {
            pipeline,
            samples: Vec::new(),
            output: Output::default(),
            sent: 0,
        }
    }

    /// Passes a tenth of the series through; returns a checksum of what comes out.
    fn batch(&mut self) -> u64 {
        let count = u64::from(series());
        let at_ms = i64::try_from(self.sent * 1000 / count).expect("small");
        self.samples.clear();
        for number in self.sent..self.sent + count / 10 {
            let (round, place) = (number / count, number % count);
            let handle = u32::try_from(place * 7919 % count).expect("a u32 before");
            let value = (u64::from(handle) + round / 2) as f64;
            self.samples
                .push((SeriesHandle(handle), Sample { at_ms, value }));
        }
        self.sent += count / 10;
        self.output.clear();
        self.pipeline
            .handle_samples(at_ms + 5, &self.samples, &mut self.output);
        self.pipeline.poll(at_ms + 10, &mut self.output);
        let values = self.output.samples.iter();
        values.fold(0, |sum: u64, one| {
            sum.wrapping_add(one.sample.value.to_bits())
        })
    }
}

/// All series at once, then a reload.
#[divan::bench(args = SCENARIOS, sample_count = 5)]
fn registration_and_reload(bencher: Bencher<'_, '_>, scenario: Scenario) {
    bencher.counter(ItemsCount::new(series())).bench_local(|| {
        let mut stream = Stream::new(scenario);
        let config = stream.pipeline.config().clone();
        let reloaded = stream.pipeline.reconfigure(0, &config, &mut stream.output);
        reloaded.expect("valid");
        stream.pipeline.series()
    });
}

#[divan::bench(args = SCENARIOS)]
fn samples(bencher: Bencher<'_, '_>, scenario: Scenario) {
    let mut stream = Stream::new(scenario);
    // Every series and the first windows, so that the rest finds everything in place.
    for _ in 0..20 {
        stream.batch();
    }
    let per_batch = ItemsCount::new(series() / 10);
    bencher.counter(per_batch).bench_local(|| stream.batch());
}
