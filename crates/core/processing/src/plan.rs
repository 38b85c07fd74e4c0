//! A configuration that has been checked: operators that can be applied.

use crate::config::{Limits, ProcessingConfig};
use crate::keys::{ConfigError, ConfigErrors, Keys};
use crate::operator::window::Window;
use crate::operator::{COMMON, Names, Operator, Registration, TABLE};
use crate::output::Destinations;
use crate::selector::Selector;
use crate::stats::OperatorStats;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Most operators of a configuration.
const OPERATORS_MAX: usize = 1000;

/// One operator and where it works.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) id: String,
    pub(crate) kind: &'static str,
    pub(crate) selector: Selector,
    pub(crate) operator: Box<dyn Operator>,
    /// Place among the windows.
    pub(crate) window: Option<u16>,
    /// Whether series of different shards may share groups of this window.
    pub(crate) is_across: bool,
    /// All keys but the id: operators of equal definitions are the same.
    definition: Map<String, Value>,
}

/// Operators in order, and bounds.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) operators: Vec<Planned>,
    pub(crate) limits: Limits,
    pub(crate) config: ProcessingConfig,
}

impl ProcessingConfig {
    /// Checks the whole configuration.
    ///
    /// # Errors
    ///
    /// Everything that is wrong, in the order of the file.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        Plan::new(self).map(drop)
    }
}

impl Plan {
    pub(crate) fn new(config: &ProcessingConfig) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        check_destinations(&config.destinations, &mut errors);
        check_limits(&config.limits, &mut errors);
        for (name, table) in &config.tables {
            if let Err(error) = table.check(config.limits.table_rows_max) {
                let expected = "rows of one text a column".to_owned();
                errors.push(error_at(
                    format!("tables.{name}"),
                    error.to_string(),
                    expected,
                ));
            }
            if table.file.is_some() && !table.rows.is_empty() {
                let expected = "either `file` or `rows`".to_owned();
                errors.push(error_at(
                    format!("tables.{name}"),
                    "a file and rows",
                    expected,
                ));
            }
        }
        let found = config.operator.len();
        if found > OPERATORS_MAX {
            let expected = format!("{OPERATORS_MAX} at most");
            errors.push(error_at("operator".to_owned(), found.to_string(), expected));
            return Err(ConfigErrors(errors));
        }
        let mut operators: Vec<Planned> = Vec::new();
        let (mut windows, mut is_relabelled) = (0, false);
        let mut seen = Seen::default();
        for (place, table) in config.operator.iter().enumerate() {
            let read = read(place, table, config, &mut seen, &mut errors);
            let Some((registration, id, selector, operator)) = read else {
                continue;
            };
            let is_window = operator.window().is_some();
            let across = operator.window().is_some_and(Window::is_across);
            let mut definition = table.clone();
            definition.remove("id");
            operators.push(Planned {
                id,
                kind: registration.name,
                selector,
                window: is_window.then_some(windows),
                is_across: is_window && (across || is_relabelled),
                operator,
                definition,
            });
            windows += u16::from(is_window);
            is_relabelled |= registration.changes_labels;
        }
        if errors.is_empty() {
            let limits = config.limits.clone();
            let config = config.clone();
            Ok(Self {
                operators,
                limits,
                config,
            })
        } else {
            Err(ConfigErrors(errors))
        }
    }

    /// Place in `old` of each operator that is the same there; of several with equal definitions, the one of equal id.
    /// With shards, a window is also computed in the same place.
    pub(crate) fn kept_from(&self, old: &Self, has_shards: bool) -> Vec<Option<usize>> {
        let mut taken = BTreeSet::new();
        let mut kept = vec![None; self.operators.len()];
        for wants_id in [true, false] {
            for (new, place) in self.operators.iter().zip(&mut kept) {
                let is_same = |at: &usize| {
                    let was = &old.operators[*at];
                    let moves = has_shards && was.is_across != new.is_across;
                    let same = was.definition == new.definition && !moves;
                    same && !taken.contains(at) && (was.id == new.id || !wants_id)
                };
                if place.is_none() {
                    *place = (0..old.operators.len()).find(is_same);
                    taken.extend(*place);
                }
            }
        }
        kept
    }

    /// Counts of all operators, at zero.
    pub(crate) fn stats(&self) -> Vec<OperatorStats> {
        let of = |one: &Planned| OperatorStats {
            id: one.id.clone(),
            kind: one.kind,
            ..OperatorStats::default()
        };
        self.operators.iter().map(of).collect()
    }
}

/// Operators that were read before.
#[derive(Default)]
struct Seen {
    ids: BTreeSet<String>,
    kinds: BTreeMap<&'static str, usize>,
}

type Read = (&'static Registration, String, Selector, Box<dyn Operator>);

fn read(
    place: usize,
    table: &Map<String, Value>,
    config: &ProcessingConfig,
    seen: &mut Seen,
    errors: &mut Vec<ConfigError>,
) -> Option<Read> {
    let before = errors.len();
    let path = format!("operator[{place}]");
    let kind = table
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let Some(registration) = TABLE.iter().find(|one| one.name == kind) else {
        let found = table
            .get("kind")
            .map_or("no value".to_owned(), Value::to_string);
        let names: Vec<_> = TABLE.iter().map(|one| one.name).collect();
        let expected = format!("one of {}", names.join(", "));
        errors.push(error_at(format!("{path}.kind"), found, expected));
        return None;
    };
    let mut keys = Keys::new(path, table, &[COMMON, registration.keys], errors);
    let number = seen.kinds.entry(registration.name).or_insert(0);
    let default_id = format!("{kind}-{number}");
    *number += 1;
    let id = keys.text("id").unwrap_or(default_id);
    if id.is_empty() || !seen.ids.insert(id.clone()) {
        keys.wrong("id", format!("{id:?}"), "a name that no other operator has");
    }
    let selector = match keys.text("select").map(|text| Selector::parse(&text)) {
        None => Selector::default(),
        Some(Ok(selector)) => selector,
        Some(Err(found)) => {
            keys.wrong("select", found, "a vector selector of PromQL");
            Selector::default()
        }
    };
    let names = Names {
        destinations: &config.destinations,
        tables: &config.tables,
    };
    let operator = (registration.read)(&mut keys, &names);
    (errors.len() == before).then(|| {
        (
            registration,
            id,
            selector,
            operator.expect("no error was named"),
        )
    })
}

fn check_destinations(names: &[String], errors: &mut Vec<ConfigError>) {
    let mut seen = BTreeSet::new();
    let mut once = names.iter();
    if let Some(name) = once.find(|name| name.is_empty() || !seen.insert(name.as_str())) {
        let expected = "each name once".to_owned();
        errors.push(error_at(
            "destinations".to_owned(),
            format!("{name:?}"),
            expected,
        ));
    }
    if names.is_empty() || names.len() > Destinations::MAX {
        let expected = format!("1 to {} names", Destinations::MAX);
        errors.push(error_at(
            "destinations".to_owned(),
            names.len().to_string(),
            expected,
        ));
    }
}

fn check_limits(limits: &Limits, errors: &mut Vec<ConfigError>) {
    for (name, found) in [
        ("series_max", limits.series_max),
        ("outputs_max", limits.outputs_max),
        ("groups_max", limits.groups_max),
        ("open_windows_max", limits.open_windows_max),
        ("sketch_bins_max", limits.sketch_bins_max),
        ("table_rows_max", limits.table_rows_max),
    ] {
        let least = if name == "sketch_bins_max" { 16 } else { 1 };
        // Handles and groups are numbers of 32 bits.
        let most = 1 << 30;
        if !(least..=most).contains(&found) {
            let expected = format!("a whole number from {least} to {most}");
            errors.push(error_at(
                format!("limits.{name}"),
                found.to_string(),
                expected,
            ));
        }
    }
    if !(0..=3_600_000).contains(&limits.shard_wait_ms) {
        let expected = "a whole number from 0 to 3600000".to_owned();
        errors.push(error_at(
            "limits.shard_wait_ms".to_owned(),
            limits.shard_wait_ms.to_string(),
            expected,
        ));
    }
}

fn error_at(key: String, found: impl Into<String>, expected: String) -> ConfigError {
    ConfigError {
        key,
        found: found.into(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, Vec<String>> {
        let config: ProcessingConfig = toml::from_str(text).unwrap();
        Plan::new(&config).map_err(|errors| errors.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn all_errors_are_listed_at_once() {
        let errors = plan(
            r#"
            destinations = ["raw", "raw"]
            limits = { series_max = 0, shard_wait_ms = -1 }
            tables.hosts = { columns = ["a"], rows = [["1", "2"]] }
            [[operator]]
            kind = "on_changed"
            [[operator]]
            kind = "keep"
            id = "same"
            select = "rate(x[1m])"
            [[operator]]
            kind = "drop"
            id = "same"
            labels = "pid"
            [[operator]]
            kind = "route"
            to = ["tape"]
            "#,
        );
        let keys: Vec<String> = errors
            .unwrap_err()
            .iter()
            .map(|error| error.split(':').next().unwrap().to_owned())
            .collect();
        assert_eq!(
            keys,
            [
                "destinations",
                "limits.series_max",
                "limits.shard_wait_ms",
                "tables.hosts",
                "operator[0].kind",
                "operator[1].select",
                "operator[2].id",
                "operator[2].labels",
                "operator[3].to",
            ]
        );
    }

    #[test]
    fn an_operator_is_the_same_by_its_definition() {
        let old = plan("operator = [{ kind = 'on_change' }, { kind = 'drop', labels = ['a'] }, { kind = 'on_change', id = 'first' }]").unwrap();
        let new = plan(
            "operator = [{ kind = 'keep', select = 'x' }, { kind = 'on_change', id = 'first' }, \
             { kind = 'on_change', deadband = 1 }, { kind = 'drop', id = 'pids', labels = ['a'] }, \
             { kind = 'on_change', id = 'x' }]",
        )
        .unwrap();
        assert_eq!(
            new.kept_from(&old, true),
            [None, Some(2), None, Some(1), Some(0)]
        );
    }

    #[test]
    fn windows_are_across_behind_a_change_of_labels() {
        let window = "{ kind = 'window', length_ms = 1, functions = ['sum'] }";
        let across = |text: String| {
            plan(&text)
                .unwrap()
                .operators
                .iter()
                .map(|one| one.is_across)
                .collect::<Vec<_>>()
        };
        assert_eq!(across(format!("operator = [{window}]")), [false]);
        let text = format!("operator = [{{ kind = 'on_change' }}, {window}, {window}]");
        assert_eq!(across(text), [false, false, true]);
        let text = format!("operator = [{{ kind = 'drop', labels = ['a'] }}, {window}]");
        assert_eq!(across(text), [false, true]);
    }
}
