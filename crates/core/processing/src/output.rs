//! Deliveries of a pipeline: samples with their destinations, series that are new, and partial aggregates.

use crate::pane::Pane;
use sheaf_samples::{Labels, Sample};
use std::sync::Arc;

/// Name of an output series in one pipeline. Never used for a second series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutputHandle(pub u32);

/// Set of destinations, by their place in the list of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destinations(pub u32);

impl Destinations {
    /// Most destinations of a configuration.
    pub const MAX: usize = 32;

    /// Every destination.
    pub const ALL: Self = Self(u32::MAX);

    /// Returns whether the destination at `place` is in the set.
    #[must_use]
    pub fn contains(self, place: usize) -> bool {
        place < Self::MAX && self.0 & (1 << place) != 0
    }
}

/// One sample that leaves the pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputSample {
    /// Series of the sample.
    pub handle: OutputHandle,
    /// Where it goes.
    pub destinations: Destinations,
    /// Time and value.
    pub sample: Sample,
}

/// A series that samples may belong to from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSeries {
    /// Name of the series in the pipeline.
    pub handle: OutputHandle,
    /// Labels of the series.
    pub labels: Arc<Labels>,
}

/// Part of an aggregate across series, from a shard for the merger.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// Number of the configuration that it belongs to, from 0, counted by reconfigurations.
    pub generation: u32,
    /// Place of the window among the windows of the configuration.
    pub window: u16,
    /// News of the window.
    pub event: PartialEvent,
}

/// Report of a shard on a window.
#[derive(Clone, Debug, PartialEq)]
pub enum PartialEvent {
    /// A group began.
    Group {
        /// Name of the group in the shard, until it ends.
        group: u32,
        /// Labels that its series have in common.
        labels: Arc<Labels>,
    },
    /// Samples of the group in an interval; a second pane of the same interval adds to the first.
    Pane {
        /// Group of the samples.
        group: u32,
        /// Aggregate of the samples.
        pane: Pane,
    },
    /// The shard has no series of the group any more.
    Ended {
        /// Group that ended.
        group: u32,
    },
    /// No pane of an interval that ends at this time or earlier will follow.
    Watermark {
        /// The time, in ms since 1970-01-01 UTC.
        at_ms: i64,
    },
}

/// Everything that calls of a pipeline deliver, appended in order. The driver takes it and clears it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// Series that are new. To be taken before `samples`.
    pub new_series: Vec<NewSeries>,
    /// Samples, in the order in which they left.
    pub samples: Vec<OutputSample>,
    /// Series that get no further samples. To be taken after `samples`.
    pub ended_series: Vec<OutputHandle>,
    /// Partial aggregates, in order, for [`handle_partials`](crate::Pipeline::handle_partials) of the merger.
    pub partials: Vec<Partial>,
}

impl Output {
    /// Empties all lists and keeps their memory.
    pub fn clear(&mut self) {
        self.new_series.clear();
        self.samples.clear();
        self.ended_series.clear();
        self.partials.clear();
    }

    /// Moves everything of `other` to the end.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.new_series.append(&mut other.new_series);
        self.samples.append(&mut other.samples);
        self.ended_series.append(&mut other.ended_series);
        self.partials.append(&mut other.partials);
    }
}
