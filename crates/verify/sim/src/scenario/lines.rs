//! Files with one value a line: traces of sizes and of times.

/// Reads one value a line of `text` by `parse`. Blank lines and those that begin with `#` do not count.
///
/// # Errors
///
/// What was found: a line of which `parse` makes no value, with its number, or no line.
pub(crate) fn one_a_line<T>(
    text: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, String> {
    let lines = text.lines().map(str::trim).zip(1_u64..);
    let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let value = |(line, number)| {
        let value = parse(line);
        value.ok_or_else(|| format!("`{line}` in line {number}"))
    };
    let values = lines.map(value).collect::<Result<Vec<T>, String>>()?;
    match values.is_empty() {
        true => Err("no line".to_owned()),
        false => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<u64>, String> {
        one_a_line(text, |line| line.parse().ok())
    }

    #[test]
    fn comments_and_blank_lines_do_not_count_and_a_wrong_line_is_named() {
        assert_eq!(read("# sizes\n10\n\n 20 \n"), Ok(vec![10, 20]));
        assert_eq!(
            read("# sizes\n10\nten\n"),
            Err("`ten` in line 3".to_owned())
        );
        assert_eq!(read("# none\n"), Err("no line".to_owned()));
    }
}
