//! Tables of metrics: one line says name, kind, help and where the value is.

use crate::name::Kind;
use crate::registry::Registry;

/// Registration of a metric: `# HELP`, `# TYPE` and the reference page follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name, with the unit as its last part.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// One self-contained sentence, with the unit.
    pub help: &'static str,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Advice for the operator when the value moves, for the reference page; empty if there is nothing to do.
    pub advice: &'static str,
}

/// Line of a table: a metric and how its value is read from the state `S`.
#[derive(Debug)]
pub struct Row<S> {
    /// Name, kind and help.
    pub metric: Metric,
    value: Value<S>,
}

#[derive(Debug)]
enum Value<S> {
    One(fn(&S) -> u64),
    Labelled(&'static str, fn(&S) -> Vec<(&'static str, u64)>),
}

impl Metric {
    const fn new(kind: Kind, name: &'static str, help: &'static str) -> Self {
        Self {
            name,
            kind,
            help,
            labels: &[],
            advice: "",
        }
    }

    /// Makes a counter.
    #[must_use]
    pub const fn counter(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Counter, name, help)
    }

    /// Makes a gauge.
    #[must_use]
    pub const fn gauge(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Gauge, name, help)
    }

    /// Makes a histogram.
    #[must_use]
    pub const fn histogram(name: &'static str, help: &'static str) -> Self {
        Self::new(Kind::Histogram, name, help)
    }

    /// Adds the names of the labels.
    #[must_use]
    pub const fn labels(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    /// Adds what an operator does when the value moves.
    #[must_use]
    pub const fn advice(mut self, advice: &'static str) -> Self {
        self.advice = advice;
        self
    }
}

impl<S> Row<S> {
    /// Makes a line with a counter.
    #[must_use]
    pub const fn counter(
        name: &'static str,
        help: &'static str,
        advice: &'static str,
        value: fn(&S) -> u64,
    ) -> Self {
        let metric = Metric::counter(name, help).advice(advice);
        let value = Value::One(value);
        Self { metric, value }
    }

    /// Makes a line with a gauge.
    #[must_use]
    pub const fn gauge(
        name: &'static str,
        help: &'static str,
        advice: &'static str,
        value: fn(&S) -> u64,
    ) -> Self {
        let metric = Metric::gauge(name, help).advice(advice);
        let value = Value::One(value);
        Self { metric, value }
    }

    /// Makes a line with a counter for each value of `label`.
    #[must_use]
    pub const fn counters(
        name: &'static str,
        help: &'static str,
        advice: &'static str,
        label: &'static [&'static str; 1],
        values: fn(&S) -> Vec<(&'static str, u64)>,
    ) -> Self {
        let metric = Metric::counter(name, help).labels(label).advice(advice);
        let value = Value::Labelled(label[0], values);
        Self { metric, value }
    }
}

impl Registry {
    /// Brings the metrics of `rows` up to date with `state`.
    pub fn export<S>(&self, rows: &[Row<S>], state: &S) {
        for row in rows {
            match row.value {
                Value::One(value) => self.set(&row.metric, &[], value(state)),
                Value::Labelled(label, values) => {
                    for (name, value) in values(state) {
                        self.set(&row.metric, &[(label, name)], value);
                    }
                }
            }
        }
    }

    /// Sets a gauge to `value`, or raises a counter to it.
    ///
    /// # Panics
    ///
    /// If `metric` is a histogram or event, which has no single value.
    pub fn set(&self, metric: &Metric, labels: &[(&str, &str)], value: u64) {
        let Metric {
            name, kind, help, ..
        } = *metric;
        let names = labels.iter().map(|(label, _)| *label);
        debug_assert!(
            names.eq(metric.labels.iter().copied()),
            "{name}: {labels:?}"
        );
        match kind {
            Kind::Counter => self.counter(name, help, labels).raise_to(value),
            Kind::Gauge => self.gauge(name, help, labels).set_u64(value),
            Kind::Histogram | Kind::Event => {
                panic!("{name} is a {}, expected a counter or a gauge", kind.word())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Row<[u64; 3]>] = &[
        Row::counter("build_tf_total", "TFs built.", "", |state| state[0]),
        Row::gauge("build_held_bytes", "Bytes held now.", "", |state| state[1]),
        Row::counters(
            "build_refused_total",
            "STFs refused.",
            "",
            &["reason"],
            |state| vec![("late", state[2]), ("large", 0)],
        ),
    ];

    #[test]
    fn a_line_of_a_table_is_a_metric() {
        let registry = Registry::default();
        registry.export(TABLE, &[7, 8, 9]);
        registry.export(TABLE, &[8, 1, 9]);
        let mut text = String::new();
        registry.encode(&mut text);
        for line in [
            "# HELP build_tf_total TFs built.",
            "build_tf_total 8",
            "build_held_bytes 1",
            "build_refused_total{reason=\"late\"} 9",
            "build_refused_total{reason=\"large\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
