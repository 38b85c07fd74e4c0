//! Register of output series: one handle for each set of labels, while a chain leads there.

use crate::output::{NewSeries, Output, OutputHandle};
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;
use sheaf_samples::Labels;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Outputs {
    by_labels: IndexMap<Arc<Labels>, Entry, FxBuildHasher>,
    labels_of: IndexMap<OutputHandle, Arc<Labels>, FxBuildHasher>,
    next: u32,
    /// Series that chains lead to; less than all while chains are compiled again.
    live: usize,
}

#[derive(Debug)]
struct Entry {
    handle: OutputHandle,
    chains: u32,
}

impl Outputs {
    /// Returns the handle of `labels` for one more chain, and tells `output` of it if it is new; nothing if that would
    /// make more than `max`.
    pub(crate) fn acquire(
        &mut self,
        labels: &Labels,
        max: usize,
        output: &mut Output,
    ) -> Option<OutputHandle> {
        let known = self.by_labels.get_mut(labels);
        if known.as_ref().is_none_or(|entry| entry.chains == 0) {
            if self.live >= max {
                return None;
            }
            self.live += 1;
        }
        if let Some(entry) = known {
            entry.chains += 1;
            return Some(entry.handle);
        }
        // A handle is never used again; 4 billion series later there is none.
        let next = self.next.checked_add(1)?;
        let (handle, labels) = (OutputHandle(self.next), Arc::new(labels.clone()));
        self.next = next;
        let entry = Entry { handle, chains: 1 };
        self.by_labels.insert(Arc::clone(&labels), entry);
        self.labels_of.insert(handle, Arc::clone(&labels));
        output.new_series.push(NewSeries { handle, labels });
        Some(handle)
    }

    /// Gives up the handle for one chain; without any, the series ends.
    pub(crate) fn release(&mut self, handle: OutputHandle, output: &mut Output) {
        let labels = self.labels_of.get(&handle).expect("acquired before");
        let entry = self.by_labels.get_mut(labels).expect("in both maps");
        entry.chains -= 1;
        if entry.chains == 0 {
            self.live -= 1;
            self.by_labels.swap_remove(labels);
            self.labels_of.swap_remove(&handle);
            output.ended_series.push(handle);
        }
    }

    /// Gives up all handles, to be acquired again before [`end_unused`](Self::end_unused).
    pub(crate) fn release_all(&mut self) {
        self.live = 0;
        for entry in self.by_labels.values_mut() {
            entry.chains = 0;
        }
    }

    /// Ends the series that no chain leads to.
    pub(crate) fn end_unused(&mut self, output: &mut Output) {
        let labels_of = &mut self.labels_of;
        self.by_labels.retain(|_, entry| {
            if entry.chains == 0 {
                labels_of.swap_remove(&entry.handle);
                output.ended_series.push(entry.handle);
            }
            entry.chains > 0
        });
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.by_labels.len()
    }

    /// Labels of all series that chains lead to.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (OutputHandle, &Arc<Labels>)> {
        self.labels_of
            .iter()
            .map(|(handle, labels)| (*handle, labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_lasts_while_a_chain_leads_there() {
        let (mut outputs, mut output) = (Outputs::default(), Output::default());
        let labels = |host: &str| Labels::new([("host", host)]).unwrap();
        let a = outputs.acquire(&labels("a"), 2, &mut output).unwrap();
        assert_eq!(outputs.acquire(&labels("a"), 2, &mut output), Some(a));
        let b = outputs.acquire(&labels("b"), 2, &mut output).unwrap();
        assert_eq!(outputs.acquire(&labels("c"), 2, &mut output), None);
        outputs.release(a, &mut output);
        assert!(output.ended_series.is_empty());
        outputs.release(a, &mut output);
        assert_eq!((outputs.len(), &output.ended_series), (1, &vec![a]));
        let again = outputs.acquire(&labels("a"), 2, &mut output).unwrap();
        assert!(again != a && again != b, "a handle names one series");
        assert_eq!(output.new_series.len(), 3);
    }

    #[test]
    fn series_are_kept_when_all_are_acquired_again() {
        let (mut outputs, mut output) = (Outputs::default(), Output::default());
        let labels = |host: &str| Labels::new([("host", host)]).unwrap();
        let a = outputs.acquire(&labels("a"), 2, &mut output).unwrap();
        let b = outputs.acquire(&labels("b"), 2, &mut output).unwrap();
        outputs.release_all();
        assert_eq!(outputs.acquire(&labels("a"), 2, &mut output), Some(a));
        assert!(
            outputs.acquire(&labels("c"), 2, &mut output).is_some(),
            "b gave its place up"
        );
        outputs.end_unused(&mut output);
        assert_eq!((outputs.len(), output.ended_series), (2, vec![b]));
    }
}
