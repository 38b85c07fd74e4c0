//! The book of `docs/`: copied to the build folder with every file that its pages link to, and built by mdBook.
//!
//! The copy has the layout of the repository, so that links to pages and files outside of `docs/` (the glossary, the
//! example of a farm file) also work in the book.

use crate::command::{root, target_dir, typed};
use crate::tidy::{SUMMARY, prose, resolve, targets, without_code};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Builds the book into `book/` of the build folder. Warnings of mdBook are errors.
pub(crate) fn build() -> Result<()> {
    let mdbook = target_dir().join("tools/bin/mdbook");
    ensure!(
        mdbook.exists(),
        "no {}: run scripts/setup.sh test",
        mdbook.display()
    );
    let stage = target_dir().join("book-stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot remove {}", stage.display()))?;
    }
    copy_sources(&root(), &stage)?;
    let output = target_dir().join("book");
    let mut command = Command::new(&mdbook);
    command
        .arg("build")
        .arg(&stage)
        .arg("--dest-dir")
        .arg(&output);
    let said = command.output();
    let said = said.with_context(|| format!("cannot run {}", typed(&command)))?;
    let text = String::from_utf8_lossy(&said.stderr);
    eprint!("{text}");
    ensure!(
        said.status.success(),
        "{} ended with {}",
        typed(&command),
        said.status
    );
    ensure!(!has_warning(&text), "mdBook warns: see above");
    println!("book: {}", output.join("index.html").display());
    Ok(())
}

/// Whether a line of mdBook's log is a warning or an error. Its colours are off when it writes to a pipe.
fn has_warning(log: &str) -> bool {
    let mut words = log.split_whitespace();
    words.any(|word| matches!(word.trim_matches(['[', ']']), "WARN" | "ERROR"))
}

/// Copies `docs/` from `root` to `stage/src`, with what its pages link to outside of `docs/`.
fn copy_sources(root: &Path, stage: &Path) -> Result<()> {
    let src = stage.join("src");
    let mut files = BTreeSet::new();
    list(root, "docs", &mut files)?;
    ensure!(files.remove("docs/book.toml"), "docs/book.toml is missing");
    ensure!(files.remove(SUMMARY), "{SUMMARY} is missing");
    let summary = read(root, SUMMARY)?;
    let chapters: BTreeSet<String> = linked(SUMMARY, &summary).collect();
    let pages = files
        .iter()
        .chain(&chapters)
        .filter(|path| path.ends_with(".md"));
    let mut beyond = chapters.clone();
    for page in pages {
        for target in linked(page, &read(root, page)?) {
            if target.ends_with(".md") && !chapters.contains(&target) {
                bail!("{page} links to {target}, which is not in {SUMMARY}");
            }
            beyond.insert(target);
        }
    }
    files.extend(beyond.into_iter().filter(|path| root.join(path).is_file()));
    for path in &files {
        let to = src.join(path);
        fs::create_dir_all(to.parent().expect("it lies in a folder"))?;
        fs::copy(root.join(path), to).with_context(|| format!("cannot copy {path}"))?;
    }
    fs::write(src.join("SUMMARY.md"), from_root(&summary))?;
    fs::copy(root.join("docs/book.toml"), stage.join("book.toml"))?;
    Ok(())
}

/// Adds every file below `folder` to `files`, relative to `root`.
fn list(root: &Path, folder: &str, files: &mut BTreeSet<String>) -> Result<()> {
    let entries =
        fs::read_dir(root.join(folder)).with_context(|| format!("cannot list {folder}"))?;
    for entry in entries {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(root, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

/// Paths from the root of what `text`, the page `page`, links to in the repository.
fn linked<'a>(page: &'a str, text: &'a str) -> impl Iterator<Item = String> + 'a {
    let lines = prose(text).map(|(_, line)| without_code(line));
    lines.flat_map(move |line| {
        let inside = targets(&line).filter(|target| !target.contains("://"));
        let paths = inside.filter_map(|target| target.split('#').next());
        let paths = paths.filter(|path| !path.is_empty());
        paths
            .filter_map(|path| resolve(page, path))
            .collect::<Vec<_>>()
    })
}

/// `summary` with its links relative to the root.
fn from_root(summary: &str) -> String {
    let links = targets(summary).filter_map(|target| Some((target, resolve(SUMMARY, target)?)));
    links.fold(summary.to_owned(), |text, (target, path)| {
        text.replace(&format!("]({target})"), &format!("]({path})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies a repository of two pages, of which `docs/a.md` links to `target`.
    fn copied(target: &str) -> Result<tempfile::TempDir> {
        let folder = tempfile::tempdir()?;
        let write = |path: &str, text: &str| {
            let path = folder.path().join("repository").join(path);
            fs::create_dir_all(path.parent().expect("it lies in a folder"))?;
            fs::write(path, text)
        };
        write(SUMMARY, "# Summary\n\n[R](../README.md)\n\n- [A](a.md)\n")?;
        write("docs/book.toml", "")?;
        write(
            "docs/a.md",
            &format!("[x]({target}#part), [y](https://example.org/z.md)\n"),
        )?;
        write("README.md", "[a](docs/a.md)\n")?;
        write("STYLE.md", "")?;
        write("config/farm.toml", "")?;
        copy_sources(
            &folder.path().join("repository"),
            &folder.path().join("stage"),
        )?;
        Ok(folder)
    }

    #[test]
    fn the_copy_has_the_layout_of_the_repository() {
        let folder = copied("../config/farm.toml").expect("it is copied");
        let src = folder.path().join("stage/src");
        let summary = fs::read_to_string(src.join("SUMMARY.md")).expect("it is copied");
        assert_eq!(summary, "# Summary\n\n[R](README.md)\n\n- [A](docs/a.md)\n");
        for path in ["README.md", "docs/a.md", "config/farm.toml", "../book.toml"] {
            assert!(src.join(path).is_file(), "{path}");
        }
        assert!(!src.join("STYLE.md").exists());
    }

    #[test]
    fn a_link_to_a_page_that_is_no_chapter_is_refused() {
        let error = copied("../STYLE.md").expect_err("STYLE.md is no chapter");
        let expected = "docs/a.md links to STYLE.md, which is not in docs/SUMMARY.md";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn warnings_of_mdbook_are_noticed() {
        assert!(has_warning("2026-11-23 [WARN] (mdbook): unclosed tag"));
        assert!(has_warning(" WARN unclosed HTML tag"));
        assert!(!has_warning(" INFO Book building has started"));
    }
}
