//! A table `[[sample]]`: points whose keys are drawn by lot.
//!
//! A key has a list, of which one value is drawn, each as likely, or a range `{ from = 1, to = 14 }`: whole numbers if
//! both ends are, and as many in each decade with `scale = "log"`. Equal seeds give equal points. A point that sources
//! would make more than `offered_mbit_max` in is drawn again.

use super::layer::Layer;
use crate::scenario::ScenarioError;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;
use toml::de::DeTable;
use toml::{Spanned, Table, Value};

/// Upper bound of points that are drawn.
const POINTS_MAX: u32 = 1_000;
/// Draws of one point before the bound of the offered rate counts as one that cannot be met.
const DRAWS_MAX: u32 = 1_000;

/// A table `[[sample]]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Sample {
    /// Name of the points in results, before their numbers.
    #[serde(default = "drawn")]
    pub label: String,
    /// Number of points.
    pub points: u32,
    /// Seed of the draws.
    pub seed: u64,
    /// Upper bound of what the sources of a point make, in Mbit/s.
    #[serde(default)]
    pub offered_mbit_max: Option<f64>,
    /// Keys of farms, with what is drawn for them.
    #[serde(flatten)]
    keys: Table,
}

fn drawn() -> String {
    "drawn".to_owned()
}

/// Range of numbers.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    from: Value,
    to: Value,
    #[serde(default)]
    scale: Scale,
}

/// Scale on which numbers of a range are as likely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Scale {
    #[default]
    Linear,
    Log,
}

impl Sample {
    /// Takes the table.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Toml`] for values of another type, with the line, and [`ScenarioError::Value`] for numbers of
    /// points that are refused.
    pub(super) fn of(table: Spanned<DeTable<'_>>) -> Result<Self, ScenarioError> {
        let sample = Self::deserialize(toml::Deserializer::from(table))?;
        if !(1..=POINTS_MAX).contains(&sample.points) {
            let expected = format!("1 to {POINTS_MAX}");
            return Err(ScenarioError::value(
                "sample.points",
                sample.points,
                &expected,
            ));
        }
        Ok(sample)
    }

    /// Draws the points. `offered_mbit_s` tells what the sources of one make.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Value`] for a key without a list or a range, and for a bound of the offered rate that no point
    /// keeps; what `offered_mbit_s` refuses.
    pub(super) fn draw(
        &self,
        offered_mbit_s: impl Fn(&Table) -> Result<f64, ScenarioError>,
    ) -> Result<Vec<Table>, ScenarioError> {
        let mut chance = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let most = self.offered_mbit_max.unwrap_or(f64::INFINITY);
        let mut points = Vec::new();
        for number in 1..=self.points {
            let mut draws = 0;
            let mut point = loop {
                let point = draw_table(&mut chance, &self.keys, "sample")?;
                let point = Layer::short(point)?.into_table();
                if offered_mbit_s(&point)? <= most {
                    break point;
                }
                draws += 1;
                if draws == DRAWS_MAX {
                    let expected = "a bound that drawn points keep";
                    return Err(ScenarioError::value(
                        "sample.offered_mbit_max",
                        most,
                        expected,
                    ));
                }
            };
            let label = format!("{} {number}", self.label);
            point.insert("label".to_owned(), label.into());
            points.push(point);
        }
        Ok(points)
    }
}

fn draw_table(
    chance: &mut Xoshiro256PlusPlus,
    keys: &Table,
    within: &str,
) -> Result<Table, ScenarioError> {
    let draw = |(key, value): (&String, &Value)| {
        let name = format!("{within}.{key}");
        let drawn = match value {
            Value::Array(values) if !values.is_empty() => {
                values[chance.random_range(0..values.len())].clone()
            }
            Value::Table(range) if range.contains_key("from") || range.contains_key("to") => {
                let range: Range = range.clone().try_into()?;
                range.draw(chance, &name)?
            }
            Value::Table(inner) => draw_table(chance, inner, &name)?.into(),
            other => {
                let expected = "a list of values, or a range { from = …, to = … }";
                return Err(ScenarioError::value(&name, other, expected));
            }
        };
        Ok((key.clone(), drawn))
    };
    keys.iter().map(draw).collect()
}

impl Range {
    fn draw(&self, chance: &mut Xoshiro256PlusPlus, name: &str) -> Result<Value, ScenarioError> {
        let number = |value: &Value| match value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        };
        let least = if self.scale == Scale::Log {
            0.0
        } else {
            f64::MIN
        };
        let (from, to) = match (number(&self.from), number(&self.to)) {
            (Some(from), Some(to)) if from > least && from <= to && to.is_finite() => (from, to),
            _ => {
                let found = format!("{} to {}", self.from, self.to);
                let expected = "two numbers, the smaller one first, above 0 if the scale is log";
                return Err(ScenarioError::value(name, found, expected));
            }
        };
        let is_whole = matches!(
            (&self.from, &self.to),
            (Value::Integer(_), Value::Integer(_))
        );
        // Each whole number has as much room, those at the ends too.
        let to = if is_whole { to + 1.0 } else { to };
        let share: f64 = chance.random();
        let drawn = match self.scale {
            Scale::Linear => from + share * (to - from),
            Scale::Log => from * (to / from).powf(share),
        };
        Ok(match is_whole {
            true => Value::Integer(drawn.floor().min(to - 1.0) as i64),
            // Four digits: a label and a name of a file show them.
            false => Value::Float(rounded(drawn)),
        })
    }
}

/// Returns `number` with four significant digits.
fn rounded(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ExperimentFile;
    use std::path::Path;

    const FILE: &str = "name = 'x'\nquestion = '?'\nbytes = 1000\n[[sample]]\npoints = 40\nseed = 3\n\
        flps = { from = 1, to = 4 }\nload = { from = 0.25, to = 1.0 }\n\
        processing_ms = { from = 1.0, to = 100.0, scale = 'log' }\npolicy = ['random', 'modulo']\n\
        processing.distribution = ['fixed', 'lognormal']\ngroups = [[], [{ epns = 1, speed = 0.5 }]]\n";

    fn points(text: &str) -> Result<Vec<crate::scenario::Scenario>, ScenarioError> {
        ExperimentFile::parse(text)?.points(Path::new("."), 1_000)
    }

    #[test]
    fn drawn_points_keep_their_ranges_and_are_equal_for_equal_seeds() {
        let drawn = points(FILE).expect("sound");
        assert_eq!(drawn.len(), 40);
        assert_eq!(drawn, points(FILE).expect("sound"));
        let other = FILE.replace("seed = 3", "seed = 4");
        assert_ne!(drawn, points(&other).expect("sound"));
        for flps in 1..=4 {
            assert!(drawn.iter().any(|point| point.flps == flps), "{flps}");
        }
        let (mut short, mut slow) = (0, 0);
        for point in &drawn {
            assert!((1..=4).contains(&point.flps));
            let load = point.load.expect("drawn");
            assert!((0.25..=1.0).contains(&load));
            assert!((1.0..=100.0).contains(&point.processing.ms));
            // The rate follows from the load of the drawn point.
            let offered = point.offered_load().expect("work");
            assert!((offered - load).abs() < 1e-9, "{offered} {load}");
            short += u32::from(point.processing.ms < 10.0);
            slow += u32::from(!point.groups.is_empty());
        }
        assert!(
            (12..=28).contains(&short) && (12..=28).contains(&slow),
            "{short} {slow}"
        );
        assert_eq!(drawn[6].label, "drawn 7");
    }

    #[test]
    fn a_bound_of_the_offered_rate_is_kept_or_refused() {
        let bounded =
            |most: &str| FILE.replace("seed = 3", &format!("seed = 3\noffered_mbit_max = {most}"));
        let offered = crate::scenario::Scenario::offered_mbit_s;
        let all = points(FILE).expect("sound");
        assert!(all.iter().any(|point| offered(point) > 1.0));
        let kept = points(&bounded("1.0")).expect("sound");
        assert!(kept.iter().all(|point| offered(point) <= 1.0));
        let error = points(&bounded("1e-9"))
            .expect_err("nothing keeps it")
            .to_string();
        assert!(error.contains("sample.offered_mbit_max"), "{error}");
    }

    #[test]
    fn what_is_no_list_and_no_range_is_refused_by_its_name() {
        for (key, expected) in [
            (
                "epns = 3",
                "sample.epns: found 3, expected a list of values",
            ),
            (
                "epns = { from = 5, to = 2 }",
                "sample.epns: found 5 to 2, expected two numbers",
            ),
            (
                "epns = { from = 0, to = 2, scale = 'log' }",
                "sample.epns: found 0 to 2",
            ),
            (
                "size.sigma = { from = 'a', to = 2 }",
                "sample.size.sigma: found \"a\" to 2",
            ),
            ("moons = [1, 2]", "unknown field `moons`"),
        ] {
            let error = points(&format!("{FILE}{key}\n"))
                .expect_err(key)
                .to_string();
            assert!(error.contains(expected), "{key}: {error}");
        }
        let error = points(&FILE.replace("points = 40", "points = 0"))
            .expect_err("none")
            .to_string();
        assert!(error.contains("sample.points: found 0"), "{error}");
    }
}
