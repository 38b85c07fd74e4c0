//! Reads the facts that the checks judge: of this machine, of servers by their agents, of services by their protocols.

use super::certificate;
use super::repair::tool;
use super::survey::{Asked, DirectorCase, ServerCase, Tables};
use crate::backend::health_kind;
use crate::check::{connect, ftp_reply, ftp_text};
use crate::config::GatewayConfig;
use crate::event::Status;
use crate::expect::Expect;
use crate::facts::Facts;
use serde::de::DeserializeOwned;
use sheaf_serve::{HealthKind, ServerConfig, ServiceConfig};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Longest time of a question.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between two tries to connect.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Largest answer of an agent or a director.
const ANSWER_MAX: u64 = 64 << 20;
/// Configuration of Debian's GridFTP server.
const GRIDFTP_FILE: &str = "/etc/gridftp.conf";
/// Folder of further files.
const GRIDFTP_FOLDER: &str = "/etc/gridftp.d";
/// Rules of the kind that the plane `nft` makes, for a trial that changes nothing.
const TRIAL: &str = r#"table netdev sheaf_doctor {
  map slot { type mark : ether_addr; elements = { 0 : 02:00:00:00:00:01 } }
  chain out { ether daddr set meta mark map @slot fwd to "CARD"; }
  chain in { type filter hook ingress device "CARD" priority -300; policy accept;
    ip daddr 192.0.2.1 meta mark set jhash ip saddr . tcp sport mod 1 seed 0x0 goto out;
  }
}
"#;

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn get<T: DeserializeOwned>(url: &str) -> Result<T, String> {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .build();
    let agent: ureq::Agent = config.into();
    let mut answer = agent
        .get(url)
        .call()
        .map_err(|error| format!("{url}: {error}"))?;
    let body = answer.body_mut().with_config().limit(ANSWER_MAX);
    let text = body
        .read_to_string()
        .map_err(|error| format!("{url}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{url}: {error}"))
}

/// Reads what concerns a server. `here` are the facts of this machine if it is that server.
pub(super) fn server<'a>(
    config: &'a GatewayConfig,
    service: &'a ServiceConfig,
    server: &'a ServerConfig,
    here: Option<&Facts>,
) -> ServerCase<'a> {
    let earliest = now_ms();
    let facts = match (here, server.agent) {
        (Some(facts), _) => Asked::Answer(facts.clone()),
        (None, None) => Asked::Not("the server has no agent to ask; run this there".to_owned()),
        (None, Some(agent)) => match get(&format!("http://{agent}/facts")) {
            Ok(facts) => Asked::Answer(facts),
            Err(error) => Asked::Failed(error),
        },
    };
    let expect = config.expect.get(&service.name);
    ServerCase {
        service,
        server,
        expect,
        is_here: here.is_some(),
        is_direct_return: config.is_direct_return(),
        facts,
        asked_ms: (earliest, now_ms()),
        data_address: data_address(service, server, here.is_some()),
        certificate: server_certificate(service, server, expect, here.is_some()),
        accepts: accepts(config, service, here),
        now_s: i64::try_from(now_ms() / 1000).unwrap_or(i64::MAX),
    }
}

/// Connects to the virtual addresses on the machine of a server: they are on its `lo`.
fn accepts(
    config: &GatewayConfig,
    service: &ServiceConfig,
    here: Option<&Facts>,
) -> Asked<BTreeMap<IpAddr, Result<(), String>>> {
    let Some(here) = here else {
        return Asked::Not("tried on the server itself".to_owned());
    };
    if !config.is_direct_return() {
        return Asked::Not("the plane is a proxy: servers have no virtual address".to_owned());
    }
    let is_here = |address: &&IpAddr| here.holders(**address).next().is_some();
    let all = service.addresses.iter().filter(is_here);
    let tried: BTreeMap<_, _> = all
        .map(|address| {
            (
                *address,
                connect_here(SocketAddr::new(*address, service.port)),
            )
        })
        .collect();
    match tried.is_empty() {
        true => Asked::Not("the virtual addresses are not on this machine".to_owned()),
        false => Asked::Answer(tried),
    }
}

/// Connects to an address of this machine. The kernel makes the route of a new IPv6 address a moment later than the
/// address: until then another machine answers that there is no way.
fn connect_here(address: SocketAddr) -> Result<(), String> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let error = match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let kinds = [ErrorKind::NetworkUnreachable, ErrorKind::HostUnreachable];
        if !kinds.contains(&error.kind()) || Instant::now() >= end {
            return Err(error.to_string());
        }
        std::thread::park_timeout(LOOK_AGAIN);
    }
}

/// Own address of a server at which questions go to its storage server, IPv4 first.
fn reached(service: &ServiceConfig, server: &ServerConfig) -> Option<SocketAddr> {
    let mut all = server.addresses.iter();
    let v4 = all.clone().find(|address| address.is_ipv4());
    let address = v4.or_else(|| all.next())?;
    Some(SocketAddr::new(
        *address,
        server.port.unwrap_or(service.port),
    ))
}

/// Asks GridFTP where a client is to send its data; if it takes no guest, its files on this machine say so.
fn data_address(service: &ServiceConfig, server: &ServerConfig, is_here: bool) -> Asked<IpAddr> {
    if health_kind(service) != HealthKind::Gridftp {
        return Asked::Not("the service is not GridFTP".to_owned());
    }
    let Some(address) = reached(service, server).filter(SocketAddr::is_ipv4) else {
        return Asked::Not("the server has no IPv4 address, and EPSV names none".to_owned());
    };
    match passive(address) {
        Asked::Not(_) if is_here => gridftp_files().map_or_else(Asked::Not, Asked::Answer),
        asked => asked,
    }
}

/// Reads the address of `data_interface` in the files of Debian's GridFTP server; of several the last counts.
fn gridftp_files() -> Result<IpAddr, String> {
    let mut paths = vec![PathBuf::from(GRIDFTP_FILE)];
    let entries = std::fs::read_dir(GRIDFTP_FOLDER).into_iter().flatten();
    let mut others: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    others.sort();
    paths.append(&mut others);
    let texts = paths
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok());
    let text: String = texts.map(|text| text + "\n").collect();
    let name = data_interface(&text).ok_or_else(|| {
        format!("the server takes no guest, and {GRIDFTP_FILE} has no data_interface")
    })?;
    let found = (name.as_str(), 0_u16).to_socket_addrs();
    let mut found = found.map_err(|error| format!("data_interface {name}: {error}"))?;
    let first = found.next().map(|address| address.ip());
    first.ok_or_else(|| format!("data_interface {name} has no address"))
}

/// Returns the last value of `data_interface` in a configuration of GridFTP: a key and a value a line.
fn data_interface(text: &str) -> Option<String> {
    let value = |line: &str| {
        let (key, value) = line.trim().split_once(char::is_whitespace)?;
        let value = value.trim().trim_matches('"').to_owned();
        (key == "data_interface" && !value.is_empty()).then_some(value)
    };
    text.lines().filter_map(value).next_back()
}

/// Logs in as a guest and asks for a passive data connection (RFC 959, `PASV`).
fn passive(address: SocketAddr) -> Asked<IpAddr> {
    let talk = || -> Result<Asked<IpAddr>, String> {
        let mut stream = connect(address, TIMEOUT)?;
        ftp_reply(&mut stream)?;
        for command in ["USER anonymous\r\n", "PASS sheaf@localhost\r\n"] {
            let sent = stream.write_all(command.as_bytes());
            sent.map_err(|error| error.to_string())?;
            match ftp_reply(&mut stream)? {
                230 => break,
                331 => {}
                code => {
                    let reason =
                        format!("the server takes no guest (reply {code}); run this there");
                    return Ok(Asked::Not(reason));
                }
            }
        }
        let sent = stream.write_all(b"PASV\r\n");
        sent.map_err(|error| error.to_string())?;
        let (code, text) = ftp_text(&mut stream)?;
        let _ = stream.write_all(b"QUIT\r\n"); // The answer is there already.
        let found = pasv(&text).ok_or_else(|| format!("found reply {code} {text:?} to PASV"))?;
        Ok(Asked::Answer(found))
    };
    match talk() {
        Ok(asked) => asked,
        Err(error) => Asked::Failed(format!("GridFTP at {address}: {error}")),
    }
}

/// Reads the address in a reply to `PASV`: `227 Entering Passive Mode (10,80,0,11,195,80)`.
fn pasv(text: &str) -> Option<IpAddr> {
    let (_, rest) = text.split_once('(')?;
    let (inside, _) = rest.split_once(')')?;
    let numbers: Option<Vec<u8>> = inside
        .split(',')
        .map(|part| part.trim().parse().ok())
        .collect();
    match numbers?[..] {
        [a, b, c, d, _, _] => Some(Ipv4Addr::new(a, b, c, d).into()),
        _ => None,
    }
}

fn server_certificate(
    service: &ServiceConfig,
    server: &ServerConfig,
    expect: Option<&Expect>,
    is_here: bool,
) -> Asked<super::survey::Certificate> {
    let Some(expect) = expect.and_then(|expect| expect.certificate.as_ref()) else {
        return Asked::Not("none is expected".to_owned());
    };
    let found = match &expect.file {
        Some(_) if !is_here => {
            return Asked::Not("the file is on the server; run this there".to_owned());
        }
        Some(path) => certificate::of_file(path),
        None => {
            let first = service.addresses.first().map(ToString::to_string);
            let name = expect.names.first().cloned().or(first).unwrap_or_default();
            match reached(service, server) {
                Some(address) => certificate::shown(address, &name, TIMEOUT),
                None => Err("the server has no address".to_owned()),
            }
        }
    };
    match found {
        Ok(found) => Asked::Answer(found),
        Err(error) => Asked::Failed(error),
    }
}

/// Reads what concerns the director, which is this machine.
pub(super) fn director<'a>(
    config: &'a GatewayConfig,
    services: Vec<&'a ServiceConfig>,
    here: &Facts,
    servers: &[ServerCase<'_>],
) -> DirectorCase<'a> {
    let mtu = |case: &ServerCase<'_>| match &case.facts {
        Asked::Answer(facts) => {
            let link = facts.link_of(&case.server.addresses)?;
            Some((case.server.name.clone(), link.mtu))
        }
        Asked::Failed(_) | Asked::Not(_) => None,
    };
    let all = services.iter().flat_map(|service| &service.servers);
    let all = all.flat_map(|server| &server.addresses);
    DirectorCase {
        config,
        facts: here.clone(),
        server_mtus: servers.iter().filter_map(mtu).collect(),
        sources: all.filter_map(|to| Some((*to, source(*to)?))).collect(),
        rules: rules(config),
        plane: plane(config),
        features: features(config),
        tables: tables(config),
        services,
    }
}

/// Returns the address from which the kernel begins connections to `to`. No packet is sent.
fn source(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn rules(config: &GatewayConfig) -> Asked<()> {
    if config.director.plane != "nft" {
        return Asked::Not(format!("plane {} has no such rules", config.director.plane));
    }
    let text = TRIAL.replace("CARD", &config.director.interface);
    match tool("nft", "nftables", &["-c", "-f", "-"], &text) {
        Ok(_) => Asked::Answer(()),
        Err(error) => Asked::Failed(error),
    }
}

fn plane(config: &GatewayConfig) -> Asked<String> {
    let name = &config.director.plane;
    let tried = sheaf_planes::named(name, &config.plane()).and_then(|mut plane| plane.try_out());
    match tried {
        Ok(Some(found)) => Asked::Answer(found),
        Ok(None) => Asked::Not(format!(
            "plane {name} needs nothing that other checks do not read"
        )),
        Err(error) => Asked::Failed(error.to_string()),
    }
}

fn features(config: &GatewayConfig) -> Asked<BTreeMap<String, (bool, bool)>> {
    let interface = config.director.interface.as_str();
    if interface.is_empty() {
        return Asked::Not("no interface is configured".to_owned());
    }
    match tool("ethtool", "ethtool", &["-k", interface], "") {
        Ok(text) => Asked::Answer(parse_features(&text)),
        Err(error) => Asked::Not(error),
    }
}

/// Reads what `ethtool -k` prints: a feature a line, `name: on [fixed]`.
fn parse_features(text: &str) -> BTreeMap<String, (bool, bool)> {
    let feature = |line: &str| {
        let (name, state) = line.trim().split_once(": ")?;
        let is_on = state.starts_with("on");
        Some((name.to_owned(), (is_on, state.contains("[fixed]"))))
    };
    text.lines().filter_map(feature).collect()
}

fn tables(config: &GatewayConfig) -> Vec<(String, Asked<Tables>)> {
    let Some(failover) = &config.failover else {
        return Vec::new();
    };
    let Ok((own, others)) = failover.split(&config.director.name) else {
        return Vec::new(); // The configuration was checked.
    };
    let ask = |row: &crate::failover::FailoverDirector| {
        let asked = match get::<Status>(&format!("http://{}/status", row.http)) {
            Ok(status) => {
                let table = |service: sheaf_serve::ServiceStatus| {
                    (service.name, (service.table, service.pins))
                };
                Asked::Answer(status.services.into_iter().map(table).collect())
            }
            Err(error) => Asked::Failed(error),
        };
        (row.name.clone(), asked)
    };
    [own].into_iter().chain(others).map(ask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_pasv_names_an_address() {
        let text = "227 Entering Passive Mode (10,80,0,11,195,80)";
        assert_eq!(pasv(text), Some(IpAddr::from([10, 80, 0, 11])));
        for text in [
            "227 (1,2,3,4)",
            "227 10,80,0,11,195,80",
            "227 (1,2,3,4,5,600)",
        ] {
            assert_eq!(pasv(text), None, "{text}");
        }
    }

    #[test]
    fn the_last_data_interface_of_the_files_of_gridftp_counts() {
        let text = "port 2811\n#data_interface 10.80.0.1\ndata_interface 10.80.0.2\n\
                    data_interface \"10.80.0.11\"\ndata_interface_x 10.80.0.3\n";
        assert_eq!(data_interface(text).as_deref(), Some("10.80.0.11"));
        assert_eq!(data_interface("port 2811\ndata_interface \n"), None);
    }

    #[test]
    fn features_that_cannot_be_changed_are_marked() {
        let text = "Features for eth0:\nrx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n\
                    large-receive-offload: on\n";
        let found = parse_features(text);
        assert_eq!(found["large-receive-offload"], (true, false));
        assert_eq!(found["tx-checksum-ipv4"], (false, true));
    }
}
