//! Rows for machines: what the runs of one transport gave, and whether it can be trusted.

use super::kinds::Kind;
use super::options::{Options, Path, Side};
use super::rig::{Case, RunFigures};
use crate::cpus::Cpus;
use crate::report::{self, BUSY_RATIO_MAX, Head, PAIRS_TRUSTED_MIN};
use peer_harness::Latency;
use serde::Serialize;
use sheaf_figures::stat::Spread;

/// Bytes of a pool from which on it does not fit the caches.
const COLD_BYTES_MIN: usize = 128 << 20;

/// One run, and the plain run of the same round.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) figures: RunFigures,
    pub(crate) plain: Option<RunFigures>,
}

impl Run {
    /// Whether the machine did nothing else, in this run and in the plain one.
    pub(crate) fn is_kept(&self) -> bool {
        let is_quiet = |figures: &RunFigures| figures.busy_ratio <= BUSY_RATIO_MAX;
        is_quiet(&self.figures) && self.plain.as_ref().is_none_or(is_quiet)
    }

    fn ratio(&self) -> Option<f64> {
        let plain = self.plain.as_ref()?;
        Some(self.figures.mb_per_s / plain.mb_per_s)
    }
}

/// Under which runs were done.
#[derive(Clone, Debug)]
pub(crate) struct Conditions<'a> {
    pub(crate) path: Path,
    pub(crate) congestion_wanted: &'a str,
    /// Of a socket that asked for none.
    pub(crate) congestion: &'a str,
    pub(crate) stage_doubt: Option<&'a str>,
    pub(crate) is_pinned: bool,
    pub(crate) failed: Option<String>,
}

/// The report of a benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub(crate) head: Head,
    pub(crate) rows: Vec<Row>,
    /// Transports that are not there, and why.
    pub(crate) skipped: Vec<String>,
}

/// One transport in one case. Medians are over the kept runs; if there is none, over all.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Senders-receivers.
    pub(crate) shape: String,
    pub(crate) path: Path,
    pub(crate) transport: &'static str,
    /// Of a message.
    pub(crate) bytes: usize,
    /// Processes of the larger side.
    pub(crate) peers: usize,
    pub(crate) mb_per_s: Spread,
    pub(crate) msgs_per_s: f64,
    pub(crate) cpu_s_per_gb: f64,
    pub(crate) cpu_s_per_gb_senders: f64,
    pub(crate) cpu_s_per_gb_receivers: f64,
    /// The most of all runs, both sides.
    pub(crate) rss_bytes_max: u64,
    pub(crate) rss_bytes_max_receivers: u64,
    pub(crate) jain: f64,
    pub(crate) share_min_max: f64,
    /// Messages in the window of the process that had the least, in the run where it had the least.
    pub(crate) messages_least: u64,
    /// Medians of the quantiles; the longest of all runs. `null` where nothing is timed.
    pub(crate) latency_us: Option<Latency>,
    /// Of the plain runs of the same rounds.
    pub(crate) ratio: Spread,
    /// Runs in which the machine was busy with others.
    pub(crate) dropped: usize,
    pub(crate) busy_ratio: f64,
    pub(crate) lost: u64,
    /// Messages that may be queued for a connection.
    pub(crate) queue: usize,
    pub(crate) binds: Side,
    pub(crate) congestion: String,
    pub(crate) library: String,
    pub(crate) trusted: bool,
    /// Why it is not trusted.
    pub(crate) doubts: Vec<String>,
    /// Why there is no result.
    pub(crate) skipped: Option<String>,
}

impl Report {
    pub(crate) fn new(
        options: &Options,
        cpus: &Cpus,
        rows: Vec<Row>,
        skipped: Vec<String>,
    ) -> Self {
        Self {
            head: Head::new(cpus, options.seconds, options.warm_up_seconds),
            rows,
            skipped,
        }
    }

    /// Returns the report for machines.
    #[must_use]
    pub fn to_json(&self) -> String {
        report::to_json(self)
    }
}

impl Row {
    pub(crate) fn new(
        kind: &'static Kind,
        case: &Case,
        runs: &[Run],
        conditions: &Conditions<'_>,
    ) -> Self {
        let kept: Vec<&Run> = runs.iter().filter(|run| run.is_kept()).collect();
        let used = if kept.is_empty() {
            runs.iter().collect()
        } else {
            kept.clone()
        };
        let spread =
            |of: &dyn Fn(&RunFigures) -> f64| Spread::of(used.iter().map(|run| of(&run.figures)));
        let middle = |of: &dyn Fn(&RunFigures) -> f64| spread(of).median.unwrap_or(0.0);
        let most =
            |of: fn(&RunFigures) -> u64| runs.iter().map(|run| of(&run.figures)).max().unwrap_or(0);
        let least = used.iter().map(|run| run.figures.messages_least).min();
        let last = runs.last().map(|run| &run.figures);
        let congestion = last.and_then(|figures| figures.congestion.clone());
        let congestion = congestion.unwrap_or_else(|| conditions.congestion.to_owned());
        let mb_per_s = spread(&|figures| figures.mb_per_s);
        let mut row = Self {
            shape: case.shape.to_string(),
            path: conditions.path,
            transport: kind.name,
            bytes: case.bytes,
            peers: case.shape.peers(),
            mb_per_s,
            msgs_per_s: mb_per_s.median.unwrap_or(0.0) * 1e6 / case.bytes as f64,
            cpu_s_per_gb: middle(&|figures| figures.cpu_s_per_gb),
            cpu_s_per_gb_senders: middle(&|figures| figures.cpu_s_per_gb_senders),
            cpu_s_per_gb_receivers: middle(&|figures| figures.cpu_s_per_gb_receivers),
            rss_bytes_max: most(|figures| figures.rss_bytes_max),
            rss_bytes_max_receivers: most(|figures| figures.rss_bytes_max_receivers),
            jain: middle(&|figures| figures.jain),
            share_min_max: middle(&|figures| figures.share_min_max),
            messages_least: least.unwrap_or(0),
            latency_us: latency(&used),
            ratio: Spread::of(used.iter().filter_map(|run| run.ratio())),
            dropped: runs.len() - kept.len(),
            busy_ratio: middle(&|figures| figures.busy_ratio),
            lost: most(|figures| figures.lost),
            queue: case.queue(),
            binds: case.binds,
            congestion,
            library: last
                .map(|figures| figures.version.clone())
                .unwrap_or_default(),
            trusted: false,
            doubts: Vec::new(),
            skipped: conditions.failed.clone(),
        };
        row.doubts = row.doubts(kind, case, kept.len(), conditions);
        row.trusted = row.doubts.is_empty() && row.skipped.is_none();
        row
    }

    fn doubts(
        &self,
        kind: &Kind,
        case: &Case,
        kept: usize,
        conditions: &Conditions<'_>,
    ) -> Vec<String> {
        let mut doubts = Vec::new();
        if kept < PAIRS_TRUSTED_MIN {
            let dropped = self.dropped;
            doubts.push(format!(
                "{kept} undisturbed pairs, expected {PAIRS_TRUSTED_MIN} ({dropped} dropped)"
            ));
        }
        if self.congestion != conditions.congestion_wanted {
            let (found, wanted) = (&self.congestion, conditions.congestion_wanted);
            doubts.push(format!("congestion control {found}, expected {wanted}"));
        }
        doubts.extend(conditions.stage_doubt.map(str::to_owned));
        if !conditions.is_pinned {
            doubts.push("not pinned".to_owned());
        }
        if !kind.is_checked {
            doubts.push("one hot buffer, nothing is checked on arrival".to_owned());
        } else if cold_bytes(case) < COLD_BYTES_MIN {
            doubts.push(format!(
                "buffers fit the caches, expected {COLD_BYTES_MIN} bytes"
            ));
        }
        if self.lost > 0 {
            doubts.push(format!("{} messages were sent and never came", self.lost));
        }
        doubts
    }
}

/// Memory that is walked, on the side that has less of it.
fn cold_bytes(case: &Case) -> usize {
    let shape = case.shape;
    (case.pool_bytes() * shape.senders).min(case.receive_bytes() * shape.receivers)
}

fn latency(runs: &[&Run]) -> Option<Latency> {
    let all: Vec<Latency> = runs
        .iter()
        .filter_map(|run| run.figures.latency_us)
        .collect();
    let middle = |of: fn(&Latency) -> f64| Spread::of(all.iter().map(of)).median;
    Some(Latency {
        p50: middle(|one| one.p50)?,
        p99: middle(|one| one.p99)?,
        max: all.iter().map(|one| one.max).fold(0.0, f64::max),
        n: all.iter().map(|one| one.n).sum(),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::kinds::KINDS;
    use super::*;

    pub(crate) fn case() -> Case {
        Case {
            shape: "240-1".parse().unwrap(),
            bytes: 1_000_000,
            queue: 5,
            binds: Side::Receiver,
            pool_bytes: 256 << 20,
            receive_bytes: 256 << 20,
        }
    }

    fn run(mb_per_s: f64, plain: f64, busy_ratio: f64) -> Run {
        let figures = RunFigures {
            mb_per_s,
            cpu_s_per_gb: 0.25,
            rss_bytes_max: 500,
            jain: 0.9995,
            busy_ratio,
            congestion: Some("cubic".to_owned()),
            latency_us: Some(Latency {
                p50: 10.0,
                p99: 20.0,
                max: mb_per_s,
                n: 5,
            }),
            ..RunFigures::default()
        };
        let plain = Some(RunFigures {
            mb_per_s: plain,
            ..figures.clone()
        });
        Run { figures, plain }
    }

    pub(crate) fn runs(n: usize) -> Vec<Run> {
        (0..n)
            .map(|i| run(4000.0 + 100.0 * i as f64, 5000.0, 1.0))
            .collect()
    }

    pub(crate) fn row(runs: &[Run], congestion_wanted: &str, failed: Option<&str>) -> Row {
        let conditions = Conditions {
            path: Path::Loopback,
            congestion_wanted,
            congestion: "bbr",
            stage_doubt: None,
            is_pinned: true,
            failed: failed.map(str::to_owned),
        };
        Row::new(&KINDS[1], &case(), runs, &conditions)
    }

    pub(crate) fn report(rows: Vec<Row>) -> Report {
        let cpus = Cpus::allowed(false).unwrap();
        Report::new(
            &Options::default(),
            &cpus,
            rows,
            vec!["nng: not there".to_owned()],
        )
    }

    #[test]
    fn a_disturbed_pair_has_no_part_in_the_figures() {
        let row = row(
            &[
                run(4000.0, 5000.0, 1.0),
                run(1.0, 5000.0, 1.2),
                run(4500.0, 5000.0, 1.1),
            ],
            "cubic",
            None,
        );
        assert_eq!(
            (row.ratio.min, row.ratio.max, row.ratio.n),
            (Some(0.8), Some(0.9), 2)
        );
        assert_eq!((row.mb_per_s.median, row.dropped), (Some(4250.0), 1));
        assert_eq!(
            (row.msgs_per_s, row.latency_us.unwrap().max),
            (4250.0, 4500.0)
        );
    }

    #[test]
    fn a_row_is_trusted_if_there_is_no_doubt() {
        assert!(row(&runs(7), "cubic", None).trusted);
        for (row, doubt) in [
            (
                row(&runs(6), "cubic", None),
                "6 undisturbed pairs, expected 7",
            ),
            (
                row(&runs(7), "reno", None),
                "congestion control cubic, expected reno",
            ),
        ] {
            assert!(
                !row.trusted && row.doubts[0].contains(doubt),
                "{:?}",
                row.doubts
            );
        }
        let failed = row(&[], "cubic", Some("it refuses"));
        assert!(!failed.trusted && failed.skipped.is_some() && failed.mb_per_s.median.is_none());
    }

    #[test]
    fn the_json_has_the_documented_fields() {
        let text = report(vec![row(&runs(7), "cubic", None)]).to_json();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let row = &json["rows"][0];
        assert_eq!(
            [
                &row["shape"],
                &row["path"],
                &row["transport"],
                &row["binds"]
            ]
            .map(|one| one.as_str().unwrap()),
            ["240-1", "loopback", "sheaf", "receiver"]
        );
        assert_eq!(
            (row["bytes"].as_u64(), row["peers"].as_u64()),
            (Some(1_000_000), Some(240))
        );
        assert_eq!(row["trusted"].as_bool(), Some(true));
        for pointer in [
            "/mb_per_s/median",
            "/mb_per_s/min",
            "/mb_per_s/max",
            "/mb_per_s/n",
            "/msgs_per_s",
            "/cpu_s_per_gb",
            "/rss_bytes_max",
            "/jain",
            "/ratio/median",
            "/latency_us/p99",
            "/queue",
        ] {
            assert!(
                row.pointer(pointer)
                    .is_some_and(serde_json::Value::is_number),
                "{pointer}"
            );
        }
        assert_eq!(json["skipped"][0], "nng: not there");
    }
}
