//! DAQ records: one after the other, each with its length in front.

use crate::fault::{FaultKind, Findings, NoteKind};
use crate::fields::{array, i32_le, u32_le};
use crate::view::View;

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

/// Fields of the header of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordHead {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) kind: RecordKind,
    pub(crate) version: Option<i16>,
    pub(crate) detector: i32,
    pub(crate) run: i32,
    pub(crate) frame_index: i32,
    pub(crate) utc_s: u32,
    pub(crate) ticks: u32,
}

impl RecordHead {
    /// Reads the header `head` of the record of `bytes` bytes at `offset`.
    fn decode(offset: usize, bytes: usize, head: &[u8]) -> Option<Self> {
        let kind = RecordKind::from_code(i32_le(head, 4)?)?;
        // A legacy header has the detector, a number below 65536, where others have the version (16 bits) and
        // the low half of the detector, which is never 0.
        let legacy = array(head, 10)? == [0, 0];
        let version = if legacy {
            None
        } else {
            Some(i16::from_le_bytes(array(head, 8)?))
        };
        let at = if legacy { 8 } else { 10 };
        Some(Self {
            offset,
            bytes,
            kind,
            version,
            detector: i32_le(head, at)?,
            run: i32_le(head, at + 4)?,
            frame_index: i32_le(head, at + 8)?,
            utc_s: u32_le(head, at + 12)?,
            ticks: u32_le(head, at + 16)?,
        })
    }

    /// Counts the frames and hits of a time slice that begins at byte `start` of `view`, and reports frames that do not
    /// fill it exactly.
    pub(crate) fn count_frames(
        &self,
        view: &mut impl View,
        start: usize,
        findings: &mut Findings,
    ) -> FrameCounts {
        let mut counts = FrameCounts::default();
        if !self.kind.has_frames() {
            return counts;
        }
        let header = if self.version.is_some() {
            HEADER
        } else {
            HEADER_LEGACY
        };
        let field = self.bytes.saturating_sub(header).min(4);
        let stated = u32_le(view.at(start + header, field), 0).unwrap_or(0);
        let mut at = header + 4;
        while at < self.bytes && counts.frames < u64::from(stated) {
            let left = self.bytes - at;
            let head = view.at(start + at, FRAME_HEADER.min(left));
            let Some((bytes, hits)) = frame_of(head, left) else {
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
        if counts.frames != u64::from(stated) || at != self.bytes {
            findings.fault(self.offset, FaultKind::BadOffset, || {
                format!(
                    "time slice {} states {stated} frames and {} bytes, but has {} frames that end at \
                     byte {at}",
                    self.frame_index, self.bytes, counts.frames
                )
            });
        }
        counts
    }

    /// Notes it if this record neither follows one with frame index `before` directly nor has the same.
    pub(crate) fn note_order(&self, before: i32, findings: &mut Findings) {
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
}

/// Returns the bytes and hits of the frame with `head`, if it is one and lies within the `left` bytes.
fn frame_of(head: &[u8], left: usize) -> Option<(usize, u64)> {
    let bytes = usize::try_from(i32_le(head, 0)?).ok()?;
    let hits = u32_le(head, FRAME_HEADER - 4)?;
    let hit_bytes = usize::try_from(hits).ok()?.checked_mul(HIT)?;
    let fits =
        i32_le(head, 4)? == FRAME && FRAME_HEADER.checked_add(hit_bytes)? == bytes && bytes <= left;
    fits.then_some((bytes, hits.into()))
}

impl Record<'_> {
    /// Counts the frames and hits of a time slice, and reports frames that do not fill it exactly.
    pub fn count_frames(&self, findings: &mut Findings) -> FrameCounts {
        let mut view = self.bytes;
        self.head().count_frames(&mut view, 0, findings)
    }

    fn head(&self) -> RecordHead {
        RecordHead {
            offset: self.offset,
            bytes: self.bytes.len(),
            kind: self.kind,
            version: self.version,
            detector: self.detector,
            run: self.run,
            frame_index: self.frame_index,
            utc_s: self.utc_s,
            ticks: self.ticks,
        }
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
        let mut view = self.bytes;
        let head = next_record(&mut view, &mut self.at, findings)?;
        Some(Record {
            offset: head.offset,
            bytes: self.bytes.get(head.offset..head.offset + head.bytes)?,
            kind: head.kind,
            version: head.version,
            detector: head.detector,
            run: head.run,
            frame_index: head.frame_index,
            utc_s: head.utc_s,
            ticks: head.ticks,
        })
    }
}

/// Returns the next record of `view` from byte `at` on that can be read, and moves `at` behind it.
pub(crate) fn next_record(
    view: &mut impl View,
    at: &mut usize,
    findings: &mut Findings,
) -> Option<RecordHead> {
    while *at < view.end() {
        let offset = *at;
        let bytes = match stated(view, offset) {
            Ok(bytes) => bytes,
            Err((kind, detail)) => {
                *at = view.end();
                findings.fault(offset, kind, || detail);
                return None;
            }
        };
        *at = offset + bytes;
        let head = view.at(offset, HEADER);
        if let Some(record) = RecordHead::decode(offset, bytes, head) {
            return Some(record);
        }
        let code = i32_le(head, 4).unwrap_or(0);
        if *at < view.end() && !Records::are_at_start_of(view.at(*at, 8)) {
            *at = view.end();
        }
        findings.fault(offset, FaultKind::BadVersion, || {
            format!("record has type {code}, expected 1001 to 1005, 2001 or 10001")
        });
    }
    None
}

/// Returns the bytes of the record at byte `offset`, by its length field.
fn stated(view: &mut impl View, offset: usize) -> Result<usize, (FaultKind, String)> {
    let left = view.end() - offset;
    let cut = |bytes: usize| {
        (
            FaultKind::Truncated,
            format!("record is cut: {left} of {bytes} bytes"),
        )
    };
    let stated = i32_le(view.at(offset, 4), 0).ok_or_else(|| cut(HEADER))?;
    match usize::try_from(stated) {
        // All kinds have a count or more behind the header, so the longer header fits the shorter form as well.
        Ok(bytes) if bytes >= HEADER && bytes <= left => Ok(bytes),
        Ok(bytes) if bytes >= HEADER => Err(cut(bytes)),
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
