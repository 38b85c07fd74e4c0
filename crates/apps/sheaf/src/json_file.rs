//! The file of `--json`: results for machines.
//!
//! One rule for all commands: a command whose result is a report takes `--json FILE`, where `-` is the standard
//! output, and writes what is for people to the standard error then. A command whose result is its output takes
//! `--json` without a value, and prints JSON in place of text.

use crate::fail;
use std::path::Path;

/// Checks before the start that the results can be written to `path`.
///
/// # Errors
///
/// The reason why the file cannot be written.
pub(crate) fn check(path: Option<&Path>) -> anyhow::Result<()> {
    let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
        return Ok(());
    };
    let file = std::fs::File::options()
        .append(true)
        .create(true)
        .open(path);
    let bad = |error| fail::bad_use(format!("cannot write --json {}: {error}", path.display()));
    file.map(drop).map_err(bad)
}
