//! Values of one reading after the other, as series of the registry.

use serde::Serialize;
use sheaf_metrics::{Counter, Metric, RealGauge, Registry};
use sheaf_sensors::{Total, WhenLower};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Series at most: a machine that makes up devices takes no memory without end.
const SERIES_MAX: usize = 20_000;

/// Series of all sensors.
#[derive(Debug)]
pub(crate) struct Sheet {
    registry: Arc<Registry>,
    /// By name and values of labels, with separators between.
    series: BTreeMap<String, Series>,
    key: String,
    round: u64,
    refused: u64,
}

#[derive(Debug)]
struct Series {
    metric: Metric,
    labels: Vec<String>,
    slot: Slot,
    round: u64,
}

#[derive(Debug)]
enum Slot {
    Count(Arc<Counter>, Total),
    Level(Arc<RealGauge>),
}

/// Value of one series, for people and programs that ask once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Value {
    /// Name of the metric.
    pub name: &'static str,
    /// Kind: `counter` or `gauge`.
    pub kind: &'static str,
    /// Labels by name.
    pub labels: BTreeMap<&'static str, String>,
    /// Value in base units.
    pub value: f64,
}

impl Sheet {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self {
            registry,
            series: BTreeMap::new(),
            key: String::new(),
            round: 0,
            refused: 0,
        }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Series that found no room so far, each time that they came.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Begins a reading.
    pub(crate) fn begin(&mut self) {
        self.round += 1;
    }

    /// Ends a reading: a gauge that was not set has no value until it is set again.
    pub(crate) fn end(&mut self) {
        for series in self.series.values_mut() {
            if let Slot::Level(gauge) = &series.slot
                && series.round != self.round
            {
                gauge.set(f64::NAN);
            }
        }
    }

    /// Sets a gauge, whose labels have these values.
    pub(crate) fn level(&mut self, metric: &Metric, labels: &[&str], value: f64) {
        if let Some(Slot::Level(gauge)) = self.slot(metric, labels) {
            gauge.set(value);
        }
    }

    /// Takes the next value of a counter of the kernel that begins again at 0 now and then.
    pub(crate) fn count(&mut self, metric: &Metric, labels: &[&str], value: u64) {
        self.count_as(metric, labels, value, 1, WhenLower::Reset);
    }

    /// Takes the next value of a counter of the kernel, of which one step is `unit`: in ns for a time.
    pub(crate) fn count_as(
        &mut self,
        metric: &Metric,
        labels: &[&str],
        value: u64,
        unit: u64,
        when_lower: WhenLower,
    ) {
        if let Some(Slot::Count(counter, total)) = self.slot(metric, labels) {
            counter.raise_to(total.advance(value, when_lower).saturating_mul(unit));
        }
    }

    fn slot(&mut self, metric: &Metric, labels: &[&str]) -> Option<&mut Slot> {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        self.key.clear();
        self.key.push_str(metric.name);
        for label in labels {
            self.key.push('\u{1f}');
            self.key.push_str(label);
        }
        if !self.series.contains_key(&self.key) {
            if self.series.len() >= SERIES_MAX {
                self.refused += 1;
                return None;
            }
            let pairs: Vec<(&str, &str)> = metric
                .labels
                .iter()
                .copied()
                .zip(labels.iter().copied())
                .collect();
            let slot = if metric.kind == sheaf_metrics::Kind::Counter {
                let counter = self.registry.counter(metric.name, metric.help, &pairs);
                Slot::Count(counter, Total::default())
            } else {
                Slot::Level(self.registry.real_gauge(metric.name, metric.help, &pairs))
            };
            let series = Series {
                metric: *metric,
                labels: labels.iter().map(|label| (*label).to_owned()).collect(),
                slot,
                round: 0,
            };
            self.series.insert(self.key.clone(), series);
        }
        let series = self.series.get_mut(&self.key)?;
        series.round = self.round;
        Some(&mut series.slot)
    }

    /// Returns all values, by name and labels.
    pub(crate) fn values(&self) -> Vec<Value> {
        let value = |series: &Series| {
            let Series {
                metric,
                labels,
                slot,
                ..
            } = series;
            let value = match slot {
                Slot::Level(gauge) => gauge.value(),
                Slot::Count(counter, _) if is_time(metric.name) => counter.value() as f64 / 1e9,
                Slot::Count(counter, _) => counter.value() as f64,
            };
            value.is_finite().then(|| Value {
                name: metric.name,
                kind: metric.kind.word(),
                labels: metric
                    .labels
                    .iter()
                    .copied()
                    .zip(labels.iter().cloned())
                    .collect(),
                value,
            })
        };
        self.series.values().filter_map(value).collect()
    }
}

/// Returns whether a counter is a time, which the registry keeps in ns.
fn is_time(name: &str) -> bool {
    name.split('_').any(|word| word == "seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Metric = Metric::counter("a_seconds_total", "Help.").labels(&["x"]);
    const LEVEL: Metric = Metric::gauge("held_bytes", "Help.").labels(&["x"]);

    fn text(registry: &Registry) -> String {
        let mut text = String::new();
        registry.encode(&mut text);
        text
    }

    #[test]
    fn counters_go_on_and_gauges_that_are_gone_have_no_value() {
        let registry = Arc::new(Registry::default());
        let mut sheet = Sheet::new(registry.clone());
        for (count, level) in [(5, Some(1.0)), (7, Some(2.5)), (1, None)] {
            sheet.begin();
            sheet.count_as(&COUNT, &["1"], count, 1_000_000_000, WhenLower::Reset);
            if let Some(level) = level {
                sheet.level(&LEVEL, &["1"], level);
            }
            sheet.end();
        }
        let found = text(&registry);
        assert!(found.contains("a_seconds_total{x=\"1\"} 8\n"), "{found}");
        assert!(found.contains("held_bytes{x=\"1\"} NaN\n"), "{found}");
        let values = sheet.values();
        assert_eq!(values.len(), 1);
        assert_eq!((values[0].name, values[0].value), ("a_seconds_total", 8.0));
    }

    #[test]
    fn series_have_a_bound() {
        let mut sheet = Sheet::new(Arc::default());
        for number in 0..SERIES_MAX + 3 {
            sheet.level(&LEVEL, &[&number.to_string()], 0.0);
        }
        assert_eq!((sheet.series.len(), sheet.refused()), (SERIES_MAX, 3));
    }
}
