//! Results of the pairs of runs, for machines (`docs/how-to/bench.md` describes every field).

use super::options::{Options, Security, Shape};
use super::plain::PlainRun;
use super::run::FarmRun;
use crate::cpus::Cpus;
use crate::report::{self, BUSY_RATIO_MAX, Head, PAIRS_TRUSTED_MIN};
use serde::Serialize;
use sheaf_figures::stat::Spread;
use sheaf_node::config::{PayloadDigest, Threads};
use sheaf_node::status::Quantiles;
use std::fmt;

/// Farm that a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// Nodes.
    pub(crate) shape: Shape,
    /// Payload bytes of an STF.
    pub(crate) stf_bytes: u64,
    /// Protection.
    pub(crate) security: Security,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shape, bytes, security) = (self.shape, self.stf_bytes, self.security);
        write!(f, "{shape}, {bytes} bytes, {security}")
    }
}

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

/// Report of the benchmark, as `--json` writes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub(super) head: Head,
    /// Threads that move STFs in each node.
    pub(super) threads: Threads,
    /// Whether EPNs read STFs in the memory of FLPs.
    pub(super) shared_memory: bool,
    /// Payloads whose digest EPNs compute.
    pub(super) digest: PayloadDigest,
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Makes the report of `rows`.
    pub(crate) fn new(options: &Options, cpus: &Cpus, rows: Vec<Row>) -> Self {
        Self {
            head: Head::new(cpus, options.seconds, options.warm_up_seconds),
            threads: options.threads,
            shared_memory: options.shared_memory,
            digest: options.digest,
            rows,
        }
    }

    /// Returns the report for machines.
    #[must_use]
    pub fn to_json(&self) -> String {
        report::to_json(self)
    }
}

/// One shape and size. Figures are medians over the pairs kept; without one, over all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(super) shape: String,
    pub(super) stf_bytes: u64,
    pub(super) security: Security,
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
    #[serde(flatten)]
    pub(super) kept: Spread,
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
    pub(crate) fn new(point: Point, congestion: Congestion, pairs: &[Pair]) -> Self {
        let kept: Vec<&Pair> = pairs.iter().filter(|pair| pair.is_kept()).collect();
        let shown = if kept.is_empty() {
            pairs.iter().collect()
        } else {
            kept.clone()
        };
        let ratio = Ratio {
            kept: Spread::of(kept.iter().map(|pair| pair.ratio())),
            dropped: pairs.len() - kept.len(),
        };
        Self {
            shape: point.shape.to_string(),
            stf_bytes: point.stf_bytes,
            security: point.security,
            farm: FarmFigures::of(&shown),
            plain: PlainFigures::of(&shown),
            trusted: ratio.kept.n >= PAIRS_TRUSTED_MIN && congestion.farm == congestion.plain,
            ratio,
            congestion,
            pairs: pairs.iter().map(PairFigures::of).collect(),
        }
    }
}

impl FarmFigures {
    fn of(pairs: &[&Pair]) -> Self {
        let middle = |of: fn(&FarmRun) -> f64| {
            Spread::of(pairs.iter().map(|pair| of(&pair.farm)))
                .median
                .unwrap_or(0.0)
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
            Spread::of(pairs.iter().map(|pair| of(&pair.plain)))
                .median
                .unwrap_or(0.0)
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

#[cfg(test)]
pub(crate) mod tests {
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
        let point = Point {
            shape: Shape { flps: 1, epns: 1 },
            stf_bytes: 1_000_000,
            security: Security::Tls,
        };
        Row::new(point, congestion, pairs)
    }

    pub(crate) fn pairs(n: usize) -> Vec<Pair> {
        (0..n)
            .map(|i| pair(4.0 + i as f64 / 10.0, 5.0, 1.0))
            .collect()
    }

    pub(crate) fn report(rows: Vec<Row>) -> Report {
        let cpus = Cpus::allowed(false).unwrap();
        Report::new(&Options::default(), &cpus, rows)
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
        assert_eq!((row.ratio.kept.n, row.ratio.dropped), (2, 1));
        assert_eq!(
            (row.ratio.kept.min, row.ratio.kept.max),
            (Some(0.8), Some(0.9))
        );
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
        assert_eq!((row.ratio.kept.median, row.ratio.dropped), (None, 1));
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
        assert_eq!(row["security"], "tls");
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
