//! Content of a file of detector data, in numbers: for people, and as JSON for machines.
//!
//! The JSON form of an [`Inspection`] is described in `docs/reference/formats.md`, section "What `sheaf data inspect`
//! prints"; its field names are fixed.

use crate::fault::{Fault, FaultKind, Findings, Note};
use crate::km3net::{PacketWalk, Packets, next_record};
use crate::order::Order;
use crate::rdh::Link;
use crate::stf_file::{Block, Blocks, Equipment, TfWalk, text};
use crate::tf_file::{TfFileError, check_tf_file};
use crate::view::View;
use crate::walk::next_page;
use crate::xtc2::{DatagramWalk, EventTime, Service};
use serde::{Serialize, Serializer};
use sheaf_protocol::Part;
use std::collections::{BTreeMap, BTreeSet};

mod format;

pub use format::{FileFormat, UnknownFormat};

/// Content of one file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspection {
    /// Name of the file, as given.
    pub file: String,
    /// Format of the file.
    pub format: FileFormat,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Numbers of its format.
    #[serde(flatten)]
    pub content: Content,
    /// Faults, by offset.
    pub faults: Vec<Fault>,
    /// Notes, by offset.
    pub notes: Vec<Note>,
    /// Faults and notes that were counted but not listed, because there are very many.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Names of fields that do not list all values, because there are more than [`Inspection::LISTED_MAX`].
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub cut_lists: BTreeSet<&'static str>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Numbers of a file, by format.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// Numbers of RDH pages.
    Rdh(RdhContent),
    /// Numbers of KM3NeT records.
    Records(RecordContent),
    /// Numbers of KM3NeT packets.
    Packets(PacketContent),
    /// Numbers of XTC2 datagrams.
    Xtc2(Xtc2Content),
    /// Numbers of a TF file of DataDistribution.
    StfFile(StfFileContent),
    /// Numbers of a TF file of Sheaf.
    TfFile(TfFileContent),
}

/// Content of a file of RDH pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RdhContent {
    /// Versions of the headers.
    pub rdh_versions: BTreeSet<u8>,
    /// How payloads are packed: 0 padded, 1 and 2 unpadded.
    pub data_formats: BTreeSet<u8>,
    /// Pages that could be read.
    pub pages: u64,
    /// Bytes in these pages, without headers and padding.
    pub payload_bytes: u64,
    /// FEE ids.
    pub fee_ids: BTreeSet<u16>,
    /// Links, each as [CRU, DW, link].
    #[serde(serialize_with = "as_triples")]
    pub links: BTreeSet<Link>,
    /// Orbits, ascending.
    pub orbits: BTreeSet<u32>,
    /// Pages that open an HBF.
    pub hbf_opened: u64,
    /// Pages that close an HBF.
    pub hbf_closed: u64,
    /// Pages that open an HBF and have the TF bit.
    pub tf_starts: u64,
}

fn as_triples<S: Serializer>(links: &BTreeSet<Link>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(links.iter().map(|link| (link.cru, link.dw, link.link)))
}

/// Content of a file of KM3NeT records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordContent {
    /// Records that could be read.
    pub records: u64,
    /// Number of records of each type, by its code.
    pub record_types: BTreeMap<i32, u64>,
    /// Versions; empty for a legacy file.
    pub versions: BTreeSet<i16>,
    /// Detectors.
    pub detectors: BTreeSet<i32>,
    /// Runs.
    pub runs: BTreeSet<i32>,
    /// Frame indices, ascending; in the file they may stand in another order.
    pub frame_indices: BTreeSet<i32>,
    /// Seconds of UTC, ascending.
    pub utc_s: BTreeSet<u32>,
    /// Frames in time slices.
    pub frames: u64,
    /// Hits in these frames.
    pub hits: u64,
    /// Smallest and largest record.
    pub record_bytes: Option<(u64, u64)>,
}

/// Content of a file of KM3NeT front-end packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PacketContent {
    /// Packets that could be read.
    pub packets: u64,
    /// Number of packets of each type, by its four letters.
    pub packet_types: BTreeMap<&'static str, u64>,
    /// Runs.
    pub runs: BTreeSet<u32>,
    /// Modules.
    pub modules: BTreeSet<u32>,
    /// Time stamps, ascending, each as [second, tick of 16 ns].
    pub time_stamps: BTreeSet<(u32, u32)>,
    /// Sequence numbers in the order of the file.
    pub sequences: Vec<u32>,
    /// Smallest and largest packet, without the length in front.
    pub packet_bytes: Option<(u64, u64)>,
}

/// Content of a file of XTC2 datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Xtc2Content {
    /// Datagrams that could be read.
    pub datagrams: u64,
    /// Number of datagrams of each service.
    pub services: BTreeMap<&'static str, u64>,
    /// Datagrams that are events (`L1Accept`).
    pub events: u64,
    /// Smallest and largest extent of an event in bytes.
    pub event_extent_bytes: Option<(u64, u64)>,
    /// Time of the first event in the file, in seconds with nine decimals: JSON numbers cannot hold it.
    #[serde(serialize_with = "as_text")]
    pub first_event: Option<EventTime>,
    /// Time of the last event in the file.
    #[serde(serialize_with = "as_text")]
    pub last_event: Option<EventTime>,
    /// Bytes at the end that belong to no whole datagram.
    pub leftover_bytes: u64,
}

/// Content of a TF file of DataDistribution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StfFileContent {
    /// Whole TFs.
    pub tfs: u64,
    /// Smallest and largest TF in the file.
    pub tf_bytes: Option<(u64, u64)>,
    /// Runs.
    pub run_numbers: BTreeSet<u32>,
    /// Counters of the TFs, ascending.
    pub tf_counters: BTreeSet<u32>,
    /// Orbits that TFs begin with, ascending.
    pub first_orbits: BTreeSet<u32>,
    /// Blocks of data.
    pub blocks: u64,
    /// Bytes in the blocks, without headers.
    pub payload_bytes: u64,
    /// Number of blocks of each equipment, by origin, description and subspecification.
    #[serde(serialize_with = "as_names")]
    pub equipment: BTreeMap<Equipment, u64>,
    /// First and last time at which a TF was written, in ms since 1970.
    pub write_time_ms: Option<(u64, u64)>,
    /// Bytes of TFs that are not whole, and of those behind them.
    pub leftover_bytes: u64,
}

/// Content of a TF file of Sheaf.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TfFileContent {
    /// The run, as 16 hexadecimal digits.
    pub run: String,
    /// The TF.
    pub tf: u64,
    /// The assignment under which it was built.
    pub attempt: u32,
    /// Whether it is marked: an EPN that died may have delivered it before.
    pub redelivered: bool,
    /// Bytes of all payloads.
    pub payload_bytes: u64,
    /// STFs, by FLP.
    pub parts: Vec<TfPart>,
    /// FLPs whose STFs are missing.
    pub missing: Vec<u16>,
}

/// STF in a TF file of Sheaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TfPart {
    /// The FLP.
    pub flp: u16,
    /// Name of the payload format.
    pub format: &'static str,
    /// Bytes of the payload.
    pub bytes: u64,
    /// CRC-32C that its FLP took, as 8 hexadecimal digits.
    pub digest: String,
}

fn as_names<S: Serializer>(
    equipment: &BTreeMap<Equipment, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(equipment.iter().map(|(name, blocks)| {
        let (origin, description) = (text(&name.origin), text(&name.description));
        (origin, description, name.subspec, *blocks)
    }))
}

fn as_text<S: Serializer>(time: &Option<EventTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(time),
        None => serializer.serialize_none(),
    }
}

impl Inspection {
    /// Values of one list that are kept at most, so that memory does not grow with the file.
    pub const LISTED_MAX: usize = 1 << 20;

    /// Inspects the `bytes` of `file`, as `format` or as the detected one.
    ///
    /// # Errors
    ///
    /// [`UnknownFormat`] if no format is given and none is detected.
    pub fn of(
        file: &str,
        mut bytes: &[u8],
        format: Option<FileFormat>,
    ) -> Result<Self, UnknownFormat> {
        Self::of_view(file, &mut bytes, format)
    }

    /// Inspects `view`, the bytes of `file`, as `format` or as the detected one. What it keeps does not grow with the
    /// size of the file.
    ///
    /// # Errors
    ///
    /// [`UnknownFormat`] if no format is given and none is detected.
    pub fn of_view(
        file: &str,
        view: &mut impl View,
        format: Option<FileFormat>,
    ) -> Result<Self, UnknownFormat> {
        let start = view.at(0, FileFormat::START_BYTES);
        let detected = format.or_else(|| FileFormat::detect(start));
        let format = detected.ok_or_else(|| UnknownFormat::of(start))?;
        let has_packets = Packets::are_at_start_of(start);
        let mut lists = Lists::default();
        let (content, mut findings) = match format {
            FileFormat::Rdh => rdh_content(view, &mut lists),
            FileFormat::Km3net if has_packets => packet_content(view, &mut lists),
            FileFormat::Km3net => record_content(view, &mut lists),
            FileFormat::Xtc2 => xtc2_content(view),
            FileFormat::StfFile => stf_file_content(view, &mut lists),
            FileFormat::TfFile => tf_file_content(view),
        };
        findings.sort();
        Ok(Self {
            file: file.to_owned(),
            format,
            bytes: view.end() as u64,
            content,
            faults: findings.faults,
            notes: findings.notes,
            left_out: findings.left_out,
            cut_lists: lists.cut,
        })
    }
}

/// Lists that are full.
#[derive(Debug, Default)]
struct Lists {
    cut: BTreeSet<&'static str>,
}

impl Lists {
    /// Keeps `value` in the list of that name, unless the list is full.
    fn keep<T: Ord>(&mut self, name: &'static str, list: &mut BTreeSet<T>, value: T) {
        if list.len() < Inspection::LISTED_MAX {
            list.insert(value);
        } else if !list.contains(&value) {
            self.cut.insert(name);
        }
    }
}

fn rdh_content(view: &mut impl View, lists: &mut Lists) -> (Content, Findings) {
    let (mut content, mut findings) = (RdhContent::default(), Findings::default());
    let (mut at, mut order) = (0, Order::default());
    let mut before = None;
    while let Some(page) = next_page(view, &mut at, &mut findings) {
        let rdh = &page.rdh;
        order.take(page.offset, rdh, &mut findings);
        content.pages += 1;
        content.payload_bytes += page.payload_bytes as u64;
        content.hbf_opened += u64::from(rdh.opens_hbf());
        content.hbf_closed += u64::from(rdh.closes_hbf());
        content.tf_starts += u64::from(rdh.opens_hbf() && rdh.starts_tf());
        // Pages come in runs that differ in none of these.
        let named = (
            rdh.version,
            rdh.data_format,
            rdh.fee_id,
            rdh.link,
            rdh.orbit,
        );
        if before.replace(named) != Some(named) {
            content.rdh_versions.insert(rdh.version);
            content.data_formats.insert(rdh.data_format);
            content.fee_ids.insert(rdh.fee_id);
            lists.keep("links", &mut content.links, rdh.link);
            lists.keep("orbits", &mut content.orbits, rdh.orbit);
        }
    }
    order.finish(&mut findings);
    (Content::Rdh(content), findings)
}

fn record_content(view: &mut impl View, lists: &mut Lists) -> (Content, Findings) {
    let (mut content, mut findings) = (RecordContent::default(), Findings::default());
    let mut at = 0;
    let mut frame_index_before = None;
    while let Some(record) = next_record(view, &mut at, &mut findings) {
        content.records += 1;
        *content.record_types.entry(record.kind.code()).or_default() += 1;
        content.versions.extend(record.version);
        lists.keep("detectors", &mut content.detectors, record.detector);
        lists.keep("runs", &mut content.runs, record.run);
        lists.keep(
            "frame_indices",
            &mut content.frame_indices,
            record.frame_index,
        );
        lists.keep("utc_s", &mut content.utc_s, record.utc_s);
        widen(&mut content.record_bytes, record.bytes as u64);
        let counts = record.count_frames(view, record.offset, &mut findings);
        content.frames += counts.frames;
        content.hits += counts.hits;
        if let Some(before) = frame_index_before.replace(record.frame_index) {
            record.note_order(before, &mut findings);
        }
    }
    (Content::Records(content), findings)
}

fn packet_content(view: &mut impl View, lists: &mut Lists) -> (Content, Findings) {
    let (mut content, mut findings) = (PacketContent::default(), Findings::default());
    let mut packets = PacketWalk::default();
    while let Some(packet) = packets.next_good(view, &mut findings) {
        content.packets += 1;
        *content.packet_types.entry(packet.kind.name()).or_default() += 1;
        lists.keep("runs", &mut content.runs, packet.run);
        lists.keep("modules", &mut content.modules, packet.module);
        let time = (packet.utc_s, packet.ticks);
        lists.keep("time_stamps", &mut content.time_stamps, time);
        if content.sequences.len() < Inspection::LISTED_MAX {
            content.sequences.push(packet.sequence);
        } else {
            lists.cut.insert("sequences");
        }
        widen(&mut content.packet_bytes, packet.udp_bytes() as u64);
    }
    (Content::Packets(content), findings)
}

fn xtc2_content(view: &mut impl View) -> (Content, Findings) {
    let (mut content, mut findings) = (Xtc2Content::default(), Findings::default());
    let mut datagrams = DatagramWalk::default();
    let mut end = 0;
    while let Some(datagram) = datagrams.next_good(view, &mut findings) {
        content.datagrams += 1;
        *content.services.entry(datagram.service.name()).or_default() += 1;
        if datagram.service == Service::L1Accept {
            content.events += 1;
            widen(&mut content.event_extent_bytes, datagram.extent.into());
            content.first_event.get_or_insert(datagram.time);
            content.last_event = Some(datagram.time);
        }
        end = datagram.offset + datagram.bytes;
    }
    content.leftover_bytes = (view.end() - end) as u64;
    (Content::Xtc2(content), findings)
}

/// Counts of the blocks of one TF, which may turn out not to be whole.
#[derive(Default)]
struct BlockCounts {
    blocks: u64,
    payload_bytes: u64,
    equipment: BTreeMap<Equipment, u64>,
    is_cut: bool,
}

impl Blocks for BlockCounts {
    fn clear(&mut self) {
        *self = Self::default();
    }

    fn push(&mut self, block: Block) {
        self.blocks += 1;
        self.payload_bytes += block.payload.len() as u64;
        self.is_cut |= !count(&mut self.equipment, block.header.equipment, 1);
    }
}

/// Adds `blocks` to those of `equipment`, and returns whether there was room for it.
fn count(all: &mut BTreeMap<Equipment, u64>, equipment: Equipment, blocks: u64) -> bool {
    if let Some(found) = all.get_mut(&equipment) {
        *found += blocks;
        return true;
    }
    let has_room = all.len() < Inspection::LISTED_MAX;
    if has_room {
        all.insert(equipment, blocks);
    }
    has_room
}

fn stf_file_content(view: &mut impl View, lists: &mut Lists) -> (Content, Findings) {
    let (mut content, mut findings) = (StfFileContent::default(), Findings::default());
    let (mut tfs, mut counts) = (TfWalk::default(), BlockCounts::default());
    let mut whole = 0;
    while let Some(tf) = tfs.next_good(view, &mut counts, &mut findings) {
        whole += tf.bytes;
        content.tfs += 1;
        lists.keep("run_numbers", &mut content.run_numbers, tf.run);
        lists.keep("tf_counters", &mut content.tf_counters, tf.counter);
        lists.keep("first_orbits", &mut content.first_orbits, tf.first_orbit);
        content.blocks += counts.blocks;
        content.payload_bytes += counts.payload_bytes;
        let mut is_cut = counts.is_cut;
        for (equipment, blocks) in &counts.equipment {
            is_cut |= !count(&mut content.equipment, *equipment, *blocks);
        }
        if is_cut {
            lists.cut.insert("equipment");
        }
        widen(&mut content.tf_bytes, tf.bytes as u64);
        widen(&mut content.write_time_ms, tf.write_time_ms);
    }
    content.leftover_bytes = (view.end() - whole) as u64;
    (Content::StfFile(content), findings)
}

fn tf_file_content(view: &mut impl View) -> (Content, Findings) {
    let (mut content, mut findings) = (TfFileContent::default(), Findings::default());
    let Some(last) = view.end().checked_sub(1) else {
        return (Content::TfFile(content), findings);
    };
    let fault = |findings: &mut Findings, at: usize, error: &TfFileError| {
        findings.fault(at.min(last), kind_of(error), || error.to_string());
    };
    let read = check_tf_file(view, |at, error| fault(&mut findings, at, &error));
    match read {
        Ok(tf) => {
            content.run = tf.run.to_string();
            (content.tf, content.attempt) = (tf.tf.0, tf.attempt.0);
            content.redelivered = tf.is_redelivered;
            content.payload_bytes = tf.bytes();
            content.missing = tf.missing.iter().map(|flp| flp.0).collect();
            let part = |part: &Part<()>| TfPart {
                flp: part.source.flp.0,
                format: part.format.name(),
                bytes: part.bytes,
                digest: format!("{:08x}", part.digest),
            };
            content.parts = tf.parts.iter().map(part).collect();
        }
        Err(error) => fault(&mut findings, 0, &error),
    }
    (Content::TfFile(content), findings)
}

fn kind_of(error: &TfFileError) -> FaultKind {
    match error {
        TfFileError::Magic { .. } | TfFileError::Order { .. } => FaultKind::BadHeader,
        TfFileError::Version { .. } | TfFileError::Format { .. } => FaultKind::BadVersion,
        TfFileError::Truncated { .. } => FaultKind::Truncated,
        TfFileError::Trailing { .. } | TfFileError::Invalid { .. } => FaultKind::BadOffset,
        TfFileError::HeadDigest { .. } | TfFileError::PayloadDigest { .. } => FaultKind::BadDigest,
    }
}

/// Widens the range from smallest to largest so that it holds `size`.
fn widen(range: &mut Option<(u64, u64)>, size: u64) {
    let (smallest, largest) = range.unwrap_or((size, size));
    *range = Some((smallest.min(size), largest.max(size)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{hbf, o2_tf, page};

    #[test]
    fn the_json_has_the_documented_fields() {
        let input = [
            page(7, 0, false, 0),
            page(7, 1, true, 1),
            page(9, 0, false, 2),
        ]
        .concat();
        let json = serde_json::to_string(&Inspection::of("a.raw", &input, None).unwrap()).unwrap();
        let expected = concat!(
            r#"{"file":"a.raw","format":"rdh","bytes":240,"rdh_versions":[7],"data_formats":[0],"#,
            r#""pages":3,"payload_bytes":48,"fee_ids":[0],"links":[[1,0,2]],"orbits":[7,9],"#,
            r#""hbf_opened":2,"hbf_closed":1,"tf_starts":0,"#,
            r#""faults":[{"offset":160,"kind":"unclosed-hbf","detail":"HBF of orbit 9 on link 1.0.2 "#,
            r#"is not closed: the input ends after its page 0"}],"#,
            r#""notes":[{"offset":160,"kind":"gap","detail":"orbit 9 of link 1.0.2 follows orbit 7: "#,
            r#"1 missing"}]}"#,
        );
        assert_eq!(json, expected);
    }

    #[test]
    fn a_file_of_no_known_format_is_named_unless_one_is_given() {
        let unknown = Inspection::of("notes.txt", b"xxxxxxxxyyy", None).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "no known format: the file starts with [78, 78, 78, 78, 78, 78, 78, 78] (\"xxxxxxxx\"), expected rdh \
             (ALICE raw data, RDH 6 or 7), km3net (KM3NeT records or packets), xtc2 (XTC2 datagrams), stf-file (TFs \
             of DataDistribution) or tf-file (a TF of Sheaf)"
        );
        let given = Inspection::of("notes.txt", &[b'x'; 100], Some(FileFormat::Rdh)).unwrap();
        assert_eq!(
            given.faults[0].to_string(),
            "byte 0: bad-version: RDH has version 120, expected 6 or 7; the walk stops here"
        );
    }

    /// Input of which a few bytes are given at a time, and the most that was asked for.
    struct Few<'a> {
        bytes: &'a [u8],
        asked_max: usize,
    }

    impl View for Few<'_> {
        fn end(&self) -> usize {
            self.bytes.len()
        }

        fn at(&mut self, at: usize, count: usize) -> &[u8] {
            self.asked_max = self.asked_max.max(count);
            self.bytes.at(at, count)
        }
    }

    #[test]
    fn no_format_asks_for_more_than_a_few_bytes_at_once() {
        let tfs: Vec<u8> = (1..50).flat_map(|counter| o2_tf(counter, 7, 9)).collect();
        let pages: Vec<u8> = (0..500).flat_map(|orbit| hbf(orbit, 3)).collect();
        let mut datagram = vec![0; 100_000];
        datagram[11] = 2;
        datagram[20..24].copy_from_slice(&99_988_u32.to_le_bytes());
        let mut record = vec![0; 100_000];
        record[..4].copy_from_slice(&100_000_u32.to_le_bytes());
        record[4..8].copy_from_slice(&1003_u32.to_le_bytes());
        let mut packet = vec![0; 100_000];
        packet[..4].copy_from_slice(&99_996_u32.to_le_bytes());
        packet[4..8].copy_from_slice(b"TTDC");
        for (bytes, format) in [
            (tfs, FileFormat::StfFile),
            (pages, FileFormat::Rdh),
            (datagram, FileFormat::Xtc2),
            (record, FileFormat::Km3net),
            (packet, FileFormat::Km3net),
        ] {
            let (bytes, asked_max) = (bytes.as_slice(), 0);
            let mut few = Few { bytes, asked_max };
            let found = Inspection::of_view("file", &mut few, None).unwrap();
            assert_eq!(found.format, format);
            assert_eq!(found, Inspection::of("file", bytes, None).unwrap());
            assert!(
                few.asked_max <= FileFormat::START_BYTES,
                "{}",
                few.asked_max
            );
        }
    }

    #[test]
    fn lists_have_a_bound() {
        let mut lists = Lists::default();
        let mut list = BTreeSet::new();
        for value in 0..=Inspection::LISTED_MAX {
            assert!(lists.cut.is_empty());
            lists.keep("orbits", &mut list, value);
        }
        assert_eq!(list.len(), Inspection::LISTED_MAX);
        assert!(lists.cut.contains("orbits"));
    }
}
