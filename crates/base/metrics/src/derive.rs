//! Values derived at the source, one series at a time.
//!
//! [`State`] takes readings of a series with their times and says what is to be sent. Time is an argument, so that a
//! test drives the very object that a process uses.

use crate::reporting::{Derived, Reporting};
use crate::snapshot::Snapshot;
use std::time::Duration;

/// Reading of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reading {
    /// Total of a counter.
    Count(u64),
    /// Value of a gauge.
    Level(i64),
    /// Value of a gauge of real numbers.
    Real(f64),
    /// Values of a histogram since the process started.
    Values(Snapshot),
}

/// Number that is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    Real(f64),
}

/// Name and value of what is sent of a series at one time. The name `value` stands for the series itself.
pub(crate) type Field = (&'static str, Number);

/// Name of the field that is the series itself.
pub(crate) const VALUE: &str = "value";

/// Values read of a series before.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Latest reading that a difference was taken to, with its time in ms.
    base: Option<(i64, Reading)>,
    window: Window,
    /// Latest reading that was sent, with its time in ms.
    sent: Option<(i64, Reading)>,
}

/// Samples of a gauge in the interval.
#[derive(Debug, Default)]
struct Window {
    count: u32,
    sum: f64,
    min: f64,
    max: f64,
}

impl Window {
    fn add(&mut self, value: f64) {
        if self.count == 0 {
            (self.min, self.max) = (value, value);
        }
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }
}

impl Reading {
    /// Returns the value of a gauge.
    fn level(&self) -> Option<f64> {
        match self {
            Self::Level(value) => Some(*value as f64),
            Self::Real(value) => Some(*value),
            Self::Count(_) | Self::Values(_) => None,
        }
    }

    /// Returns how much more this is than `earlier`. A total that is lower than before counts from zero.
    fn since(&self, earlier: &Self) -> f64 {
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64;
        match (self, earlier) {
            (Self::Count(now), Self::Count(before)) => grown(*now, *before),
            (Self::Values(now), Self::Values(before)) => grown(now.count(), before.count()),
            (Self::Level(now), Self::Level(before)) => now.wrapping_sub(*before) as f64,
            (Self::Real(now), Self::Real(before)) => now - before,
            _ => 0.0,
        }
    }
}

impl State {
    /// Notes a sample of a gauge between two that are sent.
    pub(crate) fn observe(&mut self, reading: &Reading) {
        if let Some(value) = reading.level() {
            self.window.add(value);
        }
    }

    /// Appends what is to be sent of `reading`, taken at `at_ms`, to `out`. Returns `false` if it is suppressed.
    ///
    /// Values of a metric `is_time` are in ns and sent in seconds.
    pub(crate) fn sample(
        &mut self,
        at_ms: i64,
        reading: Reading,
        way: Reporting,
        is_time: bool,
        out: &mut Vec<Field>,
    ) -> bool {
        let start = out.len();
        self.observe(&reading);
        let window = std::mem::take(&mut self.window);
        let unit = Unit { is_time };
        match &reading {
            Reading::Count(value) => out.push((VALUE, unit.whole(i128::from(*value)))),
            Reading::Level(value) => out.push((VALUE, unit.whole(i128::from(*value)))),
            Reading::Real(value) => out.push((VALUE, Number::Real(*value))),
            Reading::Values(values) => {
                out.push(("count", Unit::PLAIN.whole(i128::from(values.count()))));
                out.push(("sum", unit.whole(i128::from(values.sum()))));
            }
        }
        self.push_changes(at_ms, &reading, way, unit, out);
        if reading.level().is_some() {
            push_window(&window, way, unit, out);
        }
        self.rebase(at_ms, &reading);
        let is_flat = window.count == 0 || window.min == window.max;
        if let Some(heartbeat) = way.heartbeat()
            && is_flat
            && self.is_unchanged(at_ms, &reading, heartbeat)
        {
            out.truncate(start);
            return false;
        }
        if way.heartbeat().is_some() {
            self.sent = Some((at_ms, reading));
        }
        true
    }

    /// Appends what follows from this reading and the one before.
    fn push_changes(
        &self,
        at_ms: i64,
        reading: &Reading,
        way: Reporting,
        unit: Unit,
        out: &mut Vec<Field>,
    ) {
        let Some((base_ms, base)) = &self.base else {
            return;
        };
        // Two samples in one ms: the next one takes the difference to the first of them, so that nothing is counted
        // twice or divided by zero.
        if at_ms == *base_ms {
            return;
        }
        // What a histogram counts are values, whatever their unit.
        let unit_of_changes = match reading {
            Reading::Values(_) | Reading::Real(_) => Unit::PLAIN,
            _ => unit,
        };
        let change = unit_of_changes.scaled(reading.since(base));
        if way.has(Derived::Increment) {
            out.push((Derived::Increment.word(), Number::Real(change)));
        }
        // A clock that was set back says nothing about the time that has passed.
        if way.has(Derived::Rate) && at_ms > *base_ms {
            let rate = change * 1000.0 / (at_ms - base_ms) as f64;
            out.push((Derived::Rate.word(), Number::Real(rate)));
        }
        if let (Reading::Values(now), Reading::Values(before)) = (reading, base) {
            push_values(&now.since(before), way, unit, out);
        }
    }

    fn rebase(&mut self, at_ms: i64, reading: &Reading) {
        let is_same_ms = matches!(&self.base, Some((base_ms, _)) if *base_ms == at_ms);
        if !is_same_ms {
            self.base = Some((at_ms, reading.clone()));
        }
    }

    /// Returns whether the value was sent less than `heartbeat` ago.
    fn is_unchanged(&self, at_ms: i64, reading: &Reading, heartbeat: Duration) -> bool {
        let Some((sent_ms, sent)) = &self.sent else {
            return false;
        };
        let heartbeat_ms = i64::try_from(heartbeat.as_millis()).unwrap_or(i64::MAX);
        sent == reading && (0..heartbeat_ms).contains(&at_ms.saturating_sub(*sent_ms))
    }
}

fn push_window(window: &Window, way: Reporting, unit: Unit, out: &mut Vec<Field>) {
    let average = window.sum / f64::from(window.count.max(1));
    for (derived, value) in [
        (Derived::Average, average),
        (Derived::Min, window.min),
        (Derived::Max, window.max),
    ] {
        if way.has(derived) {
            out.push((derived.word(), Number::Real(unit.scaled(value))));
        }
    }
}

/// Appends what is derived of the `values` that a histogram has counted in an interval; nothing if there are none.
fn push_values(values: &Snapshot, way: Reporting, unit: Unit, out: &mut Vec<Field>) {
    if values.count() == 0 {
        return;
    }
    let mut push = |derived: Derived, value: f64| {
        if way.has(derived) {
            out.push((derived.word(), Number::Real(unit.scaled(value))));
        }
    };
    push(
        Derived::Average,
        values.sum() as f64 / values.count() as f64,
    );
    push(Derived::Min, values.min() as f64);
    push(Derived::Max, values.max() as f64);
    for (derived, share) in Derived::QUANTILES {
        push(derived, values.quantile(share) as f64);
    }
}

/// Unit that a metric is sent in.
#[derive(Clone, Copy)]
struct Unit {
    is_time: bool,
}

impl Unit {
    const PLAIN: Self = Self { is_time: false };
    const NS_PER_S: f64 = 1e9;

    fn scaled(self, value: f64) -> f64 {
        if self.is_time {
            value / Self::NS_PER_S
        } else {
            value
        }
    }

    /// Returns a whole number as it is sent. A series keeps its type, but for numbers beyond 63 bits.
    fn whole(self, value: i128) -> Number {
        match i64::try_from(value) {
            Ok(value) if !self.is_time => Number::Int(value),
            _ => Number::Real(self.scaled(value as f64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;
    use proptest::prelude::*;

    /// Samples a series and returns what is sent, a line a sample.
    fn sent(way: Reporting, is_time: bool, readings: &[(i64, Reading)]) -> Vec<String> {
        let mut state = State::default();
        let line = |(at_ms, reading): &(i64, Reading)| {
            let mut out = Vec::new();
            let is_sent = state.sample(*at_ms, reading.clone(), way, is_time, &mut out);
            assert_eq!(is_sent, !out.is_empty());
            let field = |(name, number): &Field| match number {
                Number::Int(value) => format!("{name}={value}i"),
                Number::Real(value) => format!("{name}={value}"),
            };
            out.iter().map(field).collect::<Vec<_>>().join(" ")
        };
        readings.iter().map(line).collect()
    }

    fn counts(totals: &[(i64, u64)]) -> Vec<(i64, Reading)> {
        let reading = |(at_ms, total): &(i64, u64)| (*at_ms, Reading::Count(*total));
        totals.iter().map(reading).collect()
    }

    const CHANGES: [Derived; 2] = [Derived::Increment, Derived::Rate];

    #[test]
    fn a_counter_has_a_rate_from_its_second_sample_on() {
        let way = Reporting::new().derive(&CHANGES);
        let found = sent(way, false, &counts(&[(1000, 5), (1500, 8), (2500, 8)]));
        let expected = [
            "value=5i",
            "value=8i increment=3 rate=6",
            "value=8i increment=0 rate=0",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_counter_that_goes_back_counts_from_zero() {
        let way = Reporting::new().derive(&CHANGES);
        let found = sent(way, false, &counts(&[(0, 100), (1000, 7)]));
        assert_eq!(found[1], "value=7i increment=7 rate=7");
    }

    #[test]
    fn two_samples_in_one_ms_lose_and_repeat_nothing() {
        let way = Reporting::new().derive(&CHANGES);
        let found = sent(
            way,
            false,
            &counts(&[(0, 1), (1000, 3), (1000, 4), (2000, 9)]),
        );
        let expected = [
            "value=1i",
            "value=3i increment=2 rate=2",
            "value=4i",
            "value=9i increment=6 rate=6",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_clock_that_is_set_back_costs_one_rate() {
        let way = Reporting::new().derive(&CHANGES);
        let found = sent(way, false, &counts(&[(9000, 1), (1000, 3), (2000, 4)]));
        let expected = [
            "value=1i",
            "value=3i increment=2",
            "value=4i increment=1 rate=1",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn times_are_sent_in_seconds() {
        let way = Reporting::new().derive(&CHANGES);
        let found = sent(way, true, &counts(&[(0, 500_000_000), (1000, 750_000_000)]));
        assert_eq!(found, ["value=0.5", "value=0.75 increment=0.25 rate=0.25"]);
    }

    #[test]
    fn totals_beyond_63_bits_are_real_numbers() {
        let found = sent(Reporting::new(), false, &counts(&[(0, u64::MAX)]));
        assert_eq!(found, ["value=18446744073709552000"]);
    }

    #[test]
    fn a_gauge_has_average_min_and_max_of_its_interval_negative_ones_too() {
        let all = [Derived::Average, Derived::Min, Derived::Max];
        let way = Reporting::new().derive(&all);
        let mut state = State::default();
        for value in [-9.0, -3.0] {
            state.observe(&Reading::Real(value));
        }
        let mut out = Vec::new();
        state.sample(1000, Reading::Real(-6.0), way, false, &mut out);
        let real = |name, value| (name, Number::Real(value));
        let expected = [
            real("value", -6.0),
            real("avg", -6.0),
            real("min", -9.0),
            real("max", -3.0),
        ];
        assert_eq!(out, expected);
        // The next interval begins with nothing of this one.
        out.clear();
        state.sample(2000, Reading::Real(1.0), way, false, &mut out);
        assert_eq!(out[2], real("min", 1.0));
    }

    #[test]
    fn a_histogram_is_derived_over_its_interval() {
        let way = Reporting::new().derive(&[
            Derived::Rate,
            Derived::Average,
            Derived::Min,
            Derived::Max,
            Derived::P50,
        ]);
        let histogram = Histogram::default();
        let mut readings = vec![];
        for (at_ms, values) in [
            (0, &[1_000_000, 5][..]),
            (1000, &[10, 20, 60]),
            (3000, &[]),
            (4000, &[7, 7]),
        ] {
            values.iter().for_each(|value| histogram.record(*value));
            readings.push((at_ms, Reading::Values(histogram.snapshot())));
        }
        let expected = [
            "count=2i sum=1000005i",
            "count=5i sum=1000095i rate=3 avg=30 min=10 max=60 p50=20",
            "count=5i sum=1000095i rate=0",
            "count=7i sum=1000109i rate=2 avg=7 min=7 max=7 p50=7",
        ];
        assert_eq!(sent(way, false, &readings), expected);
    }

    #[test]
    fn an_unchanged_value_is_sent_at_the_heartbeat() {
        let way = Reporting::new().suppress(Duration::from_secs(3));
        let found = sent(
            way,
            false,
            &counts(&[
                (0, 1),
                (1000, 1),
                (2999, 1),
                (3000, 1),
                (4000, 2),
                (5000, 2),
            ]),
        );
        assert_eq!(
            found,
            ["value=1i", "", "", "value=1i", "value=2i", ""],
            "the heartbeat counts from what was sent last"
        );
    }

    #[test]
    fn a_peak_between_two_equal_samples_is_not_suppressed() {
        let way = Reporting::new()
            .suppress(Duration::from_secs(300))
            .derive(&[Derived::Max]);
        let mut state = State::default();
        let mut out = Vec::new();
        assert!(state.sample(0, Reading::Level(1), way, false, &mut out));
        state.observe(&Reading::Level(9));
        assert!(state.sample(1000, Reading::Level(1), way, false, &mut out));
        assert!(!state.sample(2000, Reading::Level(1), way, false, &mut out));
    }

    proptest! {
        /// Increments add up to the total, whatever the times.
        #[test]
        fn increments_add_up(steps in prop::collection::vec((-5_i64..2000, 0_u64..1000), 1..50)) {
            let way = Reporting::new().derive(&CHANGES);
            let (mut state, mut at_ms, mut total) = (State::default(), 0, 0);
            let (mut sum, mut pending) = (0.0, 0.0);
            let mut last_ms = None;
            for (step_ms, more) in steps {
                at_ms += step_ms;
                total += more;
                if last_ms.is_some() {
                    pending += more as f64;
                }
                let mut out = Vec::new();
                state.sample(at_ms, Reading::Count(total), way, false, &mut out);
                for (name, number) in &out {
                    let Number::Real(value) = number else { continue };
                    prop_assert!(value.is_finite() && *value >= 0.0);
                    if *name == "increment" {
                        sum += value;
                        pending = 0.0;
                    }
                }
                let _ = last_ms.insert(at_ms);
            }
            // What the last samples of one ms have not said yet comes with the next one.
            let mut out = Vec::new();
            state.sample(at_ms + 1, Reading::Count(total), way, false, &mut out);
            if let Some((_, Number::Real(rest))) = out.iter().find(|field| field.0 == "increment") {
                prop_assert_eq!(*rest, pending);
                sum += rest;
            }
            prop_assert!(sum <= total as f64);
        }
    }
}
