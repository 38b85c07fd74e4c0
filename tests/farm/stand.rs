//! A stand: two machines with an `sshd` each, and a desk from which they are reached, all of them network namespaces.
//!
//! Nothing of the machine's own `sshd` is touched: keys, configuration, port and network are those of the stand. What
//! is needed for it and is not there is said by name.

use crate::harness::{Ended, PATIENCE, PROGRAM, Running};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sheaf_testbed::net::{self, Net, Topology};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const TOPOLOGY: &str = "
name = 'stand'
link = { rate_mbit = 1000.0, framing = 'bulk' }
switch = [{ name = 'only', ports = 3 }]
node = [
  { name = 'desk', switch = 'only' },
  { name = 'a', switch = 'only' },
  { name = 'b', switch = 'only' },
]
";

/// Where the `sshd` of each host listens.
pub(crate) const PORT: u16 = 2222;

/// Script that `sh` runs in the namespace of a host. `ip netns exec` gives it mounts of its own: what `sshd` needs in
/// `/run` is there and nowhere else, and so is a disk that is too small for anything.
const START: &str = r#"
set -e
mount -t tmpfs tmpfs /run
mkdir -m 755 /run/sshd
mount -t tmpfs -o size=1m tmpfs "$2"
exec "$1" -D -e -f "$3"
"#;

pub(crate) struct Stand {
    folder: tempfile::TempDir,
    net: Net,
    daemons: Vec<Child>,
}

impl Stand {
    /// Makes one; `None`, and a word about it, if this machine cannot have one.
    pub(crate) fn make(test: &str) -> Option<Self> {
        let sshd = Path::new("/usr/sbin/sshd");
        let why = match net::needs() {
            Err(why) => Some(why.to_string()),
            Ok(()) if !sshd.is_file() => {
                Some("needs `sshd` (Debian package openssh-server)".to_owned())
            }
            Ok(()) => None,
        };
        if let Some(why) = why {
            eprintln!("{test} skipped: {why}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let net = Net::make(&Topology::parse(TOPOLOGY, "stand").unwrap()).unwrap();
        for key in ["user", "stranger", "a", "b"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(folder.path().join(key))
                .status();
            assert!(made.unwrap().success());
        }
        let mut stand = Self {
            folder,
            net,
            daemons: Vec::new(),
        };
        let known = ["a", "b"].map(|host| {
            let key = fs::read_to_string(stand.file(&format!("{host}.pub"))).unwrap();
            format!("[{}]:{PORT} {key}", stand.address(host))
        });
        fs::write(stand.file("known_hosts"), known.concat()).unwrap();
        for host in ["a", "b"] {
            fs::create_dir_all(stand.file(&format!("{host}-disk/small"))).unwrap();
            let daemon = stand.start_sshd(sshd, host);
            stand.daemons.push(daemon);
        }
        Some(stand)
    }

    fn start_sshd(&self, sshd: &Path, host: &str) -> Child {
        let (address, key) = (self.address(host), self.file(host));
        let (keys, config) = (self.file("user.pub"), self.file(&format!("{host}.conf")));
        let text = format!(
            "ListenAddress {address}:{PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nUseDNS no\n\
             StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\n",
            key.display(),
            keys.display()
        );
        fs::write(&config, text).unwrap();
        let mut daemon = self
            .inside(host, "sh")
            .args(["-c", START, "start-sshd"])
            .args([sshd, &self.disk(host).join("small"), &config])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
        let heard: Vec<String> = lines
            .by_ref()
            .map_while(Result::ok)
            .take_while(|line| !line.contains("Server listening"))
            .collect();
        assert!(matches!(daemon.try_wait(), Ok(None)), "sshd: {heard:#?}");
        // Later output is not used, but has to be read so that the pipe never fills.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        daemon
    }

    /// A file of the stand.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder below which a host has its own. All of them lie on one machine, where every user sees them.
    pub(crate) fn disk(&self, host: &str) -> PathBuf {
        self.file(&format!("{host}-disk"))
    }

    /// Where a host is.
    pub(crate) fn address(&self, host: &str) -> String {
        let places = self.net.places();
        let place = places.iter().find(|place| place.node == host).unwrap();
        place.primary.to_string()
    }

    /// A command in the namespace of a node.
    pub(crate) fn inside(&self, node: &str, program: &str) -> Command {
        let places = self.net.places();
        let place = places.iter().find(|place| place.node == node).unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &place.namespace, program]);
        command
    }

    /// Writes an inventory with both hosts, three nodes each, changed by `change`; gives its path.
    pub(crate) fn inventory(&self, change: impl Fn(String) -> String) -> String {
        let host = |name: &str| {
            format!(
                "[[host]]\nname = '{name}'\naddress = '{}:{PORT}'\nfolder = '{}/lab'\n",
                self.address(name),
                self.disk(name).display()
            )
        };
        let all =
            "[all]\nuser = 'root'\nidentity = 'user'\nknown_hosts = 'known_hosts'\nnodes = 3\n";
        let text = format!("name = 'stand'\n{all}{}{}", host("a"), host("b"));
        let path = self.file("stand.toml");
        fs::write(&path, change(text)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Puts the program where `sheaf lab hosts push` would, without its bytes.
    pub(crate) fn furnish(&self) {
        for host in ["a", "b"] {
            let folder = self.disk(host).join("lab");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(".sheaf-lab"), "").unwrap();
            let program = folder.join("sheaf");
            // Where no link can be made, a process of its own copies: a descriptor for writing of this one could be
            // inherited by what other tests start, and the program would be "text file busy".
            fs::hard_link(PROGRAM, &program).unwrap_or_else(|_| {
                let copied = Command::new("cp").arg(PROGRAM).arg(&program).status();
                assert!(copied.unwrap().success(), "cp {}", program.display());
            });
        }
    }

    /// Starts `sheaf` with `words` at the desk.
    pub(crate) fn start(&self, words: &[&str]) -> Running {
        let mut command = self.inside("desk", PROGRAM);
        command.args(words);
        Running::of(command)
    }

    /// Runs `sheaf` with `words` at the desk, to its end.
    #[track_caller]
    pub(crate) fn sheaf(&self, words: &[&str]) -> Ended {
        self.start(words).end()
    }

    /// As [`sheaf`](Self::sheaf), and expects it to succeed.
    #[track_caller]
    pub(crate) fn sheaf_ok(&self, words: &[&str]) -> String {
        self.sheaf(words).ok(words)
    }

    /// Processes whose program lies on the disk of a host, whatever its name.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").unwrap().map_while(Result::ok);
        let of_stand = |path: PathBuf| path.starts_with(self.folder.path());
        entries
            .filter(|entry| fs::read_link(entry.path().join("exe")).is_ok_and(of_stand))
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .collect()
    }

    /// Waits until none of them is left.
    #[track_caller]
    pub(crate) fn await_no_process(&self) {
        loop {
            let Some(pid) = self.processes().into_iter().next() else {
                return;
            };
            // An error means that it has ended.
            if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
                await_readable(&process, &format!("the end of {pid:?}"));
            }
        }
    }

    /// Waits until there is a file `path`, whose folder may not be there yet either.
    #[track_caller]
    pub(crate) fn await_file(&self, path: &Path) {
        let folder = path.parent().unwrap();
        if folder != self.folder.path() {
            self.await_file(folder);
        }
        let watch = inotify::init(inotify::CreateFlags::empty()).unwrap();
        inotify::add_watch(&watch, folder, inotify::WatchFlags::CREATE).unwrap();
        while !path.exists() {
            await_readable(&watch, &format!("{}", path.display()));
            let mut space = [std::mem::MaybeUninit::uninit(); 4096];
            inotify::Reader::new(&watch, &mut space).next().unwrap();
        }
    }
}

#[track_caller]
fn await_readable(fd: &impl std::os::fd::AsFd, what: &str) {
    let patience = Timespec::try_from(PATIENCE).unwrap();
    let mut waiting = [PollFd::new(fd, PollFlags::IN)];
    let count = poll(&mut waiting, Some(&patience)).unwrap();
    assert!(count > 0, "{what} did not come");
}

impl Drop for Stand {
    fn drop(&mut self) {
        // Processes of a test that failed end with the connections.
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for pid in self.processes() {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
