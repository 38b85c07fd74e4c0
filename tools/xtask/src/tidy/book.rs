//! The book: every page under `docs/` stands in `docs/SUMMARY.md`, once.

use super::Finding;
use super::links::{resolve, targets};
use super::tree::Tree;
use std::collections::BTreeMap;

/// Contents of the book.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let listed = tree.text(SUMMARY).lines().flat_map(targets);
    for page in listed.filter_map(|target| resolve(SUMMARY, target)) {
        *counts.entry(page).or_default() += 1;
    }
    let pages = tree.with_extension("md").map(|(path, _)| path);
    let pages = pages.filter(|path| path.starts_with("docs/") && *path != SUMMARY);
    let missing = pages.filter(|path| !counts.contains_key(*path));
    let missing = missing.map(|path| Finding::of_file(path, format!("is not in {SUMMARY}")));
    let repeated = counts.iter().filter(|(_, count)| **count > 1);
    let repeated = repeated
        .map(|(page, count)| Finding::of_file(SUMMARY, format!("lists {page} {count} times")));
    missing.chain(repeated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_missing_or_listed_twice_is_found() {
        let tree = Tree::of(&[
            (
                SUMMARY,
                "# Summary\n\n- [A](a.md)\n- [B](how-to/b.md)\n- [A](./a.md)\n- [R](../README.md)\n",
            ),
            ("docs/a.md", ""),
            ("docs/how-to/b.md", ""),
            ("docs/c.md", ""),
            ("README.md", ""),
            ("STYLE.md", ""),
        ]);
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "docs/c.md: is not in docs/SUMMARY.md",
                "docs/SUMMARY.md: lists docs/a.md 2 times",
            ]
        );
    }
}
