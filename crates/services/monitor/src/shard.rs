//! Way of samples from bytes to the queue of the store, for one thread.

use crate::alarms::{Reports, Tap};
use crate::forward::{Names, Routes};
use crate::metrics::Counts;
use crate::queue::{Queue, Samples};
use crate::signatures::Collectd;
use crate::sources::{Board, Snapshot};
use sheaf_intake::{Batch, Intake, IntakeConfig, Notice, Outcome, Peer, Protocol};
use sheaf_processing::{Output, Pipeline, SeriesHandle};
use sheaf_sample_store::{SeriesId, Store};
use sheaf_samples::wire::exposition::Format;
use sheaf_samples::{Labels, Sample};
use std::sync::Arc;
use tracing::{info, warn};

/// Samples of one handover to the store.
const HANDOVER: usize = 8192;

/// Intake and processing of one receiving thread, and its way to the store.
pub(crate) struct Shard {
    intake: Intake,
    pipeline: Pipeline,
    /// Number in the store of each output series, by handle.
    ids: Vec<Option<SeriesId>>,
    store: Arc<dyn Store>,
    queue: Arc<Queue>,
    counts: Arc<Counts>,
    board: Arc<Board>,
    tap: Tap,
    reports: Arc<Reports>,
    /// Place of the alarms in the list of destinations; without one they get all samples.
    alarms_at: Option<usize>,
    routes: Option<Routes>,
    number: usize,
    batch: Batch,
    samples: Vec<(SeriesHandle, Sample)>,
    output: Output,
    out: Samples,
    ticked_ms: i64,
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
        Self {
            intake: Intake::new(intake.clone()),
            pipeline,
            ids: Vec::new(),
            store,
            queue,
            counts,
            board,
            tap,
            reports,
            alarms_at,
            routes: None,
            number,
            batch: Batch::default(),
            samples: Vec::new(),
            output: Output::default(),
            out: Vec::new(),
            ticked_ms: 0,
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
        let outcome = self
            .intake
            .handle_datagram(now_ms, peer, protocol, bytes, &mut self.batch);
        self.process(now_ms);
        outcome
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
        let (intake, batch) = (&mut self.intake, &mut self.batch);
        let outcome = intake.handle_scrape(now_ms, peer, format, target, page, seen, batch);
        self.process(now_ms);
        outcome
    }

    /// Takes samples that the collector makes itself.
    pub(crate) fn take_samples(
        &mut self,
        now_ms: i64,
        peer: Peer,
        samples: impl IntoIterator<Item = (Labels, Sample)>,
    ) {
        self.intake
            .handle_samples(now_ms, peer, samples, &mut self.batch);
        self.process(now_ms);
    }

    /// Sets how packets of collectd are read.
    pub(crate) fn set_collectd(&mut self, collectd: &Collectd) {
        collectd.set(&mut self.intake);
    }

    /// Tells forwarders of series and where their samples go.
    pub(crate) fn set_routes(&mut self, names: &Arc<Names>) {
        self.routes = Some(Routes::new(names.clone()));
    }

    /// Counts datagrams that the kernel dropped.
    pub(crate) fn take_drops(&mut self, count: u64) {
        self.intake.handle_kernel_drops(count);
    }

    /// Closes windows, ends idle series, publishes what was asked for. To be called every few ms; works once in a
    /// while.
    pub(crate) fn tick(&mut self, now_ms: i64) {
        if self
            .pipeline
            .next_poll_ms()
            .is_some_and(|due| due <= now_ms)
        {
            self.pipeline.poll(now_ms, &mut self.output);
            self.deliver();
        }
        self.flush();
        if now_ms - self.ticked_ms < 1000 && now_ms >= self.ticked_ms {
            return;
        }
        self.ticked_ms = now_ms;
        self.intake.handle_tick(now_ms, &mut self.batch);
        self.process(now_ms);
        self.flush();
        self.counts.note_intake(
            self.number,
            &self.intake.total(),
            self.intake.kernel_drops(),
        );
        self.reports.publish(self.number, now_ms, &self.intake);
        if self.board.is_wanted() {
            self.board.publish(self.number, Snapshot::of(&self.intake));
        }
    }

    /// Gives the store what is gathered.
    pub(crate) fn flush(&mut self) {
        if !self.out.is_empty() {
            self.queue.push(std::mem::take(&mut self.out));
        }
        self.tap.flush();
    }

    /// Runs what the intake gave through the operators.
    fn process(&mut self, now_ms: i64) {
        let batch = &mut self.batch;
        for (handle, labels) in batch.series.drain(..) {
            let handle = SeriesHandle(handle.slot);
            if let Err(error) = self.pipeline.handle_new_series(now_ms, handle, &labels) {
                warn!(%error, %labels, "A series is not processed");
            }
        }
        self.samples.clear();
        let samples = batch.samples.drain(..);
        self.samples
            .extend(samples.map(|(handle, sample)| (SeriesHandle(handle.slot), sample)));
        self.pipeline
            .handle_samples(now_ms, &self.samples, &mut self.output);
        for handle in batch.ended.drain(..) {
            self.pipeline
                .handle_series_end(now_ms, SeriesHandle(handle.slot));
        }
        for notice in batch.notices.drain(..) {
            tell(&notice);
        }
        self.deliver();
    }

    /// Gathers what the pipeline delivers for the store.
    fn deliver(&mut self) {
        let output = &mut self.output;
        for series in output.new_series.drain(..) {
            let at = series.handle.0 as usize;
            if at >= self.ids.len() {
                self.ids.resize(at + 1, None);
            }
            self.ids[at] = match self.store.intern(&series.labels) {
                Ok(id) => {
                    self.tap.add(series.handle.0, id, &series.labels);
                    if let Some(routes) = &mut self.routes {
                        routes.add(series.handle, id, &series.labels);
                    }
                    Some(id)
                }
                Err(error) => {
                    warn!(%error, labels = %series.labels, "A series is not stored");
                    None
                }
            };
        }
        for sample in output.samples.drain(..) {
            let is_for_alarms = |at| sample.destinations.contains(at);
            if self.alarms_at.is_none_or(is_for_alarms) {
                self.tap.take(sample.handle.0, sample.sample);
            }
            match self.ids.get(sample.handle.0 as usize).copied().flatten() {
                Some(id) => {
                    if let Some(routes) = &mut self.routes {
                        routes.note(sample.handle, sample.destinations);
                    }
                    self.out.push((id, sample.sample));
                }
                None => self.counts.add_refused("series", 1),
            }
        }
        for handle in output.ended_series.drain(..) {
            self.ids[handle.0 as usize] = None;
            self.tap.end(handle.0);
            if let Some(routes) = &mut self.routes {
                routes.end(handle);
            }
        }
        // Partial aggregates come of shards alone; this pipeline is whole.
        output.partials.clear();
        if self.out.len() >= HANDOVER {
            self.flush();
        }
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
