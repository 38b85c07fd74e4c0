//! Which series exist, and which of them do conditions on labels select?
//!
//! Lives in memory: names of series by number, numbers by name, and for every pair of label and value the set of series
//! that have it. A store rebuilds it from its records of series when it opens.

use roaring::RoaringBitmap;
use sheaf_samples::{Labels, Matcher, Matches};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Series by number and by labels.
#[derive(Debug, Default)]
pub(crate) struct Index {
    labels: Vec<Arc<Labels>>,
    ids: HashMap<Arc<Labels>, u32>,
    postings: BTreeMap<Box<str>, BTreeMap<Box<str>, RoaringBitmap>>,
}

impl Index {
    /// Number of series; their numbers are all below it.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.labels.len()).expect("bounded by the store")
    }

    /// Number of the series with `labels`.
    pub(crate) fn id(&self, labels: &Labels) -> Option<u32> {
        self.ids.get(labels).copied()
    }

    /// Labels of the series `id`.
    pub(crate) fn labels(&self, id: u32) -> Option<&Arc<Labels>> {
        self.labels.get(usize::try_from(id).ok()?)
    }

    /// Adds a series that is not yet there and returns its number, the next one.
    pub(crate) fn insert(&mut self, labels: Labels) -> u32 {
        let id = self.len();
        let labels = Arc::new(labels);
        for (name, value) in labels.iter() {
            if !self.postings.contains_key(name) {
                self.postings.insert(name.into(), BTreeMap::new());
            }
            let values = self.postings.get_mut(name).expect("inserted above");
            if let Some(set) = values.get_mut(value) {
                set.insert(id);
            } else {
                values.insert(value.into(), RoaringBitmap::from_iter([id]));
            }
        }
        self.ids.insert(Arc::clone(&labels), id);
        self.labels.push(labels);
        id
    }

    /// Series that all `matchers` accept.
    pub(crate) fn matching(&self, matchers: &[Matcher]) -> RoaringBitmap {
        let mut found: Option<RoaringBitmap> = None;
        // Equality first: the sets that others are cut with are the smallest then.
        let (equal, other): (Vec<_>, Vec<_>) = matchers
            .iter()
            .partition(|matcher| matcher.matches() == Matches::Equal);
        for matcher in equal.into_iter().chain(other) {
            let (set, is_complement) = self.accepted(matcher);
            found = Some(match (found, is_complement) {
                (None, false) => set,
                (None, true) => self.all() - set,
                (Some(found), false) => found & set,
                (Some(found), true) => found - set,
            });
            if found.as_ref().is_some_and(RoaringBitmap::is_empty) {
                break;
            }
        }
        found.unwrap_or_else(|| self.all())
    }

    fn all(&self) -> RoaringBitmap {
        let mut all = RoaringBitmap::new();
        all.insert_range(0..self.len());
        all
    }

    /// Series that `matcher` accepts; or, with `true`, those that it does not accept: a matcher that accepts the empty
    /// value accepts every series without the label.
    fn accepted(&self, matcher: &Matcher) -> (RoaringBitmap, bool) {
        let is_complement = matcher.accepts("");
        let Some(values) = self.postings.get(matcher.name()) else {
            return (RoaringBitmap::new(), is_complement);
        };
        if matcher.matches() == Matches::Equal && !is_complement {
            let set = values.get(matcher.value()).cloned().unwrap_or_default();
            return (set, false);
        }
        let mut set = RoaringBitmap::new();
        for (value, series) in values {
            if matcher.accepts(value) != is_complement {
                set |= series;
            }
        }
        (set, is_complement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let mut index = Index::default();
        for epn in 0..20 {
            for name in ["rate", "delay"] {
                let epn = epn.to_string();
                index.insert(Labels::new([("__name__", name), ("epn", &epn)]).unwrap());
            }
        }
        index.insert(Labels::new([("__name__", "rate")]).unwrap());
        index
    }

    /// The index has to agree with asking every series.
    fn check(matchers: &[(&str, Matches, &str)], count: u64) {
        let index = index();
        let matchers: Vec<Matcher> = matchers
            .iter()
            .map(|(name, matches, value)| Matcher::new(*name, *matches, *value).unwrap())
            .collect();
        let found = index.matching(&matchers);
        let asked = (0..index.len()).filter(|&id| {
            let labels = index.labels(id).unwrap();
            matchers.iter().all(|matcher| matcher.is_match(labels))
        });
        assert_eq!(found, asked.collect::<RoaringBitmap>());
        assert_eq!(found.len(), count);
    }

    #[test]
    fn matchers_cut_each_other() {
        use Matches::{Equal, NotEqual, NotRegex, Regex};
        check(&[], 41);
        check(&[("__name__", Equal, "rate")], 21);
        check(&[("__name__", Equal, "rate"), ("epn", Regex, "1.*")], 11);
        check(
            &[("epn", NotRegex, "1.*"), ("__name__", NotEqual, "rate")],
            9,
        );
        check(&[("epn", Equal, "")], 1);
        check(&[("epn", NotEqual, "")], 40);
        check(&[("absent", Equal, "")], 41);
        check(&[("absent", Regex, ".+")], 0);
        check(&[("epn", Regex, ".*"), ("__name__", Equal, "rate")], 21);
        check(&[("epn", Equal, "77")], 0);
    }

    #[test]
    fn a_series_is_found_by_its_labels() {
        let index = index();
        for id in 0..index.len() {
            let labels = index.labels(id).unwrap();
            assert_eq!(index.id(labels), Some(id));
        }
        assert_eq!(index.labels(41), None);
    }
}
