//! Pure crates stay pure: no clock, thread, file, socket or environment in what they ship.
//!
//! Clippy bans the functions by name: one `clippy.toml` in `crates/core` for all crates there, a copy in each pure
//! crate of `crates/base`. This check makes sure that the file is in force everywhere, that no source reaches for a
//! banned module in another way, and that no dependency brings one in.

use super::Finding;
use super::tree::Tree;
use super::workspace::Workspace;
use std::collections::BTreeSet;

/// Folder of the layer whose crates are all pure.
const CORE: &str = "crates/core";

/// Pure crates of other layers, each with a copy of the bans.
const COPIES: [&str; 4] = [
    "crates/base/protect",
    "crates/base/protocol",
    "crates/base/formats",
    "crates/base/samples",
];

/// Bans of all pure crates.
const BANS_PATH: &str = "crates/core/clippy.toml";

/// Ways to the outside that need no name which clippy bans.
const WORDS: [&str; 6] = [
    "std::net",
    "std::fs",
    "std::thread",
    "std::env",
    "Instant::now",
    "SystemTime",
];

/// The same modules when they are imported in a group, as in `use std::{fs, io}`.
const MODULES: [&str; 4] = ["net", "fs", "thread", "env"];

/// Dependencies of pure crates, beside each other.
const DEPENDENCIES: [&str; 19] = [
    "bytes",
    "crc-fast",
    // Tables in the order of insertion, for hot paths: the same from run to run with a hasher without random keys.
    "indexmap",
    "memchr",
    "promql-parser",
    "prost",
    "rand",
    "rand_distr",
    "rand_xoshiro",
    "regex",
    "rustc-hash",
    "saphyr-parser",
    "schemars",
    "serde",
    "serde_json",
    "simd-adler32",
    "snap",
    "thiserror",
    "xxhash-rust",
];

pub(crate) fn check(tree: &Tree, workspace: &Workspace) -> Vec<Finding> {
    let mut findings = bans_of_root(tree);
    for folder in COPIES {
        let path = format!("{folder}/clippy.toml");
        if tree.text(&path) != tree.text(BANS_PATH) {
            let message = format!("is not a copy of {BANS_PATH}");
            findings.push(Finding::of_file(&path, message));
        }
    }
    for (path, _) in tree.with_extension("toml") {
        if path.starts_with(CORE) && path.ends_with("/clippy.toml") && path != BANS_PATH {
            let message = format!("takes {BANS_PATH} out of force; remove this file");
            findings.push(Finding::of_file(path, message));
        }
    }
    for (path, text) in tree.with_extension("rs") {
        if is_pure(path) && path.contains("/src/") {
            findings.extend(impure_lines(path, text));
        }
    }
    let crates = &workspace.crates;
    let pure = || crates.iter().filter(|one| is_pure(&one.folder));
    let pure_names: BTreeSet<&str> = pure().map(|one| one.name.as_str()).collect();
    for one in pure() {
        let is_known = |name: &str| DEPENDENCIES.contains(&name) || pure_names.contains(name);
        let impure = one.ships.iter().filter(|name| !is_known(name));
        findings.extend(impure.map(|name| {
            let message = format!("a pure crate depends on {name}, which is not known to be pure");
            Finding::of_file(&format!("{}/Cargo.toml", one.folder), message)
        }));
    }
    findings
}

/// Whether a folder or a file is that of a pure crate.
fn is_pure(path: &str) -> bool {
    let below = |folder: &str| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    below(CORE) || COPIES.into_iter().any(below)
}

/// The entries of the root's clippy.toml that the pure crates lack.
fn bans_of_root(tree: &Tree) -> Vec<Finding> {
    let bans = |path: &str| tree.text(path).parse::<toml::Table>();
    let (root, pure) = match (bans("clippy.toml"), bans(BANS_PATH)) {
        (Ok(root), Ok(pure)) => (root, pure),
        (Err(error), _) => return vec![Finding::of_file("clippy.toml", error.to_string())],
        (_, Err(error)) => return vec![Finding::of_file(BANS_PATH, error.to_string())],
    };
    let mut findings = Vec::new();
    for (key, value) in &root {
        let entries = value
            .as_array()
            .map_or(std::slice::from_ref(value), Vec::as_slice);
        let known = pure.get(key);
        let has = |entry| match known.and_then(toml::Value::as_array) {
            Some(known) => known.contains(entry),
            None => known == Some(entry),
        };
        let missing = entries.iter().filter(|entry| !has(entry));
        findings.extend(missing.map(|entry| {
            let message = format!("lacks {entry} of {key}, which the root's clippy.toml has");
            Finding::of_file(BANS_PATH, message)
        }));
    }
    findings
}

/// The lines of a source that reach outside, tests and comments left out.
fn impure_lines(path: &str, text: &str) -> Vec<Finding> {
    // A module in a file of its own that only tests compile.
    if path.ends_with("/tests.rs") || path.contains("/tests/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut group: Option<BTreeSet<&str>> = None;
    for (index, line) in shipped_lines(text) {
        let code = line.split("//").next().unwrap_or("");
        let word = WORDS.into_iter().find(|word| code.contains(word));
        findings.extend(word.map(|word| finding(path, index, word)));
        if let Some((_, names)) = code.split_once("use std::{") {
            group = Some(BTreeSet::new());
            collect_names(names, &mut group);
        } else {
            collect_names(code, &mut group);
        }
        if code.contains(';')
            && let Some(names) = group.take()
        {
            let module = MODULES.into_iter().find(|module| names.contains(module));
            findings.extend(module.map(|module| finding(path, index, &format!("std::{module}"))));
        }
    }
    findings
}

fn finding(path: &str, index: usize, word: &str) -> Finding {
    Finding::of_line(
        path,
        index,
        format!("a pure crate uses {word}; take it as an argument"),
    )
}

/// Adds the names in `code` to a `use std::{…}` that is open.
fn collect_names<'a>(code: &'a str, group: &mut Option<BTreeSet<&'a str>>) {
    if let Some(names) = group {
        names.extend(code.split(|c: char| !c.is_alphanumeric() && c != '_'));
    }
}

/// The lines that are compiled when no test is built, each with its index.
///
/// An item under `#[cfg(test)]` ends at a line that starts with a closing brace, or at the semicolon of
/// its first line: rustfmt has seen to that.
fn shipped_lines(text: &str) -> Vec<(usize, &str)> {
    let mut lines = text.lines().enumerate();
    let mut shipped = Vec::new();
    while let Some((index, line)) = lines.next() {
        if line != "#[cfg(test)]" {
            shipped.push((index, line));
            continue;
        }
        for (_, line) in lines.by_ref() {
            let one_line = !line.starts_with(' ') && line.ends_with(';');
            if line.starts_with('}') || one_line {
                break;
            }
        }
    }
    shipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace::Crate;

    /// Compares the findings about one source of a pure crate.
    #[track_caller]
    fn expect(source: &str, expected: &[&str]) {
        let found = impure_lines("crates/core/tf-builder/src/tf.rs", source);
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn reaching_outside_is_found() {
        expect(
            "use std::fs;\nlet t = Instant::now();",
            &[
                "crates/core/tf-builder/src/tf.rs:1: a pure crate uses std::fs; take it as an argument",
                "crates/core/tf-builder/src/tf.rs:2: a pure crate uses Instant::now; take it as an argument",
            ],
        );
        expect(
            "use std::{\n    collections::BTreeMap,\n    env,\n};",
            &[
                "crates/core/tf-builder/src/tf.rs:4: a pure crate uses std::env; take it as an argument",
            ],
        );
        expect(
            "#[cfg(test)]\nuse std::fs;\n\n#[cfg(test)]\nmod tests {\n    x;\n}\nuse std::net::IpAddr;",
            &[
                "crates/core/tf-builder/src/tf.rs:8: a pure crate uses std::net; take it as an argument",
            ],
        );
    }

    #[test]
    fn tests_and_comments_may_name_what_code_may_not_use() {
        expect(
            "// not Instant::now: time is an argument\nuse std::{collections, fmt};",
            &[],
        );
        expect(
            "#[cfg(test)]\nmod tests {\n    use std::fs;\n\n    fn f() {\n    }\n}",
            &[],
        );
        let in_test_file =
            impure_lines("crates/core/stf-builder/src/walk/tests.rs", "use std::fs;");
        assert_eq!(in_test_file, []);
    }

    const BANS: &str = "disallowed-methods = [{ path = \"a\" }, { path = \"b\" }]";

    fn pure_tree() -> Tree {
        let mut tree = Tree::of(&[("clippy.toml", ""), (BANS_PATH, BANS)]);
        COPIES
            .iter()
            .for_each(|folder| tree.add(&format!("{folder}/clippy.toml"), BANS));
        tree
    }

    #[test]
    fn a_crate_without_the_bans_is_found() {
        let mut tree = pure_tree();
        assert_eq!(check(&tree, &Workspace::default()), []);
        tree.add("crates/base/formats/clippy.toml", "disallowed-methods = []");
        tree.add("crates/core/tf-builder/clippy.toml", BANS);
        let found: Vec<_> = check(&tree, &Workspace::default())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "crates/base/formats/clippy.toml: is not a copy of crates/core/clippy.toml",
                "crates/core/tf-builder/clippy.toml: takes crates/core/clippy.toml out of force; remove this file",
            ]
        );
    }

    #[test]
    fn every_crate_of_core_is_pure_and_no_other_is_by_its_name() {
        assert!(is_pure("crates/core/verdict-log"));
        assert!(is_pure("crates/base/protocol/src/lib.rs"));
        assert!(!is_pure("crates/base/protocols"));
        assert!(!is_pure("crates/io/transport/src/lib.rs"));
    }

    #[test]
    fn a_ban_of_the_root_that_pure_crates_lack_is_found() {
        let mut tree = pure_tree();
        tree.add(
            "clippy.toml",
            "disallowed-methods = [{ path = \"b\" }, { path = \"c\" }]",
        );
        let found: Vec<_> = check(&tree, &Workspace::default())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "crates/core/clippy.toml: lacks { path = \"c\" } of disallowed-methods, which the root's clippy.toml has"
            ]
        );
    }

    #[test]
    fn an_impure_dependency_is_found() {
        let ships = ["thiserror", "sheaf-protocol", "mio"]
            .map(str::to_owned)
            .into();
        let build = Crate {
            name: "sheaf-tf-builder".to_owned(),
            folder: "crates/core/tf-builder".to_owned(),
            ships,
            ..Crate::default()
        };
        let protocol = Crate {
            name: "sheaf-protocol".to_owned(),
            folder: "crates/base/protocol".to_owned(),
            ..Crate::default()
        };
        let workspace = Workspace {
            crates: vec![build, protocol],
            ..Workspace::default()
        };
        let found: Vec<_> = check(&pure_tree(), &workspace)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "crates/core/tf-builder/Cargo.toml: a pure crate depends on mio, which is not known to be pure"
            ]
        );
    }
}
