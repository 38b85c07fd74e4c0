//! The thread that drives the alarms: takes what came, lets time go on, hands out what follows, saves.

use super::deliver::Dispatch;
use super::desk::Desk;
use super::export::{self, Figures};
use super::inbox::{Batch, Outcome};
use super::past;
use super::rules::Round;
use super::saved::Saver;
use super::sources::Reports;
use crate::wall;
use sheaf_alarms::{Alarms, Order, SeriesHandle, State, Transition};
use sheaf_metrics::Registry;
use sheaf_sample_store::{SeriesId, Store};
use sheaf_samples::{Labels, Sample};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Longest wait for news.
const TICK: Duration = Duration::from_millis(100);
/// Shortest wait, when something is due that another thread still works on.
const BREATH: Duration = Duration::from_millis(5);
/// Time between saves when something has changed, at least.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Time between saves in any case: times of sources go on.
const SAVE_ANYWAY: Duration = Duration::from_secs(60);
/// Most of the time that saving may take.
const SAVE_SHARE: u32 = 20;
/// Time between updates of metrics.
const EXPORT_EVERY: Duration = Duration::from_secs(1);

/// Series that the alarms know, by their number in the store.
#[derive(Default)]
struct Handles {
    known: HashMap<SeriesId, Known>,
    free: Vec<u32>,
    next: u32,
}

struct Known {
    handle: SeriesHandle,
    /// Shards that have the series.
    shards: u32,
}

/// Driver of the alarms.
pub(super) struct Turn {
    pub(super) desk: Arc<Desk>,
    pub(super) store: Arc<dyn Store>,
    pub(super) reports: Arc<Reports>,
    pub(super) registry: Arc<Registry>,
    pub(super) saver: Saver,
    pub(super) dispatch: Dispatch,
    pub(super) orders: SyncSender<Order>,
    pub(super) rounds: SyncSender<Round>,
    /// Number of the set of rules in force; raised under the lock of the alarms.
    pub(super) generation: Arc<AtomicU64>,
    /// Set while late rules run.
    pub(super) is_evaluating: Arc<AtomicBool>,
    /// Longest attempt of a delivery.
    pub(super) patience: Duration,
    pub(super) work: Work,
}

/// State of the thread.
#[derive(Default)]
pub(super) struct Work {
    handles: Handles,
    generation: u64,
    ordering: Option<u64>,
    figures: Figures,
    saved_figures: Figures,
    is_changed: bool,
    serialize_took: Duration,
    saved_at: Option<Instant>,
    exported_at: Option<Instant>,
    samples: Vec<(SeriesHandle, Sample)>,
}

impl Turn {
    /// Works until the inbox is closed and empty; waits for attempts that are under way, and saves.
    pub(super) fn run(mut self) {
        loop {
            let (mail, is_open) = self.desk.inbox.take(self.patience());
            self.work.figures.samples_dropped = mail.dropped;
            let desk = self.desk.clone();
            let mut alarms = desk.alarms();
            let now_ms = wall::now_ms();
            self.take_rules(now_ms, &mut alarms);
            for batch in mail.batches {
                self.take_batch(now_ms, &mut alarms, batch);
            }
            for outcome in mail.outcomes {
                self.take_outcome(now_ms, &mut alarms, outcome);
            }
            self.take_sources(now_ms, &mut alarms);
            alarms.poll(now_ms);
            if is_open {
                self.evaluate(now_ms, &mut alarms);
                self.hand_out(now_ms, &mut alarms);
            }
            self.note_transitions(&mut alarms);
            self.export(now_ms, &alarms);
            self.save(now_ms, &alarms);
            drop(alarms);
            if !is_open {
                break;
            }
        }
        self.finish();
    }

    /// How long nothing has to be done.
    fn patience(&self) -> Duration {
        let next_ms = self.desk.alarms().next_ms();
        let left = next_ms.map_or(TICK, |next_ms| {
            let left = next_ms.saturating_sub(wall::now_ms());
            Duration::from_millis(u64::try_from(left).unwrap_or(0))
        });
        left.clamp(BREATH, TICK)
    }

    /// Fills windows from the store when other rules are in force, or at the start.
    fn take_rules(&mut self, now_ms: i64, alarms: &mut Alarms) {
        let generation = self.generation.load(Ordering::Relaxed);
        if generation == self.work.generation {
            return;
        }
        self.work.generation = generation;
        self.work.handles = Handles::default();
        let selection = alarms.selection();
        for one in past::read(&*self.store, &selection, now_ms, alarms.range_ms()) {
            let handle = self.work.handles.add(one.id, 0);
            alarms.handle_new_series(handle, &one.labels);
            let samples: Vec<_> = one.samples.into_iter().map(|one| (handle, one)).collect();
            alarms.handle_past(&samples);
        }
    }

    fn take_batch(&mut self, now_ms: i64, alarms: &mut Alarms, batch: Batch) {
        let work = &mut self.work;
        if batch.generation != work.generation {
            // Chosen by other rules; what they chose comes again.
            return;
        }
        for (id, labels) in batch.series {
            work.handles.take(id, &labels, alarms);
        }
        work.samples.clear();
        for (id, sample) in batch.samples {
            if let Some(known) = work.handles.known.get(&id) {
                work.samples.push((known.handle, sample));
            }
        }
        alarms.handle_samples(now_ms, &work.samples);
        for id in batch.ended {
            if let Some(handle) = work.handles.end(id) {
                alarms.handle_series_gone(now_ms, handle);
            }
        }
    }

    fn take_outcome(&mut self, now_ms: i64, alarms: &mut Alarms, outcome: Outcome) {
        match outcome {
            Outcome::Delivered { id, lane, result } => {
                self.dispatch.finish(&lane);
                match result {
                    Ok(()) => alarms.handle_delivered(id),
                    Err(_) => alarms.handle_failed(now_ms, id),
                }
            }
            Outcome::Ordered { id, result } => {
                self.work.ordering = None;
                let [_, done, failed] = &mut self.work.figures.orders;
                match &result {
                    Ok(answer) => {
                        *done += 1;
                        info!(
                            order = id,
                            answer, "The farm has taken an order of an alarm"
                        );
                    }
                    Err(error) => {
                        *failed += 1;
                        warn!(order = id, %error, "The farm has not taken an order of an alarm");
                    }
                }
                alarms.handle_order(now_ms, id, result.map(drop));
            }
        }
    }

    fn take_sources(&mut self, now_ms: i64, alarms: &mut Alarms) {
        for (name, news) in self.reports.take().into_iter().flatten() {
            if news.is_seen {
                alarms.handle_source_seen(now_ms, &name);
            }
            if news.sent > 0 {
                alarms.handle_source_counts(now_ms, &name, news.sent, news.arrived);
            }
            if let (true, Some(offset_ms)) = (news.is_seen, news.clock_offset_ms) {
                alarms.handle_source_clock(now_ms, &name, offset_ms);
            }
        }
    }

    /// Gives the thread of late rules what is due, unless it is still at work.
    fn evaluate(&mut self, now_ms: i64, alarms: &mut Alarms) {
        if self.is_evaluating.load(Ordering::Acquire) {
            return;
        }
        let evaluations = alarms.due(now_ms);
        if evaluations.is_empty() {
            return;
        }
        self.is_evaluating.store(true, Ordering::Release);
        let generation = self.work.generation;
        let round = Round {
            generation,
            evaluations,
        };
        // There is room for one, and none is under way; the thread lives as long as this one.
        let _ = self.rounds.try_send(round);
    }

    /// Hands out notifications and the next order.
    fn hand_out(&mut self, now_ms: i64, alarms: &mut Alarms) {
        while let Some(notification) = alarms.poll_notification(now_ms) {
            self.dispatch.push(notification);
        }
        self.dispatch.hand_over();
        while self.work.ordering.is_none() {
            let Some(order) = alarms.poll_order() else {
                return;
            };
            let (kind, reason) = (&order.kind, &order.reason);
            if order.is_dry_run {
                self.work.figures.orders[0] += 1;
                info!(order = order.id, %kind, reason, "An alarm would give an order to the farm");
                continue;
            }
            warn!(order = order.id, %kind, reason, "An alarm gives an order to the farm");
            self.work.ordering = Some(order.id);
            // There is room for one, and none is under way.
            let _ = self.orders.try_send(order);
        }
    }

    fn note_transitions(&self, alarms: &mut Alarms) {
        while let Some(one) = alarms.poll_transition() {
            let Transition {
                labels,
                from,
                to,
                value,
                ..
            } = &one;
            info!(%labels, %from, %to, value, "An alert has changed");
        }
    }

    fn export(&mut self, now_ms: i64, alarms: &Alarms) {
        let work = &mut self.work;
        work.figures = Figures {
            stats: alarms.stats(),
            notify: alarms.notify_stats(),
            notifications_waiting: alarms.notifications_waiting() as u64,
            sources: alarms.sources().0 as u64,
            ..work.figures
        };
        if work
            .exported_at
            .is_some_and(|at| at.elapsed() < EXPORT_EVERY)
        {
            return;
        }
        work.exported_at = Some(Instant::now());
        let mut states: BTreeMap<State, u64> = BTreeMap::new();
        for alert in alarms.alerts(now_ms) {
            *states.entry(alert.state).or_default() += 1;
        }
        export::export(&self.registry, &work.figures, &states);
    }

    /// Saves the state, if it is time.
    fn save(&mut self, now_ms: i64, alarms: &Alarms) {
        let work = &mut self.work;
        work.is_changed |= self.desk.take_change() || work.figures != work.saved_figures;
        let took = work.serialize_took + self.saver.took();
        let every = SAVE_EVERY.max(took * SAVE_SHARE);
        let passed = work.saved_at.map_or(Duration::MAX, |at| at.elapsed());
        let is_due = passed >= every && (passed >= SAVE_ANYWAY || work.is_changed);
        if !is_due || self.saver.is_busy() {
            return;
        }
        work.is_changed = false;
        let begin = Instant::now();
        (work.saved_figures, work.saved_at) = (work.figures, Some(begin));
        let bytes = alarms.save(now_ms);
        work.serialize_took = begin.elapsed();
        self.saver.save(bytes);
    }

    /// Waits for attempts and orders that are under way, so that the next process does not repeat them, and saves.
    fn finish(mut self) {
        let until = Instant::now() + self.patience * 2;
        while (self.dispatch.is_busy() || self.work.ordering.is_some()) && Instant::now() < until {
            let outcomes = self.desk.inbox.take_outcomes(until);
            let desk = self.desk.clone();
            let mut alarms = desk.alarms();
            for outcome in outcomes {
                self.take_outcome(wall::now_ms(), &mut alarms, outcome);
            }
        }
        let now_ms = wall::now_ms();
        let bytes = self.desk.alarms().save(now_ms);
        self.saver.save_last(bytes);
    }
}

impl Handles {
    /// Handle of a series that `shards` more have.
    fn add(&mut self, id: SeriesId, shards: u32) -> SeriesHandle {
        if let Some(known) = self.known.get_mut(&id) {
            known.shards += shards;
            return known.handle;
        }
        let handle = SeriesHandle(self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        }));
        self.known.insert(id, Known { handle, shards });
        handle
    }

    /// Takes in a series of a shard; one that is known keeps its windows.
    fn take(&mut self, id: SeriesId, labels: &Arc<Labels>, alarms: &mut Alarms) {
        let is_known = self.known.contains_key(&id);
        let handle = self.add(id, 1);
        if !is_known {
            alarms.handle_new_series(handle, labels);
        }
    }

    /// Takes in that a shard has a series no more; returns its handle if none has it.
    fn end(&mut self, id: SeriesId) -> Option<SeriesHandle> {
        let known = self.known.get_mut(&id)?;
        known.shards = known.shards.saturating_sub(1);
        if known.shards > 0 {
            return None;
        }
        let handle = self.known.remove(&id)?.handle;
        self.free.push(handle.0);
        Some(handle)
    }
}
