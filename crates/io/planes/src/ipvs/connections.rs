//! Connections that IPVS knows.

use super::note::Note;
use crate::error::PlaneError;
use sheaf_serve::Flow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

const PATH: &str = "/proc/net/ip_vs_conn";

/// Returns the connections of a service that may go on, with the names of their servers.
pub(super) fn read(note: &Note) -> Result<BTreeMap<Flow, String>, PlaneError> {
    let failed = |error| PlaneError::File {
        path: PathBuf::from(PATH),
        error,
    };
    let mut flows = BTreeMap::new();
    for line in BufReader::new(File::open(PATH).map_err(failed)?).lines() {
        let line = line.map_err(failed)?;
        if let Some((flow, server)) = parse(&line, note) {
            flows.insert(flow, server.clone());
        }
    }
    Ok(flows)
}

/// Reads a line: protocol, then client, virtual address and server with a port each, all in hexadecimal, then a state.
fn parse<'a>(line: &str, note: &'a Note) -> Option<(Flow, &'a String)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [
        "TCP",
        client,
        client_port,
        service,
        service_port,
        server,
        server_port,
        state,
        ..,
    ] = words[..]
    else {
        return None;
    };
    if ["TIME_WAIT", "CLOSE"].contains(&state) {
        return None;
    }
    let client = endpoint(client, client_port)?;
    if !note.services.contains(&endpoint(service, service_port)?) {
        return None;
    }
    let flow = Flow {
        address: client.ip(),
        port: client.port(),
    };
    Some((flow, note.servers.get(&endpoint(server, server_port)?)?))
}

fn endpoint(address: &str, port: &str) -> Option<SocketAddr> {
    let address = match u32::from_str_radix(address, 16) {
        Ok(number) => IpAddr::V4(Ipv4Addr::from(number)),
        // Newer kernels put addresses of IPv6 into brackets.
        Err(_) => address.trim_matches(['[', ']']).parse().ok()?,
    };
    Some(SocketAddr::new(
        address,
        u16::from_str_radix(port, 16).ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_may_go_on_are_listed_with_their_server() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let note = Note {
            services: ["10.80.0.100:8080", "[fd00:80::100]:8080"]
                .map(address)
                .into(),
            servers: [
                (address("10.80.0.11:8080"), "s1".to_owned()),
                (address("[fd00:80::11]:8080"), "s1".to_owned()),
            ]
            .into(),
        };
        let found = |line: &str| {
            let (flow, name) = parse(line, &note)?;
            Some(format!("{} {} {name}", flow.address, flow.port))
        };
        let four = "TCP 0A500101 C738 0A500064 1F90 0A50000B 1F90 ESTABLISHED     899";
        let six = "TCP fd00:0080:0000:0000:0000:0000:0001:0001 C738 \
                   fd00:0080:0000:0000:0000:0000:0000:0100 1F90 \
                   fd00:0080:0000:0000:0000:0000:0000:0011 1F90 FIN_WAIT 90";
        assert_eq!(found(four).as_deref(), Some("10.80.1.1 51000 s1"));
        assert_eq!(found(six).as_deref(), Some("fd00:80::1:1 51000 s1"));
        assert_eq!(found(&four.replace("ESTABLISHED", "TIME_WAIT")), None);
        assert_eq!(found(&four.replace("0A500064", "0A500065")), None);
        assert_eq!(
            found(
                "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData"
            ),
            None
        );
    }
}
