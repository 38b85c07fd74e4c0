//! The nightly toolchain: a tool of two stages, never the compiler of the product.

use crate::command::root;
use std::process::Command;

/// The cargo of the nightly toolchain, asked for by rustup. It must not inherit what pins our own.
pub(crate) fn nightly() -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly").current_dir(root());
    // To ask whether it is there must not install it.
    command.env("RUSTUP_AUTO_INSTALL", "0");
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        command.env_remove(name);
    }
    command
}

/// Whether there is a nightly toolchain that runs `cargo WORDS --version`.
pub(crate) fn has_nightly(words: &[&str]) -> bool {
    let version = nightly().args(words).arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}
