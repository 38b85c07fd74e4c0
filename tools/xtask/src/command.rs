//! Commands that the stages run: cargo in the folder of the workspace, what ended well, how a command is shown.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the workspace.
///
/// Asked when it runs, not when it is compiled: a build folder may be moved or shared between checkouts.
pub(crate) fn root() -> PathBuf {
    let ours = std::env::var_os("CARGO_MANIFEST_DIR");
    let ours = ours.map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    ours.ancestors()
        .nth(2)
        .expect("xtask lies two folders inside the workspace")
        .to_owned()
}

/// The same cargo that runs us, in the folder of the workspace.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).env("CARGO_INCREMENTAL", "0");
    command
}

/// `command` as one would type it, for messages.
pub(crate) fn typed(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program());
    let words = [program].into_iter().chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Where cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into)
}

/// The target triple of this machine, as `rustc` calls it.
pub(crate) fn host() -> Result<String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .current_dir(root())
        .output();
    let output = output.context("cannot run rustc -vV")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc -vV names no host")?.to_owned())
}

/// Runs `command`; an error unless it ends well.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", typed(command)))?;
    ensure!(status.success(), "{} ended with {status}", typed(command));
    Ok(())
}
