//! Keys of a table of the configuration: declared once, read with every error named.
//!
//! An operator declares its [`Key`]s as rows; [`Keys`] reads a table by them, refuses what has no row, and goes on
//! after an error, so that a check lists all of them at once.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Declaration of one key of an operator.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name in the table.
    pub name: &'static str,
    /// Form of a value in words: `"text"`, `"list of texts"`.
    pub form: &'static str,
    /// Default, as written in TOML; empty if there is none and the key may be left out; `"required"`.
    pub default: &'static str,
    /// Meaning.
    pub help: &'static str,
}

/// Something in the configuration that cannot be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {found}, expected {expected}")]
pub struct ConfigError {
    /// Path of the key, such as `operator[2].deadband` (from 0).
    pub key: String,
    /// Value or key as it stands there.
    pub found: String,
    /// Values or keys that may stand there.
    pub expected: String,
}

/// All that is wrong in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct ConfigErrors(pub Vec<ConfigError>);

/// Reader of one table.
pub(crate) struct Keys<'a> {
    path: String,
    table: &'a Map<String, Value>,
    errors: &'a mut Vec<ConfigError>,
}

impl<'a> Keys<'a> {
    /// Returns the reader of `table`, which stands at `path` and has the keys of `rows` and no others.
    pub(crate) fn new(
        path: String,
        table: &'a Map<String, Value>,
        rows: &[&[Key]],
        errors: &'a mut Vec<ConfigError>,
    ) -> Self {
        let known = || rows.iter().copied().flatten().map(|row| row.name);
        let mut keys = Self {
            path,
            table,
            errors,
        };
        for name in table.keys() {
            if !known().any(|one| one == name) {
                let names: Vec<_> = known().collect();
                keys.wrong(name, "unknown key", format!("one of {}", names.join(", ")));
            }
        }
        for row in rows.iter().copied().flatten() {
            if row.default == "required" && !table.contains_key(row.name) {
                keys.wrong(row.name, "no value", row.form);
            }
        }
        keys
    }

    /// Records that the value of `key` cannot be accepted.
    pub(crate) fn wrong(
        &mut self,
        key: &str,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        self.errors.push(ConfigError {
            key: format!("{}.{key}", self.path),
            found: found.into(),
            expected: expected.into(),
        });
    }

    /// Returns whether the table has `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Text of `key`; nothing if it is absent or wrong.
    pub(crate) fn text(&mut self, key: &str) -> Option<String> {
        self.read(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// `true` or `false`; `default` if absent or wrong.
    pub(crate) fn flag(&mut self, key: &str, default: bool) -> bool {
        self.read(key, "true or false", Value::as_bool)
            .unwrap_or(default)
    }

    /// A whole number within `range`.
    pub(crate) fn integer(&mut self, key: &str, range: RangeInclusive<i64>) -> Option<i64> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.read(key, &expected, |value| {
            value.as_i64().filter(|number| range.contains(number))
        })
    }

    /// A finite number, 0 or more if `is_positive`.
    pub(crate) fn number(&mut self, key: &str, is_positive: bool) -> Option<f64> {
        let expected = if is_positive {
            "a finite number, 0 or more"
        } else {
            "a finite number"
        };
        self.read(key, expected, |value| {
            let number = value.as_f64()?;
            (number.is_finite() && (!is_positive || number >= 0.0)).then_some(number)
        })
    }

    /// A list of texts.
    pub(crate) fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        self.read(key, "a list of texts", |value| {
            let list = value.as_array()?.iter();
            list.map(|one| one.as_str().map(str::to_owned)).collect()
        })
    }

    /// A table of texts.
    pub(crate) fn pairs(&mut self, key: &str) -> Option<BTreeMap<String, String>> {
        self.read(key, "a table of texts", |value| {
            let table = value.as_object()?.iter();
            table
                .map(|(name, one)| Some((name.clone(), one.as_str()?.to_owned())))
                .collect()
        })
    }

    fn read<T>(
        &mut self,
        key: &str,
        expected: &str,
        form: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.table.get(key)?;
        let read = form(value);
        if read.is_none() {
            self.wrong(key, in_words(value), expected);
        }
        read
    }
}

fn in_words(value: &Value) -> String {
    match value {
        Value::Null => "a number that is not finite".to_owned(),
        Value::Object(_) => "a table".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &[Key] = &[
        Key {
            name: "size",
            form: "number",
            default: "required",
            help: "",
        },
        Key {
            name: "names",
            form: "list of texts",
            default: "[]",
            help: "",
        },
    ];

    fn check(json: &str) -> Vec<String> {
        let table: Map<String, Value> = serde_json::from_str(json).unwrap();
        let mut errors = Vec::new();
        let mut keys = Keys::new("operator[0]".to_owned(), &table, &[ROWS], &mut errors);
        keys.integer("size", 1..=9);
        keys.texts("names");
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_error_is_listed_with_key_found_and_expected() {
        assert_eq!(
            check(r#"{"size": 12, "names": ["a", 1], "colour": "red"}"#),
            [
                "operator[0].colour: unknown key, expected one of size, names",
                "operator[0].size: 12, expected a whole number from 1 to 9",
                r#"operator[0].names: ["a",1], expected a list of texts"#,
            ]
        );
        assert_eq!(check("{}"), ["operator[0].size: no value, expected number"]);
        assert_eq!(check(r#"{"size": 9}"#), Vec::<String>::new());
    }
}
