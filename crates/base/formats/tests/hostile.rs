//! Tests that no bytes of a file make a walker panic, loop or read beside its input.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate is pure, but its test data lie in files"
)]

use proptest::prelude::*;
use sheaf_formats::inspect::{FileFormat, Inspection};
use sheaf_formats::sample::o2_tf;
use sheaf_formats::stf_file::{FileTfs, TfImage, TfName};
use sheaf_formats::{FaultKind, Findings, Hbf, Rdh, Walker, check_stf, hbfs};
use sheaf_protocol::{FlpId, PayloadFormat, RunId, TfId};

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

/// Passes `input` to everything that reads bytes from outside, and checks the properties that hold for any input.
fn survive(input: &[u8]) {
    for format in [
        None,
        Some(FileFormat::Rdh),
        Some(FileFormat::Km3net),
        Some(FileFormat::Xtc2),
        Some(FileFormat::StfFile),
        Some(FileFormat::TfFile),
    ] {
        let Ok(inspection) = Inspection::of("input", input, format) else {
            continue;
        };
        assert!(
            inspection
                .faults
                .iter()
                .all(|fault| fault.offset < input.len() as u64)
        );
        assert!(inspection.faults.is_sorted_by_key(|fault| fault.offset));
        assert!(inspection.notes.is_sorted_by_key(|note| note.offset));
    }
    let mut end = 0;
    for page in Walker::new(input) {
        assert!(page.offset >= end && page.bytes.len() >= Rdh::SIZE);
        assert!(page.payload.len() + Rdh::SIZE <= page.bytes.len());
        end = page.offset + page.bytes.len();
    }
    assert!(end <= input.len());
    for format in PayloadFormat::ALL {
        let _ = check_stf(format, input);
    }
    let whole: usize = hbfs(input).0.iter().map(Hbf::bytes).sum();
    assert!(whole <= input.len());
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

#[test]
fn a_file_of_blocks_may_end_anywhere_and_have_any_byte_changed() {
    for seed in 0..20 {
        let file = o2_tf(seed, 7, 9);
        for at in 0..file.len() {
            survive(&file[..at]);
            let mut changed = file.clone();
            changed[at] ^= 1 << (at % 8);
            survive(&changed);
            // Whatever it is, it stands in a file: as a TF if it is one, if not as a block of ours.
            let image = TfImage::new(
                TfName::new(RunId(1), TfId(1), 1),
                &[(FlpId(1), PayloadFormat::O2Blocks, &changed)],
            );
            let written: Vec<u8> = image.slices(&[&changed]).flatten().copied().collect();
            let mut findings = Findings::default();
            let found = FileTfs::new(&written).next_good(&mut findings);
            assert!(
                found.is_some() && findings.faults.is_empty(),
                "seed {seed}, byte {at}"
            );
        }
    }
}

#[test]
fn a_cut_inside_a_page_is_a_truncated_page() {
    let file = read("alice-its-rdh7/10_rdh.raw");
    let boundaries: Vec<usize> = Walker::new(&file).map(|page| page.offset).collect();
    for length in 0..file.len() {
        let faults = Inspection::of("cut", &file[..length], Some(FileFormat::Rdh))
            .unwrap()
            .faults;
        let truncated = faults
            .iter()
            .any(|fault| fault.kind == FaultKind::Truncated);
        assert_eq!(truncated, !boundaries.contains(&length), "cut at {length}");
    }
}

#[test]
fn each_damaged_header_field_is_a_fault_of_its_kind() {
    let check = |at: usize, to: u8, kinds: &[FaultKind]| {
        let mut file = read("alice-its-rdh7/10_rdh.raw");
        file[160 + at] = to; // the closing page of the first HBF
        let found: Vec<_> = Walker::new(&file)
            .finish()
            .faults
            .iter()
            .map(|f| f.kind)
            .collect();
        assert_eq!(found, kinds, "byte {at} is {to}");
    };
    check(
        0,
        8,
        &[
            FaultKind::BadVersion,
            FaultKind::ReopenedHbf,
            FaultKind::PacketGap,
        ],
    );
    check(
        1,
        63,
        &[
            FaultKind::BadHeaderSize,
            FaultKind::ReopenedHbf,
            FaultKind::PacketGap,
        ],
    );
    check(8, 0, &[FaultKind::UnclosedHbf, FaultKind::BadOffset]);
    check(9, 0xff, &[FaultKind::UnclosedHbf, FaultKind::Truncated]);
    check(13, 9, &[FaultKind::PacketGap, FaultKind::PacketGap]);
    check(36, 2, &[FaultKind::PageGap]);
    check(38, 0, &[FaultKind::ReopenedHbf]);
    check(20, 9, &[FaultKind::UnclosedHbf, FaultKind::PageGap]);
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
