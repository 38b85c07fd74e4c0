//! Benchmark of the samples that one intake takes in a second: decoded, looked up, held against the bounds, counted.
//!
//! Workload: 100,000 series of 100 metrics and 1,000 hosts, each host a source, all known; one field a line, 1, 10 and
//! 50 lines a datagram, a datagram from each host in turn; `new` is the first sight of all series. Unit: samples a
//! second. Aim: above 3 million at 10 a datagram on one core of 2020s server hardware. `cargo bench --profile ci -p
//! sheaf-intake` measures; under `cargo test` every bench runs once.

use core::net::IpAddr;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use sheaf_intake::{Batch, Intake, IntakeConfig, Peer, Protocol};
use sheaf_samples::wire::line_protocol::Precision;

const HOSTS: usize = 1_000;
const METRICS: usize = 100;
const NOW_MS: i64 = 1_700_000_000_000;

fn main() {
    let mut bench = Bench::new(10);
    let taken = [bench.round(), bench.round()];
    assert_eq!(taken, [HOSTS * METRICS; 2]);
    println!(
        "intake: {} series, {:?}",
        HOSTS * METRICS,
        bench.intake.sizes()
    );
    divan::main();
}

struct Bench {
    intake: Intake,
    out: Batch,
    datagrams: Vec<(Peer, Vec<u8>)>,
}

impl Bench {
    fn new(lines: usize) -> Self {
        let line = |metric: usize, host: usize| {
            let value = (metric * 7 + host) % 1000;
            format!(
                "metric_{metric:02},detector=TPC,host=flp{host:04},role=readout value={value}.5 {NOW_MS}000000\n"
            )
        };
        let mut datagrams = Vec::new();
        for first in (0..METRICS).step_by(lines) {
            for host in 0..HOSTS {
                let all = first..(first + lines).min(METRICS);
                let text: String = all.map(|metric| line(metric, host)).collect();
                let peer = Peer {
                    address: IpAddr::from([10, 0, (host / 250) as u8, (host % 250) as u8]),
                    stream: 4000,
                };
                datagrams.push((peer, text.into_bytes()));
            }
        }
        Self {
            intake: Intake::new(IntakeConfig::default()),
            out: Batch::default(),
            datagrams,
        }
    }

    /// Takes every datagram once; returns the samples taken.
    fn round(&mut self) -> usize {
        let protocol = Protocol::Lines(Precision::Ns);
        let mut taken = 0;
        for (peer, bytes) in &self.datagrams {
            let out = &mut self.out;
            self.intake
                .handle_datagram(NOW_MS, *peer, protocol, black_box(bytes), out);
            if out.samples.len() >= 1_000 {
                taken += out.samples.len();
                out.clear();
            }
        }
        taken += self.out.samples.len();
        self.out.clear();
        taken
    }
}

#[divan::bench(args = [1, 10, 50])]
fn known(bencher: Bencher<'_, '_>, lines: usize) {
    let mut bench = Bench::new(lines);
    bench.round();
    bencher
        .counter(ItemsCount::new(HOSTS * METRICS))
        .bench_local(|| bench.round());
}

#[divan::bench(args = [10], sample_count = 10)]
fn new(bencher: Bencher<'_, '_>, lines: usize) {
    bencher
        .counter(ItemsCount::new(HOSTS * METRICS))
        .with_inputs(|| Bench::new(lines))
        .bench_local_values(|mut bench| {
            bench.round();
            bench
        });
}
