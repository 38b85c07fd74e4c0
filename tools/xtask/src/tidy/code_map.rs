//! ARCHITECTURE.md as a map: every crate is on it, and every place on it exists.

use super::Finding;
use super::markdown::{code_spans, prose};
use super::tree::Tree;
use super::workspace::Workspace;

const PAGE: &str = "ARCHITECTURE.md";

/// Folders whose paths are checked wherever the page names them.
const FOLDERS: [&str; 10] = [
    "crates/",
    "tools/",
    "docs/",
    "config/",
    "scripts/",
    "tests/",
    "testdata/",
    "experiments/",
    "deploy/",
    "examples/",
];

pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let spans =
        || prose(tree.text(PAGE)).flat_map(|(at, line)| code_spans(line).map(move |s| (at, s)));
    let mut findings = Vec::new();
    for one in &workspace.crates {
        if !spans().any(|(_, span)| span.trim_end_matches('/') == one.folder) {
            findings.push(Finding::of_file(
                PAGE,
                format!("code map lacks `{}`", one.folder),
            ));
        }
    }
    let places = spans().filter(|(_, span)| FOLDERS.iter().any(|folder| span.starts_with(folder)));
    for (line, place) in places {
        if !tree.paths.contains(place.trim_end_matches('/')) {
            findings.push(Finding::of_line(
                PAGE,
                line,
                format!("names `{place}`, which does not exist"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace::Crate;

    /// Compares the findings about a page in a repository with one crate, `crates/base/protocol`.
    #[track_caller]
    fn expect(page: &str, expected: &[&str]) {
        let frame = Crate {
            folder: "crates/base/protocol".to_owned(),
            ..Crate::default()
        };
        let workspace = Workspace {
            crates: vec![frame],
            ..Workspace::default()
        };
        let tree = Tree::of(&[(PAGE, page), ("crates/base/protocol/src/stf.rs", "")]);
        let found: Vec<_> = check(&tree, &workspace)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_true_map_is_let_through() {
        expect(
            "### `crates/base/protocol`\n\nStart at `crates/base/protocol/src/stf.rs`, then `stf.rs`.",
            &[],
        );
    }

    #[test]
    fn a_crate_that_is_not_on_the_map_is_found() {
        expect(
            "See `crates/base/protocol/src`.",
            &["ARCHITECTURE.md: code map lacks `crates/base/protocol`"],
        );
    }

    #[test]
    fn a_place_that_is_gone_is_found() {
        expect(
            "`crates/base/protocol/`\n`crates/base/protocol/src/hbf.rs`",
            &["ARCHITECTURE.md:2: names `crates/base/protocol/src/hbf.rs`, which does not exist"],
        );
    }
}
