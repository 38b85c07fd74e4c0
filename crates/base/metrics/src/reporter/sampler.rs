//! The thread that samples: reads every metric at aligned times, derives, takes the events out of their ring, and hands
//! batches to the lanes.

use super::budget::Budget;
use super::group::Group;
use super::own::Own;
use super::shared::Shared;
use crate::batch::{Batch, Identity, Tags};
use crate::derive::{Field, Number, Reading, State};
use crate::event::{Record, now_ms};
use crate::registry::{Registry, Roster, Series};
use rustix::time::{ClockId, clock_gettime};
use sheaf_samples::client::{DROPPED, SENT};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Samples of a gauge in an interval, where a value is derived from several.
const WINDOW_SAMPLES: u32 = 10;
/// Shortest time between two of them.
const WINDOW_STEP_LEAST: Duration = Duration::from_millis(10);
/// Least time by which a clock is said to be set back, and not samples to have come faster than one in a ms.
const SET_BACK_LEAST_MS: i64 = 1000;

/// Called before every sample, to bring metrics up to date that nothing else does.
pub(super) type BeforeSample = Box<dyn FnMut(&Registry) + Send>;

/// Requests of others to the thread.
#[derive(Debug, Default)]
pub(super) struct Control {
    state: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    tags: Arc<Tags>,
    is_flush: bool,
    is_end: bool,
}

impl Control {
    pub(super) fn new(tags: Tags) -> Self {
        let control = Self::default();
        control.lock().tags = Arc::new(tags);
        control
    }

    /// Replaces the value of a label of the process; an empty one takes it away.
    pub(super) fn set_tag(&self, name: &str, value: &str) {
        let mut state = self.lock();
        let mut tags: Tags = state.tags.to_vec();
        tags.retain(|(known, _)| known != name);
        if !value.is_empty() {
            tags.push((name.to_owned(), value.to_owned()));
        }
        tags.sort_unstable();
        if *state.tags != tags {
            state.tags = Arc::new(tags);
        }
    }

    pub(super) fn flush(&self) {
        self.lock().is_flush = true;
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        self.lock().is_end = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `time` at most. Returns whether a sample is asked for now, and whether it is the last.
    fn wait(&self, time: Duration) -> (bool, bool) {
        let end = Instant::now() + time;
        let mut state = self.lock();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.is_flush || state.is_end || left.is_zero() {
                return (std::mem::take(&mut state.is_flush), state.is_end);
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The thread, as it runs.
pub(super) struct Sampler {
    pub(super) registry: Arc<Registry>,
    pub(super) control: Arc<Control>,
    /// Lanes that get every batch.
    pub(super) lanes: Vec<Arc<Shared>>,
    /// Lanes of which one gets each batch.
    pub(super) group: Option<Arc<Group>>,
    /// All of these.
    pub(super) all: Vec<Arc<Shared>>,
    pub(super) before: Vec<BeforeSample>,
    pub(super) interval: Duration,
    pub(super) flush_within: Duration,
    pub(super) budget: Budget,
    pub(super) own: Own,
    pub(super) series: Known,
    /// Time of the latest sample.
    pub(super) sampled_ms: i64,
}

/// Series that are sampled, with what was read of them before.
#[derive(Default)]
pub(super) struct Known {
    roster: Roster,
    tags: Arc<Tags>,
    /// By place in the roster.
    states: Vec<(Arc<Identity>, State)>,
    /// Events that were sent last, by place in the roster, where unchanged ones are suppressed.
    events: Vec<Option<Record>>,
    has_events: bool,
    has_windows: bool,
}

impl Known {
    /// Follows the registrations in `registry` and the labels of the process.
    fn refresh(&mut self, registry: &Registry, tags: &Arc<Tags>) {
        registry.list(&mut self.roster);
        if !Arc::ptr_eq(&self.tags, tags) {
            self.tags = tags.clone();
            for ((identity, _), listed) in self.states.iter_mut().zip(&self.roster.series) {
                let entry = &listed.entry;
                *identity = Arc::new(Identity::new(&entry.name, &entry.labels, tags));
            }
        }
        for listed in &self.roster.series[self.states.len()..] {
            let entry = &listed.entry;
            let identity = Identity::new(&entry.name, &entry.labels, tags);
            self.states.push((Arc::new(identity), State::default()));
        }
        self.events.resize(self.states.len(), None);
        let is_event = |series: &Series| matches!(series, Series::Event(_));
        let is_gauge = |series: &Series| matches!(series, Series::Gauge(_) | Series::Real(_));
        let series = &self.roster.series;
        self.has_events = series.iter().any(|one| is_event(&one.entry.series));
        self.has_windows = series
            .iter()
            .any(|one| one.way.has_window() && is_gauge(&one.entry.series));
    }

    /// Reads every metric into `batch`. Returns how many samples were suppressed.
    fn sample(&mut self, batch: &mut Batch) -> u64 {
        let mut suppressed = 0;
        for (listed, (identity, state)) in self.roster.series.iter().zip(&mut self.states) {
            let entry = &listed.entry;
            // Each lane says its own, as of its last payload.
            if [SENT, DROPPED].contains(&entry.name.as_str()) {
                continue;
            }
            let Some(reading) = read(&entry.series) else {
                continue;
            };
            let at_ms = batch.at_ms;
            let is_sent = batch.push(identity, listed.verbosity, at_ms, |out| {
                state.sample(at_ms, reading, listed.way, entry.is_time, out)
            });
            suppressed += u64::from(!is_sent);
        }
        suppressed
    }

    /// Reads the gauges between two samples.
    fn observe(&mut self) {
        for (listed, (_, state)) in self.roster.series.iter().zip(&mut self.states) {
            if listed.way.has_window()
                && let Some(reading) = read(&listed.entry.series)
            {
                state.observe(&reading);
            }
        }
    }

    /// Adds an event to `batch`. Returns `false` if it is suppressed.
    fn push_event(&mut self, record: Record, batch: &mut Batch) -> bool {
        let at = record.id as usize;
        let Some(listed) = self.roster.series.get(at) else {
            return false;
        };
        let Series::Event(event) = &listed.entry.series else {
            return false;
        };
        if let Some(heartbeat) = listed.way.heartbeat() {
            let heartbeat_ms = i64::try_from(heartbeat.as_millis()).unwrap_or(i64::MAX);
            let bits = |record: &Record| record.values.map(f64::to_bits);
            let is_known = self.events[at].is_some_and(|sent| {
                let since = record.at_ms.saturating_sub(sent.at_ms);
                bits(&sent) == bits(&record) && (0..heartbeat_ms).contains(&since)
            });
            if is_known {
                return false;
            }
            self.events[at] = Some(record);
        }
        let fields = event.fields().iter().zip(record.values);
        let fields = fields.map(|(name, value)| (*name, Number::Real(value)) as Field);
        batch.push(&self.states[at].0, listed.verbosity, record.at_ms, |out| {
            out.extend(fields);
            true
        })
    }
}

/// Reads a metric; an event has nothing to read.
fn read(series: &Series) -> Option<Reading> {
    Some(match series {
        Series::Counter(counter) => Reading::Count(counter.value()),
        Series::Gauge(gauge) => Reading::Level(gauge.value()),
        Series::Real(gauge) => Reading::Real(gauge.value()),
        Series::Histogram(histogram, _) => Reading::Values(histogram.snapshot()),
        Series::Event(_) => return None,
    })
}

/// Returns the time of the next sample: the first multiple of the interval after `now_ms`.
fn next_sample(now_ms: i64, interval: Duration) -> i64 {
    let interval_ms = i64::try_from(interval.as_millis())
        .unwrap_or(i64::MAX)
        .max(1);
    (now_ms - now_ms.rem_euclid(interval_ms)).saturating_add(interval_ms)
}

/// Returns the time of a sample that is taken at `at_ms`: later than the latest one, at `latest_ms`, since of two
/// samples with one time a store keeps either. Only a clock that was set back by [`SET_BACK_LEAST_MS`] is followed.
fn after(latest_ms: i64, at_ms: i64) -> i64 {
    let is_same = at_ms <= latest_ms && latest_ms - at_ms < SET_BACK_LEAST_MS;
    if is_same { latest_ms + 1 } else { at_ms }
}

impl Sampler {
    /// Samples until the end is asked for.
    pub(super) fn run(mut self) {
        let mut due_ms = next_sample(now_ms(), self.interval);
        let (mut last, mut last_cpu) = (Instant::now(), self.cpu());
        self.refresh();
        loop {
            let until_due = due_ms.saturating_sub(now_ms()).max(0);
            let until_due = Duration::from_millis(until_due.unsigned_abs());
            let (is_asked, is_end) = self.control.wait(until_due.min(self.step()));
            let now = now_ms();
            let stretched = self.interval * self.budget.stretch();
            // A clock that was set back by more than an interval must not stop everything until it has caught up.
            let is_far = next_sample(now, stretched) < due_ms;
            if now >= due_ms || is_far || is_asked || is_end {
                // What lies between two multiples of the interval is asked for, and has the time at which it is taken.
                let is_aligned = now >= due_ms && !is_asked && !is_end;
                let at_ms = if is_aligned {
                    next_sample(now, stretched) - stretched.as_millis() as i64
                } else {
                    now
                };
                self.sample(at_ms);
                let cpu = self.cpu();
                if is_aligned {
                    self.budget
                        .note(cpu.saturating_sub(last_cpu), last.elapsed());
                    (last, last_cpu) = (Instant::now(), cpu);
                }
                let stretched = self.interval * self.budget.stretch();
                self.own.note(stretched, cpu);
                due_ms = next_sample(now, stretched);
            } else {
                self.between();
            }
            if is_end {
                break;
            }
        }
    }

    /// Longest time to sleep.
    fn step(&self) -> Duration {
        let mut step = Duration::from_secs(3600);
        if self.series.has_events {
            step = step.min(self.flush_within);
        }
        if self.series.has_windows {
            step = step.min((self.interval / WINDOW_SAMPLES).max(WINDOW_STEP_LEAST));
        }
        step
    }

    /// Processor time of this thread and of the lanes.
    fn cpu(&self) -> Duration {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let own = Duration::new(
            cpu.tv_sec.unsigned_abs(),
            u32::try_from(cpu.tv_nsec).unwrap_or_default(),
        );
        own + self.all.iter().map(|lane| lane.cpu()).sum::<Duration>()
    }

    fn refresh(&mut self) {
        let tags = self.control.lock().tags.clone();
        self.series.refresh(&self.registry, &tags);
    }

    /// Sends events, and a sample of everything as of `at_ms`.
    fn sample(&mut self, at_ms: i64) {
        let at_ms = after(self.sampled_ms, at_ms);
        self.sampled_ms = at_ms;
        for before in &mut self.before {
            before(&self.registry);
        }
        self.refresh();
        let mut batch = Batch::new(self.series.tags.clone(), at_ms);
        self.take_events(&mut batch);
        self.own.events_dropped(self.registry.ring().dropped());
        let suppressed = self.series.sample(&mut batch);
        self.own.suppressed(suppressed);
        self.send(batch);
    }

    /// Sends the events that have come since the last sample, and reads the gauges whose peaks matter.
    fn between(&mut self) {
        if self.series.has_windows {
            self.series.observe();
        }
        // Also of an event that was registered since.
        self.refresh();
        let mut batch = Batch::new(self.series.tags.clone(), now_ms());
        self.take_events(&mut batch);
        self.send(batch);
    }

    fn take_events(&mut self, batch: &mut Batch) {
        // As many as were there at most, so that a source of events cannot keep the thread.
        for _ in 0..self.registry.ring().len() {
            let Some(record) = self.registry.ring().pop() else {
                break;
            };
            if !self.series.push_event(record, batch) {
                self.own.suppressed(1);
            }
        }
    }

    fn send(&self, batch: Batch) {
        if !batch.is_empty() {
            let batch = Arc::new(batch);
            self.lanes.iter().for_each(|lane| lane.push(&batch));
            if let Some(group) = &self.group {
                group.push(&batch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reporting::{Reporting, Verbosity};

    #[test]
    fn times_of_samples_line_up_over_hosts() {
        let second = Duration::from_secs(1);
        for (now, expected) in [(0, 1000), (999, 1000), (1000, 2000), (-1, 0), (-1000, 0)] {
            assert_eq!(next_sample(now, second), expected);
        }
        assert_eq!(next_sample(5500, 4 * second), 8000);
    }

    #[test]
    fn samples_within_one_ms_have_times_in_their_order() {
        let mut latest_ms = i64::MIN;
        let times = [5, 5, 5, 5, 7, 9, 10].map(|at_ms| {
            latest_ms = after(latest_ms, at_ms);
            latest_ms
        });
        assert_eq!(times, [5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(after(5000, 4000), 4000);
        assert_eq!(after(5000, 4001), 5001);
    }

    fn values(batch: &Batch) -> Vec<(String, i64, Vec<Field>)> {
        let points = batch.points(Verbosity::Debug);
        let value = |(point, fields): (&crate::batch::Point, &[Field])| {
            (point.series.name.clone(), point.at_ms, fields.to_vec())
        };
        points.map(value).collect()
    }

    #[test]
    fn a_sample_follows_registrations_and_labels() {
        let registry = Registry::default();
        let mut known = Known::default();
        registry.counter("a_total", "Help.", &[]).add(3);
        let mut tags = Arc::new(vec![("run".to_owned(), "1".to_owned())]);
        let run_of = |known: &mut Known, tags: &Arc<Tags>, at_ms| {
            known.refresh(&registry, tags);
            let mut batch = Batch::new(known.tags.clone(), at_ms);
            known.sample(&mut batch);
            let points: Vec<_> = batch.points(Verbosity::Debug).collect();
            points[0]
                .0
                .series
                .labels()
                .map(|(_, run)| run.to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(run_of(&mut known, &tags, 1000), ["1"]);
        tags = Arc::new(vec![("run".to_owned(), "2".to_owned())]);
        assert_eq!(run_of(&mut known, &tags, 2000), ["2"]);
    }

    #[test]
    fn series_keep_states_of_their_own() {
        let registry = Registry::default();
        registry.report_as(
            "a_total",
            Reporting::new().derive(&[crate::Derived::Increment]),
        );
        // Their values end in the same 8 bits, which one client library of this kind once keyed by.
        let one = registry.counter("a_total", "Help.", &[("flp", "1")]);
        let other = registry.counter("a_total", "Help.", &[("flp", "257")]);
        let mut known = Known::default();
        let mut last = Vec::new();
        for (at_ms, more) in [(1000, [1, 100]), (2000, [2, 200])] {
            one.add(more[0]);
            other.add(more[1]);
            known.refresh(&registry, &Arc::default());
            let mut batch = Batch::new(known.tags.clone(), at_ms);
            known.sample(&mut batch);
            last = values(&batch);
        }
        let increments = last.iter().map(|(_, _, fields)| fields[1]);
        let expected = [2.0, 200.0].map(|value| ("increment", Number::Real(value)));
        assert!(increments.eq(expected));
    }

    #[test]
    fn events_keep_every_value_and_equal_ones_are_suppressed_where_asked() {
        let registry = Registry::default();
        registry.ring().open();
        registry.report_as(
            "link_status",
            Reporting::new().suppress(Duration::from_secs(300)),
        );
        let status = registry.event("link_status", "Help.", &[("link", "1")], &["up"]);
        let hits = registry.event("hits", "Help.", &[], &["x", "y"]);
        let mut known = Known::default();
        known.refresh(&registry, &Arc::default());
        for value in [1.0, 1.0, 0.0, 1.0] {
            status.send(&[value]);
            hits.send(&[value, 7.0]);
        }
        let mut batch = Batch::new(known.tags.clone(), 0);
        let mut suppressed = 0;
        while let Some(record) = registry.ring().pop() {
            suppressed += u32::from(!known.push_event(record, &mut batch));
        }
        assert_eq!(suppressed, 1);
        let all = values(&batch);
        let of = |name: &str| {
            let found = all.iter().filter(|(found, ..)| found == name);
            found.map(|(_, _, fields)| fields[0].1).collect::<Vec<_>>()
        };
        assert_eq!(of("link_status"), [1.0, 0.0, 1.0].map(Number::Real));
        assert_eq!(of("hits"), [1.0, 1.0, 0.0, 1.0].map(Number::Real));
    }

    #[test]
    fn peaks_of_a_gauge_between_two_samples_are_seen() {
        let registry = Registry::default();
        registry.report_as(
            "depth_items",
            Reporting::new().derive(&[crate::Derived::Max]),
        );
        let depth = registry.gauge("depth_items", "Help.", &[]);
        let mut known = Known::default();
        known.refresh(&registry, &Arc::default());
        assert!(known.has_windows && !known.has_events);
        depth.set(9);
        known.observe();
        depth.set(2);
        let mut batch = Batch::new(known.tags.clone(), 1000);
        known.sample(&mut batch);
        let expected = [("value", Number::Int(2)), ("max", Number::Real(9.0))];
        assert_eq!(values(&batch)[0].2, expected);
    }
}
