//! Programs on real ZeroMQ: pyzmq, and libzmq from C. For the tests of this crate and for those of whole farms.
//!
//! Needs the Debian packages python3-zmq and libzmq3-dev (`scripts/setup.sh test`). Without them a test says that it is
//! skipped; with `CI=true` it fails.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;

/// Empty, the edges of short frames and of what is copied, and larger than any buffer on the way.
pub(crate) const SIZES: [usize; 8] = [0, 1, 255, 256, 70_000, 1025, 3_000_000, 17];
/// Debian's package belongs to Debian's Python, which need not be the first on the path.
const PYTHON: &str = "/usr/bin/python3";

/// One of the two ways to real ZeroMQ.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Pyzmq,
    Libzmq,
}

/// Says that a package is missing.
fn missing(package: &str) -> Option<Command> {
    let is_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    assert!(
        !is_ci,
        "the package {package} is missing; run scripts/setup.sh test"
    );
    println!("skipped: the package {package} is not installed");
    None
}

/// The command of the program `stem` below the folder of this crate; `None` if what runs its kind is not here.
pub(crate) fn program(kind: Kind, stem: &str) -> Option<Command> {
    let stem = Path::new(env!("CARGO_MANIFEST_DIR")).join(stem);
    match kind {
        Kind::Pyzmq => {
            let mut python = Command::new(PYTHON);
            python.args(["-c", "import zmq"]).stderr(Stdio::null());
            if !python.status().is_ok_and(|status| status.success()) {
                return missing("python3-zmq");
            }
            let mut command = Command::new(PYTHON);
            command.arg(stem.with_extension("py"));
            Some(command)
        }
        Kind::Libzmq if Path::new("/usr/include/zmq.h").exists() => Some(compiled(&stem)),
        Kind::Libzmq => missing("libzmq3-dev"),
    }
}

/// The program in C. Tests run at once in threads and processes: each process builds its own, once.
fn compiled(stem: &Path) -> Command {
    static BUILT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let name = stem.file_stem().unwrap().to_str().unwrap();
    let binary =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("zmq-{name}-{}", std::process::id()));
    let mut built = BUILT.lock().unwrap();
    if !built.contains(&binary) {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&binary);
        cc.arg(stem.with_extension("c")).arg("-lzmq");
        assert!(cc.status().unwrap().success(), "{name}.c does not compile");
        built.insert(binary.clone());
    }
    Command::new(binary)
}

/// A program at the other end.
pub(crate) struct Peer {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Peer {
    pub(crate) fn start(mut command: Command, words: &[&str]) -> Self {
        let mut process = command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Notifies a publisher that its messages arrive.
    pub(crate) fn begin(&mut self) {
        let input = self.process.stdin.as_mut().unwrap();
        input.write_all(b"\n").unwrap();
    }

    /// Ends its input, and gives the rest of what it prints.
    pub(crate) fn end(mut self) -> String {
        drop(self.process.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(
            self.process.wait().unwrap().success(),
            "the peer has failed"
        );
        rest.trim().to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Of a test that has failed; after `end` it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
