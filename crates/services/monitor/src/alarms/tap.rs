//! Way of a shard to the alarms: the samples of series that a rule reads.

use super::inbox::{Batch, Inbox};
use sheaf_alarms::SeriesSelection;
use sheaf_sample_store::SeriesId;
use sheaf_samples::{Labels, Sample};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Series that the rules of now read, with a number that changes with them.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    generation: AtomicU64,
    selection: Mutex<Arc<SeriesSelection>>,
}

impl Wanted {
    /// Publishes another selection; returns its number.
    pub(crate) fn set(&self, selection: SeriesSelection) -> u64 {
        let mut current = self.lock();
        *current = Arc::new(selection);
        // Under the lock, so that number and selection belong together.
        self.generation.fetch_add(1, Ordering::Release) + 1
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn current(&self) -> (u64, Arc<SeriesSelection>) {
        let current = self.lock();
        (self.generation(), current.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<SeriesSelection>> {
        self.selection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// An output series of the shard.
#[derive(Clone, Debug)]
struct Known {
    id: SeriesId,
    labels: Arc<Labels>,
    is_read: bool,
}

/// Way of one shard to the alarms.
pub(crate) struct Tap {
    wanted: Arc<Wanted>,
    inbox: Arc<Inbox>,
    selection: Arc<SeriesSelection>,
    /// By handle of the output series.
    known: Vec<Option<Known>>,
    batch: Batch,
}

impl Tap {
    pub(crate) fn new(wanted: Arc<Wanted>, inbox: Arc<Inbox>) -> Self {
        let (generation, selection) = wanted.current();
        Self {
            wanted,
            inbox,
            selection,
            known: Vec::new(),
            batch: Batch {
                generation,
                ..Batch::default()
            },
        }
    }

    /// Takes in a new output series.
    pub(crate) fn add(&mut self, handle: u32, id: SeriesId, labels: &Arc<Labels>) {
        let is_read = self.selection.reads(labels);
        if is_read {
            self.batch.series.push((id, labels.clone()));
        }
        let at = handle as usize;
        if at >= self.known.len() {
            self.known.resize(at + 1, None);
        }
        self.known[at] = Some(Known {
            id,
            labels: labels.clone(),
            is_read,
        });
    }

    /// Takes in a sample; most are of no interest.
    pub(crate) fn take(&mut self, handle: u32, sample: Sample) {
        if let Some(Some(known)) = self.known.get(handle as usize)
            && known.is_read
        {
            self.batch.samples.push((known.id, sample));
        }
    }

    /// Takes in that an output series has ended.
    pub(crate) fn end(&mut self, handle: u32) {
        if let Some(known) = self.known.get_mut(handle as usize).and_then(Option::take)
            && known.is_read
        {
            self.batch.ended.push(known.id);
        }
    }

    /// Hands over what is gathered, and looks whether the rules have changed.
    pub(crate) fn flush(&mut self) {
        if self.batch.generation != self.wanted.generation() {
            self.choose_again();
        }
        if !self.batch.is_empty() {
            let generation = self.batch.generation;
            let batch = std::mem::take(&mut self.batch);
            self.batch.generation = generation;
            self.inbox.push(batch);
        }
    }

    /// Chooses by other rules: series are new to them, samples of before belong to the rules of before.
    fn choose_again(&mut self) {
        let (generation, selection) = self.wanted.current();
        self.selection = selection;
        let before = std::mem::replace(
            &mut self.batch,
            Batch {
                generation,
                ..Batch::default()
            },
        );
        for known in self.known.iter_mut().flatten() {
            known.is_read = self.selection.reads(&known.labels);
            if known.is_read {
                self.batch.series.push((known.id, known.labels.clone()));
            }
        }
        // Those of series that are not read now are passed over at the other side.
        self.batch.samples = before.samples;
        self.batch.ended = before.ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_alarms::{Alarms, AlarmsConfig, Routing, RuleFile};
    use std::time::Duration;

    fn selection(name: &str) -> SeriesSelection {
        let rules =
            format!("groups: [{{name: g, rules: [{{alert: A, expr: {name} > 1, online: true}}]}}]");
        let rules = RuleFile::parse("r.yml", &rules).unwrap();
        Alarms::new(AlarmsConfig::default(), &[rules], Routing::default()).selection()
    }

    #[test]
    fn only_what_is_read_is_handed_over_and_other_rules_get_their_series() {
        let (wanted, inbox) = (Arc::new(Wanted::default()), Arc::new(Inbox::new(100)));
        wanted.set(selection("x"));
        let mut tap = Tap::new(wanted.clone(), inbox.clone());
        for (handle, name) in [(0, "x"), (1, "y")] {
            let labels = Arc::new(Labels::new([("__name__", name)]).unwrap());
            tap.add(handle, SeriesId(handle + 10), &labels);
        }
        let sample = Sample {
            at_ms: 1,
            value: 2.0,
        };
        let hand_over = |tap: &mut Tap| {
            tap.take(0, sample);
            tap.take(1, sample);
            tap.flush();
            let (mut mail, _) = inbox.take(Duration::ZERO);
            let batch = mail.batches.pop().unwrap();
            let series = batch.series.iter().map(|one| one.0.0).collect::<Vec<_>>();
            let samples = batch.samples.iter().map(|one| one.0.0).collect::<Vec<_>>();
            (batch.generation, series, samples)
        };
        assert_eq!(hand_over(&mut tap), (1, vec![10], vec![10]));
        assert_eq!(hand_over(&mut tap), (1, vec![], vec![10]));
        wanted.set(selection("y"));
        assert_eq!(hand_over(&mut tap), (2, vec![11], vec![10]));
        assert_eq!(hand_over(&mut tap), (2, vec![], vec![11]));
    }
}
