//! One process in hand: started, heard, signalled, awaited, reaped, and killed at the latest when it is dropped.

use crate::proc::{self, Usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lines of a process that wait to be read; a process that writes more of them is held up.
const LINES_MAX: usize = 100_000;

/// Reasons why a process of a farm does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The path of this program, whose processes the nodes are, cannot be found.
    #[error("cannot find the path of this program")]
    Program(#[source] io::Error),
    /// The log of the process cannot be made.
    #[error("cannot make {}", path.display())]
    Log {
        /// Path of the log.
        path: PathBuf,
        /// Answer of the operating system.
        source: io::Error,
    },
    /// The program cannot be started.
    #[error("cannot start {}", program.display())]
    Spawn {
        /// Path of the program.
        program: PathBuf,
        /// Answer of the operating system.
        source: io::Error,
    },
    /// The thread that reads the output of the process cannot be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
}

/// Way to a process on another machine, whose near end is a child of this process. When it is dropped, the process
/// there is killed.
pub trait Remote: fmt::Debug + Send {
    /// Sends `signal` to the process there; `false` if that is not possible.
    fn signal(&self, signal: Signal) -> bool;
}

/// Standard output of a process, as a listener gets it.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// A line, without its end.
    Line(String),
    /// The process has closed its standard output: it has ended, or is about to.
    Closed,
}

/// One process: a child of this one, or the near end of a connection to a process on another machine. Killed and
/// reaped when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    remote: Option<Box<dyn Remote>>,
    stdout: Option<ChildStdout>,
    reader: Option<JoinHandle<()>>,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command`, without input; its standard error goes to the file `log`. Its standard output is for
    /// [`listen`](Self::listen) or [`lines`](Self::lines).
    ///
    /// # Errors
    ///
    /// [`StartError`], with the answer of the operating system.
    pub fn spawn(mut command: Command, log: &Path) -> Result<Self, StartError> {
        Self::spawn_with(command.stdin(Stdio::null()), log)
    }

    /// Starts `command`, the near end of a connection to a process on another machine; `remote` makes the way to there
    /// of its standard input. All else is as for [`spawn`](Self::spawn).
    ///
    /// # Errors
    ///
    /// As [`spawn`](Self::spawn).
    pub fn spawn_remote<R: Remote + 'static>(
        mut command: Command,
        log: &Path,
        remote: impl FnOnce(ChildStdin) -> R,
    ) -> Result<Self, StartError> {
        let mut process = Self::spawn_with(command.stdin(Stdio::piped()), log)?;
        let stdin = process.child.stdin.take().expect("asked for above");
        process.remote = Some(Box::new(remote(stdin)));
        Ok(process)
    }

    fn spawn_with(command: &mut Command, log: &Path) -> Result<Self, StartError> {
        let stderr = File::create(log).map_err(|source| StartError::Log {
            path: log.to_owned(),
            source,
        })?;
        let spawned = command.stdout(Stdio::piped()).stderr(stderr).spawn();
        let mut child = spawned.map_err(|source| StartError::Spawn {
            program: command.get_program().into(),
            source,
        })?;
        Ok(Self {
            stdout: child.stdout.take(),
            child,
            remote: None,
            reader: None,
            ended: None,
        })
    }

    /// Hands the standard output to `listener`, line by line as it comes, in a thread of its own. Only the first
    /// listener of a process receives something.
    ///
    /// # Errors
    ///
    /// [`StartError::Thread`].
    pub fn listen(
        &mut self,
        mut listener: impl FnMut(Output) + Send + 'static,
    ) -> Result<(), StartError> {
        let Some(stdout) = self.stdout.take() else {
            return Ok(());
        };
        let reader = std::thread::Builder::new()
            .name(format!("output-{}", self.pid()))
            .spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    listener(Output::Line(line));
                }
                listener(Output::Closed);
            });
        self.reader = Some(reader.map_err(StartError::Thread)?);
        Ok(())
    }

    /// Returns the lines of the standard output, to be awaited.
    ///
    /// # Errors
    ///
    /// As [`listen`](Self::listen).
    pub fn lines(&mut self) -> Result<Lines, StartError> {
        let (sender, lines) = sync_channel(LINES_MAX);
        self.listen(move |output| {
            if let Output::Line(line) = output {
                // An error means that no line is awaited any more.
                let _ = sender.send(line);
            }
        })?;
        Ok(Lines(lines))
    }

    /// Waits until the listener has got everything that the process wrote. The process has ended.
    pub fn finish_output(&mut self) {
        if let Some(reader) = self.reader.take() {
            // A listener that panicked has said so.
            let _ = reader.join();
        }
    }

    /// Returns the id of the process; of one on another machine, that of its near end.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns what the process has used so far, as the kernel has it; `None` if it was reaped.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        proc::usage(self.pid()).filter(|_| self.ended.is_none())
    }

    /// Sends `signal`; `false` if there is no process to send it to.
    pub fn signal(&self, signal: Signal) -> bool {
        match &self.remote {
            _ if self.ended.is_some() => false,
            Some(remote) => remote.signal(signal),
            // It is not reaped yet, so the id is still its own.
            None => kill_process(Pid::from_child(&self.child), signal).is_ok(),
        }
    }

    /// Returns how the process ended; `None` if it lives, or was not reaped yet.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        self.ended
    }

    /// Reaps the process if it has ended, and returns how; `None` if it lives.
    pub fn reap(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    /// Waits until the process ends, reaps it, and returns how it ended; `None` if the operating system does not tell.
    pub fn wait(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
        self.ended
    }

    /// As [`wait`](Self::wait), for `patience` at most; `None` also if the process lives on.
    pub fn await_end(&mut self, patience: Duration) -> Option<ExitStatus> {
        if self.reap().is_some() {
            return self.ended;
        }
        let deadline = Instant::now() + patience;
        let end = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty()).ok()?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).ok()?;
            match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&timeout)) {
                Err(Errno::INTR) => {}
                Ok(0) | Err(_) => return self.reap(),
                Ok(_) => return self.wait(),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // First the process on the other machine, if there is one.
        self.remote = None;
        if self.ended.is_none() {
            // Errors mean that it has ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Lines of the standard output of a process, in the order in which they were written.
#[derive(Debug)]
pub struct Lines(Receiver<String>);

/// An awaited line that did not come.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, found {heard:#?}", if *.has_closed { "the output has ended" } else { "timed out" })]
pub struct NoLine {
    /// Lines that came instead.
    pub heard: Vec<String>,
    /// Whether the process has closed its output; else the time was over.
    pub has_closed: bool,
}

impl Lines {
    /// Waits for a line that `is_wanted`, for `patience` at most. Lines before it are not returned again.
    ///
    /// # Errors
    ///
    /// [`NoLine`] if it does not come.
    pub fn await_line(
        &self,
        patience: Duration,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<String, NoLine> {
        let deadline = Instant::now() + patience;
        let mut heard = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let has_closed = match self.0.recv_timeout(left) {
                Ok(line) if is_wanted(&line) => return Ok(line),
                Ok(line) => {
                    heard.push(line);
                    continue;
                }
                Err(error) => error == RecvTimeoutError::Disconnected,
            };
            return Err(NoLine { heard, has_closed });
        }
    }

    /// Waits until the process closes its output, for `patience` at most. Returns all lines that were not awaited.
    #[must_use]
    pub fn rest(&self, patience: Duration) -> Vec<String> {
        match self.await_line(patience, |_| false) {
            Ok(line) => vec![line],
            Err(error) => error.heard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::process::ExitStatusExt as _;
    use tempfile::{NamedTempFile, TempDir};

    /// Far longer than a shell takes to do what these tests ask of it.
    const PATIENCE: Duration = Duration::from_secs(60);
    const FOREVER: &str = "echo ready; exec tail -f /dev/null";

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn start(script: &str) -> (Process, Lines, NamedTempFile) {
        let log = NamedTempFile::new().unwrap();
        let mut process = Process::spawn(shell(script), log.path()).unwrap();
        let lines = process.lines().unwrap();
        (process, lines, log)
    }

    #[test]
    fn lines_are_awaited_and_errors_go_to_the_log() {
        let (mut process, lines, log) = start("echo a; echo wanted; echo b; echo oops >&2; exit 3");
        let found = lines.await_line(PATIENCE, |line| line == "wanted");
        assert_eq!(found.as_deref(), Ok("wanted"));
        assert_eq!(lines.rest(PATIENCE), ["b"]);
        let status = process.await_end(PATIENCE).unwrap();
        assert_eq!((status.code(), process.ended()), (Some(3), Some(status)));
        assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "oops\n");
    }

    #[test]
    fn a_line_or_an_end_that_does_not_come_is_not_awaited_for_ever() {
        let (mut process, lines, _log) = start(FOREVER);
        let missing = lines.await_line(Duration::from_millis(200), |line| line == "no such");
        assert!(!missing.unwrap_err().has_closed);
        assert_eq!(process.await_end(Duration::from_millis(20)), None);
        assert!(process.usage().is_some());
        assert!(process.signal(Signal::TERM));
        let status = process.await_end(PATIENCE).unwrap();
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
        assert_eq!(process.usage(), None);
        assert!(!process.signal(Signal::TERM), "the id may be another's now");
        let error = lines.await_line(PATIENCE, |_| true).unwrap_err();
        assert!(error.has_closed, "{error}");
    }

    #[test]
    fn a_listener_has_heard_everything_when_the_output_is_finished() {
        let log = NamedTempFile::new().unwrap();
        let mut process = Process::spawn(shell("echo a; echo b"), log.path()).unwrap();
        let (sender, heard) = sync_channel(9);
        let listener = move |output| sender.send(output).unwrap();
        process.listen(listener).unwrap();
        assert!(process.wait().unwrap().success());
        process.finish_output();
        let line = |text: &str| Output::Line(text.to_owned());
        let heard: Vec<Output> = heard.iter().collect();
        assert_eq!(heard, [line("a"), line("b"), Output::Closed]);
    }

    #[test]
    fn a_dropped_process_leaves_nothing_behind() {
        let (process, lines, _log) = start(FOREVER);
        lines.await_line(PATIENCE, |line| line == "ready").unwrap();
        let pid = process.pid();
        assert!(proc::usage(pid).is_some());
        drop(process);
        assert_eq!(proc::usage(pid), None);
    }

    #[test]
    fn a_program_or_a_log_that_is_not_there_is_named() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("missing/x");
        let error = Process::spawn(shell("exit"), &path).unwrap_err();
        assert_eq!(error.to_string(), format!("cannot make {}", path.display()));
        let error = Process::spawn(Command::new(&path), &folder.path().join("log")).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("cannot start {}", path.display())
        );
    }

    #[derive(Debug)]
    struct Written(ChildStdin);

    impl Remote for Written {
        fn signal(&self, signal: Signal) -> bool {
            writeln!(&self.0, "{}", signal.as_raw()).is_ok()
        }
    }

    #[test]
    fn signals_to_another_machine_go_through_its_near_end() {
        let log = NamedTempFile::new().unwrap();
        let command = shell("read signal; echo got $signal");
        let mut process = Process::spawn_remote(command, log.path(), Written).unwrap();
        let lines = process.lines().unwrap();
        assert!(process.signal(Signal::TERM));
        assert!(process.await_end(PATIENCE).unwrap().success());
        assert_eq!(lines.rest(PATIENCE), ["got 15"]);
    }
}
