//! Contradictions of a run, as a closed list.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A contradiction in the logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contradiction {
    /// The broken rule.
    pub kind: Kind,
    /// The TF with the contradiction, if there is one.
    pub tf: Option<u64>,
    /// Found values, with the names of those involved.
    pub text: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Rule of consistency, one for each way in which a run can contradict itself. `docs/reference/verify.md` has a row for
/// each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A line of an event log is no event, or is cut though its process was not killed.
    GarbledLog,
    /// A process that was not killed left no event log.
    MissingLog,
    /// An event log is that of another node, or of a life that has one already.
    WrongLog,
    /// Logs name different runs.
    ForeignRun,
    /// Two ICNs led in one term.
    TwoLeaders,
    /// The run is over, and a TF has no verdict.
    NoVerdict,
    /// A TF has two different verdicts, or was decided twice in one term.
    TwoVerdicts,
    /// A verdict is none of the three, or not in itself consistent.
    BadVerdict,
    /// A drop reason is not on the list, or its cause is in no log.
    BadReason,
    /// A verdict is about a TF that no FLP made or skipped.
    MadeUp,
    /// A TF is abandoned that was not built.
    BadAbandoned,
    /// A TF is given back that was not built, that its EPN did not give back, or that was delivered.
    BadUndelivered,
    /// A consumer finished with a TF that it was not given.
    BadFreed,
    /// A TF is redelivered that was not built, or twice at one EPN in one term.
    BadRedelivered,
    /// A TF was delivered without the mark by the EPN of an amendment, or with it by that of the first verdict.
    WrongMark,
    /// One assignment was sent to two EPNs.
    MixedTarget,
    /// A TF was delivered twice, other than by the EPNs of its verdict and of the amendments of it.
    DeliveredTwice,
    /// A TF was delivered without its verdict, or by another EPN than that of its verdict.
    DeliveredUnbidden,
    /// A built TF was neither delivered nor abandoned.
    NotDelivered,
    /// The delivered parts are not those of the roster.
    WrongParts,
    /// A part differs from the STF that its FLP made.
    DigestMismatch,
    /// An EPN has a part that was never sent to it.
    NotSent,
    /// An FLP made a TF twice, or neither made nor skipped it.
    Hole,
    /// Announced is not complete + incomplete + dropped + in flight, or differs from the accounting of the ICN.
    Books,
    /// The verdict log and the event logs of the ICNs differ, or its files are damaged.
    Ledger,
    /// A TF that was delivered stands in no file of a sink.
    SinkMissing,
    /// A TF in a file of a sink is not what was delivered.
    SinkDamaged,
    /// A TF stands twice in the files of sinks.
    SinkTwice,
    /// A file of a sink holds what no EPN delivered.
    SinkForeign,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 29] = [
        Self::GarbledLog,
        Self::MissingLog,
        Self::WrongLog,
        Self::ForeignRun,
        Self::TwoLeaders,
        Self::NoVerdict,
        Self::TwoVerdicts,
        Self::BadVerdict,
        Self::BadReason,
        Self::MadeUp,
        Self::BadAbandoned,
        Self::BadUndelivered,
        Self::BadFreed,
        Self::BadRedelivered,
        Self::WrongMark,
        Self::MixedTarget,
        Self::DeliveredTwice,
        Self::DeliveredUnbidden,
        Self::NotDelivered,
        Self::WrongParts,
        Self::DigestMismatch,
        Self::NotSent,
        Self::Hole,
        Self::Books,
        Self::Ledger,
        Self::SinkMissing,
        Self::SinkDamaged,
        Self::SinkTwice,
        Self::SinkForeign,
    ];

    /// Returns the name in JSON and documents, such as `"delivered-twice"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GarbledLog => "garbled-log",
            Self::MissingLog => "missing-log",
            Self::WrongLog => "wrong-log",
            Self::ForeignRun => "foreign-run",
            Self::TwoLeaders => "two-leaders",
            Self::NoVerdict => "no-verdict",
            Self::TwoVerdicts => "two-verdicts",
            Self::BadVerdict => "bad-verdict",
            Self::BadReason => "bad-reason",
            Self::MadeUp => "made-up",
            Self::BadAbandoned => "bad-abandoned",
            Self::BadUndelivered => "bad-undelivered",
            Self::BadFreed => "bad-freed",
            Self::BadRedelivered => "bad-redelivered",
            Self::WrongMark => "wrong-mark",
            Self::MixedTarget => "mixed-target",
            Self::DeliveredTwice => "delivered-twice",
            Self::DeliveredUnbidden => "delivered-unbidden",
            Self::NotDelivered => "not-delivered",
            Self::WrongParts => "wrong-parts",
            Self::DigestMismatch => "digest-mismatch",
            Self::NotSent => "not-sent",
            Self::Hole => "hole",
            Self::Books => "books",
            Self::Ledger => "ledger",
            Self::SinkMissing => "sink-missing",
            Self::SinkDamaged => "sink-damaged",
            Self::SinkTwice => "sink-twice",
            Self::SinkForeign => "sink-foreign",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
