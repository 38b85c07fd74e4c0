//! A node that gets warm: its temperature, how long its processes are held up, and how a query finds the relation.

use std::collections::BTreeSet;
use std::f64::consts::TAU;

/// Correlation that dips which follow the temperature should have, or less.
pub(crate) const RELATED_MAX: f64 = -0.7;
/// Temperature in the middle and swing to both sides, in degrees Celsius. Above the middle processes are held up.
const MIDDLE_C: f64 = 60.0;
const SWING_C: f64 = 20.0;
/// Share of the time that processes are held up at most.
const HELD_MAX: f64 = 0.8;

/// Why processes are held up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The temperature is above the middle.
    Heat,
    /// Something that comes twice as often, and as often when it is cold as when it is warm.
    Other,
}

impl Cause {
    pub(crate) const ALL: [Self; 2] = [Self::Heat, Self::Other];

    /// Returns the name of its case.
    pub(crate) fn case(self) -> &'static str {
        match self {
            Self::Heat => "dips that follow the temperature",
            Self::Other => "dips of another cause",
        }
    }

    /// Returns the share of the time that processes are held up, after `turns` periods of the temperature.
    pub(crate) fn held(self, turns: f64) -> f64 {
        let wave = match self {
            Self::Heat => (TAU * turns).sin(),
            Self::Other => (2.0 * TAU * turns).sin(),
        };
        HELD_MAX * wave.max(0.0)
    }
}

/// Returns the temperature after `turns` periods, in degrees Celsius.
pub(crate) fn temperature_c(turns: f64) -> f64 {
    MIDDLE_C + SWING_C * (TAU * turns).sin()
}

/// Queries over one period.
pub(crate) struct Queries {
    /// Label `farm` of the nodes and label `host` of the warm one.
    pub(crate) farm: &'static str,
    pub(crate) host: &'static str,
    /// Length of the period, and step of the samples that are compared.
    pub(crate) period_ms: u64,
    pub(crate) step_ms: u64,
}

impl Queries {
    fn throughput(&self) -> String {
        let (farm, window_ms) = (self.farm, 4 * self.step_ms);
        format!("sum(rate(build_tf_bytes_total{{farm=\"{farm}\"}}[{window_ms}ms]))")
    }

    fn temperature(&self) -> String {
        format!("max(machine_temperature_celsius{{host=\"{}\"}})", self.host)
    }

    fn over(&self, function: &str, expr: &str) -> String {
        let (period_ms, step_ms) = (self.period_ms, self.step_ms);
        format!("{function}(({expr})[{period_ms}ms:{step_ms}ms])")
    }

    /// Returns Pearson's correlation of temperature and throughput, as an expression.
    pub(crate) fn correlation(&self) -> String {
        let (x, y) = (self.temperature(), self.throughput());
        let mean = |expr: &str| self.over("avg_over_time", expr);
        let deviation = |expr: &str| self.over("stddev_over_time", expr);
        format!(
            "({} - {} * {}) / ({} * {})",
            mean(&format!("{x} * {y}")),
            mean(&x),
            mean(&y),
            deviation(&x),
            deviation(&y)
        )
    }

    /// Returns the least and the largest throughput, as expressions.
    pub(crate) fn range(&self) -> [String; 2] {
        ["min_over_time", "max_over_time"].map(|function| self.over(function, &self.throughput()))
    }
}

/// Returns how many intervals between `begin_s` and `end_s` have no reading. Readings come one interval apart; `stamps`
/// are their times in ms.
pub(crate) fn intervals_lost(
    stamps: &BTreeSet<i64>,
    begin_s: f64,
    end_s: f64,
    interval_s: f64,
) -> u64 {
    let whole = |span_s: f64| (span_s / interval_s).floor().max(0.0) as u64;
    let at_s = |stamp: &i64| *stamp as f64 / 1000.0;
    let (Some(first), Some(last)) = (stamps.first(), stamps.last()) else {
        return whole(end_s - begin_s);
    };
    let pairs = stamps.iter().zip(stamps.iter().skip(1));
    let between = pairs.map(|(one, two)| {
        let apart = (at_s(two) - at_s(one)) / interval_s;
        (apart.round().max(1.0) - 1.0) as u64
    });
    whole(at_s(first) - begin_s) + between.sum::<u64>() + whole(end_s - at_s(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn correlation_of(cause: Cause) -> f64 {
        let turns: Vec<f64> = (0..400).map(|at| f64::from(at) / 400.0).collect();
        let pairs = turns
            .iter()
            .map(|turns| (temperature_c(*turns), 1.0 - cause.held(*turns)));
        let pairs: Vec<(f64, f64)> = pairs.collect();
        let mean = |of: &dyn Fn(&(f64, f64)) -> f64| {
            pairs.iter().map(of).sum::<f64>() / pairs.len() as f64
        };
        let (x, y) = (mean(&|pair| pair.0), mean(&|pair| pair.1));
        let covariance = mean(&|pair| (pair.0 - x) * (pair.1 - y));
        let deviations = [
            mean(&|pair| (pair.0 - x).powi(2)),
            mean(&|pair| (pair.1 - y).powi(2)),
        ];
        covariance / deviations.iter().product::<f64>().sqrt()
    }

    #[test]
    fn dips_of_heat_are_related_to_it_and_the_others_are_not() {
        assert!(correlation_of(Cause::Heat) < RELATED_MAX - 0.1);
        assert!(correlation_of(Cause::Other).abs() < 1e-9);
    }

    #[test]
    fn both_causes_hold_processes_up_as_much() {
        let sum = |cause: Cause| -> f64 {
            let turns = (0..1000).map(|at| f64::from(at) / 1000.0);
            turns.map(|turns| cause.held(turns)).sum()
        };
        assert!((sum(Cause::Heat) / sum(Cause::Other) - 1.0).abs() < 0.01);
    }

    #[test]
    fn intervals_without_a_reading_are_counted_wherever_they_are() {
        let lost =
            |stamps: &[i64]| intervals_lost(&stamps.iter().copied().collect(), 100.0, 105.0, 1.0);
        assert_eq!(lost(&[100_400, 101_400, 102_410, 103_390, 104_400]), 0);
        assert_eq!(lost(&[100_400, 101_400, 103_400, 104_400]), 1);
        assert_eq!(lost(&[102_900, 103_900, 104_900]), 2);
        assert_eq!(lost(&[100_400, 101_400]), 3);
        assert_eq!(lost(&[]), 5);
    }
}
