//! Results as a page of Markdown, such as those of `docs/results/`.

use super::verdict::{self, Compared};
use super::{pages, servers, waits, writers};
use crate::results::{Results, name, origin};
use sheaf_sim::summary::{Point, Summary};
use std::fmt::Write as _;

/// The results as a page of Markdown: question, origin, tables of servers and writers, the points of farms as text.
#[must_use]
pub fn page(results: &Results) -> String {
    let summary = &results.summary;
    let mut text = format!("# Experiment {}\n\n", summary.experiment);
    text += &origin(results);
    text += &servers::markdown(results);
    text += &writers::markdown(summary);
    let of_waits = waits::markdown(results);
    text += &of_waits;
    text += &published(&summary.points);
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

/// Returns the losses under the prior systems' rules beside the published ones.
fn published(points: &[Point]) -> String {
    let of_prior = points.iter().filter(|point| point.mode != "sheaf");
    let rows = of_prior.filter_map(|point| Some((point, verdict::compared(point)?)));
    let rows: Vec<(&Point, Compared)> = rows.collect();
    if rows.is_empty() {
        return String::new();
    }
    let good = rows.iter().filter(|(_, row)| row.reproduces == Some(true));
    let mut text = format!(
        "Published losses: {} of {} are reproduced, which means that the intervals of 95 % overlap. In TFs of a run, \
         with intervals.\n\n| point | published | here | reproduced | |\n| --- | ---: | ---: | --- | --- |\n",
        good.count(),
        rows.len()
    );
    for (point, row) in rows {
        let reproduced = match row.reproduces {
            Some(true) => "yes",
            Some(false) => "no",
            None => "too few runs",
        };
        let told = |mean: f64, [low, high]: [f64; 2]| format!("{mean:.2} ({low:.2} to {high:.2})");
        let _ = writeln!(
            text,
            "| {} | {} | {} | {reproduced} | {} |",
            name(point),
            told(row.published, row.published_interval),
            told(row.lost, row.interval),
            point.published_note
        );
    }
    text.push('\n');
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
        results.summary.points = vec![
            point("legacy", 43.0, Some(0.7)),
            point("sheaf", 0.0, Some(0.7)),
        ];
        let of_prior = page(&results);
        for part in [
            "Published losses: 1 of 1 are reproduced",
            "| 43.00 (43.00 to 43.00) | yes |  |",
        ] {
            assert!(of_prior.contains(part), "{part}\n{of_prior}");
        }
    }
}
