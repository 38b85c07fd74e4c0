//! Raw data made by hand, for tests of what reads them.

use crate::rdh::{Link, Rdh, trigger};
use sheaf_protocol::splitmix::SplitMix64;

/// Returns a page of link 1.0.2 with 16 payload bytes.
#[must_use]
pub fn page(orbit: u32, pages_counter: u16, stop: bool, packet: u8) -> Vec<u8> {
    let rdh = Rdh {
        version: 7,
        offset_to_next: 80,
        memory_bytes: 80,
        link: Link {
            cru: 1,
            dw: 0,
            link: 2,
        },
        packet_counter: packet,
        orbit,
        trigger: trigger::HBF,
        pages_counter,
        stop_bit: stop.into(),
        ..Rdh::default()
    };
    let mut bytes = rdh.encode().to_vec();
    bytes.extend_from_slice(&[0xab; 16]);
    bytes
}

/// Returns a whole HBF of one page of 80 bytes, of `link` of CRU 1 of the inner tracker.
#[must_use]
pub fn hbf(orbit: u32, link: u8) -> Vec<u8> {
    let mut bytes = page(orbit, 0, true, 0);
    bytes[5] = 32; // system id: ITS
    bytes[12] = link;
    bytes
}

/// Returns a valid TF of a file of DataDistribution, made by `seed`: headers of any version, with bytes and headers
/// behind them; blocks of several detectors and kinds in any order, empty ones among them; now and then no block, or
/// no index. All headers that have a place for it say `run` and `counter`.
#[must_use]
pub fn o2_tf(seed: u64, run: u32, counter: u32) -> Vec<u8> {
    let random = &mut SplitMix64::new(seed);
    let mut tf = o2_header(random, b"FILE_STF_META\0\0\0FLP\0", 24, [run, counter]);
    let sizes_at = tf.len();
    tf.extend_from_slice(&1_u64.to_le_bytes());
    tf.extend_from_slice(&[0; 8]);
    tf.extend_from_slice(&random.draw().to_le_bytes());
    if below(random, 8) > 0 {
        let mut entries = Vec::new();
        let mut blocks = Vec::new();
        let mut before = usize::MAX;
        for _ in 0..below(random, 7) {
            // One name is never followed by itself, so that each makes an entry of its own.
            let name = below(random, O2_NAMES.len() - 1);
            let name = name + usize::from(name >= before);
            let subspec = u32::try_from(name).unwrap_or(0);
            before = name;
            let count = 1 + below(random, 3);
            let offset = blocks.len() as u64;
            for _ in 0..count {
                let payload = below(random, 40);
                let header = o2_header(random, O2_NAMES[name], payload, [run, counter]);
                let at = blocks.len() + 64;
                blocks.extend_from_slice(&header);
                blocks[at..at + 4].copy_from_slice(&subspec.to_le_bytes());
                blocks.extend((0..payload).map(|_| random.draw().to_le_bytes()[0]));
            }
            entries.extend_from_slice(O2_NAMES[name]);
            entries.extend_from_slice(&u32::try_from(count).unwrap_or(0).to_le_bytes());
            entries.extend_from_slice(&subspec.to_le_bytes());
            entries.extend_from_slice(&random.draw().to_le_bytes()[..4]);
            entries.extend_from_slice(&offset.to_le_bytes());
            entries.extend_from_slice(&(blocks.len() as u64 - offset).to_le_bytes());
        }
        let name = b"FILE_STF_INDEX\0\0***\0";
        tf.extend(o2_header(random, name, entries.len(), [run, counter]));
        tf.extend_from_slice(&entries);
        tf.extend_from_slice(&blocks);
    }
    let size = tf.len() as u64;
    tf[sizes_at + 8..sizes_at + 16].copy_from_slice(&size.to_le_bytes());
    tf
}

/// Descriptions and origins of the blocks of [`o2_tf`]: of detectors, of O2, and of ours.
const O2_NAMES: [&[u8; 20]; 7] = [
    b"RAWDATA\0\0\0\0\0\0\0\0\0ITS\0",
    b"RAWDATA\0\0\0\0\0\0\0\0\0ITS\0",
    b"CLUSTERS\0\0\0\0\0\0\0\0TRD\0",
    b"DISTSUBTIMEFRAMEFLP\0",
    b"RAWDATA\0\0\0\0\0\0\0\0\0TPC\0",
    b"SHEAF_SHARE\0\0\0\0\0FLP\0",
    b"CCDBOBJ\0\0\0\0\0\0\0\0\0***\0",
];

/// Returns a header of O2 with fields that a reader has no use for.
fn o2_header(random: &mut SplitMix64, name: &[u8; 20], payload: usize, of: [u32; 2]) -> Vec<u8> {
    let version = 1 + below(random, 3);
    let size = 72 + 8 * version + 4 * below(random, 3);
    let mut raw: Vec<u8> = (0..size).map(|_| random.draw().to_le_bytes()[0]).collect();
    raw[..4].copy_from_slice(b"O2O2");
    raw[4..8].copy_from_slice(&u32::try_from(size).unwrap_or(0).to_le_bytes());
    let is_followed = below(random, 4) == 0;
    raw[8] = (raw[8] & !1) | u8::from(is_followed);
    raw[12..16].copy_from_slice(&u32::try_from(version).unwrap_or(0).to_le_bytes());
    raw[16..24].copy_from_slice(b"DataHead");
    raw[32..52].copy_from_slice(name);
    raw[64..68].fill(0);
    raw[72..80].copy_from_slice(&(payload as u64).to_le_bytes());
    if version >= 2 {
        raw[84..88].copy_from_slice(&of[1].to_le_bytes());
    }
    if version >= 3 {
        raw[88..92].copy_from_slice(&of[0].to_le_bytes());
    }
    if is_followed {
        raw.extend_from_slice(b"O2O2\x28\0\0\0\0\0\0\0\x01\0\0\0NameHeadNONE\0\0\0\0name\0\0\0\0");
    }
    raw
}

/// Draws a number below `bound`.
fn below(random: &mut SplitMix64, bound: usize) -> usize {
    usize::try_from(random.draw() % bound as u64).unwrap_or(0)
}
