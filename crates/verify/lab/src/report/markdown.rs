//! Results as a page of Markdown, such as those of `docs/results/`.

use super::{pages, servers, waits, writers};
use crate::results::Results;
use sheaf_sim::summary::{Point, Summary};
use std::fmt::Write as _;

/// Most characters of the line of a command.
const COMMAND_MAX: usize = 118;

/// The results as a page of Markdown: question, origin, tables of servers and writers, the points of farms as text.
#[must_use]
pub fn page(results: &Results) -> String {
    let summary = &results.summary;
    let mut text = format!("# Experiment {}\n\n", summary.experiment);
    if !results.question.is_empty() {
        let _ = writeln!(text, "{}\n", results.question);
    }
    let known = |key: &str| {
        summary
            .provenance
            .get(key)
            .map_or("unknown", String::as_str)
    };
    // The program may lie anywhere: its name is what matters.
    let command = known("command").replace('`', "'");
    let words = command.split_once(' ').map_or("", |(_, words)| words);
    let command: String = format!("sheaf {words}").chars().take(COMMAND_MAX).collect();
    let _ = writeln!(text, "```console\n$ {command}\n```\n");
    let reference = match results.reference.as_str() {
        "" => "none",
        reference => reference,
    };
    let _ = writeln!(
        text,
        "Machine: {}, {}; version {}, commit {}. Published values: {reference}.\n",
        known("machine"),
        known("kernel"),
        known("version"),
        known("commit"),
    );
    if summary.provenance.contains_key("quick") {
        text += "Runs were cut short (`--quick`): what is measured over seconds is not to be relied on.\n\n";
    }
    text += &servers::markdown(results);
    text += &writers::markdown(summary);
    let of_waits = waits::markdown(results);
    text += &of_waits;
    let farms: Vec<Point> = summary
        .points
        .iter()
        .filter(|point| of_waits.is_empty() && writers::is_farm(point))
        .cloned()
        .collect();
    if !farms.is_empty() {
        let farms = Summary {
            points: farms,
            ..summary.clone()
        };
        let _ = writeln!(text, "```text\n{}```\n", pages::table(&farms));
    }
    let runs = || summary.points.iter().map(|point| point.n);
    let rejected: u32 = summary.points.iter().map(|point| point.n_rejected).sum();
    let _ = writeln!(
        text,
        "Runs of a point: {} to {}, {rejected} rejected in all; 95 % intervals are of the mean, by Student's t.",
        runs().min().unwrap_or(0),
        runs().max().unwrap_or(0)
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::point;

    #[test]
    fn a_page_has_question_origin_and_the_tables_of_what_there_is() {
        let mut results = super::writers::tests::results();
        let command = "/opt/sheaf lab run experiments/sfo-2016.toml".to_owned();
        let provenance = &mut results.summary.provenance;
        provenance.insert("command".to_owned(), command);
        let of_writers = page(&results);
        for part in [
            "# Experiment sfo-2016\n\nWhich assignment?\n",
            "```console\n$ sheaf lab run experiments/sfo-2016.toml\n```",
            "Published values: slides of 2017.",
            "| round robin | ATLAS | 865 |",
            "Runs of a point: 3 to 3, 0 rejected",
        ] {
            assert!(of_writers.contains(part), "{part}\n{of_writers}");
        }
        assert!(!of_writers.contains("```text"), "there is no farm");
        results.summary.points = vec![point("sheaf", 1.0, None)];
        let of_farm = page(&results);
        assert!(of_farm.contains("```text\npoint"), "{of_farm}");
        assert!(!of_farm.contains("| published |"), "there are no writers");
    }
}
