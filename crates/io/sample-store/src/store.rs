//! The interface of stores of samples, with their promises.

use sheaf_query::Source;
use sheaf_samples::{Labels, Sample};

/// Fate of a sample before it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted,
    Late,
    Expired,
    Future,
}

/// Number of a series in one store; valid as long as the store's directory lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub u32);

/// Fate of the samples of one [`append`](Store::append).
///
/// Every sample has one: accepted, or refused for one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// Samples taken, repetitions included.
    pub accepted: u64,
    /// Samples refused: older than the newest of their series by more than `late_ms`.
    pub late: u64,
    /// Samples refused: older than samples are kept.
    pub expired: u64,
    /// Samples refused: ahead of the clock by more than `future_ms`, or a time that no clock shows.
    pub future: u64,
    /// Samples refused: no series has the number.
    pub unknown: u64,
}

impl Appended {
    /// Number of refused samples, all reasons together.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.late + self.expired + self.future + self.unknown
    }

    pub(crate) fn count(&mut self, verdict: Verdict) {
        let count = match verdict {
            Verdict::Accepted => &mut self.accepted,
            Verdict::Late => &mut self.late,
            Verdict::Expired => &mut self.expired,
            Verdict::Future => &mut self.future,
        };
        *count += 1;
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.late += other.late;
        self.expired += other.expired;
        self.future += other.future;
        self.unknown += other.unknown;
    }
}

/// Reason why a store does not take or give something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, or nearly. Nothing was half written; what was committed stays readable. Free space and
    /// repeat [`commit`](Store::commit).
    #[error("the disk of the store has {free} bytes free, expected {reserve} at least")]
    Full {
        /// Bytes free; 0 if a write was refused.
        free: u64,
        /// Bytes that have to stay free.
        reserve: u64,
    },
    /// The last commit failed for another reason; repeat it before more samples.
    #[error("the last commit failed, expected one that succeeds before more samples")]
    Uncommitted,
    /// More samples in memory than allowed; call [`maintain`](Store::maintain) and [`commit`](Store::commit).
    #[error("{found} bytes of samples wait in memory, expected {limit} at most")]
    Busy {
        /// Bytes that wait.
        found: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// One series more than allowed.
    #[error("the store holds {limit} series, expected fewer")]
    TooManySeries {
        /// Series allowed.
        limit: u32,
    },
    /// A record is not what was written.
    #[error("{place} is damaged: {what}")]
    Damaged {
        /// Table and key, or file and offset.
        place: String,
        /// Description of the damage.
        what: String,
    },
    /// The operating system refused an operation.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its file.
        what: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The tables refused an operation; after a failed write the store has to be opened again.
    #[error("tables: {0}")]
    Tables(#[from] fjall::Error),
}

/// State of a store, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Series known.
    pub series: u64,
    /// Samples in memory that are not yet in a chunk.
    pub head_samples: u64,
    /// Bytes of memory that series and their unsealed samples take, without the index.
    pub head_bytes: u64,
    /// Samples that wait for a commit.
    pub uncommitted_samples: u64,
    /// Bytes of chunks in memory that are not yet in tables.
    pub unflushed_bytes: u64,
    /// Chunks written since the store opened.
    pub chunks_sealed: u64,
    /// Samples written in them.
    pub samples_sealed: u64,
    /// Bytes of the head log.
    pub log_bytes: u64,
    /// Bytes of tables.
    pub table_bytes: u64,
    /// Bytes of the head log that could not be read when the store opened, a cut end not included.
    pub log_bytes_damaged: u64,
    /// Samples accepted and refused since the store opened.
    pub appended: Appended,
}

/// A place that keeps samples and answers for them.
///
/// Time is an argument; a store has no clock and calls nothing by itself. One driver appends, commits and maintains;
/// queries may run beside it in other threads.
///
/// # Contract, checked for every store by [`contract::check`](crate::contract::check)
///
/// - equal labels give equal numbers, as long as the directory lives;
/// - a sample that was accepted is in the answer of the next query, once a time and series; of two values of one time
///   the last appended stays;
/// - times of a series may come in any order within `late_ms` of its newest; an older sample is refused and counted;
/// - after [`commit`](Self::commit) returned `Ok`, every sample accepted before survives the death of the process and
///   of the machine; before that it may be lost, from the newest on, and never in half;
/// - [`maintain`](Self::maintain) changes no answer, except that content older than its retention goes;
/// - buckets in an answer are exact: the samples of their interval, added.
pub trait Store: Source + Send + Sync {
    /// Returns the number of the series with `labels`; a new one is given if there is none.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooManySeries`] if there would be more than allowed.
    fn intern(&self, labels: &Labels) -> Result<SeriesId, StoreError>;

    /// Takes the samples of a batch, any series in any order; each is accepted, or refused and counted.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] or [`StoreError::Busy`]: no sample of the batch was taken.
    fn append(&self, batch: &[(SeriesId, Sample)]) -> Result<Appended, StoreError>;

    /// Makes everything appended so far durable.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`]: what was appended stays in memory and waits for the next commit; until one succeeds
    /// [`append`](Self::append) refuses.
    fn commit(&self) -> Result<(), StoreError>;

    /// Seals, writes and drops what is due at `now_ms`; bounded work, to be called every 100 ms to 1 s.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] if there is no room for tables; content stays in memory and in the log.
    fn maintain(&self, now_ms: i64) -> Result<(), StoreError>;

    /// State for metrics.
    fn stats(&self) -> Stats;
}
