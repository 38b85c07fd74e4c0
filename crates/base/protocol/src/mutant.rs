//! Protections that can be taken out, one at a time, to show that the fault simulator notices.
//!
//! Without the feature `mutants` every question is answered by a constant `false`, and nothing of this is in the
//! binary. With it, a thread may switch one mutant on for the farm that it simulates.

/// One protection taken out. What each one breaks, and the seeds that show it: `docs/mutants.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Mutant {
    /// EPNs keep no tombstones of decided TFs.
    NoTombstones,
    /// An EPN takes an STF that it has already.
    DuplicateTaken,
    /// An EPN takes an STF whose bytes do not have the stated digest.
    DigestNotChecked,
    /// An EPN keeps parts of sources that are not in the roster, such as those of a former life.
    FormerLifeKept,
    /// An EPN reports to a new leader what it built of a roster of the former one.
    RosterOfFormerTerm,
    /// An EPN does not tell a new leader what it holds.
    SlotsNotSaid,
    /// An EPN answers a commit only once.
    CommitNotAnsweredAgain,
    /// An EPN keeps slots of TFs that are decided elsewhere.
    DeadSlotsKept,
    /// An EPN reports a TF only once.
    NoSecondReport,
    /// An EPN hands on what it has, whatever the commit names.
    IncompleteHandedOn,
    /// An EPN hands a TF on as soon as it is whole.
    HandOnBeforeCommit,
    /// An FLP announces an STF only once.
    NoSecondAnnounce,
    /// An FLP that joins again does not say what it holds.
    NothingAnnouncedOnJoin,
    /// An FLP obeys an assignment that a later one has replaced.
    OldAttemptsObeyed,
    /// An FLP tells nobody of TFs that it skips.
    SkipForgotten,
    /// An FLP sends nothing again when a broken stream stands again.
    NothingSentOnReopen,
    /// An FLP lets an STF go when it has sent it.
    SendAndForget,
    /// A release frees one TF more than is decided.
    FloorTooHigh,
    /// Nodes obey an ICN that was deposed.
    LowerTermsObeyed,
    /// An ICN takes what a node said to the leader of another term.
    OldWordsCount,
    /// A commit leaves before its verdict is durable.
    CommitBeforeDurable,
    /// A release leaves before its verdicts are durable.
    ReleaseBeforeDurable,
    /// Assignments leave before their roster is durable.
    ShapeBeforeDurable,
    /// A second report of a TF gets a second verdict.
    LastReportWins,
    /// A report settles a TF though STFs may still come.
    AnyReportWins,
    /// The ICN counts an incomplete TF as complete.
    IncompleteIsWhole,
    /// The ICN says a commit only once.
    CommitSaidOnce,
    /// The ICN commits a TF to every EPN that has it.
    CommitToAll,
    /// The ICN forgets that a TF is decided.
    DecidedForgotten,
    /// The ICN never gives back the room of decided TFs.
    CreditsKept,
    /// A change of the roster concerns TFs that are under way.
    RosterInTheMiddle,
    /// A TF never goes back to an EPN that was asked before.
    HolderNotAskedAgain,
    /// A new leader does not read the verdicts of the log.
    LogNotRead,
    /// A new leader does not go on with what EPNs have begun.
    NothingAdopted,
    /// TFs of a dead EPN that were committed stay open.
    NothingAbandoned,
    /// A silent EPN keeps its TFs.
    SilenceIgnored,
    /// A release that an EPN missed is not said again.
    ReleaseSaidOnce,
    /// STFs of a dead FLP are waited for.
    DeadSourceAwaited,
    /// A member of the majority log takes entries from the leader of an old term.
    LedgerNoFence,
    /// A member acknowledges entries before they are on its disk.
    LedgerAckBeforeSync,
    /// A member does not save whom it has voted for.
    LedgerVoteNotPersisted,
    /// A member votes for a candidate whose log is older than its own.
    LedgerVoteForOldLog,
    /// A leader calls durable what only its own disk has.
    LedgerCommitWithoutMajority,
    /// A member takes entries without looking whether what is before them is the leader's.
    LedgerNoLogMatching,
    /// A leader commits entries of old terms by counting who has them.
    LedgerCommitOldTermByCount,
    /// A leader begins before the entry that opens its term is committed.
    LedgerLeadBeforeMark,
    /// A member whose disk was replaced votes at once.
    LedgerJoinAtOnce,
    /// The file of a log is not synced before it is called durable.
    LedgerNoSync,
    /// When the disk says that it could not sync, the log goes on as if it had.
    LedgerSyncErrorIgnored,
}

impl Mutant {
    /// Every mutant.
    pub const ALL: [Self; 49] = [
        Self::NoTombstones,
        Self::DuplicateTaken,
        Self::DigestNotChecked,
        Self::FormerLifeKept,
        Self::RosterOfFormerTerm,
        Self::SlotsNotSaid,
        Self::CommitNotAnsweredAgain,
        Self::DeadSlotsKept,
        Self::NoSecondReport,
        Self::IncompleteHandedOn,
        Self::HandOnBeforeCommit,
        Self::NoSecondAnnounce,
        Self::NothingAnnouncedOnJoin,
        Self::OldAttemptsObeyed,
        Self::SkipForgotten,
        Self::NothingSentOnReopen,
        Self::SendAndForget,
        Self::FloorTooHigh,
        Self::LowerTermsObeyed,
        Self::OldWordsCount,
        Self::CommitBeforeDurable,
        Self::ReleaseBeforeDurable,
        Self::ShapeBeforeDurable,
        Self::LastReportWins,
        Self::AnyReportWins,
        Self::IncompleteIsWhole,
        Self::CommitSaidOnce,
        Self::CommitToAll,
        Self::DecidedForgotten,
        Self::CreditsKept,
        Self::RosterInTheMiddle,
        Self::HolderNotAskedAgain,
        Self::LogNotRead,
        Self::NothingAdopted,
        Self::NothingAbandoned,
        Self::SilenceIgnored,
        Self::ReleaseSaidOnce,
        Self::DeadSourceAwaited,
        Self::LedgerNoFence,
        Self::LedgerAckBeforeSync,
        Self::LedgerVoteNotPersisted,
        Self::LedgerVoteForOldLog,
        Self::LedgerCommitWithoutMajority,
        Self::LedgerNoLogMatching,
        Self::LedgerCommitOldTermByCount,
        Self::LedgerLeadBeforeMark,
        Self::LedgerJoinAtOnce,
        Self::LedgerNoSync,
        Self::LedgerSyncErrorIgnored,
    ];
}

#[cfg(feature = "mutants")]
thread_local! {
    static PRESENT: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this protection is out, on this thread.
#[cfg(feature = "mutants")]
#[must_use]
pub fn is_on(mutant: Mutant) -> bool {
    PRESENT.get() == Some(mutant)
}

/// Whether this protection is out: never, without the feature `mutants`.
#[cfg(not(feature = "mutants"))]
#[must_use]
#[inline(always)]
pub const fn is_on(_: Mutant) -> bool {
    false
}

/// Takes a protection out for everything that this thread does from now on, or puts it back.
#[cfg(feature = "mutants")]
pub fn set(mutant: Option<Mutant>) {
    PRESENT.set(mutant);
}
