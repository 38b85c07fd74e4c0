//! Connections that the kernel tracks.

use crate::error::PlaneError;
use sheaf_serve::Flow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

const PATH: &str = "/proc/net/nf_conntrack";

/// Returns the connections that go on and that NAT has led to one of `servers`, with the name of their server.
pub(super) fn connections(
    servers: &BTreeMap<SocketAddr, String>,
) -> Result<BTreeMap<Flow, String>, PlaneError> {
    let failed = |error| PlaneError::File {
        path: PathBuf::from(PATH),
        error,
    };
    let mut flows = BTreeMap::new();
    for line in BufReader::new(File::open(PATH).map_err(failed)?).lines() {
        let line = line.map_err(failed)?;
        if let Some((flow, server)) = parse(&line, servers) {
            flows.insert(flow, server.clone());
        }
    }
    Ok(flows)
}

/// Reads a line: the first four fields of addresses are those of the client's packets, the next four of the answers.
fn parse<'a>(line: &str, servers: &'a BTreeMap<SocketAddr, String>) -> Option<(Flow, &'a String)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    if words.get(2) != Some(&"tcp") {
        return None;
    }
    if words
        .iter()
        .any(|word| ["TIME_WAIT", "CLOSE"].contains(word))
    {
        return None;
    }
    let mut values = words.iter().filter_map(|word| {
        let (name, value) = word.split_once('=')?;
        ["src", "dst", "sport", "dport"]
            .contains(&name)
            .then_some(value)
    });
    let mut next = || values.next();
    let (source, target) = (address(next()?)?, address(next()?)?);
    let (source_port, _) = (next()?.parse().ok()?, next()?);
    let (server, _) = (address(next()?)?, next()?);
    let server_port = next()?.parse().ok()?;
    if server == target {
        return None; // Not translated: a connection of another to the server.
    }
    let flow = Flow {
        address: source,
        port: source_port,
    };
    let name = servers.get(&SocketAddr::new(server, server_port))?;
    Some((flow, name))
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_were_led_to_a_server_are_listed() {
        let tail = "[ASSURED] mark=0 zone=0 use=2";
        let line = |state: &str, addresses: &str| {
            format!("ipv4     2 tcp      6 431999 {state} {addresses} {tail}")
        };
        let led = "src=10.80.1.1 dst=10.80.0.100 sport=51000 dport=80 src=10.80.0.11 dst=10.80.0.2 sport=8080 dport=51000";
        let plain = "src=10.80.1.1 dst=10.80.0.11 sport=51000 dport=8080 src=10.80.0.11 dst=10.80.1.1 sport=8080 dport=51000";
        let six = "ipv6     10 tcp      6 299 FIN_WAIT src=fd00:0080:0000:0000:0000:0000:0001:0001 \
                   dst=fd00:0080:0000:0000:0000:0000:0000:0100 sport=5 dport=80 \
                   src=fd00:0080:0000:0000:0000:0000:0000:0011 dst=fd00:0080:0000:0000:0000:0000:0000:0002 \
                   sport=8080 dport=6 [ASSURED]";
        let servers = ["10.80.0.11:8080", "[fd00:80::11]:8080"]
            .map(|text| (text.parse().expect("an address"), "s1".to_owned()))
            .into();
        let found = |line: &str| {
            let (flow, name) = parse(line, &servers)?;
            Some(format!("{} {} {name}", flow.address, flow.port))
        };
        assert_eq!(
            found(&line("ESTABLISHED", led)).as_deref(),
            Some("10.80.1.1 51000 s1")
        );
        assert_eq!(found(six).as_deref(), Some("fd00:80::1:1 5 s1"));
        assert_eq!(found(&line("TIME_WAIT", led)), None);
        assert_eq!(found(&line("ESTABLISHED", plain)), None);
        assert_eq!(found("ipv4     2 udp      17 2 src=10.80.1.1"), None);
    }
}
