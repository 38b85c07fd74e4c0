//! Output of an intake: samples taken, and changes of series and sources.

use crate::reason::Reason;
use sheaf_samples::{Labels, Sample};

/// Name of a series in one intake: a place in a table, and which series it is that has the place.
///
/// Places are dense and used again: a reader keeps its state of a series in a `Vec` at `slot`, and compares `life`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesHandle {
    /// Place, from 0.
    pub slot: u32,
    /// Number of the series that has the place, from 0: one more for each series that ended there.
    pub life: u32,
}

/// Change of a source, for logs and alarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// New series of a source are refused for a time; its known series go on.
    CutOff {
        /// Name of the source.
        source: String,
        /// Bound that it met.
        reason: Reason,
        /// End of the cut-off, in ms since 1970.
        until_ms: i64,
    },
    /// New series of a source are taken again.
    Restored {
        /// Name of the source.
        source: String,
    },
    /// A source made way for a new one: the table of sources is full, and this one was idle.
    Evicted {
        /// Name of the source.
        source: String,
    },
}

/// Samples taken, and what changed about series and sources. The driver clears and reuses it.
///
/// A reader takes `series` first, then `samples`, then `ended`.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// New series.
    pub series: Vec<(SeriesHandle, Labels)>,
    /// Samples in the order of their arrival.
    pub samples: Vec<(SeriesHandle, Sample)>,
    /// Series that were idle for too long; their handles are not given out again.
    pub ended: Vec<SeriesHandle>,
    /// Changes of sources.
    pub notices: Vec<Notice>,
}

impl Batch {
    /// Takes all out, and keeps the memory.
    pub fn clear(&mut self) {
        self.series.clear();
        self.samples.clear();
        self.ended.clear();
        self.notices.clear();
    }
}
