//! A store in memory, for tests and small sets of series.

use crate::source::{Data, Selection, Series, Source, SourceError};
use sheaf_samples::{Bucket, Labels, Matcher, Sample};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Samples in memory, with buckets of one level on request.
///
/// Holds whatever it is given: the caller bounds it, by [`forget_before`](Self::forget_before) for example.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    series: BTreeMap<Arc<Labels>, Vec<Sample>>,
    level_ms: Option<i64>,
    /// Per series, by start; empty without a level.
    buckets: BTreeMap<Arc<Labels>, Vec<Bucket>>,
}

impl Memory {
    /// Returns an empty store that answers with samples.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns an empty store that answers with buckets of `level_ms` where these are exact.
    ///
    /// # Panics
    ///
    /// If `level_ms` is not positive.
    #[must_use]
    pub fn with_buckets(level_ms: i64) -> Self {
        assert!(level_ms > 0, "a level has a length");
        Self {
            level_ms: Some(level_ms),
            ..Self::default()
        }
    }

    /// Adds a sample. Times may come in any order; a second value at the same time replaces the first.
    pub fn insert(&mut self, labels: &Arc<Labels>, sample: Sample) {
        if !self.series.contains_key(labels) {
            self.series.insert(Arc::clone(labels), Vec::new());
        }
        let samples = self.series.get_mut(labels).expect("inserted above");
        let at = samples.partition_point(|one| one.at_ms < sample.at_ms);
        let is_replaced = samples.get(at).is_some_and(|one| one.at_ms == sample.at_ms);
        if is_replaced {
            samples[at] = sample;
        } else {
            samples.insert(at, sample);
        }
        let Some(level_ms) = self.level_ms else {
            return;
        };
        let start_ms = Bucket::start(sample.at_ms, level_ms);
        let buckets = self.buckets.entry(Arc::clone(labels)).or_default();
        let at = buckets.partition_point(|one| one.start_ms < start_ms);
        let exists = buckets.get(at).is_some_and(|one| one.start_ms == start_ms);
        if is_replaced {
            // A value cannot be taken out of a sum, so the bucket is made from its samples.
            let from = samples.partition_point(|one| one.at_ms < start_ms);
            let to = samples.partition_point(|one| one.at_ms < start_ms + level_ms);
            let whole = of_samples(start_ms, &samples[from..to]);
            match (exists, whole) {
                (true, Some(whole)) => buckets[at] = whole,
                (true, None) => drop(buckets.remove(at)),
                (false, Some(whole)) => buckets.insert(at, whole),
                (false, None) => {}
            }
        } else if Bucket::takes(sample) {
            if exists {
                buckets[at].add(sample);
            } else {
                buckets.insert(at, Bucket::of(start_ms, sample));
            }
        }
    }

    /// Removes all samples before `at_ms`, rounded down to a bucket, and series that are then empty.
    pub fn forget_before(&mut self, at_ms: i64) {
        let at_ms = self
            .level_ms
            .map_or(at_ms, |level_ms| Bucket::start(at_ms, level_ms));
        for samples in self.series.values_mut() {
            samples.drain(..samples.partition_point(|one| one.at_ms < at_ms));
        }
        for buckets in self.buckets.values_mut() {
            buckets.drain(..buckets.partition_point(|one| one.start_ms < at_ms));
        }
        self.series.retain(|_, samples| !samples.is_empty());
        self.buckets.retain(|_, buckets| !buckets.is_empty());
    }

    /// Number of series.
    #[must_use]
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Returns whether there is no series.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    fn matching<'a>(
        &'a self,
        matchers: &'a [Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> impl Iterator<Item = &'a Arc<Labels>> {
        self.series.iter().filter_map(move |(labels, samples)| {
            let is_match = matchers.iter().all(|one| one.is_match(labels));
            (is_match && !within(samples, from_ms, to_ms, |one| one.at_ms).is_empty())
                .then_some(labels)
        })
    }
}

fn of_samples(start_ms: i64, samples: &[Sample]) -> Option<Bucket> {
    let mut values = samples.iter().filter(|one| Bucket::takes(**one));
    let mut bucket = Bucket::of(start_ms, *values.next()?);
    values.for_each(|one| bucket.add(*one));
    Some(bucket)
}

fn within<T>(sorted: &[T], from_ms: i64, to_ms: i64, at_ms: impl Fn(&T) -> i64) -> &[T] {
    let from = sorted.partition_point(|one| at_ms(one) < from_ms);
    let to = sorted.partition_point(|one| at_ms(one) <= to_ms);
    &sorted[from..to.max(from)]
}

impl Source for Memory {
    fn select(&self, selection: &Selection<'_>) -> Result<Vec<Series>, SourceError> {
        let &Selection {
            matchers,
            from_ms,
            to_ms,
            bucket_ms,
        } = selection;
        let level_ms = match (self.level_ms, bucket_ms) {
            (Some(level_ms), Some(g)) if g % level_ms == 0 => Some(level_ms),
            _ => None,
        };
        let matching = self
            .series
            .iter()
            .filter(|(labels, _)| matchers.iter().all(|one| one.is_match(labels)));
        Ok(matching
            .map(|(labels, samples)| {
                let data = match level_ms {
                    None => {
                        Data::Samples(within(samples, from_ms, to_ms, |one| one.at_ms).to_vec())
                    }
                    Some(level_ms) => {
                        let buckets = self.buckets.get(labels).map_or(&[][..], Vec::as_slice);
                        let buckets = within(buckets, from_ms, to_ms, |one| one.start_ms).to_vec();
                        Data::Buckets { level_ms, buckets }
                    }
                };
                Series {
                    labels: Arc::clone(labels),
                    data,
                }
            })
            .collect())
    }

    fn label_names(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError> {
        let names: BTreeSet<String> = self
            .matching(matchers, from_ms, to_ms)
            .flat_map(|labels| labels.iter().map(|(name, _)| name.to_owned()))
            .collect();
        Ok(names.into_iter().collect())
    }

    fn label_values(
        &self,
        name: &str,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<String>, SourceError> {
        let values: BTreeSet<String> = self
            .matching(matchers, from_ms, to_ms)
            .filter_map(|labels| labels.get(name).map(str::to_owned))
            .collect();
        Ok(values.into_iter().collect())
    }

    fn series(
        &self,
        matchers: &[Matcher],
        from_ms: i64,
        to_ms: i64,
    ) -> Result<Vec<Arc<Labels>>, SourceError> {
        Ok(self
            .matching(matchers, from_ms, to_ms)
            .map(Arc::clone)
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_samples::{Matches, STALE};

    fn labels(job: &str) -> Arc<Labels> {
        Arc::new(Labels::new([("__name__", "x"), ("job", job)]).unwrap())
    }

    fn store(level_ms: i64, samples: &[(i64, f64)]) -> Memory {
        let mut memory = Memory::with_buckets(level_ms);
        for &(at_ms, value) in samples {
            memory.insert(&labels("a"), Sample { at_ms, value });
        }
        memory
    }

    fn select(memory: &Memory, from_ms: i64, to_ms: i64, bucket_ms: Option<i64>) -> Data {
        let matchers = [Matcher::new("job", Matches::Equal, "a").unwrap()];
        let selection = Selection {
            matchers: &matchers,
            from_ms,
            to_ms,
            bucket_ms,
        };
        memory.select(&selection).unwrap().remove(0).data
    }

    #[test]
    fn both_ends_are_included_and_times_are_sorted() {
        let memory = store(10, &[(20, 2.0), (10, 1.0), (30, 3.0), (20, 2.5)]);
        let Data::Samples(samples) = select(&memory, 10, 20, None) else {
            panic!("samples were asked for")
        };
        let found: Vec<_> = samples.iter().map(|one| (one.at_ms, one.value)).collect();
        assert_eq!(found, [(10, 1.0), (20, 2.5)]);
    }

    #[test]
    fn buckets_come_only_where_they_are_exact() {
        let memory = store(
            10,
            &[(9, 1.0), (10, 2.0), (11, STALE), (19, 3.0), (19, 4.0)],
        );
        let Data::Buckets { level_ms, buckets } = select(&memory, 0, 10, Some(20)) else {
            panic!("10 divides 20")
        };
        let found: Vec<_> = buckets.iter().map(|one| (one.count, one.sum)).collect();
        assert_eq!((level_ms, found), (10, vec![(1, 1.0), (2, 6.0)]));
        assert!(matches!(select(&memory, 0, 10, Some(15)), Data::Samples(_)));
    }

    #[test]
    fn what_is_forgotten_is_gone() {
        let mut memory = store(10, &[(9, 1.0), (10, 2.0)]);
        memory.insert(
            &labels("b"),
            Sample {
                at_ms: 3,
                value: 0.0,
            },
        );
        assert_eq!(memory.label_values("job", &[], 0, 5), Ok(vec!["b".into()]));
        memory.forget_before(15);
        assert_eq!(memory.len(), 1);
        assert_eq!(memory.series(&[], 0, 100), Ok(vec![labels("a")]));
        assert_eq!(
            memory.label_names(&[], 0, 100),
            Ok(vec!["__name__".into(), "job".into()])
        );
    }
}
