//! Every metric of a process, by name and labels.

use crate::count::{Counter, Gauge, RealGauge};
use crate::event::{EVENT_FIELDS_MAX, Event, Ring};
use crate::histogram::Histogram;
use crate::name::{self, Kind};
use crate::reporting::{Policy, Reporting, Verbosity};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
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
    inner: Mutex<Inner>,
    ring: Arc<Ring>,
    /// Whether a reporter takes the events out of the ring.
    is_reported: AtomicBool,
}

/// Contents of a registry.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) families: BTreeMap<String, Family>,
    /// All series in the order of their registration. None is ever taken out.
    order: Vec<Arc<Entry>>,
    /// Ways of reporting by name, also of metrics that are not registered yet.
    ways: BTreeMap<String, Reporting>,
    policy: Policy,
    /// Changes of ways and policy.
    changes: u64,
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
    way: Reporting,
    pub(crate) verbosity: Verbosity,
    pub(crate) series: BTreeMap<Labels, Arc<Entry>>,
}

/// Names and values, sorted by name.
pub(crate) type Labels = Vec<(String, String)>;

/// One series: its name and labels, and where its value is.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    /// Whether values are recorded in ns and sent in seconds.
    pub(crate) is_time: bool,
    pub(crate) series: Series,
}

/// Where the value of a series is.
#[derive(Clone, Debug)]
pub(crate) enum Series {
    Counter(Arc<Counter>),
    Gauge(Arc<Gauge>),
    Real(Arc<RealGauge>),
    Histogram(Arc<Histogram>, Scale),
    Event(Arc<Event>),
}

/// Series as a reporter lists it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) entry: Arc<Entry>,
    pub(crate) way: Reporting,
    pub(crate) verbosity: Verbosity,
}

/// All series as a reporter lists them, by the order of their registration.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) series: Vec<Listed>,
    changes: u64,
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
    /// If the name breaks the rules of [`Registry`], or is that of a gauge of real numbers.
    pub fn gauge(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Arc<Gauge> {
        let new = || Series::Gauge(Arc::default());
        match self.series(Kind::Gauge, name, help, labels, None, new) {
            Series::Gauge(gauge) => gauge,
            _ => panic!("metric {name} is registered as a gauge of real numbers"),
        }
    }

    /// Returns the gauge of a real number `name` with these labels, as name and value; made if it does not exist yet.
    ///
    /// `help` is a sentence for the operator. Values are in base units, seconds in seconds.
    ///
    /// # Panics
    ///
    /// If the name breaks the rules of [`Registry`], or is that of a gauge of whole numbers.
    pub fn real_gauge(&self, name: &str, help: &str, labels: &[(&str, &str)]) -> Arc<RealGauge> {
        let new = || Series::Real(Arc::default());
        match self.series(Kind::Gauge, name, help, labels, None, new) {
            Series::Real(gauge) => gauge,
            _ => panic!("metric {name} is registered as a gauge of whole numbers"),
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
        let new = || Series::Histogram(Arc::new(Histogram::shared()), scale);
        match self.series(Kind::Histogram, name, help, labels, Some(scale), new) {
            Series::Histogram(histogram, _) => histogram,
            other => unreachable!("series() checked that {name} is a histogram, not {other:?}"),
        }
    }

    /// Returns the event `name` with these labels and `fields`; made if it does not exist yet.
    ///
    /// `fields` are the names of the values that [`Event::send`] takes, words as names of metrics are. The name ends as
    /// that of a gauge. Events stand on no page: they are sent by a [`Reporter`](crate::Reporter) alone.
    ///
    /// # Panics
    ///
    /// If the name breaks the rules of [`Registry`], if there is no field or more than
    /// [`EVENT_FIELDS_MAX`](crate::EVENT_FIELDS_MAX), or if the event has other fields already.
    pub fn event(
        &self,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        fields: &[&'static str],
    ) -> Arc<Event> {
        let is_good = !fields.is_empty()
            && fields.len() <= EVENT_FIELDS_MAX
            && fields.iter().all(|field| name::is_word(field));
        assert!(
            is_good,
            "event {name} has the fields {fields:?}, expected 1 to {EVENT_FIELDS_MAX} of [a-z][a-z0-9_]*"
        );
        let ring = self.ring.clone();
        let new = |id| Series::Event(Arc::new(Event::new(id, fields.to_vec(), ring)));
        match self.series_at(Kind::Event, name, help, labels, None, new) {
            Series::Event(event) if event.fields() == fields => event,
            _ => panic!("event {name} is registered with other fields"),
        }
    }

    /// Says how the metric or event `name` is reported, registered or not. Another call for the same name replaces it.
    ///
    /// # Panics
    ///
    /// If a quantile is derived of a metric that is no histogram.
    pub fn report_as(&self, name: &str, way: Reporting) {
        let mut inner = self.lock();
        let Inner {
            families,
            ways,
            policy,
            changes,
            ..
        } = &mut *inner;
        if let Some(family) = families.get_mut(name) {
            check_way(family.kind, name, way);
            family.way = way;
            family.verbosity = way.resolve(name, policy);
        }
        ways.insert(name.to_owned(), way);
        *changes += 1;
    }

    /// Sets the verbosity of metrics by their names, from now on.
    pub fn set_policy(&self, policy: Policy) {
        let mut inner = self.lock();
        for (name, family) in &mut inner.families {
            family.verbosity = family.way.resolve(name, &policy);
        }
        inner.policy = policy;
        inner.changes += 1;
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
        self.series_at(kind, name, help, labels, scale, |_| new())
    }

    /// Returns the series, made by `new` of its place in the order if it does not exist yet.
    fn series_at(
        &self,
        kind: Kind,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        scale: Option<Scale>,
        new: impl FnOnce(u32) -> Series,
    ) -> Series {
        let mut labels: Labels = labels
            .iter()
            .map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
            .collect();
        labels.sort_unstable();
        if let Err(error) = name::check(kind, name, help, &labels) {
            panic!("{error}");
        }
        let mut inner = self.lock();
        let Inner {
            families,
            order,
            ways,
            policy,
            ..
        } = &mut *inner;
        let family = families.entry(name.to_owned()).or_insert_with(|| {
            let way = ways.get(name).copied();
            let way = way.unwrap_or_else(|| Reporting::of_kind(kind));
            check_way(kind, name, way);
            Family {
                kind,
                help: help.to_owned(),
                scale,
                way,
                verbosity: way.resolve(name, policy),
                series: BTreeMap::new(),
            }
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
        let entry = family.series.entry(labels).or_insert_with_key(|labels| {
            let id = u32::try_from(order.len()).expect("fewer than 2^32 series fit into memory");
            let entry = Arc::new(Entry {
                name: name.to_owned(),
                labels: labels.clone(),
                is_time: name::is_time(name),
                series: new(id),
            });
            order.push(entry.clone());
            entry
        });
        entry.series.clone()
    }

    /// Brings `roster` up to date: series that are new, and ways of reporting that have changed.
    pub(crate) fn list(&self, roster: &mut Roster) {
        let inner = self.lock();
        let listed = |entry: &Arc<Entry>| {
            let family = &inner.families[&entry.name];
            Listed {
                entry: entry.clone(),
                way: family.way,
                verbosity: family.verbosity,
            }
        };
        if roster.changes != inner.changes {
            roster.changes = inner.changes;
            roster.series.clear();
        }
        let known = roster.series.len();
        roster
            .series
            .extend(inner.order[known..].iter().map(listed));
    }

    /// Makes the caller its reporter; `false` if there is one already.
    pub(crate) fn claim(&self) -> bool {
        !self.is_reported.swap(true, Ordering::AcqRel)
    }

    /// Makes room for another reporter.
    pub(crate) fn release(&self) {
        self.is_reported.store(false, Ordering::Release);
    }

    /// Returns the ring of the events.
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Returns what is registered. A panic while the lock was held has broken nothing: a family is complete before
    /// it is inserted, so the poison is ignored.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_way(kind: Kind, name: &str, way: Reporting) {
    assert!(
        kind == Kind::Histogram || !way.has_quantiles(),
        "metric {name} is a {}, expected a histogram to derive quantiles of",
        kind.word()
    );
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
        let _whole = registry.gauge("held_bytes", "Help.", &[]);
        let attempts: [&dyn Fn(); 6] = [
            &|| drop(registry.real_gauge("held_bytes", "Help.", &[])),
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

    #[test]
    fn a_roster_follows_registrations_ways_and_policy() {
        let registry = Registry::default();
        let mut roster = Roster::default();
        registry.report_as("late_bytes", Reporting::new().verbosity(Verbosity::Prod));
        let _one = registry.counter("a_total", "Help.", &[]);
        registry.list(&mut roster);
        let _two = registry.gauge("late_bytes", "Help.", &[("b", "1")]);
        let _three = registry.histogram("a_seconds", "Help.", &[], Scale::DURATION_NS);
        registry.list(&mut roster);
        let verbosities = |roster: &Roster| {
            let listed = roster.series.iter();
            let listed = listed.map(|one| (one.entry.name.clone(), one.verbosity));
            listed.collect::<Vec<_>>()
        };
        let expected = [
            ("a_total".to_owned(), Verbosity::Info),
            ("late_bytes".to_owned(), Verbosity::Prod),
            ("a_seconds".to_owned(), Verbosity::Info),
        ];
        assert_eq!(verbosities(&roster), expected);
        assert!(roster.series[2].way.has(crate::Derived::P99));
        registry.set_policy(Policy::new([("^a_", Verbosity::Debug)]).unwrap());
        registry.report_as("a_seconds", Reporting::new());
        registry.list(&mut roster);
        let expected = [Verbosity::Debug, Verbosity::Prod, Verbosity::Debug];
        let found = verbosities(&roster)
            .into_iter()
            .map(|(_, verbosity)| verbosity);
        assert!(found.eq(expected));
        assert!(!roster.series[2].way.has(crate::Derived::P99));
    }

    #[test]
    fn quantiles_are_for_histograms() {
        let registry = Registry::default();
        let way = Reporting::new().derive(&[crate::Derived::P99]);
        registry.report_as("a_total", way);
        let attempt = AssertUnwindSafe(|| drop(registry.counter("a_total", "Help.", &[])));
        assert!(catch_unwind(attempt).is_err());
        let _gauge = registry.gauge("open_links", "Help.", &[]);
        assert!(catch_unwind(AssertUnwindSafe(|| registry.report_as("open_links", way))).is_err());
    }

    #[test]
    fn events_have_fields_and_stand_on_no_page() {
        let registry = Registry::default();
        let _event = registry.event("link_status", "A link.", &[("link", "1")], &["up"]);
        let mut text = String::new();
        registry.encode(&mut text);
        assert_eq!(text, "");
        let attempts: [&dyn Fn(); 4] = [
            &|| drop(registry.event("link_status", "A link.", &[("link", "1")], &["down"])),
            &|| drop(registry.event("x", "Help.", &[], &[])),
            &|| drop(registry.event("x", "Help.", &[], &["Up"])),
            &|| drop(registry.event("x", "Help.", &[], &["a", "b", "c", "d", "e"])),
        ];
        for (number, attempt) in attempts.iter().enumerate() {
            let outcome = catch_unwind(AssertUnwindSafe(attempt));
            assert!(outcome.is_err(), "attempt {number} was let through");
        }
    }
}
