//! Disturbances of one process: system calls that fail, few files, low priority beside busy neighbours.

use crate::IoError;
use crate::clock::{Interrupted, wait_until};
use crate::tool;
use rustix::process::{Pid, Resource, Rlimit, Signal};
use std::process::{Child, Stdio};
use std::time::Duration;
use thiserror::Error;

/// How long a tracer may take until it traces.
const TRACED_MAX: Duration = Duration::from_secs(10);

/// Reasons why a process is not traced.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// `strace` cannot be started.
    #[error(transparent)]
    Io(#[from] IoError),
    /// `strace` runs and does not trace; the kernel may forbid it.
    #[error("strace does not trace {of}")]
    NotTraced {
        /// Name of the process.
        of: String,
    },
}

/// `strace` at a running process. The process goes on untraced when this is dropped.
#[derive(Debug)]
pub struct Tracer(Child);

impl Tracer {
    /// Traces the process `pid` and injects `what`, in the language of `strace -e`, into its system calls. `of` is the
    /// name of the process for messages.
    ///
    /// # Errors
    ///
    /// All of [`TraceError`].
    pub fn attach(pid: u32, what: &str, of: &str) -> Result<Self, TraceError> {
        let trace = what
            .trim_start_matches("inject=")
            .split(':')
            .next()
            .unwrap_or_default();
        let child = tool::command("strace")
            .args(["-f", "-q", "-o", "/dev/null", "-e"])
            .arg(format!("trace={trace}"))
            .args(["-e", what, "-p"])
            .arg(pid.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(IoError::of("start strace"))?;
        let tracer = Self(child);
        let status = format!("/proc/{pid}/status");
        let is_traced = wait_until::<TraceError>(TRACED_MAX, || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let tracer = text
                .lines()
                .find_map(|line| line.strip_prefix("TracerPid:"));
            // No process, no line: the call that kills it may have come already.
            Ok(tracer.is_none_or(|pid| pid.trim() != "0"))
        })?;
        match is_traced {
            true => Ok(tracer),
            false => Err(TraceError::NotTraced { of: of.to_owned() }),
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // An error means that it has ended with the process that it traced.
        let _ = rustix::process::kill_process(Pid::from_child(&self.0), Signal::INT);
        let _ = self.0.wait();
    }
}

/// Sets how many files the process `pid` may have; returns the limit before.
///
/// # Errors
///
/// Refusal of the operating system.
pub fn set_files(pid: u32, files: u64) -> Result<u64, IoError> {
    let old = rustix::process::prlimit(
        of_number(pid),
        Resource::Nofile,
        Rlimit {
            current: Some(files),
            maximum: rustix::process::getrlimit(Resource::Nofile).maximum,
        },
    );
    let old = old.map_err(|error| IoError::of("limit the files of a process")(error.into()))?;
    Ok(old.current.unwrap_or(files))
}

/// Sets the priority of the process `pid`: from -20, the highest, to 19.
///
/// # Errors
///
/// Refusal of the operating system.
pub fn set_nice(pid: u32, nice: i32) -> Result<(), IoError> {
    rustix::process::setpriority_process(of_number(pid), nice)
        .map_err(|error| IoError::of("set a priority")(error.into()))
}

fn of_number(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// A process that is busy until this is dropped, or until this process ends.
#[derive(Debug)]
pub struct Burner(Child);

impl Burner {
    /// Starts two for each processor.
    ///
    /// # Errors
    ///
    /// Refusal of the operating system.
    pub fn start_all() -> Result<Vec<Self>, IoError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (0..2 * cores).map(|_| Self::start()).collect()
    }

    /// Returns the id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Starts one.
    ///
    /// # Errors
    ///
    /// Refusal of the operating system.
    pub(crate) fn start() -> Result<Self, IoError> {
        let script = format!("while kill -0 {}; do :; done", std::process::id());
        let mut command = tool::command("sh");
        command.args(["-c", &script]).stderr(Stdio::null());
        command
            .spawn()
            .map(Self)
            .map_err(IoError::of("start a busy process"))
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
