//! The transports that can be measured, and where their programs are. A new one is a row of [`KINDS`].

use super::options::{Options, Path, Shape, Side};
use crate::Missing;
use anyhow::{Context as _, bail};
use std::path::PathBuf;
use std::process::Command;

/// One transport.
#[derive(Debug)]
pub(crate) struct Kind {
    /// In reports.
    pub(crate) name: &'static str,
    /// Sender and receiver.
    program: Program,
    /// Messages that it can carry.
    bytes_max: usize,
    /// Whether it can have several peers.
    has_many: bool,
    /// Whether it goes over a network; if not, it is measured beside loopback only.
    has_network: bool,
    /// Whether the sender can bind, too.
    sender_binds: bool,
    /// Whether it is protected by TLS, with certificates that are made for the run.
    is_protected: bool,
    /// Whether it sends from and receives into memory that has left the caches, filled with what is checked on arrival.
    pub(crate) is_checked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    /// This program, with these words.
    Own(&'static [&'static str]),
    /// A program that speaks the language of `tools/peers`, with these words.
    Peer(&'static str, &'static [&'static str]),
    /// `iperf3`, which does not.
    Iperf3,
}

/// The largest message that is measured.
const ANY: usize = usize::MAX;

const fn peer(name: &'static str, program: &'static str) -> Kind {
    Kind {
        name,
        program: Program::Peer(program, &[]),
        bytes_max: ANY,
        has_many: true,
        has_network: true,
        sender_binds: true,
        is_protected: false,
        is_checked: true,
    }
}

/// libfabric over one of its providers. The receiver of reliable datagrams does not know who sends.
const fn libfabric(name: &'static str, provider: &'static [&'static str]) -> Kind {
    Kind {
        program: Program::Peer("libfabric_peer", provider),
        has_many: false,
        sender_binds: false,
        ..peer(name, "libfabric_peer")
    }
}

/// All of them. The first is what the others are held against.
pub(crate) const KINDS: [Kind; 15] = [
    Kind {
        program: Program::Peer("plain_tcp", &["peer"]),
        ..peer("plain-tcp", "plain_tcp")
    },
    Kind {
        program: Program::Own(&["bench", "transport-peer"]),
        ..peer("sheaf", "")
    },
    Kind {
        program: Program::Own(&["bench", "transport-peer", "--shared-memory"]),
        ..peer("sheaf-shm", "")
    },
    Kind {
        program: Program::Own(&["bench", "transport-peer"]),
        is_protected: true,
        ..peer("sheaf-tls", "")
    },
    Kind {
        program: Program::Own(&["bench", "transport-peer", "--unix"]),
        has_network: false,
        ..peer("sheaf-unix", "")
    },
    peer("libzmq", "libzmq_peer"),
    peer("nanomsg", "nanomsg_peer"),
    peer("nng", "nng_peer"),
    peer("asio", "asio_peer"),
    peer("asio-uring", "asio_uring_peer"),
    Kind {
        // It refuses messages of more than 64 MiB.
        bytes_max: 64 << 20,
        ..peer("rzmq", "rzmq_peer")
    },
    peer("zeromq", "zeromq_peer"),
    libfabric("libfabric-tcp", &["tcp"]),
    Kind {
        has_network: false,
        ..libfabric("libfabric-shm", &["shm"])
    },
    Kind {
        name: "iperf3",
        program: Program::Iperf3,
        // It refuses blocks of more than 1 MiB.
        bytes_max: 1 << 20,
        has_many: false,
        has_network: true,
        sender_binds: true,
        is_protected: false,
        is_checked: false,
    },
];

/// A transport that is there.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Which.
    pub(crate) kind: &'static Kind,
    /// Program.
    pub(crate) program: PathBuf,
    /// Certificates, for one that is protected.
    certificates: Option<PathBuf>,
}

impl Found {
    /// Program, without what it is to do.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Program::Own(words) | Program::Peer(_, words) = self.kind.program {
            command.args(words);
        }
        if let Some(folder) = &self.certificates {
            command.arg("--certificates").arg(folder);
        }
        command
    }

    /// Whether it is `iperf3`, which has arguments of its own.
    pub(crate) fn is_iperf3(&self) -> bool {
        self.kind.program == Program::Iperf3
    }

    /// Whether it can carry messages of `bytes` in `shape` over `path` when `binds` binds; if not, why.
    pub(crate) fn refuses(
        &self,
        path: Path,
        shape: Shape,
        binds: Side,
        bytes: usize,
    ) -> Option<String> {
        if binds == Side::Sender && !self.kind.sender_binds {
            return Some("its receiver binds".to_owned());
        }
        if path != Path::Loopback && !self.kind.has_network {
            return Some("it is for processes of one machine".to_owned());
        }
        if bytes > self.kind.bytes_max {
            return Some(format!(
                "it takes no more than {} bytes",
                self.kind.bytes_max
            ));
        }
        let is_one = shape.senders == 1 && shape.receivers == 1;
        (!is_one && !self.kind.has_many).then(|| "it has one sender and one receiver".to_owned())
    }
}

/// Returns the names of all transports that can be measured.
#[must_use]
pub fn names() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

/// The transports that were asked for, `plain-tcp` first; and those that are not there, with the reason.
///
/// # Errors
///
/// If there is no `plain_tcp`, or one that was asked for by name is not there.
pub(crate) fn find(options: &Options) -> anyhow::Result<(Vec<Found>, Vec<String>)> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    let is_wanted = |kind: &Kind| {
        options.transports.is_empty() || options.transports.iter().any(|name| name == kind.name)
    };
    for (index, kind) in KINDS.iter().enumerate() {
        if index > 0 && !is_wanted(kind) {
            continue;
        }
        match found_one(kind, options) {
            Ok(one) => found.push(one),
            Err(error) if index > 0 && options.transports.is_empty() => {
                missing.push(format!("{}: {error:#}", kind.name));
            }
            Err(error) => return Err(Missing(format!("{}: {error:#}", kind.name)).into()),
        }
    }
    Ok((found, missing))
}

/// Returns the transport of this name, for a request from another host.
///
/// # Errors
///
/// If there is none.
pub(crate) fn named(name: &str, options: &Options) -> anyhow::Result<Found> {
    let kind = KINDS.iter().find(|kind| kind.name == name);
    let kind = kind.with_context(|| format!("there is no transport {name:?}"))?;
    found_one(kind, options)
}

fn found_one(kind: &'static Kind, options: &Options) -> anyhow::Result<Found> {
    let certificates = options.certificates.clone().filter(|_| kind.is_protected);
    if kind.is_protected && certificates.is_none() {
        bail!("it has no certificates: they are made where both sides run");
    }
    Ok(Found {
        kind,
        program: find_one(kind, options)?,
        certificates,
    })
}

fn find_one(kind: &Kind, options: &Options) -> anyhow::Result<PathBuf> {
    let own = sheaf_node::program::path().context("cannot find this program")?;
    let name = match kind.program {
        Program::Own(_) => return Ok(own),
        Program::Peer(name, _) => name,
        Program::Iperf3 => {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let found = std::env::split_paths(&path).map(|folder| folder.join("iperf3"));
            let found = found.into_iter().find(|file| file.is_file());
            return found.context("no `iperf3` in the path (Debian package iperf3)");
        }
    };
    let beside = own.parent().map(std::path::Path::to_owned);
    let folders = match &options.peers_dir {
        Some(folder) => [Some(folder.clone()), beside],
        None => [beside, Some(PathBuf::from("tools/peers/bin"))],
    };
    let mut files = folders.iter().flatten().map(|folder| folder.join(name));
    if let Some(file) = files.find(|file| file.is_file()) {
        return Ok(file);
    }
    let places: Vec<String> = folders
        .iter()
        .flatten()
        .map(|folder| folder.display().to_string())
        .collect();
    bail!(
        "no `{name}` in {}; `make -C tools/peers` makes it where its library is",
        places.join(" or ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let mut names = names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KINDS.len());
        assert_eq!(KINDS[0].name, "plain-tcp");
    }

    #[test]
    fn what_a_transport_cannot_do_is_told() {
        let of = |name| {
            let kind = KINDS.iter().find(|kind| kind.name == name).unwrap();
            Found {
                kind,
                program: PathBuf::new(),
                certificates: None,
            }
        };
        let shape = |text: &str| text.parse::<Shape>().unwrap();
        let refused =
            |name, path, text, bytes| of(name).refuses(path, shape(text), Side::Receiver, bytes);
        let (loopback, veth) = (Path::Loopback, Path::Veth);
        assert_eq!(refused("sheaf", veth, "240-1", 100_000_000), None);
        assert!(refused("rzmq", loopback, "1-1", 100_000_000).is_some());
        assert!(refused("iperf3", loopback, "2-1", 1000).is_some());
        assert_eq!(refused("sheaf-unix", loopback, "2-3", 1000), None);
        assert!(refused("sheaf-unix", veth, "1-1", 1000).is_some());
        assert_eq!(refused("libfabric-tcp", veth, "1-1", 1000), None);
        assert!(refused("libfabric-shm", veth, "1-1", 1000).is_some());
        let bound = of("libfabric-tcp").refuses(loopback, shape("1-1"), Side::Sender, 1000);
        assert_eq!(bound.as_deref(), Some("its receiver binds"));
    }
}
