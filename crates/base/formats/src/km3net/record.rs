//! DAQ records: one after the other, each with its length in front.

use crate::fault::{FaultKind, Findings, NoteKind};
use crate::fields::{array, i32_le, u32_le};

/// Content of a record. The codes are those of KM3NeT's Jpp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKind {
    /// 1001: a time slice, before the levels had codes of their own.
    TimeSlice,
    /// 1002: all hits.
    TimeSliceL0,
    /// 1003: coincidences in one module.
    TimeSliceL1,
    /// 1004: coincidences of more light sensors.
    TimeSliceL2,
    /// 1005: input of the supernova search.
    TimeSliceSn,
    /// 2001: rates of all sensors.
    SummarySlice,
    /// 10001: a triggered event.
    Event,
}

impl RecordKind {
    const ALL: [Self; 7] = [
        Self::TimeSlice,
        Self::TimeSliceL0,
        Self::TimeSliceL1,
        Self::TimeSliceL2,
        Self::TimeSliceSn,
        Self::SummarySlice,
        Self::Event,
    ];

    /// Returns the code in the record.
    #[must_use]
    pub fn code(self) -> i32 {
        match self {
            Self::TimeSlice => 1001,
            Self::TimeSliceL0 => 1002,
            Self::TimeSliceL1 => 1003,
            Self::TimeSliceL2 => 1004,
            Self::TimeSliceSn => 1005,
            Self::SummarySlice => 2001,
            Self::Event => 10001,
        }
    }

    /// Returns the kind with that code.
    #[must_use]
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns whether the record is made of the frames of modules.
    #[must_use]
    pub fn has_frames(self) -> bool {
        !matches!(self, Self::SummarySlice | Self::Event)
    }
}

/// One DAQ record, borrowed from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Byte of the input where the record begins.
    pub offset: usize,
    /// The whole record, with its length field.
    pub bytes: &'a [u8],
    /// Content of the record.
    pub kind: RecordKind,
    /// Version of the record; legacy files have none.
    pub version: Option<i16>,
    /// The detector.
    pub detector: i32,
    /// The run.
    pub run: i32,
    /// Number of the time slice of 100 ms, since the run began.
    pub frame_index: i32,
    /// Start of the slice: seconds of UTC since 1970.
    pub utc_s: u32,
    /// Ticks of 16 ns within that second.
    pub ticks: u32,
}

/// Counts of the parts of a time slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounts {
    /// Frames, one a module.
    pub frames: u64,
    /// Hits in all frames.
    pub hits: u64,
}

/// Bytes of a record header with a version, and of one without, which frames have too.
const HEADER: usize = 30;
const HEADER_LEGACY: usize = 28;
/// Type code of a frame.
const FRAME: i32 = 101;
/// Bytes of a frame before its hits: header, module, 5 status words, hit count.
const FRAME_HEADER: usize = HEADER_LEGACY + 4 + 5 * 4 + 4;
const HIT: usize = 6;

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes`, which ends with it.
    fn decode(offset: usize, bytes: &'a [u8]) -> Option<Self> {
        let kind = RecordKind::from_code(i32_le(bytes, 4)?)?;
        // A legacy header has the detector, a number below 65536, where others have the version (16 bits) and
        // the low half of the detector, which is never 0.
        let legacy = array(bytes, 10)? == [0, 0];
        let version = if legacy {
            None
        } else {
            Some(i16::from_le_bytes(array(bytes, 8)?))
        };
        let at = if legacy { 8 } else { 10 };
        Some(Self {
            offset,
            bytes,
            kind,
            version,
            detector: i32_le(bytes, at)?,
            run: i32_le(bytes, at + 4)?,
            frame_index: i32_le(bytes, at + 8)?,
            utc_s: u32_le(bytes, at + 12)?,
            ticks: u32_le(bytes, at + 16)?,
        })
    }

    /// Counts the frames and hits of a time slice, and reports frames that do not fill it exactly.
    pub fn count_frames(&self, findings: &mut Findings) -> FrameCounts {
        let mut counts = FrameCounts::default();
        if !self.kind.has_frames() {
            return counts;
        }
        let header = if self.version.is_some() {
            HEADER
        } else {
            HEADER_LEGACY
        };
        let stated = u32_le(self.bytes, header).unwrap_or(0);
        let mut at = header + 4;
        while at < self.bytes.len() && counts.frames < u64::from(stated) {
            let Some((bytes, hits)) = self.frame_at(at) else {
                findings.fault(self.offset + at, FaultKind::BadOffset, || {
                    format!(
                        "frame {} of time slice {} does not fit, expected {FRAME_HEADER} bytes and {HIT} \
                         for each hit",
                        counts.frames, self.frame_index
                    )
                });
                return counts;
            };
            counts.frames += 1;
            counts.hits += hits;
            at += bytes;
        }
        if counts.frames != u64::from(stated) || at != self.bytes.len() {
            findings.fault(self.offset, FaultKind::BadOffset, || {
                format!(
                    "time slice {} states {stated} frames and {} bytes, but has {} frames that end at \
                     byte {at}",
                    self.frame_index,
                    self.bytes.len(),
                    counts.frames
                )
            });
        }
        counts
    }

    /// Notes it if this record neither follows one with frame index `before` directly nor has the same.
    pub fn note_order(&self, before: i32, findings: &mut Findings) {
        let found = self.frame_index;
        let step = i64::from(found) - i64::from(before);
        if step < 0 {
            findings.note(self.offset, NoteKind::Backwards, || {
                format!("frame index {found} follows the later {before}")
            });
        } else if step > 1 {
            findings.note(self.offset, NoteKind::Gap, || {
                format!("frame index {found} follows {before}: {} missing", step - 1)
            });
        }
    }

    /// Returns the bytes and hits of the frame at byte `at`, if it is one and lies within.
    fn frame_at(&self, at: usize) -> Option<(usize, u64)> {
        let frame = self.bytes.get(at..)?;
        let bytes = usize::try_from(i32_le(frame, 0)?).ok()?;
        let hits = u32_le(frame, FRAME_HEADER - 4)?;
        let hit_bytes = usize::try_from(hits).ok()?.checked_mul(HIT)?;
        let fits = i32_le(frame, 4)? == FRAME
            && FRAME_HEADER.checked_add(hit_bytes)? == bytes
            && bytes <= frame.len();
        fits.then_some((bytes, hits.into()))
    }
}

/// Records of an input.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    /// Returns the records in `bytes`, which begins with one.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns whether `bytes` begin with a record.
    #[must_use]
    pub fn are_at_start_of(bytes: &[u8]) -> bool {
        i32_le(bytes, 4).is_some_and(|code| RecordKind::from_code(code).is_some())
    }

    /// Returns the next record that can be read. One of an unknown type is reported and passed over, if a record or the
    /// end of the input follows it; other damage ends the walk.
    pub fn next_good(&mut self, findings: &mut Findings) -> Option<Record<'a>> {
        while self.at < self.bytes.len() {
            let offset = self.at;
            let rest = &self.bytes[offset..];
            let bytes = match stated(rest) {
                Ok(bytes) => bytes,
                Err((kind, detail)) => {
                    self.at = self.bytes.len();
                    findings.fault(offset, kind, || detail);
                    return None;
                }
            };
            self.at = offset + bytes.len();
            if let Some(record) = Record::decode(offset, bytes) {
                return Some(record);
            }
            let follows = &self.bytes[self.at..];
            if !follows.is_empty() && !Self::are_at_start_of(follows) {
                self.at = self.bytes.len();
            }
            findings.fault(offset, FaultKind::BadVersion, || {
                let code = i32_le(bytes, 4).unwrap_or(0);
                format!("record has type {code}, expected 1001 to 1005, 2001 or 10001")
            });
        }
        None
    }
}

/// Returns the bytes of the record at the start of `rest`, by its length field.
fn stated(rest: &[u8]) -> Result<&[u8], (FaultKind, String)> {
    let cut = |bytes: usize| {
        (
            FaultKind::Truncated,
            format!("record is cut: {} of {bytes} bytes", rest.len()),
        )
    };
    let stated = i32_le(rest, 0).ok_or_else(|| cut(HEADER))?;
    match usize::try_from(stated) {
        // All kinds have a count or more behind the header, so the longer header fits the shorter form as well.
        Ok(bytes) if bytes >= HEADER => rest.get(..bytes).ok_or_else(|| cut(bytes)),
        _ => Err((
            FaultKind::BadOffset,
            format!("record states a length of {stated} bytes, expected at least {HEADER}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: i32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (i32::try_from(HEADER + body.len()).unwrap())
            .to_le_bytes()
            .to_vec();
        bytes.extend(kind.to_le_bytes());
        bytes.extend(3_i16.to_le_bytes());
        for field in [44, 6760, 17, 1_574_424_024, 5] {
            bytes.extend(i32::to_le_bytes(field));
        }
        bytes.extend(body);
        bytes
    }

    fn check(input: &[u8], records: usize, faults: &[&str]) {
        let (mut walk, mut findings) = (Records::new(input), Findings::default());
        let mut found = 0;
        while let Some(record) = walk.next_good(&mut findings) {
            record.count_frames(&mut findings);
            found += 1;
        }
        assert_eq!(found, records);
        let texts: Vec<String> = findings.faults.iter().map(ToString::to_string).collect();
        assert_eq!(texts, faults);
    }

    #[test]
    fn damage_is_named_and_the_good_part_kept() {
        let good = record(10001, &[0; 10]);
        check(&[good.clone(), good.clone()].concat(), 2, &[]);
        check(
            &[&good[..], &good[..39]].concat(),
            1,
            &["byte 40: truncated: record is cut: 39 of 40 bytes"],
        );
        check(
            &[&good[..], &[1, 0, 0, 0]].concat(),
            1,
            &["byte 40: bad-offset: record states a length of 1 bytes, expected at least 30"],
        );
        check(
            &[good.clone(), record(999, &[]), good.clone()].concat(),
            2,
            &["byte 40: bad-version: record has type 999, expected 1001 to 1005, 2001 or 10001"],
        );
        check(
            &record(1003, &[1, 0, 0, 0]),
            1,
            &[
                "byte 0: bad-offset: time slice 17 states 1 frames and 34 bytes, but has 0 frames that end at byte 34",
            ],
        );
        check(
            &record(1003, &[[1, 0, 0, 0], [9; 4]].concat()),
            1,
            &[
                "byte 34: bad-offset: frame 0 of time slice 17 does not fit, expected 56 bytes and 6 for each hit",
            ],
        );
    }
}
