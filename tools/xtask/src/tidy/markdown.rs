//! The little of Markdown that the checks read: code spans, tables, headings.

/// The lines of `text` that are not inside a fenced block, each with its index from 0.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns the code spans of `line`, without their backticks.
pub(crate) fn code_spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// `line` with its code spans blanked, so that brackets inside them are not taken for links.
pub(crate) fn without_code(line: &str) -> String {
    let parts = line.split('`').enumerate();
    parts
        .map(|(index, part)| if index % 2 == 0 { part } else { "" })
        .collect()
}

/// The cells of a table row, trimmed; none if the line is no row or only the rule under the header.
pub(crate) fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<_> = inside.split('|').map(str::trim).collect();
    let is_rule = cells
        .iter()
        .all(|cell| !cell.is_empty() && cell.chars().all(|c| "-:".contains(c)));
    (!is_rule).then_some(cells)
}

/// The name under which a heading line can be linked, as GitHub makes it; none for other lines.
pub(crate) fn anchor(line: &str) -> Option<String> {
    let title = line.trim_start_matches('#').strip_prefix(' ')?;
    let kept = title
        .trim()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    line.starts_with('#')
        .then(|| kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_blocks_are_no_prose() {
        let text = "a\n```rust\nb\n```\nc";
        assert_eq!(prose(text).collect::<Vec<_>>(), [(0, "a"), (4, "c")]);
    }

    #[test]
    fn code_spans_are_told_from_text() {
        let line = "`a` and [`b`](c) `[d](e)`";
        assert_eq!(code_spans(line).collect::<Vec<_>>(), ["a", "b", "[d](e)"]);
        assert_eq!(without_code(line), " and [](c) ");
    }

    #[test]
    fn rows_have_cells_and_rules_have_none() {
        assert_eq!(cells("| a | b c |"), Some(vec!["a", "b c"]));
        assert_eq!(cells("| --- | :-: |"), None);
        assert_eq!(cells("plain"), None);
    }

    #[test]
    fn headings_are_linked_as_github_does() {
        let check = |line, expected: Option<&str>| assert_eq!(anchor(line).as_deref(), expected);
        check(
            "## The life of a timeframe",
            Some("the-life-of-a-timeframe"),
        );
        check("# `frame`: words & bytes", Some("frame-words--bytes"));
        check("plain", None);
        check("#hash", None);
    }
}
