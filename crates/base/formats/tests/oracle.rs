//! Test that the walker and `alice_protocol_reader`, an independent reader of the same format, see the same pages.
//!
//! Compared is what both promise: well-formed pages up to the end of the input or the first that is cut. The oracle
//! knows no padding between pages, allows offsets up to 10 kB only, and checks neither version nor header size, so
//! inputs stay within these.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate is pure, but its test data lie in files"
)]

use alice_protocol_reader::prelude::{
    BufferedReaderWrapper, InputScanner, RDH_CRU, RdhCru, ScanCDP,
};
use proptest::prelude::*;
use sheaf_formats::{Link, Rdh, Walker};
use std::io::{self, Cursor, Read, Seek, SeekFrom};

/// A slice where the oracle expects a file.
struct Input(Cursor<Vec<u8>>);

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Seek for Input {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

impl BufferedReaderWrapper for Input {
    fn seek_relative_offset(&mut self, offset: i64) -> io::Result<()> {
        self.0.seek_relative(offset)
    }
}

type Seen = (u64, Rdh, Vec<u8>);

fn oracle(input: &[u8]) -> Vec<Seen> {
    let mut scanner = InputScanner::minimal(Box::new(Input(Cursor::new(input.to_vec()))));
    let mut pages = Vec::new();
    while let Ok((rdh, payload, offset)) = scanner.load_cdp::<RdhCru>() {
        let rdh = translated(&rdh);
        // The oracle returns a page whose payload is cut as one without payload.
        if payload.len() != usize::from(rdh.memory_bytes) - Rdh::SIZE {
            break;
        }
        pages.push((offset, rdh, payload));
    }
    pages
}

fn translated(rdh: &RdhCru) -> Rdh {
    let (word1, word2, word3) = (rdh.rdh1(), rdh.rdh2(), rdh.rdh3());
    Rdh {
        version: rdh.version(),
        fee_id: rdh.fee_id(),
        priority: rdh.rdh0().priority_bit,
        system_id: rdh.rdh0().system_id,
        offset_to_next: rdh.offset_to_next(),
        memory_bytes: rdh.payload_size() + 64,
        link: Link {
            cru: rdh.cru_id(),
            dw: rdh.dw(),
            link: rdh.link_id(),
        },
        packet_counter: rdh.packet_counter(),
        bunch_crossing: word1.bc(),
        orbit: word1.orbit,
        data_format: rdh.data_format(),
        trigger: word2.trigger_type,
        pages_counter: word2.pages_counter,
        stop_bit: word2.stop_bit,
        detector_field: word3.detector_field,
        detector_par: word3.par_bit,
    }
}

fn check(input: &[u8]) {
    let ours: Vec<Seen> = Walker::new(input)
        .map(|page| (page.offset as u64, page.rdh, page.payload.to_vec()))
        .collect();
    assert_eq!(ours, oracle(input));
}

#[test]
fn every_real_file_is_read_alike() {
    let folder = format!(
        "{}/../../../testdata/alice-its-rdh7",
        env!("CARGO_MANIFEST_DIR")
    );
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let input = std::fs::read(entry.unwrap().path()).unwrap();
        check(&input);
        assert_eq!(
            Walker::new(&input)
                .map(|page| page.bytes.len())
                .sum::<usize>(),
            input.len()
        );
        files += 1;
    }
    assert_eq!(files, 16);
}

fn page() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..600);
    (any::<[u8; 64]>(), any::<bool>(), payload).prop_map(|(mut raw, seven, payload)| {
        raw[0] = if seven { 7 } else { 6 };
        raw[1] = 64;
        let bytes = u16::try_from(64 + payload.len()).unwrap().to_le_bytes();
        raw[8..10].copy_from_slice(&bytes);
        raw[10..12].copy_from_slice(&bytes);
        [&raw[..], &payload].concat()
    })
}

proptest! {
    #[test]
    fn pages_of_any_content_are_read_alike(
        pages in prop::collection::vec(page(), 0..20), cut in any::<prop::sample::Index>()
    ) {
        let input = pages.concat();
        check(&input);
        if !input.is_empty() {
            check(&input[..cut.index(input.len())]);
        }
    }
}
