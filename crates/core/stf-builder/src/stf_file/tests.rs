//! Files built by hand, as the source of an FLP.

use super::*;
use crate::source::{HeapSlots, contract};
use proptest::prelude::*;
use sheaf_formats::Rdh;
use sheaf_formats::sample::hbf;
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
        let (mut source, _) = StfFile::new(files(), Equipments::Dealt(share));
        contract::check(&mut source, 5);
        let made: Vec<_> = (0..4)
            .map(|tf| orbit(&source.make(TfId(tf), &mut HeapSlots)))
            .collect();
        let expected = [3, 5, 9].map(|orbit| Some((orbit, bytes)));
        assert_eq!(made, [expected[0], expected[1], expected[2], None]);
        assert_eq!((source.format(), source.tfs_with_data()), (RDH, 3));
    }
    let all = Equipments::All { first_counter: 4 };
    let (mut source, _) = StfFile::new(files(), all);
    contract::check(&mut source, 8);
    assert_eq!((source.tfs(), source.tfs_with_data()), (6, 2));
    assert_eq!(
        source.make(TfId(0), &mut HeapSlots),
        Made::Payload(Bytes::new())
    );
}

#[test]
fn a_tf_that_stands_twice_in_a_file_is_taken_once() {
    let input = Bytes::from([tf(1), tf(1)].concat());
    let (source, _) = StfFile::new(vec![input], Equipments::Dealt(Share::ALL));
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

proptest! {
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
        let (mut source, _) = StfFile::new(vec![file.clone().into()], whole);
        let Made::Payload(stf) = source.make(TfId(0), &mut HeapSlots) else {
            panic!("the heap has room")
        };
        prop_assert_eq!(file_of(name, &stf), file);
    }
}
