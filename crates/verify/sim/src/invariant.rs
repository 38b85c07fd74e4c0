//! Invariants, and the reports of their violations.

use sheaf_protocol::Timestamp;
use std::fmt;

/// Promise of the contract, as `docs/explanation/torture.md` lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A TF has at most one verdict, over the logs of all ICNs, and it never changes but by amendments: to abandoned,
    /// dropped as undelivered, or built again.
    OneVerdict,
    /// A TF is delivered at most once, over all lives of all EPNs; where delivery is at least once, once more for each
    /// amendment, with the mark.
    OneDelivery,
    /// Delivered parts are the STFs of the roster with the digests of their sources.
    TruePieces,
    /// A delivered TF has its verdict in the log before, for that EPN in that life.
    VerdictFirst,
    /// A TF is dropped for a true reason.
    TrueReason,
    /// The accounting of the ICN is correct.
    Books,
    /// An FLP frees an STF only when its TF is decided.
    Held,
    /// A message of a lower term changes nothing, and a term has one leader.
    Fenced,
    /// Credits, slots and holds stay within their bounds.
    Bounds,
    /// When the faults have ended every TF gets its verdict in time, and later ones are complete.
    Live,
    /// The same seed gives the same trace.
    SameTrace,
    /// Nothing is left when the run is over.
    Clean,
    /// An earlier life of a node does not join after a later one, and only an earlier one is refused.
    OneLife,
    /// A farm that is short of processors goes on at half its rate at least, and suspects no node again and again.
    Steady,
    /// A node must not panic, and none is refused.
    NoPanic,
    /// Of every client of monitoring, samples sent = stored + suppressed + refused + late + lost.
    SampleSum,
    /// A collector counts every sample once, by source and reason.
    Accounting,
    /// Samples that a commit made durable survive.
    Durable,
    /// A store has nothing that was not sent, and of two values of one time the later.
    OnlySent,
    /// Buckets of every level agree with the samples.
    Levels,
    /// The loss of a source is what the network lost.
    LossBySource,
    /// A store that opens has no damage.
    Fsck,
    /// Queues of a collector stay within their bounds.
    SourceBounds,
    /// A sample that was taken is durable soon, if the disk is well.
    InTime,
    /// A record that a writer has taken is in at most one file, of its stream and block, and once; files hold nothing
    /// else.
    WrittenOnce,
    /// A record that was acknowledged survives what its durability says.
    WrittenKept,
    /// After a start each file is whole, and has the records and checksums of its row in the catalogue.
    WholeFiles,
    /// Records announced to a writer = written + shed + refused + in flight, and those taken = written + in flight, by
    /// stream.
    WriterBooks,
    /// A writer writes and closes all that it has, if the disk is well, and starts again after every death.
    WritesInTime,
    /// Records are shed, spilled or kept waiting as the overload says: the highest class is never shed, and a disk that
    /// is full, or fails while another one is well, gets nothing.
    OverloadByName,
}

impl Invariant {
    /// Every invariant, in the order of the contract.
    pub const ALL: [Self; 30] = [
        Self::OneVerdict,
        Self::OneDelivery,
        Self::TruePieces,
        Self::VerdictFirst,
        Self::TrueReason,
        Self::Books,
        Self::Held,
        Self::Fenced,
        Self::Bounds,
        Self::Live,
        Self::SameTrace,
        Self::Clean,
        Self::OneLife,
        Self::Steady,
        Self::NoPanic,
        Self::SampleSum,
        Self::Accounting,
        Self::Durable,
        Self::OnlySent,
        Self::Levels,
        Self::LossBySource,
        Self::Fsck,
        Self::SourceBounds,
        Self::InTime,
        Self::WrittenOnce,
        Self::WrittenKept,
        Self::WholeFiles,
        Self::WriterBooks,
        Self::WritesInTime,
        Self::OverloadByName,
    ];

    /// Returns the name in reports, such as `"I1 one verdict"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OneVerdict => "I1 one verdict",
            Self::OneDelivery => "I2 one delivery",
            Self::TruePieces => "I3 true pieces",
            Self::VerdictFirst => "I4 verdict first",
            Self::TrueReason => "I5 true reason",
            Self::Books => "I6 books",
            Self::Held => "I7 held",
            Self::Fenced => "I8 fenced",
            Self::Bounds => "I9 bounds",
            Self::Live => "I10 live",
            Self::SameTrace => "I11 same trace",
            Self::Clean => "I12 clean",
            Self::OneLife => "I13 one life",
            Self::Steady => "I14 steady",
            Self::NoPanic => "no panic",
            Self::SampleSum => "M1 sum of samples",
            Self::Accounting => "M2 accounting by source",
            Self::Durable => "M3 durable",
            Self::OnlySent => "M4 only what was sent",
            Self::Levels => "M5 levels",
            Self::LossBySource => "M6 loss by source",
            Self::Fsck => "M7 no damage",
            Self::SourceBounds => "M8 bounds of monitoring",
            Self::InTime => "M9 in time",
            Self::WrittenOnce => "W1 written once",
            Self::WrittenKept => "W2 written is kept",
            Self::WholeFiles => "W3 whole files",
            Self::WriterBooks => "W4 books of a writer",
            Self::WritesInTime => "W5 writes in time",
            Self::OverloadByName => "W6 overload by name",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Invariant that is broken, and a sentence about it.
pub(crate) type Broken = (Invariant, String);

/// Violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The TF concerned, if there is one.
    pub tf: Option<u64>,
    /// Virtual time since the farm began.
    pub at: Timestamp,
    /// Description, in a sentence.
    pub detail: String,
}

impl Violation {
    /// Returns the violation of a world without TFs, at a virtual time.
    pub(crate) fn of((invariant, detail): Broken, at: Timestamp) -> Self {
        Self {
            invariant,
            tf: None,
            at,
            detail,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, at, .. } = self;
        write!(
            f,
            "{invariant}, at {:.6} s: {}",
            at.0 as f64 / 1e9,
            self.detail
        )
    }
}
