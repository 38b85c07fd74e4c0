//! Commands that the stages run: cargo in the folder of the workspace, what ended well, how a command is shown.

use anyhow::{Context, Result, bail, ensure};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Last lines of a command that failed, which its error repeats.
const REPEATED: usize = 12;

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

/// Runs `command` and passes its output on, each line to `read` as well; an error with its last lines unless it ends
/// well. A log may be cut, and what failed is to stand at its end.
pub(crate) fn succeed_or_repeat(command: &mut Command, mut read: impl FnMut(&str)) -> Result<()> {
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot run {}", typed(command)))?;
    let output = child.stdout.take().expect("stdout was piped");
    let mut terminal = std::io::stdout().lock();
    let mut said = VecDeque::new();
    for line in BufReader::new(output).split(b'\n') {
        // A program may print any bytes.
        let line = line.with_context(|| format!("cannot read from {}", typed(command)))?;
        terminal.write_all(&line)?;
        terminal.write_all(b"\n")?;
        let line = String::from_utf8_lossy(&line).into_owned();
        read(&line);
        if said.len() == REPEATED {
            said.pop_front();
        }
        said.push_back(line);
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for {}", typed(command)))?;
    if !status.success() {
        let said = Vec::from(said).join("\n");
        bail!("{} ended with {status}\n{said}", typed(command));
    }
    Ok(())
}

/// Runs `command`; an error unless it ends well.
pub(crate) fn succeed(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", typed(command)))?;
    ensure!(status.success(), "{} ended with {status}", typed(command));
    Ok(())
}
