//! Faults of raw data, and notes that are merely worth knowing: kinds, places, texts.
//!
//! A *fault* says that bytes or pages are missing or out of place. A *note* tells of something that legitimate data can
//! have as well: a triggered run has gaps between its orbits, a readout super-page repeats the TF bit. Damage within a
//! payload is neither: it is the detector's own business.

use serde::Serialize;

/// Kind of a fault. The names in text and JSON are fixed: `docs/reference/formats.md`, section "Faults".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// A header of no known version.
    BadVersion,
    /// A header that states another size than its version has.
    BadHeaderSize,
    /// Sizes or offsets that contradict each other.
    BadOffset,
    /// No header where one should be, or one of another kind.
    BadHeader,
    /// An index that contradicts the blocks it is about.
    BadIndex,
    /// Bytes that do not have the checksum that the input states.
    BadDigest,
    /// The input ends inside a page, record or datagram.
    Truncated,
    /// The pages of an HBF are not numbered 0, 1, 2, …: pages are missing or out of order.
    PageGap,
    /// The packet counter of a link does not go up by one.
    PacketGap,
    /// An HBF whose last page never comes.
    UnclosedHbf,
    /// An HBF opens while another one of the same link is still open.
    ReopenedHbf,
}

impl FaultKind {
    /// Returns the name in text, JSON and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadVersion => "bad-version",
            Self::BadHeaderSize => "bad-header-size",
            Self::BadOffset => "bad-offset",
            Self::BadHeader => "bad-header",
            Self::BadIndex => "bad-index",
            Self::BadDigest => "bad-digest",
            Self::Truncated => "truncated",
            Self::PageGap => "page-gap",
            Self::PacketGap => "packet-gap",
            Self::UnclosedHbf => "unclosed-hbf",
            Self::ReopenedHbf => "reopened-hbf",
        }
    }
}

/// Kind of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// Orbits, frame indices or packets are left out between two that follow each other.
    Gap,
    /// An orbit or frame index lower than the one before.
    Backwards,
    /// The same orbit once more.
    Again,
    /// Two HBFs in a row that both begin a TF.
    TfBitRepeated,
    /// A TF of another run than the one before.
    OtherRun,
}

impl NoteKind {
    /// Returns the name in text and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Backwards => "backwards",
            Self::Again => "again",
            Self::TfBitRepeated => "tf-bit-repeated",
            Self::OtherRun => "other-run",
        }
    }
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Byte in the input where the page, record or datagram with the fault begins.
    pub offset: u64,
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Found and expected value.
    pub detail: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "byte {}: {}: {}",
            self.offset,
            self.kind.name(),
            self.detail
        )
    }
}

/// One note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Byte in the input where the page, record or datagram with the note begins.
    pub offset: u64,
    /// Kind of the note.
    pub kind: NoteKind,
    /// Found value.
    pub detail: String,
}

/// Faults and notes of one input, by offset once the walk is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Faults, at most [`Findings::KEPT_MAX`].
    pub faults: Vec<Fault>,
    /// Notes, at most [`Findings::KEPT_MAX`].
    pub notes: Vec<Note>,
    /// Faults and notes above those kept.
    pub left_out: u64,
}

impl Findings {
    /// Upper bound of faults, and of notes, that are kept; more are only counted, so that rubbish costs no memory.
    pub const KEPT_MAX: usize = 10_000;

    pub(crate) fn fault(
        &mut self,
        offset: usize,
        kind: FaultKind,
        detail: impl FnOnce() -> String,
    ) {
        if self.faults.len() < Self::KEPT_MAX {
            self.faults.push(Fault {
                offset: offset as u64,
                kind,
                detail: detail(),
            });
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn note(&mut self, offset: usize, kind: NoteKind, detail: impl FnOnce() -> String) {
        if self.notes.len() < Self::KEPT_MAX {
            self.notes.push(Note {
                offset: offset as u64,
                kind,
                detail: detail(),
            });
        } else {
            self.left_out += 1;
        }
    }

    /// Sorts faults and notes by their place in the input.
    pub fn sort(&mut self) {
        self.faults.sort_by_key(|fault| fault.offset);
        self.notes.sort_by_key(|note| note.offset);
    }
}
