//! One receiving thread's part of the collector: its core, and who listens to it.

mod core;

pub use self::core::{Listener, ShardCore};

use crate::alarms::{Reports, Tap};
use crate::forward::{Names, Routes};
use crate::metrics::Counts;
use crate::queue::Queue;
use crate::signatures::Collectd;
use crate::sources::{Board, Snapshot};
use sheaf_intake::{IntakeConfig, Notice, Outcome, Peer, Protocol};
use sheaf_processing::{OutputHandle, OutputSample, Pipeline, SeriesError};
use sheaf_sample_store::{SeriesId, Store, StoreError};
use sheaf_samples::wire::exposition::Format;
use sheaf_samples::{Labels, Sample};
use std::sync::Arc;
use tracing::{info, warn};

/// Intake and processing of one receiving thread, and what it tells others.
pub(crate) struct Shard {
    core: ShardCore,
    ears: Ears,
    counts: Arc<Counts>,
    board: Arc<Board>,
    reports: Arc<Reports>,
    number: usize,
}

/// Everything that reads along: alarms, forwarders, counts, the log.
struct Ears {
    tap: Tap,
    /// Place of the alarms in the list of destinations; without one they get all samples.
    alarms_at: Option<usize>,
    routes: Option<Routes>,
    counts: Arc<Counts>,
}

/// Parts of a collector that all shards share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) queue: Arc<Queue>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) board: Arc<Board>,
}

impl Shard {
    pub(crate) fn new(
        number: usize,
        intake: &IntakeConfig,
        pipeline: Pipeline,
        Common {
            store,
            queue,
            counts,
            board,
        }: Common,
        (tap, reports, alarms_at): (Tap, Arc<Reports>, Option<usize>),
    ) -> Self {
        let ears = Ears {
            tap,
            alarms_at,
            routes: None,
            counts: counts.clone(),
        };
        Self {
            core: ShardCore::new(intake, pipeline, store, queue),
            ears,
            counts,
            board,
            reports,
            number,
        }
    }

    /// Takes the bytes of one datagram or request.
    pub(crate) fn take(
        &mut self,
        now_ms: i64,
        peer: Peer,
        protocol: Protocol,
        bytes: &[u8],
    ) -> Outcome {
        self.core
            .take(now_ms, peer, protocol, bytes, &mut self.ears)
    }

    /// Takes the page of a target; series of it that a later page may end are added to `seen`.
    pub(crate) fn take_scrape(
        &mut self,
        now_ms: i64,
        peer: Peer,
        format: Format,
        target: &[(&str, &str)],
        page: &[u8],
        seen: &mut Vec<Labels>,
    ) -> Outcome {
        let ears = &mut self.ears;
        self.core
            .take_scrape(now_ms, peer, format, target, page, seen, ears)
    }

    /// Takes samples that the collector makes itself.
    pub(crate) fn take_samples(
        &mut self,
        now_ms: i64,
        peer: Peer,
        samples: impl IntoIterator<Item = (Labels, Sample)>,
    ) {
        let ears = &mut self.ears;
        self.core.take_samples(now_ms, peer, samples, ears);
    }

    /// Sets how packets of collectd are read.
    pub(crate) fn set_collectd(&mut self, collectd: &Collectd) {
        collectd.set(self.core.intake_mut());
    }

    /// Tells forwarders of series and where their samples go.
    pub(crate) fn set_routes(&mut self, names: &Arc<Names>) {
        self.ears.routes = Some(Routes::new(names.clone()));
    }

    /// Counts datagrams that the kernel dropped.
    pub(crate) fn take_drops(&mut self, count: u64) {
        self.core.intake_mut().handle_kernel_drops(count);
    }

    /// Closes windows, ends idle series, publishes what was asked for. To be called every few ms; works once in a
    /// while.
    pub(crate) fn tick(&mut self, now_ms: i64) {
        if !self.core.tick(now_ms, &mut self.ears) {
            return;
        }
        let intake = self.core.intake();
        let drops = intake.kernel_drops();
        self.counts.note_intake(self.number, &intake.total(), drops);
        self.reports.publish(self.number, now_ms, intake);
        if self.board.is_wanted() {
            self.board.publish(self.number, Snapshot::of(intake));
        }
    }

    /// Gives the store what is gathered.
    pub(crate) fn flush(&mut self) {
        self.core.flush(&mut self.ears);
    }
}

impl Listener for Ears {
    fn handle_new_series(&mut self, handle: OutputHandle, id: SeriesId, labels: &Arc<Labels>) {
        self.tap.add(handle.0, id, labels);
        if let Some(routes) = &mut self.routes {
            routes.add(handle, id, labels);
        }
    }

    fn handle_series_not_stored(&mut self, error: &StoreError, labels: &Labels) {
        warn!(%error, %labels, "A series is not stored");
    }

    fn handle_series_not_processed(&mut self, error: &SeriesError, labels: &Labels) {
        warn!(%error, %labels, "A series is not processed");
    }

    #[inline]
    fn handle_sample(&mut self, sample: &OutputSample, id: Option<SeriesId>) {
        let is_for_alarms = |at| sample.destinations.contains(at);
        if self.alarms_at.is_none_or(is_for_alarms) {
            self.tap.take(sample.handle.0, sample.sample);
        }
        if id.is_none() {
            self.counts.add_refused("series", 1);
        } else if let Some(routes) = &mut self.routes {
            routes.note(sample.handle, sample.destinations);
        }
    }

    fn handle_series_end(&mut self, handle: OutputHandle) {
        self.tap.end(handle.0);
        if let Some(routes) = &mut self.routes {
            routes.end(handle);
        }
    }

    fn handle_notice(&mut self, notice: &Notice) {
        tell(notice);
    }

    fn handle_handover(&mut self) {
        self.tap.flush();
    }
}

fn tell(notice: &Notice) {
    match notice {
        Notice::CutOff {
            source,
            reason,
            until_ms,
        } => warn!(
            source,
            reason = reason.name(),
            until_ms,
            "New series of a source are refused for a time"
        ),
        Notice::Restored { source } => info!(source, "New series of a source are taken again"),
        Notice::Evicted { source } => warn!(source, "A source made way for a new one"),
    }
}
