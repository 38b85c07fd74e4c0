//! Benchmark: the CRC-32C of payloads, by size and by where their bytes are, and XXH3 beside it.
//!
//! Workload: one buffer again and again (`warm`: in the caches if it fits), slices of 256 MiB one after the other
//! (`cold`: in memory), and the same slices whose buffer was digested before (`sliced`: only their ends are read);
//! `copied` copies slices to a buffer and takes their digest on the way, `copied_then` takes it afterwards.
//! Unit: bytes a second of payload. `cargo bench --profile ci -p sheaf-protocol --bench digest` measures; under
//! `cargo test` every bench runs once. The checksum tells whether two runs did the same work.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use sheaf_protocol::{SliceDigests, copy_digested, crc32c, crc32c_kernel};
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_64;

const SIZES: [usize; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];

/// More than any cache that a virtual processor has for itself.
const POOL_BYTES: usize = 256 << 20;

static POOL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let words = (0..POOL_BYTES as u64 / 8).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    words.flat_map(u64::to_le_bytes).collect()
});

fn main() {
    let sums = SIZES.map(|bytes| crc32c(&POOL[..bytes]));
    let checksum = sums
        .iter()
        .fold(0, |sum: u32, next| sum.rotate_left(7) ^ next);
    println!(
        "digest: kernel {}, checksum {checksum:08x}",
        crc32c_kernel()
    );
    divan::main();
}

/// Gives slices of the pool one after the other, each some bytes beyond a multiple of 64.
fn slices(bytes: usize) -> impl FnMut() -> std::ops::Range<usize> {
    let mut at = 0;
    move || {
        if at + bytes + 64 > POOL_BYTES {
            at = 0;
        }
        let slice = at + 64..at + 64 + bytes;
        at += bytes;
        slice
    }
}

/// Takes the digest of one buffer again and again.
fn again<D>(bencher: Bencher<'_, '_>, bytes: usize, digest: impl Fn(&[u8]) -> D + Sync) {
    let payload = &POOL[..bytes];
    bencher
        .counter(BytesCount::new(bytes))
        .bench(|| digest(black_box(payload)));
}

/// Takes the digests of slices, one after the other.
fn in_turn<D>(bencher: Bencher<'_, '_>, bytes: usize, digest: impl Fn(&[u8]) -> D) {
    let mut next = slices(bytes);
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| digest(black_box(&POOL[next()])));
}

#[divan::bench(args = SIZES)]
fn warm(bencher: Bencher<'_, '_>, bytes: usize) {
    again(bencher, bytes, crc32c);
}

#[divan::bench(args = SIZES)]
fn cold(bencher: Bencher<'_, '_>, bytes: usize) {
    in_turn(bencher, bytes, crc32c);
}

#[divan::bench(args = SIZES)]
fn xxh3_warm(bencher: Bencher<'_, '_>, bytes: usize) {
    again(bencher, bytes, xxh3_64);
}

#[divan::bench(args = SIZES)]
fn xxh3_cold(bencher: Bencher<'_, '_>, bytes: usize) {
    in_turn(bencher, bytes, xxh3_64);
}

#[divan::bench(args = SIZES)]
fn copied(bencher: Bencher<'_, '_>, bytes: usize) {
    let (mut next, mut place) = (slices(bytes), vec![0; bytes]);
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| copy_digested(&mut place, [black_box(&POOL[next()])]));
}

#[divan::bench(args = SIZES)]
fn copied_then(bencher: Bencher<'_, '_>, bytes: usize) {
    let (mut next, mut place) = (slices(bytes), vec![0; bytes]);
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        place.copy_from_slice(black_box(&POOL[next()]));
        crc32c(black_box(&place))
    });
}

#[divan::bench(args = SIZES)]
fn sliced(bencher: Bencher<'_, '_>, bytes: usize) {
    let digests = SliceDigests::new(&POOL);
    let mut next = slices(bytes);
    bencher
        .counter(BytesCount::new(bytes))
        .bench_local(|| digests.of(black_box(&POOL), next()));
}
