//! The file of `--json`: results for machines.
//!
//! One rule for all commands: a command whose result is a report takes `--json FILE`, where `-` is the standard
//! output, and writes what is for people to the standard error then. A command whose result is its output takes
//! `--json` without a value, and prints JSON in place of text.

use crate::fail;
use anyhow::Context as _;
use serde::Serialize;
use std::io::{self, Write as _};
use std::path::Path;

/// Option of a command whose result is its output.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct JsonFlag {
    /// Print one JSON value instead.
    #[arg(long)]
    pub(crate) json: bool,
}

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

/// Writes the JSON `text` to `path`, or to the standard output.
///
/// # Errors
///
/// The reason why it cannot be written.
#[cfg(feature = "lab")]
pub(crate) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    if path.as_os_str() == "-" {
        return print(text);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Prints `text` for people: to the standard error if the standard output has JSON, as `--json` says.
///
/// # Errors
///
/// The reason why it cannot be printed.
#[cfg(feature = "lab")]
pub(crate) fn tell(json: Option<&Path>, text: &str) -> anyhow::Result<()> {
    if json.is_some_and(|path| path.as_os_str() == "-") {
        return io::stderr()
            .write_all(text.as_bytes())
            .context("cannot write to the standard error");
    }
    print(text)
}

/// Prints `value` as one line of JSON, if that is asked for, and else `text`.
///
/// # Errors
///
/// The reason why it cannot be printed.
pub(crate) fn print_either(
    is_json: bool,
    value: &impl Serialize,
    text: &str,
) -> anyhow::Result<()> {
    if is_json {
        let line = serde_json::to_string(value).context("cannot write the result as JSON")?;
        return print(&(line + "\n"));
    }
    print(text)
}

/// Prints `text`, the result of a command whose output is a file for another program.
///
/// # Errors
///
/// The reason why it cannot be printed.
pub(crate) fn print_text(text: &str) -> anyhow::Result<()> {
    print(text)
}

fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // A reader that has seen enough is no failure of the command.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("cannot write to the standard output"),
    }
}
