//! A connection to one host: one `ssh` that stays, and others that go through it.
//!
//! The system's `ssh` does it all, without a question to the user and with host keys that are known. The first one
//! holds the connection as long as its input is open, so that it ends with this process, however that ends.

use super::RUN;
use super::error::SessionError;
use super::inventory::Host;
use super::ssh::of_ssh;
use crate::IoError;
use crate::tool;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Options of every connection.
const OPTIONS: [&str; 9] = [
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    "UpdateHostKeys=no",
    "ControlPersist=no",
    "ConnectTimeout=10",
    // Silence of 10 s ends a connection.
    "ServerAliveInterval=2",
    "ServerAliveCountMax=5",
    "LogLevel=ERROR",
    "RequestTTY=no",
];

/// A host that is connected.
#[derive(Debug)]
pub struct Session {
    host: Host,
    /// The socket through which others find the connection.
    control: PathBuf,
    master: Child,
}

impl Session {
    /// Connects. The socket of the connection is made at `control`, which is a short path.
    ///
    /// # Errors
    ///
    /// [`SessionError::Host`] if it cannot be reached, is another one than is known, or does not let us in.
    pub(super) fn open(host: &Host, control: PathBuf) -> Result<Self, SessionError> {
        let mut command = ssh(host, &control);
        command
            .args(["-o", "ControlMaster=yes", "--"])
            .arg(destination(host));
        // It says that it is there, and stays until its input ends.
        command.arg("echo sheaf && exec cat");
        let io = || IoError::of(format!("run `ssh {}`", destination(host)));
        let mut master = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(io())?;
        let mut greeting = String::new();
        if let Some(stdout) = master.stdout.take() {
            // A login script may print something of its own before.
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            greeting = lines
                .take(100)
                .find(|line| line == "sheaf")
                .unwrap_or_default();
        }
        let session = Self {
            host: host.clone(),
            control,
            master,
        };
        match greeting.is_empty() {
            false => Ok(session),
            true => Err(session.refusal()),
        }
    }

    /// Why there is no connection.
    fn refusal(mut self) -> SessionError {
        drop(self.master.stdin.take());
        let mut stderr = Vec::new();
        if let Some(mut pipe) = self.master.stderr.take() {
            // Facts that cannot be read are left out.
            let _ = pipe.read_to_end(&mut stderr);
        }
        let status = self.master.wait().ok().and_then(|status| status.code());
        let text = String::from_utf8_lossy(&stderr);
        of_ssh(&self.host, "log in", status, &text).into()
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the path on the host of the file `here` of a run.
    pub fn run_file(&self, here: &Path) -> String {
        let name = here.file_name().unwrap_or_default().to_string_lossy();
        format!("{}/{RUN}/{name}", self.host.folder)
    }

    /// A command that runs `words` there, each of which is a word to any shell.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = ssh(&self.host, &self.control);
        command.args(["-o", "ControlMaster=no", "--"]);
        command.arg(destination(&self.host)).args(words);
        command
    }

    /// Runs `script` with `words` as `$1` and so on; gives what it printed. `what` is for messages.
    ///
    /// # Errors
    ///
    /// [`SessionError::Host`].
    pub fn run(&self, what: &str, script: &str, words: &[&str]) -> Result<String, SessionError> {
        let words = [&["sh", "-s", "--"], words].concat();
        let printed = self.finish(what, self.command(&words), Input::Text(script))?;
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }

    /// Writes `text` into a file there.
    ///
    /// # Errors
    ///
    /// [`SessionError::Host`].
    pub fn write(&self, path: &str, text: &str) -> Result<(), SessionError> {
        let of = format!("of={path}");
        let command = self.command(&["dd", "bs=1048576", "status=none", &of]);
        let what = format!("write {path}");
        self.finish(&what, command, Input::Text(text)).map(drop)
    }

    /// Copies the file at `local` there.
    ///
    /// # Errors
    ///
    /// [`SessionError::Host`], and what reading gives.
    pub(super) fn copy_to(&self, local: &Path, path: &str) -> Result<(), SessionError> {
        let file = File::open(local).map_err(IoError::of(format!("open {}", local.display())))?;
        let of = format!("of={path}");
        let command = self.command(&["dd", "bs=1048576", "status=none", &of]);
        self.finish(&format!("write {path}"), command, Input::File(file))
            .map(drop)
    }

    /// Copies a file from there to `local`.
    ///
    /// # Errors
    ///
    /// [`SessionError::Host`], and what writing gives.
    pub fn copy_from(&self, path: &str, local: &Path) -> Result<(), SessionError> {
        let file = File::create(local).map_err(IoError::of(format!("make {}", local.display())))?;
        let mut command = self.command(&["cat", path]);
        command.stdout(file);
        self.finish(&format!("read {path}"), command, Input::None)
            .map(drop)
    }

    fn finish(
        &self,
        what: &str,
        mut command: Command,
        input: Input<'_>,
    ) -> Result<Vec<u8>, SessionError> {
        let io = || IoError::of(format!("run `ssh {}`", destination(&self.host)));
        let keeps_output = !matches!(input, Input::None);
        match &input {
            Input::None => command.stdin(Stdio::null()),
            Input::Text(_) => command.stdin(Stdio::piped()),
            Input::File(file) => command.stdin(file.try_clone().map_err(io())?),
        };
        if keeps_output {
            command.stdout(Stdio::piped());
        }
        let mut child = command.stderr(Stdio::piped()).spawn().map_err(io())?;
        if let (Input::Text(text), Some(mut stdin)) = (input, child.stdin.take()) {
            // A host that does not read says why when it ends.
            let _ = stdin.write_all(text.as_bytes());
        }
        let output = child.wait_with_output().map_err(io())?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(of_ssh(&self.host, what, output.status.code(), &stderr).into())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The connection ends with its input, when those that go through it have ended.
        drop(self.master.stdin.take());
        let _ = self.master.kill();
        let _ = self.master.wait();
        let _ = std::fs::remove_file(&self.control);
    }
}

/// Standard input of a command on the host.
enum Input<'a> {
    None,
    Text(&'a str),
    File(File),
}

fn destination(host: &Host) -> String {
    match &host.user {
        Some(user) => format!("{user}@{}", host.address),
        None => host.address.clone(),
    }
}

fn ssh(host: &Host, control: &Path) -> Command {
    let mut command = tool::command("ssh");
    command.arg("-p").arg(host.ssh_port.to_string());
    for option in OPTIONS {
        command.args(["-o", option]);
    }
    command
        .arg("-o")
        .arg(format!("ControlPath={}", control.display()));
    if let Some(identity) = &host.identity {
        command
            .arg("-i")
            .arg(identity)
            .args(["-o", "IdentitiesOnly=yes"]);
    }
    if let Some(known) = &host.known_hosts {
        command
            .arg("-o")
            .arg(format!("UserKnownHostsFile=\"{}\"", known.display()));
    }
    // A Ctrl-C at the terminal is for the experiment alone.
    command.process_group(0);
    command
}
