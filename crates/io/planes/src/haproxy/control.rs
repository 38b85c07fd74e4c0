//! Runtime socket of `HAProxy`.

use crate::error::PlaneError;
use crate::plane::Counted;
use crate::tool::HAPROXY;
use sheaf_serve::Flow;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of one order at most; the process reads an order into a buffer of 64 KiB.
const ORDER_BYTES: usize = 16 << 10;
/// Administrative state (`srv_admin_state`) of a server that gets connections.
pub(super) const READY: u32 = 0;
/// State of a server in maintenance.
pub(super) const MAINTENANCE: u32 = 1;
/// State of a server that is drained.
pub(super) const DRAIN: u32 = 8;

/// Socket of a process.
#[derive(Clone, Debug)]
pub(super) struct Control {
    socket: PathBuf,
}

/// Server as the process has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) address: SocketAddr,
    pub(super) weight: usize,
    pub(super) state: u32,
}

impl Control {
    pub(super) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Sends a command and returns the answer.
    fn ask(&self, command: &str) -> Result<String, PlaneError> {
        let exchange = || {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.write_all(command.as_bytes())?;
            stream.write_all(b"\n")?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        exchange().map_err(|error| PlaneError::File {
            path: self.socket.clone(),
            error,
        })
    }

    /// Sends a command that has nothing to tell if it is carried out.
    pub(super) fn order(&self, command: &str) -> Result<(), PlaneError> {
        let answer = self.ask(command)?;
        match answer.trim() {
            "" | "New server registered." | "Server deleted." => Ok(()),
            // The new address of a server is described.
            text if text.starts_with("IP changed") || text.starts_with("no need to") => Ok(()),
            text => Err(PlaneError::Refused {
                tool: HAPROXY.name,
                text: format!("{}: {text}", command.lines().next().unwrap_or_default()),
            }),
        }
    }

    /// Returns the id of the process.
    pub(super) fn pid(&self) -> Result<u32, PlaneError> {
        let text = self.ask("show info")?;
        let mut lines = text.lines();
        let found = lines.find_map(|line| line.strip_prefix("Pid: ")?.parse().ok());
        found.ok_or_else(|| unknown(&text))
    }

    /// Returns the servers of a service by name.
    pub(super) fn servers(&self, service: &str) -> Result<BTreeMap<String, Row>, PlaneError> {
        let text = self.ask(&format!("show servers state {service}"))?;
        servers(&text).ok_or_else(|| unknown(&text))
    }

    /// Returns connections and bytes to each server of a service.
    pub(super) fn counters(&self, service: &str) -> Result<BTreeMap<String, Counted>, PlaneError> {
        let text = self.ask(&format!("show stat {service} 4 -1"))?;
        counters(&text).ok_or_else(|| unknown(&text))
    }

    /// Returns the connections of clients with their servers.
    pub(super) fn sessions(&self, service: &str) -> Result<BTreeMap<Flow, String>, PlaneError> {
        Ok(sessions(&self.ask("show sess")?, service))
    }

    /// Returns the entries of a map from slots.
    pub(super) fn map(&self, map: &str) -> Result<Vec<(u32, String)>, PlaneError> {
        let text = self.ask(&format!("show map {map}"))?;
        let lines = text.lines().filter(|line| !line.is_empty());
        let entry = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            Some((words.next()?.parse().ok()?, words.next()?.to_owned()))
        };
        let entries: Option<Vec<_>> = lines.map(entry).collect();
        entries.ok_or_else(|| unknown(&text))
    }

    /// Replaces the entries of a map in one step.
    pub(super) fn replace(&self, map: &str, entries: &str) -> Result<(), PlaneError> {
        let text = self.ask(&format!("prepare map {map}"))?;
        let version: u32 = text
            .trim()
            .strip_prefix("New version created: ")
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| unknown(&text))?;
        let mut rest = entries;
        while !rest.is_empty() {
            let bytes = rest.len().min(ORDER_BYTES);
            let cut = rest[..bytes].rfind('\n').map_or(rest.len(), |at| at + 1);
            let (part, behind) = rest.split_at(cut);
            self.order(&format!("add map @{version} {map} <<\n{part}"))?;
            rest = behind;
        }
        self.order(&format!("commit map @{version} {map}"))
    }
}

fn unknown(text: &str) -> PlaneError {
    PlaneError::Output {
        tool: HAPROXY.name,
        text: text.lines().next().unwrap_or("nothing").to_owned(),
    }
}

/// Reads `show servers state`: the columns are those of its second line.
fn servers(text: &str) -> Option<BTreeMap<String, Row>> {
    let mut lines = text.lines().skip(1);
    let columns: Vec<&str> = lines.next()?.strip_prefix("# ")?.split(' ').collect();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let field = |name: &str| {
            let at = columns.iter().position(|column| *column == name)?;
            fields.get(at).copied()
        };
        let address: IpAddr = field("srv_addr")?.parse().ok()?;
        let row = Row {
            address: SocketAddr::new(address, field("srv_port")?.parse().ok()?),
            weight: field("srv_uweight")?.parse().ok()?,
            state: field("srv_admin_state")?.parse().ok()?,
        };
        Some((field("srv_name")?.to_owned(), row))
    };
    lines.filter(|line| !line.is_empty()).map(row).collect()
}

/// Reads `show stat` of servers: comma-separated, the columns are those of its first line.
fn counters(text: &str) -> Option<BTreeMap<String, Counted>> {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next()?.strip_prefix("# ")?.split(',').collect();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let field = |name: &str| {
            let at = columns.iter().position(|column| *column == name)?;
            fields.get(at).copied()
        };
        let counted = Counted {
            packets: field("stot")?.parse().ok()?,
            bytes: field("bin")?.parse().ok()?,
        };
        Some((field("svname")?.to_owned(), counted))
    };
    lines.filter(|line| !line.is_empty()).map(row).collect()
}

/// Reads `show sess`: connections to the frontend of a service that have a server.
fn sessions(text: &str, service: &str) -> BTreeMap<Flow, String> {
    let session = |line: &str| {
        let field = |name: &str| {
            let mut words = line.split(' ');
            words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
        };
        let server = field("srv").filter(|server| *server != "<none>")?;
        let (address, port) = field("src")?.rsplit_once(':')?;
        let flow = Flow {
            address: address.parse().ok()?,
            port: port.parse().ok()?,
        };
        (field("fe")? == service).then(|| (flow.canonical(), server.to_owned()))
    };
    text.lines().filter_map(session).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_by_the_names_of_columns() {
        let text = "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_port\n\
                    3 files 1 s1 fd00::1 2 8 100 9001\n\n";
        let expected = Row {
            address: "[fd00::1]:9001".parse().expect("an address"),
            weight: 100,
            state: DRAIN,
        };
        assert_eq!(servers(text), Some([("s1".to_owned(), expected)].into()));
        assert_eq!(servers("Can't find backend.\n"), None);
    }

    #[test]
    fn sessions_of_other_services_are_left_out() {
        let text = "0x1: proto=tcpv4 src=127.0.0.1:53728 fe=files be=files srv=s2 ts=00\n\
                    0x2: proto=tcpv6 src=::1:45524 fe=files be=files srv=s1 ts=00\n\
                    0x3: proto=tcpv4 src=127.0.0.1:1 fe=other be=other srv=s1 ts=00\n\
                    0x4: proto=tcpv4 src=127.0.0.1:2 fe=files be=files srv=<none> ts=00\n\
                    0x5: proto=unix_stream src=unix:1 fe=GLOBAL be=<NONE> srv=<none> ts=00\n";
        let found = sessions(text, "files");
        let names: Vec<(String, &str)> = found
            .iter()
            .map(|(flow, server)| (format!("{} {}", flow.address, flow.port), server.as_str()))
            .collect();
        assert_eq!(
            names,
            [
                ("127.0.0.1 53728".to_owned(), "s2"),
                ("::1 45524".to_owned(), "s1")
            ]
        );
    }

    #[test]
    fn counters_are_connections_and_bytes_from_clients() {
        let text = "# pxname,svname,stot,bin,bout,\nfiles,s1,2,100,7,\n\n";
        let expected = Counted {
            packets: 2,
            bytes: 100,
        };
        assert_eq!(counters(text), Some([("s1".to_owned(), expected)].into()));
    }
}
