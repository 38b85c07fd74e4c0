//! Benchmark: cost of encoding and decoding messages.
//!
//! Workload: announces and assignments in batches of 1, 64 (what an FLP gathers in a millisecond at most) and
//! 8,192 (the longest list), and the prefix and header that stand before every STF, both with the digest of
//! the head. Unit: time a message, and entries or frames a second. Aim on one core of 2020s server hardware: below
//! 10 ns an entry, below 100 ns an STF head. `cargo bench --profile ci -p sheaf-protocol` measures; under `cargo test`
//! every bench runs once. The checksum is the digest of all bytes written: it tells whether two runs, or two
//! versions, write the same.

use divan::{Bencher, black_box, counter::ItemsCount};
use sheaf_protocol::control::{Announced, Assign};
use sheaf_protocol::{
    Attempt, Control, Envelope, EpnId, FlpId, Incarnation, Limits, NodeId, PayloadFormat, Prefix,
    RosterId, RunId, Source, StfHeader, StfKey, Target, Term, TfId, WireKind, crc32c,
};

const ENTRIES: [usize; 3] = [1, 64, Control::ENTRIES_MAX];

const ENVELOPE: Envelope = Envelope {
    minor: 0,
    run: RunId(0x5eaf),
    sender: NodeId::ICN,
    incarnation: Incarnation(3),
    term: Term(1),
    sequence: 1_000_000,
};

const LIMITS: Limits = Limits {
    head_bytes_max: 1 << 20,
    body_bytes_max: 64 << 20,
};

fn main() {
    let mut bytes = Vec::new();
    for entries in ENTRIES {
        bytes.extend(announce(entries).encode(&ENVELOPE));
        bytes.extend(assign(entries).encode(&ENVELOPE));
    }
    bytes.extend(write_stf_head(&stf_header()));
    println!(
        "codec: {} bytes written, checksum {:08x}",
        bytes.len(),
        crc32c(&bytes)
    );
    divan::main();
}

fn announce(entries: usize) -> Control {
    let item = |tf| Announced {
        tf: TfId(1_000_000 + tf),
        bytes: 275_000 + tf,
    };
    Control::Announce((0..entries as u64).map(item).collect())
}

fn assign(entries: usize) -> Control {
    let item = |tf: u64| Assign {
        tf: TfId(1_000_000 + tf),
        attempt: Attempt(1),
        target: Target {
            epn: EpnId((tf % 350) as u16),
            incarnation: Incarnation(1),
        },
        roster: RosterId(1),
    };
    Control::Assign((0..entries as u64).map(item).collect())
}

fn stf_header() -> StfHeader {
    StfHeader {
        key: StfKey {
            run: RunId(0x5eaf),
            tf: TfId(1_000_000),
            source: Source {
                flp: FlpId(7),
                incarnation: Incarnation(1),
            },
        },
        attempt: Attempt(1),
        format: PayloadFormat::RdhPages,
        digest: 0x1234_5678,
        payload_bytes: 275_000,
    }
}

/// Prefix and header as they stand before the payload.
fn write_stf_head(header: &StfHeader) -> [u8; Prefix::SIZE + StfHeader::SIZE] {
    let head = header.encode();
    let prefix = Prefix::new(WireKind::Stf, &head, header.payload_bytes);
    let mut bytes = [0; Prefix::SIZE + StfHeader::SIZE];
    bytes[..Prefix::SIZE].copy_from_slice(&prefix.encode());
    bytes[Prefix::SIZE..].copy_from_slice(&head);
    bytes
}

fn read_stf_head(bytes: &[u8; Prefix::SIZE + StfHeader::SIZE]) -> StfHeader {
    let (prefix, head) = bytes.split_first_chunk().expect("it begins with a prefix");
    let prefix = Prefix::decode(prefix, &LIMITS).expect("written above");
    prefix.check(head).expect("written above");
    StfHeader::decode(head, prefix.body_bytes).expect("written above")
}

fn encode(bencher: Bencher<'_, '_>, control: &Control, entries: usize) {
    let bencher = bencher.counter(ItemsCount::new(entries));
    bencher.bench_local(|| black_box(control).encode(&ENVELOPE));
}

fn decode(bencher: Bencher<'_, '_>, control: &Control, entries: usize) {
    let bytes = control.encode(&ENVELOPE);
    let bencher = bencher.counter(ItemsCount::new(entries));
    bencher.bench_local(|| Control::decode(black_box(&bytes)));
}

#[divan::bench(args = ENTRIES)]
fn encode_announce(bencher: Bencher<'_, '_>, entries: usize) {
    encode(bencher, &announce(entries), entries);
}

#[divan::bench(args = ENTRIES)]
fn decode_announce(bencher: Bencher<'_, '_>, entries: usize) {
    decode(bencher, &announce(entries), entries);
}

#[divan::bench(args = ENTRIES)]
fn encode_assign(bencher: Bencher<'_, '_>, entries: usize) {
    encode(bencher, &assign(entries), entries);
}

#[divan::bench(args = ENTRIES)]
fn decode_assign(bencher: Bencher<'_, '_>, entries: usize) {
    decode(bencher, &assign(entries), entries);
}

#[divan::bench]
fn encode_stf_head(bencher: Bencher<'_, '_>) {
    let header = stf_header();
    let bencher = bencher.counter(ItemsCount::new(1_usize));
    bencher.bench_local(|| write_stf_head(black_box(&header)));
}

#[divan::bench]
fn decode_stf_head(bencher: Bencher<'_, '_>) {
    let bytes = write_stf_head(&stf_header());
    let bencher = bencher.counter(ItemsCount::new(1_usize));
    bencher.bench_local(|| read_stf_head(black_box(&bytes)));
}
