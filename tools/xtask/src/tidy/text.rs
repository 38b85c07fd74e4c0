//! Sources as text: length, width, white space, and words that stand for unfinished work.

use super::Finding;
use super::tree::Tree;

/// A file that is longer holds a second idea.
const LINES_MAX: usize = 700;

/// rustfmt breaks code at 100; comments may run a little further.
const WIDTH_MAX: usize = 120;

/// An open end is an issue, not a word in the code. Written in halves so that this file is none.
const WORDS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimplemented", "!"),
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts
        .iter()
        .flat_map(|(path, text)| check_file(path, text))
        .collect()
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    // Prose wraps where its author likes, and may talk about the words.
    let is_prose = path.ends_with(".md");
    let mut findings = Vec::new();
    // A register of seeds has as many lines as entries.
    let is_register = path.contains("/seeds/");
    let count = text.lines().count();
    if count > LINES_MAX && !is_prose && !is_register {
        let message =
            format!("has {count} lines, at most {LINES_MAX} are wanted: find the second idea");
        findings.push(Finding::of_file(path, message));
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::of_file(path, "does not end with a line feed"));
    }
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::of_line(path, index, "ends with white space"));
        }
        if is_prose {
            continue;
        }
        let width = line.chars().count() - unbreakable_width(line);
        // TOML cannot break an inline table, such as a dependency with its features.
        if width > WIDTH_MAX && !path.ends_with(".toml") {
            let message = format!("is {width} characters wide, at most {WIDTH_MAX} are wanted");
            findings.push(Finding::of_line(path, index, message));
        }
        if let Some(word) = WORDS.into_iter().find(|word| contains_word(line, word)) {
            findings.push(Finding::of_line(
                path,
                index,
                format!("says {word}: write an issue instead"),
            ));
        }
    }
    findings
}

/// The characters of `line` that stay in one piece: a row of a table of test data, and a literal, which
/// someone may search for.
fn unbreakable_width(line: &str) -> usize {
    if line.matches(" | ").count() >= 3 {
        return line.chars().count();
    }
    let (first, last) = (line.find('"'), line.rfind('"'));
    first
        .zip(last)
        .map_or(0, |(first, last)| line[first..last].chars().count())
}

/// Whether `word` stands in `line` and is not part of a longer one.
fn contains_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(joins) && !line[at + word.len()..].starts_with(joins))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(path: &str, text: &str, expected: &[&str]) {
        let found = check_file(path, text);
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn clean_text_is_let_through() {
        expect("a.rs", "fn a() {}\n", &[]);
        expect("a.rs", "", &[]);
        expect("a.sh", "mktemp -d /tmp/aXXXXXX\n", &[]);
        expect(
            "a.md",
            &format!("{} {}\n", WORDS[0], "wide ".repeat(40).trim_end()),
            &[],
        );
    }

    #[test]
    fn white_space_at_the_end_is_found() {
        expect(
            "a.md",
            "a \nb\t\nc",
            &[
                "a.md: does not end with a line feed",
                "a.md:1: ends with white space",
                "a.md:2: ends with white space",
            ],
        );
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in WORDS {
            let line = format!("// {word} later\n");
            expect(
                "a.rs",
                &line,
                &[&format!("a.rs:1: says {word}: write an issue instead")],
            );
        }
    }

    #[test]
    fn long_lines_and_long_files_are_found() {
        let line = format!("// {}\n", "ä".repeat(118));
        expect(
            "a.rs",
            &line,
            &["a.rs:1: is 121 characters wide, at most 120 are wanted"],
        );
        expect(
            "a.rs",
            &"x\n".repeat(701),
            &["a.rs: has 701 lines, at most 700 are wanted: find the second idea"],
        );
        expect("a/seeds/b.toml", &"x\n".repeat(701), &[]);
        expect("deny.toml", &line, &[]);
        expect("a.rs", &format!("let a = \"{}\";\n", "x".repeat(200)), &[]);
        expect(
            "a.rs",
            &format!(
                "{}\n",
                "12_links_2hbf.raw | 208160 | ".repeat(10).trim_end()
            ),
            &[],
        );
    }
}
