//! A network namespace without a name: the process that holds it open ends with this one, and the namespace with it.

use crate::IoError;
use crate::tool::{self, ToolError};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::process::{Child, Stdio};
use thiserror::Error;

/// Reasons why there is no namespace.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// Only root may have one.
    #[error("needs root")]
    Root,
    /// A process or a file.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The kernel forbids it, such as in a container.
    #[error("the kernel gives no network namespace")]
    Kernel,
}

/// A network namespace and the process that keeps it, which ends when its input does.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
    file: File,
}

impl Namespace {
    /// Makes one with nothing but a loopback device that is down.
    ///
    /// # Errors
    ///
    /// All of [`NamespaceError`].
    pub fn make() -> Result<Self, NamespaceError> {
        if !tool::is_root() {
            return Err(NamespaceError::Root);
        }
        let mut command = tool::command("unshare");
        command.args(["--net", "sh", "-c", "echo up; exec cat"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut holder = command
            .spawn()
            .map_err(IoError::of("start `unshare` (Debian package util-linux)"))?;
        let mut line = String::new();
        if let Some(output) = holder.stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(IoError::of("hear of a network namespace"))?;
        }
        let file = File::open(format!("/proc/{}/ns/net", holder.id()));
        let namespace = Self {
            file: file.map_err(IoError::of("open a network namespace"))?,
            holder,
        };
        match line == "up\n" {
            true => Ok(namespace),
            false => Err(NamespaceError::Kernel),
        }
    }

    /// Returns the process that holds it open, by which `ip` finds it.
    #[must_use]
    pub fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// Runs `ip` on `lines`, one command a line, in this namespace.
    ///
    /// # Errors
    ///
    /// All of [`ToolError`].
    pub fn ip(&self, lines: &str) -> Result<(), ToolError> {
        let inside = format!("--net=/proc/{}/ns/net", self.holder.id());
        tool::run_with_input("nsenter", [&inside, "ip", "-batch", "-"], lines).map(drop)
    }

    /// Moves the calling thread into it: sockets and processes that the thread makes are of this namespace.
    ///
    /// # Errors
    ///
    /// Refusal of the operating system.
    pub fn enter(&self) -> Result<(), IoError> {
        enter(&self.file).map_err(IoError::of("enter a network namespace"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        // It ends with its input; there is nothing to do if it has ended before.
        let _ = self.holder.wait();
    }
}

/// Moves the calling thread into the network namespace that `file` stands for.
pub(crate) fn enter(file: &File) -> std::io::Result<()> {
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(())
}
