//! Every metric of a process, by name and labels.

use crate::count::{Counter, Gauge};
use crate::histogram::Histogram;
use crate::name::{self, Kind};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All metrics of a process.
///
/// A metric is registered once, at start-up, and recorded through the handle that registration gives:
/// recording never comes back here. Registering the same name and labels again gives the same metric.
///
/// # Panics
///
/// A name is written in the code that counts, so a wrong one is a bug, and registration panics:
///
/// - names are `[a-z][a-z0-9_]*`; counters end in `_total`, others do not; `_bucket`, `_sum` and
///   `_count` are taken by histograms, and so is the label `le`;
/// - units are base units, `seconds` and `bytes`. A metric with `seconds` in its name is recorded in ns, as all others
///   in integers, and written in seconds;
/// - one name has one kind, one help, one scale and one set of label names.
///
/// Label *values* may be any text. They come from closed sets (a node of the farm, a drop reason),
/// for each combination stays until the process ends.
#[derive(Debug, Default)]
pub struct Registry {
    families: Mutex<BTreeMap<String, Family>>,
}

/// Which buckets of a histogram are written out: powers of two in a range that fits the unit.
///
/// The histogram itself always counts to within 1/64 over all of `u64`. A scrape with its thousands of
/// buckets would be a megabyte a node, so the text shows one bucket a power of two; quantiles to the
/// full precision come from a [`Snapshot`](crate::Snapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub(crate) first_power: u32,
    pub(crate) last_power: u32,
}

impl Scale {
    /// For durations in nanoseconds: 1 µs to 69 s.
    pub const DURATION_NS: Self = Self {
        first_power: 10,
        last_power: 36,
    };
    /// For sizes in bytes: 64 B to 4 GiB.
    pub const SIZE_BYTES: Self = Self {
        first_power: 6,
        last_power: 32,
    };
    /// For small numbers of things, such as items in a batch: 1 to 65 536.
    pub const COUNT: Self = Self {
        first_power: 1,
        last_power: 16,
    };
}

/// All series of one name.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) kind: Kind,
    pub(crate) help: String,
    /// Buckets that a histogram shows; `None` for the other kinds.
    scale: Option<Scale>,
    pub(crate) series: BTreeMap<Labels, Series>,
}

/// Names and values, sorted by name.
pub(crate) type Labels = Vec<(String, String)>;

/// One metric with its labels.
#[derive(Clone, Debug)]
pub(crate) enum Series {
    Counter(Arc<Counter>),
    Gauge(Arc<Gauge>),
    Histogram(Arc<Histogram>, Scale),
}

impl Registry {
    /// Returns the counter `name` with these labels, as name and value; made if it does not exist yet.
    ///
    /// `help` is a sentence for the operator.
    ///
    /// # Panics
    ///
    /// If the name breaks the rules of [`Registry`].
    pub fn counter(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Arc<Counter> {
        let new = || Series::Counter(Arc::default());
        match self.series(Kind::Counter, name, help, labels, None, new) {
            Series::Counter(counter) => counter,
            other => unreachable!("series() checked that {name} is a counter, not {other:?}"),
        }
    }

    /// Returns the gauge `name` with these labels, as name and value; made if it does not exist yet.
    ///
    /// `help` is a sentence for the operator.
    ///
    /// # Panics
    ///
    /// If the name breaks the rules of [`Registry`].
    pub fn gauge(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Arc<Gauge> {
        let new = || Series::Gauge(Arc::default());
        match self.series(Kind::Gauge, name, help, labels, None, new) {
            Series::Gauge(gauge) => gauge,
            other => unreachable!("series() checked that {name} is a gauge, not {other:?}"),
        }
    }

    /// Returns the histogram `name` with these labels, as name and value; made if it does not exist yet.
    ///
    /// `help` is a sentence for the operator; `scale` says which buckets the text shows.
    ///
    /// # Panics
    ///
    /// If the name breaks the rules of [`Registry`].
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        scale: Scale,
    ) -> Arc<Histogram> {
        let new = || Series::Histogram(Arc::default(), scale);
        match self.series(Kind::Histogram, name, help, labels, Some(scale), new) {
            Series::Histogram(histogram, _) => histogram,
            other => unreachable!("series() checked that {name} is a histogram, not {other:?}"),
        }
    }

    fn series(
        &self,
        kind: Kind,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        scale: Option<Scale>,
        new: impl FnOnce() -> Series,
    ) -> Series {
        let mut labels: Labels = labels
            .iter()
            .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
            .collect();
        labels.sort_unstable();
        if let Err(error) = name::check(kind, name, help, &labels) {
            panic!("{error}");
        }
        let mut families = self.lock();
        let family = families.entry(name.to_owned()).or_insert_with(|| Family {
            kind,
            help: help.to_owned(),
            scale,
            series: BTreeMap::new(),
        });
        let same_labels = family.series.keys().next().is_none_or(|known| {
            known
                .iter()
                .map(|(label, _)| label)
                .eq(labels.iter().map(|(label, _)| label))
        });
        let same = family.kind == kind && family.help == help && family.scale == scale;
        assert!(
            same && same_labels,
            "metric {name} is registered with another kind, help, scale or set of label names"
        );
        family.series.entry(labels).or_insert_with(new).clone()
    }

    /// Returns the families by name. A panic while the lock was held has broken nothing: a family is complete before
    /// it is inserted, so the poison is ignored.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Family>> {
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn registering_twice_gives_the_same_metric_whatever_the_order_of_labels() {
        let registry = Registry::default();
        let one = registry.counter("a_total", "Help.", &[("b", "1"), ("c", "2")]);
        let two = registry.counter("a_total", "Help.", &[("c", "2"), ("b", "1")]);
        let other = registry.counter("a_total", "Help.", &[("b", "1"), ("c", "3")]);
        one.increment();
        assert_eq!((two.value(), other.value()), (1, 0));
    }

    #[test]
    fn one_name_has_one_meaning() {
        let registry = Registry::default();
        let _known = registry.histogram("a_seconds", "Help.", &[("b", "1")], Scale::DURATION_NS);
        let attempts: [&dyn Fn(); 5] = [
            &|| drop(registry.gauge("a_seconds", "Help.", &[("b", "1")])),
            &|| drop(registry.histogram("a_seconds", "Else.", &[("b", "1")], Scale::DURATION_NS)),
            &|| drop(registry.histogram("a_seconds", "Help.", &[("b", "1")], Scale::COUNT)),
            &|| drop(registry.histogram("a_seconds", "Help.", &[("c", "1")], Scale::DURATION_NS)),
            &|| drop(registry.counter("a_seconds", "Help.", &[("b", "1")])),
        ];
        for (number, attempt) in attempts.iter().enumerate() {
            let outcome = catch_unwind(AssertUnwindSafe(attempt));
            assert!(outcome.is_err(), "attempt {number} was let through");
        }
        let again = registry.histogram("a_seconds", "Help.", &[("b", "2")], Scale::DURATION_NS);
        again.record(1);
    }
}
