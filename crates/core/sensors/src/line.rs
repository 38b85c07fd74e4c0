//! Lines and numbers of a text.

/// Returns the lines that end with a line feed.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = &str> {
    let end = text.rfind('\n').map_or(0, |at| at + 1);
    text[..end].lines()
}

/// Returns the numbers of `words`, up to the first word that is none.
pub(crate) fn numbers<'a>(words: impl Iterator<Item = &'a str>) -> impl Iterator<Item = u64> {
    words.map_while(|word| word.parse().ok())
}

/// Returns the number of a line `name value`.
pub(crate) fn pair(line: &str) -> Option<(&str, u64)> {
    let mut words = line.split_ascii_whitespace();
    Some((words.next()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_its_end_does_not_count() {
        let found: Vec<&str> = lines("a 1\nb 2\nc 1").collect();
        assert_eq!(found, ["a 1", "b 2"]);
        assert_eq!(lines("c 1").count(), 0);
        assert_eq!(pair("b 2"), Some(("b", 2)));
        assert_eq!(pair("b -2"), None);
    }
}
