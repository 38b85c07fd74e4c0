//! The files of the repository, read once.

use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The repository as checks see it. Paths are relative to its root and use `/`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Files that people write, by path.
    pub(crate) texts: BTreeMap<String, String>,
    /// Every file and folder.
    pub(crate) paths: BTreeSet<String>,
}

impl Tree {
    /// Reads everything under `root` but `.git` and what `.gitignore` names.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or a text is not UTF-8.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let ignored =
            fs::read_to_string(root.join(".gitignore")).context("cannot read .gitignore")?;
        let ignored = ignored
            .lines()
            .map(|line| line.trim_matches('/').to_owned());
        let ignored: BTreeSet<String> = ignored.chain([".git".to_owned()]).collect();
        let mut tree = Self::default();
        tree.read_folder(root, "", &ignored)?;
        Ok(tree)
    }

    fn read_folder(&mut self, root: &Path, folder: &str, ignored: &BTreeSet<String>) -> Result<()> {
        let entries =
            fs::read_dir(root.join(folder)).with_context(|| format!("cannot list {folder}"))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() {
                name
            } else {
                format!("{folder}/{name}")
            };
            if ignored.contains(&path) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                self.read_folder(root, &path, ignored)?;
            } else if is_text(&path) {
                let text = fs::read_to_string(entry.path());
                let text = text.with_context(|| format!("cannot read {path}"))?;
                self.texts.insert(path.clone(), text);
            }
            self.paths.insert(path);
        }
        Ok(())
    }

    /// The text at `path`, empty if there is none: that it is missing is the finding of another check.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.texts.get(path).map_or("", String::as_str)
    }

    /// Paths and texts of the files whose name ends in `.extension`.
    pub(crate) fn with_extension(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        let texts = self
            .texts
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()));
        texts.filter(move |(path, _)| {
            path.rsplit_once('.')
                .is_some_and(|(_, end)| end == extension)
        })
    }
}

#[cfg(test)]
impl Tree {
    /// Adds a file and its folders.
    pub(crate) fn add(&mut self, path: &str, text: &str) {
        self.texts.insert(path.to_owned(), text.to_owned());
        let folders = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
        self.paths.extend(folders.chain([path.to_owned()]));
    }

    /// A tree of these files.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        files.iter().for_each(|(path, text)| tree.add(path, text));
        tree
    }
}

/// Whether people write the file, as opposed to data, generated files and quoted licences.
fn is_text(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    [
        "rs", "toml", "md", "sh", "py", "js", "mjs", "ts", "tsx", "css", "html", "c", "h", "yml",
        "yaml", "service",
    ]
    .contains(&extension)
        || name == "Makefile"
        || path == ".ci/run"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_read_without_what_it_builds() {
        let tree = Tree::read(&crate::command::root()).expect("the repository can be read");
        assert!(
            tree.text("tools/xtask/src/tidy/tree.rs")
                .contains("fn this_repository_is_read")
        );
        assert!(tree.paths.contains("tools/xtask/src/tidy"));
        assert!(!tree.paths.contains("target") && !tree.paths.contains(".git"));
    }

    #[test]
    fn data_and_lock_files_are_not_text() {
        let check = |path, expected| assert_eq!(is_text(path), expected, "{path}");
        check("crates/base/protocol/src/lib.rs", true);
        check("Makefile", true);
        check(".ci/run", true);
        check("Cargo.lock", false);
        check("testdata/alice-its-rdh7/12_links_2hbf.raw", false);
        check("LICENSE-MIT", false);
    }
}
