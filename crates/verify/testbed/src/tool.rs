//! Tools of the system: whether they are there, and running them.

use crate::IoError;
use crate::hierarchy;
use sheaf_node::program;
use sheaf_zookeeper::server::Home;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use thiserror::Error;

/// Where system tools may lie that are not on every user's path.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/bin"];

/// Reasons why a tool of the system did not do its work.
#[derive(Debug, Error)]
pub enum ToolError {
    /// The tool cannot be run.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The tool failed.
    #[error("`{command}` ended with {status}: {stderr}")]
    Failed {
        /// Command line.
        command: String,
        /// How it ended.
        status: String,
        /// Standard error of the command.
        stderr: String,
    },
}

/// Something that the machine lacks, where skipping is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("this cannot run here: {0}")]
pub struct Missing(pub String);

/// Requirements of a place or a disturbance beyond the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// To be root: mounts, priorities, limits of others.
    Root,
    /// Root, `ip` and `nft`, and a kernel with network namespaces.
    Namespaces,
    /// `tc`.
    TrafficControl,
    /// `ss`, which can end the connections of others.
    SocketStatistics,
    /// `strace`, and the right to trace.
    Strace,
    /// The library of `faketime`.
    Faketime,
    /// `unshare -T`: a time namespace.
    TimeNamespace,
    /// Java and the jars of ZooKeeper.
    ZooKeeper,
    /// A cgroup hierarchy of version 1 with the memory controller.
    MemoryGroup,
    /// Root, and the cpu controller of cgroups.
    ProcessorGroup,
}

impl Need {
    /// Why it is not met here; `None` if it is.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        let root = || (!is_root()).then(|| "needs root".to_owned());
        let tool = |name: &str, package: &str| {
            let lacks = find(name).is_none();
            lacks.then(|| format!("needs `{name}` (Debian package {package})"))
        };
        match self {
            Self::Root => root(),
            Self::Namespaces => root()
                .or_else(|| tool("ip", "iproute2"))
                .or_else(|| tool("nft", "nftables"))
                .or_else(no_namespaces),
            Self::TrafficControl => root().or_else(|| tool("tc", "iproute2")),
            Self::SocketStatistics => root().or_else(|| tool("ss", "iproute2")),
            Self::Strace => root().or_else(|| tool("strace", "strace")),
            Self::Faketime => faketime_library()
                .is_none()
                .then(|| "needs libfaketime (Debian package faketime)".to_owned()),
            Self::TimeNamespace => root()
                .or_else(|| tool("unshare", "util-linux"))
                .or_else(|| {
                    let lacks = !Path::new("/proc/self/ns/time").exists();
                    lacks.then(|| "needs a kernel with time namespaces".to_owned())
                }),
            Self::ZooKeeper => Home::find()
                .err()
                .map(|error| format!("needs ZooKeeper: {error}")),
            Self::MemoryGroup => root().or_else(|| {
                let lacks = !Path::new(MEMORY_GROUPS)
                    .join("memory.limit_in_bytes")
                    .exists();
                lacks.then(|| format!("needs a memory controller in {MEMORY_GROUPS}"))
            }),
            Self::ProcessorGroup => root().or_else(hierarchy::missing),
        }
    }
}

/// Where cgroups of version 1 limit memory.
pub const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";

fn no_namespaces() -> Option<String> {
    // Once a process: two threads that try at the same moment would take each other's away.
    static FOUND: OnceLock<Option<String>> = OnceLock::new();
    let try_one = || {
        // Made and removed at once: a container may have `ip` and root, and no right to do this.
        let name = format!("{}-probe", crate::names::prefix());
        let made = run("ip", ["netns", "add", &name]);
        let removed = run("ip", ["netns", "del", &name]);
        let error = made.and(removed).err()?;
        Some(format!("needs network namespaces: {error}"))
    };
    FOUND.get_or_init(try_one).clone()
}

/// Another binary than the running one, for tests of this crate.
pub const PROGRAM: &str = "SHEAF_LAB_PROGRAM";

/// Returns the program whose processes are the nodes.
///
/// # Errors
///
/// Refusal of the operating system.
pub fn program() -> Result<PathBuf, IoError> {
    given_or(program::path)
}

/// Returns the program that other hosts get.
///
/// # Errors
///
/// Refusal of the operating system, or that the program is no file of its own.
pub(crate) fn program_to_copy() -> Result<PathBuf, IoError> {
    given_or(program::path_to_copy)
}

fn given_or(find: fn() -> io::Result<PathBuf>) -> Result<PathBuf, IoError> {
    let given = std::env::var_os(PROGRAM).map(PathBuf::from);
    given
        .map_or_else(find, Ok)
        .map_err(IoError::of("find the path of this program"))
}

/// Whether this process is root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where the tool `name` lies.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders =
        std::env::split_paths(&path).chain(SYSTEM_FOLDERS.iter().map(|folder| (*folder).into()));
    folders
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// The library that `faketime` loads before all others.
pub fn faketime_library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?;
    let folders = folders.flatten().map(|folder| folder.path());
    let mut found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
    found.find(|path| path.is_file())
}

/// A command for the tool `name`, wherever it lies.
pub fn command(name: &str) -> Command {
    let mut command = Command::new(find(name).unwrap_or_else(|| name.into()));
    command.stdin(Stdio::null());
    command
}

/// Runs a tool to its end; gives what it printed.
///
/// # Errors
///
/// [`ToolError::Io`] if it cannot be started, [`ToolError::Failed`] if it fails.
pub fn run<'a>(name: &str, args: impl IntoIterator<Item = &'a str>) -> Result<String, ToolError> {
    let mut command = command(name);
    command.args(args);
    finish(command, None)
}

/// As [`run`], with `input` as its standard input.
///
/// # Errors
///
/// As [`run`].
pub fn run_with_input<'a>(
    name: &str,
    args: impl IntoIterator<Item = &'a str>,
    input: &str,
) -> Result<String, ToolError> {
    let mut command = command(name);
    command.args(args);
    finish(command, Some(input))
}

fn finish(mut command: Command, input: Option<&str>) -> Result<String, ToolError> {
    let typed = format!("{command:?}").replace('"', "");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let io = || IoError::of(format!("run `{typed}`"));
    let mut child = command.spawn().map_err(io())?;
    if let (Some(text), Some(mut stdin)) = (input, child.stdin.take()) {
        // A tool that does not read its input says why when it ends.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output().map_err(io())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(ToolError::Failed {
        command: typed,
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
