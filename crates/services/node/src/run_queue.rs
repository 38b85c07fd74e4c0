//! How long the event loops of this process were ready to run and had no processor, as the kernel counts it.
//!
//! The kernel counts for each thread the time that it spends in a run queue, also while its control group has used up
//! its quota of processor time (`/proc/thread-self/schedstat`). A process that is stopped is in no run queue: a node
//! that hangs is not excused. Without that file every run delay is zero, and silence is judged without it.
//!
//! Of several threads that move data the one counts that has waited longest: an STF that it has does not move either.

use crate::reject::Told;
use sheaf_membership::RunDelays;
use sheaf_metrics::{Registry, Row};
use sheaf_protocol::Timestamp;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;
use tracing::warn;

/// Counts of the kernel for the thread that opens it.
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";
/// Shortest time between two looks, so that a busy loop does not read a file at each turn.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Run delay from which on the log tells of it: as long as a node may be silent.
const LONG: Duration = Duration::from_millis(100);

/// Metrics of an event loop.
pub(crate) const METRICS: &[Row<LoopTimes>] = &[
    Row::gauge(
        "node_run_delay_seconds",
        "Longest time of the last 4 s for which an event loop was ready to run and had no processor, in seconds.",
        "healthy: below 0.01. From 0.1 on the node is short of processor time: see \
         [no processor](../how-to/operate.md#a-node-waits-for-the-processor)",
        |times| times.run_delay_ns,
    ),
    Row::counter(
        "node_run_delay_seconds_total",
        "Time for which an event loop was ready to run and had no processor, in seconds.",
        "its rate is the share of time that the node waits for a processor. Healthy: below 0.05",
        |times| times.run_delay_total_ns,
    ),
    Row::gauge(
        "node_turn_seconds_max",
        "Longest turn of the event loop of the last 4 s, from its wake-up until it waits again, in seconds.",
        "healthy: below 0.02. A pulse waits for so long. Long with a short `node_run_delay_seconds`: a slow disk under \
         the event log, or very large STFs",
        |times| times.turn_ns,
    ),
];

/// Times of an event loop lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoopTimes {
    run_delay_ns: u64,
    run_delay_total_ns: u64,
    turn_ns: u64,
}

/// Counts of one thread.
#[derive(Debug)]
struct Thread {
    file: File,
    /// Run delay since its start at the last look, in ns.
    total_ns: u64,
}

impl Thread {
    /// Opens the counts of a thread at `path`; `None` if the kernel has none.
    fn open(path: &str) -> Option<Self> {
        let file = File::open(path).ok()?;
        let mut thread = Self { file, total_ns: 0 };
        thread.advance_ns()?;
        Some(thread)
    }

    /// Returns the run delay since the last look, in ns.
    fn advance_ns(&mut self) -> Option<u64> {
        let mut text = [0; 96];
        let size = self.file.read_at(&mut text, 0).ok()?;
        let total_ns = run_delay_ns(&text[..size])?;
        let delay_ns = total_ns.saturating_sub(self.total_ns);
        self.total_ns = total_ns;
        Some(delay_ns)
    }
}

/// Run delay of the thread of a node, and of those that move data for it.
#[derive(Debug)]
pub(crate) struct RunQueue {
    threads: Vec<Thread>,
    /// Run delay since the start, in ns.
    total_ns: u64,
    looked_at: Timestamp,
    lately: RunDelays,
    turns: RunDelays,
    told: Told,
}

impl RunQueue {
    /// Looks at the thread that calls it and at `others`, by the ids that the kernel has for them.
    pub(crate) fn of_this_thread_and(others: impl Iterator<Item = u32>) -> Self {
        let others = others.map(|id| format!("/proc/self/task/{id}/schedstat"));
        let all = std::iter::once(SCHEDSTAT.to_owned()).chain(others);
        let threads: Vec<Thread> = all.filter_map(|path| Thread::open(&path)).collect();
        Self {
            total_ns: threads.first().map_or(0, |own| own.total_ns),
            threads,
            looked_at: Timestamp(0),
            lately: RunDelays::default(),
            turns: RunDelays::default(),
            told: Told::default(),
        }
    }

    /// Returns the run delay since the last look, if it is time for a look at `now`. A long one is logged.
    pub(crate) fn look(&mut self, now: Timestamp) -> Option<Duration> {
        if now.since(self.looked_at) < LOOK_EVERY {
            return None;
        }
        self.looked_at = now;
        let delays_ns = self.threads.iter_mut().filter_map(Thread::advance_ns);
        let delay_ns = delays_ns.max()?;
        self.total_ns += delay_ns;
        let delay = Duration::from_nanos(delay_ns);
        self.lately.handle_pulse();
        self.lately.add(now, delay);
        if delay >= LONG
            && let Some(untold) = self.told.note(now)
        {
            let run_delay_ms = delay.as_millis();
            warn!(run_delay_ms, untold, "Waits for a processor");
        }
        Some(delay)
    }

    /// Notes that a turn of the loop, which ended at `now`, took `time`.
    pub(crate) fn note_turn(&mut self, now: Timestamp, time: Duration) {
        self.turns.handle_pulse();
        self.turns.add(now, time);
    }

    /// Brings the metrics of the loop up to date.
    pub(crate) fn export(&self, now: Timestamp, registry: &Registry) {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let times = LoopTimes {
            run_delay_ns: ns(self.lately.longest(now)),
            run_delay_total_ns: self.total_ns,
            turn_ns: ns(self.turns.longest(now)),
        };
        registry.export(METRICS, &times);
    }
}

/// Returns the second of the three numbers: time on a processor, run delay, both in ns, and time slices.
fn run_delay_ns(schedstat: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(schedstat).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn the_second_number_is_the_run_delay() {
        assert_eq!(run_delay_ns(b"8123 49935 1\n"), Some(49935));
        assert_eq!(run_delay_ns(b"8123"), None);
        assert_eq!(run_delay_ns(b""), None);
    }

    #[test]
    fn threads_that_share_a_processor_have_a_run_delay() {
        if File::open(SCHEDSTAT).is_err() {
            println!("skipped: the kernel has no {SCHEDSTAT}");
            return;
        }
        let clock = Clock::start();
        // More threads than processors, until one of them has waited that is not this one.
        let is_over = AtomicBool::new(false);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let (told, ids) = std::sync::mpsc::sync_channel(2 * processors);
        std::thread::scope(|scope| {
            for _ in 0..2 * processors {
                let told = told.clone();
                let is_over = &is_over;
                scope.spawn(move || {
                    let id = rustix::thread::gettid().as_raw_nonzero().get();
                    told.send(id.unsigned_abs()).unwrap();
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let others: Vec<u32> = ids.iter().take(2 * processors).collect();
            let mut run_queue = RunQueue::of_this_thread_and(others.iter().copied());
            assert_eq!(run_queue.threads.len(), 1 + others.len());
            // Without the thread of the test.
            run_queue.threads.remove(0);
            let mut now = clock.now();
            loop {
                now = now + LOOK_EVERY;
                let delay = run_queue.look(now).unwrap();
                assert_eq!(run_queue.look(now), None, "it was looked at just now");
                if delay > Duration::ZERO {
                    break;
                }
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            assert!(run_queue.lately.longest(now) > Duration::ZERO);
        });
    }
}
