//! Findings about templates in rules.

use crate::finding::Collector;

pub(super) fn add_template(
    line: usize,
    name: &str,
    error: &crate::TemplateError,
    out: &mut Collector<'_>,
) {
    let text = error.to_string();
    let (found, expected) = text
        .split_once(", expected ")
        .unwrap_or((&text, "a template"));
    out.add(line, format!("{name:?}: {found}"), expected);
}
