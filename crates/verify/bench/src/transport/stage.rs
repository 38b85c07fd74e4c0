//! Where the two sides stand: network namespaces of the benchmark's own, with the congestion control asked for.
//!
//! The machine's default may be BBR, which paces even on loopback, and most libraries leave no choice. A namespace
//! may not choose either, unless the whole machine allows it; but a route may (`congctl`, ip-route(8)), and the
//! routes of a namespace are its own. So nothing of this machine is changed, and a namespace ends with the process
//! that holds it.

use super::options::Path;
use anyhow::{Context as _, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};
use sheaf_testbed::namespace::Namespace;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// The first port that is tried.
const FIRST_PORT: u16 = 23_000;

/// Where one side stands.
#[derive(Debug)]
pub(crate) struct Place {
    /// Where it is reached.
    pub(crate) address: IpAddr,
    /// `None`: where this process is.
    namespace: Option<Namespace>,
}

/// Both.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Of the senders.
    pub(crate) sender: Place,
    /// Of the receivers; `None`: with the senders.
    receiver: Option<Place>,
    /// Congestion control of a socket that asked for none.
    pub(crate) congestion: String,
    /// Why it has no namespace of its own.
    pub(crate) doubt: Option<String>,
}

impl Stage {
    /// One for `path`, with `congestion` in force for every socket.
    ///
    /// Without root there is none of its own; then loopback is that of the machine, and the stage says so.
    ///
    /// # Errors
    ///
    /// If `path` needs root, and what `ip` says.
    pub(crate) fn make(path: Path, congestion: &str) -> anyhow::Result<Self> {
        let made = match path {
            Path::Loopback => Self::loopback(congestion),
            Path::Veth => Self::veth(congestion),
            Path::Remote => Ok(Self::of_machine("the network is not the benchmark's own")),
        };
        let mut stage = match made {
            Ok(stage) => stage,
            Err(error) if path == Path::Loopback => {
                Self::of_machine(&format!("no network namespace of its own: {error:#}"))
            }
            Err(error) => return Err(error.context(format!("cannot make a path {path}"))),
        };
        stage.congestion = stage.probe()?;
        Ok(stage)
    }

    fn of_machine(doubt: &str) -> Self {
        Self {
            sender: Place {
                address: Ipv4Addr::LOCALHOST.into(),
                namespace: None,
            },
            receiver: None,
            congestion: String::new(),
            doubt: Some(doubt.to_owned()),
        }
    }

    fn loopback(congestion: &str) -> anyhow::Result<Self> {
        let namespace = Namespace::make()?;
        let route = |to: &str| {
            format!(
                "route replace local {to} dev lo table local proto kernel scope host src 127.0.0.1 \
                 congctl {congestion}\n"
            )
        };
        let lines = [
            "link set lo up\n".to_owned(),
            route("127.0.0.0/8"),
            route("127.0.0.1"),
        ];
        namespace.ip(&lines.concat())?;
        Ok(Self {
            sender: Place {
                address: Ipv4Addr::LOCALHOST.into(),
                namespace: Some(namespace),
            },
            receiver: None,
            congestion: String::new(),
            doubt: None,
        })
    }

    fn veth(congestion: &str) -> anyhow::Result<Self> {
        let (sender, receiver) = (Namespace::make()?, Namespace::make()?);
        let holder = receiver.holder();
        sender.ip(&format!(
            "link add eth0 type veth peer name eth0 netns {holder}\n"
        ))?;
        let places = [(sender, 1_u8), (receiver, 2)].map(|(namespace, last)| {
            let address = Ipv4Addr::new(10, 78, 0, last);
            let lines = format!(
                "link set lo up\naddr add {address}/24 dev eth0\nlink set eth0 up\n\
                 route replace 10.78.0.0/24 dev eth0 proto kernel scope link src {address} congctl {congestion}\n"
            );
            namespace.ip(&lines).map(|()| Place {
                address: address.into(),
                namespace: Some(namespace),
            })
        });
        let [sender, receiver] = places;
        Ok(Self {
            sender: sender?,
            receiver: Some(receiver?),
            congestion: String::new(),
            doubt: None,
        })
    }

    /// Of the receivers.
    pub(crate) fn receiver(&self) -> &Place {
        self.receiver.as_ref().unwrap_or(&self.sender)
    }

    /// Returns the default options of a connection from sender to receiver.
    fn probe(&self) -> anyhow::Result<String> {
        let address = SocketAddr::new(self.receiver().address, 0);
        let listener = self.receiver().run(None, || TcpListener::bind(address))??;
        let address = listener.local_addr()?;
        let stream = self.sender.run(None, || TcpStream::connect(address))??;
        rustix::net::sockopt::tcp_congestion(&stream).context("cannot read TCP_CONGESTION")
    }
}

impl Place {
    /// Runs `work` in a thread that stands here, on one CPU if it is given: what it makes, sockets and processes,
    /// stands here too.
    ///
    /// # Errors
    ///
    /// What the operating system gives.
    pub(crate) fn run<T: Send>(
        &self,
        cpu: Option<usize>,
        work: impl FnOnce() -> T + Send,
    ) -> anyhow::Result<T> {
        let enter = || -> anyhow::Result<T> {
            if let Some(namespace) = &self.namespace {
                namespace.enter()?;
            }
            if let Some(cpu) = cpu {
                let mut one = CpuSet::new();
                one.set(cpu);
                sched_setaffinity(None, &one)
                    .with_context(|| format!("cannot pin to CPU {cpu}"))?;
            }
            Ok(work())
        };
        std::thread::scope(|scope| match scope.spawn(enter).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Returns ports that are free here now.
    ///
    /// # Errors
    ///
    /// If there are not so many.
    pub(crate) fn free_ports(&self, count: usize) -> anyhow::Result<Vec<u16>> {
        let address = self.address;
        let is_free = |port: &u16| TcpListener::bind((address, *port)).is_ok();
        // Below those that the kernel gives to connecting sockets.
        let ports = self.run(None, || {
            (FIRST_PORT..32_000)
                .filter(is_free)
                .take(count)
                .collect::<Vec<u16>>()
        })?;
        ensure!(
            ports.len() == count,
            "{} ports are free, {count} are needed",
            ports.len()
        );
        Ok(ports)
    }
}
