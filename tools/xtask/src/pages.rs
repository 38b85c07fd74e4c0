//! The pages of `web/`: their unit tests and build, and their tests in a browser. Skipped by name without Node.js.

use crate::command::{root, succeed};
use anyhow::Result;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the unit tests of the pages and builds them, for the collector to embed.
pub(crate) fn test() -> Result<()> {
    if let Some(missing) = missing() {
        println!("pages: skipped: {missing}");
        return Ok(());
    }
    succeed(&mut npm("test"))?;
    succeed(&mut npm("build"))
}

/// Runs the tests in a browser against the program `sheaf` at `program`.
pub(crate) fn browse(program: &Path) -> Result<()> {
    if let Some(missing) = missing() {
        println!("browser: skipped: {missing}");
        return Ok(());
    }
    // The tests name a browser that is missing, each for itself.
    succeed(npm("browser").env("SHEAF_BIN", program))
}

fn npm(script: &str) -> Command {
    let mut command = Command::new("npm");
    command
        .current_dir(root().join("web"))
        .args(["run", "--silent", script]);
    command
}

/// Returns the program or package that the pages lack, if any.
fn missing() -> Option<&'static str> {
    let has = |program: &str| {
        let mut command = Command::new(program);
        let said = command.arg("--version").stdout(Stdio::null()).status();
        said.is_ok_and(|status| status.success())
    };
    if !has("node") || !has("npm") {
        Some("no Node.js (node and npm)")
    } else if !root().join("web/node_modules").exists() {
        Some("no npm packages: run scripts/setup.sh test")
    } else {
        None
    }
}
