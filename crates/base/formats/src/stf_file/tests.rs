//! Tests with files built by hand from the description, round trips, and reports of damaged ones.

use super::*;
use crate::fault::Findings;
use crate::inspect::{Content, FileFormat, Inspection};
use crate::rdh::Rdh;
use crate::sample::{hbf, o2_tf, page};
use proptest::prelude::*;
use sheaf_protocol::{FlpId, PayloadFormat, RunId, TfId};

const RDH: PayloadFormat = PayloadFormat::RdhPages;
const OPAQUE: PayloadFormat = PayloadFormat::Opaque;
const BLOCKS: PayloadFormat = PayloadFormat::O2Blocks;
const NAME: TfName = TfName {
    run: 0x0102,
    counter: 8,
    write_time_ms: 0x0018_c000_0000,
};

fn file_of(name: TfName, parts: &[(FlpId, PayloadFormat, &[u8])]) -> Vec<u8> {
    let image = TfImage::new(name, parts);
    let payloads: Vec<&[u8]> = parts.iter().map(|(_, _, payload)| *payload).collect();
    let bytes: Vec<u8> = image.slices(&payloads).flatten().copied().collect();
    assert_eq!(bytes.len() as u64, image.bytes);
    bytes
}

/// Returns TF `counter` with two HBFs of link 2 and one of link 0.
fn tf(counter: u32) -> Vec<u8> {
    let payload = [hbf(counter, 2), hbf(counter + 1, 2), hbf(counter, 0)].concat();
    let name = TfName { counter, ..NAME };
    file_of(name, &[(FlpId(0), RDH, &payload)])
}

fn walk(input: &[u8]) -> (Vec<FileTf>, Findings) {
    let mut findings = Findings::default();
    let mut tfs = FileTfs::new(input);
    let found = std::iter::from_fn(|| tfs.next_good(&mut findings)).collect();
    (found, findings)
}

/// Returns a header of version 3 as AliceO2 lays it out, byte by byte.
fn header_by_hand(
    description: &[u8; 16],
    origin: &[u8; 4],
    fields: [u32; 7],
    payload: u8,
) -> Vec<u8> {
    let [parts, subspec, index, orbit, counter, run, pad] = fields;
    let mut raw = Vec::new();
    raw.extend(b"O2O2");
    raw.extend([96, 0, 0, 0]); // size of the header
    raw.extend([0, 0, 0, 0]); // flags: no other header follows
    raw.extend([3, 0, 0, 0]); // version
    raw.extend(b"DataHead");
    raw.extend(b"NONE\0\0\0\0");
    raw.extend(description);
    raw.extend(origin);
    raw.extend(parts.to_le_bytes());
    raw.extend(b"NONE\0\0\0\0");
    raw.extend(subspec.to_le_bytes());
    raw.extend(index.to_le_bytes());
    raw.extend([payload, 0, 0, 0, 0, 0, 0, 0]);
    for last in [orbit, counter, run, pad] {
        raw.extend(last.to_le_bytes());
    }
    assert_eq!(raw.len(), 96);
    raw
}

#[test]
fn a_tf_has_the_bytes_of_the_description() {
    let (first, second) = (hbf(77, 2), hbf(78, 2));
    let raw = [second.clone(), first.clone()].concat();
    let file = file_of(NAME, &[(FlpId(5), OPAQUE, b"xyz"), (FlpId(0), RDH, &raw)]);
    let mut by_hand = header_by_hand(b"FILE_STF_META\0\0\0", b"FLP\0", [1, 0, 0, 0, 0, 0, 0], 24);
    let size = 96 + 24 + 96 + 2 * 48 + 2 * (96 + 80) + 96 + 3;
    by_hand.extend([1, 0, 0, 0, 0, 0, 0, 0]); // version of the file format
    by_hand.extend([251, 2, 0, 0, 0, 0, 0, 0]);
    assert_eq!(size, 2 * 256 + 251);
    by_hand.extend([0, 0, 0, 0xc0, 0x18, 0, 0, 0]); // write time in ms
    by_hand.extend(header_by_hand(
        b"FILE_STF_INDEX\0\0",
        b"***\0",
        [1, 0, 0, 0, 0, 0, 0],
        96,
    ));
    // Two blocks of link 2 of CRU 1 from byte 0 on, one of ours behind them.
    by_hand.extend(b"RAWDATA\0\0\0\0\0\0\0\0\0ITS\0");
    by_hand.extend([2, 0, 0, 0, 3, 0, 1, 0, 0, 0, 0, 0]);
    by_hand.extend([0, 0, 0, 0, 0, 0, 0, 0, 96, 1, 0, 0, 0, 0, 0, 0]);
    by_hand.extend(b"SHEAF_OPAQUE\0\0\0\0FLP\0");
    by_hand.extend([1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    by_hand.extend([96, 1, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0]);
    // The first orbit is the earliest one, wherever it stands.
    let raw_data = b"RAWDATA\0\0\0\0\0\0\0\0\0";
    by_hand.extend(header_by_hand(
        raw_data,
        b"ITS\0",
        [2, 0x1_0003, 0, 77, 8, 0x0102, 0],
        80,
    ));
    by_hand.extend(&second);
    by_hand.extend(header_by_hand(
        raw_data,
        b"ITS\0",
        [2, 0x1_0003, 1, 77, 8, 0x0102, 0],
        80,
    ));
    by_hand.extend(&first);
    let ours = b"SHEAF_OPAQUE\0\0\0\0";
    by_hand.extend(header_by_hand(
        ours,
        b"FLP\0",
        [1, 5, 0, 77, 8, 0x0102, 0],
        3,
    ));
    by_hand.extend(b"xyz");
    assert_eq!(file, by_hand);
    let (tfs, findings) = walk(&file);
    assert_eq!((tfs.len(), findings), (1, Findings::default()));
    let found = &tfs[0];
    assert_eq!(
        (
            found.run(),
            found.counter(),
            found.first_orbit(),
            found.write_time_ms,
            found.bytes
        ),
        (0x0102, 8, 77, NAME.write_time_ms, size)
    );
}

#[test]
fn equipment_is_named_as_datadistribution_does() {
    for (system, cru, dw, link, expected) in [
        (32, 1, 0, 2, "ITS/RAWDATA/0x10003"),
        (3, 0x123, 1, 15, "TPC/RAWDATA/0x1231000"),
        (200, 0, 0, 0, "***/RAWDATA/0x1"),
    ] {
        let rdh = Rdh {
            system_id: system,
            link: crate::Link { cru, dw, link },
            ..Rdh::default()
        };
        assert_eq!(Equipment::of_page(&rdh).to_string(), expected);
    }
    let stf = Equipment::of_stf(FlpId(7), PayloadFormat::Xtc2Datagrams);
    assert_eq!(
        (stf.to_string().as_str(), stf.flp(), stf.format()),
        (
            "FLP/SHEAF_XTC2/0x7",
            Some(FlpId(7)),
            PayloadFormat::Xtc2Datagrams
        )
    );
    assert_eq!(text(b"a\x07b\0\0"), "a?b");
}

#[test]
fn an_stf_that_is_not_made_of_whole_hbfs_is_kept_whole() {
    let cut = [hbf(5, 1), page(6, 0, false, 1)].concat();
    for (format, payload, expected) in [
        (RDH, &cut[..], "FLP/SHEAF_RDH/0x3"),
        (RDH, b"no page", "FLP/SHEAF_RDH/0x3"),
        (RDH, b"", "FLP/SHEAF_RDH/0x3"),
        (OPAQUE, b"", "FLP/SHEAF_OPAQUE/0x3"),
    ] {
        let file = file_of(NAME, &[(FlpId(3), format, payload)]);
        let (tfs, findings) = walk(&file);
        assert_eq!(findings, Findings::default());
        let [block] = tfs[0].blocks.as_slice() else {
            panic!("one block")
        };
        assert_eq!(block.header.equipment.to_string(), expected);
        assert_eq!(&file[block.payload.clone()], payload);
    }
}

#[test]
fn headers_of_earlier_versions_and_stacks_are_read() {
    let header = DataHeader {
        tf_counter: 9,
        run: 4,
        ..DataHeader::new(Equipment::of_stf(FlpId(1), OPAQUE), 0)
    };
    let full = header.encode();
    for (version, size, counter, run) in [(1, 80, 0, 0), (2, 88, 9, 0), (3, 96, 9, 4)] {
        let mut raw = full[..size].to_vec();
        (raw[4], raw[12]) = (u8::try_from(size).unwrap(), version);
        let (found, end) = DataHeader::decode(&raw).unwrap();
        assert_eq!((found.tf_counter, found.run, end), (counter, run, size));
    }
    let mut stacked = full.to_vec();
    stacked[8] = 1;
    stacked.extend(b"O2O2\x28\0\0\0\0\0\0\0\x01\0\0\0NameHeadNONE\0\0\0\0name\0\0\0\0");
    assert_eq!(DataHeader::decode(&stacked), Ok((header, 136)));
    let endless = [&stacked[..96], &stacked[..96].repeat(20)].concat();
    assert_eq!(DataHeader::decode(&endless), Err(HeaderError::Stack));
    let cut = DataHeader::decode(&stacked[..120]).unwrap_err();
    assert_eq!(cut.to_string(), "header is cut: 24 of 40 bytes");
}

#[test]
fn what_is_no_tf_of_o2_blocks_is_named_and_kept_whole() {
    let whole = tf(1);
    let wrong = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut payload = whole.clone();
        change(&mut payload);
        payload
    };
    for (payload, expected) in [
        (
            b"rubbish".to_vec(),
            "byte 0: bad-header: header starts with [72, 75, 62, 62]",
        ),
        (
            wrong(&|b| b.truncate(839)),
            "byte 0: truncated: TF is cut: 839 of 840 bytes",
        ),
        (
            wrong(&|b| b.extend(b"xx")),
            "byte 840: bad-offset: payload has 842 bytes, expected 840, those of one TF",
        ),
        (
            wrong(&|b| b[236] = 7),
            "byte 216: bad-index: index names ITS/RAWDATA/0x10001 with 7",
        ),
        (
            wrong(&|b| b[385] = 255),
            "byte 312: bad-offset: block ITS/RAWDATA/0x10001 states",
        ),
    ] {
        let error = TfPayload::read(&payload).unwrap_err().to_string();
        let found = error.strip_prefix("payload of O2 blocks has 1 faults, the first at ");
        assert!(
            found.is_some_and(|text| text.starts_with(expected)),
            "{error}"
        );
        let file = file_of(NAME, &[(FlpId(3), BLOCKS, &payload)]);
        let (tfs, findings) = walk(&file);
        assert_eq!(findings, Findings::default());
        let [block] = tfs[0].blocks.as_slice() else {
            panic!("one block")
        };
        assert_eq!(block.header.equipment.to_string(), "FLP/SHEAF_O2BLOCKS/0x3");
        assert_eq!(file[block.payload.clone()], payload);
    }
}

#[test]
fn only_blocks_of_pages_are_pages() {
    let whole = tf(1);
    let read = TfPayload::read(&whole).unwrap();
    let pages: Vec<u8> = read
        .pages()
        .unwrap()
        .into_iter()
        .flat_map(|range| whole[range].to_vec())
        .collect();
    assert_eq!(pages, [hbf(1, 0), hbf(1, 2), hbf(2, 2)].concat());
    let other = file_of(
        NAME,
        &[(FlpId(1), RDH, &hbf(1, 2)), (FlpId(2), OPAQUE, b"x")],
    );
    let refused = TfPayload::read(&other).unwrap().pages().unwrap_err();
    assert_eq!(
        refused.to_string(),
        "TF has a block of FLP/SHEAF_OPAQUE/0x2, expected RDH pages alone: blocks of RAWDATA"
    );
}

/// Changes the second of three TFs; checks the counters of those that are left, and the findings.
fn check(change: impl FnOnce(&mut Vec<u8>), counters: &[u32], expected: &[&str]) {
    let mut second = tf(2);
    change(&mut second);
    let input = [tf(1), second, tf(3)].concat();
    let (tfs, findings) = walk(&input);
    let found: Vec<String> = findings.faults.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
    assert_eq!(
        tfs.iter().map(FileTf::counter).collect::<Vec<_>>(),
        counters
    );
}

#[test]
fn damage_is_named_with_its_place_and_the_good_part_is_kept() {
    // Each TF has 840 bytes: 120, an index of 96 + 2 * 48, three blocks of 176.
    assert_eq!(tf(1).len(), 840);
    check(|_| {}, &[1, 2, 3], &[]);
    check(
        |b| b[0] = b'X',
        &[1],
        &[
            "byte 840: bad-header: header starts with [58, 32, 4f, 32], expected [4f, 32, 4f, 32] (\"O2O2\"); \
           the walk stops here",
        ],
    );
    check(
        |b| b[45] = b'X',
        &[1],
        &[
            "byte 840: bad-header: block is FLP/FILE_STF_METAX/0x0, expected FILE_STF_META; the walk stops here",
        ],
    );
    check(
        |b| b[96] = 2,
        &[1],
        &["byte 840: bad-version: TF has file version 2, expected 1; the walk stops here"],
    );
    check(
        |b| b[12] = 4,
        &[1],
        &["byte 840: bad-version: header has version 4, expected 1 to 3; the walk stops here"],
    );
    check(
        |b| b[4] = 95,
        &[1],
        &[
            "byte 840: bad-header-size: header states a size of 95, expected at least 96; the walk stops here",
        ],
    );
    check(
        |b| b[104..112].copy_from_slice(&119_u64.to_le_bytes()),
        &[1],
        &[
            "byte 840: bad-offset: TF states a size of 119 bytes, expected at least 120; the walk stops here",
        ],
    );
    check(
        |b| b[104..112].copy_from_slice(&u64::MAX.to_le_bytes()),
        &[1],
        &[
            "byte 840: truncated: TF is cut: 1680 of 18446744073709551615 bytes; the walk stops here",
        ],
    );
    check(
        |b| b[152] = b'X',
        &[1, 3],
        &[
            "byte 960: bad-header: block is ***/XILE_STF_INDEX/0x0, expected FILE_STF_INDEX; the walk goes on at \
           byte 1680",
        ],
    );
    check(
        |b| b[384] = 255,
        &[1, 3],
        &[
            "byte 1503: bad-header: header starts with [ab, 4f, 32, 4f], expected [4f, 32, 4f, 32] (\"O2O2\"); \
           the walk goes on at byte 1680",
        ],
    );
    check(
        |b| b[385] = 255,
        &[1, 3],
        &[
            "byte 1152: bad-offset: block ITS/RAWDATA/0x10001 states 65360 bytes of payload, its TF has 432 left; \
           the walk goes on at byte 1680",
        ],
    );
}

#[test]
fn an_index_that_contradicts_the_blocks_is_reported_and_the_blocks_are_believed() {
    check(
        |b| b[236] = 7,
        &[1, 2, 3],
        &[
            "byte 1056: bad-index: index names ITS/RAWDATA/0x10001 with 7 blocks of 176 bytes at 0, its TF has \
           ITS/RAWDATA/0x10001 with 1 blocks of 176 bytes at 0",
        ],
    );
    check(
        |b| b[264] = b'X',
        &[1, 2, 3],
        &[
            "byte 1104: bad-index: index names ITS/XAWDATA/0x10003 with 2 blocks of 352 bytes at 176, its TF has \
           ITS/RAWDATA/0x10003 with 2 blocks of 352 bytes at 176",
        ],
    );
}

#[test]
fn a_cut_file_loses_its_last_tf_only() {
    let input = [tf(1), tf(2)].concat();
    for cut in 1..840 {
        let (tfs, findings) = walk(&input[..840 + cut]);
        assert_eq!((tfs.len(), findings.faults.len()), (1, 1), "{cut} bytes");
        assert_eq!(findings.faults[0].kind.name(), "truncated", "{cut} bytes");
        assert_eq!(findings.faults[0].offset, 840);
    }
}

#[test]
fn order_is_noted_and_other_runs_are_taken() {
    let other = file_of(TfName { run: 9, ..NAME }, &[(FlpId(0), OPAQUE, b"x")]);
    let input = [tf(1), tf(1), tf(5), tf(4), other].concat();
    let (tfs, findings) = walk(&input);
    let notes: Vec<&str> = findings
        .notes
        .iter()
        .map(|note| note.detail.as_str())
        .collect();
    assert_eq!(tfs.len(), 5);
    assert_eq!(
        notes,
        [
            "TF 1 comes once more",
            "TF 5 follows TF 1: 3 missing",
            "TF 4 follows TF 5",
            "TF of run 9 follows one of run 258"
        ]
    );
}

#[test]
fn an_inspection_has_the_documented_fields() {
    let input = [tf(1), tf(3), b"xx".to_vec()].concat();
    let found = Inspection::of("a.tf", &input, None).unwrap();
    assert_eq!(found.format, FileFormat::StfFile);
    assert!(matches!(&found.content, Content::StfFile(content) if content.tfs == 2));
    let json = serde_json::to_string(&found).unwrap();
    let expected = concat!(
        r#"{"file":"a.tf","format":"stf-file","bytes":1682,"tfs":2,"tf_bytes":[840,840],"#,
        r#""run_numbers":[258],"tf_counters":[1,3],"first_orbits":[1,3],"blocks":6,"#,
        r#""payload_bytes":480,"equipment":[["ITS","RAWDATA",65537,2],["ITS","RAWDATA",65539,4]],"#,
        r#""write_time_ms":[106300440576,106300440576],"leftover_bytes":2,"#,
        r#""faults":[{"offset":1680,"kind":"truncated","detail":"header is cut: 2 of 80 bytes; the walk "#,
        r#"stops here"}],"notes":[{"offset":840,"kind":"gap","detail":"TF 3 follows TF 1: 1 missing"}]}"#,
    );
    assert_eq!(json, expected);
}

/// Returns parts as an EPN has them: pages of whole HBFs, or any bytes.
fn parts() -> impl Strategy<Value = Vec<(PayloadFormat, Vec<u8>)>> {
    let pages = prop::collection::vec((0_u32..50, 0_u8..4), 0..6).prop_map(|frames| {
        let pages = frames.into_iter().map(|(orbit, link)| hbf(orbit, link));
        (RDH, pages.flatten().collect())
    });
    let any = (
        0..=PayloadFormat::CODE_MAX,
        prop::collection::vec(any::<u8>(), 0..60),
    )
        .prop_map(|(code, bytes)| (PayloadFormat::from_code(code).unwrap(), bytes));
    prop::collection::vec(prop_oneof![pages, any], 0..5)
}

proptest! {
    #[test]
    fn every_byte_of_a_tf_is_in_its_file_and_comes_back(
        parts in parts(), run in any::<u64>(), id in 0_u64..1 << 40, time in any::<u64>(),
    ) {
        let name = TfName::new(RunId(run), TfId(id), time);
        let parts: Vec<(FlpId, PayloadFormat, &[u8])> = (0..)
            .zip(&parts)
            .map(|(flp, (format, payload))| (FlpId(flp), *format, payload.as_slice()))
            .collect();
        let file = file_of(name, &parts);
        let (tfs, findings) = walk(&file);
        prop_assert_eq!(findings, Findings::default());
        prop_assert_eq!(tfs.len(), 1);
        prop_assert_eq!((tfs[0].bytes, tfs[0].write_time_ms), (file.len(), time));
        prop_assert!(tfs[0].blocks.is_sorted_by_key(|block| block.header.equipment));
        // Empty O2 blocks are nothing; rubbish is kept like any other payload.
        let payload: usize = parts.iter().map(|(_, _, payload)| payload.len()).sum();
        prop_assert_eq!(tfs[0].payload_bytes(), payload as u64);
        for block in &tfs[0].blocks {
            prop_assert_eq!((block.header.tf_counter, block.header.run), (name.counter, name.run));
            if let Some(flp) = block.header.equipment.flp() {
                prop_assert_eq!(&file[block.payload.clone()], parts[usize::from(flp.0)].2);
            }
        }
    }

    #[test]
    fn a_whole_tf_is_a_payload_and_stands_in_a_file_byte_for_byte(seed in any::<u64>()) {
        let file = o2_tf(seed, 7, 9);
        let (tfs, findings) = walk(&file);
        prop_assert_eq!((tfs.len(), findings), (1, Findings::default()));
        let parts: [(FlpId, PayloadFormat, &[u8]); 2] =
            [(FlpId(3), BLOCKS, &file), (FlpId(4), BLOCKS, b"")];
        prop_assert_eq!(file_of(NAME, &parts), file);
    }

    #[test]
    fn shares_beside_other_parts_stay_in_the_file_block_by_block(seed in any::<u64>()) {
        let file = o2_tf(seed, 7, 9);
        let (tfs, _) = walk(&file);
        let raw = hbf(3, 2);
        let image = file_of(NAME, &[(FlpId(0), RDH, &raw), (FlpId(1), BLOCKS, &file)]);
        let (made, findings) = walk(&image);
        prop_assert_eq!((made.len(), findings), (1, Findings::default()));
        let bytes = |input: &[u8], tf: &FileTf| -> Vec<Vec<u8>> {
            let of_block = |block: &Block| input[block.offset..block.payload.end].to_vec();
            tf.blocks.iter().map(of_block).collect()
        };
        let (mut expected, mut found) = (bytes(&file, &tfs[0]), bytes(&image, &made[0]));
        prop_assert_eq!(found.len(), expected.len() + 1);
        found.retain(|block| !block.ends_with(&raw));
        found.sort();
        expected.sort();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_damage_is_survived(
        at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let mut input = [tf(1), tf(2), tf(3)].concat();
        let index = at.index(input.len());
        input[index] = value;
        input.truncate(cut.index(input.len() + 1));
        let (tfs, findings) = walk(&input);
        prop_assert!(tfs.iter().all(|tf| tf.offset + tf.bytes <= input.len()));
        prop_assert!(findings.faults.iter().all(|fault| fault.offset < input.len() as u64));
    }
}
