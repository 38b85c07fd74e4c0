//! The verb `structure`: figures of a source tree as JSON, so that a page about a change quotes a file and no memory.
//!
//! Reads any checkout of this project, also an older one with another layout: a crate is a folder with a `Cargo.toml`
//! and a `src`.

use crate::tidy::{circles, tree::Tree, words};
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Figures of one tree.
#[derive(Debug, PartialEq, Serialize)]
struct Structure {
    /// Commit of the checkout.
    commit: String,
    /// Folders with a manifest and sources.
    crates: usize,
    /// Rust files, tests included.
    rust_files: usize,
    /// Lines of those files.
    rust_lines: usize,
    /// Rust files of more than 500 lines.
    rust_files_over_500_lines: usize,
    /// Pages of Markdown.
    pages: usize,
    /// Circles between sibling modules, and the modules in them.
    circles: usize,
    modules_in_circles: usize,
    /// Occurrences of the phrases of the word list in Rust, Markdown and TOML files: in all, and the ten most frequent.
    listed_phrases: usize,
    listed_phrases_most: BTreeMap<String, usize>,
}

/// Prints the figures of the tree at `root`.
///
/// # Errors
///
/// If a file cannot be read, or a source cannot be parsed.
pub(crate) fn print(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    let figures = measure(&tree, commit(root)?)?;
    println!("{}", serde_json::to_string_pretty(&figures)?);
    Ok(())
}

fn commit(root: &Path) -> Result<String> {
    let mut git = std::process::Command::new("git");
    let output = git
        .args(["rev-parse", "--short=12", "HEAD"])
        .current_dir(root);
    let output = output.output().context("cannot run git")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn measure(tree: &Tree, commit: String) -> Result<Structure> {
    let manifests = tree
        .paths
        .iter()
        .filter_map(|path| path.strip_suffix("/Cargo.toml"));
    let crates: Vec<&str> = manifests
        .filter(|folder| tree.paths.contains(&format!("{folder}/src")))
        .collect();
    let mut of_crates = Vec::new();
    for folder in &crates {
        let found = circles::of_sources(tree, &format!("{folder}/src/"));
        of_crates.extend(found.map_err(|finding| anyhow!("{finding}"))?);
    }
    let rust: Vec<usize> = tree
        .with_extension("rs")
        .map(|(_, text)| text.lines().count())
        .collect();
    let phrases = words::count(tree);
    let mut most: Vec<_> = phrases.iter().filter(|(_, count)| **count > 0).collect();
    most.sort_by_key(|(phrase, count)| (std::cmp::Reverse(**count), (*phrase).clone()));
    Ok(Structure {
        commit,
        crates: crates.len(),
        rust_files: rust.len(),
        rust_lines: rust.iter().sum(),
        rust_files_over_500_lines: rust.iter().filter(|lines| **lines > 500).count(),
        pages: tree.with_extension("md").count(),
        circles: of_crates.len(),
        modules_in_circles: of_crates.iter().map(|circle| circle.modules).sum(),
        listed_phrases: phrases.values().sum(),
        listed_phrases_most: most
            .into_iter()
            .take(10)
            .map(|(phrase, count)| (phrase.clone(), *count))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_circles_and_phrases_are_counted() {
        let mut tree = Tree::default();
        tree.add("crates/a/Cargo.toml", "");
        tree.add("crates/a/src/lib.rs", "mod b; mod c;\n");
        tree.add("crates/a/src/b.rs", "use crate::c::C;\n// Said again.\n");
        tree.add("crates/a/src/c.rs", "use crate::b::B;\n");
        tree.add("README.md", "Handed on, and said again.\n");
        let found = measure(&tree, "0".to_owned()).unwrap();
        assert_eq!(
            (found.crates, found.rust_files, found.rust_lines),
            (1, 3, 4)
        );
        assert_eq!(
            (found.pages, found.circles, found.modules_in_circles),
            (1, 1, 2)
        );
        assert_eq!(found.listed_phrases, 3);
        assert_eq!(found.listed_phrases_most["said again"], 2);
    }
}
