//! Content of a file of detector data, in numbers: for people, and as JSON for machines.
//!
//! The JSON form of an [`Inspection`] is described in `docs/reference/formats.md`, section "What `sheaf data inspect`
//! prints"; its field names are fixed.

use crate::fault::{Fault, Findings, Note};
use crate::km3net::{Packets, Records};
use crate::rdh::{Link, Rdh};
use crate::stf_file::{Equipment, FileTfs, text};
use crate::walk::Walker;
use crate::xtc2::{Datagrams, EventTime, Service};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// Format of a detector file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileFormat {
    /// ALICE raw data: pages that begin with an RDH.
    Rdh,
    /// KM3NeT DAQ records or front-end packets.
    Km3net,
    /// LCLS-II datagrams.
    Xtc2,
    /// TFs as DataDistribution writes them.
    StfFile,
}

impl FileFormat {
    /// Detects the format from the first bytes of a file. Unknown bytes are taken for RDH pages, whose walk then
    /// reports the faults.
    #[must_use]
    pub fn detect(bytes: &[u8]) -> Self {
        if Rdh::is_at_start_of(bytes) {
            Self::Rdh
        } else if Records::are_at_start_of(bytes) || Packets::are_at_start_of(bytes) {
            Self::Km3net
        } else if FileTfs::are_at_start_of(bytes) {
            Self::StfFile
        } else if Datagrams::are_at_start_of(bytes) {
            Self::Xtc2
        } else {
            Self::Rdh
        }
    }

    /// Returns the name in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rdh => "rdh",
            Self::Km3net => "km3net",
            Self::Xtc2 => "xtc2",
            Self::StfFile => "stf-file",
        }
    }
}

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
    /// Inspects the `bytes` of `file`, as `format` or as the detected one.
    #[must_use]
    pub fn of(file: &str, bytes: &[u8], format: Option<FileFormat>) -> Self {
        let format = format.unwrap_or_else(|| FileFormat::detect(bytes));
        let (content, mut findings) = match format {
            FileFormat::Rdh => rdh_content(bytes),
            FileFormat::Km3net if Packets::are_at_start_of(bytes) => packet_content(bytes),
            FileFormat::Km3net => record_content(bytes),
            FileFormat::Xtc2 => xtc2_content(bytes),
            FileFormat::StfFile => stf_file_content(bytes),
        };
        findings.sort();
        Self {
            file: file.to_owned(),
            format,
            bytes: bytes.len() as u64,
            content,
            faults: findings.faults,
            notes: findings.notes,
            left_out: findings.left_out,
        }
    }
}

fn rdh_content(bytes: &[u8]) -> (Content, Findings) {
    let mut content = RdhContent::default();
    let mut walker = Walker::new(bytes);
    let mut before = None;
    for page in walker.by_ref() {
        let rdh = &page.rdh;
        content.pages += 1;
        content.payload_bytes += page.payload.len() as u64;
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
            content.links.insert(rdh.link);
            content.orbits.insert(rdh.orbit);
        }
    }
    (Content::Rdh(content), walker.finish())
}

fn record_content(bytes: &[u8]) -> (Content, Findings) {
    let (mut content, mut findings) = (RecordContent::default(), Findings::default());
    let mut records = Records::new(bytes);
    let mut frame_index_before = None;
    while let Some(record) = records.next_good(&mut findings) {
        content.records += 1;
        *content.record_types.entry(record.kind.code()).or_default() += 1;
        content.versions.extend(record.version);
        content.detectors.insert(record.detector);
        content.runs.insert(record.run);
        content.frame_indices.insert(record.frame_index);
        content.utc_s.insert(record.utc_s);
        widen(&mut content.record_bytes, record.bytes.len() as u64);
        let counts = record.count_frames(&mut findings);
        content.frames += counts.frames;
        content.hits += counts.hits;
        if let Some(before) = frame_index_before.replace(record.frame_index) {
            record.note_order(before, &mut findings);
        }
    }
    (Content::Records(content), findings)
}

fn packet_content(bytes: &[u8]) -> (Content, Findings) {
    let (mut content, mut findings) = (PacketContent::default(), Findings::default());
    let mut packets = Packets::new(bytes);
    while let Some(packet) = packets.next_good(&mut findings) {
        content.packets += 1;
        *content.packet_types.entry(packet.kind.name()).or_default() += 1;
        content.runs.insert(packet.run);
        content.modules.insert(packet.module);
        content.time_stamps.insert((packet.utc_s, packet.ticks));
        content.sequences.push(packet.sequence);
        widen(&mut content.packet_bytes, packet.udp().len() as u64);
    }
    (Content::Packets(content), findings)
}

fn xtc2_content(bytes: &[u8]) -> (Content, Findings) {
    let (mut content, mut findings) = (Xtc2Content::default(), Findings::default());
    let mut datagrams = Datagrams::new(bytes);
    let mut end = 0;
    while let Some(datagram) = datagrams.next_good(&mut findings) {
        content.datagrams += 1;
        *content.services.entry(datagram.service.name()).or_default() += 1;
        if datagram.service == Service::L1Accept {
            content.events += 1;
            widen(&mut content.event_extent_bytes, datagram.extent.into());
            content.first_event.get_or_insert(datagram.time);
            content.last_event = Some(datagram.time);
        }
        end = datagram.offset + datagram.bytes.len();
    }
    content.leftover_bytes = (bytes.len() - end) as u64;
    (Content::Xtc2(content), findings)
}

fn stf_file_content(bytes: &[u8]) -> (Content, Findings) {
    let (mut content, mut findings) = (StfFileContent::default(), Findings::default());
    let mut tfs = FileTfs::new(bytes);
    let mut whole = 0;
    while let Some(tf) = tfs.next_good(&mut findings) {
        whole += tf.bytes;
        content.tfs += 1;
        content.run_numbers.insert(tf.run());
        content.tf_counters.insert(tf.counter());
        content.first_orbits.insert(tf.first_orbit());
        content.blocks += tf.blocks.len() as u64;
        content.payload_bytes += tf.payload_bytes();
        for block in &tf.blocks {
            *content.equipment.entry(block.header.equipment).or_default() += 1;
        }
        widen(&mut content.tf_bytes, tf.bytes as u64);
        widen(&mut content.write_time_ms, tf.write_time_ms);
    }
    content.leftover_bytes = (bytes.len() - whole) as u64;
    (Content::StfFile(content), findings)
}

/// Widens the range from smallest to largest so that it holds `size`.
fn widen(range: &mut Option<(u64, u64)>, size: u64) {
    let (smallest, largest) = range.unwrap_or((size, size));
    *range = Some((smallest.min(size), largest.max(size)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::page;

    #[test]
    fn the_json_has_the_documented_fields() {
        let input = [
            page(7, 0, false, 0),
            page(7, 1, true, 1),
            page(9, 0, false, 2),
        ]
        .concat();
        let json = serde_json::to_string(&Inspection::of("a.raw", &input, None)).unwrap();
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
    fn a_file_of_no_known_format_is_taken_for_pages() {
        let inspection = Inspection::of("notes.txt", &[b'x'; 100], None);
        assert_eq!(inspection.format, FileFormat::Rdh);
        assert_eq!(
            inspection.faults[0].to_string(),
            "byte 0: bad-version: RDH has version 120, expected 6 or 7; the walk stops here"
        );
    }
}
