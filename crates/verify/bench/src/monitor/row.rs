//! Rows of the report.

use crate::report::{Head, to_json};
use serde::Serialize;
use sheaf_figures::stat;
use std::fmt;

/// Results of the benchmark of the collector.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    #[serde(flatten)]
    pub(crate) head: Head,
    /// A row for each measurement.
    pub rows: Vec<Row>,
    /// Names of what was not measured, with the reason.
    pub skipped: Vec<String>,
}

/// One measurement. `None`, in JSON `null`: the row does not measure it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `sheaf`, `victoriametrics`, `influxdb` or `prometheus`.
    pub server: &'static str,
    /// How points came in.
    pub protocol: &'static str,
    /// Series written.
    pub series: u32,
    /// Lines of a datagram.
    pub points_per_datagram: Option<u32>,
    /// Points a second that the generator was asked to send.
    pub offered_per_s: Option<u64>,
    /// Share of the points sent that the server has stored.
    pub stored_percent: Option<f64>,
    /// Points stored, divided by the time of the generator.
    pub points_per_s: Option<f64>,
    /// CPU time of the server for a million points stored, in s.
    pub cpu_s_per_million: Option<f64>,
    /// Largest resident memory of the server.
    pub rss_bytes_max: Option<u64>,
    /// Bytes on disk, index included, after the server has ended.
    pub bytes_per_point: Option<f64>,
    /// Time from sending a point to a query that answers with it.
    pub visible_ms: Option<Times>,
    /// Time from sending a point to an alarm.
    pub alarm_ms: Option<Times>,
    /// Time from sending a point to a frame of the live stream that has it.
    pub display_ms: Option<Times>,
    /// Averages over a minute, for an hour: of one series, and of all hosts of a name to one line; medians.
    pub query_ms: Option<QueryTimes>,
}

/// Quantiles of times, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Times {
    /// Median.
    pub p50: f64,
    /// Time that 99 % do not exceed.
    pub p99: f64,
    /// Number of times.
    pub count: usize,
}

/// Times of queries, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct QueryTimes {
    /// One series.
    pub one: f64,
    /// All hosts of a name, to one line.
    pub many: f64,
}

impl Times {
    /// Returns the quantiles of `values`; `None` without any.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        Some(Self {
            p50: stat::quantile(values, 0.5)?,
            p99: stat::quantile(values, 0.99)?,
            count: values.len(),
        })
    }
}

impl Row {
    pub(crate) fn new(server: &'static str, protocol: &'static str, series: u32) -> Self {
        Self {
            server,
            protocol,
            series,
            points_per_datagram: None,
            offered_per_s: None,
            stored_percent: None,
            points_per_s: None,
            cpu_s_per_million: None,
            rss_bytes_max: None,
            bytes_per_point: None,
            visible_ms: None,
            alarm_ms: None,
            display_ms: None,
            query_ms: None,
        }
    }
}

impl Report {
    /// Returns the report as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        let head = [
            "server",
            "protocol",
            "series",
            "a datagram",
            "offered/s",
            "stored %",
            "points/s",
            "CPU s/M",
            "RSS MiB",
            "B/point",
            "visible ms",
            "alarm ms",
            "display ms",
            "query ms",
        ];
        writeln!(f, "{}", head.map(|word| format!("{word:>15}")).join(""))?;
        for row in &self.rows {
            let real = |value: Option<f64>, places: usize| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.places$}"))
            };
            let times = |times: Option<Times>| {
                times.map_or_else(
                    || "-".to_owned(),
                    |times| format!("{:.1}/{:.1}", times.p50, times.p99),
                )
            };
            let words = [
                row.server.to_owned(),
                row.protocol.to_owned(),
                row.series.to_string(),
                row.points_per_datagram
                    .map_or_else(|| "-".to_owned(), |points| points.to_string()),
                real(row.offered_per_s.map(|rate| rate as f64), 0),
                real(row.stored_percent, 2),
                real(row.points_per_s, 0),
                real(row.cpu_s_per_million, 2),
                real(
                    row.rss_bytes_max
                        .map(|bytes| bytes as f64 / f64::from(1 << 20)),
                    0,
                ),
                real(row.bytes_per_point, 2),
                times(row.visible_ms),
                times(row.alarm_ms),
                times(row.display_ms),
                row.query_ms.map_or_else(
                    || "-".to_owned(),
                    |times| format!("{:.1}/{:.1}", times.one, times.many),
                ),
            ];
            writeln!(f, "{}", words.map(|word| format!("{word:>15}")).join(""))?;
        }
        for line in &self.skipped {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_all_fields_and_null_where_nothing_was_measured() {
        let mut row = Row::new("sheaf", "udp-lines", 10);
        row.visible_ms = Times::of(&[1.0, 2.0, 3.0]);
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json["server"], "sheaf");
        assert!(json["alarm_ms"].is_null() && json["query_ms"].is_null());
        assert_eq!(json["visible_ms"]["p50"], 2.0);
        assert_eq!(json.as_object().unwrap().len(), 14);
        assert_eq!(Times::of(&[]), None);
    }
}
