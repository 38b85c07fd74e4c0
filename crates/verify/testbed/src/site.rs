//! A site of storage: servers behind a virtual address, directors and client hosts, each a namespace on one switch.
//!
//! Every server has the virtual addresses on `lo` and does not answer for them, as direct return wants it; a director
//! has them on its card. Addresses follow from the names: server `s1` is 10.80.0.11 and fd00:80::11, director `d1`
//! 10.80.0.2, client host `c1` 10.80.1.1. A site is gone with its processes when it is dropped, also when this process
//! is killed.

mod plan;

use crate::IoError;
use crate::clock::{self, Interrupted};
use crate::machine::{self, Host};
use crate::net::{self, Link};
use crate::tool::{self, Missing, ToolError};
use plan::{CLIENTS_MAX, DIRECTORS_MAX, Layout, SERVERS_MAX, VIRTUAL_V4, VIRTUAL_V6, settings};
pub use plan::{Mac, Place};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use thiserror::Error;

/// Reasons why there is no site. Nothing is left of it.
#[derive(Debug, Error)]
pub enum SiteError {
    /// Something that networks need.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// A file or a process.
    #[error(transparent)]
    Io(#[from] IoError),
    /// `ip` or `tc` did not do its work.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A plan with more places of a kind than there are addresses.
    #[error("found {found} {kind}, expected at most {most}")]
    Count {
        /// Kind of places.
        kind: &'static str,
        /// Number in the plan.
        found: usize,
        /// Most of them.
        most: usize,
    },
}

/// Places of a site and what joins them.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Servers `s1`, `s2`, … .
    pub servers: usize,
    /// Directors `d1`, `d2`, … .
    pub directors: usize,
    /// Client hosts `c1`, `c2`, … .
    pub clients: usize,
    /// Index of the director that has the virtual addresses on its card; `None` leaves that to the test, such as to
    /// keepalived.
    pub virtual_at: Option<usize>,
    /// Cable of each server, both ways; `None`: as fast as the machine.
    pub server_link: Option<Link>,
    /// Cable of each client host, both ways; `None`: as fast as the machine.
    pub client_link: Option<Link>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            servers: 6,
            directors: 1,
            clients: 1,
            virtual_at: Some(0),
            server_link: None,
            client_link: None,
        }
    }
}

impl Plan {
    fn check(&self) -> Result<(), SiteError> {
        for (kind, found, most) in [
            ("servers", self.servers, SERVERS_MAX),
            ("directors", self.directors, DIRECTORS_MAX),
            ("client hosts", self.clients, CLIENTS_MAX),
        ] {
            if found > most {
                return Err(SiteError::Count { kind, found, most });
            }
        }
        Ok(())
    }
}

/// A site that stands; gone with all processes in it when dropped.
#[derive(Debug)]
pub struct Site {
    layout: Layout,
    guard: Option<Child>,
}

impl Site {
    /// Builds the site of `plan`. What dead processes left of theirs is removed first.
    ///
    /// # Errors
    ///
    /// [`SiteError::Missing`] without root or a tool, and what `ip` and `tc` say. Nothing is left of it then.
    pub fn build(plan: &Plan) -> Result<Self, SiteError> {
        plan.check()?;
        net::needs()?;
        for name in machine::clean() {
            tracing::info!(name, "Removed what an earlier experiment left");
        }
        let layout = Layout::of(plan, &crate::names::unique());
        let guard = net::guard(&layout.prefix)?;
        // Dropped if it fails: what is there of it is removed again.
        let site = Self {
            layout,
            guard: Some(guard),
        };
        let lines = site.layout.namespace_lines();
        tool::run_with_input("ip", ["-batch", "-"], &lines)?;
        for place in site.layout.places() {
            // Before there are cards: each begins with the settings of its namespace.
            set(&place.namespace, settings(place.kind))?;
        }
        for (tool, inside, lines) in site.layout.steps(plan) {
            clock::check_quit()?;
            let mut words = Vec::new();
            if let Some(namespace) = &inside {
                words.extend(["-n", namespace.as_str()]);
            }
            words.extend(["-batch", "-"]);
            tool::run_with_input(tool, words, &lines)?;
        }
        Ok(site)
    }

    /// Returns the server `index`, from 0 on: `s1` is server 0.
    ///
    /// # Panics
    ///
    /// Panics if the plan has no such server.
    #[must_use]
    pub fn server(&self, index: usize) -> &Place {
        &self.layout.servers[index]
    }

    /// Servers, in order.
    #[must_use]
    pub fn servers(&self) -> &[Place] {
        &self.layout.servers
    }

    /// Returns the director `index`, from 0 on.
    ///
    /// # Panics
    ///
    /// Panics if the plan has no such director.
    #[must_use]
    pub fn director(&self, index: usize) -> &Place {
        &self.layout.directors[index]
    }

    /// Returns the client host `index`, from 0 on.
    ///
    /// # Panics
    ///
    /// Panics if the plan has no such host.
    #[must_use]
    pub fn client(&self, index: usize) -> &Place {
        &self.layout.clients[index]
    }

    /// Client hosts, in order.
    #[must_use]
    pub fn clients(&self) -> &[Place] {
        &self.layout.clients
    }

    /// Virtual address of the servers, IPv4.
    #[must_use]
    pub fn virtual_v4(&self) -> Ipv4Addr {
        VIRTUAL_V4
    }

    /// Virtual address of the servers, IPv6.
    #[must_use]
    pub fn virtual_v6(&self) -> Ipv6Addr {
        VIRTUAL_V6
    }

    /// Returns a command that runs `program` at `place`, without input. The process has the id of the command's child,
    /// and is killed with the site at the latest.
    #[must_use]
    pub fn command(&self, place: &Place, program: impl AsRef<Path>) -> Command {
        let mut command = tool::command("ip");
        command.args(["netns", "exec", &place.namespace]);
        command.arg(program.as_ref());
        command
    }

    /// Runs `work` in a thread of its own that stands at `place`: sockets that it makes are of that place.
    ///
    /// # Errors
    ///
    /// As [`net::inside`].
    pub fn inside<T: Send + 'static>(
        &self,
        place: &Place,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, IoError>>, IoError> {
        net::inside(&place.namespace, work)
    }

    /// Returns `place` as a host that can be disturbed: its cable, its rules, its connections.
    #[must_use]
    pub fn host(&self, place: &Place) -> Host {
        Host::at(&place.namespace, place.v4, &self.layout.switch, &place.name)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for name in self.layout.namespaces() {
            kill_inside(name);
        }
        if let Err(error) = net::remove(&self.layout.prefix) {
            tracing::warn!(%error, "Cannot remove a site");
        }
        if let Some(mut guard) = self.guard.take() {
            // It ends when its input does, and finds nothing to do.
            drop(guard.stdin.take());
            let _ = guard.wait();
        }
    }
}

/// Writes `settings` in `namespace`.
fn set(namespace: &str, settings: Vec<(&'static str, &'static str)>) -> Result<(), IoError> {
    let write = move || {
        settings.into_iter().try_for_each(|(name, value)| {
            let path = Path::new("/proc/sys/net").join(name);
            fs::write(&path, value).map_err(IoError::of(format!("write {}", path.display())))
        })
    };
    let thread = net::inside(namespace, write)?;
    thread.join().expect("writing files does not panic")?
}

/// Kills all processes in `namespace`.
fn kill_inside(namespace: &str) {
    // Of a namespace that is not there none.
    let pids = tool::run("ip", ["netns", "pids", namespace]).unwrap_or_default();
    let pids = pids.lines().filter_map(|line| line.trim().parse().ok());
    for pid in pids.filter_map(Pid::from_raw) {
        // An error means that it has ended.
        let _ = kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
    use std::process::Stdio;

    /// Returns whether sites can be made here; reports it if not, and fails where skipping is not allowed.
    fn can_run(test: &str) -> bool {
        match net::needs() {
            Ok(()) => true,
            Err(why) => {
                let is_ci = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
                assert!(!is_ci, "{test} must run in CI: {why}");
                eprintln!("{test} skipped: {why}");
                false
            }
        }
    }

    /// Sends a word from `c1` to `address` and returns the peer's address as the server `s1` sees it.
    fn talk(site: &Site, address: IpAddr) -> IpAddr {
        let (sender, bound) = std::sync::mpsc::sync_channel(1);
        let serve = move || {
            let listener = TcpListener::bind(SocketAddr::new(address, 0)).unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            let (mut stream, peer) = listener.accept().unwrap();
            let mut word = String::new();
            stream.read_to_string(&mut word).unwrap();
            assert_eq!(word, "word");
            peer.ip()
        };
        let server = site.inside(site.server(0), serve).unwrap();
        let address = bound.recv().unwrap();
        let ask = move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"word").unwrap();
        };
        let client = site.inside(site.client(0), ask).unwrap();
        client.join().unwrap().unwrap();
        server.join().unwrap().unwrap()
    }

    #[test]
    fn a_site_is_gone_with_its_processes_when_it_is_dropped() {
        if !can_run("a_site_is_gone_with_its_processes_when_it_is_dropped") {
            return;
        }
        let plan = Plan {
            servers: 2,
            directors: 2,
            ..Plan::default()
        };
        let site = Site::build(&plan).unwrap();
        assert_eq!(talk(&site, site.server(0).v4.into()), site.client(0).v4);
        assert_eq!(talk(&site, site.server(0).v6.into()), site.client(0).v6);
        let names: Vec<String> = site.layout.namespaces().map(str::to_owned).collect();
        assert_eq!(names.len(), 2 + 2 + 1 + 1);
        let mut command = site.command(site.server(1), "cat");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It is in the namespace when it answers.
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"?").unwrap();
        let mut answer = [0];
        child
            .stdout
            .take()
            .unwrap()
            .read_exact(&mut answer)
            .unwrap();
        drop(site);
        // The site has killed it: its input is still open.
        assert!(!child.wait().unwrap().success());
        drop(input);
        for name in names {
            assert!(!Path::new("/run/netns").join(&name).exists(), "{name}");
        }
    }

    #[test]
    fn a_director_speaks_to_servers_from_its_own_addresses() {
        if !can_run("a_director_speaks_to_servers_from_its_own_addresses") {
            return;
        }
        let site = Site::build(&Plan::default()).unwrap();
        let director = site.director(0).clone();
        let server = site.server(0);
        for (to, from) in [
            (IpAddr::from(server.v4), IpAddr::from(director.v4)),
            (server.v6.into(), director.v6.into()),
        ] {
            let words = ["-n", &director.namespace, "route", "get", &to.to_string()];
            let text = tool::run("ip", words).unwrap();
            assert!(text.contains(&format!("src {from} ")), "{text}");
        }
    }

    #[test]
    fn the_virtual_address_is_at_the_director_alone() {
        if !can_run("the_virtual_address_is_at_the_director_alone") {
            return;
        }
        let site = Site::build(&Plan::default()).unwrap();
        let address = SocketAddr::new(site.virtual_v4().into(), 9);
        let ask = move || TcpStream::connect(address).map(drop).unwrap_err().kind();
        let client = site.inside(site.client(0), ask).unwrap();
        // The director refuses: nothing listens there. No answer at all would be a timeout.
        let kind = client.join().unwrap().unwrap();
        assert_eq!(kind, std::io::ErrorKind::ConnectionRefused);
        let neighbours = [
            "-n",
            &site.client(0).namespace,
            "neigh",
            "show",
            "10.80.0.100",
        ];
        let text = tool::run("ip", neighbours).unwrap();
        assert!(text.contains(&site.director(0).mac.to_string()), "{text}");
    }

    #[test]
    fn a_plan_with_too_many_places_is_refused_by_name() {
        let plan = Plan {
            servers: 81,
            ..Plan::default()
        };
        let error = Site::build(&plan).unwrap_err().to_string();
        assert_eq!(error, "found 81 servers, expected at most 80");
    }
}
