//! `sheaf lab paper`: from experiments to the pages and figures of `docs/results`, and from their data to the same
//! again.

use super::experiment::{self, INTERRUPTED};
use super::{diagram, numbers};
use crate::{fail, progress};
use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use serde::Serialize;
use sheaf_lab::plot::Question;
use sheaf_lab::report::diagram::Time;
use sheaf_lab::results::{DATA, Results};
use sheaf_lab::{calibrate, fit, machine, output};
use sheaf_testbed::machine::Folder;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Page of an experiment.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// Results, as `sheaf lab report --page` writes them, and the summary as JSON.
    Results,
    /// Errors of the simulator, as `sheaf lab calibrate` writes them, and as JSON.
    Calibration,
    /// The same, and the numbers of the machine that its live points tell: simulated points of the others take them.
    Machine,
    /// Values of a key that explain published losses, as `sheaf lab fit` writes them, as JSON and as a figure.
    Fit { key: &'static str },
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

/// Experiment that tells the numbers of a machine,
const MACHINE: &str = "machine";
/// and the file of these, in the folder of its results and in that of the pages.
const NUMBERS: &str = "machine.toml";

/// Folder of the data, in that of the pages.
const FOLDER: &str = "data";

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
        experiment: "policies-network",
        page: Page::Results,
        needs: "6 min",
        figures: &[],
    },
    Sheet {
        experiment: "policies-failures",
        page: Page::Results,
        needs: "15 min",
        figures: &[],
    },
    Sheet {
        experiment: "policies-beams",
        page: Page::Results,
        needs: "6 min",
        figures: &[],
    },
    Sheet {
        experiment: "writers-20x1750",
        page: Page::Results,
        needs: "1 min",
        figures: &[],
    },
    Sheet {
        experiment: "puls-2018",
        page: Page::Results,
        needs: "1 min",
        figures: &[],
    },
    Sheet {
        experiment: "stalls",
        page: Page::Fit {
            key: "legacy.start_stalls.probability",
        },
        needs: "3 min",
        figures: &[],
    },
    Sheet {
        experiment: MACHINE,
        page: Page::Machine,
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

/// Page of the best policies, made of the data of these experiments where it is there.
const DIAGRAM: &str = "diagram";
const DIAGRAM_OF: [&str; 6] = [
    "policies-waits",
    "policies-scale",
    "stale",
    "policies-network",
    "policies-failures",
    "policies-beams",
];
const DIAGRAM_FILES: [&str; 3] = ["diagram.md", "diagram.json", "diagram.svg"];

/// Names of all that can be made.
fn names() -> impl Iterator<Item = &'static str> {
    let sheets = SHEETS.iter().map(|sheet| sheet.experiment);
    sheets.chain([DIAGRAM])
}

/// Writes the diagram of the data in `from` into `out`; `false` if there is no data.
fn write_diagram(from: &Path, out: &Path) -> anyhow::Result<bool> {
    let places = DIAGRAM_OF
        .iter()
        .map(|name| from.join(format!("{FOLDER}/{name}.{DATA}")));
    let places: Vec<PathBuf> = places.filter(|place| place.exists()).collect();
    if places.is_empty() {
        return Ok(false);
    }
    let diagram = diagram::of(&places, Time::Turnaround)?;
    let [page, json, svg] = DIAGRAM_FILES;
    output::write(&out.join(page), diagram.markdown(svg))?;
    output::write_json(&out.join(json), &diagram)?;
    output::write(&out.join(svg), diagram.draw()?)?;
    Ok(true)
}

/// Finds the numbers of the machine of `results`, which are in `folder`, unless that was done; writes them into it, and
/// into `out`. Without effect where only data is there. `false` after a signal.
fn write_numbers(results: &Results, folder: &Path, out: &Path) -> anyhow::Result<bool> {
    let file = folder.join(NUMBERS);
    if !file.exists() && folder.join("summary.json").exists() {
        let Some(found) = numbers::fit(results, folder)? else {
            return Ok(false);
        };
        output::write(&file, machine::toml(results, &found))?;
    }
    if file.exists() {
        let text = std::fs::read(&file);
        let text = text.with_context(|| format!("cannot read {}", file.display()))?;
        output::write(&out.join(NUMBERS), text)?;
    }
    Ok(true)
}

/// Returns which files of the diagram in `out` do not follow from the data there; `None` if there is no data.
fn differing_diagram(out: &Path) -> anyhow::Result<Option<Vec<String>>> {
    let again = Folder::make(false)?;
    let is_made = write_diagram(out, again.path())?;
    Ok(is_made.then(|| unequal(&DIAGRAM_FILES.map(str::to_owned), [out, again.path()])))
}

/// Returns the names of files that differ in the two folders.
fn unequal(names: &[String], folders: [&Path; 2]) -> Vec<String> {
    let is_other = |name: &&String| {
        let [one, other] = folders.map(|folder| std::fs::read(folder.join(name)).ok());
        one != other
    };
    names.iter().filter(is_other).cloned().collect()
}

/// Run or reuse experiments, and write their pages and figures.
///
/// For each experiment: runs that are missing in the folder of results are made, as `sheaf lab run` does, and its page,
/// its numbers as JSON, its figures and its data, of which all of these can be made again, are written. Without a
/// name: all of them. Live points need root and a machine with nothing else to do.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf lab paper --list                       experiments, what they need, what they give
  sheaf lab paper                              everything, from the root of the repository
  sheaf lab paper policies-waits --out /tmp    one of them, somewhere else
  sheaf lab paper --reuse                      pages and figures again, of the results that are there
  sheaf lab paper --check                      do pages and figures follow from the data beside them?
  sheaf lab plot docs/results/data/policies-failures.json.gz --x load --y lost --by policy")]
pub(super) struct PaperArgs {
    /// Make these experiments alone.
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(names()))]
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
    /// Run nothing: experiments without results and without data are left out.
    #[arg(long)]
    reuse: bool,
    /// Make pages and figures of the data beside them, and tell which differ. Exit status 1 if one does.
    #[arg(long, conflicts_with_all = ["reuse", "list"])]
    check: bool,
    /// Show what there is, and run nothing.
    #[arg(long)]
    list: bool,
    /// Write what was made as JSON to this file; `-`: standard output, and text to the standard error.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl PaperArgs {
    /// Whether the page of that name is asked for.
    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|asked| asked == name)
    }
}

/// Makes the pages.
pub(super) fn run(args: &PaperArgs) -> anyhow::Result<ExitCode> {
    if args.check {
        return check(args);
    }
    if !args.list {
        let data = args.out.join(FOLDER);
        std::fs::create_dir_all(&data)
            .with_context(|| format!("cannot make {}", data.display()))?;
    }
    let mut rows = Vec::new();
    for sheet in SHEETS.iter().filter(|sheet| args.wants(sheet.experiment)) {
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
        let places = [folder.clone(), args.out.join(sheet.data())];
        let is_there = |place: &&PathBuf| place.is_file() || place.join("summary.json").exists();
        let results = match (args.reuse, places.iter().find(is_there)) {
            (true, Some(place)) => Results::read(place).map_err(super::refuse)?,
            (true, None) => {
                let [folder, data] = places.each_ref().map(|place| place.display());
                progress::line(format_args!(
                    "{}: left out, there is nothing in {folder}, and no {data}",
                    sheet.experiment
                ));
                rows.push(row);
                continue;
            }
            (false, _) => match sheet.run(args, folder.clone())? {
                Some(results) => results,
                None => return Ok(ExitCode::from(INTERRUPTED)),
            },
        };
        sheet.write(&results, &folder, &args.out)?;
        if sheet.page == Page::Machine && !write_numbers(&results, &folder, &args.out)? {
            return Ok(ExitCode::from(INTERRUPTED));
        }
        let data = results.data().context("cannot pack the results")?;
        output::write(&args.out.join(sheet.data()), &data)?;
        rows.push(Row {
            is_made: true,
            ..row
        });
    }
    if args.wants(DIAGRAM) {
        rows.push(Row {
            experiment: DIAGRAM,
            needs: "the data of others",
            files: DIAGRAM_FILES.map(str::to_owned).to_vec(),
            is_made: !args.list && write_diagram(&args.out, &args.out)?,
        });
    }
    let text: String = rows.iter().map(Row::line).collect();
    super::finish(&text, &rows, args.json.as_deref(), true)
}

/// Makes every page again of the data beside it, in a folder of its own, and compares.
fn check(args: &PaperArgs) -> anyhow::Result<ExitCode> {
    let mut rows = Vec::new();
    for sheet in SHEETS.iter().filter(|sheet| args.wants(sheet.experiment)) {
        rows.push(Checked {
            experiment: sheet.experiment,
            differing: sheet.differing(&args.out)?,
        });
    }
    if args.wants(DIAGRAM) {
        rows.push(Checked {
            experiment: DIAGRAM,
            differing: differing_diagram(&args.out)?,
        });
    }
    let is_equal = rows
        .iter()
        .all(|row| row.differing.as_ref().is_none_or(Vec::is_empty));
    let text: String = rows.iter().map(Checked::line).collect();
    super::finish(&text, &rows, args.json.as_deref(), is_equal)
}

/// Comparison of a page with its data.
#[derive(Serialize)]
struct Checked {
    experiment: &'static str,
    /// Files that do not follow from the data; none where there is no data.
    differing: Option<Vec<String>>,
}

impl Checked {
    fn line(&self) -> String {
        let told = match self.differing.as_deref() {
            None => "no data".to_owned(),
            Some([]) => "equal".to_owned(),
            Some(files) => format!("differs from its data: {}", files.join(" ")),
        };
        format!("{:<18} {told}\n", self.experiment)
    }
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
            "{:<18} {:<18} {made:<5} {}\n",
            self.experiment,
            self.needs,
            self.files.join(" ")
        )
    }
}

impl Sheet {
    /// Returns the names of the files that are made.
    fn files(&self) -> Vec<String> {
        let ends: &[&str] = match self.page {
            Page::Fit { .. } => &["md", "json", "svg"],
            Page::Results | Page::Calibration | Page::Machine => &["md", "json"],
        };
        let page = ends.iter().map(|end| format!("{}.{end}", self.experiment));
        let figures = self.figures.iter().map(|figure| figure.file.to_owned());
        page.chain(figures).collect()
    }

    /// Returns the name of the file of data, from the folder of the pages.
    fn data(&self) -> String {
        format!("{FOLDER}/{}.{DATA}", self.experiment)
    }

    /// Returns which files in `out` do not follow from the data there; `None` if there is no data.
    fn differing(&self, out: &Path) -> anyhow::Result<Option<Vec<String>>> {
        let data = out.join(self.data());
        if !data.exists() {
            return Ok(None);
        }
        let results = Results::read(&data).map_err(super::refuse)?;
        let again = Folder::make(false)?;
        self.write(&results, &data, again.path())?;
        Ok(Some(unequal(&self.files(), [out, again.path()])))
    }

    /// Makes the runs that are missing in `folder`; `None` after a signal.
    fn run(&self, args: &PaperArgs, folder: PathBuf) -> anyhow::Result<Option<Results>> {
        let file = args.experiments.join(format!("{}.toml", self.experiment));
        let mut options = experiment::options_of(&file, None).map_err(super::refuse)?;
        options.out = folder;
        let numbers = args.results.join(MACHINE).join(NUMBERS);
        if self.page == Page::Calibration && numbers.exists() {
            let numbers = machine::read(&numbers);
            options.experiment.machine = numbers.map_err(super::refuse)?;
        }
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
            Page::Fit { key } => {
                let fit = fit::of(results, key).map_err(fail::bad_use)?;
                output::write(&page, fit::markdown(results, &fit))?;
                output::write_json(&json, &fit)?;
                let svg = out.join(format!("{}.svg", self.experiment));
                output::write(&svg, &fit::draw(&fit)?)?;
            }
            Page::Calibration | Page::Machine => {
                let calibration = calibrate::of(results, folder).map_err(super::refuse)?;
                output::write(&page, calibrate::markdown(results, &calibration))?;
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

    #[test]
    fn pages_and_figures_follow_from_the_data_beside_them() {
        let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/results");
        let none: [String; 0] = [];
        for sheet in SHEETS {
            let name = sheet.experiment;
            let differing = sheet.differing(&out).expect("data that can be read");
            let differing = differing.unwrap_or_else(|| panic!("{name} has no data"));
            assert_eq!(differing, none, "{name}: sheaf lab paper {name} --reuse");
        }
        let differing = differing_diagram(&out).expect("data that can be read");
        assert_eq!(differing.as_deref(), Some(none.as_slice()));
    }

    #[test]
    fn a_number_that_was_changed_by_hand_is_told() {
        let out = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/results");
        let sheet = SHEETS
            .iter()
            .find(|it| it.experiment == "puls-2018")
            .expect("a row");
        let copy = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(copy.path().join(FOLDER)).expect("a folder");
        for name in sheet.files().into_iter().chain([sheet.data()]) {
            std::fs::copy(out.join(&name), copy.path().join(&name)).expect("a file");
        }
        let page = copy.path().join("puls-2018.md");
        let text = std::fs::read_to_string(&page).expect("a page");
        std::fs::write(&page, text.replacen("yes", "no", 1)).expect("a file");
        let differing = sheet.differing(copy.path()).expect("data that can be read");
        assert_eq!(differing, Some(vec!["puls-2018.md".to_owned()]));
    }
}
