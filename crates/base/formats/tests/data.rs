//! Test that every file of the data set gives exactly the numbers of `testdata/README.md`.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate is pure, but its test data lie in files"
)]

use sheaf_formats::Walker;
use sheaf_formats::inspect::{Content, FileFormat, Inspection};
use std::collections::{BTreeMap, BTreeSet};

fn read(name: &str) -> Vec<u8> {
    let path = format!("{}/../../../testdata/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn inspect(name: &str) -> Inspection {
    Inspection::of(name, &read(name), None).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The table of the README, column by column; faults and notes behind.
const RDH_TABLE: &str = "\
10_rdh.raw | 1200 | [7] | [0] | 10 | 560 | [524] | 23.0.8 | 512-516 | 5/5 | 1 | 6003 6a03 | |
12_links_2hbf.raw | 208160 | [7] | [2] | 78 | 203168 | [2, 256, 257, 258, 259, 260, 261, 512, 513, 515, 516, 517] | 183.0.2 183.0.6 183.0.7 183.0.8 183.0.9 183.0.10 183.0.11 183.1.0 183.1.1 183.1.3 183.1.4 183.1.5 | 1043926912-1043926913 | 24/24 | 12 | 6003 6a03 | |
1_hbf_bad_cdp_structure.raw | 240 | [7] | [0] | 2 | 112 | [524] | 23.0.8 | 512-512 | 1/0 | 1 | 6a03 | 0 unclosed-hbf |
1_hbf_bad_dw_ddw0.raw | 240 | [7] | [0] | 2 | 112 | [524] | 23.0.8 | 512-512 | 1/1 | 1 | 6a03 | |
1_hbf_bad_ihw_tdh.raw | 240 | [7] | [0] | 2 | 112 | [524] | 23.0.8 | 512-512 | 1/1 | 1 | 6a03 | |
1_hbf_bad_its_payload.raw | 240 | [7] | [0] | 2 | 112 | [524] | 23.0.8 | 512-512 | 1/1 | 1 | 6a03 | |
1_hbf_bad_tdt.raw | 240 | [7] | [0] | 2 | 112 | [524] | 23.0.8 | 512-512 | 1/1 | 1 | 6a03 | |
2_hbf_2nd_bad_frame.raw | 14352 | [7] | [2] | 6 | 13968 | [4616] | 196.1.4 | 47543295 47543904 | 2/2 | 1 | 6003 6803 | | 10224 gap
2_rdh_det_field_v1.21.0.raw | 208 | [7] | [2] | 2 | 80 | [0] | 183.0.0 | 47517664-47517664 | 1/1 | 1 | 6a03 | |
ci_ols_data_1hbf.raw | 608 | [7] | [2] | 2 | 480 | [20522] | 24.0.0 | 2596828-2596828 | 1/1 | 1 | 4893 | |
err_not_hbf.raw | 320 | [7] | [0] | 2 | 192 | [524] | 23.0.8 | 512-512 | 2/0 | 2 | 6a03 | 160 reopened-hbf, 160 unclosed-hbf, 160 packet-gap | 160 again, 160 tf-bit-repeated
invalid_lane_order_1hbf.raw | 240 | [7] | [0] | 2 | 112 | [524] | 23.0.8 | 512-512 | 1/1 | 1 | 6a03 | |
o2_rawtf_fee24612_4rdh.raw | 1888 | [7] | [2] | 4 | 1632 | [24612] | 186.0.0 | 102670144-102670145 | 2/2 | 1 | 6003 6a03 | |
rawtf_epn180_l6_1.raw | 5712 | [7] | [2] | 3 | 5520 | [24577] | 185.0.1 | 202070528-202070528 | 1/1 | 1 | 6803 | |
readout.superpage.1.raw | 672 | [7] | [2] | 6 | 288 | [4358] | 181.1.2 | 2604259072 2604259083 2604259094 | 3/3 | 3 | 4813 | | 224 gap, 224 tf-bit-repeated, 448 gap, 448 tf-bit-repeated
tdh_no_data_ihw.raw | 27200 | [7] | [2] | 15 | 26240 | [24587] | 185.0.11 | 202070528-202070532 | 5/5 | 1 | 6003 6803 | |
";

#[test]
fn every_raw_file_gives_the_numbers_of_its_table() {
    for line in RDH_TABLE.lines() {
        let name = line.split(" | ").next().unwrap();
        assert_eq!(rdh_line(name), line.trim_end(), "{name}");
    }
    assert_eq!(RDH_TABLE.lines().count(), 16);
}

fn rdh_line(name: &str) -> String {
    let path = format!("alice-its-rdh7/{name}");
    let found = inspect(&path);
    let Content::Rdh(content) = &found.content else {
        panic!("{name} is not of pages")
    };
    let links: Vec<String> = content
        .links
        .iter()
        .map(|link| format!("{}.{}.{}", link.cru, link.dw, link.link))
        .collect();
    let triggers: BTreeSet<u32> = Walker::new(&read(&path))
        .map(|page| page.rdh.trigger)
        .collect();
    let triggers: Vec<String> = triggers.iter().map(|word| format!("{word:x}")).collect();
    let faults: Vec<String> = found
        .faults
        .iter()
        .map(|fault| format!("{} {}", fault.offset, fault.kind.name()))
        .collect();
    let notes: Vec<String> = found
        .notes
        .iter()
        .map(|note| format!("{} {}", note.offset, note.kind.name()))
        .collect();
    format!(
        "{name} | {} | {:?} | {:?} | {} | {} | {:?} | {} | {} | {}/{} | {} | {} | {} | {}",
        found.bytes,
        content.rdh_versions.iter().collect::<Vec<_>>(),
        content.data_formats.iter().collect::<Vec<_>>(),
        content.pages,
        content.payload_bytes,
        content.fee_ids.iter().collect::<Vec<_>>(),
        links.join(" "),
        orbits(&content.orbits),
        content.hbf_opened,
        content.hbf_closed,
        content.tf_starts,
        triggers.join(" "),
        faults.join(", "),
        notes.join(", "),
    )
    .replace("|  |", "| |")
    .trim_end()
    .to_owned()
}

/// Formats orbits: "first-last" if all in between are there, else one by one.
fn orbits(orbits: &BTreeSet<u32>) -> String {
    let (first, last) = (orbits.first().unwrap(), orbits.last().unwrap());
    if (last - first) as usize + 1 == orbits.len() {
        return format!("{first}-{last}");
    }
    orbits
        .iter()
        .map(u32::to_string)
        .collect::<Vec<_>>()
        .join(" ")
}

const KM3NET_TABLE: &[(&str, &str)] = &[
    (
        "IO_EVT.dat",
        "8190 | 3 {10001: 3} | runs {6760} | detectors {44} | 88733..88740 (3) | 0 0 | 516..5724",
    ),
    (
        "IO_SUM.dat",
        "9507 | 3 {2001: 3} | runs {6760} | detectors {44} | 241..279 (3) | 0 0 | 1849..3829",
    ),
    (
        "IO_SUM_legacy.dat",
        "52941 | 81 {2001: 81} | runs {2101} | detectors {7} | 114629..114767 (81) | 0 0 | 617..656",
    ),
    (
        "IO_TSL0_legacy.dat",
        "1288 | 1 {1001: 1} | runs {1969} | detectors {48} | 232..232 (1) | 1 200 | 1288..1288",
    ),
    (
        "IO_TSL1_1003.dat",
        "116740 | 10 {1003: 10} | runs {4380} | detectors {48} | 13535..13625 (10) | 150 18000 | 11674..11674",
    ),
    (
        "IO_TSSN.dat",
        "2410 | 3 {1005: 3} | runs {6760} | detectors {44} | 198..238 (3) | 35 58 | 90..2206",
    ),
    (
        "IO_MONIT.dat",
        "1488 | 6 {\"TMCH\": 6} | runs {86} | modules {806472270} | 6 stamps | [0, 0, 0, 0, 0, 0] | 244..244",
    ),
    (
        "clb.dqd",
        "3690 | 3 {\"TTDC\": 3} | runs {0} | modules {817803008} | 2 stamps | [3, 4, 0] | 874..1402",
    ),
];

#[test]
fn every_km3net_file_gives_the_numbers_of_its_table() {
    for (name, expected) in KM3NET_TABLE {
        let found = inspect(&format!("km3net-daq/{name}"));
        assert_eq!(found.format, FileFormat::Km3net, "{name}");
        assert_eq!(found.faults, [], "{name}");
        let line = match &found.content {
            Content::Records(c) => format!(
                "{} {:?} | runs {:?} | detectors {:?} | {}..{} ({}) | {} {} | {}",
                c.records,
                c.record_types,
                c.runs,
                c.detectors,
                c.frame_indices.first().unwrap(),
                c.frame_indices.last().unwrap(),
                c.frame_indices.len(),
                c.frames,
                c.hits,
                range(c.record_bytes),
            ),
            Content::Packets(c) => format!(
                "{} {:?} | runs {:?} | modules {:?} | {} stamps | {:?} | {}",
                c.packets,
                c.packet_types,
                c.runs,
                c.modules,
                c.time_stamps.len(),
                c.sequences,
                range(c.packet_bytes),
            ),
            other => panic!("{name} gives {other:?}"),
        };
        assert_eq!(format!("{} | {line}", found.bytes), *expected, "{name}");
    }
}

fn range(range: Option<(u64, u64)>) -> String {
    range.map_or("none".to_owned(), |(low, high)| format!("{low}..{high}"))
}

#[test]
fn slices_out_of_order_and_missing_packets_are_noted() {
    let notes = |name: &str| {
        let notes = inspect(&format!("km3net-daq/{name}")).notes;
        notes
            .into_iter()
            .map(|note| (note.kind.name(), note.detail))
            .collect::<Vec<_>>()
    };
    let legacy = notes("IO_SUM_legacy.dat");
    assert!(legacy.contains(&(
        "backwards",
        "frame index 114629 follows the later 114688".to_owned()
    )));
    let missing = "TTDC packet 3 of module 817803008 at 26690 s, tick 12500000, expected packet 0";
    assert_eq!(notes("clb.dqd"), [("gap", missing.to_owned())]);
}

const XTC2_TABLE: &[(&str, &str)] = &[
    (
        "intg_det/xpptut15-r0014-s000-c000.xtc2",
        "5540 | 24 | 17 | 84..84 | 0.000000004 .. 0.000000020 | 0",
    ),
    (
        "intg_det/xpptut15-r0014-s001-c000.xtc2",
        "4388 | 12 | 5 | 84..84 | 0.000000007 .. 0.000000019 | 0",
    ),
    (
        "intg_det/xpptut15-r0014-s002-c000.xtc2",
        "4100 | 9 | 2 | 84..84 | 0.000000010 .. 0.000000020 | 0",
    ),
    (
        "mixed_rate/xpptut15-r0014-s000-c000.xtc2",
        "126148 | 110 | 100 | 836..836 | 1.000000004 .. 1.000000106 | 0",
    ),
    (
        "mixed_rate/xpptut15-r0014-s001-c000.xtc2",
        "42560 | 20 | 10 | 836..836 | 1.000000004 .. 1.000000097 | 0",
    ),
    (
        "test_epix_calib.xtc2",
        "3922114 | 6 | 2 | 1093948..1093948 | 982960461.942241006 .. 982960461.944993519 | 0",
    ),
    (
        "test_hsd.xtc2",
        "434176 | 89 | 84 | 1240..4520 | 945565368.057851686 .. 945565456.257851686 | 3292",
    ),
    (
        "test_jungfrau05M_calib.xtc2",
        "2124558 | 8 | 2 | 1048670..1048670 | 1112036891.582256987 .. 1112036891.590514526 | 0",
    ),
    (
        "test_timetool.xtc2",
        "1920492 | 1326 | 1325 | 212..4340 | 1576279151.846287258 .. 1576279162.879627336 | 0",
    ),
];

#[test]
fn every_xtc2_file_gives_the_numbers_of_its_table() {
    for (name, expected) in XTC2_TABLE {
        let found = inspect(&format!("lcls-xtc2/{name}"));
        let Content::Xtc2(c) = &found.content else {
            panic!("{name} is not of datagrams")
        };
        let line = format!(
            "{} | {} | {} | {} | {} .. {} | {}",
            found.bytes,
            c.datagrams,
            c.events,
            range(c.event_extent_bytes),
            c.first_event.unwrap(),
            c.last_event.unwrap(),
            c.leftover_bytes,
        );
        assert_eq!(line, *expected, "{name}");
        let faults: Vec<String> = found.faults.iter().map(ToString::to_string).collect();
        let cut = ["byte 430884: truncated: datagram is cut: 3292 of 4500 bytes"];
        assert_eq!(
            faults,
            if *name == "test_hsd.xtc2" {
                &cut[..]
            } else {
                &[]
            },
            "{name}"
        );
    }
    let services = BTreeMap::from([
        ("BeginRun", 1),
        ("BeginStep", 1),
        ("Configure", 1),
        ("Disable", 1),
        ("Enable", 1),
        ("EndRun", 1),
        ("EndStep", 1),
        ("L1Accept", 100),
        ("SlowUpdate", 3),
    ]);
    let found = inspect("lcls-xtc2/mixed_rate/xpptut15-r0014-s000-c000.xtc2");
    assert!(matches!(found.content, Content::Xtc2(content) if content.services == services));
}
