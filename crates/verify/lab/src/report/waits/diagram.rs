//! Diagram of the best policies: farms as rows, loads as columns, in each cell the policy whose results are there
//! first.

use super::rank::{Measure, Rank, Ratio};
use super::{Farm, farms, times, turnaround, wait};
use crate::results::Results;
use serde::Serialize;
use sheaf_figures::plot::PlotError;
use sheaf_figures::plot::cells::{self, cells};
use sheaf_placement::policy;
use std::fmt::Write as _;

/// Time that policies are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Time {
    /// From the announce of a TF to the begin of its processing, p99.
    Wait,
    /// From the announce of a TF to the end of its processing, p99.
    Turnaround,
}

impl Time {
    fn measure(self) -> Measure {
        match self {
            Self::Wait => wait,
            Self::Turnaround => turnaround,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Wait => "p99 of the wait",
            Self::Turnaround => "p99 of the turnaround",
        }
    }
}

/// Best policies by farm and load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagram {
    /// Version of this object.
    pub version: u32,
    /// Time that policies are compared by.
    pub time: Time,
    /// Loads, one a column.
    pub loads: Vec<f64>,
    /// Farms.
    pub rows: Vec<Row>,
}

/// One farm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Experiment that it is of.
    pub experiment: String,
    /// Label.
    pub farm: String,
    /// One cell for each load at which it was run.
    pub cells: Vec<Cell>,
}

/// One farm at one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The load.
    pub load: f64,
    /// Policy with the shortest time.
    pub best: String,
    /// Policies of which it is not known that they are worse.
    pub as_good: Vec<String>,
    /// Seeds.
    pub n: usize,
    /// Policy with the next time after that of the best, and its time ÷ that of the best.
    pub next: Option<Margin>,
    /// The default policy in the same way; `None` if it is the best, or was not run.
    pub default: Option<Margin>,
}

/// One policy beside the best one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Margin {
    /// The policy.
    pub policy: String,
    /// Time ÷ that of the best: geometric mean over the seeds.
    pub ratio: f64,
    /// Interval of 95 %, corrected for the number of policies; `None` of one seed.
    pub interval: Option<[f64; 2]>,
}

impl Margin {
    fn of(farm: &Farm<'_>, rank: &Rank, at: usize) -> Option<Self> {
        let Ratio { mean, interval } = rank.to_best[at]?;
        Some(Self {
            policy: farm.rows[at].point.policy.clone(),
            ratio: mean,
            interval,
        })
    }

    fn told(&self) -> String {
        let ratio = Ratio {
            mean: self.ratio,
            interval: self.interval,
        };
        times(Some(&ratio))
    }
}

impl Diagram {
    /// Makes the diagram of all farms of `all` at which several policies were run; `None` if there is no such farm.
    #[must_use]
    pub fn of(all: &[Results], time: Time) -> Option<Self> {
        let mut rows: Vec<Row> = Vec::new();
        for results in all {
            let experiment = &results.summary.experiment;
            for farm in farms(results) {
                let Some(cell) = cell(&farm, time.measure()) else {
                    continue;
                };
                let name = name(&farm);
                let of_farm = |row: &&mut Row| row.experiment == *experiment && row.farm == name;
                match rows.iter_mut().find(of_farm) {
                    Some(row) => row.cells.push(cell),
                    None => rows.push(Row {
                        experiment: experiment.clone(),
                        farm: name,
                        cells: vec![cell],
                    }),
                }
            }
        }
        let mut loads: Vec<f64> = rows
            .iter()
            .flat_map(|row| &row.cells)
            .map(|cell| cell.load)
            .collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        (!rows.is_empty()).then_some(Self {
            version: 1,
            time,
            loads,
            rows,
        })
    }

    /// Draws it: the colour of a cell is that of the best policy, and stronger the further the default is from it, or,
    /// where the default is the best, the further the next one is.
    ///
    /// # Errors
    ///
    /// [`PlotError`] if it cannot be drawn.
    pub fn draw(&self) -> Result<String, PlotError> {
        let row = |row: &Row| cells::Row {
            group: row.experiment.clone(),
            label: row.farm.chars().take(56).collect(),
            cells: self
                .loads
                .iter()
                .map(|load| row.at(*load).map(Cell::drawn))
                .collect(),
        };
        let rows: Vec<cells::Row> = self.rows.iter().map(row).collect();
        let columns: Vec<String> = self
            .loads
            .iter()
            .map(|load| format!("load {load}"))
            .collect();
        let title = format!(
            "The best policy by {}; small: the next one, or the default where it is not the best, ÷ the best",
            self.time.name()
        );
        cells(&title, "farm", &columns, &rows, policy::DEFAULT)
    }

    /// Farms and loads at which the default is the best or not known to be worse, and all of those at which it was run.
    #[must_use]
    pub fn default_is_right(&self) -> [usize; 2] {
        let cells = || {
            self.rows
                .iter()
                .flat_map(|row| &row.cells)
                .filter(|cell| cell.has_default())
        };
        let right =
            cells().filter(|cell| cell.best == policy::DEFAULT || cell.is_default_as_good());
        [right.count(), cells().count()]
    }

    fn in_short(&self) -> String {
        let [right, all] = self.default_is_right();
        let worst = self
            .rows
            .iter()
            .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
        let worst = worst.filter_map(|(row, cell)| {
            let default = cell.default.as_ref();
            Some((row, cell, default.filter(|_| !cell.is_default_as_good())?))
        });
        let worst = worst.max_by(|a, b| a.2.ratio.total_cmp(&b.2.ratio));
        let worst = worst.map_or(String::new(), |(row, cell, margin)| {
            format!(
                "; at most {} times as long as the best ({}, load {}, best `{}`)",
                margin.told(),
                row.farm,
                cell.load,
                cell.best
            )
        });
        format!(
            "the default, `{}`, is the best or as good as the best at {right} of {all} farms and loads{worst}",
            policy::DEFAULT
        )
    }

    /// The diagram as a table of text.
    #[must_use]
    pub fn table(&self) -> String {
        let width = self
            .rows
            .iter()
            .map(|row| row.farm.chars().count())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for row in &self.rows {
            for cell in &row.cells {
                let _ = writeln!(
                    text,
                    "{:<width$} {:>5}  {:<20} {}",
                    row.farm,
                    cell.load,
                    cell.best,
                    cell.note()
                );
            }
        }
        let _ = writeln!(text, "{}", self.in_short());
        text
    }

    /// The diagram as a page of Markdown, with the figure `svg` beside it.
    #[must_use]
    pub fn markdown(&self, svg: &str) -> String {
        let mut text = format!(
            "# The best policy by farm and load\n\nBy {}; in short: {}.\n\n\
             ![Farms as rows, loads as columns, the best policy of each as its colour]({svg})\n\n\
             Every policy has the same TFs at a farm and a load. A policy that leaves more TFs unfinished than others \
             (by 0.1 % of all) is not compared by times, and `oracle` not at all. *As good*: the interval of the \
             ratio to the best holds 1; intervals are of 95 %, paired by seed and corrected for the number of \
             policies.\n",
            self.time.name(),
            self.in_short()
        );
        let mut experiment = "";
        for row in &self.rows {
            if experiment != row.experiment {
                experiment = &row.experiment;
                let _ = write!(
                    text,
                    "\n## {experiment}\n\n| farm | load | best | as good | next ÷ best | default ÷ best | n |\n| --- | ---: | --- | --- | --- | --- | ---: |\n"
                );
            }
            for cell in &row.cells {
                let told =
                    |margin: &Option<Margin>| margin.as_ref().map_or("–".to_owned(), Margin::told);
                let next = cell.next.as_ref().map_or("–".to_owned(), |next| {
                    format!("`{}` {}", next.policy, next.told())
                });
                let _ = writeln!(
                    text,
                    "| {} | {} | `{}` | {} | {next} | {} | {} |",
                    row.farm,
                    cell.load,
                    cell.best,
                    cell.as_good.join(", "),
                    told(&cell.default),
                    cell.n
                );
            }
        }
        text
    }
}

impl Row {
    fn at(&self, load: f64) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.load == load)
    }
}

impl Cell {
    fn has_default(&self) -> bool {
        self.best == policy::DEFAULT || self.default.is_some()
    }

    fn is_default_as_good(&self) -> bool {
        self.as_good.iter().any(|name| name == policy::DEFAULT)
    }

    fn note(&self) -> String {
        match (&self.default, &self.next) {
            (Some(_), _) if self.is_default_as_good() => "default as good".to_owned(),
            (Some(default), _) => format!("default {}", default.told()),
            (None, Some(next)) => format!("next {}", next.told()),
            (None, None) => String::new(),
        }
    }

    fn drawn(&self) -> cells::Cell {
        let margin = match &self.default {
            Some(_) if self.is_default_as_good() => 1.0,
            Some(default) => default.ratio,
            None => self.next.as_ref().map_or(1.0, |next| next.ratio),
        };
        cells::Cell {
            best: self.best.clone(),
            note: self.note(),
            // Half as long again is as strong as it gets.
            strength: (margin - 1.0) / 0.5,
        }
    }
}

fn name(farm: &Farm<'_>) -> String {
    let point = farm.first();
    match point.label.as_str() {
        "" => format!("{} × {}", point.flps, point.epns),
        label => label.to_owned(),
    }
}

/// Returns the load that was asked for: it was computed back from a rate, and its last digits are not those of others.
fn as_asked(load: f64) -> f64 {
    (load * 1e6).round() / 1e6
}

fn cell(farm: &Farm<'_>, measure: Measure) -> Option<Cell> {
    let rank = Rank::of(farm, measure)?;
    let best = &farm.rows[rank.best];
    let margins = (0..farm.rows.len()).filter(|at| rank.is_candidate(*at));
    let margins = margins.filter_map(|at| Margin::of(farm, &rank, at));
    let next = margins.min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let default = farm
        .rows
        .iter()
        .position(|row| row.point.policy == policy::DEFAULT);
    Some(Cell {
        load: as_asked(farm.first().load?),
        best: best.point.policy.clone(),
        as_good: rank
            .as_good(farm)
            .map(|row| row.point.policy.clone())
            .collect(),
        n: best.runs.len(),
        next,
        default: default.and_then(|at| Margin::of(farm, &rank, at)),
    })
}
