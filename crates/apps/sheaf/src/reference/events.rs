//! Table of the lines of event logs.

use super::marked::{Table, markdown};
use sheaf_node::event::Event;

/// Returns the one table of the page.
pub(super) fn tables() -> Vec<Table> {
    let rows = Event::KINDS.iter().map(|kind| {
        let fields = kind.fields.iter();
        let fields: Vec<String> = fields
            .map(|(field, about)| format!("`{field}`: {}", in_a_row(about)))
            .collect();
        let about: Vec<&str> = kind.about.iter().map(|line| line.trim()).collect();
        [
            format!("`{}`", kind.name),
            kind.of.to_owned(),
            in_a_row(&about.join(" ")),
            fields.join("; "),
        ]
    });
    let text = markdown(["`event`", "of", "says", "fields"], rows);
    vec![Table { name: "", text }]
}

/// Returns a sentence as a part of a row: without a capital at its begin and without its full stop.
fn in_a_row(sentence: &str) -> String {
    let sentence = sentence.trim().trim_end_matches('.');
    let mut letters = sentence.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().collect::<String>() + letters.as_str()
        }
        _ => sentence.to_owned(),
    }
}
