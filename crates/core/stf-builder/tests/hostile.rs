//! Tests that no bytes of a file make a source panic, loop or read beside its input.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate is pure, but its test data lie in files"
)]

use bytes::Bytes;
use proptest::prelude::*;
use sheaf_protocol::TfId;
use sheaf_stf_builder::km3net::{Km3netConfig, Km3netFile};
use sheaf_stf_builder::xtc2::{Xtc2Config, Xtc2File};
use sheaf_stf_builder::{
    CutConfig, HeapSlots, Made, RawFile, Replay, ReplayConfig, Share, StfSource, Template,
};

/// Small files of every format: those that are cut at every byte and changed at random.
const FILES: [&str; 9] = [
    "alice-its-rdh7/10_rdh.raw",
    "alice-its-rdh7/err_not_hbf.raw",
    "alice-its-rdh7/o2_rawtf_fee24612_4rdh.raw",
    "alice-its-rdh7/tdh_no_data_ihw.raw",
    "km3net-daq/IO_TSSN.dat",
    "km3net-daq/IO_TSL0_legacy.dat",
    "km3net-daq/IO_MONIT.dat",
    "lcls-xtc2/intg_det/xpptut15-r0014-s002-c000.xtc2",
    "lcls-xtc2/mixed_rate/xpptut15-r0014-s001-c000.xtc2",
];

fn read(name: &str) -> Vec<u8> {
    let path = format!("{}/../../../testdata/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Cuts `input` as a file of every format, and makes TFs of it.
fn survive(input: &[u8]) {
    let bytes = Bytes::copy_from_slice(input);
    let mut sources: Vec<Box<dyn StfSource>> = vec![
        Box::new(RawFile::new(bytes.clone(), &CutConfig::default(), Share::ALL).0),
        Box::new(Km3netFile::new(bytes.clone(), &Km3netConfig::default()).0),
        Box::new(Xtc2File::new(bytes, &Xtc2Config::default()).0),
    ];
    if let Ok((template, _)) = Template::from_pages(&[input]) {
        let replay = Replay::new(&template, ReplayConfig::default(), Share::ALL).unwrap();
        sources.push(Box::new(replay));
    }
    for mut source in sources {
        for tf in [0, 1, u64::MAX] {
            if let Made::Payload(payload) = source.make(TfId(tf), &mut HeapSlots) {
                assert!(payload.len() as u64 <= source.bytes_max());
            }
        }
    }
}

#[test]
fn a_file_may_end_anywhere() {
    for name in FILES {
        let file = read(name);
        let step = (file.len() / 2_000).max(1);
        for length in (0..file.len()).step_by(step) {
            survive(&file[..length]);
        }
    }
}

/// Returns an input that is rubbish but for headers that look right, so that walks get far.
fn pages_of_rubbish() -> impl Strategy<Value = Vec<u8>> {
    let page = (any::<[u8; 64]>(), 0_u16..200, 0_u16..3).prop_map(|(mut raw, bytes, pages)| {
        raw[..2].copy_from_slice(&[7, 64]);
        raw[8..10].copy_from_slice(&(64 + bytes).to_le_bytes());
        raw[10..12].copy_from_slice(&(64 + bytes / 2).to_le_bytes());
        raw[12..16].fill(0);
        raw[36..38].copy_from_slice(&pages.to_le_bytes());
        [&raw[..], &vec![7; bytes.into()]].concat()
    });
    prop::collection::vec(page, 0..40).prop_map(|pages| pages.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 0..2000)) {
        survive(&input);
    }

    #[test]
    fn rubbish_with_headers_is_survived(input in pages_of_rubbish()) {
        survive(&input);
    }

    #[test]
    fn real_files_with_changed_bytes_are_survived(
        file in prop::sample::select(FILES.to_vec()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        length in any::<prop::sample::Index>(),
    ) {
        let mut input = read(file);
        for (at, to) in changes {
            let at = at.index(input.len());
            input[at] = to;
        }
        survive(&input);
        input.truncate(length.index(input.len()));
        survive(&input);
    }
}
