//! Tests of the files of the data set as sources: contracts, TFs and bytes.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate is pure, but its test data lie in files"
)]

use bytes::Bytes;
use sheaf_formats::{Walker, check_stf};
use sheaf_protocol::{PayloadFormat, TfId};
use sheaf_stf_builder::source::contract;
use sheaf_stf_builder::xtc2::{Xtc2Config, Xtc2File};
use sheaf_stf_builder::{
    CutConfig, HeapSlots, Made, RawFile, Replay, ReplayConfig, Share, StfSource, Template, km3net,
};
use std::collections::BTreeSet;

fn read(name: &str) -> Vec<u8> {
    let path = format!("{}/../../../testdata/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Counts how many TFs have data in exactly 1, 2, … of the segments; TF windows of 1 ns, that of the events' spacing.
fn joined(run: &str, segments: usize, first_ns: u64) -> Vec<usize> {
    let config = Xtc2Config {
        window_ns: 1.try_into().unwrap(),
        first_ns: Some(first_ns),
    };
    let mut sources: Vec<Xtc2File> = (0..segments)
        .map(|s| format!("lcls-xtc2/{run}/xpptut15-r0014-s00{s}-c000.xtc2"))
        .map(|name| Xtc2File::new(read(&name).into(), &config).0)
        .collect();
    let tfs = sources.iter().map(Xtc2File::tfs).max().unwrap();
    let mut counts = vec![0; segments];
    for tf in (0..tfs).map(TfId) {
        let with_data = sources
            .iter_mut()
            .map(|source| usize::from(has_data(source, tf)));
        if let Some(others) = with_data.sum::<usize>().checked_sub(1) {
            counts[others] += 1;
        }
    }
    counts
}

fn has_data(source: &mut Xtc2File, tf: TfId) -> bool {
    matches!(source.make(tf, &mut HeapSlots), Made::Payload(payload) if !payload.is_empty())
}

#[test]
fn segments_of_different_rates_join_by_time() {
    // 17 : 5 : 2 events; the last segment has each of its events together with another one's.
    assert_eq!(joined("intg_det", 3, 4), [11, 5, 1]);
    assert_eq!(joined("mixed_rate", 2, 1_000_000_004), [90, 10]);
}

#[test]
fn sources_keep_their_contract_and_make_whole_payloads() {
    let input = |name: &str| Bytes::from(read(name));
    let links = input("alice-its-rdh7/12_links_2hbf.raw");
    let template = Template::from_pages(&[&links]).unwrap().0;
    let replay_config = ReplayConfig {
        orbits_per_tf: 3.try_into().unwrap(),
        first_orbit: u32::MAX - 5,
    };
    let cut = CutConfig {
        orbits_per_tf: 1.try_into().unwrap(),
        ..CutConfig::default()
    };
    let window = Xtc2Config {
        window_ns: 5.try_into().unwrap(),
        first_ns: None,
    };
    let km3net = km3net::Km3netConfig::default();
    let share = Share::new(1, 3).unwrap();
    let sources: Vec<(Box<dyn StfSource>, u64)> = vec![
        (
            Box::new(Replay::new(&template, replay_config, share).unwrap()),
            300,
        ),
        (Box::new(RawFile::new(links, &cut, share).0), 4),
        (
            Box::new(
                RawFile::new(
                    input("alice-its-rdh7/2_hbf_2nd_bad_frame.raw"),
                    &cut,
                    Share::ALL,
                )
                .0,
            ),
            620,
        ),
        (
            Box::new(km3net::Km3netFile::new(input("km3net-daq/IO_SUM_legacy.dat"), &km3net).0),
            150,
        ),
        (
            Box::new(km3net::Km3netFile::new(input("km3net-daq/IO_TSL1_1003.dat"), &km3net).0),
            95,
        ),
        (
            Box::new(km3net::Km3netFile::new(input("km3net-daq/clb.dqd"), &km3net).0),
            4,
        ),
        (
            Box::new(
                Xtc2File::new(
                    input("lcls-xtc2/mixed_rate/xpptut15-r0014-s000-c000.xtc2"),
                    &window,
                )
                .0,
            ),
            30,
        ),
    ];
    for (mut source, tfs) in sources {
        contract::check(&mut *source, tfs);
        for tf in (0..tfs).map(TfId) {
            if let Made::Payload(payload) = source.make(tf, &mut HeapSlots) {
                let counts = check_stf(source.format(), &payload).unwrap();
                assert_eq!(counts.parts == 0, payload.is_empty(), "TF {}", tf.0);
            }
        }
    }
}

#[test]
fn km3net_slices_become_tfs_and_gaps_are_empty() {
    let slices = |name: &str| {
        let input = Bytes::from(read(&format!("km3net-daq/{name}")));
        let (source, findings) = km3net::Km3netFile::new(input, &km3net::Km3netConfig::default());
        assert_eq!(findings.faults, []);
        (source.tfs(), source.tfs_with_data())
    };
    assert_eq!(slices("IO_TSL1_1003.dat"), (91, 10));
    assert_eq!(slices("IO_SUM_legacy.dat"), (139, 81));
    assert_eq!(slices("IO_EVT.dat"), (8, 3));
    assert_eq!(slices("clb.dqd"), (2, 2));
    assert_eq!(slices("IO_MONIT.dat"), (6, 6));
}

#[test]
fn the_flps_of_a_demo_share_the_links_of_the_template() {
    let file = read("alice-its-rdh7/12_links_2hbf.raw");
    let template = Template::from_pages(&[&file]).unwrap().0;
    for flps in [1, 3, 5, 12, 13, 40] {
        let mut links = BTreeSet::new();
        let mut bytes = 0;
        for flp in 0..flps {
            let share = Share::new(flp, flps).unwrap();
            let mut replay = Replay::new(&template, ReplayConfig::default(), share).unwrap();
            let Made::Payload(payload) = replay.make(TfId(1), &mut HeapSlots) else {
                panic!("the heap has room")
            };
            let mine: BTreeSet<_> = Walker::new(&payload).map(|page| page.rdh.link).collect();
            assert!(
                !mine.is_empty() && links.is_disjoint(&mine),
                "FLP {flp} of {flps}"
            );
            links.extend(mine);
            bytes += payload.len();
        }
        assert_eq!(links.len(), usize::from(flps.max(12)));
        // 12 links × 16 times the two recorded HBFs: the 3.3 MB of a TF.
        assert!(flps > 12 || bytes == 208_160 * 16, "{bytes}");
    }
}

#[test]
fn a_recorded_run_cut_into_stfs_keeps_every_byte() {
    let file = Bytes::from(read("alice-its-rdh7/12_links_2hbf.raw"));
    let mut bytes = 0;
    for flp in 0..5 {
        let share = Share::new(flp, 5).unwrap();
        let (mut source, findings) = RawFile::new(file.clone(), &CutConfig::default(), share);
        assert_eq!(findings.faults, []);
        let Made::Payload(payload) = source.make(TfId(0), &mut HeapSlots) else {
            panic!("one TF")
        };
        assert!(check_stf(PayloadFormat::RdhPages, &payload).is_ok());
        bytes += payload.len();
    }
    assert_eq!(bytes, file.len());
}
