//! Way of samples from bytes to the queue of the store: intake and operators, without thread, socket and clock.
//!
//! A receiving thread drives it, and so does the fault simulator (`sheaf sim torture --kind monitor`).

use crate::queue::{Queue, Samples};
use sheaf_intake::{Batch, Intake, IntakeConfig, Notice, Outcome, Peer, Protocol};
use sheaf_processing::{
    ConfigErrors, Output, OutputHandle, OutputSample, Pipeline, ProcessingConfig, SeriesError,
    SeriesHandle,
};
use sheaf_sample_store::{SeriesId, Store, StoreError};
use sheaf_samples::wire::exposition::Format;
use sheaf_samples::{Labels, Sample};
use std::sync::Arc;

/// Samples of one handover to the store.
const HANDOVER: usize = 8192;
/// Period of the work that follows no sample: idle series, accounting.
const TICK_MS: i64 = 1000;

/// Reader of what passes on the way to the store: alarms, forwarders, counts, logs.
///
/// A call for a series comes before those for its samples. Every method does nothing unless it is written.
pub trait Listener {
    /// A series got its number in the store.
    fn handle_new_series(&mut self, _handle: OutputHandle, _id: SeriesId, _labels: &Arc<Labels>) {}
    /// A series is not stored: its samples are refused.
    fn handle_series_not_stored(&mut self, _error: &StoreError, _labels: &Labels) {}
    /// A series is not processed: its samples end in the pipeline.
    fn handle_series_not_processed(&mut self, _error: &SeriesError, _labels: &Labels) {}
    /// A sample goes to the store, or is refused if its series has no number there.
    fn handle_sample(&mut self, _sample: &OutputSample, _id: Option<SeriesId>) {}
    /// A series gets no further samples.
    fn handle_series_end(&mut self, _handle: OutputHandle) {}
    /// Something about a source changed.
    fn handle_notice(&mut self, _notice: &Notice) {}
    /// A batch was given to the queue.
    fn handle_handover(&mut self) {}
}

/// Intake and processing of one receiving thread, and its way to the store.
pub struct ShardCore {
    intake: Intake,
    pipeline: Pipeline,
    /// Number in the store of each output series, by handle.
    ids: Vec<Option<SeriesId>>,
    store: Arc<dyn Store>,
    queue: Arc<Queue>,
    batch: Batch,
    samples: Vec<(SeriesHandle, Sample)>,
    output: Output,
    out: Samples,
    ticked_ms: i64,
}

impl ShardCore {
    /// Returns a shard without series.
    #[must_use]
    pub fn new(
        intake: &IntakeConfig,
        pipeline: Pipeline,
        store: Arc<dyn Store>,
        queue: Arc<Queue>,
    ) -> Self {
        Self {
            intake: Intake::new(intake.clone()),
            pipeline,
            ids: Vec::new(),
            store,
            queue,
            batch: Batch::default(),
            samples: Vec::new(),
            output: Output::default(),
            out: Vec::new(),
            ticked_ms: 0,
        }
    }

    /// Accounting of what came in.
    #[must_use]
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// The intake, for settings and for what the kernel dropped.
    pub fn intake_mut(&mut self) -> &mut Intake {
        &mut self.intake
    }

    /// The operators, with the fates of their samples.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// Takes the bytes of one datagram or request.
    pub fn take(
        &mut self,
        now_ms: i64,
        peer: Peer,
        protocol: Protocol,
        bytes: &[u8],
        listener: &mut impl Listener,
    ) -> Outcome {
        let (intake, batch) = (&mut self.intake, &mut self.batch);
        let outcome = intake.handle_datagram(now_ms, peer, protocol, bytes, batch);
        self.process(now_ms, listener);
        outcome
    }

    /// Takes the page of a target; series of it that a later page may end are added to `seen`.
    #[expect(
        clippy::too_many_arguments,
        reason = "what a scrape is, and who reads along"
    )]
    pub fn take_scrape(
        &mut self,
        now_ms: i64,
        peer: Peer,
        format: Format,
        target: &[(&str, &str)],
        page: &[u8],
        seen: &mut Vec<Labels>,
        listener: &mut impl Listener,
    ) -> Outcome {
        let (intake, batch) = (&mut self.intake, &mut self.batch);
        let outcome = intake.handle_scrape(now_ms, peer, format, target, page, seen, batch);
        self.process(now_ms, listener);
        outcome
    }

    /// Takes samples that the collector makes itself.
    pub fn take_samples(
        &mut self,
        now_ms: i64,
        peer: Peer,
        samples: impl IntoIterator<Item = (Labels, Sample)>,
        listener: &mut impl Listener,
    ) {
        let batch = &mut self.batch;
        self.intake.handle_samples(now_ms, peer, samples, batch);
        self.process(now_ms, listener);
    }

    /// Goes over to other operators; those that do not change keep their state.
    ///
    /// # Errors
    ///
    /// Everything that is wrong in the configuration, and nothing changes.
    pub fn reconfigure(
        &mut self,
        now_ms: i64,
        config: &ProcessingConfig,
        listener: &mut impl Listener,
    ) -> Result<(), ConfigErrors> {
        let output = &mut self.output;
        self.pipeline.reconfigure(now_ms, config, output)?;
        self.deliver(listener);
        Ok(())
    }

    /// Closes windows, ends idle series, gives the store what is gathered. To be called every few ms. Returns whether
    /// the work of a second was due, so that a driver publishes counts as often.
    pub fn tick(&mut self, now_ms: i64, listener: &mut impl Listener) -> bool {
        let due_ms = self.pipeline.next_poll_ms();
        if due_ms.is_some_and(|due_ms| due_ms <= now_ms) {
            self.pipeline.poll(now_ms, &mut self.output);
            self.deliver(listener);
        }
        self.flush(listener);
        if now_ms - self.ticked_ms < TICK_MS && now_ms >= self.ticked_ms {
            return false;
        }
        self.ticked_ms = now_ms;
        self.intake.handle_tick(now_ms, &mut self.batch);
        self.process(now_ms, listener);
        self.flush(listener);
        true
    }

    /// Gives the store what is gathered.
    pub fn flush(&mut self, listener: &mut impl Listener) {
        if !self.out.is_empty() {
            self.queue.push(std::mem::take(&mut self.out));
        }
        listener.handle_handover();
    }

    /// Runs what the intake gave through the operators.
    fn process(&mut self, now_ms: i64, listener: &mut impl Listener) {
        let batch = &mut self.batch;
        for (handle, labels) in batch.series.drain(..) {
            let handle = SeriesHandle(handle.slot);
            if let Err(error) = self.pipeline.handle_new_series(now_ms, handle, &labels) {
                listener.handle_series_not_processed(&error, &labels);
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
            listener.handle_notice(&notice);
        }
        self.deliver(listener);
    }

    /// Gathers what the pipeline delivers for the store.
    fn deliver(&mut self, listener: &mut impl Listener) {
        let output = &mut self.output;
        for series in output.new_series.drain(..) {
            let at = series.handle.0 as usize;
            if at >= self.ids.len() {
                self.ids.resize(at + 1, None);
            }
            self.ids[at] = match self.store.intern(&series.labels) {
                Ok(id) => {
                    listener.handle_new_series(series.handle, id, &series.labels);
                    Some(id)
                }
                Err(error) => {
                    listener.handle_series_not_stored(&error, &series.labels);
                    None
                }
            };
        }
        for sample in output.samples.drain(..) {
            let id = self.ids.get(sample.handle.0 as usize).copied().flatten();
            listener.handle_sample(&sample, id);
            if let Some(id) = id {
                self.out.push((id, sample.sample));
            }
        }
        for handle in output.ended_series.drain(..) {
            self.ids[handle.0 as usize] = None;
            listener.handle_series_end(handle);
        }
        // Partial aggregates come of shards alone; this pipeline is whole.
        output.partials.clear();
        if self.out.len() >= HANDOVER {
            self.flush(listener);
        }
    }
}
