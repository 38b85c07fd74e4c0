//! `sheaf lab paper`: from experiments to the pages and figures of `docs/results`.

use super::experiment::{self, INTERRUPTED};
use crate::progress;
use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use sheaf_lab::plot::Question;
use sheaf_lab::results::Results;
use sheaf_lab::{calibrate, output};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Page of an experiment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// Results, as `sheaf lab report --page` writes them, and the summary as JSON.
    Results,
    /// Errors of the simulator, as `sheaf lab calibrate` writes them, and as JSON.
    Calibration,
}

/// Experiment with what is made of its results.
struct Sheet {
    /// Name of the experiment, of its file and of its page.
    experiment: &'static str,
    page: Page,
    /// Needs of its points, and how long they take on two processors.
    needs: &'static str,
    figures: &'static [Figure],
}

/// Figure of a page: a value of the results over another, a line a policy, on a logarithmic axis.
struct Figure {
    file: &'static str,
    x: &'static str,
    y: &'static str,
    only: &'static [(&'static str, &'static str)],
    is_log_x: bool,
}

const WAIT: &str = "waits.wait.us.p99";
const TURNAROUND: &str = "waits.turnaround.us.p99";

/// Returns the waits over the loads at the farms of `only`.
const fn waits(file: &'static str, only: &'static [(&'static str, &'static str)]) -> Figure {
    Figure {
        file,
        x: "load",
        y: WAIT,
        only,
        is_log_x: false,
    }
}

/// Returns the turnarounds over the age of reports at the farms of `only`.
const fn ages(file: &'static str, only: &'static [(&'static str, &'static str)]) -> Figure {
    Figure {
        file,
        x: "farm.report_ms",
        y: TURNAROUND,
        only,
        is_log_x: true,
    }
}

/// All that is made: an experiment is its file, and its row here.
const SHEETS: &[Sheet] = &[
    Sheet {
        experiment: "policies-waits",
        page: Page::Results,
        needs: "15 min",
        figures: &[
            waits("policies-waits-35.svg", &[("label", "35 EPNs")]),
            waits(
                "policies-waits-speeds.svg",
                &[("label", "36 EPNs, speeds 1:2:4")],
            ),
            waits(
                "policies-waits-tail.svg",
                &[("label", "35 EPNs, heavy tail")],
            ),
        ],
    },
    Sheet {
        experiment: "systems",
        page: Page::Results,
        needs: "10 min",
        figures: &[
            waits("systems-35.svg", &[("label", "35 EPNs")]),
            waits("systems-speeds.svg", &[("label", "36 EPNs, speeds 1:2:4")]),
        ],
    },
    Sheet {
        experiment: "stale",
        page: Page::Results,
        needs: "10 min",
        figures: &[
            ages("stale-35.svg", &[("farm", "35 EPNs"), ("load", "0.8")]),
            ages(
                "stale-speeds.svg",
                &[("farm", "36 EPNs, speeds 1:2:4"), ("load", "0.8")],
            ),
        ],
    },
    Sheet {
        experiment: "policies-scale",
        page: Page::Results,
        needs: "15 min",
        figures: &[],
    },
    Sheet {
        experiment: "writers-20x1750",
        page: Page::Results,
        needs: "1 min",
        figures: &[],
    },
    Sheet {
        experiment: "machine",
        page: Page::Calibration,
        needs: "root, 6 min",
        figures: &[],
    },
    Sheet {
        experiment: "calibration",
        page: Page::Calibration,
        needs: "root, 9 min",
        figures: &[],
    },
    Sheet {
        experiment: "holdout",
        page: Page::Calibration,
        needs: "root, 15 min",
        figures: &[],
    },
];

/// Run or reuse experiments, and write their pages and figures.
///
/// For each experiment: runs that are missing in the folder of results are made, as `sheaf lab run` does, and its page,
/// its numbers as JSON and its figures are written. Without a name: all of them. Live points need root and a machine
/// with nothing else to do.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab paper --list                       experiments, what they need, what they give
  sheaf lab paper                              everything, from the root of the repository
  sheaf lab paper policies-waits --out /tmp    one of them, somewhere else
  sheaf lab paper --reuse                      pages and figures again, of the results that are there")]
pub(super) struct PaperArgs {
    /// Make these experiments alone.
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(SHEETS.iter().map(|sheet| sheet.experiment)))]
    names: Vec<String>,
    /// Read experiments in this folder.
    #[arg(long, value_name = "DIR", default_value = "experiments")]
    experiments: PathBuf,
    /// Keep results in this folder.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Write pages and figures into this folder.
    #[arg(long, value_name = "DIR", default_value = "docs/results")]
    out: PathBuf,
    /// Run nothing: experiments without results are left out.
    #[arg(long)]
    reuse: bool,
    /// Show what there is, and run nothing.
    #[arg(long)]
    list: bool,
    /// Write what was made as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Makes the pages.
pub(super) fn run(args: &PaperArgs) -> anyhow::Result<ExitCode> {
    let is_wanted = |sheet: &&Sheet| {
        args.names.is_empty() || args.names.iter().any(|name| name == sheet.experiment)
    };
    if !args.list {
        std::fs::create_dir_all(&args.out)
            .with_context(|| format!("cannot make {}", args.out.display()))?;
    }
    let mut rows = Vec::new();
    for sheet in SHEETS.iter().filter(is_wanted) {
        let row = Row {
            experiment: sheet.experiment,
            needs: sheet.needs,
            files: sheet.files(),
            is_made: false,
        };
        if args.list {
            rows.push(row);
            continue;
        }
        let folder = args.results.join(sheet.experiment);
        let results = match (args.reuse, folder.join("summary.json").exists()) {
            (true, true) => Results::read(&folder).map_err(super::refuse)?,
            (true, false) => {
                let folder = folder.display();
                progress::line(format_args!(
                    "{}: left out, there is nothing in {folder}",
                    sheet.experiment
                ));
                rows.push(row);
                continue;
            }
            (false, _) => match sheet.run(&args.experiments, folder.clone())? {
                Some(results) => results,
                None => return Ok(ExitCode::from(INTERRUPTED)),
            },
        };
        sheet.write(&results, &folder, &args.out)?;
        rows.push(Row {
            is_made: true,
            ..row
        });
    }
    let text: String = rows.iter().map(Row::line).collect();
    super::finish(&text, &rows, args.json.as_deref(), true)
}

/// Report on an experiment.
#[derive(Serialize)]
struct Row {
    experiment: &'static str,
    needs: &'static str,
    files: Vec<String>,
    is_made: bool,
}

impl Row {
    fn line(&self) -> String {
        let made = if self.is_made { "made" } else { "" };
        format!(
            "{:<18} {:<14} {made:<5} {}\n",
            self.experiment,
            self.needs,
            self.files.join(" ")
        )
    }
}

impl Sheet {
    /// Returns the names of the files that are made.
    fn files(&self) -> Vec<String> {
        let page = ["md", "json"].map(|end| format!("{}.{end}", self.experiment));
        let figures = self.figures.iter().map(|figure| figure.file.to_owned());
        page.into_iter().chain(figures).collect()
    }

    /// Makes the runs that are missing in `folder`; `None` after a signal.
    fn run(&self, experiments: &Path, folder: PathBuf) -> anyhow::Result<Option<Results>> {
        let file = experiments.join(format!("{}.toml", self.experiment));
        let mut options = experiment::options_of(&file, None).map_err(super::refuse)?;
        options.out = folder;
        let made = experiment::make(&options)?;
        Ok(made.map(|(results, _)| results))
    }

    /// Writes page, numbers and figures of `results`, which are in `folder`, into `out`.
    fn write(&self, results: &Results, folder: &Path, out: &Path) -> anyhow::Result<()> {
        let [page, json] = ["md", "json"].map(|end| out.join(format!("{}.{end}", self.experiment)));
        match self.page {
            Page::Results => {
                experiment::write_page(Some(&page), results)?;
                output::write_json(&json, &results.summary)?;
            }
            Page::Calibration => {
                let calibration = calibrate::of(results, folder).map_err(super::refuse)?;
                output::write(&page, &calibrate::markdown(results, &calibration))?;
                output::write_json(&json, &calibration)?;
            }
        }
        for figure in self.figures {
            experiment::draw(results, &figure.question(), Some(&out.join(figure.file)))?;
        }
        Ok(())
    }
}

impl Figure {
    fn question(&self) -> Question {
        let only = self.only.iter();
        let only = only.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Question {
            x: self.x.to_owned(),
            y: self.y.to_owned(),
            by: vec!["policy".to_owned()],
            only: only.collect(),
            is_log_x: self.is_log_x,
            is_log_y: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_sheet_has_an_experiment_that_comes_along_and_files_of_its_own() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let mut files = BTreeSet::new();
        for sheet in SHEETS {
            let file = format!("experiments/{}.toml", sheet.experiment);
            assert!(root.join(&file).exists(), "{file}");
            for name in sheet.files() {
                assert!(root.join("docs/results").join(&name).exists(), "{name}");
                assert!(files.insert(name.clone()), "{name} is made twice");
            }
        }
    }
}
