//! Late rules: their queries over the store, in a thread of their own.

use super::desk::Desk;
use crate::wall;
use sheaf_alarms::{Evaluated, Evaluation, Recorded, evaluate};
use sheaf_query::{Options, Source};
use sheaf_sample_store::Store;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use tracing::warn;

/// Queries that are due together.
#[derive(Debug)]
pub(super) struct Round {
    /// Number of the set of rules that they are of.
    pub(super) generation: u64,
    pub(super) evaluations: Vec<Evaluation>,
}

/// Maker of a source for one evaluation.
pub(crate) type Wider = Box<dyn Fn() -> Box<dyn Source> + Send>;

/// Driver of late rules.
pub(super) struct Rules {
    pub(super) desk: Arc<Desk>,
    pub(super) store: Arc<dyn Store>,
    /// Source of the samples of all collectors side by side, if the rules are to see them.
    pub(super) wider: Option<Wider>,
    /// Number of the set of rules that is in force.
    pub(super) generation: Arc<AtomicU64>,
    /// Set while a round is under way.
    pub(super) is_busy: Arc<AtomicBool>,
}

impl Rules {
    /// Runs rounds until there will be no more.
    pub(super) fn run(&self, rounds: &Receiver<Round>) {
        let options = Options::default();
        while let Ok(round) = rounds.recv() {
            for evaluation in &round.evaluations {
                let result = self.evaluate(evaluation, &options);
                let mut alarms = self.desk.alarms();
                if self.generation.load(Ordering::Relaxed) != round.generation {
                    // Other rules have numbers of their own.
                    break;
                }
                alarms.handle_evaluated(wall::now_ms(), evaluation.id, result);
                let recorded: Vec<_> = std::iter::from_fn(|| alarms.poll_recorded()).collect();
                drop(alarms);
                self.keep(&recorded);
            }
            self.is_busy.store(false, Ordering::Release);
            self.desk.inbox.ring();
        }
    }

    fn evaluate(&self, evaluation: &Evaluation, options: &Options) -> Result<Evaluated, String> {
        match &self.wider {
            Some(wider) => evaluate(&*wider(), evaluation, options),
            None => evaluate(&*self.store, evaluation, options),
        }
    }

    /// Appends what recording rules made. At once and not by the queue: later rules of the group read it.
    fn keep(&self, recorded: &[Recorded]) {
        let mut batch = Vec::with_capacity(recorded.len());
        for one in recorded {
            match self.store.intern(&one.labels) {
                Ok(id) => batch.push((id, one.sample)),
                Err(error) => {
                    warn!(%error, labels = %one.labels, "A series of a recording rule is not stored");
                    return;
                }
            }
        }
        if batch.is_empty() {
            return;
        }
        // The keeper commits it, and repeats what the disk refuses.
        if let Err(error) = self.store.append(&batch) {
            warn!(%error, samples = batch.len(), "Samples of a recording rule are not stored");
        }
    }
}
