//! An inventory file: machines, how `ssh` gets there, and what each can be in a farm.

use crate::input::{self, InputError};
use crate::net::Can;
use serde::{Deserialize, Serialize};
use sheaf_node::config::is_address;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where `sshd` usually listens.
const SSH_PORT: u16 = 22;
/// Longest name of an inventory or a host.
const NAME_MAX: usize = 48;
/// Hosts of one inventory: each costs a connection that stays open.
const HOSTS_MAX: usize = 500;
/// Nodes of one host.
const NODES_MAX: u16 = 100;

/// Defaults of all hosts: the `[all]` table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Common {
    /// Login name; by default that of the configuration of `ssh`.
    pub user: Option<String>,
    /// The file of the private key; without it, those that `ssh` knows. Relative to the inventory.
    pub identity: Option<PathBuf>,
    /// The file of host keys; without it, those that `ssh` knows. Relative to the inventory.
    pub known_hosts: Option<PathBuf>,
    /// The folder on the host, absolute or below the home of the user.
    pub folder: String,
    /// Nodes of a farm that one host carries.
    pub nodes: u16,
    /// Where the first node of a host listens; the next ones take the ports that follow.
    pub port: u16,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            user: None,
            identity: None,
            known_hosts: None,
            folder: "sheaf-lab".to_owned(),
            nodes: 1,
            port: 7000,
        }
    }
}

/// One `[[host]]` of the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct HostSpec {
    name: String,
    address: String,
    user: Option<String>,
    identity: Option<PathBuf>,
    known_hosts: Option<PathBuf>,
    folder: Option<String>,
    nodes: Option<u16>,
    port: Option<u16>,
    primary: Option<String>,
    auxiliary: Option<String>,
    can: Option<Vec<Can>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    all: Common,
    #[serde(default)]
    host: Vec<HostSpec>,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name in the inventory.
    pub name: String,
    /// Where `sshd` is: a name or an address.
    pub address: String,
    /// The port of `sshd`.
    pub ssh_port: u16,
    /// Login name.
    pub user: Option<String>,
    /// The file of the private key.
    pub identity: Option<PathBuf>,
    /// The file of host keys.
    pub known_hosts: Option<PathBuf>,
    /// The folder there.
    pub folder: String,
    /// Address in the network of the data.
    pub primary: String,
    /// Address in the network of control, which may be the same.
    pub control: String,
    /// Roles that the node can have.
    pub can: Vec<Can>,
    nodes: u16,
    port: u16,
}

/// Room for one node on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot<'a> {
    /// The host, by its place in the inventory.
    pub host: usize,
    /// Roles that the node can have.
    pub can: &'a [Can],
    /// Where it listens.
    pub port: u16,
}

/// An inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// Name.
    pub name: String,
    /// Machines, in the order of the file.
    pub hosts: Vec<Host>,
}

impl Inventory {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// All of [`InputError`].
    pub fn read(path: &Path) -> Result<Self, InputError> {
        Self::parse(&input::read(path)?, path)
    }

    /// Reads and checks the text of a file; relative paths in it begin where `path` lies.
    ///
    /// # Errors
    ///
    /// All of [`InputError`] but those of reading.
    pub fn parse(text: &str, path: &Path) -> Result<Self, InputError> {
        let name = path.display().to_string();
        let file: File = input::parse(text, &name)?;
        let beside = path.parent().unwrap_or(Path::new("")).to_owned();
        Reader { name, beside }.inventory(file)
    }

    /// Room for nodes: one on each host in the order of the file, then a second one on those that carry more.
    pub fn slots(&self) -> Vec<Slot<'_>> {
        let most = self.hosts.iter().map(|host| host.nodes).max().unwrap_or(0);
        let round = |turn: u16| {
            let hosts = self.hosts.iter().enumerate();
            let carrying = hosts.filter(move |(_, host)| turn < host.nodes);
            carrying.map(move |(index, host)| Slot {
                host: index,
                can: &host.can,
                port: host.port + turn,
            })
        };
        (0..most).flat_map(round).collect()
    }

    /// For people and for results: which hosts these are.
    #[must_use]
    pub fn line(&self) -> String {
        let of_host = |host: &Host| format!("{} {}", host.name, host.primary);
        let hosts: Vec<String> = self.hosts.iter().map(of_host).collect();
        format!("{}: {}", self.name, hosts.join(", "))
    }
}

/// Reader of an inventory file.
struct Reader {
    name: String,
    beside: PathBuf,
}

impl Reader {
    fn value(
        &self,
        key: impl Into<String>,
        found: impl std::fmt::Debug,
        expected: impl Into<String>,
    ) -> InputError {
        InputError::value(
            &self.name,
            key.into(),
            format!("{found:?}"),
            expected.into(),
        )
    }

    fn inventory(&self, file: File) -> Result<Inventory, InputError> {
        self.check_name("name", &file.name)?;
        if file.host.is_empty() || file.host.len() > HOSTS_MAX {
            let expected = format!("1 to {HOSTS_MAX} hosts");
            return Err(self.value("host", file.host.len(), expected));
        }
        let mut names = BTreeSet::new();
        let mut homes = BTreeSet::new();
        let mut hosts = Vec::new();
        for spec in file.host {
            let host = self.host(spec, &file.all)?;
            if !names.insert(host.name.clone()) {
                return Err(self.value("host.name", &host.name, "a name that no other host has"));
            }
            // Two hosts in one folder would take each other's processes for their own.
            let home = (host.address.clone(), host.ssh_port, host.folder.clone());
            if !homes.insert(home) {
                let key = format!("host {}: address", host.name);
                let expected = "an address, or a folder, that no other host has";
                return Err(self.value(key, &host.address, expected));
            }
            hosts.push(host);
        }
        Ok(Inventory {
            name: file.name,
            hosts,
        })
    }

    fn host(&self, spec: HostSpec, all: &Common) -> Result<Host, InputError> {
        self.check_name("host.name", &spec.name)?;
        let key = |key: &str| format!("host {}: {key}", spec.name);
        let (address, ssh_port) = split(&spec.address)
            .ok_or_else(|| self.value(key("address"), &spec.address, "HOST or HOST:PORT"))?;
        let user = spec.user.clone().or_else(|| all.user.clone());
        if let Some(user) = user.as_ref().filter(|user| !is_word(user)) {
            return Err(self.value(key("user"), user, "letters, digits, `.`, `_` and `-`"));
        }
        let folder = spec.folder.clone().unwrap_or_else(|| all.folder.clone());
        if !is_folder(&folder) {
            let expected = "a path of letters, digits, `.`, `_`, `-` and `/` without `..`";
            return Err(self.value(key("folder"), &folder, expected));
        }
        let beside = |file: &Option<PathBuf>, common: &Option<PathBuf>| {
            let file = file.as_ref().or(common.as_ref())?;
            Some(self.beside.join(file))
        };
        let (identity, known_hosts) = (
            beside(&spec.identity, &all.identity),
            beside(&spec.known_hosts, &all.known_hosts),
        );
        for (name, file) in [("identity", &identity), ("known_hosts", &known_hosts)] {
            if let Some(file) = file.as_ref().filter(|file| !file.is_file()) {
                return Err(self.value(key(name), file, "a file that is there"));
            }
        }
        let here = || match address.contains(':') {
            true => format!("[{address}]"),
            false => address.clone(),
        };
        let primary = spec.primary.clone().unwrap_or_else(here);
        let control = spec.auxiliary.clone().unwrap_or_else(|| primary.clone());
        for (name, text) in [("primary", &primary), ("auxiliary", &control)] {
            if !is_address(&format!("{text}:1")) {
                return Err(self.value(key(name), text, "an address without a port"));
            }
        }
        let (nodes, port) = (
            spec.nodes.unwrap_or(all.nodes),
            spec.port.unwrap_or(all.port),
        );
        if !(1..=NODES_MAX).contains(&nodes) {
            return Err(self.value(key("nodes"), nodes, format!("1 to {NODES_MAX}")));
        }
        if port == 0 || port.checked_add(nodes).is_none() {
            let expected = format!("1 to {}", u16::MAX - nodes);
            return Err(self.value(key("port"), port, expected));
        }
        let can = spec
            .can
            .clone()
            .unwrap_or(vec![Can::Icn, Can::Flp, Can::Epn]);
        if can.is_empty() {
            return Err(self.value(key("can"), can, "at least one of icn, flp, epn"));
        }
        Ok(Host {
            name: spec.name,
            address,
            ssh_port,
            user,
            identity,
            known_hosts,
            folder,
            primary,
            control,
            can,
            nodes,
            port,
        })
    }

    fn check_name(&self, key: &str, name: &str) -> Result<(), InputError> {
        if is_word(name) && name.len() <= NAME_MAX {
            return Ok(());
        }
        let expected =
            format!("letters, digits, `.`, `_` and `-`, at most {NAME_MAX}, not `-` at first");
        Err(self.value(key, name, expected))
    }
}

/// HOST or HOST:PORT.
fn split(text: &str) -> Option<(String, u16)> {
    if is_address(text) {
        let (host, port) = text.rsplit_once(':')?;
        return Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?));
    }
    is_address(&format!("{text}:{SSH_PORT}"))
        .then(|| (text.trim_matches(['[', ']']).to_owned(), SSH_PORT))
        .filter(|(host, _)| !host.starts_with('-'))
}

/// Returns whether a text is a plain word for every shell and tool.
fn is_word(text: &str) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_fine)
}

fn is_folder(text: &str) -> bool {
    let parts = text.strip_prefix('/').unwrap_or(text).split('/');
    let is_fine = |part: &str| is_word(part) && part != ".." && part != ".";
    parts.into_iter().all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "
name = 'stand'
[all]
user = 'daq'
[[host]]
name = 'a'
address = '10.0.0.1:2222'
auxiliary = '10.1.0.1'
nodes = 2
[[host]]
name = 'b'
address = 'b.example.org'
folder = '/srv/sheaf'
can = ['epn']
";

    fn parse(text: &str) -> Result<Inventory, String> {
        Inventory::parse(text, Path::new("x/stand.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn hosts_have_what_is_common_unless_they_say_otherwise() {
        let stand = parse(TWO).unwrap();
        let [a, b] = &stand.hosts[..] else {
            panic!("{stand:?}")
        };
        assert_eq!((a.address.as_str(), a.ssh_port), ("10.0.0.1", 2222));
        assert_eq!((b.address.as_str(), b.ssh_port), ("b.example.org", 22));
        assert_eq!(
            (a.primary.as_str(), a.control.as_str()),
            ("10.0.0.1", "10.1.0.1")
        );
        assert_eq!(
            (a.folder.as_str(), b.folder.as_str()),
            ("sheaf-lab", "/srv/sheaf")
        );
        assert_eq!(a.user.as_deref(), Some("daq"));
        assert_eq!(stand.line(), "stand: a 10.0.0.1, b b.example.org");
    }

    #[test]
    fn nodes_are_dealt_to_every_host_before_one_gets_a_second() {
        let stand = parse(TWO).unwrap();
        let slots: Vec<(usize, u16)> = stand.slots().iter().map(|s| (s.host, s.port)).collect();
        assert_eq!(slots, [(0, 7000), (1, 7000), (0, 7001)]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_key() {
        for (from, to, told) in [
            ("'a'", "'a b'", "host.name: found \"a b\", expected letters"),
            (
                "'b'",
                "'a'",
                "host.name: found \"a\", expected a name that no other host has",
            ),
            (
                "10.0.0.1:2222",
                "10.0.0",
                "host a: address: found \"10.0.0\", expected HOST or",
            ),
            (
                "10.0.0.1:2222",
                "-oProxyCommand=x",
                "host a: address: found",
            ),
            ("'daq'", "'-l'", "host a: user: found \"-l\""),
            (
                "/srv/sheaf",
                "/srv/../etc",
                "host b: folder: found \"/srv/../etc\"",
            ),
            ("/srv/sheaf", "$(reboot)", "host b: folder: found"),
            (
                "nodes = 2",
                "nodes = 0",
                "host a: nodes: found 0, expected 1 to 100",
            ),
            (
                "nodes = 2",
                "port = 0",
                "host a: port: found 0, expected 1 to 65534",
            ),
            ("'10.1.0.1'", "'10.1.0.1:7'", "host a: auxiliary: found"),
            ("['epn']", "[]", "host b: can: found []"),
            ("['epn']", "['moon']", "unknown variant `moon`"),
            ("can =", "cna =", "unknown field `cna`"),
            (
                "user = 'daq'",
                "identity = 'no-such-key'",
                "host a: identity: found",
            ),
        ] {
            let told_really = parse(&TWO.replacen(from, to, 1)).unwrap_err();
            assert!(told_really.contains(told), "{to}: {told_really}");
        }
        let empty = parse("name = 'x'").unwrap_err();
        assert!(
            empty.contains("host: found 0, expected 1 to 500 hosts"),
            "{empty}"
        );
    }

    #[test]
    fn two_hosts_may_not_share_a_folder() {
        let text = TWO
            .replace("b.example.org", "10.0.0.1:2222")
            .replace("/srv/sheaf", "sheaf-lab");
        let told = parse(&text).unwrap_err();
        assert!(
            told.contains("host b: address: found \"10.0.0.1\""),
            "{told}"
        );
    }
}
