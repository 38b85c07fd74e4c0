//! The stage `miri`: the memory that `unsafe` code shares out, run by an interpreter of the rules of the language.
//!
//! Miri finds data races, references to memory that something else writes to, and memory that is used after it was
//! given back, whatever the machine makes of them. It knows no mappings and no sockets: tests that need a kernel are
//! left out by name (`cfg_attr(miri, ignore)`), and a mapping is memory of the heap there.

use crate::command::{succeed, target_dir};
use crate::nightly::{has_nightly, nightly};
use anyhow::{Context as _, Result};

/// Tests of the transport, by the beginning of their names, and the rules of references that they are held against:
/// those of stacked borrows, and for what is shared out in pieces those of tree borrows too.
const RUNS: [(&str, &[&str]); 2] = [
    (
        "",
        &[
            "arena::",
            "mapping::",
            "shm::ring::",
            "shm::record::",
            "shm::tests::",
        ],
    ),
    ("-Zmiri-tree-borrows", &["arena::region::", "shm::tests::"]),
];

/// Runs the tests, or says what is missing.
pub(crate) fn run() -> Result<()> {
    if !has_nightly(&["miri"]) {
        println!(
            "miri: skipped: no nightly toolchain with Miri (rustup toolchain install nightly; rustup component add \
             --toolchain nightly miri rust-src)"
        );
        return Ok(());
    }
    // It builds a standard library of its own, out of `rust-src` and what that needs of crates.io.
    let setup = nightly().args(["miri", "setup"]).output();
    let setup = setup.context("cannot run cargo miri setup")?;
    if !setup.status.success() {
        let said = String::from_utf8_lossy(&setup.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        println!(
            "miri: skipped: cannot set it up: {}",
            last.unwrap_or("no message")
        );
        return Ok(());
    }
    for (flags, tests) in RUNS {
        let mut command = nightly();
        command.args([
            "miri",
            "test",
            "--locked",
            "--package",
            "sheaf-transport",
            "--lib",
        ]);
        command
            .arg("--target-dir")
            .arg(target_dir().join("nightly"));
        command.env("MIRIFLAGS", flags);
        succeed(command.arg("--").args(tests))?;
    }
    Ok(())
}
