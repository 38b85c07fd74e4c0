//! Tables between markers, in a page that people write around them.

use std::fmt::Write as _;
use thiserror::Error;

/// Marker behind a table.
const END: &str = "<!-- end -->\n";

/// Part of a page that is written by the program.
pub(super) struct Table {
    /// Name among the tables of the page; empty if it has one.
    pub(super) name: &'static str,
    /// Markdown.
    pub(super) text: String,
}

/// Reason why a page has no place for a table.
#[derive(Debug, PartialEq, Eq, Error)]
pub(super) enum MarkerError {
    /// A table has no place.
    #[error("found no line `{marker}`, expected one with a line `<!-- end -->` behind it")]
    Missing {
        /// Marker before the table.
        marker: String,
    },
}

/// Returns the line before a table.
fn marker(page: &str, table: &Table) -> String {
    match table.name {
        "" => format!("<!-- generated: sheaf reference {page} -->\n"),
        name => format!("<!-- generated: sheaf reference {page}: {name} -->\n"),
    }
}

/// Returns `text`, the page named `page`, with `tables` between their markers.
///
/// # Errors
///
/// [`MarkerError`] if a table has no place.
pub(super) fn replace(text: &str, page: &str, tables: &[Table]) -> Result<String, MarkerError> {
    let mut text = text.to_owned();
    for table in tables {
        let marker = marker(page, table);
        let missing = || MarkerError::Missing {
            marker: marker.trim_end().to_owned(),
        };
        let (before, rest) = text.split_once(&marker).ok_or_else(missing)?;
        let (_, behind) = rest.split_once(END).ok_or_else(missing)?;
        text = format!("{before}{marker}\n{}\n{END}{behind}", table.text);
    }
    Ok(text)
}

/// Returns `tables` with their markers, without the page around them.
pub(super) fn print(page: &str, tables: &[Table]) -> String {
    let mut text = String::new();
    for table in tables {
        let _ = write!(text, "{}\n{}\n{END}", marker(page, table), table.text);
    }
    text
}

/// Returns a table in Markdown. A bar within a cell is escaped.
pub(super) fn markdown<const COLUMNS: usize>(
    head: [&str; COLUMNS],
    rows: impl IntoIterator<Item = [String; COLUMNS]>,
) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), " --- |".repeat(COLUMNS));
    for row in rows {
        let cells = row.map(|cell| match cell.replace('|', "\\|") {
            cell if cell.is_empty() => " |".to_owned(),
            cell => format!(" {cell} |"),
        });
        let _ = writeln!(text, "|{}", cells.concat());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_stands_between_its_markers_and_the_rest_stays() {
        let table = |name, text: &str| Table {
            name,
            text: text.to_owned(),
        };
        let page = "a\n<!-- generated: sheaf reference p: x -->\nold\n<!-- end -->\nb\n";
        let found = replace(page, "p", &[table("x", "new\n")]);
        let expected =
            "a\n<!-- generated: sheaf reference p: x -->\n\nnew\n\n<!-- end -->\nb\n".to_owned();
        assert_eq!(found, Ok(expected.clone()));
        assert_eq!(
            replace(&expected, "p", &[table("x", "new\n")]),
            Ok(expected)
        );
        let found = replace(page, "p", &[table("y", "")]);
        let marker = "<!-- generated: sheaf reference p: y -->".to_owned();
        assert_eq!(found, Err(MarkerError::Missing { marker }));
    }

    #[test]
    fn a_row_has_all_cells() {
        let rows = [["1|2".to_owned(), String::new()]];
        let expected = "| a | b |\n| --- | --- |\n| 1\\|2 | |\n";
        assert_eq!(markdown(["a", "b"], rows), expected);
    }
}
