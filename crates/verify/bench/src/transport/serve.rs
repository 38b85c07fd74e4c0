//! Receivers at another host: who asks with the right token gets one for each connection.
//!
//! A request is a line of JSON; after it the connection is the input and the output of the process.

use super::kinds;
use super::options::Options;
use crate::cpus::Cpus;
use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A request is shorter than this.
const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// How long a client may take to ask.
const PATIENCE: Duration = Duration::from_secs(5);

/// Arguments of a receiver.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Output of `--serve`.
    pub(crate) token: String,
    /// A name of [`kinds::KINDS`].
    pub(crate) transport: String,
    /// The words of the command line of a peer.
    pub(crate) words: Vec<String>,
    /// Which of the receivers this is, if it is to stay on a CPU.
    pub(crate) pin: Option<usize>,
}

/// Starts receivers for requests that bear its token.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
}

impl Server {
    /// Listens at `address`, with a new token.
    ///
    /// # Errors
    ///
    /// What the operating system gives.
    pub fn listen(address: SocketAddr) -> anyhow::Result<Self> {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
        Ok(Self {
            address: listener.local_addr()?,
            token: token()?,
            listener,
        })
    }

    /// Returns where the server listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the token of requests that are answered.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Answers requests for as long as the process lives; `tell` takes a line for each one that is refused.
    ///
    /// # Errors
    ///
    /// If no connection can be accepted any more.
    pub fn serve(&self, options: &Options, tell: fn(&str)) -> anyhow::Result<()> {
        for stream in self.listener.incoming() {
            let (stream, token, options) = (stream?, self.token.clone(), options.clone());
            std::thread::spawn(move || {
                if let Err(error) = answer(&options, stream, &token) {
                    tell(&format!("refused: {error:#}"));
                }
            });
        }
        Ok(())
    }
}

fn answer(options: &Options, stream: TcpStream, token: &str) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    let reader = (&stream).take(REQUEST_BYTES_MAX);
    BufReader::new(reader)
        .read_line(&mut line)
        .context("no client connects")?;
    stream.set_read_timeout(None)?;
    let request = parse(&line, token)?;
    let found = kinds::named(&request.transport, options)?;
    let mut command = found.command();
    command.args(&request.words);
    let output = stream.try_clone()?;
    command
        .stdin(Stdio::from(OwnedFd::from(stream)))
        .stdout(Stdio::from(OwnedFd::from(output)));
    let cpus = Cpus::allowed(request.pin.is_some())?;
    let number = u16::try_from(request.pin.unwrap_or(0)).unwrap_or(u16::MAX);
    let node = sheaf_protocol::EpnId(number).into();
    let mut started: Option<Child> = None;
    cpus.start_on(node, || -> std::io::Result<()> {
        started = Some(command.spawn()?);
        Ok(())
    })?;
    // This side of the connection is the process's now.
    drop(command);
    if let Some(mut child) = started {
        child.wait()?;
    }
    Ok(())
}

fn parse(line: &str, token: &str) -> anyhow::Result<Request> {
    let request: Request = serde_json::from_str(line).context("not a request")?;
    ensure!(request.token == token, "another token");
    ensure!(
        request.words.first().is_some_and(|word| word == "receive"),
        "a request for something other than a receiver"
    );
    Ok(request)
}

/// Asks the `--serve` at `address`; the connection is then the input and output of the process.
///
/// # Errors
///
/// If no peer is there.
pub(crate) fn ask(address: SocketAddr, request: &Request) -> anyhow::Result<TcpStream> {
    let connect = TcpStream::connect_timeout(&address, PATIENCE);
    let mut stream = connect.with_context(|| format!("no server at {address}"))?;
    stream.set_nodelay(true)?;
    stream.write_all(format!("{}\n", serde_json::to_string(request)?).as_bytes())?;
    Ok(stream)
}

/// The address of this host as `other` sees it.
///
/// # Errors
///
/// If there is no route.
pub(crate) fn own_ip(other: SocketAddr) -> anyhow::Result<IpAddr> {
    let any: SocketAddr = if other.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    // Sends nothing; it only chooses a route.
    socket.connect(other)?;
    Ok(socket.local_addr()?.ip())
}

/// A `sheaf bench transport --serve` at another host, started by ssh; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Remote {
    child: Child,
    /// Where it serves.
    pub(crate) address: SocketAddr,
    /// For whom.
    pub(crate) token: String,
}

impl Remote {
    /// Starts one at `host`, in the words of ssh.
    ///
    /// # Errors
    ///
    /// If ssh fails, or `host` has no address or no `sheaf`.
    pub(crate) fn start(host: &str) -> anyhow::Result<Self> {
        ensure!(!host.starts_with('-'), "{host:?} is no host");
        let name = host.rsplit('@').next().unwrap_or(host);
        let found = sheaf_transport::tcp::resolve(&format!("{name}:0"));
        let ip = found.ok().and_then(|found| found.ip());
        let ip = ip.with_context(|| format!("{name} has no address"))?;
        let serve = SocketAddr::new(ip, 0).to_string();
        let mut command = Command::new("ssh");
        // With a terminal the other side ends when this one does.
        command.args([
            "-tt",
            host,
            "sheaf",
            "bench",
            "transport",
            "--serve",
            &serve,
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start `ssh`")?;
        let output = child.stdout.take().context("ssh has no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["--connect", address, "--token", token] = words.as_slice() else {
            let _ = child.kill();
            let _ = child.wait();
            anyhow::bail!("{host} says {:?}", line.trim());
        };
        Ok(Self {
            address: address.parse()?,
            token: (*token).to_owned(),
            child,
        })
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!("{:016x}", u64::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_receivers_are_started_and_only_for_who_has_the_token() {
        let request = |token: &str, word: &str| Request {
            token: token.to_owned(),
            transport: "sheaf".to_owned(),
            words: vec![word.to_owned()],
            pin: None,
        };
        let refused = |request: &Request| {
            let line = serde_json::to_string(request).unwrap();
            parse(&line, "abc").err().map(|error| error.to_string())
        };
        assert_eq!(refused(&request("abc", "receive")), None);
        assert_eq!(
            refused(&request("abd", "receive")).unwrap(),
            "another token"
        );
        assert!(
            refused(&request("abc", "send"))
                .unwrap()
                .contains("other than a receiver")
        );
        assert!(parse("GET / HTTP/1.1", "abc").is_err());
    }
}
