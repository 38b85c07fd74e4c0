//! Changes of an experiment to this machine, and how they are undone.
//!
//! Every namespace, mount, control group and folder has the id of the process in its name: `sheaf-lab-PID…`. A process
//! that made it removes it when it is dropped, also after a panic or a signal. A process that was killed removes
//! nothing, so [`clean`] looks for names of processes that do not live any more; every experiment begins with that.

use crate::IoError;
use crate::hierarchy;
use crate::names::{NAME, unique};
use crate::tool::{self, ToolError};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reasons why a network has no further host.
#[derive(Debug, Error)]
pub enum NetworkError {
    /// `ip` did not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// All addresses are taken.
    #[error("too many hosts")]
    Full,
}

/// Reasons why there is no disk of limited size.
#[derive(Debug, Error)]
pub enum DiskError {
    /// The folder cannot be made.
    #[error(transparent)]
    Io(#[from] IoError),
    /// `mount` did not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

/// A folder for one farm; removed when dropped, unless it is kept.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    /// A new one among the temporary files.
    ///
    /// # Errors
    ///
    /// What the operating system gives.
    pub fn make(is_kept: bool) -> Result<Self, IoError> {
        let path = std::env::temp_dir().join(unique());
        fs::create_dir_all(&path).map_err(IoError::of(format!("make {}", path.display())))?;
        Ok(Self { path, is_kept })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Kept, also by the clean-up of the next experiment.
    pub fn keep(&mut self) {
        self.is_kept = true;
        // Without the mark it stays until then.
        let _ = fs::write(self.file(KEPT), "");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept
            && let Err(error) = fs::remove_dir_all(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "Cannot remove temporary files");
        }
    }
}

/// Machines of a farm as network namespaces, joined by a bridge in one more namespace: nothing of the network of
/// this machine is touched.
#[derive(Debug)]
pub struct Network {
    name: String,
    hosts: Vec<Host>,
}

/// One namespace with one network device `eth0`.
#[derive(Clone, Debug)]
pub struct Host {
    /// Name in `ip netns`.
    pub namespace: String,
    /// The address of `eth0`.
    pub address: Ipv4Addr,
    /// Port of the bridge.
    port: String,
    bridge: String,
}

impl Network {
    /// A bridge without hosts.
    ///
    /// # Errors
    ///
    /// What `ip` says.
    pub fn make() -> Result<Self, ToolError> {
        let network = Self {
            name: unique(),
            hosts: Vec::new(),
        };
        let bridge = network.bridge();
        ip(&["netns", "add", &bridge])?;
        ip(&["-n", &bridge, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &bridge, "link", "set", "br0", "up"])?;
        Ok(network)
    }

    fn bridge(&self) -> String {
        format!("{}-sw", self.name)
    }

    /// One more host. Its address is 10.77.0.N, from 1 on.
    ///
    /// # Errors
    ///
    /// What `ip` says.
    pub fn add_host(&mut self) -> Result<Host, NetworkError> {
        let number = self.hosts.len() + 1;
        let last = u8::try_from(number).map_err(|_| NetworkError::Full)?;
        let host = Host {
            namespace: format!("{}-h{number}", self.name),
            address: Ipv4Addr::new(10, 77, 0, last),
            port: format!("port{number}"),
            bridge: self.bridge(),
        };
        self.hosts.push(host.clone());
        let (bridge, name, port) = (&host.bridge, &host.namespace, &host.port);
        ip(&["netns", "add", name])?;
        let pair = ["link", "add", port, "type", "veth", "peer", "name", "eth0"];
        let words: Vec<&str> = ["-n", bridge]
            .into_iter()
            .chain(pair)
            .chain(["netns", name])
            .collect();
        ip(&words)?;
        ip(&["-n", bridge, "link", "set", port, "master", "br0", "up"])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        host.set_address(host.address)?;
        ip(&["-n", name, "link", "set", "eth0", "up"])?;
        Ok(host)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let hosts = self.hosts.iter().map(|host| host.namespace.clone());
        for name in hosts.chain([self.bridge()]) {
            if let Err(error) = ip(&["netns", "del", &name]) {
                tracing::warn!(name, %error, "Cannot remove a network namespace");
            }
        }
    }
}

impl Host {
    /// A host of a network that something else has made: `port` is its port in the namespace `bridge`.
    pub fn at(namespace: &str, address: Ipv4Addr, bridge: &str, port: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            address,
            port: port.to_owned(),
            bridge: bridge.to_owned(),
        }
    }

    /// Puts `rules` (in the language of `nft`) in force here, in place of all others.
    ///
    /// # Errors
    ///
    /// What `nft` says.
    pub fn set_rules(&self, rules: &str) -> Result<(), ToolError> {
        let words = ["netns", "exec", &self.namespace, "nft", "-f", "-"];
        tool::run_with_input("ip", words, &format!("flush ruleset\n{rules}\n")).map(drop)
    }

    /// Resets all connections that end here, at both their ends; gives how many.
    ///
    /// # Errors
    ///
    /// What `ss` says. A kernel without `CONFIG_INET_DIAG_DESTROY` resets none.
    pub fn reset_connections(&self) -> Result<usize, ToolError> {
        let exec = ["netns", "exec", &self.namespace];
        let words = exec.into_iter().chain(["ss", "-K", "-H", "-t"]);
        Ok(tool::run("ip", words)?.lines().count())
    }

    /// Takes the cable out, or puts it in again.
    ///
    /// # Errors
    ///
    /// What `ip` says.
    pub fn set_link(&self, is_up: bool) -> Result<(), ToolError> {
        let state = if is_up { "up" } else { "down" };
        ip(&["-n", &self.bridge, "link", "set", &self.port, state])
    }

    /// Gives `eth0` another address; the one it had is gone.
    ///
    /// # Errors
    ///
    /// What `ip` says.
    pub fn set_address(&self, address: Ipv4Addr) -> Result<(), ToolError> {
        let name = &self.namespace;
        ip(&["-n", name, "addr", "flush", "dev", "eth0"])?;
        let address = format!("{address}/24");
        ip(&["-n", name, "addr", "add", &address, "dev", "eth0"])
    }

    /// Lets `eth0` send no more than `kbit` a second; `None`: as fast as it can.
    ///
    /// # Errors
    ///
    /// What `tc` says.
    pub fn set_rate(&self, kbit: Option<u32>) -> Result<(), ToolError> {
        let name = &self.namespace;
        let Some(kbit) = kbit else {
            let words = ["-n", name, "qdisc", "del", "dev", "eth0", "root"];
            return tool::run("tc", words).map(drop);
        };
        let rate = format!("{kbit}kbit");
        let shaper = [
            "root", "tbf", "rate", &rate, "burst", "32kb", "latency", "50ms",
        ];
        let words = ["-n", name, "qdisc", "add", "dev", "eth0"];
        tool::run("tc", words.into_iter().chain(shaper)).map(drop)
    }
}

fn ip(words: &[&str]) -> Result<(), ToolError> {
    tool::run("ip", words.iter().copied()).map(drop)
}

/// A disk of limited size, in memory.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts one of `bytes` at `path`, a folder that is made. Its path names this process, so that it can be found.
    ///
    /// # Errors
    ///
    /// What `mount` says.
    pub fn mount(path: &Path, bytes: u64) -> Result<Self, DiskError> {
        fs::create_dir_all(path).map_err(IoError::of(format!("make {}", path.display())))?;
        let (size, text) = (format!("size={bytes}"), path.to_string_lossy());
        tool::run("mount", ["-t", "tmpfs", "-o", &size, "sheaf-lab", &text])?;
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Fills what is left of it.
    ///
    /// # Errors
    ///
    /// What writing gives, other than that it is full.
    pub fn fill(&self) -> Result<(), IoError> {
        use std::io::Write as _;
        let path = self.filler();
        let mut file =
            fs::File::create(&path).map_err(IoError::of("make a file to fill a disk"))?;
        let block = [0_u8; 64 << 10];
        // Large blocks first, then single bytes of the last page.
        for size in [block.len(), 4096, 512] {
            while file.write_all(&block[..size]).is_ok() {}
        }
        Ok(())
    }

    /// Gives the space back.
    ///
    /// # Errors
    ///
    /// What removing the file gives.
    pub fn free(&self) -> Result<(), IoError> {
        fs::remove_file(self.filler()).map_err(IoError::of("remove the file that filled a disk"))
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.path);
    }
}

fn unmount(path: &Path) {
    if let Err(error) = tool::run("umount", ["-l", &path.to_string_lossy()]) {
        tracing::warn!(path = %path.display(), %error, "Cannot unmount");
    }
}

/// A control group that limits memory (cgroups of version 1).
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
}

impl MemoryGroup {
    /// Puts the process `pid` into a new group that may have `bytes`.
    ///
    /// # Errors
    ///
    /// What the kernel gives.
    pub fn limit(pid: u32, bytes: u64) -> Result<Self, IoError> {
        let path = Path::new(tool::MEMORY_GROUPS).join(unique());
        fs::create_dir(&path).map_err(IoError::of(format!("make {}", path.display())))?;
        let group = Self { path };
        let write = |name: &str, text: String| {
            fs::write(group.path.join(name), text).map_err(IoError::of("limit memory"))
        };
        // What it has already has to be counted, or the limit would be for what comes.
        write("memory.move_charge_at_immigrate", "3".to_owned()).unwrap_or_default();
        write("cgroup.procs", pid.to_string())?;
        // A limit below what is in use is refused while nothing can be released; the process dies all the same.
        write("memory.limit_in_bytes", bytes.to_string()).unwrap_or_default();
        Ok(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Errors mean that a process is still in it; the next experiment removes it.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Removes what experiments left whose process does not live any more. Gives the names of what was removed.
#[must_use]
pub fn clean() -> Vec<String> {
    let mut removed = Vec::new();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    for path in mounts.lines().filter_map(|line| line.split(' ').nth(1)) {
        // Namespaces are mounted as well; they go with their names, below.
        if !path.starts_with("/run/netns") && path.split('/').any(is_left_over) {
            unmount(Path::new(path));
            removed.push(path.to_owned());
        }
    }
    if tool::is_root() {
        for name in entries("/run/netns") {
            if tool::run("ip", ["netns", "del", &name]).is_ok() {
                removed.push(name);
            }
        }
        let [old, new] = hierarchy::folders();
        for groups in [tool::MEMORY_GROUPS, old, new] {
            for name in entries(groups) {
                if fs::remove_dir(Path::new(groups).join(&name)).is_ok() {
                    removed.push(name);
                }
            }
        }
    }
    let temporary = std::env::temp_dir();
    for name in entries(&temporary.to_string_lossy()) {
        let path = temporary.join(&name);
        if !path.join(KEPT).exists() && fs::remove_dir_all(&path).is_ok() {
            removed.push(path.display().to_string());
        }
    }
    removed
}

/// A file of this name marks a folder that a user wants to keep.
pub const KEPT: &str = "kept";

/// Names in `folder` of processes that do not live any more.
fn entries(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| is_left_over(name)).collect()
}

fn is_left_over(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(NAME) else {
        return false;
    };
    let digits = rest.split('-').next().unwrap_or_default();
    let pid = digits.parse::<u32>();
    pid.is_ok_and(|pid| pid != std::process::id() && !is_lab(pid))
}

/// Whether the process `pid` lives; another one may have got its id, but hardly one of the same kind.
fn is_lab(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/stat")).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_told_from_what_is_in_use() {
        // Higher than any process id of Linux.
        let dead = u32::MAX;
        assert!(is_left_over(&format!("{NAME}{dead}-3-sw")));
        assert!(!is_left_over(&format!("{}-0", crate::names::prefix())));
        assert!(!is_left_over(&format!("{NAME}1-0")), "init lives");
        assert!(!is_left_over("sheaf-demo-7"));
        assert!(!is_left_over(&format!("{NAME}x")));
    }

    #[test]
    fn a_folder_goes_away_unless_it_is_kept() {
        let folder = Folder::make(false).unwrap();
        fs::write(folder.file("a"), "x").unwrap();
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
        let mut folder = Folder::make(false).unwrap();
        folder.keep();
        let path = folder.path().to_owned();
        drop(folder);
        assert!(path.exists());
        fs::remove_dir_all(path).unwrap();
    }
}
