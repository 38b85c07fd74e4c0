//! A scenario file: one scenario, or the product of a matrix of them.

use super::{Mode, Push, Reaction, Scenario, ScenarioError};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Points that one file may ask for.
const POINTS_MAX: usize = 10_000;
/// Table, former and present name of the keys that were renamed.
const RENAMED: [(&str, &str, &str); 3] = [
    ("farm", "stale_ms", "stf_timeout_ms"),
    ("registry", "grace_ms", "flp_grace_ms"),
    ("registry", "dead_ms", "epn_grace_ms"),
];

/// A scenario file.
#[derive(Clone, Debug, PartialEq)]
pub struct ScenarioFile {
    /// Common part of all points.
    pub base: Scenario,
    /// Differences of the points.
    pub matrix: Matrix,
}

/// The `[matrix]` table: each list replaces a key of the scenario, and every combination is one point.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Matrix {
    /// Values of `flps`.
    pub flps: Vec<u32>,
    /// Values of `epns`.
    pub epns: Vec<u32>,
    /// Values of `rate_hz`.
    pub rate_hz: Vec<f64>,
    /// Values of `size.bytes`.
    pub bytes: Vec<u64>,
    /// Values of `policy`.
    pub policy: Vec<String>,
    /// Values of `reaction`.
    pub reaction: Vec<Reaction>,
    /// Values of `mode`.
    pub mode: Vec<Mode>,
    /// Values of `push`.
    pub push: Vec<Push>,
    /// Values of `registry.suspect_ms`: how long a silent node goes unnoticed.
    pub suspect_ms: Vec<u64>,
}

impl ScenarioFile {
    /// Reads and checks a file; a trace of sizes is read with it.
    ///
    /// # Errors
    ///
    /// A [`ScenarioError`] that names the wrong value and the accepted ones.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|error| ScenarioError::Read {
                path: path.display().to_string(),
                error,
            })
        };
        let mut file = Self::parse(&read(path)?)?;
        if !file.base.size.trace.is_empty() {
            let folder = path.parent().unwrap_or_else(|| Path::new(""));
            let trace = folder.join(&file.base.size.trace);
            file.base.size.trace_bytes = trace_sizes(&read(&trace)?)?;
        }
        file.points()?;
        Ok(file)
    }

    /// Reads the text of a file, without checking its values.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Toml`] for anything but the keys of a scenario, and a `[matrix]`; [`ScenarioError::Value`] for
    /// a key of an earlier release, with its present name.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let mut table: toml::Table = toml::from_str(text)?;
        for (within, former, present) in RENAMED {
            if table
                .get(within)
                .and_then(|table| table.get(former))
                .is_some()
            {
                let key = format!("{within}.{former}");
                let expected = format!("the present one: {key} is now {within}.{present}");
                return Err(ScenarioError::value(&key, "a former name", &expected));
            }
        }
        let matrix = match table.remove("matrix") {
            Some(matrix) => matrix.try_into()?,
            None => Matrix::default(),
        };
        if matrix == Matrix::default() {
            // With the lines of the text in its errors.
            let is_plain = !text.lines().any(|line| line.trim() == "[matrix]");
            let base = if is_plain {
                toml::from_str(text)?
            } else {
                table.try_into()?
            };
            return Ok(Self { base, matrix });
        }
        Ok(Self {
            base: table.try_into()?,
            matrix,
        })
    }

    /// Returns every combination of the matrix as a scenario of its own, checked.
    ///
    /// # Errors
    ///
    /// A [`ScenarioError`] of the first point that cannot be run, or if there are more than 10,000.
    pub fn points(&self) -> Result<Vec<Scenario>, ScenarioError> {
        let matrix = &self.matrix;
        let mut points = vec![self.base.clone()];
        vary(&mut points, &matrix.flps, |s, v| s.flps = *v)?;
        vary(&mut points, &matrix.epns, |s, v| s.epns = *v)?;
        vary(&mut points, &matrix.rate_hz, |s, v| s.rate_hz = *v)?;
        vary(&mut points, &matrix.bytes, |s, v| s.size.bytes = *v)?;
        vary(&mut points, &matrix.policy, |s, v| s.policy.clone_from(v))?;
        vary(&mut points, &matrix.reaction, |s, v| s.reaction = *v)?;
        vary(&mut points, &matrix.mode, |s, v| s.mode = *v)?;
        vary(&mut points, &matrix.push, |s, v| s.push = *v)?;
        vary(&mut points, &matrix.suspect_ms, |s, v| {
            s.registry.suspect_ms = *v;
        })?;
        for point in &points {
            point.check()?;
        }
        Ok(points)
    }
}

fn vary<V>(
    points: &mut Vec<Scenario>,
    values: &[V],
    set: impl Fn(&mut Scenario, &V),
) -> Result<(), ScenarioError> {
    if values.is_empty() {
        return Ok(());
    }
    let count = points.len().saturating_mul(values.len());
    if count > POINTS_MAX {
        let expected = format!("at most {POINTS_MAX} points");
        return Err(ScenarioError::value("matrix", count, &expected));
    }
    let mut product = Vec::with_capacity(count);
    for point in points.iter() {
        for value in values {
            let mut point = point.clone();
            set(&mut point, value);
            product.push(point);
        }
    }
    *points = product;
    Ok(())
}

fn trace_sizes(text: &str) -> Result<Vec<u64>, ScenarioError> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let sizes: Result<Vec<u64>, _> = lines
        .map(|line| {
            line.parse::<u64>()
                .map_err(|_| ScenarioError::value("size.trace", line, "one size in bytes a line"))
        })
        .collect();
    sizes
}
