//! Lane to one back end: encodes batches, sends them, counts what was sent and dropped, and says both in the last
//! payload of every flush.

use super::group::Group;
use super::shared::Shared;
use crate::backend::{Carrier, CarryError, Encoder};
use crate::batch::{Batch, Identity, Tags};
use crate::derive::{Number, VALUE};
use rustix::time::{ClockId, clock_gettime};
use sheaf_samples::client::{BACKEND, DROPPED, PROCESS, SENT};
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

/// Pause after the first failed attempt; it doubles with every further one.
const PAUSE: Duration = Duration::from_millis(250);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Samples that the account of a flush consists of.
const ACCOUNT: usize = 2;

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
            seat: None,
            is_left: false,
        };
        Self {
            shared,
            encoder,
            delivery,
            process,
            account: None,
        }
    }

    /// Makes the lane the one at `at` in `group`, which takes over what its collector does not take.
    pub(super) fn join(&mut self, group: Arc<Group>, at: usize) {
        self.delivery.seat = Some((group, at));
    }

    /// Sends batches until the queue is closed.
    pub(super) fn run(mut self) {
        while let Some(batch) = self.shared.queue.pop() {
            self.flush(&batch);
            if let Some((group, at)) = self.delivery.take_left() {
                group.hand_over(at, batch);
            }
            let cpu = clock_gettime(ClockId::ThreadCPUTime);
            let ns = cpu.tv_sec.unsigned_abs() * 1_000_000_000 + cpu.tv_nsec.unsigned_abs();
            self.shared.note_cpu(ns);
        }
    }

    /// Sends the points of `batch`, and the account. Once a payload was left to another collector, nothing is sent.
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
        let mut unfit = 0;
        for (point, fields) in batch.points(verbosity) {
            unfit += encoder.push(&point.series, point.at_ms, fields, &mut carry);
        }
        // The payload with the account counts itself, so nothing may be sent between reading the count and it.
        encoder.make_room(ACCOUNT, &mut carry);
        let sent = shared.sent.value() + (encoder.pending() + ACCOUNT) as u64;
        let dropped = shared.dropped.value() + unfit as u64;
        let accounts = match account {
            Some((tags, accounts)) if Arc::ptr_eq(tags, &batch.tags) => accounts,
            _ => {
                let accounts = accounts(&batch.tags, process, &shared.name);
                &mut account.insert((batch.tags.clone(), accounts)).1
            }
        };
        for (series, total) in accounts.iter().zip([sent, dropped]) {
            let number = i64::try_from(total).map_or(Number::Real(total as f64), Number::Int);
            unfit += encoder.push(series, batch.at_ms, &[(VALUE, number)], &mut carry);
        }
        encoder.flush(&mut carry);
        // What goes to another collector is counted there.
        if !delivery.is_left {
            shared.dropped.add(unfit as u64);
        }
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
    /// Other collectors that could take the samples, and the place among them.
    seat: Option<(Arc<Group>, usize)>,
    /// Whether the batch that is being sent was left to another collector.
    is_left: bool,
}

impl Delivery {
    /// Sends a payload, with as many attempts as its carrier allows, and counts it.
    fn deliver(&mut self, payload: &[u8], samples: usize) {
        if self.is_left {
            return;
        }
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
                    let is_away = !matches!(error, CarryError::Refused(_));
                    if let Some((group, at)) = &self.seat
                        && is_away
                        && group.note_failure(*at)
                    {
                        self.is_left = true;
                        return;
                    }
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

    /// Returns where a batch has to go that was left to another collector.
    fn take_left(&mut self) -> Option<(Arc<Group>, usize)> {
        let is_left = std::mem::take(&mut self.is_left);
        self.seat.clone().filter(|_| is_left)
    }

    fn note(&mut self, error: &CarryError) {
        if std::mem::replace(&mut self.is_down, true) {
            return;
        }
        let backend = &self.shared.name;
        match self.seat {
            Some(_) => warn!(backend, %error, "A collector does not take samples"),
            None => {
                warn!(backend, %error, "Back end of metrics does not take samples; they are dropped and counted");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Format, Packed};
    use crate::count::Counter;
    use crate::registry::Registry;
    use crate::reporting::Verbosity;
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
        named("x://y", bytes_max)
    }

    fn named(name: &str, bytes_max: usize) -> (Lane, Script) {
        let registry = Registry::default();
        let shared = Shared::new(
            name.to_owned(),
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

    /// Two lanes of one group that prefers the first.
    fn group() -> (Arc<Group>, [(Lane, Script); 2], Arc<Counter>) {
        let mut lanes = ["x://a", "x://b"].map(|name| named(name, 500));
        let shared = lanes.iter().map(|(lane, _)| lane.shared.clone()).collect();
        let first_up = |is_up: &[bool]| is_up.iter().position(|is_up| *is_up).unwrap_or(0);
        let changes = Registry::default().counter("changes_total", "Changes.", &[]);
        let pause = Duration::from_secs(600);
        let group = Group::new(shared, Box::new(first_up), pause, changes.clone());
        let group = Arc::new(group);
        for (at, (lane, _)) in lanes.iter_mut().enumerate() {
            lane.join(group.clone(), at);
        }
        (group, lanes, changes)
    }

    /// Runs both lanes until they have nothing to do, the first before the second.
    fn run_both(lanes: [(Lane, Script); 2]) {
        for (lane, _) in lanes {
            lane.shared
                .queue
                .close(Instant::now() + Duration::from_secs(600));
            lane.run();
        }
    }

    #[test]
    fn what_a_collector_does_not_take_goes_to_the_next_as_a_whole() {
        for error in [
            CarryError::Later("away".to_owned()),
            CarryError::Lost(std::io::Error::other("refused")),
        ] {
            let (group, lanes, changes) = group();
            let [a, b] =
                [&lanes[0], &lanes[1]].map(|(lane, script)| (lane.shared.clone(), script.clone()));
            // The first payload of the second batch arrives, the second does not.
            a.1.fails(std::iter::repeat_with(|| None).take(a_batch_payloads() + 1));
            a.1.fails([Some(error)]);
            for _ in 0..3 {
                group.push(&Arc::new(batch(40)));
            }
            run_both(lanes);
            let per_batch = 80 + ACCOUNT as u64;
            let (arrived, ..) = a.1.count();
            assert!(arrived > per_batch && arrived < 2 * per_batch, "{arrived}");
            assert_eq!(a.0.sent.value(), arrived);
            assert_eq!(
                b.1.count(),
                (2 * per_batch, Some(2.0 * per_batch as f64), Some(0.0))
            );
            assert_eq!((a.0.dropped.value(), b.0.dropped.value()), (0, 0));
            assert_eq!(changes.value(), 1);
        }
    }

    /// Payloads that a batch of 40 points takes.
    fn a_batch_payloads() -> usize {
        let (mut lane, script) = lane(500);
        lane.flush(&batch(40));
        script.arrived.lock().unwrap().len()
    }

    #[test]
    fn the_last_collector_that_is_left_tries_again_and_a_refusal_moves_nothing() {
        let (group, lanes, changes) = group();
        let away = || Some(CarryError::Later("away".to_owned()));
        let scripts = [&lanes[0], &lanes[1]].map(|(_, script)| script.clone());
        let bad = || Some(CarryError::Refused("bad".to_owned()));
        // A batch takes two payloads, the account among them.
        scripts[0].fails([bad(), bad(), away()]);
        scripts[1].fails([away(), None]);
        group.push(&Arc::new(batch(1)));
        group.push(&Arc::new(batch(1)));
        let dropped = lanes[0].0.shared.dropped.clone();
        // The second is not closed yet, so it may wait for another attempt.
        let [(first, _), (second, _)] = lanes;
        first
            .shared
            .queue
            .close(Instant::now() + Duration::from_secs(600));
        first.run();
        assert_eq!(dropped.value(), 2 + ACCOUNT as u64, "what was refused");
        let shared = second.shared.clone();
        std::thread::scope(|scope| {
            scope.spawn(|| second.run());
            while shared.sent.value() == 0 {
                std::thread::yield_now();
            }
            shared
                .queue
                .close(Instant::now() + Duration::from_secs(600));
        });
        assert_eq!(scripts[1].count().0, 2 + ACCOUNT as u64);
        assert_eq!(changes.value(), 1);
    }

    #[test]
    fn a_batch_of_nothing_for_this_back_end_sends_nothing() {
        let (mut lane, script) = lane(500);
        lane.shared.set_verbosity(Verbosity::Prod);
        lane.flush(&batch(3));
        assert_eq!(script.count(), (0, None, None));
    }
}
