//! `enrich`: further labels from a table.

use super::{Draft, Flow, Operator, Registration};
use crate::keys::Key;
use crate::table::Table;
use sheaf_samples::LabelsError;
use std::collections::BTreeMap;

pub(super) const OPERATOR: Registration = Registration {
    name: "enrich",
    help: "Looks labels of the series up in a table and adds the other columns of the row as labels.",
    keys: &[
        Key {
            name: "table",
            form: "text",
            default: "required",
            help: "Name of the table.",
        },
        Key {
            name: "key",
            form: "list of texts",
            default: "required",
            help: "Labels that choose the row; the table has a column of each name.",
        },
        Key {
            name: "add",
            form: "list of texts",
            default: "all other columns",
            help: "Columns that become labels. An empty text adds none.",
        },
        Key {
            name: "replace",
            form: "true or false",
            default: "false",
            help: "Whether a label that the series has already is replaced.",
        },
    ],
    changes_labels: true,
    read: |keys, names| {
        let (table, key) = (keys.text("table"), keys.texts("key"));
        let add = keys.texts("add");
        let replaces = keys.flag("replace", false);
        let (table, key) = (table?, key?);
        if key.is_empty() {
            keys.wrong("key", "an empty list", "at least one label");
        }
        let Some(content) = names.tables.get(&table) else {
            let known: Vec<_> = names.tables.keys().map(String::as_str).collect();
            keys.wrong(
                "table",
                format!("{table:?}"),
                format!("one of [{}]", known.join(", ")),
            );
            return None;
        };
        let mut enrich = Enrich {
            table,
            key,
            add,
            replaces,
            rows: BTreeMap::new(),
        };
        if content.file.is_none()
            && !content.columns.is_empty()
            && let Err(column) = enrich.load(content)
        {
            keys.wrong(
                "table",
                format!("a table without column {column:?}"),
                "all columns of `key` and `add`",
            );
        }
        Some(Box::new(enrich))
    },
};

#[derive(Debug)]
struct Enrich {
    table: String,
    key: Vec<String>,
    add: Option<Vec<String>>,
    replaces: bool,
    /// Labels of each row by its key.
    rows: BTreeMap<Vec<String>, Vec<(String, String)>>,
}

impl Operator for Enrich {
    fn apply(&self, series: &mut Draft) -> Result<Flow, LabelsError> {
        let value = |name: &String| series.labels.get(name).unwrap_or_default().to_owned();
        let key: Vec<String> = self.key.iter().map(value).collect();
        let Some(row) = self.rows.get(&key) else {
            series.is_unmatched = true;
            return Ok(Flow::Pass);
        };
        for (name, value) in row {
            if !value.is_empty() && (self.replaces || series.labels.get(name).is_none()) {
                series.labels = series.labels.with(name, value)?;
            }
        }
        Ok(Flow::Pass)
    }

    fn table(&self) -> Option<&str> {
        Some(&self.table)
    }

    fn load(&mut self, table: &Table) -> Result<(), String> {
        let place = |column: &String| table.column(column).ok_or_else(|| column.clone());
        let keys = self.key.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let added: Vec<usize> = match &self.add {
            Some(add) => add.iter().map(place).collect::<Result<_, _>>()?,
            None => (0..table.columns.len())
                .filter(|at| !keys.contains(at))
                .collect(),
        };
        self.rows = BTreeMap::new();
        for row in &table.rows {
            let key = keys.iter().map(|at| row[*at].clone()).collect();
            let labels = added
                .iter()
                .map(|at| (table.columns[*at].clone(), row[*at].clone()));
            // The first row of a key counts, as in a file that is read from its top.
            self.rows.entry(key).or_insert_with(|| labels.collect());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::tests::{draft, read};

    fn table() -> Table {
        let owned = |texts: [&str; 3]| texts.map(str::to_owned).to_vec();
        Table {
            file: None,
            columns: owned(["host", "rack", "detector"]),
            rows: vec![
                owned(["flp1", "A3", "TPC"]),
                owned(["flp2", "A4", ""]),
                owned(["flp1", "B1", "ITS"]),
            ],
        }
    }

    fn enriched(text: &str, labels: &[(&str, &str)]) -> (String, bool) {
        let mut operator = read("enrich", text).unwrap();
        operator.load(&table()).unwrap();
        let mut draft = draft(labels);
        operator.apply(&mut draft).unwrap();
        (draft.labels.to_string(), draft.is_unmatched)
    }

    #[test]
    fn rows_become_labels() {
        let text = "table = 'hosts'\nkey = ['host']";
        let check = |labels, expected: &str, is_unmatched| {
            assert_eq!(enriched(text, labels), (expected.to_owned(), is_unmatched));
        };
        check(
            &[("host", "flp1")],
            r#"{detector="TPC", host="flp1", rack="A3"}"#,
            false,
        );
        check(&[("host", "flp2")], r#"{host="flp2", rack="A4"}"#, false);
        check(&[("host", "flp9")], r#"{host="flp9"}"#, true);
        check(
            &[("host", "flp1"), ("rack", "C")],
            r#"{detector="TPC", host="flp1", rack="C"}"#,
            false,
        );
    }

    #[test]
    fn chosen_columns_may_replace() {
        let text = "table = 'hosts'\nkey = ['host']\nadd = ['rack']\nreplace = true";
        let (labels, _) = enriched(text, &[("host", "flp1"), ("rack", "C")]);
        assert_eq!(labels, r#"{host="flp1", rack="A3"}"#);
    }

    #[test]
    fn a_missing_table_or_column_is_named() {
        let error = read("enrich", "table = 'racks'\nkey = ['host']")
            .unwrap_err()
            .join("");
        assert!(
            error.contains(r#""racks", expected one of [hosts]"#),
            "{error}"
        );
        let mut operator = read("enrich", "table = 'hosts'\nkey = ['node']").unwrap();
        assert_eq!(operator.load(&table()), Err("node".to_owned()));
    }
}
