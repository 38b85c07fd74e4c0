//! An experiment file: a question, the farms that are asked, live or simulated, and how often.
//!
//! [`ExperimentFile`] is the one reader of such files. The keys of a farm are those of [`Scenario`], and they stand in
//! layers: at the top of the file, where all points share them, in a `[[point]]`, in a `[[variant]]` that is combined
//! with every point, and as lists in `[matrix]`; `[[sample]]` draws points by lot. A layer says some of the keys and
//! replaces those of the layers before it, table by table. A file without points is one point. All keys are in
//! `docs/how-to/lab.md`, "Experiments".

mod layer;
mod matrix;
mod sample;
mod settings;

pub use matrix::Matrix;
pub use sample::Sample;
pub use settings::{Chaos, LiveSettings, Machine};

use crate::scenario::lines::one_a_line;
use crate::scenario::{Scenario, ScenarioError};
use layer::Layer;
use serde::Deserialize;
use std::path::Path;
use toml::de::DeTable;
use toml::{Spanned, Table};

/// Points that a file may ask the simulator for.
pub const POINTS_MAX: usize = 10_000;
/// Keys of a scenario that are those of a whole file.
const OF_FILE: [&str; 4] = ["name", "question", "iterations", "seed"];

/// An experiment file, read.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentFile {
    /// Name of the experiment and of its results.
    pub name: String,
    /// Question of the experiment, in a sentence.
    pub question: String,
    /// Where published values come from.
    pub reference: String,
    /// Runs of each point, if the file says it.
    pub iterations: Option<u32>,
    /// Everything random comes from it.
    pub seed: u64,
    /// Settings of live runs.
    pub live: LiveSettings,
    /// The machine of simulated points on a topology.
    pub machine: Machine,
    /// Nodes that are killed all the time.
    pub chaos: Option<Chaos>,
    /// Variants combined with every point and variant.
    pub matrix: Matrix,
    /// Points that are drawn by lot, beside those of the file.
    pub samples: Vec<Sample>,
    /// Whether keys that all points share stand in `[base]` or `[scenario]`, as in files of before the one schema.
    pub has_former_tables: bool,
    /// Which of name and question the file does not say.
    unsaid: Option<&'static str>,
    common: Table,
    points: Vec<Table>,
    variants: Vec<Table>,
}

/// Tables of a file that hold no keys of farms.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Around {
    reference: String,
    live: LiveSettings,
    machine: Machine,
    chaos: Option<Chaos>,
}

/// Keys of [`Around`].
const AROUND: [&str; 4] = ["reference", "live", "machine", "chaos"];

impl ExperimentFile {
    /// Reads and checks a file; traces of sizes are read with it.
    ///
    /// # Errors
    ///
    /// A [`ScenarioError`] that names the wrong value and the accepted ones.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        Self::parse(&read(path)?)
    }

    /// Reads the text of a file, without checking its values.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Toml`] for unknown keys and values of another type, with the line; [`ScenarioError::Value`] for
    /// a key of an earlier release, with its present name, or one that stands where it has no meaning.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        Self::parse_tables(text).map_err(|mut error| {
            if let ScenarioError::Toml(error) = &mut error {
                error.set_input(Some(text));
            }
            error
        })
    }

    fn parse_tables(text: &str) -> Result<Self, ScenarioError> {
        let document = DeTable::parse(text)?;
        let (span, mut top) = (document.span(), document.into_inner());
        let mut around = DeTable::new();
        for key in AROUND {
            if let Some((key, value)) = top.remove_entry(key) {
                around.insert(key, value);
            }
        }
        let around =
            Around::deserialize(toml::Deserializer::from(Spanned::new(span.clone(), around)))?;
        let matrix = layer::table(&mut top, "matrix")?;
        let matrix = matrix.map(Matrix::of).transpose()?.unwrap_or_default();
        let samples = layer::list(&mut top, "sample")?;
        let samples = samples
            .into_iter()
            .map(Sample::of)
            .collect::<Result<_, _>>()?;
        let points = layer::list(&mut top, "point")?;
        let variants = layer::list(&mut top, "variant")?;
        let former = layer::table(&mut top, "scenario")?;
        let base = layer::table(&mut top, "base")?;
        let has_former_tables = former.is_some() || base.is_some();

        let mut common = Layer::default();
        if let Some(former) = former {
            // It was a whole scenario, whose name, question, iterations and seed were not used.
            common = Layer::of(former)?.without(&OF_FILE);
        }
        let top = Layer::of(Spanned::new(span, top))?;
        let unsaid = ["name", "question"].into_iter().find(|key| !top.has(key));
        let scenario = top.scenario()?;
        let iterations = top.has("iterations").then_some(scenario.iterations);
        common.put_on(top);
        if let Some(base) = base {
            common.put_on(Layer::of_farm(base, "base")?);
        }
        let farms = |tables: Vec<_>, within: &str| -> Result<Vec<Table>, ScenarioError> {
            let layers = tables.into_iter();
            layers
                .map(|table| Layer::of_farm(table, within).map(Layer::into_table))
                .collect()
        };
        Ok(Self {
            name: scenario.name,
            question: scenario.question,
            reference: around.reference,
            iterations,
            seed: scenario.seed,
            live: around.live,
            machine: around.machine,
            chaos: around.chaos,
            matrix,
            samples,
            has_former_tables,
            unsaid,
            common: common.into_table(),
            points: farms(points, "point")?,
            variants: farms(variants, "variant")?,
        })
    }

    /// Refuses a file that does not say its name and its question.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Toml`], as for any missing field.
    pub fn check_named(&self) -> Result<(), ScenarioError> {
        use serde::de::Error as _;
        match self.unsaid {
            Some(key) => Err(toml::de::Error::missing_field(key).into()),
            None => Ok(()),
        }
    }

    /// Returns every combination of points, variants and the matrix, in the order of the file, at most `points_max`.
    /// Their values are not checked yet. `folder` is where relative traces of sizes are.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Value`] for too many points or a trace without sense, and [`ScenarioError::Read`].
    pub fn points(&self, folder: &Path, points_max: usize) -> Result<Vec<Scenario>, ScenarioError> {
        let axes = self.matrix.axes()?;
        let mut points = self.points.clone();
        let offered = |point: &Table| {
            let point = self.point(self.combine(point, &Table::new()), folder)?;
            Ok(point.offered_mbit_s())
        };
        for sample in &self.samples {
            points.extend(sample.draw(offered)?);
        }
        let lists = [points.len().max(1), self.variants.len().max(1)];
        let count = axes
            .iter()
            .map(matrix::Axis::len)
            .chain(lists)
            .fold(1, usize::saturating_mul);
        if count > points_max {
            let expected = format!("at most {points_max} points");
            return Err(ScenarioError::value("matrix", count, &expected));
        }
        let mut tables = Vec::new();
        for point in or_one(&points) {
            let of_point = or_one(&self.variants).into_iter();
            tables.extend(of_point.map(|variant| self.combine(&point, &variant)));
        }
        for axis in &axes {
            tables = matrix::vary(&tables, axis);
        }
        tables
            .into_iter()
            .map(|table| self.point(table, folder))
            .collect()
    }

    /// Lays `variant` over `point` over what all points share; labels stand one behind the other.
    fn combine(&self, point: &Table, variant: &Table) -> Table {
        let mut table = self.common.clone();
        layer::put_on(&mut table, point.clone());
        layer::put_on(&mut table, variant.clone());
        let labels = [point, variant].map(|of| of.get("label").and_then(toml::Value::as_str));
        let labels: Vec<&str> = labels.into_iter().flatten().collect();
        if !labels.is_empty() {
            table.insert("label".to_owned(), labels.join(" ").into());
        }
        table
    }

    fn point(&self, table: Table, folder: &Path) -> Result<Scenario, ScenarioError> {
        let mut scenario: Scenario = table.try_into()?;
        scenario.apply_load()?;
        let size = &mut scenario.size;
        if !size.trace.is_empty() {
            let text = read(&folder.join(&size.trace))?;
            let read = one_a_line(&text, |line| line.parse().ok());
            size.trace_bytes = read.map_err(|found| {
                let found = format!("{}: {found}", size.trace);
                ScenarioError::value("size.trace", found, "one size in bytes a line")
            })?;
        }
        let processing = &mut scenario.processing;
        if !processing.trace.is_empty() {
            let text = read(&folder.join(&processing.trace))?;
            let read = processing.set_trace(&text);
            read.map_err(|(found, expected)| {
                let found = format!("{}: {found}", processing.trace);
                ScenarioError::value("processing.trace", found, expected)
            })?;
        }
        if let Some(writing) = &mut scenario.writing
            && !writing.trace.is_empty()
        {
            let text = read(&folder.join(&writing.trace))?;
            writing.set_trace(&text)?;
        }
        Ok(scenario)
    }
}

/// Returns `tables`, or one table that says nothing.
fn or_one(tables: &[Table]) -> Vec<Table> {
    match tables {
        [] => vec![Table::new()],
        tables => tables.to_vec(),
    }
}

fn read(path: &Path) -> Result<String, ScenarioError> {
    std::fs::read_to_string(path).map_err(|error| ScenarioError::Read {
        path: path.display().to_string(),
        error,
    })
}

#[cfg(test)]
mod tests;
