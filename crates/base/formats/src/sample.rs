//! Raw data made by hand, for tests of what reads them.

use crate::rdh::{Link, Rdh, trigger};

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
