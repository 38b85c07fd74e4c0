//! Private ZooKeeper servers: for tests, the demo and the lab, never for a farm.
//!
//! An [`Ensemble`] is one standalone server or several that vote, each a Java process of this machine with a
//! loopback address of its own (so that a packet filter can cut off one of them) and a data folder of its own. All
//! of it is gone when the value is dropped, and also when this process ends in any other way: each server has a
//! shell beside it that waits for the end of a pipe from here. Members can be killed, paused and started again.

mod home;
mod relay;

pub use home::{Home, HomeError};
pub use relay::{Flow, Relay};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use thiserror::Error;

const CLIENT_PORT: u16 = 2181;
const TLS_PORT: u16 = 2281;
const VOTE_PORT: u16 = 2888;
const ELECTION_PORT: u16 = 3888;

/// How long servers may take to come up; a busy machine of two cores starts three in some seconds.
const READY: Duration = Duration::from_secs(60);

/// Kind of servers to start.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// How many: 1 for a standalone server, 3 for an ensemble that outlives one of them.
    pub members: u8,
    /// ZooKeeper's unit of time, in ms. Sessions are between 2 and 20 of them unless asked for otherwise below.
    pub tick_ms: u32,
    /// Ticks that a member may lag behind the leader before it is given up.
    pub sync_limit: u32,
    /// The shortest session that is granted, in ms.
    pub session_min_ms: u32,
    /// With these files, members also listen for TLS, and ask clients for certificates.
    pub tls: Option<ServerTls>,
    /// Where their temporary folder is made; none: where the system has such folders.
    pub place: Option<PathBuf>,
}

/// The files of servers that speak TLS, PEM each.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The server's key and its certificate, one behind the other.
    pub identity: PathBuf,
    /// The certificates that clients' certificates are signed with.
    pub ca: PathBuf,
}

impl ServerOptions {
    /// One server, with the short times of tests.
    #[must_use]
    pub fn standalone() -> Self {
        Self {
            members: 1,
            tick_ms: 100,
            sync_limit: 5,
            session_min_ms: 200,
            tls: None,
            place: None,
        }
    }

    /// Three servers that vote, with the short times of tests.
    #[must_use]
    pub fn ensemble() -> Self {
        Self {
            members: 3,
            ..Self::standalone()
        }
    }
}

/// Why servers could not be started.
#[derive(Debug, Error)]
pub enum ServerError {
    /// There is no Java, or no ZooKeeper.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// A file, a process or an address failed.
    #[error("cannot start ZooKeeper: {what}: {source}")]
    Io {
        /// Action that failed.
        what: String,
        /// How it failed.
        source: io::Error,
    },
    /// A member ended, or did not serve in time.
    #[error("ZooKeeper server {member} does not serve after {waited:?}; the end of its log: {log}")]
    NotReady {
        /// Index.
        member: usize,
        /// How long it was waited for.
        waited: Duration,
        /// The last lines that it wrote.
        log: String,
    },
}

fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServerError {
    let what = what.into();
    move |source| ServerError::Io { what, source }
}

/// Role of a member in the ensemble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Single server.
    Standalone,
    /// The ensemble's leader: every write goes through it.
    Leader,
    /// Follower.
    Follower,
}

/// Servers that live as long as this value.
#[derive(Debug)]
pub struct Ensemble {
    home: Home,
    members: Vec<Member>,
    /// Removed at last, when no process writes there any more.
    folder: TempDir,
}

#[derive(Debug)]
struct Member {
    address: IpAddr,
    folder: PathBuf,
    has_tls: bool,
    process: Option<Process>,
}

/// The shell that ends a server with this process, and the server.
#[derive(Debug)]
struct Process {
    shell: Child,
    server: OwnedFd,
}

impl Ensemble {
    /// Starts servers and waits until each of them serves.
    ///
    /// # Errors
    ///
    /// [`ServerError`] names what is missing or failed; nothing is left behind.
    pub fn start(home: &Home, options: &ServerOptions) -> Result<Self, ServerError> {
        let place = options.place.clone().unwrap_or_else(std::env::temp_dir);
        let folder = tempfile::Builder::new()
            .prefix("sheaf-zookeeper-")
            .tempdir_in(&place)
            .map_err(io_error(format!("a folder in {}", place.display())))?;
        let addresses = free_addresses(options.members.max(1))?;
        let mut members = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let data = folder.path().join(format!("member-{index}"));
            fs::create_dir(&data).map_err(io_error(data.display().to_string()))?;
            let text = configuration(options, &addresses, index, &data);
            write(&data.join("zoo.cfg"), &text)?;
            write(&data.join("myid"), &format!("{}\n", index + 1))?;
            members.push(Member {
                address: *address,
                folder: data,
                has_tls: options.tls.is_some(),
                process: None,
            });
        }
        let mut ensemble = Self {
            home: home.clone(),
            members,
            folder,
        };
        for index in 0..ensemble.members.len() {
            ensemble.spawn(index)?;
        }
        ensemble.wait_ready()?;
        Ok(ensemble)
    }

    /// All members, as a client wants them: `HOST:PORT,…`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        self.addresses().join(",")
    }

    /// HOST:PORT of every member, for clients without TLS.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let address = |member: &Member| format!("{}:{CLIENT_PORT}", member.address);
        self.members.iter().map(address).collect()
    }

    /// HOST:PORT of every member, for clients with TLS; empty if there is none.
    #[must_use]
    pub fn tls_addresses(&self) -> Vec<String> {
        let members = self.members.iter().filter(|member| member.has_tls);
        members
            .map(|member| format!("{}:{TLS_PORT}", member.address))
            .collect()
    }

    /// How many members there are, dead ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Never: there is at least one member.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The folder with all data, logs and configurations.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills a member with SIGKILL. What it had acknowledged is on its disk.
    pub fn kill(&mut self, member: usize) {
        if let Some(process) = self.process(member).take() {
            process.end();
        }
    }

    /// Stops a member with SIGSTOP: its connections stand and it says nothing.
    pub fn pause(&mut self, member: usize) {
        self.signal(member, Signal::STOP);
    }

    /// Lets a paused member go on.
    pub fn resume(&mut self, member: usize) {
        self.signal(member, Signal::CONT);
    }

    /// Starts a killed member again with its data; it is not waited for.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    pub fn restart(&mut self, member: usize) -> Result<(), ServerError> {
        self.kill(member);
        self.spawn(member)
    }

    /// Returns the role that a member reports; `None` if it does not serve.
    #[must_use]
    pub fn mode(&self, member: usize) -> Option<Mode> {
        let address = self.members.get(member)?.address;
        let text = four_letters(address, "srvr").ok()?;
        let mode = text.lines().find_map(|line| line.strip_prefix("Mode: "))?;
        match mode.trim() {
            "standalone" => Some(Mode::Standalone),
            "leader" => Some(Mode::Leader),
            "follower" => Some(Mode::Follower),
            _ => None,
        }
    }

    /// The member that leads, or the only one.
    #[must_use]
    pub fn leader(&self) -> Option<usize> {
        (0..self.members.len())
            .find(|member| matches!(self.mode(*member), Some(Mode::Leader | Mode::Standalone)))
    }

    /// Waits until every member that was not killed serves.
    ///
    /// # Errors
    ///
    /// [`ServerError::NotReady`] with the end of the log of the one that does not.
    pub fn wait_ready(&mut self) -> Result<(), ServerError> {
        let start = Instant::now();
        for index in 0..self.members.len() {
            while self.members[index].process.is_some() && self.mode(index).is_none() {
                let member = &mut self.members[index];
                let waited = start.elapsed();
                if waited > READY || member.has_ended() {
                    let log = tail(&member.folder.join("server.log"));
                    return Err(ServerError::NotReady {
                        member: index,
                        waited,
                        log,
                    });
                }
                // A server has no way to say that it is ready; it has to be asked again.
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    fn process(&mut self, member: usize) -> &mut Option<Process> {
        &mut self.members[member].process
    }

    fn signal(&mut self, member: usize, signal: Signal) {
        if let Some(process) = self.process(member) {
            // One that has ended already cannot be stopped or continued, which is as well.
            let _ = pidfd_send_signal(&process.server, signal);
        }
    }

    fn spawn(&mut self, index: usize) -> Result<(), ServerError> {
        let member = &mut self.members[index];
        let main = if self.home.is_older_than_3_9() && member.has_tls {
            // Debian's package lacks half of the jars that TLS needs.
            return Err(HomeError::NoTls.into());
        } else {
            "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        };
        // The shell has the pipe from here as its input: its end is the end of this process, however that came.
        // It has a process group of its own, which therefore exists as long as it does; Ctrl-C on a terminal
        // does not reach it.
        let script = "log=$1; shift; \"$@\" </dev/null >>\"$log\" 2>&1 & echo $!; cat >/dev/null; \
                      [ -d \"$OWNER\" ] && rm -rf -- \"$OWNER\"; kill -KILL 0";
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", script, "sh"])
            .arg(member.folder.join("server.log"));
        command
            .arg(self.home.java())
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .arg("-XX:-UsePerfData")
            .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=info")
            .arg("-Dzookeeper.jmx.log4j.disable=true")
            .arg("-cp")
            .arg(self.home.class_path())
            .arg(main)
            .arg(member.folder.join("zoo.cfg"))
            .env("OWNER", self.folder.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut shell = command.spawn().map_err(io_error("/bin/sh"))?;
        let out = shell.stdout.take();
        let pid = out
            .ok_or(io::ErrorKind::BrokenPipe.into())
            .and_then(read_pid);
        let server = pid.and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?));
        match server {
            Ok(server) => {
                member.process = Some(Process { shell, server });
                Ok(())
            }
            Err(error) => {
                kill_group(&mut shell);
                Err(io_error("the server's process")(error))
            }
        }
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(process) = member.process.take() {
                process.end();
            }
        }
    }
}

impl Member {
    fn has_ended(&mut self) -> bool {
        // Signal 0 is not sent, only checked.
        self.process.as_ref().is_none_or(|process| {
            let fd = rustix::event::PollFd::new(&process.server, rustix::event::PollFlags::IN);
            rustix::event::poll(&mut [fd], Some(&rustix::event::Timespec::default()))
                .is_ok_and(|ready| ready > 0)
        })
    }
}

impl Process {
    fn end(mut self) {
        kill_group(&mut self.shell);
    }
}

/// Kills the shell with everything that it started. Its number cannot have been given to another process yet,
/// because its parent has not waited for it.
fn kill_group(shell: &mut Child) {
    if let Some(pid) = i32::try_from(shell.id()).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    let _ = shell.wait();
}

fn read_pid(out: impl Read) -> io::Result<Pid> {
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    let pid = line.trim().parse().ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other(format!("the shell said {line:?}, not a process number")))
}

fn write(path: &Path, text: &str) -> Result<(), ServerError> {
    fs::write(path, text).map_err(io_error(path.display().to_string()))
}

fn configuration(
    options: &ServerOptions,
    addresses: &[IpAddr],
    index: usize,
    data: &Path,
) -> String {
    let ServerOptions {
        tick_ms,
        sync_limit,
        session_min_ms,
        ..
    } = options;
    let mut lines = vec![
        format!("tickTime={tick_ms}"),
        // A member that starts on a busy machine may take long; nothing waits for this limit otherwise.
        format!("initLimit={}", 20_000 / tick_ms.max(&1)),
        format!("syncLimit={sync_limit}"),
        format!("minSessionTimeout={session_min_ms}"),
        "maxSessionTimeout=60000".to_owned(),
        format!("dataDir={}", data.display()),
        format!("clientPort={CLIENT_PORT}"),
        format!("clientPortAddress={}", addresses[index]),
        "maxClientCnxns=0".to_owned(),
        "admin.enableServer=false".to_owned(),
        "4lw.commands.whitelist=srvr".to_owned(),
    ];
    if addresses.len() > 1 {
        let line = |(index, address): (usize, &IpAddr)| {
            let id = index + 1;
            format!("server.{id}={address}:{VOTE_PORT}:{ELECTION_PORT}")
        };
        lines.extend(addresses.iter().enumerate().map(line));
    }
    if let Some(tls) = &options.tls {
        lines.extend([
            format!("secureClientPort={TLS_PORT}"),
            format!("secureClientPortAddress={}", addresses[index]),
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned(),
            "ssl.clientAuth=need".to_owned(),
            "ssl.keyStore.type=PEM".to_owned(),
            format!("ssl.keyStore.location={}", tls.identity.display()),
            "ssl.trustStore.type=PEM".to_owned(),
            format!("ssl.trustStore.location={}", tls.ca.display()),
            "ssl.hostnameVerification=false".to_owned(),
            "ssl.clientHostnameVerification=false".to_owned(),
        ]);
    }
    lines.join("\n") + "\n"
}

/// Returns addresses of the loopback device without a listener on the ports of ZooKeeper.
fn free_addresses(count: u8) -> Result<Vec<IpAddr>, ServerError> {
    let mut last = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..100 {
        let mut random = [0; 2];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| io_error("random numbers")(error.into()))?;
        // 127.64/10 keeps clear of the addresses that people write by hand.
        let address =
            |last| IpAddr::from(Ipv4Addr::new(127, 64 | (random[0] & 63), random[1], last));
        let addresses: Vec<_> = (1..=count).map(address).collect();
        let taken = addresses
            .iter()
            .find_map(|address| TcpListener::bind((*address, CLIENT_PORT)).err());
        match taken {
            None => return Ok(addresses),
            Some(error) => last = error,
        }
    }
    Err(io_error("a free loopback address")(last))
}

/// Asks a server a question of four letters.
fn four_letters(address: IpAddr, word: &str) -> io::Result<String> {
    let patience = Duration::from_secs(1);
    let address = SocketAddr::from((address, CLIENT_PORT));
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(word.as_bytes())?;
    let mut answer = String::new();
    stream.take(64 << 10).read_to_string(&mut answer)?;
    Ok(answer)
}

/// The last lines of a file.
fn tail(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standalone_server_serves_and_leaves_nothing_behind() {
        let Some(home) = Home::for_tests() else {
            return;
        };
        let mut ensemble = Ensemble::start(&home, &ServerOptions::standalone()).unwrap();
        assert_eq!(ensemble.mode(0), Some(Mode::Standalone));
        ensemble.kill(0);
        assert_eq!(ensemble.mode(0), None);
        ensemble.restart(0).unwrap();
        ensemble.wait_ready().unwrap();
        assert_eq!(ensemble.leader(), Some(0));
        let folder = ensemble.folder().to_owned();
        assert!(folder.exists());
        drop(ensemble);
        assert!(!folder.exists());
    }

    #[test]
    fn three_servers_have_one_leader_and_survive_it() {
        let Some(home) = Home::for_tests() else {
            return;
        };
        let mut ensemble = Ensemble::start(&home, &ServerOptions::ensemble()).unwrap();
        let first = ensemble.leader().expect("a leader of three");
        ensemble.kill(first);
        ensemble.wait_ready().unwrap();
        let start = Instant::now();
        while ensemble.leader().is_none() {
            assert!(start.elapsed() < READY, "no second leader");
        }
        assert_ne!(ensemble.leader(), Some(first));
    }

    /// Not a test: a process for the one below.
    #[test]
    #[ignore = "waits for ever"]
    fn starts_a_server_and_waits() {
        let home = Home::find().unwrap();
        let ensemble = Ensemble::start(&home, &ServerOptions::standalone()).unwrap();
        println!("folder {}", ensemble.folder().display());
        println!("address {}", ensemble.addresses()[0]);
        let _ = io::stdin().read(&mut [0]);
    }

    #[test]
    fn servers_end_with_a_process_that_is_killed() {
        let Some(_) = Home::for_tests() else { return };
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server::tests::starts_a_server_and_waits"])
            .args(["--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
        let mut said = |word: &str| {
            let found = lines.find_map(|line| Some(line.unwrap().strip_prefix(word)?.to_owned()));
            found.unwrap_or_else(|| panic!("no line with {word}"))
        };
        let (folder, address) = (PathBuf::from(said("folder ")), said("address "));
        assert!(TcpStream::connect(&address).is_ok());
        owner.kill().unwrap();
        owner.wait().unwrap();
        let start = Instant::now();
        while folder.exists() || TcpStream::connect(&address).is_ok() {
            assert!(
                start.elapsed() < READY,
                "{} is still there",
                folder.display()
            );
            std::thread::yield_now();
        }
    }
}
