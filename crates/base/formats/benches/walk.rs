//! Benchmark of the walk over the pages of raw data.
//!
//! Workload: the pages of 104 MB of a recorded file repeated, followed by their headers only. Unit: bytes per second
//! of input. `cargo bench --profile ci -p sheaf-formats` measures; under `cargo test` the bench runs once. The
//! checksum tells whether two runs did the same work.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate is pure, but its bench data lie in a file"
)]

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use sheaf_formats::Walker;
use sheaf_protocol::crc32c;

fn main() {
    let input = recorded();
    let pages = Walker::new(&input).fold(0, |sum: u32, page| {
        sum.rotate_left(7) ^ crc32c(page.payload)
    });
    println!("walk: 78 pages, checksum {pages:08x}");
    divan::main();
}

fn recorded() -> Vec<u8> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../testdata/alice-its-rdh7/12_links_2hbf.raw"
    );
    std::fs::read(path).expect("the data set lies in the repository")
}

#[divan::bench]
fn walk_104_mb(bencher: Bencher<'_, '_>) {
    let input = recorded().repeat(500);
    bencher
        .counter(BytesCount::new(input.len()))
        .bench_local(|| {
            Walker::new(black_box(&input))
                .map(|page| page.payload.len())
                .sum::<usize>()
        });
}
