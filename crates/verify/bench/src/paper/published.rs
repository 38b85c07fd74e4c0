//! Published figures: what each row is held against, and where it is printed.

use serde::{Deserialize, Serialize};

/// A published figure, or a requirement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Part that it stands beside.
    pub part: String,
    /// Case that it stands beside.
    pub case: String,
    /// Figure of the case that it stands beside.
    pub figure: String,
    /// Value and unit, as they are shown.
    pub text: String,
    /// The same as a number, for the ratio; `None` if rows have no such figure.
    pub value: Option<f64>,
    /// System that was measured.
    pub system: String,
    /// Paper, and table, figure or section.
    pub from: String,
}

const PAPER: &str = "Modular Stack paper (2017)";
const REPORT: &str = "founding report (2019)";

/// Returns all of them.
pub(crate) fn published() -> Vec<Published> {
    let row = |of: [&str; 3], text: &str, value: Option<f64>, system: &str, from: String| {
        let [part, case, figure] = of.map(str::to_owned);
        Published {
            part,
            case,
            figure,
            text: text.to_owned(),
            value,
            system: system.to_owned(),
            from,
        }
    };
    let paper = |section: &str| format!("{PAPER}, {section}");
    vec![
        row(
            ["scenarios", "pass-through", "points_per_s"],
            "207 kHz",
            Some(207_000.0),
            "one Spark behind Flume, values not modified",
            paper("Metric rate, configuration 4"),
        ),
        row(
            ["scenarios", "pass-through", "points_per_s"],
            "400 kHz",
            Some(400_000.0),
            "Flume and InfluxDB, four streams, \"acceptable metric loss\"",
            paper("figure 8"),
        ),
        row(
            ["scenarios", "pass-through, one a datagram", "points_per_s"],
            "121 kHz",
            Some(121_000.0),
            "Flume, one UDP source, null sink, no interrupts on its node",
            paper("table 1"),
        ),
        row(
            ["scenarios", "pass-through, one a datagram", "points_per_s"],
            "142 kHz",
            Some(142_000.0),
            "InfluxDB on a hard disk, one UDP listener",
            paper("figure 6"),
        ),
        row(
            ["scenarios", "edit", "points_per_s"],
            "106 kHz",
            Some(106_000.0),
            "Flume, one UDP source, interceptor that adds a time stamp",
            paper("table 1"),
        ),
        row(
            ["scenarios", "average", "points_per_s"],
            "180 kHz",
            Some(180_000.0),
            "one Spark behind Flume, average over 1000 ms",
            paper("Metric rate, configuration 4"),
        ),
        row(
            ["sources", "600 kHz from 100,000 sources", "points_per_s"],
            "600 kHz",
            Some(600_000.0),
            "requirement; reached by Flume with 7 UDP sources and a null sink; sources were not varied",
            paper("Requirements and figure 3"),
        ),
        row(
            ["storage", "UDP, 1 stream", "points_per_s"],
            "142 kHz",
            Some(142_000.0),
            "InfluxDB on a hard disk, one UDP listener",
            paper("figure 6"),
        ),
        row(
            ["storage", "UDP, 4 streams", "points_per_s"],
            "400 kHz",
            Some(400_000.0),
            "Flume and InfluxDB on an SSD; more streams lost much",
            paper("figure 8"),
        ),
        row(
            ["storage", "HTTP, 1 stream", "bytes_per_point"],
            "3 B",
            Some(3.0),
            "InfluxDB, said of values that are no strings",
            paper("Modular Stack"),
        ),
        row(
            ["latency", "idle", "visible_ms_p50"],
            "< 1 ms",
            Some(1.0),
            "Flume and InfluxDB, about 2000 metrics, generator and storage on one machine",
            paper("figure 10 and Conclusions"),
        ),
        row(
            ["latency", "loaded", "alarm_ms_p99"],
            "≤ 500 ms",
            Some(500.0),
            "requirement up to the processing",
            paper("Requirements"),
        ),
        row(
            ["latency", "loaded", "display_ms_p99"],
            "≤ 1000 ms",
            Some(1000.0),
            "requirement up to the visualisation, which was not measured",
            paper("Requirements, Latency"),
        ),
        row(
            ["melk", "agent beside a busy farm", "cpu_percent"],
            "65 %",
            Some(65.0),
            "Metricbeat on a Raspberry Pi, at times; nodes stopped reporting until it was restarted",
            format!("{REPORT}, section 6.1 and figure 10"),
        ),
        row(
            ["melk", "dips that follow the temperature", "correlation"],
            "not found",
            None,
            "graphs of Metricbeat, \"hard to correlate\"",
            format!("{REPORT}, section 6.1"),
        ),
    ]
}
