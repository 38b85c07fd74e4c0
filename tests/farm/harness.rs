//! Starts the program, reads its output, waits for it, and reads what it leaves.

use rustix::process::{Pid, Signal};
use serde_json::Value;
use sheaf_farm::{Lines, Process};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tempfile::NamedTempFile;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_sheaf");
/// No test of a farm takes as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Held by a test as long as it has a farm.
static ONE_FARM: Mutex<()> = Mutex::new(());

/// Waits for the machine.
pub(crate) fn farm_turn() -> MutexGuard<'static, ()> {
    ONE_FARM.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test as long as it has a site of servers that mostly waits: beside a farm it takes little of the machine.
static ONE_SITE: Mutex<()> = Mutex::new(());

/// Waits for the other sites.
pub(crate) fn site_turn() -> MutexGuard<'static, ()> {
    ONE_SITE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A process of the program under test; killed when dropped.
pub(crate) struct Running {
    process: Process,
    name: String,
    stdout: Lines,
    stderr: NamedTempFile,
}

/// How a process ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: String,
}

impl Ended {
    /// Returns the output line by line; fails the test if the process failed.
    #[track_caller]
    pub(crate) fn ok(self, words: &[&str]) -> String {
        let stdout = self.stdout.join("\n");
        assert!(
            self.status.success(),
            "{words:?}: {stdout}\n{}",
            self.stderr
        );
        stdout
    }
}

impl Running {
    /// Starts `sheaf` with `words`.
    pub(crate) fn start<S: AsRef<std::ffi::OsStr>>(words: &[S]) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(words);
        Self::of(command)
    }

    /// Starts `command`, which is the program under test or runs it.
    pub(crate) fn of(mut command: Command) -> Self {
        command.env_remove("RUST_LOG");
        let words = command.get_args().map(|word| word.to_string_lossy());
        let name = words.collect::<Vec<_>>().join(" ");
        let stderr = NamedTempFile::new().unwrap();
        let mut process =
            Process::spawn(command, stderr.path()).expect("the program under test starts");
        let stdout = process.lines().unwrap();
        Self {
            process,
            name,
            stdout,
            stderr,
        }
    }

    /// The next line on the standard output that contains `expected`.
    #[track_caller]
    pub(crate) fn await_line(&self, expected: &str) -> String {
        let line = self
            .stdout
            .await_line(PATIENCE, |line| line.contains(expected));
        line.unwrap_or_else(|error| panic!("{}: no line with {expected:?}: {error}", self.name))
    }

    /// Waits for a line that `is_it` takes, and returns it.
    #[track_caller]
    pub(crate) fn await_that(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let line = self.stdout.await_line(PATIENCE, is_it);
        line.unwrap_or_else(|error| panic!("{}: no line with {what}: {error}", self.name))
    }

    pub(crate) fn pid(&self) -> Pid {
        let pid = self.process.pid().cast_signed();
        Pid::from_raw(pid).expect("no process has the id 0")
    }

    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        assert!(self.process.signal(signal), "the process is there");
    }

    /// Kills it, and waits until it is gone with all it had: its addresses are free for its next life.
    #[track_caller]
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        let end = self.process.await_end(PATIENCE);
        assert!(end.is_some(), "{} lives on", self.name);
    }

    /// Waits for its end. Lines that were awaited before are not given again.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        let status = self.process.await_end(PATIENCE).unwrap_or_else(|| {
            let heard = self.stdout.rest(Duration::ZERO);
            panic!("{} did not end: {heard:#?}", self.name)
        });
        let stderr = std::fs::read(self.stderr.path()).expect("the log is there");
        Ended {
            status,
            stdout: self.stdout.rest(PATIENCE),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }
}

/// Runs `sheaf` with `words` to its end.
#[track_caller]
pub(crate) fn sheaf(words: &[&str]) -> Ended {
    Running::start(words).end()
}

/// A directory for one demo, with its summary and its logs.
pub(crate) struct DemoDir {
    folder: tempfile::TempDir,
}

impl DemoDir {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn summary_path(&self) -> PathBuf {
        self.folder.path().join("summary.json")
    }

    /// The command line of a demo that leaves its files here. Nodes take little memory, so that they start fast, and
    /// there is no collector.
    pub(crate) fn words(&self, line: &str) -> Vec<String> {
        let (out, summary) = (self.out(), self.summary_path());
        let fixed = [
            "demo",
            "--no-monitor",
            "--memory",
            "64",
            "--out",
            out.to_str().unwrap(),
            "--json",
        ];
        let fixed = fixed.into_iter().chain([summary.to_str().unwrap()]);
        fixed
            .chain(line.split_whitespace())
            .map(str::to_owned)
            .collect()
    }

    /// Returns the summary of the demo; fails the test if a node logged an error.
    #[track_caller]
    pub(crate) fn summary(&self) -> Summary {
        let errors = self.error_lines();
        assert!(errors.is_empty(), "nodes logged errors: {errors:#?}");
        let text = std::fs::read_to_string(self.summary_path()).expect("a summary was written");
        Summary(serde_json::from_str(&text).expect("the summary is JSON"))
    }

    fn error_lines(&self) -> Vec<String> {
        let mut errors = Vec::new();
        for entry in std::fs::read_dir(self.out()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let name = path.file_stem().unwrap().to_string_lossy().into_owned();
                let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
                let lines = text
                    .lines()
                    .filter(|line| line.contains(" ERROR ") || line.contains("panicked"));
                errors.extend(lines.map(|line| format!("{name}: {line}")));
            }
        }
        errors
    }
}

/// The summary of a demo.
pub(crate) struct Summary(pub(crate) Value);

impl Summary {
    #[track_caller]
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.0[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name} is {}, no count", self.0[name]))
    }

    pub(crate) fn counts(&self, name: &str) -> BTreeMap<String, u64> {
        serde_json::from_value(self.0[name].clone()).expect("an object of counts")
    }

    /// A field of a node such as `flp:1`.
    #[track_caller]
    pub(crate) fn of_node(&self, node: &str, field: &str) -> &Value {
        let nodes = self.0["nodes"].as_array().unwrap();
        let found = nodes.iter().find(|found| found["node"] == node);
        &found.unwrap_or_else(|| panic!("{node} is not in the summary"))[field]
    }

    /// The sum over all nodes whose name begins so.
    pub(crate) fn items(&self, role: &str) -> u64 {
        let nodes = self.0["nodes"].as_array().unwrap().iter();
        let of_role = nodes.filter(|node| node["node"].as_str().unwrap().starts_with(role));
        of_role.map(|node| node["items"].as_u64().unwrap()).sum()
    }

    /// Every TF has one fate and nothing contradicts it; nothing was mixed, doubled or damaged.
    #[track_caller]
    pub(crate) fn assert_sound(&self) {
        let summary = &self.0;
        assert_eq!(summary["ledger_balanced"], true, "{summary:#}");
        for name in [
            "in_flight",
            "mixed_target",
            "delivered_twice",
            "digest_mismatch",
            "consumer_faults",
        ] {
            assert_eq!(self.count(name), 0, "{name}: {summary:#}");
        }
        assert_eq!(
            summary["problems"].as_array().unwrap().len(),
            0,
            "{summary:#}"
        );
    }

    /// As [`assert_sound`](Self::assert_sound), and every announced TF is complete.
    #[track_caller]
    pub(crate) fn assert_nothing_lost(&self) {
        self.assert_sound();
        let (announced, complete) = (self.count("announced"), self.count("complete"));
        assert!(announced > 0, "{:#}", self.0);
        assert_eq!(complete, announced, "{:#}", self.0);
    }
}

/// Runs a demo to its end and expects its books to be sound.
#[track_caller]
pub(crate) fn demo(line: &str) -> Summary {
    let _turn = farm_turn();
    let dir = DemoDir::new();
    let ended = Running::start(&dir.words(line)).end();
    let (stdout, stderr) = (ended.stdout.join("\n"), &ended.stderr);
    assert!(
        ended.status.success(),
        "{line}: {}\n{stdout}\n{stderr}",
        ended.status
    );
    let summary = dir.summary();
    summary.assert_sound();
    summary
}

/// An address that was free a moment ago.
pub(crate) fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Starts a node whose event log is in `folder`.
pub(crate) fn start(folder: &Path, config: &str, role: &str, index: u16, more: &[&str]) -> Running {
    let events = folder.join(format!("{role}-{index}.events"));
    let index = index.to_string();
    let words = [
        "run",
        role,
        "--config",
        config,
        "--index",
        &index,
        "--events",
        events.to_str().unwrap(),
    ];
    Running::start(&[&words, more].concat())
}

/// Starts an ICN whose event log is in `folder`, and that prints its status.
pub(crate) fn start_icn(folder: &Path, config: &str, more: &[&str]) -> Running {
    start(
        folder,
        config,
        "icn",
        0,
        &[&["--status-ms", "50"], more].concat(),
    )
}

/// Writes a file and gives its path.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}
