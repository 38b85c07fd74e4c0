//! Prose takes the words of the field: no phrase of the list `words.txt` stands in Markdown, in a comment or in a
//! string literal of Rust, and the first sentence of a doc comment has a subject of its own.

use super::Finding;
use super::literals;
use super::markdown::{prose, without_code};
use super::tree::Tree;
use std::collections::BTreeMap;

const LIST: &str = include_str!("words.txt");

/// First words of a doc comment that refer to something outside of it. A function begins with a verb in the third
/// person, a type or a field with a noun.
const NO_SUBJECT: [&str; 12] = [
    "What", "Who", "Whoever", "Whose", "It", "Its", "They", "Their", "Those", "Nobody", "So many",
    "So much",
];

/// Endings of the files of which the comments are read, beside Markdown and Rust.
const COMMENTED: [&str; 6] = [".toml", ".yml", ".yaml", ".service", ".sh", "Makefile"];

/// Phrases with their replacements, and prefixes of paths that are left out.
#[derive(Debug, Default)]
struct List<'a> {
    pairs: Vec<(&'a str, &'a str)>,
    passed: Vec<&'a str>,
}

impl<'a> List<'a> {
    fn parse(text: &'a str) -> Self {
        let mut list = Self::default();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some((phrase, better)) = line.split_once(" -> ") {
                list.pairs.push((phrase, better));
            } else if let Some(prefix) = line.strip_prefix("pass ") {
                list.passed.push(prefix);
            }
        }
        list
    }

    fn findings(&self, path: &str, text: &str) -> Vec<Finding> {
        if self.passed.iter().any(|prefix| path.starts_with(prefix)) {
            return Vec::new();
        }
        let mut findings = Vec::new();
        for (index, line) in readable(path, text) {
            let line = line.to_lowercase();
            for (phrase, better) in &self.pairs {
                if contains(&line, phrase) {
                    let message = format!("says {phrase:?}, better: {better}");
                    findings.push(Finding::of_line(path, index, message));
                }
            }
        }
        if path.ends_with(".rs") {
            findings.extend(without_subject(path, text));
        }
        findings
    }
}

/// Doc comments whose first word is one of [`NO_SUBJECT`].
fn without_subject(path: &str, text: &str) -> Vec<Finding> {
    let doc = |line: &'_ str| {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or(line.strip_prefix("//!"))?;
        Some(comment.trim_start().to_owned())
    };
    let mut findings = Vec::new();
    let mut is_inside = false;
    for (index, line) in text.lines().enumerate() {
        let comment = doc(line);
        let first = comment.as_deref().filter(|_| !is_inside);
        is_inside = comment.is_some();
        let word = first.and_then(|text| {
            let is_end = |rest: &str| !rest.starts_with(char::is_alphabetic);
            let begins = |word: &&str| text.strip_prefix(word).is_some_and(is_end);
            NO_SUBJECT.into_iter().find(begins)
        });
        if let Some(word) = word {
            let message = format!("begins a doc comment with {word:?}, expected a verb or a noun");
            findings.push(Finding::of_line(path, index, message));
        }
    }
    findings
}

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let list = List::parse(LIST);
    tree.texts
        .iter()
        .flat_map(|(path, text)| list.findings(path, text))
        .collect()
}

/// Returns how often each phrase of the list stands in the tree, left-out files included.
pub(crate) fn count(tree: &Tree) -> BTreeMap<String, usize> {
    let list = List::parse(LIST);
    let mut counts = BTreeMap::new();
    for (path, text) in &tree.texts {
        for (_, line) in readable(path, text) {
            let line = line.to_lowercase();
            for (phrase, _) in list
                .pairs
                .iter()
                .filter(|(phrase, _)| contains(&line, phrase))
            {
                *counts.entry((*phrase).to_owned()).or_insert(0) += 1;
            }
        }
    }
    counts
}

/// The prose of a file, line by line, without code spans: all of Markdown but fenced blocks, comments and string
/// literals of Rust, comments of other files.
fn readable<'a>(path: &str, text: &'a str) -> Vec<(usize, String)> {
    let clean = |(index, line)| (index, without_code(line));
    if path.ends_with(".md") {
        return prose(text).map(clean).collect();
    }
    if path.ends_with(".rs") {
        return literals::prose(text).into_iter().map(clean).collect();
    }
    let is_commented = COMMENTED.iter().any(|ending| path.ends_with(ending));
    let comment = |(index, line): (usize, &'a str)| Some((index, &line[line.find('#')?..]));
    let lines = text.lines().enumerate().filter(|_| is_commented);
    lines.filter_map(comment).map(clean).collect()
}

/// Whether `phrase` stands in `line` as whole words.
fn contains(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + phrase.len()..].chars().next();
        let is_end = |side: Option<char>| side.is_none_or(|c| !c.is_alphanumeric() && c != '_');
        is_end(before) && is_end(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(path: &str, text: &str, expected: &[&str]) {
        let list = List::parse("# list\nsaid again -> repeated\nhome -> drained\npass old/\n");
        let found = list.findings(path, text);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_phrase_in_prose_or_a_comment_is_found() {
        let said = |at: &str| format!("{at}: says \"said again\", better: repeated");
        expect("a.md", "one\nSaid again.\n", &[&said("a.md:2")]);
        expect("a.rs", "let x = 1; // said again\n", &[&said("a.rs:1")]);
        for path in ["a.toml", "a.yml", "a.yaml", "a.service", "a.sh", "Makefile"] {
            expect(
                path,
                "a = \"said again\"\n# said again\n",
                &[&said(&format!("{path}:2"))],
            );
        }
        expect("a.csv", "# said again\n", &[]);
    }

    #[test]
    fn a_phrase_in_a_string_literal_is_found() {
        let said = |at: &str| format!("{at}: says \"said again\", better: repeated");
        let text = "warn!(\"Commits said again\");\nlet a = r\"x\nsaid again\";\n";
        expect("a.rs", text, &[&said("a.rs:1"), &said("a.rs:3")]);
        expect("a.rs", "let said = again(\"`said again`\");\n", &[]);
    }

    #[test]
    fn a_doc_comment_without_a_subject_is_found() {
        let text =
            "//! What it is.\n\n/// Returns it.\n/// What more?\nfn f() {}\n    /// Its name.\n";
        let begins = |at: &str, word: &str| {
            format!("{at}: begins a doc comment with {word:?}, expected a verb or a noun")
        };
        expect(
            "a.rs",
            text,
            &[&begins("a.rs:1", "What"), &begins("a.rs:6", "Its")],
        );
        expect("a.rs", "/// So many.\n", &[&begins("a.rs:1", "So many")]);
        expect(
            "a.rs",
            "/// So much a part.\n",
            &[&begins("a.rs:1", "So much")],
        );
        expect("a.rs", "/// Itself.\n/// So far.\n", &[]);
        expect("a.md", "What it is.\n", &[]);
    }

    #[test]
    fn code_other_words_and_files_that_are_passed_are_let_through() {
        expect("a.md", "`said again`\n```\nsaid again\n```\n", &[]);
        expect("a.rs", "let said_again = said - again;\n", &[]);
        expect("a.md", "$HOMEPAGE, homes, home_dir\n", &[]);
        expect("old/a.md", "said again\n", &[]);
    }

    #[test]
    fn the_list_of_this_repository_is_read_whole() {
        let list = List::parse(LIST);
        let lines = LIST
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        assert_eq!(list.pairs.len() + list.passed.len(), lines.count());
        assert!(
            list.pairs
                .iter()
                .all(|(phrase, _)| *phrase == phrase.to_lowercase())
        );
    }
}
