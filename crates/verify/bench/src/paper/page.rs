//! The results page, written from the report alone.

use super::published::Published;
use super::report::{Report, Row, Shown, number};
use std::fmt::Write as _;

/// A table of the page: the part, its title, what was done, and the figures of its rows with their titles.
struct Table {
    part: &'static str,
    title: &'static str,
    about: &'static str,
    figures: &'static [(&'static str, &'static str)],
}

const TABLES: [Table; 5] = [
    Table {
        part: "scenarios",
        title: "The four scenarios",
        about: "Points of 100 metrics of many hosts over UDP, 10 a datagram if not said otherwise. The rate is \
            the highest one at which not one point was lost, found by loads that are doubled and halved; CPU time is \
            that of the server at that rate. Before, a check with 300 series compares what was stored with what was \
            sent, value by value.",
        figures: &[
            ("points_per_s", "points/s, nothing lost"),
            ("points_per_s_1", "points/s, ≤ 1 % lost"),
            ("cpu_s_per_million", "CPU s a million"),
        ],
    },
    Table {
        part: "sources",
        title: "600 kHz from 100,000 sources",
        about: "One metric of each of the hosts, 10 a datagram, all stored, and averaged over each second. The \
            collector keeps the accounting of each host by itself. *Averaged* are the points that the averages \
            count.",
        figures: &[
            ("stored_percent", "stored, %"),
            ("averaged_percent", "averaged, %"),
            ("points_per_s", "points/s"),
            ("cpu_s_per_million", "CPU s a million"),
            ("rss_mib_max", "most memory, MiB"),
        ],
    },
    Table {
        part: "storage",
        title: "Storage by streams",
        about: "UDP: sockets, each with its own series, to as many receiving threads of the collector; the \
            highest rate without a loss. HTTP: connections that write an hour of 1,000 series, one point a second, \
            as fast as the server answers; bytes of all files after its end, index included.",
        figures: &[
            ("points_per_s", "points/s"),
            ("cpu_s_per_million", "CPU s a million"),
            ("bytes_per_point", "bytes a point"),
        ],
    },
    Table {
        part: "latency",
        title: "Latency",
        about: "Single points over UDP, 100 to 300 ms apart: until a query answers with the value (*to a \
            query*), until an alert of an online rule fires (*to an alarm*: when the processing can act), and until \
            a frame of the live stream has it (*to a frame*: what a browser draws; its own time is not in it). \
            *Loaded*: beside the load of the part above.",
        figures: &[
            ("visible_ms_p50", "to a query, p50 ms"),
            ("visible_ms_p99", "to a query, p99 ms"),
            ("alarm_ms_p50", "to an alarm, p50 ms"),
            ("alarm_ms_p99", "to an alarm, p99 ms"),
            ("display_ms_p50", "to a frame, p50 ms"),
            ("display_ms_p99", "to a frame, p99 ms"),
        ],
    },
    Table {
        part: "melk",
        title: "MELK's comparison",
        about: "A farm (one FLP, two EPNs, as fast as it can) beside the collector, an agent with all sensors \
            every second, and an agent on a node whose temperature swings between 40 and 80 °C. Its chip is files of \
            numbers, its processes are real: above 60 °C both EPNs are held up, as a chip that protects itself holds \
            up its cores. In the second half they are held up as much, at times that have nothing to do with the \
            temperature: the check that the correlation can be absent. Spread: over the periods of the \
            temperature.",
        figures: &[
            ("cpu_percent", "CPU, % of a core"),
            ("intervals_due", "intervals due"),
            ("intervals_lost", "intervals lost"),
            ("samples_lost_percent", "samples lost, %"),
            ("correlation", "correlation"),
            ("dip_percent", "depth of the dip, %"),
        ],
    },
];

/// Share of the machine above which what others take is said.
const BUSY_PERCENT: f64 = 3.0;
/// Servers in the order of the columns.
const SERVERS: [&str; 4] = ["victoriametrics", "influxdb", "prometheus", "sheaf"];

/// An aim, and the figure that it is held against.
struct Aim {
    what: &'static str,
    part: &'static str,
    case: &'static str,
    figure: &'static str,
    bound: f64,
    is_least: bool,
}

const fn least(what: &'static str, [part, case, figure]: [&'static str; 3], bound: f64) -> Aim {
    Aim {
        what,
        part,
        case,
        figure,
        bound,
        is_least: true,
    }
}

const fn most(what: &'static str, of: [&'static str; 3], bound: f64) -> Aim {
    Aim {
        is_least: false,
        ..least(what, of, bound)
    }
}

const SOURCES: &str = "600 kHz from 100,000 sources";
const AGENT: &str = "agent beside a busy farm";

const AIMS: [Aim; 14] = [
    least(
        "pass-through: the required rate",
        ["scenarios", "pass-through", "points_per_s"],
        600e3,
    ),
    least(
        "edit: the required rate",
        ["scenarios", "edit", "points_per_s"],
        600e3,
    ),
    least(
        "suppress: the required rate",
        ["scenarios", "suppress", "points_per_s"],
        600e3,
    ),
    least(
        "average over 1 s: the required rate",
        ["scenarios", "average", "points_per_s"],
        600e3,
    ),
    least(
        "one a datagram: Flume's rate of one source",
        ["scenarios", "pass-through, one a datagram", "points_per_s"],
        121e3,
    ),
    least(
        "100,000 sources: stored, %",
        ["sources", SOURCES, "stored_percent"],
        100.0,
    ),
    least(
        "100,000 sources: averaged, %",
        ["sources", SOURCES, "averaged_percent"],
        100.0,
    ),
    most(
        "the same: CPU s a million",
        ["sources", SOURCES, "cpu_s_per_million"],
        1.0,
    ),
    most(
        "bytes a point, mix of values",
        ["storage", "HTTP, 1 stream", "bytes_per_point"],
        1.7,
    ),
    most(
        "to the processing (alarm), loaded, p99 ms",
        ["latency", "loaded", "alarm_ms_p99"],
        500.0,
    ),
    most(
        "to the display (frame), loaded, p99 ms",
        ["latency", "loaded", "display_ms_p99"],
        1000.0,
    ),
    most(
        "agent: CPU, % of a core",
        ["melk", AGENT, "cpu_percent"],
        1.0,
    ),
    most(
        "agent: intervals lost",
        ["melk", AGENT, "intervals_lost"],
        0.0,
    ),
    most(
        "dips that follow the temperature: correlation",
        ["melk", "dips that follow the temperature", "correlation"],
        super::heat::RELATED_MAX,
    ),
];

impl Report {
    /// Returns the results page, in Markdown. `json` is the name of the file with this report, beside the page.
    #[must_use]
    pub fn page(&self, json: &str) -> String {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = self.write_page(&mut page, json);
        page
    }

    fn write_page(&self, page: &mut String, json: &str) -> std::fmt::Result {
        writeln!(page, "# The monitoring paper's experiments again\n")?;
        writeln!(
            page,
            "What the Modular Stack paper and the founding report (MELK) measured of their monitoring, measured \
                of Sheaf and of its peers. How: [lab.md](../how-to/lab.md#the-monitoring-papers-experiments). This \
                page is written by the command from\n[{json}]({json}).\n"
        )?;
        let command = self.head.command.join(" ");
        writeln!(page, "```\n$ {command}\n```\n")?;
        let machine = &self.head.machine;
        writeln!(
            page,
            "{} × {}, {} GB, Linux {}, {}, Sheaf {} of commit {}. The generator, the servers and the farm share \
                the machine. Others took {} % of it before the first measurement. Loads of {} s. A figure is the \
                median of its runs, in brackets the least and the largest.\n",
            machine.cores,
            machine.cpu,
            machine.memory_bytes / 1_000_000_000,
            machine.kernel,
            self.day,
            self.head.version,
            self.commit,
            number(self.others_percent),
            self.head.seconds,
        )?;
        if self.others_percent > BUSY_PERCENT {
            writeln!(
                page,
                "**Not a quiet machine**: what others take from it is in all figures.\n"
            )?;
        }
        if self.is_quick {
            writeln!(
                page,
                "**A quick run: everything works, and the figures mean nothing.** The measurement is still to be \
                    taken.\n"
            )?;
        }
        for table in &TABLES {
            self.write_table(page, table)?;
        }
        self.write_aims(page)?;
        writeln!(page, "## Checks\n")?;
        for check in &self.checks {
            if check.problems.is_empty() {
                writeln!(page, "- {}: holds.", check.what)?;
            } else {
                let problems = check.problems.join("; ");
                writeln!(page, "- **{}: does not hold**: {problems}", check.what)?;
            }
        }
        writeln!(page, "\n## What is not here\n")?;
        for line in self.skipped.iter().map(String::as_str).chain(ABSENT) {
            writeln!(page, "- {line}")?;
        }
        Ok(())
    }

    fn write_table(&self, page: &mut String, table: &Table) -> std::fmt::Result {
        let rows: Vec<&Row> = self
            .rows
            .iter()
            .filter(|row| row.part == table.part)
            .collect();
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(page, "## {}\n\n{}\n", table.title, table.about)?;
        // Sheaf stands last, beside the ratios.
        let has_row = |server: &&str| rows.iter().any(|row| row.server == **server);
        let servers: Vec<&str> = SERVERS.into_iter().filter(has_row).collect();
        let titles: String = servers
            .iter()
            .map(|server| format!(" {server} |"))
            .collect();
        writeln!(
            page,
            "| case | figure | published |{titles} Sheaf ÷ published |"
        )?;
        writeln!(
            page,
            "| --- | --- | ---: |{} ---: |",
            " ---: |".repeat(servers.len())
        )?;
        let mut cases: Vec<&str> = Vec::new();
        for row in &rows {
            if !cases.contains(&row.case.as_str()) {
                cases.push(&row.case);
            }
        }
        for case in cases {
            for (figure, title) in table.figures {
                self.write_figure(page, &servers, [table.part, case, figure], title)?;
            }
        }
        writeln!(page)?;
        let notes = rows.iter().filter(|row| !row.note.is_empty());
        for row in notes {
            writeln!(page, "{}, {}: {}.\n", row.case, row.server, row.note)?;
        }
        let sources = self.published.iter().filter(|one| one.part == table.part);
        let sources: Vec<String> = sources.map(source).collect();
        writeln!(page, "Published:\n\n{}\n", sources.join("\n"))
    }

    /// Writes the row of a figure of a case, if a server has it.
    fn write_figure(
        &self,
        page: &mut String,
        servers: &[&str],
        [part, case, figure]: [&str; 3],
        title: &str,
    ) -> std::fmt::Result {
        let spread = |server: &&str| {
            let row = self.row(part, case, server)?;
            row.figures.get(figure).copied()
        };
        if servers.iter().all(|server| spread(server).is_none()) {
            return Ok(());
        }
        let cells: String = servers
            .iter()
            .map(|server| format!(" {} |", Shown(spread(server).unwrap_or_default())))
            .collect();
        let published: Vec<&Published> = self
            .published
            .iter()
            .filter(|one| (&*one.part, &*one.case, &*one.figure) == (part, case, figure))
            .collect();
        let texts: Vec<&str> = published.iter().map(|one| one.text.as_str()).collect();
        let sheaf = spread(&"sheaf").and_then(|spread| spread.median);
        let ratios = published
            .iter()
            .filter_map(|one| Some(number(sheaf? / one.value?)));
        let ratios: Vec<String> = ratios.collect();
        let or_none = |text: String| {
            if text.is_empty() {
                "–".to_owned()
            } else {
                text
            }
        };
        writeln!(
            page,
            "| {case} | {title} | {} |{cells} {} |",
            or_none(texts.join("; ")),
            or_none(ratios.join("; "))
        )
    }

    fn write_aims(&self, page: &mut String) -> std::fmt::Result {
        writeln!(page, "## Beside the aims\n")?;
        writeln!(page, "| | aim | Sheaf | |\n| --- | --- | ---: | --- |")?;
        for aim in &AIMS {
            let row = self.row(aim.part, aim.case, "sheaf");
            let found = row.and_then(|row| row.median(aim.figure));
            let sign = if aim.is_least { "≥" } else { "≤" };
            let (found, outcome) = match found {
                None => ("–".to_owned(), "not measured"),
                // A quick run is too short to meet or to miss anything.
                Some(found) if self.is_quick => (number(found), "–"),
                Some(found) if aim.is_met(found) => (number(found), "met"),
                Some(found) => (number(found), "**missed**"),
            };
            let bound = number(aim.bound);
            writeln!(
                page,
                "| {} | {sign} {bound} | {found} | {outcome} |",
                aim.what
            )?;
        }
        writeln!(page)
    }
}

impl Aim {
    fn is_met(&self, found: f64) -> bool {
        if self.is_least {
            found >= self.bound
        } else {
            found <= self.bound
        }
    }
}

fn source(one: &Published) -> String {
    format!(
        "- {}, {}: {} ({})",
        one.case, one.text, one.system, one.from
    )
}

const ABSENT: [&str; 7] = [
    "Flume, Spark, Telegraf, Metricbeat and Grafana are not in Debian, so they are not measured here; the \
        published figures stand for them.",
    "VictoriaMetrics of Debian cannot average or suppress what it takes, and Prometheus takes no line protocol: \
        they have no row there.",
    "InfluxDB's continuous queries, which average what is stored, are not measured.",
    "The paper had three machines of two Xeons with 40 Gbit/s between them; here all is on one machine and on \
        loopback.",
    "The 100,000 sources are distinguished by their label `host`, as the collector does; they share one socket.",
    "The time that a browser takes to draw a frame is not measured.",
    "The paper's 5 µs to the storage is the difference of stamps inside of its chain; here a client outside \
        waits for the answer.",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::report::Figures;

    #[test]
    fn aims_are_met_and_missed_by_the_median() {
        assert!(AIMS[0].is_met(600e3) && !AIMS[0].is_met(599e3));
        let agent = AIMS.iter().find(|aim| aim.figure == "cpu_percent");
        assert!(agent.is_some_and(|aim| aim.is_met(1.0) && !aim.is_met(1.1)));
    }

    #[test]
    fn every_aim_and_every_published_figure_is_of_a_part_of_the_page() {
        let parts = TABLES.each_ref().map(|table| table.part);
        for part in AIMS.iter().map(|aim| aim.part) {
            assert!(parts.contains(&part), "{part}");
        }
        for one in super::super::published::published() {
            assert!(parts.contains(&one.part.as_str()), "{one:?}");
        }
    }

    #[test]
    fn the_page_of_the_repository_is_written_from_its_report() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/results");
        let read = |name| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
        let report = Report::parse(&read("monitoring-paper.json")).unwrap();
        let page = report.page("monitoring-paper.json");
        assert!(
            page == read("monitoring-paper.md"),
            "docs/results/monitoring-paper.md is not what its JSON says: sheaf lab monitor --read \
                docs/results/monitoring-paper.json --page docs/results/monitoring-paper.md"
        );
    }

    #[test]
    fn a_row_shows_what_was_published_and_its_spread() {
        let mut figures = Figures::default();
        for rate in [200e3, 300e3, 250e3] {
            figures.add("points_per_s", rate);
        }
        let row = figures.row("scenarios", "average", "sheaf", "");
        let mut report = super::super::tests::empty_report();
        report.rows.push(row);
        let page = report.page("x.json");
        assert!(
            page.contains(
                "| average | points/s, nothing lost | 180 kHz | 250 000 (200 000–300 000) | 1.39 |"
            ),
            "{page}"
        );
        assert!(page.contains(
            "| average over 1 s: the required rate | ≥ 600 000 | 250 000 | **missed** |"
        ));
        assert!(page.contains("| agent: CPU, % of a core | ≤ 1.00 | – | not measured |"));
    }
}
