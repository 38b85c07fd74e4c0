//! What the pairs of runs come to, for machines (`docs/bench.md` describes every field).

use super::args::{FarmArgs, Shape};
use super::cpus::Cpus;
use super::farm::FarmRun;
use super::plain::PlainRun;
use crate::proc::Machine;
use serde::Serialize;
use sheaf_node::status::Quantiles;
use std::fmt;

/// Version of the schema.
const SCHEMA: u32 = 1;
/// Above this, others had a part in how a run went. Stricter than the 1.3 of a run alone: a CPU that is shared costs
/// the plain pair more than the farm, and flatters the ratio from 1.2 on (`docs/results/farm.md`).
pub(crate) const BUSY_RATIO_MAX: f64 = 1.1;
/// Fewer pairs than these do not show how far the ratio spreads.
pub(crate) const PAIRS_TRUSTED_MIN: usize = 7;

/// A run of the farm and the run of the plain pair beside it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pair {
    /// The farm.
    pub(crate) farm: FarmRun,
    /// The plain pair.
    pub(crate) plain: PlainRun,
}

impl Pair {
    /// Goodput of the farm ÷ that of the plain pair.
    pub(crate) fn ratio(&self) -> f64 {
        let plain = self.plain_gb_per_s();
        if plain > 0.0 {
            self.farm.gb_per_s / plain
        } else {
            0.0
        }
    }

    /// Whether the machine was left alone in both runs.
    pub(crate) fn is_kept(&self) -> bool {
        self.busy_ratio() <= BUSY_RATIO_MAX
    }

    fn busy_ratio(&self) -> f64 {
        self.farm
            .machine_busy_ratio
            .max(self.plain.machine_busy_ratio)
    }

    fn plain_gb_per_s(&self) -> f64 {
        self.plain.mb_per_s / 1e3
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (farm, plain, ratio) = (self.farm.gb_per_s, self.plain_gb_per_s(), self.ratio());
        write!(
            f,
            "farm {farm:.2} GB/s, plain {plain:.2} GB/s, ratio {ratio:.3}"
        )?;
        if !self.is_kept() {
            let busy = self.busy_ratio();
            write!(
                f,
                "; dropped: the machine was busy with others (busy ratio {busy:.2})"
            )?;
        }
        Ok(())
    }
}

/// What `--json` writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Report {
    schema: u32,
    version: String,
    command: Vec<String>,
    pub(super) machine: Machine,
    pub(super) pinned: Option<[usize; 2]>,
    pub(super) seconds: f64,
    pub(super) warm_up_seconds: f64,
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Puts the rows together.
    pub(crate) fn new(args: &FarmArgs, cpus: &Cpus, rows: Vec<Row>) -> Self {
        Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: std::env::args().collect(),
            machine: Machine::this(),
            pinned: cpus.pair(),
            seconds: args.seconds,
            warm_up_seconds: args.warm_up_seconds,
            rows,
        }
    }

    /// For machines.
    pub(crate) fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("names and numbers always have a JSON form");
        text.push('\n');
        text
    }
}

/// One shape and size. Figures are medians over the pairs kept; without one, over all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(super) shape: String,
    pub(super) stf_bytes: u64,
    pub(super) farm: FarmFigures,
    pub(super) plain: PlainFigures,
    pub(super) ratio: Ratio,
    pub(super) congestion: Congestion,
    pub(super) trusted: bool,
    pub(super) pairs: Vec<PairFigures>,
}

/// The farm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct FarmFigures {
    pub(super) tf_per_s: f64,
    pub(super) gb_per_s: f64,
    pub(super) cpu_s_per_gb: f64,
    pub(super) latency_us: Quantiles,
    pub(super) rss_bytes_max: u64,
    pub(super) rss_bytes_max_node: u64,
}

/// The plain pair.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PlainFigures {
    pub(super) messages_per_s: f64,
    pub(super) gb_per_s: f64,
    pub(super) cpu_s_per_gb: f64,
    pub(super) rss_bytes_max: u64,
}

/// Goodput of the farm ÷ that of the plain pair, over the pairs kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Ratio {
    pub(super) median: Option<f64>,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) n: usize,
    pub(super) dropped: usize,
}

/// Congestion control in force on each side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Congestion {
    /// Of the farm.
    pub(crate) farm: String,
    /// Of the plain pair.
    pub(crate) plain: String,
}

/// One pair, as it was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PairFigures {
    farm_gb_per_s: f64,
    plain_gb_per_s: f64,
    ratio: f64,
    farm_busy_ratio: f64,
    plain_busy_ratio: f64,
    kept: bool,
}

impl Row {
    /// Makes one row of its pairs.
    pub(crate) fn new(
        shape: Shape,
        stf_bytes: u64,
        congestion: Congestion,
        pairs: &[Pair],
    ) -> Self {
        let kept: Vec<&Pair> = pairs.iter().filter(|pair| pair.is_kept()).collect();
        let shown = if kept.is_empty() {
            pairs.iter().collect()
        } else {
            kept.clone()
        };
        let ratios = || kept.iter().map(|pair| pair.ratio());
        let ratio = Ratio {
            median: median(ratios()),
            min: ratios().reduce(f64::min),
            max: ratios().reduce(f64::max),
            n: kept.len(),
            dropped: pairs.len() - kept.len(),
        };
        Self {
            shape: shape.to_string(),
            stf_bytes,
            farm: FarmFigures::of(&shown),
            plain: PlainFigures::of(&shown),
            trusted: ratio.n >= PAIRS_TRUSTED_MIN && congestion.farm == congestion.plain,
            ratio,
            congestion,
            pairs: pairs.iter().map(PairFigures::of).collect(),
        }
    }
}

impl FarmFigures {
    fn of(pairs: &[&Pair]) -> Self {
        let middle = |of: fn(&FarmRun) -> f64| {
            median(pairs.iter().map(|pair| of(&pair.farm))).unwrap_or(0.0)
        };
        let most = |of: fn(&FarmRun) -> u64| pairs.iter().map(|pair| of(&pair.farm)).max();
        let slowest = pairs.iter().map(|pair| pair.farm.latency_us.max);
        Self {
            tf_per_s: middle(|farm| farm.tf_per_s),
            gb_per_s: middle(|farm| farm.gb_per_s),
            cpu_s_per_gb: middle(|farm| farm.cpu_s_per_gb),
            latency_us: Quantiles {
                p50: middle(|farm| farm.latency_us.p50),
                p99: middle(|farm| farm.latency_us.p99),
                max: slowest.reduce(f64::max).unwrap_or(0.0),
            },
            rss_bytes_max: most(|farm| farm.rss_bytes_max).unwrap_or(0),
            rss_bytes_max_node: most(|farm| farm.rss_bytes_max_node).unwrap_or(0),
        }
    }
}

impl PlainFigures {
    fn of(pairs: &[&Pair]) -> Self {
        let middle = |of: fn(&PlainRun) -> f64| {
            median(pairs.iter().map(|pair| of(&pair.plain))).unwrap_or(0.0)
        };
        let rss = pairs.iter().map(|pair| pair.plain.rss_bytes_max);
        Self {
            messages_per_s: middle(|plain| plain.messages as f64 / plain.seconds.max(1e-9)),
            gb_per_s: middle(|plain| plain.mb_per_s / 1e3),
            cpu_s_per_gb: middle(|plain| plain.cpu_s_per_gb),
            rss_bytes_max: rss.max().unwrap_or(0),
        }
    }
}

impl PairFigures {
    fn of(pair: &Pair) -> Self {
        Self {
            farm_gb_per_s: pair.farm.gb_per_s,
            plain_gb_per_s: pair.plain_gb_per_s(),
            ratio: pair.ratio(),
            farm_busy_ratio: pair.farm.machine_busy_ratio,
            plain_busy_ratio: pair.plain.machine_busy_ratio,
            kept: pair.is_kept(),
        }
    }
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::args::tests::parse;
    use super::*;

    /// A pair of 1 MB messages at `farm` and `plain` GB/s, in runs that were disturbed as `busy` says.
    fn pair(farm: f64, plain: f64, busy: f64) -> Pair {
        Pair {
            farm: FarmRun {
                tf_per_s: farm * 1e3,
                gb_per_s: farm,
                cpu_s_per_gb: 0.3,
                latency_us: Quantiles {
                    p50: 1000.0,
                    p99: 2000.0,
                    max: farm * 1000.0,
                },
                rss_bytes_max: 900,
                rss_bytes_max_node: 500,
                machine_busy_ratio: busy,
            },
            plain: PlainRun {
                messages: 6000,
                seconds: 1.0,
                mb_per_s: plain * 1e3,
                cpu_s_per_gb: 0.25,
                rss_bytes_max: 600,
                machine_busy_ratio: 1.0,
                congestion: "cubic".to_owned(),
            },
        }
    }

    pub(crate) fn row(pairs: &[Pair], plain_congestion: &str) -> Row {
        let congestion = Congestion {
            farm: "cubic".to_owned(),
            plain: plain_congestion.to_owned(),
        };
        Row::new(Shape { flps: 1, epns: 1 }, 1_000_000, congestion, pairs)
    }

    pub(crate) fn pairs(n: usize) -> Vec<Pair> {
        (0..n)
            .map(|i| pair(4.0 + i as f64 / 10.0, 5.0, 1.0))
            .collect()
    }

    pub(crate) fn report(rows: Vec<Row>) -> Report {
        let cpus = Cpus::allowed(false).unwrap();
        Report::new(&parse("").unwrap(), &cpus, rows)
    }

    #[test]
    fn a_median_stands_in_the_middle() {
        for (values, expected) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
            (&[4.0, 1.0, 2.0, 9.0], Some(3.0)),
        ] {
            assert_eq!(median(values.iter().copied()), expected);
        }
    }

    #[test]
    fn a_disturbed_pair_has_no_part_in_the_figures() {
        let row = row(
            &[
                pair(4.0, 5.0, 1.0),
                pair(1.0, 5.0, 1.11),
                pair(4.5, 5.0, 1.1),
            ],
            "cubic",
        );
        assert_eq!((row.ratio.n, row.ratio.dropped), (2, 1));
        assert_eq!((row.ratio.min, row.ratio.max), (Some(0.8), Some(0.9)));
        assert_eq!((row.farm.gb_per_s, row.farm.latency_us.max), (4.25, 4500.0));
        assert_eq!(row.pairs.len(), 3);
    }

    #[test]
    fn seven_undisturbed_pairs_with_one_congestion_control_are_trusted() {
        assert!(row(&pairs(7), "cubic").trusted);
        assert!(!row(&pairs(6), "cubic").trusted);
        assert!(!row(&pairs(7), "bbr").trusted);
    }

    #[test]
    fn without_an_undisturbed_pair_there_is_no_ratio() {
        let row = row(&[pair(4.0, 5.0, 2.0)], "cubic");
        assert_eq!((row.ratio.median, row.ratio.dropped), (None, 1));
        assert_eq!(row.farm.gb_per_s, 4.0);
    }

    #[test]
    fn the_json_has_the_documented_fields() {
        let text = report(vec![row(&pairs(7), "cubic")]).to_json();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["schema"], 1);
        let row = &json["rows"][0];
        assert_eq!(
            (row["shape"].as_str(), row["stf_bytes"].as_u64()),
            (Some("1x1"), Some(1_000_000))
        );
        for pointer in [
            "/farm/tf_per_s",
            "/farm/gb_per_s",
            "/farm/cpu_s_per_gb",
            "/farm/latency_us/p99",
            "/farm/rss_bytes_max",
            "/plain/gb_per_s",
            "/plain/cpu_s_per_gb",
            "/plain/rss_bytes_max",
            "/ratio/median",
            "/ratio/min",
            "/ratio/max",
        ] {
            assert!(
                row.pointer(pointer)
                    .is_some_and(serde_json::Value::is_number),
                "{pointer}"
            );
        }
        assert_eq!(
            (row["ratio"]["n"].as_u64(), row["trusted"].as_bool()),
            (Some(7), Some(true))
        );
    }
}
