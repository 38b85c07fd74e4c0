//! A farm of real processes, and programs in C and C++ that are a part of it.

use crate::SANITIZED;
use crate::installed::{HERE, Language, compile, run};
use rustix::process::Signal;
use sheaf_farm::{Lines, Process};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No test takes as long.
const PATIENCE: Duration = Duration::from_secs(180);

/// Held by a test as long as it has a farm.
static ONE_FARM: Mutex<()> = Mutex::new(());

/// Returns the program `sheaf`, which the tests of the workspace build.
fn sheaf() -> PathBuf {
    let me = std::env::current_exe().expect("this program");
    let program = me
        .parent()
        .expect("the folder of dependencies")
        .with_file_name("sheaf");
    assert!(
        program.exists(),
        "{} is not there: cargo test --workspace builds it",
        program.display()
    );
    program
}

/// A process, its output, and the end of its log.
struct Node {
    process: Process,
    lines: Lines,
    log: PathBuf,
}

impl Node {
    fn start(command: Command, log: PathBuf) -> Self {
        let mut process = Process::spawn(command, &log).expect("it starts");
        let lines = process.lines().expect("its output");
        Self {
            process,
            lines,
            log,
        }
    }

    /// Waits for its end; fails the test unless that is a success. Returns its last line.
    #[track_caller]
    fn end(mut self) -> String {
        let mut lines = self.lines.rest(PATIENCE);
        let status = self.process.await_end(PATIENCE);
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let is_well = status.is_some_and(|status| status.success());
        assert!(
            is_well,
            "{}: {status:?}\n{lines:?}\n{log}",
            self.log.display()
        );
        lines.pop().unwrap_or_default()
    }
}

/// Waits until `is_there`.
#[track_caller]
fn await_that(what: &str, mut is_there: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_there() {
        assert!(since.elapsed() < PATIENCE, "{what} has not come");
        std::thread::yield_now();
    }
}

/// A farm whose FLPs are programs, and whose EPNs lend their TFs.
pub(crate) struct Farm {
    folder: TempDir,
    icn: Node,
    epns: Vec<Node>,
    _turn: MutexGuard<'static, ()>,
}

impl Farm {
    /// Starts a farm, without its FLPs; its file ends with `more`.
    pub(crate) fn start(flps: u32, epns: u32, more: &str) -> Self {
        Self::limited(None, flps, epns, more)
    }

    /// Starts a farm whose run ends behind `tfs`.
    pub(crate) fn limited(tfs: Option<u32>, flps: u32, epns: u32, more: &str) -> Self {
        let run = tfs
            .map(|tfs| format!("timeframes = {tfs}\n"))
            .unwrap_or_default();
        let turn = ONE_FARM.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("written")).expect("a folder");
        let write = |address: &str| {
            let at = folder.path().display();
            let text = format!(
                "[run]\nflps = {flps}\nepns = {epns}\n{run}[icn]\naddress = \"{address}\"\n\
                 [flp]\nhold_bytes = 67108864\nstf_bytes_max = 4194304\n[flp.source]\nkind = \"program\"\n\
                 [epn.sink]\nkind = \"shm\"\npath = \"{at}/epn-{{epn}}\"\n\
                 [epn.build]\ncapacity_bytes = 134217728\n{more}"
            );
            fs::write(folder.path().join("farm.toml"), text).expect("the farm file");
        };
        write("127.0.0.1:1");
        let node = |role: &str, index: u32, more: &[&str]| {
            let place = |end: &str| folder.path().join(format!("{role}-{index}.{end}"));
            let mut command = Command::new(sheaf());
            command.current_dir(folder.path()).args([
                "run",
                role,
                "--config",
                "farm.toml",
                "--index",
            ]);
            command
                .arg(index.to_string())
                .arg("--events")
                .arg(place("events"))
                .args(more);
            Node::start(command, place("log"))
        };
        let icn = node("icn", 0, &["--listen", "127.0.0.1:0"]);
        let listening = |node: &Node| {
            let line = node
                .lines
                .await_line(PATIENCE, |line| line.contains("\"listening\""));
            let log = || fs::read_to_string(&node.log).unwrap_or_default();
            line.unwrap_or_else(|error| panic!("{}: {error}\n{}", node.log.display(), log()))
        };
        let line = listening(&icn);
        let address = line.split('"').nth(3).expect("an address").to_owned();
        write(&address);
        let epns: Vec<Node> = (0..epns).map(|index| node("epn", index, &[])).collect();
        for epn in &epns {
            listening(epn);
        }
        Self {
            folder,
            icn,
            epns,
            _turn: turn,
        }
    }

    /// Returns the path of the farm file.
    pub(crate) fn file(&self) -> String {
        self.folder.path().join("farm.toml").display().to_string()
    }

    /// Returns the address of an EPN for consumers.
    pub(crate) fn address(&self, epn: u32) -> String {
        format!("shm:{}/epn-{epn}", self.folder.path().display())
    }

    /// Starts the example `source` with `words`, under the sanitizers.
    pub(crate) fn program(&self, source: &str, language: Language, words: &[&str]) -> Program {
        let path = format!("{HERE}/../../examples/c/{source}");
        let program = compile(
            language.compilers()[0],
            language,
            Path::new(&path),
            &SANITIZED,
        );
        self.launch(&program, words)
    }

    /// Starts `program` with `words`, in the folder of the farm.
    pub(crate) fn launch(&self, program: &Path, words: &[&str]) -> Program {
        let name = program.file_name().expect("a name").to_string_lossy();
        let log = self.folder.path().join(format!("{name}.log"));
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).args(words);
        Program(Node::start(command, log))
    }

    /// Ends the run if it has not ended, and waits until all nodes have.
    pub(crate) fn stop(&self) {
        let _ = self.icn.process.signal(Signal::INT);
        for node in self.epns.iter().chain([&self.icn]) {
            let _ = node.lines.rest(PATIENCE);
        }
    }

    /// Returns the folder of the farm.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until EPN 0 has built something.
    pub(crate) fn await_built(&self) {
        let events = self.folder.path().join("epn-0.events");
        await_that("a TF of EPN 0", || {
            fs::read_to_string(&events).is_ok_and(|text| text.lines().count() > 20)
        });
    }

    /// Kills EPN 0.
    pub(crate) fn kill_epn(&mut self) {
        let epn = &mut self.epns[0].process;
        assert!(epn.signal(Signal::KILL), "the EPN is there");
        assert!(epn.await_end(PATIENCE).is_some(), "the EPN lives on");
    }

    /// Recomputes the books of the run from the event logs. Returns them as JSON.
    pub(crate) fn verify(&self, more: &[&str]) -> String {
        let mut command = Command::new(sheaf());
        command.args(["data", "verify"]).arg(self.folder.path());
        run(command.args(["--json", "-"]).args(more)).replace([' ', '\n'], "")
    }
}

/// A program in C or C++ that runs.
pub(crate) struct Program(Node);

impl Program {
    /// Waits for its end; fails the test unless that is a success. Returns its last line.
    #[track_caller]
    pub(crate) fn end(self) -> String {
        self.0.end()
    }

    pub(crate) fn interrupt(&self) {
        assert!(self.0.process.signal(Signal::INT), "the program is there");
    }

    /// Waits until a handler is called for an interrupt, or none is.
    #[track_caller]
    pub(crate) fn await_handler(&self, is_there: bool) {
        let status = format!("/proc/{}/status", self.0.process.pid());
        await_that("the handler of signals", || {
            let text = fs::read_to_string(&status).unwrap_or_default();
            let mut lines = text.lines();
            let caught = lines.find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok());
            let interrupt = 1 << (Signal::INT.as_raw() - 1);
            caught.is_some_and(|caught| (caught & interrupt != 0) == is_there)
        });
    }

    /// Waits until an interrupt has ended the process.
    #[track_caller]
    pub(crate) fn await_interrupted(mut self) {
        let status = self.0.process.await_end(PATIENCE).expect("it ends");
        assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{status}");
    }
}
