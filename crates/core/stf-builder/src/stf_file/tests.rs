//! Files built by hand, as the source of an FLP.

use super::*;
use crate::source::{HeapSlots, contract};
use proptest::prelude::*;
use sheaf_formats::Rdh;
use sheaf_formats::sample::{hbf, o2_tf};
use sheaf_formats::stf_file::{TfImage, TfName};
use sheaf_protocol::{FlpId, RunId};

const RDH: PayloadFormat = PayloadFormat::RdhPages;
const NAME: TfName = TfName {
    run: 0x0102,
    counter: 8,
    write_time_ms: 0x0018_c000_0000,
};

/// The file of a TF with one payload of raw data.
fn file_of(name: TfName, payload: &[u8]) -> Vec<u8> {
    let image = TfImage::new(name, &[(FlpId(0), RDH, payload)]);
    image.slices(&[payload]).flatten().copied().collect()
}

/// TF `counter` with two HBFs of link 2 and one of link 0.
fn tf(counter: u32) -> Vec<u8> {
    let payload = [hbf(counter, 2), hbf(counter + 1, 2), hbf(counter, 0)].concat();
    file_of(TfName { counter, ..NAME }, &payload)
}

#[test]
fn equipment_is_dealt_out_and_tfs_of_all_files_are_put_in_order() {
    let files = || vec![Bytes::from([tf(3), tf(9)].concat()), Bytes::from(tf(5))];
    let orbit = |made: &Made| match made {
        Made::Payload(bytes) => Some((Rdh::decode(bytes).unwrap().orbit, bytes.len())),
        _ => None,
    };
    // Link 0 of each TF, then link 2 with its two HBFs.
    for (flp, bytes) in [(0, 80), (1, 160)] {
        let share = Share::new(flp, 2).unwrap();
        let (mut source, _) = StfFile::new(files(), Equipments::Dealt(share), Payloads::Pages);
        contract::check(&mut source, 5);
        let made: Vec<_> = (0..4)
            .map(|tf| orbit(&source.make(TfId(tf), &mut HeapSlots)))
            .collect();
        let expected = [3, 5, 9].map(|orbit| Some((orbit, bytes)));
        assert_eq!(made, [expected[0], expected[1], expected[2], None]);
        assert_eq!((source.format(), source.tfs_with_data()), (RDH, 3));
    }
    let all = Equipments::All { first_counter: 4 };
    let (mut source, _) = StfFile::new(files(), all, Payloads::Pages);
    contract::check(&mut source, 8);
    assert_eq!((source.tfs(), source.tfs_with_data()), (6, 2));
    assert_eq!(source.make(TfId(0), &mut HeapSlots), Made::empty());
}

#[test]
fn a_tf_that_stands_twice_in_a_file_is_taken_once() {
    let input = Bytes::from([tf(1), tf(1)].concat());
    let (source, _) = StfFile::new(vec![input], Equipments::Dealt(Share::ALL), Payloads::Pages);
    assert_eq!(
        (source.tfs(), source.tfs_repeated(), source.bytes_max()),
        (1, 1, 240)
    );
}

/// The payloads of the FLPs of a TF, each of whole HBFs, as orbit and link.
fn payloads() -> impl Strategy<Value = Vec<Vec<(u32, u8)>>> {
    let frames = prop::collection::vec((0_u32..50, 0_u8..4), 1..6);
    prop::collection::vec(frames, 1..5)
}

/// Returns the TFs that an EPN writes when `sources` make the first `tfs` of them.
fn written(sources: &mut [StfFile], tfs: u64) -> Vec<Vec<u8>> {
    let mut written = Vec::new();
    for tf in 0..tfs {
        let stfs = sources.iter_mut().map(|source| {
            let Made::Payload(stf) = source.make(TfId(tf), &mut HeapSlots) else {
                panic!("the heap has room, and the source has {tfs} TFs")
            };
            (source.format(), stf.bytes)
        });
        let stfs: Vec<(PayloadFormat, Bytes)> = stfs.collect();
        let parts: Vec<(FlpId, PayloadFormat, &[u8])> = (0..)
            .zip(&stfs)
            .map(|(flp, (format, stf))| (FlpId(flp), *format, stf.as_ref()))
            .collect();
        let slices: Vec<&[u8]> = stfs.iter().map(|(_, stf)| stf.as_ref()).collect();
        let image = TfImage::new(NAME, &parts);
        written.push(image.slices(&slices).flatten().copied().collect());
    }
    written
}

/// A TF of twelve links of the inner tracker and one block of clusters of another detector.
#[test]
fn blocks_of_other_kinds_keep_their_names_whichever_flp_has_them() {
    let links: Vec<u8> = (0..12).flat_map(|link| hbf(5, link)).collect();
    let tf = file_of(NAME, &links);
    let mut clusters = tf[96 + 24 + 96 + 12 * 48..][..96].to_vec();
    clusters[32..52].copy_from_slice(b"CLUSTERS\0\0\0\0\0\0\0\0TRD\0");
    clusters.extend([7; 80]);
    let entry = [
        &b"CLUSTERS\0\0\0\0\0\0\0\0TRD\0\x01\0\0\0"[..],
        &clusters[64..68],
        &[0; 4],
        &(12 * 176_u64).to_le_bytes(),
        &176_u64.to_le_bytes(),
    ];
    let blocks_at = 96 + 24 + 96 + 12 * 48;
    let mut file = [
        &tf[..blocks_at],
        &entry.concat(),
        &tf[blocks_at..],
        &clusters,
    ]
    .concat();
    let bytes = file.len() as u64;
    file[104..112].copy_from_slice(&bytes.to_le_bytes());
    file[120 + 72..120 + 80].copy_from_slice(&(13 * 48_u64).to_le_bytes());
    for flps in 1..=4 {
        let source = |flp| {
            let equipments = Equipments::Dealt(Share::new(flp, flps).unwrap());
            StfFile::new(vec![file.clone().into()], equipments, Payloads::Blocks).0
        };
        let mut sources: Vec<StfFile> = (0..flps).map(source).collect();
        assert_eq!(
            written(&mut sources, 1),
            std::slice::from_ref(&file),
            "{flps} FLPs"
        );
    }
    let whole = Equipments::Dealt(Share::ALL);
    let (pages, _) = StfFile::new(vec![file.into()], whole, Payloads::Pages);
    assert_eq!(
        pages.refused().unwrap().to_string(),
        "TF has a block of TRD/CLUSTERS/0x10001, expected RDH pages alone: blocks of RAWDATA"
    );
}

proptest! {
    #[test]
    fn every_valid_file_comes_out_as_it_went_in(
        seeds in prop::collection::vec(any::<u64>(), 1..5), flps in 1_u16..5,
    ) {
        let tfs: Vec<Vec<u8>> = (1..).zip(&seeds).map(|(counter, seed)| o2_tf(*seed, 3, counter)).collect();
        let file = Bytes::from(tfs.concat());
        let mut sources = Vec::new();
        for flp in 0..flps {
            let equipments = Equipments::Dealt(Share::new(flp, flps).unwrap());
            let (mut source, findings) =
                StfFile::new(vec![file.clone()], equipments, Payloads::Blocks);
            prop_assert_eq!(&findings[0].faults, &[]);
            contract::check(&mut source, tfs.len() as u64 + 1);
            sources.push(source);
        }
        // TFs without any header that says the run come first.
        let (mut expected, mut found) = (tfs.clone(), written(&mut sources, tfs.len() as u64));
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn stfs_in_files_of_their_own_keep_every_block(
        seeds in prop::collection::vec(any::<u64>(), 2..5),
    ) {
        let files: Vec<Vec<u8>> = seeds.iter().map(|seed| o2_tf(*seed, 3, 1)).collect();
        let source = |file: &Vec<u8>| {
            let all = Equipments::All { first_counter: 1 };
            StfFile::new(vec![file.clone().into()], all, Payloads::Blocks).0
        };
        let mut sources: Vec<StfFile> = files.iter().map(source).collect();
        let written = written(&mut sources, 1).concat();
        let blocks = |file: &[u8]| -> Vec<Vec<u8>> {
            let mut findings = Findings::default();
            let tf = FileTfs::new(file).next_good(&mut findings).unwrap();
            assert_eq!(findings, Findings::default());
            let of_block = |block: &Block| file[block.offset..block.payload.end].to_vec();
            tf.blocks.iter().map(of_block).collect()
        };
        let mut expected: Vec<Vec<u8>> = files.iter().flat_map(|file| blocks(file)).collect();
        let mut found = blocks(&written);
        expected.sort();
        found.sort();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn what_one_flp_makes_of_all_raw_data_of_a_file_makes_the_same_file_again(
        payloads in payloads(), run in any::<u64>(), id in 0_u64..1 << 40, time in any::<u64>(),
    ) {
        let name = TfName::new(RunId(run), TfId(id), time);
        let payloads: Vec<Vec<u8>> = payloads
            .iter()
            .map(|frames| frames.iter().flat_map(|(orbit, link)| hbf(*orbit, *link)).collect())
            .collect();
        let parts: Vec<(FlpId, PayloadFormat, &[u8])> = (0..)
            .zip(&payloads)
            .map(|(flp, payload)| (FlpId(flp), RDH, payload.as_slice()))
            .collect();
        let slices: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
        let file: Vec<u8> = TfImage::new(name, &parts).slices(&slices).flatten().copied().collect();
        let whole = Equipments::Dealt(Share::ALL);
        let (mut source, _) = StfFile::new(vec![file.clone().into()], whole, Payloads::Pages);
        let Made::Payload(stf) = source.make(TfId(0), &mut HeapSlots) else {
            panic!("the heap has room")
        };
        prop_assert_eq!(file_of(name, &stf), file);
    }
}
