//! Lane to one back end: encodes batches, sends them, counts what was sent and dropped, and says both in the last
//! payload of every flush.

use super::queue::Queue;
use crate::backend::{Carrier, CarryError, Encoder};
use crate::batch::{Batch, Identity, Tags};
use crate::count::Counter;
use crate::derive::{Number, VALUE};
use crate::reporting::Verbosity;
use rustix::time::{ClockId, clock_gettime};
use sheaf_samples::client::{BACKEND, DROPPED, PROCESS, SENT};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use tracing::{info, warn};

/// Pause after the first failed attempt; it doubles with every further one.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Samples that the account of a flush consists of.
const ACCOUNT: usize = 2;

/// State that a lane shares with the thread that samples.
#[derive(Debug)]
pub(super) struct Shared {
    /// URI without options.
    pub(super) name: String,
    pub(super) queue: Queue,
    verbosity: AtomicU8,
    /// Whether the URI states the verbosity.
    pub(super) is_stated: bool,
    pub(super) sent: Arc<Counter>,
    pub(super) dropped: Arc<Counter>,
    /// Processor time of the lane so far, in ns.
    cpu_ns: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        name: String,
        (verbosity, is_stated): (Verbosity, bool),
        sent: Arc<Counter>,
        dropped: Arc<Counter>,
    ) -> Self {
        Self {
            name,
            queue: Queue::default(),
            verbosity: AtomicU8::new(verbosity as u8),
            is_stated,
            sent,
            dropped,
            cpu_ns: AtomicU64::new(0),
        }
    }

    pub(super) fn verbosity(&self) -> Verbosity {
        Verbosity::ALL[usize::from(self.verbosity.load(Ordering::Relaxed))]
    }

    pub(super) fn set_verbosity(&self, verbosity: Verbosity) {
        self.verbosity.store(verbosity as u8, Ordering::Relaxed);
    }

    pub(super) fn cpu(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }

    /// Hands a batch to the lane.
    pub(super) fn push(&self, batch: &Arc<Batch>) {
        let dropped = self.queue.push(batch.clone(), self.verbosity());
        self.dropped.add(dropped as u64);
    }
}

/// Lane, as its thread has it.
pub(super) struct Lane {
    shared: Arc<Shared>,
    encoder: Box<dyn Encoder>,
    delivery: Delivery,
    /// Label of this process in its accounts; empty for none.
    process: String,
    /// Labels of the process that the accounts were made for, and these.
    account: Option<(Arc<Tags>, [Identity; ACCOUNT])>,
}

impl Lane {
    pub(super) fn new(
        shared: Arc<Shared>,
        encoder: Box<dyn Encoder>,
        carrier: Box<dyn Carrier>,
        process: String,
    ) -> Self {
        let delivery = Delivery {
            shared: shared.clone(),
            carrier,
            is_down: false,
        };
        Self {
            shared,
            encoder,
            delivery,
            process,
            account: None,
        }
    }

    /// Sends batches until the queue is closed.
    pub(super) fn run(mut self) {
        while let Some(batch) = self.shared.queue.pop() {
            self.flush(&batch);
            let cpu = clock_gettime(ClockId::ThreadCPUTime);
            let ns = cpu.tv_sec.unsigned_abs() * 1_000_000_000 + cpu.tv_nsec.unsigned_abs();
            self.shared.cpu_ns.store(ns, Ordering::Relaxed);
        }
        self.shared.queue.finish();
    }

    /// Sends the points of `batch`, and the account.
    fn flush(&mut self, batch: &Batch) {
        let verbosity = self.shared.verbosity();
        if batch.samples(verbosity) == 0 {
            return;
        }
        let Self {
            shared,
            encoder,
            delivery,
            process,
            account,
        } = self;
        let mut carry = |payload: &[u8], samples: usize| delivery.deliver(payload, samples);
        for (point, fields) in batch.points(verbosity) {
            let unfit = encoder.push(&point.series, point.at_ms, fields, &mut carry);
            shared.dropped.add(unfit as u64);
        }
        // The payload with the account counts itself, so nothing may be sent between reading the count and it.
        encoder.make_room(ACCOUNT, &mut carry);
        let sent = shared.sent.value() + (encoder.pending() + ACCOUNT) as u64;
        let accounts = match account {
            Some((tags, accounts)) if Arc::ptr_eq(tags, &batch.tags) => accounts,
            _ => {
                let accounts = accounts(&batch.tags, process, &shared.name);
                &mut account.insert((batch.tags.clone(), accounts)).1
            }
        };
        for (series, total) in accounts.iter().zip([sent, shared.dropped.value()]) {
            let number = i64::try_from(total).map_or(Number::Real(total as f64), Number::Int);
            let unfit = encoder.push(series, batch.at_ms, &[(VALUE, number)], &mut carry);
            shared.dropped.add(unfit as u64);
        }
        encoder.flush(&mut carry);
    }
}

/// Returns the series of what was sent and what was dropped.
fn accounts(tags: &Tags, process: &str, backend: &str) -> [Identity; ACCOUNT] {
    [SENT, DROPPED].map(|name| {
        let mut labels = vec![(BACKEND.to_owned(), backend.to_owned())];
        if !process.is_empty() {
            labels.push((PROCESS.to_owned(), process.to_owned()));
        }
        Identity::new(name, &labels, tags)
    })
}

/// Carrier with its attempts.
struct Delivery {
    shared: Arc<Shared>,
    carrier: Box<dyn Carrier>,
    /// Whether the last attempt failed, so that the log says it once.
    is_down: bool,
}

impl Delivery {
    /// Sends a payload, with as many attempts as its carrier allows, and counts it.
    fn deliver(&mut self, payload: &[u8], samples: usize) {
        let mut pause = PAUSE;
        loop {
            match self.carrier.send(payload) {
                Ok(()) => {
                    if std::mem::take(&mut self.is_down) {
                        info!(
                            backend = self.shared.name,
                            "Back end of metrics takes samples again"
                        );
                    }
                    self.shared.sent.add(samples as u64);
                    return;
                }
                Err(error) => {
                    self.note(&error);
                    let is_worth_it = matches!(error, CarryError::Later(_));
                    if !is_worth_it || !self.shared.queue.pause(pause) {
                        self.shared.dropped.add(samples as u64);
                        return;
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    fn note(&mut self, error: &CarryError) {
        if !std::mem::replace(&mut self.is_down, true) {
            warn!(backend = self.shared.name, %error, "Back end of metrics does not take samples; they are dropped and counted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Format, Packed};
    use crate::registry::Registry;
    use sheaf_samples::wire::line_protocol::{Decoder, Precision, Series};
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::time::Instant;

    /// Payloads that arrived, and what the next attempts give.
    #[derive(Clone, Default)]
    struct Script {
        arrived: Arc<Mutex<Vec<Vec<u8>>>>,
        errors: Arc<Mutex<VecDeque<Option<CarryError>>>>,
    }

    impl Carrier for Script {
        fn send(&mut self, payload: &[u8]) -> Result<(), CarryError> {
            let error = self.errors.lock().unwrap().pop_front().flatten();
            match error {
                Some(error) => Err(error),
                None => {
                    self.arrived.lock().unwrap().push(payload.to_vec());
                    Ok(())
                }
            }
        }
    }

    impl Script {
        fn fails(&self, attempts: impl IntoIterator<Item = Option<CarryError>>) {
            self.errors.lock().unwrap().extend(attempts);
        }

        /// Samples that arrived, by the name of their series; the accounts with their latest values.
        fn count(&self) -> (u64, Option<f64>, Option<f64>) {
            let (mut samples, mut sent, mut dropped) = (0, None, None);
            let mut decoder = Decoder::default();
            for payload in self.arrived.lock().unwrap().iter() {
                let mut lines = decoder.lines(payload);
                while let Some(line) = lines.next_line() {
                    let line = line.unwrap();
                    let series = Series::parse(line.series).unwrap();
                    for field in line.fields() {
                        samples += 1;
                        let value = field.value.number();
                        match series.measurement.as_ref() {
                            SENT => sent = value,
                            DROPPED => dropped = value,
                            _ => {}
                        }
                    }
                }
            }
            (samples, sent, dropped)
        }
    }

    fn lane(bytes_max: usize) -> (Lane, Script) {
        let registry = Registry::default();
        let shared = Shared::new(
            "x://y".to_owned(),
            (Verbosity::Info, false),
            registry.counter("sent_total", "Sent.", &[]),
            registry.counter("dropped_total", "Dropped.", &[]),
        );
        let script = Script::default();
        let lines = Box::new(Packed::new(bytes_max, Format::Lines(Precision::Ns)));
        let carrier = Box::new(script.clone());
        let lane = Lane::new(Arc::new(shared), lines, carrier, "epn-3".to_owned());
        (lane, script)
    }

    fn batch(points: usize) -> Batch {
        let series = Arc::new(Identity::new("frames_total", &[], &Tags::new()));
        let mut batch = Batch::new(Arc::default(), 5);
        for at_ms in 0..points as i64 {
            batch.push(&series, Verbosity::Info, at_ms, |fields| {
                fields.extend([(VALUE, Number::Int(at_ms)), ("rate", Number::Real(0.5))]);
                true
            });
        }
        batch
    }

    #[test]
    fn the_last_payload_of_a_flush_says_how_many_samples_were_sent_itself_included() {
        let (mut lane, script) = lane(500);
        for flush in 1..=3 {
            lane.flush(&batch(40));
            let (samples, sent, dropped) = script.count();
            assert_eq!(samples, flush * (80 + ACCOUNT as u64));
            assert_eq!((sent, dropped), (Some(samples as f64), Some(0.0)));
        }
        let arrived = script.arrived.lock().unwrap();
        assert!(arrived.len() > 6 && arrived.iter().all(|payload| payload.len() <= 500));
        let last = String::from_utf8(arrived.last().unwrap().clone()).unwrap();
        let tags = "backend=x://y,process=epn-3";
        assert!(
            last.contains(&format!("{SENT},{tags} value=246i 5000000\n")),
            "{last}"
        );
    }

    #[test]
    fn what_is_lost_is_not_counted_as_sent() {
        let (mut lane, script) = lane(500);
        let lost = || Some(CarryError::Lost(std::io::Error::other("no")));
        script.fails([None, lost(), None, lost()]);
        lane.flush(&batch(40));
        lane.flush(&batch(40));
        let (samples, sent, dropped) = script.count();
        assert_eq!(sent, Some(samples as f64));
        let all = 2 * (80 + ACCOUNT as u64);
        assert_eq!(dropped, Some((all - samples) as f64));
        assert_eq!(lane.shared.sent.value(), samples);
    }

    #[test]
    fn a_payload_that_is_refused_is_dropped_and_one_that_may_succeed_is_sent_again() {
        let (mut lane, script) = lane(100_000);
        script.fails([
            Some(CarryError::Later("away".to_owned())),
            None,
            Some(CarryError::Refused("bad".to_owned())),
        ]);
        lane.flush(&batch(1));
        lane.flush(&batch(1));
        assert_eq!(script.count().0, 4);
        assert_eq!(lane.shared.dropped.value(), 4);
        // No further attempt once the process ends.
        script.fails([Some(CarryError::Later("away".to_owned()))]);
        lane.shared.queue.close(Instant::now());
        lane.flush(&batch(1));
        assert_eq!(lane.shared.dropped.value(), 8);
    }

    #[test]
    fn a_batch_of_nothing_for_this_back_end_sends_nothing() {
        let (mut lane, script) = lane(500);
        lane.shared.set_verbosity(Verbosity::Prod);
        lane.flush(&batch(3));
        assert_eq!(script.count(), (0, None, None));
    }
}
