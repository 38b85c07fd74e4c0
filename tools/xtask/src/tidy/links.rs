//! Links between the pages of the repository lead somewhere, down to the heading.

use super::Finding;
use super::markdown::{anchor, prose, without_code};
use super::tree::Tree;

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (page, text) in tree.with_extension("md") {
        for (index, line) in prose(text) {
            let line = without_code(line);
            let dead = targets(&line).filter(|target| !leads_somewhere(tree, page, target));
            findings.extend(dead.map(|target| {
                Finding::of_line(
                    page,
                    index,
                    format!("links to {target}, which does not exist"),
                )
            }));
        }
    }
    findings
}

/// Returns the targets of the inline links, images and link definitions of `line`.
pub(crate) fn targets(line: &str) -> impl Iterator<Item = &str> {
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', ' ']).next());
    let definition = line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "))
        .and_then(|(_, target)| target.split_whitespace().next());
    inline
        .chain(definition)
        .map(|target| target.trim_matches(['<', '>']))
}

fn leads_somewhere(tree: &Tree, page: &str, target: &str) -> bool {
    // What lies outside of the repository cannot be checked without a network.
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        Some(page.to_owned())
    } else {
        resolve(page, path)
    };
    let Some(path) = path else { return false };
    let exists = path.is_empty() || tree.paths.contains(&path);
    exists
        && (heading.is_empty() || !path.ends_with(".md") || has_heading(tree.text(&path), heading))
}

/// `target` as seen from `page`, relative to the root; none if it leaves the repository.
pub(crate) fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn has_heading(text: &str, heading: &str) -> bool {
    prose(text)
        .filter_map(|(_, line)| anchor(line))
        .any(|found| found == heading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(line: &str, expected: &[&str]) {
        let tree = Tree::of(&[
            ("docs/page.md", line),
            ("docs/protocol.md", "# Protocol\n\n## STF header\n"),
            ("README.md", ""),
            ("docs/farm.svg", ""),
        ]);
        let found: Vec<_> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn live_links_are_let_through() {
        expect(
            "[a](protocol.md), [b](../README.md), [c](protocol.md#stf-header)",
            &[],
        );
        expect(
            "![d](farm.svg \"the farm\"), [e](../docs/), [f](https://example.org/x)",
            &[],
        );
        expect("# Page\n[g](#page)\n[h]: protocol.md", &[]);
        expect("`[i](gone.md)`\n```\n[j](gone.md)\n```", &[]);
    }

    #[test]
    fn dead_links_are_found() {
        let dead = |target| format!("docs/page.md:1: links to {target}, which does not exist");
        for target in [
            "gone.md",
            "README.md",
            "../../README.md",
            "protocol.md#tf-header",
            "#gone",
        ] {
            expect(&format!("[a]({target})"), &[&dead(target)]);
        }
        expect("[a]: gone.md", &[&dead("gone.md")]);
    }
}
