//! Tells the program which commit it was built of: results name the program that made them, wherever it runs.

use std::path::Path;
use std::process::Command;

fn main() {
    // What is changed and not committed counts; so does a commit that changes no file of this crate.
    // A path that is not there (no checkout) would count as changed at every build.
    let paths = [
        "../../../crates",
        "../../../.git/HEAD",
        "../../../.git/logs/HEAD",
    ];
    for path in paths.into_iter().filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    println!("cargo::rerun-if-env-changed=SHEAF_COMMIT");
    println!("cargo::rustc-env=SHEAF_COMMIT={}", commit());
}

/// Returns the commit of the sources, with a mark if they were changed. Where they are no checkout, as in a package,
/// the environment variable `SHEAF_COMMIT` names it; without either it is `unknown`.
fn commit() -> String {
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        let given = std::env::var("SHEAF_COMMIT").ok();
        let given = given.filter(|commit| !commit.trim().is_empty());
        return given.map_or_else(|| "unknown".to_owned(), |commit| commit.trim().to_owned());
    };
    let changes = git(&[
        "status",
        "--porcelain",
        "--untracked-files=no",
        "../../../crates",
    ]);
    match changes.is_none_or(|changes| changes.is_empty()) {
        true => head,
        false => format!("{head} (changed)"),
    }
}

fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
