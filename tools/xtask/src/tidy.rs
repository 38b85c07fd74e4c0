//! Holds the repository against what it says about itself.
//!
//! A map that no test reads rots: each check here reads one page or rule of the repository and compares
//! it with the files and manifests as they are. Checks are pure functions of a [`Tree`] and a
//! [`Workspace`], so each has a test on a bad sample that shows it can fail.

mod adr;
mod arrows;
mod book;
pub(crate) mod circles;
mod code_map;
mod links;
mod literals;
mod manifests;
mod markdown;
mod pure;
mod supply;
mod text;
pub(crate) mod tree;
mod unsafety;
pub(crate) mod words;
mod workspace;

pub(crate) use book::SUMMARY;
pub(crate) use links::{resolve, targets};
pub(crate) use markdown::{prose, without_code};

use anyhow::Result;
use std::fmt;
use std::path::Path;
use tree::Tree;
use workspace::Workspace;

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    /// From 1; none if the finding is about the whole file.
    line: Option<usize>,
    message: String,
}

impl Finding {
    fn of_file(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line: None,
            message: message.into(),
        }
    }

    /// `index` is that of the line, from 0.
    fn of_line(path: &str, index: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line: Some(index + 1),
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

type Check = fn(&Tree, &Workspace) -> Vec<Finding>;

const CHECKS: [(&str, Check); 13] = [
    ("crate arrows", |tree, workspace| {
        arrows::check(tree, workspace)
    }),
    ("module circles", |tree, workspace| {
        circles::check(tree, workspace)
    }),
    ("code map", |tree, workspace| {
        code_map::check(tree, workspace)
    }),
    ("pure crates", |tree, workspace| {
        pure::check(tree, workspace)
    }),
    ("manifests", |tree, workspace| {
        manifests::check(tree, workspace)
    }),
    ("supply chain", |tree, workspace| {
        supply::check(tree, workspace)
    }),
    ("unsafe code", |tree, _| unsafety::check(tree)),
    ("source text", |tree, _| text::check(tree)),
    ("words", |tree, _| words::check(tree)),
    ("links", |tree, _| links::check(tree)),
    ("book", |tree, _| book::check(tree)),
    ("decision records", |tree, _| adr::check(tree)),
    ("files that must exist", |tree, _| required(tree)),
];

/// Runs all checks on the repository at `root` and prints what they find; `true` if it is tidy.
pub(crate) fn run(root: &Path) -> Result<bool> {
    let tree = Tree::read(root)?;
    let workspace = Workspace::read(root, &tree)?;
    let mut findings = 0;
    for (name, check) in CHECKS {
        for finding in check(&tree, &workspace) {
            println!("{finding} ({name})");
            findings += 1;
        }
    }
    println!(
        "tidy: {} checks, {} files, {findings} findings",
        CHECKS.len(),
        tree.texts.len()
    );
    Ok(findings == 0)
}

/// Reports files that the README, the commands and other checks rely on and that are missing.
fn required(tree: &Tree) -> Vec<Finding> {
    let files = [
        "README.md",
        "ARCHITECTURE.md",
        "GLOSSARY.md",
        "CONTRIBUTING.md",
        "STYLE.md",
        "CHANGELOG.md",
        "LICENSE",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "Cargo.lock",
        "rust-toolchain.toml",
        "config/example.toml",
        "docs/SUMMARY.md",
        "docs/book.toml",
        "docs/reference/protocol.md",
        "docs/reference/metrics.md",
    ];
    let missing = files.into_iter().filter(|path| !tree.paths.contains(*path));
    missing
        .map(|path| Finding::of_file(path, "is missing"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_found() {
        let mut tree = Tree::default();
        let all = required(&tree).len();
        tree.add("README.md", "");
        assert_eq!(required(&tree).len(), all - 1);
        assert_eq!(
            required(&tree)[0].to_string(),
            "ARCHITECTURE.md: is missing"
        );
    }

    #[test]
    fn a_finding_names_file_and_line() {
        assert_eq!(
            Finding::of_line("a.rs", 2, "is bad").to_string(),
            "a.rs:3: is bad"
        );
    }
}
