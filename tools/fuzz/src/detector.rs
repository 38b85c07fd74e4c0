//! The readers of detector data: files and payloads.

use bytes::Bytes;
use sheaf_formats::inspect::{FileFormat, Inspection};
use sheaf_formats::stf_file::{FileTfs, TfImage, TfName};
use sheaf_formats::{Findings, Rdh, Walker, hbfs};
use sheaf_protocol::{FlpId, PayloadFormat, RunId, TfId};
use sheaf_stf_builder::km3net::{Km3netConfig, Km3netFile};
use sheaf_stf_builder::stf_file::{Equipments, Payloads, StfFile};
use sheaf_stf_builder::xtc2::{Xtc2Config, Xtc2File};
use sheaf_stf_builder::{
    CutConfig, HeapSlots, Made, RawFile, Replay, ReplayConfig, Share, StfSource, Template,
};
use std::num::{NonZeroU32, NonZeroU64};

/// Pages with raw data headers: each by itself, and the walk over all.
pub fn rdh(input: &[u8]) {
    if let Ok(rdh) = Rdh::decode(input) {
        assert_eq!(Rdh::decode(&rdh.encode()), Ok(rdh));
    }
    let (mut end, mut walker) = (0, Walker::new(input));
    for page in walker.by_ref() {
        assert!(page.offset >= end, "pages overlap at byte {}", page.offset);
        assert!(page.bytes.len() >= Rdh::SIZE + page.payload.len());
        end = page.offset + page.bytes.len();
    }
    assert!(end <= input.len());
    drop(walker.finish());
    inspect(input, Some(FileFormat::Rdh));
    inspect(input, None);
}

/// KM3NeT records and packets, inspected and cut.
pub fn km3net(input: &[u8]) {
    inspect(input, Some(FileFormat::Km3net));
    let (tf, input) = first_tf(input);
    let bytes = Bytes::copy_from_slice(input);
    for first_slice in [None, Some(tf)] {
        let file = Km3netFile::new(bytes.clone(), &Km3netConfig { first_slice }).0;
        let tfs = file.tfs();
        make_some(file, tfs, input.len());
    }
}

/// XTC2 datagrams, inspected and cut.
pub fn xtc2(input: &[u8]) {
    inspect(input, Some(FileFormat::Xtc2));
    let (window, input) = first_tf(input);
    let bytes = Bytes::copy_from_slice(input);
    let window_ns = NonZeroU64::new(window).unwrap_or(NonZeroU64::MIN);
    for config in [
        Xtc2Config::default(),
        Xtc2Config {
            window_ns,
            first_ns: Some(window),
        },
    ] {
        let file = Xtc2File::new(bytes.clone(), &config).0;
        let tfs = file.tfs();
        make_some(file, tfs, input.len());
    }
}

/// TF files of DataDistribution: walked, inspected, read as a source, and written again.
pub fn stf_file(input: &[u8]) {
    inspect(input, Some(FileFormat::StfFile));
    inspect(input, None);
    let (mut end, mut tfs, mut findings) = (0, FileTfs::new(input), Findings::default());
    while let Some(tf) = tfs.next_good(&mut findings) {
        assert!(tf.offset >= end, "TFs overlap at byte {}", tf.offset);
        end = tf.offset + tf.bytes;
        let mut at = tf.offset;
        for block in &tf.blocks {
            assert!(block.offset >= at && block.payload.end <= end);
            at = block.payload.end;
        }
    }
    assert!(end <= input.len());
    let bytes = Bytes::copy_from_slice(input);
    for index in 0..2 {
        let share = Share::new(index, 2).expect("an index below the count");
        for equipments in [
            Equipments::Dealt(share),
            Equipments::All { first_counter: 1 },
        ] {
            let pages = StfFile::new(vec![bytes.clone()], equipments, Payloads::Pages).0;
            let tfs = pages.tfs();
            make_some(pages, tfs, input.len());
        }
    }
    come_out_as_they_went_in(&bytes);
    // Any bytes are a payload: what was laid out is read again without a fault.
    let name = TfName {
        run: 1,
        counter: 1,
        write_time_ms: 1,
    };
    for format in [
        PayloadFormat::RdhPages,
        PayloadFormat::Opaque,
        PayloadFormat::O2Blocks,
    ] {
        let image = TfImage::new(name, &[(FlpId(0), format, input)]);
        let file: Vec<u8> = image.slices(&[input]).flatten().copied().collect();
        let (mut tfs, mut findings) = (FileTfs::new(&file), Findings::default());
        let tf = tfs.next_good(&mut findings).expect("it was just laid out");
        // A TF of O2 blocks is the file as it is; whatever else says that it were one is a payload like any other.
        if format == PayloadFormat::O2Blocks && sheaf_formats::check_stf(format, input).is_ok() {
            assert!(input.is_empty() || tf.bytes == file.len());
        } else {
            assert_eq!(tf.payload_bytes(), input.len() as u64);
        }
        assert!(findings.faults.is_empty() && tfs.next_good(&mut findings).is_none());
    }
}

/// The blocks of a file, as two FLPs take them, make its TFs again: none is lost, none is changed.
fn come_out_as_they_went_in(bytes: &Bytes) {
    let share = |index| Share::new(index, 2).expect("an index below the count");
    let source = |index| {
        let equipments = Equipments::Dealt(share(index));
        StfFile::new(vec![bytes.clone()], equipments, Payloads::Blocks).0
    };
    let mut sources = [source(0), source(1)];
    let (mut tfs, mut findings) = (FileTfs::new(bytes), Findings::default());
    let mut whole = std::collections::BTreeSet::new();
    while let Some(tf) = tfs.next_good(&mut findings) {
        whole.insert(&bytes[tf.offset..tf.offset + tf.bytes]);
    }
    if !findings.faults.is_empty() {
        return;
    }
    for tf in 0..sources[0].tfs().min(8) {
        let stfs = sources
            .each_mut()
            .map(|source| match source.make(TfId(tf), &mut HeapSlots) {
                Made::Payload(stf) => stf.bytes,
                Made::NoRoom | Made::End => panic!("a TF of the source, and a heap with room"),
            });
        let parts = [0, 1].map(|flp: u16| {
            let stf: &[u8] = &stfs[usize::from(flp)];
            (FlpId(flp), PayloadFormat::O2Blocks, stf)
        });
        let image = TfImage::new(TfName::new(RunId(1), TfId(tf), 1), &parts);
        let slices = parts.map(|(_, _, stf)| stf);
        let file: Vec<u8> = image.slices(&slices).flatten().copied().collect();
        assert!(
            whole.contains(file.as_slice()),
            "TF {tf} is none of the file"
        );
    }
}

/// The check of a payload that the `verify` sink does. The first byte says the format.
pub fn check_stf(input: &[u8]) {
    let Some((format, payload)) = input.split_first() else {
        return;
    };
    let formats = PayloadFormat::ALL;
    let format = formats[usize::from(*format) % formats.len()];
    match sheaf_formats::check_stf(format, payload) {
        Ok(counts) => {
            assert!(counts.parts <= payload.len() as u64 && counts.hbfs <= counts.parts);
        }
        Err(fault) => {
            assert!(
                fault.count > 0 && fault.first.offset < payload.len() as u64,
                "{fault}"
            );
        }
    }
}

/// A raw file cut into STFs: for one FLP and for two, and as the template of a replay. The first eight bytes
/// say how.
pub fn cut(input: &[u8]) {
    let (how, input) = first_tf(input);
    let [orbits, first @ .., has_first, share] = how.to_le_bytes();
    let [a, b, c, d, _] = first;
    let config = CutConfig {
        orbits_per_tf: NonZeroU32::new(u32::from(orbits)).unwrap_or(NonZeroU32::MIN),
        first_orbit: (has_first % 2 == 1).then(|| u32::from_le_bytes([a, b, c, d])),
    };
    let (whole, _) = hbfs(input);
    let whole: usize = whole.iter().map(sheaf_formats::Hbf::bytes).sum();
    assert!(whole <= input.len());
    let bytes = Bytes::copy_from_slice(input);
    let of = u16::from(share % 3) + 1;
    let mut shared = 0;
    for index in 0..of {
        let share = Share::new(index, of).expect("an index below the count");
        let file = RawFile::new(bytes.clone(), &config, share).0;
        let tfs = file.tfs();
        shared += make_some(file, tfs, input.len());
    }
    assert!(
        shared <= whole,
        "{shared} bytes in the STFs of all FLPs, {whole} in whole HBFs"
    );
    if let Ok((template, _)) = Template::from_pages(&[input]) {
        let replay = ReplayConfig {
            orbits_per_tf: config.orbits_per_tf,
            ..ReplayConfig::default()
        };
        if let Ok(replay) = Replay::new(&template, replay, Share::ALL) {
            make_from(replay, [0, 1, u64::from(u32::MAX), u64::MAX]);
        }
    }
}

fn inspect(input: &[u8], format: Option<FileFormat>) {
    let Ok(inspection) = Inspection::of("input", input, format) else {
        return;
    };
    let is_within = |offset: u64| offset < input.len() as u64;
    assert!(
        inspection
            .faults
            .iter()
            .all(|fault| is_within(fault.offset))
    );
    assert!(inspection.faults.is_sorted_by_key(|fault| fault.offset));
    assert!(inspection.notes.is_sorted_by_key(|note| note.offset));
}

/// Eight bytes off the front as a number, and the rest.
fn first_tf(input: &[u8]) -> (u64, &[u8]) {
    input
        .split_first_chunk()
        .map_or((0, input), |(first, rest)| {
            (u64::from_le_bytes(*first), rest)
        })
}

/// Makes the first TFs of a finite source of `tfs` TFs, and those around its end. Gives the bytes of all that
/// were made once, which an input of `bytes_max` bytes must be enough for.
fn make_some(source: impl StfSource, tfs: u64, bytes_max: usize) -> usize {
    let mut all: Vec<u64> = (0..tfs.min(64)).collect();
    all.extend(
        [tfs.saturating_sub(1), tfs, u64::MAX]
            .into_iter()
            .filter(|tf| *tf >= 64),
    );
    all.dedup();
    let made = make_from(source, all);
    assert!(made <= bytes_max, "{made} bytes made out of {bytes_max}");
    made
}

fn make_from(mut source: impl StfSource, tfs: impl IntoIterator<Item = u64>) -> usize {
    let mut made = 0;
    for tf in tfs {
        if let Made::Payload(payload) = source.make(TfId(tf), &mut HeapSlots) {
            assert!(payload.len() as u64 <= source.bytes_max());
            made += payload.len();
        }
    }
    made
}
