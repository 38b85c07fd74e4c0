//! Tables that `enrich` looks series up in.

use serde::{Deserialize, Serialize};

/// Rows of text under named columns: inline in the configuration, or given by the driver from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Table {
    /// File that the driver reads the table from; the pipeline only knows that rows come later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows, each with one text a column.
    pub rows: Vec<Vec<String>>,
}

/// Reason why a table is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Two columns of one name, or a column without one.
    #[error("column {0:?} stands twice or has no name, expected each name once")]
    Column(String),
    /// A row that is too short or too long.
    #[error("row {row} has {found} texts, expected {expected}")]
    Row {
        /// Number of the row, from 0.
        row: usize,
        /// Texts in it.
        found: usize,
        /// Columns of the table.
        expected: usize,
    },
    /// More rows than the bound.
    #[error("{found} rows, expected {limit} at most")]
    TooLong {
        /// Rows.
        found: usize,
        /// The bound, `limits.table_rows_max`.
        limit: usize,
    },
    /// No table of this name in the configuration.
    #[error("table {0:?} is not in the configuration")]
    Unknown(String),
    /// A column that an operator reads is missing.
    #[error("table {table:?} has no column {column:?}, which operator {operator:?} reads")]
    Missing {
        /// Name of the table.
        table: String,
        /// Name of the column.
        column: String,
        /// Id of the operator.
        operator: String,
    },
}

impl Table {
    /// Checks names of columns, lengths of rows and their number.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn check(&self, rows_max: usize) -> Result<(), TableError> {
        for (place, column) in self.columns.iter().enumerate() {
            if column.is_empty() || self.columns[..place].contains(column) {
                return Err(TableError::Column(column.clone()));
            }
        }
        let expected = self.columns.len();
        for (row, texts) in self.rows.iter().enumerate() {
            if texts.len() != expected {
                let found = texts.len();
                return Err(TableError::Row {
                    row,
                    found,
                    expected,
                });
            }
        }
        let found = self.rows.len();
        if found > rows_max {
            let limit = rows_max;
            return Err(TableError::TooLong { found, limit });
        }
        Ok(())
    }

    /// Place of the column `name`.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[&str], rows: &[&[&str]]) -> Table {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Table {
            file: None,
            columns: owned(columns),
            rows: rows.iter().map(|row| owned(row)).collect(),
        }
    }

    #[test]
    fn wrong_tables_are_refused() {
        assert_eq!(table(&["a", "b"], &[&["1", "2"]]).check(1), Ok(()));
        assert_eq!(
            table(&["a", "a"], &[]).check(1),
            Err(TableError::Column("a".to_owned()))
        );
        assert_eq!(
            table(&["a"], &[&["1"], &[]]).check(9),
            Err(TableError::Row {
                row: 1,
                found: 0,
                expected: 1
            })
        );
        assert_eq!(
            table(&["a"], &[&["1"], &["2"]]).check(1),
            Err(TableError::TooLong { found: 2, limit: 1 })
        );
    }
}
