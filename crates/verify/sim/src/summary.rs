//! Results of an experiment: `summary.json`, the machine-readable result of live and simulated runs.
//!
//! One [`Summary`] a result directory, one [`Point`] a row of its question's matrix. Live farms (`lab`) and the
//! simulator write the same fields, so that they can be compared. All figures of a point are means over its accepted
//! runs, unless the field says otherwise. `docs/explanation/simulator.md` documents the file.

use crate::serving::Serving;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the file that this build writes. A reader refuses others.
pub const FORMAT: u32 = 1;

/// A result directory in one file.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Summary {
    /// Version, [`FORMAT`].
    pub format: u32,
    /// Name of the experiment or scenario.
    pub experiment: String,
    /// Origin of the figures: commit, command, machine, kernel, as text. By name, such as `"commit"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub provenance: BTreeMap<String, String>,
    /// The points, in the order of the matrix.
    pub points: Vec<Point>,
}

/// Origin of a point: measured or computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Processes on sockets.
    Live,
    /// The simulator.
    Sim,
}

/// One point of a matrix: its parameters and its results.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Point {
    /// Label for parameters that the rest of the row does not have, such as the name of a scenario; may be empty.
    #[serde(default)]
    pub label: String,
    /// Sources.
    pub flps: u32,
    /// Builders at the beginning.
    pub epns: u32,
    /// TFs in a second.
    pub rate_hz: f64,
    /// Payload bytes of a mean STF of one FLP.
    pub bytes: u64,
    /// Work that comes ÷ the work that the consumers can do, where they take time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Policy that chose the EPN, such as `"round-robin"`.
    pub policy: String,
    /// Reaction to failing EPNs: `whitelist`, `blacklist`, `reinitialise`, `none`.
    pub reaction: String,
    /// `"sheaf"`, or the legacy rules that were in force, such as `"counting-builder+cutoff-20ms"`.
    pub mode: String,
    /// Way of STFs to the EPN: `"eager"` or `"granted"`.
    #[serde(default)]
    pub push: String,
    /// Measured (`"live"`) or computed (`"sim"`).
    pub source: Kind,
    /// How long a run generated, in s.
    #[serde(default)]
    pub duration_s: f64,
    /// Runs that count.
    pub n: u32,
    /// Runs rejected by their own check, such as the window of 29.7 to 30.3 s.
    pub n_rejected: u32,
    /// TFs announced in a run.
    pub announced: f64,
    /// TFs that reached no consumer whole, in a run.
    pub lost_mean: f64,
    /// `lost_mean` in percent of `announced`.
    pub loss_percent: f64,
    /// Lower and upper end of the 95 % confidence interval of `loss_percent` over runs; both equal if n is 1.
    pub loss_percent_ci95: [f64; 2],
    /// TFs in a run that were whole but thrown away, or that reached several EPNs, because of order.
    pub out_of_order: f64,
    /// Payload of TFs with their consumers, in Mbit/s of the time from the first TF to the last commit.
    pub goodput_mbit_s: f64,
    /// First announce of a TF to the commit of it, over all TFs of all runs.
    pub latency_us: Latency,
    /// First announce of a TF to the begin of its processing, over all TFs with consumers that were announced after the
    /// warm-up; of those that still wait at the end, the time until then. `None` where it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_us: Option<Latency>,
    /// First announce of a TF to the end of its processing, over the same TFs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turnaround_us: Option<Latency>,
    /// TFs in a run whose consumers had not finished at its end.
    #[serde(default)]
    pub unprocessed: f64,
    /// TFs in a run that were delivered, and whose EPN died before the consumer had finished.
    #[serde(default)]
    pub died_unprocessed: f64,
    /// Loss in the literature for this point, in percent of TFs.
    pub published_loss_percent: Option<f64>,
    /// Runs that the published loss is the mean of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_runs: Option<u32>,
    /// Standard deviation of the TFs that these lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_sd: Option<f64>,
    /// Note on the published loss.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub published_note: String,
    /// `lost_mean` by cause; the values add up to it. Reasons of drops, `incomplete`, `abandoned`, and the legacy
    /// causes `late-at-run-end`, `out-of-order`, `queue-full`, `dead-epn`.
    #[serde(default)]
    pub lost_by: BTreeMap<String, f64>,
    /// Most bytes that one FLP held at any time of any run.
    #[serde(default)]
    pub flp_peak_bytes: u64,
    /// Most bytes that one EPN held at any time of any run: in building and with its consumer.
    #[serde(default)]
    pub epn_peak_bytes: u64,
    /// Jain's index of TFs by EPN, relative to the speed of each: 1 if all get their share, 1 / EPNs if one gets all.
    #[serde(default)]
    pub fairness: f64,
    /// TFs that were assigned to an EPN a second time, in a run.
    #[serde(default)]
    pub reassigned: f64,
    /// Results of writers of files, in a point that asks them in place of a farm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writers: Option<Writers>,
    /// Results of servers behind one address, in a point that asks them in place of a farm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
}

/// Results of a point of servers behind one address. Means over the runs that count; rates have the scale of the
/// original.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Served {
    /// Question of the point.
    pub asked: Serving,
    /// Why it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Rate of bodies in Gbit/s.
    pub gbit_per_s: f64,
    /// Lower and upper end of the 95 % confidence interval of it over runs; both equal if n is 1.
    pub gbit_per_s_ci95: [f64; 2],
    /// Largest rate of a whole second in any run, in Gbit/s.
    pub gbit_per_s_max: f64,
    /// New connections a second, as measured.
    pub connections_per_s: f64,
    /// Most connections at once in any run.
    pub held_max: u32,
    /// Transfers that finished in a run.
    pub finished: f64,
    /// Transfers that failed in a run, for any reason.
    pub failed: f64,
    /// Transfers that failed in a run on a connection that they had.
    pub broken: f64,
    /// Servers drained and added again, in all runs.
    pub drains: u32,
    /// Jain's index of the bytes of the servers.
    pub jain: f64,
    /// Bytes of the fullest server ÷ mean of all servers.
    pub fullest: f64,
    /// Busy time of all processors of the machine for 10⁹ bytes as measured, in s.
    pub cpu_s_per_gb: f64,
    /// Largest share of the processors that other programs took in user mode in a run.
    pub others_share_max: f64,
    /// Published rates of this point in Gbit/s: average and largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_gbit_per_s: Option<[f64; 2]>,
}

/// Results of a point of writers, at the scale of ATLAS. Means over the runs that count.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Writers {
    /// Name of what was offered: a mix with its drift, or a trace.
    pub input: String,
    /// Name of the mix; empty for a trace.
    pub mix: String,
    /// Workers of a writer.
    pub workers: u32,
    /// Assignment of files to workers.
    pub assignment: String,
    /// Writers.
    pub count: u32,
    /// Policy by which EPNs choose among several writers; empty for one.
    pub policy: String,
    /// Bytes written ÷ time, of all writers together, in MB/s.
    pub mb_per_s: f64,
    /// Lower and upper end of the 95 % confidence interval of it over runs; both equal if n is 1.
    pub mb_per_s_ci95: [f64; 2],
    /// Bound of every assignment of whole files: the rate of one worker ÷ the share of the fullest stream, or that of
    /// all workers together; of all writers.
    pub file_bound_mb_per_s: f64,
    /// Loss of rate against that bound, in percent; below 0 beyond it.
    pub loss_percent: f64,
    /// Share of the bytes of a block that the fullest worker got; of several writers, bytes of the fullest ÷ mean.
    pub fullest: f64,
    /// Published rate of it, in MB/s.
    pub published_mb_per_s: Option<u32>,
}

/// Quantiles of a latency, in µs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Latency {
    /// Half of all TFs are faster.
    pub p50: f64,
    /// 90 % are.
    pub p90: f64,
    /// 99 % are.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

impl Summary {
    /// Returns a summary without points.
    #[must_use]
    pub fn new(experiment: &str) -> Self {
        Self {
            format: FORMAT,
            experiment: experiment.to_owned(),
            provenance: BTreeMap::new(),
            points: Vec::new(),
        }
    }

    /// Reads `summary.json`.
    ///
    /// # Errors
    ///
    /// A [`SummaryError`] if `text` is no summary, or one of another version.
    pub fn read(text: &str) -> Result<Self, SummaryError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let Version { format } = serde_json::from_str(text)?;
        if format != FORMAT {
            return Err(SummaryError::Version { found: format });
        }
        Ok(serde_json::from_str(text)?)
    }

    /// Returns the text of `summary.json`.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("text, numbers and maps keyed by text")
    }
}

/// Error for a file that is no summary.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// No JSON, or a field is missing or of another type.
    #[error("not a summary: {0}")]
    Json(#[from] serde_json::Error),
    /// Another version of Sheaf wrote it.
    #[error("the summary has format {found}, expected {FORMAT}")]
    Version {
        /// The version found.
        found: u32,
    },
}

impl Point {
    /// Columns of the CSV form of a point.
    pub const CSV_HEADER: &'static str = "label,flps,epns,rate_hz,bytes,load,policy,reaction,mode,push,source,\
        duration_s,n,n_rejected,announced,lost_mean,loss_percent,loss_percent_low,loss_percent_high,out_of_order,\
        goodput_mbit_s,latency_us_p50,latency_us_p90,latency_us_p99,latency_us_max,wait_us_p50,wait_us_p99,wait_us_max,\
        turnaround_us_p50,turnaround_us_p99,turnaround_us_max,unprocessed,died_unprocessed,published_loss_percent,\
        flp_peak_bytes,epn_peak_bytes,fairness,reassigned,lost_by";

    /// Returns the point as one CSV row, in the order of [`CSV_HEADER`](Self::CSV_HEADER). `lost_by` is `cause=value`,
    /// joined by `;`.
    #[must_use]
    pub fn csv(&self) -> String {
        let causes: Vec<String> = self
            .lost_by
            .iter()
            .map(|(cause, lost)| format!("{cause}={lost}"))
            .collect();
        let kind = match self.source {
            Kind::Live => "live",
            Kind::Sim => "sim",
        };
        let times = |of: &Option<Latency>| {
            let of = of.as_ref();
            [
                of.map(|times| times.p50.to_string()).unwrap_or_default(),
                of.map(|times| times.p99.to_string()).unwrap_or_default(),
                of.map(|times| times.max.to_string()).unwrap_or_default(),
            ]
            .join(",")
        };
        let cells: [String; 35] = [
            csv_text(&self.label),
            self.flps.to_string(),
            self.epns.to_string(),
            self.rate_hz.to_string(),
            self.bytes.to_string(),
            self.load.map(|load| load.to_string()).unwrap_or_default(),
            csv_text(&self.policy),
            csv_text(&self.reaction),
            csv_text(&self.mode),
            csv_text(&self.push),
            kind.to_owned(),
            self.duration_s.to_string(),
            self.n.to_string(),
            self.n_rejected.to_string(),
            self.announced.to_string(),
            self.lost_mean.to_string(),
            self.loss_percent.to_string(),
            self.loss_percent_ci95[0].to_string(),
            self.loss_percent_ci95[1].to_string(),
            self.out_of_order.to_string(),
            self.goodput_mbit_s.to_string(),
            self.latency_us.p50.to_string(),
            self.latency_us.p90.to_string(),
            self.latency_us.p99.to_string(),
            self.latency_us.max.to_string(),
            times(&self.wait_us),
            times(&self.turnaround_us),
            self.unprocessed.to_string(),
            self.died_unprocessed.to_string(),
            self.published_loss_percent
                .map(|percent| percent.to_string())
                .unwrap_or_default(),
            self.flp_peak_bytes.to_string(),
            self.epn_peak_bytes.to_string(),
            self.fairness.to_string(),
            self.reassigned.to_string(),
            causes.join(";"),
        ];
        cells.join(",")
    }
}

/// Returns a CSV cell: quoted where a comma, quote or line break stands in it.
#[must_use]
pub fn csv_text(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point() -> Point {
        Point {
            label: "a, b".to_owned(),
            flps: 2,
            epns: 5,
            rate_hz: 200.0,
            bytes: 29_000,
            load: Some(0.9),
            policy: "round-robin".to_owned(),
            reaction: "whitelist".to_owned(),
            mode: "sheaf".to_owned(),
            push: "eager".to_owned(),
            source: Kind::Sim,
            duration_s: 30.0,
            n: 3,
            n_rejected: 0,
            announced: 6000.0,
            lost_mean: 1.5,
            loss_percent: 0.025,
            loss_percent_ci95: [0.0, 0.05],
            out_of_order: 0.0,
            goodput_mbit_s: 92.8,
            latency_us: Latency::default(),
            wait_us: Some(Latency::default()),
            turnaround_us: None,
            unprocessed: 0.0,
            died_unprocessed: 1.0,
            published_loss_percent: Some(0.51),
            published_runs: Some(9),
            published_sd: Some(29.3),
            published_note: "printed: 0.52 %".to_owned(),
            lost_by: BTreeMap::from([("source-died".to_owned(), 1.5)]),
            flp_peak_bytes: 1,
            epn_peak_bytes: 2,
            fairness: 1.0,
            reassigned: 0.0,
            writers: None,
            served: None,
        }
    }

    #[test]
    fn a_summary_comes_back_as_it_was_written() {
        let mut summary = Summary::new("tables");
        summary.points.push(point());
        assert_eq!(Summary::read(&summary.to_json()).unwrap(), summary);
        assert!(summary.to_json().contains("\"source\": \"sim\""));
    }

    #[test]
    fn a_summary_of_another_version_or_of_none_is_refused_with_the_reason() {
        let text = Summary::new("tables").to_json().replace(": 1,", ": 2,");
        let error = Summary::read(&text).unwrap_err().to_string();
        assert_eq!(error, "the summary has format 2, expected 1");
        let error = Summary::read("{}").unwrap_err().to_string();
        assert!(error.contains("missing field `format`"), "{error}");
    }

    #[test]
    fn a_csv_row_has_as_many_cells_as_the_header_even_if_a_label_has_a_comma() {
        let columns = Point::CSV_HEADER.split(',').count();
        let row = point().csv();
        assert!(row.starts_with("\"a, b\",2,5,"), "{row}");
        assert_eq!(
            row.split(',').count(),
            columns + 1,
            "the comma in the label"
        );
        assert!(!Point::CSV_HEADER.contains(' '), "no blanks of the source");
    }
}
