//! Benchmark of the lines that are decoded in a second.
//!
//! Workload: 100,000 series of 100 metrics and 1,000 hosts with two more tags, values as in the founding paper (a third
//! each of doubles with 5 decimals, integers and on/off), time in ns, about 80 bytes a line; 1, 10 and 50 lines a
//! datagram. Unit: lines a second. Aim: above 5 million on one core of 2020s server hardware. `cargo bench --profile ci
//! -p sheaf-samples` measures; under `cargo test` every bench runs once. The checksum tells whether two runs did the
//! same.

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use sheaf_samples::wire::line_protocol::Decoder;

const SERIES: usize = 100_000;

fn main() {
    let sum: f64 = inputs(10)
        .iter()
        .map(|input| decode(&mut Decoder::default(), input))
        .sum();
    println!("line protocol: {SERIES} lines, checksum {sum}");
    divan::main();
}

/// Lines of all series, `lines` an input.
fn inputs(lines: usize) -> Vec<Vec<u8>> {
    let line = |index: usize| {
        let (metric, host) = (index % 100, index / 100);
        let value = match index % 3 {
            0 => format!("{:.5}", (index as f64 * 0.618_034).fract() * 100.0),
            1 => format!("{}i", index % 100 + 1),
            _ => format!("{}i", index / 3 % 2),
        };
        let at = 1_700_000_000_000_000_000 + index * 1_000;
        format!(
            "metric_{metric:02},detector=TPC,host=flp{host:04},role=readout value={value} {at}\n"
        )
    };
    let all: Vec<String> = (0..SERIES).map(line).collect();
    all.chunks(lines)
        .map(|chunk| chunk.concat().into_bytes())
        .collect()
}

fn decode(decoder: &mut Decoder, input: &[u8]) -> f64 {
    let mut lines = decoder.lines(input);
    let mut sum = 0.0;
    while let Some(line) = lines.next_line() {
        let line = line.expect("the bench writes good lines");
        sum += line.series.len() as f64;
        sum += line
            .fields()
            .filter_map(|field| field.value.number())
            .sum::<f64>();
    }
    sum
}

#[divan::bench(args = [1, 10, 50])]
fn lines(bencher: Bencher<'_, '_>, lines: usize) {
    let inputs = inputs(lines);
    let mut decoder = Decoder::default();
    let bytes: usize = inputs.iter().map(Vec::len).sum();
    bencher
        .counter(ItemsCount::new(SERIES))
        .counter(BytesCount::new(bytes))
        .bench_local(|| {
            inputs
                .iter()
                .map(|input| decode(&mut decoder, black_box(input)))
                .sum::<f64>()
        });
}
