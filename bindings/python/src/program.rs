//! The program `sheaf` inside Python, with policies of Python: `register_policy`, `check_policy` and `main`.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use sheaf_placement::{Policy, contract, policy};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use crate::errors::PolicyError;
use crate::policy::{Account, PyPolicy};

/// Account of the registered policies of simulations that Python calls.
static REGISTERED: LazyLock<Account> = LazyLock::new(Account::default);

/// Effect of an exception of a registered policy in the command that runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    /// A node: the default policy takes over, since data go on.
    Node,
    /// Another command: it ends, since its results are to be those of the policy.
    Other,
}

/// Command that `main` runs; without one, Python has called a simulation, which raises the exception.
static RUNS: OnceLock<Command> = OnceLock::new();

/// Registers a policy: from then on `name` stands for it wherever this process reads the name of a policy. `maker` is
/// called with a seed for each run and returns an object with `choose(job, targets)`.
#[pyfunction]
pub(crate) fn register_policy(name: &str, maker: Py<PyAny>) -> PyResult<()> {
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let make = move |seed| -> Box<dyn Policy> {
        let of = |account: &Account| PyPolicy::named(kept, &maker, seed, account);
        match RUNS.get() {
            None => Box::new(of(&REGISTERED)),
            Some(Command::Node) => Box::new(of(&Account::default()).or_else(take_over, seed)),
            Some(Command::Other) => Box::new(of(&Account::default()).or_else(end, seed)),
        }
    };
    policy::register(name, make).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Returns the account of the registered policies.
pub(crate) fn registered() -> &'static Account {
    &REGISTERED
}

/// Tells the exception in the log of a node, and makes the default policy.
fn take_over(raised: PyErr, seed: u64) -> Box<dyn Policy> {
    tracing::error!(
        policy = policy::DEFAULT,
        "The policy of this program raised an exception; another one decides from now on: {}",
        trace(&raised)
    );
    policy::by_name(policy::DEFAULT, seed).expect("the default is in the table")
}

/// Prints the exception and ends the process.
#[expect(
    clippy::disallowed_methods,
    reason = "a thread of a simulation cannot return from main"
)]
fn end(raised: PyErr, _seed: u64) -> Box<dyn Policy> {
    eprintln!(
        "sheaf: the policy of this program raised an exception:\n{}",
        trace(&raised)
    );
    remove_launcher();
    std::process::exit(1);
}

/// Returns the traceback of an exception and its message, as Python prints them.
fn trace(raised: &PyErr) -> String {
    Python::attach(|py| {
        let trace = raised.traceback(py).and_then(|trace| trace.format().ok());
        format!("{}{raised}", trace.unwrap_or_default())
    })
}

/// Runs a policy through the contract that every policy keeps: 200 random farms in which targets join, leave, fill up
/// and come back. Raises PolicyError for a breach, and what the policy raises.
#[pyfunction]
pub(crate) fn check_policy(py: Python<'_>, maker: Py<PyAny>) -> PyResult<()> {
    let account = Account::default();
    let checked =
        py.detach(|| contract::try_check(|seed| Box::new(PyPolicy::new(&maker, seed, &account))));
    if let Some(raised) = account.open().raised.take() {
        return Err(raised);
    }
    checked.map_err(|breach| PolicyError::new_err(breach.to_string()))
}

/// Runs a command line of `sheaf`, without the name of the program, and returns its exit status. `launcher` is the
/// command line, for a shell, that starts this program again.
#[pyfunction]
pub(crate) fn run_words(py: Python<'_>, words: Vec<OsString>, launcher: String) -> PyResult<u8> {
    let is_node = words.first().is_some_and(|word| word == "run");
    let command = if is_node {
        Command::Node
    } else {
        Command::Other
    };
    if RUNS.set(command).is_err() {
        return Err(PyOSError::new_err("sheaf.main runs once in a process"));
    }
    sheaf_node::program::set_path(move || write_launcher(&launcher));
    let status = py.detach(|| {
        let name = OsString::from("sheaf");
        sheaf::run_words(std::iter::once(name).chain(words).collect())
    });
    remove_launcher();
    let is_it = |number: &u8| ExitCode::from(*number) == status;
    Ok((0..=u8::MAX).find(is_it).unwrap_or(1))
}

/// Folder with the script that starts this program again, once there is one.
static LAUNCHER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Writes the script that starts this program again, unless it is there; its process is that of the program.
fn write_launcher(command: &str) -> io::Result<PathBuf> {
    let mut launcher = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = &*launcher {
        return Ok(folder.join("sheaf"));
    }
    let folder = std::env::temp_dir().join(format!("sheaf-python-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let script = launcher.insert(folder).join("sheaf");
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&script)?;
    file.write_all(format!("#!/bin/sh\nexec {command} \"$@\"\n").as_bytes())?;
    Ok(script)
}

fn remove_launcher() {
    let mut launcher = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(folder) = launcher.take() {
        // One that cannot be removed is a file of some bytes in the folder for temporary ones.
        let _ = fs::remove_dir_all(folder);
    }
}
