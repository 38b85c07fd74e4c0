//! Seeds by the thousand, on all cores.
//!
//! Results are taken in the order of the seeds, whatever thread ran them, so a report depends on its configuration
//! only. One seed of [`TWICE_EVERY`] is run twice, and both runs must leave the same trace.

use crate::family::SeedFamily;
use crate::farm::{Outcome, TortureFarm};
use crate::handoff::{self, HandoffOptions};
use crate::invariant::{Invariant, Violation};
use crate::monitor::{self, MonitorOptions};
use crate::options::Options;
use crate::trace::Trace;
use crate::watch::Accounting;
use crate::writing::{self, WritingOptions};
use sheaf_protocol::{Timestamp, splitmix};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Interval of seeds that are run twice.
pub const TWICE_EVERY: u64 = 64;
/// Violations that a report keeps in full; the others are counted.
pub const FAILURES_KEPT: usize = 100;
/// Results that wait to be taken, for each thread.
const WAITING_MAX: usize = 64;

/// Amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of seeds.
    Seeds(u64),
    /// As many seeds as it takes for this number of faults, of state and of messages together.
    Faults(u64),
}

/// Configuration of a torture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The family of seeds.
    pub kind: SeedFamily,
    /// The first seed; the others follow.
    pub first: u64,
    /// Amount of work.
    pub amount: Amount,
    /// Number of threads.
    pub threads: usize,
    /// Whether the first violation ends it.
    pub until_first: bool,
}

/// Seed that violates an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The violation.
    pub violation: Violation,
}

/// Result of all seeds together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Seeds run.
    pub seeds: u64,
    /// Faults of nodes, disks, clocks and links.
    pub state_faults: u64,
    /// Frames lost, doubled, overtaken, damaged or reset.
    pub message_faults: u64,
    /// TFs with a verdict.
    pub timeframes: u64,
    /// Virtual time of all farms together.
    pub simulated: Duration,
    /// Accounting of all farms together.
    pub accounting: Accounting,
    /// Samples of all collectors, or records of all writers, by fate.
    pub fates: BTreeMap<&'static str, u64>,
    /// Seeds that were run twice.
    pub twice: u64,
    /// Seeds that violate an invariant.
    pub failed: u64,
    /// The first [`FAILURES_KEPT`] of them.
    pub failures: Vec<Failure>,
    /// Hash of the traces of all seeds, in order.
    pub trace_hash: u64,
}

impl Report {
    /// Returns the number of faults of both sorts.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.state_faults + self.message_faults
    }

    fn add(&mut self, seed: u64, result: Result<Outcome, Violation>, was_run_twice: bool) {
        self.seeds += 1;
        self.twice += u64::from(was_run_twice);
        match result {
            Ok(outcome) => {
                self.state_faults += outcome.state_faults;
                self.message_faults += outcome.message_faults;
                self.timeframes += outcome.accounting.decided;
                self.simulated += outcome.simulated;
                self.accounting.add(&outcome.accounting);
                for (fate, count) in outcome.fates {
                    *self.fates.entry(fate).or_default() += count;
                }
                self.trace_hash = splitmix::mix(self.trace_hash ^ outcome.trace_hash);
            }
            Err(violation) => {
                self.failed += 1;
                if self.failures.len() < FAILURES_KEPT {
                    self.failures.push(Failure { seed, violation });
                }
            }
        }
    }

    fn is_enough(&self, config: &Config) -> bool {
        let has_amount = match config.amount {
            Amount::Seeds(seeds) => self.seeds >= seeds,
            Amount::Faults(faults) => self.faults() >= faults,
        };
        has_amount || (config.until_first && self.failed > 0)
    }
}

/// Runs one seed.
///
/// # Errors
///
/// The first [`Violation`].
pub fn run_seed(kind: SeedFamily, seed: u64) -> Result<Outcome, Violation> {
    match kind {
        SeedFamily::Monitor => monitor::run(&MonitorOptions::draw(seed), Trace::default()).0,
        SeedFamily::Writers => writing::run(&WritingOptions::draw(seed), Trace::default()).0,
        SeedFamily::Handoff => handoff::run(&HandoffOptions::draw(seed), Trace::default()).0,
        _ => TortureFarm::new(&Options::draw(kind, seed)).run(),
    }
}

/// Describes what a seed stands for.
#[must_use]
pub fn describe(kind: SeedFamily, seed: u64) -> String {
    match kind {
        SeedFamily::Monitor => format!("{:#?}", MonitorOptions::draw(seed)),
        SeedFamily::Writers => format!("{:#?}", WritingOptions::draw(seed)),
        SeedFamily::Handoff => format!("{:#?}", HandoffOptions::draw(seed)),
        _ => format!("{:#?}", Options::draw(kind, seed)),
    }
}

/// Runs one seed, and returns everything that happened in it.
pub fn replay(kind: SeedFamily, seed: u64) -> (Result<Outcome, Violation>, Trace) {
    match kind {
        SeedFamily::Monitor => monitor::run(&MonitorOptions::draw(seed), Trace::kept()),
        SeedFamily::Writers => writing::run(&WritingOptions::draw(seed), Trace::kept()),
        SeedFamily::Handoff => handoff::run(&HandoffOptions::draw(seed), Trace::kept()),
        _ => TortureFarm::with_trace(&Options::draw(kind, seed), Trace::kept()).run_traced(),
    }
}

/// Runs one seed twice: both must leave the same trace.
///
/// # Errors
///
/// The first [`Violation`].
pub fn run_twice(kind: SeedFamily, seed: u64) -> Result<Outcome, Violation> {
    let (first, second) = (run_seed(kind, seed)?, run_seed(kind, seed)?);
    if first == second {
        return Ok(first);
    }
    Err(Violation {
        invariant: Invariant::SameTrace,
        tf: None,
        at: Timestamp(0),
        detail: format!("two runs of the seed differ: {first:?} and {second:?}"),
    })
}

/// Runs the seeds of `config`, and calls `progress` with the report so far after every seed, until that returns
/// `false`.
///
/// # Panics
///
/// If the operating system gives no thread.
pub fn run(config: &Config, progress: &mut dyn FnMut(&Report) -> ControlFlow<()>) -> Report {
    let mut report = Report::default();
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(report.is_enough(config)));
    let threads = config.threads.max(1);
    let (sender, results) = sync_channel(WAITING_MAX * threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, is_over) = (sender.clone(), &next, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if matches!(config.amount, Amount::Seeds(seeds) if index >= seeds) {
                        break;
                    }
                    let seed = config.first.wrapping_add(index);
                    let result = if index.is_multiple_of(TWICE_EVERY) {
                        run_twice(config.kind, seed)
                    } else {
                        run_seed(config.kind, seed)
                    };
                    if sender.send((index, result)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let (mut early, mut due) = (BTreeMap::new(), 0);
        let mut is_wanted = true;
        for (index, result) in results {
            early.insert(index, result);
            while let Some(result) = early.remove(&due) {
                if report.is_enough(config) || !is_wanted {
                    break;
                }
                let seed = config.first.wrapping_add(due);
                report.add(seed, result, due.is_multiple_of(TWICE_EVERY));
                due += 1;
                is_wanted = progress(&report).is_continue();
            }
            if report.is_enough(config) || !is_wanted {
                is_over.store(true, Ordering::Relaxed);
            }
        }
    });
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let config = |threads, amount| Config {
            kind: SeedFamily::Swarm,
            first: 7,
            amount,
            threads,
            until_first: false,
        };
        for amount in [Amount::Seeds(12), Amount::Faults(3000)] {
            let one = run(&config(1, amount), &mut |_| ControlFlow::Continue(()));
            let three = run(&config(3, amount), &mut |_| ControlFlow::Continue(()));
            assert_eq!(one, three);
            assert!(one.seeds > 0);
        }
    }

    #[test]
    fn the_collector_of_monitoring_keeps_its_promises() {
        let config = Config {
            kind: SeedFamily::Monitor,
            first: 0,
            amount: Amount::Seeds(20),
            threads: 1,
            until_first: false,
        };
        let report = run(&config, &mut |_| ControlFlow::Continue(()));
        assert_eq!(report.failures, []);
        assert!(report.fates["stored"] > 0 && report.faults() > 0);
    }

    #[test]
    fn who_wants_no_more_gets_the_report_so_far() {
        let config = Config {
            kind: SeedFamily::Calm,
            first: 1,
            amount: Amount::Seeds(1000),
            threads: 2,
            until_first: false,
        };
        let report = run(&config, &mut |report| match report.seeds {
            3 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(report.seeds, 3);
    }
}
