//! Places where servers, director and clients of the demo stand: namespaces, or this machine.

use anyhow::{Context as _, anyhow};
use sheaf_testbed::site::{Plan, Site};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;

/// Port of the service in namespaces.
const PORT: u16 = 8080;

/// Server of the demo.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: String,
    /// Own addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// Address that its program listens on.
    pub(super) listen: SocketAddr,
    /// Address of its agent.
    pub(super) agent: SocketAddr,
}

/// Place in which a process runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seat {
    Server(usize),
    Director,
    Client,
}

/// All places.
#[derive(Debug)]
pub(super) struct Ground {
    site: Option<Site>,
    pub(super) plane: &'static str,
    /// Virtual addresses with the port.
    pub(super) service: Vec<SocketAddr>,
    /// Address of the director's HTTP, in its place.
    pub(super) director: SocketAddr,
    pub(super) servers: Vec<Server>,
}

impl Ground {
    /// Makes a namespace for each server, the director and the clients: packets go past the director on their way back.
    pub(super) fn site(servers: usize) -> anyhow::Result<Self> {
        let plan = Plan {
            servers,
            ..Plan::default()
        };
        let site = Site::build(&plan)?;
        let any = IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED);
        let servers = site.servers().iter().map(|place| Server {
            name: place.name.clone(),
            addresses: vec![place.v4.into(), place.v6.into()],
            listen: SocketAddr::new(any, PORT),
            agent: SocketAddr::new(place.v4.into(), 7401),
        });
        Ok(Self {
            plane: "nft",
            service: vec![
                SocketAddr::new(site.virtual_v4().into(), PORT),
                SocketAddr::new(site.virtual_v6().into(), PORT),
            ],
            director: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 7400),
            servers: servers.collect(),
            site: Some(site),
        })
    }

    /// Takes addresses of this machine: a director that carries all bytes itself, and needs no root.
    pub(super) fn here(servers: usize) -> anyhow::Result<Self> {
        let ports = free_ports(3).context("cannot find free ports")?;
        let server = |index: usize| {
            let host = u8::try_from(11 + index).unwrap_or(u8::MAX);
            let address = IpAddr::V4(Ipv4Addr::new(127, 0, 0, host));
            Server {
                name: format!("s{}", index + 1),
                addresses: vec![address],
                listen: SocketAddr::new(address, ports[0]),
                agent: SocketAddr::new(address, ports[1]),
            }
        };
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Ok(Self {
            site: None,
            plane: "userspace",
            service: vec![SocketAddr::new(local, ports[0])],
            director: SocketAddr::new(local, ports[2]),
            servers: (0..servers).map(server).collect(),
        })
    }

    /// Returns a command of `program` at a place.
    pub(super) fn command(&self, seat: Seat, program: &Path) -> Command {
        match &self.site {
            Some(site) => site.command(place(site, seat), program),
            None => Command::new(program),
        }
    }

    /// Returns the words before a command by which a user runs something at a place.
    pub(super) fn prefix(&self, seat: Seat) -> String {
        match &self.site {
            Some(site) => format!("ip netns exec {} ", place(site, seat).namespace),
            None => String::new(),
        }
    }

    /// Runs `work` in a thread that stands at a place, and returns its result.
    pub(super) fn inside<T: Send + 'static>(
        &self,
        seat: Seat,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> anyhow::Result<T> {
        let Some(site) = &self.site else {
            return Ok(work());
        };
        let thread = site.inside(place(site, seat), work)?;
        let result = thread
            .join()
            .map_err(|_| anyhow!("a thread has panicked"))?;
        Ok(result?)
    }

    /// Returns the file of the director.
    pub(super) fn gateway_toml(&self) -> String {
        let addresses: Vec<IpAddr> = self.service.iter().map(SocketAddr::ip).collect();
        let mut text = format!(
            "[director]\nname = \"demo\"\nplane = {:?}\ninterface = \"eth0\"\nlisten = \"{}\"\non_stop = \"undo\"\n\n\
             [[service]]\nname = \"files\"\naddresses = {}\nport = {}\n",
            self.plane,
            self.director,
            list(&addresses),
            self.service[0].port(),
        );
        for server in &self.servers {
            text += &format!(
                "\n[[service.server]]\nname = {:?}\naddresses = {}\nagent = \"{}\"\n",
                server.name,
                list(&server.addresses),
                server.agent
            );
        }
        text
    }
}

fn list(addresses: &[IpAddr]) -> String {
    let quoted: Vec<String> = addresses.iter().map(|one| format!("\"{one}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

fn place(site: &Site, seat: Seat) -> &sheaf_testbed::site::Place {
    match seat {
        Seat::Server(index) => site.server(index),
        Seat::Director => site.director(0),
        Seat::Client => site.client(0),
    }
}

/// Returns ports of loopback that were free a moment ago.
fn free_ports(count: usize) -> std::io::Result<Vec<u16>> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All at once, so that they differ.
    let listeners: Vec<TcpListener> = (0..count).map(bind).collect::<Result<_, _>>()?;
    let port = |listener: &TcpListener| listener.local_addr().map(|address| address.port());
    listeners.iter().map(port).collect()
}
