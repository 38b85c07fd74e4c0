//! Rust source as prose: its comments and string literals.

/// The comments and string literals of `text`, line by line and in order; each with the index of its line from 0.
///
/// A comment keeps its slashes, a literal loses its quotes, and escapes stay as they are written.
pub(super) fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let mut at = 0;
    let mut line = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let is_inside_name = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let (shown, length) = token(rest, is_inside_name);
        if let Some(shown) = shown {
            parts.extend((line..).zip(shown.lines()));
        }
        line += rest[..length].matches('\n').count();
        at += length;
    }
    parts
}

/// Reads the token at the start of `rest`: the prose in it, and its length in bytes. Other code goes by character.
fn token(rest: &str, is_inside_name: bool) -> (Option<&str>, usize) {
    let first = rest.chars().next().map_or(1, char::len_utf8);
    if rest.starts_with("//") {
        let end = rest.find('\n').unwrap_or(rest.len());
        return (Some(&rest[..end]), end);
    }
    if rest.starts_with("/*") {
        let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
        return (Some(&rest[..end]), end);
    }
    if let Some(inside) = rest.strip_prefix('"') {
        let end = end_of_literal(inside);
        return (Some(&inside[..end]), (end + 2).min(rest.len()));
    }
    if let Some(quote) = rest.strip_prefix('\'') {
        return (None, 1 + length_of_char(quote));
    }
    let raw = ["r", "br", "cr"]
        .into_iter()
        .filter(|_| !is_inside_name)
        .find_map(|prefix| {
            let hashes = rest.strip_prefix(prefix)?;
            let inside = hashes.trim_start_matches('#');
            let count = hashes.len() - inside.len();
            let inside = inside.strip_prefix('"')?;
            let close = format!("\"{}", "#".repeat(count));
            let end = inside.find(&close).unwrap_or(inside.len());
            let before = prefix.len() + count + 1;
            Some((
                Some(&inside[..end]),
                (before + end + close.len()).min(rest.len()),
            ))
        });
    raw.unwrap_or((None, first))
}

/// Returns the length of a literal up to the quote that closes it.
fn end_of_literal(inside: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            '"' if !is_escaped => return at,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    inside.len()
}

/// Returns the length of a character with its closing quote, 0 for a lifetime.
fn length_of_char(quote: &str) -> usize {
    if let Some(escape) = quote.strip_prefix('\\') {
        let code = escape.chars().next().map_or(0, char::len_utf8);
        let end = escape[code..].find('\'');
        return end.map_or(0, |end| 1 + code + end + 1);
    }
    let first = quote.chars().next().map_or(0, char::len_utf8);
    if quote[first..].starts_with('\'') {
        first + 1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_shown_and_code_is_not() {
        let text = "//! a\nlet b = c(\"d \\\" e\"); // f \"g\"\nh(b\"i\", '\"', '\\'', 'j');\n";
        let expected = [(0, "//! a"), (1, "d \\\" e"), (1, "// f \"g\""), (2, "i")];
        assert_eq!(prose(text), expected);
    }

    #[test]
    fn raw_and_long_literals_and_lifetimes_are_read() {
        let text =
            "fn f<'a>(x: &'a str) { g(r#\"a \"b\"\n//c\"#, \"d \\\n  e\") } /* h\n i */\n\"j\"";
        let expected = [
            (0, "a \"b\""),
            (1, "//c"),
            (1, "d \\"),
            (2, "  e"),
            (2, "/* h"),
            (3, " i */"),
            (4, "j"),
        ];
        assert_eq!(prose(text), expected);
    }
}
