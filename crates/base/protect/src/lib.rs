//! Protections of the data, and the mutants that lack one of them.
//!
//! A condition that protects the data names its protection with [`protect!`]. In a shipped build
//! the macro is the condition and nothing else. With the feature `mutants`, a thread can take one protection out of the
//! farm that it simulates, which shows whether the fault simulator notices (`docs/explanation/mutants.md`).

/// One protection of the data, at the place where it stands.
///
/// | form | shipped build | protection taken out |
/// | --- | --- | --- |
/// | `protect!(Name, when condition)` | `condition` | `false`: the guard never acts |
/// | `protect!(Name, requires condition)` | `condition` | `true`: the requirement is always met |
/// | `protect!(Name, value, else other)` | `value` | `other` |
/// | `protect!(Name, else statement)` | nothing | `statement` |
///
/// Only a build with the feature `mutants` looks the name up, in the table of this crate.
#[cfg(not(feature = "mutants"))]
#[macro_export]
macro_rules! protect {
    ($name:ident, when $condition:expr) => {
        $condition
    };
    ($name:ident, requires $condition:expr) => {
        $condition
    };
    ($name:ident, else $statement:expr) => {};
    ($name:ident, $value:expr, else $other:expr) => {
        $value
    };
}

/// One protection of the data, in force unless this thread has taken it out. The forms are those of the shipped
/// build.
#[cfg(feature = "mutants")]
#[macro_export]
macro_rules! protect {
    ($name:ident, when $condition:expr) => {
        $condition && !$crate::is_out($crate::protection::$name)
    };
    ($name:ident, requires $condition:expr) => {
        $condition || $crate::is_out($crate::protection::$name)
    };
    ($name:ident, else $statement:expr) => {
        if $crate::is_out($crate::protection::$name) {
            $statement;
        }
    };
    ($name:ident, $value:expr, else $other:expr) => {
        if $crate::is_out($crate::protection::$name) {
            $other
        } else {
            $value
        }
    };
}

#[cfg(feature = "mutants")]
macro_rules! protections {
    ($($(#[$doc:meta])* $protection:ident => $mutant:ident,)*) => {
        /// A farm with one protection taken out. What each mutant breaks, and the seeds that show it:
        /// `docs/explanation/mutants.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Mutant {
            $($(#[$doc])* $mutant,)*
        }

        impl Mutant {
            /// Every mutant.
            pub const ALL: [Self; [$(Self::$mutant),*].len()] = [$(Self::$mutant),*];
        }

        /// Protections by the names that stand in the code, each as the mutant that lacks it.
        pub mod protection {
            $(pub use super::Mutant::$mutant as $protection;)*
        }
    };
}

// Protection, the mutant that lacks it, and what the mutant does.
#[cfg(feature = "mutants")]
protections! {
    /// EPNs keep no tombstones of decided TFs.
    Tombstones => NoTombstones,
    /// An EPN accepts an STF that it already holds.
    Deduplication => DuplicateTaken,
    /// An EPN accepts an STF of another run.
    RunCheck => OtherRunTaken,
    /// An EPN accepts an STF whose bytes do not match the stated digest.
    DigestCheck => DigestNotChecked,
    /// An EPN keeps parts of sources outside the roster, such as those of a former life.
    RosterCheck => FormerLifeKept,
    /// An EPN reports to a new leader TFs that it built by a roster of the former leader.
    RosterReset => RosterOfFormerTerm,
    /// An EPN does not report its open slots to a new leader.
    SlotReport => SlotsNotSaid,
    /// An EPN acknowledges a commit only once.
    CommitReacknowledged => CommitNotAnsweredAgain,
    /// An EPN keeps slots of TFs that are decided elsewhere.
    DecidedSlotsFreed => DeadSlotsKept,
    /// An EPN reports a built TF only once.
    ReportRetransmit => NoSecondReport,
    /// An EPN delivers the STFs that it has, whatever the commit names.
    CommittedContent => IncompleteHandedOn,
    /// An EPN delivers a TF as soon as it is whole, without a commit.
    DeliveryAfterCommit => DeliverBeforeCommit,
    /// An FLP announces an STF only once.
    AnnounceRetransmit => NoSecondAnnounce,
    /// An FLP that joins again does not announce the STFs that it holds.
    ReannounceOnJoin => NothingAnnouncedOnJoin,
    /// An FLP obeys an assignment that a later one has replaced.
    AttemptOrder => OldAttemptsObeyed,
    /// An FLP does not report the TFs that it skips.
    SkipReport => SkipForgotten,
    /// An FLP retransmits nothing when a broken stream is open again.
    ResendOnReopen => NothingSentOnReopen,
    /// An FLP frees an STF as soon as it is sent.
    HoldUntilRelease => SendAndForget,
    /// A release frees one TF beyond the decided ones.
    ExactFloor => FloorTooHigh,
    /// Nodes obey an ICN that was deposed.
    TermFence => LowerTermsObeyed,
    /// An ICN accepts messages that are addressed to the leader of another term.
    OwnTermOnly => OldWordsCount,
    /// A commit is sent before its verdict is durable.
    DurableCommit => CommitBeforeDurable,
    /// A release is sent before its verdicts are durable.
    DurableRelease => ReleaseBeforeDurable,
    /// Assignments are sent before their roster is durable.
    DurableRoster => ShapeBeforeDurable,
    /// A second report of a TF gets a second verdict.
    FirstReportWins => LastReportWins,
    /// The ICN commits any number of TFs to an EPN that acknowledges none.
    FewCommits => ManyCommits,
    /// A TF that may have been delivered is delivered again without a mark.
    RedeliveryMark => RedeliveryNotMarked,
    /// A marked commit is sent before the amendment of the verdict is durable.
    DurableAmendment => MarkedBeforeDurable,
    /// A TF is committed to a second EPN without an amendment of its verdict.
    RedeliveryRecord => RedeliveryNotRecorded,
    /// A TF that an FLP has released for a former leader is built again.
    ReleasedIsDone => ReleasedIsOpen,
    /// At ack level `processed` a TF is acknowledged when the consumer has taken it.
    ProcessedFirst => ProcessedAtOnce,
    /// A TF that may have been delivered, and cannot be built again, is dropped.
    UnknownIsAbandoned => UnknownIsDropped,
    /// A report settles a TF though STFs may still come.
    SettledReport => AnyReportWins,
    /// The ICN counts an incomplete TF as complete.
    MissingCounted => IncompleteIsWhole,
    /// The ICN sends a commit only once.
    CommitRetransmit => CommitSaidOnce,
    /// The ICN commits a TF to every EPN that has it.
    SingleCommit => CommitToAll,
    /// The ICN forgets that a TF is decided.
    DecidedRemembered => DecidedForgotten,
    /// The ICN never returns the credit of decided TFs.
    CreditReturn => CreditsKept,
    /// A change of the roster applies to TFs that are under way.
    RosterAtFrontier => RosterInTheMiddle,
    /// A TF is never assigned to the same EPN a second time.
    FormerTargetRetry => HolderNotAskedAgain,
    /// A new leader does not replay the verdicts of the log.
    LogReplay => LogNotRead,
    /// A new leader does not adopt the slots that EPNs have open.
    SlotAdoption => NothingAdopted,
    /// Committed TFs of a dead EPN stay open.
    Abandonment => NothingAbandoned,
    /// A silent EPN keeps its TFs.
    SilenceDetection => SilenceIgnored,
    /// A node that waits for a processor is a suspect as soon as any other.
    RunDelayGranted => RunDelayIgnored,
    /// A release that an EPN missed is not retransmitted.
    ReleaseRetransmit => ReleaseSaidOnce,
    /// An FLP whose control stream is closed counts as dead though EPNs have its data streams.
    CutIsNotDeath => CutIsDeath,
    /// A TF that lacks an STF of an FLP that is cut off is dropped with the first report of it.
    AbsentAwaited => AbsentNotAwaited,
    /// An earlier life of a node joins after a later one.
    EarlierLifeRefused => EarlierLifeJoins,
    /// A hello that was recorded on another stream is taken for that of its node.
    FreshHello => ReplayedHelloTaken,
    /// A stream on which no challenge comes is waited for without end.
    ChallengeDeadline => ChallengeAwaited,
    /// Reports about a former life of a node count for its present one.
    LifeOfMember => AnyLifeIsMember,
    /// A notice that a source is gone counts although a later roster names the source.
    LateGone => LateGoneCounts,
    /// STFs of a dead FLP are waited for.
    SourceWriteOff => DeadSourceAwaited,
    /// A member of the majority log accepts entries from the leader of an old term.
    LogFence => LedgerNoFence,
    /// A member acknowledges entries before they are on its disk.
    SyncBeforeAck => LedgerAckBeforeSync,
    /// A member does not persist its vote.
    DurableVote => LedgerVoteNotPersisted,
    /// A member votes for a candidate whose log is older than its own.
    UpToDateVote => LedgerVoteForOldLog,
    /// A leader counts entries as durable that only its own disk has.
    MajorityCommit => LedgerCommitWithoutMajority,
    /// A member accepts entries without comparing the entry before them with the leader's.
    LogMatching => LedgerNoLogMatching,
    /// A leader commits entries of old terms by counting replicas.
    OwnTermCommit => LedgerCommitOldTermByCount,
    /// A leader begins before the no-op entry of its term is committed.
    NoOpBeforeLeading => LedgerLeadBeforeMark,
    /// A member whose disk was replaced votes at once.
    JoinBeforeVoting => LedgerJoinAtOnce,
    /// The file of a log is not synced before it is called durable.
    SyncBeforeDurable => LedgerNoSync,
    /// The log goes on after an error of the disk's sync as if the sync had succeeded.
    SyncErrorsFatal => LedgerSyncErrorIgnored,
    /// A client's count that was overtaken on its way counts as a restart.
    ReportOrder => OvertakenReportCounts,
    /// Samples that arrived before the first count of their link count as arrived since.
    LossBase => ArrivedBeforeBaseCounts,
    /// Samples that a bound refuses do not count as arrived.
    RefusedArrived => RefusedIsLost,
    /// A source may open any number of series.
    SeriesBound => ExplosionTaken,
    /// Samples of any time are taken.
    TimeBound => AnyTimeTaken,
    /// A value that does not change is suppressed for ever.
    SuppressionRefresh => NoRefresh,
    /// An operator that a reload does not change begins again.
    StateThroughReload => StateForgotten,
    /// A sample is added to a window that has closed.
    ClosedWindow => LateAggregated,
    /// Datagrams are received while the queue to the store is full.
    QueueBound => QueueUnbounded,
    /// The log of a store is not synced before a commit returns.
    CommitSync => CommitNotSynced,
    /// A group that a full disk refused is forgotten.
    RefusedGroupWaits => RefusedGroupForgotten,
    /// A file of the log is removed while memory alone has samples of it.
    LogUntilSealed => LogDroppedEarly,
    /// Seals are written before the chunks that they speak of.
    SealsLast => SealsFirst,
    /// Late samples get a chunk of their own, which overlaps others.
    LateMerged => LateApart,
    /// Buckets are not computed again when late samples are sealed.
    BucketsRefreshed => BucketsStale,
    /// Samples go before the buckets above them were derived.
    DerivedBeforeDropped => DroppedUnderived,
    /// A checkpoint is noted of a file that was not synced.
    CheckpointSynced => CheckpointNotSynced,
    /// A file gets its final name before it is synced.
    SyncedBeforeNamed => NamedBeforeSynced,
    /// The folder is not synced before a file counts as closed.
    NameSynced => NameNotSynced,
    /// The folder is not synced with the first sync of a file.
    PartNamed => PartNotNamed,
    /// A record is acknowledged before it is synced, where that was promised.
    RecordSynced => RecordNotSynced,
    /// After a failed sync the next one is believed.
    WrittenAgain => FailedSyncForgotten,
    /// Bytes that a crash has left behind the last whole record of a file stay there.
    TailCut => TailKept,
    /// Records of the highest class of streams are shed.
    TopClassKept => TopClassShed,
    /// A record that is shed is not counted.
    ShedCounted => ShedNotCounted,
    /// A disk below its watermark gets records when no other is well.
    LowDiskKept => LowDiskFilled,
    /// A disk that fails or is slow gets new files.
    FaultyDiskLeftOut => FaultyDiskChosen,
    /// Two disks give files the same names.
    NamesApart => NamesAlike,
    /// An EPN takes the acknowledgement of a copy that a later one has replaced.
    HighestCopyCounts => AnyCopyCounts,
    /// Copies of a TF at the writers before the last one stay.
    MovedCopyIsVoid => MovedCopyStays,
    /// A writer writes a TF that comes again without a look at its files.
    ResentIsLookedFor => ResentIsWritten,
    /// A writer makes a copy void although a later one is there.
    LaterCopyStays => LaterCopyVoid,
    /// A writer forgets a TF that was stored before its commit as soon as it is published.
    PublishedIsKept => PublishedForgotten,
    /// A copy that is stored and committed is void before a later one is written.
    CommittedCopyStays => CommittedCopyVoid,
}

#[cfg(feature = "mutants")]
thread_local! {
    static PRESENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Returns whether the protection that `mutant` lacks is taken out on this thread.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is_out(mutant: Mutant) -> bool {
    PRESENT.get() == Some(mutant)
}

/// Takes a protection out for everything that this thread does from now on; `None` puts it back.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    PRESENT.set(mutant);
}
