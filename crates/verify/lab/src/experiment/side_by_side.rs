//! Simulated runs of an experiment, as many at a time as there are processors.

use super::Trial;
use super::live::Turn;
use super::result::RunResult;
use super::simulated::{self, SimulateError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Simulates all of `turns`, each of its trial, and calls `keep` with each result, in the order in which they end.
///
/// # Errors
///
/// The first error of a run or of `keep`; no further run is begun then.
pub(super) fn run<E: From<SimulateError>>(
    turns: &[(&Trial, Turn)],
    mut keep: impl FnMut(&Trial, RunResult) -> Result<(), E>,
) -> Result<(), E> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        // A run that has ended waits until those before it are kept.
        let (sender, results) = mpsc::sync_channel(processors);
        for _ in 0..processors.min(turns.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                while let Some((trial, turn)) = turns.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = simulated::run(trial, turn);
                    let is_bad = result.is_err();
                    // The receiver has gone if another run failed.
                    if sender.send((*trial, result)).is_err() || is_bad {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (trial, result) in results {
            keep(trial, result?)?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;
    use std::collections::BTreeSet;

    fn trials() -> Vec<Trial> {
        let text = "name = 'x'\nquestion = '?'\nsource = 'sim'\nduration_s = 0.2\n[matrix]\nbytes = [100, 200]";
        Experiment::parse(text, "x").unwrap().trials().unwrap()
    }

    fn turn(seed: u64) -> Turn {
        Turn {
            iteration: 1,
            attempt: 1,
            seed,
        }
    }

    #[test]
    fn every_turn_is_made_once_and_gives_what_it_gives_alone() {
        let trials = trials();
        let turns: Vec<(&Trial, Turn)> = (0..10)
            .flat_map(|seed| trials.iter().map(move |trial| (trial, turn(seed))))
            .collect();
        let mut made = BTreeSet::new();
        let kept = run::<SimulateError>(&turns, |trial, result| {
            assert_eq!(result.trial, trial.id);
            let alone = simulated::run(trial, &turn(result.seed))?;
            assert_eq!(result.latency_quantiles_us, alone.latency_quantiles_us);
            assert!(made.insert((result.trial, result.seed)));
            Ok(())
        });
        kept.expect("they run");
        assert_eq!(made.len(), 20);
    }

    #[test]
    fn after_an_error_no_further_run_is_begun() {
        let trials = trials();
        let turns: Vec<(&Trial, Turn)> = (0..1000).map(|seed| (&trials[0], turn(seed))).collect();
        let mut kept = 0;
        let outcome = run::<SimulateError>(&turns, |trial, _| {
            kept += 1;
            Err(SimulateError::Scenario {
                point: trial.line(),
                why: "the disk is full".to_owned(),
            })
        });
        assert!(
            outcome
                .unwrap_err()
                .to_string()
                .contains("the disk is full")
        );
        assert_eq!(kept, 1);
    }
}
