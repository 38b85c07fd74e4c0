//! Seeds: what peers write into memory that they share with this process.

use super::{Seed, seed};
use sheaf_protocol::{Prefix, WireKind};

/// A record of a ring, with its length in front.
fn record(parts: &[&[u8]]) -> Vec<u8> {
    let record = parts.concat();
    let length = u32::try_from(record.len()).expect("records of seeds are short");
    let mut padded = [&length.to_le_bytes()[..], &record].concat();
    padded.resize(padded.len().next_multiple_of(8), 0);
    padded
}

/// The front of a message: number, slot, bytes of the head, bodies.
fn fixed(number: u64, head: usize, bodies: u32) -> Vec<u8> {
    let slot = u32::try_from(number).expect("seeds have few messages");
    let head = u32::try_from(head).expect("heads of seeds are short");
    let words = [slot, head, bodies].map(u32::to_le_bytes);
    [&number.to_le_bytes()[..], words.as_flattened()].concat()
}

fn place(region: u32, offset: u64, bytes: u64) -> Vec<u8> {
    let words = [offset, bytes].map(u64::to_le_bytes);
    [&region.to_le_bytes()[..], words.as_flattened()].concat()
}

fn end_of(ring: &[u8]) -> [u8; 2] {
    u16::try_from(ring.len())
        .expect("rings of seeds are short")
        .to_le_bytes()
}

fn of_lane(records: &[Vec<u8>]) -> Vec<u8> {
    let ring = records.concat();
    [&end_of(&ring)[..], &ring].concat()
}

fn of_peer(packets: &[&[u8]], claims: &[(u8, u8)], records: &[Vec<u8>]) -> Vec<u8> {
    let ring = records.concat();
    let count = |items: usize| u8::try_from(items).expect("seeds are short");
    let mut bytes = end_of(&ring).to_vec();
    bytes.push(count(packets.len()));
    for packet in packets {
        bytes.push(count(packet.len()));
        bytes.extend_from_slice(packet);
    }
    bytes.push(count(claims.len()));
    bytes.extend(claims.iter().flat_map(|(number, state)| [*number, *state]));
    bytes.extend_from_slice(&ring);
    bytes
}

/// All of them.
pub(super) fn all() -> Vec<Seed> {
    let frame = |number: u64, head: &[u8], places: &[Vec<u8>], body_bytes: u64| {
        let prefix = Prefix::new(WireKind::Stf, head, body_bytes).encode();
        let bodies = u32::try_from(places.len()).expect("seeds have few bodies");
        let fixed = fixed(number, prefix.len() + head.len(), bodies);
        record(&[&fixed, &prefix, head, &places.concat()])
    };
    let on_stream = record(&[&fixed(1, 0, 0)]);
    let frames = [
        frame(0, b"head", &[place(0, 16, 40)], 40),
        on_stream,
        frame(2, b"", &[], 0),
        frame(3, b"outside", &[place(0, 250, 40)], 40),
    ];
    let region = [&b"R\0\0\0\0"[..], &4096_u64.to_le_bytes()].concat();
    let forget = b"F\0\0\0\0";
    let message = |number: u64, places: &[Vec<u8>]| {
        let bodies = u32::try_from(places.len()).expect("seeds have few bodies");
        record(&[&fixed(number, 4, bodies), b"head", &places.concat()])
    };
    let messages = [
        message(0, &[place(0, 0, 100), place(0, 4000, 96)]),
        message(1, &[]),
        message(2, &[place(0, 4000, 97)]),
    ];
    let product = [&b"P\x07\0\0\0"[..], &10_u64.to_le_bytes()].concat();
    let back = |slot: u32, product: u32, tags: &[u8]| {
        record(&[&slot.to_le_bytes(), &product.to_le_bytes(), tags])
    };
    let returns = [back(0, 7, b"muon,calib"), back(1, 0, b""), back(1, 0, b"")];
    vec![
        seed("lane", "frames", of_lane(&frames)),
        seed("lane", "two-bodies", {
            let two = [place(0, 0, 1), place(0, 1, 1)];
            of_lane(&[frame(0, b"head", &two, 2)])
        }),
        seed(
            "borrower",
            "messages",
            of_peer(&[&region, b"\0"], &[(0, 1), (1, 1), (2, 1)], &messages),
        ),
        seed(
            "borrower",
            "called-back-and-forgotten",
            of_peer(&[&region, forget], &[(0, 3), (1, 1)], &messages),
        ),
        seed(
            "lender",
            "returns",
            of_peer(&[&product, b"\0"], &[(0, 2), (1, 2), (2, 1)], &returns),
        ),
        seed("lender", "leaves", of_peer(&[b"L"], &[(0, 2)], &[])),
    ]
}
