//! A titled table with a note, in Markdown and in HTML.

use std::fmt::Write as _;

/// Table of texts.
pub(super) struct Sheet {
    title: String,
    note: String,
    head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Sheet {
    /// Returns one without rows.
    pub(super) fn new(title: &str, note: &str, head: &[&'static str]) -> Self {
        Self {
            title: title.to_owned(),
            note: note.to_owned(),
            head: head.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Returns it in Markdown; nothing without rows.
    pub(super) fn markdown(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.note);
        let _ = writeln!(text, "| {} |", self.head.join(" | "));
        let _ = writeln!(text, "|{}", " --- |".repeat(self.head.len()));
        for row in &self.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
        text.push('\n');
        text
    }

    /// Returns it in HTML; nothing without rows. `escape` makes text fit for it.
    pub(super) fn html(&self, escape: fn(&str) -> String) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let (title, note) = (escape(&self.title), escape(&self.note));
        let head = self.head.join("<th>");
        let mut page = format!("<h2>{title}</h2>\n<p>{note}</p>\n<table><tr><th>{head}</tr>\n");
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| escape(cell)).collect();
            let _ = writeln!(page, "<tr><td>{}</tr>", cells.join("<td>"));
        }
        page.push_str("</table>\n");
        page
    }
}
