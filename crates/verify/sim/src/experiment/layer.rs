//! A layer of a file: some keys of a farm, in any order of tables.

use super::OF_FILE;
use crate::scenario::{Scenario, ScenarioError};
use serde::Deserialize as _;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// Short names of keys, the table that the key is in, and its name there. The matrix knows them, too.
const SHORT: [(&str, &str, &str); 9] = [
    ("bytes", "size", "bytes"),
    ("suspect_ms", "registry", "suspect_ms"),
    ("processing_ms", "processing", "ms"),
    ("mix", "writing", "mix"),
    ("drift", "writing", "drift"),
    ("workers", "writing", "workers"),
    ("assignment", "writing", "assignment"),
    ("plane", "serving", "plane"),
    ("clients", "serving", "clients"),
];
/// Other name of the list of faults, of experiments before the one schema.
const FAULT: (&str, &str) = ("fault", "faults");
/// Table, former and present name of the keys that were renamed.
const RENAMED: [(&str, &str, &str); 3] = [
    ("farm", "stale_ms", "stf_timeout_ms"),
    ("registry", "grace_ms", "flp_grace_ms"),
    ("registry", "dead_ms", "epn_grace_ms"),
];

/// Keys of farms, each of a known name and type, under their full names.
#[derive(Debug, Default)]
pub(super) struct Layer(Table);

impl Layer {
    /// Takes the keys of `table`.
    ///
    /// # Errors
    ///
    /// All of [`ExperimentFile::parse`](super::ExperimentFile::parse).
    pub(super) fn of(table: Spanned<DeTable<'_>>) -> Result<Self, ScenarioError> {
        let (span, mut table) = (table.span(), table.into_inner());
        refuse_renamed(&table)?;
        for (short, within, name) in SHORT {
            if let Some((key, value)) = table.remove_entry(short) {
                nest(&mut table, short, (within, name), key.span(), value)?;
            }
        }
        let (alias, name) = FAULT;
        if let Some((key, value)) = table.remove_entry(alias) {
            let key = Spanned::new(key.span(), name.into());
            if table.insert(key, value).is_some() {
                return Err(ScenarioError::value(alias, "faults, too", "one of the two"));
            }
        }
        let table = Spanned::new(span, table);
        // Unknown keys and wrong types are reported with their line here, before layers are laid over each other.
        Scenario::deserialize(toml::Deserializer::from(table.clone()))?;
        Ok(Self(Table::deserialize(toml::Deserializer::from(table))?))
    }

    /// Takes the keys of a `[base]`, `[[point]]` or `[[variant]]`: all but those of the whole file.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub(super) fn of_farm(table: Spanned<DeTable<'_>>, at: &str) -> Result<Self, ScenarioError> {
        let layer = Self::of(table)?;
        match OF_FILE.iter().find(|key| layer.has(key)) {
            Some(key) => {
                let found = format!("it in [{at}]");
                Err(ScenarioError::value(
                    key,
                    found,
                    "it at the top of the file",
                ))
            }
            None => Ok(layer),
        }
    }

    /// Takes the keys of `table`, which were drawn; short names are put where they belong.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Toml`] for unknown keys and values of another type.
    pub(super) fn short(table: Table) -> Result<Self, ScenarioError> {
        let mut full = Table::new();
        for (key, value) in table {
            set(&mut full, &key, value);
        }
        let layer = Self(full);
        layer.scenario()?;
        Ok(layer)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    pub(super) fn without(mut self, keys: &[&str]) -> Self {
        keys.iter().for_each(|key| drop(self.0.remove(*key)));
        self
    }

    /// Returns the scenario of this layer and the defaults.
    pub(super) fn scenario(&self) -> Result<Scenario, ScenarioError> {
        Ok(self.0.clone().try_into()?)
    }

    /// Lays `upper` over this layer.
    pub(super) fn put_on(&mut self, upper: Self) {
        put_on(&mut self.0, upper.0);
    }

    pub(super) fn into_table(self) -> Table {
        self.0
    }
}

/// Lays `upper` over `lower`: values replace those of the same key, lists included; tables are laid over each other.
pub(super) fn put_on(lower: &mut Table, upper: Table) {
    for (key, value) in upper {
        match (lower.get_mut(&key), value) {
            (Some(Value::Table(lower)), Value::Table(upper)) => put_on(lower, upper),
            (_, value) => {
                lower.insert(key, value);
            }
        }
    }
}

/// Sets `key`, of the matrix, which may be a short name.
pub(super) fn set(table: &mut Table, key: &str, value: Value) {
    let short = SHORT.iter().find(|(short, ..)| *short == key);
    let mut upper = Table::new();
    match short {
        Some((_, within, name)) => {
            let inner = Table::from_iter([((*name).to_owned(), value)]);
            upper.insert((*within).to_owned(), inner.into());
        }
        None => {
            upper.insert(key.to_owned(), value);
        }
    }
    put_on(table, upper);
}

/// Puts the value of a short name where it belongs.
fn nest<'i>(
    table: &mut DeTable<'i>,
    short: &str,
    (within, name): (&str, &str),
    span: std::ops::Range<usize>,
    value: Spanned<DeValue<'i>>,
) -> Result<(), ScenarioError> {
    if !table.contains_key(within) {
        let key = Spanned::new(span.clone(), within.to_owned().into());
        let empty = DeValue::Table(DeTable::new());
        table.insert(key, Spanned::new(span.clone(), empty));
    }
    // Anything but a table is refused with its line by the reader of the scenario.
    if let Some(DeValue::Table(inner)) = table.get_mut(within).map(Spanned::as_mut) {
        let key = Spanned::new(span, name.to_owned().into());
        if inner.insert(key, value).is_some() {
            let found = format!("{within}.{name}, too");
            return Err(ScenarioError::value(short, found, "one of the two"));
        }
    }
    Ok(())
}

fn refuse_renamed(table: &DeTable<'_>) -> Result<(), ScenarioError> {
    for (within, former, present) in RENAMED {
        let inner = table.get(within).map(Spanned::as_ref);
        if let Some(DeValue::Table(inner)) = inner
            && inner.contains_key(former)
        {
            let key = format!("{within}.{former}");
            let expected = format!("the present one: {key} is now {within}.{present}");
            return Err(ScenarioError::value(&key, "a former name", &expected));
        }
    }
    Ok(())
}

/// Takes the table `key` out of `top`.
pub(super) fn table<'i>(
    top: &mut DeTable<'i>,
    key: &str,
) -> Result<Option<Spanned<DeTable<'i>>>, ScenarioError> {
    let Some(value) = top.remove(key) else {
        return Ok(None);
    };
    let span = value.span();
    match value.into_inner() {
        DeValue::Table(table) => Ok(Some(Spanned::new(span, table))),
        other => Err(wrong_type(key, &other, "a table")),
    }
}

/// Takes the tables `[[key]]` out of `top`.
pub(super) fn list<'i>(
    top: &mut DeTable<'i>,
    key: &str,
) -> Result<Vec<Spanned<DeTable<'i>>>, ScenarioError> {
    let Some(value) = top.remove(key) else {
        return Ok(Vec::new());
    };
    let tables = match value.into_inner() {
        DeValue::Array(tables) => tables,
        other => return Err(wrong_type(key, &other, "a list of tables")),
    };
    let mut list = Vec::new();
    for value in tables {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => list.push(Spanned::new(span, table)),
            other => return Err(wrong_type(key, &other, "a list of tables")),
        }
    }
    Ok(list)
}

fn wrong_type(key: &str, found: &DeValue<'_>, expected: &str) -> ScenarioError {
    ScenarioError::value(key, found.type_str(), expected)
}
