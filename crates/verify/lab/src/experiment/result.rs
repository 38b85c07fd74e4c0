//! Result of one run.

use serde::{Deserialize, Serialize};
use sheaf_sim::des::Waits;
use sheaf_sim::experiment::LiveSettings;
use sheaf_sim::summary::Latency;
use std::collections::BTreeMap;

pub use crate::times::{LATENCY_POINTS, Times};

/// One run of one trial, as its file has it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunResult {
    /// The trial.
    pub trial: String,
    /// Which run of it, from 1.
    pub iteration: u32,
    /// Which attempt at it, from 1.
    pub attempt: u32,
    /// Seed of the run.
    pub seed: u64,
    /// When it began, in s since 1970.
    pub began_unix_s: u64,
    /// How long it took with start and end, in s.
    pub wall_s: f64,
    /// Why it does not count.
    pub rejected: Option<String>,
    /// Why it was not made, nor any other of its trial; attempt 0 then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// How long TFs were called for: from the first to the last and one period, in s.
    pub generation_s: f64,
    /// TFs that were called for.
    pub announced: u64,
    /// TFs that reached no consumer whole.
    pub lost: u64,
    /// These, by cause.
    pub lost_by: BTreeMap<String, u64>,
    /// TFs that were whole but thrown away because of order, or whose parts went to several EPNs.
    pub out_of_order: u64,
    /// TFs whose parts went to several EPNs.
    pub mixed_target: u64,
    /// TFs delivered more than once.
    pub delivered_twice: u64,
    /// Rate that the sources generated, in Mbit/s.
    pub offered_mbit_s: f64,
    /// Payload of whole TFs over the time from the first TF to the last commit, in Mbit/s.
    pub goodput_mbit_s: f64,
    /// From the first TF to the last commit, in s.
    pub span_s: f64,
    /// First announce to commit, in µs.
    pub latency_us: Latency,
    /// The same as [`LATENCY_POINTS`] quantiles, from the fastest to the slowest.
    pub latency_quantiles_us: Vec<f64>,
    /// Waits for consumers, of a run that has a record of every TF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitsRun>,
    /// Whole TFs by EPN.
    pub tfs_by_epn: Vec<u64>,
    /// Jain's index of these, each relative to the speed of its EPN.
    pub fairness: f64,
    /// Assignments after the first one of a TF.
    pub reassigned: u64,
    /// Most bytes that one FLP held.
    pub flp_peak_bytes: u64,
    /// Most bytes that one EPN held.
    pub epn_peak_bytes: u64,
    /// Faults done.
    pub faults: u64,
    /// Processors of the machine during the run, if it was live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineRun>,
    /// Problems of the accounting or the nodes; a run with problems is a finding, and counts.
    pub problems: Vec<String>,
    /// Result of writers of files, in a run that asks them in place of a farm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writers: Option<WritersRun>,
    /// Result of servers behind one address, in a run that asks them in place of a farm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<ServersRun>,
}

/// Processors of the machine during a live run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MachineRun {
    /// Share of them that other programs took in user mode, in percent.
    pub others_percent: f64,
    /// Share of them that the hypervisor took, in percent.
    pub steal_percent: f64,
    /// Share of the time in which some task waited for one, in percent; none where the kernel does not tell.
    pub pressure_percent: Option<f64>,
}

impl MachineRun {
    /// Returns why a run on it does not count; `None` if the farm had the processors.
    pub(crate) fn starved(&self, live: &LiveSettings) -> Option<String> {
        let Self {
            others_percent,
            steal_percent,
            pressure_percent,
        } = self;
        if others_percent + steal_percent > live.others_percent_max {
            let most = live.others_percent_max;
            return Some(format!(
                "other programs took {others_percent:.1} % and the hypervisor {steal_percent:.1} % of the processors, \
                 expected at most {most} % together"
            ));
        }
        let waited = pressure_percent.filter(|waited| *waited > live.pressure_percent_max)?;
        let most = live.pressure_percent_max;
        Some(format!(
            "some task waited for a processor in {waited:.0} % of the time, expected at most {most} %"
        ))
    }
}

/// Waits of the TFs of one run that were announced after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WaitsRun {
    /// Announce to the begin of processing; of TFs that wait at the end, the time until then.
    pub wait: Times,
    /// Announce to the end of processing; of TFs that are not done at the end, the time until then.
    pub turnaround: Times,
    /// TFs with consumers that had not finished at the end.
    pub unprocessed: u64,
    /// TFs with consumers that died before they had finished.
    pub died_unprocessed: u64,
}

impl WaitsRun {
    /// Returns the distributions of `waits`.
    pub(crate) fn of(waits: &Waits) -> Self {
        let times = |ns: &[u64]| Times::of(ns.iter().map(|ns| *ns as f64 / 1e3).collect());
        Self {
            wait: times(&waits.waits_ns),
            turnaround: times(&waits.turnarounds_ns),
            unprocessed: waits.unprocessed,
            died_unprocessed: waits.died_unprocessed,
        }
    }
}

/// Result of servers behind one address in one run; rates have the scale of the original.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ServersRun {
    /// Rate of bodies in Gbit/s.
    pub gbit_per_s: f64,
    /// Largest rate of a whole second in Gbit/s.
    pub gbit_per_s_max: f64,
    /// New connections a second, as measured.
    pub connections_per_s: f64,
    /// Most connections at once.
    pub held_max: u32,
    /// Transfers that finished.
    pub finished: u64,
    /// Transfers that failed on a connection that they had.
    pub broken: u64,
    /// Servers drained and added again.
    pub drains: u32,
    /// Busy time of all processors of the machine for 10⁹ bytes as measured, in s.
    pub cpu_s_per_gb: f64,
    /// Share of the processors that other programs took in user mode.
    pub others_share: f64,
    /// Bytes of each server, as measured; 0 of servers that answered nothing.
    pub bytes: Vec<u64>,
}

/// Result of writers in one run, at the scale of ATLAS.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WritersRun {
    /// Bytes written ÷ time, of all writers together, in MB/s.
    pub mb_per_s: f64,
    /// Bound of every assignment of whole files, in MB/s.
    pub file_bound_mb_per_s: f64,
    /// Share of the bytes of a block that the fullest worker got; of several writers, bytes of the fullest ÷ mean.
    pub fullest: f64,
    /// Files.
    pub files: u64,
    /// Bytes of each writer, or of each worker of a single live one; empty for a single simulated one.
    pub bytes: Vec<u64>,
}

impl RunResult {
    /// Whether it counts.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.rejected.is_none() && self.skipped.is_none()
    }

    /// TFs lost, in percent.
    #[must_use]
    pub fn loss_percent(&self) -> f64 {
        percent(self.lost as f64, self.announced as f64)
    }

    /// Takes in latencies, in µs.
    pub(crate) fn set_latencies(&mut self, values: Vec<f64>) {
        let times = Times::of(values);
        self.latency_us = times.us;
        self.latency_quantiles_us = times.quantiles_us;
    }

    /// Columns of the CSV form.
    pub const CSV_HEADER: &'static str = "trial,iteration,attempt,valid,rejected,seed,began_unix_s,wall_s,generation_s,\
        announced,lost,loss_percent,out_of_order,mixed_target,delivered_twice,offered_mbit_s,goodput_mbit_s,span_s,\
        latency_us_p50,latency_us_p90,latency_us_p99,latency_us_max,wait_us_p50,wait_us_p90,wait_us_p99,\
        turnaround_us_p99,unprocessed,died_unprocessed,reassigned,flp_peak_bytes,epn_peak_bytes,faults,\
        others_percent,steal_percent,pressure_percent,lost_by,tfs_by_epn,problems";

    /// The run as one CSV row.
    #[must_use]
    pub fn csv(&self) -> String {
        let causes: Vec<String> = self
            .lost_by
            .iter()
            .map(|(cause, lost)| format!("{cause}={lost}"))
            .collect();
        let by_epn: Vec<String> = self.tfs_by_epn.iter().map(u64::to_string).collect();
        let latency = &self.latency_us;
        let wait = |value: fn(&WaitsRun) -> f64| {
            let value = self.waits.as_ref().map(value);
            value.map_or(String::new(), |value| format!("{value:.1}"))
        };
        let tfs = |value: fn(&WaitsRun) -> u64| {
            let value = self.waits.as_ref().map(value);
            value.map_or(String::new(), |value| value.to_string())
        };
        let machine = |value: fn(&MachineRun) -> Option<f64>| {
            let value = self.machine.as_ref().and_then(value);
            value.map_or(String::new(), |value| format!("{value:.2}"))
        };
        let cells = [
            self.trial.clone(),
            self.iteration.to_string(),
            self.attempt.to_string(),
            self.is_valid().to_string(),
            cell(
                self.rejected
                    .as_deref()
                    .or(self.skipped.as_deref())
                    .unwrap_or_default(),
            ),
            self.seed.to_string(),
            self.began_unix_s.to_string(),
            format!("{:.3}", self.wall_s),
            format!("{:.4}", self.generation_s),
            self.announced.to_string(),
            self.lost.to_string(),
            format!("{:.4}", self.loss_percent()),
            self.out_of_order.to_string(),
            self.mixed_target.to_string(),
            self.delivered_twice.to_string(),
            format!("{:.3}", self.offered_mbit_s),
            format!("{:.3}", self.goodput_mbit_s),
            format!("{:.4}", self.span_s),
            format!("{:.1}", latency.p50),
            format!("{:.1}", latency.p90),
            format!("{:.1}", latency.p99),
            format!("{:.1}", latency.max),
            wait(|waits| waits.wait.us.p50),
            wait(|waits| waits.wait.us.p90),
            wait(|waits| waits.wait.us.p99),
            wait(|waits| waits.turnaround.us.p99),
            tfs(|waits| waits.unprocessed),
            tfs(|waits| waits.died_unprocessed),
            self.reassigned.to_string(),
            self.flp_peak_bytes.to_string(),
            self.epn_peak_bytes.to_string(),
            self.faults.to_string(),
            machine(|machine| Some(machine.others_percent)),
            machine(|machine| Some(machine.steal_percent)),
            machine(|machine| machine.pressure_percent),
            causes.join(";"),
            by_epn.join(";"),
            cell(&self.problems.join("; ")),
        ];
        cells.join(",")
    }
}

/// `part` in percent of `whole`; 0 of nothing.
pub(crate) fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        100.0 * part / whole
    } else {
        0.0
    }
}

/// A CSV cell: quoted where it has to be.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csv_row_has_as_many_cells_as_its_header() {
        let run = RunResult {
            trial: "001".to_owned(),
            problems: vec!["one, two".to_owned()],
            ..RunResult::default()
        };
        let commas_in_quotes = 1;
        let cells = run.csv().split(',').count() - commas_in_quotes;
        assert_eq!(cells, RunResult::CSV_HEADER.split(',').count());
        assert!(!RunResult::CSV_HEADER.contains(' '));
    }

    #[test]
    fn a_run_without_processors_does_not_count() {
        let live = LiveSettings::default();
        let quiet = MachineRun {
            others_percent: 6.0,
            steal_percent: 3.9,
            pressure_percent: Some(50.0),
        };
        assert_eq!(quiet.starved(&live), None);
        let robbed = MachineRun {
            steal_percent: 4.1,
            ..quiet
        };
        let why = robbed.starved(&live).unwrap();
        assert!(why.contains("expected at most 10 % together"), "{why}");
        let crowded = MachineRun {
            pressure_percent: Some(51.0),
            ..quiet
        };
        let why = crowded.starved(&live).unwrap();
        assert!(
            why.contains("in 51 % of the time, expected at most 50 %"),
            "{why}"
        );
    }

    #[test]
    fn latencies_are_kept_as_quantiles() {
        let mut run = RunResult::default();
        run.set_latencies((1..=1000).rev().map(f64::from).collect());
        assert_eq!(run.latency_us.p50, 500.0);
        assert_eq!((run.latency_us.p99, run.latency_us.max), (990.0, 1000.0));
        assert_eq!(run.latency_quantiles_us.len(), LATENCY_POINTS);
        run.set_latencies(Vec::new());
        assert!(run.latency_quantiles_us.is_empty());
    }
}
