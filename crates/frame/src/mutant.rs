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
