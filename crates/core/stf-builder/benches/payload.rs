//! Benchmark of making and checking the bytes of an FLP.
//!
//! Workloads: one STF of the demo (4 of 12 ITS links, 32 orbits, 1.1 MB, 416 pages), made by the replay into memory
//! that is already there, beside a plain copy of as many bytes; the same STF walked as the `verify` sink walks it.
//! Unit: bytes per second of payload, with headers. `cargo bench --profile ci -p sheaf-stf-builder` measures; under
//! `cargo test` every bench runs once. The checksum tells whether two runs did the same work.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate is pure, but its bench data lie in a file"
)]

use bytes::Bytes;
use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use sheaf_formats::check_stf;
use sheaf_protocol::{PayloadFormat, TfId, crc32c};
use sheaf_stf_builder::{HeapSlots, Made, Replay, ReplayConfig, Share, Slots, StfSource, Template};

fn main() {
    let mut replay = replay();
    let checksum = (0..10).fold(0, |sum: u32, tf| {
        sum.rotate_left(7) ^ crc32c(&stf(&mut replay, tf))
    });
    println!("payload: 10 STFs, checksum {checksum:08x}");
    divan::main();
}

fn recorded() -> Vec<u8> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../testdata/alice-its-rdh7/12_links_2hbf.raw"
    );
    std::fs::read(path).expect("the data set lies in the repository")
}

fn replay() -> Replay {
    let (template, _) = Template::from_pages(&[&recorded()]).expect("it has whole HBFs");
    let share = Share::new(0, 3).expect("0 is below 3");
    Replay::new(&template, ReplayConfig::default(), share).expect("3 FLPs share 12 links")
}

fn stf(replay: &mut Replay, tf: u64) -> Bytes {
    match replay.make(TfId(tf), &mut HeapSlots) {
        Made::Payload(payload) => payload.bytes,
        other => panic!("a replay is endless, got {other:?}"),
    }
}

/// Memory that is reused, as a node's arena is.
struct Reused(Vec<u8>);

impl Slots for Reused {
    fn fill(&mut self, bytes: usize, fill: &mut dyn FnMut(&mut [u8])) -> Option<Bytes> {
        fill(&mut self.0[..bytes]);
        Some(Bytes::new())
    }
}

#[divan::bench]
fn make_stf(bencher: Bencher<'_, '_>) {
    let mut replay = replay();
    let mut slots = Reused(vec![0; bytes_of(&replay)]);
    let mut tf = 0;
    bencher
        .counter(BytesCount::new(bytes_of(&replay)))
        .bench_local(|| {
            tf += 1;
            black_box(replay.make(TfId(tf), &mut slots))
        });
}

#[divan::bench]
fn plain_copy(bencher: Bencher<'_, '_>) {
    let from = stf(&mut replay(), 0);
    let mut to = vec![0; from.len()];
    bencher
        .counter(BytesCount::new(from.len()))
        .bench_local(|| {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        });
}

#[divan::bench]
fn verify_stf(bencher: Bencher<'_, '_>) {
    let payload = stf(&mut replay(), 1);
    bencher
        .counter(BytesCount::new(payload.len()))
        .bench_local(|| check_stf(PayloadFormat::RdhPages, black_box(&payload)));
}

fn bytes_of(replay: &Replay) -> usize {
    usize::try_from(replay.bytes_max()).expect("an STF fits memory")
}
